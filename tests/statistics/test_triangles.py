"""Triangle counts: every graph on four to six nodes, by brute force over the hypercube of their
edges, and the exact audit.
"""

import itertools
from functools import partial
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import triangle_count, triangle_local_sensitivity
from dpjax.statistics import triangle_count_of_edges, triangle_local_sensitivity_of_edges


def all_graphs(n):
    """Adjacency matrices of all labelled graphs. Bit e of a graph's number is its e-th pair:
    neighbors differ in a bit.
    """
    pairs = list(itertools.combinations(range(n), 2))
    number = np.arange(2 ** len(pairs))
    adjacency = np.zeros((number.size, n, n), bool)
    for bit, (i, j) in enumerate(pairs):
        adjacency[:, i, j] = adjacency[:, j, i] = (number >> bit) & 1
    return adjacency


def flips(values):
    """Of an array over all graphs, the values at the neighbors: ``(edges, graphs)``."""
    number = np.arange(len(values))
    return np.stack([values[number ^ (1 << bit)] for bit in range(len(values).bit_length() - 1)])


def brute_force(adjacency):
    """The triangles, and the largest local sensitivity within 0, 1, ..., all edges, by
    breadth-first search.
    """
    n = adjacency.shape[-1]
    count = np.sum(
        [
            adjacency[:, i, j] & adjacency[:, j, k] & adjacency[:, i, k]
            for i, j, k in itertools.combinations(range(n), 3)
        ],
        0,
    )
    largest = [np.max(np.abs(flips(count) - count), axis=0)]
    for _ in range(comb(n, 2)):
        largest.append(np.maximum(largest[-1], np.max(flips(largest[-1]), axis=0)))
    return count, np.stack(largest, axis=-1)


def radii_of(profile):
    return np.diff(np.asarray(profile.upper)).astype(int)


def keeps_definition_5_1(radii, after, count):
    """R_l(x) <= R_{l+1}(x') and R_1(x) >= abs(f(x) - f(x')) for all neighbors, with a constant
    radius after the last.
    """
    radii = np.append(radii, np.full((len(radii), 1), after), axis=-1)
    return np.all(radii[..., :-1] <= flips(radii)[..., 1:]) and np.all(
        radii[..., 0] >= np.abs(flips(count) - count)
    )


