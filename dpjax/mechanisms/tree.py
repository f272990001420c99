"""Noisy decisions on the way down a public tree: selection, and search for a shifted value.

Each decision tests whether a query of sensitivity 1 plus fresh noise is positive, so the
probability of each leaf is exactly a product of noise probabilities, and R decisions compose.

**Noisy tree** (Steinke 2025). The k candidates are the leaves of a complete binary tree. At each
node on the way down, the query

    q = (smallest loss in the left subtree - smallest loss in the right subtree) / 2

gets fresh noise; a positive answer leads to the right. The tree is public, so the probability of
each leaf is exactly a product of R = ceil(log2 k) noise probabilities. Privacy: between neighbors
each loss changes by at most the sensitivity (up to a common shift, which cancels), hence so does
each of the two minima, and q by at most (s + s)/2 = s; R queries compose. If one subtree only
contains excluded candidates (publicly) or padding, no query is made.

**Noisy binary search** for a monotone function's shifted value (Steinke 2023). The idea is that of
Blum, Ligett and Roth (2008).

With l(y) the number of people to remove until f <= y, search the sorted candidates for one with l
near tau:

    low, high = 0, k-1
    while low + 1 < high:  (at most R = ceil(log2(k - 1)) rounds)
        middle = (low + high) // 2
        high = middle  if l(candidates[middle]) + noise <= tau,  else  low = middle
    return candidates[high]

The search tree is public, so the probability of each leaf is exactly a product of R noise
probabilities. Privacy: each round is a noisy count of sensitivity 1, and R rounds compose. The post
counts ceil(log2 k) - 1 rounds and sets the Laplace scale to log2(k)/epsilon, which is too small:
for the maximum with k = 6 candidates, all records at the lowest one and one more person at the
highest, the loss is 1.16 epsilon (k = 11: 1.156 epsilon). Here the scale is R/epsilon.
"""

from __future__ import annotations

from functools import partial
from math import log, sqrt
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.distributions.finite import Finite
from dpjax.mechanisms.line import Candidates, Down, finite_range, num_candidates_over, removals
from dpjax.mechanisms.mechanism import Amount, Positive, mechanism, one_budget, relation_of
from dpjax.mechanisms.selection import Scores, candidate_scores
from dpjax.sensitivity import CandidateScores, DownSensitivity

Noise = Literal["laplace", "gaussian"]


def _guarantee_of_tree(
    scores: CandidateScores | ArrayLike,
    *,
    epsilon: Amount | None = None,
    zcdp: Amount | None = None,
    neighbors: str | None = None,
) -> Guarantee:
    """Return the guarantee of one draw of :func:`noisy_tree`.

    ``neighbors`` is required for an array of scores.

    >>> import jax.numpy as jnp
    >>> print(noisy_tree.guarantee(jnp.zeros(16), epsilon=1.0, neighbors="swap"))
    1-DP under swap neighbors
    >>> print(noisy_tree.guarantee(jnp.zeros(16), zcdp=0.5, neighbors="swap"))
    0.5-zCDP under swap neighbors
    """
    relation = relation_of(scores, neighbors)
    values = getattr(scores, "scores", scores)
    size = checks.float_array("scores", values).shape[-1]
    return _guarantee_of(tree_rounds(size), epsilon, zcdp, relation)


