"""What a mechanism promises for every pair of elements, as data: it composes, and it implies ordinary differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import frexp, inf
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting import Composition, Guarantee
from dpjax.display import Shown
from dpjax.metric_privacy.metrics import Metric, Neighbors

_CONVERT = "a d-privacy guarantee adds up with others of its universe; for others take .guarantee(neighbors=...) of it first"


@dataclass(frozen=True, eq=False, repr=False)
class MetricGuarantee(Shown):
    """A promise of d-privacy: moving one record from element i to j changes no log-probability by more than d(i, j).

    Guarantees on one universe add up, for mechanisms chosen in the light of earlier answers too (their metrics must be chosen
    before): ``g + h`` and ``100 * g`` have the sum of the metrics. A record may move by way of others, so that statements about
    pairs, and sums, are made with the closure. To add it to the :class:`dpjax.accounting.Guarantee` of another mechanism, convert
    it with :meth:`guarantee` first. Where ``metric.neighbors`` is ``"swap"``, the number of records n is public; with the null
    record among the elements, n is private.

    Attributes:
        metric: concrete budgets, ``(N, N)``.
        ranges: the largest log-ratio minus the smallest, over outputs, for a move from i to j: a metric too. Twice ``metric`` if
            left out, which always holds and is exact for Laplace noise; an exponential mechanism has ``ranges=metric``.

    Raises:
        TypeError: a traced metric.
        ValueError: a batch of metrics, NaN, or ``ranges`` of another universe.

    References:
        Chatzikokolakis et al. (2013); Kamalaruban et al. (2020), Fact 1.

    >>> from dpjax.metric_privacy.points import from_points
    >>> each = MetricGuarantee(from_points([[0.0], [1.0], [3.0]], epsilon=0.1))
    >>> print(5 * each)
    d-privacy on 3 elements with budgets 0.5 to 1.5, n public: 1.5-DP and 3-bounded-range under swap neighbors
    """

    metric: Metric
    ranges: Metric | None = None

    def __post_init__(self) -> None:
        for name, metric in (("metric", self.metric), ("ranges", self.ranges)):
            if metric is None:
                continue
            checks.instance("MetricGuarantee", metric, Metric, "of from_budgets, from_points, ...")
            metric = metric.dense()
            object.__setattr__(self, name, metric)
            if isinstance(metric.budgets, jax.core.Tracer):
                raise TypeError(f"a guarantee is about one concrete metric, and {name} is traced.")
            if metric.batch_shape:
                raise ValueError(f"a guarantee is about one metric, and {name} has a batch of shape {metric.batch_shape}.")
            if np.any(np.isnan(np.asarray(metric.budgets))):
                raise ValueError(f"the budgets of {name} are NaN: some parameter was wrong.")
        if self.ranges is not None and (self.ranges.size, self.ranges.neighbors) != (self.metric.size, self.metric.neighbors):
            raise ValueError(
                f"ranges must be on the {self.metric.size} elements of metric under {self.metric.neighbors} neighbors."
            )

    def _facts(self) -> dict[str, Any]:
        return {"elements": self.metric.size, "neighbors": repr(self.neighbors)}

    def __add__(self, other: MetricGuarantee) -> MetricGuarantee:
        if isinstance(other, (Guarantee, Composition)):
            raise TypeError(f"{_CONVERT}; got {type(other).__name__}.")
        if not isinstance(other, MetricGuarantee):
            return NotImplemented
        if (self.metric.size, self.neighbors) != (other.metric.size, other.neighbors):
            raise ValueError(
                f"guarantees add up on one universe only: {self.metric.size} elements under {self.neighbors} neighbors, "
                f"{other.metric.size} under {other.neighbors}."
            )
        dtype = jnp.promote_types(self.metric.dtype, other.metric.dtype)
        parts = _sum(self._closed, other._closed), _sum(self._closed_ranges, other._closed_ranges)
        return MetricGuarantee(*(Metric(_rounded_up(part, dtype), self.neighbors) for part in parts))

    def __radd__(self, other: int) -> MetricGuarantee:
        if isinstance(other, (Guarantee, Composition)):
            raise TypeError(f"{_CONVERT}; got {type(other).__name__}.")
        return self if isinstance(other, int) and other == 0 else NotImplemented  # the start of sum()

    def __mul__(self, count: int) -> MetricGuarantee:
        number = checks.static_integer("a number of mechanisms", count, 1)
        return MetricGuarantee(times(self.metric, number), None if self.ranges is None else times(self.ranges, number))

    __rmul__ = __mul__

    def __str__(self) -> str:
        size = self.metric.size
        who = "with the null record, n private" if self.neighbors == "add_remove" else "n public"
        said = f"d-privacy on {size} elements"
        budgets = self._closed[~np.eye(size, dtype=bool)]
        if np.any(budgets < inf):
            said += f" with budgets {np.min(budgets):g} to {np.max(budgets[budgets < inf]):g}"
        said += f", {who}: "
        dp = self.guarantee(neighbors=self.neighbors)
        if dp.epsilon < inf:
            return said + str(dp)
        unreached = int(np.sum(np.isinf(self._closed)) // 2)
        return f"{said}no promise for {unreached} of {size * (size - 1) // 2} pairs, so no DP under {self.neighbors} neighbors"

    @property
    def neighbors(self) -> Neighbors:
        """The relation that the metric was made for: ``"swap"`` with a public n, ``"add_remove"`` with the null record."""
        return self.metric.neighbors

    @cached_property
    def _closed(self) -> np.ndarray:
        return _shortest_paths(self.metric)

    @cached_property
    def _closed_ranges(self) -> np.ndarray:
        # The range is at most twice the loss, whatever else is known.
        closed = 2 * self._closed
        return closed if self.ranges is None else np.minimum(_shortest_paths(self.ranges), closed)

    def between(self, i: int, j: int) -> float:
        """Return the log-ratio that a move from element i to j may cost: the shortest path; ``inf`` if nothing is promised.

        >>> from dpjax.metric_privacy.metrics import from_budgets
        >>> MetricGuarantee(from_budgets([[0, 1, 5], [1, 0, 2], [5, 2, 0]])).between(0, 2)
        3.0
        """
        if not (0 <= i < self.metric.size and 0 <= j < self.metric.size):
            raise IndexError(f"elements are 0 to {self.metric.size - 1}, got {i} and {j}.")
        return float(self._closed[i, j])

    def guarantee(self, *, neighbors: Neighbors) -> Guarantee:
        """Return the differential privacy that follows.

        Under ``"swap"``, epsilon is the largest budget between two elements, by shortest paths; under ``"add_remove"``, between an
        element and the null record, which the metric must have. It is ``inf`` if some pair is joined by no finite path: then
        :meth:`between` is all that is promised.

        >>> from dpjax.metric_privacy.metrics import uniform
        >>> known = uniform(4, epsilon=1.0)
        >>> print(MetricGuarantee(known.with_absence(0.5)).guarantee(neighbors="add_remove"))
        0.5-DP and 1-bounded-range under add_remove neighbors
        """
        checks.one_of("neighbors", neighbors, ("swap", "add_remove"))
        if neighbors == "add_remove" and self.neighbors == "swap":
            raise ValueError("this metric takes n as public: make n private with metric.with_absence(...).")
        at: Any = np.s_[-1, :-1] if neighbors == "add_remove" else np.s_[:, :]
        if neighbors == "swap" and self.neighbors == "add_remove":
            at = np.s_[:-1, :-1]
        return Guarantee(_largest(self._closed[at]), _largest(self._closed_ranges[at]), neighbors)

    def group_epsilon(self, x: ArrayLike, y: ArrayLike) -> float:
        """Return a bound on the log-ratio of outputs for two histograms: k/2 times the largest budget between elements that differ.

        k = sum |x_i - y_i| is k/2 moves, because a move changes two counts; Fact 1(3) of Kamalaruban et al. (2020) takes k of them.
        Counts ``(N,)`` leave out the null record, whose change k includes where the metric has it. The bound is ``inf`` if the
        histograms have different sums and n is public.

        >>> from dpjax.metric_privacy.points import from_points
        >>> MetricGuarantee(from_points([[0.0], [1.0], [9.0]], epsilon=1)).group_epsilon([3, 0, 4], [1, 2, 4])
        2.0
        """
        one, other = np.asarray(x, np.float64), np.asarray(y, np.float64)
        own = self.metric.size - (self.neighbors == "add_remove")
        if one.shape != (own,) or other.shape != (own,):
            raise ValueError(f"histograms must be of {own} elements, got shapes {one.shape} and {other.shape}.")
        if not np.all((np.stack([one, other]) >= 0) & (np.stack([one, other]) < inf)):
            raise ValueError("histograms must be finite counts that are not negative.")
        moved = one - other
        if self.neighbors == "add_remove":
            moved = np.append(moved, -np.sum(moved))
        elif np.sum(moved) != 0:
            return inf
        differ = np.flatnonzero(moved)
        return float(np.sum(np.abs(moved)) / 2 * np.max(self._closed[np.ix_(differ, differ)])) if differ.size else 0.0


def _largest(budgets: np.ndarray) -> float:
    return float(np.max(budgets)) if budgets.size else 0.0


def _shortest_paths(metric: Metric) -> np.ndarray:
    """The closure in float64: in float32, rounded paths could be shorter than they are."""
    found = np.array(metric.budgets, np.float64)
    for k in range(metric.size):
        np.minimum(found, found[:, k, None] + found[None, k, :], out=found)
    return found


def _sum(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The sum, rounded up: what many small budgets lose beside a large one must not be missing from the promise."""
    found = first + second
    with np.errstate(invalid="ignore"):  # infinite budgets lose nothing
        part = found - first
        lost = (first - (found - part)) + (second - part)  # exactly (Knuth)
    return np.where(lost > 0, np.nextafter(found, np.inf), found)


def times(metric: Metric, factor: float) -> Metric:
    """Return the metric times a number, rounded up: a promise must not be smaller than it is."""
    whole = np.asarray(metric.budgets, np.float64) * factor
    short = metric.dtype == jnp.float32 and factor < 2**28 and factor % 0.5 == 0  # then float64 holds the product
    if not short and frexp(factor)[0] != 0.5:
        whole = np.where(whole > 0, np.nextafter(whole, np.inf), whole)
    return Metric(_rounded_up(whole, metric.dtype), metric.neighbors)


def _rounded_up(budgets: np.ndarray, dtype: Any) -> jax.Array:
    with np.errstate(over="ignore"):
        found = budgets.astype(dtype)
    return jnp.asarray(np.where(found < budgets, np.nextafter(found, np.inf, dtype=found.dtype), found))
