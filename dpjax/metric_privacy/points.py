"""Budgets as a function of coordinates: distances between points, for universes too large for a matrix.

A :class:`PointMetric` gives rows of budgets when they are asked for; :meth:`PointMetric.dense` makes the matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.metrics import Metric, Neighbors, absence_of, columns_of, itself, largest_budget, smallest_budget, void
from dpjax.numerics.batching import align, broadcast_rows, fits
from dpjax.numerics.double_float import Pair, single, split

Distance = Literal["euclidean", "manhattan", "chebyshev", "hamming", "great_circle"]
DISTANCES = ("euclidean", "manhattan", "chebyshev", "hamming", "great_circle")
Form = Literal["linear", "blowfish", "smooth"]
_EARTH = 6371.0088  # mean radius in kilometres


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PointMetric:
    """A metric on points whose budgets are computed a block of rows at a time, for universes without room for N x N numbers.

    It has the interface of :class:`Metric` but for the matrix itself, which :meth:`dense` makes. Made by :func:`point_metric`.

    Attributes:
        points: float ``(..., N, D)``, the public coordinates.
        rest: what rounding took from ``points``, of their shape, or None. In float32 it would be more than many a distance.
        epsilon: float ``(...)``: by ``form``, the budget per unit of distance, or that within the threshold.
        weights: float ``(..., D)`` or None: the length of a unit of every coordinate.
        threshold: float ``(...)`` or None, a distance.
        absence: float ``(..., N)`` or None: what one more or one less record of each element may cost.
        distance: static.
        form: static. ``"linear"``: epsilon * distance. ``"blowfish"``: epsilon up to the threshold, ``inf`` beyond it.
            ``"smooth"``: epsilon * max(1, distance / threshold).

    >>> metric = point_metric([[0.0], [1.0], [3.0]], epsilon=0.5)
    >>> metric.rows(1, 1).tolist()
    [[0.5, 0.0, 1.0]]
    """

    points: jax.Array
    epsilon: jax.Array
    weights: jax.Array | None = None
    threshold: jax.Array | None = None
    absence: jax.Array | None = None
    rest: jax.Array | None = None
    distance: Distance = field(default="euclidean", metadata={"static": True})
    form: Form = field(default="linear", metadata={"static": True})

    @property
    def neighbors(self) -> Neighbors:
        """The relation; see :class:`Metric`."""
        return "swap" if self.absence is None else "add_remove"

    @property
    def size(self) -> int:
        """The number of elements N, "nobody" among them if the metric has it."""
        return self.points.shape[-2] + (self.absence is not None)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes."""
        shapes = [self.points.shape[:-2], self.epsilon.shape]
        shapes += [] if self.threshold is None else [self.threshold.shape]
        shapes += [array.shape[:-1] for array in (self.weights, self.absence) if array is not None]
        return jnp.broadcast_shapes(*shapes)

    @property
    def dtype(self) -> Any:
        """The dtype of the budgets."""
        return self.points.dtype

    @property
    def smallest(self) -> jax.Array:
        """The smallest budget between two different elements, of shape ``batch_shape``; ``inf`` for a universe of one."""
        return smallest_budget(self)

    @property
    def largest(self) -> jax.Array:
        """The largest finite budget, of shape ``batch_shape``; 0 if there is none."""
        return largest_budget(self)

    def rows(self, start: ArrayLike, count: int) -> jax.Array:
        """Return the budgets ``(..., count, N)`` of some elements; see :meth:`Metric.rows`."""
        return _point_rows(self, start, count)

    def columns(self, queries: jax.Array) -> jax.Array:
        """Return query values of all elements; see :meth:`Metric.columns`."""
        return columns_of(self, queries)

    def dense(self) -> Metric:
        """Return the :class:`Metric` with all budgets."""
        return _dense(self)

    def closure(self) -> Metric:
        """Return the shortest paths, as a matrix; see :meth:`Metric.closure`."""
        return self.dense().closure()

    def with_absence(self, budgets: ArrayLike) -> PointMetric:
        """Return the metric on one element more, "nobody", for which n is private; see :meth:`Metric.with_absence`."""
        edge = absence_of(self, budgets)
        return replace(self, absence=edge, epsilon=_unless_missing(self.epsilon, edge))

    def __mul__(self, factor: ArrayLike) -> PointMetric:
        """All budgets times a positive factor, which broadcasts against the batch."""
        scale = checks.positive("factor", factor, self.dtype)
        rank = max(self.epsilon.ndim, scale.ndim)
        absence = self.absence
        if absence is not None:
            inner = max(absence.ndim, scale.ndim + 1)
            absence = align(absence, inner) * align(scale[..., None], inner)
        return replace(self, epsilon=align(self.epsilon, rank) * align(scale, rank), absence=absence)

    __rmul__ = __mul__
    __array_ufunc__ = None  # as in Metric

    def _at(self, apart: jax.Array, itself: jax.Array) -> jax.Array:
        """The budgets at distances ``(..., count, N)``."""
        epsilon = align(self.epsilon[..., None, None], apart.ndim)
        if self.form == "linear" or self.threshold is None:
            return epsilon * apart
        threshold = align(self.threshold[..., None, None], apart.ndim)
        return at_threshold(apart, itself, epsilon=epsilon, threshold=threshold, form=self.form)


