"""Estimates against the exact distribution and against NumPy on the same draws, resumed runs
against uninterrupted ones, what is refused.
"""

import contextlib
import io
import sys
from functools import partial
from math import log, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import laplace, sharded_sample, simulate
from dpjax.simulation import Estimate, Progress
from dpjax.simulation.checkpoint import Checkpoint
from tests.simulation.programs import Scaled, unit
from tests.support.statistics import (
    FALSE_POSITIVE_RATE,
    assert_counts_follow,
    assert_counts_rejected,
)

KEY = jax.random.key(3)
MEANS = np.array([1.0, -2.0, 5.0], np.float32)
EDGES = np.linspace(-4.0, 9.0, 14)


def noise(x, epsilon=1.0):
    return laplace(x, epsilon, sensitivity=1.0)


def test_estimates_follow_the_exact_distribution_and_no_other():
    """The mean absolute error by Chernoff: the sum of n standard exponentials is off by less than
    sqrt(2 n x) + x on either side; counts by chi-square.
    """
    draws = 100_000
    errors = simulate(KEY, noise, MEANS, draws=draws, statistic=lambda y, x: jnp.abs(y - x))
    x = log(2 * 3 / FALSE_POSITIVE_RATE)
    critical = sqrt(2 * x / draws) + x / draws
    assert (np.abs(errors.mean - 1.0) < critical).all()
    assert (np.abs(errors.mean - 1 / 1.15) > critical).all()
    np.testing.assert_allclose(errors.standard_error, 1 / sqrt(draws), rtol=0.05)
    estimate = simulate(KEY, noise, MEANS, draws=draws, chunk=30_000, bins=EDGES)
    assert (estimate.count, estimate.counts.dtype) == (draws, np.int64)
    cdfs = jax.jit(lambda x: [noise(x, epsilon).cdf(EDGES[:, None]) for epsilon in (1.0, 1.15)])
    exact, off = (
        np.diff(np.pad(cdf, [(1, 1), (0, 0)], constant_values=(0, 1)), axis=0).T
        for cdf in map(np.asarray, cdfs(MEANS))
    )
    for row in range(len(MEANS)):
        assert estimate.counts[row].sum() == draws
        assert_counts_follow(estimate.counts[row], exact[row])
        assert_counts_rejected(estimate.counts[row], off[row])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_draws_are_those_of_the_distribution_and_summaries_accurate_at_any_scale(dtype, x64):
    """2 chunks and a part of a third, against NumPy in float64 on the draws themselves: far from
    zero, at any scale, of one value only; a row without a distribution is NaN, and alone so.
    """
    far, wide = (1e6, 1e25) if dtype is np.float32 else (1e200, 1e120)
    offset, scale = np.array([[0, far, 0, 0, 3, np.nan], [1, 1, 1e-30, wide, 0, 1]], dtype)
    chunk, draws = 1000, 2300
    run = partial(simulate, KEY, lambda data: Scaled(*data), (offset, scale), bins=EDGES)
    estimate = run(draws=draws, chunk=chunk)
    sample = jax.jit(lambda key: Scaled(offset, scale).sample(key, (chunk,)))
    values = np.concatenate([sample(jax.random.fold_in(KEY, number)) for number in range(3)])
    assert values.dtype == dtype
    values = np.float64(values)[:draws]
    first = values[0]
    mean = first + (values - first).mean(axis=0)
    variance = (values - mean).var(axis=0, ddof=1)
    sound = slice(5)
    np.testing.assert_allclose(estimate.mean[sound], mean[sound], rtol=1e-13, atol=1e-13 * wide)
    assert (np.abs(estimate.mean - mean) <= 1e-13 * (np.abs(mean) + np.sqrt(variance)))[sound].all()
    np.testing.assert_allclose(estimate.variance[sound], variance[sound], rtol=1e-12)
    np.testing.assert_array_equal(estimate.minimum[sound], values.min(axis=0)[sound])
    np.testing.assert_array_equal(estimate.maximum[sound], values.max(axis=0)[sound])
    edges = np.concatenate([[-np.inf], EDGES, [np.inf]])
    for row in range(5):
        np.testing.assert_array_equal(estimate.counts[row], np.histogram(values[:, row], edges)[0])
    np.testing.assert_array_equal(estimate.bins, EDGES)
    assert np.isnan([estimate.mean[5], estimate.standard_error[5]]).all()
    assert estimate.counts[5].sum() == 0
    assert np.isnan(run(draws=1, chunk=chunk).standard_error).all()


