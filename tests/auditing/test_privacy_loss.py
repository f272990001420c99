"""The exact privacy loss against two NumPy audits of this suite, and closed forms."""

import json
import pathlib
from dataclasses import replace
from fractions import Fraction
from functools import cache

import jax
import numpy as np
import pytest

from dpjax import Finite, PiecewiseExponential, Tails, laplace, median, piecewise_laplace
from dpjax.auditing import PrivacyLoss, privacy_loss
from tests.support.audit import one_sided_limits
from tests.support.hockey_stick import hockey_stick

TABLES = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "F_accounting.json").read_text()
)
PAIRS = np.arange(400).reshape(200, 2).T
ORDERS = np.array([1.01, 1.5, 2.0, 4.0, 8.0, 64.0, 1e4])
WAYS = ("forward", "backward")
DELTAS = np.array([1e-8, 1e-3, 0.2])[:, None]


@cache
def random_pairs(seed=1):
    """200 pairs of rows of one distribution, and their losses: costs that jump, ties, unequal
    supports and rates, a tail on either side or none; and nothing private about them.
    """
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.integers(-6, 7, (400, 5)) + rng.choice([0, 0.37], (400, 5)), axis=-1)
    left, right = rng.integers(0, 6, (2, 400, 4)).astype(float)
    edges[300:320] = 0  # some without mass
    alike = np.arange(400) < 200  # one pair of tails, so that losses are finite
    rate, length = np.where(alike, 0.7, rng.uniform(0.3, 2, 400)), rng.uniform(0, 3, 400)
    lower, upper = (np.where(alike, 1.0, rng.choice(of, 400)) for of in ([0.0, 1, 2], [0.0, 1]))
    tails = Tails(length, lower, np.ones(400), upper)
    distribution = PiecewiseExponential(edges, left, right, rate, tails)
    rows = (jax.tree.map(lambda field, i=i: field[i], distribution) for i in PAIRS)
    return distribution, privacy_loss(*rows)


def test_losses_and_deltas_against_the_other_audits(x64):
    """Suprema from limits at all edges, deltas from another hockey stick; rows without any mass are
    NaN.
    """
    distribution, loss = random_pairs()
    something = np.isfinite(distribution.mean())[PAIRS].all(axis=0)
    assert 0 < np.count_nonzero(~something) < 10
    way = {"direction": "forward"}
    for epsilon in (0.0, 0.4, 2.0, 5.0, 300.0):
        delta = loss.delta(epsilon, **way)
        with np.errstate(all="ignore"):
            exact = np.maximum(hockey_stick(distribution, PAIRS, epsilon), 0)
        np.testing.assert_allclose(delta[something], exact[something], atol=1e-14)
        assert np.isnan(delta[~something]).all()
    # An epsilon exists for this delta exactly where the supports allow it.
    inverse, outside = loss.epsilon_at(1e-3, **way), delta > 1e-3
    np.testing.assert_array_equal(np.isinf(inverse[something]), outside[something])
    limits = one_sided_limits(distribution).reshape(400, -1)
    one, other = limits[PAIRS]
    with np.errstate(invalid="ignore"):
        largest = np.where(np.isneginf(one), -np.inf, one - other).max(axis=-1)
    finite = np.isfinite(loss.forward)
    assert np.count_nonzero(finite) > 20
    np.testing.assert_allclose(loss.forward[finite], largest[finite], rtol=1e-12, atol=1e-12)


def test_the_inverse_of_delta_and_divergences(x64):
    _, loss = random_pairs()
    loss = PrivacyLoss(*(field[np.isfinite(loss.epsilon)] for field in vars(loss).values()))
    assert len(loss.length) > 90
    # At the supremum nothing is left, and just below it something is
    at, below = loss.epsilon, np.log1p(np.expm1(loss.epsilon) * 0.98)
    assert (loss.delta(at) <= 1e-15).all()
    assert (loss.delta(below) > 0).all()
    either = [loss.delta(0.1, direction=way) for way in WAYS]
    np.testing.assert_array_equal(loss.delta(0.1), np.maximum(*either))
    assert np.abs(np.subtract(*either)).max() > 0.05
    renyi = loss.renyi(ORDERS[:, None])
    assert (np.diff(renyi, axis=0) >= -1e-12).all()
    np.testing.assert_allclose(renyi[-1], loss.epsilon, atol=2e-3)
    # From the safe side
    inverse = loss.epsilon_at(DELTAS)
    assert (loss.delta(inverse) <= DELTAS).all()
    assert ((loss.delta(np.maximum(inverse - 1e-9, 0)) > DELTAS) | (inverse == 0)).all()


def laplace_pair(s):
    return [laplace(value, s, sensitivity=1.0) for value in (0.0, 1.0)]


def responses(s):
    cost = np.array([[0.0, 1.0], [1.0, 0.0]])
    return [Finite(np.arange(2.0), cost[row], np.asarray(s)) for row in (0, 1)]


