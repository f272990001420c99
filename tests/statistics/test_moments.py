"""Means, sums and variances of more records than a search can have: brute force, golden numbers,
precision; what bounds and hulls are refused.
"""

import itertools
import json
import pathlib
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

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "B2_mean.json").read_text())
BOUNDS = {"lower": -4.0, "upper": 7.0}
LOW, HIGH = BOUNDS.values()


@cache
def compiled(statistic, **options):
    """A program for all bounds, which gives NumPy arrays."""
    made = jax.jit(partial(getattr(dpjax, statistic), **options))
    return lambda x, **given: jax.tree.map(np.asarray, made(x, **given))


MEANS = {
    ("add_remove", "extreme"): ("plm_bounds", 0),
    ("add_remove", "hull"): ("hull", 1),
    ("swap", "extreme"): (None, 0),
}


@pytest.mark.parametrize(("neighbors", "values"), MEANS)
def test_means_are_golden_and_those_of_every_number_of_removals(neighbors, values, x64):
    mean = compiled("mean", neighbors=neighbors, values=values)
    name, least = MEANS[neighbors, values]
    profile = mean(np.array(GOLDEN["x"]), lower=0.0, upper=1.0)
    up, down = GOLDEN["swap_bounds_up"], GOLDEN["swap_bounds_down"]
    if name is not None:
        down, up = np.array(GOLDEN[name]).T
    np.testing.assert_allclose(profile.upper[1:], up, rtol=0, atol=1e-9)
    np.testing.assert_allclose(profile.lower[1:], down, rtol=0, atol=1e-9)
    rng, n = np.random.default_rng(3), len(GOLDEN["x"])
    rows = [2 * rng.normal(size=n), rng.choice([LOW, 0.0, HIGH], n), rng.pareto(0.5, n)]
    for row in rows:
        profile, data = mean(row, **BOUNDS), np.sort(np.clip(row, LOW, HIGH))
        for sign, side, bound in ((1, profile.upper, HIGH), (-1, profile.lower, LOW)):
            # Sums of what removals leave
            rest = np.append(np.cumsum((data if sign > 0 else data[::-1])[::-1])[::-1], 0.0)
            for level in range(1, side.size):
                removals = range(min(level - least, n) + 1)
                if neighbors == "swap":
                    removals = [min(level, n)]
                wanted = [
                    (rest[gone] + added * bound) / (n + added - gone)
                    for gone in removals
                    for added in [gone if neighbors == "swap" else level - gone]
                    if n + added > gone
                ]
                best = max(sign * value for value in wanted)
                assert sign * side[level] == pytest.approx(best, abs=1e-12), (row, level)


def largest_variances(data, levels):
    """Over every block that is replaced and every number at the upper bound."""
    n = len(data)
    return [
        max(
            np.var([*data[:s], *data[s + level :], *[HIGH] * high, *[LOW] * (level - high)])
            for s in range(n - level + 1)
            for high in range(level + 1)
        )
        for level in range(levels + 1)
    ]


