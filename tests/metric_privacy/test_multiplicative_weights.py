"""MWEM: its privacy by an exact audit of transcripts, its draws against the exact distributions,
and the update with one scale.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.bounds.metric_selection import mwem_error, mwem_rounds
from dpjax.metric_privacy import _multiplicative_weights as module
from dpjax.metric_privacy import mwem
from dpjax.metric_privacy._multiplicative_weights import selection_distribution
from dpjax.metric_privacy.lipschitz import (
    LipschitzQueries,
    lipschitz_envelope,
    lipschitz_queries,
    mismatch,
)
from dpjax.metric_privacy.metrics import from_budgets
from dpjax.metric_privacy.points import from_points
from dpjax.numerics.double_float import single
from dpjax.random import words
from tests.support import statistics
from tests.support.histograms import histograms, moves

BUDGETS = np.array([[0.0, 0.7, 1.2], [0.7, 0.0, 0.9], [1.2, 0.9, 0.0]])
QUERIES = np.array([[1.0, 0.3, -0.2], [-0.5, 0.2, 0.7], [0.0, 1.0, 0.1]])
ROWS = histograms(3, 4)


def softmax(logs):
    weights = np.exp(logs - logs.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def plain(x, values, scale, rounds, update, random=None):
    """The algorithm in plain NumPy, one dataset; without ``random`` it selects the worst query and
    measures it exactly.
    """
    n, log_y, seen = x.sum(), np.zeros(len(x)), []
    for _ in range(rounds):
        y = n * softmax(log_y)
        seen.append(y)
        miss = np.abs(values @ (y - x))
        k = (
            miss.argmax()
            if random is None
            else random.choice(len(values), p=softmax(miss / (4 * scale * rounds)))
        )
        m = values[k] @ x + (0 if random is None else random.laplace(scale=2 * scale * rounds))
        if update == "repaired":
            log_y = log_y + values[k] * (m - values[k] @ y) / (2 * n)
        else:
            log_y = log_y + values[k] / scale * (m - values[k] / scale @ y) / (2 * n)
    return np.mean(seen, axis=0)


def transcript_losses(values, scale, rounds, budget_rounds):
    """The largest log-ratio over d(i, j) of two rounds' selections and measurements, over a grid of
    measurements.

    The distributions are those for ``budget_rounds`` rounds; the synthetic histogram of the second
    round follows from the first.
    """
    queries = LipschitzQueries(jnp.asarray(values), jnp.asarray(scale))
    a, b, i, j = moves(ROWS)
    grid = np.array([-60.0, -1.0, 0.4, 2.0, 60.0])
    n = ROWS[0].sum()
    start = np.full(3, n / 3)
    after = [
        n * softmax(np.log(start) + values[k] * (m - values[k] @ start) / (2 * n))
        for k in range(len(values))
        for m in grid
    ]
    distributions = selection_distribution(
        ROWS, np.array([start, *after])[:, None], queries, rounds=budget_rounds
    )
    select = np.asarray(distributions.log_probabilities())  # (1 + transcripts, rows, K)
    exact = ROWS @ values.T
    measure = -np.abs(grid[:, None, None] - exact) / (2 * scale * budget_rounds)  # (grid, rows, K)
    worst = 0.0
    for first, (k, at) in enumerate((k, at) for k in range(len(values)) for at in range(len(grid))):
        one = select[0, :, k] + measure[at, :, k]
        for other in range(len(values)):
            two = select[1 + first, :, other] + measure[:, :, other]
            log_density = one + two
            worst = max(
                worst, (np.abs(log_density[:, a] - log_density[:, b]) / BUDGETS[i, j]).max()
            )
    return worst


def test_transcripts_are_private(x64):
    metric = from_budgets(BUDGETS)
    for asked in (
        lipschitz_queries(QUERIES, metric),
        lipschitz_envelope(QUERIES, metric, scale=0.4),
    ):
        loss = transcript_losses(np.asarray(asked.values), float(asked.scale), 2, 2)
        assert 0.75 < loss <= 1 + 1e-9
    # Controls: noise for one round less, and queries that the scale does not allow.
    assert transcript_losses(np.asarray(asked.values), float(asked.scale), 2, 1) > 1.5
    assert transcript_losses(QUERIES, 0.4, 2, 2) > 1.2


@pytest.mark.slow
def test_measurements_and_selections_follow_their_distributions(x64):
    """One round from the inside, at three rounds' scale: 2cT for the noise, exponents over 4cT."""
    draws, rounds, x = 20_000, 3, np.array([3.0, 0.0, 1.0])
    queries = LipschitzQueries(jnp.asarray(QUERIES), jnp.asarray(0.2))
    y = np.array([0.5, 1.5, 2.0])

    @jax.jit
    def one_round(key):
        problem = module._problem(single(jnp.asarray(x)), jnp.asarray(4.0), queries, rounds)
        drawn = words(key, (draws, 5))
        chosen = module._select(drawn, problem, jnp.asarray(y)[None])
        return chosen, *module._measure(drawn, problem, chosen)

    chosen, query, measured = (np.asarray(out) for out in one_round(jax.random.key(3)))
    np.testing.assert_array_equal(query, QUERIES[chosen])
    exact = softmax(np.abs(QUERIES @ (y - x)) / (4 * 0.2 * rounds))
    np.testing.assert_allclose(
        selection_distribution(x, y, queries, rounds=rounds).probabilities(), exact, rtol=1e-12
    )
    statistics.assert_counts_follow(np.bincount(chosen, minlength=3), exact)
    statistics.assert_counts_rejected(
        np.bincount(chosen, minlength=3), softmax(np.abs(QUERIES @ (y - x)) / (4 * 0.2 * 2))
    )

    def cdf(z, scale):
        return np.where(z < 0, np.exp(-np.abs(z) / scale) / 2, 1 - np.exp(-np.abs(z) / scale) / 2)

    noise = measured[:, 0] - QUERIES[chosen] @ x
    statistics.assert_follows(noise, partial(cdf, scale=2 * 0.2 * rounds))
    statistics.assert_rejected(noise, partial(cdf, scale=2 * 0.2 * (rounds - 1)))


