"""Duff: the paper's median and mode under add/remove, and its privacy on every small dataset."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpjax import (
    PiecewiseExponential,
    duff,
    from_distances,
    median,
    mode,
    piecewise_laplace,
    quantile,
    triangle_count,
)
from tests.statistics.test_triangles import all_graphs, brute_force, flips
from tests.support import oracle
from tests.support.audit import audit, padded
from tests.support.profiles import sides_of, with_sides

GRID = (0.0, 1.0, 5.0, 6.0, 20.0)
LOW, HIGH = GRID[0], GRID[-1]
DATASETS = {
    "add_remove": oracle.all_datasets(range(5), GRID),
    "swap": oracle.all_datasets([4], GRID),
}
EPSILON = 2.0
KNOWN = {"lower": LOW, "upper": HIGH, "neighbors": "add_remove"}


def shares(distribution, neighbors="add_remove"):
    """The largest of loss and range over epsilon."""
    found = audit(distribution, DATASETS[neighbors], neighbors, GRID)
    return np.maximum(*found) / EPSILON


def small_profile(neighbors="add_remove"):
    """Of all datasets of a relation, as if it were add/remove."""
    x, count = padded(DATASETS[neighbors], 4)
    middle = jax.jit(lambda x, count: median(x, definition="lower", num_records=count, **KNOWN))
    return jax.tree.map(np.asarray, middle(x, count))


def test_the_median_is_private_and_mistakes_are_caught(x64):
    """The paper's y_0 = a: an empty dataset has the median a. Duff does not see it (one addition
    reaches everything), interpolation does: with (a+b)/2 the range of piecewise Laplace is 1.19
    epsilon.
    """
    right = small_profile()
    empty = np.array([[len(data) == 0] for data in DATASETS["add_remove"]])
    at_value = np.arange(right.levels.size) == right.center
    middle = np.where(empty & at_value, (LOW + HIGH) / 2, right.values)
    rows = replace(right, values=np.stack([right.values, middle, right.values]))
    twice_on_one_side = sides_of(right)["upper_levels"] * np.array([1, 1, 2])[:, None, None]
    rows = with_sides(rows, upper_levels=twice_on_one_side)
    duffs, smooth = jax.jit(lambda rows: (duff(rows, EPSILON), piecewise_laplace(rows, EPSILON)))(
        rows
    )
    assert_allclose(shares(duffs)[:2], 1, rtol=1e-9)
    assert shares(duffs)[2] >= 1.4
    assert shares(smooth)[0] == pytest.approx(1, rel=1e-9)
    assert shares(smooth)[1] >= 1.18
    # Under swap, replacing a record is two changes
    assert shares(duff(small_profile("swap"), EPSILON), "swap") >= 1.2


def test_the_mode_is_the_exponential_mechanism_on_the_gap(x64):
    x = np.array([3.0, 1.0, 3.0, 2.0, 3.0, 1.0])

    @jax.jit
    def logs(x):
        scores = mode(x, candidates=[1, 2, 3, 4], neighbors="add_remove")
        return duff(scores, EPSILON).log_probabilities()

    found = np.asarray(logs(x))
    assert_allclose(found - found[2], [-2.0, -3.0, 0.0, -4.0], rtol=1e-12)


def distances_of(values, every):
    """Changes to a dataset of each value of the grid, by breadth-first search."""
    index = {data: row for row, data in enumerate(every)}
    pairs = [
        (row, index[other])
        for data, row in index.items()
        for other in oracle.neighbors_of(data, "add_remove", GRID)
        if other in index
    ]
    first, second = np.array(pairs).T
    distance = np.where(values[:, None] == np.array(GRID), 0, 99)
    for _ in range(8):
        near = distance.copy()
        np.minimum.at(near, first, distance[second] + 1)
        distance = near
    return distance


@pytest.mark.parametrize(("q", "reached"), [(0.5, "intervals"), (0.25, "extremes")])
def test_the_levels_of_the_median_are_distances_and_others_are_not(q, reached):
    """Definition 8 by search over all datasets; a lower quartile falls by removals, but to a value
    that nobody has only by one.
    """
    every = oracle.all_datasets(range(8), GRID)
    small = len(oracle.all_datasets(range(4), GRID))
    x, count = padded(every, 7)
    how = {"definition": "lower", **KNOWN}
    statistic = jax.jit(lambda x, count: quantile(x, q=q, num_records=count, **how))
    profile = statistic(x, count)
    sides = (np.asarray(side)[:small] for side in (profile.lower, profile.upper))
    lower, upper = (
        np.pad(side, [(0, 0), (0, 20 - side.shape[1])], "edge")[..., None] for side in sides
    )
    level = np.argmax((lower <= GRID) & (np.array(GRID) <= upper), axis=1)
    distance = distances_of(np.asarray(profile.value), every)[:small]
    assert profile.reached == reached
    assert (level <= distance).all()
    assert (level == distance).all() == (reached == "intervals")


def test_the_classical_median(x64):
    """The exponential mechanism on the difference of ranks, as the docstring of Duff says it: u_2
    of the paper's Section 4. One record replaced moves it by 2: the control.
    """
    for neighbors in DATASETS:
        x, count = padded(DATASETS[neighbors], 4, fill=HIGH)
        edges = np.pad(np.sort(x), [(0, 0), (1, 1)], constant_values=[(LOW, HIGH)])
        cost = np.abs(2.0 * np.arange(5) - count[:, None])
        found = PiecewiseExponential(edges, cost, cost, np.array(EPSILON / 2))
        if neighbors == "add_remove":
            assert shares(found) == pytest.approx(1, rel=1e-9)
        else:
            assert shares(found, "swap") > 1.4


def test_a_graph_is_the_set_of_its_edges():
    """All graphs on four nodes: true distances between triangle counts by search, and the levels of
    the profile, at most those.
    """
    adjacency = all_graphs(4)
    count, _ = brute_force(adjacency)
    values = np.unique(count)
    reached = count[:, None] == values
    distance = np.where(reached, 0.0, np.inf)
    for k in range(1, 7):
        reached = reached | flips(reached).any(axis=0)
        distance = np.where(reached & np.isinf(distance), k, distance)

    @jax.jit
    def of_graphs(adjacency, distance):
        profile = triangle_count(adjacency, num_levels=6, neighbors="edge").truncate(6)
        scores = from_distances(distance, candidates=values, neighbors="edge")
        twice = replace(scores, scores=2 * scores.scores)
        costs = [duff(one, EPSILON).log_probabilities() for one in (scores, twice)]
        return duff(profile, EPSILON).log_prob(values[:, None]), costs

    density, costs = of_graphs(adjacency, distance)
    # The second one is the control
    losses = [np.abs(flips(np.asarray(cost)) - cost).max() for cost in costs]
    assert losses[0] <= EPSILON * (1 + 1e-5)
    assert losses[1] > 1.7 * EPSILON
    density = np.asarray(density).T
    assert np.abs(flips(density) - density).max() <= EPSILON * (1 + 1e-5)
