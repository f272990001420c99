"""NumPy's side and XLA's side of one sort: the same values, counts, windows and derivatives."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import median, order_statistic, quantile
from dpjax.statistics import sorting, without_host_calls
from dpjax.statistics.sorting import Window, sort_rows
from tests.support.devices import as_on_other_devices

enable_x64 = getattr(jax, "enable_x64", None)
if enable_x64 is None:  # before JAX 0.8
    from jax.experimental import enable_x64


def records(n, rows=5, seed=0):
    """Ties, NaN, both zeros, infinities and values beyond the bounds."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(rows, n)), 1)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[rng.random(x.shape) < 0.1] = -0.0
    x[rng.random(x.shape) < 0.1] = 0.0
    x[rng.random(x.shape) < 0.05] = np.inf
    x[rng.random(x.shape) < 0.05] = -np.inf
    return x.astype(np.float32), rng.random(x.shape) < 0.7


def sorted_by(name):
    """Programs that are traced here sort as on the CPU (NumPy), as on other devices (XLA), or as
    exported programs do (bits).
    """
    return {"NumPy": nullcontext, "XLA": as_on_other_devices, "bits": without_host_calls}[name]()


@partial(jax.jit, static_argnames=("neighbors", "window"))
def ordered(x, present, neighbors, window):
    low, high = jnp.float32(-1.5), jnp.float32(1.25)
    rows = sort_rows(x, present, low, high, neighbors=neighbors, window=window)
    return rows.values, jnp.broadcast_to(rows.n, (*x.shape[:-1], 1))


def expected(x, present, neighbors, window):
    """One record at a time, in Python."""
    rows, counts = [], []
    for row, there in zip(x.tolist(), present.tolist(), strict=True):
        kept = []
        for value, is_there in zip(row, there, strict=True):
            if is_there and not (np.isnan(value) and neighbors == "add_remove"):
                kept.append(min(max(-1.5 if np.isnan(value) else value, -1.5), 1.25))
        whole = [-1.5, *sorted(kept), *[1.25] * (len(row) + 1 - len(kept))]
        first = 0 if window is None else int(window.first(np.int32(len(kept)), len(row), np))
        rows.append(whole if window is None else whole[first : first + window.width])
        counts.append([len(kept)])
    return np.array(rows, np.float32), np.array(counts)


WINDOWS = [
    None,
    Window(1, -3, 2, 6),
    Window(0, 1, 1, 3),
    Window(2, -9, 2, 9),
    Window(1, -40, 1, 38),
]


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
@pytest.mark.parametrize("masked", [False, True])
def test_both_sides_are_the_sort_by_hand(neighbors, masked):
    x, present = records(36)
    for by, window in itertools.product(("NumPy", "XLA"), WINDOWS):
        values, counts = expected(
            x, present if masked else np.ones_like(present), neighbors, window
        )
        with sorted_by(by):
            text = ordered.lower(x, present if masked else None, neighbors, window).as_text()
            assert ("dpjax_host_call" in text) == (by == "NumPy" and jax.default_backend() == "cpu")
            # Also alone: what one row needs is not hidden
            for rows in (slice(None), *(slice(i, i + 1) for i in range(len(x)))):
                got, n = ordered(x[rows], present[rows] if masked else None, neighbors, window)
                np.testing.assert_array_equal(got, values[rows])
                np.testing.assert_array_equal(n, counts[rows])
                assert not np.signbit(np.asarray(got)[np.asarray(got) == 0]).any()


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_an_unreadable_record_hides_no_other(neighbors):
    """Sorted last, it may stand behind an infinite or an absent one."""
    x = np.array(
        [[0.5, np.inf, np.nan, 1.0], [0.5, 9.0, np.nan, np.nan], [0.5, np.nan, 1.0, 3.0]],
        np.float32,
    )
    present = np.array([[True] * 4, [True, True, True, False], [True, True, False, True]])
    for i in range(3):
        got, _ = ordered(x[i : i + 1], present[i : i + 1], neighbors, None)
        np.testing.assert_array_equal(
            got, expected(x[i : i + 1], present[i : i + 1], neighbors, None)[0]
        )


def test_blocks_threads_and_selection_change_nothing(monkeypatch):
    x, present = records(200, rows=40)
    bounds = np.full((40, 1), -1.5, np.float32), np.full((40, 1), 1.25, np.float32)
    for window in (None, Window(1, -9, 2, 12), Window(1, 150, 1, 30)):

        def on_host(window=window):
            out = np.empty((40, 202 if window is None else window.width), np.float32)
            sorting._OnHost(nan_is_low=False, window=window, read=None)([out], *bounds, x, present)
            return out

        plain = on_host()
        with monkeypatch.context() as patch:
            patch.setattr(sorting, "_BLOCK", 1000)
            patch.setattr(sorting, "_SELECT", 10)
            parts = on_host()
        np.testing.assert_array_equal(plain.view(np.int32), parts.view(np.int32))


