"""Estimates against the exact distribution, chunks against `sample`, resumed runs against
uninterrupted ones, what is refused.
"""

import io
from math import log, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import laplace, median, piecewise_laplace, sharded_sample, simulate
from dpjax.simulation import Progress, run
from dpjax.simulation.checkpoint import _header, fingerprint
from dpjax.simulation.summaries import State, pairwise_sum, summarize
from tests.simulation.programs import Foreign, Plain, estimate_sha
from tests.support.statistics import (
    FALSE_POSITIVE_RATE,
    assert_counts_follow,
    assert_counts_rejected,
)

KEY = jax.random.key(3)
X = np.random.default_rng(0).normal(size=(3, 31)).astype(np.float32)
BINS = np.linspace(-1.5, 1.5, 13)


def distribution_of(x, epsilon=1.0):
    return piecewise_laplace(median(x, lower=-4, upper=4, neighbors="swap"), epsilon)


MEANS = np.array([1.0, -2.0, 5.0], np.float32)


def probabilities(distribution, row):
    cdf = np.concatenate(
        [[0.0], np.asarray(distribution.cdf(BINS.astype(np.float32)[:, None]))[:, row], [1.0]]
    )
    return np.diff(cdf)


def distance_in_standard_errors(estimate, distribution):
    return np.abs(estimate.mean - np.asarray(distribution.mean(), np.float64)) / np.sqrt(
        np.asarray(distribution.variance()) / estimate.count
    )


@pytest.mark.slow
def test_estimates_follow_the_exact_distribution():
    """Bernstein: a mean of n values within 8 of their mean is off by z standard errors with
    probability below 1e-6 for this z.
    """
    draws = 200_000
    estimate = simulate(KEY, distribution_of, X, draws=draws, chunk=30_000, bins=BINS)
    distribution, off = distribution_of(X), distribution_of(X, 1.15)
    variance = np.asarray(distribution.variance(), np.float64)
    x = log(2 * len(X) / FALSE_POSITIVE_RATE)
    assert (
        distance_in_standard_errors(estimate, distribution)
        < sqrt(2 * x) + 8 * x / (3 * np.sqrt(draws * variance))
    ).all()
    # The same for squares, whose variance is at most 8^2 times their mean.
    squares_off = np.abs(estimate.variance - variance) * sqrt(draws) / (8 * np.sqrt(variance))
    assert (
        squares_off < sqrt(2 * x) + 8 * x / (3 * np.sqrt(draws * variance)) + x / sqrt(draws)
    ).all()
    assert estimate.count == draws
    assert estimate.counts.dtype == np.int64
    for row in range(len(X)):
        assert estimate.counts[row].sum() == draws
        assert_counts_follow(estimate.counts[row], probabilities(distribution, row))
        assert_counts_rejected(estimate.counts[row], probabilities(off, row))


def test_the_mean_absolute_error_is_the_exact_one_and_not_that_of_another_epsilon():
    draws = 200_000
    estimate = simulate(
        KEY,
        lambda x: laplace(x, 1.0, sensitivity=1.0),
        MEANS,
        draws=draws,
        statistic=lambda y, x: jnp.abs(y - x),
    )
    # Sums of n standard exponentials: Chernoff, off by less than sqrt(2 n x) + x on either side.
    x = log(2 * 3 / FALSE_POSITIVE_RATE)
    critical = sqrt(2 * x / draws) + x / draws
    assert (np.abs(estimate.mean - 1.0) < critical).all()
    assert (np.abs(estimate.mean - 1 / 1.15) > critical).all()
    np.testing.assert_allclose(estimate.standard_error, 1 / sqrt(draws), rtol=0.05)


