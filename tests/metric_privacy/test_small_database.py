"""SmallDB: golden probabilities, privacy over every histogram, and what the scaling to n records is
for.
"""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.bounds.metric_selection import small_db_alpha, small_db_bound, small_db_error
from dpjax.metric_privacy import small_databases, small_db, small_db_size
from dpjax.metric_privacy.lipschitz import (
    LipschitzQueries,
    fit_lipschitz_queries,
    lipschitz_envelope,
    lipschitz_queries,
)
from dpjax.metric_privacy.metrics import from_budgets
from tests.support.histograms import histograms, losses

GOLDEN = json.loads(
    (pathlib.Path(__file__).parent.parent / "golden" / "D2_small_db.json").read_text()
)["smalldb"]
BUDGETS, QUERIES, N, M = np.array(GOLDEN["d"]), np.array(GOLDEN["Q"]), GOLDEN["n"], GOLDEN["m"]
ROWS = histograms(3, N)


def queries():
    return lipschitz_queries(QUERIES, from_budgets(BUDGETS))


def as_printed(rows, scale):
    """Algorithm 1 without the scaling to n records: log-probabilities."""
    y = small_databases(3, M)
    miss = np.abs((rows @ QUERIES.T)[:, None] - (y @ QUERIES.T)[None]).max(-1)
    logs = -miss / (2 * scale)
    return logs - np.log(np.exp(logs).sum(-1, keepdims=True))


@pytest.mark.slow
def test_golden(x64):
    np.testing.assert_array_equal(small_databases(3, M), GOLDEN["R"])
    assert float(queries().scale) == pytest.approx(GOLDEN["c"], rel=1e-12)
    distribution = small_db(ROWS, queries(), size=M)
    own = ROWS.tolist().index(GOLDEN["x"])
    mass = np.asarray(distribution.probabilities())[own]
    np.testing.assert_allclose(mass, GOLDEN["probs_normalised"], rtol=1e-9)
    printed = as_printed(np.array([GOLDEN["x"]], float), GOLDEN["c"])[0]
    np.testing.assert_allclose(np.exp(printed), GOLDEN["probs_literal"], rtol=1e-9)
    errors = np.abs(np.array(GOLDEN["true"]) - N / M * small_databases(3, M) @ QUERIES.T).max(-1)
    unscaled = np.abs(np.array(GOLDEN["true"]) - small_databases(3, M) @ QUERIES.T).max(-1)
    assert mass @ errors == pytest.approx(1.92, abs=5e-3)
    assert np.exp(printed) @ unscaled == pytest.approx(2.67, abs=5e-3)
    assert (errors.min(), unscaled.min()) == (1.0, 2.0)


def test_privacy(x64):
    loss, spread = losses(small_db(ROWS, queries(), size=M).log_probabilities(), ROWS, BUDGETS)
    assert loss == pytest.approx(GOLDEN["max_loss_over_dX"]["True"], rel=1e-9)
    assert spread <= 1 + 1e-9
    printed, _ = losses(as_printed(ROWS, GOLDEN["c"]), ROWS, BUDGETS)
    assert printed == pytest.approx(GOLDEN["max_loss_over_dX"]["False"], rel=1e-9)
    # Half of the scale needs other queries.
    half = float(queries().scale) / 2
    other = lipschitz_envelope(QUERIES, from_budgets(BUDGETS), scale=half)
    loss, spread = losses(small_db(ROWS, other, size=M).log_probabilities(), ROWS, BUDGETS)
    assert 0.5 < loss <= spread <= 1 + 1e-9
    control = LipschitzQueries(queries().values, other.scale)
    assert losses(small_db(ROWS, control, size=M).log_probabilities(), ROWS, BUDGETS)[0] > 1.2


@pytest.mark.slow
def test_the_null_record_makes_n_private(x64):
    rows = np.concatenate([histograms(3, n) for n in range(5)])
    metric = from_budgets(BUDGETS).with_absence([0.5, 0.8, 1.0])
    whole = np.array(metric.budgets)
    padded = np.concatenate([rows, 4 - rows.sum(-1, keepdims=True)], axis=-1)
    loss, spread = losses(
        small_db(
            rows, lipschitz_queries(QUERIES, metric), size=M, public_n=4.0
        ).log_probabilities(),
        padded,
        whole,
    )
    assert max(loss, spread) <= 1 + 1e-9
    # Control: n/m from the data, at a scale that does not know of the null record.
    whole[:3, 3] = whole[3, :3] = 0.1
    assert losses(small_db(rows, queries(), size=M).log_probabilities(), padded, whole)[0] > 1.5


