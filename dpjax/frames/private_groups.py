"""Groups that nobody knows beforehand: those whose noisy size reaches a threshold.

To each group that has a record an exact discrete Laplace number Z is added, P(Z = z) = tanh(epsilon/2) e^(-epsilon abs(z)); groups
with n + Z >= T are kept, with that number. One record more in a group that has some changes n by 1: epsilon-DP. One in a new group
makes an output possible that was not, with probability

    P(1 + Z >= T) = e^(-epsilon (T - 1)) / (1 + e^-epsilon),

which is delta exactly; T is the least integer that keeps it within what is asked. A person who adds one record to each of at most m
groups changes m noisy sizes, m epsilon in all, and where j of the groups are new, one of them is kept with the probability
1 - (1 - p)^j, p as above; outputs without any of them differ by the other m - j groups' epsilons at most. So delta is
1 - (1 - p)^m, which is attained where all m groups are new.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import expm1, inf, log, log1p, nextafter

import numpy as np

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.release.discrete_laplace import draw_discrete_laplace
from dpjax.release.exponentials import exact_epsilon, exponential
from dpjax.release.result import cost_of

_BITS = 128


@dataclass(frozen=True)
class PrivateGroups:
    """Groups that are found in the data, under (epsilon, delta)-DP for one record more or less, which is in one group.

    Attributes:
        epsilon: from 2^-30 to 64, for the choice of the groups and their noisy sizes together.
        delta: for groups of one record, between 0 and 1; far below one over the number of people. It is that of a person.
        max_groups: the most groups that a person counts in; :func:`dpjax.frames.release` sets it. Each costs epsilon.

    References:
        Korolova, Kenthapadi, Mishra and Ntoulas (2009); Wilson et al. (2020), with discrete noise.

    >>> groups = PrivateGroups(epsilon=1.0, delta=1e-6)
    >>> groups.threshold, groups.guarantee.delta <= 1e-6
    (15, True)
    >>> np.round(groups.probability_kept([1, 10, 15, 20]), 7).tolist()
    [6e-07, 0.0049258, 0.7310586, 0.9981879]
    """

    epsilon: float
    delta: float
    max_groups: int = 1

    def __post_init__(self) -> None:
        """Raise for an epsilon or a delta outside its range."""
        exact_epsilon(self.epsilon)
        checks.concrete_delta(self.delta)
        checks.static_integer("max_groups", self.max_groups, 1)

    @property
    def threshold(self) -> int:
        """The least T >= 1 whose delta is not above the one that is asked."""
        rate = float(self.epsilon)
        least = max(int((-log(self.delta) - log1p(expm1(-rate) + 1)) / rate) - 1, 1)
        while _delta_of(exact_epsilon(self.epsilon), least, self.max_groups) > Fraction(self.delta):
            least += 1
        return least

    @property
    def guarantee(self) -> Guarantee:
        """What the choice of groups and their noisy sizes cost, with the exact delta, rounded up."""
        delta = _delta_of(exact_epsilon(self.epsilon), self.threshold, self.max_groups)
        whole = cost_of(exact_epsilon(self.epsilon), self.max_groups, "add_remove").epsilon
        return Guarantee(whole, inf, "add_remove", delta=nextafter(float(delta), 1.0))

    def probability_kept(self, sizes: object) -> np.ndarray:
        """Return the exact probability that groups of so many records are kept, float64: not private, for evaluation."""
        beyond = self.threshold - np.asarray(sizes, np.float64)
        with np.errstate(over="ignore"):
            tail = np.exp(-self.epsilon * np.where(beyond > 0, beyond, 1 - beyond)) / (1 + np.exp(-self.epsilon))
        return np.where(beyond > 0, tail, 1 - tail)

    def release(self, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Choose groups by the sizes of those that have a record: which are kept, and their noisy sizes, int64."""
        noisy = sizes + draw_discrete_laplace([exact_epsilon(self.epsilon)], sizes.size, 1)[0, :, 0]
        kept = np.flatnonzero(noisy >= self.threshold)
        return kept, noisy[kept]


def _delta_of(rate: Fraction, threshold: int, groups: int) -> Fraction:
    """Return an upper bound of 1 - (1 - p)^groups for p = e^(-rate (T - 1)) / (1 + e^-rate), by an enclosure of p."""
    found = exponential(rate * (threshold - 1), _BITS).over(exponential(rate, _BITS).one_plus(), _BITS)
    kept = Fraction(found.high, 2**found.scale)
    return 1 - (1 - kept) ** groups if groups > 1 else kept
