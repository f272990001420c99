"""Numerical composition: never below closed forms, enumerations and searched adversaries, and close to them."""

from math import exp, expm1, inf, log

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from dpjax.accounting import LossDistribution, numerical_composition, optimal_pure_delta
from dpjax.accounting import composition_theorems as composition
from dpjax.accounting.loss_distributions import _worst_range


def gaussian_delta(mu, epsilon):
    return norm.cdf(mu / 2 - epsilon / mu) - exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(
    ("loss", "count", "epsilon", "exact", "close"),
    [
        (LossDistribution.pure(0.5), 10, 1.0, optimal_pure_delta([0.5], [10], epsilon=1.0), 1e-3),
        (LossDistribution.pure(0.1), 100, 7.0, optimal_pure_delta([0.1], [100], epsilon=7.0), 0.02),  # 3e-13
        (LossDistribution.pure(1e-3), 10**6, 5.0, optimal_pure_delta([1e-3], [10**6], epsilon=5.0), 2e-3),
        (LossDistribution.gaussian(1.0), 1, 2.0, gaussian_delta(1.0, 2.0), 1e-3),
        (LossDistribution.gaussian(0.01), 10**4, 2.0, gaussian_delta(1.0, 2.0), 1e-3),
        (LossDistribution.gaussian(0.5), 16, 30.0, gaussian_delta(2.0, 30.0), 5e-3),  # 1e-45: errors are relative
        (LossDistribution.laplace(1.0), 1, 0.5, -expm1(-0.25), 1e-6),
    ],
    ids=lambda value: "",
)
def test_closed_forms_lie_between_the_bounds(loss, count, epsilon, exact, close):
    low, high = loss.compose(count).delta_bounds(epsilon)
    assert low <= exact <= high <= exact * (1 + close)
    assert low > 0.3 * exact


def test_pure_composition_in_epsilon():
    many = LossDistribution.pure(0.1).compose(100)
    exact = composition.optimal_pure_epsilon([0.1], [100], delta=1e-6)
    assert exact <= many.epsilon_at(1e-6) <= exact * 1.001
    assert many.epsilon_at(0.0) == pytest.approx(10.0)
    assert many.delta_at(10.1) == 0
    assert many.epsilon_at(0.9999) == 0


def divergence(pairs, epsilon):
    """The delta of a product of pairs of probability vectors, by enumeration, and that of the other order."""
    p, q = np.ones(1), np.ones(1)
    for first, second in pairs:
        p, q = np.multiply.outer(p, first).ravel(), np.multiply.outer(q, second).ravel()
    return [np.maximum(a - exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p))]


def test_subsampled_pairs_by_enumeration():
    """Three subsampled pairs with outcomes that only one side has, and what it costs to forget one of the orders."""
    rng = np.random.default_rng(0)
    parts, pairs = [], []
    for probability, count in ((0.3, 3), (0.05, 2), (1.0, 1)):
        p, q = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
        p[0], q[3] = 0, 0
        p, q = p / p.sum(), q / q.sum()
        parts.append(LossDistribution.between(p, q).poisson_subsample(probability).compose(count))
        pairs += count * [((1 - probability) * q + probability * p, q)]
    whole = parts[0] + parts[1] + parts[2]
    assert whole.count == 6
    for epsilon in (0.0, 0.1, 0.5, 1.0):
        exact = divergence(pairs, epsilon)
        low, high = whole.delta_bounds(epsilon)
        assert low <= max(exact) <= high <= max(exact) * 1.002
    assert whole.epsilon_at(1e-9) == inf


def test_rounded_the_other_way_it_would_promise_too_much(monkeypatch):
    """Control: losses rounded down to the lattice fall below the exact delta."""
    exact = optimal_pure_delta([1e-3], [10**4], epsilon=0.3)
    assert LossDistribution.pure(1e-3).compose(10**4).delta_at(0.3) >= exact

    def down(losses, masses, step):
        return np.floor(losses / step).astype(np.int64), masses

    monkeypatch.setattr(numerical_composition, "_on_lattice", down)
    assert LossDistribution.pure(1e-3).compose(10**4).delta_at(0.3) < 0.99 * exact


