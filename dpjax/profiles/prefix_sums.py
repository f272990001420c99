"""Prefix sums whose last digit is right and does not depend on the padding: unevaluated sums of two floats, added in pairs.

A plain ``cumsum`` over rows of float32 is off by the square root of n units in the last place, and changes bitwise when the row is
padded. Here every partial sum is a ``Pair`` with twice the digits, so that the difference of two sums of 10^5 records near 10^6
still has all of float32's. The scan adds neighbours, and the pairs of neighbours, counted from the start of the row: the order of
the additions that make a prefix depends on its length only. Sums and differences are rounded alike in every lane of every device;
a product could be fused into a later sum in some lanes and not in others, which ``product`` prevents.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Pair(NamedTuple):
    """The number ``high + low``, where ``low`` is what rounding took from ``high``."""

    high: jax.Array
    low: jax.Array

    @property
    def value(self) -> jax.Array:
        """The nearest float."""
        return self.high + self.low

    def __neg__(self) -> "Pair":
        return Pair(-self.high, -self.low)

    def plus(self, other: "Pair") -> "Pair":
        """The sum, to about twice the digits of a float (Dekker 1971; Knuth's exact sum of the high parts)."""
        total = self.high + other.high
        moved = total - self.high
        lost = (self.high - (total - moved)) + (other.high - moved)
        low = lost + (self.low + other.low)
        high = total + low
        return Pair(high, low - (high - total))

    def minus(self, other: "Pair") -> "Pair":
        """The difference."""
        return self.plus(-other)

    def times(self, factor: jax.Array) -> "Pair":
        """The product with a float."""
        return exact_product(self.high, factor).plus(Pair(product(self.low, factor), jnp.zeros_like(self.low)))


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """The rounded product: the barrier keeps it from being fused into a sum."""
    return jax.lax.optimization_barrier(a * b)


def exact_product(a: jax.Array, b: jax.Array) -> Pair:
    """The product without rounding (Dekker 1971), unless it or its low part leaves the range of the dtype."""
    rounded = product(a, b)
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    # The other products of halves are exact: fusing them changes nothing. (The last one has 54 digits in float64.)
    return Pair(rounded, ((a1 * b1 - rounded) + (a1 * b2 + a2 * b1)) + product(a2, b2))


def prefix_sums(terms: Pair) -> Pair:
    """The sums of the first 0, 1, ..., n terms: ``(..., n)`` to ``(..., n + 1)``."""
    terms = Pair(*(jnp.pad(part, [(0, 0)] * (part.ndim - 1) + [(1, 0)]) for part in terms))
    return jax.lax.associative_scan(lambda a, b: a.plus(b), terms, axis=terms.high.ndim - 1)


def single(array: jax.Array) -> Pair:
    """A float as a pair."""
    return Pair(array, jnp.zeros_like(array))


def running(values: jax.Array, place: jax.Array, combine: Callable[[jax.Array, jax.Array], jax.Array]) -> jax.Array:
    """Combine every value with all before it in its segment, where ``place`` counts from 0 in each segment.

    Written out in pairs (Hillis and Steele 1986) whose order depends on the place only: XLA's own cumulative sum changes in its
    last bits with the padding and with further rows.
    """
    distance = 1
    while distance < values.shape[-1]:
        before = jnp.concatenate([jnp.zeros_like(values[..., :distance]), values[..., :-distance]], axis=-1)
        values = jnp.where(place >= distance, combine(values, before), values)
        distance *= 2
    return values


@jax.custom_jvp
def _halves(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Split a float into two of half as many digits."""
    bits = (jnp.finfo(x.dtype).nmant + 2) // 2
    kind = jnp.dtype(f"int{8 * x.dtype.itemsize}")
    mask = jnp.asarray(-(1 << bits), kind)
    top = jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(x, kind) & mask, x.dtype)
    return top, x - top


@_halves.defjvp
def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    top, rest = _halves(*primals)
    return (top, rest), (tangents[0], jnp.zeros_like(tangents[0]))
