"""Error bounds of answers with Laplace noise under a metric.

They are Theorems 2 and 11 of Kamalaruban et al. (2020): for Z = G x + Lap(c) as an answer to Q x
(G = c * Q' in the paper), over all histograms x of n records; and for the mean of c * q(u') as an
answer to the mean of q(u), with the same noise. Theorem 2 can be sharpened in two ways, both used
by :func:`exact_squared_error`: the factor 2 of the squared errors is not needed, since the noise
has mean 0; and the norms over all elements can be replaced by those of the worst element, as in
Theorem 11, because a norm of n (G - Q) p is convex in the distribution p of the records.

Common arguments, public numbers:

    scales     c: float (K,), at least 0
    bias       what answers are off without noise if all records are one element, float (K, N):
               n (G - Q), or c * q(u') - q(u); by default 0
    failure    the probability that the bound is exceeded, in (0, 1)
"""

from __future__ import annotations

from math import inf, log, pi, sqrt
from typing import Any, Literal

import numpy as np

from dpjax import checks
from dpjax.bounds.theorem import Finite, NotNegative, Probability, TailBound, theorem

Norm = Literal["sum", "euclidean", "maximum"]
_ORDERS = {"sum": 1, "euclidean": 2, "maximum": inf}


@theorem
def theorem_2_squared(scales: NotNegative, *, bias: Finite = 0.0) -> Any:
    """Bound E||Z - Q x||_2^2 by 2 n^2 ||G - Q||_2^2 + 4 ||c||_2^2: Theorem 2 (1).

    >>> float(theorem_2_squared([2.0]))
    16.0
    """
    return 2 * np.sum(_off(scales, bias) ** 2) + 4 * np.sum(scales**2)


@theorem
def exact_squared_error(scales: NotNegative, *, bias: Finite = 0.0) -> Any:
    """Return the largest E||Z - Q x||_2^2 over all x with n records.

    It is n^2 max_j ||G_j - Q_j||_2^2 + 2 ||c||_2^2, which sharpens Theorem 2 (1) and is attained
    where all records are one element.

    >>> float(exact_squared_error([2.0]))
    8.0
    """
    return np.max(np.sum(_off(scales, bias) ** 2, axis=0)) + 2 * np.sum(scales**2)


@theorem
def mean_noise(scales: NotNegative, *, norm: Norm) -> Any:
    """Return E||Y|| of independent Laplace noise Y of scales c ``(K,)``.

    The norm is L1, L2 or L-infinity.

        "sum"        ||c||_1
        "euclidean"  2/sqrt(pi) * integral over z > 0 of 1 - prod_k h(z / c_k),
                     h(a) = sqrt(pi) a e^(a^2) erfc(a)
        "maximum"    integral over t > 0 of 1 - prod_k (1 - e^(-t / c_k))

    The integrals are rounded up by their estimated errors, below 1e-7 of the largest scale.

    >>> [
    ...     round(float(mean_noise([2.0, 2.0, 2.0], norm=norm)), 4)
    ...     for norm in ("sum", "euclidean", "maximum")
    ... ]
    [6.0, 4.2103, 3.6667]
    """
    from scipy.integrate import quad
    from scipy.special import erfcx

    checks.one_of("norm", norm, _ORDERS)
    shares, largest = _shares(scales)
    if norm == "sum":
        return np.sum(scales)

    def beyond(z: float) -> Any:
        ratio = z / shares
        factors = -np.expm1(-ratio) if norm == "maximum" else sqrt(pi) * ratio * erfcx(ratio)
        return 1 - np.prod(factors)

    unit = largest if norm == "maximum" else 2 / sqrt(pi) * largest
    return unit * sum(quad(beyond, 0.0, inf, limit=1000))


@theorem
def theorem_2_norm(scales: NotNegative, *, bias: Finite = 0.0, norm: Norm) -> Any:
    """Bound E||Z - Q x||_p by n ||G - Q||_p + E||Y||_p, in the entrywise norm.

    Theorem 2 (2), at p = 1, 2 and infinity: see :func:`mean_noise`.

    >>> round(float(theorem_2_norm([2.0], bias=[[0.0, -5.0]], norm="maximum")), 4)
    7.0
    """
    off, noise = _off(scales, bias), mean_noise(scales, norm=norm)
    return np.linalg.norm(off.ravel(), ord=_ORDERS[norm]) + noise


@theorem
def sum_tail(scales: NotNegative, *, bias: Finite = 0.0, failure: Probability) -> TailBound:
    """Bound ||Z - Q x||_1 except with probability ``failure``: Definition 8 in the L1 norm.

    The threshold is n max_j ||G_j - Q_j||_1 plus one of ||Y||_1, a sum of independent exponential
    variables of means c. This is the smaller of two: that of the gamma distribution with all scales
    replaced by the largest, exact for equal scales; and Chernoff's, min over s of (log(1/failure) -
    sum_k log(1 - s c_k)) / s, which is better where a few scales dominate.

    >>> round(float(sum_tail([1.0, 1.0], failure=0.05).threshold), 3)  # (1 + t) e^-t = 0.05
    4.744
    """
    from scipy.special import expit, gammainccinv

    off, (shares, largest) = _off(scales, bias), _shares(scales)
    s = expit(np.linspace(-7, 7, 200))  # any s in (0, 1) gives a bound
    chernoff = np.min((-np.log1p(-s * shares[:, None]).sum(axis=0) - log(failure)) / s)
    noise = largest * min(chernoff, gammainccinv(len(shares), failure))
    return TailBound(np.max(np.sum(abs(off), axis=0)) + noise, failure)


@theorem
def theorem_2_maximum(
    scales: NotNegative, *, bias: Finite = 0.0, failure: Probability
) -> TailBound:
    """Bound the largest error except with probability ``failure``: Theorems 2 (3) and 11 (3).

    The threshold is n max |G - Q| + ln(K/failure) max c.

    >>> round(float(theorem_2_maximum([2.0], failure=0.01).threshold), 4)
    9.2103
    """
    off = np.max(abs(_off(scales, bias)))
    return TailBound(off + log(len(scales) / failure) * np.max(scales), failure)


@theorem
def theorem_11(scales: NotNegative, *, bias: Finite, norm: Norm) -> Any:
    """Bound the expected error of a mean of c * q(u') as an answer to the mean of q(u).

    The bound is that of the worst element u, max_u ||c * q(u') - q(u)||_p + E||Y||_p, at p = 1, 2
    and infinity: see :func:`mean_noise`. This is Theorem 11 (2); (1) is twice
    :func:`exact_squared_error`.

    >>> round(float(theorem_11([0.1], bias=[[0.0, -0.25]], norm="sum")), 4)
    0.35
    """
    off, noise = _off(scales, bias), mean_noise(scales, norm=norm)
    return np.max(np.linalg.norm(off, ord=_ORDERS[norm], axis=0)) + noise


def _shares(scales: Any) -> tuple[Any, Any]:
    """Return ratios to the largest scale, raised to at least 1e-12, and the largest scale."""
    _off(scales)
    largest = np.max(scales)
    return np.maximum(scales / (largest or 1.0), 1e-12), largest


def _off(scales: Any, bias: Any = 0.0) -> Any:
    """Return the bias as a matrix, after a check of shapes."""
    queries, shape = np.shape(scales), np.shape(bias)
    if len(queries) != 1 or shape[:-1] not in ((), queries) or 0 in queries + shape:
        raise ValueError(
            f"scales must be (K,) and bias (K, N), at least one of each, got {queries} and {shape}."
        )
    return bias + np.zeros((*queries, 1))
