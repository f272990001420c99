"""Metrics on points: against plain NumPy, in blocks, with the null record, and with hostile
parameters.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy.coordinates import Points
from dpjax.metric_privacy.metrics import Metric, fold_rows, from_budgets, uniform
from dpjax.metric_privacy.points import from_points, point_metric
from dpjax.metric_privacy.scales import noise_scales

POINTS = np.concatenate(
    [np.random.default_rng(3).normal(size=(2, 6, 2)) * 30, np.zeros((2, 1, 2))], axis=1
)
POINTS[:, 5] = POINTS[:, 2]  # a duplicate
WEIGHTS = np.array([0.5, 3.0])


def oracle(points, distance, weights=(1.0, 1.0)):
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
                found[i, j] = sum(w for w, s in zip(weights, steps, strict=True) if s)
            else:
                found[i, j] = np.linalg.norm(
                    steps, {"euclidean": 2, "manhattan": 1, "chebyshev": np.inf}[distance]
                )
    return found


@pytest.mark.parametrize(
    "distance", ["euclidean", "manhattan", "chebyshev", "hamming", "great_circle"]
)
def test_distances(distance, x64):
    weights = None if distance == "great_circle" else WEIGHTS
    epsilon = np.array([[0.5], [2.0], [1.0]])  # a sweep against a batch of two universes
    found = from_points(POINTS, epsilon=epsilon, distance=distance, weights=weights)
    expected = np.stack(
        [oracle(p, distance, WEIGHTS if weights is not None else (1.0, 1.0)) for p in POINTS]
    )
    assert found.batch_shape == (3, 2)
    assert found.size == 7
    np.testing.assert_allclose(
        found.budgets, epsilon[..., None, None] * expected, rtol=1e-12, atol=1e-9
    )
    budgets = np.asarray(found.budgets)
    assert np.array_equal(budgets, np.swapaxes(budgets, -1, -2))
    assert np.all(np.diagonal(budgets, axis1=-2, axis2=-1) == 0)
    assert np.all(budgets[..., 2, 5] == 0)  # the duplicate
    # The wrong distance is seen.
    other = "chebyshev" if distance == "manhattan" else "manhattan"
    assert not np.allclose(budgets[2], np.stack([oracle(p, other) for p in POINTS]), rtol=0.01)


def test_squares_neither_overflow_nor_vanish():
    points = np.array([[0.0, 0.0], [3e30, 4e30], [3e-30, 4e-30]], np.float32)
    budgets = from_points(points, epsilon=1.0).budgets
    np.testing.assert_allclose(
        budgets, [[0, 5e30, 5e-30], [5e30, 0, 5e30], [5e-30, 5e30, 0]], rtol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("absence", [pytest.param(None, marks=pytest.mark.slow), 0.25])
def test_points_in_blocks(absence, x64):
    lazy = point_metric(POINTS, epsilon=[1.0, 2.0], weights=WEIGHTS)
    dense = lazy.dense()
    if absence is not None:
        lazy, dense = (
            lazy.with_absence(absence * np.arange(1.0, 8.0)),
            dense.with_absence(absence * np.arange(1.0, 8.0)),
        )
    assert isinstance(lazy.budgets, Points)
    assert isinstance(dense.budgets, jax.Array)
    assert (lazy.size, lazy.neighbors, lazy.batch_shape) == (
        dense.size,
        dense.neighbors,
        dense.batch_shape,
    )
    np.testing.assert_allclose(lazy.dense().budgets, dense.budgets, rtol=1e-14)
    for start in (0, 2, 5, 7, -3):  # near the end it is moved back, as in a dynamic slice
        np.testing.assert_allclose(lazy.rows(start, 3), dense.rows(start, 3), rtol=1e-14)
    np.testing.assert_array_equal(lazy.smallest, dense.smallest)
    np.testing.assert_array_equal(lazy.largest, dense.largest)
    whole = np.asarray(dense.budgets)
    np.testing.assert_array_equal(
        dense.smallest, np.min(whole + np.where(np.eye(dense.size), np.inf, 0), axis=(-2, -1))
    )
    np.testing.assert_array_equal(dense.largest, np.max(whole, axis=(-2, -1)))
    np.testing.assert_allclose((lazy * 3.0).dense().budgets, (3.0 * dense).budgets, rtol=1e-14)
    shape = (4, 2, dense.size - (absence is not None))
    queries = np.asarray(lazy.columns(jnp.asarray(np.ones(shape))))
    np.testing.assert_array_equal(queries[..., -1], 0.0 if absence is not None else 1.0)
    with pytest.raises(ValueError, match="elements as the metric"):
        dense.columns(jnp.asarray(np.ones((4, 2, 3))))


@pytest.mark.parametrize(
    "count",
    [3, pytest.param(1, marks=pytest.mark.slow), pytest.param(7, marks=pytest.mark.slow), 100],
)
def test_a_fold_meets_every_row(count):
    lazy = point_metric(POINTS[0], epsilon=1.0)
    at = fold_rows(
        lazy,
        jnp.full((7, 7), -1.0),
        lambda seen, index, rows: seen.at[index].set(rows),
        count=count,
    )
    np.testing.assert_allclose(at, lazy.dense().budgets, rtol=1e-6)


def test_the_null_record():
    metric = from_budgets([[0.0, 5.0], [5.0, 0.0]]).with_absence(
        jnp.array([[1.0, 2.0], [1.0, jnp.nan]])
    )
    expected = np.array([[0, 5, 1], [5, 0, 2], [1, 2, 0.0]])
    np.testing.assert_array_equal(metric.budgets, [expected, np.full((3, 3), np.nan)])
    assert metric.neighbors == "add_remove"
    with pytest.raises(ValueError, match="without the null record"):
        metric.with_absence(1.0)
    for bad in (-1.0, np.nan, [1.0, -np.inf]):
        with pytest.raises(ValueError, match="must be nonnegative and not NaN"):
            uniform(2, epsilon=1).with_absence(bad)
    with pytest.raises(ValueError, match="each of the 2 elements"):
        uniform(2, epsilon=1).with_absence([1.0, 1.0, 1.0])
    lazy = point_metric([[0.0], [1.0]], epsilon=1).with_absence(jnp.array([jnp.nan, 1.0]))
    assert np.isnan(lazy.dense().budgets).all()


def test_metrics_add_up_and_scale(x64):
    one, other = from_points(POINTS, epsilon=1.0), uniform(7, epsilon=[[0.5], [1.5]])
    by_hand = np.asarray(one.budgets)
    np.testing.assert_array_equal(sum([one, other]).budgets, by_hand + np.asarray(other.budgets))
    np.testing.assert_array_equal(
        (one * np.array([1.0, 2.0])).budgets, by_hand * np.array([1.0, 2.0])[:, None, None]
    )
    endless = from_budgets([[0.0, np.inf], [np.inf, 0.0]])
    np.testing.assert_array_equal((2 * endless + endless).budgets, endless.budgets)
    assert endless.largest == 0
    assert endless.smallest == np.inf
    assert uniform(1, epsilon=1).smallest == np.inf
    for unfit in (uniform(6, epsilon=1), uniform(6, epsilon=1).with_absence(1)):
        with pytest.raises(ValueError, match="same elements and neighbors to be added"):
            one + unfit
    for bad in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="factor must be finite and positive"):
            one * bad
    with pytest.raises(TypeError):
        one + 1.0


def test_budgets_of_ones_own():
    exact = from_budgets([[0, 3, np.inf], [3, 0, 1], [np.inf, 1, 0]])
    np.testing.assert_array_equal(exact.budgets, [[0, 3, np.inf], [3, 0, 1], [np.inf, 1, 0]])
    rounded = from_budgets(np.array([[0, 1.0], [1 + 1e-7, 0]], np.float32))
    assert rounded.budgets[1, 0] == rounded.budgets[0, 1] == 1
    wrong = {
        r"d\(0, 1\) = 1 and d\(1, 0\) = 2": [[0, 1], [2, 0]],
        r"d\(0, 1\) = inf and d\(1, 0\) = 2": [[0, np.inf], [2, 0]],
        r"d\(0, 1\) = -1 and d\(1, 0\) = -1": [[0, -1], [-1, 0]],
        r"d\(1, 1\) = 0.5\.": [[0, 1], [1, 0.5]],
        r"d\(0, 1\) = nan and d\(1, 0\) = nan": [[0, np.nan], [np.nan, 0]],
        r"d\(0, 0\) = inf\.": [[np.inf, 1], [1, 0]],
        r"in batch element \(1,\)": [[[0, 1], [1, 0]], [[0, 1], [2, 0]]],
    }
    for message, budgets in wrong.items():
        with pytest.raises(ValueError, match=message):
            from_budgets(budgets)
    for shape in ((2,), (2, 3), (0, 0)):
        with pytest.raises(ValueError, match="must be square"):
            from_budgets(np.zeros(shape))
    with pytest.raises(TypeError, match="real numbers"):
        from_budgets(np.zeros((2, 2), complex))
    # As JAX arrays, each only spoils itself.
    batch = jnp.array(
        [budgets for budgets in wrong.values() if np.ndim(budgets) == 2] + [[[0, 1], [1, 0]]],
        jnp.float32,
    )
    spoilt = jax.jit(lambda b: from_budgets(b).budgets)(batch)
    assert np.all(np.isnan(spoilt[:-1]))
    np.testing.assert_array_equal(spoilt[-1], [[0, 1], [1, 0]])


def test_bad_points_raise_and_jax_points_spoil_themselves():
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="points must be finite"):
            from_points([[0.0], [bad]], epsilon=1.0)
    for shape in ((3,), (0, 2), (3, 0)):
        with pytest.raises(ValueError, match="points must be of shape"):
            from_points(np.zeros(shape), epsilon=1.0)
    for bad in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="epsilon must be finite and positive"):
            from_points([[0.0], [1.0]], epsilon=bad)
    with pytest.raises(ValueError, match="does not broadcast against the batch"):
        from_points(POINTS, epsilon=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="distance must be one of"):
        from_points([[0.0]], epsilon=1.0, distance="taxi")
    with pytest.raises(ValueError, match="latitude and longitude"):
        from_points([[0.0, 1.0, 2.0]], epsilon=1.0, distance="great_circle")
    for bad in ([1.0], [1.0, -1.0], [1.0, np.inf]):
        with pytest.raises(ValueError, match="weights"):
            from_points(POINTS, epsilon=1.0, weights=bad)
    points = jnp.array([[[0.0], [1.0]], [[0.0], [jnp.nan]], [[jnp.inf], [1.0]], [[0.0], [1.0]]])
    spoilt = from_points(points, epsilon=jnp.array([1.0, 1.0, 1.0, -1.0]))
    assert np.all(np.isnan(spoilt.budgets[1:]))
    np.testing.assert_array_equal(spoilt.budgets[0], [[0, 1], [1, 0]])
    assert np.isnan(spoilt.smallest[1])
    assert np.isnan(spoilt.largest[1])


def test_one_trace_for_a_sweep_and_vmap_is_the_batch(x64):
    traces = []

    @jax.jit
    def budgets(points, epsilon):
        traces.append(None)
        return from_points(points, epsilon=epsilon).with_absence(epsilon).closure().budgets

    found = [budgets(jnp.asarray(POINTS[0]), jnp.float64(e)) for e in (0.5, 1.0, 2.0)]
    assert len(traces) == 1
    rows = jax.vmap(budgets, in_axes=(None, 0))(jnp.asarray(POINTS[0]), jnp.array([0.5, 1.0, 2.0]))
    np.testing.assert_allclose(rows, np.stack(found), rtol=1e-14)


def test_derivatives(x64):
    def cost(points, epsilon):
        metric = from_points(points, epsilon=epsilon)
        return jnp.sum(jnp.sin(metric.closure().budgets)) + metric.largest

    points, epsilon = jnp.asarray(POINTS[0]), jnp.float64(0.1)
    by_points, by_epsilon = jax.jit(jax.grad(cost, argnums=(0, 1)))(points, epsilon)
    assert np.all(np.isfinite(by_points))  # duplicates too
    step = 1e-6
    at, moved = 0.1 + step * np.array([-1.0, 1, 0, 0]), np.stack([POINTS[0]] * 4)
    moved[2:, 0, 1] += step * np.array([-1, 1])
    values = np.asarray(jax.jit(jax.vmap(cost))(moved, at))
    np.testing.assert_allclose(by_epsilon, (values[1] - values[0]) / (2 * step), rtol=1e-6)
    np.testing.assert_allclose(by_points[0, 1], (values[3] - values[2]) / (2 * step), rtol=1e-5)


def test_uniform_refuses():
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="size must be an integer"):
            uniform(bad, epsilon=1.0)
    assert np.all(np.isnan(uniform(2, epsilon=jnp.float32(-1)).budgets))


@pytest.mark.optimized
@pytest.mark.slow
def test_a_hundred_thousand_points_serve_a_query():
    rng = np.random.default_rng(0)
    points = rng.random((100_000, 1))
    lazy = point_metric(points, epsilon=1.0)
    query = jnp.asarray(points[:, 0] * 3.0)

    def step(largest, index, rows):
        difference = jnp.abs(query[index][:, None] - query[None, :])
        return jnp.maximum(largest, jnp.max(jnp.where(rows > 1e-3, difference / rows, 0.0)))

    scale = jax.jit(lambda metric: fold_rows(metric, jnp.zeros((), metric.dtype), step))(lazy)
    np.testing.assert_allclose(scale, 3.0, rtol=1e-3)  # a query of slope 3


def test_coordinates_far_from_zero_keep_their_distances():
    """Of a map in metres, or a clock in seconds: rounded to float32 first, they would be 25 and 64
    times too far apart.
    """
    for points, distance in (
        ([[5400000.24], [5400000.26]], 0.02),
        (np.array([[1700000063], [1700000065]]), 2.0),
    ):
        assert float(from_points(np.array(points), epsilon=1.0).budgets[0, 1]) == pytest.approx(
            distance, rel=1e-5
        )


@pytest.mark.slow
def test_factors_and_relations():
    metric, points = (
        from_points([[0.0], [1.0]], epsilon=1.0),
        point_metric([[0.0], [1.0]], epsilon=1.0),
    )
    for known in (metric, points):
        swept = np.array([0.5, 2.0]) * known  # NumPy leaves it to the metric
        np.testing.assert_allclose(swept.largest, [0.5, 2.0])
        # One budget for all elements, three times
        hidden = known.with_absence(np.array([[1.0], [2.0], [4.0]]))
        np.testing.assert_allclose(hidden.largest, [1.0, 2.0, 4.0])
    with pytest.raises(ValueError, match="neighbors must be one of"):
        Metric(metric.budgets, "add-remove")
    with pytest.raises(ValueError, match="latitudes from -90 to 90"):
        from_points([[-74.0, 40.7], [118.2, 34.1]], epsilon=1.0, distance="great_circle")
    wrong = from_points(
        jnp.array([[[-74.0, 40.7], [118.2, 34.1]], [[40.7, -74.0], [34.1, -118.2]]]),
        epsilon=1.0,
        distance="great_circle",
    )
    np.testing.assert_array_equal(np.isnan(wrong.budgets[:, 0, 1]), [True, False])


@pytest.mark.parametrize("make", [from_points, point_metric])
def test_coordinates_far_from_each_other_keep_their_distances(make):
    """Float32 alone puts 8 between two points 2 apart: a budget four times too large."""
    for points, apart in (
        ([0.0, 1e8 + 3, 1e8 + 5], 2.0),
        ([-1e5, 0.004, 0.005], 0.001),
        ([2**62, 2**62 + 2**40 + 1, 2**62 + 2**40 + 3], 2.0),
    ):
        column = np.array(points)[:, None]
        known = make(column, epsilon=1.0)
        assert known.dtype == jnp.float32
        np.testing.assert_allclose(known.rows(1, 1)[0, 2], apart, rtol=2e-6 if apart < 1 else 1e-6)
    assert np.float32(1e8 + 5) - np.float32(1e8 + 3) == 8  # control
    distribution = noise_scales(
        [[0.0, 0.0, 1.0]],
        make(np.array([[0.0], [1e8 + 3], [1e8 + 5]]), epsilon=1.0),
        strategy="common",
    )
    assert 1 / float(distribution[0]) <= 2


@pytest.mark.parametrize("make", [from_points, point_metric])
def test_the_globe_has_no_seams_and_no_distance_is_too_long(make):
    """From a metre to a hundred kilometres, anywhere, over the date line and by the poles, against
    double precision.
    """
    random = np.random.default_rng(0)
    steps = 10.0 ** -np.arange(0, 6.0)
    anywhere = np.stack([random.uniform(-80, 80, 40), random.uniform(-180, 180, 40)], -1)
    there = anywhere[:, None] + steps[:, None] * random.uniform(-1, 1, (40, 1, 2))
    pairs = [
        np.stack([np.broadcast_to(anywhere[:, None], there.shape), there], -2).reshape(-1, 2, 2)
    ]
    east = np.stack(
        [random.uniform(-80, 80, (40, 6)), 180 - steps * random.uniform(0, 1, (40, 6))], -1
    )
    pairs += [np.stack([east, east * [1, -1] + [0, 1e-5]], -2).reshape(-1, 2, 2)]
    north = np.stack(
        [90 - steps * random.uniform(0.1, 1, (40, 6)), random.uniform(-180, 180, (40, 6))], -1
    )
    pairs += [
        np.stack([north, north * [1, -1] + [0, 33.0]], -2).reshape(-1, 2, 2) * sign
        for sign in (1, -1)
    ]
    pairs = np.concatenate(pairs)

    def chord(pairs):
        """Of two points, by half angles, as differences of unit vectors are rounded."""
        latitude, longitude = np.deg2rad(pairs[..., 0]), np.deg2rad(pairs[..., 1])
        rise = np.sin(np.diff(latitude, axis=-1)[..., 0] / 2)
        narrow = np.sin(np.deg2rad(90 - np.abs(pairs[..., 0]))).prod(-1)
        return 2 * np.sqrt(rise**2 + narrow * np.sin(np.diff(longitude, axis=-1)[..., 0] / 2) ** 2)

    exact = 2 * 6371.0088 * np.arcsin(chord(pairs) / 2)
    found = np.asarray(make(pairs, epsilon=1.0, distance="great_circle").rows(0, 2), np.float64)[
        ..., 0, 1
    ]
    assert (found <= exact * (1 + 1e-7)).all()
    np.testing.assert_allclose(found, exact, rtol=2e-5)
    # Control: coordinates in float32
    rough = 2 * 6371.0088 * np.arcsin(chord(pairs.astype(np.float32).astype(np.float64)) / 2)
    assert (rough > 1.01 * exact).any()
    one_place = np.array(
        [
            [[10.0, 180.0], [10.0, -180.0]],
            [[90.0, 0.0], [90.0, 77.0]],
            [[-90.0, 3.0], [-90.0, -3.0]],
        ]
    )
    assert (make(one_place, epsilon=1.0, distance="great_circle").rows(0, 2) == 0).all()


def test_coordinates_that_float32_cannot_hold_are_refused():
    with pytest.raises(ValueError, match="within the range of float32"):
        from_points([[-3e38], [3e38]], epsilon=1.0)