@pytest.mark.slow
def test_the_draws_are_those_of_the_distribution_chunk_by_chunk():
    """2 chunks and a part of a third, against NumPy in float64 on the draws themselves."""
    estimate = simulate(KEY, distribution_of, X, draws=2300, chunk=1000, bins=BINS)
    sample = jax.jit(lambda key, x: distribution_of(x).sample(key, (1000,)))
    draws = np.concatenate([sample(jax.random.fold_in(KEY, i), X) for i in range(3)])[:2300].astype(
        np.float64
    )
    np.testing.assert_allclose(
        estimate.mean, draws.mean(0), rtol=0, atol=14 * 2.0**-24 * draws.std()
    )
    np.testing.assert_allclose(estimate.variance, draws.var(0, ddof=1), rtol=14 * 2.0**-24)
    np.testing.assert_array_equal(estimate.minimum, draws.min(0))
    np.testing.assert_array_equal(estimate.maximum, draws.max(0))
    edges = np.concatenate([[-np.inf], BINS.astype(np.float32), [np.inf]])
    for row in range(3):
        np.testing.assert_array_equal(estimate.counts[row], np.histogram(draws[:, row], edges)[0])
    np.testing.assert_array_equal(estimate.bins, BINS.astype(np.float32))


@pytest.mark.parametrize(
    ("offset", "scale"), [(0.0, 1.0), (1e6, 1.0), (0.0, 1e-30), (0.0, 1e25), (3.0, 0.0)]
)
def test_summaries_are_accurate_far_from_zero_and_at_any_scale(offset, scale):
    values = (offset + scale * np.random.default_rng(1).normal(size=(5000, 7))).astype(np.float32)
    keep = 4321
    chunk = jax.jit(summarize)(values, jnp.int32(keep), None)
    found = State.empty((7,), None).merge(jax.tree.map(np.asarray, chunk), keep).estimate(None)
    wanted = values[:keep].astype(np.float64)
    deviation = np.abs(wanted - wanted.mean(0)).mean(0)
    bound = (log(5000) / log(2) + 4) * 2.0**-24  # as summaries.py states it
    assert (np.abs(found.mean - wanted.mean(0)) <= bound * deviation).all()
    np.testing.assert_allclose(found.variance, wanted.var(0, ddof=1), rtol=2 * bound)


def test_pairwise_sums_are_sums():
    add = jax.jit(pairwise_sum)
    for n in (1, 2, 3, 5, 64, 1001):
        values = np.random.default_rng(n).integers(-1000, 1000, (n, 3)).astype(np.float32)
        np.testing.assert_array_equal(add(values), values.sum(0))


def test_merging_counts_beyond_32_bits():
    """The billionth draw counts as much as the first: 2^34 draws in chunks of 2^30, known in closed
    form.
    """
    state = State.empty((1,), 1)
    one = np.ones(1)
    some = jax.tree.map(
        np.asarray,
        jax.jit(summarize)(np.ones((1, 1), np.float32), jnp.int32(1), np.zeros(1, np.float32)),
    )
    for i in range(16):
        # half the values are i - 1, half are i + 1
        chunk = some._replace(
            shift=i * one,
            first=0 * one,
            second=2**30 * one,
            spread=one,
            counts=np.array([[0, 2**30]]),
        )
        state = state.merge(chunk, 2**30)
    found = state.estimate(None)
    assert found.count == 2**34
    assert found.counts.tolist() == [[0, 2**34]]
    np.testing.assert_allclose(found.mean, 7.5, rtol=1e-15)
    np.testing.assert_allclose(
        found.variance, (1 + (16**2 - 1) / 12) * 2**34 / (2**34 - 1), rtol=1e-15
    )


def test_a_row_without_a_distribution_is_nan_and_the_others_are_not():
    estimate = simulate(
        KEY, Plain, np.array([1.0, np.nan], np.float32), draws=100, chunk=50, bins=[0.0]
    )
    assert np.isnan(estimate.mean).tolist() == [False, True]
    assert np.isnan(estimate.standard_error).tolist() == [False, True]
    assert estimate.counts.sum(-1).tolist() == [100, 0]


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [8, 16, 24, 32])
def test_small_chunks_of_few_rows_compile(chunk):
    """In one program with the sums, the draws were compiled without an end."""
    estimate = simulate(
        KEY, lambda x: laplace(x, 1.0, sensitivity=1.0), MEANS, draws=64, chunk=chunk
    )
    assert (np.abs(estimate.mean - np.asarray(MEANS)) < 6 * estimate.standard_error).all()


