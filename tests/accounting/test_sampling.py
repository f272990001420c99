"""Samples: golden numbers, mechanisms by enumeration, Renyi divergences of worst pairs and of
dp-accounting, and where there is no amplification.
"""

import json
import pathlib
from dataclasses import replace
from decimal import Context, Decimal
from math import expm1, inf, log, log1p

import numpy as np
import pytest
from scipy.stats import binom

from dpjax import accounting
from dpjax.accounting import Guarantee, fixed_size_subsample, poisson_subsample

GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "F_accounting.json").read_text()
)["subsample"]
ORDERS = np.array([1.5, 2.0, 3.0, 7.0, 20.0])
WAYS = ("poisson", "with", "without")


def sampled(spent, way, taken, records):
    if way == "poisson":
        return poisson_subsample(spent, probability=taken / records)
    return fixed_size_subsample(spent, taken=taken, public_n=records, replacement=way)


def test_golden_values():
    epsilon, p = np.array([[float(s.split("=")[1]) for s in key.split(",")] for key in GOLDEN]).T
    amplified = [
        poisson_subsample(Guarantee(e, inf, "add_remove"), probability=share).epsilon
        for e, share in zip(epsilon, p, strict=True)
    ]
    for name, found in (
        ("amplified", amplified),
        ("inverse", accounting.epsilon_before_sampling(epsilon, probability=p)),
        ("ratio_p_epsp_over_eps", accounting.sampling_efficiency(epsilon, probability=p)),
    ):
        expected = [float(value[name]) for value in GOLDEN.values()]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_ends_of_floats():
    """Where e^epsilon or the probability is beyond them; both are inverses."""
    for p in (1e-300, 1e-6, 0.01, 0.5):
        for epsilon in (1e-6, 0.01, 1.0, 50.0, 3000.0):
            before = float(accounting.epsilon_before_sampling(epsilon, probability=p))
            found = poisson_subsample(Guarantee(before, inf, "add_remove"), probability=p)
            assert found.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert poisson_subsample(Guarantee(1e-10, inf, "add_remove"), probability=1e-320).epsilon > 0


@pytest.mark.parametrize(
    ("epsilon", "probability"), [(37.02, 1 - 2.0**-53), (2.0, 0.75), (0.1, 1e-3), (1e-9, 0.75)]
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


@pytest.mark.parametrize("way", WAYS[1:])
def test_the_epsilon_of_a_fixed_size_is_attained(way):
    """By the probability of yes, which grows by e^epsilon with each copy of one record."""
    epsilon, copies = 0.8, np.arange(4)
    weights = binom.pmf(copies, 3, 1 / 7) if way == "with" else np.array([4, 3, 0, 0]) / 7
    grown = log(weights @ np.exp(copies * epsilon))
    promised = sampled(Guarantee(epsilon, inf, "swap"), way, 3, 7)
    assert grown <= promised.epsilon == pytest.approx(grown, rel=1e-12)
    # Control: the formula without replacement, at the probability of being taken at all
    if way == "with":
        assert promised.epsilon > 1.01 * log1p((1 - weights[0]) * expm1(epsilon))
    loose = sampled(Guarantee(epsilon, inf, "swap", delta=1e-6), way, 3, 7)
    assert loose.epsilon == promised.epsilon
    groups = 1e-6 * np.expm1(copies * epsilon) / expm1(epsilon)
    assert loose.delta == pytest.approx(weights @ groups, rel=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_edges(way):
    neighbors = "add_remove" if way == "poisson" else "swap"
    once, loose = Guarantee(0.5, 0.5, neighbors), Guarantee(800.0, inf, neighbors, delta=1e-6)
    few, same, nothing, tiny, wide = (
        sampled(spent, way, 10, 1000)
        for spent in (
            once,
            once + once,
            Guarantee(0.0, 0.0, neighbors),
            Guarantee(1e-300, inf, neighbors),
            Guarantee(800.0, inf, neighbors),
        )
    )
    assert same.epsilon > (2 * few).epsilon  # on one sample, two mechanisms cost more than on two
    assert nothing.zcdp == 0 < tiny.zcdp
    assert tiny.epsilon == pytest.approx(1e-302)
    assert 700 < wide.epsilon < inf
    everyone = sampled(once, way, 1, 1)
    assert everyone.epsilon == pytest.approx(0.5)
    assert sampled(Guarantee(1e-10, inf, neighbors), way, 1, 10**320).epsilon > 0
    other = "swap" if way == "poisson" else "add_remove"
    for bad, message in (
        (Guarantee(1.0, 1.0, other), neighbors),
        (Guarantee(neighbors=neighbors), "is known"),
        (Guarantee(neighbors=neighbors, zcdp=0.1) + loose, "is known"),
    ):
        with pytest.raises(ValueError, match=message):
            sampled(bad, way, 10, 1000)
    if way == "with":  # ten copies multiply a delta by e^(9 epsilon)
        with pytest.raises(ValueError, match="neither"):
            sampled(loose, way, 10, 1000)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_kept(way):
    """zCDP and Gaussian DP, but with replacement; never a range of less than twice an epsilon."""
    neighbors = "add_remove" if way == "poisson" else "swap"
    noise = Guarantee(neighbors=neighbors, gdp=0.3)
    found = sampled(noise + noise, way, 30, 100)
    kept = inf if way == "with" else (noise + noise).gdp
    assert (found.gdp, found.zcdp) == (kept, (noise + noise).zcdp if kept < inf else inf)
    assert found.sampled[0][1].parts == ((replace(noise, gdp=(noise + noise).gdp), 1),)
    assert Guarantee.from_json(found.to_json()) == found
    if way != "with":
        assert found.rdp(2e4) == noise.rdp(2e4) * 2
    loose = sampled(Guarantee(1.0, 1.0, neighbors, delta=1e-5, zcdp=0.1), way, 1, 10)
    assert (loose.bounded_range, loose.gdp, loose.renyi) == (inf, inf, ())
    assert loose.zcdp == Guarantee(loose.epsilon, neighbors=neighbors).zcdp
    assert loose.delta == pytest.approx(1e-6)


def test_noise_on_poisson_samples_as_in_dp_accounting():
    """Both are exact at integer orders."""
    library = pytest.importorskip("dp_accounting", reason="the extra accounting is not installed")
    rdp = pytest.importorskip("dp_accounting.rdp")
    noise = Guarantee(neighbors="add_remove", zcdp=0.5)
    ours = poisson_subsample(noise, probability=0.05)
    theirs = rdp.RdpAccountant([order for order, _ in ours.renyi if order < 300])
    theirs.compose(library.PoissonSampledDpEvent(0.05, library.GaussianDpEvent(1.0)), 200)
    found = (200 * ours).rules_at(1e-5)["rdp"]
    assert found == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-6)
