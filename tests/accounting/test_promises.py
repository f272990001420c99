"""What a guarantee was given is kept, what follows is derived when it is read, and a delta is never
lost on the way.
"""

import copy
import dataclasses
import pickle
from fractions import Fraction
from math import exp, inf

import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax.accounting import (
    BudgetExceeded,
    Composition,
    Guarantee,
    PrivacyFilter,
    PrivacyOdometer,
    fixed_size_subsample,
    for_groups,
    optimal_pure_delta,
    parallel,
    poisson_subsample,
)

LOST = 1e-3
PURE = Guarantee(0.1, 0.1, "swap")
APPROXIMATE = [
    Guarantee(neighbors="swap", delta=LOST, zcdp=0.01),
    Guarantee(1.0, inf, "swap", delta=LOST, zcdp=0.01),
    Guarantee(1.0, 1.0, "swap", delta=LOST),
    Guarantee(inf, 0.5, "swap", delta=LOST),
    Guarantee(neighbors="swap", delta=LOST, gdp=0.3),
    Guarantee(neighbors="swap", delta=LOST, renyi=((2.0, 0.1), (30.0, 0.5))),
    Guarantee(0.2, 0.4, "swap", delta=LOST, laplace=0.2),
]


@pytest.mark.parametrize("given", APPROXIMATE, ids=repr)
@pytest.mark.parametrize("count", [1, 10])
def test_a_delta_is_never_lost(given, count):
    """No operation makes a statement without a delta of a promise with one, nor one with a smaller
    delta.
    """
    least = 1 - (1 - LOST) ** count
    whole = count * given
    again = Composition.from_json(whole.to_json()), pickle.loads(pickle.dumps(whole))
    assert again == (whole, whole)
    for spent in (whole, whole + PURE, PURE + whole):
        assert spent.delta >= count * Fraction(LOST)
        assert spent.rules_at(0.99 * least) == {}
        assert spent.epsilon_at(0.99 * least) == inf
        assert spent.delta_at(50.0) >= least * (1 - 1e-12)
        one = spent.guarantee()
        assert one.delta >= count * LOST
        assert "except with probability" in str(one)
    for budget in (
        PrivacyFilter(9.0, 1e-6, "swap"),
        PrivacyFilter(9.0, 0.0, "swap"),
        PrivacyOdometer(1e-6, "swap"),
        PrivacyFilter(9.0, 0.5, "swap", mechanism_delta=0.99 * count * LOST),
    ):
        with pytest.raises((ValueError, BudgetExceeded), match=r"mechanism_delta|charges|exceeds"):
            budget.charge(whole)


@pytest.mark.parametrize("given", APPROXIMATE, ids=repr)
def test_what_is_made_of_a_promise_keeps_its_delta(given):
    for same in (copy.copy(given), dataclasses.replace(given)):
        assert same == given == Guarantee.from_json(given.to_json())
    assert dataclasses.replace(given, unit="row").delta == LOST
    assert parallel(given, PURE, membership="by_position").delta == LOST
    added = dataclasses.replace(given, neighbors="add_remove")
    for sample in (
        lambda: poisson_subsample(added, probability=0.1),
        lambda: fixed_size_subsample(given, taken=1, public_n=10, replacement="without"),
        lambda: for_groups(given, size=2),
    ):
        if given.epsilon == inf:
            with pytest.raises(ValueError, match=r"known|nothing is promised"):
                sample()
        else:
            found = sample()
            assert found.delta >= 0.1 * LOST
            assert (found.gdp, found.renyi, found.laplace) == (inf, (), inf)
            assert found.zcdp == Guarantee(found.epsilon, neighbors=found.neighbors).zcdp


def test_what_holds_is_kept_and_not_what_was_typed():
    """The smallest of all that follows, and it is derived again where a promise is replaced."""
    ranged, noise = Guarantee(bounded_range=1.0, neighbors="swap"), Guarantee(1.0, neighbors="swap")
    assert (ranged.epsilon, ranged.zcdp) == (1.0, 0.125)
    assert noise.zcdp == pytest.approx(np.tanh(0.5))
    for same in (ranged, Guarantee.from_json(ranged.to_json())):
        wider = dataclasses.replace(same, bounded_range=3.0)
        assert (wider.epsilon, wider.zcdp) == (3.0, 9 / 8)
    assert dataclasses.replace(Guarantee(neighbors="swap", gdp=1.0), gdp=3.0).zcdp == 4.5
    # Alone, what followed from another promise is one
    assert Guarantee(neighbors="swap", zcdp=ranged.zcdp).zcdp == 0.125


@pytest.mark.parametrize(
    ("spent", "text"),
    [
        (Guarantee(0.5, 0.5, "swap", unit="person"), "0.5-DP under swap neighbors, for a person"),
        (Guarantee(4.5, inf, "edge", 9.41808e-7), "4.5-DP except with probability 9.5e-07 under"),
        (Guarantee(neighbors="swap", zcdp=0.02, delta=0.1), "0.02-zCDP except with probability"),
        (3 * Guarantee(0.1, 0.1, "swap", 1e-7), "0.3-DP except with probability 3e-07 under swap"),
        (10**8 * Guarantee(0.1, 0.1, "swap", 1e-7), "no promise under swap neighbors"),
    ],
)
def test_a_guarantee_is_one_line_that_may_be_published(spent, text):
    assert str(spent).startswith(text)


