"""Estimates against the exact distribution, chunks against `sample`, resumed runs against
uninterrupted ones, what is refused.
"""

import contextlib
import hashlib
import importlib.util
import io
import itertools
import json
import time
from dataclasses import dataclass
from functools import partial
from math import log, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import laplace, sharded_sample, simulate
from dpjax.simulation import Progress
from tests.simulation.programs import Plain, estimate_sha
from tests.support.statistics import (
    FALSE_POSITIVE_RATE,
    assert_counts_follow,
    assert_counts_rejected,
)

KEY = jax.random.key(3)
MEANS = np.array([1.0, -2.0, 5.0], np.float32)
EDGES = np.linspace(-4.0, 9.0, 14, dtype=np.float32)
OPTIONS = {"chunk": 100, "bins": [0.0, 2.0]}


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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scaled:
    """A distribution of somebody else: Laplace noise of any scale."""

    loc: jax.Array
    scale: jax.Array

    @property
    def batch_shape(self):
        return self.loc.shape

    def sample(self, key, shape=()):
        noise = jax.random.laplace(key, (*shape, *self.loc.shape), self.loc.dtype)
        return self.loc + self.scale * noise


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_draws_are_those_of_the_distribution_and_summaries_accurate_at_any_scale(dtype, x64):
    """2 chunks and a part of a third, against NumPy in float64 on the draws themselves: far from
    zero, at any scale, of one value only; a row without a distribution is NaN, and alone so.
    """
    far, wide = (1e6, 1e25) if dtype is np.float32 else (1e200, 1e120)
    offset, scale = np.array([[0, far, 0, 0, 3, np.nan], [1, 1, 1e-30, wide, 0, 1]], dtype)
    chunk, draws, bins = 1000, 2300, EDGES
    run = partial(simulate, KEY, lambda data: Scaled(*data), (offset, scale), bins=bins)
    estimate = run(draws=draws, chunk=chunk)

    @jax.jit
    @partial(jax.vmap, in_axes=(None, 0, 0, 0), out_axes=-1)
    def of_row(key, row, offset, scale):
        return Scaled(offset, scale).sample(jax.random.fold_in(key, row), (chunk,))

    keys = [jax.random.fold_in(KEY, number) for number in range(3)]
    values = np.concatenate([of_row(key, np.arange(6), offset, scale) for key in keys])[:draws]
    assert values.dtype == dtype
    values, unit = np.float64(values), np.finfo(dtype).eps / 2
    mean = values.mean(axis=0) if dtype is np.float32 else offset + (values - offset).mean(axis=0)
    deviation = np.abs(values - mean).mean(axis=0)
    bound = (log(draws) / log(2) + 4) * max(unit, 2.0**-50)  # as summaries.py states it
    sound = slice(5)
    slack = bound * deviation + 2.0**-50 * np.abs(mean)
    assert (np.abs(estimate.mean - mean) <= slack)[sound].all()
    variance = np.sum((values - mean) ** 2, axis=0) / (draws - 1)
    np.testing.assert_allclose(estimate.variance[sound], variance[sound], rtol=2 * bound)
    np.testing.assert_array_equal(estimate.minimum[sound], values.min(axis=0)[sound])
    np.testing.assert_array_equal(estimate.maximum[sound], values.max(axis=0)[sound])
    edges = np.concatenate([[-np.inf], bins, [np.inf]])
    for row in range(5):
        wanted = np.histogram(values[:, row], edges)[0]
        np.testing.assert_array_equal(estimate.counts[row], wanted)
    np.testing.assert_array_equal(estimate.bins, bins)
    assert np.isnan([estimate.mean[5], estimate.standard_error[5]]).all()
    assert estimate.counts[5].sum() == 0
    assert np.isnan(run(draws=1, chunk=chunk).standard_error).all()


def test_large_numbers_of_numpy_become_floats_and_do_not_wrap_around():
    for large in (np.array([3 * 10**9]), np.array([1e300])):  # no warning either
        drawn = sharded_sample(KEY, lambda x: Plain(x, 0.0), large)
        assert drawn.tolist() == [np.float32(3e9) if large.dtype == np.int64 else np.inf]
    seen, small = [], {"x": np.ones((2, 3)), "count": np.array([1, 2])}
    sharded_sample(KEY, lambda data: seen.append(data["count"].dtype) or Plain(data["x"]), small)
    assert seen[0] == np.int32  # a count stays a whole number


