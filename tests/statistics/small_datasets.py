"""All datasets of up to four records on five values: what a search over them finds, and the same
datasets as rows that are hard to read.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from tests.support.reach_sets import Universe

UNIVERSE = Universe(4)
SHOWN = UNIVERSE.looked_at
LEVELS = UNIVERSE.most + 2  # that the search knows: 0, ..., 5
RELATIONS = ("add_remove", "swap")
GRID = (-4.0, -1.0, 0.0, 2.0, 7.0)
COLUMNS = 6
# Datasets with n records that are k changes away and their neighbors are in the universe
KNOWN = UNIVERSE.n[:SHOWN] + np.arange(LEVELS)[:, None] < UNIVERSE.n.max()


@cache
def datasets(values=GRID):
    """Every dataset of the universe, as an ascending tuple of these values (of any kind)."""
    return [
        tuple(values[place] for place in row[:n])
        for row, n in zip(UNIVERSE.records, UNIVERSE.n, strict=True)
    ]


@cache
def values_of(statistic, values=GRID):
    return np.array([statistic(data) for data in datasets(values)], float)


def search(values, neighbors):
    """The largest and smallest values within 0, 1, ... changes, ``(levels, datasets)``."""
    return UNIVERSE.reach(values, neighbors)


def distances(reached, neighbors):
    """The number of changes until a test of datasets holds, ``(datasets,)``; inf if it is far."""
    level = search(reached.astype(int), neighbors)[0]
    return np.where(level[-1] == 1, np.argmax(level, axis=0), np.inf)


def local_sensitivities(values, neighbors):
    """The largest local sensitivities within 0, 1, ... changes, ``(levels, datasets)``."""
    differences = np.abs(values[:, None] - values[UNIVERSE.neighbors[neighbors]])
    return search(differences.max(axis=1), neighbors)[0]


class Rows(NamedTuple):
    """Some of the datasets as rows, and the argument that says which records are present."""

    which: np.ndarray
    x: np.ndarray
    given: dict

    def pairs(self, neighbors):
        """All ordered pairs of neighbors among these rows, ``(2, pairs)``."""
        place = np.full(SHOWN, -1)
        place[self.which] = np.arange(len(self.which))
        pairs = place[UNIVERSE.pairs(neighbors)]
        return pairs[:, (pairs >= 0).all(axis=0)]


@cache
def rows(neighbors, given_by="mask", least=0, grid=GRID):
    """Datasets of at least so many records, in random order among records that are not there.

    ``given_by`` is "mask", "num_records", or None if all columns are present. A record at a bound
    is anything beyond it; zeros are negative; NaN is absent under add/remove, and at the lower
    bound under swap.
    """
    rng, most = np.random.default_rng(0), UNIVERSE.most
    which = np.flatnonzero(UNIVERSE.n[:SHOWN] >= (most if given_by is None else least))
    columns = most if given_by is None else most + 2
    x = rng.choice([np.nan, np.inf, -3.0, 1.0], (len(which), columns))
    mask = np.zeros(x.shape, bool)
    hard = {0.0: [-0.0], grid[0]: [grid[0], -np.inf, -1e30], grid[-1]: [grid[-1], np.inf]}
    hard[grid[0]] += [np.nan] * (neighbors == "swap")
    absent = [np.nan] * (neighbors == "add_remove" and given_by is not None)
    for row, number in enumerate(which):
        records = [rng.choice(hard.get(value, [value])) for value in datasets(grid)[number]]
        records += absent
        places = rng.permutation(columns if given_by == "mask" else len(records))[: len(records)]
        x[row, places], mask[row, places] = records, True
    given = {"mask": mask} if given_by == "mask" else {}
    return Rows(which, x, {"num_records": mask.sum(axis=1)} if given_by == "num_records" else given)


def disorder(side, pairs):
    """How far a value lies beyond that of a neighbor at the next level (Corollary 3.1), at most,
    for ``side`` outwards, ``(levels, rows)``.
    """
    return float(np.max(side[:-1, pairs[0]] - side[1:, pairs[1]]))