@pytest.mark.parametrize("number", [2, 20])
def test_noise_on_a_resolution_is_not_taken_for_that_on_the_line(number):
    """The losses of a noisy count are those of randomised response, whose sums are larger than
    those of continuous noise.
    """
    profile = dpjax.count(jnp.arange(3.0))
    exact = optimal_pure_delta(1.0, count=number, epsilon=number / 2)
    guarantee = dpjax.laplace.guarantee
    bounded = guarantee("add_remove", 1.0, bounded=True)
    for each in (guarantee(profile, 1.0), guarantee("add_remove", 1.0)):
        assert each.laplace == bounded.laplace == inf
        assert (number * each).delta_at(number / 2) >= exact * (1 - 1e-12)
    control = guarantee("add_remove", 1.0, continuous=True)
    assert control.zcdp < guarantee(profile, 1.0).zcdp
    for wrong in (
        lambda: guarantee(profile, 1.0, continuous=True),
        lambda: guarantee("swap", 1.0, bounded=True, continuous=True),
    ):
        with pytest.raises(ValueError, match="resolution"):
            wrong()
    pytest.importorskip("dp_accounting", reason="the extra accounting is not installed")
    assert (number * control).delta_at(number / 2) < 0.99 * exact


def test_what_is_stated_is_not_rounded_down():
    for number in (2**53 + 1, Fraction(1, 3), Fraction(1, 10**7)):
        assert float(number) < number <= Guarantee(number, inf, "swap").epsilon
        if number < 1:
            assert number <= Guarantee(1.0, inf, "swap", delta=number).delta
    assert str(3 * Guarantee(0.1, 0.1, "swap")).startswith("0.3-DP")


def test_pure_epsilons_round_up():
    """The delta of randomised response at what is answered, in exact arithmetic but for one
    exponential.
    """
    for epsilon in (0.01, 1.0, 8.0, 30.0):
        for delta in (1e-15, 1e-14, 1e-12, 1e-6):
            found = Guarantee(epsilon, inf, "swap").epsilon_at(delta)
            left = Fraction(epsilon) - Fraction(found)
            assert float(left - left**2 / 2) / (1 + exp(-epsilon)) <= delta * (1 + 1e-12)


def test_own_deltas_round_up_and_pickles_of_sums_that_were_asked():
    for delta, count in ((1e-3, 3), (1e-9, 1000), (0.3, 3)):
        spent = count * Guarantee(1.0, inf, "swap", delta=delta)
        exact = 1 - (1 - Fraction(delta)) ** count
        assert exact <= Fraction(spent.delta_at(1e6)) <= exact * (1 + Fraction(1, 10**14))
        assert pickle.loads(pickle.dumps(spent)) == spent


@pytest.mark.parametrize("kind", [np.float16, jnp.bfloat16])
def test_budgets_of_narrow_floats_are_compared_as_numbers(kind):
    """NumPy and JAX compare a float with a float16 in float16, where 1.0004 is 1."""
    budget = PrivacyFilter(kind(1.0), kind(0.0), "swap")
    assert not budget.fits(Guarantee(1.0 + 1e-8, inf, "swap"))
    assert budget.fits(Guarantee(1.0, inf, "swap"))
    part = PrivacyFilter(1.0, 0.125, "swap", mechanism_delta=kind(2.0**-10))
    assert not part.fits(Guarantee(1.0, inf, "swap", delta=2.0**-10 * (1 + 1e-9)))


def test_a_delta_that_underflows_is_no_pure_promise():
    assert (1500 * Guarantee(0.01, inf, "swap")).delta_at(14.9) > 0
    assert (1500 * Guarantee(0.01, inf, "swap")).delta_at(15.1) == 0  # the control
    assert (2000 * Guarantee(1e-3, 2e-3, "swap")).delta_at(1.9) > 0
    assert (1 * Guarantee(neighbors="swap", zcdp=0.001)).delta_at(5.0) > 0
    assert Guarantee(5e-324, 5e-324, "swap").zcdp > 0
    added = Guarantee(1.0, inf, "add_remove", delta=1e-200)
    assert poisson_subsample(added, probability=1e-150).delta > 0
    for replacement in ("with", "without"):
        given = dataclasses.replace(added, neighbors="swap")
        found = fixed_size_subsample(given, taken=1, public_n=10**150, replacement=replacement)
        assert (found.delta > 0, found.bounded_range) == (True, inf)
    # delta is 0.159, and a bound of it is not below 1
    with pytest.raises(ValueError, match="known"):
        fixed_size_subsample(
            Guarantee(0.1, inf, "swap", delta=1e-306), taken=7010, public_n=1, replacement="with"
        )


@pytest.mark.parametrize(("p", "gdp"), [(1e-40, 0.13572980248228667), (1e-200, 0.3035005475085599)])
def test_curves_of_tiny_samples_are_above_the_truth(p, gdp):
    """Gaussian noise, for which the binomial sum is exact: by its largest terms in 60 digits."""
    mpmath = pytest.importorskip("mpmath")
    noise = poisson_subsample(Guarantee(neighbors="add_remove", gdp=gdp), probability=p)
    order, found = noise.renyi[-1]
    k = np.arange(2, int(order) + 1)
    peak = int(k[np.argmax(k * (k - 1) * gdp**2 / 2 + k * np.log(p))])
    some = {*range(2, 60), *range(max(peak - 200, 2), min(peak + 200, int(order)) + 1)}
    with mpmath.workdps(60):
        share = mpmath.mpf(p)
        terms = (
            mpmath.binomial(order, k)
            * share**k
            * (1 - share) ** (order - k)
            * mpmath.expm1(k * (k - 1) * mpmath.mpf(gdp) ** 2 / 2)
            for k in some
        )
        least = mpmath.log1p(mpmath.fsum(terms)) / (order - 1)
        assert least <= mpmath.mpf(found) <= least * (1 + mpmath.mpf(10) ** -6)
