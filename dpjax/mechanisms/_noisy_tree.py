"""Selection by low-sensitivity queries: the noisy binary tree (Steinke 2025).

The k candidates are the leaves of a complete binary tree. At each node on the way down, the query

    q = (smallest loss in the left subtree - smallest loss in the right subtree) / 2

gets fresh noise; a positive answer leads to the right. The tree is public, so the probability of
each leaf is exactly a product of R = ceil(log2 k) noise probabilities. Privacy: between neighbors
each loss changes by at most the sensitivity (up to a common shift, which cancels), hence so does
each of the two minima, and q by at most (s + s)/2 = s; R queries compose. If one subtree only
contains excluded candidates (publicly) or padding, no query is made.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.finite import Finite
from dpjax.mechanisms._exponential import candidate_scores
from dpjax.mechanisms.decisions import Noise, guarantee_of, log_cdf, noise_of, noise_scale
from dpjax.mechanisms.relations import relation_of
from dpjax.sensitivity.scores import CandidateScores


def guarantee(
    scores: CandidateScores | ArrayLike,
    *,
    epsilon: float | None = None,
    zcdp: float | None = None,
    neighbors: str | None = None,
) -> Guarantee:
    """Return the guarantee of one draw of :func:`noisy_tree`.

    ``neighbors`` is required for an array of scores.

    >>> import jax.numpy as jnp
    >>> print(noisy_tree.guarantee(jnp.zeros(16), epsilon=1.0, neighbors="swap"))
    1-DP and 2-bounded-range and 0.125-zCDP under swap neighbors
    >>> print(noisy_tree.guarantee(jnp.zeros(16), zcdp=0.5, neighbors="swap"))
    0.5-zCDP under swap neighbors
    """
    noise, budget = noise_of(epsilon, zcdp)
    values = (
        scores.scores
        if isinstance(scores, CandidateScores)
        else checks.float_array("scores", scores)
    )
    return guarantee_of(
        noise,
        budget,
        rounds=max(tree_rounds(values.shape[-1]), 1),
        neighbors=relation_of(scores, neighbors),
    )


@with_guarantee(guarantee)
def noisy_tree(
    scores: CandidateScores | ArrayLike,
    *,
    epsilon: ArrayLike | None = None,
    zcdp: ArrayLike | None = None,
    candidates: ArrayLike | None = None,
    sensitivity: ArrayLike | None = None,
) -> Finite:
    """Return the distribution of the noisy binary tree, exact for each candidate; loss = -score.

    ``epsilon`` selects Laplace noise of scale R sensitivity/epsilon, ``zcdp`` Gaussian noise of
    variance R sensitivity^2 / (2 zcdp). It answers whether selection needs the exponential
    mechanism, but does not compete with it: its expected excess loss grows as (log k)^(3/2) with
    Gaussian and (log k)^2 with Laplace noise, and depends on the order of the candidates.

    Args:
        scores: see :mod:`dpjax.mechanisms`, also for ``candidates`` and ``sensitivity``.
        epsilon: positive. Exactly one of epsilon and zcdp must be given.
        zcdp: positive.

    Returns:
        A :class:`Finite` of the broadcast batch shape; its costs are minus log-probabilities, and
        its rate is 1.

    Privacy:
        epsilon-DP, or zcdp-zCDP, under the relation that the sensitivity holds for; with Laplace
        noise also epsilon^2/(2 R)-zCDP, but no bounded range below 2 epsilon is guaranteed.
        Composition is not tight here, since the queries share their minima: the largest loss found
        is x + (R-1) log(2 - e^-x) for x = epsilon/R. The noise is not reduced accordingly, as this
        is not proved. Public: the budget, the sensitivity, the candidates and their order. The
        noise itself is not drawn: a ``sample`` is a leaf of the tree.

    References:
        Steinke, "Open problem: selection via low-sensitivity queries", differentialprivacy.org
        (2025), Equation 2.

    >>> import jax.numpy as jnp
    >>> distribution = noisy_tree(jnp.array([0.0, 9.0, 0.0]), epsilon=4.0, sensitivity=1.0)
    >>> [round(float(p), 4) for p in distribution.probabilities()]
    [0.0001, 0.9999, 0.0001]
    """
    noise, budget = noise_of(epsilon, zcdp)
    candidate_set = candidate_scores(
        scores, candidates=candidates, sensitivity=sensitivity, caller="noisy_tree"
    )
    rounds = max(tree_rounds(candidate_set.scores.shape[-1]), 1)
    scale = noise_scale(noise, budget, rounds=rounds, dtype=candidate_set.dtype)
    scale = scale * checks.positive("sensitivity", candidate_set.sensitivity, candidate_set.dtype)
    return Finite(
        candidate_set.candidates,
        _cost(candidate_set.scores, scale, noise),
        jnp.ones((), candidate_set.dtype),
    )


@partial(jax.jit, static_argnames=("noise",))
def _cost(scores: jax.Array, scale: jax.Array, noise: Noise) -> jax.Array:
    """Return minus the log-probability of every candidate."""
    batch, size = jnp.broadcast_shapes(scores.shape[:-1], scale.shape), scores.shape[-1]
    rounds = max(tree_rounds(size), 1)
    missing = [(0, 0)] * (scores.ndim - 1) + [(0, 2**rounds - size)]
    best, levels = jnp.pad(scores, missing, constant_values=-jnp.inf), []
    for _ in range(rounds):  # from the parents of leaves up, all nodes of a level at once
        left, right = best[..., 0::2], best[..., 1::2]
        compared = (left > -jnp.inf) & (right > -jnp.inf)
        margin = jnp.where(compared, right - left, 0.0) / 2 / scale[..., None]
        ways = [jnp.where(compared, log_cdf(sign * margin, noise), 0.0) for sign in (-1, 1)]
        levels.append(jnp.stack(ways, axis=-1))
        best = jnp.maximum(left, right)
    total = jnp.zeros((*batch, 1), scores.dtype)
    for level in reversed(levels):
        total = (total[..., None] + level).reshape(*batch, -1)
    cost = jnp.where(scores == -jnp.inf, jnp.inf, -total[..., :size])
    return jnp.where(jnp.isfinite(best) & ~jnp.isnan(scale[..., None]), cost, jnp.nan)


def tree_rounds(num_candidates: int) -> int:
    """Return the number of queries on the way to a leaf, ``ceil(log2(num_candidates))``.

    >>> [tree_rounds(k) for k in (1, 2, 3, 4, 5, 8, 9)]
    [0, 1, 2, 2, 3, 3, 4]
    """
    return (checks.static_integer("num_candidates", num_candidates, 1) - 1).bit_length()
