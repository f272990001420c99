"""How far answers with Laplace noise under a metric can be from the truth: Theorems 2 and 11 of Kamalaruban et al. (2020).

For G x + Lap(c) as an answer to Q x (G = c * Q' in the paper), over all histograms x of n records; and for the mean of c * q(u') as
an answer to the mean of q(u). The factor 2 of the squared errors is not needed, since the noise has mean 0: E||b + Y||^2 =
||b||^2 + E||Y||^2. And the norms over all elements of Theorem 2 can be those of the worst element, as in Theorem 11: a norm of
n (G - Q) p over distributions p of the records is convex in p, and largest at one element. :func:`exact_squared_error` has both.

Arguments of all functions, public numbers; the result has the broadcast batch shape:

    queries, values    Q, or q(u): float (..., K, N)
    scales             c: float (..., K), not negative
    answered           G, or c * q(u'): float (..., K, N); Q itself if left out
    num_records        n, positive (...)
    failure            above 0 and at most 1 (...)
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.bounds.tail import TailBound

Norm = Literal["squared", "absolute"]


def theorem_2_squared(
    queries: ArrayLike, scales: ArrayLike, *, answered: ArrayLike | None = None, num_records: ArrayLike
) -> jax.Array:
    """Bound E||Z - Q x||_2^2 by 2 n^2 ||G - Q||_2^2 + 4 ||c||_2^2, with the entrywise norm: Theorem 2 (1).

    >>> float(theorem_2_squared([[0.0, 1.0]], [2.0], num_records=10.0))
    16.0
    """
    bias, c, n = _parts(queries, scales, answered, num_records)
    return 2 * jnp.square(n) * jnp.sum(jnp.square(bias), axis=(-2, -1)) + 4 * jnp.sum(jnp.square(c), axis=-1)


def exact_squared_error(
    queries: ArrayLike, scales: ArrayLike, *, answered: ArrayLike | None = None, num_records: ArrayLike
) -> jax.Array:
    """Return the largest E||Z - Q x||_2^2 over all x with n records: n^2 max_j ||G_j - Q_j||_2^2 + 2 ||c||_2^2.

    It sharpens Theorem 2 (1), and is reached where all records are one element.

    >>> float(exact_squared_error([[0.0, 1.0]], [2.0], num_records=10.0))
    8.0
    """
    bias, c, n = _parts(queries, scales, answered, num_records)
    return jnp.square(n) * _worst(jnp.square(bias)) + 2 * jnp.sum(jnp.square(c), axis=-1)


def theorem_2_absolute(
    queries: ArrayLike, scales: ArrayLike, *, answered: ArrayLike | None = None, num_records: ArrayLike
) -> jax.Array:
    """Bound E||Z - Q x||_1 by n ||G - Q||_1 + ||c||_1, with the entrywise norm: Theorem 2 (2) at p = 1.

    >>> float(theorem_2_absolute([[0.0, 1.0]], [2.0], answered=[[0.0, 0.5]], num_records=10.0))
    7.0
    """
    bias, c, n = _parts(queries, scales, answered, num_records)
    return n * jnp.sum(jnp.abs(bias), axis=(-2, -1)) + jnp.sum(c, axis=-1)


def theorem_2_maximum(
    queries: ArrayLike, scales: ArrayLike, *, answered: ArrayLike | None = None, num_records: ArrayLike, failure: ArrayLike
) -> TailBound:
    """Bound the largest error: above n max |G - Q| + ln(K/failure) max c with probability at most ``failure``: Theorem 2 (3).

    >>> bound = theorem_2_maximum([[0.0, 1.0]], [2.0], num_records=10.0, failure=0.01)
    >>> round(float(bound.threshold), 4)
    9.2103
    """
    bias, c, n = _parts(queries, scales, answered, num_records)
    chance = checks.proportion("failure", failure, c.dtype)
    threshold = n * jnp.max(jnp.abs(bias), axis=(-2, -1)) + jnp.log(c.shape[-1] / chance) * jnp.max(c, axis=-1)
    return TailBound(threshold, jnp.broadcast_to(chance, threshold.shape))


def theorem_11(values: ArrayLike, scales: ArrayLike, *, answered: ArrayLike, norm: Norm = "squared") -> jax.Array:
    """Bound the error of a mean of c * q(u') as an answer to the mean of q(u), by that of the worst element u.

        "squared"    2 (max_u ||c * q(u') - q(u)||_2^2 + 2 ||c||_2^2)
        "absolute"   max_u ||c * q(u') - q(u)||_1 + ||c||_1

    Theorem 11 (1) and (2) at p = 1. As in Theorem 2, half of the squared bound holds too.

    >>> float(theorem_11([[0.0, 1.0]], [0.1], answered=[[0.0, 0.75]], norm="absolute"))
    0.3499999940395355
    """
    if checks.one_of("norm", norm, ("squared", "absolute")) == "squared":
        return 2 * exact_squared_error(values, scales, answered=answered, num_records=1.0)
    bias, c, _ = _parts(values, scales, answered, 1.0)
    return _worst(jnp.abs(bias)) + jnp.sum(c, axis=-1)


def theorem_11_maximum(values: ArrayLike, scales: ArrayLike, *, answered: ArrayLike, failure: ArrayLike) -> TailBound:
    """Bound the largest error of K means: above max_u ||c * q(u') - q(u)||_inf + ln(K/failure) max c with probability ``failure``.

    Theorem 11 (3).

    >>> round(float(theorem_11_maximum([[0.0, 1.0]], [0.1], answered=[[0.0, 0.75]], failure=0.05).threshold), 4)
    0.5496
    """
    return theorem_2_maximum(values, scales, answered=answered, num_records=1.0, failure=failure)


def _worst(errors: jax.Array) -> jax.Array:
    """The largest sum over the queries, of all elements."""
    return jnp.max(jnp.sum(errors, axis=-2), axis=-1)


def _parts(
    queries: ArrayLike, scales: ArrayLike, answered: ArrayLike | None, num_records: ArrayLike
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """G - Q, c and n, of one dtype."""
    dtype = checks.float_array("queries", queries).dtype
    asked = checks.finite("queries", queries, dtype)
    given = asked if answered is None else checks.finite("answered", answered, dtype)
    c = checks.nonnegative("scales", scales, dtype)
    if asked.ndim < 2 or given.shape[-2:] != asked.shape[-2:] or c.shape[-1:] != asked.shape[-2:-1]:
        raise ValueError(
            f"queries (..., K, N) need K scales and as many answered values, got {asked.shape}, {c.shape} and {given.shape}."
        )
    return given - asked, c, checks.positive("num_records", num_records, dtype)
