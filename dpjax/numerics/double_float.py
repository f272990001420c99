"""Double-float arithmetic: numbers with twice the digits of a float.

They are unevaluated sums of two floats. A plain ``sum`` or ``cumsum`` of n float32 numbers has an
error of about sqrt(n) units in the last place, and its bits change when the row is padded. With
``DoubleFloat`` partial sums, the difference of two sums of 10^5 records near 10^6 still has all
digits of float32. Sums and differences are rounded in the same way in every lane of every device;
``product`` prevents that a product is fused into a later sum in some lanes only.

With u half the spacing of floats at 1 (2^-24 in float32), every operation has a relative error
below 16 u^2, for a difference relative to the sum of the magnitudes of its terms. A sum of n terms
takes 2 log2(n) additions in sequence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class DoubleFloat(NamedTuple):
    """The number ``high + low``, where ``low`` is the rounding error of ``high``."""

    high: jax.Array
    low: jax.Array

    @property
    def value(self) -> jax.Array:
        """The nearest float."""
        return self.high + self.low

    def __neg__(self) -> DoubleFloat:
        return DoubleFloat(-self.high, -self.low)

    def __abs__(self) -> DoubleFloat:
        below = self.high < 0  # the low part is smaller
        return DoubleFloat(
            jnp.where(below, -self.high, self.high), jnp.where(below, -self.low, self.low)
        )

    def plus(self, other: DoubleFloat) -> DoubleFloat:
        """Return the sum (Dekker 1971; Knuth's exact sum of the high parts)."""
        total = self.high + other.high
        moved = total - self.high
        lost = (self.high - (total - moved)) + (other.high - moved)
        low = lost + (self.low + other.low)
        high = total + low
        return DoubleFloat(high, low - (high - total))

    def minus(self, other: DoubleFloat) -> DoubleFloat:
        """Return the difference."""
        return self.plus(-other)

    def times(self, factor: jax.Array | DoubleFloat) -> DoubleFloat:
        """Return the product with a float or a ``DoubleFloat``."""
        if not isinstance(factor, DoubleFloat):
            return exact_product(self.high, factor).plus(single(product(self.low, factor)))
        cross = product(self.high, factor.low) + product(self.low, factor.high)
        return exact_product(self.high, factor.high).plus(single(cross))

    def over(self, divisor: jax.Array) -> DoubleFloat:
        """Return the quotient by a float."""
        first = self.high / divisor
        return single(first).plus(single(self.minus(exact_product(first, divisor)).value / divisor))

    def at(self, places: slice) -> DoubleFloat:
        """Return a slice of the last axis."""
        return DoubleFloat(self.high[..., places], self.low[..., places])


def larger(a: DoubleFloat, b: DoubleFloat) -> DoubleFloat:
    """Return the elementwise maximum."""
    first = (a.high > b.high) | ((a.high == b.high) & (a.low >= b.low)) | jnp.isnan(a.high)
    return DoubleFloat(jnp.where(first, a.high, b.high), jnp.where(first, a.low, b.low))


def largest(numbers: DoubleFloat, among: Any) -> DoubleFloat:
    """Return the maximum over the last axis of the entries where ``among`` is true.

    -infinity if none is.
    """
    high = jnp.where(among, numbers.high, -jnp.inf)
    top = jnp.max(high, axis=-1, keepdims=True)
    low = jnp.where(among & ((high == top) | jnp.isnan(high)), numbers.low, -jnp.inf)
    return DoubleFloat(
        top[..., 0], jnp.where(jnp.isneginf(top[..., 0]), 0.0, jnp.max(low, axis=-1))
    )


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the rounded product, with a barrier that prevents its fusion into a sum."""
    return jax.lax.optimization_barrier(a * b)


def exact_product(a: jax.Array, b: jax.Array) -> DoubleFloat:
    """Return the exact product (Dekker 1971), if it and its low part are in range."""
    rounded = product(a, b)
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    # All products of halves, and all their sums but the last, are exact, so that fusing them does
    # not change the result.
    return DoubleFloat(rounded, ((a1 * b1 - rounded) + (a1 * b2 + a2 * b1)) + a2 * b2)


def prefix_sums(terms: DoubleFloat) -> DoubleFloat:
    """Return the sums of the first 0, 1, ..., n terms: ``(..., n)`` to ``(..., n + 1)``.

    The order of the additions of a prefix depends only on its length.
    """
    terms = DoubleFloat(*(jnp.pad(part, [(0, 0)] * (part.ndim - 1) + [(1, 0)]) for part in terms))
    return jax.lax.associative_scan(lambda a, b: a.plus(b), terms, axis=terms.high.ndim - 1)


def sum_of(terms: DoubleFloat) -> DoubleFloat:
    """Return the sum over the last axis, ``(..., n)`` to ``(...)``.

    The order of the additions depends only on n.
    """
    size = terms.high.shape[-1]
    if size == 0:
        return single(jnp.zeros(terms.high.shape[:-1], terms.high.dtype))
    while size > 1:
        half = size // 2
        head, tail = terms.at(slice(0, half)), terms.at(slice(half, 2 * half))
        rest = terms.at(slice(2 * half, size))
        terms = DoubleFloat(
            *(jnp.concatenate(parts, axis=-1) for parts in zip(head.plus(tail), rest, strict=True))
        )
        size = half + size % 2
    return DoubleFloat(terms.high[..., 0], terms.low[..., 0])


def split(exact: np.ndarray, dtype: Any) -> DoubleFloat:
    """Convert NumPy float64 to two narrower floats; numbers beyond their range become infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        high = exact.astype(dtype)
        low = np.where(np.isfinite(high), exact - high, 0.0).astype(dtype)
    return DoubleFloat(
        jax.device_put(high), jax.device_put(low)
    )  # device_put compiles no program per shape; no other code holds these arrays


def single(array: jax.Array) -> DoubleFloat:
    """Return a float as a ``DoubleFloat``."""
    return DoubleFloat(array, jnp.zeros_like(array))


@jax.custom_jvp
def _halves(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Split a float into two of half as many digits.

    The first is rounded to nearest, so that the second is at most half its unit. If it were
    truncated, the second would need one more digit, and the sum of the mixed products would not be
    exact.
    """
    bits = (jnp.finfo(x.dtype).nmant + 2) // 2
    kind = jnp.dtype(f"int{8 * x.dtype.itemsize}")
    mask, half = jnp.asarray(-(1 << bits), kind), jnp.asarray(1 << (bits - 1), kind)
    digits = jax.lax.bitcast_convert_type(x, kind)
    nearest, truncated = (
        jax.lax.bitcast_convert_type(kept & mask, x.dtype) for kept in (digits + half, digits)
    )
    top = jnp.where(jnp.isfinite(nearest), nearest, truncated)
    return top, x - top


@_halves.defjvp
def _(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    top, rest = _halves(*primals)
    return (top, rest), (tangents[0], jnp.zeros_like(tangents[0]))