def test_the_setting_of_64_bits_does_not_reach_numpy_s_side():
    """It is that of the thread that runs the program: here, and often elsewhere, 32 bits."""
    x = np.random.default_rng(0).normal(size=(3, 33))
    with enable_x64(True):
        given = jnp.asarray(x)
        compiled = (
            jax.jit(lambda x: median(x, lower=-3, upper=3, neighbors="swap").upper)
            .lower(given)
            .compile()
        )
    found = compiled(given)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(np.asarray(found)[:, :-1], np.sort(x, axis=-1)[:, 16:])


def test_the_setting_of_64_bits_as_a_context_in_many_threads():
    x = np.random.default_rng(0).normal(size=(64, 1001))

    def run(_):
        with enable_x64(True):
            profiles = [
                median(jnp.asarray(x) + k, lower=-3, upper=3, neighbors="swap") for k in range(4)
            ]
        return [
            profile.upper.dtype == np.float64 and bool(np.isfinite(profile.upper).all())
            for profile in profiles
        ]

    with ThreadPoolExecutor(4) as pool:
        assert all(all(good) for good in pool.map(run, range(60)))


@pytest.mark.slow
def test_the_derivative_is_that_of_xla_s_sort():
    x, _ = records(30, rows=3, seed=1)
    x = (
        np.where(np.isfinite(x), x, 0.3).astype(np.float32)
        + np.arange(90, dtype=np.float32).reshape(3, 30) * 1e-4
    )
    weights = jnp.arange(1.0, 33.0)

    def value(x, bound, truncate):
        profile = median(x, lower=-bound, upper=bound, neighbors="add_remove", truncate=truncate)
        return jnp.sum(profile.upper * weights[None, : profile.upper.shape[-1]]) - jnp.sum(
            jnp.square(profile.lower)
        )

    gradient = jax.jit(jax.grad(value, argnums=(0, 1)), static_argnames="truncate")
    found = {}
    for by, truncate in itertools.product(("NumPy", "XLA", "bits"), (None, 5)):
        with sorted_by(by):
            found[by, truncate] = gradient(x, 1.1, truncate=truncate)
    for truncate in (None, 5):
        for one, *others in zip(
            *(found[by, truncate] for by in ("NumPy", "XLA", "bits")), strict=True
        ):
            for other in others:
                np.testing.assert_allclose(one, other, rtol=1e-6)
            assert float(jnp.abs(one).sum()) > 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_are_sorted_by_their_bits(dtype, x64):
    """Denormals, infinities, neighbors in the last place; the derivative is that of the sort, and
    without its rule it is 0.
    """
    info = np.finfo(dtype)
    odd = np.array(
        [
            0.0,
            info.tiny,
            info.smallest_subnormal,
            1.0,
            np.nextafter(dtype(1), dtype(2)),
            info.max,
            np.inf,
            3.5,
        ],
        dtype,
    )
    x = np.random.default_rng(0).permuted(np.tile([*odd, *-odd[1:]], (4, 3)), axis=-1)
    with without_host_calls():
        np.testing.assert_array_equal(sorting._sorted(x), np.sort(x, axis=-1))
        weights = jnp.arange(1.0, 4.0, dtype=dtype)
        slope = jax.grad(lambda x: jnp.sum(weights * sorting._sorted(x)))(
            jnp.asarray([3.0, -1.0, 2.0], dtype)
        )
        control = jax.grad(lambda x: jnp.sum(weights * sorting._sorted.fun(x)))(
            jnp.asarray([3.0, -1.0, 2.0], dtype)
        )
    assert (slope.tolist(), control.tolist()) == ([3.0, 1.0, 2.0], [0.0, 0.0, 0.0])


def test_vmap_over_rows_is_the_batch():
    x, _ = records(25)
    whole = median(x, lower=-1, upper=1, neighbors="add_remove").upper
    mapped = jax.jit(
        jax.vmap(lambda row: median(row, lower=-1, upper=1, neighbors="add_remove").upper)
    )(x)
    np.testing.assert_array_equal(whole, mapped)


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["swap", "add_remove"])
def test_truncate_reads_what_truncation_keeps(neighbors):
    x, _ = records(40)
    count = np.array([40, 39, 17, 1, 0], np.int32)
    makers = [
        partial(median, x, num_records=count),
        partial(quantile, x, 0.9, definition="lower", num_records=count),
        partial(quantile, x, 0.25, num_records=None),
        partial(order_statistic, x, 3, num_records=count),
    ]
    for make in makers:
        for k in (0, 1, 7, 19, 41, 500):
            fewer = make(lower=-1, upper=1, neighbors=neighbors, truncate=k)
            after = make(lower=-1, upper=1, neighbors=neighbors).truncate(k)
            assert jax.tree.structure(fewer) == jax.tree.structure(after)
            for one, other in zip(jax.tree.leaves(fewer), jax.tree.leaves(after), strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("truncate", [-1, 2.5, True, "3"])
def test_a_bad_truncate_is_named(truncate):
    with pytest.raises(ValueError, match="truncate must be None or an integer from 0"):
        median(jnp.arange(5.0), lower=0, upper=4, neighbors="swap", truncate=truncate)
