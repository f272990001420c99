"""The queries that a universe's budgets allow: the envelope is the best at its scale, and the scale
is the best of all.
"""

import jax
import numpy as np
import pytest

from dpjax.metric_privacy import (
    fit_lipschitz_queries,
    from_budgets,
    from_points,
    lipschitz_envelope,
    lipschitz_queries,
    mismatch,
)
from tests.metric_privacy.instances import shortest_paths

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
    budgets[2::5] = np.where(budgets > 7, np.inf, budgets)[2::5]
    budgets[3::5] = np.sqrt(budgets[3::5]) * random.uniform(0.2, 1, (N, N))
    budgets = np.minimum(budgets, np.swapaxes(budgets, -1, -2))
    budgets[4::5, 2, 3] = budgets[4::5, 3, 2] = 0.0
    return queries, budgets, np.exp(random.uniform(0, 12, COUNT))


def needed(queries, budgets):
    """The closed form: the largest change of any query over the budget."""
    change = np.abs(queries[..., :, None] - queries[..., None, :]).max(axis=-3)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((change == 0) | np.isinf(budgets), 0.0, change / budgets).max(axis=(-1, -2))


def half_excess(queries, budgets, scale):
    """Half of the largest excess over the Lipschitz condition, by closed budgets."""
    change = np.abs(queries[..., :, None] - queries[..., None, :]).max(axis=-3)
    paths = shortest_paths(budgets)
    with np.errstate(invalid="ignore"):
        allowed = np.where(paths == 0, 0.0, scale[..., None, None] * paths)
        allowed = np.where(np.isinf(budgets) & np.isinf(paths), np.inf, allowed)
    return np.maximum(change - allowed, 0).max(axis=(-1, -2)) / 2


@jax.jit
def asked(queries, budgets, scale):
    """The closed form and the envelope, with their mismatches."""
    metric = from_budgets(budgets)
    both = lipschitz_queries(queries, metric), lipschitz_envelope(queries, metric, scale=scale)
    return [(found.values, found.scale, mismatch(queries, found)) for found in both]


def test_closed_form(x64):
    queries, budgets, scale = instances()
    values, found, off = asked(queries, budgets, scale)[0]
    expected = needed(queries, budgets)
    np.testing.assert_array_equal(values, queries)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert (np.asarray(found) >= expected).all()
    assert np.isinf(expected).any()
    assert (np.asarray(off) == 0).all()


def test_no_function_is_closer_than_the_envelope(x64):
    queries, budgets, _ = instances()
    scale = np.geomspace(1e-3, 10, COUNT)
    values, found, off = (np.asarray(part) for part in asked(queries, budgets, scale)[1])
    best = half_excess(queries, budgets, scale)
    np.testing.assert_allclose(off, best, rtol=1e-12, atol=1e-14)
    # Rounding counts most where budgets are small
    np.testing.assert_allclose(found, scale, rtol=1e-9)
    assert (needed(values, budgets) <= found).all()
    assert (values.min(-1) >= queries.min(-1)).all()
    assert (values.max(-1) <= queries.max(-1)).all()
    np.testing.assert_array_equal(values[4::5, :, 2], values[4::5, :, 3])
    # One envelope alone is twice as far off.
    reach = scale[:, None, None] * np.minimum(shortest_paths(budgets), 1e300)
    upper = (queries[..., None, :] + reach[:, None]).min(-1)
    far = np.abs(queries - upper).max((-1, -2))
    np.testing.assert_allclose(far[best > 1e-9], 2 * best[best > 1e-9], rtol=1e-9)


# Of Theorems 6 and 8, for a failure of 0.05 and each query's choices of a small database
FACTORS = {
    "small_db": (16 * np.log(N) * np.log(K) + 4 * np.log(N) + 4 * np.log(20)) ** (1 / 3),
    "mwem": 20 / 5 ** (2 / 3) * (np.log(N) * np.log(K)) ** (1 / 3),
}


@pytest.mark.parametrize("price", FACTORS)
def test_no_scale_is_better_than_the_fitted_one(price, x64):
    queries, budgets, n = instances()
    fitted = fit_lipschitz_queries(queries, from_budgets(budgets), num_records=n, price=price)
    values, scale = np.asarray(fitted.values), np.asarray(fitted.scale)
    assert (needed(values, budgets) <= scale).all()

    def objective(mismatch, scale):
        return n * mismatch + FACTORS[price] * np.cbrt(scale * n**2)

    # A scale of 0 is used at its rounded value; the objective speaks of 0.
    scale = np.where(scale < 1e-7, 0.0, scale)
    off = np.abs(values - queries).max((-1, -2))
    best = objective(off, scale)
    np.testing.assert_allclose(off, half_excess(queries, budgets, scale), rtol=1e-9, atol=1e-12)
    least = needed(queries, budgets)
    at_most = np.where(np.isinf(least), 100.0, least)
    for share in np.concatenate([[0.0], np.geomspace(1e-6, 1, 100)]):
        there = objective(half_excess(queries, budgets, at_most * share), at_most * share)
        assert (best <= there * (1 + 1e-9)).all()
    as_given, constant = (values == queries).all(axis=(-1, -2)), scale == 0
    # All three kinds of answers occur
    assert min(as_given.sum(), constant.sum(), (~as_given & ~constant).sum()) >= 10


def test_with_the_null_record_a_count_of_all_records_has_a_price(x64):
    known, everyone = from_points([[0.0], [1.0], [4.0]], epsilon=1.0), [[1.0, 1.0, 1.0]]
    found = lipschitz_queries(everyone, known.with_absence(2.0))
    assert float(found.scale) == pytest.approx(0.5, rel=1e-12)
    assert found.neighbors == "add_remove"
    assert found.values.tolist() == [[1.0, 1.0, 1.0, 0.0]]
    # Free, but for rounding, where n is public
    assert float(lipschitz_queries(everyone, known).scale) == pytest.approx(2.0**-26, rel=1e-12)
