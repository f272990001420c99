"""The exact privacy loss against quadrature, the two NumPy audits of this suite, and closed forms."""

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
    from_radii,
    inverse_sensitivity,
    laplace,
    median,
    order_statistic,
    piecewise_laplace,
)
from dpjax.auditing.privacy_loss import privacy_loss
from tests.support import oracle
from tests.support.audit import audit, one_sided_limits, padded
from tests.support.hockey_stick import hockey_stick

GRID = (0.0, 1.0, 5.0, 6.0, 20.0)
GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "divergences.json").read_text())
EPSILON = 2.0
PAIRS = np.arange(80).reshape(40, 2).T
EPSILONS = np.array([0.0, 0.3, 1.0, 1.9, 2.5])


def rows_of(law, rows):
    """Some rows of a law in which only the edges differ from row to row."""
    return replace(law, edges=law.edges[np.asarray(rows)])


def all_pairs(datasets, neighbors):
    index = {data: row for row, data in enumerate(datasets)}
    pairs = [
        (i, index[other]) for data, i in index.items() for other in oracle.neighbours_of(data, neighbors, GRID) if other in index
    ]
    return np.array(pairs).T


@cache
def with_tails():
    """40 random pairs with steps for tails, rows 2i and 2i + 1 of one law: edges anywhere, and nothing private about them."""
    rng = np.random.default_rng(0)
    values, radii = rng.uniform(0, 20, 80), np.sort(rng.exponential(2, (80, 3)) * rng.integers(0, 2, (80, 3)), axis=-1)
    law = piecewise_laplace(from_radii(values, radii, neighbors="swap", step=9.0), 3.0)
    return law, PAIRS, privacy_loss(rows_of(law, PAIRS[0]), rows_of(law, PAIRS[1]))


@cache
def of_medians(mechanism):
    datasets = oracle.all_datasets([4], GRID)
    law = mechanism(median(np.array(datasets), lower=0.0, upper=20.0, neighbors="swap"), EPSILON)
    pairs = all_pairs(datasets, "swap")
    return law, datasets, pairs, privacy_loss(rows_of(law, pairs[0]), rows_of(law, pairs[1]))


def limits_of(law, pairs):
    """Sup log p/q and sup log q/p by the other audit."""
    limits = one_sided_limits(law).reshape(law.batch_shape[0], -1)
    ratio = limits[pairs[0]] - limits[pairs[1]]
    return ratio.max(axis=-1), -ratio.min(axis=-1)


@pytest.mark.parametrize("mechanism", [piecewise_laplace, pytest.param(inverse_sensitivity, marks=pytest.mark.slow)])
def test_all_swaps_of_all_small_datasets_against_the_other_audits(mechanism, x64):
    law, datasets, pairs, loss = of_medians(mechanism)
    other = audit(law, datasets, "swap", GRID)
    assert float(loss.epsilon.max()) == pytest.approx(other.loss, rel=1e-12)
    assert float(loss.bounded_range.max()) == pytest.approx(other.range, rel=1e-12)
    assert other.range == pytest.approx(EPSILON, rel=1e-12)  # what the mechanism promises, attained
    forward, backward = limits_of(law, pairs)
    np.testing.assert_allclose(loss.forward, forward, atol=1e-12)
    np.testing.assert_allclose(loss.backward, backward, atol=1e-12)
    deltas = loss.delta(EPSILONS[:, None], direction="forward")
    for epsilon, delta in zip(EPSILONS, deltas, strict=True):
        np.testing.assert_allclose(delta, np.maximum(hockey_stick(law, pairs, epsilon), 0), atol=1e-13)
    assert (deltas[-1] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [piecewise_laplace, inverse_sensitivity])
def test_all_additions_and_removals_of_all_small_datasets(mechanism, x64):
    datasets = oracle.all_datasets(range(5), GRID)
    x, count = padded(datasets, 4)
    law = mechanism(median(x, lower=0.0, upper=20.0, neighbors="add_remove", count=count), EPSILON)
    pairs = all_pairs(datasets, "add_remove")
    loss = privacy_loss(rows_of(law, pairs[0]), rows_of(law, pairs[1]))
    other = audit(law, datasets, "add_remove", GRID)
    assert float(loss.epsilon.max()) == pytest.approx(other.loss, rel=1e-12)
    assert float(loss.bounded_range.max()) == pytest.approx(EPSILON, rel=1e-12)