def test_larger_variances_and_truncation(x64):
    rng, n = np.random.default_rng(4), 16
    rows = np.concatenate([rng.normal(size=(2, n)), rng.choice([LOW, 0.0, 1.0], (2, n))])
    rows = np.sort(rows.clip(LOW, HIGH))
    whole = compiled("variance", neighbors="swap")(rows, **BOUNDS)
    for row, data in enumerate(rows):
        largest = largest_variances(data, 6)
        np.testing.assert_allclose(whole.upper[row, :7], largest, rtol=0, atol=1e-11)
        smallest = [
            min(np.var(data[s : s + n - level]) for s in range(level + 1)) * (n - level) / n
            for level in range(n)
        ]
        np.testing.assert_allclose(whole.lower[row, :n], smallest, rtol=0, atol=1e-11)
    direct = compiled("variance", neighbors="swap", truncate=3)(rows, **BOUNDS)
    cut = jax.jit(lambda whole: whole.truncate(3))(whole)
    for one, other in zip(jax.tree.leaves(cut), jax.tree.leaves(direct), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_float32_far_from_zero(neighbors):
    """Records near 10^6, exact in fractions: every value within two units in the last place, the
    variance to 2e-6.
    """
    n, low, high = 2000, 999_990.0, 1_000_010.0
    x = (1e6 + np.random.default_rng(0).normal(size=n)).clip(low, high).astype(np.float32)
    ordered = [Fraction(float(value)) for value in np.sort(x)]
    rest, b = list(itertools.accumulate(reversed(ordered))), Fraction(high)
    ends = {"lower": low, "upper": high}
    mean, total = (compiled(name, neighbors=neighbors)(x, **ends).upper for name in ("mean", "sum"))
    for level in (0, 1, 7, n // 3):
        sums = rest[-1 : -level - 2 : -1]  # without 0, ..., level of the smallest
        if neighbors == "swap":
            means, wanted = [(sums[-1] + level * b) / n], sums[-1] + level * b
        else:
            means, wanted = [], sums[0] + level * b
            for gone, left in enumerate(sums):
                means.append((left + (level - gone) * b) / (n + level - 2 * gone))
        apart = abs(float(mean[level]) - float(max(means)))
        assert apart <= 2 * np.spacing(np.float32(1e6))
        assert abs(float(total[level]) - float(wanted)) <= 2 * np.spacing(np.float32(wanted))
    if neighbors == "add_remove":
        return
    profile, data = compiled("variance", neighbors="swap", truncate=3)(x, **ends), np.float64(x)
    data.sort()
    for level in range(4):
        smallest = min(np.var(data[s : s + n - level]) * (n - level) / n for s in range(level + 1))
        assert float(profile.lower[level]) == pytest.approx(smallest, rel=2e-6)
        largest = max(
            np.var(np.concatenate([data[:s], data[s + level :], np.full(level, end)]))
            for s in (0, n // 2, n - level)
            for end in (low, high)
        )
        assert float(profile.upper[level]) >= largest * (1 - 2e-6)
    # The control: a plain float32 sum of squares has no digit left.
    assert not 0.5 < float(np.mean(x**2) - np.mean(x) ** 2) < 2


def test_a_window_beside_far_records_keeps_its_digits():
    """Half of the records at 10^4: the smallest variance is that of the others, 10^-12 of the
    whole.
    """
    near = np.linspace(-0.01, 0.01, 32).astype(np.float32)
    x = np.concatenate([near, np.full(20, 1e4, np.float32)])
    profile = compiled("variance", neighbors="swap", truncate=20)(x, lower=-1e4, upper=1e4)
    wanted = np.var(near.astype(np.float64)) * 32 / 52
    assert float(profile.lower[20]) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(("low", "high"), [(1e6, 1e6 + 1), (2000.0, 2024.0)])
def test_means_between_bounds_that_are_close_and_far_from_0_are_rounded_correctly(low, high):
    """float32 has 17 numbers between 1e6 and 1e6 + 1: values of neighbors interleave because each
    is the nearest of them.
    """
    n = 201
    x = np.random.default_rng(0).choice(np.float32([low, high, (low + high) / 2]), (2, n))
    exact = [[Fraction(float(v)) for v in sorted(row)] for row in x]

    def mean_after(row, gone, added):
        kept = exact[row][gone:]
        return np.float32(float((sum(kept) + added * Fraction(high)) / (len(kept) + added)))

    swap, either = (
        compiled("mean", neighbors=neighbors)(x, lower=low, upper=high).upper
        for neighbors in ("swap", "add_remove")
    )
    for row in range(2):
        for level in (0, 1, 5, 50):
            assert swap[row, level] == mean_after(row, level, level), level
            best = max(mean_after(row, gone, level - gone) for gone in range(level + 1))
            assert either[row, level] == best, level
    # A control: float32 sums, rounded before the division, are off by more than one number
    if low == 1e6:
        kept = np.sort(x, axis=-1)[:, 3:].sum(-1, dtype=np.float32)
        assert ((kept + np.float32(3 * high)) / np.float32(n) != swap[:, 3]).any()


def test_bounds_as_jax_arrays_that_could_overflow_or_vanish_are_bad_for_every_dataset():
    """Otherwise 500 records at the upper bound would have a distribution, and 501 would not."""
    uppers = np.float32([2e17, 1e-15, 1.0])
    ones = np.array([0, 500, 501, 2000])[:, None]
    x = np.where(np.arange(2000) < ones, uppers[:, None, None], np.float32(0))
    variance = compiled("variance", neighbors="swap", truncate=1)
    found = variance(x, lower=np.zeros((3, 1), np.float32), upper=uppers[:, None]).upper
    assert np.isnan(found).all(axis=-1).all(axis=-1).tolist() == [True, True, False]
    assert np.isfinite(found[2]).all()


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
        ("rho", lambda: inverse_sensitivity(hull, 0.5, rho=jnp.float64(0.3))),
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
        ("sum", 2 * 10**7, {**SWAP, "lower": 0.0, "upper": 5e30}, "smaller"),
        ("variance", 2000, {**SWAP, "lower": 0.0, "upper": 2e17}, "smaller"),
        ("variance", 2000, {**SWAP, "lower": 0.0, "upper": 1e-15}, "further apart"),
    ],
)
def test_what_does_not_go_together(statistic, n, options, word):
    given = partial(getattr(dpjax, statistic), **BOUNDS | options)
    with pytest.raises(ValueError, match=word):
        jax.eval_shape(given, jax.ShapeDtypeStruct((n,), np.float32))
