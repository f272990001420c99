"""Planning for a budget: how many steps fit, and the least noise for a number of steps.

On Poisson subsamples with probability p, k steps are k p epochs: each record is taken k p times on
average.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import exp, inf, log, nextafter

from dpjax import checks
from dpjax.accounting.composition import Composition
from dpjax.accounting.guarantee import Guarantee
from dpjax.numerics.solve import root

Spent = Guarantee | Composition


def steps_within(each: Spent, *, epsilon: float, delta: float) -> int:
    """Return the largest number of steps that are together (epsilon, delta)-DP.

    Costs are those of :meth:`Composition.epsilon_at`.

    Args:
        each: the cost of one step.
        epsilon: of all steps together, positive.
        delta: of all steps together, in [0, 1).

    Returns:
        The number of steps; 0 if not even one fits.

    Raises:
        ValueError: more than 2^50 steps fit.

    References:
        As for :meth:`Composition.rules_at`. The post "Limits of Privacy Amplification by
        Subsampling" (2025) for epochs.

    >>> noise = Guarantee(neighbors="add_remove", gdp=0.5)
    >>> steps_within(noise, epsilon=2.0, delta=1e-5)
    1
    >>> steps_within(Guarantee(0.01, 0.01, "swap"), epsilon=1.0, delta=0.0)
    100
    """
    # A sum that is rounded up may exceed its decimal by one ulp: a hundred times 0.01 must be
    # within 1.
    within = _excess(nextafter(checks.concrete_epsilon(epsilon), inf), delta)
    excess = cache(lambda steps: within(steps * each))
    if excess(1) > 0:
        return 0
    low, high, at_high = 1, 2, excess(2)
    while at_high <= 0:
        if high > 2**50:
            raise ValueError(f"each must have a cost, but more than 2^50 steps fit: {each}.")
        # If epsilon grows at least as fast as the root of the number of steps, the next number just
        # exceeds the budget.
        low, high = (
            high,
            min(high * max(2, int(1.1 * min(2 ** (-2 * at_high / log(2)), 2.0**20))), 2**51),
        )
        at_high = excess(high)
    steps = round(root(lambda steps: excess(round(steps)), low, high, 0.25 / high))
    while excess(steps) > 0:
        steps -= 1
    while excess(steps + 1) <= 0:
        steps += 1
    return steps


def least_noise(spent: Callable[[float], Spent], *, epsilon: float, delta: float) -> float:
    """Return the least noise with which a pipeline is (epsilon, delta)-DP, rounded up.

    The epsilon of the pipeline with this noise is within a relative 1e-4 of the budget.

    Args:
        spent: a function of a positive amount of noise, such as a standard deviation, that returns
            the cost of the pipeline, which must decrease with the noise.
        epsilon: of the pipeline, positive.
        delta: of the pipeline, in [0, 1).

    Returns:
        An amount of noise in [2^-50, 2^50] that meets the budget.

    Raises:
        ValueError: all such amounts of noise meet the budget, or none does.

    >>> def training(sigma):  # 1000 steps on all records
    ...     return 1000 * Guarantee(neighbors="add_remove", gdp=1 / sigma)
    >>> round(least_noise(training, epsilon=3.0, delta=1e-5), 3)
    43.974
    """
    within = _excess(epsilon, delta)
    excess = cache(lambda noise: within(spent(noise)))
    # The slope of -log(epsilon) in log(noise): 1, until two points are known
    noise, slope = 1.0, 1.0
    at = excess(noise)
    while True:
        step = min(max(1.1 * abs(at) / slope, 0.05), 3.0)
        other = noise * exp(step if at > 0 else -step)
        if not 2**-50 <= other <= 2**50:
            raise ValueError(
                f"{'no' if at > 0 else 'any'} noise from 2^-50 to 2^50 meets epsilon={epsilon} at "
                f"delta={delta}."
            )
        at_other = excess(other)
        if (at_other > 0) != (at > 0):
            break
        if abs(at) < inf and abs(at_other) < inf:
            slope = max(abs(at - at_other) / step, 0.1)
        noise, at = other, at_other
    # Numerical accounting is smooth to about 1e-5 of epsilon.
    return root(excess, min(noise, other), max(noise, other), 5e-7)


def _excess(epsilon: float, delta: float) -> Callable[[Spent], float]:
    """Return the function log(epsilon(spent) / epsilon).

    It is positive where a cost exceeds the budget.
    """
    budget, allowed = checks.concrete_epsilon(epsilon), checks.concrete_fraction("delta", delta)

    def excess(spent: Spent) -> float:
        found = spent.epsilon_at(allowed) if allowed else (inf if spent.delta else spent.epsilon)
        return log(found / budget) if 0 < found < inf else (inf if found else -inf)

    return excess
