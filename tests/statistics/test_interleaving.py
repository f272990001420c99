"""Corollary 3.1 in the arithmetic: the rounded values of neighbors interleave, on large datasets
whose values hardly differ.
"""

from functools import partial

import jax
import numpy as np
import pytest

from dpjax import statistics

pytestmark = pytest.mark.optimized
KINDS = ("two values", "noise of 1e-4", "noise of 1e-2", "uniform", "clustered")


def dataset(kind, n, dtype):
    rng = np.random.default_rng(0)
    if kind == "uniform":
        x = rng.random(n)
    elif kind == "clustered":
        x = 0.5 + 1e-5 * rng.normal(size=n)
    else:
        noise = {"two values": 0.0, "noise of 1e-4": 1e-4, "noise of 1e-2": 1e-2}[
            kind
        ] * rng.random(n)
        x = np.where(np.arange(n) % 2 == 0, noise, 1 - noise)
    return np.sort(x.clip(0, 1)).astype(dtype)


def swaps(x):
    """The dataset, and what it becomes if a record at an end, in the middle or beside it is
    replaced by a bound or the middle.
    """
    rows = [x]
    for place in (0, len(x) // 2 - 1, len(x) // 2, len(x) - 1):
        for value in (0.0, 1.0, x[len(x) // 2]):
            row = x.copy()
            row[place] = value
            rows.append(row)
    return np.stack(rows)


def disorder(upper, lower, first=0):
    """How far a value of the first row lies beyond that of another one at the next level, or the
    other way round.
    """
    upper, lower = (np.asarray(side, np.float64)[:, first:] for side in (upper, lower))
    ways = [
        upper[:1, :-1] - upper[1:, 1:],
        upper[1:, :-1] - upper[:1, 1:],
        lower[1:, 1:] - lower[:1, :-1],
        lower[:1, 1:] - lower[1:, :-1],
    ]
    return max(float(way.max()) for way in ways)


@partial(jax.jit, static_argnames=("truncate",))
def variances(rows, truncate):
    profile = statistics.variance(rows, lower=0.0, upper=1.0, neighbors="swap", truncate=truncate)
    return profile.upper, profile.lower


def variances_rounded_early(rows, levels):
    """The largest variances as version 0.1 computed them: sums to twice the digits, rounded before
    their squares are subtracted.
    """
    sides, single = [], np.float32
    for x in np.sort(rows.astype(single), axis=-1):
        n, origin, found = len(x), x[(len(x) + 1) // 2 - 1], []
        distance = (x - origin).astype(np.float64)
        sums, squares = (np.append(0.0, np.cumsum(terms)) for terms in (distance, distance**2))
        a, b = -origin, single(1) - origin
        for level in range(levels + 1):
            kept, kept_squares = (
                (s[-1] - (s[level:] - s[: n + 1 - level])).astype(single) for s in (sums, squares)
            )
            vertex = np.floor(single(n) / 2 * (a + b) - (kept + single(level) * a))
            for choice in (vertex, vertex + 1):
                at_b = np.clip(choice, 0, level).astype(single)
                at_a = single(level) - at_b
                moved, spread = (
                    kept + (at_b * b + at_a * a),
                    kept_squares + (at_b * (b * b) + at_a * (a * a)),
                )
                found.append(np.max(spread - moved * moved / single(n)) / single(n))
        sides.append(np.maximum.accumulate(np.max(np.reshape(found, (-1, 2)), axis=-1)))
    return np.array(sides)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_variances_of_many_records(kind):
    assert disorder(*variances(swaps(dataset(kind, 100_000, np.float32))[::3], truncate=4)) <= 0


def test_control_variances_rounded_early():
    rows = swaps(dataset("noise of 1e-4", 100_000, np.float32))[::3]
    upper = variances_rounded_early(rows, 4)
    assert disorder(upper, -upper) > 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_variances_of_hundreds_of_thousands_of_records(kind):
    assert disorder(*variances(swaps(dataset(kind, 300_000, np.float32))[::4], truncate=2)) <= 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_variances_at_all_levels(kind, dtype, x64):
    assert disorder(*variances(swaps(dataset(kind, 301, dtype)), truncate=None)) <= 0


@partial(jax.jit, static_argnames=("statistic", "neighbors"))
def values(rows, mask, statistic, neighbors):
    options = {"lower": 0.0, "upper": 1.0, "neighbors": neighbors, "mask": mask}
    if statistic == "hull":
        profile = statistics.mean(rows, values="hull", **options)
    else:
        profile = getattr(statistics, statistic)(rows, **options)
    return profile.upper, profile.lower


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statistic", "neighbors"),
    [
        ("mean", "swap"),
        ("sum", "swap"),
        ("mean", "add_remove"),
        ("sum", "add_remove"),
        ("hull", "add_remove"),
    ],
)
@pytest.mark.parametrize(("n", "dtype"), [(1_000_000, np.float32), (10_000, np.float64)])
def test_means_and_sums_of_many_records(statistic, neighbors, n, dtype, x64):
    for kind in KINDS:
        x = dataset(kind, n, dtype)
        rows, mask = swaps(x)[::4], None
        if neighbors == "add_remove":
            rows = np.stack([x] * 4)
            mask = np.ones(rows.shape, bool)
            for row, place in enumerate((0, n // 2, n - 1), start=1):
                mask[row, place] = False
        assert (
            disorder(*values(rows, mask, statistic, neighbors), first=int(statistic == "hull")) <= 0
        ), kind
