"""The mass of a slot, up to a factor common to its row: width * exp(-rate * cost) * phi0(decay), with a range that no cost exceeds.

Costs are usually shared by all rows, so exponentials are taken once per cost (``Heights``), not once per row and slot. A row
with ties can have all its mass thousands of nats below cost 0, where a float32 exponential is 0. A height is therefore kept as
mantissa * 2^-exponent, with an integer exponent that is counted from the heaviest slot of each row when it meets the widths:
one multiplication by a power of two, which is exact.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions import truncated_exponential as piece

_LOG2_E = 1.4426950408889634
_FAR = 2**29  # the largest exponent: differences of two of them, and of one and twice another, stay inside int32


class Heights(NamedTuple):
    """exp(-rate * cost) * phi0(decay) = mantissa * 2^-exponent, on the last axis.

    Attributes:
        mantissa: float, at most 8.
        exponent: int32.
    """

    mantissa: jax.Array
    exponent: jax.Array

    @staticmethod
    def of(cost: jax.Array, decay: jax.Array, rate: jax.Array) -> "Heights":
        """Compute heights with an error of a few units in the last place, up to a ``rate * cost`` of 3.7e8.

        The product is split so that its whole and its fractional part are exact: rounding it once would turn a cost of 50,000
        into an error of several percent. Larger products all count as that one: the costs of a law are then clipped, which
        leaves neighbours as close as they were. (Clipping the parts, and not their sum, would not.)
        """
        nats = rate * _LOG2_E
        about = cost * nats
        far = abs(about) >= _FAR
        exponent, fraction = jnp.zeros((), jnp.int32), jnp.zeros((), cost.dtype)
        for a in _halves(jnp.where(far, 0.0, cost)):
            for b in _halves(nats):
                product = a * b
                whole = jnp.round(product)
                exponent = exponent + jnp.where(jnp.isnan(whole), 0.0, whole).astype(jnp.int32)
                fraction = fraction + (product - whole)
        exponent = jnp.where(far, jnp.where(about > 0, _FAR, -_FAR), exponent)
        return Heights(jnp.exp2(-fraction) * piece.mass_fraction(decay), exponent)

    def log2_weight(self, width: jax.Array) -> jax.Array:
        """The binary logarithm of a weight, rounded to a whole number near it, int32; far below all others for width 0."""
        return jnp.where(width > 0, _exponent_of(width) - self.exponent, -2 * _FAR)

    def weight(self, width: jax.Array, base: jax.Array) -> jax.Array:
        """The weights, counted from ``2**base`` (int32): below 2^-126 of it they vanish."""
        power = _power_of_two(-self.exponent - base, width.dtype)
        # abs() changes nothing, and keeps a compiler from fusing this product with a later sum into one rounding.
        return jnp.abs(width * self.mantissa * power)


def _halves(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Split a float into two of half as many digits, so that products of halves are exact."""
    bits = (jnp.finfo(x.dtype).nmant + 2) // 2
    kind = _integer_of(x.dtype)
    top = jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(x, kind) & np.array(-(1 << bits), kind), x.dtype)
    return top, x - top


def _exponent_of(x: jax.Array) -> jax.Array:
    """floor(log2(x)) of a positive float, int32."""
    info, kind = jnp.finfo(x.dtype), _integer_of(x.dtype)
    biased = jax.lax.bitcast_convert_type(x, kind) >> np.array(info.nmant, kind)
    return biased.astype(jnp.int32) - np.int32(info.maxexp - 1)


def _power_of_two(n: jax.Array, dtype: Any) -> jax.Array:
    """2**n as a float, 0 when it would be below the smallest normal number."""
    info, kind = jnp.finfo(dtype), _integer_of(dtype)
    biased = jnp.clip(n + np.int32(info.maxexp - 1), 0, 2 * info.maxexp - 2).astype(kind)
    return jax.lax.bitcast_convert_type(biased << np.array(info.nmant, kind), dtype)


def _integer_of(dtype: Any) -> Any:
    return np.dtype(f"int{8 * jnp.dtype(dtype).itemsize}")
