"""Which slot owns which random number: against exact fractions, by both ways of finding it, and down to the smallest masses."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.distributions.selection import BlockTree, gumbel_max, near_share, search, tabulate
from dpjax.numerics.sums import pad
from dpjax.random import Words, gumbel_from_uniform, uniform_from_words

WHOLE = 2**63


def words(numbers):
    numbers = np.asarray(numbers, object)
    return Words(*(jnp.asarray(part.astype(np.uint32)) for part in (numbers >> 32, numbers & (2**32 - 1))))


def numbers(pair):
    return np.asarray(pair.high).astype(object) * 2**32 + np.asarray(pair.low).astype(object)


@jax.jit
def slots_by_table(lower, upper, tails, ticket):
    """Slots numbered from the centre: ("lower", k), ("upper", k), as side * 2^20 + k, and tails as 2^22 + side."""
    size = max(32, 1 << (max(lower.shape[-1], upper.shape[-1]) - 1).bit_length())
    slot = search(tabulate(pad(lower, size), pad(upper, size), tails), lambda: ticket, lambda slot: slot)
    inside = jnp.where(slot < size, slot, slot - size + 2**20)
    return jnp.where(slot >= 2 * size, 2**22 + slot - 2 * size, inside)


@jax.jit
def slots_by_tree(lower, upper, tails, ticket):
    lower, upper = pad(lower, 32), pad(upper, 32)
    tree = BlockTree.build(lower, upper, tails)

    def slots_at(side, block):
        size = max(lower.shape[-1], upper.shape[-1])
        both = jnp.stack([pad(lower, size), pad(upper, size)], axis=-2)
        blocks = both.reshape(*both.shape[:-2], -1, 32)
        index = (side * (size // 32) + block)[..., None]
        return jnp.take_along_axis(blocks, index, axis=-2)

    side, slot, in_tail = tree.walk(ticket, slots_at if max(lower.shape[-1], upper.shape[-1]) > 32 else None)
    return jnp.where(in_tail, 2**22 + side, side * 2**20 + slot)


def random_weights(rng, n, rows=3):
    """Widths of very different size, with ties (but not at the first place), times a decay."""
    widths = rng.exponential(size=(rows, n)) ** 4 * ((rng.random((rows, n)) > 0.3) | (np.arange(n) == 0))
    return jnp.asarray((widths * np.exp(-rng.choice([0.001, 0.1, 1.0], (rows, 1)) * np.arange(n))).astype(np.float32))


def random_tickets(rng, rows=3, draws=200):
    """Uniform ones, and many near both ends and near the middle, where the shares are small."""
    plain = np.vectorize(int, otypes=[object])(rng.integers(0, 2**63, (rows, draws), dtype=np.uint64))
    small = np.vectorize(lambda x, bits: int(x) >> int(bits), otypes=[object])(plain, rng.integers(0, 63, (rows, draws)))
    return words(np.concatenate([plain, small, WHOLE - 1 - small, (WHOLE // 2 + small) % WHOLE], axis=1))


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((1, 1), marks=pytest.mark.slow),
        (5, 40),
        pytest.param((33, 0), marks=pytest.mark.slow),
        pytest.param((100, 1100), marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
@pytest.mark.parametrize("with_tails", [False, True])
def test_the_tree_and_the_table_agree_on_every_number(sizes, with_tails):
    rng = np.random.default_rng(sum(sizes))
    lower, upper = (random_weights(rng, n) for n in sizes)
    tails = jnp.asarray(rng.exponential(size=(3, 2)).astype(np.float32)) if with_tails else None
    ticket = random_tickets(rng)
    by_table, by_tree = slots_by_table(lower, upper, tails, ticket), slots_by_tree(lower, upper, tails, ticket)
    np.testing.assert_array_equal(by_table, by_tree)
    # More padding changes nothing; and no slot of weight 0 is ever chosen.
    longer = [jnp.pad(side, ((0, 0), (0, more))) for side, more in ((lower, 70), (upper, 1500))]
    np.testing.assert_array_equal(slots_by_table(*longer, tails, ticket), by_table)
    np.testing.assert_array_equal(slots_by_tree(*longer, tails, ticket), by_table)
    chosen = [(row, code) for row in range(3) for code in set(np.asarray(by_table)[row].tolist())]
    for row, code in chosen:
        if code < 2**22 and float(lower[row].sum() + upper[row].sum()) > 0:
            side, slot = (lower, upper)[code // 2**20], code % 2**20
            assert side[row, slot] > 0


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_every_slot_owns_its_exact_share(dtype, x64):
    """To a few units of the dtype for each level, and to one number in 2^63 for each; the control is off by 10^-4."""
    rng = np.random.default_rng(1)
    for n in (4, 64, 512):
        lower, upper = (random_weights(rng, n).astype(dtype) for _ in range(2))
        starts = numbers(jax.jit(tabulate)(lower, upper, None))
        shares = np.diff(np.concatenate([starts, np.full((3, 1), WHOLE, object)], axis=1), axis=1)
        weights = np.concatenate([np.asarray(lower), np.asarray(upper)], axis=1).astype(np.float64)
        depth, unit = n.bit_length(), float(np.finfo(dtype).eps)

        def close(share, weight, total, depth=depth, unit=unit):
            exact = WHOLE * Fraction(weight) / total
            return abs(share - exact) <= 4 * depth * Fraction(unit) * exact + depth

        for row in range(3):
            total = sum(map(Fraction, weights[row]))
            assert all(close(*pair, total) for pair in zip(shares[row], weights[row], strict=True))
            assert not all(
                close(share, weight * (1 + 1e-4), total) for share, weight in zip(shares[row], weights[row], strict=True)
            )
            assert all(
                (share == 0) == (weight == 0) for share, weight in zip(shares[row], weights[row], strict=True) if weight == 0
            )


@pytest.mark.slow
def test_numbers_reach_a_slot_of_mass_two_to_the_minus_forty():
    weights = jnp.array([1.0, 2.0**-40] + [1.0] * 30, jnp.float32)[None]
    nothing = jnp.zeros((1, 32))
    # A cumulative sum cannot: the slot has no length in it.
    cumulative = jnp.cumsum(weights[0])
    assert float(cumulative[1]) == float(cumulative[0])
    # Its share of 2^63 / 31 / 2^40 numbers begins where that of slot 0 ends.
    starts = numbers(jax.jit(tabulate)(nothing, weights, None))[0]
    start, length = int(starts[33]), int(starts[34] - starts[33])
    assert abs(length - WHOLE / 31 / 2**40) < 1e-5 * WHOLE / 31 / 2**40
    ticket = words([[start - 1, start, start + length - 1, start + length]])
    for slots in (slots_by_table, slots_by_tree):
        assert (slots(nothing, weights, None, ticket) - 2**20).tolist() == [[0, 1, 1, 2]]
    # Gumbel-max: one large Gumbel, all others ordinary.
    middle, top = (
        gumbel_from_uniform(uniform_from_words(Words(*map(jnp.uint32, pair)), jnp.float32))
        for pair in ((2**31, 0), (2**32 - 1,) * 2)
    )
    gumbels = jnp.full((32,), middle)
    assert int(gumbel_max(jnp.log(weights[0]), gumbels.at[1].set(top))) == 1
    assert int(gumbel_max(jnp.log(weights[0]), gumbels)) != 1


@pytest.mark.slow
def test_low_words_decide_between_starts_with_equal_high_words():
    """A table with a thousand slots inside one high word: the bisection by high words alone would take the last of them."""
    weights = jnp.full((1, 1024), 2.0**-45).at[0, 0].set(1.0)
    nothing = jnp.zeros((1, 1024))
    starts = numbers(jax.jit(tabulate)(nothing, weights, None))[0][1024:]
    assert len(set(starts[2:].astype(object) >> 32)) <= 2
    ticket = words([[int(start) for start in starts] + [int(start) - 1 for start in starts[1:]]])
    expected = list(range(1024)) + list(range(1023))
    assert (slots_by_table(nothing, weights, None, ticket)[0] - 2**20).tolist() == expected
    assert (slots_by_tree(nothing, weights, None, ticket)[0] - 2**20).tolist() == expected


def test_a_share_never_leaves_what_is_dealt():
    size = words([1, 2, 3, 2**32, 2**63, 2**63 - 1])
    for near, far in ((1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (1.0, 1.0), (1.0, 1e-38), (1e-38, 1.0), (3.0, 5.0)):
        first = numbers(near_share(size, jnp.full(6, near), jnp.full(6, far)))
        assert all(0 <= share <= whole for share, whole in zip(first, numbers(size), strict=True))
        if far == 0 and near > 0:
            assert (first == numbers(size)).all()
        if near == 0 and far > 0:
            assert (first == 0).all()


@pytest.mark.slow
def test_selection_works_under_vmap():
    rng = np.random.default_rng(3)
    lower, upper, ticket = random_weights(rng, 70), random_weights(rng, 50), random_tickets(rng)

    def one(lower, upper, ticket):
        lower, upper = pad(lower, 128), pad(upper, 128)
        return search(tabulate(lower, upper, None), lambda: ticket, lambda slot: slot)

    mapped = jax.jit(jax.vmap(one))(lower, upper, ticket)
    np.testing.assert_array_equal(mapped, jax.jit(one)(lower, upper, ticket))
