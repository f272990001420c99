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
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import parameters
from dpjax.shapes import align, fits

Distance = Literal["euclidean", "manhattan", "chebyshev", "great_circle"]
DISTANCES = ("euclidean", "manhattan", "chebyshev", "great_circle")
Form = Literal["linear", "blowfish", "smooth"]
Carry = TypeVar("Carry")
_CELLS = 2**22  # entries of a block of rows


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Metric:
    """The privacy budget d(i, j) of every pair of elements of a universe: symmetric, 0 on the diagonal, ``inf`` where unprotected.

    Made by :func:`from_budgets`, :func:`from_points` and the other constructors, which check what they are given. Leading axes are
    a batch. It is a pytree, differentiable in the budgets.

    Attributes:
        budgets: float ``(..., N, N)``.
        neighbors: static: ``"swap"``: n is public, records move from one element to another. ``"add_remove"``: the last element is
            "nobody" (see :meth:`with_absence`), and n is private.

    References:
        Chatzikokolakis, Andres, Bordenabe and Palamidessi (2013). Kamalaruban, Perrier, Asghar and Kaafar (2020), "Not All
        Attributes are Created Equal: d_X-Private Mechanisms for Linear Queries", Definition 2.

    >>> metric = from_points([[0.0, 0.0], [3.0, 4.0]], epsilon=2.0)
    >>> metric.budgets.tolist()
    [[0.0, 10.0], [10.0, 0.0]]
    """

    budgets: jax.Array
    neighbors: Literal["swap", "add_remove"] = field(default="swap", metadata={"static": True})

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
        """The smallest budget between two elements, of shape ``batch_shape``; ``inf`` for a universe of one."""
        return smallest(self)

    @property
    def largest(self) -> jax.Array:
        """The largest finite budget, of shape ``batch_shape``; 0 if there is none."""
        return largest(self)

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

    def __add__(self, other: Metric) -> Metric:
        if not isinstance(other, Metric):
            return NotImplemented
        _same_universe(self, other)
        rank = max(self.budgets.ndim, other.budgets.ndim)
        return replace(self, budgets=align(self.budgets, rank) + align(other.budgets, rank))

    def __radd__(self, other: int) -> Metric:
        return self if isinstance(other, int) and other == 0 else NotImplemented  # the start of sum()

    def __mul__(self, factor: ArrayLike) -> Metric:
        scale = parameters.positive("factor", factor, self.dtype)
        rank = max(self.budgets.ndim, scale.ndim + 2)
        return replace(self, budgets=align(self.budgets, rank) * align(scale[..., None, None], rank))

    __rmul__ = __mul__

    def with_absence(self, budgets: ArrayLike) -> Metric:
        """Return the metric on one element more, "nobody", for which n is private.

        Args:
            budgets: float ``(..., N)``, or one for all: what adding or removing one record of each element may cost.

        Returns:
            A metric on N + 1 elements, the last of which is "nobody", of relation ``"add_remove"``.

        Raises:
            ValueError: the metric has it already; negative budgets or NaN.
        """
        if self.neighbors == "add_remove":
            raise ValueError("this metric has the element nobody already.")
        given = _budget_array("budgets", budgets).astype(self.dtype)
        if given.ndim == 0:
            given = given[None]
        batch = jnp.broadcast_shapes(given.shape[:-1], self.batch_shape)
        edge = jnp.broadcast_to(align(given, len(batch) + 1), (*batch, self.size))
        inner = jnp.broadcast_to(align(self.budgets, len(batch) + 2), (*batch, self.size, self.size))
        last = jnp.concatenate([edge, jnp.zeros_like(edge[..., :1])], axis=-1)
        whole = jnp.concatenate([jnp.concatenate([inner, edge[..., None]], axis=-1), last[..., None, :]], axis=-2)
        return Metric(_void_rows(whole, jnp.any(jnp.isnan(whole), axis=(-2, -1))), "add_remove")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PointMetric:
    """A metric on points whose budgets are computed a block of rows at a time, for universes without room for N x N numbers.

    It has the interface of :class:`Metric` but for the matrix itself, which :meth:`dense` makes. Made by :func:`point_metric`.

    Attributes:
        points: float ``(..., N, D)``, the public coordinates.
        epsilon: float ``(...)``: by ``form``, the budget per unit of distance, or that within the threshold.
        threshold: float ``(...)`` or None, a distance.
        distance: static.
        form: static. ``"linear"``: epsilon * distance. ``"blowfish"``: epsilon up to the threshold, then ``inf``. ``"smooth"``:
            epsilon * max(1, distance / threshold).
    """

    points: jax.Array
    epsilon: jax.Array
    threshold: jax.Array | None = None
    distance: Distance = field(default="euclidean", metadata={"static": True})
    form: Form = field(default="linear", metadata={"static": True})

    @property
    def neighbors(self) -> Literal["swap", "add_remove"]:
        """The relation; see :class:`Metric`."""
        return "swap"

    @property
    def size(self) -> int:
        """The number of elements N."""
        return self.points.shape[-2]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes."""
        own = () if self.threshold is None else self.threshold.shape
        return jnp.broadcast_shapes(self.points.shape[:-2], self.epsilon.shape, own)

    @property
    def dtype(self) -> Any:
        """The dtype of the budgets."""
        return self.points.dtype

    @property
    def smallest(self) -> jax.Array:
        """The smallest budget between two elements, of shape ``batch_shape``."""
        return smallest(self)

    @property
    def largest(self) -> jax.Array:
        """The largest finite budget, of shape ``batch_shape``."""
        return largest(self)

    def rows(self, start: ArrayLike, count: int) -> jax.Array:
        """Return the budgets ``(..., count, N)`` of some elements; see :meth:`Metric.rows`."""
        some = jax.lax.dynamic_slice_in_dim(self.points, start, count, axis=-2)
        apart = _apart(some[..., :, None, :], self.points[..., None, :, :], self.distance)
        first = jnp.clip(jnp.asarray(start, jnp.int32), 0, self.size - count)
        itself = _itself(first + jnp.arange(count, dtype=jnp.int32), self.size)
        rank = len(self.batch_shape) + 2
        return _budgets_at(
            align(apart, rank),
            align(itself, rank),
            align(self.epsilon[..., None, None], rank),
            None if self.threshold is None else align(self.threshold[..., None, None], rank),
            self.form,
        )

    def columns(self, queries: jax.Array) -> jax.Array:
        """Return query values of all elements; see :meth:`Metric.columns`."""
        return _columns(self, queries)

    def dense(self) -> Metric:
        """Return the :class:`Metric` with all budgets."""
        whole = self.rows(0, self.size)
        return Metric(jnp.minimum(whole, jnp.swapaxes(whole, -1, -2)), self.neighbors)


def from_budgets(budgets: ArrayLike) -> Metric:
    """Return the metric with these budgets, which need not satisfy the triangle inequality (see ``validation.validate``).

    Args:
        budgets: float ``(..., N, N)``, symmetric, not negative, 0 on the diagonal, ``inf`` where nothing is to be protected.
            Entries ij and ji that differ by rounding become the smaller of them.

    Returns:
        A :class:`Metric`.

    Raises:
        TypeError: not real numbers.
        ValueError: not square, or Python or NumPy numbers that are not symmetric, negative, NaN, or not 0 on the diagonal. A JAX
            array has NaN for that batch element instead.

    >>> from_budgets([[0, 1], [1, 0]]).size
    2
    """
    given = parameters.float_array("budgets", budgets)
    if given.ndim < 2 or given.shape[-1] != given.shape[-2] or given.shape[-1] == 0:
        raise ValueError(f"budgets must be square, (..., N, N) with N >= 1, got shape {given.shape}.")
    if not isinstance(budgets, jax.Array):
        wrong = _first_wrong(np.asarray(given))
        if wrong:
            raise ValueError(f"budgets must be symmetric, not negative and 0 on the diagonal: {wrong}.")
    lesser = jnp.minimum(given, jnp.swapaxes(given, -1, -2))
    return Metric(_void_rows(lesser, jnp.any(_faults(given, jnp), axis=(-2, -1))))


def from_points(points: ArrayLike, *, epsilon: ArrayLike, distance: Distance = "euclidean") -> Metric:
    """Return the metric d(i, j) = epsilon * distance between points.

    Args:
        points: float ``(..., N, D)``, the public coordinates of all elements of the universe.
        epsilon: positive, the budget per unit of distance; broadcasts against the batch.
        distance: ``"euclidean"``, ``"manhattan"``, ``"chebyshev"`` (the largest difference of a coordinate), or ``"great_circle"``:
            kilometres between points of latitude and longitude in degrees.

    Returns:
        A :class:`Metric`; NaN for a batch element with a NaN among JAX coordinates.

    Raises:
        ValueError: a wrong shape, unknown ``distance``, bad ``epsilon``, coordinates that are not finite.

    >>> from_points([[0.0], [1.0], [3.0]], epsilon=0.5).budgets.tolist()
    [[0.0, 0.5, 1.5], [0.5, 0.0, 1.0], [1.5, 1.0, 0.0]]
    """
    return point_metric(points, epsilon=epsilon, distance=distance).dense()


def point_metric(points: ArrayLike, *, epsilon: ArrayLike, distance: Distance = "euclidean") -> PointMetric:
    """Return the metric of :func:`from_points` as a function of the coordinates, for large N.

    Args:
        points: float ``(..., N, D)``.
        epsilon: positive; broadcasts against the batch.
        distance: as for :func:`from_points`.

    Returns:
        A :class:`PointMetric`.

    Raises:
        ValueError: as :func:`from_points`.

    >>> point_metric([[0.0], [1.0], [3.0]], epsilon=0.5).rows(1, 1).tolist()
    [[0.5, 0.0, 1.0]]
    """
    parameters.one_of("distance", distance, DISTANCES)
    where = parameters.finite("points", points, parameters.float_array("points", points).dtype)
    if where.ndim < 2 or 0 in where.shape[-2:]:
        raise ValueError(f"points must be of shape (..., N, D) with N, D >= 1, got {where.shape}.")
    if distance == "great_circle" and where.shape[-1] != 2:
        raise ValueError(f"great-circle points are pairs of latitude and longitude, got shape {where.shape}.")
    rate = parameters.positive("epsilon", epsilon, where.dtype)
    fits(where.shape[:-2], epsilon=rate.shape)
    bad = jnp.any(jnp.isnan(where), axis=(-2, -1), keepdims=True)
    return PointMetric(jnp.where(bad, jnp.nan, where), rate, distance=distance)


def fold_rows(
    metric: Metric | PointMetric, initial: Carry, step: Callable[[Carry, jax.Array, jax.Array], Carry], *, count: int | None = None
) -> Carry:
    """Run over all budgets a block of rows at a time: ``carry = step(carry, index (count,), rows (..., count, N))``.

    The last block overlaps the one before if ``count`` does not divide N: the fold must not mind rows that come twice (max, min).
    """
    size = metric.size
    if count is None:
        lanes = int(np.prod(metric.batch_shape, dtype=np.int64)) * size
        count = max(1, min(size, _CELLS // max(lanes, 1)))
    block = count

    def body(number: jax.Array, carry: Carry) -> Carry:
        start = jnp.minimum(number * block, size - block)
        return step(carry, start + jnp.arange(block, dtype=jnp.int32), metric.rows(start, block))

    return jax.lax.fori_loop(0, -(-size // block), body, initial)


@jax.jit
def smallest(metric: Metric | PointMetric) -> jax.Array:
    """Return the smallest budget between two different elements, of shape ``batch_shape``; ``inf`` for a universe of one."""

    def step(least: jax.Array, index: jax.Array, rows: jax.Array) -> jax.Array:
        others = jnp.where(align(_itself(index, metric.size), rows.ndim), jnp.inf, rows)
        return jnp.minimum(least, jnp.min(others, axis=(-2, -1)))

    return fold_rows(metric, jnp.full(metric.batch_shape, jnp.inf, metric.dtype), step)


@jax.jit
def largest(metric: Metric | PointMetric) -> jax.Array:
    """Return the largest finite budget, of shape ``batch_shape``; 0 if there is none."""

    def step(most: jax.Array, index: jax.Array, rows: jax.Array) -> jax.Array:
        return jnp.maximum(most, jnp.max(jnp.where(rows == jnp.inf, 0.0, rows), axis=(-2, -1)))

    return fold_rows(metric, jnp.zeros(metric.batch_shape, metric.dtype), step)


def _itself(index: jax.Array, size: int) -> jax.Array:
    return index[:, None] == jnp.arange(size, dtype=index.dtype)[None, :]


def _apart(here: jax.Array, there: jax.Array, distance: Distance) -> jax.Array:
    """The distance along the last axis of points that broadcast against each other."""
    if distance == "great_circle":
        return _great_circle(here, there)
    difference = jnp.abs(here - there)
    if distance == "manhattan":
        return jnp.sum(difference, axis=-1)
    widest = jnp.max(difference, axis=-1)
    if distance == "chebyshev":
        return widest
    # Squares of the shares of the widest difference neither overflow nor vanish.
    unit = jax.lax.stop_gradient(jnp.where(widest == 0, 1.0, widest))
    squares = jnp.sum(jnp.square(difference / unit[..., None]), axis=-1)
    same = squares == 0
    return jnp.where(same, 0.0, unit * jnp.sqrt(jnp.where(same, 1.0, squares)))


def _great_circle(here: jax.Array, there: jax.Array) -> jax.Array:
    """The haversine formula on a sphere of radius 6371.0088 km (the mean of the Earth)."""
    latitude, other = jnp.deg2rad(here[..., 0]), jnp.deg2rad(there[..., 0])
    rise = jnp.sin((latitude - other) / 2)
    turn = jnp.sin(jnp.deg2rad(here[..., 1] - there[..., 1]) / 2)
    h = jnp.clip(jnp.square(rise) + jnp.cos(latitude) * jnp.cos(other) * jnp.square(turn), 0.0, 1.0)
    same = h == 0
    return jnp.where(same, 0.0, 2 * 6371.0088 * jnp.arcsin(jnp.sqrt(jnp.where(same, 1.0, h))))


def _budgets_at(apart: jax.Array, itself: jax.Array, epsilon: jax.Array, threshold: jax.Array | None, form: Form) -> jax.Array:
    if form == "linear" or threshold is None:
        return epsilon * apart
    void = jnp.isnan(apart) | jnp.isnan(threshold)
    if form == "blowfish":
        budgets = jnp.where(apart <= threshold, epsilon, jnp.inf)
    else:
        budgets = epsilon * jnp.maximum(1.0, apart / threshold)
    return jnp.where(void, jnp.nan, jnp.where(itself, 0.0, budgets))


def _columns(metric: Metric | PointMetric, queries: jax.Array) -> jax.Array:
    own = metric.size - (metric.neighbors == "add_remove")
    if queries.shape[-1] != own:
        raise ValueError(f"queries over {queries.shape[-1]} elements do not fit a metric on {own}.")
    return queries if own == metric.size else jnp.concatenate([queries, jnp.zeros_like(queries[..., :1])], axis=-1)


def _same_universe(one: Metric, other: Metric) -> None:
    if one.size != other.size or one.neighbors != other.neighbors:
        raise ValueError(
            f"metrics add up on one universe only: {one.size} elements under {one.neighbors} neighbors, "
            f"{other.size} under {other.neighbors}."
        )


def _void_rows(budgets: jax.Array, wrong: jax.Array) -> jax.Array:
    """NaN for a whole batch element that is wrong."""
    return jnp.where(wrong[..., None, None], jnp.nan, budgets)


def _faults(budgets: Any, xp: Any) -> Any:
    """Where budgets break what is asked of them: bool ``(..., N, N)``."""
    mirrored = xp.swapaxes(budgets, -1, -2)
    finite = xp.isfinite(budgets) & xp.isfinite(mirrored)
    slack = 16 * float(np.finfo(budgets.dtype).eps) * xp.maximum(xp.where(finite, budgets, 0), xp.where(finite, mirrored, 0))
    gap = xp.abs(xp.where(finite, budgets, 0) - xp.where(finite, mirrored, 0))
    uneven = xp.where(finite, gap > slack, budgets != mirrored)
    diagonal = xp.eye(budgets.shape[-1], dtype=bool).reshape((1,) * (budgets.ndim - 2) + budgets.shape[-2:])
    return uneven | ~(budgets >= 0) | (diagonal & (budgets != 0))


def _first_wrong(budgets: np.ndarray) -> str:
    faults = np.argwhere(_faults(budgets, np))
    if not faults.size:
        return ""
    *_, i, j = (int(k) for k in faults[0])
    at = tuple(int(k) for k in faults[0][:-2])
    return f"d({i}, {j}) = {budgets[(*at, i, j)]:g} and d({j}, {i}) = {budgets[(*at, j, i)]:g}"


def _budget_array(name: str, value: ArrayLike) -> jax.Array:
    """Budgets that may be infinite: not negative, not NaN (NaN then, if they come in a JAX array)."""
    array = parameters.float_array(name, value)
    if not isinstance(value, jax.Array) and not np.all(np.asarray(array) >= 0):
        raise ValueError(f"{name} must not be negative or NaN, got {value}.")
    return jnp.where(array >= 0, array, jnp.nan)