def from_points(
    points: ArrayLike, *, epsilon: ArrayLike, distance: Distance = "euclidean", weights: ArrayLike | None = None
) -> Metric:
    """Return the metric d(i, j) = epsilon * distance(i, j) of points.

    Args:
        points: float ``(..., N, D)``, the public coordinates of all elements of the universe. Differences of NumPy numbers are
            right to about 2^-46 of a coordinate's span in float32; a JAX array of float32 has been rounded before.
        epsilon: positive, the budget per unit of distance; broadcasts against the batch.
        distance: ``"euclidean"``, ``"manhattan"``, ``"chebyshev"`` (the largest difference), ``"hamming"`` (the number of
            coordinates that differ), or ``"great_circle"``: kilometres between pairs of latitude and longitude in degrees.
        weights: ``(..., D)``, finite and not negative: every coordinate's difference is multiplied by its weight first, in
            ``"hamming"`` its 1. Not for ``"great_circle"``.

    Returns:
        A :class:`Metric`. A batch element with NaN or infinity among JAX coordinates is NaN.

    Raises:
        TypeError: not real numbers.
        ValueError: a wrong shape, an unknown ``distance``, a bad ``epsilon`` or weight, Python or NumPy coordinates that are not
            finite.

    Privacy:
        The points are public: the universe, not the data.

    References:
        Kamalaruban et al. (2020), Sections 4.1 and 5.

    >>> from_points([[0.0], [1.0], [3.0]], epsilon=0.5).budgets.tolist()
    [[0.0, 0.5, 1.5], [0.5, 0.0, 1.0], [1.5, 1.0, 0.0]]
    """
    return point_metric(points, epsilon=epsilon, distance=distance, weights=weights).dense()