def test_counts_go_beyond_32_bits_and_the_billionth_draw_counts_as_much_as_the_first():
    values, bins = np.random.default_rng(0).normal(size=30), np.array([0.0])

    def of(values, times=1):
        mean, counts = values.mean(), np.array([np.sum(values < 0), np.sum(values >= 0)])
        squares = times * np.sum((values - mean) ** 2)
        ends = values.min(), values.max()
        return Estimate(times * values.size, mean, squares, *ends, bins, times * counts)

    def same(found, wanted):
        assert found.count == wanted.count == found.counts.sum()
        for name in ("mean", "variance", "minimum", "maximum", "counts"):
            np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-12)

    same(of(values[:10]).merge(of(values[10:])), of(values))
    same(of(values, times=2**30).merge(of(values, times=2**30)), of(values, times=2**31))
    with pytest.raises(AssertionError):
        same(of(values[:10]).merge(of(values[:10])), of(values[:20]))


def test_large_numbers_of_numpy_become_floats_and_do_not_wrap_around():
    for large in (np.array([3 * 10**9]), np.array([1e300])):  # no warning either
        drawn = sharded_sample(KEY, lambda x: Scaled(x, 0.0), large)
        assert drawn.tolist() == [np.float32(3e9) if large.dtype == np.int64 else np.inf]
    seen, small = [], {"x": np.ones(1), "count": np.array([1])}
    sharded_sample(KEY, lambda data: seen.append(data["count"].dtype) or unit(data["x"]), small)
    assert seen[0] == np.int32  # a count stays a whole number


def test_distribution_and_statistic_are_traced_once_for_equal_shapes_and_progress_is_told():
    traces = []

    def distribution(x):
        traces.append("distribution")
        return unit(x[:, None] + jnp.array([0.0, 2.0]))  # epsilon may be an axis after the rows

    def statistic(y, x):
        traces.append("statistic")
        return jnp.stack([y > x[None, :, None], y < 0], axis=-1)  # more axes, and booleans

    given, seen = {"chunk": 100, "statistic": statistic}, []
    first = simulate(KEY, distribution, MEANS, draws=250, progress=seen.append, **given)
    assert first.mean.shape == (3, 2, 2)
    assert (first.mean[:, 1, 0] > first.mean[:, 0, 0] + 0.3).all()
    assert [(p.done, p.total) for p in seen] == [(100, 250), (200, 250), (250, 250)]
    assert all(isinstance(p, Progress) and p.seconds >= 0 for p in seen)
    other = simulate(jax.random.key(1), distribution, MEANS + 1, draws=150, **given)
    assert traces == ["distribution", "statistic"]
    assert (other.mean[:, 0] != first.mean[:, 0]).any()


def test_progress_is_a_bar_where_tqdm_is_and_an_import_error_where_it_is_not(monkeypatch):
    pytest.importorskip("tqdm")
    run = partial(simulate, KEY, unit, MEANS, draws=1000, chunk=500)
    for progress, shown in ((True, True), (None, False)):
        with contextlib.redirect_stderr(io.StringIO()) as stream:
            run(progress=progress)
        assert ("1.00k/1.00k" in stream.getvalue()) == shown
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match="tqdm"):
        run(progress=True)


def same(a, b):
    return all(np.array_equal(value, vars(b)[name]) for name, value in vars(a).items())


class Stop(Exception):
    pass


