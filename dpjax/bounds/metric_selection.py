"""Error bounds of d-private selections from Kamalaruban et al. (2020).

They are Theorems 4, 6 and 8, and Proposition 1. Where the paper's statement fails, these are
corrected statements, with the reason. All arguments are public numbers:

    num_records                    n, positive
    num_elements, num_queries      N and K, at least 1
    num_candidates, num_best       R, and the number of candidates with the largest score u'
    scale                          c, positive: selection probabilities are proportional to
                                   exp(u' / (2c))
    failure                        the probability that the bound is exceeded, in (0, 1)
    mismatch                       the largest |q - c q'| (or |u - u'|), where values c q' are used
                                   for values q
"""

from __future__ import annotations

from math import ceil, comb, floor, log, sqrt

from dpjax.bounds.theorem import Count, NotNegative, Positive, Probability, theorem


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
    return mismatch + 2 * scale * (log(num_candidates / num_best) - log(failure))


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
    choices = log(comb(num_elements + size - 1, size))
    return num_records * (mismatch + best) + 2 * scale * (choices - log(failure))


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

    The size is that of the small databases.

        n mismatch + (c n^2 gamma)^(1/3),
        gamma = 4 (4 log N l + log N + log(1/failure)),   l = max(log K, log(2K)/2)

    The size is ``small_db_size(K, alpha=small_db_alpha(...) / 2)``, and values c q' of one query
    differ by at most 1. This is Theorem 6, whose gamma lacks the term 4 log N, since the size of a
    database is rounded up by up to one record.

    >>> round(small_db_bound(100, num_elements=3, num_queries=3, scale=0.1, failure=0.05), 3)
    32.924
    """
    alpha = small_db_alpha(
        num_records,
        num_elements=num_elements,
        num_queries=num_queries,
        scale=scale,
        failure=failure,
    )
    return num_records * (mismatch + alpha)


@theorem
def small_db_alpha(
    num_records: Positive,
    *,
    num_elements: Count,
    num_queries: Count,
    scale: Positive,
    failure: Probability,
) -> float:
    """Return the alpha of Theorem 6, (c gamma / num_records)^(1/3); see :func:`small_db_bound`.

    Above 1 it is vacuous.

    >>> round(small_db_alpha(100, num_elements=3, num_queries=3, scale=0.1, failure=0.05), 5)
    0.32924
    """
    choices = max(log(num_queries), log(2 * num_queries) / 2)
    gamma = 4 * (4 * log(num_elements) * choices + log(num_elements) - log(failure))
    return (scale * gamma / num_records) ** (1 / 3)


@theorem
def mwem_error(
    num_records: Positive,
    *,
    num_elements: Count,
    num_queries: Count,
    scale: Positive,
    rounds: Count,
    failure: Probability = None,
    mismatch: NotNegative = 0.0,
) -> float:
    """Return a bound on the largest error of MWEM's answers after T ``rounds``.

        n mismatch + 2n sqrt(log N / T) + T c (4 log K + 6 log(2T/failure))

    It is for the output ``"average"``, one pass, and values c q' in [-1, 1]. By default ``failure``
    is the paper's 2T/K, and the last term is 10 T c log K; a 2T/K above 1 makes the bound vacuous.
    Theorem 8; Hardt, Ligett and McSherry (2012), Theorem 2.2, whose proof gives this form: with
    probability 1 - 2T e^-t each selected score is within 4cT (log K + t) of the largest, and each
    noise within 2cT t.

    >>> round(mwem_error(1000, num_elements=20, num_queries=200, scale=0.1, rounds=10), 2)
    1147.65
    """
    nats = log(num_queries) if failure is None else log(2 * rounds / failure)
    learned = mismatch + 2 * sqrt(log(num_elements) / rounds)
    return num_records * learned + rounds * scale * (4 * log(num_queries) + 6 * nats)


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
    best = (num_records**2 * log(num_elements) / (100 * scale**2 * log(num_queries) ** 2)) ** (
        1 / 3
    )
    facts = {"num_elements": num_elements, "num_queries": num_queries, "scale": scale}
    near = max(1, floor(best)), max(1, ceil(best))
    return min(near, key=lambda rounds: mwem_error(num_records, rounds=rounds, **facts))