def test_a_distribution_of_somebody_else_draws_each_row_by_its_own_key():
    estimate = simulate(
        KEY, lambda x: Foreign(x[:, None] + jnp.arange(2.0)), MEANS, draws=250, chunk=100
    )
    keys = [
        [jax.random.fold_in(jax.random.fold_in(KEY, chunk), row) for row in range(3)]
        for chunk in range(3)
    ]
    noise = np.array(
        [
            [np.asarray(jax.random.uniform(key, (100, 1, 2)))[:, 0] for key in of_chunk]
            for of_chunk in keys
        ]
    )
    draws = np.float64(
        MEANS[:, None]
        + np.arange(2, dtype=np.float32)
        + noise.transpose(0, 2, 1, 3).reshape(300, 3, 2)[:250]
    )
    np.testing.assert_allclose(estimate.mean, draws.mean(0), rtol=0, atol=12 * 2.0**-24)
    np.testing.assert_array_equal(estimate.maximum, draws.max(0))


@pytest.mark.slow
def test_large_numbers_of_numpy_become_floats_and_do_not_wrap_around():
    large = np.array([[3_000_000_000, 3_100_000_000, 2_900_000_000]] * 2)

    def distribution(x):
        return piecewise_laplace(median(x, lower=0, upper=4e9, neighbors="swap"), 20.0)

    np.testing.assert_array_equal(
        sharded_sample(KEY, distribution, large), distribution(large).sample(KEY)
    )
    too_large = np.array([[1e300, 1.0, 2.0]])  # no warning either
    assert np.isposinf(sharded_sample(KEY, lambda x: Plain(x[:, 0]), too_large)).all()
    small = {"x": np.ones((2, 3)), "count": np.array([1, 2])}
    seen = []
    sharded_sample(KEY, lambda data: seen.append(data["count"].dtype) or Plain(data["x"]), small)
    assert seen[0] == np.int32  # a count stays a whole number


def test_the_first_chunk_does_not_overflow_by_its_distance_from_nothing(x64):
    values = jnp.array([[1e200], [1.5e200]])
    chunk = jax.tree.map(np.asarray, jax.jit(summarize)(values, jnp.int32(2), None))._replace(
        spread=np.array([1.0])
    )
    assert np.isfinite(State.empty((1,), None).merge(chunk, 2).estimate(None).variance).all()


def test_one_draw_has_no_standard_error():
    assert np.isnan(simulate(KEY, Plain, MEANS, draws=1, chunk=4).standard_error).all()


def test_distribution_and_statistic_are_traced_once_for_equal_shapes_and_progress_is_told():
    traces = []

    def distribution(x):
        traces.append("distribution")
        return Plain(x)

    def statistic(y, x):
        traces.append("statistic")
        return jnp.stack([y > x[None], y < 0], axis=-1)  # more axes, and booleans

    seen = []
    estimate = simulate(
        KEY, distribution, MEANS, draws=250, chunk=100, statistic=statistic, progress=seen.append
    )
    assert traces == ["distribution", "statistic"]
    assert estimate.mean.shape == (3, 2)
    assert [(p.done, p.total) for p in seen] == [(100, 250), (200, 250), (250, 250)]
    other = simulate(
        jax.random.key(1), distribution, MEANS + 1, draws=150, chunk=100, statistic=statistic
    )
    assert traces == ["distribution", "statistic"]
    assert (other.mean[:, 0] != estimate.mean[:, 0]).any()
    simulate(KEY, distribution, MEANS, draws=10, chunk=5, statistic=lambda y, x: statistic(y, x))
    assert traces == ["distribution", "statistic", "statistic"]
    assert all(isinstance(p, Progress) and p.seconds >= 0 for p in seen)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_a_bar_on_a_terminal_and_nothing_in_a_pipe(terminal, monkeypatch):
    pytest.importorskip("tqdm")
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    monkeypatch.setattr(run.sys, "stderr", stream)
    report = run._report_to_stderr()
    for done in (500, 1000):
        report(run.Progress(done, 1000, 1.0))
    assert ("1.00k/1.00k" in stream.getvalue()) == terminal
    assert bool(stream.getvalue()) == terminal


