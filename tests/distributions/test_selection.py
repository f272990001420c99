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
    widths = rng.exponential(size=(rows, n)) ** 4 * (
        (rng.random((rows, n)) > 0.3) | (np.arange(n) == 0)
    )
    return jnp.asarray(
        (
            widths
            * np.exp(-rng.choice([0.001, 0.1, 1.0], (rows, 1)) * np.abs(np.arange(n) - n // 3))
        ).astype(np.float32)
    )


def random_bits(rng, rows=ROWS, draws=200):
    """Uniform ones, and many near both ends and near the middle."""
    plain = np.vectorize(int, otypes=[object])(
        rng.integers(0, 2**64, (rows, draws), dtype=np.uint64)
    )
    small = np.vectorize(lambda x, bits: int(x) >> int(bits), otypes=[object])(
        plain, rng.integers(0, 64, (rows, draws))
    )
    return np.concatenate([plain, small, 2**64 - 1 - small, (2**63 + small) % 2**64], axis=1)


def oracle(ends, bits):
    """Count, in Python's integers, the sums that a draw has passed."""
    return [
        [sum(end <= (u * int(row[-1]) >> 64) for end in row) for u in own]
        for row, own in zip(ends.tolist(), bits.tolist(), strict=True)
    ]


by_count = jax.jit(lambda weights, words: choose(weights[..., None, :], words))
by_table = jax.jit(lambda weights, words: Table.of(weights).choose(lambda: words))


@pytest.mark.parametrize(
    "n", [33, pytest.param(1, marks=pytest.mark.slow), pytest.param(1300, marks=pytest.mark.slow)]
)
def test_counting_table_and_integers_of_python_agree_on_every_draw(n):
    rng = np.random.default_rng(n)
    weights, bits = random_weights(rng, n), random_bits(rng)
    expected = oracle(numbers(jax.jit(integer_sums)(weights)), bits)
    counted, looked_up = by_count(weights, words(bits)), by_table(weights, words(bits))
    np.testing.assert_array_equal(counted, expected)
    np.testing.assert_array_equal(looked_up, expected)
    # No slot of weight 0 is ever chosen; and more of them, at either end, change nothing.
    assert (np.take_along_axis(np.asarray(weights), np.asarray(counted), axis=-1) > 0).all()
    longer = jnp.pad(weights, ((0, 0), (70, 130)))
    np.testing.assert_array_equal(np.asarray(by_count(longer, words(bits))) - 70, expected)
    np.testing.assert_array_equal(np.asarray(by_table(longer, words(bits))) - 70, expected)


def test_two_halves_are_searched_apart_and_ties_at_the_center_and_padding_change_nothing():
    """Sums close to a power of two: to what they are scaled depends on the last bit of a sum, and
    that on the order of the adds.
    """
    rng = np.random.default_rng(4)
    rows, n, center = 400, 70, 30
    weights, bits = np.array(random_weights(rng, n, rows)), random_bits(rng, rows, 20)
    weights[::2, :3] = weights[::2, center : center + 9] = 0  # ties where either half starts
    weights = jnp.asarray(weights / weights.sum(axis=-1, keepdims=True))
    sums, table = (
        jax.jit(integer_sums, static_argnums=1),
        jax.jit(lambda w, bits: Table.of(w, center).choose(lambda: bits)),
    )
    ends = numbers(sums(weights, center))
    expected = oracle(ends, bits)
    np.testing.assert_array_equal(table(weights, words(bits)), expected)
    padded = jnp.concatenate(
        [
            jnp.pad(weights[:, :center], ((0, 0), (0, 13))),
            jnp.pad(weights[:, center:], ((0, 0), (0, 50))),
        ],
        1,
    )
    kept = np.r_[:center, center + 13 : n + 13]
    np.testing.assert_array_equal(numbers(sums(padded, center + 13))[:, kept], ends)
    # The control adds in another order.
    assert (numbers(sums(jnp.pad(weights, ((0, 0), (1, 0))), 0))[:, 1:] != ends).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_slot_has_its_exact_share(dtype, x64):
    """To one unit in 2^61 of the total, which is off by a few units of the dtype; the control is
    off by 10^-4.
    """
    rng = np.random.default_rng(1)
    weights = random_weights(rng, 33).astype(dtype)
    ends = numbers(jax.jit(integer_sums)(weights))
    shares = np.diff(np.concatenate([np.zeros((ROWS, 1), object), ends], axis=1), axis=1)
    for own, exact in zip(shares.tolist(), np.asarray(weights, np.float64).tolist(), strict=True):
        whole, total = sum(own), sum(map(Fraction, exact))
        assert 2**61 - 100 <= whole < 2**62 + 100

        def close(share, weight, whole=whole, total=total):
            return abs(share - whole * Fraction(weight) / total) <= 1 + Fraction(40 * share, 2**61)

        assert all(map(close, own, exact))
        assert not all(
            close(share, weight * (1 + 1e-4)) for share, weight in zip(own, exact, strict=True)
        )


@pytest.mark.slow
def test_a_slot_of_mass_two_to_the_minus_forty_is_reached():
    weights = jnp.array([1.0, 2.0**-40] + [1.0] * 31, jnp.float32)[None]
    # A cumulative sum cannot: the slot has no length in it.
    cumulative = jnp.cumsum(weights[0])
    assert float(cumulative[1]) == float(cumulative[0])
    ends = numbers(jax.jit(integer_sums)(weights))[0]
    start, end, total = int(ends[0]), int(ends[1]), int(ends[-1])
    assert abs((end - start) / total - 2.0**-40 / 32) < 1e-5 * 2.0**-40 / 32
    # The least bits that lead to a number: ceil(number 2^64 / total).
    bits = np.array(
        [[-(-number * 2**64 // total) for number in (start - 1, start, end - 1, end)]], object
    )
    for way in (by_count, by_table):
        assert way(weights, words(bits)).tolist() == [[0, 1, 1, 2]]
    # Gumbel-max: one large Gumbel, all others ordinary.
    middle, top = (
        gumbel_from_uniform(uniform_from_words(Words(*map(jnp.uint32, pair)), jnp.float32))
        for pair in ((2**31, 0), (2**32 - 1,) * 2)
    )
    gumbels = jnp.full((33,), middle)
    assert int(gumbel_max(jnp.log(weights[0]), gumbels.at[1].set(top))) == 1
    assert int(gumbel_max(jnp.log(weights[0]), gumbels)) != 1
    # A race: one clock that strikes early, at 2^-45 or below, all others at an ordinary time.
    early = exponential_from_uniform(
        uniform_from_words(Words(*map(jnp.uint32, (2**32 - 1, 2**32 - 2**12))), jnp.float32)
    )
    clocks = jnp.full((33,), 0.7)
    assert 0 < float(early) < 2.0**-45
    assert int(race(weights[0], clocks.at[1].set(early))) == 1
    assert int(race(weights[0], clocks)) != 1


def test_a_race_is_won_in_proportion_to_the_weights_and_never_by_a_slot_without_any():
    """Two slots: the first wins where its clock times the other's weight is less, whatever the size
    of the weights.
    """
    for a, b in ((3.0, 1.0), (2.0**-40, 1.0), (2.0**-60, 2.0**59)):
        for first, second in (
            (0.3, 0.7),
            (2.0**-60, 0.5),
            (a / b * 0.999, 1.0),
            (a / b * 1.001, 1.0),
        ):
            found = race(jnp.float32([0.0, a, 0.0, b]), jnp.float32([2.0**-65, first, 0.1, second]))
            assert int(found) == (1 if first * b < second * a else 3), (a, b, first, second)


@pytest.mark.slow
def test_low_words_decide_between_sums_with_equal_high_words():
    """A table with a thousand slots inside one high word: a search by high words alone would take
    the last of them.
    """
    weights = jnp.full((1, 1025), 2.0**-45).at[0, 0].set(1.0)
    ends = numbers(jax.jit(integer_sums)(weights))[0]
    assert len(set(ends[1:].astype(object) >> 32)) <= 2
    total = int(ends[-1])
    bits = np.array([[-(-int(end) * 2**64 // total) for end in ends[:-1]]], object)
    for way in (by_count, by_table):
        assert way(weights, words(bits)).tolist() == [list(range(1, 1025))]


@pytest.mark.slow
def test_selection_works_under_vmap():
    rng = np.random.default_rng(3)
    weights, bits = random_weights(rng, 70), words(random_bits(rng))
    mapped = jax.jit(jax.vmap(lambda weights, bits: Table.of(weights).choose(lambda: bits)))(
        weights, bits
    )
    np.testing.assert_array_equal(mapped, by_table(weights, bits))
