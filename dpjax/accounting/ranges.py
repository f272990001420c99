"""Composition of pure DP and of bounded range, for concrete numbers, in float64.

    optimal_pure_*         k adaptive epsilon-DP mechanisms: exact in the worst case (Kairouz, Oh
                           and Viswanath 2015)
    bounded_range_*        k adaptive mechanisms of bounded range: an upper bound

``each`` and ``bounded_range`` are those of each mechanism, and positive; ``count`` is the number of
mechanisms, at least 1. ``epsilon`` and ``delta`` are those of
all mechanisms together, and may be 0: at a delta of 0 epsilons add up.

**The recursion for adaptive queries.** A mechanism of range r has losses in [t - r, t] for a t in
[0, r], and is dominated by the pair (P, Q) whose only losses are t and t - r, with Q(t) = v(t) =
(e^-t - e^-r)/(1 - e^-r). An adversary chooses t after seeing the previous answers, so

    D_k(g) = max over t of  e^t v(t) D_(k-1)(g - t) + e^(t-r) (1 - v(t)) D_(k-1)(g - t + r),
    D_0(g) = (1 - e^g)_+,

is the largest hockey-stick divergence of k such mechanisms at epsilon = g (Dong, Durfee and Rogers
2020, Theorem 3). Two steps make the computed numbers upper bounds of it:

* Losses are multiples of a step, of which r is one. Between them D, which is convex in e^g, is
  interpolated by a chord.
* For t in a cell [s, s'], Y = e^(s'-s), either loss is split between the losses at both ends of the
  cell. The weights of the upper ends are linear in e^t, and v(t) is linear in e^-t, so the value is
  bilinear in two numbers in [0, 1]. It exceeds the larger of its ends by at most (v(s) - v(s')) /
  (1 + sqrt(Y))^2 (X' - Y X)_+, where F(l) = e^l D(g - l), and X and X' are F(t) - F(t - r) at t = s
  and t = s'.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.accounting import conversions
from dpjax.accounting.gaussian_dp import smallest
from dpjax.accounting.sums import times

Curve = Callable[[float], float]
# More than the numbers of lies of randomized responses that are added up
MOST_OUTCOMES = 2_000_000
# The maximal count for the recursion
MOST_STEPS = 200
# The largest range whose exponential is used; beyond it, the range is treated as pure DP
_WIDEST = 500.0


def optimal_pure_delta(each: float, *, count: int, epsilon: float) -> float:
    """Return the smallest delta for all adaptive compositions of ``count`` pure mechanisms.

    They are (epsilon, delta)-DP together. Independent randomized responses attain it: the sum over
    the number of lies of (P - e^epsilon Q)_+.

    Args:
        each: the epsilon of each mechanism.
        count: the number of mechanisms, below two millions.
        epsilon: of all mechanisms together.

    References:
        Kairouz, Oh and Viswanath (2015), Theorem 3.3.

    >>> round(optimal_pure_delta(0.5, count=10, epsilon=1.0), 6)
    0.331678
    """
    return _delta(*_responses(each, count), epsilon)


def optimal_pure_epsilon(each: float, *, count: int, delta: float) -> float:
    """Return the smallest epsilon of all adaptive compositions of ``count`` pure mechanisms.

    It is the smallest such that all of them are (epsilon, delta)-DP: the inverse of
    :func:`optimal_pure_delta`, with the same references and limits.

    >>> round(optimal_pure_epsilon(0.1, count=100, delta=1e-6), 3)
    4.775
    """
    return smallest(*_responses(each, count), delta)


def bounded_range_delta(bounded_range: float, *, count: int, epsilon: float) -> float:
    """Return a delta for ``count`` adaptive mechanisms of this bounded range.

    Together they are (epsilon, delta)-DP. It is an upper bound on a grid of the recursion d_k(g) =
    max over t of q d_{k-1}(g - t) + (1-q) d_{k-1}(g + r - t) with q = (1 - e^(t-r))/(1 - e^-r), and
    never more than the delta of pure epsilon-DP, which the range implies. It exceeds the supremum
    by about 1e-4 of it for few mechanisms, by some percent for hundreds, and by more where epsilon
    is close to the sum of the ranges. Queries that are fixed before the first answer cost a little
    less.

    More than 200 mechanisms are bounded by their Renyi divergences.

    Args:
        bounded_range: r, of each mechanism.
        count: k, the number of mechanisms.
        epsilon: of all mechanisms together.

    References:
        Dong, Durfee and Rogers (2020), Theorem 3.

    >>> round(bounded_range_delta(0.5, count=5, epsilon=0.5), 4)
    0.0805
    """
    return _delta(*_of_ranges(bounded_range, count), epsilon)


def bounded_range_epsilon(bounded_range: float, *, count: int, delta: float) -> float:
    """Return an epsilon for ``count`` adaptive mechanisms of this bounded range.

    Together they are (epsilon, delta)-DP. The inverse of :func:`bounded_range_delta`, with the same
    references and limits.

    >>> round(bounded_range_epsilon(0.1, count=100, delta=1e-6), 3)
    2.251
    """
    return smallest(*_of_ranges(bounded_range, count), delta)


def _of_ranges(bounded_range: float, count: int) -> tuple[Curve, float]:
    """Return an upper bound of the delta at an epsilon, and the epsilon at which it is 0."""
    # So that the grid cells are normal numbers
    r = max(checks.concrete_positive("bounded_range", bounded_range), 1e-305)
    count = checks.static_integer("count", count, 1)
    most = times(r, count)
    pure = _responses(r, count)[0] if count < MOST_OUTCOMES else lambda epsilon: 1.0
    if r > _WIDEST:
        return pure, most
    if count <= MOST_STEPS:
        bound: Callable[..., Any] = partial(_chord, *_worst_divergences(r, count))
    else:
        each = partial(conversions.rdp_of_bounded_range, r)
        bound = partial(conversions.delta_of_rdp, lambda order: count * each(order=order))
    return lambda epsilon: min(float(bound(epsilon=epsilon)), pure(epsilon)), most


def _chord(g: np.ndarray, divergence: np.ndarray, epsilon: float) -> float:
    """Return the chord in e^g at an epsilon, which lies above the function."""
    after = int(np.searchsorted(g, epsilon))
    left, right = divergence[after - 1], divergence[after]
    share = math.expm1(epsilon - g[after - 1]) / math.expm1(g[after] - g[after - 1])
    return left + share * (right - left)


def _responses(each: float, count: int) -> tuple[Curve, float]:
    """Return the delta of independent randomized responses at an epsilon, and their sum.

    Probabilities of the numbers of lies are computed from the ratios of neighboring ones, from the
    mode outwards; those that underflow are left out.
    """
    epsilon = checks.concrete_positive("each", each)
    if checks.static_integer("count", count, 1) >= MOST_OUTCOMES:
        raise ValueError(f"count must be below {MOST_OUTCOMES}, got {count}: use zCDP or Renyi DP.")
    lie, lies = math.exp(-epsilon), np.arange(count + 1)
    mode = int((count + 1) * lie / (1 + lie))
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        ratios = (count - lies[:-1]) / lies[1:] * lie
        below = np.cumprod(1 / ratios[:mode][::-1])[::-1]
        weights = np.concatenate([below, [1.0], np.cumprod(ratios[mode:])])
        loss = (count - 2 * lies) * epsilon
    seen = weights > 0
    return partial(_excess, loss[seen], weights[seen] / weights.sum()), times(epsilon, count)


def _excess(loss: np.ndarray, probability: np.ndarray, epsilon: float) -> float:
    """Return E_P[(1 - e^(epsilon - loss))_+], rounded up.

    Rounding covers losses and probabilities that were summed and multiplied over all mechanisms.
    """
    loss = loss + 2.0**-52 * np.abs(loss)
    above = loss > epsilon
    return min(
        float(np.sum(probability[above] * -np.expm1(epsilon - loss[above])))
        * (1 + 1e-15 * (16 + loss.size)),
        1.0,
    )


def _delta(curve: Curve, most: float, epsilon: float) -> float:
    """Return the delta at an epsilon, which is 0 from ``most`` on."""
    at = checks.concrete_nonnegative("epsilon", epsilon)
    # An underflow must not state pure DP
    return max(curve(at), sys.float_info.min) if at < most else 0.0


def _worst_divergences(r: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a grid of g that contains 0 and all sums of losses, and upper bounds of D on it."""
    cells = max(24, min(128, 6000 // count))
    step = math.nextafter(r / cells, math.inf)  # of a range that is not smaller
    t, side = np.arange(cells + 1) * step, count * cells
    mass = np.exp(-t) * np.expm1(t - t[-1]) / math.expm1(-t[-1])
    bends = -np.diff(mass, prepend=1.0) / (1 + math.exp(step / 2)) ** 2
    g = np.arange(-side - cells, side + cells + 1) * step
    divergence = np.maximum(-np.expm1(np.minimum(g, 0.0)), 0.0)
    for _ in range(count):
        found = before = last = np.zeros(2 * side + 1)
        for i in range(cells + 1):
            at_up = math.exp(t[i]) * divergence[cells - i :][: found.size]
            at_down = math.exp(t[i] - t[-1]) * divergence[2 * cells - i :][: found.size]
            spread, end = at_up - at_down, mass[i] * at_up + (1 - mass[i]) * at_down
            bent = bends[i] * np.maximum(spread - math.exp(step) * last, 0.0)
            found = np.maximum(found, np.maximum(before, end) + bent)
            before, last = end, spread
        divergence[cells:-cells] = found * (1 + 2.0**-47)
    return g, divergence
