"""Selection of slots by their weights: inverse cdf in 63-bit fixed point, or Gumbel-max.

Weights become integers that add up to less than 2^63. Their cumulative sums are exact, so the order
of additions does not matter: neither slots of weight 0 nor further rows change a draw. A uniform
integer below the total then falls into the range of one slot. Every probability is exact up to
2^-61 and a few units in the last place of its weight, whereas a cumulative sum in float32 cannot
even reach a slot of 2^-24 behind a large one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics import sums, two_words
from dpjax.numerics.batching import by_platform, in_memory, take, window
from dpjax.numerics.powers import log2_floor, power_of_two
from dpjax.numerics.search import count_leading
from dpjax.numerics.sums import lane_sums, pairwise_sum
from dpjax.numerics.two_words import Words

_FINE = 50  # from 2^50 away from an end, out of 2^62, the guide has more buckets
_BUCKETS = (63 << 1) + (63 - _FINE << 4) + 1  # in each half; no number is in the last bucket


def gumbel_max(log_weights: jax.Array, gumbels: jax.Array) -> jax.Array:
    """Return the index of the largest ``log_weights + gumbels`` on the last axis, int32."""
    return jnp.argmax(log_weights + gumbels, axis=-1).astype(jnp.int32)


def race(weights: jax.Array, exponentials: jax.Array) -> jax.Array:
    """Return the index of the least ``exponentials / weights``, int32 of shape ``(...)``.

    This is the Gumbel-max trick without its logarithms. Slots of weight 0 never win. Every other
    slot wins with a probability proportional to its weight, to a few units in the last place of the
    dtype, however small the weight is.
    """
    return jnp.argmin(jnp.where(weights > 0, exponentials / weights, jnp.inf), axis=-1).astype(
        jnp.int32
    )


def integer_sums(weights: jax.Array, center: int = 0) -> Words:
    """Convert weights ``(..., n)`` to integers with total below 2^62; return their cumulative sums.

    Further slots of weight 0 at the end, or before the slot ``center``, change no sum.
    """
    parts = [weights[..., :center], weights[..., center:]] if center else [weights]
    lanes = [lane_sums(partial(window, part), part.shape[-1]) for part in parts]
    power = power_of_two(61 - log2_floor(pairwise_sum(reduce(jnp.add, lanes))), weights.dtype)

    # Inside the loop: otherwise XLA computes all weights once for each word.
    def integer(weight: jax.Array) -> Words:
        scaled = weight * power
        return two_words.from_float(jnp.where(scaled < 2.0**62, scaled, 0.0))

    return sums.running_sums(weights, two_words.add, integer)


def choose(weights: jax.Array, words: Words) -> jax.Array:
    """Choose a slot for each draw by counting: best for few slots or few draws.

    Args:
        weights: float ``(..., draws or 1, n)``.
        words: 64 uniform bits for each draw, ``(..., draws)``.

    Returns:
        The chosen slots, int32 ``(..., draws)``; the last slot in a row without weight.
    """
    ends = integer_sums(weights)
    target = two_words.upper_product(words, Words(ends.high[..., -1], ends.low[..., -1]))
    reached = two_words.at_most(ends, Words(target.high[..., None], target.low[..., None]))
    return jnp.minimum(jnp.sum(reached, axis=-1, dtype=jnp.int32), np.int32(weights.shape[-1] - 1))


class Table(NamedTuple):
    """Cumulative sums with a guide table (Chen and Asau 1974): best for many draws from each row.

    There are two halves, the slots before and after a center. The ranges of the slots become short
    toward the end of either half, so the width of the guide's buckets decreases with the distance
    to it. Then few slots share a bucket, and few steps of a binary search remain.

    Attributes:
        ends: the cumulative sums, ``(..., n)``.
        middle: the sum of the first half, ``(..., 1)``.
        guide: for each bucket, the number of sums in the buckets before it, int32 ``(..., buckets +
            1)``.
        rounds: the number of search steps needed in the fullest bucket, int32.
    """

    ends: Words
    middle: Words
    guide: jax.Array
    rounds: jax.Array

    @staticmethod
    def of(weights: jax.Array, center: int = 0) -> Table:
        """Tabulate weights ``(..., n)``; they should decrease toward the end of either half."""
        ends = integer_sums(weights, center)
        batch, n = ends.high.shape[:-1], ends.high.shape[-1]
        total, middle = (
            Words(ends.high[..., at - 1 : at], ends.low[..., at - 1 : at])
            for at in (n, max(center, 1))
        )
        if not center:
            middle = Words(*map(jnp.zeros_like, middle))
        # A sum of 0 lies below every draw, that of the first half below every draw in the second,
        # and the total, alone in the last bucket, below none: slots with these sums are not
        # searched.
        bucket_of_sum = jnp.where(
            two_words.equal(ends, middle), np.int32(_BUCKETS), _bucket(ends, middle, total)
        )
        bucket_of_sum = jnp.where((ends.high | ends.low) == 0, -1, bucket_of_sum)
        bucket = jnp.arange(2 * _BUCKETS + 1, dtype=jnp.int32)
        guide = count_leading(
            lambda index: take(bucket_of_sum, index) < bucket, n, (*batch, bucket.size)
        )
        searched = np.isin(np.arange(2 * _BUCKETS), (_BUCKETS, 2 * _BUCKETS - 1), invert=True)
        # XLA vectorizes floats.
        inside = jnp.where(searched, guide[..., 1:] - guide[..., :-1], 0).astype(jnp.float32)
        rounds = 32 - jax.lax.clz(jnp.max(inside, initial=0).astype(jnp.int32))
        return Table(ends, middle, guide, rounds)

    def choose(self, bits: Callable[[], Words]) -> jax.Array:
        """Draw slots, int32 ``(..., draws)``, by 64 uniform bits each, computed by ``bits``."""
        size = self.ends.high.shape[-1]
        total = Words(self.ends.high[..., -1:], self.ends.low[..., -1:])
        # In memory: otherwise the product would compute its words again, and without vector code.
        target = two_words.upper_product(in_memory(self.rounds >= 0, bits), total)
        start = take(self.guide, _bucket(target, self.middle, total))

        def passed(index: jax.Array) -> jax.Array:
            return two_words.at_most(
                Words(take(self.ends.high, index), take(self.ends.low, index)), target
            )

        # On devices other than the CPU, the host would have to read the number of steps.
        found = by_platform(
            cpu=lambda: count_leading(passed, size, start.shape, start, self.rounds),
            default=lambda: count_leading(passed, size, start.shape, start),
        )
        return jnp.minimum(found, np.int32(size - 1))


def _bucket(number: Words, middle: Words, total: Words) -> jax.Array:
    """Return the bucket of a number, nondecreasing: above ``_BUCKETS`` from ``middle`` on.

    It depends on the leading digits of the distance to the end of the half: two buckets for each
    power of two, and 16 more from 2^50 on.
    """
    upper = two_words.at_most(middle, number)
    rest = two_words.to_float(
        two_words.subtract(two_words.select(upper, total, middle), number), jnp.float32
    )
    from_end = (
        _digits(rest + 1, 1) - (127 << 1) + _digits(rest + 2.0**_FINE, 4) - (127 + _FINE << 4)
    )
    return jnp.where(upper, np.int32(2 * _BUCKETS - 1), np.int32(_BUCKETS - 1)) - from_end


def _digits(x: jax.Array, after: int) -> jax.Array:
    """Return the exponent of a float32 and its first ``after`` fractional bits."""
    return jax.lax.bitcast_convert_type(x, jnp.int32) >> np.int32(23 - after)
