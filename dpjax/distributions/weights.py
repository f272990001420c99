"""The mass of a piece relative to its row: width * exp(-rate * cost) * phi0(decay), for every cost and every epsilon.

Costs and the rate are usually shared by all rows, so exponentials are taken once per cost (``Heights``) and not once per row and
piece. A row with ties can have all its mass thousands of nats below cost 0, where a float32 exponential is 0. A height is therefore
kept as mantissa * 2^-exponent, and counted from the lowest cost of each row when it meets the widths: one product with a power of
two, which is exact. Exponents are integers modulo 2^32: a difference of two of them is right as long as it is below 2^29, and
pieces that are further above the lowest cost have no mass.
"""

from math import log
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.distributions import truncated_exponential as piece
from dpjax.numerics.elementwise import where
from dpjax.numerics.powers import exponent_of, log2_floor, power_of_two

_LOG2_E = 1.4426950408889634
_FAR = 2.0**29
_NEVER = -(2.0**30)  # the binary logarithm of no weight


class Heights(NamedTuple):
    """exp(-rate * cost) * phi0(decay) = mantissa * 2^-exponent, on the last axis.

    Attributes:
        mantissa: float, at most 2.
        exponent: int32, modulo 2^32.
        cost: the cost at the low-cost end.
        bits: rate * log2(e), 1 or as many as the batch on the last axis.
    """

    mantissa: jax.Array
    exponent: jax.Array
    cost: jax.Array
    bits: jax.Array

    @staticmethod
    def of(cost: jax.Array, decay: jax.Array, rate: jax.Array) -> "Heights":
        """Compute heights with an error of a few units in the last place; all three broadcast on the last axis."""
        # A larger rate decides no other piece, and its products would overflow.
        bits = jnp.minimum(rate, 2.0**60) * _LOG2_E
        exponent, fraction = exponent_of(cost, bits)
        return Heights(jnp.exp2(-fraction) * piece.mass_fraction(decay), exponent, cost, bits)

    def from_zero(self) -> jax.Array:
        """The heights themselves, where they are in the range of the dtype; otherwise 0 or large."""
        # A division, not a product: XLA counts it as expensive, and so makes this table once and not once a row.
        height = self.mantissa / power_of_two(self.exponent, self.mantissa.dtype)
        power, most = self.cost * self.bits, float(jnp.finfo(height.dtype).maxexp)
        # A NaN stays visible; what is too large makes the sum of the row too large, and is weighed again.
        return where(power >= most, 0.0, where(power <= -most, float(jnp.finfo(height.dtype).max), height))

    def weight(self, width: jax.Array, base: "Base") -> jax.Array:
        """The weights of pieces of these widths, relative to the base of their row."""
        power = power_of_two(base.exponent - self.exponent, width.dtype)
        nothing = self._beyond(base.cost) & ~jnp.isnan(width)  # a NaN stays visible
        # abs() changes nothing, and keeps a compiler from fusing this product with a later sum into one rounding.
        return where(nothing, 0.0, jnp.abs(width * power * self.mantissa))

    def base(self, width: jax.Array) -> "Base":
        """The base of rows of these widths: the lowest cost that has mass, and the power of two of the heaviest weight."""
        width, cost = jax.lax.stop_gradient((width, self.cost))
        lowest = jnp.min(where(width > 0, cost, jnp.inf), axis=-1, keepdims=True, initial=jnp.inf)
        lowest = where(jnp.isinf(lowest), 0.0, lowest)
        exponent, fraction = exponent_of(lowest, self.bits)
        here = (width > 0) & ~jax.lax.stop_gradient(self)._beyond(lowest)
        # As floats, for which XLA has a ready reduction: from the lowest cost that has mass, the heaviest power is small.
        powers = where(here, (log2_floor(width) + (exponent - self.exponent)).astype(width.dtype), _NEVER)
        heaviest = jnp.max(powers, axis=-1, keepdims=True, initial=_NEVER)
        return Base(lowest, exponent - heaviest.astype(jnp.int32), log(2) * (fraction + heaviest))

    def _beyond(self, cost: jax.Array) -> jax.Array:
        return (self.cost - cost) * self.bits >= _FAR  # a NaN is not: it stays visible


class Base(NamedTuple):
    """What the weights of a row are relative to, each ``(..., 1)``.

    Attributes:
        cost: 0, or the lowest cost that has mass in the row.
        exponent: int32; weights are multiplied by 2^exponent, modulo 2^32 as in ``Heights``.
        log_unit: the logarithm of what a relative weight of 1 stands for, counted from exp(-rate * cost).
    """

    cost: jax.Array
    exponent: jax.Array
    log_unit: jax.Array

    @staticmethod
    def zero(shape: tuple[int, ...], dtype: Any) -> "Base":
        """Count from cost 0."""
        return Base(jnp.zeros(shape, dtype), jnp.zeros(shape, jnp.int32), jnp.zeros(shape, dtype))
