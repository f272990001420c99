"""Random universes, metrics and queries with everything that goes wrong: ties, zeros, twins,
unlimited budgets, budgets of 0.
"""

import itertools
from fractions import Fraction

import numpy as np

K, N = 3, 6
PAIRS = list(itertools.combinations(range(N), 2))


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


def queries(count, kind, rng):
    """Values ``(count, K, N)``."""
    if kind == "real":
        return rng.uniform(size=(count, K, N))
    if kind == "binary":
        return rng.integers(0, 2, (count, K, N)).astype(float)
    values = rng.integers(-2, 3, (count, K, N)) * 10.0 ** rng.integers(-4, 5, (count, K, 1))
    if kind == "two":  # the last one is constant
        values = rng.uniform(size=(count, K, N))
        values[:, -1] = 0.25
    return values


def all_kinds(count=100, seed=0):
    """Queries, budgets and the name of each kind, as one batch."""
    rng = np.random.default_rng(seed)
    kinds = list(
        itertools.product(
            ("plain", "ties", "distinct ties", "blowfish", "wide"),
            ("real", "binary", "tied", "two"),
        )
    )
    values = np.concatenate([queries(count, kind, rng) for _, kind in kinds])
    budgets = np.concatenate([metrics(count, kind, rng) for kind, _ in kinds])
    return values, budgets, np.repeat(["/".join(kind) for kind in kinds], count)


def exact_load(values, scales, budgets):
    """The largest load in rational numbers, with the conventions written out."""
    values, scales, budgets = (_exact(array) for array in (values, scales, budgets))
    largest = 0
    for i, j in PAIRS:
        total = 0
        for k in range(values.shape[-2]):
            apart = abs(values[k, i] - values[k, j])
            if apart and scales[k] != np.inf:
                total = total + (np.inf if scales[k] == 0 else apart / scales[k])
        if total and budgets[i, j] != np.inf:
            largest = max(largest, np.inf if budgets[i, j] == 0 else total / budgets[i, j])
    return largest


def _exact(array):
    return np.vectorize(lambda v: v if np.isinf(v) else Fraction(float(v)), otypes=[object])(array)


def loads(values, scales, budgets):
    """The same for a batch, in NumPy."""
    apart = np.abs(values[:, :, :, None] - values[:, :, None, :])
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(apart == 0, 0.0, apart / scales[:, :, None, None]).sum(1)
        return np.where((parts == 0) | np.isinf(budgets), 0.0, parts / budgets).max((1, 2))


def printed_selection(values, budgets):
    """Algorithm 3 as printed, in floating point: 0/0 is skipped, and it ends when a share is not
    finite or all are 0.
    """
    d = budgets.astype(float).copy()
    first, second = np.triu_indices(d.shape[0], 1)
    apart, left = np.abs(values[:, first] - values[:, second]), d[first, second]
    total = np.zeros(len(values))
    with np.errstate(all="ignore"):
        for _ in range(100):
            alone = np.array([_largest(row / left) for row in apart])
            parts = apart / alone[:, None]
            own = left * parts / parts.sum(0)
            scales = np.array(
                [_largest(row / share) for row, share in zip(apart, own, strict=True)]
            )
            share = 1 / scales
            if not np.isfinite(share).all() or not share.any():
                break
            left = left - (apart * share[:, None]).sum(0)
            total += share
        return 1 / total


def _largest(ratios):
    ratios = ratios[~np.isnan(ratios)]
    return ratios.max() if ratios.size else np.nan


def shortest_paths(lengths, combine=np.add):
    """By squaring: lengths of all paths of 1, 2, 4, ... steps, whose steps ``combine``."""
    for _ in range(lengths.shape[-1].bit_length()):
        paths = combine(lengths[..., :, :, None], lengths[..., None, :, :])
        lengths = np.minimum(lengths, paths.min(-2))
    return lengths
