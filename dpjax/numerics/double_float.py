"""Numbers with twice the digits of a float, as unevaluated sums of two floats, and their sums.

A plain ``sum`` or ``cumsum`` over rows of float32 is off by the square root of n units in the last place, and changes bitwise when
the row is padded. Here every partial sum is a ``Pair``, so that the difference of two sums of 10^5 records near 10^6 still has all
digits of float32. Sums and differences are rounded alike in every lane of every device; a product could be fused into a later sum
in some lanes and not in others, which ``product`` prevents.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


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

    def __abs__(self) -> "Pair":
        below = self.high < 0  # the low part is smaller
        return Pair(jnp.where(below, -self.high, self.high), jnp.where(below, -self.low, self.low))

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

    def at(self, places: slice) -> "Pair":
        """Some places of the last axis."""
        return Pair(self.high[..., places], self.low[..., places])

    def times(self, factor: jax.Array) -> "Pair":
        """The product with a float."""
        return exact_product(self.high, factor).plus(Pair(product(self.low, factor), jnp.zeros_like(self.low)))


def larger(a: Pair, b: Pair) -> Pair:
    """The larger of two."""
    first = (a.high > b.high) | ((a.high == b.high) & (a.low >= b.low)) | jnp.isnan(a.high)
    return Pair(jnp.where(first, a.high, b.high), jnp.where(first, a.low, b.low))


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """The rounded product: the barrier keeps it from being fused into a sum."""
    return jax.lax.optimization_barrier(a * b)


def exact_product(a: jax.Array, b: jax.Array) -> Pair:
    """The product without rounding (Dekker 1971), unless it or its low part leaves the range of the dtype."""
    rounded = product(a, b)
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    # All products of halves and all sums of them but the last are exact: fusing them changes nothing.
    return Pair(rounded, ((a1 * b1 - rounded) + (a1 * b2 + a2 * b1)) + a2 * b2)


def prefix_sums(terms: Pair) -> Pair:
    """The sums of the first 0, 1, ..., n terms: ``(..., n)`` to ``(..., n + 1)``.

    The scan adds neighbours, and the pairs of neighbours, counted from the start of the row: the order of the additions that make
    a prefix depends on its length only.
    """
    terms = Pair(*(jnp.pad(part, [(0, 0)] * (part.ndim - 1) + [(1, 0)]) for part in terms))
    return jax.lax.associative_scan(lambda a, b: a.plus(b), terms, axis=terms.high.ndim - 1)


def sum_of(terms: Pair) -> Pair:
    """The sum over the last axis, in an order that depends on its length only: ``(..., n)`` to ``(...)``."""
    size = terms.high.shape[-1]
    if size == 0:
        return single(jnp.zeros(terms.high.shape[:-1], terms.high.dtype))
    while size > 1:
        half = size // 2
        head, tail = terms.at(slice(0, half)), terms.at(slice(half, 2 * half))
        rest = terms.at(slice(2 * half, size))
        terms = Pair(*(jnp.concatenate(parts, axis=-1) for parts in zip(head.plus(tail), rest, strict=True)))
        size = half + size % 2
    return Pair(terms.high[..., 0], terms.low[..., 0])


def split(exact: np.ndarray, dtype: Any) -> Pair:
    """NumPy's float64 as a pair of narrower floats; what is too large for them is infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        high = exact.astype(dtype)
        low = np.where(np.isfinite(high), exact - high, 0.0).astype(dtype)
    return Pair(jnp.asarray(high), jnp.asarray(low))


def single(array: jax.Array) -> Pair:
    """A float as a pair."""
    return Pair(array, jnp.zeros_like(array))


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
