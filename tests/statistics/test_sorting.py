"""Profiles by NumPy's sort, by XLA's, and by the bits of floats: the same values, counts and
derivatives, at the sizes where the way changes.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import median, order_statistic, quantile
from dpjax.statistics import without_host_calls
from tests.statistics.small_datasets import RELATIONS
from tests.support.devices import as_on_other_devices

enable_x64 = getattr(jax, "enable_x64", None)
if enable_x64 is None:  # before JAX 0.8
    from jax.experimental import enable_x64

# Programs that are traced within it sort as on the CPU, as on other devices, as exported ones do.
WAYS = {"NumPy": nullcontext, "XLA": as_on_other_devices, "bits": without_host_calls}
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


def sides_of(x, present, way, statistics):
    """Upper and lower values of statistics, by one program that is traced within a way."""

    @jax.jit
    def asked(x, mask):
        found = [of(x, mask=mask, lower=LOW, upper=HIGH) for of in statistics]
        return [(profile.upper, profile.lower) for profile in found]

    with WAYS[way]():
        program = asked.lower(x, present)
        on_host = way == "NumPy" and jax.default_backend() == "cpu"
        assert ("dpjax_host_call" in program.as_text()) == on_host
        return jax.tree.map(np.asarray, program.compile()(x, present))


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_is_the_sort_by_hand(way, neighbors):
    """Every record is read by one of these levels; zeros have no sign."""
    x, present = records(36)
    rows, _ = expected(x, present, neighbors)
    second = partial(order_statistic, rank=2, neighbors=neighbors)
    for truncate, sides in zip(
        (99, 7), sides_of(x, present, way, [second, partial(second, truncate=7)]), strict=True
    ):
        for sign, side, end in zip((1, -1), sides, (HIGH, LOW), strict=True):
            for level in range(side.shape[1]):
                wanted = end if level > truncate else rows[:, max(2 + sign * level, 0)]
                np.testing.assert_array_equal(side[:, level], wanted)
            assert not np.signbit(side[side == 0]).any()


@pytest.mark.parametrize(
    ("way", "n", "rows"), [("NumPy", 4095, 9), ("NumPy", 4096, 140), ("XLA", 4096, 3)]
)
def test_many_records_and_rows_are_sorted_in_parts(way, n, rows):
    """Few levels of long rows are selected and not sorted; 2^19 records are a thread's share."""
    x, present = records(n, rows)
    ordered, count = expected(x, present, "add_remove")
    of = partial(quantile, definition="lower", neighbors="add_remove", truncate=200)
    levels = (Fraction(1, 3), Fraction(999, 1000))
    found = sides_of(x, present, way, [partial(of, q=q) for q in levels])
    for q, both in zip(levels, found, strict=True):
        u, v = q.as_integer_ratio()
        for sign, side in zip((1, -1), both, strict=True):
            far = max(u, v - u) * np.arange(side.shape[1] - 1)
            rank = -(-(u * count[:, None] + sign * far) // v)
            wanted = np.take_along_axis(ordered, rank.clip(0, n + 1), axis=-1)
            np.testing.assert_array_equal(side[:, :-1], wanted)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_an_unreadable_record_hides_no_other(neighbors):
    """Sorted last, it may stand behind an infinite or an absent one: each row alone."""
    x = np.array([[0.5, np.inf, np.nan, 1.0], [0.5, 9.0, np.nan, np.nan], [0.5, np.nan, 1.0, 3.0]])
    present = np.array([[True] * 4, [True, True, True, False], [True, True, False, True]])
    of = jax.jit(partial(order_statistic, rank=1, lower=LOW, upper=HIGH, neighbors=neighbors))
    for own, there in zip(x.astype(np.float32)[:, None], present[:, None], strict=True):
        found = of(own, mask=there).upper
        np.testing.assert_array_equal(found, expected(own, there, neighbors)[0][:, 1:])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_are_sorted_by_their_bits(dtype, x64):
    """The smallest numbers, and neighbors in the last place; the derivative is that of the sort."""
    info, one = np.finfo(dtype), dtype(1)
    odd = [0, info.tiny, 2 * info.tiny, one, np.nextafter(one, dtype(2)), 3.5]
    odd = np.array(odd, dtype)
    x = np.random.default_rng(0).permuted(np.tile([*odd, *-odd[1:]], (4, 3)), axis=-1)
    weights = np.arange(1.0, 4.0, dtype=dtype)
    given = {"lower": -4.0, "upper": 4.0, "neighbors": "swap"}

    def smallest(x):
        return order_statistic(x, 1, **given).upper

    with without_host_calls():
        found, slope = jax.jit(
            lambda x, few: (
                smallest(x),
                jax.grad(lambda few: jnp.sum(weights * smallest(few)[:-1]))(few),
            )
        )(x, np.array([3.0, -1.0, 2.0], dtype))
    np.testing.assert_array_equal(np.asarray(found)[:, :-1], np.sort(x, axis=-1))
    assert slope.tolist() == [3.0, 1.0, 2.0]


def test_the_derivative_is_that_of_xla_s_sort():
    x, _ = records(30, rows=3)
    x = np.where(np.isfinite(x), x, 0.3) + np.arange(90, dtype=np.float32).reshape(3, 30) * 1e-4
    weights = np.arange(1.0, 33.0, dtype=np.float32)

    def value(x, bound, truncate):
        given = {"lower": -bound, "upper": bound, "neighbors": "add_remove"}
        profile = median(x, truncate=truncate, **given)
        above = jnp.sum(profile.upper * weights[None, : profile.upper.shape[-1]])
        return above - jnp.sum(jnp.square(profile.lower))

    found = []
    for way in WAYS.values():
        with way():
            gradients = jax.jit(
                lambda *given: [
                    jax.grad(partial(value, truncate=k), (0, 1))(*given) for k in (None, 5)
                ]
            )
            found.append(jax.tree.leaves(gradients(x.astype(np.float32), np.float32(1.1))))
    for one, *others in zip(*found, strict=True):
        for other in others:
            np.testing.assert_allclose(one, other, rtol=1e-6)
        assert np.abs(one).sum() > 1


def test_the_setting_of_64_bits_does_not_reach_numpy_s_side():
    """It is that of the thread that runs the program: here, and often elsewhere, 32 bits."""
    x = np.random.default_rng(0).normal(size=(3, 33))
    with enable_x64(True):
        given = jnp.asarray(x)
        of = jax.jit(lambda x: median(x, lower=-3, upper=3, neighbors="swap").upper)
        compiled = of.lower(given).compile()
    found = compiled(given)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(np.asarray(found)[:, :-1], np.sort(x, axis=-1)[:, 16:])


def test_the_setting_of_64_bits_as_a_context_in_many_threads():
    x = np.random.default_rng(0).normal(size=(64, 1001))
    of = jax.jit(lambda x: median(x, lower=-3, upper=3, neighbors="swap").upper)

    def run(_):
        with enable_x64(True):
            found = [of(x + k) for k in range(4)]
        return [one.dtype == np.float64 and bool(np.isfinite(one).all()) for one in found]

    with ThreadPoolExecutor(4) as pool:
        assert all(all(good) for good in pool.map(run, range(30)))
