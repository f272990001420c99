"""Privacy budgets between the elements of a data universe, as a matrix or as a function of coordinates.

A mechanism is d-private if moving one record from element i to element j changes no probability by more than a factor exp(d(i, j)).
The relation is that of swap neighbours, and the number of records n is public. Definition 2 of Kamalaruban et al. (2020) asks for
||x - x'||_1 <= 2 only, which also holds for one record more or less and for x' = x + e_i + e_j: by its conditions a query with the
same value everywhere needs no noise, and it tells n. ``with_absence`` makes n private: "nobody" becomes an element of the universe,
with a budget to every other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import parameters
from dpjax.metric_privacy.shortest_paths import shortest_paths
from dpjax.shapes import align, broadcast_rows, fits

Distance = Literal["euclidean", "manhattan", "chebyshev", "hamming", "great_circle"]
DISTANCES = ("euclidean", "manhattan", "chebyshev", "hamming", "great_circle")
Form = Literal["linear", "blowfish", "smooth"]
Neighbors = Literal["swap", "add_remove"]
Carry = TypeVar("Carry")
_CELLS = 2**20  # budgets in a block of rows: 4 to 8 MB
_EARTH = 6371.0088  # mean radius in kilometres


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Metric:
    """The privacy budget d(i, j) of every pair of elements of a universe: symmetric, 0 on the diagonal, ``inf`` where unprotected.

    Made by :func:`from_budgets`, :func:`from_points` and the other constructors, which check what they are given. Leading axes are
    a batch; NaN fills a batch element whose parameters were wrong. It is a pytree, differentiable in the budgets. Metrics of one
    universe add up (what two mechanisms cost together, or the attributes of a record), and a positive factor scales them.

    The triangle inequality is not asked for: a policy such as :func:`dpjax.metric_privacy.thresholds.blowfish` breaks it. What such
    a mechanism promises is then :meth:`closure`, because a record can move through other elements.

    Attributes:
        budgets: float ``(..., N, N)``.
        neighbors: static. ``"swap"``: n is public, records move from one element to another. ``"add_remove"``: the last element is
            "nobody" (see :meth:`with_absence`), and n is private.

    References:
        Chatzikokolakis, Andres, Bordenabe and Palamidessi (2013). Kamalaruban, Perrier, Asghar and Kaafar (2020), "Not All
        Attributes are Created Equal: d_X-Private Mechanisms for Linear Queries", Definition 2.

    >>> metric = from_points([[0.0, 0.0], [3.0, 4.0]], epsilon=2.0)
    >>> metric.budgets.tolist(), float(metric.smallest)
    ([[0.0, 10.0], [10.0, 0.0]], 10.0)
    """

    budgets: jax.Array
    neighbors: Neighbors = field(default="swap", metadata={"static": True})

    @property
    def size(self) -> int:
        """The number of elements N, "nobody" among them if the metric has it."""
        return self.budgets.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes."""
        return self.budgets.shape[:-2]

    @property
    def dtype(self) -> Any:
        """The dtype of the budgets."""
        return self.budgets.dtype

    @property
    def smallest(self) -> jax.Array:
        """The smallest budget between two different elements, of shape ``batch_shape``; ``inf`` for a universe of one."""
        return _smallest(self)

    @property
    def largest(self) -> jax.Array:
        """The largest finite budget, of shape ``batch_shape``; 0 if there is none."""
        return _largest(self)

    def rows(self, start: ArrayLike, count: int) -> jax.Array:
        """Return the budgets ``(..., count, N)`` of elements ``start`` to ``start + count - 1``.

        Args:
            start: int, may be traced. As in ``jax.lax.dynamic_slice`` it is moved back where the rows would end after N.
            count: static, at most N.
        """
        return jax.lax.dynamic_slice_in_dim(self.budgets, start, count, axis=-2)

    def columns(self, queries: jax.Array) -> jax.Array:
        """Return query values of all elements: ``(..., N)``, with a 0 for "nobody" added where the metric has it."""
        return _columns(self, queries)

    def closure(self) -> Metric:
        """Return the largest metric below these budgets that satisfies the triangle inequality: the lengths of shortest paths.

        Elements that no finite path connects stay at ``inf``. Scales for linear queries do not change, since |q_i - q_j| is at
        most the sum of differences along a path; what changes is what may be said of pairs far apart. N steps of N x N work.
        """
        return replace(self, budgets=shortest_paths(self.budgets))

    def with_absence(self, budgets: ArrayLike) -> Metric:
        """Return the metric on one element more, "nobody", for which n is private.

        Args:
            budgets: float ``(..., N)``, or one for all: what one more or one less record of each element may cost.

        Returns:
            A metric on N + 1 elements, the last of which is "nobody", of relation ``"add_remove"``.

        Raises:
            ValueError: the metric has it already; negative budgets or NaN; a shape that does not fit.

        Privacy:
            A record less is a move to "nobody", whom every query gives the value 0. A replaced record costs no more than two such
            moves: nothing is protected less than under ``"swap"``.

        >>> from_budgets([[0.0, 3.0], [3.0, 0.0]]).with_absence(1.0).closure().budgets.tolist()
        [[0.0, 2.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
        """
        return Metric(_bordered(self.budgets, _absence(self, budgets)), "add_remove")

    def __add__(self, other: Metric) -> Metric:
        if not isinstance(other, Metric):
            return NotImplemented
        if self.size != other.size or self.neighbors != other.neighbors:
            raise ValueError(
                f"metrics add up on one universe only: {self.size} elements under {self.neighbors} neighbors, "
                f"{other.size} under {other.neighbors}."
            )
        return replace(self, budgets=_sum(self.budgets, other.budgets))

    def __radd__(self, other: int) -> Metric:
        return self if isinstance(other, int) and other == 0 else NotImplemented  # the start of sum()

    def __mul__(self, factor: ArrayLike) -> Metric:
        return replace(self, budgets=_scaled(self.budgets, parameters.positive("factor", factor, self.dtype)))

    __rmul__ = __mul__


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PointMetric:
    """A metric on points whose budgets are computed a block of rows at a time, for universes without room for N x N numbers.

    It has the interface of :class:`Metric` but for the matrix itself, which :meth:`dense` makes. Made by :func:`point_metric`.

    Attributes:
        points: float ``(..., N, D)``, the public coordinates.
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
        return _smallest(self)

    @property
    def largest(self) -> jax.Array:
        """The largest finite budget, of shape ``batch_shape``; 0 if there is none."""
        return _largest(self)

    def rows(self, start: ArrayLike, count: int) -> jax.Array:
        """Return the budgets ``(..., count, N)`` of some elements; see :meth:`Metric.rows`."""
        return _point_rows(self, start, count)

    def columns(self, queries: jax.Array) -> jax.Array:
        """Return query values of all elements; see :meth:`Metric.columns`."""
        return _columns(self, queries)

    def dense(self) -> Metric:
        """Return the :class:`Metric` with all budgets."""
        return _dense(self)

    def closure(self) -> Metric:
        """Return the shortest paths, as a matrix; see :meth:`Metric.closure`."""
        return self.dense().closure()

    def with_absence(self, budgets: ArrayLike) -> PointMetric:
        """Return the metric on one element more, "nobody", for which n is private; see :meth:`Metric.with_absence`."""
        edge = _absence(self, budgets)
        return replace(self, absence=edge, epsilon=_unless_missing(self.epsilon, edge))

    def __mul__(self, factor: ArrayLike) -> PointMetric:
        scale = parameters.positive("factor", factor, self.dtype)
        rank = max(self.epsilon.ndim, scale.ndim)
        absence = self.absence
        if absence is not None:
            inner = max(absence.ndim, scale.ndim + 1)
            absence = align(absence, inner) * align(scale[..., None], inner)
        return replace(self, epsilon=align(self.epsilon, rank) * align(scale, rank), absence=absence)

    __rmul__ = __mul__

    def _at(self, apart: jax.Array, itself: jax.Array) -> jax.Array:
        """The budgets at distances ``(..., count, N)``."""
        epsilon = align(self.epsilon[..., None, None], apart.ndim)
        if self.form == "linear" or self.threshold is None:
            return epsilon * apart
        threshold = align(self.threshold[..., None, None], apart.ndim)
        return at_threshold(apart, itself, epsilon=epsilon, threshold=threshold, form=self.form)


def from_budgets(budgets: ArrayLike) -> Metric:
    """Return the metric with these budgets.

    They need not satisfy the triangle inequality (see :func:`dpjax.metric_privacy.validation.validate`).

    Args:
        budgets: float ``(..., N, N)``, symmetric, not negative, 0 on the diagonal, ``inf`` where nothing is to be protected.
            Entries ij and ji that differ by rounding (16 units in the last place) become the smaller of them.

    Returns:
        A :class:`Metric`.

    Raises:
        TypeError: not real numbers.
        ValueError: not square, or Python or NumPy numbers that are not symmetric, negative, NaN, or not 0 on the diagonal. A JAX
            array has NaN for that batch element instead.

    Privacy:
        The budgets are public, and so is the universe.

    >>> from_budgets([[0, 1], [1, 0]]).size
    2
    """
    given = parameters.float_array("budgets", budgets)
    if given.ndim < 2 or given.shape[-1] != given.shape[-2] or given.shape[-1] == 0:
        raise ValueError(f"budgets must be square, (..., N, N) with N >= 1, got shape {given.shape}.")
    if not isinstance(budgets, jax.Array) and (wrong := _first_wrong(np.asarray(budgets, np.float64), given.dtype)):
        raise ValueError(f"budgets must be symmetric, not negative and 0 on the diagonal: {wrong}.")
    return Metric(_even(given))


def uniform(size: int, *, epsilon: ArrayLike) -> Metric:
    """Return the metric d(i, j) = epsilon for i != j: epsilon-differential privacy under swap neighbours.

    Args:
        size: static, the number of elements N.
        epsilon: positive, ``(...)``.

    Returns:
        A :class:`Metric`.

    Raises:
        ValueError: a bad ``size`` or ``epsilon``.

    Privacy:
        All pairs are protected alike; n is public.

    References:
        Kamalaruban et al. (2020), Definition 2.

    >>> uniform(2, epsilon=0.5).budgets.tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
        raise ValueError(f"size must be an integer from 1 on, got {size!r}.")
    return Metric(_uniform(parameters.positive("epsilon", epsilon, parameters.float_array("epsilon", epsilon).dtype), int(size)))


