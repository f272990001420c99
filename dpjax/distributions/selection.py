"""Selection of one slot with probability proportional to its weight: by a random number of 63 bits, or by Gumbel-max.

Slots come in two sides, each going outwards from the centre; the randomness of a draw does not depend on how many slots of weight
0 are added at the far end of a side, nor on the rows of the batch.

The 63 bits are dealt out down a binary tree: the root owns 2^63 numbers, and each node passes its numbers on to its two children
in proportion to their weights, the smaller share rounded to whole numbers and the larger one the rest. A draw is one random
number: it belongs to the slot that owns it. Every probability is right to a few units in the last place times the depth, and
down to 2^-63, where a cumulative float32 table cannot even reach a slot of 2^-24 that stands behind a large one. The sums in
the tree are explicit adds of neighbours, counted from the centre, whose order depends on nothing else; a further level on top of
a side deals all to its first child, and so changes nothing.

There are two ways to find the owner, with the same result. ``BlockTree`` sums blocks of 32 slots and goes down to the slots of
one block only: best for a few draws from each of many rows. ``tabulate`` deals all the numbers out once, and ``search`` finds
each draw's slot by bisection: best for many draws from one row. ``gumbel_max`` is the reference.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics import two_words
from dpjax.numerics.batching import concatenate, take
from dpjax.numerics.sums import pad, pair_sums
from dpjax.numerics.two_words import Words

FAN_OUT = 32


def gumbel_max(log_weights: jax.Array, gumbels: jax.Array) -> jax.Array:
    """Return the index of the largest ``log_weights + gumbels``, int32 of shape ``(...)``, for slots on the last axis."""
    return jnp.argmax(log_weights + gumbels, axis=-1).astype(jnp.int32)


def ticket(words: Words) -> Words:
    """Return the random number of 63 bits of a draw."""
    return Words(words.high >> jnp.uint32(1), words.low)


class Share(NamedTuple):
    """Where a draw stands on its way down: how many numbers its node owns, and which of them is the draw's, counted from 0."""

    size: Words
    ticket: Words

    @staticmethod
    def all(ticket: Words) -> "Share":
        """At the root."""
        return Share(_whole(ticket.high), ticket)

    def step(self, near: jax.Array, far: jax.Array) -> tuple["Share", jax.Array]:
        """Go down to one of two children; also return whether it is the far one."""
        first = near_share(self.size, near, far)
        goes_far = two_words.at_most(first, self.ticket)
        size = two_words.select(goes_far, two_words.subtract(self.size, first), first)
        rest = two_words.select(goes_far, two_words.subtract(self.ticket, first), self.ticket)
        return Share(size, rest), goes_far

    def walk(self, leaves: jax.Array) -> tuple["Share", jax.Array]:
        """Go down a tree over ``leaves``, ``(..., draws or 1, 2**height)``; also return which leaf it led to, int32."""
        levels = [leaves]
        while levels[0].shape[-1] > 1:
            levels.insert(0, pair_sums(levels[0]))
        heap = jnp.concatenate([levels[0], *levels], axis=-1)  # node i has the children 2i and 2i+1; the first place is not used
        count = leaves.shape[-1]
        if heap.shape[-2] == 1:  # one tree for all draws of a row
            heap, each = heap[..., 0, :], False
        else:
            each = True

        def step(_: jax.Array, state: tuple[Share, jax.Array]) -> tuple[Share, jax.Array]:
            share, node = state
            child = 2 * node
            near, far = ((take(heap, i[..., None])[..., 0] if each else take(heap, i)) for i in (child, child + 1))
            share, goes_far = share.step(near, far)
            return share, child + goes_far.astype(jnp.int32)

        # A loop, also because XLA's CPU compiler would otherwise compute the random words again wherever they are used.
        root = jnp.ones(self.ticket.high.shape, jnp.int32)
        share, node = jax.lax.fori_loop(0, count.bit_length() - 1, step, (self, root))
        return share, node - np.int32(count)


def near_share(size: Words, near: jax.Array, far: jax.Array) -> Words:
    """Return how many of ``size`` numbers the near one of two children gets: none if its weight is 0, all if the other's is."""
    total = near + far
    fraction = jnp.where(total > 0, jnp.minimum(near, far) / jnp.where(total > 0, total, 1.0), 0.0)
    smaller = two_words.from_float(two_words.to_float(size, total.dtype) * fraction)
    return two_words.select(near <= far, smaller, two_words.subtract(size, smaller))


def block_sums(weights: jax.Array) -> jax.Array:
    """Add blocks of 32 on the last axis, in pairs of pairs."""
    for _ in range(2):  # two levels at a time take half as many passes through memory
        weights = (weights[..., 0::4] + weights[..., 1::4]) + (weights[..., 2::4] + weights[..., 3::4])
    return pair_sums(weights)


