"""Guarantees for every pair of elements, which compose and imply differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, Literal

import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting import Composition, Guarantee
from dpjax.checks import Neighbors
from dpjax.display import Shown
from dpjax.metric_privacy.metric import Metric, finite, on_one_universe


@dataclass(frozen=True, eq=False, repr=False)
class MetricGuarantee(Shown):
    """A d-privacy guarantee: moving a record from i to j changes log-probabilities by <= d(i, j).

    Guarantees on one universe add up: ``g + h`` and ``100 * g`` have the sum of the metrics.
    Mechanisms may be chosen adaptively, but not their metrics: the range of all but one then counts
    up to twice. A record can move through other
    elements, so all statements and sums use the closure. To add it to the
    :class:`dpjax.accounting.Guarantee` of another mechanism, convert it with :meth:`guarantee`
    first. n is public if ``metric.neighbors`` is ``"swap"``, and private if the null record is an
    element.

    Attributes:
        metric: the budgets.
        ranges: a metric of bounded ranges, the largest log-ratio minus the smallest over outputs.
            By default twice ``metric``, which always holds and is exact for Laplace noise; an
            exponential mechanism has ``ranges=metric``.

    Raises:
        ValueError: ``ranges`` is on another universe.

    References:
        Chatzikokolakis et al. (2013); Kamalaruban et al. (2020), Fact 1.

    >>> from dpjax.metric_privacy import from_points
    >>> each = MetricGuarantee(from_points([[0.0], [1.0], [3.0]], epsilon=0.125))
    >>> print(5 * each)  # doctest: +NORMALIZE_WHITESPACE
    d-privacy on 3 elements with budgets 0.625 to 1.875, n public:
    1.875-DP under swap neighbors
    """

    metric: Metric
    ranges: Metric | None = None

    def __post_init__(self) -> None:
        for metric in (self.metric, self.metric if self.ranges is None else self.ranges):
            checks.instance("MetricGuarantee", metric, Metric, "from_budgets, from_points, ...")
            on_one_universe("metric and ranges", self.metric, metric)

    def _facts(self) -> dict[str, Any]:
        return {"elements": self.metric.size, "neighbors": repr(self.neighbors)}

    def __add__(self, other: MetricGuarantee | Literal[0]) -> MetricGuarantee:
        if isinstance(other, (Guarantee, Composition)):
            raise TypeError(
                "a MetricGuarantee can only be added to another one: convert it by "
                f".guarantee(neighbors=...) first, got {type(other).__name__}."
            )
        if isinstance(other, int) and other == 0:  # the start of sum()
            return self
        if not isinstance(other, MetricGuarantee):
            return NotImplemented
        on_one_universe("guarantees that add up", self.metric, other.metric)
        ranges = np.maximum(
            _sum(self._closed_ranges, other._later_ranges),
            _sum(other._closed_ranges, self._later_ranges),
        )
        return self._with(_sum(self._closed, other._closed), ranges)

    __radd__ = __add__

    def __mul__(self, count: int) -> MetricGuarantee:
        number = checks.static_integer("a number of mechanisms", count, 1)
        ranges = _sum(self._closed_ranges, _times(self._later_ranges, number - 1))
        return self._with(_times(self._closed, number), ranges)

    __rmul__ = __mul__

    def _with(self, budgets: np.ndarray, ranges: np.ndarray) -> MetricGuarantee:
        return MetricGuarantee(*(Metric(part, self.neighbors) for part in (budgets, ranges)))

    def __str__(self) -> str:
        budgets = self._closed[np.triu_indices(self.metric.size, 1)]
        kept = budgets[budgets < inf]
        span = f" with budgets {np.min(kept):g} to {np.max(kept):g}" if kept.size else ""
        who = "with the null record, n private" if self.neighbors == "add_remove" else "n public"
        promise: Any = self.guarantee(neighbors=self.neighbors)
        if promise.epsilon == inf:
            promise = f"no promise for {budgets.size - kept.size} of {budgets.size} pairs, so no DP"
        return f"d-privacy on {self.metric.size} elements{span}, {who}: {promise}"

    @property
    def neighbors(self) -> Neighbors:
        """The relation: ``"swap"`` with a public n, ``"add_remove"`` with the null record."""
        return self.metric.neighbors

    @cached_property
    def _closed(self) -> np.ndarray:
        return self.metric.closure().budgets

    @cached_property
    def _closed_ranges(self) -> np.ndarray:
        closed = 2 * self._closed
        return closed if self.ranges is None else np.minimum(self.ranges.closure().budgets, closed)

    @cached_property
    def _later_ranges(self) -> np.ndarray:
        """Return what the mechanisms add to the range of others, on whose answers they may depend.

        The losses of each lie in an interval that may depend on the answers, as in
        :attr:`dpjax.accounting.Composition.bounded_range`.
        """
        return 2 * np.minimum(self._closed_ranges, self._closed)

    def between(self, i: int, j: int) -> float:
        """Return the largest log-ratio of a move from i to j, by the shortest path, or ``inf``.

        >>> from dpjax.metric_privacy import from_budgets
        >>> MetricGuarantee(from_budgets([[0, 1, 5], [1, 0, 2], [5, 2, 0]])).between(0, 2)
        3.0
        """
        last = self.metric.size - 1
        at = tuple(checks.static_integer("elements", element, 0, last) for element in (i, j))
        return float(self._closed[at])

    def guarantee(self, *, neighbors: Neighbors) -> Guarantee:
        """Return the differential privacy guarantee that is implied.

        Under ``"swap"``, epsilon is the largest budget between two elements, by shortest paths;
        under ``"add_remove"``, between an element and the null record, which the metric must have.
        It is ``inf`` if some pair is not connected by a finite path: see :meth:`between`.

        >>> from dpjax.metric_privacy import uniform
        >>> known = uniform(4, epsilon=1.0)
        >>> print(MetricGuarantee(known.with_absence(0.5)).guarantee(neighbors="add_remove"))
        0.5-DP under add_remove neighbors
        """
        checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
        if neighbors == "add_remove" and self.neighbors == "swap":
            raise ValueError(
                "neighbors='add_remove' needs a metric with the null record, as n is public "
                "otherwise: use metric.with_absence(...)."
            )
        values = slice(self.metric.num_values)
        at = (-1 if neighbors == "add_remove" else values, values)
        epsilon, bounded_range = (
            float(np.max(closed[at], initial=0.0)) for closed in (self._closed, self._closed_ranges)
        )
        return Guarantee(epsilon, bounded_range, neighbors)

    def group_epsilon(self, x: ArrayLike, y: ArrayLike) -> float:
        """Return a bound on the log-ratio of outputs for two histograms.

        It is k/2 times the largest budget between elements whose counts differ: k = sum |x_i - y_i|
        is k/2 moves, because a move changes two counts (Kamalaruban et al. 2020, Fact 1(3), has k
        moves). The counts ``(N,)`` exclude the null record, but k does not. The bound is ``inf`` if
        the histograms have different sums and n is public.

        >>> from dpjax.metric_privacy import from_points
        >>> MetricGuarantee(from_points([[0.0], [1.0], [9.0]], epsilon=1)).group_epsilon(
        ...     [3, 0, 4], [1, 2, 4]
        ... )
        2.0
        """
        both = finite("histograms", np.asarray([x, y]), ("2", "N"))
        if both.shape[1] != self.metric.num_values or np.any(both < 0):
            raise ValueError(
                f"histograms must be nonnegative counts of {self.metric.num_values} elements, got "
                f"{x} and {y}."
            )
        moved = both[0] - both[1]
        if self.neighbors == "add_remove":
            moved = np.append(moved, -np.sum(moved))
        elif np.sum(moved) != 0:
            return inf
        differ = np.flatnonzero(moved)
        most = np.max(self._closed[np.ix_(differ, differ)], initial=0.0)
        return float(np.sum(np.abs(moved)) / 2 * most)


def _sum(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the sum rounded up, so that small budgets added to a large one are not lost."""
    found = first + second
    with np.errstate(invalid="ignore"):  # infinite budgets lose no precision
        # Exactly (Dekker 1971).
        lost = np.minimum(first, second) - (found - np.maximum(first, second))
    return np.where(lost > 0, np.nextafter(found, inf), found)


def _times(budgets: np.ndarray, number: int) -> np.ndarray:
    """Return a multiple rounded up, as a sum over the binary digits of the number."""
    total, power = np.zeros_like(budgets), budgets
    while number:
        total = _sum(total, power) if number % 2 else total
        power, number = 2 * power, number // 2
    return total
