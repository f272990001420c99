"""SmallDB: golden probabilities, privacy over every histogram, and what the scaling to n records is
for.
"""

import jax
import numpy as np
import pytest

from dpjax import bounds
from dpjax.metric_privacy import (
    LipschitzQueries,
    fit_lipschitz_queries,
    from_budgets,
    lipschitz_queries,
    small_databases,
    small_db,
    small_db_size,
)
from tests.metric_privacy.golden import golden
from tests.support.histograms import histograms, losses

GOLDEN = golden("D2_small_db")["smalldb"]
BUDGETS, QUERIES, N, M = np.array(GOLDEN["d"]), np.array(GOLDEN["Q"]), GOLDEN["n"], GOLDEN["m"]
METRIC, ROWS = from_budgets(BUDGETS), histograms(3, N)


@jax.jit
def log_probabilities(asked):
    return small_db(ROWS, asked, size=M).log_probabilities()


def as_printed():
    """Algorithm 1 without the scaling to n records: log-probabilities."""
    miss = np.abs((ROWS @ QUERIES.T)[:, None] - small_databases(3, M) @ QUERIES.T).max(-1)
    logs = -miss / (2 * GOLDEN["c"])
    return logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True)


def test_golden(x64):
    databases, asked = small_databases(3, M), lipschitz_queries(QUERIES, METRIC)
    np.testing.assert_array_equal(databases, GOLDEN["R"])
    assert float(asked.scale) == pytest.approx(GOLDEN["c"], rel=1e-12)
    own = ROWS.tolist().index(GOLDEN["x"])
    mass, printed = (np.exp(logs[own]) for logs in (log_probabilities(asked), as_printed()))
    np.testing.assert_allclose(mass, GOLDEN["probs_normalised"], rtol=1e-9)
    np.testing.assert_allclose(printed, GOLDEN["probs_literal"], rtol=1e-9)
    for chosen, times, mean, least in ((mass, N / M, 1.92, 1.0), (printed, 1, 2.67, 2.0)):
        errors = np.abs(np.array(GOLDEN["true"]) - times * databases @ QUERIES.T).max(-1)
        assert chosen @ errors == pytest.approx(mean, abs=5e-3)
        assert errors.min() == least


def test_privacy(x64):
    asked = lipschitz_queries(QUERIES, METRIC)
    half = lipschitz_queries(QUERIES, METRIC, scale=float(asked.scale) / 2)
    loss, spread = losses(log_probabilities(asked), ROWS, BUDGETS)
    assert loss == pytest.approx(GOLDEN["max_loss_over_dX"]["True"], rel=1e-9)
    assert spread <= 1 + 1e-9
    printed, _ = losses(as_printed(), ROWS, BUDGETS)
    assert printed == pytest.approx(GOLDEN["max_loss_over_dX"]["False"], rel=1e-9)
    # Half of the scale needs other queries.
    loss, spread = losses(log_probabilities(half), ROWS, BUDGETS)
    assert 0.5 < loss <= spread <= 1 + 1e-9
    control = LipschitzQueries(asked.values, half.scale)
    assert losses(log_probabilities(control), ROWS, BUDGETS)[0] > 1.2


def test_the_null_record_makes_n_private(x64):
    rows = np.concatenate([histograms(3, n) for n in range(5)])
    metric = METRIC.with_absence([0.5, 0.8, 1.0])
    padded = np.concatenate([rows, 4 - rows.sum(-1, keepdims=True)], axis=-1)
    hidden, public = (lipschitz_queries(QUERIES, each) for each in (metric, METRIC))

    @jax.jit
    def both(hidden, public):
        found = small_db(rows, hidden, size=M, public_n=4.0), small_db(rows, public, size=M)
        return [distribution.log_probabilities() for distribution in found]

    private, control = both(hidden, public)
    assert max(losses(private, padded, metric.budgets)) <= 1 + 1e-9
    # Control: n/m from the data, at a scale that does not know of the null record.
    cheap = METRIC.with_absence(0.1).budgets
    assert losses(control, padded, cheap)[0] > 1.5


@pytest.mark.slow
def test_the_bounds_hold_exactly(x64):
    """Proposition 1 and Theorem 6, for every histogram: the probability of a larger error, by the
    exact distribution.
    """
    theorems, n, failure = bounds.metric, 30, 0.1
    asked = np.concatenate([QUERIES, np.random.default_rng(0).uniform(size=(5, 3))])
    rows, metric = histograms(3, n)[::7], from_budgets(BUDGETS * 20)
    fitted = fit_lipschitz_queries(asked, metric, num_records=n, price=0.1)
    values = np.asarray(fitted.values)
    gap = np.abs(values - asked).max()
    facts = {"num_elements": 3, "num_queries": 8, "scale": float(fitted.scale)}
    facts |= {"failure": failure, "mismatch": gap}
    size = small_db_size(8, alpha=(theorems.small_db_bound(n, **facts) / n - gap) / 2)
    answers = n / size * small_databases(3, size) @ values.T
    errors = np.abs((rows @ asked.T)[:, None] - answers[None]).max(-1)
    mass = np.asarray(small_db(rows, fitted, size=size).probabilities())
    sharp = theorems.small_db_error(n, size=size, **facts)
    assert sharp <= theorems.small_db_bound(n, **facts) * (1 + 1e-12) < n  # says something
    assert ((mass * (errors > sharp)).sum(-1) <= failure).all()
    assert (errors.min(-1) <= n * (gap + np.sqrt(np.log(16) / (2 * size)))).all()


def test_sizes():
    for k in (1, 2, 3, 100):
        size = small_db_size(k, alpha=0.2)
        assert np.sqrt(np.log(2 * k) / (2 * size)) <= 0.2