def test_distribution_and_statistic_are_traced_once_for_equal_shapes_and_progress_is_told():
    traces = []

    def distribution(x):
        traces.append("distribution")
        return Plain(x[:, None] + jnp.array([0.0, 2.0]))  # epsilon may be an axis after the rows

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


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_a_bar_on_a_terminal_and_nothing_in_a_pipe(terminal):
    pytest.importorskip("tqdm")
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    with contextlib.redirect_stderr(stream):
        simulate(KEY, Plain, MEANS, draws=1000, chunk=500, progress="auto")
    assert ("1.00k/1.00k" in stream.getvalue()) == terminal
    assert bool(stream.getvalue()) == terminal


@pytest.mark.parametrize(("seconds", "lines"), [(0.1, 0), (3.0, 2)])
def test_without_a_bar_it_is_a_line_now_and_then(seconds, lines, monkeypatch, capsys):
    """A short run is quiet."""
    clock = itertools.count(step=seconds)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    simulate(KEY, Plain, MEANS, draws=300, chunk=100, progress="auto")
    written = capsys.readouterr().err.splitlines()
    assert len(written) == lines
    assert all(line.endswith(" s") and "of 300 draws" in line for line in written)


def same(a, b):
    return estimate_sha(a) == estimate_sha(b)


class Stop(Exception):
    pass


def test_an_interrupted_run_goes_on_to_the_same_numbers_and_to_more_draws(tmp_path):
    path = tmp_path / "run"

    def stop(progress):
        if progress.done == 300:
            raise Stop

    def go(draws, **options):
        return simulate(KEY, Plain, MEANS, draws=draws, **OPTIONS, **options)

    with pytest.raises(Stop):
        go(750, checkpoint=path, progress=stop)
    seen = []
    resumed = go(750, checkpoint=path, progress=seen.append)
    assert [p.done for p in seen] == [400, 500, 600, 700, 750]
    assert same(resumed, go(750))
    for draws in (750, 760, 1130):  # the same, within the partial chunk, and beyond it
        assert same(go(draws, checkpoint=path), go(draws))
    with pytest.raises(ValueError, match="at least 1100"):
        go(500, checkpoint=path)
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


def statistic_with(constant):
    inner = jax.jit(lambda y: y + constant[None])  # a constant inside a jit inside
    return lambda y, x: inner(y)[:, :, None]


WEIGHTS = np.arange(3, dtype=np.float32)
BASE = {"key": KEY, "distribution_fn": Plain, "data": MEANS, "draws": 20, "chunk": 10}
BASE |= {"bins": [0.0], "first_row": 0, "statistic": statistic_with(WEIGHTS)}
CHANGES = {
    "key": {"key": jax.random.key(4)},
    "chunk": {"chunk": 5},
    "rows": {"first_row": 1},
    "data": {"data": MEANS + 1},
    "distribution": {"distribution_fn": lambda x: Plain(x, scale=1.15)},
    "statistic": {"statistic": statistic_with(WEIGHTS + 1)},
    "bins": {"bins": [0.5]},
}


def test_a_checkpoint_of_another_run_is_refused_and_the_message_says_why(tmp_path):
    path = tmp_path / "run"
    simulate(**BASE, checkpoint=path)
    before = path.read_bytes()
    for name, change in [*CHANGES.items(), ("statistic", {"statistic": None})]:
        with pytest.raises(ValueError, match=rf"another run; differences: .*\b{name} \(saved"):
            simulate(**BASE | change, checkpoint=path)
    assert path.read_bytes() == before
    copied = {"statistic": statistic_with(WEIGHTS.copy())}  # the same in another place in memory
    simulate(**BASE | copied, checkpoint=path)


def fields_of(path):
    with np.load(io.BytesIO(path.read_bytes().partition(b"\n")[2])) as arrays:
        return dict(arrays)


def write(path, fields, name="fingerprint"):
    """A file with a digest that fits."""
    archive = io.BytesIO()
    np.savez(archive, **{key: value for key, value in fields.items() if value is not None})
    content = archive.getvalue().replace(b"fingerprint.npy", f"{name}.npy".encode())
    magic, digest = path.read_bytes().split(b" ", 1)[0], hashlib.sha256(content).hexdigest()
    path.write_bytes(magic + b" " + digest.encode() + b"\n" + content)


@pytest.fixture
def saved(tmp_path):
    """A checkpoint, how it goes on, and what is in it."""
    path = tmp_path / "run"

    def go(draws=30):
        return simulate(KEY, Plain, MEANS, draws=draws, chunk=10, bins=[-1.0, 1.0], checkpoint=path)

    go()
    return path, go, fields_of(path)


