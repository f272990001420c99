"""From a table to the counts of a column, of all groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from dpjax.frames.asked import Asked
from dpjax.frames.tables import Table, read_table
from dpjax.release import Counts, DistinctCount, Mode, Statistic

_ENTRIES = 2**16  # of counts, that are worked on together: what is computed between stays in the cache
_GROUP = 32  # what a group counts for beside its entries


def table_of(frame: Any, asked: Mapping[str, Asked], by: Any, groups: Any, neighbors: str) -> Table:
    """Read the columns that are asked for."""
    ids = [name for name, own in asked.items() if isinstance(own.statistic, DistinctCount)]
    return read_table(frame, asked, ids, by, groups, neighbors)


def counts_of(statistic: Statistic, records: np.ndarray, table: Table, neighbors: str) -> Counts:
    """Count how often each value occurs in each group."""
    if isinstance(statistic, DistinctCount):
        positions, present = np.maximum(records, 0), records >= 0
    else:
        positions, present = statistic.read(records)
    if neighbors == "swap" and not isinstance(statistic, Mode):  # a record is there, whatever it is: a NaN has position 0
        present = np.ones_like(present)
    return Counts.of_groups(table.codes if present.all() else np.where(present, table.codes, -1), positions, table.groups)


def some_at_a_time(counts: Counts) -> Iterator[tuple[slice, Counts]]:
    """Yield all groups in order, as many at a time as fit into the cache."""
    weight = counts.starts + _GROUP * np.arange(counts.groups + 1)
    ends = np.searchsorted(weight, np.arange(_ENTRIES, weight[-1], _ENTRIES), "right") - 1
    cuts = np.unique([0, *ends, counts.groups]).tolist()
    for first, last in pairwise(cuts):
        yield slice(first, last), counts.some(first, last)
