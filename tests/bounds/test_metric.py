"""Bounds under a metric: those of Laplace noise against exact errors over all small histograms and
simulations, those of selections against exact distributions, with their repairs.
"""

import itertools

import numpy as np
import pytest

from dpjax.bounds import metric as theorems
from dpjax.metric_privacy import small_db_size
from tests.support.histograms import histograms

RNG = np.random.default_rng(0)
N, DRAWS = 3, 20_000
OFF = RNG.uniform(-0.1, 0.1, (2, 4))  # c * q(u') - q(u)
SCALES = np.array([0.3, 0.1])
MEANS = histograms(4, N) @ OFF.T / N
ERRORS = MEANS + RNG.laplace(size=(DRAWS, 1, 2)) * SCALES
ORDERS = {"sum": 1, "euclidean": 2, "maximum": np.inf}


def test_expected_errors():
    """Theorems 2 and 11: the largest over all histograms, and no part of the bound is enough."""
    exact = ((N * MEANS) ** 2 + 2 * SCALES**2).sum(-1).max()
    assert theorems.exact_squared_error(SCALES, bias=N * OFF) == pytest.approx(exact, rel=1e-12)
    for norm, order in ORDERS.items():
        bound, without = (theorems.theorem_11(SCALES, bias=b, norm=norm) for b in (OFF, 0.0))
        found = np.linalg.norm(ERRORS, ord=order, axis=-1).mean(0).max()
        assert max(0.6 * bound, 1.02 * without, 1.02 * (bound - without)) < found <= bound


@pytest.mark.parametrize("failure", [0.01, 0.1])
def test_tails_of_errors(failure):
    for norm, theorem in (("maximum", theorems.theorem_2_maximum), ("sum", theorems.sum_tail)):
        bound, margin = theorem(SCALES, bias=OFF, failure=failure), 5 * np.sqrt(failure / DRAWS)
        off = np.linalg.norm(OFF, ord=ORDERS[norm], axis=0).max()
        assert bound == pytest.approx(off + theorem(SCALES, failure=failure))
        size = np.linalg.norm(ERRORS, ord=ORDERS[norm], axis=-1)
        assert ((size > bound).mean(0) <= failure + margin).all()
        assert ((size > 0.6 * bound).mean(0) > failure + margin).any()  # control
    # The largest of equal errors is nearly attained.
    exact = -2 * np.log(1 - (1 - failure) ** (1 / 5))
    assert exact < theorems.theorem_2_maximum([2.0] * 5, failure=failure) < exact + 0.2


def exact_maximum(scales):
    """Inclusion and exclusion over all sets of queries."""
    sizes = range(1, len(scales) + 1)
    sets = (chosen for size in sizes for chosen in itertools.combinations(scales, size))
    return sum((-1) ** (len(chosen) + 1) / sum(1 / c for c in chosen) for chosen in sets)


@pytest.mark.parametrize(
    "scales", [[1.0] * 4, [2.0, 0.5, 0.1, 1e-4], [3.0, 0.0, 0.0], [1e3, 1e3, 1.0, 0.0]]
)
def test_mean_norms_of_the_noise(scales):
    total, length, largest = (theorems.mean_noise(scales, norm=norm) for norm in ORDERS)
    exact = exact_maximum([c for c in scales if c > 0])
    assert exact * (1 - 1e-12) <= largest <= exact * (1 + 1e-7)
    norms = np.linalg.norm(RNG.laplace(size=(400_000, len(scales))) * scales, axis=-1)
    margin = 5 * norms.std() / norms.size**0.5
    assert abs(length - norms.mean()) < margin < abs(1.02 * length - norms.mean())  # the control
    assert len(scales) > 3 or length == pytest.approx(3.0, rel=1e-7)
    assert total == sum(scales)