def universe(seed=0, size=12, queries=15, records=2000, epsilon=80.0):
    random = np.random.default_rng(seed)
    points = random.uniform(size=(size, 2))
    metric = from_points(points, epsilon=epsilon)
    asked = random.uniform(size=(queries, size))
    x = random.multinomial(records, random.dirichlet(np.full(size, 0.2)), size=3).astype(float)
    return metric, asked, x


@pytest.mark.slow
def test_the_repaired_update_learns_and_the_printed_one_unlearns(x64):
    metric, asked, x = universe()
    queries = lipschitz_queries(asked, metric)
    scale, n, rounds = float(queries.scale), x[0].sum(), 10
    assert 0.05 < scale < 0.5

    def error(y):
        return np.abs((y - x) @ asked.T).max(-1) / n

    uniform = error(np.full(x.shape, n / x.shape[-1]))
    printed = error(np.array([plain(row, asked, scale, rounds, "printed") for row in x]))
    repaired = error(np.array([plain(row, asked, scale, rounds, "repaired") for row in x]))
    assert (printed > uniform).all()
    assert (repaired < 0.9 * uniform).all()

    drawn = error(np.asarray(mwem(jax.random.key(0), x, queries, rounds=rounds, shape=(200,))))
    assert drawn.shape == (200, 3)
    assert (drawn.mean(0) < 0.97 * uniform).all()
    # The same mean error as the plain algorithm, within five standard errors.
    random = np.random.default_rng(1)
    oracle = np.array(
        [
            error(np.array([plain(row, asked, scale, rounds, "repaired", random) for row in x]))
            for _ in range(100)
        ]
    )
    spread = np.hypot(drawn.std(0) / np.sqrt(200), oracle.std(0) / np.sqrt(100))
    assert (np.abs(drawn.mean(0) - oracle.mean(0)) < 5 * spread).all()


@pytest.mark.slow
def test_the_last_histogram_and_more_passes_are_better(x64):
    metric, asked, x = universe()
    queries = lipschitz_queries(asked, metric)

    def error(**options):
        y = np.asarray(mwem(jax.random.key(0), x, queries, rounds=10, shape=(200,), **options))
        np.testing.assert_allclose(y.sum(-1), x[0].sum(), rtol=1e-12)
        assert (y >= 0).all()
        return np.abs((y - x) @ asked.T).max(-1).mean(0)

    average, last, passes = error(), error(output="last"), error(output="last", passes=4)
    assert (last < average).all()
    assert (passes < 0.7 * average).all()


