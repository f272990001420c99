"""Samples of a fixed size: enumerated mechanisms, worst pairs, dp-accounting, and the relation that
it holds under.
"""

import itertools
from math import comb, exp, expm1, inf, log, log1p

import numpy as np
import pytest
from scipy.special import logsumexp

from dpjax.accounting import Guarantee, fixed_size_subsample

ORDERS = np.array([1.5, 2.0, 3.0, 5.0, 12.0, 40.0])


def samples(data, taken, replacement):
    """All samples, equally likely, in order (which changes nothing without replacement)."""
    return (
        itertools.product(data, repeat=taken)
        if replacement == "with"
        else itertools.permutations(data, taken)
    )


def output(data, epsilon, taken, replacement):
    """The exponential mechanism for the most frequent of three values on a sample, by enumeration;
    a swap moves two counts.
    """
    found = []
    for sample in samples(data, taken, replacement):
        weights = np.exp(epsilon / 2 * np.bincount(sample, minlength=3))
        found.append(weights / weights.sum())
    return np.mean(found, axis=0)


def renyi(p, q, order):
    both = (p > 0) & (q > 0)
    return logsumexp(order * np.log(p[both]) + (1 - order) * np.log(q[both])) / (order - 1)


@pytest.mark.parametrize("replacement", ["with", "without"])
def test_a_mechanism_on_samples_by_enumeration(replacement):
    epsilon, taken, records = 1.5, 2, 4
    losses, curve = [0.0], np.zeros(ORDERS.size)
    for rest in itertools.combinations_with_replacement(range(3), records - 1):
        for old, new in itertools.permutations(range(3), 2):
            p, q = (output((*rest, value), epsilon, taken, replacement) for value in (old, new))
            losses.append(np.abs(np.log(p / q)).max())
            curve = np.maximum(curve, [renyi(p, q, order) for order in ORDERS])
    promised, half = (
        fixed_size_subsample(
            Guarantee(e, e, "swap"), taken=taken, public_n=records, replacement=replacement
        )
        for e in (epsilon, epsilon / 3)
    )
    assert 0.4 * promised.epsilon < max(losses) <= promised.epsilon
    assert max(losses) > half.epsilon  # control
    assert (curve <= promised.rdp(ORDERS)).all()
    assert (curve > half.rdp(ORDERS)).any()
    few = fixed_size_subsample(
        Guarantee(0.5, 0.5, "swap"), taken=10, public_n=1000, replacement="without"
    )
    assert few.rho < 0.95 * Guarantee(few.epsilon, inf, "swap").rho  # of the curve


def answers(copies, epsilon):
    """The probability of yes, which grows by e^epsilon with each copy of one record: groups of k
    cost k epsilon.
    """
    return 1e-3 * exp(copies * epsilon)


@pytest.mark.parametrize("replacement", ["with", "without"])
def test_the_epsilon_is_attained(replacement):
    taken, records, epsilon = 3, 7, 0.8
    share = 1 - (1 - 1 / records) ** taken if replacement == "with" else taken / records
    if replacement == "with":
        weights = [
            comb(taken, k) * (1 / records) ** k * (1 - 1 / records) ** (taken - k)
            for k in range(taken + 1)
        ]
    else:
        weights = [1 - share, share]
    yes = sum(weight * answers(k, epsilon) for k, weight in enumerate(weights))
    promised = fixed_size_subsample(
        Guarantee(epsilon, inf, "swap"), taken=taken, public_n=records, replacement=replacement
    )
    assert log(yes / answers(0, epsilon)) == pytest.approx(promised.epsilon, rel=1e-12)
    assert log(yes / answers(0, epsilon)) <= promised.epsilon
    # Control: the formula without replacement, at the probability of being taken at all
    if replacement == "with":
        assert promised.epsilon > 1.01 * log1p(share * expm1(epsilon))
    loose = fixed_size_subsample(
        Guarantee(epsilon, inf, "swap", delta=1e-6),
        taken=taken,
        public_n=records,
        replacement=replacement,
    )
    groups = [1e-6 * expm1(k * epsilon) / expm1(epsilon) for k in range(taken + 1)]
    assert loose.epsilon == promised.epsilon
    assert loose.delta == pytest.approx(
        sum(weight * delta for weight, delta in zip(weights, groups, strict=False)), rel=1e-9
    )


@pytest.mark.parametrize("deviation", [1.0, 3.0])
def test_gaussian_noise_by_quadrature(deviation):
    """The record is worth 0, 1/2 or 1, and what takes its place another of them."""
    share, z = 0.1, np.linspace(-40, 90, 6001)

    def normal(mean):
        return (
            np.exp(-np.square((z - mean) / deviation) / 2)
            / (np.sqrt(2 * np.pi) * deviation)
            * (z[1] - z[0])
        )

    worst = np.zeros(ORDERS.size)
    for mine, other, instead in itertools.permutations((0.0, 0.5, 1.0)):
        p, q = ((1 - share) * normal(instead) + share * normal(value) for value in (mine, other))
        worst = np.maximum(worst, [renyi(p, q, order) for order in ORDERS])
    noise = Guarantee(neighbors="swap", gdp=1 / deviation)
    promised = fixed_size_subsample(noise, taken=10, public_n=100, replacement="without").rdp(
        ORDERS
    )
    assert (worst <= promised).all()
    assert (promised < noise.rdp(ORDERS)).all()
    # Control
    assert (
        worst
        > fixed_size_subsample(noise, taken=2, public_n=100, replacement="without").rdp(ORDERS)
    ).any()


