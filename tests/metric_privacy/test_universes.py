"""Metrics on points, dates, attributes, graphs and their policies, against one pair at a time."""

import datetime
import itertools

import numpy as np
import pytest

from dpjax.metric_privacy import (
    Metric,
    blowfish,
    from_budgets,
    from_dates,
    from_graph,
    from_points,
    marginal_queries,
    product,
    range_queries,
    smooth_threshold,
    spanning_tree,
    uniform,
    value_budgets,
    weighted_hamming,
)
from tests.metric_privacy.golden import golden
from tests.metric_privacy.instances import shortest_paths

RNG = np.random.default_rng(3)
POINTS = RNG.normal(size=(7, 2)) * 30
POINTS[5] = POINTS[2]  # a duplicate
WEIGHTS = np.array([0.5, 3.0])
DISTANCES = {
    "euclidean": lambda steps: np.sqrt((steps**2).sum(-1)),
    "manhattan": lambda steps: steps.sum(-1),
    "chebyshev": lambda steps: steps.max(-1),
    "hamming": lambda steps: (steps > 0) @ WEIGHTS,
}


@pytest.mark.parametrize("distance", DISTANCES)
def test_distances(distance):
    budgets = from_points(POINTS, epsilon=0.5, distance=distance, weights=WEIGHTS).budgets
    steps = np.abs(POINTS[:, None] - POINTS) * WEIGHTS
    np.testing.assert_allclose(budgets, 0.5 * DISTANCES[distance](steps), rtol=1e-12)
    other = "chebyshev" if distance == "manhattan" else "manhattan"  # the control
    assert not np.allclose(budgets, 0.5 * DISTANCES[other](steps), rtol=0.01)


def test_coordinates_keep_their_distances():
    column = [2**62, 2**62 + 2**40 + 1, 2**62 + 2**40 + 3]
    assert from_points(np.array(column)[:, None], epsilon=1.0).budgets[1, 2] == 2
    assert float(column[2]) - float(column[1]) != 2  # the control: rounded before
    squares = from_points([[0.0, 0.0], [3e30, 4e30], [3e-30, 4e-30]], epsilon=1.0)
    np.testing.assert_allclose(squares.budgets[0], [0, 5e30, 5e-30])
    with pytest.raises(ValueError, match="finite distances"):  # not: no protection
        from_points([[0.0], [1e200]], epsilon=1.0)


def test_the_globe_has_no_seams():
    """From a metre to half around the globe, against angles between vectors; over the date line and
    by the poles, whose places have many names.
    """
    places = RNG.uniform(-1, 1, (100, 2)) * [90, 180]
    places = np.concatenate([places, places + 1e-5 * RNG.normal(size=(100, 2)) * [0, 1]])
    latitude, longitude = np.radians(places).T
    at = np.stack([np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude)], -1)
    at = np.column_stack([at, np.sin(latitude)])
    chord = np.sqrt(((at[:, None] - at) ** 2).sum(-1))
    found = from_points(places, epsilon=1.0, distance="great_circle").budgets
    expected = 2 * 6371.0088 * np.arcsin(np.minimum(chord / 2, 1))
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)
    names = [[10, 180], [10, -180], [90, 0], [90, 77], [-90, 3], [-90, -3]]
    apart = from_points(names, epsilon=1.0, distance="great_circle").budgets
    assert (np.diag(apart, 1)[::2] == 0).all()


DAYS = [datetime.date(2024, 2, 28), datetime.date(2024, 3, 1), datetime.date(1969, 12, 31)]
HOURS = ["2024-02-28T12", "2024-02-28T18", "2024-02-28"]
CENTURY = ["1924-01-01", "2024-01-01T00:00:00", "2024-01-01T00:00:01"]


