"""The exact privacy loss against quadrature, two NumPy audits of this suite, and closed forms."""

import json
import pathlib
from dataclasses import replace
from fractions import Fraction
from functools import cache

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
from tests.support.audit import audit, one_sided_limits
from tests.support.hockey_stick import hockey_stick

GRID = (0.0, 1.0, 5.0, 6.0, 20.0)
TABLES = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "F_accounting.json").read_text()
)
EPSILON = 2.0
PAIRS = np.arange(80).reshape(40, 2).T
EPSILONS = np.array([0.0, 0.3, 1.0, 1.9, 2.5])[:, None]
SHARES = np.linspace(0, 1, 65)[:, None]  # of e^sup - 1, in even steps
ORDERS = np.array([1.01, 1.5, 2.0, 4.0, 8.0, 64.0, 1e4])
WAYS = ("forward", "backward")
DELTAS = np.array([1e-8, 1e-3, 0.2])[:, None]


def rows_of(distribution, rows):
    """Some rows of a distribution in which only the edges differ from row to row."""
    return replace(distribution, edges=distribution.edges[np.asarray(rows)])


@cache
def with_tails():
    """40 random pairs with steps for tails, rows 2i and 2i + 1 of one distribution: edges anywhere,
    and nothing private about them.

    Everything that is compared is compiled as one.
    """
    rng = np.random.default_rng(0)
    values = rng.uniform(0, 20, 80)
    radii = np.sort(rng.exponential(2, (80, 3)) * rng.integers(0, 2, (80, 3)), axis=-1)

    @jax.jit
    def run(values, radii):
        distribution = piecewise_laplace(from_radii(values, radii, neighbors="swap", step=9.0), 3.0)
        loss = privacy_loss(*(rows_of(distribution, rows) for rows in PAIRS))
        curve = jnp.log1p(SHARES * jnp.expm1(loss.epsilon))
        inverse = loss.epsilon_at(DELTAS)
        below = jnp.maximum(inverse - 1e-9, 0)
        epsilons = jnp.concatenate([jnp.broadcast_to(EPSILONS, (5, 40)), curve, inverse, below])
        found = {"epsilon": loss.epsilon, "inverse": inverse}
        for way in WAYS:
            found[way] = getattr(loss, way), loss.kl(direction=way)
            found["delta " + way] = loss.delta(epsilons, direction=way)
            found["renyi " + way] = loss.renyi(ORDERS[:, None], direction=way)
        return distribution, found

    distribution, found = run(values, radii)
    return distribution, jax.tree.map(np.asarray, found)


