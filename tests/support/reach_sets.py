"""What a statistic can become after so many changes, by breadth-first search over all datasets.

Nothing here comes from the library. A universe has all datasets of up to so many records on the
values 0, ..., top, as counts. The datasets within l + 1 changes are those within l changes of a
neighbor, so the extreme values of l + 1 changes are the extremes of those of l changes over all
neighbors. For that the universe has more records than the datasets that are looked at.
"""

from itertools import combinations_with_replacement, product

import numpy as np


class Universe:
    """All datasets of up to 2 ``most`` + 1 records on 0, ..., ``top``, of which those of up to
    ``most`` are looked at.

    Attributes:
        counts: ``(datasets, top + 1)``, by size, the smallest ones first.
        n: how many records each has.
        records: ``(datasets, records)``, ascending, followed by -1.
        looked_at: how many datasets have up to ``most`` records.
    """

    def __init__(self, most, top=4):
        self.most, self.top, sizes = most, top, 2 * most + 1
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

    def reach(self, values, neighbors):
        """The largest and the smallest value of a statistic with these values, one for each
        dataset of the universe, after 0, 1, 2, ... changes: ``(levels, datasets)`` each.
        """
        table, sides = self.neighbors[neighbors], []
        for extreme in (np.maximum, np.minimum):
            levels = [np.asarray(values)]
            for _ in range(self.most + 1):
                levels.append(extreme(levels[-1], extreme.reduce(levels[-1][table], axis=1)))
            sides.append(np.array(levels)[:, : self.looked_at])
        return sides