@pytest.mark.parametrize(
    "fact", ["dtype", "platform", "dpjax version", "jax version", "numpy version", "first chunk"]
)
def test_a_checkpoint_of_another_version_device_or_rounding_is_refused(fact, saved):
    path, go, sound = saved
    facts = json.loads(str(sound["fingerprint"]))
    assert facts[fact]
    write(path, {**sound, "fingerprint": np.array(json.dumps(facts | {fact: "other"}))})
    with pytest.raises(ValueError, match=rf"\b{fact} (differs|\(saved other, now)"):
        go()


def test_a_damaged_checkpoint_is_refused(saved):
    path, go, _ = saved
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damaged in (b"", whole[:-1], bytes(flipped), b"PK" + whole):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            go()
        assert path.read_bytes() == damaged


ONE = np.array([1.0, 0.0, 0.0])
DAMAGES = {
    "chunks": [
        lambda _: np.int64(-1),
        lambda _: np.int64(2),
        lambda _: np.float64(3),
        lambda _: np.array([3, 3]),
        lambda _: np.array("3"),
        lambda _: np.int64(2**40),
    ],
    "draws": [
        lambda _: np.int64(29),
        lambda n: -n,
        lambda _: np.float64(np.nan),
        lambda n: n[None],
    ],
    "mean": [lambda m: m[:1], lambda m: m + 100 * ONE, lambda m: m * np.nan, np.float32],
    "squares": [np.negative, lambda s: s + 1e6 * ONE, lambda s: s * np.nan],
    "minimum": [lambda m: m + 100 * ONE, lambda m: m.astype(complex)],
    "maximum": [lambda m: m - 100 * ONE, lambda m: m[:, None]],
    "counts": [np.negative, lambda c: c + 1, lambda c: c[:, :-1], lambda c: c.astype(float)],
    "fingerprint": [lambda _, text=text: np.array(text) for text in ("[", "7", "{}", b"\xff", 3.0)],
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_checkpoint_with_damaged_fields_and_a_digest_that_fits_is_refused(name, saved):
    """Only what the run can have written is accepted, and every refusal is one sentence."""
    path, go, sound = saved
    refused = pytest.raises(ValueError, match=r"^checkpoint .* (cannot|belongs|has values)")
    for damage in [lambda _: None, *DAMAGES[name]]:
        write(path, {**sound, name: damage(sound[name])})
        with refused:
            go()
    for fields, key in (
        (sound, "fingerprinz"),  # a zip whose two lists of names disagree, and more
        ({**sound, "chunks": np.int64(0), "draws": np.int64(0)}, "fingerprint"),
    ):
        write(path, fields, key)
        with refused:
            go()
    write(path, sound)  # the control: what the run has written
    go()


def test_counts_go_beyond_32_bits(saved):
    """The billionth draw counts as much as the first: a run of 2^34 draws goes on to ten more."""
    path, go, sound = saved
    times = np.int64(2**34 // 30)
    before = {key: sound[key] * times for key in ("chunks", "draws", "squares", "counts")}
    write(path, {**sound, **before})
    total = before["draws"] + 10
    found = go(int(total))
    key = jax.random.fold_in(KEY, np.uint32(before["chunks"]))
    new = np.float64(jax.jit(lambda key: Plain(MEANS).sample(key, (10,)))(key))
    edges = [-np.inf, -1.0, 1.0, np.inf]
    counts = [np.histogram(row, edges)[0] for row in new.T]
    np.testing.assert_array_equal(found.counts, before["counts"] + counts)
    assert found.counts.sum(axis=-1).tolist() == [found.count] * 3 == [total] * 3
    step = new.mean(axis=0) - sound["mean"]
    np.testing.assert_allclose(found.mean - sound["mean"], step * 10 / total, atol=1e-15)
    squares = before["squares"] + new.var(axis=0) * 10 + step**2 * 10
    np.testing.assert_allclose(found.variance, squares / (total - 1), rtol=1e-12)


@pytest.mark.parametrize(
    ("error", "word", "change"),
    [
        (ValueError, "2\\^32 chunks", {"draws": 2**33, "chunk": 1}),
        (ValueError, "ascending", {"bins": [1.0, 1.0 + 1e-12]}),  # in float32
        (ValueError, "folder", {"checkpoint": "no/such/folder/run"}),
        (ValueError, "leading axis", {"data": (MEANS, MEANS[:2])}),
        (ValueError, "batch", {"distribution_fn": lambda x: Plain(jnp.stack([x] * 7))}),
        (ValueError, "statistic", {"statistic": lambda y, x: y.mean(0)}),
    ],
)
def test_what_does_not_fit(error, word, change):
    with pytest.raises(error, match=word):
        simulate(**BASE | change)
