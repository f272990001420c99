"""The draw on the device, in 32-bit integers: a cell, and whether the words of this lane decide it beyond doubt.

Piece i has width w_i and weight w_i e^(-lam l_i); within it, cell j = floor(w H), counted from the inner end, where H has density
proportional to e^(-lam x) on [0, 1). Both are truncated here, with known bounds:

* weights in units that depend on the row: a_i <= true weight < a_i + 2 (one for the table's mantissa, one for the shift). With P
  pieces, A the sum of all a, u the two words of a uniform U, t = floor(u A / 2^64): the true Z U lies in [t, t + 2P + 2), and the
  true cumulative weight up to piece i in [A_i, A_i + 2P). So piece i is right where A_{i-1} + 2P + 2 <= t and t + 2P + 2 <= A_i;
  the first and the last piece with a width need no check on their outer side.
* (at a lower ``precision`` the same, with what the cut bits can be worth added to the doubt)
* the binary digits of H are independent, since e^(-lam x) is a product over them: digit k is 1 where its uniform is below
  1/(1 + e^(lam 2^-k)). A word decides it unless it equals the threshold's first 32 bits.
* after 24 digits the rest X in [0, 1) has the cdf (1 - e^(-mu x)) / (1 - e^-mu), mu = lam 2^-24, which exceeds x by at most mu/8.
  So X is within [V - mu/8, V] of its uniform V, and j is right where both ends have the same floor.

A lane that is not decided is flagged; the host then reads more of the same uniforms (see ``exact.py``). No table is ever clipped: a
level that is too far out to have any weight here only leaves a doubt.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics.batching import align
from dpjax.numerics.two_words import Words, add, at_most, bit_length, select, shift_right, subtract, times_word, upper_product
from dpjax.release.tables import DIGITS, Law, Tables

WORDS = 2 + DIGITS + 1  # of a lane: the piece, the digits, the rest
_BLOCK = 64
_MANY = 16  # draws of a row, from where on a table pays
_LIMB = 26


class Draw(NamedTuple):
    """Cells and whether they are certain.

    Attributes:
        cell: int32 ``(...)``; meaningless where it is not certified.
        certified: bool ``(...)``.
    """

    cell: jax.Array
    certified: jax.Array


class Sums(NamedTuple):
    """The weights of the pieces of every row, in units of the row, and their sums.

    Attributes:
        pieces: how many, P.
        weight: two uint32 ``(..., blocks, 64)``.
        before: two uint32 ``(..., blocks)``, the sum of all blocks before.
        total: two uint32 ``(...)``.
        first: int32 ``(...)``, the first piece with a width.
        last: int32 ``(...)``, the last one.
    """

    pieces: int
    weight: Words
    before: Words
    total: Words
    first: jax.Array
    last: jax.Array


@partial(jax.jit, static_argnames=("law", "precision"))
def certified_draw(tables: Tables, lower: jax.Array, upper: jax.Array, words: jax.Array, *, law: Law, precision: int = 32) -> Draw:
    """Draw one cell for each lane.

    Args:
        tables: of :func:`dpjax.release.public_tables`, for at least as many levels as either side has pieces.
        lower: int32 ``(..., D+1)``, the integer values that the statistic can reach downwards after 0, 1, ..., D changes.
        upper: int32 ``(..., U+1)``, upwards; ``upper[..., 0] == lower[..., 0]``.
        words: uint32 ``(27, ...)`` or ``(27, draws, ...)``: independent fair bits, for every lane of its own.
        law: ``"cell"``, the cell that holds the continuous draw; ``"owned_cell"``, where a value v owns the cell [v, v+1).
        precision: how many leading bits of the words and of the weights are used, 4 to 32. Fewer than 32 leave more lanes in
            doubt, and none wrong: that is how tests see that the certification works.

    Returns:
        A :class:`Draw` of the shape of one word.
    """
    if not 4 <= precision <= 32:
        raise ValueError(f"precision must be from 4 to 32, got {precision}.")
    mask = jnp.uint32(2**32 - 2 ** (32 - precision))
    if precision < 32:
        tables = tables._replace(high=tables.high & (mask >> np.uint32(2)), low=tables.low & 0, own=_masked(tables.own, mask))
    widths, inners, downwards, sums = _pieces(tables, lower, upper, law)
    uniform = Words(words[0] & mask, words[1] if precision == 32 else jnp.zeros_like(words[1]))
    index, certain = choose(sums, uniform, precision)
    shape = words.shape[1:]
    width, inner = (_read(array, index) for array in (widths, inners))
    ones, ties = jnp.zeros(shape, jnp.uint32), jnp.zeros(shape, jnp.bool_)

    def digit(k: jax.Array, found: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        ones, ties = found
        word, threshold = words[2 + k] & mask, jnp.asarray(tables.thresholds)[k] & mask
        return (ones << jnp.uint32(1)) | (word < threshold).astype(jnp.uint32), ties | (word == threshold)

    ones, ties = jax.lax.fori_loop(np.int32(0), np.int32(DIGITS), digit, (ones, ties))
    step, sure = _within(width, ones, words[2 + DIGITS] & mask, jnp.asarray(tables.slack), 2 ** (32 - precision))
    below = jnp.asarray(downwards)[index]
    cell = jnp.where(below, inner - 1 - step.astype(jnp.int32), inner + step.astype(jnp.int32))
    return Draw(cell, certain & ~ties & sure)


def _masked(value: Any, mask: jax.Array) -> Any:
    own = jnp.asarray(value)
    return jnp.stack([own[0] & (mask >> np.uint32(2)), jnp.zeros_like(own[1]), own[2]])


def _pieces(tables: Tables, lower: jax.Array, upper: jax.Array, law: Law) -> tuple[jax.Array, jax.Array, np.ndarray, Sums]:
    """Widths and inner ends ``(..., P)``, which pieces go downwards ``(P,)``, and the sums.

    In the order upwards, downwards, the own cell, which is public and has no meaning.
    """
    batch = jnp.broadcast_shapes(lower.shape[:-1], upper.shape[:-1])
    lower, upper = (jnp.broadcast_to(align(side, len(batch) + 1), (*batch, side.shape[-1])) for side in (lower, upper))
    up, down, own = upper.shape[-1] - 1, lower.shape[-1] - 1, int(law == "owned_cell")
    widths, inners = [jnp.diff(upper), -jnp.diff(lower)], [upper[..., :-1] + own, lower[..., :-1]]
    high, low, scale = (jnp.concatenate([jnp.asarray(table)[:up], jnp.asarray(table)[:down]]) for table in tables[:3])
    if own:
        widths.append(jnp.ones((*batch, 1), jnp.int32))
        inners.append(upper[..., :1])
        value = jnp.asarray(tables.own)
        high, low = jnp.concatenate([high, value[:1]]), jnp.concatenate([low, value[1:2]])
        scale = jnp.concatenate([scale, value[2:].astype(jnp.int32)])
    width, inner = jnp.concatenate(widths, -1).astype(jnp.uint32), jnp.concatenate(inners, -1)
    mantissa = Words(align(high, len(batch) + 1), align(low, len(batch) + 1))
    sums = weigh(width, mantissa, align(scale, len(batch) + 1))
    return width, inner, np.repeat([False, True, False], [up, down, own]), sums


def weigh(width: jax.Array, mantissa: Words, scale: jax.Array) -> Sums:
    """Return the weights width * mantissa * 2^-scale in units of the row, rounded down, with their sums.

    Args:
        width: uint32 ``(..., P)``, below 2^31; at least one of a row is positive.
        mantissa: of 62 bits, broadcasts against the widths.
        scale: int32, likewise.
    """
    batch, count = width.shape[:-1], width.shape[-1]
    there = width > 0
    # The largest weight has ``bits`` bits, so that all of them together fit into 62.
    bits = min(2 * _LIMB, 62 - (count - 1).bit_length())
    largest = jnp.max(jnp.where(there, bit_length(width) - scale, np.int32(-(2**30))), axis=-1, keepdims=True) + np.int32(62)
    distance = jnp.clip(scale + largest - np.int32(bits), 0, 96).astype(jnp.uint32)
    weight = shift_right(*times_word(mantissa, width), distance)
    weight = jax.lax.optimization_barrier(Words(*(jnp.where(there, word, jnp.uint32(0)) for word in weight)))
    blocks = -(-count // _BLOCK)
    padding = [(0, 0)] * len(batch) + [(0, blocks * _BLOCK - count)]
    weight = Words(*(jnp.pad(word, padding).reshape(*batch, blocks, _BLOCK) for word in weight))
    # Limbs of 26 bits: 64 of them fit into a word.
    limb = jnp.uint32((1 << _LIMB) - 1)
    low = jnp.sum(weight.low & limb, axis=-1, dtype=jnp.uint32)
    high = jnp.sum((weight.high << jnp.uint32(32 - _LIMB)) | (weight.low >> jnp.uint32(_LIMB)), axis=-1, dtype=jnp.uint32)
    of_blocks = add(Words(high >> jnp.uint32(32 - _LIMB), high << jnp.uint32(_LIMB)), Words(jnp.zeros_like(low), low))

    def running(before: Words, block: Words) -> tuple[Words, Words]:
        return add(before, block), before

    zero = jnp.zeros(batch, jnp.uint32)
    total, before = jax.lax.scan(running, Words(zero, zero), Words(*(jnp.moveaxis(word, -1, 0) for word in of_blocks)))
    number = jnp.arange(count, dtype=jnp.int32).reshape((1,) * len(batch) + (-1,))
    return Sums(
        count,
        weight,
        Words(*(jnp.moveaxis(word, 0, -1) for word in before)),
        total,
        jnp.min(jnp.where(there, number, np.int32(count)), axis=-1),
        jnp.max(jnp.where(there, number, np.int32(-1)), axis=-1),
    )


def choose(sums: Sums, uniform: Words, precision: int = 32) -> tuple[jax.Array, jax.Array]:
    """The piece of every lane, int32, and whether it is certain."""
    shape = uniform.high.shape
    count, rows = sums.pieces, sums.first.size
    total = Words(*(jnp.broadcast_to(align(word, len(shape)), shape) for word in sums.total))
    target = upper_product(uniform, total)
    row = jnp.broadcast_to(jnp.arange(rows, dtype=jnp.int32).reshape(sums.first.shape), shape)  # of the flattened batch
    # Few draws of a row read one block of it; many read a table of all sums.
    find = _by_table if uniform.high.size >= _MANY * rows else _by_block
    index, left, right = find(sums, row, target)
    index = jnp.minimum(index, np.int32(count - 1))
    none = jnp.zeros(shape, jnp.uint32)
    doubt = Words(none, jnp.full(shape, 2 * count + 2, jnp.uint32))
    more = doubt
    if precision < 32:
        # The mantissas miss a part of 2^(1 - precision), the uniform one of 2^-precision.
        slack = add(add(total, doubt), Words(none, jnp.full(shape, 2**precision, jnp.uint32)))
        doubt = add(doubt, shift_right(none, slack, jnp.full(shape, precision - 1, jnp.uint32)))
        more = add(doubt, shift_right(none, slack, jnp.full(shape, precision, jnp.uint32)))
    first, last = (jnp.broadcast_to(align(end, len(shape)), shape) for end in (sums.first, sums.last))
    above = (index == first) | at_most(add(left, doubt), target)
    below = (index == last) | at_most(add(target, more), right)
    return index, above & below


def _by_block(sums: Sums, row: jax.Array, target: Words) -> tuple[jax.Array, Words, Words]:
    """The piece, and the sums before and with it: first the block, then the 64 pieces in it."""
    shape, blocks = row.shape, sums.before.high.shape[-1]
    before, weight = (Words(*(word.reshape(-1) for word in words)) for words in (sums.before, sums.weight))
    # The block is the last that starts at or below the target.
    block = _count(before, row * np.int32(blocks), target, blocks) - 1
    place = row * np.int32(blocks) + block
    start = _at(before, place)
    column = jnp.arange(_BLOCK, dtype=jnp.int32).reshape((1,) * len(shape) + (-1,))
    ends = _running_sums(_at(weight, place[..., None] * np.int32(_BLOCK) + column))
    ends = add(ends, Words(start.high[..., None], start.low[..., None]))
    passed = at_most(ends, Words(target.high[..., None], target.low[..., None]))
    # Weights are not negative: those that are passed come first.
    inside = jnp.minimum(jnp.sum(passed, axis=-1, dtype=jnp.int32), np.int32(_BLOCK - 1))

    def end_of(number: jax.Array) -> Words:
        return Words(*(jnp.take_along_axis(word, number[..., None], axis=-1)[..., 0] for word in ends))

    left = select(inside == 0, start, end_of(jnp.maximum(inside - 1, 0)))
    return block * np.int32(_BLOCK) + inside, left, end_of(inside)


def _by_table(sums: Sums, row: jax.Array, target: Words) -> tuple[jax.Array, Words, Words]:
    """The same from the sums up to every piece, which all draws of a row share."""
    before = Words(*(word[..., None] for word in sums.before))
    ends = Words(*(word.reshape(-1) for word in add(_running_sums(sums.weight), before)))
    ends = jax.lax.optimization_barrier(ends)
    places = sums.before.high.shape[-1] * _BLOCK
    start = row * np.int32(places)
    index = jnp.minimum(_count(ends, start, target, places), np.int32(places - 1))
    left, none = _at(ends, start + jnp.maximum(index - 1, 0)), jnp.zeros_like(target.high)
    return index, select(index == 0, Words(none, none), left), _at(ends, start + index)


def _at(words: Words, place: jax.Array) -> Words:
    return Words(words.high[place], words.low[place])


def _count(numbers: Words, start: jax.Array, target: Words, size: int) -> jax.Array:
    """How many of the ``size`` nondecreasing numbers from ``start`` on are at or below the target: a binary search."""

    def halve(_: jax.Array, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low + high) // 2
        reached = (middle < high) & at_most(_at(numbers, start + jnp.minimum(middle, np.int32(size - 1))), target)
        return jnp.where(reached, middle + 1, low), jnp.where(reached, high, jnp.minimum(middle, high))

    ends = jnp.zeros_like(start), jnp.full_like(start, size)
    return jax.lax.fori_loop(np.int32(0), np.int32(size.bit_length()), halve, ends)[0]


def _running_sums(weight: Words) -> Words:
    """Sums of a number and all before it on the last axis, by doubling."""
    distance = 1
    while distance < weight.high.shape[-1]:
        gap = [(0, 0)] * (weight.high.ndim - 1) + [(distance, 0)]
        weight = add(weight, Words(*(jnp.pad(word[..., :-distance], gap) for word in weight)))
        distance *= 2
    return weight


def _read(array: jax.Array, index: jax.Array) -> jax.Array:
    """One entry of each row, ``(..., P)`` at ``(draws, ...)`` or ``(...)``."""
    rows = jnp.arange(array[..., 0].size, dtype=jnp.int32).reshape(array.shape[:-1])
    return array.reshape(-1)[align(rows, index.ndim) * np.int32(array.shape[-1]) + index]


def _within(width: jax.Array, digits: jax.Array, rest: jax.Array, slack: jax.Array, unit: int) -> tuple[jax.Array, jax.Array]:
    """floor(width * H) and whether it is certain, where 2^56 H lies between 2^32 digits + rest - slack and ... + rest + unit."""
    fraction = Words(digits, rest)  # 56 bits
    one, none = jnp.ones_like(rest), jnp.zeros_like(rest)
    back = Words(none, jnp.broadcast_to(slack, rest.shape))
    least = subtract(fraction, back)
    least = Words(*(jnp.where(at_most(back, fraction), word, none) for word in least))
    most = add(fraction, Words(none, jnp.full_like(rest, unit)))

    def floored(top: jax.Array, low: Words) -> jax.Array:  # by 2^56
        return (top << jnp.uint32(8)) | (low.high >> jnp.uint32(24))

    low_end = floored(*times_word(least, width))
    top, low = times_word(most, width)  # the end itself is never reached
    borrow = (low.high == 0) & (low.low == 0)
    low = subtract(low, Words(none, one))
    high_end = floored(top - borrow.astype(jnp.uint32), low)
    return low_end, low_end == high_end
