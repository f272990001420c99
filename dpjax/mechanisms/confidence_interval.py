"""A private confidence interval for a quantile of the population: two joint quantiles, with a coverage that is computed.

The records are independent draws from one population, rounded to a public grid of K multiples; xi is a q-quantile of the rounded
population, P(X < xi) <= q <= P(X <= xi). The ends y_1 <= y_2 are joint quantiles at the levels q_1 = q - a and q_2 = q + a. As in
``joint_quantiles``, r(y) is a rank and rate = epsilon / 2, but they aim at exact ranks, h_j = 1 + q_j (n - 1). With
D_j = r(y_j) - h_j and t = n - 1 - N,

    cost_N(y) = |D_1 + q_1 t| + |D_2 - D_1 + (q_2 - q_1) t| + |t - D_2 - q_2 t|,

the length of the path 0, D_1 + q_1 t, D_2 + q_2 t, t. Under swap t = 0 is the only term, none is flat, and rate = epsilon / 4.

**A miss is a rank error.** Let B = #{records <= xi}. Where y_1 > xi, r(y_1) >= B + 1/2, so D_1 >= s = B + 1/2 - h_1. Let T be
decreasing, with P(y_1 > xi) <= T(s) given the data. B is stochastically at least Binomial(n, q), whatever atoms the population has,
so P(y_1 > xi) <= E T(Binomial(n, q) + 1/2 - h_1). The upper end is the mirror image, with 1 - q and 1 - q_2 for q and q_1. The sum
of both is computed, and the coverage is 1 minus it.

**T, from above.** For s > 0, cost_N >= |D_1 + q_1 t| + |D_1 - (1 - q_1) t| >= max(|t|, 2 s - (1 - 2 q_1) t). At most K (K - 1) / 2
pairs have y_1 > xi. The square is not a slack of the proof: where half of the multiples lie in one gap, s ranks above h_1, and half
in another one, s ranks above h_2, K^2 / 4 pairs have the cost 2 s (t = 0).

**T, from below.** Let no multiple near the quantile have more than ``ties`` records, and P be the power of two from ``ties`` on.
Then each of these records has at least the part 1 / P of its multiple, and every window of L ranks has L records. Take windows
around h_1, shifted by multiples of L, up to (h_1 + h_2) / 2 and as far below h_1, and such windows around h_2: a pair of one and
the other ascends. The length of a sum of paths is at most the sum of their lengths: cost_N <= |t| + 2 (max(0, D_1, D_2) -
min(0, D_1, D_2)). Let V be (L / P)^2 times the sum of exp(-2 rate (max - min)) over all pairs of windows, each at its worst. Then

    T(s) = K (K - 1) / 2 * (sum over t of exp(-rate max(|t|, 2 s - (1 - 2 q_1) t)) + flat) / (V * sum over t of exp(-rate |t|)).

The t are a residue class of integers that depends on n. T is the worst over all classes.

No multiple has more than n records, so ``ties`` = n always holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from math import ceil, expm1, floor, log, sqrt
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.batch import Batch
from dpjax.checks import Neighbors, Resolution
from dpjax.distributions.base import Shape
from dpjax.distributions.joint_quantiles import JointQuantiles
from dpjax.mechanisms.joint_quantiles import with_aims
from dpjax.mechanisms.relations import relation_first, relation_of
from dpjax.statistics.ranks import level_of
from dpjax.statistics.several_quantiles import quantiles

_FLAT = 20.0  # the flat term has about exp(-20) of the probability
_POINTS = 512  # at most so many values of B
_WINDOWS = 60  # at most so many on each side


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class ConfidenceInterval(Batch):
    """The distribution of a private confidence interval of each row. It is a pytree.

    Attributes:
        quantiles: the joint distribution of the two ends; ``quantiles.marginals()`` has their exact means and errors.
        coverage: static, the computed lower bound on the probability that an interval holds the quantile of the population.
    """

    quantiles: JointQuantiles
    coverage: float = field(metadata={"static": True})

    @property
    def levels(self) -> tuple[Fraction, ...]:
        """The levels of the two ends."""
        return self.quantiles.levels

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """One interval for each row."""
        return self.quantiles.batch_shape

    @property
    def event_shape(self) -> tuple[int]:
        """``(2,)``."""
        return self.quantiles.event_shape

    def sample(self, key: jax.Array, shape: Shape = ()) -> jax.Array:
        """Draw intervals: float of shape ``shape + batch_shape + (2,)``, the lower and the upper end."""
        return self.quantiles.sample(key, shape)

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
        return self.quantiles._sample(key, shape, first)


def confidence_interval(
    x: ArrayLike,
    q: float | Fraction | str,
    epsilon: float,
    *,
    lower: float,
    upper: float,
    resolution: Resolution,
    neighbors: Neighbors,
    coverage: float = 0.95,
    ties: int | None = None,
    n: int | None = None,
    terms: int = 32,
    count: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> ConfidenceInterval:
    """Return the distribution of a private confidence interval for the population's q-quantile.

    **What is promised.** If the ``n`` records of a row are independent draws from one population, the interval holds its q-quantile
    with probability at least the attribute ``coverage``, over records and draws together; with ``ties``, less the probability that
    more records share one multiple of the resolution near the quantile. This is for every population and every n, large or small,
    by a computation and no simulation. The quantile is that of the population rounded to multiples and clamped to the
    bounds; half a resolution more on either side holds the quantile itself. Privacy depends on none of it.

    **What it costs.** The bound holds for the worst population of that kind, so most are covered more often. Median widths of 95 %
    intervals for the median of 1000 incomes spread like exp(10.5 + 0.8 N(0, 1)), as multiples of the width of the interval by two
    order statistics, which is not private; lower=0, upper=10^6, resolution=100, and with ties=10:

        epsilon     0.5  1    2    with ties=10: 0.5  1    2
        swap        4.6  2.9  2.0                3.6  2.4  1.7
        add/remove  3.4  2.2  1.6                2.7  1.9  1.5

    Args:
        x: float ``(..., n)``, as ``count`` and ``mask`` as in :mod:`dpjax.statistics`.
        q: static, strictly between 0 and 1, read by its decimal value: 0.1 is 1/10.
        epsilon: a positive number, one for all rows.
        lower: public and static, of a record.
        upper: public and static.
        resolution: public and static, what the records are rounded to. A finer one costs little width.
        neighbors: ``"add_remove"`` or ``"swap"``.
        coverage: what the bound must reach at least.
        ties: public, at least 1: how many records share one multiple at most, between the levels 2 q_1 - q and 2 q_2 - q, for the
            two ``levels`` of the result; by default n, which always holds. The expected number is n times the resolution times the
            density: 1.4 in the table, where the largest is 8 or less in 99 % of samples.
        n: public, how many records a row has, for the promise alone; by default all columns of ``x``. Needed under add/remove, and
            where ``count`` or ``mask`` is given. More records are covered as well, see :func:`interval_coverage`. Of more than
            10^5, levels are rounded outwards to n / 2^27, for ranks are int32.
        terms: static, of :func:`dpjax.joint_quantiles`, under add/remove. With 8, draws take a quarter of the time, and the
            interval is up to a tenth wider.
        count: which records are present.
        mask: which records are present.

    Returns:
        A :class:`ConfidenceInterval` of the batch shape ``(...)``; its draws ``(..., 2)`` are multiples of the resolution.

    Raises:
        TypeError: ``q``, a bound or the resolution is a JAX array, or epsilon no single number.
        ValueError: a public parameter outside its range, or a coverage that so few records cannot reach at this epsilon.

    Privacy:
        epsilon-DP and epsilon-bounded-range under the relation given, for both ends together: :func:`dpjax.joint_quantiles`.
        Public: all arguments but the records; under swap also the number of records, under add/remove not. Float draws are
        simulations.

    References:
        The quantiles: see :func:`dpjax.joint_quantiles`. Drechsler, Globus-Harris, McMillan, Sarathy and Smith (2022),
        "Nonparametric differentially private confidence intervals for the median", has other mechanisms for the same promise.
        The bound is in no paper; its proof is at the head of this file.

    >>> import jax, jax.numpy as jnp
    >>> x = 50 + 10 * jax.random.normal(jax.random.key(0), (1000,))
    >>> public = {"lower": 0, "upper": 100, "resolution": "0.01", "neighbors": "swap"}
    >>> interval = confidence_interval(x, 0.5, 1.0, **public)
    >>> interval.sample(jax.random.key(1), (3,)).shape, interval.coverage >= 0.95
    ((3, 2), True)
    """
    columns = np.shape(x)[-1] if np.ndim(x) else 1
    if n is None:
        if neighbors == "add_remove" or count is not None or mask is not None:
            raise ValueError("n is needed under add_remove, and with count or mask: a public number of records to plan for.")
        n = columns
    n = checks.static_integer("n", n, 1, columns)
    plan = plan_of(epsilon, lower, upper, resolution, neighbors, n if ties is None else ties, terms)
    levels, found = planned_levels(plan, level_of(q), n, columns, checks.concrete_fraction("coverage", coverage))
    asked = quantiles(x, levels, lower=lower, upper=upper, neighbors=neighbors, resolution=resolution, count=count, mask=mask)
    reach = plan.reach if plan.terms > 1 else None
    return ConfidenceInterval(with_aims(asked, epsilon, None, reach, max(plan.terms, 2), "ranks"), coverage=found)


def interval_levels(
    q: float | Fraction | str,
    epsilon: float,
    *,
    n: int,
    lower: float,
    upper: float,
    resolution: Resolution,
    neighbors: Neighbors,
    coverage: float = 0.95,
    ties: int | None = None,
    terms: int = 32,
) -> tuple[Fraction, Fraction]:
    """Return the levels of the two ends of :func:`confidence_interval`, to plan with: no data are needed.

    Args:
        q: as there, and so are all others.
        epsilon: positive.
        n: how many records.
        lower: of a record.
        upper: of a record.
        resolution: of the grid.
        neighbors: ``"add_remove"`` or ``"swap"``.
        coverage: what is to be reached.
        ties: how many records share one multiple at most, by default ``n``.
        terms: of :func:`dpjax.joint_quantiles`.

    Returns:
        Two fractions, q - a and q + a with the least a. So the interval has about 2 a n records in it.

    Raises:
        ValueError: a parameter outside its range, or a coverage out of reach.

    Privacy:
        None is spent: it reads public numbers only.

    References:
        The proof at the head of this file.

    >>> public = {"n": 1000, "lower": 0, "upper": 10**6, "resolution": 100, "neighbors": "swap"}
    >>> [[round(float(level), 2) for level in interval_levels(0.5, epsilon, **public)] for epsilon in (0.5, 2)]
    [[0.35, 0.65], [0.44, 0.56]]
    """
    n = checks.static_integer("n", n, 1)
    plan = plan_of(epsilon, lower, upper, resolution, neighbors, n if ties is None else ties, terms)
    return planned_levels(plan, level_of(q), n, n, checks.concrete_fraction("coverage", coverage))[0]


def interval_coverage(
    levels: Sequence[float | Fraction | str],
    q: float | Fraction | str,
    epsilon: float,
    *,
    n: int,
    lower: float,
    upper: float,
    resolution: Resolution,
    neighbors: Neighbors,
    ties: int | None = None,
    terms: int = 32,
) -> float:
    """Return the lower bound on the coverage of an interval between two levels, for any number of records.

    Where n is private or rows have different numbers, levels are planned for one n: this says what holds for another one. More
    records are covered more often, up to the steps of the binomial distribution.

    Args:
        levels: of the two ends, below and above ``q``.
        q: as in :func:`confidence_interval`, and so are all others.
        epsilon: positive.
        n: how many records.
        lower: of a record.
        upper: of a record.
        resolution: of the grid.
        neighbors: ``"add_remove"`` or ``"swap"``.
        ties: how many records share one multiple at most, by default ``n``.
        terms: of :func:`dpjax.joint_quantiles`.

    Returns:
        A float, at least 0.

    Raises:
        ValueError: a parameter outside its range.

    Privacy:
        None is spent: it reads public numbers only.

    References:
        The proof at the head of this file.

    >>> public = {"lower": 0, "upper": 10**6, "resolution": 100, "neighbors": "swap"}
    >>> levels = interval_levels(0.5, 1.0, n=1000, **public)
    >>> [round(interval_coverage(levels, 0.5, 1.0, n=n, **public), 2) for n in (900, 1000, 1100)]
    [0.86, 0.95, 0.98]
    """
    low, high = (level_of(level) for level in levels)
    middle = level_of(q)
    if not low < middle < high:
        raise ValueError(f"levels must be one below q and one above it, got {low} and {high} for q = {middle}.")
    n = checks.static_integer("n", n, 1)
    plan = plan_of(epsilon, lower, upper, resolution, neighbors, n if ties is None else ties, terms)
    return max(0.0, 1 - _miss(plan, middle, low, high, n))


class Plan(NamedTuple):
    """The public numbers of the bound: ``terms`` is 1 and ``reach`` 0 under swap."""

    rate: float
    multiples: int
    ties: int
    reach: int
    terms: int


def plan_of(epsilon: float, lower: Any, upper: Any, resolution: Any, neighbors: str, ties: int, terms: int) -> Plan:
    """Return the public numbers of the bound, and raise for bad ones."""
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    cost, ties = checks.concrete_epsilon(epsilon), checks.static_integer("ties", ties, 1)
    terms = checks.static_integer("terms", terms, 2)
    for name, bound in (("lower", lower), ("upper", upper)):
        if isinstance(bound, jax.Array):
            raise TypeError(f"{name} must be a static number, not a JAX array: the coverage is computed from it.")
    step, low, high = checks.resolution(resolution, (lower, upper), 2**51), checks.exact(lower), checks.exact(upper)
    if low is None or high is None or low >= high:
        raise ValueError(f"lower and upper must be two numbers in ascending order, got {lower!r} and {upper!r}.")
    multiples = int((high - low) / step) + 1
    if neighbors == "swap":
        return Plan(cost / 4, multiples, ties, 0, 1)
    rate = cost / 2
    # The numerator of T has K^2 flat terms; its denominator has V, at least P^-2 exp(-2 rate), and no number may be nearer than a
    # half of (2 R + 1) / terms.
    reach = ceil(((2 * log(multiples * _power_from(ties)) + _FLAT) / rate + 2) * terms / (terms - 1))
    return Plan(rate, multiples, ties, reach, terms)


def _power_from(ties: int) -> int:
    """P, the power of two from ``ties`` on."""
    return 1 << (ties - 1).bit_length()


@cache
def planned_levels(plan: Plan, q: Fraction, n: int, columns: int, coverage: float) -> tuple[tuple[Fraction, Fraction], float]:
    """Return the levels for n of so many records, with a denominator that keeps ranks within int32, and their coverage."""
    parts = min(8 * n, 2**29 // (plan.reach + 2 * columns + 16), (2**27 - 1) // (columns + 4)) // q.denominator * q.denominator
    if parts == 0:
        raise ValueError(
            f"q has the denominator {q.denominator}, too large for exact ranks of {n} records at this epsilon: "
            "give a short decimal or a Fraction such as Fraction(1, 3)."
        )
    widest = ceil(min(q, 1 - q) * parts) - 1

    def miss(steps: int) -> float:
        away = Fraction(steps, parts)
        return _miss(plan, q, q - away, q + away, n)

    # Not monotone at the ends: there is no room left for windows around the levels.
    least, low = 1.0, 0
    for steps in sorted({ceil(widest * 0.8**k) for k in range(40)} - {0}):
        least = min(least, miss(steps))
        if least <= 1 - coverage:
            break
        low = steps
    else:
        raise ValueError(
            f"{n} records do not reach a coverage of {coverage:g} with this epsilon, bounds, resolution and ties: "
            f"the largest is {1 - least:.3g}. A larger epsilon or n raises it."
        )
    while steps - low > 1:
        middle = (low + steps) // 2
        low, steps = (low, middle) if miss(middle) <= 1 - coverage else (middle, steps)
    away = Fraction(steps, parts)
    return (q - away, q + away), 1 - miss(steps)


def _miss(plan: Plan, q: Fraction, low: Fraction, high: Fraction, n: int) -> float:
    """The bound on the probability that either end misses."""
    pairs = log(plan.multiples) + log((plan.multiples - 1) / 2) - _log_volume(plan, float(low), float(high), n)
    return _above(plan, float(q), float(low), n, pairs) + _above(plan, float(1 - q), float(1 - high), n, pairs)


def _above(plan: Plan, q: float, low: float, n: int, pairs: float) -> float:
    """P(y_1 > xi), at most: E T(Binomial(n, q) + 1/2 - h_1), with T constant between the values where it is computed."""
    from dpjax.auditing.binomial import lower_tail  # loads SciPy

    spread = 7 * sqrt(n * q * (1 - q)) + 7
    first, last = max(0, floor(n * q - spread)), min(n, ceil(n * q + spread))
    records = np.arange(first, last + 1, -(-(last + 1 - first) // _POINTS))
    tail = _tail(plan, records - 0.5 - low * (n - 1), low, pairs)
    fewer = lower_tail(records - 1, trials=n, probability=q)
    return float(np.sum(fewer * (np.append(1.0, tail[:-1]) - tail)) + tail[-1])


def _tail(plan: Plan, error: np.ndarray, low: float, pairs: float) -> np.ndarray:
    """T at the errors s, with the logarithm of K (K - 1) / (2 V)."""
    return np.where(error > 0, np.exp(np.minimum(pairs + _log_share(plan, np.maximum(error, 0.0), low), 0.0)), 1.0)


def _log_share(plan: Plan, error: np.ndarray, low: float) -> np.ndarray:
    """The logarithm of the quotient of the two sums over t in T, in its worst residue class."""
    rate, reach = plan.rate, plan.reach
    if plan.terms == 1:
        return -2 * rate * error
    spacing = (2 * reach + plan.terms) // plan.terms
    # Every near-th class: from one class to the next, a sum changes by a factor of at most exp(rate).
    near = max(1, floor(0.1 / rate))
    t = np.arange(0, spacing, near)[:, None] + spacing * np.arange(-((reach + near) // spacing) - 2, (reach + near) // spacing + 2)
    good = np.logaddexp.reduce(np.where(np.abs(t) <= reach - near, -rate * np.abs(t), -np.inf), axis=-1)
    cost = np.maximum(np.abs(t), 2 * error[:, None, None] - (1 - 2 * low) * t)
    flat = log(-2 / expm1(-rate)) - rate * (reach + 1)
    bad = np.logaddexp(np.logaddexp.reduce(-rate * cost, axis=-1), flat)
    return np.max(bad - good, axis=-1) + 2 * rate * (near // 2)


def _log_volume(plan: Plan, low: float, high: float, n: int) -> float:
    """The logarithm of V; minus infinity where there is no room for windows."""
    decay, part = 2 * plan.rate, 1 / _power_from(plan.ties)
    reach = min((high - low) * (n - 1) / 2, 20 / decay + 1)  # those further away have hardly any weight
    length = max(1, ceil(reach / _WINDOWS))
    centers = length * np.arange(-_WINDOWS, _WINDOWS + 1)
    centers = centers[np.abs(centers) + length / 2 <= reach]
    lower = centers[low * (n - 1) + centers >= length / 2][:, None]
    upper = centers[(1 - high) * (n - 1) - centers >= length / 2]
    most = np.maximum(np.maximum(lower, upper) + length / 2, 0)
    least = np.minimum(np.minimum(lower, upper) - length / 2, 0)
    return float(2 * log(length * part) + np.logaddexp.reduce(-decay * (most - least), axis=None))


@relation_first
def guarantee(relation: str, epsilon: float) -> Guarantee:
    """Return what one draw of :func:`confidence_interval` costs.

    >>> print(guarantee("swap", 1.0))
    1-DP and 1-bounded-range under swap neighbors
    """
    cost = checks.concrete_epsilon(epsilon)
    return Guarantee(cost, cost, relation_of(relation, known=checks.NEIGHBORS))
