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
from dpjax.numerics.host_bisection import bisect_numbers

Spent = Guarantee | Composition | LossDistribution


def steps_within(each: Spent, *, epsilon: float, delta: float) -> int:
    """Return how many steps of one kind are (epsilon, delta)-DP together; one more is not.

    Args:
        each: what one step costs; a :class:`LossDistribution` for numerical composition. On subsamples the guarantee of other than
            Gaussian noise composes Renyi divergences, which is loose for few steps: of Gaussian noise of sensitivity 1 and
            standard deviation 1 on 1 % of the records, none would be (1, 1e-6)-DP by them, and 120 are by their losses.
        epsilon: of the whole, positive.
        delta: of the whole, in [0, 1).

    Returns:
        The number, 0 if not even one fits. More than 2^50 raise ``ValueError``: such a step costs nothing.

    References:
        As :meth:`Composition.rules_at`. The post "Limits of Privacy Amplification by Subsampling" (2025) for epochs.

    >>> noise = Guarantee(inf, inf, "add_remove", gdp=0.5)
    >>> steps_within(noise, epsilon=2.0, delta=1e-5)
    1
    >>> from dpjax.accounting import poisson_subsample
    >>> steps_within(poisson_subsample(noise, probability=0.05), epsilon=2.0, delta=1e-5)
    321
    """
    within = _budget(epsilon, delta)

    def fits(steps: int) -> bool:
        return within(each.compose(steps) if isinstance(each, LossDistribution) else steps * each)

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
        An amount of noise, from 2^-50 to 2^50, at which the budget is met; otherwise it raises ``ValueError``.

    >>> def training(sigma):  # 1000 steps on 1 % of the records: 10 epochs
    ...     return 1000 * Guarantee(inf, inf, "add_remove", gdp=1 / sigma)
    >>> round(least_noise(training, epsilon=3.0, delta=1e-5), 3)
    43.974
    """
    within = _budget(epsilon, delta)
    low, high = 0.5, 1.0
    while not within(spent(high)):
        low, high = high, 2 * high
        if high > 2**50:
            raise ValueError(f"no noise up to 2^50 meets epsilon={epsilon} at delta={delta}.")
    while low == high / 2 and within(spent(low)):
        low, high = low / 2, low
        if low < 2**-50:
            raise ValueError(f"any noise down to 2^-50 meets epsilon={epsilon} at delta={delta}.")
    return bisect_numbers(lambda noise: not within(spent(noise)), low, high, 1e-6)[1]


def _budget(epsilon: float, delta: float) -> Callable[[Spent], bool]:
    """Whether something that was spent is (epsilon, delta)-DP."""
    budget, allowed = checks.concrete_epsilon(epsilon), checks.concrete_fraction("delta", delta)

    def within(spent: Spent) -> bool:
        if allowed or isinstance(spent, LossDistribution):
            return spent.epsilon_at(allowed) <= budget
        return (inf if spent.delta else spent.epsilon) <= budget

    return within