@mechanism(_guarantee_of_tree)
def noisy_tree(
    scores: Scores,
    *,
    epsilon: Positive | None = None,
    zcdp: Positive | None = None,
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
    choice = candidate_scores(scores, candidates, sensitivity)
    noise, scale = _noise(tree_rounds(choice.scores.shape[-1]), epsilon, zcdp)
    cost = _cost_of_leaves(choice.scores, scale * choice.sensitivity, noise)
    return Finite(choice.candidates, cost, jnp.ones((), choice.dtype))


@partial(jax.jit, static_argnames=("noise",))
def _cost_of_leaves(scores: jax.Array, scale: jax.Array, noise: Noise) -> jax.Array:
    """Return minus the log-probability of every candidate."""
    batch, size = jnp.broadcast_shapes(scores.shape[:-1], scale.shape), scores.shape[-1]
    rounds = max(tree_rounds(size), 1)
    missing = [(0, 0)] * (scores.ndim - 1) + [(0, 2**rounds - size)]
    best, levels = jnp.pad(scores, missing, constant_values=-jnp.inf), []
    for _ in range(rounds):  # from the parents of leaves up, all nodes of a level at once
        left, right = best[..., 0::2], best[..., 1::2]
        compared = (left > -jnp.inf) & (right > -jnp.inf)
        margin = jnp.where(compared, right - left, 0.0) / 2 / scale[..., None]
        ways = [jnp.where(compared, _log_cdf(sign * margin, noise), 0.0) for sign in (-1, 1)]
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


def _guarantee_of_search(
    down: DownSensitivity | str,
    *,
    num_candidates: int,
    epsilon: Amount | None = None,
    zcdp: Amount | None = None,
) -> Guarantee:
    """Return the guarantee of one draw of :func:`noisy_binary_search`.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics.monotone import maximum
    >>> down = maximum(jnp.arange(9.0), lower=0, upper=99)
    >>> print(noisy_binary_search.guarantee(down, num_candidates=17, epsilon=1.0))
    1-DP under add_remove neighbors
    >>> print(noisy_binary_search.guarantee(down, num_candidates=17, zcdp=0.5))
    0.5-zCDP under add_remove neighbors
    """
    return _guarantee_of(search_rounds(num_candidates), epsilon, zcdp, relation_of(down))


@mechanism(_guarantee_of_search)
def noisy_binary_search(
    down: Down,
    *,
    tau: Positive,
    candidates: Candidates,
    epsilon: Positive | None = None,
    zcdp: Positive | None = None,
) -> Finite:
    """Return the distribution of the noisy binary search, exact for every candidate.

    ``epsilon`` selects Laplace noise of scale R/epsilon, ``zcdp`` Gaussian noise of variance R/(2
    zcdp), R = :func:`search_rounds`. The first candidate is never returned (nor queried), so the
    post's utility theorem fails, with probability 1, where f(x) is the first candidate: put a value
    below the range of f in front.

    Args:
        down: the down sensitivity of a monotone statistic, batch shape ``(...)``.
        tau: positive, chosen without the data, for example by :func:`search_shift_for`; not
            necessarily an integer.
        candidates: the public finite range, as for :func:`dpjax.shifted_inverse`.
        epsilon: positive. Exactly one of epsilon and zcdp must be given.
        zcdp: positive.

    Returns:
        A :class:`Finite` of the broadcast batch shape; its costs are minus log-probabilities, and
        its rate is 1.

    Privacy:
        epsilon-DP, or zcdp-zCDP, for one person more or less, and for one person replaced. With
        Laplace noise also epsilon^2/(2 R)-zCDP, so ``epsilon = sqrt(2 R rho)`` is the mechanism of
        Theorem 5. Public: tau, the candidates, epsilon or zcdp, and what the statistic documents as
        public. The noise itself is not drawn: a ``sample`` is a leaf of the tree.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity", Theorem 5 and footnote 6;
        Blum, Ligett and Roth (2008).

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics.monotone import maximum
    >>> down = maximum(jnp.arange(100.0), lower=0, upper=1e6)
    >>> distribution = noisy_binary_search(
    ...     down, tau=20, candidates=jnp.arange(-1.0, 1000.0), epsilon=2.0
    ... )
    >>> 60 < float(distribution.quantile(0.5)) < 99
    True
    """
    values = finite_range(candidates, down.dtype)
    noise, scale = _noise(search_rounds(values.shape[0]), epsilon, zcdp)
    cost = _cost_of_ends(removals(down, values)[0], tau, scale, noise)
    return Finite(values, jnp.where(jnp.isnan(values[:1]), jnp.nan, cost), jnp.ones((), down.dtype))


@partial(jax.jit, static_argnames=("noise",))
def _cost_of_ends(
    to_at_most: jax.Array, tau: jax.Array, scale: jax.Array, noise: Noise
) -> jax.Array:
    """Return minus the log-probability of every candidate.

    ``to_at_most`` is the number of people who must leave until f is at most the candidate.
    """
    size = to_at_most.shape[-1]
    # Below f(empty), where the search goes up; masked so that gradients are finite.
    never = to_at_most == jnp.inf
    margin = (tau[..., None] - jnp.where(never, 0.0, to_at_most)) / scale[..., None]
    go_down, go_up = (_log_cdf(sign * margin, noise) for sign in (1, -1))
    go_down, go_up = jnp.where(never, -jnp.inf, go_down), jnp.where(never, 0.0, go_up)
    total = jnp.zeros_like(margin)
    # The paths to all candidates at once
    candidate, low, high = np.arange(size), np.zeros(size, int), np.full(size, size - 1)
    for _ in range(search_rounds(size)):
        middle, active = (low + high) // 2, low + 1 < high
        below = candidate <= middle
        total = jnp.where(
            active, total + jnp.where(below, go_down[..., middle], go_up[..., middle]), total
        )
        low, high = np.where(below, low, middle), np.where(below, middle, high)
    cost = jnp.where(candidate >= min(1, size - 1), -total, jnp.inf)
    broken = jnp.isnan(to_at_most[..., :1] + scale[..., None] + tau[..., None])
    return jnp.where(broken, jnp.nan, cost)


def search_rounds(num_candidates: int) -> int:
    """Return the largest number of rounds, ``ceil(log2(num_candidates - 1))``; 0 for one candidate.

    The post has ``ceil(log2(num_candidates)) - 1``, which is too small from 4 candidates on.

    >>> [search_rounds(k) for k in (2, 3, 4, 5, 6, 9, 10)]
    [0, 1, 2, 2, 3, 3, 4]
    """
    return max(checks.static_integer("num_candidates", num_candidates, 1) - 2, 0).bit_length()


def search_shift_for(
    *, num_candidates: int, failure: float, epsilon: float | None = None, zcdp: float | None = None
) -> float:
    """Return the shift with which the search ends in ``[h(2 tau), f(x)]``, up to ``failure``.

    The probability is at least ``1 - failure`` by a union bound over the R rounds: Laplace noise of
    scale R/epsilon exceeds tau = (R/epsilon) log(R/failure) with probability failure/R, Gaussian
    noise of standard deviation sqrt(R/(2 zcdp)) exceeds sqrt((R/zcdp) log(R/failure)) with less.
    Both need f(x) above the first candidate.

    Args:
        num_candidates: the size of the finite range, at least 1.
        failure: beta, strictly between 0 and 1.
        epsilon: positive. Exactly one of epsilon and zcdp must be given, as for the search itself.
        zcdp: positive.

    Returns:
        A Python float.

    Privacy:
        No privacy is spent, because only public numbers are read.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity", Theorem 5 and footnote 6,
        with R in place of log2(num_candidates).

    >>> round(search_shift_for(num_candidates=1002, failure=0.05, epsilon=2.0), 1)
    26.5
    """
    one_budget(epsilon, zcdp)
    num_candidates_over(failure, num_candidates)
    rounds = max(search_rounds(num_candidates), 1)
    budget = checks.concrete_epsilon(epsilon if zcdp is None else zcdp)
    shift = rounds / budget * log(rounds / failure)
    return shift if zcdp is None else sqrt(shift)


def _noise(rounds: int, epsilon: Any, zcdp: Any) -> tuple[Noise, jax.Array]:
    """Return the noise of each query of sensitivity 1, and its scale."""
    one_budget(epsilon, zcdp)
    rounds = max(rounds, 1)
    if zcdp is None:
        return "laplace", rounds / epsilon
    return "gaussian", jnp.sqrt(rounds / (2 * zcdp))


def _log_cdf(t: jax.Array, noise: Noise) -> jax.Array:
    """Return log P(noise <= t), for standard noise."""
    if noise == "gaussian":
        # The default of 3 has an error of 4e-9 at 20 deviations.
        return jax.scipy.special.log_ndtr(t, series_order=8)
    return jnp.where(t <= 0, t - log(2), jnp.log1p(-jnp.exp(-jnp.abs(t)) / 2))


def _guarantee_of(rounds: int, epsilon: Any, zcdp: Any, neighbors: str) -> Guarantee:
    """Return the guarantee of Laplace or Gaussian queries with equal shares of a budget."""
    one_budget(epsilon, zcdp)
    if epsilon is None:
        return Guarantee(neighbors=neighbors, zcdp=zcdp)
    return Guarantee(epsilon, 2 * epsilon, neighbors, zcdp=epsilon**2 / (2 * max(rounds, 1)))