SHARE = np.array([0.0, 0.3, 0.9, 1.0])[:, None]
S = np.array([0.1, 0.5, 1.0, 2.0, 4.0])
CLOSED = {
    # Dwork et al. (2006); Balle, Barthe and Gaboardi (2018), Theorem 3; Mironov (2017),
    # Proposition 6.
    "laplace_rdp": (laplace_pair, -np.expm1(-(1 - SHARE) * S / 2)),
    # The tight pair of pure differential privacy: its divergences are the tight conversions (Bun
    # and Steinke 2016).
    "pdp_to_rdp": (responses, (np.exp(S) - np.exp(SHARE * S)) / (1 + np.exp(S))),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms(name, x64):
    pair, deltas = CLOSED[name]
    golden = {}
    for key, value in TABLES[name].items():
        golden.setdefault(float(key.split("alpha=")[1]), []).append(float(value))
    loss = privacy_loss(*pair(S))
    np.testing.assert_allclose(loss.epsilon, S, rtol=1e-13)
    np.testing.assert_allclose(loss.bounded_range, 2 * S, rtol=1e-13)
    np.testing.assert_allclose(loss.delta(SHARE * S), deltas, rtol=1e-12, atol=1e-15)
    renyi = loss.renyi(np.array(list(golden))[:, None])
    np.testing.assert_allclose(renyi, list(golden.values()), rtol=1e-9)


def test_candidates_that_differ_or_are_impossible(x64):
    """p misses a candidate of q; the candidates are not the same; and padding may hold anything."""
    p = Finite(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, np.inf]), np.ones(()))
    values = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 9.0], [0.0, 1.0, 9.0]])
    cost = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, np.inf]])
    loss, back = privacy_loss(p, Finite(values, cost, np.ones(()))), {"direction": "backward"}
    for infinite in (loss.epsilon, loss.renyi(2.0, **back), loss.epsilon_at(1e-3, **back)):
        np.testing.assert_array_equal(infinite, [np.inf, np.nan, 0.0])
    exact = [1 / (2 + np.exp(-1)), np.nan, 0.0]
    np.testing.assert_allclose(loss.delta(30.0, **back), exact, rtol=1e-12)


def test_arrays_of_log_probabilities():
    p, q = np.log([[0.25, 0.25, 0.5], [0.5, 0.25, 0.25]])
    loss = privacy_loss(p, np.stack([q, p]))
    np.testing.assert_allclose(loss.epsilon, [np.log(2), 0], atol=1e-15)
    np.testing.assert_allclose(loss.delta(0.0), [0.25, 0], atol=1e-15)
    with pytest.raises(ValueError, match="sum to 1"):
        privacy_loss(np.exp(p) / 2, q)


def test_unequal_tails(x64):
    """Laplace noise of scales 1 and s > 1: q leaves every bound, and where q > e^epsilon p starts
    at a crossing on each side.
    """
    s, epsilons, back = np.array([1.1, 3.0]), np.array([[0.0], [1.0]]), {"direction": "backward"}

    def loss_of(first, second, values):
        scales = zip((np.zeros(2), values), (first, second), strict=True)
        return privacy_loss(*(laplace(at, 1.0, sensitivity=scale) for at, scale in scales))

    loss = loss_of(np.ones(2), s, np.zeros(2))
    np.testing.assert_allclose(loss.forward, np.log(s), rtol=1e-14)
    np.testing.assert_array_equal(loss.backward, np.inf)
    crossing = (epsilons + np.log(s)) / (1 - 1 / s)
    exact = np.exp(-crossing / s) - np.exp(epsilons - crossing)
    np.testing.assert_allclose(loss.delta(epsilons, **back), exact, rtol=1e-12)
    # The integral of q^a p^(1-a) is finite below a = s / (s - 1), which is 11 and 1.5.
    renyi = loss.renyi(np.array([[1.4], [10.0], [12.0]]), **back)
    np.testing.assert_array_equal(np.isinf(renyi), [[False, False], [False, True], [True, True]])
    # Scales of one public number that was rounded twice are not infinitely far apart.
    rounded_twice = loss_of(s, np.nextafter(s, 4.0), np.ones(2))
    np.testing.assert_allclose(rounded_twice.epsilon, 1 / s, rtol=1e-14)


def test_tails_far_from_zero_and_steep(x64):
    """At 10^6 with a scale of 10^-3, the loss is that of the noise; and at epsilon 700."""
    at = np.array([1e6, 1e6 + 2.0**-11])
    loss = privacy_loss(*(laplace(x, 1.0, sensitivity=1e-3) for x in at))
    assert loss.epsilon == pytest.approx(1e3 * 2.0**-11, rel=1e-9)
    steep = privacy_loss(*(laplace(x, 700.0, sensitivity=1.0) for x in (0.0, 1.0)))
    assert steep.epsilon == pytest.approx(700, rel=1e-13)


