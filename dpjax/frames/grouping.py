"""From the group of each record to a few padded shapes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

LEAST = 64  # places for the records of a group
_TOGETHER = 2**21  # cells up to which groups of all sizes are padded to the largest: compiling takes longer than padding
_SPREAD = 4  # beyond that, how many times as large as the smallest the largest group of a shape can be
_CELLS = 2**22  # of a batch


class Batch(NamedTuple):
    """Groups that are padded to one shape, a power of two on both axes.

    Attributes:
        groups: which ones, in the order of the rows; further rows are empty.
        sizes: int32 ``(rows,)``, how many records each has.
        places: bool ``(rows, places)``, where they are.
        members: which records are there, row by row.
    """

    groups: np.ndarray
    sizes: np.ndarray
    places: np.ndarray
    members: np.ndarray

    def padded(self, values: np.ndarray) -> np.ndarray:
        """Return values of all records as float64 ``(rows, places)``, padded with NaN."""
        found = np.full(self.places.shape, np.nan)
        found[self.places] = values[self.members]
        return found


@dataclass(frozen=True)
class Grouping:
    """Which group each record is in.

    Attributes:
        codes: int32 ``(n,)``, the number of the group; -1 for none.
        labels: of the groups.
    """

    codes: np.ndarray
    labels: Sequence[Any]

    @property
    def sizes(self) -> np.ndarray:
        """How many records each group has, int64."""
        return np.bincount(self.codes + 1, minlength=len(self.labels) + 1)[1:]

    def only(self, kept: np.ndarray) -> Grouping:
        """Return the groups of these numbers, in this order."""
        number = np.full(len(self.labels) + 1, -1, np.int32)
        number[kept] = np.arange(len(kept))
        return Grouping(number[self.codes], [self.labels[k] for k in kept])

    def whole(self) -> Batch:
        """Return the one group of all records as it is, for swap neighbours: their number is public."""
        n = self.codes.size
        return Batch(np.zeros(1, np.int64), np.array([n], np.int32), np.ones((1, n), bool), np.arange(n))

    def batches(self) -> Iterator[Batch]:
        """Yield all groups in batches of few shapes, the largest groups first; an empty one where there is none."""
        sizes = self.sizes
        if not sizes.size:
            nothing = np.zeros(0, np.int64)
            yield Batch(nothing, np.zeros(1, np.int32), np.zeros((1, LEAST), bool), nothing)
        by_group = np.argsort(self.codes, kind="stable").astype(np.int32)
        starts = len(self.codes) - sizes[::-1].cumsum()[::-1]  # where each group starts among them
        for groups, padded, places in shapes_of(sizes):
            present = np.arange(places) < padded[:, None]
            members = np.concatenate([by_group[starts[g] : starts[g] + sizes[g]] for g in groups])
            yield Batch(groups, padded, present, members)


def shapes_of(sizes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield, from sizes of groups, the groups and sizes of each :class:`Batch` and its number of places, largest groups first."""
    rest = np.argsort(-sizes, kind="stable")
    while rest.size:
        places = power(max(int(sizes[rest[0]]), LEAST))
        together = places * power(rest.size) <= _TOGETHER
        alike = rest.size if together else int(np.sum(sizes[rest] > places // _SPREAD))
        of_shape, rest = np.split(rest, [max(alike, 1)])
        rows = min(power(of_shape.size), max(_CELLS // places, 1))
        for start in range(0, of_shape.size, rows):
            groups = np.sort(of_shape[start : start + rows])
            padded = np.zeros(rows, np.int32)
            padded[: groups.size] = sizes[groups]
            yield groups, padded, places


def power(n: int) -> int:
    """The least power of two from n on."""
    return 1 << (n - 1).bit_length()


def codes_of(labels: Sequence[Hashable], index: dict[Any, int], *, grow: bool) -> np.ndarray:
    """Return the number of each label in ``index``, int32, -1 where it has none; with ``grow`` it gets the next one."""
    if grow:
        for label in dict.fromkeys(labels):
            index.setdefault(label, len(index))
    return np.fromiter(map(index.get, labels, repeat(-1)), np.int32, len(labels))


def natural_order(label: Any) -> tuple[bool, float, str]:
    """Sort key of any label, by its text: numbers first and by value.

    >>> sorted(["10", "b", 9, "a", ""], key=natural_order)
    [9, '10', '', 'a', 'b']
    """
    text = "" if label is None else str(label)
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    known = value == value
    return not known, value if known else 0.0, text
