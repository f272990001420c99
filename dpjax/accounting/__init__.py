"""Privacy accounting: guarantees, conversions, composition, subsampling and budgets.

The extra ``accounting`` composes privacy losses by dp-accounting, and :meth:`Composition.losses` is
one of its distributions. Importing this package does not import JAX: numbers
are on the host. One that is out of range raises ``ValueError``.

**Adaptive budgets.** Where the next query depends on the answers so far, a :class:`PrivacyFilter`
keeps all mechanisms together (epsilon, delta)-DP and refuses a mechanism that would exceed this
budget. With a delta it admits a mechanism if the sum of the epsilons or the zCDP stays within its
budget; a separate part of delta pays for the mechanisms' own deltas. Interactive mechanisms are
charged when they start, and may then be interleaved in any order. The costs of mechanisms on
disjoint parts of the people do not add up: ``budget.part("north")`` is a budget, too.
:class:`Ledger` keeps a budget in a file.

>>> budget = PrivacyFilter(1.0, 1e-6, "add_remove")
>>> small = Guarantee(0.05, 0.05, "add_remove")
>>> budget.charge(small)
>>> budget.times(small)  # if epsilons were summed, it would be 19
76

**Planning.** Before anything is drawn, :func:`steps_within` returns how many steps fit into a
budget, :func:`least_noise` the least noise that meets it, and :func:`epsilon_per_query` the largest
epsilon of each of several queries. An even split of an epsilon of 1 over ten queries would give
each of them 0.1:

>>> round(epsilon_per_query(count=10, epsilon=1.0, delta=1e-6), 3)
0.153

**Training with private clipping norms.** A step draws a clipping norm and adds Gaussian noise on
the same Poisson subsample: their guarantees must be added *before* :func:`poisson_subsample`. Added
afterwards, they would understate the cost of 200 steps. Here the draws have epsilon 0.1, the
standard deviation of the noise is twice the sensitivity to one example, and each example is taken
with probability 0.075:

>>> draw = Guarantee(0.1, 0.1, "add_remove")
>>> gaussian = Guarantee(neighbors="add_remove", gdp=1 / 2.0)
>>> spent = 200 * poisson_subsample(draw + gaussian, probability=0.075)
>>> round(spent.rules_at(1e-5)["rdp"], 2)
2.71

This composes Renyi divergences, which are exact for subsampled Gaussian noise at integer orders and
an upper bound for the draw; their conversion to epsilon is an upper bound, too. With the extra
``accounting``, the privacy losses on the samples are composed, and ``spent.epsilon_at(1e-5)`` is
2.46; that of the noise alone 2.44. Under swap neighbors Poisson subsampling
gives no amplification (use :func:`fixed_size_subsample` with samples of a fixed size): such a run
costs ``200 * (draw + gaussian)`` under that relation, where the sensitivity of the sum of clipped
gradients is twice the norm. Norms drawn on a linear scale are too inaccurate to train with; draw
them on a logarithmic scale, :class:`dpjax.Log`, as in notebook 06.
"""

from __future__ import annotations

from dpjax.accounting.conversions import (
    delta_of_rdp,
    epsilon_before_sampling,
    epsilon_of_rdp,
    rdp_of_bounded_range,
    rdp_of_laplace,
    rdp_of_pure,
    sampling_efficiency,
    zcdp_of,
)
from dpjax.accounting.failures import absorb_failure, condition_on_success, retry_until_success
from dpjax.accounting.filters import BudgetExceeded, PrivacyFilter, PrivacyOdometer
from dpjax.accounting.gaussian_dp import delta_of_gdp, epsilon_of_gdp, gdp_of
from dpjax.accounting.groups import for_groups, parallel
from dpjax.accounting.guarantee import Composition, Guarantee
from dpjax.accounting.ledger import Ledger
from dpjax.accounting.planning import epsilon_per_query, least_noise, steps_within
from dpjax.accounting.ranges import (
    bounded_range_delta,
    bounded_range_epsilon,
    optimal_pure_delta,
    optimal_pure_epsilon,
)
from dpjax.accounting.sampling import fixed_size_subsample, poisson_subsample
from dpjax.accounting.trade_off import trade_off_bound

__all__ = [
    "BudgetExceeded",
    "Composition",
    "Guarantee",
    "Ledger",
    "PrivacyFilter",
    "PrivacyOdometer",
    "absorb_failure",
    "bounded_range_delta",
    "bounded_range_epsilon",
    "condition_on_success",
    "delta_of_gdp",
    "delta_of_rdp",
    "epsilon_before_sampling",
    "epsilon_of_gdp",
    "epsilon_of_rdp",
    "epsilon_per_query",
    "fixed_size_subsample",
    "for_groups",
    "gdp_of",
    "least_noise",
    "optimal_pure_delta",
    "optimal_pure_epsilon",
    "parallel",
    "poisson_subsample",
    "rdp_of_bounded_range",
    "rdp_of_laplace",
    "rdp_of_pure",
    "retry_until_success",
    "sampling_efficiency",
    "steps_within",
    "trade_off_bound",
    "zcdp_of",
]


def __dir__() -> list[str]:
    return __all__
