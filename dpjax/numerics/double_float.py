"""Numbers with twice the digits of a float, as unevaluated sums of two floats, and their sums.

A plain ``sum`` or ``cumsum`` over rows of float32 is off by the square root of n units in the last place, and changes bitwise when
the row is padded. Here every partial sum is a ``DoubleFloat``, so that the difference of two sums of 10^5 records near 10^6 still
has all digits of float32. Sums and differences are rounded alike in every lane of every device; a product could be fused into a
later sum in some lanes and not in others, which ``product`` prevents.

With u half the spacing of floats at 1 (2^-24 in float32), every operation here has a relative error below 16 u^2, where a
difference counts relative to the sum of the sizes of its terms. Sums of n terms go through 2 log2(n) additions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class DoubleFloat(NamedTuple):
    """The number ``high + low``, where ``low`` is what rounding took from ``high``."""

    high: jax.Array
    low: jax.Array

    @property
    def value(self) -> jax.Array:
        """The nearest float."""
        return self.high + self.low

    def __neg__(self) -> "DoubleFloat":
        return DoubleFloat(-self.high, -self.low)

    def __abs__(self) -> "DoubleFloat":
        below = self.high < 0  # the low part is smaller
        return DoubleFloat(jnp.where(below, -self.high, self.high), jnp.where(below, -self.low, self.low))

    def plus(self, other: "DoubleFloat") -> "DoubleFloat":
        """Return the sum, to about twice the digits of a float (Dekker 1971; Knuth's exact sum of the high parts)."""
        total = self.high + other.high
        moved = total - self.high
        lost = (self.high - (total - moved)) + (other.high - moved)
        low = lost + (self.low + other.low)
        high = total + low
        return DoubleFloat(high, low - (high - total))

    def minus(self, other: "DoubleFloat") -> "DoubleFloat":
        """Return the difference."""
        return self.plus(-other)

    def times(self, factor: "jax.Array | DoubleFloat") -> "DoubleFloat":
        """Return the product with a float or with a number of twice the digits."""
        if not isinstance(factor, DoubleFloat):
            return exact_product(self.high, factor).plus(single(product(self.low, factor)))
        cross = product(self.high, factor.low) + product(self.low, factor.high)
        return exact_product(self.high, factor.high).plus(single(cross))

    def over(self, divisor: jax.Array) -> "DoubleFloat":
        """Return the quotient by a float."""
        first = self.high / divisor
        return single(first).plus(single(self.minus(exact_product(first, divisor)).value / divisor))

    def at(self, places: slice) -> "DoubleFloat":
        """Return some places of the last axis."""
        return DoubleFloat(self.high[..., places], self.low[..., places])


def larger(a: DoubleFloat, b: DoubleFloat) -> DoubleFloat:
    """Return the larger of two."""
    first = (a.high > b.high) | ((a.high == b.high) & (a.low >= b.low)) | jnp.isnan(a.high)
    return DoubleFloat(jnp.where(first, a.high, b.high), jnp.where(first, a.low, b.low))


def largest(numbers: DoubleFloat, among: Any) -> DoubleFloat:
    """Return the largest on the last axis of those that are ``among`` them, ``(..., n)`` to ``(...)``; -infinity of none."""
    high = jnp.where(among, numbers.high, -jnp.inf)
    top = jnp.max(high, axis=-1, keepdims=True)
    low = jnp.where(among & ((high == top) | jnp.isnan(high)), numbers.low, -jnp.inf)
    return DoubleFloat(top[..., 0], jnp.where(jnp.isneginf(top[..., 0]), 0.0, jnp.max(low, axis=-1)))


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the rounded product: the barrier keeps it from being fused into a sum."""
    return jax.lax.optimization_barrier(a * b)


def exact_product(a: jax.Array, b: jax.Array) -> DoubleFloat:
    """Return the product without rounding (Dekker 1971), unless it or its low part leaves the range of the dtype."""
    rounded = product(a, b)
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    # All products of halves and all sums of them but the last are exact: fusing them changes nothing.
    return DoubleFloat(rounded, ((a1 * b1 - rounded) + (a1 * b2 + a2 * b1)) + a2 * b2)


def prefix_sums(terms: DoubleFloat) -> DoubleFloat:
    """Return the sums of the first 0, 1, ..., n terms: ``(..., n)`` to ``(..., n + 1)``.

    The scan adds neighbors, and the sums of neighbors, counted from the start of the row: the order of the additions that make
    a prefix depends on its length only.
    """
    terms = DoubleFloat(*(jnp.pad(part, [(0, 0)] * (part.ndim - 1) + [(1, 0)]) for part in terms))
    return jax.lax.associative_scan(lambda a, b: a.plus(b), terms, axis=terms.high.ndim - 1)


def sum_of(terms: DoubleFloat) -> DoubleFloat:
    """Return the sum over the last axis, in an order that depends on its length only: ``(..., n)`` to ``(...)``."""
    size = terms.high.shape[-1]
    if size == 0:
        return single(jnp.zeros(terms.high.shape[:-1], terms.high.dtype))
    while size > 1:
        half = size // 2
        head, tail = terms.at(slice(0, half)), terms.at(slice(half, 2 * half))
        rest = terms.at(slice(2 * half, size))
        terms = DoubleFloat(*(jnp.concatenate(parts, axis=-1) for parts in zip(head.plus(tail), rest, strict=True)))
        size = half + size % 2
    return DoubleFloat(terms.high[..., 0], terms.low[..., 0])


def split(exact: np.ndarray, dtype: Any) -> DoubleFloat:
    """Return NumPy's float64 in two narrower floats; what is too large for them is infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        high = exact.astype(dtype)
        low = np.where(np.isfinite(high), exact - high, 0.0).astype(dtype)
    return DoubleFloat(jax.device_put(high), jax.device_put(low))  # without a program for each shape; nobody else has these arrays


def single(array: jax.Array) -> DoubleFloat:
    """Return a float as a number of twice the digits."""
    return DoubleFloat(array, jnp.zeros_like(array))


@jax.custom_jvp
def _halves(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Split a float into two of half as many digits: the first rounded to nearest, so that the second is at most half its unit.

    Truncated, the second would need a digit more, and the sum of the two mixed products would not be exact.
    """
    bits = (jnp.finfo(x.dtype).nmant + 2) // 2
    kind = jnp.dtype(f"int{8 * x.dtype.itemsize}")
    mask, half = jnp.asarray(-(1 << bits), kind), jnp.asarray(1 << (bits - 1), kind)
    digits = jax.lax.bitcast_convert_type(x, kind)
    nearest, truncated = (jax.lax.bitcast_convert_type(kept & mask, x.dtype) for kept in (digits + half, digits))
    top = jnp.where(jnp.isfinite(nearest), nearest, truncated)
    return top, x - top


@_halves.defjvp
def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    top, rest = _halves(*primals)
    return (top, rest), (tangents[0], jnp.zeros_like(tangents[0]))
