"""Amplification by Poisson subsampling: golden numbers, subsampled mechanisms by enumeration, and
where it does not hold.
"""

import itertools
import json
import pathlib
from decimal import Context, Decimal
from math import inf

import jax
import numpy as np
import pytest
from scipy.special import logsumexp

from dpjax import accounting
from dpjax.accounting import Composition, Guarantee, poisson_subsample

GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "F_accounting.json").read_text()
)["subsample"]
ORDERS = np.array([2.0, 3, 7, 20])
RANGE = Guarantee(0.1, 0.1, "add_remove")


def test_golden_values(x64):
    epsilon, p = np.array([[float(s.split("=")[1]) for s in key.split(",")] for key in GOLDEN]).T
    for name, function in (
        ("amplified", accounting.subsampled_epsilon),
        ("inverse", accounting.epsilon_before_sampling),
        ("ratio_p_epsp_over_eps", accounting.sampling_efficiency),
    ):
        expected = [float(value[name]) for value in GOLDEN.values()]
        np.testing.assert_allclose(function(epsilon, probability=p), expected, rtol=1e-12)
        if name == "amplified":
            found = [
                poisson_subsample(Guarantee(e, inf, "add_remove"), probability=share).epsilon
                for e, share in zip(epsilon, p, strict=True)
            ]
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_ends_of_float32():
    """Where e^epsilon or the probability is beyond it; both functions are inverses."""
    epsilon = np.array([1e-6, 0.01, 1.0, 50.0, 300.0], np.float32)[:, None]
    p = np.array([1e-30, 1e-6, 0.01, 0.5, 1.0], np.float32)

    @jax.jit
    def run(epsilon, p):
        before = accounting.epsilon_before_sampling(epsilon, probability=p)
        return accounting.subsampled_epsilon(before, probability=p)

    np.testing.assert_allclose(run(epsilon, p), np.broadcast_to(epsilon, (5, 5)), rtol=3e-6)
    assert poisson_subsample(Guarantee(1e-10, inf, "add_remove"), probability=1e-320).epsilon > 0


def subsampled(data, epsilon, probability):
    """The exponential mechanism for the most frequent of three values, on a Poisson subsample, by
    enumeration.
    """
    distribution = np.zeros(3)
    for taken in itertools.product((0, 1), repeat=len(data)):
        chance = np.prod([probability if t else 1 - probability for t in taken])
        counts = np.bincount([v for v, t in zip(data, taken, strict=True) if t], minlength=3)
        weights = np.exp(epsilon * counts)  # counts change in one direction only
        distribution += chance * weights / weights.sum()
    return distribution


def renyi(first, second):
    """Of finitely many outcomes on the last axis, at all orders."""
    return np.log((first ** ORDERS[:, None] * second ** (1 - ORDERS[:, None])).sum(-1)) / (
        ORDERS - 1
    )


@pytest.mark.parametrize("probability", [0.1, 0.6])
def test_a_subsampled_mechanism_by_enumeration(probability):
    """All neighbors of small datasets; half the range promises too little."""
    epsilon, losses, curves = 1.5, [], []
    datasets = [
        data
        for size in range(4)
        for data in itertools.combinations_with_replacement(range(3), size)
    ]
    for data, new in itertools.product(datasets, range(3)):
        one, other = (subsampled(d, epsilon, probability) for d in (data, (*data, new)))
        ratio = np.log(other / one)
        losses.append([np.abs(ratio).max(), np.ptp(ratio)])
        curves += [renyi(one, other), renyi(other, one)]
    (worst, spread), curve = np.max(losses, axis=0), np.max(curves, axis=0)
    promised, half = (
        poisson_subsample(Guarantee(e, e, "add_remove"), probability=probability)
        for e in (epsilon, epsilon / 2)
    )
    assert 0.3 * promised.epsilon < worst <= promised.epsilon + 1e-12
    assert spread <= promised.bounded_range + 1e-12
    # The range does not shrink to what one subsample has, p * range: control.
    assert spread > probability * epsilon
    assert (curve <= promised.rdp(ORDERS)).all()
    assert (curve > np.maximum(0.3 * promised.rdp(ORDERS), half.rdp(ORDERS))).all()
    # Replaced records: the theorem does not cover them, and its number is passed.
    swaps = [
        np.abs(np.log(np.divide(*(subsampled((*data, v), epsilon, probability) for v in pair))))
        for data in itertools.combinations_with_replacement(range(3), 2)
        for pair in itertools.permutations(range(3), 2)
    ]
    assert np.max(swaps) > worst


@pytest.mark.parametrize(
    ("epsilon", "probability"), [(37.02, 1 - 2.0**-53), (2.0, 0.75), (0.1, 1e-3)]
)
def test_the_range_is_attained_by_randomized_response(epsilon, probability):
    """The individual is answered by the coin if taken, and by its opposite if not."""
    context, p, e = Context(prec=60), Decimal(probability), Decimal(epsilon)
    most, least = (
        context.ln(context.add(1 - p, context.multiply(p, context.exp(sign * e))))
        for sign in (1, -1)
    )
    given = Guarantee(epsilon, 2 * epsilon, "add_remove")
    found = poisson_subsample(given, probability=probability)
    for number, exact in (
        (found.epsilon, most),
        (found.bounded_range, context.subtract(most, least)),
    ):
        assert exact <= Decimal(number) <= exact * (1 + Decimal("1e-13"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Guarantee(1.0, 1.0, "swap"), "add_remove"),
        (Guarantee(neighbors="add_remove"), "to be amplified by subsampling"),
        (
            Guarantee(neighbors="add_remove", zcdp=0.1)
            + Guarantee(1.0, inf, "add_remove", delta=1e-6),
            "to be amplified by subsampling",
        ),
    ],
)
def test_what_is_not_amplified(given, message):
    with pytest.raises(ValueError, match=message):
        poisson_subsample(given, probability=0.1)


