"""Plans for a budget: how many steps fit, and the least noise for a number of steps.

With subsamples of probability p, k steps are k p epochs: each record is taken k p times on average.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log, nextafter

from dpjax import checks
from dpjax.accounting.composition import Composition
from dpjax.accounting.guarantee import Guarantee

Spent = Guarantee | Composition


def steps_within(each: Spent, *, epsilon: float, delta: float) -> int:
    """Return how many steps of one kind are (epsilon, delta)-DP together, by :meth:`Composition.epsilon_at`; one more is not.

    Args:
        each: what one step costs.
        epsilon: of the whole, positive.
        delta: of the whole, in [0, 1).

    Returns:
        The number, 0 if not even one fits. More than 2^50 raise ``ValueError``: such a step costs nothing.

    References:
        As :meth:`Composition.rules_at`. The post "Limits of Privacy Amplification by Subsampling" (2025) for epochs.

    >>> noise = Guarantee(inf, inf, "add_remove", gdp=0.5)
    >>> steps_within(noise, epsilon=2.0, delta=1e-5)
    1
    >>> steps_within(Guarantee(0.01, 0.01, "swap"), epsilon=1.0, delta=0.0)
    100
    """
    excess = _excess(epsilon, delta)
    at_low = excess(1 * each)
    if at_low > 0:
        return 0
    low, high, at_high = 1, 2, excess(2 * each)
    while at_high <= 0:
        if high > 2**50:
            raise ValueError(f"more than 2^50 steps fit: {each} costs nothing.")
        # A power of the steps that just passes the budget, where epsilon grows at least as fast as their root.
        low, at_low, high = high, at_high, min(high * max(2, int(1.1 * min(2 ** (-2 * at_high / log(2)), 2.0**20))), 2**51)
        at_high = excess(high * each)
    ends = (float(low), at_low), (float(high), at_high)
    return round(_crossing(lambda steps: excess(round(steps) * each), *ends, whole=True)[0][0])


def least_noise(spent: Callable[[float], Spent], *, epsilon: float, delta: float) -> float:
    """Return the least noise with which a pipeline is (epsilon, delta)-DP, from above, to a relative error of 1e-6.

    Args:
        spent: from a positive amount of noise, such as a standard deviation, to what the pipeline costs, which falls with it.
        epsilon: of the whole, positive.
        delta: of the whole, in [0, 1).

    Returns:
        An amount of noise, from 2^-50 to 2^50, at which the budget is met; otherwise it raises ``ValueError``.

    >>> def training(sigma):  # 1000 steps on all records
    ...     return 1000 * Guarantee(inf, inf, "add_remove", gdp=1 / sigma)
    >>> round(least_noise(training, epsilon=3.0, delta=1e-5), 3)
    43.974
    """
    excess = _excess(epsilon, delta)
    noise = 1.0
    at = excess(spent(noise))
    factor = 2.0 if at > 0 else 0.5
    while True:
        other = noise * factor
        if not 2**-50 <= other <= 2**50:
            raise ValueError(f"{'no' if at > 0 else 'any'} noise from 2^-50 to 2^50 meets epsilon={epsilon} at delta={delta}.")
        at_other = excess(spent(other))
        if (at_other > 0) != (at > 0):
            break
        noise, at = other, at_other
    ends = sorted([(noise, at), (other, at_other)])
    return _crossing(lambda amount: excess(spent(amount)), ends[0], ends[1], whole=False)[1][0]


End = tuple[float, float]  # an argument and a value there


def _crossing(function: Callable[[float], float], low: End, high: End, *, whole: bool) -> tuple[End, End]:
    """Return both ends of where a monotone function changes its sign: whole numbers that follow each other, or 1e-6 apart.

    By the method of false position in the logarithm of the argument, where an end that stays has its value halved (Illinois), and
    a step beside the crossing that is expected, so that both ends come near.
    """
    rise, side = high[1] > low[1], 0
    value_low, value_high = _finite(low[1]), _finite(high[1])
    while (high[0] - low[0] > 1) if whole else (high[0] > low[0] * (1 + 1e-6)):
        share = value_low / (value_low - value_high) if value_low != value_high else 0.5
        middle = low[0] * (high[0] / low[0]) ** min(max(share, 0.02), 0.98)
        margin = 1 if whole else 0.45e-6 * low[0]
        middle += margin * (-0.4 if side > 0 else 0.4)
        middle = min(max(round(middle) if whole else middle, low[0] + margin), high[0] - margin)
        value = function(middle)
        if (value > 0) == rise:
            high, value_high = (middle, value), _finite(value)
            value_low, side = value_low / (2 if side > 0 else 1), 1
        else:
            low, value_low = (middle, value), _finite(value)
            value_high, side = value_high / (2 if side < 0 else 1), -1
    return low, high


def _finite(value: float) -> float:
    return min(max(value, -50.0), 50.0)


def _excess(epsilon: float, delta: float) -> Callable[[Spent], float]:
    """Return the function of what was spent that is log(epsilon / budget): above 0 where it passes the budget."""
    # A sum that is rounded up may pass its decimal by a unit in the last place: a hundred times 0.01 is within 1.
    budget, allowed = nextafter(checks.concrete_epsilon(epsilon), inf), checks.concrete_fraction("delta", delta)

    def excess(spent: Spent) -> float:
        found = spent.epsilon_at(allowed) if allowed else (inf if spent.delta else spent.epsilon)
        return log(found / budget) if 0 < found < inf else (inf if found else -inf)

    return excess
