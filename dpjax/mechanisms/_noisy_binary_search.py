"""Noisy binary search for a monotone function's shifted value (Steinke 2023).

The idea is that of Blum, Ligett and Roth (2008).

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

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.finite import Finite
from dpjax.mechanisms.candidates import Candidates, finite_range, num_candidates_over, removals
from dpjax.mechanisms.decisions import Noise, guarantee_of, log_cdf, noise_of, noise_scale
from dpjax.mechanisms.relations import relation_of
from dpjax.sensitivity.down import DownSensitivity


def guarantee(
    down: DownSensitivity | str,
    *,
    num_candidates: int,
    epsilon: float | None = None,
    zcdp: float | None = None,
) -> Guarantee:
    """Return the guarantee of one draw of :func:`noisy_binary_search`.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics.monotone import maximum
    >>> down = maximum(jnp.arange(9.0), lower=0, upper=99)
    >>> print(noisy_binary_search.guarantee(down, num_candidates=17, epsilon=1.0))
    1-DP and 2-bounded-range and 0.125-zCDP under add_remove neighbors
    >>> print(noisy_binary_search.guarantee(down, num_candidates=17, zcdp=0.5))
    0.5-zCDP under add_remove neighbors
    """
    noise, budget = noise_of(epsilon, zcdp)
    return guarantee_of(
        noise, budget, rounds=max(search_rounds(num_candidates), 1), neighbors=relation_of(down)
    )


@with_guarantee(guarantee)
def noisy_binary_search(
    down: DownSensitivity,
    *,
    tau: ArrayLike,
    candidates: Candidates,
    epsilon: ArrayLike | None = None,
    zcdp: ArrayLike | None = None,
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
    noise, budget = noise_of(epsilon, zcdp)
    values = finite_range(candidates, down.dtype)
    scale = noise_scale(
        noise, budget, rounds=max(search_rounds(values.shape[0]), 1), dtype=down.dtype
    )
    cost = _cost(removals(down, values)[0], checks.positive("tau", tau, down.dtype), scale, noise)
    return Finite(values, jnp.where(jnp.isnan(values[:1]), jnp.nan, cost), jnp.ones((), down.dtype))


@partial(jax.jit, static_argnames=("noise",))
def _cost(to_at_most: jax.Array, tau: jax.Array, scale: jax.Array, noise: Noise) -> jax.Array:
    """Return minus the log-probability of every candidate.

    ``to_at_most`` is the number of people who must leave until f is at most the candidate.
    """
    size = to_at_most.shape[-1]
    # Below f(empty), where the search goes up; masked so that gradients are finite.
    never = to_at_most == jnp.inf
    margin = (tau[..., None] - jnp.where(never, 0.0, to_at_most)) / scale[..., None]
    go_down, go_up = (log_cdf(sign * margin, noise) for sign in (1, -1))
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
    noise, budget = noise_of(epsilon, zcdp)
    num_candidates_over(failure, num_candidates)
    rounds = max(search_rounds(num_candidates), 1)
    shift = rounds / checks.concrete_epsilon(budget) * log(rounds / failure)
    return shift if noise == "laplace" else sqrt(shift)
