"""The exact privacy audit: every dataset on an uneven grid, every neighbor, both limits at every
breakpoint.

Each mechanism must stay within epsilon, in loss and in range; piecewise Laplace must attain the
range (the constant cannot be improved); and every deliberate mistake must be caught. All statistics
and all mistakes are rows of one profile.
"""

from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpjax import (
    inverse_sensitivity,
    median,
    order_statistic,
    piecewise_laplace,
    quantile,
)
from tests.support import oracle
from tests.support.audit import Audit, audit, padded
from tests.support.profiles import profile_of_sides, sides_of, with_sides

GRID = (0.0, 1.0, 5.0, 6.0, 20.0)
LOW, HIGH = GRID[0], GRID[-1]
RANGE = HIGH - LOW
ROUNDING = 1e-9
DATASETS = {
    "swap": oracle.all_datasets([4], GRID),
    "add_remove": oracle.all_datasets(range(5), GRID),
}
EPSILONS = np.array([0.5, 2.0])
MECHANISMS = {"piecewise_laplace": piecewise_laplace, "inverse_sensitivity": inverse_sensitivity}
STATISTICS = {
    "median": median,
    "lower median": partial(median, definition="lower"),
    "lower quantile 2/3": partial(quantile, q=Fraction(2, 3), definition="lower"),
    "fourth": partial(order_statistic, rank=4),
    "truncated": lambda x, **kw: median(x, **kw).truncate(1),
    "steps": lambda x, **kw: median(x, **kw).truncate(1, step=RANGE / 2, num_steps=1),
}
MISTAKES = {  # with the mechanisms that they break, and the relations
    "no last interval": (MECHANISMS, DATASETS),
    "values of add/remove": (MECHANISMS, ("swap",)),
    "a side cut beside a knot": (("piecewise_laplace",), ("swap",)),
}


@cache
def profiles(neighbors, counted=None):
    """The profiles of all statistics under a relation, those of ``counted`` on its datasets."""
    x, count = padded(DATASETS[counted or neighbors], 4)
    known = {"lower": LOW, "upper": HIGH, "neighbors": neighbors}

    @jax.jit
    def of_all(x, count):
        return {
            name: statistic(x, num_records=count, **known) for name, statistic in STATISTICS.items()
        }

    return jax.tree.map(np.asarray, of_all(x, count))


def mistaken(neighbors):
    """The profile of the median with a deliberate mistake, each that somebody could make."""
    right = profiles(neighbors)["median"]
    upper = np.asarray(right.upper)
    shorter = {"values": right.values[:, :-1], "levels": right.levels[:, :-1]}
    yield "no last interval", replace(right, **shorter)
    if neighbors == "swap":
        yield "values of add/remove", profiles("add_remove", "swap")["median"]
        # Why truncate keeps whole pieces
        cut = upper.copy()
        cut[::2, :-1] = np.minimum(upper, upper[:, :1] + 1.0)[::2, :-1]
        yield "a side cut beside a knot", with_sides(right, upper=cut)


def stacked(rows):
    """Profiles as one, padded to one length."""

    def one(*sides):
        sides = map(np.atleast_2d, sides)
        return np.stack([np.pad(a, [(0, 0), (0, 9 - a.shape[1])], mode="edge") for a in sides])

    sides = jax.tree.map(one, *map(sides_of, rows))
    return profile_of_sides(**sides, neighbors=rows[0].neighbors)


@partial(jax.jit, static_argnames=("name", "support"))
def compiled(profile, epsilon, rho=None, *, name, support="restricted"):
    options = {} if rho is None else {"rho": rho, "support": support}
    return MECHANISMS[name](profile, epsilon, **options)


@cache
def rows_of(neighbors):
    """All statistics and mistakes."""
    return profiles(neighbors) | dict(mistaken(neighbors))


@cache
def all_of(neighbors):
    return stacked([*rows_of(neighbors).values()])


def distribution_of(name, neighbors, rho=None, support="restricted"):
    profile = all_of(neighbors)
    return compiled(profile, EPSILONS[:, None, None], rho, name=name, support=support)