def assert_as_other_audits(distribution, pairs, forward, backward, deltas):
    """Suprema, and the forward delta at all epsilons."""
    limits = one_sided_limits(distribution).reshape(distribution.batch_shape[0], -1)
    ratio = limits[pairs[0]] - limits[pairs[1]]
    np.testing.assert_allclose(forward, ratio.max(axis=-1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(backward, -ratio.min(axis=-1), rtol=1e-12, atol=1e-12)
    for epsilon, delta in zip(EPSILONS.ravel(), deltas, strict=True):
        exact = np.maximum(hockey_stick(distribution, pairs, epsilon), 0)
        np.testing.assert_allclose(delta, exact, atol=1e-13)


def test_tails_against_the_other_audits(x64):
    distribution, found = with_tails()
    for (one, other), pairs in ((WAYS, PAIRS), (WAYS[::-1], PAIRS[::-1])):
        deltas = found["delta " + one][: EPSILONS.size]
        assert_as_other_audits(distribution, pairs, found[one][0], found[other][0], deltas)


@cache
def medians(mechanism):
    """All swaps of all datasets of four records on the grid, compiled once for any rate."""
    datasets = oracle.all_datasets([4], GRID)
    index = {data: row for row, data in enumerate(datasets)}
    pairs = np.array(
        [
            (row, index[other])
            for data, row in index.items()
            for other in oracle.neighbors_of(data, "swap", GRID)
            if other in index
        ]
    ).T

    @jax.jit
    def run(x, faster):
        distribution = mechanism(median(x, lower=0.0, upper=20.0, neighbors="swap"), EPSILON)
        distribution = replace(distribution, rate=distribution.rate * faster)
        loss = privacy_loss(*(rows_of(distribution, rows) for rows in pairs))
        deltas = loss.delta(EPSILONS, direction="forward")
        return distribution, loss.bounded_range, loss.forward, loss.backward, deltas

    return datasets, pairs, lambda faster: run(np.array(datasets), faster)


@pytest.mark.parametrize(
    "mechanism",
    [piecewise_laplace, pytest.param(inverse_sensitivity, marks=pytest.mark.slow)],
)
def test_all_swaps_of_all_small_datasets_against_the_other_audits(mechanism, x64):
    datasets, pairs, run = medians(mechanism)
    distribution, bounded_range, *found = run(1.0)
    assert_as_other_audits(distribution, pairs, *found)
    other = audit(distribution, datasets, "swap", GRID)
    assert np.max(found[0]) == pytest.approx(other.loss, rel=1e-12)
    # What the mechanism promises, attained
    assert np.max(bounded_range) == pytest.approx(other.range, rel=1e-12)
    assert other.range == pytest.approx(EPSILON, rel=1e-12)
    assert (np.asarray(found[-1])[-1] == 0).all()
    # Control: a rate that is ten percent too large
    assert np.max(run(1.1)[1]) == pytest.approx(1.1 * EPSILON, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("some_tails", [True, False])
def test_random_distributions_against_the_other_hockey_stick(some_tails, x64):
    """Costs that jump, ties, unequal supports and rates, a tail on either side or none; rows
    without any mass are NaN.
    """
    rng = np.random.default_rng(1)
    edges = np.sort(rng.integers(-6, 7, (400, 5)) + rng.choice([0, 0.37], (400, 5)), axis=-1)
    left, right = rng.integers(0, 6, (2, 400, 4)).astype(float)
    rate, length = rng.uniform(0.3, 2, 400), rng.uniform(0, 3, 400)
    ends = rng.choice([0.0, 1, 2], 400), np.ones(400), rng.choice([0.0, 1], 400)
    pairs, epsilons = np.arange(400).reshape(200, 2).T, np.array([0.0, 0.4, 2.0, 5.0, 300.0])

    @jax.jit
    def run(*fields):
        distribution = PiecewiseExponential(*fields)
        rows = (jax.tree.map(lambda field, i=i: field[i], distribution) for i in pairs)
        loss, way = privacy_loss(*rows), {"direction": "forward"}
        return distribution, loss.delta(epsilons[:, None], **way), loss.epsilon_at(1e-3, **way)

    tails = Tails(length, *ends) if some_tails else None
    distribution, deltas, inverse = run(edges, left, right, rate, tails)
    nothing = ~np.isfinite(distribution.log_normalizer())[pairs].all(axis=0)
    assert some_tails != nothing.any() or nothing.sum() < 5
    np.testing.assert_array_equal(np.isnan(deltas), np.broadcast_to(nothing, deltas.shape))
    for epsilon, delta in zip(epsilons, np.asarray(deltas)[:, ~nothing], strict=True):
        with np.errstate(all="ignore"):
            exact = np.maximum(hockey_stick(distribution, pairs, epsilon), 0)[~nothing]
        np.testing.assert_allclose(delta, exact, atol=1e-14)
    # An epsilon exists for this delta exactly where the supports allow it.
    outside = np.asarray(deltas)[-1][~nothing] > 1e-3
    np.testing.assert_array_equal(np.isinf(inverse)[~nothing], outside)


def test_divergences_against_quadrature(x64):
    """Smooth integrands between neighboring edges of any row: 24 nodes are exact to rounding, and
    beyond 400 the mass is below e^-60.
    """
    distribution, found = with_tails()
    nodes, weights = np.polynomial.legendre.leggauss(24)
    edges = np.unique(np.asarray(distribution.edges))
    beyond = np.linspace(400, 10, 40)
    cuts = np.concatenate([edges[0] - beyond, edges, edges[-1] + beyond[::-1]])
    width = np.diff(cuts)[:, None] / 2
    points = (cuts[:-1, None] + width * (nodes + 1)).reshape(-1, 1)
    logs = distribution.log_prob(np.broadcast_to(points, (points.size, 80)))
    weights, (p, q) = (width * weights).ravel(), (np.asarray(logs)[:, rows] for rows in PAIRS)
    np.testing.assert_allclose(weights @ np.exp(p), 1, rtol=1e-12)
    close = {"rtol": 1e-11, "atol": 1e-13}
    np.testing.assert_allclose(found["forward"][1], weights @ (np.exp(p) * (p - q)), **close)
    for order, values in zip(ORDERS[1:5], found["renyi forward"][1:5], strict=True):
        exact = np.log(weights @ np.exp(order * p + (1 - order) * q)) / (order - 1)
        np.testing.assert_allclose(values, exact, **close)


def test_properties_of_the_privacy_profile(x64):
    _, found = with_tails()
    forward, backward = (found["delta " + way][EPSILONS.size : -6] for way in WAYS)
    for curve in (forward, backward):
        assert (np.diff(curve, axis=0) <= 1e-15).all()
        assert (np.diff(curve, 2, axis=0) >= -1e-14).all()  # convex in e^epsilon
    # At 0, both directions are the total variation distance; at the supremum nothing is left, and
    # just below it something is.
    np.testing.assert_allclose(forward[0], backward[0], atol=1e-14)
    either = np.maximum(forward, backward)
    assert (either[-1] <= 1e-15).all()
    assert (either[-2] > 0).all()
    renyi = np.maximum(found["renyi forward"], found["renyi backward"])
    assert (np.diff(renyi, axis=0) >= -1e-12).all()
    np.testing.assert_allclose(renyi[-1], found["epsilon"], atol=2e-3)
    # The inverse of delta, from the safe side
    at, below = np.split(np.maximum(*(found["delta " + way][-6:] for way in WAYS)), 2)
    np.testing.assert_array_less(at, DELTAS * np.ones_like(at) * (1 + 1e-10))
    assert ((below > DELTAS) | (found["inverse"] == 0)).all()


def laplace_pair(s):
    return [laplace(value, s, sensitivity=1.0) for value in (0.0, 1.0)]


def responses(s):
    cost = jnp.array([[0.0, 1.0], [1.0, 0.0]])
    return [Finite(jnp.arange(2.0), cost[row], s) for row in (0, 1)]


SHARE = np.array([0.0, 0.3, 0.9, 1.0])[:, None]
S = np.array([0.1, 0.5, 1.0, 2.0, 4.0])
CLOSED = {
    # Dwork et al. (2006); Balle, Barthe and Gaboardi (2018), Theorem 3; Mironov (2017),
    # Proposition 6.
    "laplace_rdp": (laplace_pair, -np.expm1(-(1 - SHARE) * S / 2), np.expm1(-S) + S),
    # The tight pair of pure differential privacy: its divergences are the tight conversions (Bun
    # and Steinke 2016).
    "pdp_to_rdp": (
        responses,
        (np.exp(S) - np.exp(SHARE * S)) / (1 + np.exp(S)),
        S * np.tanh(S / 2),
    ),
}


@pytest.mark.parametrize(
    "name", ["pdp_to_rdp", pytest.param("laplace_rdp", marks=pytest.mark.slow)]
)
def test_closed_forms(name, x64):
    pair, deltas, kl = CLOSED[name]
    golden = {}
    for key, value in TABLES[name].items():
        golden.setdefault(float(key.split("alpha=")[1]), []).append(float(value))

    @jax.jit
    def run(s):
        loss = privacy_loss(*pair(s))
        renyi = loss.renyi(jnp.array(list(golden))[:, None])
        return loss.epsilon, loss.bounded_range, loss.delta(SHARE * S), loss.kl(), renyi

    epsilon, spread, delta, divergence, renyi = run(jnp.asarray(S))
    np.testing.assert_allclose(epsilon, S, rtol=1e-15)
    np.testing.assert_allclose(spread, 2 * S, rtol=1e-15)
    np.testing.assert_allclose(delta, deltas, rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(divergence, kl, rtol=1e-12)
    np.testing.assert_allclose(renyi, list(golden.values()), rtol=1e-9)


def test_candidates_that_differ_or_are_impossible(x64):
    """p misses a candidate of q; the candidates are not the same; and padding may hold anything."""

    @jax.jit
    def run(values, cost):
        p = Finite(jnp.array([0.0, 1.0, 2.0]), jnp.array([0.0, 1.0, jnp.inf]), jnp.ones(()))
        loss = privacy_loss(p, Finite(values, cost, jnp.ones(())))
        back = {"direction": "backward"}
        return loss.epsilon, loss.kl(**back), loss.renyi(2.0, **back), loss.delta(30.0, **back)

    *infinite, delta = run(
        np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 9.0], [0.0, 1.0, 9.0]]),
        np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, np.inf]]),
    )
    for value in infinite:
        np.testing.assert_array_equal(value, [np.inf, np.nan, 0.0])
    np.testing.assert_allclose(delta, [1 / (2 + np.exp(-1)), np.nan, 0.0], rtol=1e-12)


