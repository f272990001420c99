"""Selection through queries of low sensitivity: the noisy binary tree (Steinke 2025).

The k candidates are the leaves of a complete binary tree. At each node on the way down, the query

    q = (smallest loss in the left subtree - smallest loss in the right subtree) / 2

gets fresh noise; a positive answer leads to the right. The tree is public, so the probability of each leaf is a product of
R = ceil(log2 k) noise probabilities, exactly. Privacy: between neighbours each loss changes by at most the sensitivity (up to a
common shift, which cancels), hence so does each of the two minima, and q by at most (s + s)/2 = s; R queries compose. Leaves are
padded with candidates of infinite loss: next to one whose subtree holds nothing else no query is made, so that neither it nor
inf - inf comes up. That is decided by the public tree.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.distributions.finite import Finite
from dpjax.mechanisms.decisions import Noise, guarantee_of, log_cdf, noise_of, noise_scale
from dpjax.mechanisms.exponential import candidate_scores, relation_of
from dpjax.mechanisms.shifted_inverse import num_candidates_over
from dpjax.numerics.batching import align, broadcast_rows
from dpjax.sensitivity.scores import CandidateScores

_LANES = 32  # log and exp differ in their last bits between the lanes of a row that is not a multiple of this


def noisy_tree(
    scores: CandidateScores | ArrayLike,
    *,
    epsilon: ArrayLike | None = None,
    zcdp: ArrayLike | None = None,
    candidates: ArrayLike | None = None,
    sensitivity: ArrayLike | None = None,
) -> Finite:
    """Return the law of the noisy binary tree, with the exact probability of each candidate.

    With loss = -score and R = :func:`tree_rounds` of the k candidates, each node asks for

        (min of the losses to the left - min of the losses to the right) / 2 + noise > 0,   and goes right if so.

    ``epsilon`` means Laplace noise of scale R sensitivity / epsilon, ``zcdp`` Gaussian noise of variance
    R sensitivity^2 / (2 zcdp).

    It is the answer to whether selection needs the exponential mechanism, not a rival of it: its expected excess loss grows as
    (log k)^(3/2) with Gaussian and (log k)^2 with Laplace noise, and depends on the order of the candidates.

    Args:
        scores: :class:`CandidateScores`, or float ``(..., k)``, higher is better. A score of ``-inf`` excludes a candidate; that
            must be public, the same for every dataset.
        epsilon: positive, broadcasts against the batch shape; or
        zcdp: rho of zero-concentrated DP, positive, broadcasts against the batch shape. Exactly one of the two.
        candidates: float ``(k,)`` or ``(..., k)``, public, what an array of scores belongs to; without it, the indices 0..k-1.
        sensitivity: positive ``(...)``, required with an array of scores: the most by which any score changes between neighbours.

    Returns:
        A :class:`Finite` of the broadcast batch shape; its costs are minus log-probabilities, at rate 1. Its row is NaN where a
        score is NaN or ``+inf``, or all are ``-inf``.

    Raises:
        ValueError: both or neither of ``epsilon`` and ``zcdp``, or as :func:`dpjax.exponential`.

    Privacy:
        epsilon-DP, or zcdp-zCDP, under the relation that the sensitivity holds for; with Laplace noise also epsilon^2/(2 R)-zCDP,
        and no bounded range below 2 epsilon is promised. Composition is not tight here, since the queries share their minima: the
        largest loss found is x + (R-1) log(2 - e^-x) for x = epsilon/R. The noise is not made smaller for it, as that is not
        proved. Public: the budget, the sensitivity, the candidates and their order. No noise is drawn: a ``sample`` is a leaf of
        the tree.

    References:
        Steinke, "Open problem: selection via low-sensitivity queries", differentialprivacy.org (2025), Equation 2.

    >>> import jax.numpy as jnp
    >>> law = noisy_tree(jnp.array([0.0, 9.0, 0.0]), epsilon=4.0, sensitivity=1.0)
    >>> [round(float(p), 4) for p in law.probabilities()]
    [0.0001, 0.9999, 0.0001]
    """
    noise, budget = noise_of(epsilon, zcdp)
    given = candidate_scores(scores, candidates=candidates, sensitivity=sensitivity, caller="noisy_tree")
    rounds = max(tree_rounds(given.scores.shape[-1]), 1)
    scale = noise_scale(noise, budget, rounds=rounds, dtype=given.dtype)
    unit = checks.positive("sensitivity", given.sensitivity, given.dtype)
    rank = max(scale.ndim, unit.ndim)
    cost = _cost(given.scores, align(scale, rank) * align(unit, rank), noise)
    return Finite(given.candidates, cost, jnp.ones((), given.dtype))


@partial(jax.jit, static_argnames=("noise",))
def _cost(scores: jax.Array, scale: jax.Array, noise: Noise) -> jax.Array:
    """Minus the log-probability of every candidate."""
    batch, size = jnp.broadcast_shapes(scores.shape[:-1], scale.shape), scores.shape[-1]
    rounds = tree_rounds(size)
    padding = [(0, 0)] * (scores.ndim - 1) + [(0, 2**rounds - size)]
    alive = jnp.pad(scores > -jnp.inf, padding)
    best = jnp.where(alive, jnp.pad(scores, padding), 0.0)
    margins, lives = [], []  # of every node, from the leaves' parents up to the root
    for _ in range(rounds):
        left, right = best[..., 0::2], best[..., 1::2]
        to_left, to_right = alive[..., 0::2], alive[..., 1::2]
        both = to_left & to_right
        margins.append(jnp.where(both, right - left, 0.0) / 2)
        lives += [jnp.stack([to_left, to_right], axis=-1)]
        best = jnp.where(both, jnp.maximum(left, right), jnp.where(to_left, left, right))
        alive = to_left | to_right
    total = jnp.zeros((*batch, 1), scores.dtype)
    if rounds:
        # The nodes of all levels at once.
        joined = jnp.concatenate(margins, axis=-1)
        nodes = joined.shape[-1]
        joined = jnp.pad(joined, [(0, 0)] * (joined.ndim - 1) + [(0, -nodes % _LANES)])
        margin = align(joined, len(batch) + 1) / align(scale, len(batch))[..., None]
        decision = jnp.stack([log_cdf(-margin, noise), log_cdf(margin, noise)], axis=-1)[..., :nodes, :]
        life = align(jnp.concatenate(lives, axis=-2), decision.ndim)
        certain = jnp.any(life, axis=-1, keepdims=True) & ~jnp.all(life, axis=-1, keepdims=True)
        decision = jnp.where(certain, 0.0, decision)
        end = nodes
        for depth in range(rounds):  # explicit adds, from the root down
            start = end - 2**depth
            total = (total[..., None] + decision[..., start:end, :]).reshape(*batch, 2 ** (depth + 1))
            end = start
    excluded = broadcast_rows(scores == -jnp.inf, batch)
    cost = jnp.where(excluded, jnp.inf, -total[..., :size])
    broken = jnp.any(jnp.isnan(scores) | (scores == jnp.inf), axis=-1, keepdims=True) | jnp.all(
        scores == -jnp.inf, axis=-1, keepdims=True
    )
    return jnp.where(broadcast_rows(broken, batch) | jnp.isnan(align(scale, len(batch)))[..., None], jnp.nan, cost)


def tree_rounds(num_candidates: int) -> int:
    """Return the number of queries on the way to a leaf: ``ceil(log2(num_candidates))``.

    Args:
        num_candidates: at least 1.

    Returns:
        A Python integer; 0 for one candidate.

    Raises:
        ValueError: a number below 1.

    Privacy:
        None is spent: it reads public numbers only.

    References:
        Steinke, "Open problem: selection via low-sensitivity queries", differentialprivacy.org (2025).

    >>> [tree_rounds(k) for k in (1, 2, 3, 4, 5, 8, 9)]
    [0, 1, 2, 2, 3, 3, 4]
    """
    num_candidates_over(0.5, num_candidates)
    return (int(num_candidates) - 1).bit_length()


def guarantee(
    scores: CandidateScores | ArrayLike, *, epsilon: float | None = None, zcdp: float | None = None, neighbors: str | None = None
) -> Guarantee:
    """Return what one draw of :func:`noisy_tree` costs; see :func:`dpjax.mechanisms.exponential.guarantee`.

    >>> import jax.numpy as jnp
    >>> print(guarantee(jnp.zeros(16), epsilon=1.0, neighbors="swap"))
    1-DP and 2-bounded-range and 0.125-zCDP under swap neighbors
    >>> print(guarantee(jnp.zeros(16), zcdp=0.5, neighbors="swap"))
    0.5-zCDP under swap neighbors
    """
    noise, budget = noise_of(epsilon, zcdp)
    given: Any = scores.scores if isinstance(scores, CandidateScores) else checks.float_array("scores", scores)
    rounds = max(tree_rounds(given.shape[-1]), 1)
    return guarantee_of(noise, budget, rounds=rounds, neighbors=relation_of(scores, neighbors))