def test_an_interrupted_run_goes_on_to_the_same_numbers_and_to_more_draws(tmp_path):
    path = tmp_path / "run"

    def stop(progress):
        if progress.done == 300:
            raise Stop

    def go(draws, **options):
        return simulate(KEY, unit, MEANS, draws=draws, chunk=100, bins=[0.0, 2.0], **options)

    with pytest.raises(Stop):
        go(750, checkpoint=path, progress=stop)
    seen = []
    resumed = go(750, checkpoint=path, progress=seen.append)
    assert [p.done for p in seen] == [400, 500, 600, 700, 750]
    assert same(resumed, go(750))
    for draws in (750, 760, 1130):  # the same, within the partial chunk, and beyond it
        assert same(go(draws, checkpoint=path), go(draws))
    assert not same(go(1130), go(1120))
    assert same(go(500, checkpoint=path), go(1100))  # it has more than that
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


def statistic_with(constant):
    inner = jax.jit(lambda y: y + constant[None])  # a constant inside a jit inside
    return lambda y, x: inner(y)[:, :, None]


WEIGHTS = np.arange(3, dtype=np.float32)
BASE = {"key": KEY, "distribution_fn": unit, "data": MEANS, "draws": 20, "chunk": 10}
BASE |= {"bins": [0.0], "statistic": statistic_with(WEIGHTS)}
CHANGES = {
    "key": {"key": jax.random.key(4)},
    "chunk": {"chunk": 5},
    "data": {"data": MEANS + 1},
    "shape": {"data": MEANS[:, None], "statistic": lambda y, x: y},
    "distribution": {"distribution_fn": lambda x: Scaled(x, 1.15)},
    "statistic": {"statistic": statistic_with(WEIGHTS + 1)},
    "no statistic": {"statistic": None},
    "bins": {"bins": [0.5]},
    "no bins": {"bins": None},
}


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run"
    simulate(**BASE, checkpoint=path)
    before = path.read_bytes()
    for change in CHANGES.values():
        with pytest.raises(ValueError, match="another run"):
            simulate(**BASE | change, checkpoint=path)
    assert path.read_bytes() == before
    copied = {"statistic": statistic_with(WEIGHTS.copy())}  # the same in another place in memory
    simulate(**BASE | copied, checkpoint=path)


def test_a_damaged_checkpoint_is_refused_or_whole(tmp_path):
    keep = Checkpoint(tmp_path / "run", "digest")
    assert keep.load() is None
    wanted = Estimate(10, *np.arange(12.0).reshape(4, 3))
    keep.save(wanted)
    assert same(keep.load(), wanted)
    whole, refused = keep.path.read_bytes(), 0
    flips = [
        whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        for place in range(0, len(whole), 41)
    ]
    for damaged in (b"", b"text", whole[:-1], whole[1:], *flips):
        keep.path.write_bytes(damaged)
        try:
            assert same(keep.load(), wanted)
        except ValueError as error:
            assert "cannot be read" in str(error)  # noqa: PT017
            assert keep.path.read_bytes() == damaged
            refused += 1
    assert refused > len(flips) / 2


@pytest.mark.parametrize(
    ("error", "word", "change"),
    [
        (ValueError, "ascending", {"bins": [1.0, 1.0]}),
        (ValueError, "ascending", {"bins": [np.nan]}),
        (OSError, "no/such/folder", {"checkpoint": "no/such/folder/run"}),
        (ValueError, "checkpoint_every", {"checkpoint_every": -1}),
        (ValueError, "progress", {"progress": "auto"}),
        (ValueError, "devices", {"devices": []}),
        (ValueError, "leading axis", {"data": (MEANS, MEANS[:2])}),
        (ValueError, "leading axis", {"data": MEANS[:0]}),
        (ValueError, "batch", {"distribution_fn": lambda x: unit(jnp.stack([x] * 7))}),
        (TypeError, "distribution_fn", {"distribution_fn": lambda x: x}),
        (ValueError, "statistic", {"statistic": lambda y, x: y.mean(0)}),
        (ValueError, "statistic", {"statistic": lambda y, x: (y, y)}),
    ],
)
def test_what_does_not_fit(error, word, change):
    with pytest.raises(error, match=word):
        simulate(**BASE | change)
