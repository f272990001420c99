"""Persons with several rows.

The rows of a person in a group are combined, and a person counts in few groups.

**Proof.** Let a table have one person more than another one. Rows of different persons are not
combined before they are counted: the record of a person in a group, and the choice of the person's
groups (those with most of the person's rows, ties by label), are functions of that person's rows
and of public numbers alone. So the records of all others are equal in both tables, and the person
adds at most one record to each of at most ``max_groups`` groups. A mechanism that is epsilon-DP for
a record of a group draws independently for each group, so that the losses of these groups add up to
at most ``max_groups`` times epsilon; all other groups have the same distribution. Ranges add up
likewise, since the groups are drawn independently. Without groups there is one record, and the cost
is that of one.

**Why rows are rounded before they are added.** A sum of floats depends on their order, and an
engine's order may depend on other people's rows: then one person could change the records of
several. So rows become integers first, multiples of the resolution over a power of two that depends
on public numbers only, whose sum is exact in every order (up to 2^32 rows of a person in a group).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from dpjax import checks
from dpjax.accounting.composition import Composition
from dpjax.accounting.guarantee import Guarantee
from dpjax.release import Count, DistinctCount, Statistic
from dpjax.release.grid import Multiples

PerUnit = Literal["mean", "sum", "min", "max", "count"]
_BITS = 31  # the number of bits of the integer of a row


class Rounding(NamedTuple):
    """Rounding of scaled and clamped numbers to integers, in float64.

    It is floor(clip(x * times / over, low, high) * 2^bits + 1/2) - offset * 2^bits. With
    ``bits = 0`` it is the index of the nearest cell of a grid, counted from the lower bound.
    """

    times: float
    over: float
    low: float
    high: float
    bits: int
    offset: float

    def integers(self, values: np.ndarray) -> np.ndarray:
        """Return the integers of values, which must not be NaN, int64."""
        with np.errstate(over="ignore"):
            cells = np.clip(values * self.times / self.over, self.low, self.high) * 2.0**self.bits
        return (np.floor(cells + 0.5) - self.offset * 2.0**self.bits).astype(np.int64)


def cells_of(grid: Multiples) -> Rounding:
    """Return the rounding of single records to the cells of a grid."""
    end = grid.start + grid.size - 1
    return Rounding(
        float(grid.resolution.denominator),
        float(grid.resolution.numerator),
        grid.start,
        end,
        0,
        grid.start,
    )


@dataclass(frozen=True)
class Persons:
    """The rule that combines the rows of a person.

    Attributes:
        unit: the column that identifies the person.
        per_unit: how all rows of a person in a group are combined; None for the default of the
            statistic.
        max_groups: the maximal number of groups that a person counts in.
    """

    unit: Any
    per_unit: PerUnit | None = None
    max_groups: int = 1

    def __post_init__(self) -> None:
        """Raise for public parameters out of range."""
        if self.per_unit is not None:
            checks.one_of("per_unit", self.per_unit, get_args(PerUnit))
        checks.static_integer("max_groups", self.max_groups, 1)

    def rule(self, statistic: Statistic) -> PerUnit:
        """Return how the rows of a person are combined for this statistic.

        Raise if that is undefined.
        """
        if isinstance(statistic, Count):  # counts persons, whatever their values are
            return "max"
        grid: Any = getattr(statistic, "records_grid", None)
        on_multiples = isinstance(grid, Multiples) and not isinstance(statistic, DistinctCount)
        if self.per_unit is None and not on_multiples:
            raise ValueError(
                f"{type(statistic).__name__} with unit= needs per_unit='min' or 'max', which keep "
                "one of a person's values."
            )
        rule = self.per_unit or "mean"
        if not on_multiples and rule not in ("min", "max"):
            raise ValueError(
                f"per_unit={rule!r} needs a statistic with a resolution: "
                f"{type(statistic).__name__} takes 'min' or 'max'."
            )
        if (
            rule == "sum"
            and on_multiples
            and max(abs(grid.start), abs(grid.start + grid.size - 1)) >= 2**_BITS
        ):
            raise ValueError(
                "per_unit='sum' needs bounds within 2^31 multiples of the resolution: use a "
                "coarser resolution."
            )
        return rule


def rows_of(grid: Multiples, rule: PerUnit) -> Rounding:
    """Return the rounding of a row before the rows of a person are combined."""
    cells = cells_of(grid)
    if rule == "mean":
        return cells._replace(bits=_BITS - (grid.size - 1).bit_length())
    if rule == "sum":
        most = max(abs(cells.low), abs(cells.high), 1)
        return cells._replace(low=-most, high=most, bits=_BITS - int(most).bit_length(), offset=0)
    return cells


def together(
    values: np.ndarray, starts: np.ndarray, rows: np.ndarray, grid: Multiples | None, rule: PerUnit
) -> np.ndarray:
    """Return the position of each person's record, int64.

    The rows are sorted by person and rounded by :func:`rows_of`.
    """
    if grid is None or rule in ("min", "max"):
        return (np.minimum if rule == "min" else np.maximum).reduceat(values, starts)
    if rule == "count":
        return cells_of(grid).integers(rows.astype(np.float64))
    return finished(np.add.reduceat(values, starts), rows, grid, rule)


def finished(total: np.ndarray, rows: np.ndarray, grid: Multiples, rule: PerUnit) -> np.ndarray:
    """Return the positions of the sums or means of persons' rows."""
    scale = 2.0 ** rows_of(grid, rule).bits
    if rule == "mean":
        return np.floor(total.astype(np.float64) / (rows * scale) + 0.5).astype(np.int64)
    cells = cells_of(grid)
    cell = np.clip(np.floor(total.astype(np.float64) / scale + 0.5), cells.low, cells.high)
    return (cell - cells.low).astype(np.int64)