class BlockTree(NamedTuple):
    """Sums over blocks of 32 slots, over blocks of 32 blocks and so on, for two sides.

    Attributes:
        levels: from the top, which has 32 sums a side, each ``(..., 2, sums)`` with sums a multiple of 32. Of sides of at most
            32 slots, the slots themselves.
        sides: the sums of the two sides and the weights of two more slots, the lower and the upper tail: ``(..., 4)``.
    """

    levels: tuple[jax.Array, ...]
    sides: jax.Array

    @property
    def total(self) -> jax.Array:
        """The sum of everything, ``(..., 1)``."""
        total = self.sides
        while total.shape[-1] > 1:
            total = pair_sums(total)
        return total

    @staticmethod
    def build(lower: jax.Array, upper: jax.Array, tails: jax.Array | None) -> "BlockTree":
        """Sum two sides of weights, each with a multiple of 32 slots."""
        sides = [lower, upper]
        if max(side.shape[-1] for side in sides) > FAN_OUT:
            sides = [block_sums(side) for side in sides]
        size = -(-max(side.shape[-1] for side in sides) // FAN_OUT) * FAN_OUT
        levels: tuple[jax.Array, ...] = (jnp.stack([pad(side, size) for side in sides], axis=-2),)
        while levels[0].shape[-1] > FAN_OUT:
            levels = (pad(block_sums(levels[0]), FAN_OUT), *levels)
        sums = block_sums(levels[0])[..., 0]
        # Without tails two zeros: one choice more, which changes nothing, but a loop of one turn would not stay one (Share.walk).
        return BlockTree(levels, concatenate(sums, jnp.zeros_like(sums) if tails is None else tails))

    def walk(
        self, ticket: Words, slots_at: Callable[[jax.Array, jax.Array], jax.Array] | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Find the slots that own ``ticket``, ``(..., draws)``.

        Args:
            ticket: one number for each draw.
            slots_at: from a side (0 or 1) and a block, ``(..., draws)``, to the weights of the block, ``(..., draws, 32)``;
                None if the levels hold the slots themselves.

        Returns:
            The side, the slot on that side, and whether the draw is in the tail of that side instead.
        """
        share, leaf = Share.all(ticket).walk(self.sides[..., None, :])
        in_tail, side, block = leaf >= 2, leaf % 2, jnp.zeros_like(leaf)
        for level in self.levels:
            start = side * np.int32(level.shape[-1]) + block * np.int32(FAN_OUT)
            share, within = share.walk(_take_blocks(level.reshape(*level.shape[:-2], -1), start))
            block = FAN_OUT * block + within
        if slots_at is not None:
            share, within = share.walk(slots_at(side, block))
            block = FAN_OUT * block + within
        return side, block, in_tail


def _take_blocks(array: jax.Array, start: jax.Array) -> jax.Array:
    """Pick 32 entries from each start, ``(..., draws)``, on: ``(..., draws, 32)``."""
    index = start[..., None] + jnp.arange(FAN_OUT, dtype=jnp.int32).reshape((1,) * start.ndim + (-1,))
    return take(array, index.reshape(*start.shape[:-1], -1)).reshape(index.shape)


def tabulate(lower: jax.Array, upper: jax.Array, tails: jax.Array | None) -> Words:
    """Deal all numbers out: the first number of each slot, ``(..., slots)``, nondecreasing.

    Args:
        lower: weights of the lower side, ``(..., n)``.
        upper: weights of the upper side, with as many slots; n is a power of two from 32 on.
        tails: weights of the two tails, ``(..., 2)``.

    Returns:
        The slots are the lower side, the upper side, and with tails the lower and the upper one (and padding to a power of two).
    """
    levels = [jnp.concatenate([lower, upper], axis=-1)]
    for _ in range(2):
        levels.insert(0, pair_sums(levels[0]))
    while levels[0].shape[-1] > FAN_OUT:
        levels.insert(0, block_sums(levels[0]))
    total = levels[0]
    while total.shape[-1] > 1:
        total = pair_sums(total)
    size = _whole(total)
    start = Words(jnp.zeros_like(size.high), jnp.zeros_like(size.low))
    beyond = None
    if tails is not None:
        pieces = near_share(size, total, pair_sums(tails))
        first = near_share(two_words.subtract(size, pieces), tails[..., :1], tails[..., 1:])
        beyond, size = (pieces, two_words.add(pieces, first)), pieces
    for level in levels[:-2]:
        start, size = _deal(start, size, level)
    for level in levels[-2:]:
        start, size = _deal_pairs(start, size, level)
    if beyond is None:
        return start
    # A start that no ticket reaches fills the table up to the next power of two.
    padding = jnp.full((*start.high.shape[:-1], start.high.shape[-1] - 2), 2**32 - 1, jnp.uint32)
    return Words(*(jnp.concatenate([*parts, padding], axis=-1) for parts in zip(start, *beyond, strict=True)))


def _deal(start: Words, size: Words, weights: jax.Array) -> tuple[Words, Words]:
    """Deal the numbers of each node, ``(..., nodes)``, to its children, ``(..., nodes * children)``: where they start, how many."""
    nodes = start.high.shape[-1]
    children = weights.shape[-1] // nodes
    height = children.bit_length() - 1
    levels = [weights.reshape(*weights.shape[:-1], nodes, children)]
    while levels[0].shape[-1] > 1:
        levels.insert(0, pair_sums(levels[0]))
    heap = jnp.concatenate([levels[0], *levels], axis=-1)  # node i has the children 2i and 2i+1
    shape = (*heap.shape[:-1], children)
    child = jnp.arange(children, dtype=jnp.int32).reshape((1,) * (heap.ndim - 1) + (-1,))

    # All children go down from their node together, each to its own place.
    def step(i: jax.Array, state: tuple[Words, Words]) -> tuple[Words, Words]:
        start, size = state
        ancestor = (np.int32(1) << i) + (child >> (np.int32(height) - i))
        near, far = (take(heap, jnp.broadcast_to(2 * ancestor + np.int32(side), shape)) for side in (0, 1))
        first = near_share(size, near, far)
        goes_far = jnp.broadcast_to((child >> (np.int32(height - 1) - i)) % 2 == 1, shape)
        return (
            two_words.select(goes_far, two_words.add(start, first), start),
            two_words.select(goes_far, two_words.subtract(size, first), first),
        )

    spread = [Words(*(jnp.broadcast_to(word[..., None], shape) for word in pair)) for pair in (start, size)]
    dealt = jax.lax.fori_loop(np.int32(0), np.int32(height), step, (spread[0], spread[1]))
    start, size = (Words(*(word.reshape(weights.shape) for word in pair)) for pair in dealt)
    return start, size


def _deal_pairs(start: Words, size: Words, weights: jax.Array) -> tuple[Words, Words]:
    """The same for two children of each node: less work, more to compile."""
    first = near_share(size, weights[..., 0::2], weights[..., 1::2])
    starts, sizes = zip(start, two_words.add(start, first), strict=True), zip(first, two_words.subtract(size, first), strict=True)
    pairs = [Words(*(jnp.stack(both, axis=-1).reshape(weights.shape) for both in words)) for words in (starts, sizes)]
    return pairs[0], pairs[1]


def search(starts: Words, ticket_of: Callable[[], Words], finish: Callable[[jax.Array], Any]) -> Any:
    """Find the slots that own tickets ``(..., draws)`` in a table of starts ``(..., slots)``.

    Args:
        starts: from :func:`tabulate`.
        ticket_of: gives the tickets; a function, so that their low words are made only where they are needed.
        finish: what to make of the slots, int32 of the tickets' shape.

    Returns:
        ``finish(slots)``.
    """
    depth = starts.high.shape[-1].bit_length() - 1
    rounds = -(-depth // 2)  # two rounds of a loop: short ones lose time, and without a loop XLA's CPU compiler repeats work

    def bisect(halve: Callable[[jax.Array, jax.Array], jax.Array], start: jax.Array) -> jax.Array:
        def some(i: jax.Array, state: jax.Array) -> jax.Array:
            for j in range(rounds):
                state = halve(state, np.int32(1 << depth) >> (i * np.int32(rounds) + np.int32(j + 1)))
            return state

        return jax.lax.fori_loop(np.int32(0), np.int32(2), some, start)

    high = ticket_of().high

    # The state is twice the slot, plus 1 if the high word of its start is that of the ticket. (Slot 0 starts at 0.)
    def halve(state: jax.Array, step: jax.Array) -> jax.Array:
        start = take(starts.high, (state >> 1) + step)
        return (state + jnp.where(start <= high, 2 * step, np.int32(0))) | (start == high).astype(jnp.int32)

    state = bisect(halve, jnp.zeros(high.shape, jnp.int32))

    # Equal high words are decided by the low ones: seldom, so they are looked at only if some draw needs it.
    def exactly() -> Any:
        ticket = ticket_of()

        def halve(slot: jax.Array, step: jax.Array) -> jax.Array:
            start = Words(*(take(word, slot + step) for word in starts))
            return slot + jnp.where(two_words.at_most(start, ticket), step, np.int32(0))

        return finish(bisect(halve, jnp.zeros(high.shape, jnp.int32)))

    return jax.lax.cond(jnp.any(state % 2 == 1), exactly, lambda: finish(state >> 1))


def _whole(like: jax.Array) -> Words:
    return Words(jnp.full(like.shape, 2**31, jnp.uint32), jnp.zeros(like.shape, jnp.uint32))
