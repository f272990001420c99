"""Composition of pure DP and of bounded range, for concrete numbers, in float64.

    advanced_epsilon       k epsilon-DP mechanisms by Dwork, Rothblum and Vadhan (2010); never
                           better than optimal_pure_epsilon
    optimal_pure_*         k adaptive epsilon-DP mechanisms: exact in the worst case (Kairouz, Oh
                           and Viswanath 2015)
    bounded_range_*        k mechanisms of bounded range: exact for fixed queries in the worst case,
                           an upper bound for adaptive queries, which cost more

``each`` and ``bounded_range`` are those of each mechanism, and positive; ``count`` is the number of
mechanisms, at least 1. ``epsilon`` (except in :func:`advanced_epsilon`) and ``delta`` are those of
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
from typing import Any, Literal

import numpy as np

from dpjax import checks
from dpjax.accounting import conversions
from dpjax.accounting.sums import times
from dpjax.numerics.solve import root

Queries = Literal["fixed", "adaptive"]
Curve = Callable[[float], float]
# More than the numbers of lies of randomized responses that are added up
MOST_OUTCOMES = 2_000_000
# The maximal counts for the recursion, and for the formula of fixed queries
MOST_STEPS, _MOST_FIXED = 200, 500
# The largest range whose exponential is used; beyond it, the range is treated as pure DP
_WIDEST = 500.0


def advanced_epsilon(epsilon: float, *, count: int, delta: float) -> float:
    """Return the epsilon at ``delta`` by the advanced composition theorem.

    For k = ``count`` adaptive epsilon-DP mechanisms it is sqrt(2 k log(1/delta)) epsilon + k
    epsilon (e^epsilon - 1). It is meant for comparison: :func:`optimal_pure_epsilon` is never
    larger.

    References:
        Dwork, Rothblum and Vadhan (2010), Theorem III.3.

    >>> round(advanced_epsilon(0.1, count=100, delta=1e-6), 3)
    6.308
    """
    epsilon, count = checks.concrete_epsilon(epsilon), checks.static_integer("count", count, 1)
    if epsilon > _WIDEST:
        return math.inf
    return math.sqrt(
        2 * count * -math.log(checks.concrete_delta(delta))
    ) * epsilon + count * epsilon * math.expm1(epsilon)


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
    return _smallest(*_responses(each, count), delta)


def bounded_range_delta(
    bounded_range: float, *, count: int, epsilon: float, queries: Queries
) -> float:
    """Return a delta for ``count`` mechanisms of this bounded range.

    Together they are (epsilon, delta)-DP. Fixed queries: the smallest delta, max over l of sum_i
    C(k, i) p^(k-i) (1-p)^i (e^(k t - i r) - e^epsilon)_+, where p = (e^-t - e^-r)/(1 - e^-r) at t =
    clip((epsilon + (l+1) r)/(k+1), 0, r).

    Adaptive queries can choose t after seeing the previous answers, and cost more: an upper bound
    on a grid of the recursion d_k(g) = max over t of q d_{k-1}(g - t) + (1-q) d_{k-1}(g + r - t)
    with q = (1 - e^(t-r))/(1 - e^-r), and never more than the delta of pure epsilon-DP, which the
    range implies. It exceeds the supremum by about 1e-4 of it for few mechanisms, by some percent
    for hundreds, and by more where epsilon is close to the sum of the ranges.

    More than 200 adaptive mechanisms, and more than 500 fixed ones, whose formula takes count^2
    steps, are bounded by their Renyi divergences.

    Args:
        bounded_range: r, of each mechanism.
        count: k, the number of mechanisms.
        epsilon: of all mechanisms together.
        queries: ``"fixed"`` if neither a query nor the way it is answered depends on the answer to
            another one; ``"adaptive"`` otherwise. There is no default, since the formula for fixed
            queries understates the cost of adaptive ones.

    References:
        Dong, Durfee and Rogers (2020), Theorems 2 and 3.

    >>> at = {"count": 5, "epsilon": 0.5}
    >>> fixed = bounded_range_delta(0.5, **at, queries="fixed")
    >>> round(fixed, 4), round(bounded_range_delta(0.5, **at, queries="adaptive"), 4)
    (0.078, 0.0805)
    """
    return _delta(*_of_ranges(bounded_range, count, queries), epsilon)


def bounded_range_epsilon(
    bounded_range: float, *, count: int, delta: float, queries: Queries
) -> float:
    """Return an epsilon for ``count`` mechanisms of this bounded range.

    Together they are (epsilon, delta)-DP. The inverse of :func:`bounded_range_delta`, with the same
    references, limits and ``queries``.

    >>> round(bounded_range_epsilon(0.1, count=100, delta=1e-6, queries="fixed"), 3)
    2.246
    """
    return _smallest(*_of_ranges(bounded_range, count, queries), delta)


def _of_ranges(bounded_range: float, count: int, queries: Queries) -> tuple[Curve, float]:
    """Return an upper bound of the delta at an epsilon, and the epsilon at which it is 0."""
    # So that the grid cells are normal numbers
    r = max(checks.concrete_positive("bounded_range", bounded_range), 1e-305)
    count = checks.static_integer("count", count, 1)
    most = times(r, count)
    checks.one_of("queries", queries, ("fixed", "adaptive"))
    if queries == "fixed" and count <= _MOST_FIXED:
        return partial(_fixed, r, count), most
    pure = _responses(r, count)[0] if count < MOST_OUTCOMES else lambda epsilon: 1.0
    if r > _WIDEST:
        return pure, most
    if count > MOST_STEPS:
        rdp = partial(conversions.rdp_of_bounded_range, r)
        bound: Callable[..., Any] = partial(
            conversions.delta_of_rdp, lambda order: count * rdp(order=order)
        )
    else:
        bound = partial(_chord, *_worst_divergences(r, count))
    return lambda epsilon: min(float(bound(epsilon=epsilon)), pure(epsilon)), most


def _chord(g: np.ndarray, divergence: np.ndarray, epsilon: float) -> float:
    """Return the chord in e^g at an epsilon, which lies above the function."""
    after = int(np.searchsorted(g, epsilon))
    left, right = divergence[after - 1], divergence[after]
    share = math.expm1(epsilon - g[after - 1]) / math.expm1(g[after] - g[after - 1])
    return left + share * (right - left)


def _binomial(count: int, p: float, q: float) -> np.ndarray:
    """Return the probabilities of 0..count successes, for q = 1 - p at full precision.

    They are computed from the ratios of neighboring terms, from the mode outwards.
    """
    mode = min(int((count + 1) * p), count)
    successes = np.arange(count)
    with np.errstate(divide="ignore", under="ignore"):
        ratios = (count - successes) / (successes + 1) * np.divide(p, q)
        below = np.cumprod(1 / ratios[:mode][::-1])[::-1]
        weights = np.concatenate([below, [1.0], np.cumprod(ratios[mode:])])
        return weights / weights.sum()


def _responses(each: float, count: int) -> tuple[Curve, float]:
    """Return the delta of independent randomized responses at an epsilon, and their sum.

    Outcomes whose probability underflows are left out.
    """
    epsilon = checks.concrete_positive("each", each)
    if checks.static_integer("count", count, 1) >= MOST_OUTCOMES:
        raise ValueError(f"count must be below {MOST_OUTCOMES}, got {count}: use zCDP or Renyi DP.")
    lie = math.exp(-epsilon)
    probability = _binomial(count, lie / (1 + lie), 1 / (1 + lie))
    with np.errstate(over="ignore"):
        loss = (count - 2 * np.arange(count + 1)) * epsilon
    seen = probability > 0
    most = times(epsilon, count)
    return partial(_excess, loss[seen], probability[seen]), most


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


def _fixed(r: float, count: int, epsilon: float) -> float:
    wrong, best = np.arange(count + 1), 0.0
    for t in np.unique(np.clip((epsilon + (wrong + 1) * r) / (count + 1), 0, r)).tolist():
        # The probabilities of the losses t and t - r under P, which is e^loss Q.
        up, down = (
            math.expm1(t - r) / math.expm1(-r),
            math.exp(t - r) * math.expm1(-t) / math.expm1(-r),
        )
        best = max(best, _excess(count * t - wrong * r, _binomial(count, down, up), epsilon))
    return best


def _delta(curve: Curve, most: float, epsilon: float) -> float:
    """Return the delta at an epsilon, which is 0 from ``most`` on."""
    at = checks.concrete_nonnegative("epsilon", epsilon)
    # An underflow must not state pure DP
    return max(curve(at), sys.float_info.min) if at < most else 0.0


def _smallest(curve: Curve, most: float, delta: float) -> float:
    """Return the smallest epsilon in [0, most] with this delta, rounded up."""
    target = checks.concrete_fraction("delta", delta)
    if target == 0 or most == math.inf or curve(most) > target:  # there it is 0, up to rounding
        return most
    if curve(0.0) <= target:
        return 0.0
    return root(lambda epsilon: curve(epsilon) - target, 0.0, most)


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
