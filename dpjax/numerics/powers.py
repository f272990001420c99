"""Exponents of floats, and products as a power of two times a fraction."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics.elementwise import clip, where


@jax.jit
def exponent_of(cost: jax.Array, bits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Split ``cost * bits`` into an integer modulo 2^32 (int32) and a fraction within +-2.

    Each factor is split into two halves, whose products are exact: if the product were rounded, a
    cost of 50,000 would have an error of several percent.
    """
    exponent, fraction = jnp.zeros((), jnp.int32), jnp.zeros((), cost.dtype)
    for a in _halves(cost):
        for b in _halves(bits):
            product = a * b
            integer = jax.lax.round(product, jax.lax.RoundingMethod.TO_NEAREST_EVEN)
            exponent = exponent + _modulo(integer)
            fraction = fraction + (product - integer)
    return exponent, fraction


def _modulo(integer: jax.Array) -> jax.Array:
    """Return an integer of float dtype modulo 2^32, as int32.

    An arbitrary number if it is not finite.
    """
    turns = jax.lax.round(integer * 2.0**-32, jax.lax.RoundingMethod.TO_NEAREST_EVEN)
    rest = integer - turns * 2.0**32  # exact
    return where(jnp.abs(rest) < 2.0**31, rest, -(2.0**31)).astype(jnp.int32)


def _halves(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Split a float into two of half as many digits, so that products of halves are exact."""
    bits = (jnp.finfo(x.dtype).nmant + 2) // 2
    kind = _integer_of(x.dtype)
    top = jax.lax.bitcast_convert_type(
        jax.lax.bitcast_convert_type(x, kind) & np.array(-(1 << bits), kind), x.dtype
    )
    return top, x - top


def log2_floor(x: jax.Array) -> jax.Array:
    """Return floor(log2(x)) of a positive float, int32.

    For 0 a number below that of every float.
    """
    info, kind = jnp.finfo(x.dtype), _integer_of(x.dtype)
    biased = jax.lax.bitcast_convert_type(x, kind) >> np.array(info.nmant, kind)
    return biased.astype(jnp.int32) - np.int32(info.maxexp - 1)


def power_of_two(n: jax.Array, dtype: Any) -> jax.Array:
    """Return 2**n as a float; 0 if it is below the smallest normal number."""
    info, kind = jnp.finfo(dtype), _integer_of(dtype)
    biased = clip(n + np.int32(info.maxexp - 1), 0, 2 * info.maxexp - 2).astype(kind)
    return jax.lax.bitcast_convert_type(biased << np.array(info.nmant, kind), dtype)


def _integer_of(dtype: Any) -> Any:
    return np.dtype(f"int{8 * jnp.dtype(dtype).itemsize}")
