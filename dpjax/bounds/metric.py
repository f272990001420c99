"""Error bounds of answers under a metric, from Kamalaruban et al. (2020).

Where the paper's statement fails, these are corrected statements, with the reason.

**Laplace noise.** Theorems 2 and 11 are about Z = G x + Lap(c) as an answer to Q x (G = c * Q' in
the paper), over all histograms x of n records; and about the mean of c * q(u') as an answer to the
mean of q(u), with the same noise. Theorem 2 is sharpened in two ways: the factor 2 of the squared
errors is not needed, since the noise has mean 0; and the norms over all elements are replaced by
those of the worst element, as in Theorem 11, because a norm of n (G - Q) p is convex in the
distribution p of the records. So :func:`theorem_11` bounds the errors of both.

    scales     c: float (K,), at least 0
    bias       what answers are off without noise if all records are one element, float (K, N):
               n (G - Q), or c * q(u') - q(u); by default 0

**Selections.** These are Theorems 4, 6 and 8, and Proposition 1.

    num_records                    n, positive
    num_elements, num_queries      N and K, at least 1
    num_candidates, num_best       R, and the number of candidates with the largest score u'
    scale                          c, positive: selection probabilities are proportional to
                                   exp(u' / (2c))
    mismatch                       the largest |q - c q'| (or |u - u'|), where values c q' are used
                                   for values q

``failure``, in (0, 1), is the probability that a bound is exceeded. All arguments are public.
"""

from __future__ import annotations

from math import ceil, comb, floor, inf, log, pi, sqrt
from typing import Any, Literal

import numpy as np
from scipy.integrate import quad
from scipy.special import erfcx, expit, gammainccinv

from dpjax import checks
from dpjax.bounds.theorem import Count, Finite, NotNegative, Positive, Probability, theorem

Norm = Literal["sum", "euclidean", "maximum"]
_ORDERS = {"sum": 1, "euclidean": 2, "maximum": inf}


@theorem
def exact_squared_error(scales: NotNegative, *, bias: Finite = 0.0) -> Any:
    """Return the largest E||Z - Q x||_2^2 over all x with n records.

    It is n^2 max_j ||G_j - Q_j||_2^2 + 2 ||c||_2^2, which sharpens Theorem 2 (1) and is attained
    where all records are one element.

    >>> float(exact_squared_error([2.0]))
    8.0
    """
    return _off(scales, bias, "euclidean") ** 2 + 2 * np.sum(scales**2)


@theorem
def mean_noise(scales: NotNegative, *, norm: Norm) -> Any:
    """Return E||Y|| of independent Laplace noise Y of scales c ``(K,)``.

    The norm is L1, L2 or L-infinity.

        "sum"        ||c||_1
        "euclidean"  integral over t > 0 of 1 - prod_k h(t / c_k sqrt(pi) / 2),
                     h(a) = sqrt(pi) a e^(a^2) erfc(a)
        "maximum"    integral over t > 0 of 1 - prod_k (1 - e^(-t / c_k))

    The integrals are rounded up by their estimated errors, below 1e-7 of the largest scale.

    >>> [
    ...     round(float(mean_noise([2.0, 2.0, 2.0], norm=norm)), 4)
    ...     for norm in ("sum", "euclidean", "maximum")
    ... ]
    [6.0, 4.2103, 3.6667]
    """
    checks.one_of("norm", norm, _ORDERS)
    _off(scales, 0.0, norm)
    shares, largest = _shares(scales)
    if norm == "sum":
        return np.sum(scales)

    def beyond(z: float) -> Any:
        ratio = z / shares
        if norm == "maximum":
            return 1 - np.prod(-np.expm1(-ratio))
        return 1 - np.prod(pi / 2 * ratio * erfcx(sqrt(pi) / 2 * ratio))

    return largest * sum(quad(beyond, 0.0, inf, limit=1000))


