"""Privacy amplification by samples of a fixed size, under swap neighbors.

Samples are drawn with or without replacement. Of n records, n public, m are taken: all subsets of
that size equally likely, or m independent draws with replacement. Neighbors differ in one record.
Let K be the number of times that it is taken, w_k = P(K = k) and p = 1 - w_0, and let P_k, Q_k be
the distributions of the output on the two datasets given K = k. P_0 = Q_0, and P_k, Q_k and P_0 are
mixtures of outputs on samples that differ in k records (with the same mixing over the other
records; in P_0 other records take the place of the differing one), so each pair of them satisfies
the guarantee for groups of k.

* (epsilon, delta): P_k(S) <= e^(k epsilon) min(Q_k(S), P_0(S)) + delta_k. With a_k = Q_k(S), (w_0
  P_0 + sum w_k e^(k epsilon) min(a_k, P_0)) / (w_0 P_0 + sum w_k a_k) is largest at a_k = P_0: so
  e^epsilon' = sum w_k e^(k epsilon) and delta' = sum w_k delta_k. Without replacement that is 1 + p
  (e^epsilon - 1) and p delta; with it (1 + (e^epsilon - 1)/n)^m and delta (e^epsilon' - 1) /
  (e^epsilon - 1).
* Renyi divergences: with A, B the mixtures of P_k and of Q_k over k >= 1, P = (1-p) P_0 + p A and
  Q = (1-p) P_0 + p B, so E_Q (P/Q)^a = 1 + sum over j >= 2 of C(a, j) p^j E_Q ((A-B)/Q)^j for
  integers a. The triple (A, B, Q) is a mixture of (A, B, P_0) and (A, B, B), and |a-b|^j / q^(j-1)
  is jointly convex: so E_Q |(A-B)/Q|^j is at most the mean over k of m_k(j), which bounds E
  |(P_k-Q_k)/R|^j for R = P_0 and R = Q_k. Since Q >= (1-p) P_0, by Minkowski's inequality it is
  also at most (1-p)^(1-j) (mean of m_k(j)^(1/j))^j, which is smaller where a large k is rare but
  has a large m_k(j).
* m_k(j) = min(2, (e^(k epsilon) - 1)^j) e^((j-1) D_k(j)), where D_k bounds the Renyi divergences
  for groups of k, and 4 (e^(D_k(2)) - 1) for j = 2. Under mu-GDP it may also be 2^j E |e^(k mu Z -
  (k mu)^2/2) - 1|^j: |a-b|^j <= 2^(j-1) (|a-r|^j + |b-r|^j), and both terms are divergences of a
  convex function, which are largest for two normal distributions.
"""

from __future__ import annotations

from itertools import pairwise, zip_longest
from math import comb, exp, expm1, inf, log, log1p
from sys import float_info
from typing import Literal

import numpy as np

from dpjax import checks
from dpjax.accounting.amplification import ORDERS, binomial_curve, spent_on, zcdp_of_curve
from dpjax.accounting.composition import Composition
from dpjax.accounting.guarantee import Guarantee, Points, least_divergence

_MOST_DRAWS, _MOST_ORDER = 100_000, 64  # limits with replacement, where the sum is over every k