@pytest.mark.slow
def test_the_bounds_hold_exactly(x64):
    """Proposition 1 and Theorem 6, for every histogram: the probability of a larger error, by the
    exact distribution.
    """
    random = np.random.default_rng(0)
    n, failure = 30, 0.1
    asked = np.concatenate([QUERIES, random.uniform(size=(5, 3))])
    rows = histograms(3, n)[::7]
    metric = from_budgets(BUDGETS * 20)
    for fitted in (
        lipschitz_queries(asked, metric),
        fit_lipschitz_queries(asked, metric, num_records=n, price=0.1),
    ):
        values, c = np.asarray(fitted.values), float(fitted.scale)
        gap = np.abs(values - asked).max()
        facts = {"num_elements": 3, "num_queries": 8, "scale": c, "failure": failure}
        size = small_db_size(8, alpha=small_db_alpha(n, **facts) / 2)
        errors = np.abs(
            (rows @ asked.T)[:, None] - n / size * (small_databases(3, size) @ values.T)[None]
        ).max(-1)
        mass = np.asarray(small_db(rows, fitted, size=size).probabilities())
        sharp = small_db_error(n, size=size, mismatch=gap, **facts)
        bound = small_db_bound(n, mismatch=gap, **facts)
        for limit in (sharp, bound):
            assert ((mass * (errors > limit)).sum(-1) <= failure).all()
        assert sharp <= bound * (1 + 1e-12)
        assert (errors.min(-1) <= n * (gap + np.sqrt(np.log(16) / (2 * size)))).all()
        assert bound < n  # says something


def test_sizes():
    assert small_db_size(1, alpha=0.5) == 2
    assert small_db_size(100, alpha=0.1) == 461
    assert small_db_size(100, alpha=0.1, spread=2.0) == 1843
    for k in (1, 2, 3, 100):
        size = small_db_size(k, alpha=0.2)
        assert np.sqrt(np.log(2 * k) / (2 * size)) <= 0.2
    with pytest.raises(ValueError, match="alpha"):
        small_db_size(3, alpha=0.0)
    with pytest.raises(ValueError, match="num_queries"):
        small_db_size(0, alpha=1.0)


@pytest.mark.slow
def test_shapes_and_hostile_counts(x64):
    bad = np.array([[3.0, 1.0, np.nan], [3.0, 1.0, -2.0], [3.0, 1.0, np.inf], [0.0, 0.0, 0.0]])
    found = np.asarray(small_db(bad, queries(), size=M).probabilities())
    np.testing.assert_allclose(found[:3], np.tile(GOLDEN["probs_normalised"], (3, 1)), rtol=1e-9)
    assert np.isfinite(found).all()
    sweep = jax.jit(
        lambda e: small_db(
            ROWS, lipschitz_queries(QUERIES, from_budgets(BUDGETS) * e[:, None]), size=M
        )
    )(jnp.array([1.0, 9.0]))
    assert sweep.batch_shape == (2, len(ROWS))
    y = small_databases(3, M)[sweep.sample_index(jax.random.key(0), (50,))]
    assert y.shape == (50, 2, len(ROWS), 3)
    assert (y.sum(-1) == M).all()
    infeasible = LipschitzQueries(jnp.asarray(QUERIES), jnp.asarray(jnp.inf))
    assert np.isnan(small_db(bad, infeasible, size=M).probabilities()).all()


def test_errors_and_guarantee(x64):
    metric = from_budgets(BUDGETS)
    asked = lipschitz_queries(QUERIES, metric)
    promised = small_db.guarantee(asked, metric).guarantee(neighbors="swap")
    assert promised.epsilon == promised.bounded_range == pytest.approx(1.2)
    with pytest.raises(ValueError, match=r"got 1\.25 times that"):
        small_db.guarantee(LipschitzQueries(asked.values, asked.scale * 0.8), metric)
    with pytest.raises(ValueError, match="same elements and neighbors"):
        small_db.guarantee(asked, metric.with_absence(1.0))
    with pytest.raises(ValueError, match="batch"):
        small_db.guarantee(asked, metric * np.ones(2))
    with pytest.raises(TypeError, match="traced"):
        jax.jit(lambda c: small_db.guarantee(LipschitzQueries(asked.values, c), metric) and c)(1.0)
    with pytest.raises(ValueError, match="got 352716 databases of 10 records"):
        small_databases(12, 10)
    with pytest.raises(ValueError, match="size"):
        small_db(ROWS[0], asked, size=0)
    with pytest.raises(TypeError, match="takes a LipschitzQueries"):
        small_db(ROWS[0], QUERIES, size=2)
    with pytest.raises(ValueError, match="x must count 3 elements"):
        small_db([1.0, 2.0], asked, size=2)
    with pytest.raises(ValueError, match="n is private"):
        small_db(ROWS[0], lipschitz_queries(QUERIES, metric.with_absence(1.0)), size=2)
    with pytest.raises(ValueError, match="public_n"):
        small_db(ROWS[0], asked, size=2, public_n=-1.0)