@pytest.mark.slow
def test_the_bound_of_theorem_8_holds(x64):
    metric, asked, x = universe(records=10**6, epsilon=300.0)
    for queries in (
        lipschitz_queries(asked, metric),
        lipschitz_envelope(asked, metric, scale=0.01),
    ):
        facts = {"num_elements": 12, "num_queries": 15, "scale": float(queries.scale)}
        rounds = min(mwem_rounds(10**6, **facts), 60)
        limit = mwem_error(
            10**6, rounds=rounds, failure=0.05, mismatch=float(mismatch(asked, queries)), **facts
        )
        y = mwem(jax.random.key(1), x, queries, rounds=rounds, shape=(200,))
        errors = np.abs(np.asarray(queries.answers(y)) - x @ asked.T).max(-1)
        assert limit < 10**6  # says something
        assert (errors > limit).mean(0).max() <= 0.05


@pytest.mark.slow
def test_one_round_tells_what_it_measured(x64):
    """y^1 holds the selected query and its measurement, which have the exact distributions; the
    average is y^0, uniform.
    """
    # Each moves y in another direction
    asked = np.array([[1.0, 0.3, -0.2], [0.5, -0.2, 0.4], [0.0, 1.0, 0.1]])
    queries = LipschitzQueries(jnp.asarray(asked), jnp.asarray(0.3))
    x, n = ROWS[5], 4.0
    y = np.asarray(mwem(jax.random.key(9), x, queries, rounds=1, shape=(20_000,), output="last"))
    logs = np.log(y)
    steps = [(asked[k, 0] - asked[k, 1], asked[k, 0] - asked[k, 2]) for k in range(3)]
    change = np.stack([logs[:, 0] - logs[:, 1], logs[:, 0] - logs[:, 2]], axis=-1)
    off = np.stack(
        [np.abs(change[:, 0] * b - change[:, 1] * a) for a, b in steps], axis=-1
    ) / np.linalg.norm(steps, axis=-1)
    chosen = off.argmin(-1)
    exact = softmax(np.abs(asked @ (n / 3 - x)) / (4 * 0.3))
    statistics.assert_counts_follow(np.bincount(chosen, minlength=3), exact)
    slope = np.array([b for _, b in steps])[chosen]
    noise = change[:, 1] / slope * 2 * n + asked[chosen] @ np.full(3, n / 3) - asked[chosen] @ x
    statistics.assert_follows(
        noise,
        lambda z: np.where(z < 0, np.exp(-np.abs(z) / 0.6) / 2, 1 - np.exp(-np.abs(z) / 0.6) / 2),
    )
    np.testing.assert_allclose(mwem(jax.random.key(9), x, queries, rounds=1), n / 3, rtol=1e-14)


@pytest.mark.slow
def test_shapes_rows_and_hostile_counts(x64):
    metric, asked, x = universe()
    queries = lipschitz_queries(asked, metric * np.array([1.0, 2.0])[:, None])
    assert queries.batch_shape == (2, 1)
    y = mwem(jax.random.key(0), x, queries, rounds=4, shape=(5,), output="last")
    assert y.shape == (5, 2, 3, 12)
    assert len({tuple(np.round(row, 6)) for row in np.asarray(y).reshape(-1, 12)}) == 30
    # A row's draws do not depend on the rows after it.
    some = mwem(jax.random.key(0), x[:2], queries, rounds=4, shape=(5,), output="last")
    np.testing.assert_allclose(some, y[:, :, :2], rtol=1e-9)
    bad, zero = x.copy(), x.copy()
    bad[:, :3], zero[:, :3] = [np.nan, -1.0, np.inf], 0
    bad[2], zero[2] = np.nan, 0
    found, expected = (
        mwem(jax.random.key(0), counts, queries, rounds=4, shape=(5,), output="last")
        for counts in (bad, zero)
    )
    np.testing.assert_array_equal(found, expected)
    assert np.isfinite(found).all()
    wide = LipschitzQueries(
        queries.values[None] * np.array([1.0, 2.0])[:, None, None], queries.scale[0]
    )
    assert np.isnan(mwem(jax.random.key(0), x[0], wide, rounds=2)).all(-1).tolist() == [False, True]
    assert mwem(jax.random.key(0), x, queries, rounds=4, shape=(0,)).shape == (0, 2, 3, 12)
    low = mwem(
        jax.random.key(0),
        x.astype(np.float32),
        lipschitz_queries(
            asked.astype(np.float32), from_budgets(np.asarray(metric.budgets, np.float32))
        ),
        rounds=4,
        output="last",
    )
    assert low.dtype == np.float32
    np.testing.assert_allclose(low.sum(-1), 2000, rtol=1e-5)


