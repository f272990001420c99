"""Noisy binary search for a monotone function's shifted value (Steinke 2023; the idea is Blum, Ligett and Roth's, 2008).

Search the sorted candidates for one where about tau people must leave until f <= y: at each of at most R = ceil(log2(k - 1)) rounds
that number plus fresh noise decides which half is kept. The search tree is public, so the probability of each leaf is a product of
R noise probabilities, exactly.
Privacy: each round is a noisy count of sensitivity 1, and R rounds compose. The post counts ceil(log2 k) - 1 rounds and sets the
Laplace scale to log2(k)/epsilon, which is too small: for the maximum with k = 6 candidates, all records at the lowest one and one
more person at the highest, the loss is 1.16 epsilon (k = 11: 1.156 epsilon). Here the scale is R/epsilon.
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import log, sqrt

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.distributions.finite import Finite
from dpjax.mechanisms.decisions import Noise, guarantee_of, log_cdf, noise_of, noise_scale
from dpjax.mechanisms.shifted_inverse import Candidates, finite_range, num_candidates_over, removals
from dpjax.numerics.batching import align
from dpjax.sensitivity.down import DownSensitivity

_LANES = 32  # log and exp differ in their last bits between the lanes of a row that is not a multiple of this


def noisy_binary_search(
    down: DownSensitivity,
    *,
    tau: ArrayLike,
    candidates: Candidates,
    epsilon: ArrayLike | None = None,
    zcdp: ArrayLike | None = None,
) -> Finite:
    """Return the law of the noisy binary search, with the exact probability of every candidate.

    With l(y) the number of people to remove until f <= y, and R = :func:`search_rounds` of the k candidates:

        low, high = 0, k-1
        while low + 1 < high:
            middle = (low + high) // 2
            high = middle  if l(candidates[middle]) + noise <= tau,  else  low = middle
        return candidates[high]

    ``epsilon`` means Laplace noise of scale R/epsilon, ``zcdp`` Gaussian noise of variance R/(2 zcdp).

    The first candidate is never returned (nor asked about), so the post's utility theorem fails, with probability 1, where f(x) is
    the first candidate: put one value below the range of f in front.

    Args:
        down: the down sensitivity of a monotone statistic, batch shape ``(...)``.
        tau: positive, chosen without the data, for example by :func:`search_shift_for`; it need not be whole. Broadcasts
            against the batch shape.
        candidates: the public finite range, increasing, ``(k,)``. The utility theorem needs every value of the statistic among
            them: records or amounts in whole steps of the range.
        epsilon: positive, broadcasts against the batch shape; or
        zcdp: rho of zero-concentrated DP, positive, broadcasts against the batch shape. Exactly one of the two.

    Returns:
        A :class:`Finite` of the broadcast batch shape; its costs are minus log-probabilities, at rate 1.

    Raises:
        ValueError: both or neither of ``epsilon`` and ``zcdp``, candidates that are not increasing and finite, a bad ``tau``,
            ``epsilon`` or ``zcdp``.

    Privacy:
        epsilon-DP, or zcdp-zCDP, for one person more or less, and for one person replaced. With Laplace noise also
        epsilon^2/(2 R)-zCDP, so ``epsilon = sqrt(2 R rho)`` is the mechanism of Theorem 5. Public: tau, the candidates, epsilon
        or zcdp, and what the statistic says is public. No noise is drawn: a ``sample`` is a leaf of the tree.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity", Theorem 5 and footnote 6; Blum, Ligett and Roth (2008).
        Theorem 6 (a shift of 2^O(log*) for approximate DP) is not implemented.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics.monotone import maximum
    >>> down = maximum(jnp.arange(100.0), lower=0, upper=1e6)
    >>> law = noisy_binary_search(down, tau=20, candidates=jnp.arange(-1.0, 1000.0), epsilon=2.0)
    >>> 60 < float(law.quantile(0.5)) < 99
    True
    """
    noise, parameter = noise_of(epsilon, zcdp)
    values = finite_range(candidates, down.dtype)
    rounds = max(search_rounds(values.shape[0]), 1)
    scale = noise_scale(noise, parameter, rounds=rounds, dtype=down.dtype)
    threshold = checks.positive("tau", tau, down.dtype)
    return Finite(values, _cost(down, values, threshold, scale, noise), jnp.ones((), down.dtype))


@partial(jax.jit, static_argnames=("noise",))
def _cost(down: DownSensitivity, values: jax.Array, tau: jax.Array, scale: jax.Array, noise: Noise) -> jax.Array:
    """Minus the log-probability of every candidate."""
    size = values.shape[0]
    to_at_most = removals(down, values)[0]
    batch = jnp.broadcast_shapes(to_at_most.shape[:-1], tau.shape, scale.shape)
    tau, scale = (align(a, len(batch))[..., None] for a in (tau, scale))
    never = to_at_most == jnp.inf  # below f(empty): all go on upwards; kept out of the arithmetic for the gradients' sake
    asked = jnp.where(never, 0.0, to_at_most)
    asked = jnp.pad(asked, [(0, 0)] * (asked.ndim - 1) + [(0, -size % _LANES)])
    margin = (tau - align(asked, len(batch) + 1)) / scale
    down_, up_ = (log_cdf(sign * margin, noise)[..., :size] for sign in (1, -1))
    never = align(never, len(batch) + 1)
    decisions = jnp.stack([jnp.where(never, -jnp.inf, down_), jnp.where(never, 0.0, up_)], axis=-2).reshape(*batch, 2 * size)
    total = jnp.zeros((*batch, size), values.dtype)
    for taken in _paths(size):  # explicit adds, in the order of the rounds
        there = np.broadcast_to(taken >= 0, total.shape)
        total = jnp.where(there, total + decisions[..., np.maximum(taken, 0)], total)
    reached = np.arange(size) >= min(1, size - 1)
    broken = jnp.isnan(scale + tau) | jnp.isnan(values[:1].reshape((1,) * (len(batch) + 1)))
    cost = jnp.where(reached.reshape((1,) * len(batch) + (-1,)), -total, jnp.inf)
    return jnp.where(broken | jnp.isnan(align(down.value, len(batch)))[..., None], jnp.nan, cost)


@lru_cache(maxsize=64)
def _paths(size: int) -> tuple[np.ndarray, ...]:
    """For each round, which decision leads to each candidate: its index, plus ``size`` for "upwards"; -1 where none is taken."""
    rounds = search_rounds(size)
    taken = np.full((rounds, size), -1, np.int32)
    ranges = [(0, size - 1)]
    for number in range(rounds):
        halves = []
        for low, high in ranges:
            if low + 1 < high:
                middle = (low + high) // 2
                taken[number, low + 1 : middle + 1] = middle
                taken[number, middle + 1 : high + 1] = size + middle
                halves += [(low, middle), (middle, high)]
        ranges = halves
    return tuple(taken)


def search_rounds(num_candidates: int) -> int:
    """Return the largest number of rounds of the search: ``ceil(log2(num_candidates - 1))``, and 0 for one candidate.

    The post says ``ceil(log2(num_candidates)) - 1``, which is too few already for 4 candidates.

    Args:
        num_candidates: at least 1.

    Returns:
        A Python integer.

    Raises:
        ValueError: a number below 1.

    Privacy:
        None is spent: it reads public numbers only.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity".

    >>> [search_rounds(k) for k in (2, 3, 4, 5, 6, 9, 10)]
    [0, 1, 2, 2, 3, 3, 4]
    """
    num_candidates_over(0.5, num_candidates)
    return max(int(num_candidates) - 2, 0).bit_length()


def search_shift_for(*, num_candidates: int, failure: float, epsilon: float | None = None, zcdp: float | None = None) -> float:
    """Return the shift with which the search ends in ``[h(2 tau), f(x)]`` with probability at least ``1 - failure``.

    All noise stays within tau with that probability by a union bound over the R rounds: Laplace noise of scale R/epsilon passes
    tau = (R/epsilon) log(R/failure) with probability failure/R, Gaussian noise of deviation sqrt(R/(2 zcdp)) passes
    sqrt((R/zcdp) log(R/failure)) with less.

    Args:
        num_candidates: the size of the finite range, at least 1.
        failure: beta, strictly between 0 and 1.
        epsilon: positive; or
        zcdp: positive. Exactly one of the two, as for the search itself.

    Returns:
        A Python float.

    Raises:
        ValueError: a parameter outside its range, or both or neither of ``epsilon`` and ``zcdp``.

    Privacy:
        None is spent: it reads public numbers only.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity", Theorem 5 and footnote 6, with R for log2(num_candidates).
        Both need f(x) above the first candidate.

    >>> round(search_shift_for(num_candidates=1002, failure=0.05, epsilon=2.0), 1)
    26.5
    """
    noise, parameter = noise_of(epsilon, zcdp)
    num_candidates_over(failure, num_candidates)
    rounds = max(search_rounds(num_candidates), 1)
    cost = checks.concrete_epsilon(parameter)
    if noise == "laplace":
        return rounds / cost * log(rounds / failure)
    return sqrt(rounds / cost * log(rounds / failure))


def guarantee(down: DownSensitivity, *, num_candidates: int, epsilon: float | None = None, zcdp: float | None = None) -> Guarantee:
    """Return what one draw of :func:`noisy_binary_search` costs.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics.monotone import maximum
    >>> down = maximum(jnp.arange(9.0), lower=0, upper=99)
    >>> print(guarantee(down, num_candidates=17, epsilon=1.0))
    1-DP and 2-bounded-range and 0.125-zCDP under add_remove neighbors
    >>> print(guarantee(down, num_candidates=17, zcdp=0.5))
    0.5-zCDP under add_remove neighbors
    """
    noise, parameter = noise_of(epsilon, zcdp)
    rounds = max(search_rounds(num_candidates), 1)
    return guarantee_of(noise, parameter, rounds=rounds, neighbors=down.neighbors)