def test_with_replacement_by_quadrature():
    """Gaussian noise on a sum of five draws out of twenty: the record is worth 1, and 0 takes its
    place.
    """
    z, taken, records = np.linspace(-30, 60, 6001), 5, 20
    normal = [
        np.exp(-np.square(z - k / 2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
        for k in range(taken + 1)
    ]
    weights = [
        comb(taken, k) * (1 / records) ** k * (1 - 1 / records) ** (taken - k)
        for k in range(taken + 1)
    ]
    p, q = sum(weight * density for weight, density in zip(weights, normal, strict=True)), normal[0]
    promised = fixed_size_subsample(
        Guarantee(neighbors="swap", gdp=0.5), taken=taken, public_n=records, replacement="with"
    )
    orders = ORDERS[:4]
    worst = np.array([max(renyi(p, q, order), renyi(q, p, order)) for order in orders])
    assert (worst <= promised.rdp(orders)).all()
    # Control: copies that are counted once; 12 at order 5, where the sum is up to five times as far
    # away.
    once = (1 - weights[0]) * normal[1] + weights[0] * q
    assert worst[-1] > 1.5 * renyi(once, q, orders[-1])


def test_agreement_with_dp_accounting():
    library = pytest.importorskip("dp_accounting", reason="the extra accounting is not installed")
    accountant = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant").RdpAccountant
    orders = [2, 3, 4, 8, 16]
    for deviation, taken, records in ((2.0, 10, 1000), (1.0, 100, 1000), (4.0, 5, 100)):
        theirs = accountant(orders, library.NeighboringRelation.REPLACE_ONE)
        theirs.compose(
            library.SampledWithoutReplacementDpEvent(
                records, taken, library.GaussianDpEvent(deviation)
            )
        )
        noise = Guarantee(neighbors="swap", gdp=1 / deviation)
        found = fixed_size_subsample(
            noise, taken=taken, public_n=records, replacement="without"
        ).rdp(orders)
        # Theirs knows the moments, not bounds of them
        assert (found >= np.array(theirs._rdp) * (1 - 1e-9)).all()
        assert (found <= 1.15 * np.array(theirs._rdp)).all()


def test_edges():
    once = Guarantee(0.5, 0.5, "swap")
    assert fixed_size_subsample(once, taken=9, public_n=9, replacement="without") == once
    assert fixed_size_subsample(
        once, taken=2, public_n=1, replacement="with"
    ).epsilon == pytest.approx(1.0)
    for replacement in ("with", "without"):
        size = {"taken": 10, "public_n": 1000, "replacement": replacement}
        assert fixed_size_subsample(Guarantee(0.0, 0.0, "swap"), **size).rho == 0
        tiny = fixed_size_subsample(Guarantee(1e-300, inf, "swap"), **size)
        assert tiny.epsilon == pytest.approx(1e-302)
        assert tiny.rho > 0
        assert 700 < fixed_size_subsample(Guarantee(800.0, inf, "swap"), **size).epsilon < inf
        for bad, message in (
            (Guarantee(1.0, 1.0, "add_remove"), "swap"),
            (Guarantee(neighbors="swap"), "is known"),
            (
                Guarantee(neighbors="swap", zcdp=0.1) + Guarantee(1.0, inf, "swap", delta=1e-6),
                "is known",
            ),
        ):
            with pytest.raises(ValueError, match=message):
                fixed_size_subsample(bad, **size)
    with pytest.raises(ValueError, match="neither"):  # ten copies multiply a delta by e^(9 epsilon)
        fixed_size_subsample(
            Guarantee(800.0, inf, "swap", delta=1e-6), taken=10, public_n=1000, replacement="with"
        )
    for bad in ({"taken": 0}, {"taken": 11}, {"public_n": 0}, {"replacement": "no"}):
        with pytest.raises(ValueError, match=r"taken|public_n|replacement"):
            fixed_size_subsample(
                once, **{"taken": 2, "public_n": 10, "replacement": "without", **bad}
            )
    with pytest.raises(TypeError, match="sum of guarantees"):
        fixed_size_subsample(0.1, taken=1, public_n=2, replacement="with")
    same = fixed_size_subsample(once + once, taken=5, public_n=100, replacement="without")
    assert same.epsilon == pytest.approx(log1p(0.05 * expm1(1.0)))
    assert (
        same.epsilon
        > (2 * fixed_size_subsample(once, taken=5, public_n=100, replacement="without")).epsilon
    )
