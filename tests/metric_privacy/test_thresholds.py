"""Blowfish and the smooth threshold on the universe of the golden numbers; the closure changes no
scale.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy.coordinates import Points
from dpjax.metric_privacy.metrics import from_budgets
from dpjax.metric_privacy.points import from_points, point_metric
from dpjax.metric_privacy.thresholds import blowfish, smooth_threshold
from dpjax.metric_privacy.validation import validate
from tests.metric_privacy.golden import THRESHOLDS, UNIVERSE

LIMITS = np.array([2.0, 4.0, 8.0, 16.0])
APART = np.sqrt(np.sum((UNIVERSE[:, None] - UNIVERSE[None]) ** 2, axis=-1))


def scales(queries, budgets):
    """c = max |q_i - q_j| / d(i, j) over pairs that differ and have a finite budget, for queries
    (K, N).
    """
    difference = np.abs(queries[:, :, None] - queries[:, None, :])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.max(
            np.where((difference > 0) & np.isfinite(budgets), difference / budgets, 0.0),
            axis=(1, 2),
        )


@pytest.mark.slow
def test_against_numpy_and_the_counts_on_record(x64):
    policy = blowfish(from_points(UNIVERSE, epsilon=1), epsilon=0.5, threshold=LIMITS)
    smooth = smooth_threshold(from_points(UNIVERSE, epsilon=1), epsilon=0.5, threshold=LIMITS)
    off = ~np.eye(50, dtype=bool)
    for t, limit in enumerate(LIMITS):
        np.testing.assert_array_equal(
            policy.budgets[t], np.where(limit >= APART, 0.5, np.inf) * off + np.where(off, 0, 0.0)
        )
    np.testing.assert_allclose(
        smooth.budgets, 0.5 * np.maximum(1, APART / LIMITS[:, None, None]) * off, rtol=1e-14
    )
    golden = [THRESHOLDS["thresholds"][str(int(limit))] for limit in LIMITS]
    report = validate(policy)
    assert (50 * 49 // 2 - np.asarray(report.unprotected)).tolist() == [g["edges"] for g in golden]
    # Ordered triples there, i < j here
    assert (2 * np.asarray(report.violations)).tolist() == [g["tri_blow"] for g in golden]
    assert validate(smooth).violations.tolist() == [g["tri_smooth"] for g in golden]
    closed = policy.closure()
    assert validate(closed).violations.tolist() == [g["tri_closure"] for g in golden]
    # Steps of at most the threshold, each 0.5; elements that no steps join stay unprotected.
    assert np.isinf(closed.budgets[0]).any()
    finite = np.asarray(closed.budgets)[np.isfinite(closed.budgets)]
    np.testing.assert_array_equal(finite * 2, np.round(finite * 2))
    # For linear queries the closure never changes the scale.
    rng = np.random.default_rng(1)
    queries = np.concatenate([rng.normal(size=(40, 50)), rng.integers(0, 2, (40, 50))])
    for t, g in enumerate(golden):
        before, after = (
            scales(queries, np.asarray(policy.budgets[t])),
            scales(queries, np.asarray(closed.budgets[t])),
        )
        np.testing.assert_allclose(after, before, rtol=1e-13, atol=g["closure_changes_c"])


def test_any_budgets_keep_their_scales_under_closure(x64):
    rng = np.random.default_rng(5)
    budgets = rng.exponential(size=(30, 9, 9)) ** 3
    budgets = np.minimum(budgets, np.swapaxes(budgets, -1, -2)) * ~np.eye(9, dtype=bool)
    budgets = np.where((budgets > 3) & (budgets > 0), np.inf, budgets)
    metric = from_budgets(budgets)
    closed = metric.closure()
    assert np.all(np.asarray(validate(metric).violations) > 0)
    assert not np.any(validate(closed).violations)
    queries = rng.normal(size=(20, 9))
    for before, after in zip(budgets, np.asarray(closed.budgets), strict=True):
        np.testing.assert_allclose(scales(queries, after), scales(queries, before), rtol=1e-12)
    # The control: below the closure it is another scale.
    assert (
        scales(queries, np.asarray(closed.budgets[0]) * 0.9)[0]
        > 1.1 * scales(queries, budgets[0])[0]
    )


def test_the_smooth_threshold_is_a_metric_of_any_points(x64):
    rng = np.random.default_rng(9)
    points = rng.normal(size=(30, 9, 2)) * 10.0 ** rng.integers(-3, 4, (30, 1, 1))
    points[:, 7] = points[:, 3]
    smooth = smooth_threshold(from_points(points, epsilon=1), epsilon=0.5, threshold=1.0)
    assert not np.any(validate(smooth).violations)
    assert np.all(np.asarray(smooth.budgets)[:, 3, 7] == 0.5)  # two elements at one place
    assert np.any(
        validate(blowfish(from_points(points, epsilon=1), epsilon=0.5, threshold=1.0)).violations
    )


@pytest.mark.slow
def test_points_keep_their_kind(x64):
    for policy in (blowfish, smooth_threshold):
        lazy = policy(point_metric(UNIVERSE, epsilon=2.0), epsilon=0.5, threshold=LIMITS)
        dense = policy(from_points(UNIVERSE, epsilon=2.0), epsilon=0.5, threshold=LIMITS)
        assert isinstance(lazy.budgets, Points)
        assert lazy.batch_shape == (4,)
        np.testing.assert_allclose(
            lazy.with_absence(0.25).dense().budgets, dense.with_absence(0.25).budgets, rtol=1e-14
        )
        spoilt = policy(
            point_metric(UNIVERSE, epsilon=1),
            epsilon=jnp.array([1.0, -1, 1, 1]),
            threshold=jnp.array([1.0, 1, -1, 9]),
        )
        assert np.isnan(spoilt.dense().budgets).all(axis=(1, 2)).tolist() == [
            False,
            True,
            True,
            False,
        ]
        with pytest.raises(ValueError, match="without a threshold"):
            policy(lazy, epsilon=1, threshold=1)


def test_hostile_thresholds():
    near = from_points([[0.0], [1.0], [5.0]], epsilon=1)
    for policy in (blowfish, smooth_threshold):
        for bad in (0.0, -1.0, np.nan, np.inf):
            with pytest.raises(ValueError, match="threshold must be finite and positive"):
                policy(near, epsilon=1, threshold=bad)
            with pytest.raises(ValueError, match="epsilon must be finite and positive"):
                policy(near, epsilon=bad, threshold=1)
        with pytest.raises(TypeError, match="takes a Metric"):
            policy([[0.0]], epsilon=1, threshold=1)
        with pytest.raises(ValueError, match="without the null record"):
            policy(near.with_absence(1), epsilon=1, threshold=1)
        swept = np.asarray(
            policy(
                near, epsilon=jnp.array([1.0, -1.0, 1.0]), threshold=jnp.array([1.0, 1.0, -1.0])
            ).budgets
        )
        assert np.isnan(swept[1:]).all()
        assert not np.isnan(swept[0]).any()


@pytest.mark.parametrize("make", [from_points, point_metric])
def test_rounding_leaves_no_pair_at_the_threshold_unprotected(make):
    """0.4 - 0.3 is a little more than 0.1, in both dtypes."""
    grid = np.arange(1, 8)[:, None] * 0.1
    for points in (grid, jnp.asarray(grid, jnp.float32)):
        policy = blowfish(make(points, epsilon=1.0), epsilon=0.5, threshold=0.1)
        budgets = np.asarray(policy.rows(0, 7))
        np.testing.assert_array_equal(np.diag(budgets, 1), 0.5)
        assert np.isinf(np.diag(budgets, 2)).all()
    at_85 = np.array([[0.0, 0.0], [13.0, 84.0]])
    assert blowfish(make(at_85, epsilon=1.0), epsilon=0.5, threshold=85.0).rows(0, 1)[0, 1] == 0.5
    distances = np.diag(np.asarray(make(jnp.asarray(grid, jnp.float32), epsilon=1.0).rows(0, 7)), 1)
    assert (distances > np.float32(0.1)).any()  # control: as they are, some are beyond it
