"""MWEM: its privacy by an exact audit of transcripts, its draws against exact distributions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy import (
    LipschitzQueries,
    from_budgets,
    from_points,
    lipschitz_queries,
    mwem,
)
from dpjax.metric_privacy._multiplicative_weights import selection
from tests.support.histograms import histograms, moves
from tests.support.statistics import (
    assert_counts_follow,
    assert_counts_rejected,
    assert_follows,
    assert_rejected,
)

BUDGETS = np.array([[0.0, 0.7, 1.2], [0.7, 0.0, 0.9], [1.2, 0.9, 0.0]])
QUERIES = np.array([[1.0, 0.3, -0.2], [-0.5, 0.2, 0.7], [0.0, 1.0, 0.1]])
ROWS = histograms(3, 4)


def softmax(logs):
    weights = np.exp(logs - logs.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@jax.jit
def selections(answers, y, values, noise):
    return selection(answers, y, values, noise).log_probabilities()


def transcript_loss(values, scale, budget_rounds):
    """The largest log-ratio over d(i, j) of two rounds' selections and measurements, over a grid of
    measurements.

    The distributions are those for ``budget_rounds`` rounds; the synthetic histogram of the second
    round follows from the first.
    """
    a, b, i, j = moves(ROWS)
    grid = np.array([-60.0, -1.0, 0.4, 2.0, 60.0])
    n, noise = ROWS[0].sum(), 2 * scale * budget_rounds
    start = np.full(3, n / 3)
    k, at = np.indices((len(values), len(grid))).reshape(2, -1)
    off = grid[at] - values[k] @ start
    after = n * softmax(values[k] * off[:, None] / (2 * n))
    histories = np.concatenate([start[None], after])[:, None]
    select = np.asarray(selections(ROWS @ values.T, histories, values, noise))  # (.., rows, K)
    measure = -np.abs(grid[:, None, None] - ROWS @ values.T) / noise
    one = select[0].T[k] + measure[at, :, k]  # (histories, rows)
    density = one[:, None, :, None] + select[1:, None] + measure
    return (np.abs(density[:, :, a] - density[:, :, b]).max((0, 1, 3)) / BUDGETS[i, j]).max()


def test_transcripts_are_private(x64):
    metric = from_budgets(BUDGETS)
    for asked in (
        lipschitz_queries(QUERIES, metric),
        lipschitz_queries(QUERIES, metric, scale=0.4),
    ):
        loss = transcript_loss(np.asarray(asked.values), float(asked.scale), 2)
        assert 0.75 < loss <= 1 + 1e-9
    # Controls: noise for one round less, and queries that the scale does not allow.
    assert transcript_loss(np.asarray(asked.values), float(asked.scale), 1) > 1.5
    assert transcript_loss(QUERIES, 0.4, 2) > 1.2


DIRECTIONS = np.array([[1.0, 0.3, -0.2], [0.5, -0.2, 0.4], [0.0, 1.0, 0.1]])


def told(before, after, n):
    """The query and the measurement that an update tells: each moves the histogram another way."""
    change = np.log(after) - np.log(before)
    change = change[:, :1] - change[:, 1:]
    steps = DIRECTIONS[:, :1] - DIRECTIONS[:, 1:]
    across = change[:, None, 0] * steps[:, 1] - change[:, None, 1] * steps[:, 0]
    chosen = np.abs(across / np.linalg.norm(steps, axis=-1)).argmin(-1)
    found = (DIRECTIONS[chosen] * before).sum(-1)
    return chosen, change[:, 1] / steps[chosen, 1] * 2 * n + found


def laplace_cdf(z):
    return np.where(z < 0, np.exp(-np.abs(z)) / 2, 1 - np.exp(-np.abs(z)) / 2)


def test_both_rounds_tell_what_the_exact_distributions_have(x64):
    """Of two rounds the average tells the first histogram, and the last the second: they hold the
    selected queries and their measurements, of exponents over 4cT and noise 2cT.
    """
    x, n, c, rounds = np.array([3.0, 0.0, 1.0]), 4.0, 0.3, 2
    rows = np.stack([x, x])  # two rows, with noise of their own
    queries = LipschitzQueries(jnp.asarray(DIRECTIONS), jnp.asarray(c))

    @jax.jit
    def drawn(key):
        draw = partial(mwem, key, rows, queries, rounds=rounds, shape=(10_000,))
        return draw(), draw(output="last")

    average, last = (np.asarray(y).reshape(-1, 3) for y in drawn(jax.random.key(9)))
    assert len(np.unique(last, axis=0)) == 20_000
    start = np.full((20_000, 3), n / 3)
    first, above = 2 * average - start, []
    for before, after in ((start, first), (first, last)):
        chosen, measured = told(before, after, n)
        misses = np.abs((before - x) @ DIRECTIONS.T)
        counts = np.bincount(chosen, minlength=3)
        assert_counts_follow(counts, softmax(misses / (4 * c * rounds)).mean(0))
        assert_counts_rejected(counts, softmax(misses / (4 * c * 1)).mean(0))
        noise = (measured - DIRECTIONS[chosen] @ x) / (2 * c * rounds)
        assert_follows(noise, laplace_cdf)
        assert_rejected(noise * 1.2, laplace_cdf)
        above.append(noise > 0)
    # Each round has words of its own.
    assert_counts_follow(np.bincount(above[0] == above[1], minlength=2), [0.5, 0.5])


@pytest.mark.slow
def test_rounds_learn(x64):
    """The last histogram is better than their average, and more passes than one."""
    n, random = 2000, np.random.default_rng(0)
    metric = from_points(random.uniform(size=(12, 2)), epsilon=80.0)
    asked = random.uniform(size=(15, 12))
    x = random.multinomial(n, random.dirichlet(np.full(12, 0.2)))
    queries = lipschitz_queries(asked, metric)

    def error(y):
        return np.mean(np.abs((np.asarray(y) - x) @ asked.T).max(-1)) / n

    draw = partial(mwem, jax.random.key(0), x, queries, rounds=10, shape=(200,))
    average, last, passes = (
        error(y) for y in (draw(), draw(output="last"), draw(output="last", passes=4))
    )
    assert last < average < 0.97 * error(np.full(12, n / 12))
    assert passes < 0.7 * average
