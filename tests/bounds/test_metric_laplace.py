"""Theorems 2 and 11 against exact errors over all small histograms, and against simulations."""

import itertools

import numpy as np
import pytest

from dpjax.bounds import metric_laplace as theorems
from tests.support.histograms import histograms

RNG = np.random.default_rng(0)
N, DRAWS = 3, 20_000
OFF = RNG.uniform(-0.1, 0.1, (2, 4))  # c * q(u') - q(u)
SCALES = np.array([0.3, 0.1])
MEANS = histograms(4, N) @ OFF.T / N
NOISE = RNG.laplace(size=(DRAWS, 1, 2)) * SCALES
ORDERS = {"sum": 1, "euclidean": 2, "maximum": np.inf}


def test_squared_errors_over_all_histograms():
    exact = (N * MEANS) ** 2 + 2 * SCALES**2
    found = theorems.exact_squared_error(SCALES, bias=N * OFF)
    assert found == pytest.approx(exact.sum(-1).max(), rel=1e-12)
    # The paper's factor of 2 is not needed, nor are all elements
    printed = theorems.theorem_2_squared(SCALES, bias=N * OFF)
    assert printed == pytest.approx(2 * N**2 * (OFF**2).sum() + 4 * (SCALES**2).sum())
    assert 2 * found <= printed


def test_norms_of_errors():
    for norm, order in ORDERS.items():
        entrywise, of_means = (
            theorem(SCALES, bias=OFF, norm=norm)
            for theorem in (theorems.theorem_2_norm, theorems.theorem_11)
        )
        found = np.linalg.norm(MEANS + NOISE, ord=order, axis=-1).mean(0).max()
        assert 0.6 * of_means < found <= of_means <= entrywise
        without = theorems.theorem_11(SCALES, bias=0.0, norm=norm)
        assert found > 1.02 * max(without, of_means - without)  # control: neither part is enough
    assert entrywise == of_means  # the largest of all entries


@pytest.mark.parametrize("failure", [0.01, 0.1])
def test_tails_of_errors(failure):
    errors = np.abs(MEANS + NOISE)
    for size, bias, theorem in (
        (errors.max(-1), abs(OFF).max(), theorems.theorem_2_maximum),
        (errors.sum(-1), abs(OFF).sum(0).max(), theorems.sum_tail),
    ):
        threshold, chance = theorem(SCALES, bias=OFF, failure=failure)
        assert threshold == pytest.approx(bias + theorem(SCALES, failure=failure).threshold)
        margin = 5 * np.sqrt(failure / DRAWS)
        assert chance == failure
        assert ((size > threshold).mean(0) <= failure + margin).all()
        assert ((size > 0.6 * threshold).mean(0) > failure + margin).any()  # control


def test_the_largest_of_equal_errors_is_nearly_attained():
    found = theorems.theorem_2_maximum([2.0] * 5, failure=0.01)
    exact = -2 * np.log(1 - 0.99 ** (1 / 5))
    assert exact < found.threshold < exact + 0.02


def exact_maximum(scales):
    """Inclusion and exclusion over all sets of queries."""
    sets = itertools.chain.from_iterable(
        itertools.combinations(scales, size) for size in range(1, len(scales) + 1)
    )
    return sum((-1) ** (len(chosen) + 1) / sum(1 / c for c in chosen) for chosen in sets)


@pytest.mark.parametrize(
    "scales", [[1.0] * 4, [2.0, 0.5, 0.1, 1e-4], [3.0, 0.0, 0.0], [1e3, 1e3, 1.0, 0.0]]
)
def test_mean_norms_of_the_noise(scales):
    largest, length = (theorems.mean_noise(scales, norm=norm) for norm in ("maximum", "euclidean"))
    exact = exact_maximum([c for c in scales if c > 0])
    assert exact * (1 - 1e-12) <= largest <= exact * (1 + 1e-7)
    norms = np.linalg.norm(RNG.laplace(size=(400_000, len(scales))) * scales, axis=-1)
    margin = 5 * norms.std() / norms.size**0.5
    assert abs(length - norms.mean()) < margin
    assert not abs(1.02 * length - norms.mean()) < margin  # control: 2 % off is seen
    assert len(scales) > 3 or length == pytest.approx(3.0, rel=1e-7)


def test_the_sum_of_the_noise_is_within_its_tail():
    scales = np.array([[1.0] * 6, [5.0, 0.5, 0.5, 0.1, 0.1, 0.0]])
    sums = (RNG.exponential(size=(200_000, 6)) * scales[:, None]).sum(-1)
    for failure in (0.3, 0.01):
        equal, mixed = (theorems.sum_tail(row, failure=failure).threshold for row in scales)
        margin = 5 * (failure / sums.shape[1]) ** 0.5
        assert abs((sums[0] > equal).mean() - failure) < margin  # exact for equal scales
        assert (sums[0] > 0.8 * equal).mean() > failure + margin  # control
        assert (sums[1] > mixed).mean() <= failure + margin
    assert mixed < 0.8 * 5 * equal


@pytest.mark.parametrize("wrong", [{"scales": 1.0}, {"scales": []}, {"bias": [[1.0, 2.0]]}])
def test_shapes_are_refused(wrong):
    with pytest.raises(ValueError, match="scales must be"):
        theorems.exact_squared_error(**{"scales": [1.0, 1.0]} | wrong)