@pytest.mark.parametrize(
    ("dates", "apart"),
    [
        (DAYS, [2, 19782, 19784]),
        (np.array(DAYS, "datetime64[s]"), [2, 19782, 19784]),
        ([19781.0, 19783.0, -1.0], [2, 19782, 19784]),
        (np.array(HOURS, "datetime64"), [0.25, 0.5, 0.75]),
        (np.array(CENTURY, "datetime64"), [36525, 36525 + 1 / 86400, 1 / 86400]),
        (np.array([-20000, 0, 20000], np.int16), [20000, 40000, 20000]),
        (np.array([10**18, 10**18 + 64, 10**18 + 65]), [64, 65, 1]),
    ],
)
def test_dates(dates, apart):
    budgets = from_dates(dates, epsilon=0.25).budgets
    np.testing.assert_allclose(4 * budgets[np.triu_indices(3, 1)], apart, rtol=1e-13)


@pytest.mark.parametrize(("unit", "far"), [("D", 2 * 10**8), ("Y", -(2**62)), ("h", 2**62)])
def test_dates_that_microseconds_do_not_hold_are_refused(unit, far):
    """They would wrap around, to budgets that are too large or too small."""
    with pytest.raises(ValueError, match="years"):
        from_dates(np.array([0, far]).astype(f"datetime64[{unit}]"), epsilon=1.0)


CODES = np.array([[0, 0, 2], [0, 1, 0], [1, 1, 1], [1, 0, 2], [0, 0, 2]])


def test_attributes_and_their_values():
    """Against a sum over the attributes in which two records differ."""
    differ, each = CODES[:, None] != CODES, np.array([0.5, np.inf, 0.0])
    for records in (CODES, np.array(["no", "yes", "x"], object)[CODES], CODES - 7.5):
        found = weighted_hamming(records, budgets=each).budgets
        np.testing.assert_array_equal(found, np.where(differ, each, 0.0).sum(-1))
    values = [np.array([1.0, 2.0, np.inf]), np.array([0.5, 0.0, 9.0]), np.array([3.0, 8.0, 1.0])]
    for rule, both in {"sum": np.add, "min": np.minimum}.items():
        most = 3 if rule == "sum" else 2
        codes, of = CODES[:, :most], [value[:most] for value in values[:most]]
        own = np.stack([value[code] for value, code in zip(of, codes.T, strict=True)], -1)
        expected = np.where(differ[..., :most], both(own[:, None], own), 0.0).sum(-1)
        metric = value_budgets(codes, budgets=of, rule=rule)
        np.testing.assert_array_equal(metric.budgets, expected)
        assert metric.violation() is None


def test_the_minimum_is_for_two_values():
    """Of budgets (1, 10, 10) the last two values are 10 apart, and 2 by way of the first. The
    maximum is a metric, which tells the value of budget 1 from the others: it protects nothing.
    """
    own = np.array([1.0, 10.0, 10.0])
    with pytest.raises(ValueError, match="got 3"):
        value_budgets([[0], [1], [2]], budgets=[own], rule="min")
    least = from_budgets(np.minimum.outer(own, own) * (1 - np.eye(3)))
    assert least.violation() == (1, 2, 2.0)
    np.testing.assert_array_equal(least.closure().budgets, np.minimum(least.budgets, 2))
    assert from_budgets(np.maximum.outer(own, own) * (1 - np.eye(3))).violation() is None


def test_the_product_of_universes_and_the_attributes_of_one_record():
    born = np.array([0.0, 2.0, 5.0])
    parts = from_points(born[:, None], epsilon=0.5), uniform(2, epsilon=3), uniform(2, epsilon=0.25)
    records = np.array(list(itertools.product(range(3), range(2), range(2))))
    attributes = weighted_hamming(records[:, 1:], budgets=[3, 0.25])
    whole = attributes + from_dates(born[records[:, 0]], epsilon=0.5)
    np.testing.assert_array_equal(product(*parts).budgets, whole.budgets)


