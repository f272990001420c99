"""The exact privacy loss against quadrature, two NumPy audits of this suite, and closed forms."""

import json
import pathlib
from dataclasses import replace
from decimal import Decimal, localcontext
from functools import cache

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import (
    Finite,
    PiecewiseExponential,
    Tails,
    from_radii,
    inverse_sensitivity,
    laplace,
    median,
    piecewise_laplace,
)
from dpjax.auditing import privacy_loss
from tests.support import oracle
from tests.support.audit import audit, one_sided_limits, padded
from tests.support.hockey_stick import hockey_stick

GRID = (0.0, 1.0, 5.0, 6.0, 20.0)
TABLES = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "F_accounting.json").read_text()
)


def by_order(table):
    """One row of epsilons for each order."""
    rows = {}
    for key, value in table.items():
        rows.setdefault(key.split("alpha=")[1], []).append(float(value))
    return rows


GOLDEN = {
    "laplace": by_order(TABLES["laplace_rdp"]),
    "randomized_response": by_order(TABLES["pdp_to_rdp"]),
}
EPSILON = 2.0
PAIRS = np.arange(80).reshape(40, 2).T
EPSILONS = np.array([0.0, 0.3, 1.0, 1.9, 2.5])


def rows_of(distribution, rows):
    """Some rows of a distribution in which only the edges differ from row to row."""
    return replace(distribution, edges=distribution.edges[np.asarray(rows)])


def all_pairs(datasets, neighbors):
    index = {data: row for row, data in enumerate(datasets)}
    pairs = [
        (i, index[other])
        for data, i in index.items()
        for other in oracle.neighbors_of(data, neighbors, GRID)
        if other in index
    ]
    return np.array(pairs).T


SHARES = np.linspace(0, 1, 65)  # of e^sup - 1, in even steps
ORDERS = np.array([1.01, 1.5, 2.0, 4.0, 8.0, 64.0, 1e4])


@cache
def with_tails():
    """40 random pairs with steps for tails, rows 2i and 2i + 1 of one distribution: edges anywhere,
    and nothing private about them.

    Everything that is compared is compiled as one.
    """
    rng = np.random.default_rng(0)
    values, radii = (
        rng.uniform(0, 20, 80),
        np.sort(rng.exponential(2, (80, 3)) * rng.integers(0, 2, (80, 3)), axis=-1),
    )

    @jax.jit
    def run(values, radii):
        distribution = piecewise_laplace(from_radii(values, radii, neighbors="swap", step=9.0), 3.0)
        loss = privacy_loss(rows_of(distribution, PAIRS[0]), rows_of(distribution, PAIRS[1]))
        curve = jnp.log1p(jnp.asarray(SHARES)[:, None] * jnp.expm1(loss.epsilon)[None])
        epsilons = jnp.concatenate(
            [jnp.broadcast_to(jnp.asarray(EPSILONS)[:, None], (5, 40)), curve]
        )
        found = {
            name: getattr(loss, name)
            for name in ("epsilon", "bounded_range", "forward", "backward")
        }
        for direction in ("forward", "backward"):
            found["delta_" + direction] = loss.delta(epsilons, direction=direction)
            found["kl_" + direction] = loss.kl(direction=direction)
            found["renyi_" + direction] = loss.renyi(ORDERS[:, None], direction=direction)
        return distribution, loss, found

    distribution, loss, found = run(values, radii)
    return distribution, loss, jax.tree.map(np.asarray, found)


@cache
def medians(mechanism):
    """All swaps of all datasets of four records on the grid, compiled once for any rate."""
    datasets = oracle.all_datasets([4], GRID)
    pairs = all_pairs(datasets, "swap")

    @jax.jit
    def run(x, faster):
        distribution = mechanism(median(x, lower=0.0, upper=20.0, neighbors="swap"), EPSILON)
        distribution = replace(distribution, rate=distribution.rate * faster)
        loss = privacy_loss(rows_of(distribution, pairs[0]), rows_of(distribution, pairs[1]))
        deltas = loss.delta(EPSILONS[:, None], direction="forward")
        return distribution, loss.epsilon, loss.bounded_range, loss.forward, loss.backward, deltas

    return datasets, pairs, lambda faster: run(np.array(datasets), faster)


