"""Corollary 3.1 in the arithmetic: the rounded values of neighbors interleave, on large datasets
whose values hardly differ.
"""

import jax
import numpy as np
import pytest

import dpjax
from tests.statistics.small_datasets import disorder

NOISE = {"two values": 0.0, "noise of 1e-4": 1e-4, "noise of 1e-2": 1e-2}
KINDS = (*NOISE, "uniform", "clustered")


def dataset(kind, n, dtype):
    rng = np.random.default_rng(0)
    x = 0.5 + 1e-5 * rng.normal(size=n) if kind == "clustered" else rng.random(n)
    if kind in NOISE:
        x = np.where(np.arange(n) % 2 == 0, NOISE[kind] * x, 1 - NOISE[kind] * x)
    return np.sort(x.clip(0, 1)).astype(dtype)


def neighbors_of(x, neighbors):
    """The dataset, and what it becomes if a record at an end or in the middle is replaced by a
    bound or the middle, or goes; and which records are there.
    """
    n = len(x)
    if neighbors == "add_remove":
        mask = np.ones((4, n), bool)
        mask[[1, 2, 3], [0, n // 2, n - 1]] = False
        return np.stack([x] * 4), mask
    rows = np.stack([x] * 7)
    places = [0, n // 2, n - 1, n // 2 - 1, 0, n - 1]
    rows[range(1, 7), places] = [1.0, 0.0, x[n // 2], x[n // 2], x[n // 2], 0.0]
    return rows, np.ones(rows.shape, bool)


def worst_disorder(above, below, first=0):
    """How far a value of the first row lies beyond that of another one at the next level, or the
    other way round.
    """
    others = np.arange(1, len(above))
    both = np.concatenate([[0 * others, others], [others, 0 * others]], axis=1)
    sides = (np.asarray(side, np.float64).T[first:] for side in (above, -np.asarray(below)))
    return max(disorder(side, both) for side in sides)


# Of a statistic and a relation: options, and sizes of float32 and float64.
LARGE = (1_000_000, 10_000)
CASES = {
    ("variance", "swap"): ({}, (301, 301)),
    ("variance, 4 levels", "swap"): ({"truncate": 4}, (100_000, 301)),
    ("variance, 2 levels", "swap"): ({"truncate": 2}, (300_000, 301)),
    ("mean", "swap"): ({}, LARGE),
    ("sum", "swap"): ({}, LARGE),
    ("mean", "add_remove"): ({}, LARGE),
    ("sum", "add_remove"): ({}, LARGE),
    ("hull", "add_remove"): ({"values": "hull"}, LARGE),
}
SIZES = [
    pytest.param(*case, n, dtype, marks=(pytest.mark.slow, pytest.mark.optimized))
    for case, (_, sizes) in CASES.items()
    for n, dtype in zip(sizes, (np.float32, np.float64), strict=True)
] + [("variance, 4 levels", "swap", 300, np.float32), ("mean", "add_remove", 300, np.float32)]


@pytest.mark.parametrize(("name", "neighbors", "n", "dtype"), SIZES)
def test_values_of_neighbors_interleave(name, neighbors, n, dtype, x64):
    options = CASES[name, neighbors][0]
    statistic = dpjax.mean if name == "hull" else getattr(dpjax, name.split(",")[0])
    given = {"lower": 0.0, "upper": 1.0, "neighbors": neighbors, **options}
    made = jax.jit(lambda rows, mask: statistic(rows, mask=mask, **given))
    for kind in KINDS:
        profile = made(*neighbors_of(dataset(kind, n, dtype), neighbors))
        found = worst_disorder(profile.upper, profile.lower, first=int(name == "hull"))
        assert found <= 0, kind


def test_control_means_of_rounded_sums():
    rows, _ = neighbors_of(dataset("uniform", 100_000, np.float32), "swap")
    kept = np.cumsum(np.sort(rows, axis=-1)[:, ::-1], axis=-1)[:, :-10:-1]
    above = (kept + np.arange(9, dtype=np.float32)) / np.float32(100_000)
    assert worst_disorder(above, -above) > 1e-8