def in_few_groups(person: np.ndarray, group: np.ndarray, rows: np.ndarray, most: int) -> np.ndarray:
    """Return which records are kept, bool.

    Of each person these are the ones in the groups with most rows, with ties broken by group.

    Args:
        person: int64 ``(n,)``.
        group: int64 ``(n,)``, distinct for the records of one person, in the order of the labels.
        rows: int64 ``(n,)``, the number of rows that each record combines.
        most: the maximal number of groups that a person counts in.

    >>> in_few_groups(
    ...     np.array([7, 7, 7, 4]), np.array([2, 0, 1, 0]), np.array([3, 1, 1, 1]), 2
    ... ).tolist()
    [True, True, False, True]
    """
    order = np.lexsort((group, -rows, person))
    first = np.flatnonzero(np.diff(person[order], prepend=np.int64(-1)) != 0)
    place = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
    stays = np.zeros(len(order), bool)
    stays[order[place < most]] = True
    return stays


def persons_of(unit: Any, per_unit: PerUnit | None, max_groups: int) -> Persons | None:
    """Return how the rows of persons are combined; None if each row is a record."""
    if unit is None:
        if per_unit is not None or max_groups != 1:
            raise ValueError(
                "per_unit and max_groups need unit, the column that identifies the person."
            )
        return None
    return Persons(unit, per_unit, max_groups)


def protecting(guarantee: Guarantee | Composition, persons: Persons | None) -> Any:
    """Return a guarantee with its unit: a row, or a person."""
    unit = "row" if persons is None else "person"
    if isinstance(guarantee, Composition):
        return Composition(
            tuple((replace(part, unit=unit), count) for part, count in guarantee.parts)
        )
    return replace(guarantee, unit=unit)


def costs_of(
    asked: Mapping[Any, Any], neighbors: str, persons: Persons | None
) -> dict[tuple[Any, float], Guarantee]:
    """Return the cost of the draws from each column at each epsilon, over all groups."""
    times = 1 if persons is None else persons.max_groups
    return {
        (column, float(epsilon)): protecting(
            own.statistic.cost(epsilon, own.draws * times, neighbors, own.mechanism), persons
        )
        for column, own in asked.items()
        for epsilon in own.epsilons
    }
