"""Metrics on points, dates, attributes, graphs and their policies, against one pair at a time."""

import datetime
import itertools

import numpy as np
import pytest

from dpjax.metric_privacy import (
    Metric,
    blowfish,
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
DISTANCES = {
    "euclidean": lambda steps: np.sqrt((steps**2).sum(-1)),
    "manhattan": lambda steps: steps.sum(-1),
    "chebyshev": lambda steps: steps.max(-1),
}


def test_distances():
    points = RNG.normal(size=(7, 2)) * 30
    points[5] = points[2]  # a duplicate
    steps, found = np.abs(points[:, None] - points), []
    for distance, of in DISTANCES.items():
        found.append(from_points(points, epsilon=0.5, distance=distance).budgets)
        np.testing.assert_allclose(found[-1], 0.5 * of(steps), rtol=1e-12)
    assert not np.isclose(found[1], found[2], rtol=0.01)[0, 1]  # the control


def test_coordinates_keep_their_distances():
    column = [2**62, 2**62 + 2**40 + 1, 2**62 + 2**40 + 3]
    assert from_points(np.array(column)[:, None], epsilon=1.0).budgets[1, 2] == 2
    assert float(column[2]) - float(column[1]) != 2  # the control: rounded before
    # Floats are not rounded at all, however far another one is
    assert from_points([[-1e16], [1.0], [1.9]], epsilon=1.0).budgets[1, 2] == pytest.approx(0.9)
    with pytest.raises(ValueError, match="finite distances"):  # not: no protection
        from_points([[0.0], [1e200]], epsilon=1.0)


def test_the_globe_has_no_seams():
    """From a metre to half around the globe; over the date line and by the poles, whose places have
    many names.
    """
    places = [
        [0, 0],
        [1e-5, 0],
        [0, 90],
        [-45, 0],
        [60, 60],
        [0, 180],
        [0, -180],
        [90, 3],
        [90, -7],
    ]
    angles = np.radians([0, 1e-5, 90, 45, np.degrees(np.arccos(0.25)), 180, 180, 90, 90])
    found = from_points(places, epsilon=1.0, distance="great_circle").budgets
    np.testing.assert_allclose(found[0], 6371.0088 * angles, rtol=1e-8, atol=1e-9)
    assert (found[[5, 7], [6, 8]] < 1e-9).all()


DAYS = [datetime.date(2024, 2, 28), datetime.date(2024, 3, 1), datetime.date(1969, 12, 31)]
DATES = [
    (DAYS, [2, 19782, 19784]),
    (np.array(["1924-01-01", "2024-01-01T12", "2024-01-01"], "datetime64"), [36525.5, 36525, 0.5]),
    (np.array([-20000, 0, 20000], np.int16), [20000, 40000, 20000]),
]


def test_dates():
    for dates, apart in DATES:
        budgets = from_dates(dates, epsilon=0.25).budgets
        np.testing.assert_allclose(4 * budgets[np.triu_indices(3, 1)], apart, rtol=1e-13)
    # Microseconds would wrap around, to budgets that are too large or too small
    for unit, far in (("D", 2 * 10**8), ("Y", -(2**62)), ("h", 2**62), ("s", -(2**63))):
        with pytest.raises(ValueError, match="years"):
            from_dates(np.array([0, far]).astype(f"datetime64[{unit}]"), epsilon=1.0)


def test_attributes_and_their_values():
    """Against a sum over the attributes in which two records differ."""
    codes = np.array([[0, 0, 2], [0, 1, 0], [1, 1, 1], [1, 0, 2], [0, 0, 2]])
    differ, each = codes[:, None] != codes, np.array([0.5, np.inf, 0.0])
    for records in (codes, np.array(["no", "yes", "x"], object)[codes]):
        found = weighted_hamming(records, budgets=each).budgets
        np.testing.assert_array_equal(found, np.where(differ, each, 0.0).sum(-1))
    values = np.array([[1.0, 2.0, np.inf], [0.5, 0.0, 9.0], [3.0, 8.0, 1.0]])
    own = np.take_along_axis(values.T, codes, 0)
    metric = value_budgets(codes, budgets=values)
    np.testing.assert_array_equal(metric.budgets, np.where(differ, own[:, None] + own, 0.0).sum(-1))
    assert metric.violation() is None


def test_the_product_of_universes_and_the_attributes_of_one_record():
    born = np.array([0.0, 2.0, 5.0])
    parts = from_points(born[:, None], epsilon=0.5), uniform(2, epsilon=3), uniform(2, epsilon=0.25)
    records = np.array(list(itertools.product(range(3), range(2), range(2))))
    attributes = weighted_hamming(records[:, 1:], budgets=[3, 0.25])
    whole = attributes + from_dates(born[records[:, 0]], epsilon=0.5)
    np.testing.assert_array_equal(product(*parts).budgets, whole.budgets)


def test_graphs():
    edges = RNG.integers(0, 9, (16, 2))  # with loops and double edges, and in pieces
    budgets = RNG.exponential(size=16)
    budgets[:3] = 0.0, np.inf, 1e-300
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
    tree = np.isfinite(lengths) & (lengths == shortest_paths(lengths, np.maximum))
    steps = np.where(tree, lengths, np.inf)
    found = spanning_tree(Metric(lengths)).budgets
    np.testing.assert_allclose(found, shortest_paths(steps), rtol=1e-13)
    # No minimum of all paths: the control of what is compared
    assert np.any(found > lengths)


def test_thresholds_against_the_counts_on_record():
    universe = np.random.default_rng(2020).uniform(0, 100, (50, 2))
    towns, off = from_points(universe, epsilon=1), ~np.eye(50, dtype=bool)
    for limit, counts in golden("D_thresholds")["thresholds"].items():
        policy, smooth = (
            make(towns, epsilon=0.5, threshold=int(limit)) for make in (blowfish, smooth_threshold)
        )
        expected = 0.5 * np.maximum(1, towns.budgets / int(limit)) * off
        np.testing.assert_allclose(smooth.budgets, expected, rtol=1e-14)
        np.testing.assert_array_equal(policy.budgets, np.where(expected <= 0.5, expected, np.inf))
        assert np.isfinite(policy.budgets[off]).sum() / 2 == counts["edges"]
        assert (policy.violation() is None) == (counts["tri_blow"] == 0)
        assert smooth.violation() is None
    # 0.4 - 0.3 is a little more than 0.1
    line = from_points(np.arange(1, 8)[:, None] * 0.1, epsilon=1.0)
    budgets = blowfish(line, epsilon=0.5, threshold=0.1).budgets
    np.testing.assert_array_equal(np.diag(budgets, 1), 0.5)
    assert np.isinf(np.diag(budgets, 2)).all()
    assert (np.diag(line.budgets, 1) > 0.1).any()  # the control


def test_ranges_and_marginals_count_records():
    sizes, table = (3, 4), RNG.integers(0, 9, (3, 4))
    spans = [list(itertools.combinations_with_replacement(range(n), 2)) for n in sizes]
    expected = [table[a : b + 1, c : d + 1].sum() for (a, b), (c, d) in itertools.product(*spans)]
    np.testing.assert_array_equal(range_queries(sizes) @ table.ravel(), expected)
    expected = ([table.sum()], [*table.sum(1), *table.sum(0)], table.ravel())
    for ways, answers in enumerate(expected):
        found = marginal_queries(sizes, ways=ways) @ table.ravel()
        np.testing.assert_array_equal(found, answers)