def limits_of(distribution, pairs):
    """Sup log p/q and sup log q/p by the other audit."""
    limits = one_sided_limits(distribution).reshape(distribution.batch_shape[0], -1)
    ratio = limits[pairs[0]] - limits[pairs[1]]
    return ratio.max(axis=-1), -ratio.min(axis=-1)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [piecewise_laplace, inverse_sensitivity])
def test_all_swaps_of_all_small_datasets_against_the_other_audits(mechanism, x64):
    datasets, pairs, run = medians(mechanism)
    distribution, epsilon, bounded_range, forward, backward, deltas = run(1.0)
    other = audit(distribution, datasets, "swap", GRID)
    assert float(epsilon.max()) == pytest.approx(other.loss, rel=1e-12)
    assert float(bounded_range.max()) == pytest.approx(other.range, rel=1e-12)
    assert other.range == pytest.approx(EPSILON, rel=1e-12)  # what the mechanism promises, attained
    for found, expected in zip((forward, backward), limits_of(distribution, pairs), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)
    for at, delta in zip(EPSILONS, np.asarray(deltas), strict=True):
        np.testing.assert_allclose(
            delta, np.maximum(hockey_stick(distribution, pairs, at), 0), atol=1e-13
        )
    assert (np.asarray(deltas)[-1] == 0).all()


def test_control_a_rate_that_is_ten_percent_too_large(x64):
    _, _, run = medians(piecewise_laplace)
    assert float(run(1.0)[2].max()) == pytest.approx(EPSILON, rel=1e-12)
    assert float(run(1.1)[2].max()) == pytest.approx(1.1 * EPSILON, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [piecewise_laplace, inverse_sensitivity])
def test_all_additions_and_removals_of_all_small_datasets(mechanism, x64):
    datasets = oracle.all_datasets(range(5), GRID)
    pairs = all_pairs(datasets, "add_remove")

    @jax.jit
    def run(x, count):
        distribution = mechanism(
            median(x, lower=0.0, upper=20.0, neighbors="add_remove", num_records=count), EPSILON
        )
        loss = privacy_loss(rows_of(distribution, pairs[0]), rows_of(distribution, pairs[1]))
        return distribution, loss.epsilon.max(), loss.bounded_range.max()

    distribution, epsilon, bounded_range = run(*padded(datasets, 4))
    other = audit(distribution, datasets, "add_remove", GRID)
    assert float(epsilon) == pytest.approx(other.loss, rel=1e-12)
    assert float(bounded_range) == pytest.approx(EPSILON, rel=1e-12)


@pytest.mark.slow
def test_tails_against_the_other_audits(x64):
    distribution, _, found = with_tails()
    for name, expected in zip(("forward", "backward"), limits_of(distribution, PAIRS), strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=1e-12)
    for direction, order in (("forward", PAIRS), ("backward", PAIRS[::-1])):
        for epsilon, delta in zip(EPSILONS, found["delta_" + direction], strict=False):
            np.testing.assert_allclose(
                delta, np.maximum(hockey_stick(distribution, order, epsilon), 0), atol=1e-13
            )


