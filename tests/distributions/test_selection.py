"""Races, and selection in fixed point against fractions and Python integers, by counting and by
table, down to the least masses.
"""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.distributions.fixed_point_choice import Table, choose, gumbel_max, integer_sums, race
from dpjax.random import Words, exponential_from_uniform, gumbel_from_uniform, uniform_from_words

ROWS = 3


def words(numbers):
    numbers = np.asarray(numbers, object)
    return Words(
        *(jnp.asarray(part.astype(np.uint32)) for part in (numbers >> 32, numbers & (2**32 - 1)))
    )


def numbers(pair):
    return np.asarray(pair.high).astype(object) * 2**32 + np.asarray(pair.low).astype(object)


def random_weights(rng, n, rows=ROWS):
    """Widths of very different size, with ties (but not at the first place), times a decay to both
    ends.
    """
    widths = rng.exponential(size=(rows, n)) ** 4
    widths *= (rng.random((rows, n)) > 0.3) | (np.arange(n) == 0)
    decay = rng.choice([0.001, 0.1, 1.0], (rows, 1))
    return np.float32(widths * np.exp(-decay * np.abs(np.arange(n) - n // 3)))


def random_bits(rng, rows=ROWS, draws=200):
    """Uniform ones, and many near both ends and near the middle."""
    plain = rng.integers(0, 2**64, (rows, draws), dtype=np.uint64).astype(object)
    small = plain >> rng.integers(0, 64, (rows, draws)).astype(object)
    return np.concatenate([plain, small, 2**64 - 1 - small, (2**63 + small) % 2**64], axis=1)


def oracle(ends, bits):
    """Count, in Python's integers, the sums that a draw has passed."""
    return [
        [sum(end <= (u * int(row[-1]) >> 64) for end in row) for u in own]
        for row, own in zip(ends.tolist(), bits.tolist(), strict=True)
    ]


by_count = jax.jit(lambda weights, words: choose(weights[..., None, :], words))
by_table = jax.jit(lambda weights, words: Table.of(weights).choose(lambda: words))
WAYS = (by_count, by_table)
sums = jax.jit(integer_sums, static_argnums=1)


@pytest.mark.parametrize(
    "n", [33, pytest.param(1, marks=pytest.mark.slow), pytest.param(1300, marks=pytest.mark.slow)]
)
def test_counting_table_and_integers_of_python_agree_on_every_draw(n):
    rng = np.random.default_rng(n)
    weights, bits = random_weights(rng, n), random_bits(rng)
    expected = oracle(numbers(sums(weights)), bits)
    for way in WAYS:
        found = np.asarray(way(weights, words(bits)))
        np.testing.assert_array_equal(found, expected)
        # No slot of weight 0 is ever chosen; and more of them, at either end, change nothing.
        assert (np.take_along_axis(weights, found, axis=-1) > 0).all()
        longer = np.pad(weights, ((0, 0), (70, 130)))
        np.testing.assert_array_equal(np.asarray(way(longer, words(bits))) - 70, expected)


def test_two_halves_are_searched_apart_and_ties_at_the_center_and_padding_change_nothing():
    """Sums close to a power of two: to what they are scaled depends on the last bit of a sum, and
    that on the order of the adds.
    """
    rng = np.random.default_rng(4)
    rows, n, center = 400, 70, 30
    weights, bits = random_weights(rng, n, rows), random_bits(rng, rows, 20)
    weights[::2, :3] = weights[::2, center : center + 9] = 0  # ties where either half starts
    weights = weights / weights.sum(axis=-1, keepdims=True)
    table = jax.jit(lambda w, bits: Table.of(w, center).choose(lambda: bits))
    ends = numbers(sums(weights, center))
    np.testing.assert_array_equal(table(weights, words(bits)), oracle(ends, bits))
    lower, upper = np.split(weights, [center], axis=1)
    parts = [np.pad(part, ((0, 0), (0, more))) for part, more in ((lower, 13), (upper, 50))]
    kept = np.r_[:center, center + 13 : n + 13]
    padded = numbers(sums(np.concatenate(parts, axis=1), center + 13))
    np.testing.assert_array_equal(padded[:, kept], ends)
    # The control adds in another order.
    assert (numbers(sums(np.pad(weights, ((0, 0), (1, 0))), 0))[:, 1:] != ends).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_slot_has_its_exact_share(dtype, x64):
    """To one unit in 2^61 of the total, which is off by a few units of the dtype; the control is
    off by 10^-4.
    """
    weights = random_weights(np.random.default_rng(1), 33).astype(dtype)
    shares = np.diff(numbers(sums(weights)), axis=1, prepend=0)
    for own, exact in zip(shares.tolist(), weights.astype(float).tolist(), strict=True):
        whole, total = sum(own), sum(map(Fraction, exact))
        assert 2**61 - 100 <= whole < 2**62 + 100

        def close(share, weight, whole=whole, total=total):
            return abs(share - whole * Fraction(weight) / total) <= 1 + Fraction(40 * share, 2**61)

        assert all(map(close, own, exact))
        assert not all(map(close, own, [weight * (1 + 1e-4) for weight in exact]))


def test_a_slot_of_mass_two_to_the_minus_forty_is_reached():
    weights = np.float32([1.0, 2.0**-40] + [1.0] * 31)[None]
    # A cumulative sum cannot: the slot has no length in it.
    cumulative = np.cumsum(weights[0])
    assert cumulative[1] == cumulative[0]
    ends = numbers(sums(weights))[0]
    start, end, total = int(ends[0]), int(ends[1]), int(ends[-1])
    assert abs((end - start) / total - 2.0**-40 / 32) < 1e-5 * 2.0**-40 / 32
    # The least bits that lead to a number: ceil(number 2^64 / total).
    bits = [[-(-number * 2**64 // total) for number in (start - 1, start, end - 1, end)]]
    for way in WAYS:
        assert way(weights, words(bits)).tolist() == [[0, 1, 1, 2]]


def test_one_early_clock_or_large_gumbel_wins_a_slot_of_mass_two_to_the_minus_forty():
    """At 2^-45 or below, and at 2^32, all others ordinary."""
    weights = np.float32([1.0, 2.0**-40] + [1.0] * 31)
    high = jnp.uint32([2**31, 2**32 - 1, 2**32 - 1])
    low = jnp.uint32([0, 2**32 - 1, 2**32 - 2**12])

    @jax.jit
    def known(high, low):
        uniform = uniform_from_words(Words(high, low), jnp.float32)
        middle, top, _ = gumbel_from_uniform(uniform)
        early = exponential_from_uniform(uniform)[2]
        gumbels, clocks = jnp.full(33, middle), jnp.full(33, 0.7)
        found = [
            won
            for all_others, special in ((gumbels, top), (clocks, early))
            for won in (all_others.at[1].set(special), all_others)
        ]
        logs = jnp.log(weights)
        choices = [gumbel_max(logs, found[0]), gumbel_max(logs, found[1])]
        return early, [*choices, race(weights, found[2]), race(weights, found[3])]

    early, choices = known(high, low)
    assert 0 < float(early) < 2.0**-45
    assert [int(choice) == 1 for choice in choices] == [True, False, True, False]


def test_a_race_is_won_in_proportion_to_the_weights_and_never_by_a_slot_without_any():
    """Two slots: the first wins where its clock times the other's weight is less, whatever the size
    of the weights.
    """
    weights, clocks, wanted = [], [], []
    for a, b in ((3.0, 1.0), (2.0**-40, 1.0), (2.0**-60, 2.0**59)):
        ratios = [(a / b * factor, 1.0) for factor in (0.999, 1.001)]
        for first, second in ((0.3, 0.7), (2.0**-60, 0.5), *ratios):
            weights.append([0.0, a, 0.0, b])
            clocks.append([2.0**-65, first, 0.1, second])
            wanted.append(1 if first * b < second * a else 3)
    assert jax.jit(race)(np.float32(weights), np.float32(clocks)).tolist() == wanted


def test_low_words_decide_between_sums_with_equal_high_words():
    """A table with a thousand slots inside one high word: a search by high words alone would take
    the last of them.
    """
    weights = np.full((1, 1025), 2.0**-45, np.float32)
    weights[0, 0] = 1.0
    ends = numbers(sums(weights))[0]
    assert len(set(ends[1:] >> 32)) <= 2
    bits = [[-(-int(end) * 2**64 // int(ends[-1])) for end in ends[:-1]]]
    for way in WAYS:
        assert way(weights, words(bits)).tolist() == [list(range(1, 1025))]
