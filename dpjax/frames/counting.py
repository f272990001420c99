"""The counts of all groups, as many at a time as fit into the cache."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from dpjax.release import Counts

_ENTRIES = 2**16  # of counts, that are worked on together: what is computed between stays in the cache
_GROUP = 32  # what a group counts for beside its entries


def some_at_a_time(counts: Counts) -> Iterator[tuple[slice, Counts]]:
    """Yield all groups in order, as many at a time as fit into the cache."""
    weight = counts.starts + _GROUP * np.arange(counts.groups + 1)
    ends = np.searchsorted(weight, np.arange(_ENTRIES, weight[-1], _ENTRIES), "right") - 1
    cuts = np.unique([0, *ends, counts.groups]).tolist()
    for first, last in pairwise(cuts):
        yield slice(first, last), counts.some(first, last)