@pytest.mark.slow
def test_unequal_tails(x64):
    """Laplace noise of scales 1 and s > 1: q leaves every bound, and where q > e^epsilon p starts
    at a crossing on each side.
    """
    s, epsilons, back = np.array([1.1, 3.0]), np.array([[0.0], [1.0]]), {"direction": "backward"}

    @jax.jit
    def run(first, second, values):
        loss = privacy_loss(
            laplace(np.zeros(2), 1.0, sensitivity=first), laplace(values, 1.0, sensitivity=second)
        )
        # The integral of q^a p^(1-a) is finite below a = s / (s - 1), which is 11 and 1.5.
        renyi = loss.renyi(np.array([[1.4], [10.0], [12.0]]), **back)
        return loss.forward, loss.backward, loss.delta(epsilons, **back), renyi

    forward, backward, delta, renyi = run(np.ones(2), s, np.zeros(2))
    np.testing.assert_allclose(forward, np.log(s), rtol=1e-14)
    np.testing.assert_array_equal(backward, np.inf)
    crossing = (epsilons + np.log(s)) / (1 - 1 / s)
    exact = np.exp(-crossing / s) - np.exp(epsilons - crossing)
    np.testing.assert_allclose(delta, exact, rtol=1e-12)
    np.testing.assert_array_equal(np.isinf(renyi), [[False, False], [False, True], [True, True]])
    # Scales of one public number that was rounded twice are not infinitely far apart.
    forward, backward, *_ = run(s, np.nextafter(s, 4.0), np.ones(2))
    np.testing.assert_allclose(np.maximum(forward, backward), 1 / s, rtol=1e-14)