def point_metric(
    points: ArrayLike, *, epsilon: ArrayLike, distance: Distance = "euclidean", weights: ArrayLike | None = None
) -> PointMetric:
    """Return the metric of :func:`from_points` as a function of the coordinates, for large N.

    Args:
        points: float ``(..., N, D)``.
        epsilon: positive; broadcasts against the batch.
        distance: as for :func:`from_points`.
        weights: as for :func:`from_points`.

    Returns:
        A :class:`PointMetric`.

    Raises:
        TypeError: as :func:`from_points`.
        ValueError: as :func:`from_points`.

    Privacy:
        As :func:`from_points`.

    >>> float(point_metric([[0.0], [1.0], [3.0]], epsilon=0.5).largest)
    1.5
    """
    checks.one_of("distance", distance, DISTANCES)
    where = checks.finite("points", points, checks.float_array("points", points).dtype)
    if where.ndim < 2 or 0 in where.shape[-2:]:
        raise ValueError(f"points must be of shape (..., N, D) with N, D >= 1, got {where.shape}.")
    if distance == "great_circle" and (where.shape[-1] != 2 or weights is not None):
        raise ValueError(f"great-circle points are pairs of latitude and longitude without weights, got shape {where.shape}.")
    if distance == "great_circle":
        where = _on_the_globe(points, where)
    rate = checks.positive("epsilon", epsilon, where.dtype)
    fits(where.shape[:-2], epsilon=rate.shape)
    share = None
    if weights is not None:
        share = checks.nonnegative("weights", weights, where.dtype)
        if share.shape[-1:] != where.shape[-1:]:
            raise ValueError(f"{where.shape[-1]} coordinates need as many weights, got shape {share.shape}.")
        rate = _unless_missing(rate, share) if isinstance(weights, jax.Array) else rate
    if isinstance(points, jax.Array):
        return PointMetric(_whole(where), rate, share, distance=distance)
    exact = _as_given(points, shifted=distance not in ("hamming", "great_circle"))
    if not np.all(np.abs(exact) <= float(jnp.finfo(where.dtype).max)):
        raise ValueError(f"points are farther apart than {where.dtype} can say.")
    high, low = split(exact, where.dtype)
    return PointMetric(high, rate, share, rest=None if where.dtype == jnp.float64 else low, distance=distance)


def _on_the_globe(points: ArrayLike, where: jax.Array) -> jax.Array:
    """Points whose first coordinate is a latitude; NaN for a JAX one that is none."""
    if isinstance(points, jax.Array):
        return jnp.where(jnp.abs(where[..., :1]) <= 90, where, jnp.nan)
    if np.any(np.abs(np.asarray(points, np.float64)[..., 0]) > 90):
        raise ValueError("great-circle points are (latitude, longitude) in degrees, and a latitude is between -90 and 90.")
    return where


def _as_given(points: ArrayLike, shifted: bool) -> np.ndarray:
    """Coordinates in float64, if ``shifted`` from the smallest of each, so that the distances of large ones are kept."""
    given = np.asarray(points)
    return from_smallest(given, -2) if shifted else given.astype(np.float64)


def from_smallest(values: np.ndarray, axis: int) -> np.ndarray:
    """How far numbers are above the smallest, float64: integers of 64 bits are subtracted before they are rounded."""
    if values.dtype.kind == "i":
        values = values.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)  # in order, and differences do not overflow
    elif values.dtype.kind in "bu":
        values = values.astype(np.uint64)
    else:
        values = values.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinities, which are refused later
        return (values - np.min(values, axis=axis, keepdims=True)).astype(np.float64)


def at_threshold(apart: jax.Array, itself: jax.Array, *, epsilon: jax.Array, threshold: jax.Array, form: Form) -> jax.Array:
    """Return the budgets ``(..., N, N)`` of a threshold policy at distances; all arguments are of one rank, NaN stays NaN."""
    if form == "blowfish":
        # What rounding has put beyond the threshold is within it: 0.4 - 0.3 is more than 0.1.
        nearly = 1 + 64 * float(jnp.finfo(apart.dtype).eps)
        budgets = jnp.where(apart <= threshold * nearly, epsilon, jnp.inf)
    else:
        budgets = epsilon * jnp.maximum(1.0, apart / threshold)
    wrong = jnp.isnan(apart) | jnp.isnan(threshold) | jnp.isnan(epsilon)
    return jnp.where(wrong, jnp.nan, jnp.where(itself, 0.0, budgets))


