"""f-DP of a guarantee: a lower bound of the false negative rate of every test between neighbours.

What is (epsilon, delta)-DP has a trade-off curve of at least max(0, 1 - delta - e^epsilon a, e^-epsilon (1 - delta - a)) (Wasserman
and Zhou 2010), and mu-GDP one of at least Phi(Phi^-1(1 - a) - mu). Every pair of an epsilon and its delta gives a bound, and the
largest of them is one: few of them cost tightness and no privacy.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpjax.accounting.composition import Composition
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.loss_distributions import LossDistribution

_EPSILONS, _LEAST_DELTA, _FURTHEST = 33, 1e-9, 30.0


def trade_off_bound(spent: Guarantee | Composition | LossDistribution, false_positive: ArrayLike) -> np.ndarray:
    """Return a lower bound of the false negative rate of any test between neighbours, at each false positive rate.

    Exact for pure DP, (epsilon, delta)-DP and Gaussian DP; otherwise of 33 epsilons with their deltas, and some percent below.
    That of two given distributions is :func:`dpjax.auditing.trade_off`.

    Args:
        spent: what promises it.
        false_positive: in [0, 1], of any shape.

    Returns:
        float64 of the same shape.

    Raises:
        ValueError: a rate that is not in [0, 1].

    References:
        Dong, Roth and Su (2022), "Gaussian Differential Privacy", Propositions 3 and 6; Wasserman and Zhou (2010).

    >>> trade_off_bound(Guarantee(1.0, inf, "swap"), [0.05, 0.5]).round(4).tolist()
    [0.8641, 0.1839]
    >>> trade_off_bound(Guarantee(inf, inf, "swap", gdp=1.0), 0.05).round(4).tolist()
    0.7405
    """
    a = np.asarray(false_positive, np.float64)
    if not np.all((a >= 0) & (a <= 1)):
        raise ValueError(f"false_positive must be in [0, 1], got {a}.")
    whole: Any = spent if isinstance(spent, LossDistribution) else 1 * spent
    own = 0.0 if isinstance(whole, LossDistribution) else whole.delta
    most = whole.epsilon_at(own + (1 - own) * _LEAST_DELTA) if own < 1 else inf
    epsilons = np.linspace(0.0, min(most, 700.0) if most < inf else _FURTHEST, _EPSILONS)
    if not isinstance(whole, LossDistribution):
        epsilons = np.append(epsilons, min(whole.epsilon, 700.0))
    found = np.zeros_like(a)
    for epsilon in epsilons.tolist():
        kept = 1 - whole.delta_at(epsilon)
        found = np.maximum(found, np.maximum(kept - np.exp(epsilon) * a, np.exp(-epsilon) * (kept - a)) - 1e-15)
    gdp = inf if isinstance(whole, LossDistribution) else whole.gdp
    if gdp < inf:
        from scipy.special import ndtr, ndtri

        found = np.maximum(found, ndtr(ndtri(1 - a) - gdp) * (1 - 1e-12) - 1e-15)
    return np.clip(found, 0.0, 1.0)
