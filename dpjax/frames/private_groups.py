"""Private selection of groups that are not known in advance.

Those are kept whose noisy size reaches a threshold. To the size n of each group that has a record,
exact discrete Laplace noise Z is added, P(Z = z) = tanh(epsilon/2) e^(-epsilon abs(z)); groups with
n + Z >= T are kept, with their noisy size. One record more in such a group changes n by 1:
epsilon-DP. A record in a new group makes new outputs possible, with probability

    P(1 + Z >= T) = e^(-epsilon (T - 1)) / (1 + e^-epsilon),

which is exactly delta; T is the least integer whose delta is at most the requested one. A person
who adds one record to each of at most m groups changes m noisy sizes, which costs m epsilon. If j
of the groups are new, one of them is kept with probability 1 - (1 - p)^j, with p as above; outputs
without any of them differ by at most the epsilons of the other m - j groups. So delta is 1 - (1 -
p)^m, which is attained if all m groups are new.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import expm1, inf, log, log1p, nextafter

import numpy as np

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.release.exponentials import exact_epsilon, exponential
from dpjax.release.integer_noise import draw_discrete_laplace
from dpjax.release.result import cost_of

_BITS = 128


@dataclass(frozen=True)
class PrivateGroups:
    """Selection of groups in the data, (epsilon, delta)-DP for a record that is added or removed.

    Attributes:
        epsilon: from 2^-30 to 64, for the choice of the groups and their noisy sizes together.
        delta: in (0, 1), the probability that new groups are kept; it should be far below one over
            the number of people. It is that of a person.
        max_groups: the maximal number of groups that a person counts in, which
            :func:`dpjax.frames.release` sets. Each costs epsilon.

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
        """Raise for an epsilon or delta out of range."""
        exact_epsilon(self.epsilon)
        checks.concrete_delta(self.delta)
        checks.static_integer("max_groups", self.max_groups, 1)

    @property
    def threshold(self) -> int:
        """The least T >= 1 whose exact delta is at most ``delta``."""
        rate = float(self.epsilon)
        least = max(int((-log(self.delta) - log1p(expm1(-rate) + 1)) / rate) - 1, 1)
        while _delta_of(exact_epsilon(self.epsilon), least, self.max_groups) > Fraction(self.delta):
            least += 1
        return least

    @property
    def guarantee(self) -> Guarantee:
        """The cost of the choice of groups and their noisy sizes, with the exact delta.

        It is rounded up.
        """
        delta = _delta_of(exact_epsilon(self.epsilon), self.threshold, self.max_groups)
        total = cost_of(exact_epsilon(self.epsilon), self.max_groups, "add_remove").epsilon
        return Guarantee(total, inf, "add_remove", delta=nextafter(float(delta), 1.0))

    def probability_kept(self, sizes: object) -> np.ndarray:
        """Return the exact probability that groups of these sizes are kept, float64.

        It is not private.
        """
        beyond = self.threshold - np.asarray(sizes, np.float64)
        with np.errstate(over="ignore"):
            tail = np.exp(-self.epsilon * np.where(beyond > 0, beyond, 1 - beyond)) / (1 + np.exp(-self.epsilon))
        return np.where(beyond > 0, tail, 1 - tail)

    def release(self, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Choose among groups with these sizes.

        Return the indices of those kept and their noisy sizes, int64.
        """
        noisy = sizes + draw_discrete_laplace([exact_epsilon(self.epsilon)], sizes.size, 1)[0, :, 0]
        kept = np.flatnonzero(noisy >= self.threshold)
        return kept, noisy[kept]


def _delta_of(rate: Fraction, threshold: int, groups: int) -> Fraction:
    """Return an upper bound of 1 - (1 - p)^groups for p = e^(-rate (T - 1)) / (1 + e^-rate).

    It uses an exact enclosure of p.
    """
    found = exponential(rate * (threshold - 1), _BITS).over(exponential(rate, _BITS).one_plus(), _BITS)
    kept = Fraction(found.high, 2**found.scale)
    return 1 - (1 - kept) ** groups if groups > 1 else kept
