"""What a statistic can become after so many changes, by breadth-first search over all datasets;
costs and probabilities from that.

Nothing here comes from the library. A universe has all datasets of up to so many records on the
values 0, ..., top, as counts. The datasets within l + 1 changes are those within l changes of a
neighbor, so the extreme values of l + 1 changes are the extremes of those of l changes over all
neighbors. For that the universe has more records than the datasets that are looked at.
"""

from itertools import combinations_with_replacement, product
from typing import NamedTuple

import numpy as np

_NODES, _PARTS = np.polynomial.legendre.leggauss(64)


class Reach(NamedTuple):
    """The largest and the smallest value of each dataset after 0, 1, 2, ... changes, integers
    ``(levels, datasets)``.
    """

    upper: np.ndarray
    lower: np.ndarray
    high: int

    def cut(self, most):
        """The same, but after more than ``most`` changes everything is within reach."""
        ends = np.full_like(self.upper[:1], self.high), np.zeros_like(self.upper[:1])
        return Reach(
            *(
                np.concatenate([side[: most + 1], end])
                for side, end in zip(self[:2], ends, strict=True)
            ),
            self.high,
        )

    def some(self, rows):
        """Those of some datasets."""
        return Reach(self.upper[:, rows], self.lower[:, rows], self.high)


class Universe:
    """All datasets of up to ``sizes`` records on 0, ..., ``top``, of which those of up to ``most``
    records are looked at.

    Attributes:
        counts: ``(datasets, top + 1)``, by size, the smallest ones first.
        n: how many records each has.
        records: ``(datasets, sizes)``, ascending, followed by -1.
        looked_at: how many datasets have up to ``most`` records.
    """

    def __init__(self, most, top=4, sizes=None):
        self.most, self.top = most, top
        sizes = 2 * most + 1 if sizes is None else sizes
        every = [
            data
            for n in range(sizes + 1)
            for data in combinations_with_replacement(range(top + 1), n)
        ]
        self.records = np.array([[*data, *[-1] * (sizes - len(data))] for data in every])
        self.counts = np.stack(
            [np.sum(self.records == value, axis=1) for value in range(top + 1)], axis=1
        )
        self.n = self.counts.sum(axis=1)
        self.looked_at = int(np.sum(self.n <= most))
        self.number_of = {tuple(row): number for number, row in enumerate(self.counts.tolist())}
        unit = np.eye(top + 1, dtype=int)
        steps = {
            "remove": -unit,
            "add_remove": np.concatenate([unit, -unit]),
            "swap": np.array(
                [unit[a] - unit[b] for a, b in product(range(top + 1), repeat=2) if a != b]
            ),
        }
        self.neighbors = {name: self.neighbors_by(moves) for name, moves in steps.items()}

    def neighbors_by(self, moves):
        """The number of each neighbor of each dataset, or its own number where there is none
        within the universe.
        """
        moved = self.counts[:, None] + moves
        flat = [
            self.number_of.get(tuple(row), -1) for row in moved.reshape(-1, self.top + 1).tolist()
        ]
        found = np.array(flat).reshape(moved.shape[:2])
        return np.where(found < 0, np.arange(len(found))[:, None], found)

    def pairs(self, neighbors):
        """All ordered pairs of neighbors among the datasets that are looked at, ``(2, pairs)``."""
        table = self.neighbors[neighbors][: self.looked_at]
        one = np.repeat(np.arange(len(table)), table.shape[1])
        other = table.ravel()
        there = (other < self.looked_at) & (other != one)
        return np.stack([one[there], other[there]])

    def reach(self, values, neighbors, high):
        """The extremes of a statistic with these values, one for each dataset of the universe."""
        table, sides = self.neighbors[neighbors], []
        for extreme in (np.maximum, np.minimum):
            levels = [np.asarray(values)]
            for _ in range(self.most + 1):
                levels.append(extreme(levels[-1], extreme.reduce(levels[-1][table], axis=1)))
            sides.append(np.array(levels)[:, : self.looked_at])
        return Reach(*sides, high)

    def reach_of_shifted(self, values, tau, high):
        """Steinke (2023): the least value that is left when l people leave, at the levels tau - l;
        above them ``high``.
        """
        left = [np.asarray(values)]
        for _ in range(self.most + tau + 1):
            left.append(np.minimum(left[-1], left[-1][self.neighbors["remove"]].min(axis=1)))
        left = np.array(left)[:, : self.looked_at]
        top = np.full_like(left[:1], high)
        upper, lower = np.concatenate([left[tau::-1], top]), left[tau:]
        levels = max(len(upper), len(lower))
        return Reach(
            *(
                np.pad(side, [(0, levels - len(side)), (0, 0)], mode="edge")
                for side in (upper, lower)
            ),
            high,
        )

    def of_rank(self, numerator, denominator, *, step):
        """Read interpolated records at the rank (numerator + step level) / denominator, for arrays
        of integers ``(datasets,)``.

        Rank 0 is the smallest position and rank n + 1 the largest, and positions count parts of a
        cell: ``denominator`` of each.
        """
        rows, n = self.records[: self.looked_at], self.n[: self.looked_at]
        whole = np.concatenate([np.zeros((len(rows), 1), int), rows, rows[:, :1]], axis=1)
        whole[np.arange(len(rows)), n + 1] = self.top

        def at(rank):  # in parts
            rank = np.clip(rank, 0, denominator * (n + 1))
            first, part = rank // denominator, rank % denominator
            lower, upper = (
                whole[np.arange(len(rows)), np.minimum(first + more, n + 1)] for more in (0, 1)
            )
            return denominator * lower + part * (upper - lower)

        levels = range(2 * self.most + 2)
        sides = (
            np.array([at(numerator + sign * step * level) for level in levels]) for sign in (1, -1)
        )
        return Reach(*sides, denominator * self.top)