@partial(jax.jit, static_argnames="count")
def _point_rows(metric: PointMetric, start: ArrayLike, count: int) -> jax.Array:
    rank = len(metric.batch_shape) + 2
    points = align(metric.points, rank)
    if metric.absence is not None:
        points = jnp.concatenate([points, points[..., :1, :]], axis=-2)  # a place for nobody
    weights = None if metric.weights is None else align(metric.weights, rank - 1)
    rest = None if metric.rest is None else align(metric.rest, rank)
    if rest is not None and metric.absence is not None:
        rest = jnp.concatenate([rest, rest[..., :1, :]], axis=-2)
    there = Pair(points, jnp.zeros_like(points) if rest is None else rest)
    here = Pair(*(jax.lax.dynamic_slice_in_dim(part, start, count, axis=-2) for part in there))
    apart = align(_apart(here, there, weights, metric.distance), rank)
    index = _first(start, count, metric.size) + jnp.arange(count, dtype=jnp.int32)
    budgets = metric._at(apart, align(itself(index, metric.size), rank))
    if metric.absence is None:
        return budgets
    cost = align(jnp.concatenate([metric.absence, jnp.zeros_like(metric.absence[..., :1])], axis=-1), rank - 1)
    is_nobody = jnp.arange(metric.size, dtype=jnp.int32) == metric.size - 1
    own = jax.lax.dynamic_slice_in_dim(cost, start, count, axis=-1)[..., None]
    budgets = jnp.where(align(is_nobody, rank), own, budgets)
    return jnp.where(align((index == metric.size - 1)[:, None], rank), cost[..., None, :], budgets)


def pair_budgets(metric: PointMetric, first: jax.Array, second: jax.Array) -> jax.Array:
    """Return d(i, j) for pairs of elements ``(..., M)``, whose batch is that of the metric or larger."""
    batch = jnp.broadcast_shapes(metric.batch_shape, first.shape[:-1])
    rank, own = len(batch), metric.points.shape[-2]
    ends = [jnp.broadcast_to(align(index, rank + 1), (*batch, index.shape[-1])) for index in (first, second)]

    def at_ends(points: jax.Array) -> jax.Array:
        every = jnp.broadcast_to(align(points, rank + 2), (*batch, *points.shape[-2:]))
        some = [jnp.take_along_axis(every, jnp.minimum(index, own - 1)[..., None], axis=-2) for index in ends]
        return jnp.stack(some, axis=-2)

    def each(parameter: jax.Array | None) -> jax.Array | None:
        return None if parameter is None else align(parameter, rank)[..., None]

    two = replace(
        metric,
        points=at_ends(metric.points),
        rest=None if metric.rest is None else at_ends(metric.rest),
        epsilon=align(metric.epsilon, rank)[..., None],
        weights=None if metric.weights is None else align(metric.weights, rank + 1)[..., None, :],
        threshold=each(metric.threshold),
        absence=None,
    )
    budgets = two.rows(0, 1)[..., 0, 1]
    if metric.absence is None:
        return budgets
    cost = broadcast_rows(metric.absence, batch)
    costs = [jnp.take_along_axis(cost, jnp.minimum(index, own - 1), axis=-1) for index in ends]
    gone = [index == own for index in ends]
    alone = jnp.where(gone[0], jnp.where(gone[1], 0.0, costs[1]), costs[0])
    return jnp.where(gone[0] | gone[1], alone, budgets)


@jax.jit
def _dense(metric: PointMetric) -> Metric:
    whole = metric.rows(0, metric.size)
    return Metric(void(jnp.minimum(whole, jnp.swapaxes(whole, -1, -2)), jnp.isnan(whole)), metric.neighbors)


def _first(start: ArrayLike, count: int, size: int) -> jax.Array:
    """The first row that a dynamic slice really takes: a negative start counts from the end, and all is clamped."""
    at = jnp.asarray(start, jnp.int32)
    return jnp.clip(jnp.where(at < 0, at + size, at), 0, size - count)


