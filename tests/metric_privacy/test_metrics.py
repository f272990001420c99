"""Metrics on points against plain NumPy: every distance, in blocks, with the null record, and where
floats are too coarse; and the report of a validation against loops over all triples.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy import (
    blowfish,
    fold_rows,
    from_budgets,
    from_points,
    noise_scales,
    point_metric,
    smooth_threshold,
    uniform,
    validate,
)

POINTS = np.concatenate(
    [np.random.default_rng(3).normal(size=(2, 6, 2)) * 30, np.zeros((2, 1, 2))], axis=1
)
POINTS[:, 5] = POINTS[:, 2]  # a duplicate
WEIGHTS = np.array([0.5, 3.0])
ORDERS = {"euclidean": 2, "manhattan": 1, "chebyshev": np.inf}


def oracle(points, distance, weights):
    """Distances one pair at a time."""
    found = np.zeros((len(points), len(points)))
    for i, p in enumerate(points):
        for j, q in enumerate(points):
            steps = np.abs(p - q) * weights
            if distance == "great_circle":
                (a, b), (c, d) = np.deg2rad(p), np.deg2rad(q)
                u = np.array([np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)])
                v = np.array([np.cos(c) * np.cos(d), np.cos(c) * np.sin(d), np.sin(c)])
                found[i, j] = 6371.0088 * np.arctan2(np.linalg.norm(np.cross(u, v)), u @ v)
            elif distance == "hamming":
                found[i, j] = weights @ (steps > 0)
            else:
                found[i, j] = np.linalg.norm(steps, ORDERS[distance])
    return found


@pytest.mark.parametrize("distance", [*ORDERS, "hamming", "great_circle"])
def test_distances(distance, x64):
    weights = None if distance == "great_circle" else WEIGHTS
    epsilon = np.array([[0.5], [2.0], [1.0]])  # a sweep against a batch of two universes
    budgets = np.asarray(
        from_points(POINTS, epsilon=epsilon, distance=distance, weights=weights).budgets
    )
    expected = np.stack([oracle(p, distance, WEIGHTS) for p in POINTS])
    np.testing.assert_allclose(budgets, epsilon[..., None, None] * expected, rtol=1e-12, atol=1e-9)
    np.testing.assert_array_equal(budgets, np.swapaxes(budgets, -1, -2))
    assert np.all(np.diagonal(budgets, axis1=-2, axis2=-1) == 0)
    assert np.all(budgets[..., 2, 5] == 0)  # the duplicate
    other = "chebyshev" if distance == "manhattan" else "manhattan"  # the control
    assert not np.allclose(
        budgets[2], np.stack([oracle(p, other, WEIGHTS) for p in POINTS]), rtol=0.01
    )


KINDS = {
    "linear": lambda make: make(POINTS, epsilon=[1.0, 2.0], weights=WEIGHTS),
    "blowfish": lambda make: blowfish(make(POINTS, epsilon=2.0), epsilon=0.5, threshold=30.0),
    "smooth": lambda make: smooth_threshold(
        make(POINTS, epsilon=2.0), epsilon=0.5, threshold=[20.0, 40.0]
    ),
}
ABSENCE = 0.25 * np.arange(1.0, 8.0)


def seen(metric):
    """All that reads a metric in blocks of rows; near the end they are moved back."""
    whole, ends = metric.dense().budgets, (metric.smallest, metric.largest)
    rows = [metric.rows(start, 3) for start in (0, 2, 5, -3)]
    return whole, ends, rows, (metric * 3.0).dense().budgets


@functools.cache
def kinds():
    """Each kind of metric with the null record, of coordinates and as a matrix, as one program."""

    def both(kind):
        metrics = (KINDS[kind](make).with_absence(ABSENCE) for make in (point_metric, from_points))
        return [seen(metric) for metric in metrics]

    return jax.device_get(jax.jit(lambda: {kind: both(kind) for kind in KINDS})())


@pytest.mark.parametrize("kind", KINDS)
def test_points_in_blocks_are_the_matrix(kind, x64):
    lazy, dense = kinds()[kind]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14), lazy, dense)
    whole, (smallest, largest), _, tripled = lazy
    np.testing.assert_array_equal(whole[..., -1, :-1], np.broadcast_to(ABSENCE, (2, 7)))
    assert whole[0, 2, 5] == (0 if kind == "linear" else 0.5)  # two elements at one place
    off = ~np.eye(8, dtype=bool)
    np.testing.assert_array_equal(smallest, whole[:, off].min(-1))
    np.testing.assert_array_equal(largest, np.where(np.isinf(whole), 0, whole).max((1, 2)))
    np.testing.assert_allclose(tripled, 3 * whole, rtol=1e-14)


def test_a_fold_meets_every_row():
    metric = from_budgets(oracle(POINTS[0], "manhattan", WEIGHTS))

    @jax.jit
    def rows(metric):
        start = jnp.full((7, 7), -1.0)
        return fold_rows(metric, start, lambda at, i, new: at.at[i].set(new), count=3)

    np.testing.assert_array_equal(rows(metric), metric.budgets)


def test_metrics_add_up_and_scale(x64):
    one, other = from_points(POINTS, epsilon=1.0), uniform(7, epsilon=[[0.5], [1.5]])
    by_hand = np.asarray(one.budgets)
    np.testing.assert_array_equal(sum([one, other]).budgets, by_hand + np.asarray(other.budgets))
    factor = np.array([1.0, 2.0])  # NumPy leaves the product to the metric
    np.testing.assert_array_equal((factor * one).budgets, by_hand * factor[:, None, None])
    endless = from_budgets([[0.0, np.inf], [np.inf, 0.0]])
    np.testing.assert_array_equal((2 * endless + endless).budgets, endless.budgets)
    assert (float(endless.largest), float(endless.smallest)) == (0, np.inf)
    # Of two budgets that differ by rounding, the smaller one
    assert np.ptp(from_budgets(np.array([[0, 1.0], [1 + 1e-15, 0]])).budgets) == 1


def test_coordinates_keep_their_distances():
    """Of a map in metres, or a clock in seconds: float32 alone puts 8 between two points 2 apart, a
    budget four times too large.
    """
    for column, apart, rtol in (
        ([0.0, 5400000.24, 5400000.26], 0.02, 1e-5),
        ([0, 1700000063, 1700000065], 2.0, 1e-6),
        ([0.0, 1e8 + 3, 1e8 + 5], 2.0, 1e-6),
        ([-1e5, 0.004, 0.005], 0.001, 2e-6),
        ([2**62, 2**62 + 2**40 + 1, 2**62 + 2**40 + 3], 2.0, 1e-6),
    ):
        known = from_points(np.array(column)[:, None], epsilon=1.0)
        budgets = np.asarray(known.budgets)
        assert budgets.dtype == np.float32
        np.testing.assert_allclose(budgets[1, 2], apart, rtol=rtol)
        wide = noise_scales([[0.0, 0.0, 1.0]], known, strategy="common")
        assert 1 / float(wide[0]) <= apart
    assert np.float32(1e8 + 5) - np.float32(1e8 + 3) == 8  # the control
    squares = from_points(np.array([[0.0, 0.0], [3e30, 4e30], [3e-30, 4e-30]]), epsilon=1.0)
    np.testing.assert_allclose(np.asarray(squares.budgets)[0], [0, 5e30, 5e-30], rtol=1e-6)


def globe():
    """Pairs of places from a metre to a hundred kilometres apart: anywhere, over the date line and
    by the poles.
    """
    random, steps = np.random.default_rng(0), 10.0 ** -np.arange(6.0)
    places = random.uniform(-1, 1, (40, 6, 2)) * [80, 180]
    anywhere = [places, places + steps[:, None] * random.uniform(-1, 1, (40, 6, 2))]
    east = [places * [1, 0] + [0, 180] - steps[:, None] * [0, 1], places * [1, 0] + [0, 1e-5 - 180]]
    north = places * [0, 1] + [90, 0] - steps[:, None] * random.uniform(0.1, 1, (40, 6, 1)) * [1, 0]
    by_the_pole = np.stack([north, north * [1, -1] + [0, 33.0]], -2)
    pairs = np.stack(anywhere, -2), np.stack(east, -2), by_the_pole, -by_the_pole
    return np.concatenate([part.reshape(-1, 2, 2) for part in pairs])


def along_the_ground(pairs):
    """Kilometers between two places, by half angles, in the precision of the places."""
    latitude, longitude = np.deg2rad(pairs[..., 0]), np.deg2rad(pairs[..., 1])
    rise = np.sin(np.diff(latitude, axis=-1)[..., 0] / 2)
    narrow = np.sin(np.deg2rad(90 - np.abs(pairs[..., 0]))).prod(-1)
    around = np.sin(np.diff(longitude, axis=-1)[..., 0] / 2)
    return 2 * 6371.0088 * np.arcsin(np.sqrt(rise**2 + narrow * around**2))


def test_the_globe_has_no_seams_and_no_distance_is_too_long():
    one_place = [[[10, 180], [10, -180]], [[90, 0], [90, 77]], [[-90, 3], [-90, -3]]]
    pairs = np.concatenate([globe(), np.array(one_place, float)])
    known = from_points(pairs, epsilon=1.0, distance="great_circle")
    found = np.asarray(known.budgets, np.float64)[..., 0, 1]
    exact = along_the_ground(pairs[:-3])
    assert (found[-3:] == 0).all()
    assert (found[:-3] <= exact * (1 + 1e-7)).all()
    np.testing.assert_allclose(found[:-3], exact, rtol=2e-5)
    # Control: coordinates in float32
    rough = along_the_ground(pairs[:-3].astype(np.float32).astype(np.float64))
    assert (rough > 1.01 * exact).any()


def triples(budgets):
    """All violations i < j, k of the triangle inequality, as (excess, -detour)."""
    found = []
    for j, i, k in itertools.product(range(len(budgets)), repeat=3):
        detour = budgets[i, k] + budgets[k, j]
        if i < j and budgets[i, j] > detour * (1 + 1e-12):
            found.append((budgets[i, j] - detour, -detour))
    return found


def test_the_report_of_a_validation_against_loops(x64):
    rng = np.random.default_rng(2)
    batch = rng.exponential(size=(20, 9, 9)) * rng.choice(
        [0.0, 1.0, np.inf], (20, 9, 9), p=[0.05, 0.9, 0.05]
    )
    batch = np.minimum(batch, np.swapaxes(batch, -1, -2))
    batch[:, range(9), range(9)] = 0
    batch[15:] = np.asarray(from_points(rng.normal(size=(5, 9, 2)), epsilon=1).budgets)
    report = jax.device_get(validate(batch))
    for b, budgets in enumerate(batch):
        found = triples(budgets)
        assert int(report.violations[b]) == len(found)
        if found:
            i, j, k = report.triple[b].tolist()
            most, detour = max(found)
            assert report.direct[b] == budgets[i, j]
            assert report.detour[b] == budgets[i, k] + budgets[k, j] == -detour
            np.testing.assert_allclose(report.direct[b] - report.detour[b], most, rtol=1e-12)
    assert (
        report.is_metric.tolist() == (report.violations == 0).tolist() == [False] * 15 + [True] * 5
    )
    assert validate([[0, np.inf], [1, 0]]).asymmetry == np.inf


def test_rounding_is_no_violation():
    points = np.sort(np.random.default_rng(0).random((50, 3)).astype(np.float32))
    # Triangles without slack
    lines = np.abs(points[:, :, None] - points[:, None, :]) * np.float32(0.1)
    worst = lines[np.argmax(lines[:, 0, 2] - (lines[:, 0, 1] + lines[:, 1, 2]))]
    assert worst[0, 2] > worst[0, 1] + worst[1, 2]
    assert int(validate(worst).violations) == 0
    assert int(validate(worst, tolerance=0.0).violations) == 1
    worst[0, 2] = worst[2, 0] = worst[0, 2] * 1.0001
    assert int(validate(worst).violations) == 1