def fixed_size_subsample(
    spent: Guarantee | Composition,
    *,
    taken: int,
    public_n: int,
    replacement: Literal["with", "without"],
) -> Guarantee:
    """Return the guarantee of mechanisms that run on one random sample of fixed size.

    Args:
        spent: the guarantee of the mechanism on the sample, or the sum of those that see the same
            sample; under swap neighbors.
        taken: m, the size of the sample; with replacement at most 100,000.
        public_n: n, the number of records.
        replacement: ``"without"``, every subset of that size equally likely (m at most n), or
            ``"with"``, m independent draws.

    Returns:
        A :class:`Guarantee`: (epsilon', delta')-DP as in the module docstring; where a Renyi
        divergence is known, a Renyi curve at integer orders up to 10^4, or up to 64 with
        replacement; and if epsilon is finite, the zCDP that both imply.

    Raises:
        ValueError: a parameter is out of range, or neither an epsilon nor a Renyi divergence is
            known.

    Privacy:
        Under swap neighbors only: the number of records is public. The sample must stay secret. Add
        the guarantees of mechanisms that see the same sample before this call, and those of
        mechanisms on independent samples after it.

    References:
        Balle, Barthe and Gaboardi (2018), "Privacy Amplification by Subsampling", Theorems 9 and
        10; Wang, Balle and Kasiviswanathan (2019), "Subsampled Renyi Differential Privacy and
        Analytical Moments Accountant", Theorem 9, for the Renyi divergences without replacement;
        the module docstring, for those with replacement.

    >>> spent = Guarantee(1.0, inf, "swap", delta=1e-6)
    >>> print(fixed_size_subsample(spent, taken=10, public_n=100, replacement="without"))
    (0.158566, 1e-07)-DP under swap neighbors
    >>> noise = Guarantee(neighbors="swap", gdp=0.5)
    >>> step = fixed_size_subsample(noise, taken=100, public_n=10_000, replacement="without")
    >>> round((1000 * step).epsilon_at(1e-5), 2)
    1.49
    """
    composition, guarantee = spent_on("samples of a fixed size", spent, "swap")
    checks.one_of("replacement", replacement, ("with", "without"))
    n, without = checks.static_integer("public_n", public_n, 1), replacement == "without"
    m = checks.static_integer("taken", taken, 1, n if without else _MOST_DRAWS)
    if without and m == n:
        return guarantee
    share = m / n if without else -expm1(m * log1p(-1 / n)) if n > 1 else 1.0
    share = min(share * (1 + 2.0**-50), 1.0)
    curve, square = (
        ((), inf)
        if composition.slack
        else _curve(
            composition, inf if guarantee.delta else guarantee.epsilon, m, n, share, without
        )
    )
    epsilon = _mixed(guarantee.epsilon, share) if without else m * _mixed(guarantee.epsilon, 1 / n)
    growth = share if without else _growth(epsilon, guarantee.epsilon, m / n)
    delta = guarantee.delta and max(guarantee.delta * growth * (1 + 2.0**-48), float_info.min)
    if not (epsilon < inf and delta < 1):
        if not curve:
            raise ValueError(
                "neither an epsilon nor a Renyi divergence is known on the sample, for "
                f"{guarantee}."
            )
        return Guarantee(neighbors="swap", renyi=curve, unit=guarantee.unit)
    zcdp = inf
    if not delta and curve:
        zcdp = zcdp_of_curve(
            curve, near_one=share * share * square / 2 * exp(min(epsilon, 700.0)), limit=epsilon
        )
    return Guarantee(
        epsilon,
        inf if delta else 2 * epsilon,
        "swap",
        delta,
        zcdp,
        renyi=curve,
        unit=guarantee.unit,
    )


def _mixed(epsilon: float, share: float) -> float:
    """Return log(1 + share (e^epsilon - 1)), rounded up."""
    if epsilon == inf:
        return inf
    near = (
        log1p(share * expm1(epsilon)) if epsilon < 700 else max(epsilon + log(share), 0.0) + log(2)
    )
    return max(min(near, epsilon) * (1 + 2.0**-50), float_info.min if epsilon else 0.0)


def _growth(mixed: float, epsilon: float, limit: float) -> float:
    """Return (e^mixed - 1) / (e^epsilon - 1), or its limit at epsilon = 0; rounded up."""
    if epsilon == 0 or epsilon == inf:
        return limit if epsilon == 0 else inf
    if mixed < 700:
        return expm1(mixed) / expm1(epsilon)
    if mixed - epsilon > 700:
        return inf
    return max(exp(mixed - epsilon) / -expm1(-epsilon), 1.0)


