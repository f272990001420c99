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
from typing import Any, Literal, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.metric_privacy.shortest_paths import shortest_paths
from dpjax.numerics.batching import align, broadcast_rows, fits

Neighbors = Literal["swap", "add_remove"]
NEIGHBORS = ("swap", "add_remove")
Carry = TypeVar("Carry")
_CELLS = 2**20  # budgets in a block of rows: 4 to 8 MB


class Budgets(Protocol):
    """What metrics of any kind have: a row of budgets for each element."""

    @property
    def size(self) -> int:
        """N."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes."""

    @property
    def dtype(self) -> Any:
        """Of the budgets."""

    @property
    def neighbors(self) -> Neighbors:
        """The relation."""

    def rows(self, start: ArrayLike, count: int) -> jax.Array:
        """The budgets ``(..., count, N)`` of some elements."""


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

    >>> from dpjax.metric_privacy.points import from_points
    >>> metric = from_points([[0.0, 0.0], [3.0, 4.0]], epsilon=2.0)
    >>> metric.budgets.tolist(), float(metric.smallest)
    ([[0.0, 10.0], [10.0, 0.0]], 10.0)
    """

    budgets: jax.Array
    neighbors: Neighbors = field(default="swap", metadata={"static": True})

    def __post_init__(self) -> None:
        checks.one_of("neighbors", self.neighbors, NEIGHBORS)

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
        return smallest_budget(self)

    @property
    def largest(self) -> jax.Array:
        """The largest finite budget, of shape ``batch_shape``; 0 if there is none."""
        return largest_budget(self)

    def rows(self, start: ArrayLike, count: int) -> jax.Array:
        """Return the budgets ``(..., count, N)`` of elements ``start`` to ``start + count - 1``.

        Args:
            start: int, may be traced. As in ``jax.lax.dynamic_slice`` it is moved back where the rows would end after N.
            count: static, at most N.
        """
        return jax.lax.dynamic_slice_in_dim(self.budgets, start, count, axis=-2)

    def columns(self, queries: jax.Array) -> jax.Array:
        """Return query values of all elements: ``(..., N)``, with a 0 for "nobody" added where the metric has it."""
        return columns_of(self, queries)

    def closure(self) -> Metric:
        """Return the largest metric below these budgets that satisfies the triangle inequality: the lengths of shortest paths.

        Elements that no finite path connects stay at ``inf``. Scales for linear queries do not change, since |q_i - q_j| is at
        most the sum of differences along a path; what changes is what may be said of pairs far apart. N steps of N x N work.
        """
        return replace(self, budgets=shortest_paths(self.budgets))

    def with_absence(self, budgets: ArrayLike) -> Metric:
        """Return the metric on one element more, "nobody", for which n is private.

        Args:
            budgets: float ``(..., N)``, ``(..., 1)`` or one for all: what one more or one less record of each element may cost.

        Returns:
            A metric on N + 1 elements, the last of which is "nobody", of relation ``"add_remove"``.

        Raises:
            ValueError: the metric has it already; negative budgets or NaN; a shape that does not fit.

        Privacy:
            A record less is a move to "nobody", whom every query gives the value 0. A replaced record costs no more than two such
            moves: nothing is protected less than under ``"swap"``, and no pair has more than the sum of its two budgets of absence
            (by :meth:`closure`). Small ones cost noise: a query's slope then matters less than its size.

        >>> from_budgets([[0.0, 3.0], [3.0, 0.0]]).with_absence(1.0).closure().budgets.tolist()
        [[0.0, 2.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
        """
        return Metric(_bordered(self.budgets, absence_of(self, budgets)), "add_remove")

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
        """All budgets times a positive factor, which broadcasts against the batch."""
        return replace(self, budgets=_scaled(self.budgets, checks.positive("factor", factor, self.dtype)))

    __rmul__ = __mul__
    __array_ufunc__ = None  # NumPy's arrays leave their product with a metric to the metric


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
    given = checks.float_array("budgets", budgets)
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
    size = checks.static_integer("size", size, 1)
    return Metric(_uniform(checks.positive("epsilon", epsilon, checks.float_array("epsilon", epsilon).dtype), size))


def fold_rows(
    metric: Budgets,
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
    >>> from dpjax.metric_privacy.points import point_metric
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


@jax.jit
def smallest_budget(metric: Budgets) -> jax.Array:
    """The smallest budget of two elements, ``(...)``."""

    def step(least: jax.Array, index: jax.Array, rows: jax.Array) -> jax.Array:
        others = jnp.where(align(itself(index, metric.size), rows.ndim), jnp.inf, rows)
        return jnp.minimum(least, jnp.min(others, axis=(-2, -1)))

    return fold_rows(metric, jnp.full(metric.batch_shape, jnp.inf, metric.dtype), step)


@jax.jit
def largest_budget(metric: Budgets) -> jax.Array:
    """The largest finite budget, ``(...)``."""

    def step(most: jax.Array, index: jax.Array, rows: jax.Array) -> jax.Array:
        return jnp.maximum(most, jnp.max(jnp.where(rows == jnp.inf, 0.0, rows), axis=(-2, -1)))

    return fold_rows(metric, jnp.zeros(metric.batch_shape, metric.dtype), step)


def itself(index: jax.Array, size: int) -> jax.Array:
    """Which of all elements is the one of each row, ``(count, N)``."""
    return index[:, None] == jnp.arange(size, dtype=index.dtype)[None, :]


def columns_of(metric: Budgets, queries: jax.Array) -> jax.Array:
    """See :meth:`Metric.columns`."""
    own = metric.size - (metric.neighbors == "add_remove")
    if queries.shape[-1] != own:
        raise ValueError(f"queries over {queries.shape[-1]} elements do not fit a metric on {own}.")
    return queries if own == metric.size else jnp.concatenate([queries, jnp.zeros_like(queries[..., :1])], axis=-1)


def absence_of(metric: Budgets, budgets: ArrayLike) -> jax.Array:
    """The budgets of :meth:`Metric.with_absence`, ``(..., N)``."""
    if metric.neighbors == "add_remove":
        raise ValueError("this metric has the element nobody already.")
    given = budget_array("budgets", budgets).astype(metric.dtype)
    if given.ndim == 0 or given.shape[-1] == 1:
        given = jnp.broadcast_to(given, (*given.shape[:-1], metric.size))
    if given.shape[-1] != metric.size:
        raise ValueError(f"{metric.size} elements need as many budgets of absence, or one for all; got shape {given.shape}.")
    fits(metric.batch_shape, budgets=given.shape[:-1])
    return given


def budget_array(name: str, value: ArrayLike) -> jax.Array:
    """Return budgets that may be infinite; negative ones and NaN raise, or in a JAX array become NaN."""
    array = checks.float_array(name, value)
    if isinstance(value, jax.Array):
        return jnp.where(array >= 0, array, jnp.nan)
    if not np.all(np.asarray(value, np.float64) >= 0):
        raise ValueError(f"{name} must not be negative or NaN, got {value}.")
    return array


@jax.jit
def _even(budgets: jax.Array) -> jax.Array:
    return void(jnp.minimum(budgets, jnp.swapaxes(budgets, -1, -2)), _faults(budgets, budgets.dtype, jnp))


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
    return void(whole, jnp.isnan(whole))


@jax.jit
def _sum(one: jax.Array, other: jax.Array) -> jax.Array:
    rank, dtype = max(one.ndim, other.ndim), jnp.promote_types(one.dtype, other.dtype)
    return align(one, rank).astype(dtype) + align(other, rank).astype(dtype)


@jax.jit
def _scaled(budgets: jax.Array, factor: jax.Array) -> jax.Array:
    rank = max(budgets.ndim, factor.ndim + 2)
    scaled = align(budgets, rank) * align(factor[..., None, None], rank)
    return void(scaled, jnp.isnan(scaled))


def void(array: jax.Array, wrong: jax.Array) -> jax.Array:
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
    other = "" if i == j else f" and d({j}, {i}) = {budgets[(*at, j, i)]:g}"
    return f"d({i}, {j}) = {budgets[(*at, i, j)]:g}{other}{where}"
