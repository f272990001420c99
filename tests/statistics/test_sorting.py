"""Profiles by NumPy's sort and by XLA's: the same values, counts and derivatives."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import median, order_statistic, quantile
from tests.statistics.small_datasets import RELATIONS
from tests.support.devices import as_on_other_devices

# Programs that are traced within it sort as on the CPU, and as on other devices.
WAYS = {"NumPy": nullcontext, "XLA": as_on_other_devices}
LOW, HIGH = -1.5, 1.25


def records(n, rows=5):
    """Ties, NaN, both zeros, infinities and values beyond the bounds; and which are there."""
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=(rows, n)), 1 if n < 100 else 6).astype(np.float32)
    hard = rng.choice([np.nan, -0.0, 0.0, np.inf, -np.inf], x.shape)
    x = np.where(rng.random(x.shape) < 0.4, hard, x).astype(np.float32)
    mask = rng.random(x.shape) < 0.7
    mask[0] = True
    x[0] = np.where(np.isnan(x[0]), 9.0, x[0])
    return x, mask


def expected(x, present, neighbors):
    """The sorted rows between the bounds, one at a time, and their numbers of records."""
    rows, counts = np.full((len(x), x.shape[1] + 2), np.float32(HIGH)), []
    for row, own, there in zip(rows, x, present, strict=True):
        kept = own[there & ~(np.isnan(own) & (neighbors == "add_remove"))]
        kept = np.where(np.isnan(kept), LOW, kept).clip(LOW, HIGH)
        row[0], row[1 : kept.size + 1] = LOW, np.sort(kept)
        counts.append(kept.size)
    return rows, np.array(counts)


def made(x, present, way, statistics):
    """Profiles by one program that is traced within a way."""

    @jax.jit
    def asked(x, mask):
        return [of(x, mask=mask, lower=LOW, upper=HIGH) for of in statistics]

    with WAYS[way]():
        program = asked.lower(x, present)
        on_host = way == "NumPy" and jax.default_backend() == "cpu"
        assert ("dpjax_host_call" in program.as_text()) == on_host
        return jax.tree.map(np.asarray, program.compile()(x, present))


def from_value(profile):
    """How far each entry is from the value, negative below it."""
    return np.arange(profile.values.shape[-1]) - profile.center


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_is_the_sort_by_hand(way, neighbors):
    """Every record is read by one of these levels; zeros have no sign."""
    x, present = records(36)
    rows, _ = expected(x, present, neighbors)
    second = partial(order_statistic, rank=2, neighbors=neighbors)
    found = made(x, present, way, [second, lambda x, **given: second(x, **given).truncate(7)])
    for most, profile in zip((99, 7), found, strict=True):
        move = from_value(profile)
        wanted = rows[:, np.maximum(2 + move, 0)]
        wanted = np.where(move > most, HIGH, np.where(move < -most, LOW, wanted))
        np.testing.assert_array_equal(profile.values, wanted)
        assert not np.signbit(profile.values[profile.values == 0]).any()


@pytest.mark.parametrize(("way", "n", "rows"), [("NumPy", 4096, 140), ("XLA", 4096, 3)])
def test_many_records_and_rows_are_sorted_in_parts(way, n, rows):
    """2^19 records are a thread's share."""
    x, present = records(n, rows)
    ordered, count = expected(x, present, "add_remove")
    of = partial(quantile, definition="lower", neighbors="add_remove")
    levels = (Fraction(1, 3), Fraction(999, 1000))
    found = made(x, present, way, [partial(of, q=q) for q in levels])
    for q, profile in zip(levels, found, strict=True):
        u, v = q.as_integer_ratio()
        rank = -(-(u * count[:, None] + max(u, v - u) * from_value(profile)) // v)
        wanted = np.take_along_axis(ordered, rank.clip(0, n + 1), axis=-1)
        np.testing.assert_array_equal(profile.values[:, 1:-1], wanted[:, 1:-1])


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_an_unreadable_record_hides_no_other(neighbors):
    """Sorted last, it may stand behind an infinite or an absent one: each row alone."""
    x = np.array([[0.5, np.inf, np.nan, 1.0], [0.5, 9.0, np.nan, np.nan], [0.5, np.nan, 1.0, 3.0]])
    present = np.array([[True] * 4, [True, True, True, False], [True, True, False, True]])
    of = jax.jit(partial(order_statistic, rank=1, lower=LOW, upper=HIGH, neighbors=neighbors))
    for own, there in zip(x.astype(np.float32)[:, None], present[:, None], strict=True):
        found = of(own, mask=there).upper
        np.testing.assert_array_equal(found, expected(own, there, neighbors)[0][:, 1:])


def test_the_derivative_is_that_of_xla_s_sort():
    x, _ = records(30, rows=3)
    x = np.where(np.isfinite(x), x, 0.3) + np.arange(90, dtype=np.float32).reshape(3, 30) * 1e-4
    weights = np.arange(1.0, 66.0, dtype=np.float32)

    def value(x, bound, cut):
        given = {"lower": -bound, "upper": bound, "neighbors": "add_remove"}
        profile = cut(median(x, **given))
        return jnp.sum(jnp.square(profile.values) * weights[: profile.values.shape[-1]])

    found = []
    for way in WAYS.values():
        with way():
            gradients = jax.jit(
                lambda *given: [
                    jax.grad(partial(value, cut=cut), (0, 1))(*given)
                    for cut in (lambda whole: whole, lambda whole: whole.truncate(5))
                ]
            )
            found.append(jax.tree.leaves(gradients(x.astype(np.float32), np.float32(1.1))))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
        assert np.abs(one).sum() > 1


def test_the_setting_of_64_bits_does_not_reach_numpy_s_side():
    """It is that of the thread that runs the program: here, and often elsewhere, 32 bits."""
    x = np.random.default_rng(0).normal(size=(64, 1001))
    of = jax.jit(lambda x: median(x, lower=-3, upper=3, neighbors="swap").upper)
    wanted = np.sort(x, axis=-1)[:, 500:].clip(-3, 3)
    with jax.enable_x64(True):
        given = jnp.asarray(x)
        compiled = of.lower(given).compile()
    np.testing.assert_array_equal(np.asarray(compiled(given))[:, :-1], wanted)

    def run(_):
        with jax.enable_x64(True):
            return np.asarray(of(x))[:, :-1]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(run, range(100)):
            np.testing.assert_array_equal(found, wanted)
