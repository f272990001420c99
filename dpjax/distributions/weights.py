"""The mass of a piece relative to its row: width * exp(-rate * cost) * phi0(decay), for any cost.

Costs and the rate are usually shared by all rows, so exponentials are computed once per cost
(``Heights``) and not once per row and piece. A row with ties can have all its mass thousands of
nats below cost 0, where a float32 exponential is 0. A height is therefore stored as mantissa *
2^-exponent and taken relative to the lowest cost of each row when it is multiplied by the widths:
by a power of two, which is exact. Exponents are integers modulo 2^32: a difference of two of them
is correct below 2^29, and pieces further above the lowest cost have no mass.
"""

from __future__ import annotations

from math import log
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.distributions import truncated_exponential as piece
from dpjax.numerics.elementwise import where
from dpjax.numerics.powers import exponent_of, log2_floor, power_of_two

_LOG2_E = 1.4426950408889634
_FAR = 2.0**29
_NEVER = -(2.0**30)  # in place of the binary logarithm of 0


class Heights(NamedTuple):
    """exp(-rate * cost) * phi0(decay) = mantissa * 2^-exponent, on the last axis.

    Attributes:
        mantissa: float, at most 2.
        exponent: int32, modulo 2^32.
        cost: the cost at the low-cost end.
        bits: rate * log2(e), with a last axis of size 1 or of the batch.
    """

    mantissa: jax.Array
    exponent: jax.Array
    cost: jax.Array
    bits: jax.Array

    @staticmethod
    def of(cost: jax.Array, decay: jax.Array, rate: jax.Array) -> Heights:
        """Compute heights to a few units in the last place; arguments broadcast."""
        # Larger rates give the same result, but products would overflow.
        bits = jnp.minimum(rate, 2.0**60) * _LOG2_E
        exponent, fraction = exponent_of(cost, bits)
        return Heights(jnp.exp2(-fraction) * piece.mass_fraction(decay), exponent, cost, bits)

    def from_zero(self) -> jax.Array:
        """Return the heights; 0 or a large value where they are out of the range of the dtype."""
        # A division: XLA considers it expensive, and so computes this table once rather than once
        # per row.
        height = self.mantissa / power_of_two(self.exponent, self.mantissa.dtype)
        power, most = self.cost * self.bits, float(jnp.finfo(height.dtype).maxexp)
        # A NaN is kept; too large heights make the sum of the row too large, and it is computed
        # again.
        return where(
            power >= most, 0.0, where(power <= -most, float(jnp.finfo(height.dtype).max), height)
        )

    def weight(self, width: jax.Array, base: Base) -> jax.Array:
        """Return the weights of pieces of these widths, relative to the base of their row."""
        power = power_of_two(base.exponent - self.exponent, width.dtype)
        nothing = self._beyond(base.cost) & ~jnp.isnan(width)  # a NaN is kept
        # abs() changes no value, but keeps the product from being fused into a later sum.
        return where(nothing, 0.0, jnp.abs(width * power * self.mantissa))

    def base(self, width: jax.Array) -> Base:
        """Return the base of rows of these widths.

        It is the lowest cost that has mass and the power of two of the largest weight.
        """
        width, cost = jax.lax.stop_gradient((width, self.cost))
        lowest = jnp.min(where(width > 0, cost, jnp.inf), axis=-1, keepdims=True, initial=jnp.inf)
        lowest = where(jnp.isinf(lowest), 0.0, lowest)
        exponent, fraction = exponent_of(lowest, self.bits)
        here = (width > 0) & ~jax.lax.stop_gradient(self)._beyond(lowest)
        # As floats, for which XLA has a fast reduction. Relative to the lowest cost, the power is
        # small.
        powers = where(
            here, (log2_floor(width) + (exponent - self.exponent)).astype(width.dtype), _NEVER
        )
        heaviest = jnp.max(powers, axis=-1, keepdims=True, initial=_NEVER)
        return Base(lowest, exponent - heaviest.astype(jnp.int32), log(2) * (fraction + heaviest))

    def _beyond(self, cost: jax.Array) -> jax.Array:
        return (self.cost - cost) * self.bits >= _FAR  # false for a NaN, which is kept


class Base(NamedTuple):
    """The reference of the weights of a row, each field ``(..., 1)``.

    Attributes:
        cost: 0, or the lowest cost that has mass in the row.
        exponent: int32; weights are multiplied by 2^exponent, modulo 2^32 as in ``Heights``.
        log_unit: the log of the weight that a relative weight of 1 stands for, plus rate * cost.
    """

    cost: jax.Array
    exponent: jax.Array
    log_unit: jax.Array

    @staticmethod
    def zero(shape: tuple[int, ...], dtype: Any) -> Base:
        """Count from cost 0."""
        return Base(jnp.zeros(shape, dtype), jnp.zeros(shape, jnp.int32), jnp.zeros(shape, dtype))
