"""Duff: the paper's median and mode under add/remove, and its privacy on every small dataset."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpjax import (
    PiecewiseExponential,
    duff,
    median,
    mode,
    piecewise_laplace,
    quantile,
    triangle_count,
)
from tests.mechanisms.test_privacy import DATASETS, GRID, HIGH, LOW
from tests.statistics.test_triangles import all_graphs, brute_force, flips
from tests.support import oracle
from tests.support.audit import audit, neighboring_rows, padded
from tests.support.profiles import sides_of, with_sides

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
    pairs = neighboring_rows(tuple(every), "add_remove", GRID)
    first, second = np.concatenate([pairs, pairs[::-1]], axis=1)
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
    """All graphs on four nodes."""
    adjacency = all_graphs(4)
    values = np.unique(brute_force(adjacency)[0])

    @jax.jit
    def log_prob(adjacency):
        profile = triangle_count(adjacency, num_levels=6, neighbors="edge").truncate(6)
        thrice = replace(profile, levels=3 * profile.levels)
        return [duff(one, EPSILON).log_prob(values[:, None]) for one in (profile, thrice)]

    right, control = (np.asarray(logs).T for logs in log_prob(adjacency))
    assert np.abs(flips(right) - right).max() <= EPSILON * (1 + 1e-5)
    assert np.abs(flips(control) - control).max() > 1.2 * EPSILON
