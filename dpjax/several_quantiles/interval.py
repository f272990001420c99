"""A bound on the coverage of intervals between two joint quantiles, for every population and n.

The n records are independent draws from one population, rounded to a public grid of K multiples; xi
is a q-quantile of the rounded population, P(X < xi) <= q <= P(X <= xi). The ends y_1 <= y_2 are
joint quantiles at the levels q_1 = q - a and q_2 = q + a. As in ``joint_quantiles``, r(y) is a rank
and rate = epsilon / 2, but the aims are exact ranks, h_j = 1 + q_j (n - 1). With D_j = r(y_j) - h_j
and t = n - 1 - N,

    cost_N(y) = |D_1 + q_1 t| + |D_2 - D_1 + (q_2 - q_1) t| + |t - D_2 - q_2 t|,

the length of the path 0, D_1 + q_1 t, D_2 + q_2 t, t. Under swap, t = 0 is the only term, there is
no flat term, and rate = epsilon / 4.

**A miss is a rank error.** Let B = #{records <= xi}. Where y_1 > xi, r(y_1) >= B + 1/2, so D_1 >= s
= B + 1/2 - h_1. Let T be decreasing, with P(y_1 > xi) <= T(s) given the data. B is stochastically
at least Binomial(n, q), whatever atoms the population has, so P(y_1 > xi) <= E T(Binomial(n, q) +
1/2 - h_1). The upper end is the mirror image, with 1 - q and 1 - q_2 for q and q_1. The sum of both
is computed, and the coverage is 1 minus it.

**Upper bound in T.** For s > 0, cost_N >= |D_1 + q_1 t| + |D_1 - (1 - q_1) t| >= max(|t|, 2 s - (1
- 2 q_1) t). At most K (K - 1) / 2 pairs have y_1 > xi. The square is not slack of the proof: where
half of the multiples lie in one gap, s ranks above h_1, and half in another one, s ranks above h_2,
K^2 / 4 pairs have the cost 2 s (t = 0).

**Lower bound in T.** Let no multiple near the quantile have more than ``ties`` records, and P be
the smallest power of two from ``ties`` on. Then each of these records has at least the part 1 / P
of its multiple, and every window of L ranks has L records. Take windows around h_1, shifted by
multiples of L, up to (h_1 + h_2) / 2 and as far below h_1, and such windows around h_2: a pair of
one and the other ascends. The length of a sum of paths is at most the sum of their lengths: cost_N
<= |t| + 2 (max(0, D_1, D_2) - min(0, D_1, D_2)). Let V be (L / P)^2 times the sum of exp(-2 rate
(max - min)) over all pairs of windows, each at its worst. Then

    T(s) = K (K - 1) / 2 * (sum over t of exp(-rate max(|t|, 2 s - (1 - 2 q_1) t)) + flat)
           / (V * sum over t of exp(-rate |t|)).

The t are a residue class of integers that depends on n. T is the worst case over all classes.

No multiple of n records has more than n, so ``ties`` = n always holds.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import ceil, expm1, floor, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from dpjax import checks

_FLAT = 20.0  # the flat term has a probability of about exp(-20)
_POINTS = 512  # the largest number of values of B
_WINDOWS = 60  # the largest number of windows on each side


class Plan(NamedTuple):
    """The public numbers of the bound; under swap, ``terms`` is 1 and ``reach`` 0."""

    rate: float
    multiples: int
    ties: int
    reach: int
    terms: int


def plan_of(
    epsilon: float, lower: Any, upper: Any, resolution: Any, neighbors: str, ties: int, terms: int
) -> Plan:
    """Return the public numbers of the bound, or raise if they are invalid."""
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    cost, ties = checks.concrete_epsilon(epsilon), checks.static_integer("ties", ties, 1)
    terms = checks.static_integer("terms", terms, 2)
    for name, bound in (("lower", lower), ("upper", upper)):
        if checks.is_jax_array(bound):
            raise TypeError(
                f"{name} must be a static number, not a JAX array, because the coverage is "
                "computed from it."
            )
    step, low, high = (
        checks.resolution(resolution, (lower, upper), 2**51),
        checks.exact(lower),
        checks.exact(upper),
    )
    if low is None or high is None or low >= high:
        raise ValueError(
            f"lower and upper must be two numbers in ascending order, got {lower!r} and {upper!r}."
        )
    multiples = int((high - low) / step) + 1
    if neighbors == "swap":
        return Plan(cost / 4, multiples, ties, 0, 1)
    rate = cost / 2
    # The numerator of T has K^2 flat terms; its denominator has V, at least P^-2 exp(-2 rate), and
    # no term may be closer than half of (2 R + 1) / terms.
    reach = ceil(
        ((2 * log(multiples * _power_from(ties)) + _FLAT) / rate + 2) * terms / (terms - 1)
    )
    return Plan(rate, multiples, ties, reach, terms)


def _power_from(ties: int) -> int:
    """Return P, the smallest power of two that is at least ``ties``."""
    return 1 << (ties - 1).bit_length()


@cache
def planned_levels(
    plan: Plan, q: Fraction, n: int, columns: int, coverage: float
) -> tuple[tuple[Fraction, Fraction], float]:
    """Return the levels for n records and their coverage.

    The denominator of the levels keeps ranks within int32.
    """
    parts = (
        min(8 * n, 2**29 // (plan.reach + 2 * columns + 16), (2**27 - 1) // (columns + 4))
        // q.denominator
        * q.denominator
    )
    if parts == 0:
        raise ValueError(
            f"q must have a smaller denominator for exact ranks of {n} records at this epsilon, "
            f"got {q.denominator}: use a short decimal or a Fraction such as Fraction(1, 3)."
        )
    widest = ceil(min(q, 1 - q) * parts) - 1

    def miss(steps: int) -> float:
        away = Fraction(steps, parts)
        return miss_of(plan, q, q - away, q + away, n)

    # Not monotone at the ends, where there is no room for windows around the levels.
    least, low = 1.0, 0
    for steps in sorted({ceil(widest * 0.8**k) for k in range(40)} - {0}):
        least = min(least, miss(steps))
        if least <= 1 - coverage:
            break
        low = steps
    else:
        raise ValueError(
            f"coverage must be at most {1 - least:.3g} for {n} records with this epsilon, bounds, "
            f"resolution and ties, got {coverage:g}: a larger epsilon or n raises it."
        )
    while steps - low > 1:
        middle = (low + steps) // 2
        low, steps = (low, middle) if miss(middle) <= 1 - coverage else (middle, steps)
    away = Fraction(steps, parts)
    return (q - away, q + away), 1 - miss(steps)


def miss_of(plan: Plan, q: Fraction, low: Fraction, high: Fraction, n: int) -> float:
    """Return the bound on the probability that either end misses."""
    pairs = log_pairs(plan, float(low), float(high), n)
    return _above(plan, float(q), float(low), n, pairs) + _above(
        plan, float(1 - q), float(1 - high), n, pairs
    )


def _above(plan: Plan, q: float, low: float, n: int, pairs: float) -> float:
    """Bound P(y_1 > xi) by E T(Binomial(n, q) + 1/2 - h_1), T constant between computed values."""
    from dpjax.numerics.binomial import lower_tail  # loads SciPy

    spread = 7 * sqrt(n * q * (1 - q)) + 7
    first, last = max(0, floor(n * q - spread)), min(n, ceil(n * q + spread))
    records = np.arange(first, last + 1, -(-(last + 1 - first) // _POINTS))
    tail = tail_of(plan, records - 0.5 - low * (n - 1), low, pairs)
    fewer = lower_tail(records - 1, trials=n, probability=q)
    return float(np.sum(fewer * (np.append(1.0, tail[:-1]) - tail)) + tail[-1])


def tail_of(plan: Plan, error: np.ndarray, low: float, pairs: float) -> np.ndarray:
    """Return T at the errors s; ``pairs`` is the logarithm of K (K - 1) / (2 V)."""
    return np.where(
        error > 0,
        np.exp(np.minimum(pairs + _log_share(plan, np.maximum(error, 0.0), low), 0.0)),
        1.0,
    )


def _log_share(plan: Plan, error: np.ndarray, low: float) -> np.ndarray:
    """Return the log of the quotient of the two sums over t in T, in the worst residue class."""
    rate, reach = plan.rate, plan.reach
    if plan.terms == 1:
        return -2 * rate * error
    spacing = (2 * reach + plan.terms) // plan.terms
    # Only every near-th class: from one class to the next, a sum changes by a factor of at most
    # exp(rate).
    near = max(1, floor(0.1 / rate))
    t = np.arange(0, spacing, near)[:, None] + spacing * np.arange(
        -((reach + near) // spacing) - 2, (reach + near) // spacing + 2
    )
    good = np.logaddexp.reduce(
        np.where(np.abs(t) <= reach - near, -rate * np.abs(t), -np.inf), axis=-1
    )
    cost = np.maximum(np.abs(t), 2 * error[:, None, None] - (1 - 2 * low) * t)
    flat = log(-2 / expm1(-rate)) - rate * (reach + 1)
    bad = np.logaddexp(np.logaddexp.reduce(-rate * cost, axis=-1), flat)
    return np.max(bad - good, axis=-1) + 2 * rate * (near // 2)


def log_pairs(plan: Plan, low: float, high: float, n: int) -> float:
    """Return the log of K (K - 1) / (2 V); infinity if there is no room for windows."""
    decay, part = 2 * plan.rate, 1 / _power_from(plan.ties)
    # Windows further away have negligible weight.
    reach = min((high - low) * (n - 1) / 2, 20 / decay + 1)
    length = max(1, ceil(reach / _WINDOWS))
    centers = length * np.arange(-_WINDOWS, _WINDOWS + 1)
    centers = centers[np.abs(centers) + length / 2 <= reach]
    lower = centers[low * (n - 1) + centers >= length / 2][:, None]
    upper = centers[(1 - high) * (n - 1) - centers >= length / 2]
    most = np.maximum(np.maximum(lower, upper) + length / 2, 0)
    least = np.minimum(np.minimum(lower, upper) - length / 2, 0)
    volume = 2 * log(length * part) + np.logaddexp.reduce(-decay * (most - least), axis=None)
    return log(plan.multiples) + log((plan.multiples - 1) / 2) - volume
