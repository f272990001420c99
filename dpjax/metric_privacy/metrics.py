"""Privacy budgets between the elements of a data universe: the metric of d-privacy.

A mechanism is d-private if moving one record from element i to element j changes no probability by
more than a factor exp(d(i, j)). The neighbor relation is swap: the number of records n is public.
(Definition 2 of Kamalaruban et al. (2020), ||x - x'||_1 <= 2, also allows one record more or less,
but lets a query with the same value everywhere reveal n without noise.) To make n private,
:meth:`Metric.with_absence` adds the null record as an element, with a budget to every other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from functools import partial
from math import prod
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.display import Shown
from dpjax.metric_privacy.budgets import (
    budget_array,
    faults,
    nan_where_any,
    nan_where_missing,
    square_array,
    symmetric,
)
from dpjax.metric_privacy.coordinates import Points
from dpjax.metric_privacy.shortest_paths import shortest_paths
from dpjax.numerics.arrays import fits, take
from dpjax.pytrees import pytree

Neighbors = Literal["swap", "add_remove"]
Carry = TypeVar("Carry")
BLOCK_CELLS = 2**20  # numbers in a block of rows: 4 to 8 MB, which fits in a cache


@pytree
class Metric(Shown):
    """The privacy budgets d(i, j) of all pairs of elements of a universe.

    They are symmetric, 0 on the diagonal, ``inf`` where unprotected.

    Made by :func:`from_budgets`, :func:`from_points` and the other constructors, which check their
    arguments. Leading axes are a batch; a batch element with an invalid parameter is NaN. It is a
    pytree, differentiable in the budgets. ``metric + other`` is the cost of two mechanisms
    together; ``metric * factor``, for a positive factor that broadcasts against the batch, scales
    it.

    The triangle inequality is not required: a policy such as
    :func:`dpjax.metric_privacy.thresholds.blowfish` violates it. A mechanism within such budgets
    guarantees their :meth:`closure`, because a record can move through other elements.

    Attributes:
        budgets: float ``(..., N, N)``; or, for a large universe, coordinates from which rows are
            computed (:meth:`dense` makes the matrix).
        neighbors: static. ``"swap"``: n is public. ``"add_remove"``: the last element is the null
            record (see :meth:`with_absence`), and n is private.

    References:
        Chatzikokolakis, Andres, Bordenabe and Palamidessi (2013). Kamalaruban, Perrier, Asghar and
        Kaafar (2020), "Not All Attributes are Created Equal: d_X-Private Mechanisms for Linear
        Queries", Definition 2.

    >>> from dpjax.metric_privacy.points import from_points
    >>> metric = from_points([[0.0, 0.0], [3.0, 4.0]], epsilon=2.0)
    >>> metric.budgets.tolist(), float(metric.smallest)
    ([[0.0, 10.0], [10.0, 0.0]], 10.0)
    """

    budgets: Any
    neighbors: Neighbors = field(default="swap", metadata={"static": True})

    def _facts(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "batch_shape": self.batch_shape,
            "neighbors": repr(self.neighbors),
        }

    def __post_init__(self) -> None:
        checks.one_of("neighbors", self.neighbors, checks.NEIGHBORS)

    @property
    def size(self) -> int:
        """The number of elements N, including the null record if the metric has it."""
        return self.budgets.shape[-1]

    @property
    def num_values(self) -> int:
        """The number of elements that a record can have: all except the null record."""
        return self.size - (self.neighbors == "add_remove")

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the leading axes."""
        return self.budgets.shape[:-2]

    @property
    def dtype(self) -> Any:
        """The dtype of the budgets."""
        return self.budgets.dtype

    @property
    @jax.jit
    def smallest(self) -> jax.Array:
        """The smallest budget between two different elements, of shape ``batch_shape``.

        It is ``inf`` for a universe of one element.
        """

        def step(least: jax.Array, index: jax.Array, rows: jax.Array) -> jax.Array:
            same = index[:, None] == jnp.arange(self.size, dtype=index.dtype)
            return jnp.minimum(least, jnp.min(jnp.where(same, jnp.inf, rows), axis=(-2, -1)))

        return fold_rows(self, jnp.full(self.batch_shape, jnp.inf, self.dtype), step)

    @property
    @jax.jit
    def largest(self) -> jax.Array:
        """The largest finite budget, of shape ``batch_shape``; 0 if there is none."""

        def step(most: jax.Array, index: jax.Array, rows: jax.Array) -> jax.Array:
            return jnp.maximum(most, jnp.max(jnp.where(rows == jnp.inf, 0.0, rows), axis=(-2, -1)))

        return fold_rows(self, jnp.zeros(self.batch_shape, self.dtype), step)

    def rows(self, start: ArrayLike, count: int) -> jax.Array:
        """Return the budgets ``(..., count, N)`` of the elements from ``start`` on.

        ``start`` is clamped as in ``jax.lax.dynamic_slice``.
        """
        if isinstance(self.budgets, Points):
            return self.budgets.rows(start, count)
        return jax.lax.dynamic_slice_in_dim(self.budgets, start, count, axis=-2)

    def pairs(self, first: jax.Array, second: jax.Array) -> jax.Array:
        """Return d(i, j) for pairs of elements, int32 ``(..., M)``.

        Their batch is that of the metric or larger.
        """
        if isinstance(self.budgets, Points):
            return self.budgets.pairs(first, second)
        return take(
            self.budgets.reshape(*self.batch_shape, self.size**2), first * self.size + second
        )

    def columns(self, queries: jax.Array) -> jax.Array:
        """Return query values of all elements, ``(..., N)``, with a 0 for a null record."""
        if queries.shape[-1] != self.num_values:
            raise ValueError(
                f"queries must have a last axis of {self.num_values} elements as the metric, got "
                f"{queries.shape[-1]}."
            )
        return jnp.pad(queries, [(0, 0)] * (queries.ndim - 1) + [(0, self.size - self.num_values)])

    def astype(self, dtype: Any) -> Metric:
        """Return the metric with budgets of another dtype."""
        return jax.tree.map(lambda leaf: leaf.astype(dtype), self)

    def dense(self) -> Metric:
        """Return the metric with a matrix of all budgets."""
        return _dense(self) if isinstance(self.budgets, Points) else self

    def closure(self) -> Metric:
        """Return the lengths of shortest paths as a metric.

        It is the largest metric below these budgets that satisfies the triangle inequality.

        Elements that no finite path connects keep ``inf``. Scales for linear queries do not change,
        since |q_i - q_j| is at most the sum of differences along a path. It takes N steps of N x N
        work.
        """
        return Metric(shortest_paths(self.dense().budgets), self.neighbors)

    def with_absence(self, budgets: ArrayLike) -> Metric:
        """Return the metric with the null record as element N + 1, which makes n private.

        The neighbor relation of the result is ``"add_remove"``.

        Args:
            budgets: float ``(..., N)``, ``(..., 1)`` or one for all: the budget of adding or
                removing a record of each element.

        Privacy:
            Removing a record is a move to the null record, on which every query is 0. Replacing one
            costs no more than before, and by :meth:`closure` at most the sum of the two elements'
            ``budgets`` here.

        >>> from_budgets([[0.0, 3.0], [3.0, 0.0]]).with_absence(1.0).closure().budgets.tolist()
        [[0.0, 2.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
        """
        if self.neighbors == "add_remove":
            raise ValueError(
                "with_absence needs a metric without the null record, and this one has it already."
            )
        absence = jnp.atleast_1d(budget_array("budgets", budgets).astype(self.dtype))
        if absence.shape[-1] == 1:
            absence = jnp.broadcast_to(absence, (*absence.shape[:-1], self.size))
        if absence.shape[-1] != self.size:
            raise ValueError(
                f"budgets must have one element for each of the {self.size} elements, or one for "
                f"all, got shape {absence.shape}."
            )
        fits(self.batch_shape, budgets=absence.shape[:-1])
        return _with_absence(self, absence)

    def __add__(self, other: Metric) -> Metric:
        if not isinstance(other, Metric):
            return NotImplemented
        if self.size != other.size or self.neighbors != other.neighbors:
            raise ValueError(
                f"metrics must have the same elements and neighbors to be added, got {self.size} "
                f"elements under {self.neighbors} and {other.size} under {other.neighbors}."
            )
        dtype = jnp.promote_types(self.dtype, other.dtype)
        one, two = (metric.astype(dtype).dense().budgets for metric in (self, other))
        return Metric(one + two, self.neighbors)

    def __radd__(self, other: int) -> Metric:
        # The start of sum().
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, factor: ArrayLike) -> Metric:
        return _scaled(self, checks.positive("factor", factor, self.dtype))

    __rmul__ = __mul__
    __array_ufunc__ = None  # NumPy arrays then leave their product with a metric to __rmul__