def test_what_is_kept():
    approximate = poisson_subsample(Guarantee(1.0, inf, "add_remove", delta=1e-5), probability=0.1)
    assert (approximate.delta, approximate.bounded_range) == (pytest.approx(1e-6), inf)
    noise = Guarantee(neighbors="add_remove", zcdp=1e-4)
    for whole in (RANGE, noise):
        assert poisson_subsample(whole, probability=1.0) == whole
    nothing = poisson_subsample(Guarantee(0.0, 0.0, "add_remove"), probability=0.3)
    assert (nothing.rdp(ORDERS) == 0).all()
    found = poisson_subsample(noise, probability=0.3)
    order = np.array([1.5, 2.5, 101.0])  # not among the orders
    # The distance is small: p^2 times the divergence without sampling
    truth = 0.09 * 1e-4 * np.maximum(order, 2)
    np.testing.assert_allclose(found.rdp(order), truth, rtol=0.08)
    assert (found.rdp(order) >= truth).all()
    assert found.rdp(2e4) == inf


def worst_of_range(epsilon, p, points):
    """A draw of this range, with the losses t and t - epsilon for every t: probabilities without
    the individual, and ratios.
    """
    t = np.linspace(0, epsilon, points)[1:-1, None]
    rare = -np.expm1(t - epsilon) / (np.exp(t) * -np.expm1(-epsilon))
    return np.stack([rare, 1 - rare], axis=-1), np.exp(np.stack([t, t - epsilon], axis=-1))


def divergence(chance, ratio, p, order):
    """The largest of all pairs, in both directions; the outcomes are on the last axes."""
    exponents = np.log(chance) + np.array([order, 1 - order])[:, None, None, None] * np.log1p(
        p * (ratio - 1)
    )
    return logsumexp(exponents, axis=(2, 3)).max() / (order - 1)


@pytest.mark.parametrize("deviation", [None, 1.0])
def test_worst_pairs_by_quadrature(deviation):
    """A draw of range 0.5, alone and with Gaussian noise on the same subsample."""
    p, epsilon = 0.05, 0.5
    chance, ratio = worst_of_range(epsilon, p, 41)
    spent = 1 * Guarantee(epsilon, epsilon, "add_remove")
    apart = poisson_subsample(spent, probability=p)
    if deviation is not None:
        z = np.linspace(-12, 30, 4001)[:, None]
        density = np.exp(-np.square(z / deviation) / 2) / (np.sqrt(2 * np.pi) * deviation)
        chance = chance * density * (z[1] - z[0])
        ratio = ratio * np.exp((2 * z - 1) / (2 * deviation**2))
        noise = Guarantee(neighbors="add_remove", zcdp=1 / (2 * deviation**2))
        spent, apart = spent + noise, apart + poisson_subsample(noise, probability=p)
    promised = poisson_subsample(spent, probability=p)
    for order in ORDERS:
        worst = divergence(chance, ratio, p, order)
        assert worst <= promised.rdp(order) < 1.01 * worst
    # On one subsample, two mechanisms cost more than on two: what they cost apart is passed
    assert (worst > apart.rdp(ORDERS[-1])) == (deviation is not None)


@pytest.mark.parametrize(("epsilon", "p"), [(0.5, 0.01), (2.0, 0.05)])
def test_zcdp_by_subsampling(epsilon, p):
    """The supremum over all orders for the worst pairs of that range; the rho of a single order is
    passed.
    """
    pair = worst_of_range(epsilon, p, 21)
    worst = max(divergence(*pair, p, order) / order for order in 1 + np.geomspace(1e-3, 1e5, 200))
    whole = Guarantee(epsilon, epsilon, "add_remove")
    draw = poisson_subsample(whole, probability=p)
    assert worst <= draw.rho <= 2 * worst
    assert draw.rho < 0.5 * Guarantee(draw.epsilon, draw.bounded_range, "add_remove").rho
    # Control: far out the divergence over the order says too little
    assert worst > draw.rdp(1e4) / 1e4


def test_losses_beside_other_mechanisms():
    """Their pairs are composed with them; where one has none, Renyi divergences are left."""
    pytest.importorskip("dp_accounting", reason="the extra accounting is not installed")
    noise = Guarantee(neighbors="add_remove", gdp=0.3)
    step = poisson_subsample(Guarantee(neighbors="add_remove", gdp=0.8), probability=0.05)
    assert step.noise == ("gaussian", 0.8, 0.05)
    loose = Guarantee(0.2, inf, "add_remove", delta=1e-8)
    spent = 30 * step + 2 * RANGE + loose + noise
    epsilon = spent.epsilon_at(1e-6)
    assert spent.rules_at(1e-6)["losses"] == epsilon > (30 * step).epsilon_at(1e-6)
    assert spent.epsilon_at(1e-9) == inf  # the delta of one part
    kinds = tuple((Guarantee(0.001 * number, inf, "add_remove"), 1) for number in range(1, 40))
    for others in (
        Guarantee(neighbors="add_remove", zcdp=0.01),
        Guarantee(1e3, inf, "add_remove"),
        Composition(kinds),
    ):
        assert "losses" not in (step + others).rules_at(1e-6)
    assert poisson_subsample(noise + noise, probability=0.1).noise[1] == pytest.approx(0.3 * 2**0.5)
    for mechanism in (noise + RANGE, RANGE):  # their losses are not those of Gaussian noise alone
        assert poisson_subsample(mechanism, probability=0.1).noise is None
