"""Persons with several rows.

The rows of a person in a group are combined, and a person counts in few groups.

**Proof.** Let a table have one person more than another one. Rows of different persons are not
combined before they are counted: the record of a person in a group, and the choice of the person's
groups (those with most of the person's rows, ties in the public order of the groups, or by label),
are functions of that person's rows and of public numbers alone. So the records of all others are
equal in both tables, and the person adds at most one record to each of at most ``max_groups``
groups. A mechanism that is epsilon-DP for a record of a group draws independently for each group,
so that the losses of these groups add up to at most ``max_groups`` times epsilon; all other groups
have the same distribution. Ranges add up likewise, since the groups are drawn independently.
Without groups there is one record, and the cost is that of one.

**Why rows are rounded before they are added.** A sum of floats depends on their order, and an
engine's order may depend on other people's rows: then one person could change the records of
several. So rows become integers first, multiples of the resolution over a power of two that depends
on public numbers only, whose sum is exact in every order (up to 2^32 rows of a person in a group).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dpjax.release import DistinctCount, Statistic
from dpjax.release.grid import Multiples, kind_of

PerUnit = Literal["mean", "sum", "min", "max", "count"]
_BITS = 31  # the number of bits of the integer of a row


def rule_of(statistic: Statistic, per_unit: PerUnit | None) -> PerUnit:
    """Return how the rows of a person are combined for a statistic.

    Raises:
        ValueError: if that is undefined.
    """
    if not hasattr(statistic, "records_grid"):  # counts persons, whatever their values are
        return "max"
    grid = grid_of_records(statistic)
    if grid is None and per_unit not in ("min", "max"):
        raise ValueError(
            f"{type(statistic).__name__} with unit= takes per_unit='min' or 'max', which keep "
            "one of a person's values: other rules need a resolution."
        )
    rule, kind = per_unit or "mean", kind_of(getattr(statistic, "lower", None))
    if kind is not None and (rule == "count" or (rule == "sum" and kind != "Duration")):
        raise ValueError(f"per_unit={rule!r} is not a {kind.lower()}: use 'mean', 'min' or 'max'.")
    if rule == "sum" and grid is not None and _rows_of(grid, rule)[2] >= 2**_BITS:
        raise ValueError(
            "per_unit='sum' needs bounds within 2^31 multiples of the resolution: use a coarser "
            "resolution."
        )
    return rule


def grid_of_records(statistic: Statistic) -> Any:
    """Return the :class:`Multiples` that a statistic rounds records to, or None."""
    grid = getattr(statistic, "records_grid", None)
    ids = isinstance(statistic, DistinctCount)
    return grid if isinstance(grid, Multiples) and not ids else None


def rounded(values: np.ndarray, grid: Multiples, rule: PerUnit) -> tuple[np.ndarray, np.ndarray]:
    """Round the rows of means and sums to integers before they are added.

    A row x becomes floor((clip(x / resolution, low, high) - origin) 2^bits + 1/2), in float64.

    Returns:
        The integers, int64, and which values are numbers.
    """
    present, (origin, low, high, scale) = ~np.isnan(values), _rows_of(grid, rule)
    multiples = grid.multiples_of(np.where(present, values, 0.0))
    cells = np.floor((np.clip(multiples, low, high) - origin) * scale + 0.5)
    return cells.astype(np.int64), present


def _rows_of(grid: Multiples, rule: PerUnit) -> tuple[int, int, int, float]:
    """Return the origin of the integers of rows, the bounds of rows, in resolutions, and 2^bits.

    It is the largest by which the integer of a row has at most 31 bits.
    """
    low, high = grid.start, grid.start + grid.size - 1
    origin = low
    if rule == "sum":
        high = max(abs(low), abs(high))
        origin, low = 0, -high
    return origin, low, high, 2.0 ** (_BITS - (high - origin).bit_length())


def finished(total: np.ndarray, rows: np.ndarray, grid: Multiples, rule: PerUnit) -> np.ndarray:
    """Return the position of each person's record, integers.

    Args:
        total: int64 ``(persons,)``, the sum of a person's rows, as :func:`rounded` gives them.
        rows: int64 ``(persons,)``, the number of these rows.
        grid: of the records.
        rule: ``"mean"``, ``"sum"`` or ``"count"``.
    """
    if rule == "count":
        return grid.positions_of(rows)[0]
    origin, _, _, scale = _rows_of(grid, rule)
    number = rows if rule == "mean" else 1
    nearest = np.floor(total / (number * scale) + 0.5) + origin - grid.start
    return np.clip(nearest, 0, grid.size - 1).astype(np.int64)
