"""Plans for a budget: how many steps fit, and the least noise for a number of steps.

With subsamples of probability p, k steps are k p epochs: each record is taken k p times on average.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from dpjax import checks
from dpjax.accounting.composition import Composition
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.loss_distributions import LossDistribution
from dpjax.numerics.bisection import bisect_numbers

Spent = Guarantee | Composition | LossDistribution


def steps_within(each: Spent, *, epsilon: float, delta: float) -> int:
    """Return how many steps of one kind are (epsilon, delta)-DP together.

    By doubling and bisection: the number that is returned fits, one more does not.

    Args:
        each: what one step costs; a :class:`LossDistribution` for numerical composition. On subsamples the guarantee of other than
            Gaussian noise composes Renyi divergences, which is loose for few steps: of Gaussian noise of sensitivity 1 and
            standard deviation 1 on 1 % of the records, none would be (1, 1e-6)-DP by them, and 120 are by their losses.
        epsilon: of the whole, positive.
        delta: of the whole, in [0, 1).

    Returns:
        The number, 0 if not even one fits.

    Raises:
        ValueError: more than 2^50 fit: a step that costs nothing.

    References:
        As :meth:`Composition.rules_at`. The post "Limits of Privacy Amplification by Subsampling" (2025) for epochs.

    >>> noise = Guarantee(inf, inf, "add_remove", gdp=0.5)
    >>> steps_within(noise, epsilon=2.0, delta=1e-5)
    1
    >>> from dpjax.accounting import poisson_subsample
    >>> steps_within(poisson_subsample(noise, probability=0.05), epsilon=2.0, delta=1e-5)
    321
    """
    budget, allowed = checks.concrete_epsilon(epsilon), checks.concrete_fraction("delta", delta)

    def fits(steps: int) -> bool:
        return _epsilon(each.compose(steps) if isinstance(each, LossDistribution) else steps * each, allowed) <= budget

    if not fits(1):
        return 0
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
        if high > 2**50:
            raise ValueError(f"more than 2^50 steps fit: {each} costs nothing.")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def least_noise(spent: Callable[[float], Spent], *, epsilon: float, delta: float) -> float:
    """Return the least noise with which a pipeline is (epsilon, delta)-DP, from above, to a relative error of 1e-6.

    Args:
        spent: from a positive amount of noise, such as a standard deviation, to what the pipeline costs, which falls with it.
        epsilon: of the whole, positive.
        delta: of the whole, in [0, 1).

    Returns:
        An amount of noise at which the budget is met.

    Raises:
        ValueError: it is met nowhere up to 2^50, or everywhere down to 2^-50.

    References:
        As :func:`steps_within`.

    >>> def training(sigma):  # 1000 steps on 1 % of the records: 10 epochs
    ...     return 1000 * Guarantee(inf, inf, "add_remove", gdp=1 / sigma)
    >>> round(least_noise(training, epsilon=3.0, delta=1e-5), 3)
    43.974
    """
    budget, allowed = checks.concrete_epsilon(epsilon), checks.concrete_fraction("delta", delta)

    def enough(noise: float) -> bool:
        return _epsilon(spent(noise), allowed) <= budget

    low, high = 0.5, 1.0
    while not enough(high):
        low, high = high, 2 * high
        if high > 2**50:
            raise ValueError(f"no noise up to 2^50 meets epsilon={epsilon} at delta={delta}.")
    while low == high / 2 and enough(low):
        low, high = low / 2, low
        if low < 2**-50:
            raise ValueError(f"any noise down to 2^-50 meets epsilon={epsilon} at delta={delta}.")
    return bisect_numbers(lambda noise: not enough(noise), low, high, 1e-6)[1]


def _epsilon(spent: Spent, delta: float) -> float:
    if delta or isinstance(spent, LossDistribution):
        return spent.epsilon_at(delta)
    return spent.epsilon if spent.delta == 0 else inf
