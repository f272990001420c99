"""Local sensitivity of quantiles, ranks, means, triangles against a search over all datasets, and
what is built on it, exactly.
"""

from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import (
    from_local_sensitivity,
    inverse_sensitivity,
    local_sensitivity,
    mean_local_sensitivity,
    piecewise_laplace,
)
from dpjax.mechanisms import optimal_beta
from tests.mechanisms.test_propose_test_release import DELTA, exact_delta
from tests.mechanisms.test_smooth_noise import DATASETS, GRID, cauchy_loss, pairs_of
from tests.sensitivity.test_smooth_sensitivity import BETAS, at_distance_by_search, smoothness
from tests.statistics.test_triangles import all_graphs, brute_force, flips
from tests.support import oracle
from tests.support.audit import audit, padded

LOW, HIGH = GRID[0], GRID[-1]
RELATIONS = ("add_remove", "swap")
QUICK = [("9/10", "linear"), ("1/4", "lower")]
SLOW = [
    ("1/4", "linear"),
    ("9/10", "lower"),
    *((q, d) for q in ("2/3", "1/10", "11/20", "7/8", "99/100") for d in ("linear", "lower")),
]
QUANTILES = [*QUICK, *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)]


def statistic_of(name):
    """The definition of a statistic, for a sorted tuple of records."""
    if name == "mean":
        return lambda data: sum(data) / len(data) if data else (LOW + HIGH) / 2
    if isinstance(name, int):
        return lambda data: data[name - 1] if len(data) >= name else HIGH
    q, definition = name
    return lambda data: oracle.quantile(data, float(Fraction(q)), definition, LOW, HIGH)


def local_of(name, x, neighbors, count, lower=LOW, upper=HIGH):
    given = {"lower": lower, "upper": upper, "neighbors": neighbors, "num_records": count}
    if name == "mean":
        return mean_local_sensitivity(x, **given)
    how = (
        {"rank": name}
        if isinstance(name, int)
        else dict(zip(("q", "definition"), name, strict=True))
    )
    return local_sensitivity(x, **how, **given)


@cache
def all_of(name, neighbors):
    return local_of(name, *padded_datasets(neighbors)[:1], neighbors, padded_datasets(neighbors)[1])


@cache
def padded_datasets(neighbors):
    return padded(DATASETS[neighbors], 5)


def assert_exact(name, neighbors, sizes):
    datasets = oracle.all_datasets(sizes, GRID)
    x, count = padded(datasets, 5)
    found = local_of(name, x, neighbors, count)
    more = name - 1 if isinstance(name, int) and neighbors == "add_remove" else 0
    assert found.at_distance.shape == (len(datasets), 6 + more)
    exact = at_distance_by_search(statistic_of(name), neighbors, datasets, more)
    for row, (data, wanted) in enumerate(zip(datasets, exact, strict=True)):
        np.testing.assert_allclose(
            found.at_distance[row, : len(wanted)], wanted, atol=1e-12, err_msg=str(data)
        )
        np.testing.assert_allclose(found.value[row], statistic_of(name)(data), atol=1e-12)
    return found, datasets, exact


def assert_smooth(found, datasets, neighbors, exact):
    """The bound is that of the definition; it is smooth, and no smaller constant would do."""
    bound = np.asarray(found.smooth(BETAS[:, None]).bound)
    for row, wanted in enumerate(exact):
        np.testing.assert_allclose(found.at_distance[row, len(wanted) :], wanted[-1])
        defined = np.max(wanted * np.exp(-BETAS[:, None] * np.arange(len(wanted))), axis=-1)
        np.testing.assert_allclose(bound[:, row], np.maximum(defined, 1e-290), rtol=1e-12)
    attained = [smoothness(bound[i], datasets, neighbors) / beta for i, beta in enumerate(BETAS)]
    assert max(attained) <= 1 + 1e-9
    assert max(attained) >= 0.9


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize(("q", "definition"), QUANTILES)
def test_quantiles(q, definition, neighbors, x64):
    found, datasets, exact = assert_exact(
        (q, definition), neighbors, range(4) if neighbors == "add_remove" else [1, 2, 3, 4]
    )
    assert_smooth(found, datasets, neighbors, exact)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_means(neighbors, x64):
    found, datasets, exact = assert_exact(
        "mean", neighbors, range(5) if neighbors == "add_remove" else [1, 2, 3, 4]
    )
    assert_smooth(found, datasets, neighbors, exact)
    if neighbors == "swap":
        np.testing.assert_allclose(
            found.at_distance[:, 1:],
            np.broadcast_to([[20 / len(d)] for d in datasets], (len(datasets), 5)),
        )