def test_the_sum_of_the_noise_is_within_its_tail():
    scales = np.array([[1.0] * 6, [5.0, 0.5, 0.5, 0.1, 0.1, 0.0]])
    sums = (RNG.exponential(size=(200_000, 6)) * scales[:, None]).sum(-1)
    for failure in (0.3, 0.01):
        equal, mixed = (theorems.sum_tail(row, failure=failure) for row in scales)
        margin = 5 * (failure / sums.shape[1]) ** 0.5
        assert abs((sums[0] > equal).mean() - failure) < margin  # exact for equal scales
        assert (sums[0] > 0.8 * equal).mean() > failure + margin  # control
        assert (sums[1] > mixed).mean() <= failure + margin
    assert mixed < 0.8 * 5 * equal


@pytest.mark.parametrize("wrong", [{"scales": 1.0}, {"scales": []}, {"bias": [[1.0, 2.0]]}])
def test_shapes_are_refused(wrong):
    with pytest.raises(ValueError, match="scales must be"):
        theorems.exact_squared_error(**{"scales": [1.0, 1.0]} | wrong)


def test_a_failure_of_1_is_refused():
    """Its bound would say nothing."""
    for theorem in (theorems.sum_tail, theorems.theorem_2_maximum):
        with pytest.raises(ValueError, match="failure"):
            theorem(SCALES, failure=1.0)


def test_theorem_4_holds_with_the_other_sign():
    """Exactly, for random scores u and u'; and the counterexample to the printed sign."""
    random = np.random.default_rng(0)
    count, size, failure, c = 200, 6, 0.07, 0.3
    used = random.normal(size=(count, size)) * np.geomspace(0.01, 30, count)[:, None]
    used[::3] = np.round(used[::3])  # several are best
    meant = used + random.uniform(-1, 1, (count, size))
    apart, best = np.abs(used - meant).max(-1), used.max(-1)
    mass = np.exp((used - best[:, None]) / (2 * c))
    mass /= mass.sum(-1, keepdims=True)
    shortfalls = [
        theorems.exponential_shortfall(size, scale=c, failure=failure, num_best=int(k), mismatch=m)
        for m, k in zip(apart, (used == best[:, None]).sum(-1), strict=True)
    ]

    def missed(limits):
        return (mass * (meant <= limits[:, None])).sum(-1)

    assert (missed(best - shortfalls) <= failure).all()
    assert (missed(best - shortfalls + 2 * apart) > failure).any()  # the printed sign
    # u = (0, 0), u' = (1, 0), c near 0: the printed bound says u(Z) > 2 - o(1).
    shortfall = theorems.exponential_shortfall(2, scale=1e-9, failure=0.01, mismatch=1.0)
    assert -1e-6 < 1 - shortfall <= 0
    with pytest.raises(ValueError, match="num_best must be at most"):
        theorems.exponential_shortfall(2, scale=0.1, failure=0.01, num_best=3)


@pytest.mark.parametrize("n", [10**3, 10**6])
@pytest.mark.parametrize("k", [1, 2, 50])
def test_theorem_6(n, k):
    """Not below what is printed, nor below Proposition 1 at its size."""
    facts = {"num_elements": 9, "num_queries": k, "scale": 0.02, "failure": 0.1}
    bound = theorems.small_db_bound(n, **facts)
    if bound < n:
        size = small_db_size(k, alpha=bound / n / 2)
        assert theorems.small_db_error(n, size=size, **facts) <= bound
    assert (0.02 * n**2 * (16 * np.log(9) * np.log(k) + 4 * np.log(10))) ** (1 / 3) <= bound
    assert theorems.small_db_bound(n, mismatch=0.25, **facts) == pytest.approx(bound + n / 4)


def test_theorem_8():
    facts, error = {"num_elements": 9, "num_queries": 50, "scale": 0.02}, theorems.mwem_error

    def printed(rounds):
        learned = 2e4 * np.sqrt(np.log(9) / rounds)
        return learned + 10 * rounds * 0.02 * np.log(50)

    found = error(10**4, rounds=7, failure=14 / 50, **facts)
    assert found == pytest.approx(printed(7), rel=1e-12)
    assert theorems.mwem_rounds(10**4, **facts) == min(range(1, 2000), key=printed)
    assert theorems.mwem_rounds(1, **facts | {"scale": 100.0}) == 1
    with pytest.raises(ValueError, match="num_queries"):
        theorems.mwem_rounds(1, **facts | {"num_queries": 1})
