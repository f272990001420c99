"""The queries that a universe's budgets allow: the envelope is the best at its scale, and the scale
is the best of all.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy.lipschitz import (
    LipschitzQueries,
    fit_lipschitz_queries,
    lipschitz_envelope,
    lipschitz_queries,
    mismatch,
    overspent,
    unit_price,
)
from dpjax.metric_privacy.metrics import from_budgets
from dpjax.metric_privacy.points import from_points, point_metric

COUNT, K, N = 300, 3, 7


def instances():
    """Universes and queries with ties, duplicate points, missing pairs, broken triangles and pairs
    without any budget.
    """
    random = np.random.default_rng(1)
    points = random.uniform(0, 10, (COUNT, N, 2))
    points[::5, 1] = points[::5, 0] + 1e-3
    queries = random.uniform(size=(COUNT, K, N))
    queries[1::4] = np.round(queries[1::4])
    budgets = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
    far = budgets > 7
    budgets[2::5] = np.where(far, np.inf, budgets)[2::5]
    budgets[3::5] = np.sqrt(budgets[3::5]) * random.uniform(0.2, 1, (N, N))
    budgets = np.minimum(budgets, np.swapaxes(budgets, -1, -2))
    budgets[4::5, 2, 3] = budgets[4::5, 3, 2] = 0.0
    return queries, budgets, np.exp(random.uniform(0, 12, COUNT))


def closed(budgets):
    budgets = budgets.copy()
    for k in range(budgets.shape[-1]):
        budgets = np.minimum(budgets, budgets[..., :, k : k + 1] + budgets[..., k : k + 1, :])
    return budgets


def needed(queries, budgets):
    """The closed form, a pair at a time: (..., )."""
    change = np.abs(queries[..., :, None] - queries[..., None, :]).max(axis=-3)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((change == 0) | np.isinf(budgets), 0.0, change / budgets).max(axis=(-1, -2))


def half_excess(queries, budgets, scale):
    """Half of the largest excess over the Lipschitz condition, by closed budgets."""
    change = np.abs(queries[..., :, None] - queries[..., None, :]).max(axis=-3)
    with np.errstate(invalid="ignore"):
        allowed = np.where(closed(budgets) == 0, 0.0, scale[..., None, None] * closed(budgets))
        allowed = np.where(np.isinf(budgets) & np.isinf(closed(budgets)), np.inf, allowed)
    return np.maximum(change - allowed, 0).max(axis=(-1, -2)) / 2


def test_closed_form(x64):
    queries, budgets, _ = instances()
    found = lipschitz_queries(queries, from_budgets(budgets))
    np.testing.assert_allclose(found.scale, needed(queries, budgets), rtol=1e-14)
    assert np.isinf(found.scale).any()
    assert (mismatch(queries, found) == 0).all()
    load = np.asarray(overspent(found, from_budgets(budgets)))
    finite = np.isfinite(np.asarray(found.scale))
    assert (load[finite] <= 1).all()
    assert (load[finite] > 1 - 1e-14).all()


def test_no_function_is_closer_than_the_envelope(x64):
    queries, budgets, _ = instances()
    scale = np.geomspace(1e-3, 10, COUNT)
    found = lipschitz_envelope(queries, from_budgets(budgets), scale=scale)
    np.testing.assert_allclose(
        mismatch(queries, found), half_excess(queries, budgets, scale), rtol=1e-12, atol=1e-14
    )
    # Rounding counts most where budgets are small
    np.testing.assert_allclose(found.scale, scale, rtol=1e-9)
    assert (np.asarray(overspent(found, from_budgets(budgets))) <= 1).all()
    values = np.asarray(found.values)
    assert (values.min(-1) >= queries.min(-1)).all()
    assert (values.max(-1) <= queries.max(-1)).all()
    np.testing.assert_array_equal(values[4::5, :, 2], values[4::5, :, 3])
    # One envelope alone is twice as far off.
    upper = (
        queries[..., None, :] + (scale[:, None, None] * np.minimum(closed(budgets), 1e300))[:, None]
    ).min(-1)
    off = half_excess(queries, budgets, scale)
    np.testing.assert_allclose(
        np.abs(queries - upper).max((-1, -2))[off > 1e-9], 2 * off[off > 1e-9], rtol=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("price", ["small_db", "mwem"])
def test_no_scale_is_better_than_the_fitted_one(price, x64):
    queries, budgets, n = instances()
    metric = from_budgets(budgets)
    fitted = fit_lipschitz_queries(queries, metric, num_records=n, price=price)
    assert (np.asarray(overspent(fitted, metric)) <= 1).all()
    factor = unit_price(price, N, K, 0.05)

    def objective(mismatch, scale):
        return n * mismatch + factor * np.cbrt(scale * n**2)

    # A scale of 0 is used at its rounded value; the objective speaks of 0.
    scale = np.asarray(fitted.scale)
    scale = np.where(scale < 1e-7, 0.0, scale)
    best = objective(np.asarray(mismatch(queries, fitted)), scale)
    np.testing.assert_allclose(
        mismatch(queries, fitted), half_excess(queries, budgets, scale), rtol=1e-9, atol=1e-12
    )
    least = needed(queries, budgets)
    with np.errstate(invalid="ignore"):
        assert (
            best <= np.where(np.isinf(least), np.inf, objective(0.0, least)) * (1 + 1e-12)
        ).all()
    at_most = np.where(np.isinf(least), 100.0, least)
    for share in np.concatenate([[0.0], np.geomspace(1e-6, 1, 400)]):
        there = objective(half_excess(queries, budgets, at_most * share), at_most * share)
        assert (best <= there * (1 + 1e-9)).all()
    as_given = np.all(np.asarray(fitted.values) == queries, axis=(-1, -2))
    constant = scale == 0
    # All three kinds of answers occur
    assert min(as_given.sum(), constant.sum(), (~as_given & ~constant).sum()) >= 10


@pytest.mark.slow
def test_the_null_record_and_points(x64):
    points = [[0.0], [1.0], [4.0]]
    metric = from_points(points, epsilon=1.0).with_absence(2.0)
    found = lipschitz_queries([[1.0, 1.0, 1.0]], metric)  # a count of all records
    assert float(found.scale) == pytest.approx(0.5, rel=1e-12)
    assert found.neighbors == "add_remove"
    assert found.values.shape == (1, 4)
    alone = lipschitz_queries([[1.0, 1.0, 1.0]], from_points(points, epsilon=1.0))
    # Free, but for rounding, where n is public
    assert float(alone.scale) == pytest.approx(2.0**-26, rel=1e-12)
    fitted = fit_lipschitz_queries([[0.0, 1.0, 1.0]], metric, num_records=50, price=0.5)
    assert float(overspent(fitted, metric)) <= 1
    assert fitted.values.shape == (1, 4)
    for function in (
        lambda m: lipschitz_queries([[0.0, 1.0, 0.2]], m),
        lambda m: lipschitz_envelope([[0.0, 1.0, 0.2]], m, scale=0.3),
        lambda m: fit_lipschitz_queries([[0.0, 1.0, 0.2]], m, num_records=100, price="mwem"),
    ):
        for one, other in zip(
            jax.tree.leaves(function(point_metric(points, epsilon=0.7))),
            jax.tree.leaves(function(from_points(points, epsilon=0.7))),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_errors(x64):
    metric = from_budgets([[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="shape"):
        lipschitz_queries([0.0, 1.0], metric)
    with pytest.raises(ValueError, match="finite"):
        lipschitz_queries([[0.0, np.nan]], metric)
    with pytest.raises(ValueError, match="2"):
        lipschitz_queries([[0.0, 1.0, 2.0]], metric)
    with pytest.raises(ValueError, match="scale"):
        lipschitz_envelope([[0.0, 1.0]], metric, scale=0.0)
    with pytest.raises(ValueError, match="price"):
        fit_lipschitz_queries([[0.0, 1.0]], metric, num_records=5, price="laplace")
    with pytest.raises(ValueError, match="failure"):
        fit_lipschitz_queries([[0.0, 1.0]], metric, num_records=5, price="small_db", failure=1.0)
    with pytest.raises(ValueError, match="num_records"):
        fit_lipschitz_queries([[0.0, 1.0]], metric, num_records=0, price="small_db")
    with pytest.raises(ValueError, match=r"\[-1, 1\]"):
        fit_lipschitz_queries([[0.0, 2.0]], metric, num_records=5, price="mwem")
    with pytest.raises(ValueError, match="same elements and neighbors"):
        overspent(LipschitzQueries(jnp.zeros((1, 3)), jnp.ones(())), metric)
    assert fit_lipschitz_queries(
        [[0.0, 1.0]], metric, num_records=5, price=np.ones(2)
    ).batch_shape == (2,)
    bad = lipschitz_queries(jnp.array([[[0.0, jnp.nan]], [[0.0, 1.0]]]), metric)
    assert np.isnan(bad.scale).tolist() == [True, False]
