"""Means, sums and variances of more records than a search can have: brute force, golden numbers,
precision; what bounds and hulls are refused.
"""

from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import inverse_sensitivity, piecewise_laplace
from tests.statistics.small_datasets import RELATIONS
from tests.support.golden import golden

GOLDEN = golden("B2_mean")
BOUNDS = {"lower": -4.0, "upper": 7.0}
LOW, HIGH = BOUNDS.values()


@cache
def compiled(statistic, **options):
    """A program for all bounds, which gives NumPy arrays."""
    made = jax.jit(partial(getattr(dpjax, statistic), **options))
    return lambda x, **given: jax.tree.map(np.asarray, made(x, **given))


@pytest.mark.parametrize(
    ("neighbors", "values", "name"),
    [
        ("add_remove", "extreme", "plm_bounds"),
        ("add_remove", "hull", "hull"),
        ("swap", "extreme", None),
    ],
)
def test_means_are_golden(neighbors, values, name, x64):
    mean = compiled("mean", neighbors=neighbors, values=values)
    profile = mean(np.array(GOLDEN["x"]), lower=0.0, upper=1.0)
    sides = np.transpose([GOLDEN["swap_bounds_down"], GOLDEN["swap_bounds_up"]])
    down, up = np.transpose(sides if name is None else GOLDEN[name])
    np.testing.assert_allclose(profile.upper[1:], up, rtol=0, atol=1e-9)
    np.testing.assert_allclose(profile.lower[1:], down, rtol=0, atol=1e-9)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_means_and_sums_far_from_zero(neighbors):
    """Against fractions: values of neighbors interleave because each mean is the nearest float, of
    which there are 17 between 1e6 and 1e6 + 1; sums are within two units in the last place.
    """
    n, rng = 201, np.random.default_rng(0)
    low = np.float32([1e6, 2000.0, 999_990.0, 0.0])
    high = np.float32([1e6 + 1, 2024.0, 1_000_010.0, 1.0])
    x = np.stack([rng.choice([a, b, (a + b) / 2], n) for a, b in zip(low, high, strict=True)])
    x[2:] = 1e6 + rng.normal(size=n), rng.random(n)
    ends = {"lower": low, "upper": high}
    means, totals = (
        compiled(name, neighbors=neighbors)(x, **ends).upper for name in ("mean", "sum")
    )
    for row, values in enumerate(x):
        ordered, b = [Fraction(float(v)) for v in sorted(values)], Fraction(float(high[row]))
        for level in (0, 1, 5, 50):
            left = [sum(ordered[gone:]) for gone in range(level + 1)]
            if neighbors == "swap":
                best, wanted = (left[-1] + level * b) / n, left[-1] + level * b
            else:
                wanted = left[0] + level * b
                best = max(
                    (rest + (level - gone) * b) / (n + level - 2 * gone)
                    for gone, rest in enumerate(left)
                )
            assert means[row, level] == np.float32(float(best)), (row, level)
            apart = abs(float(totals[row, level]) - float(wanted))
            assert apart <= 2 * np.spacing(np.float32(wanted))
    # A control: float32 sums, rounded before the division, are off by more than one number
    kept = np.sort(x[0])[3:].sum(dtype=np.float32) + np.float32(3 * high[0])
    exact = sum(sorted(map(Fraction, map(float, x[0])))[3:]) + 3 * Fraction(float(high[0]))
    assert kept / np.float32(n) != np.float32(float(exact / n))


def test_variances_keep_their_digits_and_bounds_are_sound_for_every_dataset():
    """Records near 10^6; a variance that is 10^-13 of the squared width; and bounds as JAX arrays
    with which values could overflow or vanish are bad whatever the records are.
    """
    n, levels = 52, 20
    far = (1e6 + np.random.default_rng(0).normal(size=n)).clip(999_990, 1_000_010)
    near = np.linspace(-0.01, 0.01, n).astype(np.float32)
    tops = np.repeat([2e19, 1e-17, 1.0], 3)
    ones = [np.where(np.arange(n) < k % 3 * 26, top, 0.0) for k, top in enumerate(tops)]
    x = np.float32([far, near, *ones])
    low, high = np.float32([[999_990, -1e4, *0 * tops], [1_000_010, 1e4, *tops]])
    variance = compiled("variance", neighbors="swap", truncate=levels)
    profile = variance(x, lower=jnp.asarray(low), upper=jnp.asarray(high))
    data = np.sort(x[0]).astype(np.float64)
    for level in range(4):
        smallest = min(np.var(data[s : s + n - level]) * (n - level) / n for s in range(level + 1))
        assert float(profile.lower[0, level]) == pytest.approx(smallest, rel=2e-6)
        largest = max(
            np.var(np.concatenate([data[:s], data[s + level :], np.full(level, end)]))
            for s in (0, n // 2, n - level)
            for end in (low[0], high[0])
        )
        assert float(profile.upper[0, level]) >= largest * (1 - 2e-6)
    # The control: a plain float32 sum of squares has no digit left.
    assert not 0.5 < float(np.mean(x[0] ** 2) - np.mean(x[0]) ** 2) < 2
    wanted = np.var(near.astype(np.float64))
    assert float(profile.lower[1, 0]) == pytest.approx(wanted, rel=1e-6)
    # Otherwise some records at the upper bound would have a distribution, and more would not
    assert np.isnan(profile.upper[2:]).all(axis=-1).tolist() == [True] * 6 + [False] * 3


def test_no_rho_and_no_slopes_on_hulls(x64):
    """A value need not lie within the neighbor's first hull: mass around it costs two levels
    there.
    """
    x, count = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([2, 1])
    hull = compiled("mean", neighbors="add_remove", values="hull")
    hull = hull(x, lower=0, upper=1, num_records=count)
    for word, call in (
        ("interpolable", lambda: piecewise_laplace(hull, 2.0)),
        ("rho", lambda: inverse_sensitivity(hull, 0.5, rho=0.3)),
    ):
        with pytest.raises(ValueError, match=word):
            call()
    y = np.linspace(0.01, 0.99, 99)[:, None]
    unchecked = replace(hull, interpolable=True)
    logs = jax.jit(lambda hull: inverse_sensitivity(hull, 0.5, rho=0.3).log_prob(y))(unchecked)
    assert np.diff(np.asarray(logs), axis=1).max() > 1.2 * 0.5


SWAP, BOTH = {"neighbors": "swap"}, {"neighbors": "add_remove"}


@pytest.mark.parametrize(
    ("statistic", "n", "options", "word"),
    [
        ("variance", 3, BOTH, "swap"),
        ("variance", 1, SWAP, "2 individuals"),
        ("mean", 3, {**SWAP, "values": "hull"}, "hull"),
        ("sum", 3, {**BOTH, "max_count": 2}, "max_count"),
        ("sum", 3, {**SWAP, "max_count": 3}, "max_count"),
        ("sum", 0, SWAP, "1 individuals"),
        # By the number of records
        ("sum", 2 * 10**7, {**SWAP, "lower": 0.0, "upper": 5e30}, "too large"),
        ("variance", 2000, {**SWAP, "lower": 0.0, "upper": 2e19}, "too large"),
        ("variance", 2000, {**SWAP, "lower": 0.0, "upper": 1e-17}, "too close"),
    ],
)
def test_what_does_not_go_together(statistic, n, options, word):
    given = partial(getattr(dpjax, statistic), **BOUNDS | options)
    with pytest.raises(ValueError, match=word):
        jax.eval_shape(given, jax.ShapeDtypeStruct((n,), np.float32))
