"""One draw from each of many rows is the draw that the counted distribution makes by the same
words.
"""

from fractions import Fraction

import numpy as np
import pytest

from dpjax import release
from dpjax.release import Counts, rows

CASES = [
    (release.Median(0, 60, 1), "add_remove"),
    (release.Median(0, 60, 1), "swap"),
    (release.Quantile(0.9, 0, 60, 1), "add_remove"),
    (release.Quantile("1/3", 0, 60, 1), "swap"),
    (release.OrderStatistic(3, 0, 60, 1), "add_remove"),
    (release.Maximum(2, 0, 60, 1), "swap"),
    (release.Maximum(9, 0, 60, 1), "add_remove"),
]


def _records(rng, n):
    """40 rows of n: at random, with few different ones, all equal, and all at a bound."""
    x = rng.integers(0, 61, (40, n))
    x[10:20] = x[10:20] // 20 * 20
    x[20:25], x[25:28], x[28:30] = 7, 0, 60
    return x


def _words(rng):
    words = rng.integers(0, 2**64, (2, 40), np.uint64)
    words[:, :3], words[:, 3:6] = 0, 2**64 - 1
    return words


def _further(row, i):
    return 77777 * (i + 1) + row


@pytest.mark.parametrize(
    ("statistic", "neighbors"), CASES, ids=[f"{type(s).__name__} {r}" for s, r in CASES]
)
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(8)], ids=str)
def test_rows_are_the_draws_of_counts_and_of_whole_numbers(statistic, neighbors, epsilon):
    rng = np.random.default_rng(0)
    for n in (0, 1, 2, 5, 40, 400):
        if (
            isinstance(statistic, release.OrderStatistic)
            and neighbors == "swap"
            and n < statistic.k
        ):
            continue
        x, words = _records(rng, n), _words(rng)
        found = rows.positions(
            statistic, x, epsilon, neighbors, lambda shape, words=words: words, _further
        )
        counts = Counts.of_records(*statistic.read(x))
        counted = statistic.distribution(counts, epsilon, neighbors).positions(
            1, lambda shape, words=words: words.reshape(shape), _further
        )[0]
        exact = rows.positions(
            statistic, x, epsilon, neighbors, lambda shape, words=words: words, _further, margin=1.0
        )
        np.testing.assert_array_equal(found, counted)
        np.testing.assert_array_equal(found, exact)


def test_a_height_that_is_off_is_found():
    """The control: with a rate that is a percent off and the margin as it is, draws of words on a
    lattice differ from the exact ones.
    """
    statistic, rng, number = release.Median(0, 60, 1), np.random.default_rng(1), 256
    x = np.broadcast_to(rng.integers(0, 61, 40), (number, 40))
    lattice = np.arange(number, dtype=np.uint64) << np.uint64(56)
    words = np.stack([lattice, rng.integers(0, 2**64, number, np.uint64)])

    def drawn(epsilon, **more):
        return rows.positions(statistic, x, epsilon, "swap", lambda shape: words, _further, **more)

    exact = drawn(Fraction(1), margin=1.0)
    assert np.array_equal(drawn(Fraction(1)), exact)
    assert not np.array_equal(drawn(Fraction(101, 100)), exact)


def test_which_rows_are_drawn_this_way():
    x = np.zeros((3, 4), int)
    full = np.ones((3, 4), bool)
    assert rows.apply_to(release.Median(0, 1, 1), "swap", x, full)
    assert not rows.apply_to(release.Median(0, 1, 1), "swap", x[:1], full[:1])
    assert not rows.apply_to(release.Median(0, 1, 1), "swap", x, np.eye(3, 4, dtype=bool))
    assert not rows.apply_to(release.NonnegativeSum(1, 1, 1), "swap", x, full)