@pytest.mark.slow
@pytest.mark.parametrize("tails", ["none", "some"])
def test_random_distributions_against_the_other_hockey_stick(tails, x64):
    """Costs that jump, ties, unequal supports and rates, a tail on either side or none; rows
    without any mass are NaN.
    """
    rng = np.random.default_rng(1)
    edges = np.sort(rng.integers(-6, 7, (400, 5)) + rng.choice([0, 0.37], (400, 5)), axis=-1)
    left, right, rate = (*rng.integers(0, 6, (2, 400, 4)).astype(float), rng.uniform(0.3, 2, 400))
    far = Tails(
        *map(
            jnp.asarray,
            (
                rng.uniform(0, 3, 400),
                rng.choice([0.0, 1, 2], 400),
                np.ones(400),
                rng.choice([0.0, 1], 400),
            ),
        )
    )
    distribution = PiecewiseExponential(
        *map(jnp.asarray, (edges, left, right, rate)), far if tails == "some" else None
    )
    pairs = np.arange(400).reshape(200, 2).T
    loss = privacy_loss(
        *(jax.tree.map(lambda field, rows=rows: field[rows], distribution) for rows in pairs)
    )
    no_distribution = ~np.isfinite(np.asarray(distribution.log_normalizer()))[pairs].all(axis=0)
    assert no_distribution.any() == (tails == "none") or no_distribution.sum() < 5
    for epsilon in (0.0, 0.4, 2.0, 5.0):
        for direction, order in (("forward", pairs), ("backward", pairs[::-1])):
            delta = np.asarray(loss.delta(epsilon, direction=direction))
            with np.errstate(all="ignore"):
                expected = np.maximum(hockey_stick(distribution, order, epsilon), 0)
            np.testing.assert_array_equal(np.isnan(delta), no_distribution)
            np.testing.assert_allclose(
                delta[~no_distribution], expected[~no_distribution], atol=1e-14
            )
    # A finite epsilon exists for this delta exactly where the supports allow it.
    outside = np.asarray(loss.delta(300.0))
    np.testing.assert_array_equal(
        np.isinf(np.asarray(loss.epsilon_at(1e-3)))[~no_distribution],
        (outside > 1e-3)[~no_distribution],
    )


def quadrature_points(distribution):
    """Weights and both log-densities between neighboring edges of any row, and 400 units of y
    beyond.
    """
    nodes, weights = np.polynomial.legendre.leggauss(24)
    edges = np.unique(np.asarray(distribution.edges))
    cuts = np.concatenate(
        [
            edges[0] - np.linspace(400, 0, 40, endpoint=False),
            edges,
            edges[-1] + np.linspace(10, 400, 40),
        ]
    )
    left, width = cuts[:-1], np.diff(cuts)
    points = (left[:, None] + width[:, None] * (nodes + 1) / 2).ravel()
    logs = np.asarray(
        distribution.log_prob(
            np.broadcast_to(points[:, None], (points.size, distribution.batch_shape[0]))
        )
    )
    return (width[:, None] / 2 * weights).ravel(), logs[:, PAIRS[0]], logs[:, PAIRS[1]]


def integral(weights, log_p, log_q, function):
    return weights @ function(log_p, log_q)


def test_divergences_against_quadrature(x64):
    """Smooth integrands between edges: 24 nodes are exact to rounding, and beyond 400 the mass is
    below e^-60.
    """
    distribution, _, found = with_tails()
    logs = quadrature_points(distribution)
    np.testing.assert_allclose(integral(*logs, lambda p, q: np.exp(p)), 1, rtol=1e-12)
    expected = integral(*logs, lambda p, q: np.exp(p) * (p - q))
    np.testing.assert_allclose(found["kl_forward"], expected, rtol=1e-11, atol=1e-13)
    for order, values in zip(ORDERS[1:5], found["renyi_forward"][1:5], strict=True):
        expected = np.log(
            integral(*logs, lambda p, q, order=order: np.exp(order * p + (1 - order) * q))
        ) / (order - 1)
        np.testing.assert_allclose(values, expected, rtol=1e-11, atol=1e-13)


