"""Selection of one slot with probability proportional to its weight: inverse CDF in 63-bit fixed point, or Gumbel-max.

Weights become integers that add up to less than 2^63, and their running sums are exact, so it does not matter in which order they
are added: neither slots of weight 0 nor further rows change a draw. A uniform integer below the total then falls into the stretch
of one slot. Every probability is right to 2^-61 and a few units in the last place of its weight; a cumulative sum in float32 cannot
even reach a slot of 2^-24 behind a large one.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics import sums, two_words
from dpjax.numerics.batching import in_memory, take
from dpjax.numerics.bisection import count_leading
from dpjax.numerics.powers import log2_floor, power_of_two
from dpjax.numerics.sums import pairwise_sum
from dpjax.numerics.two_words import Words

_PER_OCTAVE = 2  # binary digits: four buckets of the guide for each power of two
_BUCKETS = 64 << _PER_OCTAVE  # for each half of the line


def gumbel_max(log_weights: jax.Array, gumbels: jax.Array) -> jax.Array:
    """Return the index of the largest ``log_weights + gumbels``, int32 of shape ``(...)``, for slots on the last axis."""
    return jnp.argmax(log_weights + gumbels, axis=-1).astype(jnp.int32)


def race(weights: jax.Array, exponentials: jax.Array) -> jax.Array:
    """Return the index of the least ``exponentials / weights``, int32 of shape ``(...)``: Gumbel-max without its logarithms.

    Slots of weight 0 never win. Every other is the first with a probability proportional to its weight, to a few units in the last
    place of the dtype, however small it is.
    """
    return jnp.argmin(jnp.where(weights > 0, exponentials / weights, jnp.inf), axis=-1).astype(jnp.int32)


def integer_sums(weights: jax.Array) -> Words:
    """Turn float weights ``(..., n)`` into integers below 2^62 in all, and return their running sums, of the same shape."""
    power = power_of_two(61 - log2_floor(pairwise_sum(weights)), weights.dtype)

    def integer(weight: jax.Array) -> Words:  # inside the loop: the compiler would otherwise weigh all slots again for either word
        scaled = weight * power
        return two_words.from_float(jnp.where(scaled < 2.0**62, scaled, 0.0))

    return sums.running_sums(weights, two_words.add, integer)


def choose(weights: jax.Array, words: Words) -> jax.Array:
    """Choose a slot for each draw by counting: best for few slots or few draws.

    Args:
        weights: float ``(..., draws or 1, n)``.
        words: 64 uniform bits a draw, ``(..., draws)``.

    Returns:
        The chosen slots, int32 ``(..., draws)``; the last one of a row without any weight.
    """
    ends = integer_sums(weights)
    target = two_words.upper_product(words, Words(ends.high[..., -1], ends.low[..., -1]))
    reached = two_words.at_most(ends, Words(target.high[..., None], target.low[..., None]))
    return jnp.minimum(jnp.sum(reached, axis=-1, dtype=jnp.int32), np.int32(weights.shape[-1] - 1))


class Table(NamedTuple):
    """Running sums, and a guide to them (Chen and Asau 1974): best for many draws from each row.

    The stretches of the slots become short towards both ends, so the buckets of the guide are uniform in the logarithm of the
    distance to the nearer end. Then few slots share a bucket, and few steps of a binary search are left.

    Attributes:
        ends: the running sums, ``(..., n)``.
        guide: for each bucket how many of them lie in buckets before it, int32 ``(..., buckets + 1)``.
        rounds: how many steps the search needs in the fullest bucket, int32.
    """

    ends: Words
    guide: jax.Array
    rounds: jax.Array

    @staticmethod
    def of(weights: jax.Array) -> "Table":
        """Tabulate weights ``(..., n)``, best in an order in which they become small towards both ends."""
        ends = integer_sums(weights)
        batch, n = ends.high.shape[:-1], ends.high.shape[-1]
        total = Words(ends.high[..., -1:], ends.low[..., -1:])
        # Every draw has passed a sum of 0, and none that of all: however many slots have them, they are not searched.
        own = jnp.where(two_words.at_most(total, ends), 2 * _BUCKETS, _bucket(ends, total))
        own = jnp.where((ends.high | ends.low) == 0, -1, own)
        bucket = jnp.arange(2 * _BUCKETS + 1, dtype=jnp.int32)
        guide = count_leading(lambda index: take(own, index) < bucket, n, (*batch, bucket.size))
        rounds = 32 - jax.lax.clz(jnp.max(guide[..., 1:] - guide[..., :-1], initial=0))
        return Table(ends, guide, rounds)

    def choose(self, bits: Callable[[], Words]) -> jax.Array:
        """Choose a slot for each draw, int32 ``(..., draws)``, by the 64 uniform bits that ``bits`` computes, of the same shape."""
        last = self.ends.high.shape[-1] - 1
        total = Words(self.ends.high[..., -1:], self.ends.low[..., -1:])
        # In memory: a product of words that are computed on the way would compute them again, and has no vector code.
        target = two_words.upper_product(in_memory(self.rounds >= 0, bits), total)
        start = take(self.guide, _bucket(target, total))

        def step(number: jax.Array, slot: jax.Array) -> jax.Array:
            stride = jnp.int32(1) << (self.rounds - 1 - number)
            at = jnp.minimum(slot + stride - 1, np.int32(last))
            reached = two_words.at_most(Words(take(self.ends.high, at), take(self.ends.low, at)), target)
            return jnp.where(reached & (slot + stride <= last + 1), slot + stride, slot)

        return jnp.minimum(jax.lax.fori_loop(0, self.rounds, step, start), np.int32(last))


def _bucket(number: Words, total: Words) -> jax.Array:
    """The bucket of a number from 0 to the total, nondecreasing: by the leading digits of its distance to the nearer end."""
    rest = two_words.subtract(total, number)
    lower = two_words.at_most(number, rest)
    near = two_words.to_float(two_words.select(lower, number, rest), jnp.float32)
    digits = jax.lax.bitcast_convert_type(near + 1, jnp.int32) >> np.int32(23 - _PER_OCTAVE)
    place = digits - np.int32(127 << _PER_OCTAVE)
    return jnp.where(lower, place, np.int32(2 * _BUCKETS - 1) - place)