def shares_of(distribution, neighbors):
    """Loss and range over epsilon, for each epsilon, of all statistics and mistakes."""
    found = audit(distribution, DATASETS[neighbors], neighbors, GRID)
    shares = (np.array(found) / EPSILONS[:, None]).transpose(2, 0, 1)
    return {row: Audit(*share) for row, share in zip(rows_of(neighbors), shares, strict=True)}


@cache
def audits(*given):
    return shares_of(distribution_of(*given), given[1])


@pytest.mark.parametrize(
    "given",
    [
        *((name, neighbors) for name in MECHANISMS for neighbors in DATASETS),
        *((name, "add_remove", 0.5) for name in MECHANISMS),
        *((name, "add_remove", 7.0, "extended") for name in MECHANISMS),
    ],
    ids=str,
)
def test_loss_and_range_stay_within_epsilon(given, x64):
    found = audits(*given)
    for statistic in STATISTICS:
        assert (np.array(found[statistic]) <= 1 + ROUNDING).all(), statistic
    if len(given) == 2:
        assert (found["median"].range >= 1 - ROUNDING).all()
        assert (found["median"].loss >= 0.9).all()  # and nearly the pure loss


@pytest.mark.parametrize(
    ("name", "neighbors", "mistake"),
    [
        (name, neighbors, mistake)
        for mistake, (names, relations) in MISTAKES.items()
        for name in names
        for neighbors in relations
    ],
)
def test_controls_are_caught(name, neighbors, mistake, x64):
    found = audits(name, neighbors)[mistake]
    assert (np.maximum(*found) >= 1.2).all()
    if mistake == "values of add/remove":
        assert (found.loss >= 1.2).all()
    if mistake == "no last interval":
        assert np.isinf(found.loss).all()


def test_control_flat_cost_zero_in_the_smooth_piecewise_laplace(x64):
    right = distribution_of("piecewise_laplace", "add_remove", 0.5)
    pieces = right.cost_left.shape[-1]
    flat = 1.0 * (np.arange(pieces) == pieces // 2)  # the piece around the value
    wrong = replace(right, cost_left=right.cost_left - flat, cost_right=right.cost_right - flat)
    assert (shares_of(wrong, "add_remove")["median"].loss >= 1.2).all()


def with_steps(neighbors):
    """After one level, steps of the global sensitivity, and shorter ones."""
    profile = profiles(neighbors)["median"]
    near = slice(profile.center - 1, profile.center + 2)
    profile = replace(
        profile,
        values=profile.values[:, near],
        levels=profile.levels[:, near],
        center=1,
        bounds=(np.array(LOW), np.array(HIGH)),
        step=np.array([RANGE, 3.0])[:, None],
    )
    return profile, compiled(profile, EPSILONS[:, None, None], name="piecewise_laplace")


@pytest.mark.parametrize("neighbors", DATASETS)
def test_steps_that_go_on_and_shorter_ones(neighbors, x64):
    """The control: steps below the global sensitivity."""
    _, distribution = with_steps(neighbors)
    found = audit(distribution, DATASETS[neighbors], neighbors, GRID).range / EPSILONS[:, None]
    assert (found[:, 0] <= 1 + ROUNDING).all()
    assert (found[:, 1] >= 1.2).all()


def test_steps_continue_the_density_and_an_extended_support_goes_beyond_the_bounds(x64):
    profile, distribution = with_steps("add_remove")
    for edge in (profile.values[0, :, 0], profile.values[0, :, 2]):
        inside = (edge != profile.value[0]) & (edge % HIGH > 0)
        beside = edge + 1e-7 * np.array([-1, 1])[:, None, None, None]
        before, after = np.asarray(distribution.log_prob(beside))[..., inside]
        assert_allclose(before, after, atol=1e-5)
    wide = compiled(profile, 1.0, 0.5, name="piecewise_laplace", support="extended")
    ends = [np.unique(end) for end in wide.support]
    assert_allclose(ends, [[LOW - 0.5], [HIGH + 0.5]])