def depths(reach):
    """The least number of changes that move each value."""
    moved = (reach.upper > reach.upper[0]) | (reach.lower < reach.lower[0])
    assert moved.any(axis=0).all()
    return np.argmax(moved, axis=0)


def costs(reach, *, steps, own=None):
    """The cost of every position, float64 ``(positions, datasets)``: 1 - depth of the value, the
    level of the others.

    With ``steps`` levels are rounded up. ``own`` is the cost of the value itself as a function of
    its depth.
    """
    value, y = reach.upper[0], np.arange(reach.high + 1)[:, None]
    found = np.zeros((len(y), len(value)))
    for sign, side in ((1, reach.upper), (-1, reach.lower)):
        outwards = sign * side
        level = np.sum(outwards[None] < sign * y[:, None], axis=1)  # the first that reaches y
        beyond = sign * (y - value) > 0
        level = np.where(beyond, level, 1)
        assert level.max() < len(side), "a position that no number of changes reaches"
        before, through = (np.take_along_axis(outwards, row, axis=0) for row in (level - 1, level))
        rest = (
            np.ones(level.shape)
            if steps
            else (sign * y - before) / np.where(beyond, through - before, 1)
        )
        found = np.where(beyond, level - 1 + rest, found)
    depth = depths(reach)
    return np.where(y == value, 1 - depth if own is None else own(depth), found)


def log_probabilities(cost, rate):
    """Of the exponential mechanism: P(y) proportional to exp(-rate cost(y)),
    ``(positions, datasets)``.
    """
    return -rate * cost - np.logaddexp.reduce(-rate * cost, axis=0)


def log_probabilities_by_flips(cost, rate):
    """Of permute and flip: candidates in a random order, the first one that is accepted with
    probability exp(-rate (cost - least)).

    If they arrive at uniform times, y wins at time t if it is accepted and none before it: of each
    of the others the chance that it came before and was accepted is t q. The product is a
    polynomial of t, which Gauss-Legendre integrates exactly.
    """
    accepted = np.exp(-rate * (cost - cost.min(axis=0)))
    t = (_NODES + 1) / 2
    assert len(cost) < 2 * len(t)
    missed = np.log1p(-t[:, None, None] * accepted)
    found = np.einsum("t,typ->yp", _PARTS / 2, np.exp(missed.sum(axis=1, keepdims=True) - missed))
    return np.log(found) + np.log(accepted)


def worst(logs, pairs):
    """The largest loss and the largest range over all pairs, of log-probabilities
    ``(positions, datasets)``.
    """
    one, other = logs[:, pairs[0]], logs[:, pairs[1]]
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isneginf(one) & np.isneginf(other), 0.0, one - other)
    return np.abs(ratio).max(), (ratio.max(axis=0) - ratio.min(axis=0)).max()
