"""Quantiles by continuous rank: against the definition, against the linear median, truncated, and
in the exact audit.
"""

from fractions import Fraction
from functools import cache, partial

import jax
import numpy as np
import pytest

from dpjax import SensitivityProfile, inverse_sensitivity, piecewise_laplace, quantile
from tests.statistics.small_datasets import GRID, RELATIONS, rows
from tests.support.audit import one_sided_limits, padded
from tests.support.removals import losses_of

LOW, HIGH = GRID[0], GRID[-1]
EPSILON, SIZE = 2.0, 10
KEPT = 99, 0, 1, 2  # levels
continuous = partial(quantile, definition="continuous")


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("q", [Fraction(1, 4), Fraction(9, 10)])
def test_the_profile_is_the_interpolated_record_at_a_real_rank(q, neighbors, x64):
    """F(u) = X(h + s u) and its mirror image, at levels that are no knots, by np.interp over the
    ranks 0..n+1.
    """
    rng = np.random.default_rng(0)
    tied = [rng.choice([rng.uniform(-3, 3), -3.0, 0.5, 3.0], n) for n in (1, 2, 3, 9, 10)]
    sizes = [4, 9, 10] + [0] * (neighbors == "add_remove")
    every = [tuple(np.sort(data)) for data in [*tied, *(rng.uniform(-3, 3, n) for n in sizes)]]
    x, count = padded(every, 10)
    step = 1.0 if neighbors == "swap" else float(max(q, 1 - q))
    made = jax.jit(partial(continuous, q=q, lower=-3, upper=3, neighbors=neighbors))
    profile = jax.tree.map(np.asarray, made(x, num_records=count))
    assert not profile.integer_levels
    assert profile.interpolable
    for row, n in enumerate(count):
        records, rank = np.concatenate([[-3.0], every[row], [3.0]]), float(q * int(n) + 1 - q)
        levels = [*rng.uniform(-n - 2, n + 2, 99), 0.0, (int(rank) + 1 - rank) / step]
        values, knots = profile.values[row], np.broadcast_to(profile.levels, profile.values.shape)
        # Negative below the value
        knots = knots[row] * np.sign(np.arange(values.size) - profile.center)
        assert (np.diff(knots) >= 0).all()
        assert (np.diff(values) >= 0).all()
        wanted = np.interp(rank + step * np.array(levels), np.arange(n + 2), records)
        np.testing.assert_allclose(np.interp(levels, knots, values), wanted, atol=1e-12)
        assert values[[0, -1]].tolist() == [-3, 3]
        ends = [-rank / step, (n + 1 - rank) / step]
        np.testing.assert_allclose(knots[[0, -1]], ends, rtol=1e-14)


def slope(levels):
    """Truncation as for whole levels: from level k at the cut to k + 1 at the bound."""
    levels = levels.copy()
    levels[:, [0, -1]] = 2.0
    return levels


def times(factor):
    return lambda levels: factor * levels


def of_a_full_row(levels):
    """A fixed rank where the number of records is private."""
    return np.broadcast_to(levels[-1], levels.shape)


def as_it_is(levels):
    return levels


# What is truncated at a level, how its levels are changed, and the range that this must have.
AUDITS = {
    "whole": (99, as_it_is, 1),
    "flat": (0, as_it_is, 0),
    "truncated at 1": (1, as_it_is, 0.5),
    "truncated at 2": (2, as_it_is, 0.5),
    "a slope to the bound beside a knot": (1, slope, 1.3),
    # Under add/remove min(q, 1-q) for max(q, 1-q); under swap the add/remove unit.
    "units that are too small": (99, {"add_remove": times(3.0), "swap": times(4 / 3)}, 1.3),
    "levels of a full row": (99, of_a_full_row, 1.2),
}


@cache
def audits(neighbors):
    """Loss and range at a quarter of each audit, then of the whole profile with a margin."""
    some = rows(neighbors, "mask", int(neighbors == "swap"))
    given = {"q": "1/4", "lower": LOW, "upper": HIGH, "neighbors": neighbors, **some.given}

    @jax.jit
    def profiles(x):
        whole = continuous(x, **given)
        return {k: whole.truncate(k) for k in KEPT}

    made = jax.tree.map(np.asarray, profiles(some.x))

    def of_one_center(profile, change=as_it_is):
        levels = change(np.broadcast_to(profile.levels, profile.values.shape))
        missing = SIZE - 1 - profile.center, SIZE + profile.center - levels.shape[-1]
        return [np.pad(array, [(0, 0), missing], mode="edge") for array in (profile.values, levels)]

    stacked = []
    for k, change, _ in AUDITS.values():
        change = change[neighbors] if isinstance(change, dict) else change
        stacked.append(of_one_center(made[k], change))
    values, levels = map(np.stack, zip(*stacked, strict=True))
    made = SensitivityProfile(values, levels, SIZE - 1, neighbors=neighbors, integer_levels=False)
    first = jax.tree.map(lambda field: field[:1], made)
    limits = [
        one_sided_limits(jax.jit(partial(piecewise_laplace, **options))(profile, EPSILON))
        for profile, options in ((made, {}), (first, {"rho": 0.5}))
    ]
    limits = [one.reshape(*one.shape[:2], -1) for one in limits]
    pairs = some.pairs(neighbors)
    found = [losses_of(one, pairs) for one in [*limits[0][: len(AUDITS)], *limits[1]]]
    return found, limits[0]


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("name", [*AUDITS, "rho"])
def test_the_range_is_epsilon_and_that_of_a_mistake_is_more(name, neighbors, x64):
    loss, spread = audits(neighbors)[0][[*AUDITS, "rho"].index(name)]
    at_least = AUDITS[name][2] if name in AUDITS else 1
    assert spread >= at_least * EPSILON * (1 - 1e-9)
    if at_least <= 1:
        assert max(loss, spread) <= EPSILON * (1 + 1e-9)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_without_levels_all_values_are_alike(neighbors, x64):
    flat = audits(neighbors)[1][list(AUDITS).index("flat")]
    np.testing.assert_allclose(flat, -np.log(HIGH - LOW), rtol=0, atol=1e-9)


def test_what_needs_whole_levels_refuses():
    profile = continuous(np.arange(5.0), 0.5, lower=0, upper=9, neighbors="swap")
    for word, call in (
        ("integer levels", lambda: inverse_sensitivity(profile, 1.0)),
        ("step", lambda: profile.truncate(1, step=9.0)),
    ):
        with pytest.raises(ValueError, match=word):
            call()