@theorem
def sum_tail(scales: NotNegative, *, bias: Finite = 0.0, failure: Probability) -> Any:
    """Bound ||Z - Q x||_1 except with probability ``failure``: Definition 8 in the L1 norm.

    The bound is n max_j ||G_j - Q_j||_1 plus one of ||Y||_1, a sum of independent exponential
    variables of means c. This is the smaller of two: that of the gamma distribution with all scales
    replaced by the largest, exact for equal scales; and Chernoff's, min over s of (log(1/failure) -
    sum_k log(1 - s c_k)) / s, which is better where a few scales dominate.

    >>> round(float(sum_tail([1.0, 1.0], failure=0.05)), 3)  # (1 + t) e^-t = 0.05
    4.744
    """
    off, (shares, largest) = _off(scales, bias, "sum"), _shares(scales)
    s = expit(np.linspace(-7, 7, 200))  # any s in (0, 1) gives a bound
    chernoff = np.min((-np.log1p(-np.outer(s, shares)).sum(axis=1) - log(failure)) / s)
    return off + largest * min(chernoff, gammainccinv(len(shares), failure))


@theorem
def theorem_2_maximum(scales: NotNegative, *, bias: Finite = 0.0, failure: Probability) -> Any:
    """Bound the largest error except with probability ``failure``: Theorems 2 (3) and 11 (3).

    The bound is n max |G - Q| + ln(K/failure) max c.

    >>> round(float(theorem_2_maximum([2.0], failure=0.01)), 4)
    9.2103
    """
    return _off(scales, bias, "maximum") + log(len(scales) / failure) * np.max(scales)


@theorem
def theorem_11(scales: NotNegative, *, bias: Finite, norm: Norm) -> Any:
    """Bound the expected error of answers, E||Z - Q x||_p, or that of means.

    The bound is that of the worst element u, max_u ||c * q(u') - q(u)||_p + E||Y||_p, at p = 1, 2
    and infinity: see :func:`mean_noise`. This is Theorem 11 (2), and sharper than Theorem 2 (2),
    which has n ||G - Q||_p over all entries; Theorem 11 (1) is twice :func:`exact_squared_error`.

    >>> round(float(theorem_11([0.1], bias=[[0.0, -0.25]], norm="sum")), 4)
    0.35
    """
    return mean_noise(scales, norm=norm) + _off(scales, bias, norm)


@theorem
def exponential_shortfall(
    num_candidates: Count,
    *,
    scale: Positive,
    failure: Probability,
    num_best: Count = 1,
    mismatch: NotNegative = 0.0,
) -> float:
    """Return a bound on the difference between the largest score u' and the score of a draw.

        P[u(Z) <= max u' - mismatch - 2c (log(R / R_best) + log(1/failure))] <= failure

    To bound it against the largest u instead of u', double the mismatch. This is Theorem 4, which
    has the mismatch with the wrong sign: for u = (0, 0), u' = (1, 0) and c near 0 it claims u(Z) >
    2, but u(Z) is 0.

    >>> round(exponential_shortfall(8, scale=0.5, failure=0.05), 4)
    5.0752
    """
    if num_best > num_candidates:
        raise ValueError(
            f"num_best must be at most num_candidates, got {num_best} of {num_candidates}."
        )
    return mismatch + 2 * scale * log(num_candidates / num_best / failure)


@theorem
def small_db_error(
    num_records: Positive,
    *,
    num_elements: Count,
    num_queries: Count,
    scale: Positive,
    size: Count,
    failure: Probability,
    spread: Positive = 1.0,
    mismatch: NotNegative = 0.0,
) -> float:
    """Return a bound on the largest error of SmallDB's answers.

    The small databases have ``size`` m records.

        n mismatch + n spread sqrt(log(2K) / (2m)) + 2c (log C(N + m - 1, m) + log(1/failure))

    ``spread``, positive, is the largest difference between two values of one query c q'. This is
    Proposition 1, for answers scaled to n records, with the exact number of databases in place of
    N^m, and Hoeffding's inequality in place of its consequence alpha (which needs a spread of at
    most 1). It is never above the printed bound at the m of ``small_db_size``.

    >>> error = small_db_error(100, num_elements=3, num_queries=3, scale=0.1, size=8, failure=0.05)
    >>> round(error, 3)
    34.825
    """
    best = spread * sqrt(log(2 * num_queries) / (2 * size))
    nats = log(comb(num_elements + size - 1, size)) - log(failure)
    return num_records * (mismatch + best) + 2 * scale * nats