def test_properties_of_the_privacy_profile(x64):
    _, loss, found = with_tails()
    delta = {direction: found["delta_" + direction][5:] for direction in ("forward", "backward")}
    for curve in delta.values():
        assert (np.diff(curve, axis=0) <= 1e-15).all()
        assert (np.diff(curve, 2, axis=0) >= -1e-14).all()  # convex in e^epsilon
    # At 0, both directions are the total variation distance; at the supremum nothing is left, and
    # just below it something is.
    np.testing.assert_allclose(delta["forward"][0], delta["backward"][0], atol=1e-14)
    either = np.maximum(*delta.values())
    assert (either[-1] <= 1e-15).all()
    assert (either[-2] > 0).all()
    renyi = np.maximum(found["renyi_forward"], found["renyi_backward"])
    assert (np.diff(renyi, axis=0) >= -1e-12).all()
    assert (renyi <= found["epsilon"] * (1 + 1e-12)).all()
    assert (np.maximum(found["kl_forward"], found["kl_backward"]) <= renyi[0] * (1 + 1e-12)).all()
    np.testing.assert_allclose(renyi[-1], found["epsilon"], atol=2e-3)
    np.testing.assert_array_equal(np.asarray(loss.reverse().forward), found["backward"])


@pytest.mark.slow
def test_epsilon_at_inverts_delta_from_the_safe_side(x64):
    _, loss, _ = with_tails()
    delta = np.array([1e-8, 1e-3, 0.2])[:, None]
    epsilon = np.asarray(loss.epsilon_at(delta))
    assert (loss.delta(epsilon) <= delta).all()
    assert ((np.asarray(loss.delta(np.maximum(epsilon - 1e-9, 0))) > delta) | (epsilon == 0)).all()


LAPLACE_EPSILONS = np.array([0.1, 0.5, 1.0, 2.0, 4.0])


SHARE = np.array([0.0, 0.3, 0.9, 1.0])[:, None]


def everything(loss, orders, top):
    renyi = loss.renyi(jnp.asarray([[float(order)] for order in orders]))
    return (
        loss.epsilon,
        loss.bounded_range,
        loss.delta(jnp.asarray(SHARE) * top[None]),
        loss.kl(),
        renyi,
    )


@pytest.mark.slow
def test_laplace_in_closed_form(x64):
    """Dwork et al. (2006); Balle, Barthe and Gaboardi (2018), Theorem 3; Mironov (2017),
    Proposition 6.
    """

    @jax.jit
    def run(s):
        loss = privacy_loss(laplace(0.0, s, sensitivity=1.0), laplace(1.0, s, sensitivity=1.0))
        return *everything(loss, GOLDEN["laplace"], s), loss.epsilon_at(0.01)

    s = LAPLACE_EPSILONS
    epsilon, bounded_range, delta, kl, renyi, inverse = run(jnp.asarray(s))
    np.testing.assert_allclose(epsilon, s, rtol=1e-15)
    np.testing.assert_allclose(bounded_range, 2 * s, rtol=1e-15)
    np.testing.assert_allclose(delta, -np.expm1(-(1 - SHARE) * s / 2), rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(inverse, s + 2 * np.log1p(-0.01), rtol=1e-13)
    np.testing.assert_allclose(kl, np.expm1(-s) + s, rtol=1e-12)
    np.testing.assert_allclose(renyi, list(GOLDEN["laplace"].values()), rtol=1e-9)


def test_randomized_response_in_closed_form(x64):
    """The tight pair of pure differential privacy: its divergences are the tight conversions (Bun
    and Steinke 2016).
    """

    @jax.jit
    def run(s):
        cost = jnp.array([[0.0, 1.0], [1.0, 0.0]])
        loss = privacy_loss(*(Finite(jnp.arange(2.0), cost[row], s) for row in (0, 1)))
        return everything(loss, GOLDEN["randomized_response"], s)

    s = LAPLACE_EPSILONS
    epsilon, bounded_range, delta, kl, renyi = run(jnp.asarray(s))
    np.testing.assert_allclose(epsilon, s, rtol=1e-15)
    np.testing.assert_allclose(bounded_range, 2 * s, rtol=1e-15)
    np.testing.assert_allclose(
        delta, (np.exp(s) - np.exp(SHARE * s)) / (1 + np.exp(s)), rtol=1e-12, atol=1e-16
    )
    np.testing.assert_allclose(kl, s * np.tanh(s / 2), rtol=1e-13)
    np.testing.assert_allclose(renyi, list(GOLDEN["randomized_response"].values()), rtol=1e-9)


def test_candidates_that_differ_or_are_impossible(x64):
    """p misses a candidate of q; the candidates are not the same; and padding may hold anything."""

    @jax.jit
    def run(values, cost):
        p = Finite(jnp.array([0.0, 1.0, 2.0]), jnp.array([0.0, 1.0, jnp.inf]), jnp.ones(()))
        loss = privacy_loss(p, Finite(values, cost, jnp.ones(())))
        backward = (
            loss.delta(30.0, direction="backward"),
            loss.kl(direction="backward"),
            loss.renyi(2.0, direction="backward"),
        )
        return loss.epsilon, *backward, loss.kl(direction="forward")

    values = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 9.0], [0.0, 1.0, 9.0]])
    epsilon, delta, kl, renyi, forward = run(
        values, np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, np.inf]])
    )
    for value in (epsilon, kl, renyi):
        np.testing.assert_array_equal(value, [np.inf, np.nan, 0.0])
    np.testing.assert_allclose(delta, [1 / (2 + np.exp(-1)), np.nan, 0.0], rtol=1e-12)
    assert np.isfinite(forward[0])


