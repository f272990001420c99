"""The report of a validation, against loops over all triples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy.metrics import uniform
from dpjax.metric_privacy.points import from_points, point_metric
from dpjax.metric_privacy.validation import validate


def triples(budgets, tolerance=1e-12):
    """All violations i < j, k as (excess, -detour, i, j, k)."""
    size = len(budgets)
    found = []
    for i in range(size):
        for j in range(i + 1, size):
            for k in range(size):
                detour = budgets[i, k] + budgets[k, j]
                if budgets[i, j] > detour * (1 + tolerance):
                    found.append((budgets[i, j] - detour, -detour, i, j, k))
    return found


@pytest.mark.slow
def test_against_loops(x64):
    rng = np.random.default_rng(2)
    batch = rng.exponential(size=(30, 9, 9)) * rng.choice(
        [0.0, 1.0, np.inf], (30, 9, 9), p=[0.05, 0.9, 0.05]
    )
    batch = np.where(np.isnan(batch), np.inf, batch)
    batch = np.minimum(batch, np.swapaxes(batch, -1, -2))
    batch[:, range(9), range(9)] = 0
    batch[20:] = np.asarray(from_points(rng.normal(size=(10, 9, 2)), epsilon=1).budgets)
    whole = validate(batch)
    report, excesses, metrics = jax.device_get((whole, whole.excess, whole.is_metric))
    for b, budgets in enumerate(batch):
        found = triples(budgets)
        assert int(report.violations[b]) == len(found)
        assert bool(metrics[b]) == (not found)
        if found:
            excess, detour, *_ = max(found)
            i, j, k = report.triple[b].tolist()
            assert report.direct[b] == budgets[i, j]
            assert report.detour[b] == budgets[i, k] + budgets[k, j] == -detour
            np.testing.assert_allclose(excesses[b], excess, rtol=1e-12)
        else:
            assert report.triple[b].tolist() == [-1, -1, -1]
            assert excesses[b] == 0
        above = budgets[np.triu_indices(9, 1)]
        assert (int(report.coincident[b]), int(report.unprotected[b])) == (
            np.sum(above == 0),
            np.sum(np.isinf(above)),
        )
        assert report.least[b] == above.min()
    assert 0 < metrics.sum() < 30
    assert str(whole) == f"reports on a batch of shape (30,): {metrics.sum()} are metrics"


def test_what_is_said():
    def on_three(one, other, diagonal=0.0, far=1.0):
        return validate([[0, one, far], [other, 0, far], [far, far, diagonal]])

    assert str(validate(uniform(3, epsilon=1))) == "a metric"
    assert str(on_three(0, 0)) == "a metric; 1 pairs are at distance 0"
    assert str(on_three(1, 1, far=np.inf)) == "a metric; 2 pairs are unprotected (inf)"
    assert str(on_three(1, 2)) == "no metric: d(i, j) and d(j, i) differ by up to 1"
    assert str(on_three(-1, -1, 2)).startswith(
        "no metric: d(i, i) is up to 2; the smallest budget is -1"
    )
    assert str(on_three(np.nan, np.nan)) == "no metric: NaN among the budgets"
    uneven = on_three(np.inf, 1)
    assert uneven.asymmetry == np.inf
    assert not bool(uneven.is_symmetric)
    told = str(validate([[0, np.inf, 1], [np.inf, 0, 2], [1, 2, 0]]))
    assert told.startswith(
        "no metric: d(0, 1) = inf > d(0, 2) + d(2, 1) = 3, the worst of 1 triangles"
    )


def test_rounding_is_no_violation():
    points = np.sort(np.random.default_rng(0).random((50, 3)).astype(np.float32))
    # Triangles without slack
    lines = np.abs(points[:, :, None] - points[:, None, :]) * np.float32(0.1)
    worst = lines[np.argmax(lines[:, 0, 2] - (lines[:, 0, 1] + lines[:, 1, 2]))]
    assert worst[0, 2] > worst[0, 1] + worst[1, 2]
    assert bool(validate(worst).is_metric)
    assert int(validate(worst, tolerance=0.0).violations) == 1
    worst[0, 2] = worst[2, 0] = worst[0, 2] * 1.0001
    assert not bool(validate(worst).is_metric)


@pytest.mark.slow
def test_hostile_matrices():
    with pytest.raises(ValueError, match="must be square"):
        validate([[0.0, 1.0]])
    with pytest.raises(ValueError, match="tolerance must be nonnegative"):
        validate([[0.0]], tolerance=-1.0)
    assert bool(validate(point_metric([[0.0], [3.0]], epsilon=1)).is_metric)
    batch = jnp.array([[[0, jnp.nan], [jnp.nan, 0]], [[0, 1.0], [1.0, 0]]])
    assert jax.jit(lambda b: validate(b).is_metric)(batch).tolist() == [False, True]


@pytest.mark.optimized
@pytest.mark.slow
def test_hundreds_of_points():
    metric = from_points(np.random.default_rng(0).random((300, 2)), epsilon=1)
    assert bool(validate(metric).is_metric)
    np.testing.assert_allclose(metric.closure().budgets, metric.budgets, rtol=1e-6)
    ends = metric.budgets.at[0, 1].set(100.0).at[1, 0].set(100.0)
    report = validate(ends)
    assert report.triple.tolist()[:2] == [0, 1]
    assert int(report.violations) == 298