def test_progress_to_stderr_is_a_line_now_and_then(capsys):
    report = run._lines()
    report(Progress(50, 100, 1.0))
    assert capsys.readouterr().err == ""  # a short run is quiet
    for done, seconds in ((10, 1.0), (20, 6.0), (30, 8.0), (100, 9.0)):
        report(Progress(done, 100, seconds))
    assert capsys.readouterr().err.splitlines() == [
        "20 of 100 draws (20.0 %), 6 s",
        "100 of 100 draws (100.0 %), 9 s",
    ]


REFUSED = [
    (TypeError, "typed key", {"key": 0}),
    (ValueError, "draws must be an integer from 1 on, got 10.0", {"draws": 10.0}),
    (ValueError, "draws must be an integer from 1 on, got 0", {"draws": 0}),
    (ValueError, "draws must be at most 2\\^32 chunks", {"draws": 2**33, "chunk": 1}),
    (ValueError, "chunk must be an integer from 1 to 2147483647, got 2147483648", {"chunk": 2**31}),
    (ValueError, "bins must be ascending", {"bins": [1.0, 0.0]}),
    (ValueError, "bins must be ascending \\(in float32\\)", {"bins": [1.0, 1.0 + 1e-12]}),
    (ValueError, "bins must be a one-dimensional array", {"bins": []}),
    (ValueError, "bins must be a one-dimensional array", {"bins": 10}),
    (ValueError, "progress must be None, 'auto' or a function, got 'tqdm'", {"progress": "tqdm"}),
    (
        ValueError,
        "checkpoint_every must be a nonnegative number of seconds",
        {"checkpoint": "run", "checkpoint_every": float("nan")},
    ),
    (ValueError, "must be in an existing folder", {"checkpoint": "no/such/folder/run"}),
    (ValueError, "devices must be a mesh or a list", {"devices": []}),
    (ValueError, "devices must be a mesh or a list", {"devices": ["cpu"]}),
    (ValueError, "first_row must be between", {"first_row": -1}),
    (
        ValueError,
        "common leading axis of rows, got shapes \\[\\(3,\\), \\(2,\\)\\]",
        {"data": (MEANS, MEANS[:2])},
    ),
    (ValueError, "common leading axis", {"data": {}}),
    (ValueError, "at least one row", {"data": MEANS[:0]}),
    (
        TypeError,
        "distribution_fn must return a distribution, with",
        {"distribution_fn": lambda x: x},
    ),
    (
        ValueError,
        "the batch of the distribution must start with the rows",
        {"distribution_fn": lambda x: Plain(x[0])},
    ),
    (
        ValueError,
        "put the parameters on later axes",
        {"distribution_fn": lambda x: Plain(jnp.stack([x] * 7))},
    ),
    (TypeError, "statistic must return one array", {"statistic": lambda y, x: (y, y)}),
    (
        ValueError,
        "statistic must preserve the axes of draws and rows",
        {"statistic": lambda y, x: y.mean(0)},
    ),
]


@pytest.mark.parametrize(("error", "message", "change"), REFUSED)
def test_bad_arguments(error, message, change):
    arguments = {
        "key": KEY,
        "distribution_fn": Plain,
        "data": MEANS,
        "draws": 10,
        "chunk": 5,
    } | change
    with pytest.raises(error, match=message):
        simulate(
            arguments.pop("key"),
            arguments.pop("distribution_fn"),
            arguments.pop("data"),
            **arguments,
        )


def test_epsilon_may_be_an_axis_after_the_rows():
    def distribution(x):
        return Plain(x[:, None] + jnp.array([0.0, 2.0]))

    one = np.float32([3.0])  # one row: its arrays look like ones that rows share
    estimate = simulate(KEY, distribution, one, draws=1000, chunk=300)
    assert estimate.mean.shape == (1, 2)
    assert (estimate.mean[:, 1] > estimate.mean[:, 0] + 1.5).all()


def same(a, b):
    return estimate_sha(a) == estimate_sha(b)


class Stop(Exception):
    pass


