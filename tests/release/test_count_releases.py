"""Released counts: what is counted, with so little noise that it shows, and the noise against its
distribution.
"""

import numpy as np
import pytest

import dpjax
from dpjax import release
from tests.support import statistics

X = np.array(
    [[0.0, 1.0, 1.5, 2.0, 3.0, 3.0, np.nan, 9.0], [2.0, 2.0, 2.0, -1.0, 3.0, 0.5, 0.5, np.inf]]
)
EDGES = [0.0, 1.0, 2.0, 3.0]


def test_what_is_counted():
    """Each bin has its lower edge and the last one its upper, too; NaN is absent, and infinity a
    number outside of all bins.
    """
    for options, number, bins, equal in (
        ({}, [7, 8], [[1, 2, 3], [2, 0, 4]], [[1, 2], [3, 1]]),
        ({"mask": X < 3}, [4, 6], [[1, 2, 1], [2, 0, 3]], [[1, 0], [3, 0]]),
    ):
        quiet = {"epsilon": 64.0, **options}  # noise of probability e^-64
        assert release.count(X, **quiet).values[0].tolist() == number
        found = release.histogram(X, edges=EDGES, **quiet)
        assert found.values[0].tolist() == bins
        assert release.histogram(X, candidates=[2.0, 3.0], **quiet).values[0].tolist() == equal
        assert str(found.guarantee) == "64-DP and 128-bounded-range under add_remove neighbors"
    assert release.histogram([3, 10**30, -7, 4], edges=[0, 4], epsilon=64).values.tolist() == [[2]]
    assert release.count([3, 10**400, None], epsilon=64).values.tolist() == [2]
    # What is simulated counts the same
    assert dpjax.histogram(X, edges=EDGES).value.tolist() == [[1, 2, 3], [2, 0, 4]]


def test_draws_follow_the_discrete_laplace_distribution():
    found = release.histogram(X[0], edges=EDGES, epsilon=0.5, draws=3000)
    assert found.guarantee.epsilon == 1500
    numbers, true = np.arange(-15, 20), [1, 2, 3]
    for bins, epsilon, follow in (
        (0, 0.5, statistics.assert_counts_follow),
        (2, 0.65, statistics.assert_counts_rejected),
    ):
        p = np.tanh(epsilon / 2) * np.exp(-epsilon * np.abs(numbers - true[bins]))
        seen = [np.sum(found.multiples[:, bins] == number) for number in numbers]
        follow([*seen, 3000 - sum(seen)], [*p, 1 - p.sum()])


def test_a_swap_moves_a_record_between_two_bins():
    with pytest.raises(ValueError, match="add_remove"):
        release.exact_distribution(release.Count(), X[0], epsilon=1.0, neighbors="swap")
