"""Blowfish and the smooth threshold on the universe of the golden numbers; the closure changes no
scale.
"""

import jax.numpy as jnp
import numpy as np

from dpjax.metric_privacy import (
    blowfish,
    from_budgets,
    from_points,
    point_metric,
    smooth_threshold,
    validate,
)
from tests.metric_privacy.golden import golden

UNIVERSE = np.random.default_rng(2020).uniform(0, 100, (50, 2))
LIMITS = np.array([2.0, 4.0, 8.0, 16.0])
APART = np.sqrt(np.sum((UNIVERSE[:, None] - UNIVERSE[None]) ** 2, axis=-1))


def scales(queries, budgets):
    """c = max |q_i - q_j| / d(i, j) over pairs that differ and have a finite budget, for queries
    (K, N).
    """
    difference = np.abs(queries[:, :, None] - queries[:, None, :])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((difference > 0) & np.isfinite(budgets), difference / budgets, 0.0)
    return ratio.max(axis=(1, 2))


def test_against_numpy_and_the_counts_on_record(x64):
    towns, limits = from_points(UNIVERSE, epsilon=1), LIMITS[:, None, None]
    policy = blowfish(towns, epsilon=0.5, threshold=LIMITS)
    smooth = smooth_threshold(towns, epsilon=0.5, threshold=LIMITS)
    off = ~np.eye(50, dtype=bool)
    expected = np.where(off, np.where(limits >= APART, 0.5, np.inf), 0.0)
    np.testing.assert_array_equal(policy.budgets, expected)
    np.testing.assert_allclose(
        smooth.budgets, 0.5 * np.maximum(1, APART / limits) * off, rtol=1e-14
    )
    closed = policy.closure()
    reports = [validate(metric) for metric in (policy, smooth, closed)]
    edges = 50 * 49 // 2 - np.asarray(reports[0].unprotected)
    # Ordered triples there, i < j here
    found = [edges, *((1 + (k == 0)) * np.asarray(r.violations) for k, r in enumerate(reports))]
    on_record = golden("D_thresholds")["thresholds"]
    for at, limit in enumerate(LIMITS):
        counts = on_record[str(int(limit))]
        for of, name in zip(found, ("edges", "tri_blow", "tri_smooth", "tri_closure"), strict=True):
            assert of[at] == counts[name], name
    # Steps of at most the threshold, each 0.5; elements that no steps join stay unprotected.
    steps = 2 * np.asarray(closed.budgets)
    assert np.isinf(steps[0]).any()
    np.testing.assert_array_equal(steps, np.round(steps))


def test_any_budgets_keep_their_scales_under_closure(x64):
    rng = np.random.default_rng(5)
    budgets = rng.exponential(size=(30, 9, 9)) ** 3
    budgets = np.minimum(budgets, np.swapaxes(budgets, -1, -2)) * ~np.eye(9, dtype=bool)
    budgets = np.where(budgets > 3, np.inf, budgets)
    closed = np.asarray(from_budgets(budgets).closure().budgets)
    assert np.all(np.asarray(validate(budgets).violations) > 0)
    assert not np.any(validate(closed).violations)
    queries = rng.normal(size=(20, 9))
    for before, after in zip(budgets, closed, strict=True):
        np.testing.assert_allclose(scales(queries, after), scales(queries, before), rtol=1e-12)
    # The control: below the closure it is another scale.
    assert scales(queries, closed[0] * 0.9)[0] > 1.1 * scales(queries, budgets[0])[0]


def test_rounding_leaves_no_pair_at_the_threshold_unprotected():
    """0.4 - 0.3 is a little more than 0.1, in both dtypes."""
    grid = np.arange(1, 8)[:, None] * 0.1
    for points in (grid, jnp.asarray(grid, jnp.float32)):
        distances = point_metric(points, epsilon=1.0)
        policy = blowfish(distances, epsilon=0.5, threshold=0.1)
        budgets = np.asarray(policy.rows(0, 7))
        np.testing.assert_array_equal(np.diag(budgets, 1), 0.5)
        assert np.isinf(np.diag(budgets, 2)).all()
    # Control: as they are, some are beyond it
    assert (np.diag(np.asarray(distances.rows(0, 7)), 1) > np.float32(0.1)).any()