def _apart(here: Pair, there: Pair, weights: jax.Array | None, distance: Distance) -> jax.Array:
    """The distances ``(..., count, N)`` of points ``(..., count, D)`` from points ``(..., N, D)``."""
    if distance == "great_circle":
        return _great_circle(Pair(*(part[..., :, None, :] for part in here)), Pair(*(part[..., None, :, :] for part in there)))
    size = here.high.shape[-1]
    batch = jnp.broadcast_shapes(here.high.shape[:-2], () if weights is None else weights.shape[:-1])
    none = jnp.zeros((*batch, here.high.shape[-2], there.high.shape[-2]), here.high.dtype)
    # One coordinate at a time: an axis of two or three coordinates as the innermost is several times slower.
    coordinates = [Pair(*(jnp.moveaxis(part, -1, 0) for part in points)) for points in (here, there)]
    shares = jnp.ones((size, 1), none.dtype) if weights is None else jnp.moveaxis(weights, -1, 0)

    def over(combine: Callable[[jax.Array, jax.Array], jax.Array]) -> jax.Array:
        def step(total: jax.Array, at: tuple[Any, ...]) -> tuple[jax.Array, None]:
            one, other = Pair(*(part[..., :, None] for part in at[0])), Pair(*(part[..., None, :] for part in at[1]))
            difference = jnp.abs(_difference(one, other))
            if distance == "hamming":
                difference = jnp.where(jnp.isnan(difference), jnp.nan, (difference != 0).astype(total.dtype))
            if weights is not None:
                difference = difference * at[2][..., None, None]
            return combine(total, difference), None

        return jax.lax.scan(step, none, (*coordinates, shares), unroll=min(size, 8))[0]

    if distance in ("manhattan", "hamming"):
        return over(jnp.add)
    widest = over(jnp.maximum)
    if distance == "chebyshev" or size == 1:
        return widest
    # Squares of the shares of the widest difference neither overflow nor vanish.
    unit = jax.lax.stop_gradient(jnp.where(widest == 0, 1.0, widest))
    squares = over(lambda total, difference: total + jnp.square(difference / unit))
    same = squares == 0
    return jnp.where(same, 0.0, unit * jnp.sqrt(jnp.where(same, 1.0, squares)))


def _difference(one: Pair, other: Pair) -> jax.Array:
    return (one.high - other.high) + (one.low - other.low)


def _great_circle(here: Pair, there: Pair) -> jax.Array:
    """The haversine formula, a little below the distance rather than above it."""
    latitudes, longitudes = ([Pair(*(part[..., k] for part in points)) for points in (here, there)] for k in (0, 1))
    rise, around = _difference(*latitudes), longitudes[0].minus(longitudes[1])
    turn = around.minus(single(360 * jnp.round(around.high / 360))).value  # one meridian can have two names
    # The cosines of the latitudes, without the rounding of a pole's.
    narrow = [jnp.sin(jnp.deg2rad((90 - jnp.abs(p.high)) - jnp.sign(p.high) * p.low)) for p in latitudes]
    h = jnp.square(jnp.sin(jnp.deg2rad(rise) / 2)) + narrow[0] * narrow[1] * jnp.square(jnp.sin(jnp.deg2rad(turn) / 2))
    h = jnp.clip(h * (1 - 16 * float(jnp.finfo(h.dtype).eps)), 0.0, 1.0)
    same = h == 0
    return jnp.where(same, 0.0, 2 * _EARTH * jnp.arcsin(jnp.sqrt(jnp.where(same, 1.0, h))))


@jax.jit
def _unless_missing(epsilon: jax.Array, needed: jax.Array) -> jax.Array:
    """NaN for the batch elements that have NaN among the ``needed`` ``(..., k)``."""
    missing = jnp.any(jnp.isnan(needed), axis=-1)
    rank = max(missing.ndim, epsilon.ndim)
    return jnp.where(align(missing, rank), jnp.nan, align(epsilon, rank))


@jax.jit
def _whole(points: jax.Array) -> jax.Array:
    return void(points, jnp.isnan(points))