@theorem
def small_db_bound(
    num_records: Positive,
    *,
    num_elements: Count,
    num_queries: Count,
    scale: Positive,
    failure: Probability,
    mismatch: NotNegative = 0.0,
) -> float:
    """Return a bound on the largest error of SmallDB's answers at its default size.

        n (mismatch + alpha),   alpha = (c gamma / n)^(1/3),
        gamma = 4 (4 log N l + log N + log(1/failure)),   l = max(log K, log(2K)/2)

    The size of the small databases is ``small_db_size(K, alpha=alpha / 2)``, and values c q' of one
    query differ by at most 1. This is Theorem 6, whose gamma lacks the term 4 log N, since the size
    of a database is rounded up by up to one record. An alpha above 1 says nothing.

    >>> round(small_db_bound(100, num_elements=3, num_queries=3, scale=0.1, failure=0.05), 3)
    32.924
    """
    choices = 4 * log(max(num_queries, sqrt(2 * num_queries))) + 1
    gamma = 4 * (log(num_elements) * choices - log(failure))
    return num_records * (mismatch + (scale * gamma / num_records) ** (1 / 3))


@theorem
def mwem_error(
    num_records: Positive,
    *,
    num_elements: Count,
    num_queries: Count,
    scale: Positive,
    rounds: Count,
    failure: Probability,
    mismatch: NotNegative = 0.0,
) -> float:
    """Return a bound on the largest error of MWEM's answers after T ``rounds``.

        n mismatch + 2n sqrt(log N / T) + T c (4 log K + 6 log(2T/failure))

    It is for the output ``"average"``, one pass, and values c q' in [-1, 1]. The paper's
    ``failure`` is 2T/K, at which the last term is 10 T c log K. Theorem 8; Hardt, Ligett and
    McSherry (2012), Theorem 2.2, whose proof gives this form: with probability 1 - 2T e^-t each
    selected score is within 4cT (log K + t) of the largest, and each noise within 2cT t.

    >>> common = dict(num_elements=20, num_queries=200, scale=0.1, rounds=10)
    >>> round(mwem_error(1000, failure=0.1, **common), 2)
    1147.65
    """
    learned = mismatch + 2 * sqrt(log(num_elements) / rounds)
    nats = 4 * log(num_queries) + 6 * log(2 * rounds / failure)
    return num_records * learned + rounds * scale * nats


@theorem
def mwem_rounds(
    num_records: Positive, *, num_elements: Count, num_queries: Count, scale: Positive
) -> int:
    """Return the number of rounds T that minimizes the bound of Theorem 8.

    The failure probability is 2T/K, for K >= 2. It is the better of the integers around (n^2 log N
    / (100 c^2 log(K)^2))^(1/3). The paper sets the two terms equal, which gives 4^(1/3) times as
    many.

    >>> mwem_rounds(10_000, num_elements=20, num_queries=200, scale=0.1)
    220
    """
    if num_queries < 2:
        raise ValueError(
            f"num_queries must be at least 2, as for 1 the bound has no minimum; got {num_queries}."
        )
    ratio = num_records * sqrt(log(num_elements)) / (10 * scale * log(num_queries))
    best = max(1.0, ratio ** (2 / 3))
    return min(floor(best), ceil(best), key=lambda rounds: 2 * ratio / sqrt(rounds) + rounds)


def _shares(scales: Any) -> tuple[Any, Any]:
    """Return ratios to the largest scale, raised to at least 1e-12, and the largest scale."""
    largest = np.max(scales)
    return np.maximum(scales / (largest or 1.0), 1e-12), largest


def _off(scales: Any, bias: Any, norm: Norm) -> Any:
    """Return the largest norm of what answers are off, over all elements; shapes are checked."""
    queries, shape = np.shape(scales), np.shape(bias)
    if len(queries) != 1 or shape[:-1] not in ((), queries) or 0 in queries + shape:
        raise ValueError(
            f"scales must be (K,) and bias (K, N), at least one of each, got {queries} and {shape}."
        )
    return np.max(np.linalg.norm(bias + np.zeros((*queries, 1)), _ORDERS[norm], axis=0))
