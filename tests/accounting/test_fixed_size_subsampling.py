"""Samples of a fixed size: enumerated mechanisms, worst pairs, dp-accounting, and the relation that
it holds under.
"""

import itertools
from math import comb, expm1, inf, log, log1p

import numpy as np
import pytest
from scipy.special import logsumexp

from dpjax.accounting import Guarantee, fixed_size_subsample

ORDERS = np.array([1.5, 2.0, 3.0, 5.0, 12.0, 40.0])
WAYS = pytest.mark.parametrize("replacement", ["with", "without"])


def output(data, epsilon, taken, replacement):
    """The exponential mechanism for the most frequent of three values on a sample, by enumeration;
    a swap moves two counts.
    """
    samples = (
        itertools.product(data, repeat=taken)
        if replacement == "with"
        else itertools.permutations(data, taken)
    )
    found = []
    for sample in samples:
        weights = np.exp(epsilon / 2 * np.bincount(sample, minlength=3))
        found.append(weights / weights.sum())
    return np.mean(found, axis=0)


def renyi(p, q):
    """At all orders."""
    both, a = (p > 0) & (q > 0), ORDERS[:, None]
    return logsumexp(a * np.log(p[both]) + (1 - a) * np.log(q[both]), axis=1) / (ORDERS - 1)


@WAYS
def test_a_mechanism_on_samples_by_enumeration(replacement):
    epsilon, size = 1.5, {"taken": 2, "public_n": 4, "replacement": replacement}
    losses, curves = [], []
    for rest in itertools.combinations_with_replacement(range(3), 3):
        for old, new in itertools.permutations(range(3), 2):
            p, q = (output((*rest, value), epsilon, 2, replacement) for value in (old, new))
            losses.append(np.abs(np.log(p / q)).max())
            curves.append(renyi(p, q))
    promised, less = (
        fixed_size_subsample(Guarantee(e, e, "swap"), **size) for e in (epsilon, epsilon / 3)
    )
    assert max(0.4 * promised.epsilon, less.epsilon) < max(losses) <= promised.epsilon
    curve = np.max(curves, axis=0)
    assert (curve <= promised.rdp(ORDERS)).all()
    assert (curve > less.rdp(ORDERS)).any()  # control


def binomial(taken, records):
    share = 1 / records
    return [comb(taken, k) * share**k * (1 - share) ** (taken - k) for k in range(taken + 1)]


@WAYS
def test_the_epsilon_is_attained(replacement):
    """By the probability of yes, which grows by e^epsilon with each copy of one record: groups of k
    cost k epsilon.
    """
    taken, records, epsilon = 3, 7, 0.8
    size = {"taken": taken, "public_n": records, "replacement": replacement}
    weights = binomial(taken, records) if replacement == "with" else [4 / 7, 3 / 7]
    copies = np.arange(len(weights))
    grown = log(weights @ np.exp(copies * epsilon))
    promised = fixed_size_subsample(Guarantee(epsilon, inf, "swap"), **size)
    assert grown <= promised.epsilon == pytest.approx(grown, rel=1e-12)
    # Control: the formula without replacement, at the probability of being taken at all
    if replacement == "with":
        assert promised.epsilon > 1.01 * log1p((1 - weights[0]) * expm1(epsilon))
    loose = fixed_size_subsample(Guarantee(epsilon, inf, "swap", delta=1e-6), **size)
    assert loose.epsilon == promised.epsilon
    groups = 1e-6 * np.expm1(copies * epsilon) / expm1(epsilon)
    assert loose.delta == pytest.approx(weights @ groups, rel=1e-9)


@pytest.mark.parametrize("deviation", [1.0, 3.0])
def test_gaussian_noise_by_quadrature(deviation):
    """The record is worth 0, 1/2 or 1, and what takes its place another of them."""
    share, z = 0.1, np.linspace(-40, 90, 6001)
    normal = {
        mean: np.exp(-np.square((z - mean) / deviation) / 2)
        * ((z[1] - z[0]) / (np.sqrt(2 * np.pi) * deviation))
        for mean in (0.0, 0.5, 1.0)
    }
    worst = np.max(
        [
            renyi(*((1 - share) * normal[instead] + share * normal[value] for value in pair))
            for *pair, instead in itertools.permutations(normal)
        ],
        axis=0,
    )
    noise = Guarantee(neighbors="swap", gdp=1 / deviation)
    promised, less = (
        fixed_size_subsample(noise, taken=taken, public_n=100, replacement="without").rdp(ORDERS)
        for taken in (10, 2)
    )
    assert (worst <= promised).all()
    assert (promised < noise.rdp(ORDERS)).all()
    assert (worst > less).any()  # control