@jax.jit
def ends_of(edges, costs, resolution):
    rate = jnp.ones((), edges.dtype)
    pair = (PiecewiseExponential(edges[i], *costs[i], rate) for i in (0, 1))
    loss = privacy_loss(*pair, resolution=resolution)
    return loss.forward, loss.backward


WIDTH, FIRST = 2.0**-51, [0, 5, 5]
FAR = [5000, 1, 4000], [4999, 2, 4001]
RISE = [[3, 0, 0], [0, 0, 0]], [[3, 0, 0], [3, 0, 0]]
HIGHER = 3 + np.log1p(np.exp(-3)) - np.log1p((1 - np.exp(-3)) / 3)
WIDER = np.log1p(1e-12 * -np.expm1(-5) / (0.3 + 1.7 * np.exp(-5)))
NARROW = 3.5 + np.log((np.exp(-3.5) * WIDTH + 2 * np.exp(-40)) / (WIDTH + 2 * np.exp(-40)))


@pytest.mark.parametrize(
    ("edges", "costs", "found", "dtype", "resolution"),
    [
        # Densities of e^-10000: costs are compared
        ([0, 1, 2, 3], FAR, (0, 2), np.float64, 16),
        ([0, 1, 2, 3], FAR, (0, 2), np.float32, 16),
        # The density at 1 is that of the right; the loss is largest at the left
        ([0, 1, 2, 2], RISE, (HIGHER, 3 - HIGHER), np.float64, 16),
        # Edges that are equal but for rounding: an interval without mass would decide
        ([[0, 0.3, 2, 2], [0, 0.1 + 0.2, 2, 2]], (FIRST, FIRST), (0, 0), np.float64, 16),
        ([[0, 0.3, 2, 2], [0, 0.1 + 0.2, 2, 2]], (FIRST, FIRST), (0, 5), np.float64, 0),
        (
            [[0, 0.3, 2, 2], [0, 0.3 + 1e-12, 2, 2]],
            (FIRST, FIRST),
            (WIDER, 5 - WIDER),
            np.float64,
            16,
        ),
        # The same at the end of a support, and supports that differ
        ([[0, *[0.3] * 3], [0, *[0.1 + 0.2] * 3]], ([0] * 3,) * 2, (0, 0), np.float64, 16),
        ([[0, *[0.5] * 3], [0, 1, 1, 1]], ([0] * 3,) * 2, (np.log(2), np.inf), np.float64, 16),
        # Bounds that are units in the last place apart: what all draws fall into is no rounding.
        (
            [0, 1, 1 + WIDTH, 2],
            ([40, 0, 40], [40, 3.5, 40]),
            (NARROW, 3.5 - NARROW),
            np.float64,
            16,
        ),
    ],
)
def test_suprema(edges, costs, found, dtype, resolution, x64):
    """For three pieces, of which the costs are constant, or given at both ends."""
    tiny = float(np.finfo(dtype).eps)
    suprema = ends_of(
        np.broadcast_to(np.asarray(edges, dtype), (2, 4)),
        np.array([np.broadcast_to(cost, (2, 3)) for cost in costs], dtype),
        np.asarray(resolution * tiny, dtype),
    )
    for one, exact in zip(suprema, found, strict=True):
        assert one.dtype == dtype
        assert float(one) == pytest.approx(exact, rel=64 * tiny, abs=64 * tiny)