OPTIONS = {"chunk": 100, "bins": [0.0, 2.0]}


def test_an_interrupted_run_goes_on_to_the_same_numbers(tmp_path):
    path = tmp_path / "run"

    def stop(progress):
        if progress.done == 300:
            raise Stop

    with pytest.raises(Stop):
        simulate(KEY, Plain, MEANS, draws=750, checkpoint=path, progress=stop, **OPTIONS)
    seen = []
    resumed = simulate(
        KEY, Plain, MEANS, draws=750, checkpoint=path, progress=seen.append, **OPTIONS
    )
    assert [p.done for p in seen] == [400, 500, 600, 700, 750]
    assert same(resumed, simulate(KEY, Plain, MEANS, draws=750, **OPTIONS))
    with pytest.raises(
        ValueError,
        match=r"another run; differences: bins \(saved \w+, now "
        r"none\)\. Continue it with",
    ):
        simulate(KEY, Plain, MEANS, draws=750, checkpoint=path, chunk=100)
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


def test_a_finished_run_goes_on_to_more_draws(tmp_path):
    path = tmp_path / "run"
    first = simulate(KEY, Plain, MEANS, draws=750, checkpoint=path, **OPTIONS)
    assert same(first, simulate(KEY, Plain, MEANS, draws=750, checkpoint=path, **OPTIONS))
    for draws in (760, 1130):  # within the partial chunk, and beyond it
        longer = simulate(KEY, Plain, MEANS, draws=draws, checkpoint=path, **OPTIONS)
        assert same(longer, simulate(KEY, Plain, MEANS, draws=draws, **OPTIONS))
    with pytest.raises(ValueError, match=r"draws must be at least 1100.*got 500"):
        simulate(KEY, Plain, MEANS, draws=500, checkpoint=path, **OPTIONS)


def statistic_with(constant):
    inner = jax.jit(lambda y: y + constant[None])  # a constant inside a jit inside
    return lambda y, x: inner(y)[:, :, None]


def test_a_checkpoint_of_another_run_is_refused_and_the_message_says_why(tmp_path):
    path = tmp_path / "run"
    weights = np.arange(3, dtype=np.float32)
    base = {
        "key": KEY,
        "distribution_fn": Plain,
        "data": MEANS,
        "draws": 20,
        "chunk": 10,
        "bins": [0.0],
        "statistic": statistic_with(weights),
        "first_row": 0,
    }

    def go(**change):
        arguments = base | change
        return simulate(
            arguments.pop("key"),
            arguments.pop("distribution_fn"),
            arguments.pop("data"),
            checkpoint=path,
            **arguments,
        )

    go()
    before = path.read_bytes()
    changes = {
        "key": {"key": jax.random.key(4)},
        "chunk": {"chunk": 5},
        "rows": {"first_row": 1},
        "data": {"data": MEANS + 1},
        "distribution": {"distribution_fn": lambda x: Plain(x, scale=1.15)},
        "statistic": {"statistic": statistic_with(weights + 1)},
        "bins": {"bins": [0.5]},
    }
    for name, change in changes.items():
        with pytest.raises(
            ValueError,
            match=rf"belongs to another run; differences: .*\b{name} "
            r"\(saved .*, now",
        ):
            go(**change)
    with pytest.raises(ValueError, match=r"statistic \(saved .*, now none\)"):
        go(statistic=None)
    assert path.read_bytes() == before
    go(statistic=statistic_with(weights.copy()))  # the same in another place in memory


def test_a_checkpoint_of_another_version_device_or_rounding_is_refused(tmp_path, monkeypatch):
    def go(name):
        return simulate(KEY, Plain, MEANS, draws=20, chunk=10, checkpoint=tmp_path / name)

    names = ["dtype", "platform", "dpjax version", "jax version", "numpy version"]
    with monkeypatch.context() as patch:
        patch.setattr(
            run,
            "fingerprint",
            lambda *arguments: fingerprint(*arguments) | dict.fromkeys(names, "other"),
        )
        go("facts")
    with pytest.raises(ValueError, match="differences: ") as refused:
        go("facts")
    assert all(f"{name} (saved other, now" in str(refused.value) for name in names)
    assert str(refused.value).count("(saved ") == len(names)
    with monkeypatch.context() as patch:
        patch.setattr(run, "digest", lambda summary: "other")
        go("rounding")
    with pytest.raises(ValueError, match="the first chunk differs"):
        go("rounding")


