"""Histograms and answers of linear queries, without rounding that would distinguish neighbors.

The scale of a mechanism is fitted to how far one record moves an answer. Rounding a sum of n terms
moves it by about n eps max |q|: by more, if n is large or query values are large compared to their
differences. So counts and answers are in float64 up to the draw. An
answer is a sum over the gaps of its sorted values,

    <q, x> = q_(N) n - sum over k < N of (q_(k+1) - q_(k)) x_(1..k)

with x_(1..k) the records of the k elements of least value.

The sums of counts are exact, and a gap of 0 removes its sum: a record that moves between elements
of equal value changes no bit of the answer, as answers without noise require.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.numerics.arrays import broadcast_rows, concatenate, take
from dpjax.numerics.float64 import Exact, exactly, in_float64, split

MOST_RECORDS = 2.0**40
_CELLS = 2**22  # pairs of a query and an element, over the batch, processed at a time


def exact_numbers(name: str, value: ArrayLike, dtype: Any) -> Exact:
    """Return data without rounding, in the wider of their dtype and ``dtype``.

    Integers are exact up to 2^48 in float32.
    """
    rounded = checks.float_array(name, value)
    dtype = jnp.promote_types(rounded.dtype, dtype)
    if not isinstance(value, jax.Array):
        with np.errstate(over="ignore", invalid="ignore"):
            exact = checks.host_floats(name, value).astype(np.float64)
        return split(exact, dtype)
    if not jnp.issubdtype(value.dtype, jnp.integer):
        return Exact(rounded.astype(dtype), jnp.zeros_like(rounded, dtype))
    wide = value.astype(jnp.int32) if value.dtype.itemsize < 4 else value
    parts = (wide >> 12).astype(dtype), (wide & 4095).astype(dtype)
    return exactly(lambda high, low: high * 4096 + low, *parts)


def counts_of(x: ArrayLike, dtype: Any, size: int) -> Exact:
    """Return counts ``(..., size)`` without rounding, in the wider of their dtype and ``dtype``.

    A count that is negative, infinite or NaN is 0, and one above 2^40 is 2^40: sums of counts are
    exact up to 2^48 records.
    """
    counts = exact_numbers("x", x, dtype)
    if counts.value.shape[-1:] != (size,):
        raise ValueError(
            f"x must count {size} elements on its last axis, got shape {counts.value.shape}."
        )
    return _clipped(counts)


@jax.jit
def _clipped(counts: Exact) -> Exact:
    def clipped(value: jax.Array, rest: jax.Array) -> jax.Array:
        count = value + rest
        return jnp.where((count > 0) & (count < jnp.inf), jnp.minimum(count, MOST_RECORDS), 0.0)

    return exactly(clipped, *counts)


def _total(value: jax.Array, rest: jax.Array) -> jax.Array:
    return jnp.sum(value + rest, axis=-1)


def whole_histogram(
    x: ArrayLike, size: int, neighbors: str, dtype: Any, public_n: ArrayLike | None
) -> tuple[Exact, jax.Array]:
    """Return counts of all elements including the null record, and their public sum.

    Their shapes are ``(..., size)`` and ``(...)``. The number of null records, ``public_n`` minus
    the counts, may be negative and is not clipped: one more record is always one null record less.
    """
    counts = counts_of(x, dtype, size - (neighbors == "add_remove"))
    if public_n is None:
        if neighbors == "add_remove":
            raise ValueError(
                "public_n must be given under add_remove neighbors, where n is private: a public "
                "total, such as an upper bound on n."
            )
        return counts, in_float64(_total, *counts)
    public = checks.positive("public_n", public_n, counts.value.dtype)
    if neighbors == "add_remove":
        null = exactly(lambda public, *counts: public - _total(*counts), public, *counts)
        counts = Exact(
            *(concatenate(part, rest[..., None]) for part, rest in zip(counts, null, strict=True))
        )
    return counts, public


@jax.jit
def linear_answers(queries: jax.Array, counts: Exact) -> Exact:
    """Return ``<q, x>``, ``(..., K)``, for queries ``(..., K, N)`` and counts ``(..., N)``.

    They have one dtype, and their batches broadcast. The error is about 2^-48 n max |q| in float32.
    The result is NaN for a query whose largest |value| is so large that the answers of some
    datasets would overflow, or so small that differences would underflow: outside 1e-26 to 1e19 in
    float32, and not 0.
    """
    batch = jnp.broadcast_shapes(queries.shape[:-2], counts.value.shape[:-1])
    size = queries.shape[-1]
    most, limits = jnp.max(jnp.abs(queries), axis=-1), jnp.finfo(queries.dtype)
    sound = (most == 0) | (
        (most > float(limits.tiny) * 2.0**40) & (most < float(limits.max) * 2.0**-62)
    )
    queries = jnp.where(sound[..., None], queries, jnp.nan)

    def one(query: jax.Array) -> Exact:
        order = jnp.argsort(query, axis=-1)
        values = jnp.take_along_axis(query, order, axis=-1)
        if prod(query.shape[:-1]) == 1:
            ranked = jax.tree.map(lambda part: part[..., order.reshape(size)], counts)
        else:
            ranked = jax.tree.map(lambda part: take(part, broadcast_rows(order, batch)), counts)
        return exactly(_answer, values, *ranked)

    if prod(batch) == 0:
        return Exact(*2 * [jnp.zeros((*batch, queries.shape[-2]), queries.dtype)])
    at_once = max(1, _CELLS // max(1, prod(batch) * size))
    found = jax.lax.map(
        one, jnp.moveaxis(queries, -2, 0), batch_size=min(at_once, queries.shape[-2])
    )
    return jax.tree.map(
        lambda part: jnp.moveaxis(jnp.broadcast_to(part, (queries.shape[-2], *batch)), 0, -1), found
    )


def _answer(values: jax.Array, counts: jax.Array, rests: jax.Array) -> jax.Array:
    """Return the answer of a query of ascending values."""
    sums = jnp.cumsum(counts + rests, axis=-1)
    below = jnp.sum(jnp.diff(values, axis=-1) * sums[..., :-1], axis=-1)
    return values[..., -1] * sums[..., -1] - below


def below_best(scores: Exact) -> jax.Array:
    """Return the distances of scores ``(..., R)`` from the highest; ``inf`` for ``-inf``.

    They are rounded once, relative to the distance.
    """
    most = float(jnp.finfo(scores.value.dtype).max)

    def below(value: jax.Array, rest: jax.Array) -> jax.Array:
        score = value + rest
        distance = jnp.minimum(jnp.max(score, axis=-1, keepdims=True) - score, most)
        return jnp.where(score == -jnp.inf, jnp.inf, distance)

    return in_float64(below, *scores)


def evaluate(values: jax.Array, histograms: jax.Array) -> jax.Array:
    """Return the rounded answers ``(..., K)`` of queries ``(..., K, N)`` at public histograms."""
    return jnp.matmul(values, histograms[..., None], precision=jax.lax.Precision.HIGHEST)[..., 0]