def test_what_has_no_common_loss():
    """Nothing is compiled."""

    def of(pick):
        line, finite, other = (
            laplace_pair(1.0)[0],
            responses(1.0)[0],
            Finite(*jnp.zeros((2, 3)), 1.0),
        )
        return privacy_loss(*pick(line, finite, other)).epsilon

    for pick, error, message in (
        (lambda line, finite, other: (line, np.zeros(3)), TypeError, "privacy_loss takes two"),
        (lambda line, finite, other: (line, finite), TypeError, "privacy_loss takes two"),
        (lambda line, finite, other: (finite, other), ValueError, "same candidates"),
    ):
        with pytest.raises(error, match=message):
            jax.eval_shape(lambda pick=pick: of(pick))


MULTIPLES = np.arange(0.0, 10.25, 0.5)


def rounded(x, upper=10, resolution=0.5):
    profile = median(x, lower=0, upper=upper, neighbors="swap", resolution=resolution)
    return piecewise_laplace(profile, 1.0)


def test_distributions_on_multiples_are_audited_multiple_by_multiple(x64):
    x = np.array([[1.0, 4.5, 6.0, 6.0], [1.0, 10.0, 6.0, 6.0]])
    made = jax.jit(rounded, static_argnames=("upper", "resolution"))
    one, other = (made(rows) for rows in x)
    logs = jax.jit(lambda distribution: distribution.log_prob(MULTIPLES))
    ratios = np.asarray(logs(one)) - np.asarray(logs(other))
    loss = privacy_loss(one, other)
    assert 0.3 < float(loss.epsilon) == pytest.approx(np.abs(ratios).max(), rel=1e-12)
    assert float(loss.bounded_range) == pytest.approx(np.ptp(ratios), rel=1e-12)
    with pytest.raises(TypeError, match="outside jit"):
        jax.jit(lambda one: privacy_loss(one, other).epsilon)(one)
    with pytest.raises(ValueError, match="the same resolution"):
        privacy_loss(one, replace(other, resolution=Fraction(1)))
    wide = made(x[0], upper=2e6, resolution=1)
    with pytest.raises(ValueError, match="use a coarser one"):
        privacy_loss(wide, wide)