WIDTH, FIRST = 2.0**-51, [0, 5, 5]
FAR = [5000, 1, 4000], [4999, 2, 4001]
RISE = [[3, 0, 0], [0, 0, 0]], [[3, 0, 0], [3, 0, 0]]
HIGHER = 3 + np.log1p(np.exp(-3)) - np.log1p((1 - np.exp(-3)) / 3)
WIDER = np.log1p(1e-12 * -np.expm1(-5) / (0.3 + 1.7 * np.exp(-5)))
NARROW = 3.5 + np.log((np.exp(-3.5) * WIDTH + 2 * np.exp(-40)) / (WIDTH + 2 * np.exp(-40)))


@pytest.mark.parametrize(
    ("edges", "costs", "found", "dtype"),
    [
        # Densities of e^-5000
        ([0, 1, 2, 3], FAR, (0, 2), np.float64),
        ([0, 1, 2, 3], FAR, (0, 2), np.float32),
        # The density at 1 is that of the right; the loss is largest at the left
        ([0, 1, 2, 2], RISE, (HIGHER, 3 - HIGHER), np.float64),
        # Edges that are equal but for rounding: an interval without mass would decide
        ([[0, 0.3, 2, 2], [0, 0.1 + 0.2, 2, 2]], (FIRST, FIRST), (0, 0), np.float64),
        # The control: an interval that is wider than rounding decides
        ([[0, 0.3, 2, 2], [0, 0.3 + 1e-12, 2, 2]], (FIRST,) * 2, (WIDER, 5 - WIDER), np.float64),
        # The same at the end of a support, and supports that differ
        ([[0, *[0.3] * 3], [0, *[0.3 + 2.0**-52] * 3]], ([0] * 3,) * 2, (0, 0), np.float64),
        ([[0, *[0.5] * 3], [0, 1, 1, 1]], ([0] * 3,) * 2, (np.log(2), np.inf), np.float64),
        # Bounds that are units in the last place apart: what all draws fall into is no rounding.
        ([0, 1, 1 + WIDTH, 2], ([40, 0, 40], [40, 3.5, 40]), (NARROW, 3.5 - NARROW), np.float64),
    ],
)
def test_suprema(edges, costs, found, dtype, x64):
    """For three pieces of constant costs, or of one that falls."""
    edges = np.broadcast_to(np.asarray(edges, dtype), (2, 4))
    costs = [np.broadcast_to(np.asarray(cost, dtype), (2, 3)) for cost in costs]
    pair = (PiecewiseExponential(edges[i], *costs[i], np.ones((), dtype)) for i in (0, 1))
    loss = privacy_loss(*pair)
    scale = 1e-15 * max(1.0, np.max(costs))
    np.testing.assert_allclose([loss.forward, loss.backward], found, rtol=1e-14, atol=4 * scale)
    assert np.isinf(found).any() or loss.delta(40.0) == 0


def test_what_has_no_common_loss():
    line, finite = laplace_pair(1.0)[0], responses(1.0)[0]
    other = Finite(*np.zeros((2, 3)), np.ones(()))
    for one, another, error, message in (
        (line, np.zeros(3), TypeError, "privacy_loss takes two"),
        (line, finite, TypeError, "privacy_loss takes two"),
        (finite, other, ValueError, "same candidates"),
    ):
        with pytest.raises(error, match=message):
            privacy_loss(one, another)
    with pytest.raises(TypeError, match="outside jit"):
        jax.eval_shape(lambda one: privacy_loss(one, one).epsilon, line)
    with pytest.raises(ValueError, match="delta must be above 0 and below 1"):
        privacy_loss(finite, finite).epsilon_at(1.0)


MULTIPLES = np.arange(0.0, 10.25, 0.5)


def rounded(x, upper=10, resolution=0.5):
    profile = median(x, lower=0, upper=upper, neighbors="swap", resolution=resolution)
    return piecewise_laplace(profile, 1.0)


def test_distributions_on_multiples_are_audited_multiple_by_multiple(x64):
    x = np.array([[1.0, 4.5, 6.0, 6.0], [1.0, 10.0, 6.0, 6.0]])
    made = jax.jit(rounded, static_argnames=("upper", "resolution"))
    one, other = (made(rows) for rows in x)
    ratios = np.subtract(one.log_prob(MULTIPLES), other.log_prob(MULTIPLES))
    loss = privacy_loss(one, other)
    assert 0.3 < float(loss.epsilon) == pytest.approx(np.abs(ratios).max(), rel=1e-12)
    assert float(loss.bounded_range) == pytest.approx(np.ptp(ratios), rel=1e-12)
    with pytest.raises(ValueError, match="the same resolution"):
        privacy_loss(one, replace(other, resolution=Fraction(1)))
    wide = made(x[0], upper=2e6, resolution=1)
    with pytest.raises(ValueError, match="use a coarser one"):
        privacy_loss(wide, wide)
