"""The narrowest and the widest bounds that a statistic accepts: values of neighbors stay in order,
and the loss is as promised.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import inverse_sensitivity, piecewise_laplace, statistics
from dpjax.sensitivity.profile import from_sides
from tests.attacks.profiles import BOTH, PROFILES
from tests.support.audit import audit_pairs

PAIRS, RECORDS = 200, 5


POWERS = {np.float32: 104, np.float64: 1000}


def neighboring(neighbors):
    """Records in [0, 1], rows 2i and 2i+1 neighbors, and how many of them are present."""
    random = np.random.default_rng(3)
    x = np.repeat(random.uniform(0, 1, (PAIRS, RECORDS)), 2, axis=0)
    x[: PAIRS // 2] = np.round(3 * x[: PAIRS // 2]) / 3  # ties
    present = np.full(2 * PAIRS, RECORDS, np.int32)
    if neighbors == "swap":
        x[1::2, 0] = random.uniform(0, 1, PAIRS)
    else:
        x[1::2] = np.roll(x[1::2], -1, axis=1)
        present[1::2] -= 1
    return x, present


def out_of_order(profile):
    """How often a value at a level lies beyond the neighbor's at the next (Corollary 3.1; level 0
    of a hull keeps no order).
    """
    first = 0 if profile.interpolable else 1
    found = 0
    for sign, side in ((1, profile.upper), (-1, profile.lower)):
        values = sign * np.asarray(side)[:, first:]
        found += np.sum(values[::2, :-1] > values[1::2, 1:]) + np.sum(
            values[1::2, :-1] > values[::2, 1:]
        )
    return found


def loss_of(profile, width):
    """The exact loss of a draw at epsilon 1, the profile being stretched by a power of two, which
    rounds nothing.
    """
    values, step = jax.tree.map(
        lambda array: array.astype(jnp.float64) / width, (profile.values, profile.step)
    )
    levels = profile.levels.astype(jnp.float64)
    stretched = replace(profile, values=values, step=step, levels=levels)
    make = piecewise_laplace if profile.interpolable else inverse_sensitivity
    return audit_pairs(make(stretched, 1.0)).loss


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("name", "neighbors"),
    [(name, relation) for name in PROFILES for relation in PROFILES[name][1]],
)
def test_the_narrowest_and_the_widest_bounds(name, neighbors, dtype, x64):
    statistic = PROFILES[name][0]
    x, present = neighboring(neighbors)

    def profile_at(power):
        width = 2.0**power
        records = jnp.asarray((x * width).astype(dtype))
        return statistic(records, lower=0.0, upper=width, neighbors=neighbors, num_records=present)

    def accepted(powers):
        for power in powers:
            try:
                return power, profile_at(power)
            except ValueError:
                continue
        raise AssertionError("no bounds are accepted")

    end = POWERS[dtype]
    for powers in (range(-end - 2, 0), range(end + 2, 0, -1)):
        power, profile = accepted(powers)
        assert profile.dtype == dtype
        assert np.isfinite(np.asarray(profile.upper)).all()
        assert out_of_order(profile) == 0, power
        assert loss_of(profile, 2.0**power) <= 1 + 1e-6, power


@pytest.mark.parametrize(
    "epsilon", [1e-6, 1e4, *(pytest.param(e, marks=pytest.mark.slow) for e in (1e-3, 30.0))]
)
@pytest.mark.parametrize("mechanism", [piecewise_laplace, inverse_sensitivity])
def test_the_smallest_and_the_largest_epsilons(mechanism, epsilon, x64):
    for neighbors in BOTH:
        x, present = neighboring(neighbors)
        profile = statistics.median(
            jnp.asarray(x), lower=0.0, upper=1.0, neighbors=neighbors, num_records=present
        )
        distribution = mechanism(profile, epsilon)
        loss, spread = audit_pairs(distribution)
        assert 0.2 * epsilon < loss <= epsilon * (1 + 1e-6)
        assert 0.9 * epsilon < spread <= epsilon * (1 + 1e-6)
        assert audit_pairs(mechanism(profile, 1.2 * epsilon)).range > 1.05 * epsilon  # control
        short = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), distribution)
        assert np.isfinite(np.asarray(short.sample(jax.random.key(0)))).all()
        assert np.isfinite(np.asarray(short.mean_abs_error(0.5))).all()


def test_control_means_of_plain_sums(x64):
    x = np.sort(np.float32(neighboring("swap")[0]), axis=-1)
    gone = np.arange(RECORDS + 1)
    sums = np.cumsum(np.pad(x, [(0, 0), (1, 0)]), axis=-1, dtype=np.float32)
    above = np.float32(sums[:, -1:] - sums + gone.astype(np.float32)) / np.float32(RECORDS)
    assert out_of_order(from_sides(jnp.asarray(above), jnp.asarray(above), neighbors="swap")) > 0