def from_budgets(budgets: ArrayLike) -> Metric:
    """Return the metric with these public budgets.

    They may violate the triangle inequality (see :func:`dpjax.metric_privacy.validation.validate`).

    Args:
        budgets: float ``(..., N, N)``, symmetric, nonnegative, 0 on the diagonal, ``inf`` where
            nothing is to be protected. Where ij and ji differ by rounding (16 units in the last
            place), the smaller one is used. Invalid budgets raise, or in a JAX array make their
            batch element NaN.

    >>> from_budgets([[0, 1], [1, 0]]).size
    2
    """
    array = square_array("budgets", budgets)
    if not isinstance(budgets, jax.Array):
        exact = np.asarray(budgets, np.float64)
        wrong = np.argwhere(faults(exact, array.dtype, np)).tolist()
        if wrong:
            *batch, i, j = wrong[0]
            other = "" if i == j else f" and d({j}, {i}) = {exact[(*batch, j, i)]:g}"
            where = f" in batch element {tuple(batch)}" if batch else ""
            raise ValueError(
                f"budgets must be symmetric, nonnegative and 0 on the diagonal: d({i}, {j}) = "
                f"{exact[(*batch, i, j)]:g}{other}{where}."
            )
    return Metric(symmetric(array))


def uniform(size: int, *, epsilon: ArrayLike) -> Metric:
    """Return the metric d(i, j) = epsilon for i != j.

    This is epsilon-differential privacy under swap neighbors, with n public.

    Args:
        size: static, the number of elements N.
        epsilon: positive, ``(...)``.

    >>> uniform(2, epsilon=0.5).budgets.tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    size = checks.static_integer("size", size, 1)
    return Metric(
        _equal_budgets(
            size, checks.positive("epsilon", epsilon, checks.float_array("epsilon", epsilon).dtype)
        )
    )


@partial(jax.jit, static_argnames="size")
def _equal_budgets(size: int, epsilon: jax.Array) -> jax.Array:
    rate = epsilon[..., None, None]
    return jnp.where(jnp.eye(size, dtype=bool) & ~jnp.isnan(rate), 0.0, rate)


def fold_rows(
    metric: Metric,
    initial: Carry,
    step: Callable[[Carry, jax.Array, jax.Array], Carry],
    *,
    count: int | None = None,
) -> Carry:
    """Run over all budgets, a block of rows at a time.

    The call is ``carry = step(carry, index (count,), rows (..., count, N))``.

    ``count`` is static, by default about a million budgets. ``step`` must give the same result when
    rows come twice (as for a maximum or a minimum): the last block may overlap the one before.

    >>> import jax.numpy as jnp
    >>> from dpjax.metric_privacy.points import point_metric
    >>> metric = point_metric([[0.0], [1.0], [3.0]], epsilon=1.0)
    >>> step = lambda far, index, rows: far.at[index].set(jnp.max(rows, axis=-1))
    >>> fold_rows(metric, jnp.zeros(3), step, count=2).tolist()
    [3.0, 2.0, 3.0]
    """
    size = metric.size
    if count is None:
        count = BLOCK_CELLS // (size * max(prod(metric.batch_shape), 1))
    # The same number of blocks, all of one size.
    block = -(-size // -(-size // min(max(count, 1), size)))

    def body(block_index: jax.Array, carry: Carry) -> Carry:
        start = jnp.minimum(block_index * block, size - block).astype(jnp.int32)
        return step(carry, start + jnp.arange(block, dtype=jnp.int32), metric.rows(start, block))

    return jax.lax.fori_loop(0, -(-size // block), body, initial)


@jax.jit
def _dense(metric: Metric) -> Metric:
    matrix = metric.rows(0, metric.size)
    return Metric(
        nan_where_any(jnp.minimum(matrix, jnp.swapaxes(matrix, -1, -2))), metric.neighbors
    )


@jax.jit
def _with_absence(metric: Metric, edge: jax.Array) -> Metric:
    budgets = metric.budgets
    if isinstance(budgets, Points):
        return Metric(
            replace(budgets, absence=edge, epsilon=nan_where_missing(budgets.epsilon, edge)),
            "add_remove",
        )
    batch, size = jnp.broadcast_shapes(edge.shape[:-1], metric.batch_shape), metric.size + 1
    matrix = jnp.zeros((*batch, size, size), budgets.dtype).at[..., :-1, :-1].set(budgets)
    return Metric(
        nan_where_any(matrix.at[..., -1, :-1].set(edge).at[..., :-1, -1].set(edge)), "add_remove"
    )


@jax.jit
def _scaled(metric: Metric, factor: jax.Array) -> Metric:
    budgets = metric.budgets
    if not isinstance(budgets, Points):
        return Metric(nan_where_any(budgets * factor[..., None, None]), metric.neighbors)
    absence = None if budgets.absence is None else budgets.absence * factor[..., None]
    return Metric(
        replace(budgets, epsilon=budgets.epsilon * factor, absence=absence), metric.neighbors
    )