@pytest.mark.parametrize(
    "rank", [2, *(pytest.param(rank, marks=pytest.mark.slow) for rank in (1, 4))]
)
def test_fixed_ranks_under_add_remove(rank, x64):
    """Also where fewer records are there than the rank."""
    found, datasets, exact = assert_exact(rank, "add_remove", range(4))
    assert_smooth(found, datasets, "add_remove", exact)


@pytest.mark.slow
@pytest.mark.parametrize("definition", ["linear", "lower"])
def test_random_rows_against_all_that_can_go_and_come(definition, x64):
    """Of more records, at distances up to 2: the records that go are any, those that come are at a
    bound or one that is there.
    """
    rng = np.random.default_rng(0)
    for q in ("0.6", "0.93", "1/3"):
        statistic = statistic_of((q, definition))
        for n in (7, 10):
            x = np.round(np.sort(rng.uniform(LOW, HIGH, n)) ** 2 / HIGH, 2)
            grid = (LOW, *x.tolist(), HIGH)
            layer, wanted, best = {tuple(x.tolist())}, [], 0.0
            for _ in range(3):
                local = (
                    abs(statistic(z) - statistic(o))
                    for z in layer
                    for o in oracle.neighbors_of(z, "add_remove", grid)
                )
                best = max(best, *local)
                wanted.append(best)
                layer = {o for z in layer for o in oracle.neighbors_of(z, "add_remove", grid)}
            found = local_sensitivity(
                x, q=q, definition=definition, lower=LOW, upper=HIGH, neighbors="add_remove"
            )
            np.testing.assert_allclose(found.at_distance[:3], wanted, atol=1e-12)


STATISTICS = [("mean", "add_remove"), (("3/4", "linear"), "add_remove")]
STATISTICS += [
    pytest.param(*each, marks=pytest.mark.slow)
    for each in (("mean", "swap"), (("3/4", "lower"), "swap"), (2, "add_remove"))
]


@pytest.mark.parametrize(("name", "neighbors"), STATISTICS)
def test_propose_test_release_is_private(name, neighbors, x64):
    local, pairs = all_of(name, neighbors), pairs_of(neighbors)
    for epsilon in (0.5, 2.0):
        worst = 0.0
        for proposal in (0.5, 2.0, 4.5, 9.0, 14.0):
            found = exact_delta(
                dpjax.propose_test_release(local, epsilon, delta=DELTA, proposal=proposal),
                pairs,
                epsilon,
            )
            assert found <= DELTA * (1 + 1e-9)
            worst = max(worst, found)
        assert worst >= 0.5 * DELTA
    # The controls: the local sensitivity of one change less, and of the dataset alone.
    late = replace(
        local,
        at_distance=jnp.concatenate([0 * local.at_distance[:, :1], local.at_distance], axis=-1),
    )
    alone = replace(
        local,
        at_distance=jnp.broadcast_to(local.at_distance[:, :1], (len(DATASETS[neighbors]), 60)),
    )
    for control in (late, alone):
        proposals = (0.5, 2.0, 4.5, 9.0)
        distributions = (
            dpjax.propose_test_release(control, 1.0, delta=DELTA, proposal=proposal)
            for proposal in proposals
        )
        assert (
            max(exact_delta(distribution, pairs, 1.0) for distribution in distributions)
            > 1.2 * DELTA
        )


@pytest.mark.parametrize(("name", "neighbors"), STATISTICS)
def test_cauchy_noise_and_profiles_are_private(name, neighbors, x64):
    local = all_of(name, neighbors)
    for epsilon in (0.5, 2.0):
        distribution = dpjax.smooth_cauchy(local, epsilon)
        assert cauchy_loss(distribution, neighbors) <= epsilon * (1 + 1e-9)
        assert (
            cauchy_loss(replace(distribution, scale=distribution.scale / 4), neighbors)
            > 1.2 * epsilon
        )
    for mechanism in (piecewise_laplace, inverse_sensitivity):
        result = audit(
            mechanism(from_local_sensitivity(local), 2.0), DATASETS[neighbors], neighbors, GRID
        )
        assert result.loss <= 2 * (1 + 1e-9)
        assert result.range <= 2 * (1 + 1e-9)
    constant = replace(local, at_distance=jnp.repeat(local.at_distance[:, :1], 5, axis=-1))
    assert (
        audit(
            piecewise_laplace(from_local_sensitivity(constant), 2.0),
            DATASETS[neighbors],
            neighbors,
            GRID,
        ).range
        > 2.1
    )


