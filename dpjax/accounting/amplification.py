"""Helpers of the subsampling theorems: a binomial sum over orders, and zCDP from a Renyi curve."""

from __future__ import annotations

from math import log
from sys import float_info

import numpy as np

from dpjax import checks
from dpjax.accounting.composition import Composition
from dpjax.accounting.guarantee import Guarantee, Points, points_of

# sorted(set()), as np.unique imports numpy.ma
ORDERS = np.array(sorted(set(np.rint(np.geomspace(2, 1e4, 128)).tolist())))


def spent_on(
    sample: str, spent: Guarantee | Composition, neighbors: str
) -> tuple[Composition, Guarantee]:
    """Return the mechanisms that see one sample, as a composition and as one guarantee.

    Raises:
        ValueError: they are under another relation than ``neighbors``.
    """
    whole = 1 * spent
    checks.instance(
        f"subsampling by {sample}", whole, Composition, "a sum of guarantees, or one of them"
    )
    if whole.neighbors != neighbors:
        raise ValueError(
            f"{sample} amplify under {neighbors} neighbors, this guarantee is under "
            f"{whole.neighbors}."
        )
    return whole, spent if isinstance(spent, Guarantee) else whole.guarantee()


def binomial_curve(
    log_terms: np.ndarray, taken: float, log_left: float, least: float, most: np.ndarray | float
) -> Points:
    """Return pairs of an order a and a binomial sum divided by a - 1.

    The sum is log(1 + sum over k = 2..a of C(a, k) taken^k left^(a-k) e^(log_terms(k))).

    Args:
        log_terms: ``(n,)``, for k = 2, 3, ..., n + 1; n + 1 is the largest order.
        taken: in (0, 1).
        log_left: the logarithm of left.
        least: a lower limit of the divergences, since a sum may underflow to 0.
        most: an upper limit of the divergences, ``(orders,)`` or a number.

    Returns:
        Pairs at those of :data:`ORDERS` at which the divergence is finite.
    """
    from scipy.special import gammaln, logsumexp

    orders = ORDERS[log_terms.size + 1 >= ORDERS]
    found, all_k = [], np.arange(2, log_terms.size + 2)
    for order in orders:
        k = all_k[: int(order) - 1]
        ways = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        parts = ways, k * log(taken), (order - k) * log_left, log_terms[: k.size]
        with np.errstate(invalid="ignore"):
            # The addend is above the rounding error.
            logs = sum(parts) + 2.0**-50 * np.nan_to_num(sum(map(np.abs, parts)), posinf=0.0)
        # 1e-10 covers the error of gammaln
        found.append(np.logaddexp(0.0, logsumexp(logs) + 1e-10) / (order - 1))
    return points_of(orders, np.maximum(np.minimum(found, most), least))


def zcdp_of_curve(curve: Points, *, near_one: float, limit: float) -> float:
    """Return a rho of zCDP, an upper bound of the supremum of D(a) / a over all orders a.

    Args:
        curve: pairs of an order, from 2 on, and D there.
        near_one: a bound of D(a) / a for orders up to 2.
        limit: a bound of D at every order.

    Between two orders (a-1) D(a) is convex and lies below its chord c (a - t), and
    c (a - t) / (a (a-1)) is largest at an end or at t +- sqrt(t^2 - t).
    """
    if not curve:
        return float("inf")
    orders, divergences = np.array(curve).T
    scaled = (orders - 1) * divergences
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.diff(scaled) / np.diff(orders)
        start = np.maximum(orders[:-1] - scaled[:-1] / slope, 1.0)
        turn = np.sqrt(start * start - start)
        places = np.clip(
            np.stack([start - turn, start + turn, orders[:-1], orders[1:]]), orders[:-1], orders[1:]
        )
        between = (scaled[:-1] + slope * (places - orders[:-1])) / (places * (places - 1))
    largest = max(
        near_one, float(np.nanmax(between, initial=divergences[0] / orders[0])), limit / orders[-1]
    )
    return max(largest * (1 + 1e-12), float_info.min if limit else 0.0)
