"""Theorems 2 and 11 against exact errors over all small histograms, and against simulations."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.bounds.metric_laplace import (
    exact_squared_error,
    mean_noise,
    sum_tail,
    theorem_2_absolute,
    theorem_2_maximum,
    theorem_2_norm,
    theorem_2_squared,
    theorem_2_sum,
    theorem_11,
    theorem_11_maximum,
)
from dpjax.metric_privacy import LaplaceAnswers

RNG = np.random.default_rng(0)
ASKED = RNG.uniform(size=(2, 4)).astype(np.float32)
ANSWERED = (ASKED + RNG.uniform(-0.1, 0.1, (2, 4))).astype(np.float32)
SCALES = np.array([0.3, 0.1], np.float32)
N = 3
HISTOGRAMS = np.array(
    [x for x in itertools.product(range(N + 1), repeat=4) if sum(x) == N], np.float32
)
ANSWERS = LaplaceAnswers(jnp.asarray(HISTOGRAMS @ ANSWERED.T), jnp.asarray(SCALES))
TRUTH = HISTOGRAMS @ ASKED.T
FAILURES = (0.01, 0.1, 0.5)


@functools.cache
def bounds():
    """All bounds of these queries and scales, compiled as one."""

    @jax.jit
    def run(asked, scales, answered):
        sums = {"answered": answered, "num_records": N}
        return {
            "exact": exact_squared_error(asked, scales, **sums),
            "squared": theorem_2_squared(asked, scales, **sums),
            "absolute": theorem_2_absolute(asked, scales, **sums),
            "maximum": [
                theorem_2_maximum(asked, scales, **sums, failure=failure) for failure in FAILURES
            ],
            "norm": {
                norm: theorem_2_norm(asked, scales, **sums, norm=norm)
                for norm in ("sum", "euclidean", "maximum")
            },
            "sum": theorem_2_sum(asked, scales, **sums, failure=0.1),
            "mean squared": theorem_11(asked, scales, answered=answered),
            "mean": {
                norm: theorem_11(asked, scales, answered=answered, norm=norm)
                for norm in ("sum", "euclidean", "maximum")
            },
            "mean maximum": theorem_11_maximum(asked, scales, answered=answered, failure=0.1),
        }

    return jax.tree.map(float, run(ASKED, SCALES, ANSWERED))


@pytest.mark.slow
def test_the_exact_squared_error_is_the_largest_over_all_histograms():
    squared = np.sum(ANSWERS.mean_squared_error(TRUTH), -1)
    np.testing.assert_allclose(bounds()["exact"], squared.max(), rtol=1e-5)
    # The paper's factor of 2 is not needed, nor are all elements
    assert 2 * bounds()["exact"] <= bounds()["squared"]


@pytest.mark.slow
def test_absolute_and_largest_errors_are_within_theorem_2():
    absolute = np.sum(ANSWERS.mean_abs_error(TRUTH), -1)
    bound = bounds()["absolute"]
    assert absolute.max() <= bound
    assert absolute.max() > bound / 3
    draws = np.asarray(ANSWERS.sample(jax.random.key(0), (20_000,)))
    largest = np.abs(draws - TRUTH[None]).max(-1)
    failed_by_half = False
    for failure, tail in zip(FAILURES, bounds()["maximum"], strict=True):
        assert ((largest > tail.threshold).mean(0) <= failure + 5 * np.sqrt(failure / 20_000)).all()
        assert tail.probability == np.float32(failure)
        failed_by_half |= ((largest > tail.threshold / 2).mean(0) > failure).any()
    assert failed_by_half  # the negative control


def test_means_are_within_theorem_11():
    means = LaplaceAnswers(ANSWERS.values / N, ANSWERS.scales)
    truth = TRUTH / np.float32(N)
    squared = np.sum(means.mean_squared_error(truth), -1).max()
    assert 2 * squared <= bounds()["mean squared"] * (1 + 1e-5)
    assert 2 * squared >= 0.999 * bounds()["mean squared"]  # reached, but for its factor of 2
    assert np.sum(means.mean_abs_error(truth), -1).max() <= bounds()["mean"]["sum"]
    off = np.asarray(means.sample(jax.random.key(3), (20_000,))) - truth
    for norm, order in (("sum", 1), ("euclidean", 2), ("maximum", np.inf)):
        found = np.linalg.norm(off, ord=order, axis=-1).mean(0).max()
        bound = bounds()["mean"][norm]
        assert found <= bound <= bounds()["norm"][norm]
        assert found > 0.6 * bound
        without = np.linalg.norm(ANSWERED - ASKED, ord=order, axis=0).max()
        assert found > 1.02 * max(without, bound - without)  # the controls: neither part is enough


def test_largest_errors_of_means_are_within_theorem_11():
    draws = np.asarray(
        LaplaceAnswers(ANSWERS.values / N, ANSWERS.scales).sample(jax.random.key(1), (20_000,))
    )
    tail = bounds()["mean maximum"]
    assert (
        (np.abs(draws - TRUTH[None] / N).max(-1) > tail.threshold).mean(0)
        <= 0.1 + 5 * np.sqrt(0.1 / 20_000)
    ).all()


def exact_maximum(scales):
    """Inclusion and exclusion over all sets of queries."""
    sets = itertools.chain.from_iterable(
        itertools.combinations(scales, size) for size in range(1, len(scales) + 1)
    )
    return sum((-1) ** (len(chosen) + 1) / sum(1 / c for c in chosen) for chosen in sets)


def test_mean_norms_of_the_noise():
    scales = np.array(
        [[1.0, 1.0, 1.0, 1.0], [2.0, 0.5, 0.1, 1e-4], [3.0, 0.0, 0.0, 0.0], [1e3, 1e3, 1.0, 0.0]]
    )
    both = jax.jit(
        lambda scales: [mean_noise(scales, norm=norm) for norm in ("maximum", "euclidean")]
    )
    largest, length = (np.asarray(mean) for mean in both(scales))
    np.testing.assert_allclose(largest, [exact_maximum(row[row > 0]) for row in scales], rtol=3e-6)
    noise = np.random.default_rng(0).laplace(size=(400_000, 4)) * scales[:, None]
    norms = np.linalg.norm(noise, axis=-1)
    error = 5 * norms.std(-1) / norms.shape[1] ** 0.5
    assert (np.abs(length - norms.mean(-1)) < error).all()
    assert not (np.abs(1.02 * length - norms.mean(-1)) < error).any()  # 2 % off is seen
    np.testing.assert_allclose(length[2], 3.0, rtol=3e-6)


def test_the_sum_of_the_noise_is_within_its_tail():
    scales = np.array([[1.0] * 6, [5.0, 0.5, 0.5, 0.1, 0.1, 0.0]])
    sums = (np.random.default_rng(1).exponential(size=(200_000, 6)) * scales[:, None]).sum(-1)
    failures = (0.3, 0.01)
    tails = jax.jit(lambda scales: [sum_tail(scales, failure=failure) for failure in failures])
    found = tails(np.append(scales, np.full((1, 6), 5.0), axis=0))
    for failure, tail in zip(failures, found, strict=True):
        threshold = np.asarray(tail.threshold)[:2]
        above = (sums > threshold[:, None]).mean(-1)
        margin = 5 * (failure / sums.shape[1]) ** 0.5
        assert (above <= failure + margin).all()
        assert abs(above[0] - failure) < margin  # exact for equal scales
        assert ((sums > 0.8 * threshold[:, None]).mean(-1) > failure + margin)[0]
    assert threshold[1] < 0.8 * float(found[1].threshold[2])


def test_norms_and_sums_are_within_theorem_2():
    draws = np.asarray(ANSWERS.sample(jax.random.key(2), (20_000,)))
    off = draws - TRUTH[None]
    for norm, order in (("sum", 1), ("euclidean", 2), ("maximum", np.inf)):
        found = np.linalg.norm(off, ord=order, axis=-1).mean(0).max()
        bound = bounds()["norm"][norm]
        assert 0.3 * bound < found <= bound
    assert bounds()["absolute"] == pytest.approx(bounds()["norm"]["sum"])
    above = (np.abs(off).sum(-1) > bounds()["sum"].threshold).mean(0)
    assert (above <= 0.1 + 5 * np.sqrt(0.1 / 20_000)).all()