def test_the_error_of_the_transform_is_bounded_and_matters(monkeypatch):
    """A tilt of 0 leaves rounding errors of 1e-16 in a delta of 1e-30; the bound says so."""
    product = numerical_composition.Product([(np.array([0.5, -0.5]), np.array([1.0, exp(-0.5)]) / (1 + exp(-0.5)), 0.0, 0.0, 64)])
    exact = optimal_pure_delta([0.5], [64], epsilon=30.0)
    assert exact <= product.delta(30.0)[1] < 1.01 * exact
    middle = int(np.flatnonzero(product._tilts[0] == 0)[0])
    window = numerical_composition._Window(product, middle, 30.0)
    weights, masses = window._weights(30.0)
    assert abs(float(weights @ masses) - exact) <= window.wrong * np.linalg.norm(weights)
    assert window.upper(30.0) > 100 * exact  # sound, and useless


def searched(r, probability, count, epsilon, points):
    """The best adaptive adversary with a few choices of t: from below."""
    if count == 0:
        return max(-expm1(epsilon), 0.0)
    best = 0.0
    for t in np.linspace(0, r, points):
        q = (exp(-t) - exp(-r)) / -expm1(-r)
        value = 0.0
        for mass, loss in ((q, t), (1 - q, t - r)):
            mixed = log(1 - probability + probability * exp(loss))
            value += mass * exp(mixed) * searched(r, probability, count - 1, epsilon - mixed, points)
        best = max(best, value)
    return best


@pytest.mark.parametrize(("r", "probability", "count", "epsilon"), [(1.0, 0.2, 2, 0.15), (3.0, 0.5, 2, 0.5), (0.5, 0.05, 2, -0.01)])
def test_subsampled_bounded_range_against_a_searched_adversary(r, probability, count, epsilon):
    below = searched(r, probability, count, epsilon, 61)
    pair = _worst_range(r, probability, count)
    at = np.maximum(-np.expm1(epsilon - pair.losses), 0) @ pair.p
    assert below <= at <= below * 1.03
    # The other order, from the complement; at epsilon -g it is e^(-g) (D(g) - 1 + e^g).
    other = np.maximum(-np.expm1(-epsilon + pair.losses), 0) @ pair.q
    exact = exp(-epsilon) * (below + expm1(epsilon))
    assert exact <= other <= exact * 1.03
    # Control: one t that is chosen for all, at the middle of the range, is less than the adversary has.
    assert searched(r, probability, count, epsilon, 1) < below


def test_a_training_loop_of_bounded_range():
    """200 draws on Poisson subsamples: above mechanisms of that range, and far below what pure DP or one pair composed gives."""
    r, probability = 0.5, 0.05
    loop = LossDistribution.bounded_range(r, count=200, probability=probability).epsilon_at(1e-6)
    laplace = LossDistribution.laplace(r / 2).poisson_subsample(probability).compose(200).epsilon_at(1e-6)
    fixed = []
    for t in (0.2, 0.25, 0.3):
        p = expm1(t - r) / expm1(-r)
        pair = LossDistribution.between([p, 1 - p], [p * exp(-t), 1 - p * exp(-t)])
        fixed.append(pair.poisson_subsample(probability).compose(200).epsilon_at(1e-6))
    assert max(fixed) <= loop <= 1.02 * max(fixed)
    assert laplace < loop < 0.9 * LossDistribution.bounded_range(r).poisson_subsample(probability).compose(200).epsilon_at(1e-6)
    assert loop < 0.5 * LossDistribution.pure(r).poisson_subsample(probability).compose(200).epsilon_at(1e-6)


def test_bounded_range_without_subsampling():
    for r, count, epsilon in ((0.5, 5, 0.5), (0.1, 100, 1.0)):
        exact = composition.bounded_range_delta(r, count=count, epsilon=epsilon, queries="fixed")
        adaptive = composition.bounded_range_delta(r, count=count, epsilon=epsilon, queries="adaptive")
        found = LossDistribution.bounded_range(r, count=count).delta_at(epsilon)
        assert exact < adaptive * 1.0001 < found * 1.0002 < 1.03 * adaptive
    assert LossDistribution.bounded_range(800.0, probability=0.5).delta_at(1.0) == pytest.approx(0.5)
    assert LossDistribution.bounded_range(1e-12, count=3).delta_at(0.0) < 3e-12


