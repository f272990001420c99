"""Profiles from local sensitivities and from radii that differ above and below, exactly audited."""

from dataclasses import replace
from functools import cache, partial

import jax
import numpy as np
import pytest

import dpjax
from dpjax import from_local_sensitivity, from_radii, inverse_sensitivity, piecewise_laplace
from tests.statistics.small_datasets import (
    GRID,
    SHOWN,
    UNIVERSE,
    local_sensitivities,
    rows,
    values_of,
)
from tests.support.audit import audit_pairs, one_sided_limits
from tests.support.removals import losses_of

LOW, HIGH = GRID[0], GRID[-1]
BOUNDS = {"lower": LOW, "upper": HIGH}
STEP = HIGH - LOW
FOUR = rows("swap", None)  # the second smallest of four records, under swap
EPSILON = 2.0


@cache
def second_smallest():
    """Its values, and its largest local sensitivities within 0, 1, ... swaps, by the search."""
    values = values_of(lambda data: data[1] if len(data) > 1 else 0.0)
    at = local_sensitivities(np.where(UNIVERSE.n == 4, values, 0.0), "swap")
    return values[:SHOWN][FOUR.which], at[:, FOUR.which].T


@partial(jax.jit, static_argnames=("mechanism", "names"))
def distribution_of(values, at, mechanism, names=tuple(BOUNDS)):
    options = {name: given for name, given in [*BOUNDS.items(), ("step", STEP)] if name in names}
    profile = from_local_sensitivity(values, at, neighbors="swap", **options)
    made = mechanism(profile, EPSILON)
    return made, made.mean_abs_error(values).mean(axis=-1)


def ranges(distribution):
    """The largest loss and range of each batch of datasets."""
    limits = one_sided_limits(distribution)
    limits = limits.reshape(*limits.shape[:-2], -1)
    return np.stack(losses_of(limits, FOUR.pairs("swap")), axis=-1).reshape(-1, 2)


@pytest.mark.parametrize("mechanism", [piecewise_laplace, inverse_sensitivity])
def test_the_index_l_minus_1_is_private_and_better_than_the_printed_one(mechanism, x64):
    values, at = second_smallest()
    alone = np.repeat(at[:, :1], 5, axis=-1)
    made, errors = distribution_of(values, np.stack([at[:, :5], at[:, 1:], alone]), mechanism)
    tight, loose, control = ranges(made)
    assert max(*tight, *loose) <= EPSILON * (1 + 1e-9)
    assert errors[0] < 0.98 * errors[1]
    assert control[1] >= 1.2 * EPSILON  # the local sensitivity of the dataset alone


@pytest.mark.parametrize("names", [("step",), ("step", *BOUNDS)])
def test_with_steps_after_the_last_level(names, x64):
    values, at = second_smallest()
    made, _ = distribution_of(values, at[:, :3], piecewise_laplace, names)
    assert ranges(made)[0, 1] == pytest.approx(EPSILON, rel=1e-9)


def test_functions_arrays_and_a_running_maximum():
    values, at = second_smallest()
    options = {"neighbors": "swap", "num_levels": 3, **BOUNDS}

    @jax.jit
    def profiles(values, at):
        return (
            from_local_sensitivity(values, lambda k: at[:, k], **options),
            from_local_sensitivity(values, at, **options),
            from_local_sensitivity(5.0, [1.0, 0.5, 2.0], neighbors="swap", step=3.0),
            from_local_sensitivity(
                np.zeros(2), lambda k: [1.0], neighbors="edge", num_levels=2, step=3.0
            ),
        )

    called, given, falling, shared = profiles(np.float32(values), np.float32(at))
    np.testing.assert_array_equal(called.upper, given.upper)
    np.testing.assert_array_equal(called.lower, given.lower)
    assert falling.upper.tolist() == [5, 6, 7, 9]
    assert shared.upper.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert shared.neighbors == "edge"
    with pytest.raises(ValueError, match="3 distances"):
        from_local_sensitivity(0.0, [1.0, 2.0], num_levels=3, neighbors="swap", step=1.0)


