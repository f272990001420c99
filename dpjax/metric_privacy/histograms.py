"""Histograms of private data, and costs of scores that are computed from them.

The scale of a mechanism is fitted to how far one record moves a score. Rounding a sum of n terms
moves it by about n eps max |q|, so scores are computed in float64, and only their distances from
the best are rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks.numbers import Interval
from dpjax.metric_privacy.fitting import LipschitzQueries
from dpjax.numerics.arrays import concatenate
from dpjax.numerics.float64 import in_float64

MOST_RECORDS = 2.0**40


def counts_of(x: ArrayLike, size: int) -> jax.Array:
    """Return counts ``(..., size)`` as floats, from 0 to 2^40; those that are not finite are 0."""
    counts = checks.float_array("x", x)
    if counts.shape[-1:] != (size,):
        raise ValueError(f"x must count {size} elements on its last axis, got {counts.shape}.")
    return jnp.where(counts < jnp.inf, jnp.clip(counts, 0.0, MOST_RECORDS), 0.0)


def whole_histogram(
    x: ArrayLike, queries: LipschitzQueries, public_n: ArrayLike | None
) -> tuple[jax.Array, jax.Array]:
    """Return counts of all elements including the null record, and their public sum.

    Their shapes are ``(..., N)`` and ``(...)``. The number of null records, ``public_n`` minus
    the counts, may be negative and is not clipped: one more record is always one null record less.
    """
    checks.instance("queries", queries, LipschitzQueries, "lipschitz_queries(queries, metric)")
    hidden = queries.neighbors == "add_remove"
    counts = counts_of(x, queries.size - hidden)
    if queries.values.dtype.itemsize > counts.dtype.itemsize:
        raise TypeError(f"x must have the dtype of the queries, {queries.values.dtype}.")
    if public_n is None:
        if hidden:
            raise ValueError(
                "public_n must be given under add_remove neighbors, where n is private: a public "
                "total, such as an upper bound on n."
            )
        return counts, in_float64(partial(jnp.sum, axis=-1), counts)
    most = 2 / float(jnp.finfo(counts.dtype).eps)  # integers up to there are exact
    held = Interval(f"positive and at most {most:.0f}", 0, most, "(]")
    public = held.array("public_n", public_n, counts.dtype)
    if hidden:
        null = in_float64(lambda counts, n: n - jnp.sum(counts, axis=-1), counts, public)
        counts = concatenate(counts, null[..., None])
    return counts, public


def moderate(name: str, values: np.ndarray, dtype: Any) -> None:
    """Raise ``ValueError`` for public values whose products with counts may overflow."""
    if np.abs(values).max() > jnp.finfo(dtype).max * 2.0**-62:
        raise ValueError(f"{name} must have values below 1e19 in {dtype}: rescale them.")


@partial(jax.jit, static_argnums=0)
def costs(scores: Callable[..., jax.Array], *arrays: Any) -> jax.Array:
    """Return the distances from the highest of scores ``(..., R)``; ``inf`` for ``-inf``.

    ``scores(*arrays)`` is computed in float64.
    """
    most = float(jnp.finfo(arrays[0].dtype).max)

    def below(*arrays: Any) -> jax.Array:
        found = scores(*arrays)
        distance = jnp.minimum(jnp.max(found, axis=-1, keepdims=True) - found, most)
        return jnp.where(found == -jnp.inf, jnp.inf, distance)

    return in_float64(below, *arrays)
