"""How far answers with Laplace noise under a metric can be from the truth: Theorems 2 and 11 of Kamalaruban et al. (2020).

For G x + Lap(c) as an answer to Q x (G = c * Q' in the paper), over all histograms x of n records; and for the mean of c * q(u') as
an answer to the mean of q(u). The factor 2 of the squared errors is not needed, since the noise has mean 0: E||b + Y||^2 =
||b||^2 + E||Y||^2. And the norms over all elements of Theorem 2 can be those of the worst element, as in Theorem 11: a norm of
n (G - Q) p over distributions p of the records is convex in p, and largest at one element. :func:`exact_squared_error` has both.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.numerics.batching import align

Norm = Literal["squared", "absolute"]


class TailBound(NamedTuple):
    """A bound of the largest error of the K answers: P(max |Z - truth| > threshold) <= probability.

    Attributes:
        threshold: float ``(...)``.
        probability: float ``(...)``.
    """

    threshold: jax.Array
    probability: jax.Array


def theorem_2_squared(
    queries: ArrayLike, scales: ArrayLike, *, answered: ArrayLike | None = None, num_records: ArrayLike
) -> jax.Array:
    """Bound E||Z - Q x||_2^2 by 2 n^2 ||G - Q||_2^2 + 4 ||c||_2^2, with the entrywise norm.

    Args:
        queries: float ``(..., K, N)``: Q.
        scales: float ``(..., K)``: c.
        answered: float ``(..., K, N)``: G; Q itself if left out.
        num_records: positive ``(...)``: n.

    Returns:
        Float of the broadcast shape.

    Raises:
        ValueError: shapes that do not fit; a bad number of records, or negative scales, as Python or NumPy values (as JAX arrays:
            NaN).

    Privacy:
        None: a number for analysis, of public parameters.

    References:
        Kamalaruban et al. (2020), Theorem 2 (1).

    >>> float(theorem_2_squared([[0.0, 1.0]], [2.0], num_records=10.0))
    16.0
    """
    bias, c, n = _parts(queries, scales, answered, num_records)
    return 2 * jnp.square(n) * jnp.sum(jnp.square(bias), axis=(-2, -1)) + 4 * jnp.sum(jnp.square(c), axis=-1)


def exact_squared_error(
    queries: ArrayLike, scales: ArrayLike, *, answered: ArrayLike | None = None, num_records: ArrayLike
) -> jax.Array:
    """Return the largest E||Z - Q x||_2^2 over all x with n records: n^2 max_j ||G_j - Q_j||_2^2 + 2 ||c||_2^2.

    Args:
        queries: as :func:`theorem_2_squared`.
        scales: the same.
        answered: the same.
        num_records: the same.

    Returns:
        Float of the broadcast shape.

    Raises:
        ValueError: as :func:`theorem_2_squared`.

    Privacy:
        None: a number for analysis, of public parameters.

    References:
        Sharpens Kamalaruban et al. (2020), Theorem 2 (1); reached where all records are one element.

    >>> float(exact_squared_error([[0.0, 1.0]], [2.0], num_records=10.0))
    8.0
    """
    bias, c, n = _parts(queries, scales, answered, num_records)
    worst = jnp.max(jnp.sum(jnp.square(bias), axis=-2), axis=-1)
    return jnp.square(n) * worst + 2 * jnp.sum(jnp.square(c), axis=-1)


def theorem_2_absolute(
    queries: ArrayLike, scales: ArrayLike, *, answered: ArrayLike | None = None, num_records: ArrayLike
) -> jax.Array:
    """Bound E||Z - Q x||_1 by n ||G - Q||_1 + ||c||_1, with the entrywise norm.

    Args:
        queries: as :func:`theorem_2_squared`.
        scales: the same.
        answered: the same.
        num_records: the same.

    Returns:
        Float of the broadcast shape.

    Raises:
        ValueError: as :func:`theorem_2_squared`.

    Privacy:
        None: a number for analysis, of public parameters.

    References:
        Kamalaruban et al. (2020), Theorem 2 (2) at p = 1.

    >>> float(theorem_2_absolute([[0.0, 1.0]], [2.0], answered=[[0.0, 0.5]], num_records=10.0))
    7.0
    """
    bias, c, n = _parts(queries, scales, answered, num_records)
    return n * jnp.sum(jnp.abs(bias), axis=(-2, -1)) + jnp.sum(c, axis=-1)


def theorem_2_maximum(
    queries: ArrayLike, scales: ArrayLike, *, answered: ArrayLike | None = None, num_records: ArrayLike, failure: ArrayLike
) -> TailBound:
    """Bound the largest error: above n max |G - Q| + ln(K/failure) max c with probability at most ``failure``.

    Args:
        queries: as :func:`theorem_2_squared`.
        scales: the same.
        answered: the same.
        num_records: the same.
        failure: above 0 and at most 1 ``(...)``.

    Returns:
        :class:`TailBound`.

    Raises:
        ValueError: as :func:`theorem_2_squared`, or a bad ``failure``.

    Privacy:
        None: a number for analysis, of public parameters.

    References:
        Kamalaruban et al. (2020), Theorem 2 (3).

    >>> bound = theorem_2_maximum([[0.0, 1.0]], [2.0], num_records=10.0, failure=0.01)
    >>> round(float(bound.threshold), 4)
    9.2103
    """
    bias, c, n = _parts(queries, scales, answered, num_records)
    return _tail(n * jnp.max(jnp.abs(bias), axis=(-2, -1)), c, failure)


def theorem_11(values: ArrayLike, scales: ArrayLike, *, answered: ArrayLike, norm: Norm = "squared") -> jax.Array:
    """Bound the error of a mean of c * q(u') as an answer to the mean of q(u), by that of the worst element u.

        "squared"    2 (max_u ||c * q(u') - q(u)||_2^2 + 2 ||c||_2^2)
        "absolute"   max_u ||c * q(u') - q(u)||_1 + ||c||_1

    Args:
        values: float ``(..., K, N)``: q(u).
        scales: float ``(..., K)``: c.
        answered: float ``(..., K, N)``: c * q(u').
        norm: static, one of these two.

    Returns:
        Float of the broadcast shape. As in Theorem 2, half of the squared bound holds too.

    Raises:
        ValueError: as :func:`theorem_2_squared`, or an unknown norm.

    Privacy:
        None: a number for analysis, of public parameters.

    References:
        Kamalaruban et al. (2020), Theorem 11 (1) and (2) at p = 1.

    >>> float(theorem_11([[0.0, 1.0]], [0.1], answered=[[0.0, 0.75]], norm="absolute"))
    0.3499999940395355
    """
    checks.one_of("norm", norm, ("squared", "absolute"))
    bias, c, _ = _parts(values, scales, answered, 1.0)
    if norm == "squared":
        return 2 * (jnp.max(jnp.sum(jnp.square(bias), axis=-2), axis=-1) + 2 * jnp.sum(jnp.square(c), axis=-1))
    return jnp.max(jnp.sum(jnp.abs(bias), axis=-2), axis=-1) + jnp.sum(c, axis=-1)


def theorem_11_maximum(values: ArrayLike, scales: ArrayLike, *, answered: ArrayLike, failure: ArrayLike) -> TailBound:
    """Bound the largest error of K means: above max_u ||c * q(u') - q(u)||_inf + ln(K/failure) max c with probability ``failure``.

    Args:
        values: as :func:`theorem_11`.
        scales: the same.
        answered: the same.
        failure: above 0 and at most 1 ``(...)``.

    Returns:
        :class:`TailBound`.

    Raises:
        ValueError: as :func:`theorem_2_maximum`.

    Privacy:
        None: a number for analysis, of public parameters.

    References:
        Kamalaruban et al. (2020), Theorem 11 (3).

    >>> round(float(theorem_11_maximum([[0.0, 1.0]], [0.1], answered=[[0.0, 0.75]], failure=0.05).threshold), 4)
    0.5496
    """
    bias, c, _ = _parts(values, scales, answered, 1.0)
    return _tail(jnp.max(jnp.abs(bias), axis=(-2, -1)), c, failure)


def _tail(bias: jax.Array, c: jax.Array, failure: ArrayLike) -> TailBound:
    chance = checks.proportion("failure", failure, c.dtype)
    noise = jnp.max(c, axis=-1)
    rank = max(chance.ndim, noise.ndim, bias.ndim)
    chance, noise, bias = (align(a, rank) for a in (chance, noise, bias))
    threshold = bias + jnp.log(c.shape[-1] / chance) * noise
    return TailBound(threshold, jnp.broadcast_to(chance, threshold.shape))


def _parts(
    queries: ArrayLike, scales: ArrayLike, answered: ArrayLike | None, num_records: ArrayLike
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """G - Q, c and n, of one dtype and aligned batch axes."""
    dtype = checks.float_array("queries", queries).dtype
    asked = checks.finite("queries", queries, dtype)
    given = asked if answered is None else checks.finite("answered", answered, dtype)
    c = checks.nonnegative("scales", scales, dtype)
    n = checks.positive("num_records", num_records, dtype)
    if asked.ndim < 2 or c.ndim < 1 or given.shape[-2:] != asked.shape[-2:] or c.shape[-1] != asked.shape[-2]:
        raise ValueError(
            f"queries (..., K, N) need K scales and as many answered values, got {asked.shape}, {c.shape} and {given.shape}."
        )
    rank = max(asked.ndim - 2, given.ndim - 2, c.ndim - 1, n.ndim)
    return align(given, rank + 2) - align(asked, rank + 2), align(c, rank + 1), align(n, rank)