@pytest.mark.slow
def test_the_null_record(x64):
    metric = from_budgets(BUDGETS).with_absence(1.0)
    queries = lipschitz_queries(QUERIES, metric)
    y = mwem(jax.random.key(0), ROWS, queries, rounds=3, public_n=10.0, output="last")
    assert y.shape == (len(ROWS), 4)
    np.testing.assert_allclose(y.sum(-1), 10.0, rtol=1e-12)
    assert mwem.guarantee(queries, metric).guarantee(
        neighbors="add_remove"
    ).epsilon == pytest.approx(1.0)


def test_errors_and_guarantee(x64):
    metric = from_budgets(BUDGETS)
    queries = lipschitz_queries(QUERIES, metric)
    promised = mwem.guarantee(queries, metric).guarantee(neighbors="swap")
    assert promised.epsilon == pytest.approx(1.2)
    assert promised.bounded_range == pytest.approx(2.4)
    key, x = jax.random.key(0), ROWS[0]
    for call, match in (
        (lambda: mwem(key, x, queries, rounds=0), "rounds"),
        (lambda: mwem(key, x, queries, rounds=2, passes=1.5), "passes"),
        (lambda: mwem(key, x, queries, rounds=2, output="best"), "output"),
        (lambda: mwem(key, x[:2], queries, rounds=2), "x must count 3 elements"),
        (lambda: mwem(key, x, lipschitz_queries(2 * QUERIES, metric), rounds=2), r"in \[-1, 1\]"),
        (
            lambda: mwem(key, x, lipschitz_queries(QUERIES, metric.with_absence(1.0)), rounds=2),
            "n is private",
        ),
        (
            lambda: mwem.guarantee(LipschitzQueries(queries.values, queries.scale / 2), metric),
            "got 2 times that",
        ),
    ):
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(TypeError, match="key"):
        mwem(0, x, queries, rounds=2)


def test_rounds_that_depend_on_answers_have_twice_the_budget_as_range(x64):
    """Histories of selections and measurements, by the formulas of the module: the first
    measurement decides what later selections tell, so that half of the budget, that of selections,
    counts twice.
    """
    values = np.array([[-1.0, 1] + 10 * [1] + 10 * [-1], [1.0, -1] + 10 * [0.3] + 10 * [-0.3]])
    elements, n, rounds = 22, 4000, 8
    metric = from_budgets(np.ones((elements, elements)) - np.eye(elements))
    queries = lipschitz_queries(values, metric)
    values, c = np.asarray(queries.values), float(queries.scale)
    x = np.zeros(elements)
    x[:2] = n / 2
    moved = x.copy()
    moved[:2] += [-1, 1]

    def loss(history):
        y, total = np.full(elements, n / elements), 0.0
        for query, measured in history:
            logits = [np.abs(values @ y - values @ data) / (4 * c * rounds) for data in (x, moved)]
            own, other = (each - np.logaddexp.reduce(each) for each in logits)
            answers = values[query] @ x, values[query] @ moved
            at = {"high": max(answers), "low": min(answers)}.get(measured, measured)
            total += other[query] - own[query]
            total += (abs(at - answers[0]) - abs(at - answers[1])) / (2 * c * rounds)
            y = y * np.exp(values[query] * (at - values[query] @ y) / (2 * n))
            y *= n / y.sum()
        return total

    far = 20.0 * n
    spread = loss([(0, far)] + [(1, "low")] * (rounds - 1)) - loss(
        [(0, -far)] + [(1, "high")] * (rounds - 1)
    )
    promised = mwem.guarantee(queries, metric).guarantee(neighbors="swap")
    assert 1.5 * promised.epsilon < spread <= promised.bounded_range  # 3/2 would be too little
