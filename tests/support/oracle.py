"""Slow float64 oracles in plain NumPy, written from the definitions and not from the library.

The extreme values of a statistic come from editing a dataset and asking ``np.quantile`` (or a
breadth-first search); integrals come from Gauss-Legendre quadrature of the unnormalized density.
"""

import itertools
from fractions import Fraction
from math import ceil

import numpy as np

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def quantile(data, q, definition, lower, upper):
    """The statistic itself, for a list of clamped records; an empty dataset has the value that its
    neighbors require.
    """
    q, data = Fraction(q), np.sort(np.asarray(data, np.float64))
    if definition == "lower":
        return float(data[ceil(q * len(data)) - 1]) if len(data) else float(lower)
    return (
        float(np.quantile(data, float(q)))
        if len(data)
        else float(lower + (1 - q) * (upper - lower))
    )


def extremes(data, levels, statistic, neighbors, lower, upper):
    """The largest and smallest value of an order statistic within l changes, for l = 0..levels.

    The worst l swaps put the l smallest records at the upper bound; the worst l additions and
    removals are A records at the upper bound and l - A of the smallest gone, for the best A.
    """
    data = sorted(data)

    def extreme(level, sign):
        ordered, bound = (data, upper) if sign > 0 else (data[::-1], lower)
        if neighbors == "swap":
            changed = min(level, len(data))
            return statistic(ordered[changed:] + [bound] * changed)
        values = [
            statistic(ordered[level - added :] + [bound] * added) for added in range(level + 1)
        ]
        return max(values) if sign > 0 else min(values)

    largest = np.maximum.accumulate([extreme(level, 1) for level in range(levels + 1)])
    smallest = np.minimum.accumulate([extreme(level, -1) for level in range(levels + 1)])
    return largest, smallest


def neighbors_of(data, neighbors, grid):
    """All neighbors of a sorted tuple of records on a grid."""
    found = set()
    removed = {data[:i] + data[i + 1 :] for i in range(len(data))}
    if neighbors == "add_remove":
        found |= removed
        found |= {tuple(sorted((*data, value))) for value in grid}
    else:
        found |= {tuple(sorted((*rest, value))) for rest in removed for value in grid}
    return found - {data}


def all_datasets(sizes, grid):
    """All multisets of the given sizes on a grid, as sorted tuples."""
    return [data for n in sizes for data in itertools.combinations_with_replacement(grid, n)]


class Distribution:
    """A density exp(-rate * cost(y)) / Z given by (left, right, cost_left, cost_right), integrated
    by quadrature.
    """

    def __init__(self, segments, rate):
        self.segments = [s for s in segments if s[1] > s[0]]
        self.rate = rate
        self.shift = min(rate * min(s[2], s[3]) for s in self.segments)
        self.total = sum(self.integral(s, lambda y: np.ones_like(y)) for s in self.segments)
        self.log_normalizer = float(np.log(self.total) - self.shift)

    def integral(self, segment, function, upto=None):
        left, right, cost_left, cost_right = segment
        end = right if upto is None else min(max(upto, left), right)
        y = left + (end - left) * (_NODES + 1) / 2
        cost = cost_left + (cost_right - cost_left) * (y - left) / (right - left)
        return float(
            (end - left)
            / 2
            * np.sum(_WEIGHTS * function(y) * np.exp(self.shift - self.rate * cost))
        )

    def expectation(self, function, breaks=()):
        """E[function(Y)], for a function that is smooth but at ``breaks``."""
        total = 0.0
        for left, right, cost_left, cost_right in self.segments:
            cuts = [left, *sorted(b for b in breaks if left < b < right), right]
            for a, b in itertools.pairwise(cuts):
                at = [
                    cost_left + (cost_right - cost_left) * (y - left) / (right - left)
                    for y in (a, b)
                ]
                total += self.integral((a, b, *at), function)
        return total / self.total

    def cdf(self, y):
        return (
            sum(self.integral(s, lambda t: np.ones_like(t), upto=y) for s in self.segments)
            / self.total
        )

    def log_prob(self, y):
        for left, right, cost_left, cost_right in self.segments:
            if left <= y < right:
                return (
                    -self.rate
                    * (cost_left + (cost_right - cost_left) * (y - left) / (right - left))
                    - self.log_normalizer
                )
        return -np.inf


def mechanism(largest, smallest, epsilon, kind, rho=0.0, support="restricted"):
    """The distribution of piecewise Laplace or inverse sensitivity, from its definition, for values
    at levels 0, 1, 2, ...
    """
    low, high = smallest[-1], largest[-1]
    up, down = np.asarray(largest) + rho, np.asarray(smallest) - rho
    value, levels = largest[0], range(1, max(len(largest), len(smallest)))
    moves = [
        i
        for i in levels
        if largest[min(i, len(largest) - 1)] > value or smallest[min(i, len(smallest) - 1)] < value
    ]
    flat = (
        (1.0 if kind == "piecewise_laplace" else 0.0) + 1 - (moves[0] if moves else len(levels) + 1)
    )
    segments = [(down[0], up[0], flat, flat)]
    for level in range(1, len(up)):
        near, far = (level, level + 1) if kind == "piecewise_laplace" else (level, level)
        segments.append((up[level - 1], up[level], near, far))
    for level in range(1, len(down)):
        near, far = (level, level + 1) if kind == "piecewise_laplace" else (level, level)
        segments.append((down[level], down[level - 1], far, near))
    if support == "restricted":
        segments = [cut(segment, low, high) for segment in segments]
    return Distribution(segments, epsilon / 2)


def costs_on_grid(upwards, downwards, kind, low=None, high=None):
    """The integers of a range and their costs as fractions, for a statistic with integer values,
    from the definition.

    ``upwards`` and ``downwards`` are lists of (level, value) that go outwards from (0, the
    statistic). The statistic costs 1 - c, c being the least integer level at which either side has
    left it; another integer costs the least level that reaches it, which in piecewise Laplace is
    linear between two values, and else the level of the outer one.
    """
    (_, value), ends = (
        upwards[0],
        (downwards[-1][1] if low is None else low, upwards[-1][1] if high is None else high),
    )
    last = max(upwards[-1][0], downwards[-1][0])

    def leaves(side):
        """The level up to which a side stays at the statistic."""
        stays = [level for level, at in side if at == value]
        return last if len(stays) == len(side) else stays[-1]

    depth = int(min(leaves(upwards), leaves(downwards), last)) + 1

    def cost(y):
        if y == value:
            return Fraction(1 - depth)
        sign, side = (1, upwards) if y > value else (-1, downwards)
        k = next(k for k, (_, at) in enumerate(side) if sign * at >= sign * y)
        (near, start), (far, end) = side[k - 1], side[k]
        return (
            Fraction(far)
            if kind == "inverse_sensitivity"
            else near + (Fraction(far) - near) * Fraction(y - start, end - start)
        )

    values = list(range(int(ends[0]), int(ends[1]) + 1))
    return values, [cost(y) for y in values]


def probabilities(costs, epsilon):
    """exp(-epsilon/2 * cost), made to add up to 1: float64."""
    weights = np.exp(-epsilon / 2 * np.array([float(cost - min(costs)) for cost in costs]))
    return weights / weights.sum()


def cut(segment, low, high):
    left, right, cost_left, cost_right = segment
    a, b = np.clip([left, right], low, high)
    if right <= left or b <= a:
        return (a, a, cost_left, cost_right)
    slope = (cost_right - cost_left) / (right - left)
    return (a, b, cost_left + slope * (a - left), cost_left + slope * (b - left))
