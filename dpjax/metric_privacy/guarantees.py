"""Guarantees for every pair of elements, which compose and imply differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Literal

import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting import Guarantee
from dpjax.batch import span
from dpjax.checks import Neighbors
from dpjax.metric_privacy.metric import Metric, finite, on_one_universe


@dataclass(frozen=True, eq=False)
class MetricGuarantee:
    """A d-privacy guarantee: moving a record from i to j changes log-probabilities by <= d(i, j).

    Guarantees on one universe add up: ``g + h`` and ``100 * g`` have the sum of the metrics.
    Mechanisms may be chosen adaptively, but not their metrics. A record can move through other
    elements, so all statements and sums use the closure. To add it to the
    :class:`dpjax.accounting.Guarantee` of another mechanism, convert it with :meth:`guarantee`
    first. n is public if ``metric.neighbors`` is ``"swap"``, and private if the null record is an
    element.

    Attributes:
        metric: the budgets.
        ranges: the bounded range, the largest log-ratio minus the smallest over outputs, as a
            multiple of the budgets: 2, which always holds and is exact for Laplace noise and, but
            for one budget, for sums; or 1, for one draw of an exponential mechanism.

    References:
        Chatzikokolakis et al. (2013); Kamalaruban et al. (2020), Fact 1.

    >>> from dpjax.metric_privacy import from_points
    >>> each = MetricGuarantee(from_points([[0.0], [1.0], [3.0]], epsilon=0.125))
    >>> print(5 * each)  # doctest: +NORMALIZE_WHITESPACE
    d-privacy on 3 elements with budgets 0.625 to 1.875, n public:
    1.875-DP under swap neighbors
    """

    metric: Metric
    ranges: int = 2

    def __post_init__(self) -> None:
        checks.instance("MetricGuarantee", self.metric, Metric, "from_budgets, from_points, ...")
        checks.static_integer("ranges", self.ranges, 1, 2)

    def __add__(self, other: MetricGuarantee | Literal[0]) -> MetricGuarantee:
        if isinstance(other, int) and other == 0:  # the start of sum()
            return self
        if not isinstance(other, MetricGuarantee):
            return NotImplemented
        on_one_universe("guarantees that add up", self.metric, other.metric)
        return MetricGuarantee(Metric(_sum(self._closed, other._closed), self.neighbors))

    __radd__ = __add__

    def __mul__(self, count: int) -> MetricGuarantee:
        number = checks.static_integer("a number of mechanisms", count, 1)
        budgets = Metric(_times(self._closed, number), self.neighbors)
        return MetricGuarantee(budgets, self.ranges if number == 1 else 2)

    __rmul__ = __mul__

    def __str__(self) -> str:
        budgets = span(self._closed[np.triu_indices(self.metric.size, 1)]) or 0
        who = "with the null record, n private" if self.neighbors == "add_remove" else "n public"
        promise = self.guarantee(neighbors=self.neighbors)
        return f"d-privacy on {self.metric.size} elements with budgets {budgets}, {who}: {promise}"

    @property
    def neighbors(self) -> Neighbors:
        """The relation: ``"swap"`` with a public n, ``"add_remove"`` with the null record."""
        return self.metric.neighbors

    @cached_property
    def _closed(self) -> np.ndarray:
        return self.metric.closure().budgets

    def between(self, i: int, j: int) -> float:
        """Return the largest log-ratio of a move from i to j, by the shortest path, or ``inf``.

        >>> from dpjax.metric_privacy import from_budgets
        >>> MetricGuarantee(from_budgets([[0, 1, 5], [1, 0, 2], [5, 2, 0]])).between(0, 2)
        3.0
        """
        size = self.metric.size
        at = tuple(checks.static_integer("elements", k, 0, size - 1) for k in (i, j))
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
        epsilon = float(np.max(self._closed[at], initial=0.0))
        return Guarantee(epsilon, self.ranges * epsilon, neighbors)

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
        others = -np.sum(moved)  # null records
        if self.neighbors == "swap" and others:
            return inf
        moved = np.append(moved, others)[: self.metric.size]
        differ = np.flatnonzero(moved)
        most = np.max(self._closed[np.ix_(differ, differ)], initial=0.0)
        return float(np.sum(np.abs(moved)) / 2 * most)


def _sum(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the sum rounded up, so that small budgets added to a large one are not lost."""
    found = first + second
    with np.errstate(invalid="ignore"):  # infinite budgets lose no precision
        # The difference from the larger one is exact (Dekker 1971)
        lost = (found - first < second) | (found - second < first)
    return np.where(lost, np.nextafter(found, inf), found)


def _times(budgets: np.ndarray, number: int) -> np.ndarray:
    """Return a multiple rounded up, as a sum over the binary digits of the number."""
    total, power = np.zeros_like(budgets), budgets
    while number:
        total = _sum(total, power) if number % 2 else total
        power, number = 2 * power, number // 2
    return total