def test_graphs():
    edges = RNG.integers(0, 9, (16, 2))  # with loops and double edges, and in pieces
    for seed in range(10):
        rng = np.random.default_rng(seed)
        budgets = rng.exponential(size=16) * rng.choice([0.0, 1.0, np.inf], 16, p=[0.1, 0.8, 0.1])
        budgets[np.isnan(budgets)] = np.inf
        direct = np.where(np.eye(9) == 1, 0.0, np.inf)
        for (i, j), cost in zip(edges, budgets, strict=True):
            direct[i, j] = direct[j, i] = min(direct[i, j], cost)
        found = from_graph(edges, size=9, budgets=budgets).budgets
        np.testing.assert_allclose(found, shortest_paths(direct), rtol=1e-13)
    assert not np.array_equal(found, direct)


def test_paths_in_the_spanning_tree():
    """An edge is in it if no other way has shorter edges only."""
    lengths = np.triu(RNG.uniform(1, 2, (7, 7)), 1)
    lengths[0, 1] = 0.0
    lengths[:3, 3:] = np.inf  # in two pieces
    lengths = lengths + lengths.T
    tree = lengths == shortest_paths(lengths, np.maximum)
    for budget, steps in ((None, lengths), (0.5, np.full((7, 7), 0.5))):
        edges = np.where(np.eye(7) == 1, 0.0, np.where(tree & np.isfinite(lengths), steps, np.inf))
        found = spanning_tree(Metric(lengths), budget=budget).budgets
        np.testing.assert_allclose(found, shortest_paths(edges), rtol=1e-13)
    # No minimum of all paths: the control of what is compared
    assert np.any(spanning_tree(Metric(lengths)).budgets > lengths)


def test_thresholds_against_the_counts_on_record():
    universe = np.random.default_rng(2020).uniform(0, 100, (50, 2))
    towns, off = from_points(universe, epsilon=1), ~np.eye(50, dtype=bool)
    for limit, counts in golden("D_thresholds")["thresholds"].items():
        far = towns.budgets / int(limit)
        policy, smooth = (
            make(towns, epsilon=0.5, threshold=int(limit)) for make in (blowfish, smooth_threshold)
        )
        expected = np.where(off, np.where(far <= 1, 0.5, np.inf), 0.0)
        np.testing.assert_array_equal(policy.budgets, expected)
        np.testing.assert_allclose(smooth.budgets, 0.5 * np.maximum(1, far) * off, rtol=1e-14)
        assert np.isfinite(policy.budgets[off]).sum() / 2 == counts["edges"]
        assert (policy.violation() is None) == (counts["tri_blow"] == 0)
        assert smooth.violation() is None
        # Steps of at most the threshold, each 0.5
        steps = 2 * policy.closure().budgets
        np.testing.assert_array_equal(steps, np.round(steps))


def test_rounding_leaves_no_pair_at_the_threshold_unprotected():
    """0.4 - 0.3 is a little more than 0.1."""
    distances = from_points(np.arange(1, 8)[:, None] * 0.1, epsilon=1.0)
    budgets = blowfish(distances, epsilon=0.5, threshold=0.1).budgets
    np.testing.assert_array_equal(np.diag(budgets, 1), 0.5)
    assert np.isinf(np.diag(budgets, 2)).all()
    assert (np.diag(distances.budgets, 1) > 0.1).any()  # the control


def test_ranges_count_the_records_within_them():
    sizes = (3, 4)
    cells = list(itertools.product(*map(range, sizes)))
    bounds = [[(i, j) for i in range(n) for j in range(i, n)] for n in sizes]
    expected = [
        [all(a <= v <= b for v, (a, b) in zip(cell, box, strict=True)) for cell in cells]
        for box in itertools.product(*bounds)
    ]
    np.testing.assert_array_equal(range_queries(sizes), expected)


def test_marginals_are_the_sums_of_the_table():
    sizes = (2, 3, 2)
    table = np.random.default_rng(0).integers(0, 9, sizes)
    for ways in range(4):
        answers = marginal_queries(sizes, ways=ways) @ table.ravel()
        expected = [
            table.sum(tuple(set(range(3)) - set(kept))).ravel()
            for kept in itertools.combinations(range(3), ways)
        ]
        np.testing.assert_array_equal(answers, np.concatenate(expected))