@pytest.mark.slow
def test_many_of_bounded_range_in_groups():
    """Above what fixed queries can do, near it."""
    fixed = composition.bounded_range_delta(0.1, count=400, epsilon=5.0, queries="fixed")
    assert fixed < composition.bounded_range_delta(0.1, count=400, epsilon=5.0, queries="adaptive") < 1.3 * fixed
    assert fixed < composition.bounded_range_delta(0.1, count=501, epsilon=5.0, queries="fixed")  # in groups, too
    assert composition.bounded_range_delta(0.1, count=2000, epsilon=5.0, queries="adaptive") < 1
    assert LossDistribution.bounded_range(1e-3, count=10**6).epsilon_at(1e-6) < 1.05 * gaussian_epsilon(0.5, 1e-6)


def gaussian_epsilon(mu, delta):
    return brentq(lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0, 100)


def test_approximate_mechanisms_keep_their_delta():
    many = LossDistribution.approximate(0.1, 1e-8).compose(50)
    exact = 1 - (1 - 1e-8) ** 50 * (1 - optimal_pure_delta([0.1], [50], epsilon=2.0))
    assert exact <= many.delta_at(2.0) <= exact * 1.01
    assert many.epsilon_at(4e-7) == inf
    apart = LossDistribution.between([1, 0], [0, 1])
    assert (apart + many).delta_at(1.0) == apart.delta_at(3.0) == 1
    assert LossDistribution.between([1, 1], [1, 1]).compose(7).delta_at(0.0) == 0


def test_extreme_numbers_are_on_the_safe_side():
    wide = LossDistribution.gaussian(30.0).poisson_subsample(0.01)
    assert wide.epsilon_at(1e-300) > 450
    assert LossDistribution.gaussian(1e-3).poisson_subsample(0.01).compose(10**6).delta_at(1.0) <= 1


def test_what_is_refused():
    step = LossDistribution.pure(1.0)
    assert str(step.delta_at(2.0)) == "0.0"
    for call, message in (
        (lambda: step.compose(2).poisson_subsample(0.1), "one mechanism"),
        (lambda: step.poisson_subsample(0.0), "probability"),
        (lambda: LossDistribution.between([1, 0], [1, 0, 0]), "one length"),
        (lambda: LossDistribution.between([1, -1], [1, 1]), "probabilities"),
        (lambda: step.delta_at(-1.0), "epsilon"),
        (lambda: step.epsilon_at(1.0), "delta"),
        (lambda: LossDistribution.laplace(0.0), "epsilon"),
        (lambda: step.compose(0), "count"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.slow
def test_against_dp_accounting():
    pytest.importorskip("dp_accounting", reason="the extra accounting is not installed")
    library = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    for ours, theirs in (
        (
            LossDistribution.laplace(1.0),
            library.from_laplace_mechanism(1.0, value_discretization_interval=1e-4, sampling_prob=0.02),
        ),
        (
            LossDistribution.gaussian(1.0),
            library.from_gaussian_mechanism(1.0, value_discretization_interval=1e-4, sampling_prob=0.02),
        ),
    ):
        found = ours.poisson_subsample(0.02).compose(300)
        other = theirs.self_compose(300)
        for epsilon in (0.5, 1.5):
            low, high = found.delta_bounds(epsilon)
            assert low <= other.get_delta_for_epsilon(epsilon)
            assert high == pytest.approx(other.get_delta_for_epsilon(epsilon), rel=5e-3)
        assert found.epsilon_at(1e-6) == pytest.approx(other.get_epsilon_for_delta(1e-6), rel=2e-3)


@pytest.mark.slow
def test_random_products_lie_between_the_bounds():
    rng = np.random.default_rng(1)
    for _ in range(60):
        pairs, whole = [], None
        for _ in range(rng.integers(1, 4)):
            size = int(rng.integers(2, 6))
            p, q = (rng.dirichlet(np.full(size, 0.7)) + 1e-12 for _ in range(2))
            p, q = p / p.sum(), q / q.sum()
            count, probability = int(rng.integers(1, 3)), float(rng.choice([1.0, 0.3, 0.01]))
            part = LossDistribution.between(p, q).poisson_subsample(probability).compose(count)
            pairs += count * [((1 - probability) * q + probability * p, q)]
            whole = part if whole is None else whole + part
        for epsilon in (0.0, 0.3, 2.0):
            exact = max(divergence(pairs, epsilon))
            low, high = whole.delta_bounds(epsilon)
            assert low <= exact * (1 + 1e-9) + 1e-15
            assert exact <= high * (1 + 1e-12) + 1e-18
            assert high <= exact * 1.02 + 1e-9