@pytest.mark.parametrize("n", [4, 5, pytest.param(6, marks=pytest.mark.slow)])
def test_every_graph_against_brute_force(n):
    adjacency = all_graphs(n)
    count, largest = brute_force(adjacency)
    distance = np.arange(largest.shape[-1])
    options = {"num_levels": distance.size, "neighbors": "edge"}
    profile = jax.device_get(jax.jit(partial(triangle_count, **options))(adjacency))
    np.testing.assert_array_equal(profile.value, count)
    assert (profile.upper + profile.lower == 2 * count[:, None]).all()
    assert [end[0] for end in profile.bounds] == [0, comb(n, 3)]
    assert (profile.step == n - 2).all()
    assert profile.neighbors == "edge"
    assert keeps_definition_5_1(radii_of(profile), n - 2, count)
    np.testing.assert_array_equal(radii_of(profile), largest)
    local = jax.jit(partial(triangle_local_sensitivity, **options))(adjacency)
    beyond = np.full((len(count), 1), n - 2)  # the global sensitivity
    np.testing.assert_array_equal(local.at_distance, np.append(largest, beyond, axis=-1))
    assert (np.asarray(local.value) == count).all()
    assert [end.item() for end in (local.lower, local.upper)] == [0, comb(n, 3)]
    assert np.max(np.abs(flips(largest[:, 0]) - largest[:, 0])) == 1  # Delta' of Corollary 5.2
    assert np.any(largest[:, 1] > largest[:, 0])  # the loose index of Corollary 5.1 is not needed
    if n == 4:
        return
    for control, after in {
        "too late": (np.append(largest[:, :1], largest[:, :-1], axis=-1), n - 2),
        "that of the graph alone": (largest[:, :1] + 0 * distance, n - 2),
        "half": (largest // 2, n - 2),
        "nodes at one end forgotten": (np.minimum(largest[:, :1] + distance // 2, n - 2), n - 2),
        "shorter steps after the last": (largest[:, :2], n - 3),
    }.values():
        assert not keeps_definition_5_1(control, after, count)


def edges_of(adjacency, rng):
    """The edges in random order and directions, some of them twice, with loops and with nodes that
    do not exist.
    """
    n = len(adjacency)
    edges = rng.permutation(np.argwhere(np.triu(adjacency, 1)))
    odd = [[0, 0], [n - 1, n - 1], [0, n], [-1, 2]]
    edges = np.concatenate([edges, edges[: len(edges) // 3], odd])
    turned = rng.integers(0, 2, (len(edges), 1))
    return np.where(turned, edges[:, ::-1], edges)


def random_graphs(n, rng):
    """Of every density, and a star, whose pairs without a common neighbor decide, and a matching,
    where there are none with one.
    """
    star, matching = np.zeros((2, n, n), bool)
    star[3] = True
    matching[np.arange(0, n - 1, 2), np.arange(1, n, 2)] = True
    densities = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.97, 1.0)
    return [*(np.triu(rng.random((n, n)) < density, 1) for density in densities), star, matching]


def of_matrix(adjacency, num_levels, **options):
    given = {"num_levels": num_levels, "neighbors": "edge", **options}
    return jax.device_get(jax.jit(partial(triangle_count, **given))(adjacency))


def test_a_list_of_edges_has_the_profile_of_its_matrix():
    rng, n, options = np.random.default_rng(0), 23, {"num_levels": 50}
    several = np.stack(random_graphs(n, rng))
    dense = of_matrix(several, **options)
    given = {"num_nodes": n, "neighbors": "edge", **options}
    for row, graph in enumerate(several):
        edges = edges_of(graph | graph.T, rng)
        one = triangle_count_of_edges(edges, **given)
        np.testing.assert_array_equal(one.upper, dense.upper[row])
        np.testing.assert_array_equal(one.lower, dense.lower[row])
        local = triangle_local_sensitivity_of_edges(edges, **given)
        np.testing.assert_array_equal(local.at_distance, [*radii_of(one), n - 2])
    assert jax.tree.structure(one) == jax.tree.structure(dense)
    # All reach the global sensitivity in the end
    np.testing.assert_array_equal(radii_of(dense)[:, -1], n - 2)


def test_counts_do_not_overflow():
    """With 1700 nodes, all corners of all triangles are more than 2^32."""
    profile = of_matrix(np.ones((1700, 1700), bool), 2)
    assert float(profile.value) == np.float32(comb(1700, 3))
    assert profile.step.tolist() == 1698


@pytest.mark.parametrize(
    ("edges", "upper"),
    [
        ([], [0, 0, 0, 1]),
        (np.empty((0, 2), np.int32), [0, 0, 0, 1]),
        (np.array([[0, 0]], np.uint64), [0, 0, 0, 1]),
        ([[7, 9], [-4, 1]], [0, 0, 0, 1]),
        # Beyond 64 bits they are out of range
        ([[0, 1], [1, 2], [0, 2], [0, 2**64], [-(2**70), 1], [1, 2**64 + 2]], [1, 2, 3, 5]),
        ([[0, 1], [1, 2], [0, 2], [0, None], ["3", 1], [4, float("nan")]], [1, 2, 3, 5]),
    ],
)
def test_edges_of_nodes_that_are_none(edges, upper):
    profile = triangle_count_of_edges(edges, num_nodes=5, num_levels=3, neighbors="edge")
    assert profile.upper.tolist() == upper


def test_any_matrix_is_a_graph():
    """Weights, one direction only, loops, NaN and infinities neither raise nor warn."""
    plain = np.triu(np.random.default_rng(1).random((4, 23, 23)) < 0.3, 1)
    weights = np.array([-2.5, np.inf, 1e-30, -np.inf], np.float32)[:, None, None]
    hostile = np.where(plain, weights, 0.0).astype(np.float32)
    hostile[:, np.arange(23), np.arange(23)] = 7.0
    hostile[~plain & (np.arange(23) % 3 == 0)] = np.nan
    turned, nothing = np.swapaxes(plain, 1, 2).astype(np.float32), np.full_like(hostile, np.nan)
    batch = of_matrix(np.stack([plain.astype(np.float32), hostile, turned, nothing]), 6)
    for side in (batch.upper, batch.lower):
        np.testing.assert_array_equal(side[1], side[0])
        np.testing.assert_array_equal(side[2], side[0])
    assert batch.upper[3, :, 0].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("entry", [1e-50, -1e-310, np.float32(1e-40), 10**30])
def test_entries_that_a_narrower_float_takes_for_zero_are_edges(entry):
    graph = np.triu(np.full((4, 4), entry), 1)
    for given in (graph, graph.tolist()):
        profile = triangle_count(given, num_levels=1, neighbors="edge")
        assert (float(profile.value), profile.dtype) == (4, jnp.float32)


@pytest.mark.parametrize(
    ("word", "function", "data", "given"),
    [
        ("square", triangle_count, np.zeros((3, 4)), {}),
        ("3 nodes", triangle_count, np.zeros((2, 2)), {}),
        ("edge", triangle_count, np.eye(4), {"neighbors": "swap"}),
        ("shape", triangle_count_of_edges, [[0, 1, 2]], {}),
    ],
)
def test_what_is_no_graph(word, function, data, given):
    options = {"num_levels": 3, "neighbors": "edge"}
    options |= {"num_nodes": 4} if function is triangle_count_of_edges else {}
    with pytest.raises(ValueError, match=word):
        function(data, **options | given)


def test_edges_cannot_be_traced():
    of = partial(triangle_count_of_edges, num_nodes=4, num_levels=1, neighbors="edge")
    with pytest.raises(TypeError, match="outside jit"):
        jax.jit(of)(np.zeros((2, 2), int))


@pytest.mark.parametrize(
    ("path", "nodes", "triangles", "shared"),  # the most neighbors that two nodes have in common
    [
        ("karate/karate", 34, 45, 10),
        pytest.param("musae_facebook_pages/facebook", 22470, 794_953, 653, marks=pytest.mark.slow),
    ],
)
def test_graphs_of_people_and_pages(path, nodes, triangles, shared, data_folder):
    columns = {"delimiter": ",", "skiprows": 1, "usecols": (0, 1), "dtype": np.int64}
    edges = np.loadtxt(data_folder / f"graph_{path}_edges.csv", **columns)
    profile = triangle_count_of_edges(edges, num_nodes=nodes, num_levels=100, neighbors="edge")
    assert (float(profile.value), float(profile.step)) == (triangles, nodes - 2)
    assert radii_of(profile)[0] == shared
