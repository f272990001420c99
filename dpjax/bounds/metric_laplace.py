"""Error bounds of answers with Laplace noise under a metric.

They are Theorems 2 and 11 of Kamalaruban et al. (2020). For Z = G x + Lap(c) as an answer to Q x
(G = c * Q' in the paper), over all histograms x of n records; and for the mean of c * q(u') as an
answer to the mean of q(u). Theorem 2 can be sharpened in two ways, both used by
:func:`exact_squared_error`: the factor 2 of the squared errors is not needed, since the noise has
mean 0; and the norms over all elements can be replaced by those of the worst element, as in Theorem
11, because a norm of n (G - Q) p is convex in the distribution p of the records.

Common arguments, public numbers; the result has the broadcast batch shape:

    queries, values    Q, or q(u): float (..., K, N)
    scales             c: float (..., K), at least 0
    answered           G, or c * q(u'): float (..., K, N); by default Q
    num_records        n, positive (...)
    failure            above 0 and at most 1 (...)
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.bounds.tail import TailBound
from dpjax.numerics.search import bisect

NoiseNorm = Literal["sum", "euclidean", "maximum"]
Norm = Literal["squared", NoiseNorm]
_ORDERS = {"sum": 1, "euclidean": 2, "maximum": np.inf}
_NODES, _PARTS = np.polynomial.legendre.leggauss(20)
_DOUBLINGS = 26  # the number of panels of a quadrature, each twice as wide as the previous one


def theorem_2_squared(
    queries: ArrayLike,
    scales: ArrayLike,
    *,
    answered: ArrayLike | None = None,
    num_records: ArrayLike,
) -> jax.Array:
    """Bound E||Z - Q x||_2^2 by 2 n^2 ||G - Q||_2^2 + 4 ||c||_2^2: Theorem 2 (1).

    >>> float(theorem_2_squared([[0.0, 1.0]], [2.0], num_records=10.0))
    16.0
    """
    bias, c, n = _parts(queries, scales, answered, num_records)
    return 2 * jnp.square(n) * jnp.sum(jnp.square(bias), axis=(-2, -1)) + 4 * jnp.sum(
        jnp.square(c), axis=-1
    )


def exact_squared_error(
    queries: ArrayLike,
    scales: ArrayLike,
    *,
    answered: ArrayLike | None = None,
    num_records: ArrayLike,
) -> jax.Array:
    """Return the largest E||Z - Q x||_2^2 over all x with n records.

    It is n^2 max_j ||G_j - Q_j||_2^2 + 2 ||c||_2^2, which sharpens Theorem 2 (1) and is attained
    where all records are one element.

    >>> float(exact_squared_error([[0.0, 1.0]], [2.0], num_records=10.0))
    8.0
    """
    bias, c, n = _parts(queries, scales, answered, num_records)
    return jnp.square(n) * _worst(jnp.square(bias)) + 2 * jnp.sum(jnp.square(c), axis=-1)


def theorem_2_absolute(
    queries: ArrayLike,
    scales: ArrayLike,
    *,
    answered: ArrayLike | None = None,
    num_records: ArrayLike,
) -> jax.Array:
    """Bound E||Z - Q x||_1 by n ||G - Q||_1 + ||c||_1, with the entrywise norm.

    This is Theorem 2 (2) at p = 1.

    >>> float(theorem_2_absolute([[0.0, 1.0]], [2.0], answered=[[0.0, 0.5]], num_records=10.0))
    7.0
    """
    return theorem_2_norm(queries, scales, answered=answered, num_records=num_records, norm="sum")


def mean_noise(scales: ArrayLike, *, norm: NoiseNorm) -> jax.Array:
    """Return E||Y|| of independent Laplace noise Y of scales c ``(..., K)``.

    The norm is L1, L2 or L-infinity.

        "sum"        ||c||_1
        "euclidean"  2/sqrt(pi) * integral over z > 0 of 1 - prod_k h(z / c_k),
                     h(a) = sqrt(pi) a e^(a^2) erfc(a)
        "maximum"    integral over t > 0 of 1 - prod_k (1 - e^(-t / c_k))

    The integrals have a relative error below 3e-6.

    >>> [
    ...     round(float(mean_noise([2.0, 2.0, 2.0], norm=norm)), 4)
    ...     for norm in ("sum", "euclidean", "maximum")
    ... ]
    [6.0, 4.2103, 3.6667]
    """
    checks.one_of("norm", norm, _ORDERS)
    return _mean_noise(*_shares(scales), norm)


@partial(jax.jit, static_argnames="norm")
def _mean_noise(c: jax.Array, share: jax.Array, largest: jax.Array, norm: NoiseNorm) -> jax.Array:
    if norm == "sum":
        return jnp.sum(c, axis=-1)
    # Panels from 2^-16 to 2^10 times the largest scale, as the densities of small scales are steep
    # near 0.
    ends = np.concatenate([[0.0], 2.0 ** np.arange(-16, _DOUBLINGS - 15)])
    nodes = jnp.asarray(
        ((ends[1:] + ends[:-1]) / 2 + np.diff(ends) / 2 * _NODES[:, None]).ravel(), c.dtype
    )
    parts = jnp.asarray((np.diff(ends) / 2 * _PARTS[:, None]).ravel(), c.dtype)
    ratio = nodes / jnp.where(share > 0, share, 1.0)[..., None]  # (..., K, nodes)
    if norm == "maximum":
        misses = jnp.where(share[..., None] > 0, jnp.log1p(-jnp.exp(-ratio)), 0.0)
        return largest * jnp.sum(parts * -jnp.expm1(jnp.sum(misses, axis=-2)), axis=-1)
    misses = jnp.where(share[..., None] > 0, _log_h(ratio), 0.0)
    beyond = jnp.sum(jnp.square(share), axis=-1) / (
        2 * float(ends[-1])
    )  # the tail of the integral, where 1 - prod h is sum c_k^2 / (2 z^2)
    inside = jnp.sum(parts * -jnp.expm1(jnp.sum(misses, axis=-2)), axis=-1)
    return 2 / np.pi**0.5 * largest * (inside + beyond)


def _log_h(a: jax.Array) -> jax.Array:
    """Return log(sqrt(pi) a e^(a^2) erfc(a)) for a > 0.

    Beyond 2, where 1 - h is small, it uses the continued fraction of erfc.
    """
    near = jnp.minimum(a, 2.0)
    half = 0.5 / jnp.square(jnp.maximum(a, 2.0))
    u = jax.lax.fori_loop(0, 60, lambda i, u: (60 - i) * half / (1 + u), jnp.zeros_like(half))
    return jnp.where(
        a < 2,
        jnp.log(np.pi**0.5 * near * jax.scipy.special.erfc(near)) + jnp.square(near),
        -jnp.log1p(u),
    )


def theorem_2_norm(
    queries: ArrayLike,
    scales: ArrayLike,
    *,
    answered: ArrayLike | None = None,
    num_records: ArrayLike,
    norm: NoiseNorm,
) -> jax.Array:
    """Bound E||Z - Q x||_p by n ||G - Q||_p + E||Y||_p, in the entrywise norm.

    Theorem 2 (2), at p = 1, 2 and infinity.

    >>> answered = {"answered": [[0.0, 0.5]], "num_records": 10.0}
    >>> float(theorem_2_norm([[0.0, 1.0]], [2.0], **answered, norm="maximum").round(4))
    7.0
    """
    bias, c, n = _parts(queries, scales, answered, num_records)
    order = _ORDERS[checks.one_of("norm", norm, _ORDERS)]
    return n * jnp.linalg.norm(bias.reshape(*bias.shape[:-2], -1), ord=order, axis=-1) + mean_noise(
        c, norm=norm
    )


def sum_tail(scales: ArrayLike, *, failure: ArrayLike) -> TailBound:
    """Bound ||Y||_1, a sum of independent exponential variables of means c ``(..., K)``.

    P(||Y||_1 > threshold) <= ``failure`` for the smaller of two thresholds: that of the gamma
    distribution with all scales replaced by the largest, exact for equal scales; and Chernoff's,
    min over s of (log(1/failure) - sum_k log(1 - s c_k)) / s, which is better where a few scales
    dominate.

    >>> bound = sum_tail([1.0, 1.0], failure=0.05)
    >>> round(float(bound.threshold), 3)  # (1 + t) e^-t = 0.05
    4.744
    """
    c, share, largest = _shares(scales)
    chance = checks.proportion("failure", failure, c.dtype)
    chance = jnp.broadcast_to(chance, jnp.broadcast_shapes(largest.shape, chance.shape))
    return TailBound(_sum_threshold(c, share, largest, chance), chance)


@jax.jit
def _sum_threshold(
    c: jax.Array, share: jax.Array, largest: jax.Array, chance: jax.Array
) -> jax.Array:
    k = float(c.shape[-1])
    s = jnp.asarray(
        np.concatenate([np.geomspace(1e-3, 0.5, 100), 1 - np.geomspace(0.5, 1e-3, 100)]), c.dtype
    )
    log_moment = -jnp.sum(jnp.log1p(-s * share[..., None]), axis=-2)  # (..., 200)
    chernoff = jnp.min((log_moment - jnp.log(chance)[..., None]) / s, axis=-1)
    # Chernoff's threshold at s = 1/2, for the smallest positive float
    top = jnp.full_like(chance, 2 * k + 2 * 104)
    _, gamma = bisect(
        lambda t: jax.scipy.special.gammaincc(jnp.asarray(k, c.dtype), t) > chance,
        jnp.zeros_like(top),
        top,
    )
    return largest * jnp.minimum(chernoff, gamma)


def theorem_2_sum(
    queries: ArrayLike,
    scales: ArrayLike,
    *,
    answered: ArrayLike | None = None,
    num_records: ArrayLike,
    failure: ArrayLike,
) -> TailBound:
    """Bound ||Z - Q x||_1 except with probability ``failure``.

    The threshold is n max_j ||G_j - Q_j||_1 plus that of :func:`sum_tail`. This is the accuracy of
    Definition 8 in the L1 norm; Theorem 2 (3) bounds the largest error.

    >>> bound = theorem_2_sum([[0.0, 1.0]], [2.0], num_records=10.0, failure=0.05)
    >>> round(float(bound.threshold), 3)
    5.991
    """
    bias, c, n = _parts(queries, scales, answered, num_records)
    tail = sum_tail(c, failure=failure)
    return TailBound(n * _worst(jnp.abs(bias)) + tail.threshold, tail.probability)


def theorem_2_maximum(
    queries: ArrayLike,
    scales: ArrayLike,
    *,
    answered: ArrayLike | None = None,
    num_records: ArrayLike,
    failure: ArrayLike,
) -> TailBound:
    """Bound the largest error except with probability ``failure``: Theorem 2 (3).

    The threshold is n max |G - Q| + ln(K/failure) max c.

    >>> bound = theorem_2_maximum([[0.0, 1.0]], [2.0], num_records=10.0, failure=0.01)
    >>> round(float(bound.threshold), 4)
    9.2103
    """
    bias, c, n = _parts(queries, scales, answered, num_records)
    chance = checks.proportion("failure", failure, c.dtype)
    threshold = n * jnp.max(jnp.abs(bias), axis=(-2, -1)) + jnp.log(c.shape[-1] / chance) * jnp.max(
        c, axis=-1
    )
    return TailBound(threshold, jnp.broadcast_to(chance, threshold.shape))


def theorem_11(
    values: ArrayLike, scales: ArrayLike, *, answered: ArrayLike, norm: Norm = "squared"
) -> jax.Array:
    """Bound the expected error of a mean of c * q(u') as an answer to the mean of q(u).

    The bound is that of the worst element u.

        "squared"                       2 (max_u ||c * q(u') - q(u)||_2^2 + 2 ||c||_2^2)
        "sum", "euclidean", "maximum"   max_u ||c * q(u') - q(u)||_p + E||Y||_p,
                                        p = 1, 2 and infinity: see :func:`mean_noise`

    Theorem 11 (1) and (2); half of the squared bound holds too.

    >>> round(float(theorem_11([[0.0, 1.0]], [0.1], answered=[[0.0, 0.75]], norm="sum")), 4)
    0.35
    """
    checks.one_of("norm", norm, ("squared", *_ORDERS))
    if norm == "squared":
        return 2 * exact_squared_error(values, scales, answered=answered, num_records=1.0)
    bias, c, _ = _parts(values, scales, answered, 1.0)
    return jnp.max(jnp.linalg.norm(bias, ord=_ORDERS[norm], axis=-2), axis=-1) + mean_noise(
        c, norm=norm
    )


def theorem_11_maximum(
    values: ArrayLike, scales: ArrayLike, *, answered: ArrayLike, failure: ArrayLike
) -> TailBound:
    """Bound the largest error of K means except with probability ``failure``: Theorem 11 (3).

    The threshold is max_u ||c * q(u') - q(u)||_inf + ln(K/failure) max c.

    >>> bound = theorem_11_maximum([[0.0, 1.0]], [0.1], answered=[[0.0, 0.75]], failure=0.05)
    >>> round(float(bound.threshold), 4)
    0.5496
    """
    return theorem_2_maximum(values, scales, answered=answered, num_records=1.0, failure=failure)


def _shares(scales: ArrayLike) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the scales ``(..., K)``, their ratios to the largest scale, and the largest scale."""
    c = checks.nonnegative("scales", scales, checks.float_array("scales", scales).dtype)
    if c.ndim == 0 or c.shape[-1] == 0:
        raise ValueError(f"scales must be of shape (..., K) with K >= 1, got {c.shape}.")
    largest = jnp.max(c, axis=-1)
    return c, c / jnp.where(largest > 0, largest, 1.0)[..., None], largest


def _worst(errors: jax.Array) -> jax.Array:
    """Return the largest sum over the queries, over all elements."""
    return jnp.max(jnp.sum(errors, axis=-2), axis=-1)


def _parts(
    queries: ArrayLike, scales: ArrayLike, answered: ArrayLike | None, num_records: ArrayLike
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return G - Q, c and n, of one dtype."""
    dtype = checks.float_array("queries", queries).dtype
    exact = checks.finite("queries", queries, dtype)
    used = exact if answered is None else checks.finite("answered", answered, dtype)
    c = checks.nonnegative("scales", scales, dtype)
    if exact.ndim < 2 or used.shape[-2:] != exact.shape[-2:] or c.shape[-1:] != exact.shape[-2:-1]:
        raise ValueError(
            "queries (..., K, N) need scales (..., K) and answered (..., K, N), got shapes "
            f"{exact.shape}, {c.shape} and {used.shape}."
        )
    return used - exact, c, checks.positive("num_records", num_records, dtype)
