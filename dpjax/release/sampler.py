"""The draw on the device, in 32-bit integers: a cell, and whether the words of this lane decide it beyond doubt.

Piece i has width w_i and weight w_i e^(-lam l_i), the value itself that of its depth (``distribution.py``); within a piece, cell
j = floor(w H), counted from the inner end, where H has density proportional to e^(-lam x) on [0, 1). Both are truncated here, with
known bounds:

* weights in units that depend on the row: a_i <= true weight < a_i + 2 (one for the table's mantissa, one for the shift). With P
  pieces, A the sum of all a, u the two words of a uniform U, t = floor(u A / 2^64): the true Z U lies in [t, t + 2P + 2), and the
  true cumulative weight up to piece i in [A_i, A_i + 2P). So piece i is right where A_{i-1} + 2P + 2 <= t and t + 2P + 2 <= A_i;
  the first and the last piece with a width need no check on their outer side.
* (at a lower ``precision`` the same, with what the missing bits can be worth added to the doubt)
* the binary digits of H are independent, since e^(-lam x) is a product over them: digit k is 1 where its uniform is below
  1/(1 + e^(lam 2^-k)). A word decides it unless it equals the threshold's first 32 bits.
* after 24 digits the rest X in [0, 1) has the cdf (1 - e^(-mu x)) / (1 - e^-mu), mu = lam 2^-24, which exceeds x by at most mu/8.
  So X is within [V - mu/8, V] of its uniform V, and j is right where both ends have the same floor.

A lane that is not decided is flagged; the host then reads more of the same uniforms (see ``exact.py``). No table is ever clipped: a
level that is too far out to have any weight here only leaves a doubt.

Rows go 256 at a time, so that what is computed between two passes over them stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics.batching import broadcast_rows, by_chunks, concatenate
from dpjax.numerics.bisection import count_leading
from dpjax.numerics.two_words import Words, add, at_most, bit_length, select, shift_right, subtract, times_word, upper_product
from dpjax.release.distribution import depths_of, pieces_of
from dpjax.release.tables import DIGITS, Tables, Weights

CHOICE_WORDS = 2  # of a lane: the piece
WORDS = CHOICE_WORDS + DIGITS + 1  # and the digits, and the rest
_ROWS = 256  # at a time
_BLOCK = 64
_MANY = 16  # draws of a row, from where on a table pays
_LIMB = 26


class Draw(NamedTuple):
    """Cells and whether they are certain.

    Attributes:
        cell: int32 of JAX or int64 of NumPy, ``(...)``; meaningless where it is not certified.
        certified: bool ``(...)``.
    """

    cell: Any
    certified: Any


class Sums(NamedTuple):
    """The weights of the pieces of every row, in units of the row, and their sums.

    Attributes:
        pieces: how many, P.
        weight: two uint32 ``(rows, blocks, 64)``.
        before: two uint32 ``(rows, blocks)``, the sum of all blocks before.
        total: two uint32 ``(rows,)``.
        first: int32 ``(rows,)``, the first piece with a width.
        last: int32 ``(rows,)``, the last one.
    """

    pieces: int
    weight: Words
    before: Words
    total: Words
    first: jax.Array
    last: jax.Array


@partial(jax.jit, static_argnames=("precision",))
def certified_draw(tables: Tables, lower: jax.Array, upper: jax.Array, words: jax.Array, *, precision: int = 32) -> Draw:
    """Draw one number for each lane.

    Args:
        tables: of :func:`dpjax.release.tables.public_tables`, for at least as many levels as either side has pieces.
        lower: int32 ``(..., D+1)``, the integer values that the statistic can reach downwards after 0, 1, ..., D changes.
        upper: int32 ``(..., U+1)``, upwards; ``upper[..., 0] == lower[..., 0]``.
        words: uint32 ``(27, ...)`` or ``(27, draws, ...)``: independent fair bits, for every lane of its own.
        precision: how many leading bits of every word and weight there are, 4 to 32; the others are 0. Fewer than 32 leave more
            lanes in doubt, and none wrong: that is how tests see that the certification works.

    Returns:
        A :class:`Draw` of the shape of one word.
    """
    return _by_rows(partial(_draw, tables, precision), (lower, upper), words)


@jax.jit
def certified_choice(weights: Weights, costs: jax.Array, words: jax.Array) -> Draw:
    """Choose one candidate for each lane, whose index is the cell, with probability proportional to e^(-lam cost).

    Costs are int32 ``(..., k)``, words uint32 ``(2, ...)`` or ``(2, draws, ...)``, and weights those of
    :func:`dpjax.release.tables.level_weights` for every cost that any dataset can have. A cost beyond them leaves its row in doubt.
    """
    return _by_rows(partial(_choice, weights), (costs,), words)


def _by_rows(draw: Callable[..., Draw], sides: Sequence[jax.Array], words: jax.Array) -> Draw:
    """Draw from ``sides``, each ``(rows, k)``, and words ``(words, draws, rows)``, some rows at a time."""
    shape, batch = words.shape[1:], jnp.broadcast_shapes(*(side.shape[:-1] for side in sides))
    rows = prod(batch)
    sides = [broadcast_rows(jnp.asarray(side), batch).reshape(rows, side.shape[-1]) for side in sides]
    words = words.reshape(words.shape[0], prod(shape[: len(shape) - len(batch)]), rows)
    size = -(-rows // max(1, -(-rows // _ROWS)))

    def some(start: jax.Array) -> list[jax.Array]:
        own = [jax.lax.dynamic_slice_in_dim(side, start, size) for side in sides]
        return [part.T for part in draw(*own, jax.lax.dynamic_slice_in_dim(words, start, size, axis=2))]

    return Draw(*(part.T.reshape(shape) for part in by_chunks(some, rows, size)))


def _draw(tables: Tables, precision: int, lower: jax.Array, upper: jax.Array, words: jax.Array) -> Draw:
    if not 4 <= precision <= 32:
        raise ValueError(f"precision must be from 4 to 32, got {precision}.")
    pieces, depth = pieces_of(lower, upper, jnp), depths_of(lower, upper, jnp)
    up, down = upper.shape[-1] - 1, lower.shape[-1] - 1
    high, low, scale = (
        concatenate(jnp.concatenate([level[:up], level[:down]]), own[depth - 1][:, None])
        for level, own in zip(map(jnp.asarray, tables.levels), map(jnp.asarray, tables.own), strict=True)
    )
    widths = pieces.width.astype(jnp.uint32)
    index, certain = choose(weigh(widths, Words(high, low), scale), Words(words[0], words[1]), precision)
    row = jnp.arange(lower.shape[0], dtype=jnp.int32)
    width, inner = (array.at[row, index].get(mode="promise_in_bounds") for array in (widths, pieces.inner))
    thresholds = jnp.asarray(tables.thresholds)

    def digit(k: jax.Array, found: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        ones, ties = found
        word, threshold = words[CHOICE_WORDS + k], thresholds[k]
        return (ones << jnp.uint32(1)) | (word < threshold).astype(jnp.uint32), ties | (word == threshold)

    start = jnp.zeros(index.shape, jnp.uint32), jnp.zeros(index.shape, jnp.bool_)
    digits, ties = jax.lax.fori_loop(np.int32(0), np.int32(DIGITS), digit, start)
    step, sure = _within(width, digits, words[CHOICE_WORDS + DIGITS], jnp.asarray(tables.slack), 2 ** (32 - precision))
    step = step.astype(jnp.int32)
    below = (index >= up) & (index < up + down)
    return Draw(jnp.where(below, inner - step, inner + step), certain & ~ties & sure)


def _choice(weights: Weights, costs: jax.Array, words: jax.Array) -> Draw:
    high, low, scale = (jnp.asarray(table) for table in weights)
    covered = jnp.all((costs >= 0) & (costs < scale.size), axis=-1)
    level = jnp.clip(costs, 0, scale.size - 1)
    sums = weigh(jnp.ones(costs.shape, jnp.uint32), Words(high[level], low[level]), scale[level])
    index, certain = choose(sums, Words(words[0], words[1]))
    return Draw(index, certain & covered)


def weigh(width: jax.Array, mantissa: Words, scale: jax.Array) -> Sums:
    """Return the weights width * mantissa * 2^-scale in units of the row, rounded down, with their sums.

    Widths are uint32 ``(rows, P)``, below 2^31, at least one of a row being positive; mantissas of 62 bits broadcast against them.
    """
    rows, count = width.shape
    present = width > 0
    # The largest weight has ``bits`` bits, so that all of them together fit into 62.
    bits = min(2 * _LIMB, 62 - (count - 1).bit_length())
    largest = jnp.max(jnp.where(present, bit_length(width) - scale, np.int32(-(2**30))), axis=-1, keepdims=True) + np.int32(62)
    distance = jnp.clip(scale + largest - np.int32(bits), 0, 96).astype(jnp.uint32)
    weight = shift_right(*times_word(mantissa, width), distance)
    weight = jax.lax.optimization_barrier(Words(*(jnp.where(present, word, jnp.uint32(0)) for word in weight)))
    blocks = -(-count // _BLOCK)
    padding = [(0, 0), (0, blocks * _BLOCK - count)]
    weight = Words(*(jnp.pad(word, padding).reshape(rows, blocks, _BLOCK) for word in weight))
    # Limbs of 26 bits: 64 of them fit into a word.
    limb = jnp.uint32((1 << _LIMB) - 1)
    low = jnp.sum(weight.low & limb, axis=-1, dtype=jnp.uint32)
    high = jnp.sum((weight.high << jnp.uint32(32 - _LIMB)) | (weight.low >> jnp.uint32(_LIMB)), axis=-1, dtype=jnp.uint32)
    of_blocks = add(Words(high >> jnp.uint32(32 - _LIMB), high << jnp.uint32(_LIMB)), Words(jnp.zeros_like(low), low))
    ends = _running_sums(of_blocks)
    number = jnp.arange(count, dtype=jnp.int32)
    return Sums(
        count,
        weight,
        subtract(ends, of_blocks),
        Words(*(word[:, -1] for word in ends)),
        jnp.min(jnp.where(present, number, np.int32(count)), axis=-1),
        jnp.max(jnp.where(present, number, np.int32(-1)), axis=-1),
    )


def choose(sums: Sums, uniform: Words, precision: int = 32) -> tuple[jax.Array, jax.Array]:
    """The piece of every lane, int32, and whether it is certain; uniforms are ``(draws, rows)``."""
    shape, count = uniform.high.shape, sums.pieces
    total = Words(*(jnp.broadcast_to(word, shape) for word in sums.total))
    target = upper_product(uniform, total)
    # Few draws of a row read one block of it; many read a table of all sums.
    find = _by_table if shape[0] >= _MANY else _by_block
    index, left, right = find(sums, target)
    index = jnp.minimum(index, np.int32(count - 1))
    none = jnp.zeros(shape, jnp.uint32)
    doubt = Words(none, jnp.full(shape, 2 * count + 2, jnp.uint32))
    more = doubt
    if precision < 32:
        # The mantissas miss a part of 2^(1 - precision), the uniform one of 2^-precision.
        slack = add(add(total, doubt), Words(none, jnp.full(shape, 2**precision, jnp.uint32)))
        doubt = add(doubt, shift_right(none, slack, jnp.full(shape, precision - 1, jnp.uint32)))
        more = add(doubt, shift_right(none, slack, jnp.full(shape, precision, jnp.uint32)))
    above = (index == sums.first) | at_most(add(left, doubt), target)
    below = (index == sums.last) | at_most(add(target, more), right)
    return index, above & below


def _by_block(sums: Sums, target: Words) -> tuple[jax.Array, Words, Words]:
    """The piece, and the sums before and with it: first the block, then the 64 pieces in it."""
    # The block is the last that starts at or below the target.
    block = _count(sums.before, target) - 1
    start = _at(sums.before, block)
    ends = add(_running_sums(_at(sums.weight, block)), Words(*(word[..., None] for word in start)))
    # Weights are not negative: those that are passed come first.
    passed = jnp.sum(at_most(ends, Words(*(word[..., None] for word in target))), axis=-1, dtype=jnp.int32)
    inside = jnp.minimum(passed, np.int32(_BLOCK - 1))

    def end_of(number: jax.Array) -> Words:
        return Words(*(jnp.take_along_axis(word, number[..., None], axis=-1)[..., 0] for word in ends))

    left = select(inside == 0, start, end_of(jnp.maximum(inside - 1, 0)))
    return block * np.int32(_BLOCK) + inside, left, end_of(inside)


def _by_table(sums: Sums, target: Words) -> tuple[jax.Array, Words, Words]:
    """The same from the sums up to every piece, which all draws of a row share."""
    ends = add(_running_sums(sums.weight), Words(*(word[..., None] for word in sums.before)))
    ends = jax.lax.optimization_barrier(Words(*(word.reshape(word.shape[0], -1) for word in ends)))
    index = jnp.minimum(_count(ends, target), np.int32(ends.low.shape[-1] - 1))
    none = jnp.zeros_like(target.high)
    return index, select(index == 0, Words(none, none), _at(ends, jnp.maximum(index - 1, 0))), _at(ends, index)


def _at(sums: Words, place: jax.Array) -> Words:
    """Entries ``(draws, rows, ...)`` of the second axis of ``(rows, k, ...)``."""
    row = jnp.arange(place.shape[-1], dtype=jnp.int32)
    return Words(*(word.at[row, place].get(mode="promise_in_bounds") for word in sums))


def _count(sums: Words, target: Words) -> jax.Array:
    """How many of the nondecreasing numbers of the row, ``(rows, k)``, are at or below the target."""
    return count_leading(lambda place: at_most(_at(sums, place), target), sums.low.shape[-1], target.low.shape)


def _running_sums(numbers: Words) -> Words:
    """The sum of each number and all before it on the last axis, in a loop: a scan by doubling compiles twice as long."""

    def step(before: Words, number: Words) -> tuple[Words, Words]:
        end = add(before, number)
        return end, end

    none = jnp.zeros(numbers.low.shape[:-1], jnp.uint32)
    ends = jax.lax.scan(step, Words(none, none), Words(*(jnp.moveaxis(word, -1, 0) for word in numbers)))[1]
    return Words(*(jnp.moveaxis(word, 0, -1) for word in ends))


def _within(width: jax.Array, digits: jax.Array, rest: jax.Array, slack: jax.Array, unit: int) -> tuple[jax.Array, jax.Array]:
    """floor(width * H) and whether it is certain, where 2^56 H lies between 2^32 digits + rest - slack and ... + rest + unit."""
    fraction = Words(digits, rest)  # 56 bits
    none = jnp.zeros_like(rest)
    back = Words(none, jnp.broadcast_to(slack, rest.shape))
    least = select(at_most(back, fraction), subtract(fraction, back), Words(none, none))
    most = add(fraction, Words(none, jnp.full_like(rest, unit)))

    def floored(top: jax.Array, low: Words) -> jax.Array:  # by 2^56
        return (top << jnp.uint32(8)) | (low.high >> jnp.uint32(24))

    low_end = floored(*times_word(least, width))
    top, low = times_word(most, width)  # the end itself is never reached
    borrow = (low.high == 0) & (low.low == 0)
    high_end = floored(top - borrow.astype(jnp.uint32), subtract(low, Words(none, jnp.ones_like(rest))))
    return low_end, low_end == high_end
