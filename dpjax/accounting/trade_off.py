"""The trade-off curve (f-DP) that a guarantee implies.

It is a lower bound of the false negative rate of every test between neighbors. (epsilon, delta)-DP
implies a trade-off curve of at least max(0, 1 - delta - e^epsilon a, e^-epsilon (1 - delta - a))
(Wasserman and Zhou 2010), and mu-GDP one of at least Phi(Phi^-1(1 - a) - mu). Every pair of an
epsilon and its delta gives a valid bound, and so does the largest of them: using few pairs costs
tightness but not privacy.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from dpjax.accounting.conversions import public
from dpjax.accounting.guarantee import Cost
from dpjax.checks.numbers import Interval

_UNIT = Interval("from 0 to 1", 0, 1, "[]")
_EPSILONS, _LEAST_DELTA, _FURTHEST = 33, 1e-9, 30.0


def trade_off_bound(spent: Cost, false_positive: Any) -> Any:
    """Return a lower bound of the false negative rate of any test between neighbors.

    It is a function of the false positive rate. It is exact for pure DP, (epsilon, delta)-DP and
    Gaussian DP. Otherwise it is the largest bound of 33 epsilons and their deltas, and some percent
    below the exact one. For two given distributions, use :func:`dpjax.auditing.trade_off`.

    Args:
        spent: the guarantee or composition.
        false_positive: in [0, 1], of any shape.

    Returns:
        Float64 of the shape of ``false_positive``.

    References:
        Dong, Roth and Su (2022), "Gaussian Differential Privacy", Propositions 3 and 6; Wasserman
        and Zhou (2010).

    >>> from dpjax.accounting import Guarantee
    >>> trade_off_bound(Guarantee(1.0, inf, "swap"), [0.05, 0.5]).round(4).tolist()
    [0.8641, 0.1839]
    >>> trade_off_bound(Guarantee(neighbors="swap", gdp=1.0), 0.05).round(4).tolist()
    0.7405
    """
    a = public(_UNIT, "false_positive", false_positive)
    most = spent.epsilon_at(spent.delta + (1 - spent.delta) * _LEAST_DELTA)
    furthest = min(most if most < inf else _FURTHEST, 700.0)
    found = np.zeros_like(a)
    for at in [*np.linspace(0.0, furthest, _EPSILONS).tolist(), min(spent.epsilon, 700.0)]:
        kept = 1 - spent.delta_at(at)
        line = np.maximum(kept - np.exp(at) * a, np.exp(-at) * (kept - a))
        found = np.maximum(found, line - 1e-15)
    if spent.gdp < inf and not spent.delta:
        from scipy.special import ndtr, ndtri

        found = np.maximum(found, ndtr(-ndtri(a) - spent.gdp) * (1 - 1e-12) - 1e-15)
    return np.clip(found, 0.0, 1.0)