def test_a_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "run"
    simulate(KEY, Plain, MEANS, draws=20, chunk=10, checkpoint=path)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damaged in (b"", whole[:-1], bytes(flipped), b"PK" + whole):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged or not a checkpoint"):
            simulate(KEY, Plain, MEANS, draws=20, chunk=10, checkpoint=path)
        assert path.read_bytes() == damaged


def test_a_checkpoint_with_damaged_fields_and_a_digest_that_fits_is_refused(tmp_path):
    """Only what the run can have written is accepted, and every refusal is one sentence."""
    path = tmp_path / "run"

    def go():
        return simulate(KEY, Plain, MEANS, draws=30, chunk=10, bins=[-1.0, 1.0], checkpoint=path)

    before = go()
    with np.load(io.BytesIO(path.read_bytes().partition(b"\n")[2])) as arrays:
        sound = dict(arrays)

    def write(fields, name="fingerprint"):
        archive = io.BytesIO()
        np.savez(archive, **{key: value for key, value in fields.items() if value is not None})
        content = archive.getvalue().replace(b"fingerprint.npy", f"{name}.npy".encode())
        path.write_bytes(_header(content) + b"\n" + content)

    one = np.zeros(MEANS.shape)
    one[0] = 1
    damages = {
        "chunks": [
            None,
            np.int64(-1),
            np.int64(2),
            np.float64(3),
            np.array([3, 3]),
            np.array("3"),
            np.int64(2**40),
        ],
        "draws": [None, np.int64(29), np.int64(-30), np.float64(np.nan), np.array([30])],
        "mean": [
            None,
            sound["mean"][:1],
            sound["mean"] + 100 * one,
            sound["mean"] * np.nan,
            sound["mean"].astype(np.float32),
        ],
        "squares": [
            None,
            -sound["squares"],
            sound["squares"] + 1e6 * one,
            sound["squares"] * np.nan,
        ],
        "minimum": [
            None,
            sound["maximum"] + one,
            sound["mean"] + one,
            sound["minimum"].astype(complex),
        ],
        "maximum": [None, sound["minimum"] - one, sound["mean"] - 1e-2, sound["maximum"][:, None]],
        "counts": [
            None,
            -sound["counts"],
            sound["counts"] + 1,
            sound["counts"][:, :-1],
            sound["counts"].astype(float),
        ],
        "fingerprint": [
            None,
            np.array("["),
            np.array("7"),
            np.array("{}"),
            np.array(b"\xff"),
            np.array(3.0),
        ],
    }
    for name, values in damages.items():
        for value in values:
            write({**sound, name: value})
            with pytest.raises(
                ValueError,
                match=r"^checkpoint .* (cannot be read|belongs to "
                r"another|has values)",
            ):
                go()
    write(sound, name="fingerprinz")  # a zip whose two lists of names disagree, and more
    with pytest.raises(ValueError, match="cannot be read"):
        go()
    write({**sound, "chunks": np.int64(0), "draws": np.int64(0)})
    with pytest.raises(ValueError, match="has values that no run"):
        go()
    write(sound)  # the control: what the run has written
    assert same(before, go())
    with pytest.raises(ValueError, match="is a folder"):
        simulate(KEY, Plain, MEANS, draws=30, checkpoint=tmp_path)


def test_float64(x64):
    means = np.array([1.0, 2.0])
    estimate = simulate(KEY, Plain, means, draws=500, chunk=500)
    draws = np.asarray(
        jax.jit(lambda key, x: Plain(x).sample(key, (500,)))(jax.random.fold_in(KEY, 0), means)
    )
    assert draws.dtype == np.float64
    np.testing.assert_allclose(estimate.mean, draws.mean(0), rtol=1e-14)
    np.testing.assert_allclose(estimate.variance, draws.var(0, ddof=1), rtol=1e-13)