def three(edges, cost_left, cost_right=None, rate=1.0, dtype="float64"):
    """A distribution of three pieces, so that most tests share one program."""
    fields = (edges, cost_left, cost_left if cost_right is None else cost_right, rate)
    return PiecewiseExponential(*(jnp.asarray(np.asarray(field, dtype)) for field in fields))


@pytest.mark.slow
def test_unequal_supports(x64):
    p, q = three([0, 0.5, 0.5, 1], [0, 0, 0]), three([0, 1, 1, 2], [0, 0, 0])
    loss = privacy_loss(p, q)
    assert float(loss.forward) == pytest.approx(np.log(2), rel=1e-15)
    assert float(loss.backward) == np.inf
    np.testing.assert_allclose(loss.delta(np.array([0.0, 30.0])), 0.5, rtol=1e-14)
    assert float(privacy_loss(p, p).epsilon) == 0


@pytest.mark.slow
def test_unequal_tails(x64):
    """Laplace noise of scales 1 and s > 1: q leaves every bound, and where q > e^epsilon p starts
    at a crossing on each side.
    """
    s, epsilons = np.array([1.1, 3.0]), np.array([[0.0], [1.0]])
    deltas = np.array([[1e-3], [0.3]])

    @jax.jit
    def run(first, second, values):
        loss = privacy_loss(
            laplace(np.zeros(2), 1.0, sensitivity=first), laplace(values, 1.0, sensitivity=second)
        )
        epsilon = loss.epsilon_at(deltas, direction="backward")
        delta = loss.delta(
            jnp.concatenate([jnp.broadcast_to(epsilons, (2, 2)), epsilon]), direction="backward"
        )
        # The integral of q^a p^(1-a) is finite below a = s / (s - 1), which is 11 and 1.5.
        renyi = loss.renyi(np.array([[1.4], [10.0], [12.0]]), direction="backward")
        return loss.epsilon, loss.forward, loss.backward, epsilon, delta, renyi

    _, forward, backward, epsilon, delta, renyi = (
        np.asarray(found) for found in run(np.ones(2), s, np.zeros(2))
    )
    np.testing.assert_allclose(forward, np.log(s), rtol=1e-14)
    np.testing.assert_array_equal(backward, np.inf)
    crossing = (epsilons + np.log(s)) / (1 - 1 / s)
    exact = np.exp(-crossing / s) - np.exp(epsilons - crossing)
    np.testing.assert_allclose(delta[:2], exact, rtol=1e-12)
    np.testing.assert_allclose(delta[2], 1e-3, rtol=1e-12)
    np.testing.assert_array_equal(epsilon[1, 0], 0.0)
    np.testing.assert_array_equal(np.isinf(renyi), [[False, False], [False, True], [True, True]])
    # Scales of one public number that was rounded twice are not infinitely far apart.
    np.testing.assert_allclose(run(s, np.nextafter(s, 4.0), np.ones(2))[0], 1 / s, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_losses_far_below_the_smallest_float(dtype, x64):
    """Densities of e^-10000: costs are compared, in float32 too. The oracle has 60 digits."""
    costs = [[5000, 1, 4000], [4999, 2, 4001]]
    loss = privacy_loss(*(three([0, 1, 2, 3], cost, rate=2, dtype=dtype) for cost in costs))
    with localcontext() as context:
        context.prec = 60
        log_z = [sum((-2 * Decimal(c)).exp() for c in cost).ln() for cost in costs]
        losses = [
            float(2 * Decimal(b - a) + log_z[1] - log_z[0]) for a, b in zip(*costs, strict=True)
        ]
    tolerance = 1e-14 if dtype == "float64" else 1e-6
    assert float(loss.forward) == pytest.approx(max(losses), rel=tolerance, abs=tolerance)
    assert float(loss.backward) == pytest.approx(-min(losses), rel=tolerance, abs=tolerance)
    assert loss.epsilon.dtype == dtype


@pytest.mark.slow
def test_single_precision_agrees_with_double(x64):
    """Of 201 records many are within a few units in the last place of the bounds: their pieces have
    mass and count.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 50, 201)).astype(np.float32)
    x[1] = x[0]
    x[1, :, 7] = rng.choice([-10, 0.3, 10], 50)
    results = []
    for dtype in ("float32", "float64"):
        one, other = (
            piecewise_laplace(
                median(a.astype(dtype), lower=-10.0, upper=10.0, neighbors="swap"), 4.0
            )
            for a in x
        )
        loss = privacy_loss(one, other)
        results.append(
            [
                loss.epsilon,
                loss.bounded_range,
                loss.delta(0.5),
                loss.kl(),
                loss.renyi(2.0),
                loss.epsilon_at(1e-3),
            ]
        )
    for single, double in zip(*results, strict=True):
        assert single.dtype == jnp.float32
        np.testing.assert_allclose(single, double, atol=1e-5)


# Negative controls.


def test_control_log_densities_at_the_edges_miss_the_supremum(x64):
    """A density at an edge is one of its two limits: the other one, here the worst, is not seen
    there.
    """
    edges = [0, 1, 2, 2]
    first, second = three(edges, [3, 0, 0], [0, 0, 0]), three(edges, [3, 0, 0], [3, 0, 0])
    points = np.array([0.0, 1.0, 2.0, 1 - 1e-12])
    naive = np.abs(np.asarray(first.log_prob(points)) - np.asarray(second.log_prob(points)))
    exact = float(privacy_loss(first, second).epsilon)
    assert naive[3] == pytest.approx(exact, rel=1e-10)
    assert naive[:3].max() < 0.8 * exact


def test_control_a_sliver_of_rounding_is_not_the_supremum(x64):
    """Edges that are equal but for rounding: with a resolution of 0, an interval without mass would
    decide.
    """
    p, q, r = (three([0, at, 2, 2], [0, 5, 5]) for at in (0.3, 0.1 + 0.2, 0.3 + 1e-12))
    assert float(privacy_loss(p, q).epsilon) == pytest.approx(0, abs=1e-15)
    assert float(privacy_loss(p, q, resolution=0.0).epsilon) == pytest.approx(5)
    assert float(privacy_loss(p, r).epsilon) == pytest.approx(5)
    # The same at the end of a support.
    p, q, r = (three([0, at, at, at], [0, 0, 0]) for at in (0.3, 0.1 + 0.2, 0.3 + 1e-12))
    assert float(privacy_loss(p, q).epsilon) == pytest.approx(0, abs=1e-15)
    assert float(privacy_loss(p, r).epsilon) == np.inf


def test_a_narrow_interval_with_mass_is_the_supremum(x64):
    """Bounds that are units in the last place apart: what all draws fall into is no rounding."""
    edges = [0, 1, 1 + 4e-16, 2]
    p, q = three(edges, [40, 0, 40]), three(edges, [40, 3.5, 40])
    exact = np.abs(float(p.log_prob(1 + 2e-16)) - float(q.log_prob(1 + 2e-16)))
    assert float(privacy_loss(p, q).epsilon) >= max(exact, 3.0)


# Contracts.


def distribution_of(x, epsilon=1.3):
    return piecewise_laplace(median(x, lower=0.0, upper=10.0, neighbors="swap"), epsilon)


ROWS = np.array([[1.0, 2.5, 7.0, 8.0, 9.5], [1.0, 6.0, 7.0, 8.0, 9.5]])


SUMMARIES = ("epsilon", "bounded_range", "delta", "epsilon_at", "renyi", "kl")


@cache
def gradients():
    """Of all summaries by the records and by what one of them becomes, compiled as one.

    The derivatives, the same by central differences, and the derivatives at ties.
    """

    def of(numbers):
        x, value = numbers[:5], numbers[5]
        loss = privacy_loss(distribution_of(x), distribution_of(x.at[1].set(value)))
        delta, inverse, kl = loss.delta(0.4), loss.epsilon_at(0.05), loss.kl(direction="forward")
        found = jnp.stack([loss.epsilon, loss.bounded_range, delta, inverse, loss.renyi(3.0), kl])
        return found, found

    jacobian_and_value = jax.jit(jax.jacobian(of, has_aux=True))
    at, h = np.append(ROWS[0], 6.0), 1e-6
    values = [
        [np.asarray(jacobian_and_value(at + sign * step)[1]) for sign in (1, -1)]
        for step in h * np.eye(6)
    ]
    central = np.stack([(above - below) / (2 * h) for above, below in values], axis=-1)
    ties = np.array([[2.0, 2.0, 2.0, 2.0, 10.0, 0.0], [2.0, 2.0, 2.0, 2.0, 10.0, 2.0]])
    return (
        np.asarray(jacobian_and_value(at)[0]),
        central,
        np.array([jacobian_and_value(tie)[0] for tie in ties]),
    )


def assert_gradients_agree(names):
    some = [SUMMARIES.index(name) for name in names]
    found, central, at_ties = gradients()
    np.testing.assert_allclose(found[some], central[some], rtol=1e-6, atol=2e-8)
    assert np.isfinite(at_ties[:, some]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["epsilon", "bounded_range"])
def test_gradients_by_the_data_agree_with_finite_differences(name, x64):
    assert_gradients_agree([name])


def test_all_gradients(x64):
    assert_gradients_agree(["delta", "epsilon_at", "renyi", "kl"])


@pytest.mark.slow
def test_one_trace_for_any_data_and_bad_rows_stay_their_own():
    """In float32; the first of two datasets has ties and a NaN, the second is as bad as can be."""
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def run(x, epsilon):
        distribution = distribution_of(x, epsilon)
        loss = privacy_loss(*(rows_of(distribution, row) for row in (0, 1)))
        return loss.epsilon, loss.delta(0.1)

    x = np.tile(np.array([1.0, 2.0, 2.0, 2.0, np.nan], np.float32), (2, 3, 1))
    for fill in (0.0, np.nan, np.inf, 2.0, 1e-45):
        x[1, :, 0] = fill
        epsilon, delta = (np.asarray(summary) for summary in run(x, jnp.array([1.0, -1.0, 2.0])))
        for summary in (epsilon, delta):
            assert np.isfinite(summary[[0, 2]]).all()
        assert np.isnan(epsilon[1])
        assert np.isnan(delta[1])
        assert float(epsilon[0]) <= 1 + 1e-6
        assert float(epsilon[2]) <= 2 + 2e-6


@pytest.mark.slow
def test_vmap_and_jit_agree_with_the_batch():
    x = np.sort(np.random.default_rng(0).uniform(0, 10, (2, 4, 5)).astype(np.float32))
    one, other = distribution_of(x[0]), distribution_of(x[1])
    whole = privacy_loss(one, other)

    @jax.jit
    def run(x, one, other):
        mapped = jax.vmap(lambda a, b: privacy_loss(distribution_of(a), distribution_of(b)))(
            x[0], x[1]
        )
        return mapped.epsilon, mapped.bounded_range, privacy_loss(one, other).delta(0.3)

    epsilon, bounded_range, delta = run(x, one, other)
    np.testing.assert_allclose(epsilon, whole.epsilon, rtol=1e-6)
    np.testing.assert_allclose(bounded_range, whole.bounded_range, rtol=1e-6)
    np.testing.assert_allclose(delta, whole.delta(0.3), atol=1e-6)


def test_batches_broadcast():
    """Shapes only: nothing is compiled."""

    def run(rows, epsilon):
        sweep = distribution_of(rows, epsilon)
        loss = privacy_loss(distribution_of(rows[0]), sweep)
        with pytest.raises(ValueError, match=r"epsilon\[:, None\]"):
            loss.delta(np.zeros(5))
        with pytest.raises(ValueError, match="do not broadcast"):
            privacy_loss(sweep, distribution_of(jnp.zeros((4, 5))))
        assert loss.batch_shape == (3, 2)
        return (
            loss.epsilon,
            loss.delta(np.zeros((2, 1, 1))),
            loss.epsilon_at(np.array([1e-3, 1e-2])),
            loss.kl(),
        )

    shapes = jax.eval_shape(run, jnp.zeros((2, 5)), jnp.ones((3, 1)))
    assert [a.shape for a in shapes] == [(3, 2), (2, 3, 2), (3, 2), (3, 2)]


def test_what_does_not_fit_is_named(x64):
    distribution, finite = (
        three([0, 1, 2, 3], [0, 0, 0]),
        Finite(jnp.zeros(2), jnp.zeros(2), jnp.zeros(())),
    )
    loss = privacy_loss(distribution, distribution)
    for wrong in (
        lambda: privacy_loss(distribution, np.zeros(3)),
        lambda: privacy_loss(distribution, finite),
        lambda: privacy_loss(distribution, three([0, 1, 2, 3], [0, 0, 0], dtype="float32")),
    ):
        with pytest.raises(TypeError, match="privacy_loss takes two"):
            wrong()
    for match, wrong in (
        (
            "same candidates",
            lambda: privacy_loss(finite, Finite(jnp.zeros(3), jnp.zeros(3), jnp.zeros(()))),
        ),
        ("resolution", lambda: privacy_loss(distribution, distribution, resolution=-1.0)),
        ("epsilon", lambda: loss.delta(-0.1)),
        ("delta", lambda: loss.epsilon_at(1.0)),
        ("order", lambda: loss.renyi(1.0)),
        ("direction", lambda: loss.kl(direction="up")),
    ):
        with pytest.raises(ValueError, match=match):
            wrong()


@pytest.mark.slow
def test_bad_parameters_as_arrays_are_nan(x64):
    loss = privacy_loss(*(three([0, 1, 2, 3], cost) for cost in ([0, 1, 2], [1, 0, 2])))
    bad, good = np.array([True, True, True, False]), 0.5
    np.testing.assert_array_equal(
        np.isnan(loss.delta(jnp.array([-1.0, jnp.nan, jnp.inf, good]))), bad
    )
    np.testing.assert_array_equal(
        np.isnan(loss.epsilon_at(jnp.array([0.0, jnp.nan, 1.0, good]))), bad
    )
    np.testing.assert_array_equal(
        np.isnan(loss.renyi(jnp.array([1.0, jnp.nan, jnp.inf, good + 1]))), bad
    )