def from_points(
    points: ArrayLike, *, epsilon: ArrayLike, distance: Distance = "euclidean", weights: ArrayLike | None = None
) -> Metric:
    """Return the metric d(i, j) = epsilon * distance(i, j) of points.

    Args:
        points: float ``(..., N, D)``, the public coordinates of all elements of the universe.
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
    parameters.one_of("distance", distance, DISTANCES)
    if not isinstance(points, jax.Array) and distance not in ("hamming", "great_circle"):
        points = _near_zero(points)
    where = parameters.finite("points", points, parameters.float_array("points", points).dtype)
    if where.ndim < 2 or 0 in where.shape[-2:]:
        raise ValueError(f"points must be of shape (..., N, D) with N, D >= 1, got {where.shape}.")
    if distance == "great_circle" and (where.shape[-1] != 2 or weights is not None):
        raise ValueError(f"great-circle points are pairs of latitude and longitude without weights, got shape {where.shape}.")
    rate = parameters.positive("epsilon", epsilon, where.dtype)
    fits(where.shape[:-2], epsilon=rate.shape)
    share = None
    if weights is not None:
        share = parameters.nonnegative("weights", weights, where.dtype)
        if share.shape[-1:] != where.shape[-1:]:
            raise ValueError(f"{where.shape[-1]} coordinates need as many weights, got shape {share.shape}.")
        rate = _unless_missing(rate, share) if isinstance(weights, jax.Array) else rate
    return PointMetric(_whole(where) if isinstance(points, jax.Array) else where, rate, share, distance=distance)


def _near_zero(points: ArrayLike) -> ArrayLike:
    """Coordinates from the smallest of each: float32 would round those of a map or a clock by more than their distances."""
    given = np.asarray(points)
    if given.dtype.kind not in "biuf" or given.ndim < 2 or 0 in given.shape or not np.all(np.isfinite(given)):
        return points  # refused later
    wide = given.astype(np.float64)
    return wide - np.min(wide, axis=-2, keepdims=True)


def fold_rows(
    metric: Metric | PointMetric,
    initial: Carry,
    step: Callable[[Carry, jax.Array, jax.Array], Carry],
    *,
    count: int | None = None,
) -> Carry:
    """Run over all budgets a block of rows at a time: ``carry = step(carry, index (count,), rows (..., count, N))``.

    Args:
        metric: of either kind.
        initial: a pytree.
        step: it must not mind rows that come twice (a maximum, a minimum): where ``count`` does not divide N, the last block
            overlaps the one before.
        count: static; about a million budgets a block if left out.

    Returns:
        The last carry.

    >>> import jax.numpy as jnp
    >>> metric = point_metric([[0.0], [1.0], [3.0]], epsilon=1.0)
    >>> fold_rows(metric, jnp.zeros(3), lambda far, index, rows: far.at[index].set(jnp.max(rows, axis=-1)), count=2).tolist()
    [3.0, 2.0, 3.0]
    """
    size = metric.size
    if count is None:
        count = _CELLS // (size * max(prod(metric.batch_shape), 1))
    block = -(-size // -(-size // min(max(count, 1), size)))  # as many blocks, and all of one size

    def body(number: jax.Array, carry: Carry) -> Carry:
        start = jnp.minimum(number * block, size - block).astype(jnp.int32)
        return step(carry, start + jnp.arange(block, dtype=jnp.int32), metric.rows(start, block))

    return jax.lax.fori_loop(0, -(-size // block), body, initial)


def at_threshold(apart: jax.Array, itself: jax.Array, *, epsilon: jax.Array, threshold: jax.Array, form: Form) -> jax.Array:
    """Return the budgets ``(..., N, N)`` of a threshold policy at distances; all arguments are of one rank, NaN stays NaN."""
    if form == "blowfish":
        budgets = jnp.where(apart <= threshold, epsilon, jnp.inf)
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
    some = jax.lax.dynamic_slice_in_dim(points, start, count, axis=-2)
    apart = align(_apart(some, points, weights, metric.distance), rank)
    index = _first(start, count, metric.size) + jnp.arange(count, dtype=jnp.int32)
    budgets = metric._at(apart, align(_itself(index, metric.size), rank))
    if metric.absence is None:
        return budgets
    cost = align(jnp.concatenate([metric.absence, jnp.zeros_like(metric.absence[..., :1])], axis=-1), rank - 1)
    is_nobody = jnp.arange(metric.size, dtype=jnp.int32) == metric.size - 1
    own = jax.lax.dynamic_slice_in_dim(cost, start, count, axis=-1)[..., None]
    budgets = jnp.where(align(is_nobody, rank), own, budgets)
    return jnp.where(align((index == metric.size - 1)[:, None], rank), cost[..., None, :], budgets)


@jax.jit
def _dense(metric: PointMetric) -> Metric:
    whole = metric.rows(0, metric.size)
    return Metric(_void(jnp.minimum(whole, jnp.swapaxes(whole, -1, -2)), jnp.isnan(whole)), metric.neighbors)


@jax.jit
def _smallest(metric: Metric | PointMetric) -> jax.Array:
    def step(least: jax.Array, index: jax.Array, rows: jax.Array) -> jax.Array:
        others = jnp.where(align(_itself(index, metric.size), rows.ndim), jnp.inf, rows)
        return jnp.minimum(least, jnp.min(others, axis=(-2, -1)))

    return fold_rows(metric, jnp.full(metric.batch_shape, jnp.inf, metric.dtype), step)


@jax.jit
def _largest(metric: Metric | PointMetric) -> jax.Array:
    def step(most: jax.Array, index: jax.Array, rows: jax.Array) -> jax.Array:
        return jnp.maximum(most, jnp.max(jnp.where(rows == jnp.inf, 0.0, rows), axis=(-2, -1)))

    return fold_rows(metric, jnp.zeros(metric.batch_shape, metric.dtype), step)


def _first(start: ArrayLike, count: int, size: int) -> jax.Array:
    """The first row that a dynamic slice really takes: a negative start counts from the end, and all is clamped."""
    at = jnp.asarray(start, jnp.int32)
    return jnp.clip(jnp.where(at < 0, at + size, at), 0, size - count)


def _itself(index: jax.Array, size: int) -> jax.Array:
    return index[:, None] == jnp.arange(size, dtype=index.dtype)[None, :]


def _apart(here: jax.Array, there: jax.Array, weights: jax.Array | None, distance: Distance) -> jax.Array:
    """The distances ``(..., count, N)`` of points ``(..., count, D)`` from points ``(..., N, D)``."""
    if distance == "great_circle":
        return _great_circle(here[..., :, None, :], there[..., None, :, :])
    batch = jnp.broadcast_shapes(here.shape[:-2], () if weights is None else weights.shape[:-1])
    none = jnp.zeros((*batch, here.shape[-2], there.shape[-2]), here.dtype)
    # One coordinate at a time: an axis of two or three coordinates as the innermost is several times slower.
    coordinates = [jnp.moveaxis(here, -1, 0), jnp.moveaxis(there, -1, 0)]
    coordinates += [] if weights is None else [jnp.moveaxis(weights, -1, 0)]

    def over(combine: Callable[[jax.Array, jax.Array], jax.Array]) -> jax.Array:
        def step(total: jax.Array, at: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
            difference = jnp.abs(at[0][..., :, None] - at[1][..., None, :])
            if distance == "hamming":
                difference = jnp.where(jnp.isnan(difference), jnp.nan, (difference != 0).astype(total.dtype))
            if weights is not None:
                difference = difference * at[2][..., None, None]
            return combine(total, difference), None

        return jax.lax.scan(step, none, tuple(coordinates), unroll=min(here.shape[-1], 8))[0]

    if distance in ("manhattan", "hamming"):
        return over(jnp.add)
    widest = over(jnp.maximum)
    if distance == "chebyshev" or here.shape[-1] == 1:
        return widest
    # Squares of the shares of the widest difference neither overflow nor vanish.
    unit = jax.lax.stop_gradient(jnp.where(widest == 0, 1.0, widest))
    squares = over(lambda total, difference: total + jnp.square(difference / unit))
    same = squares == 0
    return jnp.where(same, 0.0, unit * jnp.sqrt(jnp.where(same, 1.0, squares)))


def _great_circle(here: jax.Array, there: jax.Array) -> jax.Array:
    """The haversine formula."""
    latitude, other = jnp.deg2rad(here[..., 0]), jnp.deg2rad(there[..., 0])
    rise = jnp.sin((latitude - other) / 2)
    turn = jnp.sin(jnp.deg2rad(here[..., 1] - there[..., 1]) / 2)
    h = jnp.clip(jnp.square(rise) + jnp.cos(latitude) * jnp.cos(other) * jnp.square(turn), 0.0, 1.0)
    same = h == 0
    return jnp.where(same, 0.0, 2 * _EARTH * jnp.arcsin(jnp.sqrt(jnp.where(same, 1.0, h))))


def _columns(metric: Metric | PointMetric, queries: jax.Array) -> jax.Array:
    own = metric.size - (metric.neighbors == "add_remove")
    if queries.shape[-1] != own:
        raise ValueError(f"queries over {queries.shape[-1]} elements do not fit a metric on {own}.")
    return queries if own == metric.size else jnp.concatenate([queries, jnp.zeros_like(queries[..., :1])], axis=-1)


def _absence(metric: Metric | PointMetric, budgets: ArrayLike) -> jax.Array:
    if metric.neighbors == "add_remove":
        raise ValueError("this metric has the element nobody already.")
    given = budget_array("budgets", budgets).astype(metric.dtype)
    if given.ndim == 0:
        given = jnp.broadcast_to(given, (metric.size,))
    if given.shape[-1] != metric.size:
        raise ValueError(f"{metric.size} elements need as many budgets of absence, or one for all; got shape {given.shape}.")
    fits(metric.batch_shape, budgets=given.shape[:-1])
    return given


def budget_array(name: str, value: ArrayLike) -> jax.Array:
    """Return budgets that may be infinite; negative ones and NaN raise, or in a JAX array become NaN."""
    array = parameters.float_array(name, value)
    if isinstance(value, jax.Array):
        return jnp.where(array >= 0, array, jnp.nan)
    if not np.all(np.asarray(value, np.float64) >= 0):
        raise ValueError(f"{name} must not be negative or NaN, got {value}.")
    return array


@jax.jit
def _even(budgets: jax.Array) -> jax.Array:
    return _void(jnp.minimum(budgets, jnp.swapaxes(budgets, -1, -2)), _faults(budgets, budgets.dtype, jnp))


@partial(jax.jit, static_argnames="size")
def _uniform(epsilon: jax.Array, size: int) -> jax.Array:
    rate = epsilon[..., None, None]
    return jnp.where(align(jnp.eye(size, dtype=bool), rate.ndim) & ~jnp.isnan(rate), 0.0, rate)


@jax.jit
def _bordered(budgets: jax.Array, edge: jax.Array) -> jax.Array:
    batch = jnp.broadcast_shapes(edge.shape[:-1], budgets.shape[:-2])
    edge = broadcast_rows(edge, batch)
    inner = jnp.broadcast_to(align(budgets, len(batch) + 2), (*batch, *budgets.shape[-2:]))
    last = jnp.concatenate([edge, jnp.zeros_like(edge[..., :1])], axis=-1)
    whole = jnp.concatenate([jnp.concatenate([inner, edge[..., None]], axis=-1), last[..., None, :]], axis=-2)
    return _void(whole, jnp.isnan(whole))


@jax.jit
def _sum(one: jax.Array, other: jax.Array) -> jax.Array:
    rank, dtype = max(one.ndim, other.ndim), jnp.promote_types(one.dtype, other.dtype)
    return align(one, rank).astype(dtype) + align(other, rank).astype(dtype)


@jax.jit
def _scaled(budgets: jax.Array, factor: jax.Array) -> jax.Array:
    rank = max(budgets.ndim, factor.ndim + 2)
    scaled = align(budgets, rank) * align(factor[..., None, None], rank)
    return _void(scaled, jnp.isnan(scaled))


@jax.jit
def _unless_missing(epsilon: jax.Array, needed: jax.Array) -> jax.Array:
    """NaN for the batch elements that have NaN among the ``needed`` ``(..., k)``."""
    missing = jnp.any(jnp.isnan(needed), axis=-1)
    rank = max(missing.ndim, epsilon.ndim)
    return jnp.where(align(missing, rank), jnp.nan, align(epsilon, rank))


@jax.jit
def _whole(points: jax.Array) -> jax.Array:
    return _void(points, jnp.isnan(points))


def _void(array: jax.Array, wrong: jax.Array) -> jax.Array:
    """NaN for every batch element with something wrong in its last two axes."""
    return jnp.where(jnp.any(wrong, axis=(-2, -1), keepdims=True), jnp.nan, array)


def _faults(budgets: Any, dtype: Any, xp: Any) -> Any:
    """Where budgets break what is asked of them: bool ``(..., N, N)``."""
    mirrored = xp.swapaxes(budgets, -1, -2)
    finite = xp.isfinite(budgets) & xp.isfinite(mirrored)
    one, other = xp.where(finite, budgets, 0), xp.where(finite, mirrored, 0)
    gap = xp.abs(one - other) > 16 * float(np.finfo(dtype).eps) * xp.maximum(one, other)
    uneven = xp.where(finite, gap, budgets != mirrored)
    diagonal = xp.eye(budgets.shape[-1], dtype=bool).reshape((1,) * (budgets.ndim - 2) + budgets.shape[-2:])
    return uneven | ~(budgets >= 0) | (diagonal & (budgets != 0))


def _first_wrong(budgets: np.ndarray, dtype: Any) -> str:
    faults = np.argwhere(_faults(budgets, dtype, np))
    if not faults.size:
        return ""
    *at, i, j = (int(k) for k in faults[0])
    where = f" in batch element {tuple(at)}" if at else ""
    return f"d({i}, {j}) = {budgets[(*at, i, j)]:g} and d({j}, {i}) = {budgets[(*at, j, i)]:g}{where}"
