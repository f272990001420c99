"""Random universes, metrics and queries with everything that goes wrong: ties, zeros, twins,
unlimited budgets, budgets of 0.
"""

import itertools
from fractions import Fraction

import numpy as np

K, N = 3, 6
METRICS = ("plain", "ties", "distinct ties", "blowfish", "wide")


def metrics(count, kind, rng):
    """Budgets ``(count, N, N)`` that satisfy the triangle inequality (but for ``"blowfish"``)."""
    points = rng.uniform(0, 10, (count, N, 2))
    if kind == "ties":
        points = rng.integers(0, 4, (count, N, 2)).astype(float)  # equal points: budgets of 0
    if kind == "distinct ties":
        points = np.stack([rng.permutation(9)[:N] for _ in range(count)])[..., None].astype(float)
    budgets = np.abs(points[:, :, None] - points[:, None]).sum(-1)
    if kind == "blowfish":
        budgets = np.where(budgets <= 6, 1.0, np.inf)
        budgets[:, np.arange(N), np.arange(N)] = 0
    if kind == "wide":
        budgets *= 10.0 ** rng.integers(-6, 7, (count, 1, 1))
    return budgets


def all_kinds(count, seed=0):
    """Queries ``(K, N)``, budgets and the name of their kind."""
    rng = np.random.default_rng(seed)
    for kind in METRICS:
        for budgets in metrics(count, kind, rng):
            real = rng.uniform(size=(K, N))
            some = {
                "real": real,
                "binary": np.round(real),
                "constant": np.vstack([real[:2], 0 * real[2]]),
            }
            some["tied"] = np.round(5 * real) * 10.0 ** rng.integers(-4, 5, (K, 1))
            for name, values in some.items():
                yield values, budgets, f"{kind}/{name}"


def exact_load(values, scales, budgets):
    """The largest load in rational numbers, with the conventions written out."""
    loads = [Fraction(0)]
    for i, j in itertools.combinations(range(len(budgets)), 2):
        moved = [
            (abs(Fraction(float(row[i])) - Fraction(float(row[j]))), float(scale))
            for row, scale in zip(values, scales, strict=True)
            if row[i] != row[j] and scale < np.inf
        ]
        if moved and budgets[i, j] < np.inf:
            free = budgets[i, j] == 0 or any(scale == 0 for _, scale in moved)
            total = np.inf if free else sum(apart / Fraction(scale) for apart, scale in moved)
            loads.append(total if free else total / Fraction(float(budgets[i, j])))
    return max(loads)


def printed_selection(values, budgets):
    """Algorithm 3 as printed, in floating point: 0/0 is skipped, and it ends when a share is not
    finite or all are 0.
    """
    first, second = np.triu_indices(len(budgets), 1)
    apart, left = np.abs(values[:, first] - values[:, second]), budgets[first, second]
    total = np.zeros(len(values))
    with np.errstate(all="ignore"):
        for _ in range(100):
            parts = apart / np.fmax.reduce(apart / left, axis=1, keepdims=True)
            share = 1 / np.fmax.reduce(apart / (left * parts / parts.sum(0)), axis=1)
            if not np.isfinite(share).all() or not share.any():
                break
            left = left - share @ apart
            total += share
        return 1 / total


def shortest_paths(lengths, combine=np.add):
    """By squaring: lengths of all paths of 1, 2, 4, ... steps, whose steps ``combine``."""
    for _ in range(lengths.shape[-1].bit_length()):
        paths = combine(lengths[..., :, :, None], lengths[..., None, :, :])
        lengths = np.minimum(lengths, paths.min(-2))
    return lengths
