"""Planning for a budget: how many steps fit, how much noise, and the epsilon of each query.

On Poisson subsamples with probability p, k steps are k p epochs: each record is taken k p times on
average.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import inf, log, nextafter
from typing import Literal

from dpjax import checks
from dpjax.accounting.guarantee import Cost, Guarantee
from dpjax.numerics.solve import root


def steps_within(each: Cost, *, epsilon: float, delta: float) -> int:
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
    low, high = 1, 2
    while excess(high) <= 0:
        if high > 2**50:
            raise ValueError(f"each must have a cost, but more than 2^50 steps fit: {each}.")
        low, high = high, 4 * high
    steps = round(root(lambda steps: excess(round(steps)), low, high, 0.25 / high))
    while excess(steps) > 0:
        steps -= 1
    while excess(steps + 1) <= 0:
        steps += 1
    return steps


def least_noise(spent: Callable[[float], Cost], *, epsilon: float, delta: float) -> float:
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
    low = high = 1.0
    while excess(high) > 0 and high <= 2**50:
        low, high = high, 4 * high
    while excess(low) <= 0 and low >= 2**-50:
        low, high = low / 4, low
    if not 2**-50 <= low < high <= 2**50:
        raise ValueError(
            f"{'no' if high > 1 else 'any'} noise from 2^-50 to 2^50 meets epsilon={epsilon} at "
            f"delta={delta}."
        )
    # Numerical accounting is smooth to about 1e-5 of epsilon.
    return root(excess, low, high, 5e-7)


def epsilon_per_query(
    *,
    count: int,
    epsilon: float,
    delta: float,
    promise: Literal["pure", "bounded_range"] = "bounded_range",
) -> float:
    """Return the largest epsilon of each of ``count`` queries, together (epsilon, delta)-DP.

    The inverse of the tightest rule of :class:`Composition`, rounded down, to a relative error of
    1e-6. The rule ``"losses"`` is not used, since the noise of a mechanism must not depend on which
    packages are installed.

    Args:
        count: the number of queries, at least 1.
        epsilon: the epsilon of all queries together, positive.
        delta: the delta of all queries together, in [0, 1); at 0 epsilon is divided evenly.
        promise: the guarantee of each query: ``"bounded_range"`` epsilon (all exponential
            mechanisms of this library, among them piecewise Laplace), or ``"pure"`` epsilon-DP only
            (Laplace noise).

    >>> each = epsilon_per_query(count=4, epsilon=1.0, delta=1e-6)
    >>> round(each, 3), round((4 * Guarantee(each, each, "swap")).epsilon_at(1e-6), 4)
    (0.276, 1.0)
    """
    checks.one_of("promise", promise, ("pure", "bounded_range"))
    count = checks.static_integer("count", count, 1)
    epsilon, delta = checks.concrete_epsilon(epsilon), checks.concrete_fraction("delta", delta)

    def excess(each: float) -> float:
        one = Guarantee(each, each if promise == "bounded_range" else inf, "swap")
        return min((count * one).by_formulas(delta=delta).values()) - epsilon

    low = epsilon / count
    if delta == 0:
        while Fraction(low) * count > epsilon:
            low = nextafter(low, 0.0)
        return low
    high = 2 * low
    while excess(high) <= 0:
        high *= 2
    while excess(low) > 0:
        low *= 1 - 5e-7
    return root(excess, low, high, 5e-7)


def _excess(epsilon: float, delta: float) -> Callable[[Cost], float]:
    """Return the function log(epsilon(spent) / epsilon).

    It is positive where a cost exceeds the budget.
    """
    budget, allowed = checks.concrete_epsilon(epsilon), checks.concrete_fraction("delta", delta)

    def excess(spent: Cost) -> float:
        found = spent.epsilon_at(allowed) if allowed else (inf if spent.delta else spent.epsilon)
        return log(found / budget) if 0 < found < inf else (inf if found else -inf)

    return excess