@pytest.mark.parametrize("n", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_triangles(n, x64):
    """Of all graphs; with num_levels of them, the rest is the global sensitivity."""
    adjacency = all_graphs(n)
    count, largest = brute_force(adjacency)
    local = dpjax.triangle_local_sensitivity(
        adjacency, num_levels=largest.shape[-1], neighbors="edge"
    )
    np.testing.assert_array_equal(local.value, count)
    np.testing.assert_array_equal(
        local.at_distance, np.append(largest, np.full((len(count), 1), n - 2), axis=-1)
    )
    few = dpjax.triangle_local_sensitivity(adjacency, num_levels=2, neighbors="edge")
    np.testing.assert_array_equal(
        few.at_distance, np.append(largest[:, :2], np.full((len(count), 1), n - 2), axis=-1)
    )
    for row in (0, 11, len(count) - 1):
        edges = np.argwhere(np.triu(adjacency[row]))
        one = dpjax.triangle_local_sensitivity_of_edges(
            edges, num_nodes=n, num_levels=2, neighbors="edge"
        )
        assert (one.at_distance.tolist(), one.value.item()) == (
            few.at_distance[row].tolist(),
            few.value[row].item(),
        )
        assert (one.lower.item(), one.upper.item(), one.neighbors) == (
            0,
            n * (n - 1) * (n - 2) / 6,
            "edge",
        )
    for some in (local, few):
        bound = np.asarray(some.smooth(0.3).bound)
        assert np.all(bound >= largest[:, 0])
        assert np.abs(np.log(flips(bound) / bound)).max() <= 0.3 * (1 + 1e-12)
    profile = dpjax.triangle_count(adjacency, num_levels=4, neighbors="edge")
    again = from_local_sensitivity(
        dpjax.triangle_local_sensitivity(adjacency, num_levels=3, neighbors="edge"),
        step=float(n - 2),
    )
    np.testing.assert_array_equal(again.upper[:, :4], profile.upper[:, :4])
    pairs = np.array(
        [(i, i ^ (1 << bit)) for i in range(len(count)) for bit in range(n * (n - 1) // 2)]
    ).T
    late = replace(
        local,
        at_distance=jnp.concatenate([0 * local.at_distance[:, :4], local.at_distance], axis=-1),
    )
    deltas = {
        which: max(
            exact_delta(
                dpjax.propose_test_release(some, 1.0, delta=DELTA, proposal=proposal), pairs, 1.0
            )
            for proposal in (0.5, 1.0, 1.5)
        )
        for which, some in (("exact", local), ("late", late))
    }
    assert deltas["exact"] <= DELTA * (1 + 1e-9)
    assert deltas["late"] > 1.2 * DELTA


def test_mechanisms_take_a_local_sensitivity_at_a_public_beta(x64):
    local = local_sensitivity(np.arange(101.0), q=0.9, lower=0, upper=100, neighbors="swap")
    epsilon = np.array([0.5, 2.0])
    published = local.smooth(epsilon / 6)
    for given, smooth in (
        (
            dpjax.smooth_cauchy(local, epsilon),
            dpjax.smooth_cauchy(local.smooth(optimal_beta(epsilon, noise="cauchy")), epsilon),
        ),
        (
            dpjax.smooth_cauchy(local, epsilon, calibration="published"),
            dpjax.smooth_cauchy(published, epsilon, calibration="published"),
        ),
        (
            dpjax.smooth_laplace(local, epsilon, delta=1e-3),
            dpjax.smooth_laplace(
                local.smooth(optimal_beta(epsilon, noise="laplace", delta=1e-3)),
                epsilon,
                delta=1e-3,
            ),
        ),
    ):
        np.testing.assert_allclose(given.quantile(0.9), smooth.quantile(0.9), rtol=1e-12)
    # For a given sigma the default beta is the best one on these evenly spaced records.
    scales = [
        float(dpjax.smooth_laplace_log_normal(local.smooth(beta), 0.5, sigma=0.3).scale)
        for beta in np.linspace(0.02, 0.28, 261)
    ]
    default = float(dpjax.smooth_laplace_log_normal(local, 0.5, sigma=0.3).scale)
    assert default <= 1.02 * min(scales)
    np.testing.assert_array_equal(
        dpjax.smooth_sensitivity(local, 0.1).bound, local.smooth(0.1).bound
    )
    assert dpjax.smooth_cauchy.guarantee(local, 1.0).neighbors == "swap"
    assert dpjax.smooth_laplace(
        local_sensitivity(np.ones((3, 5)), lower=0, upper=2, neighbors="swap"), 1.0, delta=0.01
    ).batch_shape == (3,)


def test_errors_name_the_next_step():
    x = np.arange(5.0)
    given = {"lower": 0, "upper": 9}
    local = local_sensitivity(x, neighbors="swap", **given)
    scores = dpjax.from_distances([4.0, 0.0], candidates=[1, 2], neighbors="swap")
    for wrong, message in (
        (lambda: piecewise_laplace(x, 1.0), r"dpjax.median\(x, ...\).*an array"),
        (lambda: inverse_sensitivity(jnp.asarray(x), 1.0), r"dpjax.median\(x, ...\).*an array"),
        (lambda: piecewise_laplace(local, 1.0), "from_local_sensitivity makes a profile of it"),
        (lambda: piecewise_laplace(local.smooth(0.1), 1.0), "smooth_cauchy"),
        (lambda: inverse_sensitivity(scores, 1.0), "dpjax.exponential"),
        (lambda: piecewise_laplace(dpjax.maximum(x, **given), 1.0), r"\.shift\(tau\)"),
        (lambda: dpjax.shifted_inverse(x, 1.0, tau=3), r"dpjax.maximum\(x, ...\)"),
        (lambda: dpjax.smooth_cauchy(x, 1.0), r"dpjax.local_sensitivity\(x, ...\)"),
        (
            lambda: dpjax.propose_test_release(x, 1.0, delta=0.1, proposal=1.0),
            r"dpjax.local_sensitivity\(x, ...\)",
        ),
        (lambda: from_local_sensitivity(local, neighbors="swap"), "num_levels and step"),
        (
            lambda: dpjax.smooth_sensitivity(local, 0.1, **given),
            "only beta can be given.*got lower, upper",
        ),
    ):
        with pytest.raises(TypeError, match=message):
            wrong()


EACH = [("mean", n) for n in RELATIONS] + [
    (("9/10", d), n) for d in ("linear", "lower") for n in RELATIONS
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "neighbors"), [*EACH, (3, "add_remove")])
def test_gradients_are_those_of_the_records_that_decide(name, neighbors, x64):
    def bound(x):
        return local_of(name, x, neighbors, None, 0.0, 1.0).smooth(0.3).bound

    x, step = jnp.array([0.1, 0.2, 0.5, 0.55, 0.93]), 1e-6 * np.eye(5)
    np.testing.assert_allclose(
        jax.grad(bound)(x), (bound(x[None] + step) - bound(x[None] - step)) / 2e-6, atol=1e-7
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "neighbors"), EACH)
def test_few_records_and_hostile_ones(name, neighbors):
    """No exception, warning or NaN, whatever the data; a NaN record is absent under add/remove and
    the lower bound under swap.
    """
    for n in (0, 1, 2):
        for fill in (0.5, -np.inf, np.inf, np.nan, 1e38):
            local = local_of(name, np.full((2, n), fill, np.float32), neighbors, None, -1.0, 3.0)
            assert ((local.at_distance >= 0) & (local.at_distance <= 4)).all()
            assert ((local.value >= -1) & (local.value <= 3)).all()
    x = np.array([0.5, np.nan, 1.0, 2.0], np.float32)
    without = (
        x[[0, 2, 3]] if neighbors == "add_remove" else np.where(np.isnan(x), np.float32(-1), x)
    )
    found, wanted = (
        local_of(name, each, neighbors, None, -1.0, 3.0).at_distance for each in (x, without)
    )
    np.testing.assert_array_equal(found[: wanted.size], wanted)


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize(("name", "neighbors"), EACH)
def test_padding_changes_no_bit(name, neighbors):
    x = np.random.default_rng(0).normal(size=(50, 45)).astype(np.float32)

    @partial(jax.jit, static_argnames="width")
    def smooth(x, beta, width):
        wide = jnp.pad(x, ((0, 0), (0, width)), constant_values=9.0)
        found = local_of(
            name, wide, neighbors, jnp.full(x.shape[:1], x.shape[1]), -3.0, 3.0
        ).smooth(beta)
        return found.value, found.bound

    for whole, wide in zip(smooth(x, 0.07, 0), smooth(x, 0.07, 30), strict=True):
        np.testing.assert_array_equal(whole, wide)
    for whole, few in zip(smooth(x, 0.07, 0), smooth(x[:7], 0.07, 0), strict=True):
        np.testing.assert_array_equal(whole[:7], few)
