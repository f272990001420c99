"""Privacy budgets between the elements of a data universe: the metric of d-privacy.

A mechanism is d-private if moving one record from element i to element j changes no probability by
more than a factor exp(d(i, j)). The neighbor relation is swap: the number of records n is public.
(Definition 2 of Kamalaruban et al. (2020), ||x - x'||_1 <= 2, also allows one record more or less,
but lets a query with the same value everywhere reveal n without noise.) To make n private,
:meth:`Metric.with_absence` adds the null record as an element, with a budget to every other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.display import Shown

ROUNDING = 1e-12  # relative: numbers that differ by less are equal


@dataclass(frozen=True, eq=False, repr=False)
class Metric(Shown):
    """The privacy budgets d(i, j) of all pairs of elements of a public universe.

    They are symmetric, 0 on the diagonal, and ``inf`` where nothing is protected.

    The triangle inequality is not required: a policy such as :func:`blowfish` violates it. A
    mechanism within such budgets guarantees their :meth:`closure`, because a record can move
    through other elements. ``metric + other`` is the cost of two mechanisms together, or of changes
    of two attributes.

    Attributes:
        budgets: float64 ``(N, N)``, read-only. Where ij and ji differ by rounding, the smaller one
            counts.
        neighbors: ``"swap"``: n is public. ``"add_remove"``: the last element is the null record
            (see :meth:`with_absence`), and n is private.

    Raises:
        ValueError: budgets that are not square, symmetric, nonnegative and 0 on the diagonal.

    References:
        Chatzikokolakis, Andres, Bordenabe and Palamidessi (2013). Kamalaruban, Perrier, Asghar and
        Kaafar (2020), "Not All Attributes are Created Equal: d_X-Private Mechanisms for Linear
        Queries", Definition 2.

    >>> metric = Metric([[0.0, 10.0], [10.0, 0.0]])
    >>> metric, metric.smallest
    (Metric(size=2, neighbors='swap'), 10.0)
    """

    budgets: np.ndarray
    neighbors: Neighbors = "swap"

    def __post_init__(self) -> None:
        checks.one_of("neighbors", self.neighbors, checks.NEIGHBORS)
        given = numbers("budgets", self.budgets)
        if given.ndim != 2 or given.shape[0] != given.shape[1] or not given.size:
            raise ValueError(
                f"budgets must be square, (N, N) with N >= 1, got shape {given.shape}."
            )
        least, most = np.minimum(given, given.T), np.maximum(given, given.T)
        right = (least >= most * (1 - ROUNDING)) & (least >= 0)
        right &= (given == 0) | (np.eye(len(given)) == 0)
        if not right.all():
            i, j = np.argwhere(~right)[0]
            raise ValueError(
                "budgets must be symmetric, nonnegative and 0 on the diagonal, got "
                f"d({i}, {j}) = {given[i, j]:g} and d({j}, {i}) = {given[j, i]:g}."
            )
        least.flags.writeable = False
        object.__setattr__(self, "budgets", least)

    def _facts(self) -> dict[str, Any]:
        return {"size": self.size, "neighbors": repr(self.neighbors)}

    @property
    def size(self) -> int:
        """The number of elements N, including the null record if the metric has it."""
        return len(self.budgets)

    @property
    def num_values(self) -> int:
        """The number of elements that a record can have: all except the null record."""
        return self.size - (self.neighbors == "add_remove")

    @property
    def smallest(self) -> float:
        """The smallest budget between two different elements; ``inf`` for one element."""
        return float(np.min(self.budgets[np.eye(self.size) == 0], initial=np.inf))

    def closure(self) -> Metric:
        """Return the lengths of shortest paths (Floyd 1962), in N steps of N x N sums.

        It is the largest metric below these budgets that satisfies the triangle inequality.
        Elements that no finite path connects keep ``inf``. Scales for linear queries do not change,
        since |q_i - q_j| is at most the sum of differences along a path.
        """
        found = self.budgets.copy()
        for k in range(self.size):
            np.minimum(found, found[:, k, None] + found[None, k], out=found)
        return Metric(found, self.neighbors)

    def violation(self) -> tuple[int, int, float] | None:
        """Return the worst violation of the triangle inequality, or None if there is none.

        It is a pair i, j whose budget exceeds the length of their shortest path the most, and this
        length. A policy may have one: see :meth:`closure`.

        >>> Metric([[0, 1, 5], [1, 0, 2], [5, 2, 0]]).violation()
        (0, 2, 3.0)
        """
        shortest = self.closure().budgets
        longer = self.budgets > shortest * (1 + ROUNDING)
        excess = np.subtract(self.budgets, shortest, where=longer, out=np.zeros_like(shortest))
        i, j = divmod(int(np.argmax(excess)), self.size)
        return (i, j, float(shortest[i, j])) if longer.any() else None

    def with_absence(self, budgets: ArrayLike) -> Metric:
        """Return the metric with the null record as the last element, which makes n private.

        The neighbor relation of the result is ``"add_remove"``.

        Args:
            budgets: ``(N,)``, or one for all: the budget of adding or removing a record of each
                element.

        Privacy:
            Removing a record is a move to the null record, on which every query is 0. Replacing one
            costs no more than before, and by :meth:`closure` at most the sum of the two elements'
            ``budgets`` here.

        >>> Metric([[0.0, 3.0], [3.0, 0.0]]).with_absence(1.0).closure().budgets.tolist()
        [[0.0, 2.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
        """
        if self.neighbors == "add_remove":
            raise ValueError(
                "with_absence needs a metric without the null record, and this one has it already."
            )
        whole = np.pad(self.budgets, (0, 1))
        whole[-1, :-1] = whole[:-1, -1] = prices(budgets, self.size, "element")
        return Metric(whole, "add_remove")

    def __add__(self, other: Metric) -> Metric:
        if not isinstance(other, Metric):
            return NotImplemented
        on_one_universe("metrics", self, other)
        return Metric(self.budgets + other.budgets, self.neighbors)


def from_budgets(budgets: ArrayLike) -> Metric:
    """Return the metric with these public budgets, ``(N, N)``; see :class:`Metric`.

    >>> from_budgets([[0, 1], [1, 0]]).size
    2
    """
    return Metric(numbers("budgets", budgets))


def uniform(size: int, *, epsilon: float) -> Metric:
    """Return the metric d(i, j) = epsilon for i != j.

    This is epsilon-differential privacy under swap neighbors, with n public.

    Args:
        size: the number of elements N.
        epsilon: positive.

    >>> uniform(2, epsilon=0.5).budgets.tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    size = checks.static_integer("size", size, 1)
    return Metric(checks.concrete_epsilon(epsilon) * (1 - np.eye(size)))


def on_one_universe(name: str, one: Any, other: Any) -> None:
    """Raise for metrics or queries of different elements or neighbors."""
    if (one.size, one.neighbors) != (other.size, other.neighbors):
        raise ValueError(
            f"{name} must have the same elements and neighbors, got {one.size} elements under "
            f"{one.neighbors} and {other.size} under {other.neighbors}."
        )


def numbers(name: str, value: ArrayLike) -> np.ndarray:
    """Return public numbers as float64, or raise."""
    if checks.is_traced(value):
        raise TypeError(f"{name} must be concrete, got a traced array.")
    return checks.host_floats(name, value).astype(np.float64)


def finite(name: str, value: ArrayLike, axes: tuple[str, ...]) -> np.ndarray:
    """Return public finite numbers as float64 with these axes, or raise."""
    array = numbers(name, value)
    if array.ndim != len(axes) or not array.size or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite numbers of shape ({', '.join(axes)}), got shape {array.shape}."
        )
    return array


def prices(budgets: ArrayLike, count: int, of: str) -> np.ndarray:
    """Return nonnegative numbers, possibly infinite, ``(count,)``; one number is for all."""
    array = numbers("budgets", budgets)
    if array.shape not in ((), (1,), (count,)) or not np.all(array >= 0):
        raise ValueError(
            f"budgets must be nonnegative or inf, one for each of {count} {of}s or one for all, "
            f"got {budgets}."
        )
    return np.broadcast_to(array, count)
