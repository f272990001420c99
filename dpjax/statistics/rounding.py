"""Rounded values that interleave between neighbors as the exact ones do.

Corollary 3.1 requires that for neighbors x and x' the value U_l(x) is never beyond U_{l+1}(x').
Exact values that are equal, or closer than their rounding errors, may change order when they are
computed: two values of the variance in the wrong order cost 8 epsilon in float32. So no value is
rounded to a float before it is final, and every level gets a small slack, outwards:

* Let the error of every U_l(x), computed as a DoubleFloat, be at most e, a public number. Then the
  values V_l = U_l + 2 e l are in order: V_l(x) <= U_l(x) + e + 2 e l <= U_{l+1}(x') + e + 2 e l <=
  V_{l+1}(x'), where U in the middle is exact, and V computed with an error of at most e.
* Let the relative error be at most e. Then V_l = U_l (1 + 3 e l) are in order while 3 e l < 1/4:
  the factor between two levels, 1 + 3 e / (1 + 3 e l), is above (1 + e) / (1 - e). Below likewise,
  with 1 - 3 e l, cut at 0.
* Later operations are monotone or the same for all datasets, and preserve the order: rounding to a
  float, the minimum and maximum with public bounds, and the running maximum over levels, since
  max_{j <= l} V_j(x) <= max_{j <= l} V_{j+1}(x').

The errors are multiples of u^2 (2^-48 in float32): at 10^5 levels the slack of a mean is 10^-8 of
its range.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dpjax.numerics.double_float import DoubleFloat, single


def unit(dtype: Any) -> float:
    """Return u^2, the square of half the spacing of floats at 1."""
    return (float(jnp.finfo(dtype).eps) / 2) ** 2


def with_slack(values: DoubleFloat, slack: Any, sign: int) -> jax.Array:
    """Move values outwards and round them to floats."""
    return values.plus(single(sign * slack)).value


def outwards(
    value: jax.Array, beyond: jax.Array, sign: int, low: jax.Array, high: jax.Array
) -> jax.Array:
    """Join f(x) and the values of the other levels, in order and within the bounds."""
    side = jnp.clip(jnp.concatenate([value, beyond], axis=-1), low, high)
    return sign * jax.lax.cummax(sign * side, axis=side.ndim - 1)