def test_tails_against_the_other_audits(x64):
    law, pairs, loss = with_tails()
    forward, backward = limits_of(law, pairs)
    np.testing.assert_allclose(loss.forward, forward, rtol=1e-12)
    np.testing.assert_allclose(loss.backward, backward, rtol=1e-12)
    for direction, order in (("forward", pairs), ("backward", pairs[::-1])):
        deltas = loss.delta(EPSILONS[:, None], direction=direction)
        for epsilon, delta in zip(EPSILONS, deltas, strict=True):
            np.testing.assert_allclose(delta, np.maximum(hockey_stick(law, order, epsilon), 0), atol=1e-13)


def quadrature(law, pairs, function):
    """The integral of function(log p, log q) between neighbouring edges of any row, and 400 units of y beyond."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    edges = np.unique(np.asarray(law.edges))
    cuts = np.concatenate([edges[0] - np.linspace(400, 0, 40, endpoint=False), edges, edges[-1] + np.linspace(10, 400, 40)])
    left, width = cuts[:-1], np.diff(cuts)
    points = (left[:, None] + width[:, None] * (nodes + 1) / 2).ravel()
    logs = np.asarray(law.log_prob(np.broadcast_to(points[:, None], (points.size, law.batch_shape[0]))))
    return (width[:, None] / 2 * weights).ravel() @ function(logs[:, pairs[0]], logs[:, pairs[1]])


def test_divergences_against_quadrature(x64):
    """Smooth integrands between edges: 24 nodes are exact to rounding, and beyond 400 the mass is below e^-60."""
    law, pairs, loss = with_tails()
    np.testing.assert_allclose(quadrature(law, pairs, lambda p, q: np.exp(p)), 1, rtol=1e-12)
    np.testing.assert_allclose(
        loss.kl(direction="forward"), quadrature(law, pairs, lambda p, q: np.exp(p) * (p - q)), rtol=1e-11, atol=1e-13
    )
    for order, values in zip((1.5, 2.0, 8.0), loss.renyi(np.array([[1.5], [2.0], [8.0]]), direction="forward"), strict=True):
        integral = quadrature(law, pairs, lambda p, q, order=order: np.exp(order * p + (1 - order) * q))
        np.testing.assert_allclose(values, np.log(integral) / (order - 1), rtol=1e-11, atol=1e-13)


def test_properties_of_the_privacy_profile(x64):
    _, _, loss = with_tails()
    top = float(loss.epsilon.max())
    curve = np.log1p(np.linspace(0, np.expm1(top), 65))  # even steps of e^epsilon
    delta = np.asarray(loss.delta(curve[:, None], direction="forward"))
    assert (np.diff(delta, axis=0) <= 1e-15).all()
    assert (np.diff(delta, 2, axis=0) >= -1e-14).all()  # convex in e^epsilon
    # At 0, both directions are the total variation distance.
    np.testing.assert_allclose(loss.delta(0.0, direction="backward"), delta[0], atol=1e-14)
    # At the supremum nothing is left, and just below it something is.
    assert (loss.delta(loss.epsilon) <= 1e-15).all()
    assert (loss.delta(loss.epsilon * 0.99) > 0).all()
    orders = np.asarray(loss.renyi(np.array([1.01, 1.5, 2, 4, 64, 1e4])[:, None]))
    assert (np.diff(orders, axis=0) >= -1e-12).all()
    assert (orders <= np.asarray(loss.epsilon)[None] * (1 + 1e-12)).all()
    assert (loss.kl() <= orders[0] * (1 + 1e-12)).all()
    np.testing.assert_allclose(orders[-1], loss.epsilon, atol=2e-3)
    for name in ("epsilon", "bounded_range"):
        np.testing.assert_array_equal(getattr(loss.reverse(), name), getattr(loss, name))
    np.testing.assert_array_equal(loss.reverse().delta(0.3, direction="forward"), loss.delta(0.3, direction="backward"))


def test_epsilon_at_inverts_delta_from_the_safe_side(x64):
    _, _, loss = with_tails()
    delta = np.array([1e-8, 1e-3, 0.2])[:, None]
    epsilon = np.asarray(loss.epsilon_at(delta))
    assert (loss.delta(epsilon) <= delta).all()
    assert ((np.asarray(loss.delta(np.maximum(epsilon - 1e-9, 0))) > delta) | (epsilon == 0)).all()


LAPLACE_EPSILONS = np.array([0.1, 0.5, 1.0, 2.0, 4.0])


def test_laplace_in_closed_form(x64):
    """Dwork et al. (2006) and Balle, Barthe and Gaboardi (2018), Theorem 3; Mironov (2017), Table II; KL: e^-s + s - 1."""
    shift = laplace(0.0, LAPLACE_EPSILONS, sensitivity=1.0), laplace(1.0, LAPLACE_EPSILONS, sensitivity=1.0)
    loss = privacy_loss(*shift)
    for supremum in (loss.epsilon, loss.forward, loss.backward, loss.bounded_range / 2):
        np.testing.assert_allclose(supremum, LAPLACE_EPSILONS, rtol=1e-15)
    share = np.array([0.0, 0.3, 0.9, 1.0])[:, None]
    np.testing.assert_allclose(
        loss.delta(share * LAPLACE_EPSILONS), -np.expm1(-(1 - share) * LAPLACE_EPSILONS / 2), rtol=1e-12, atol=1e-16
    )
    np.testing.assert_allclose(loss.epsilon_at(0.01), LAPLACE_EPSILONS + 2 * np.log1p(-0.01), rtol=1e-13)
    np.testing.assert_allclose(loss.kl(), np.expm1(-LAPLACE_EPSILONS) + LAPLACE_EPSILONS, rtol=1e-12)
    for order, values in GOLDEN["laplace"].items():
        np.testing.assert_allclose(loss.renyi(float(order)), values, rtol=1e-9)


def randomized_response(epsilons):
    cost = jnp.array([[0.0, 1.0], [1.0, 0.0]])
    return tuple(Finite(jnp.arange(2.0), cost[row], jnp.asarray(epsilons)) for row in (0, 1))


def test_randomized_response_in_closed_form(x64):
    """The tight pair of pure differential privacy: its divergences are the tight conversions (Bun and Steinke 2016)."""
    loss = privacy_loss(*randomized_response(LAPLACE_EPSILONS))
    np.testing.assert_allclose(loss.epsilon, LAPLACE_EPSILONS, rtol=1e-15)
    np.testing.assert_allclose(loss.bounded_range, 2 * LAPLACE_EPSILONS, rtol=1e-15)
    share = np.array([0.0, 0.3, 0.9, 1.0])[:, None]
    exact = (np.exp(LAPLACE_EPSILONS) - np.exp(share * LAPLACE_EPSILONS)) / (1 + np.exp(LAPLACE_EPSILONS))
    np.testing.assert_allclose(loss.delta(share * LAPLACE_EPSILONS), exact, rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(loss.kl(), LAPLACE_EPSILONS * np.tanh(LAPLACE_EPSILONS / 2), rtol=1e-13)
    for order, values in GOLDEN["randomized_response"].items():
        np.testing.assert_allclose(loss.renyi(float(order)), values, rtol=1e-9)


def test_candidates_that_differ_or_are_impossible(x64):
    values = jnp.array([[0.0, 1.0, 2.0], [0.0, 1.0, 9.0], [0.0, 1.0, 9.0]])
    p = Finite(jnp.array([0.0, 1.0, 2.0]), jnp.array([0.0, 1.0, jnp.inf]), jnp.ones(()))
    q = Finite(values, jnp.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, jnp.inf]]), jnp.ones(()))
    loss = privacy_loss(p, q)
    # p misses a candidate of q; the candidates are not the same; padding may hold anything.
    np.testing.assert_array_equal(loss.epsilon, [np.inf, np.nan, 0.0])
    extra = 1 / (2 + np.exp(-1))
    np.testing.assert_allclose(loss.delta(30.0, direction="backward"), [extra, np.nan, 0.0], rtol=1e-12)
    np.testing.assert_allclose(loss.epsilon_at(0.3), [np.inf, np.nan, 0.0])
    np.testing.assert_array_equal(loss.kl(direction="backward"), [np.inf, np.nan, 0.0])
    np.testing.assert_array_equal(loss.renyi(2.0, direction="backward"), [np.inf, np.nan, 0.0])
    assert jnp.isfinite(loss.kl(direction="forward")[0])


def uniform(right):
    right = jnp.asarray(right)
    edges = jnp.stack([jnp.zeros_like(right), right], axis=-1)
    return PiecewiseExponential(edges, jnp.zeros(1), jnp.zeros(1), jnp.ones(()))


def test_unequal_supports(x64):
    loss = privacy_loss(uniform([1.0, 1.0]), uniform([2.0, 1.0]))
    np.testing.assert_allclose(loss.forward, [np.log(2), 0.0], rtol=1e-15)
    np.testing.assert_array_equal(loss.backward, [np.inf, 0.0])
    np.testing.assert_allclose(loss.delta(np.array([[0.0], [30.0]])), [[0.5, 0], [0.5, 0]], rtol=1e-14)


@pytest.mark.slow
def test_unequal_tails(x64):
    """Laplace laws of scales 1 and s > 1: q leaves every bound, and where q > e^epsilon p starts at a crossing on each side."""
    s, epsilons = np.array([1.1, 3.0]), np.array([[0.0], [1.0]])
    loss = privacy_loss(laplace(np.zeros(2), 1.0, sensitivity=1.0), laplace(np.zeros(2), 1.0, sensitivity=s))
    np.testing.assert_allclose(loss.forward, np.log(s), rtol=1e-14)
    np.testing.assert_array_equal(loss.backward, np.inf)
    crossing = (epsilons + np.log(s)) / (1 - 1 / s)
    exact = np.exp(-crossing / s) - np.exp(epsilons - crossing)
    np.testing.assert_allclose(loss.delta(epsilons, direction="backward"), exact, rtol=1e-12)
    epsilon = loss.epsilon_at(1e-3, direction="backward")
    np.testing.assert_allclose(loss.delta(epsilon, direction="backward"), 1e-3, rtol=1e-12)
    np.testing.assert_array_equal(loss.epsilon_at(0.3, direction="backward")[0], 0.0)
    # The integral of q^a p^(1-a) is finite below a = s / (s - 1), which is 11 and 1.5.
    diverges = np.isinf(loss.renyi(np.array([[1.4], [10.0], [12.0]]), direction="backward"))
    np.testing.assert_array_equal(diverges, [[False, False], [False, True], [True, True]])
    # Scales of one public number that was rounded twice are not infinitely far apart.
    almost = np.nextafter(s, 4.0)
    same = privacy_loss(laplace(np.zeros(2), 1.0, sensitivity=s), laplace(np.ones(2), 1.0, sensitivity=almost))
    np.testing.assert_allclose(same.epsilon, 1 / s, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_losses_far_below_the_smallest_float(dtype, x64):
    """Densities of e^-10000: costs are compared as costs, in float32 too. The oracle has 60 digits."""
    rate, edges = 2.0, np.array([0.0, 1.0, 2.0, 3.0])
    costs = [np.array([5000.0, 1.0, 4000.0]), np.array([4999.0, 2.0, 4001.0])]
    p, q = (PiecewiseExponential(*(jnp.asarray(a, dtype) for a in (edges, cost, cost, rate))) for cost in costs)
    loss = privacy_loss(p, q)
    with localcontext() as context:
        context.prec = 60
        log_z = [sum((-2 * Decimal(int(c))).exp() for c in cost).ln() for cost in costs]
        losses = [float(2 * Decimal(int(b - a)) + log_z[1] - log_z[0]) for a, b in zip(*costs, strict=True)]
    rtol = 1e-14 if dtype == "float64" else 1e-6
    assert float(loss.forward) == pytest.approx(max(losses), rel=rtol, abs=rtol)
    assert float(loss.backward) == pytest.approx(-min(losses), rel=rtol, abs=rtol)
    assert loss.epsilon.dtype == dtype


@pytest.mark.slow
def test_single_precision_agrees_with_double(x64):
    x = np.array(oracle.all_datasets([4], GRID))
    results = []
    for dtype in ("float32", "float64"):
        law = piecewise_laplace(median(x.astype(dtype), lower=0.0, upper=20.0, neighbors="swap"), EPSILON)
        loss = privacy_loss(rows_of(law, np.zeros(70, int)), law)
        results.append([loss.epsilon, loss.bounded_range, loss.delta(0.5), loss.kl()])
    for single, double in zip(*results, strict=True):
        assert single.dtype == jnp.float32
        np.testing.assert_allclose(single, double, atol=1e-5)


# Negative controls.


def test_control_a_rate_that_is_ten_percent_too_large(x64):
    law, _, pairs, loss = of_medians(piecewise_laplace)
    wrong = replace(law, rate=1.1 * law.rate)
    faster = privacy_loss(rows_of(wrong, pairs[0]), rows_of(wrong, pairs[1]))
    assert float(loss.bounded_range.max()) == pytest.approx(EPSILON, rel=1e-12)
    assert float(faster.bounded_range.max()) == pytest.approx(1.1 * EPSILON, rel=1e-12)


def test_control_log_densities_at_the_edges_miss_the_supremum(x64):
    """A density at an edge is one of its two limits: the other one, here the worst, is not seen there."""
    first = PiecewiseExponential(jnp.array([0.0, 1.0, 2.0]), jnp.array([3.0, 0.0]), jnp.array([0.0, 0.0]), jnp.ones(()))
    second = PiecewiseExponential(jnp.array([0.0, 1.0, 2.0]), jnp.array([3.0, 0.0]), jnp.array([3.0, 0.0]), jnp.ones(()))
    points = jnp.array([0.0, 1.0, 2.0])
    naive = jnp.max(jnp.abs(first.log_prob(points) - second.log_prob(points)))
    exact = privacy_loss(first, second).epsilon
    limit = first.log_prob(1 - 1e-12) - second.log_prob(1 - 1e-12)
    np.testing.assert_allclose(exact, limit, rtol=1e-10)
    assert float(naive) < 0.8 * float(exact)


def test_control_a_sliver_of_rounding_is_not_the_supremum(x64):
    """Edges that are equal but for rounding: with a resolution of 0, an interval without mass would decide."""
    edges = jnp.array([0.0, 0.3, 2.0])
    moved = edges.at[1].set(jnp.asarray(0.1 + 0.2))
    flat = jnp.array([0.0, 5.0])
    p, q = (PiecewiseExponential(e, flat, flat, jnp.ones(())) for e in (edges, moved))
    np.testing.assert_allclose(privacy_loss(p, q).epsilon, 0.0, atol=1e-15)
    assert float(privacy_loss(p, q, resolution=0.0).epsilon) == pytest.approx(5)
    assert float(privacy_loss(p, replace(q, edges=edges.at[1].add(1e-12))).epsilon) == pytest.approx(5)


# Contracts.


def law_of(x, epsilon=1.3):
    return piecewise_laplace(median(x, lower=0.0, upper=10.0, neighbors="swap"), epsilon)


ROWS = np.array([[1.0, 2.5, 7.0, 8.0, 9.5], [1.0, 6.0, 7.0, 8.0, 9.5]])


def assert_gradients_agree(summaries):
    """By the records and by what one of them becomes."""

    def of(numbers):
        x, value = numbers[:5], numbers[5]
        return jnp.stack(summaries(privacy_loss(law_of(x), law_of(x.at[1].set(value)))))

    run, jacobian = jax.jit(of), jax.jit(jax.jacobian(of))
    at, h = np.append(ROWS[0], 6.0), 1e-6
    central = [np.asarray(run(jnp.asarray(at + step)) - run(jnp.asarray(at - step))) / (2 * h) for step in h * np.eye(6)]
    np.testing.assert_allclose(jacobian(jnp.asarray(at)), np.stack(central, axis=-1), rtol=1e-6, atol=2e-8)
    for ties in ([2.0, 2.0, 2.0, 2.0, 10.0, 0.0], [2.0, 2.0, 2.0, 2.0, 10.0, 2.0]):
        assert np.isfinite(jacobian(jnp.asarray(np.array(ties)))).all()


def test_gradients_by_the_data_agree_with_finite_differences(x64):
    assert_gradients_agree(lambda loss: [loss.epsilon])


@pytest.mark.slow
def test_all_gradients(x64):
    assert_gradients_agree(
        lambda loss: [loss.bounded_range, loss.delta(0.4), loss.epsilon_at(0.05), loss.renyi(3.0), loss.kl(direction="forward")]
    )


def test_one_trace_for_any_data_and_bad_rows_stay_their_own():
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def run(x, y, epsilon):
        loss = privacy_loss(law_of(x, epsilon), law_of(y, epsilon))
        return loss.epsilon, loss.delta(0.1), loss.kl()

    x = np.tile(np.array([1.0, 2.0, 2.0, 2.0, np.nan], np.float32), (3, 1))
    for fill in (0.0, np.nan, np.inf, 2.0, 1e-45):
        y = np.array(x)
        y[:, 0] = fill
        whole = run(x, y, jnp.array([1.0, -1.0, 2.0]))
        for summary in whole:
            assert np.isfinite(summary[np.array([0, 2])]).all()
            assert np.isnan(summary[1])
        assert float(whole[0][0]) <= 1 + 1e-6
        assert float(whole[0][2]) <= 2 + 2e-6
    one, other = law_of(jnp.asarray(x), 1.0), law_of(jnp.asarray(y), 1.0)
    mapped = jax.vmap(lambda a, b: privacy_loss(law_of(a, 1.0), law_of(b, 1.0)).epsilon)(jnp.asarray(x), jnp.asarray(y))
    np.testing.assert_allclose(mapped, privacy_loss(one, other).epsilon, rtol=1e-6)


def test_batches_broadcast():
    """Shapes only: nothing is compiled."""

    def run(rows, epsilon):
        sweep = law_of(rows, epsilon)
        loss = privacy_loss(law_of(rows[0]), sweep)
        with pytest.raises(ValueError, match=r"epsilon\[:, None\]"):
            loss.delta(np.zeros(5))
        with pytest.raises(ValueError, match="do not broadcast"):
            privacy_loss(sweep, law_of(jnp.zeros((4, 5))))
        assert loss.batch_shape == (3, 2)
        return loss.epsilon, loss.delta(np.zeros((2, 1, 1))), loss.epsilon_at(np.array([1e-3, 1e-2])), loss.kl()

    shapes = jax.eval_shape(run, jnp.zeros((2, 5)), jnp.ones((3, 1)))
    assert [a.shape for a in shapes] == [(3, 2), (2, 3, 2), (3, 2), (3, 2)]


def test_what_does_not_fit_is_named(x64):
    law, finite = uniform([1.0]), randomized_response([1.0])[0]
    loss = privacy_loss(law, law)
    for wrong in (
        lambda: privacy_loss(law, order_statistic(np.zeros(3), 1, lower=-1, upper=1, neighbors="swap")),
        lambda: privacy_loss(law, finite),
        lambda: privacy_loss(law, jax.tree.map(lambda a: a.astype(jnp.float32), law)),
    ):
        with pytest.raises(TypeError, match="privacy_loss takes two"):
            wrong()
    for match, wrong in (
        ("same candidates", lambda: privacy_loss(finite, Finite(jnp.arange(3.0), jnp.zeros(3), jnp.ones(())))),
        ("resolution", lambda: privacy_loss(law, law, resolution=-1.0)),
        ("epsilon", lambda: loss.delta(-0.1)),
        ("delta", lambda: loss.epsilon_at(1.0)),
        ("order", lambda: loss.renyi(1.0)),
        ("direction", lambda: loss.kl(direction="up")),
    ):
        with pytest.raises(ValueError, match=match):
            wrong()
    assert np.isnan(loss.delta(jnp.array([-1.0]))).all()
    assert np.isnan(loss.epsilon_at(jnp.array([0.0]))).all()
    assert np.isnan(loss.renyi(jnp.array([1.0]))).all()