def test_with_replacement_by_quadrature():
    """Gaussian noise on a sum of five draws out of twenty: the record is worth 1, and 0 takes its
    place.
    """
    z, weights = np.linspace(-30, 60, 6001), binomial(5, 20)
    normal = np.exp(-np.square(z - np.arange(6)[:, None] / 2) / 2) / np.sqrt(2 * np.pi)
    normal *= z[1] - z[0]
    p, q = weights @ normal, normal[0]
    noise = Guarantee(neighbors="swap", gdp=0.5)
    promised = fixed_size_subsample(noise, taken=5, public_n=20, replacement="with").rdp(ORDERS)
    worst = np.maximum(renyi(p, q), renyi(q, p))[:5]
    assert (worst <= promised[:5]).all()
    # Control: copies that are counted once; the sum is up to five times as far away.
    once = (1 - weights[0]) * normal[1] + weights[0] * q
    assert (worst[3:] > 1.5 * renyi(once, q)[3:5]).all()


@WAYS
def test_edges(replacement):
    size = {"taken": 10, "public_n": 1000, "replacement": replacement}
    once, loose = Guarantee(0.5, 0.5, "swap"), Guarantee(800.0, inf, "swap", delta=1e-6)
    few, same, nothing, tiny, wide = (
        fixed_size_subsample(spent, **size)
        for spent in (
            once,
            once + once,
            Guarantee(0.0, 0.0, "swap"),
            Guarantee(1e-300, inf, "swap"),
            Guarantee(800.0, inf, "swap"),
        )
    )
    assert same.epsilon > (2 * few).epsilon  # on one sample, two mechanisms cost more than on two
    assert nothing.rho == 0 < tiny.rho
    assert tiny.epsilon == pytest.approx(1e-302)
    assert 700 < wide.epsilon < inf
    everyone = fixed_size_subsample(once, taken=1, public_n=1, replacement=replacement)
    assert everyone.epsilon == pytest.approx(0.5)
    for bad, message in (
        (Guarantee(1.0, 1.0, "add_remove"), "swap"),
        (Guarantee(neighbors="swap"), "is known"),
        (Guarantee(neighbors="swap", zcdp=0.1) + loose, "is known"),
    ):
        with pytest.raises(ValueError, match=message):
            fixed_size_subsample(bad, **size)
    if replacement == "with":  # ten copies multiply a delta by e^(9 epsilon)
        with pytest.raises(ValueError, match="neither"):
            fixed_size_subsample(loose, **size)
    else:  # by the curve
        assert few.rho < 0.95 * Guarantee(few.epsilon, inf, "swap").rho


def test_agreement_with_dp_accounting():
    """Theirs knows the moments, not bounds of them."""
    library = pytest.importorskip("dp_accounting", reason="the extra accounting is not installed")
    rdp = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    for deviation, taken, records in ((2.0, 10, 1000), (1.0, 100, 1000), (4.0, 5, 100)):
        event = library.SampledWithoutReplacementDpEvent(
            records, taken, library.GaussianDpEvent(deviation)
        )
        noise = Guarantee(neighbors="swap", gdp=1 / deviation)
        found = fixed_size_subsample(noise, taken=taken, public_n=records, replacement="without")
        for order in (2, 4, 16):
            theirs = rdp.RdpAccountant([order], library.NeighboringRelation.REPLACE_ONE)
            theirs.compose(event)
            # From their epsilon at a delta, the divergence
            back = theirs.get_epsilon(1e-9) - log(1e9 / order) / (order - 1) - log1p(-1 / order)
            assert back * (1 - 1e-9) <= found.rdp(order) <= 1.15 * back