def uneven_pairs(rng, count, step):
    """Random neighbors whose values keep Corollary 3.1 on each side with nothing to spare, steps
    after the last level too.
    """
    sides = []
    values = rng.uniform(LOW - 3, HIGH + 3, (count, 2))  # outside of the bounds too
    for sign in (1, -1):
        ends = [sign * values]
        for _ in range(3):  # at level l + 1 at least the neighbor's and the own value at level l
            jump = rng.exponential(3, (count, 2)) * rng.integers(0, 2, (count, 2))
            ends.append(ends[-1].max(axis=-1, keepdims=True) + jump)
        sides.append(np.diff(np.stack(ends, axis=-1), axis=-1).reshape(-1, 3))
        assert np.abs(ends[-1][:, 0] - ends[-1][:, 1]).max() <= step
    return values.ravel(), *sides


@pytest.mark.parametrize("names", [tuple(BOUNDS), ("step",), (*BOUNDS, "step")])
def test_radii_that_differ_above_and_below(names, x64):
    length = 40.0
    values, above, below = uneven_pairs(np.random.default_rng(0), 60, length)

    @partial(jax.jit, static_argnames="mechanism")
    def made(below, step, mechanism=piecewise_laplace):
        given = {**BOUNDS, "step": step}
        profile = from_radii(
            values,
            above,
            radii_below=below,
            neighbors="swap",
            **{name: given[name] for name in names},
        )
        return mechanism(profile, EPSILON)

    mechanisms = [piecewise_laplace] + [inverse_sensitivity] * ("step" not in names)
    for mechanism in mechanisms:
        result = audit_pairs(made(below, length, mechanism))
        assert max(result) <= EPSILON * (1 + 1e-9)
        assert result.range >= 1.9
    # The controls: the radii of one side on both, and steps shorter than what a change can do.
    assert audit_pairs(made(above, length)).range >= 1.2 * EPSILON
    if "step" in names:
        assert audit_pairs(made(below, 1.0)).range >= 1.2 * EPSILON


def loose_pairs(rng, count):
    """Values of neighbors up to 1 apart, with valid radii (Definition 5.1) that may be far more
    than that.
    """
    apart = rng.uniform(-1, 1, (count, 2)) * [0, 1]
    values = rng.uniform(0, 1, (count, 1)) + apart
    ends = [np.abs(np.diff(values, axis=1))]
    for _ in range(4):
        jump = rng.exponential(2, (count, 2)) * (rng.uniform(size=(count, 2)) < 0.6)
        ends.append(ends[-1].max(axis=-1, keepdims=True) + jump)
    return values.ravel(), np.stack(ends[1:], axis=-1).reshape(2 * count, 4)


@pytest.mark.parametrize("num_steps", [None, 3])
def test_steps_after_radii_that_are_longer_than_a_step(num_steps, x64):
    """The steps are those of the global sensitivity, 1, and a value never lies further out than
    they allow.
    """
    values, radii = loose_pairs(np.random.default_rng(0), 60)
    mechanism = piecewise_laplace if num_steps is None else inverse_sensitivity

    @partial(jax.jit, static_argnames="k")
    def truncated(k):
        profile = from_radii(values, radii, neighbors="swap", lower=-30, upper=30)
        return mechanism(profile.truncate(k, step=1.0, num_steps=num_steps), 1.0)

    audits = [audit_pairs(truncated(k)) for k in (1, 2)]
    assert max(audit.range for audit in audits) <= 1 + 1e-9
    assert audits[1].range > 0.9  # and it is tight

    @jax.jit
    def control():  # as far out as the radii are
        profile = from_radii(values, radii, neighbors="swap", lower=-30, upper=30)
        near = slice(profile.center - 2, profile.center + 3)
        cut = replace(
            profile,
            values=profile.values[:, near],
            levels=profile.levels[:, near],
            center=2,
            step=np.ones(120),
            bounds=profile.support,
        )
        return piecewise_laplace(cut, 1.0)

    assert audit_pairs(control()).range > 1.5


def test_a_range_ends_at_its_bounds_for_every_dataset():
    """Not at a rounded sum that comes close."""
    x = np.random.default_rng(1).uniform(0.1, 1000, (50, 5)).astype(np.float32)

    @jax.jit
    def edges(x):
        profile = dpjax.median(x, lower=0.1, upper=1000, neighbors="swap")
        return piecewise_laplace(profile.truncate(1, step=999.9), 1.0).edges

    assert (np.asarray(edges(x))[:, [0, -1]] == np.array([0.1, 1000], np.float32)).all()