def _curve(
    whole: Composition, pure: float, m: int, n: int, share: float, without: bool
) -> tuple[Points, float]:
    """Return the Renyi curve, and a bound of E ((A-B)/Q)^2."""
    orders = np.arange(2, (ORDERS[-1] if without else _MOST_ORDER) + 1.0)
    convex, norm = np.full(orders.size, -inf), np.full(orders.size, -inf)
    most_taken = 1 if without else m
    for first in range(1, most_taken + 1, 1024):
        k = np.arange(first, min(first + 1024, most_taken + 1), dtype=float)[:, None]
        weights = np.zeros((1, 1)) if without else _log_binomial(k, m, n) - log(share)
        terms = _log_terms(whole, k, orders, pure)
        convex = np.logaddexp(convex, np.logaddexp.reduce(weights + terms, axis=0))
        norm = np.logaddexp(norm, np.logaddexp.reduce(weights + terms / orders, axis=0))
    found = np.minimum(convex, orders * norm - (orders - 1) * log1p(-share) if share < 1 else inf)
    known = found[: np.flatnonzero(np.append(found, inf) == inf)[0]]
    if not known.size:
        return (), inf
    # The divergence of a mixture of pairs is at most the largest of theirs; without replacement
    # these are neighbors.
    most = whole.rdp(ORDERS[known.size + 1 >= ORDERS]) if without else inf
    curve = binomial_curve(known, share, 0.0, float_info.min if whole.rho else 0.0, most)
    return curve, float(np.exp(min(known[0], 700.0)))


def _log_terms(whole: Composition, k: np.ndarray, orders: np.ndarray, pure: float) -> np.ndarray:
    """Return log m_k(j) for j = 2, 3, ..., ``(k, orders)``."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        if k.size == 1 and k[0] == 1:
            divergences = whole.rdp(orders)[None]
        else:  # for groups of k
            divergences = np.zeros((k.size, orders.size))
            for part, count in whole.parts:
                divergences += count * least_divergence(
                    orders, k * k * part.rho, k * part.bounded_range, k * part.epsilon
                )
        ratio = np.where(k * pure < 700, np.log(np.expm1(np.minimum(k * pure, 700.0))), k * pure)
        found = (orders - 1) * divergences + np.minimum(log(2), orders * ratio)
        second = divergences + np.log(-np.expm1(-divergences)) + log(4)
        found = np.where(orders == 2, np.minimum(found, second), found)
        if whole.gdp < inf:
            normal = _log_normal_moments(k * whole.gdp)[:, : orders.size]
            found[:, : normal.shape[1]] = np.fmin(found[:, : normal.shape[1]], normal)
    # NaN is 0 times infinity, where the divergence is 0
    return np.where(np.isnan(found), -inf, found)


def _log_normal_moments(mu: np.ndarray) -> np.ndarray:
    """Return log(2^j E |e^(mu Z - mu^2/2) - 1|^j) for j = 2..16, rounded up, by a binomial sum."""
    i, even = np.arange(17), []
    for j in range(2, 18, 2):
        terms = np.array([comb(j, int(each)) for each in i[: j + 1]]) * np.exp(
            i[: j + 1] * (i[: j + 1] - 1) * mu * mu / 2
        )
        lost = 1e-14 * np.sum(terms, axis=1)
        even.append(
            np.log(np.maximum(np.sum(terms * (-1.0) ** i[: j + 1], axis=1), 0.0) + lost)
            + j * log(2)
        )
    odd = [(below + above) / 2 for below, above in pairwise(even)]  # the Cauchy-Schwarz inequality
    return np.stack(
        [value for pair in zip_longest(even, odd) for value in pair if value is not None], axis=1
    )


def _log_binomial(k: np.ndarray, m: int, n: int) -> np.ndarray:
    """Return log P(K = k), rounded up."""
    from scipy.special import gammaln

    left = (m - k) * log1p(-1 / n) if n > 1 else np.where(k == m, 0.0, -inf)
    return (
        gammaln(m + 1)
        - gammaln(k + 1)
        - gammaln(m - k + 1)
        - k * log(n)
        + left
        + 1e-10 * (1 + m / 1e5)
    )
