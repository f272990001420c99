"""Accounting says what draws cost: guarantees as data, conversions, composition, subsampling, budgets, and dp-accounting.

Importing this package does not import JAX; the functions of arrays do, when the first of them is asked for.

**Budgets while you look.** Where the next query depends on the answers so far, a :class:`PrivacyFilter` keeps the whole within
(epsilon, delta) and refuses what would pass it. With a delta it admits whatever keeps the sum of epsilons, or the zCDP, or the
Renyi divergence of one of some public orders within its budget; deltas of mechanisms have a part of their own. Interactive
mechanisms are charged when they start, and may then be interleaved in any order. :class:`PartitionFilter` keeps one budget for
each part of the data, since mechanisms on different parts do not add up, and :class:`Ledger` keeps a budget in a file.

>>> budget, small, charged = PrivacyFilter(1.0, 1e-6, "add_remove", orders=(16.0, 32.0)), Guarantee(0.05, 0.05, "add_remove"), 0
>>> while budget.allows(small):
...     budget.charge(small)
...     charged += 1
>>> charged  # by their sum it would be 20
69

**Plans.** :func:`steps_within` says how many steps fit into a budget, :func:`least_noise` how little noise meets it, and
:func:`epsilon_per_query` what each of several queries may cost, before anything is drawn. An even split gives each of ten queries
of a total of 1 an epsilon of 0.1:

>>> round(epsilon_per_query(count=10, epsilon=1.0, delta=1e-6), 3)
0.153

**Training with private clipping norms.** A step draws a clipping norm and adds Gaussian noise on the same Poisson subsample: the
two are added up *before* :func:`poisson_subsample`. Added up afterwards, 200 steps would seem to cost less than they do. Here the
draws have epsilon 0.1, the noise has twice the standard deviation of what one example changes, and examples are taken with
probability 0.075:

>>> from math import inf
>>> draw, gaussian = Guarantee(0.1, 0.1, "add_remove"), Guarantee(inf, inf, "add_remove", zcdp=1 / (2 * 2.0**2))
>>> round((200 * poisson_subsample(draw + gaussian, probability=0.075)).epsilon_at(1e-5), 2)
2.71

That composes Renyi divergences, exact for subsampled Gaussian noise at integer orders and a bound for the draw, and the epsilon
that they are turned into is a bound, too. The noise alone is 2.69 by the same way; given as ``Guarantee(inf, inf, "add_remove",
gdp=1 / 2.0)`` it is composed by its privacy losses, and costs 2.44. Under swap a Poisson subsample amplifies nothing
(:func:`fixed_size_subsample` is for samples of a fixed size): such a run costs ``200 * (draw + gaussian)`` of that relation, where
the sum of clipped gradients moves by twice the norm. On a linear scale the norms are too far off to train with; notebook 06 and
:class:`dpjax.Log` have the scale that works.
"""

import importlib
from typing import TYPE_CHECKING, Any

from dpjax.accounting._gaussian_dp import delta_of_gdp, epsilon_of_gdp, gdp_of
from dpjax.accounting.budgeting import epsilon_per_query
from dpjax.accounting.composition import Composition
from dpjax.accounting.composition_theorems import (
    advanced_epsilon,
    bounded_range_delta,
    bounded_range_epsilon,
    optimal_pure_delta,
    optimal_pure_epsilon,
)
from dpjax.accounting.failures import absorb_failure, attempts_for, condition_on_success, retry_until_success
from dpjax.accounting.filters import BudgetExceeded, PrivacyFilter
from dpjax.accounting.fixed_size_subsampling import fixed_size_subsample
from dpjax.accounting.groups import for_groups, parallel
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.interop import dp_accounting_relation, to_dp_event
from dpjax.accounting.ledger import Ledger
from dpjax.accounting.odometers import PrivacyOdometer
from dpjax.accounting.partitions import PartitionFilter
from dpjax.accounting.planning import least_noise, steps_within
from dpjax.accounting.subsampling import poisson_subsample
from dpjax.accounting.trade_off import trade_off_bound

if TYPE_CHECKING:
    from dpjax.accounting.allocation import allocate, epsilon_for_error
    from dpjax.accounting.amplified_epsilon import epsilon_before_sampling, sampling_efficiency, subsampled_epsilon
    from dpjax.accounting.conversions import (
        bounded_range_of_zcdp,
        delta_of_rdp,
        delta_of_zcdp,
        epsilon_of_rdp,
        epsilon_of_zcdp,
        pure_of_zcdp,
        rdp_of_bounded_range,
        rdp_of_laplace,
        rdp_of_pure,
        zcdp_of,
        zcdp_of_bounded_range,
        zcdp_of_pure,
    )

__all__ = [
    "BudgetExceeded",
    "Composition",
    "Guarantee",
    "Ledger",
    "PartitionFilter",
    "PrivacyFilter",
    "PrivacyOdometer",
    "absorb_failure",
    "advanced_epsilon",
    "allocate",
    "attempts_for",
    "bounded_range_delta",
    "bounded_range_epsilon",
    "bounded_range_of_zcdp",
    "condition_on_success",
    "delta_of_gdp",
    "delta_of_rdp",
    "delta_of_zcdp",
    "dp_accounting_relation",
    "epsilon_before_sampling",
    "epsilon_for_error",
    "epsilon_of_gdp",
    "epsilon_of_rdp",
    "epsilon_of_zcdp",
    "epsilon_per_query",
    "fixed_size_subsample",
    "for_groups",
    "gdp_of",
    "least_noise",
    "optimal_pure_delta",
    "optimal_pure_epsilon",
    "parallel",
    "poisson_subsample",
    "pure_of_zcdp",
    "rdp_of_bounded_range",
    "rdp_of_laplace",
    "rdp_of_pure",
    "retry_until_success",
    "sampling_efficiency",
    "steps_within",
    "subsampled_epsilon",
    "to_dp_event",
    "trade_off_bound",
    "zcdp_of",
    "zcdp_of_bounded_range",
    "zcdp_of_pure",
]

_OF_ARRAYS = {
    **dict.fromkeys(("allocate", "epsilon_for_error"), "allocation"),
    **dict.fromkeys(("epsilon_before_sampling", "sampling_efficiency", "subsampled_epsilon"), "amplified_epsilon"),
    **dict.fromkeys(
        (
            "bounded_range_of_zcdp",
            "delta_of_rdp",
            "delta_of_zcdp",
            "epsilon_of_rdp",
            "epsilon_of_zcdp",
            "pure_of_zcdp",
            "rdp_of_bounded_range",
            "rdp_of_laplace",
            "rdp_of_pure",
            "zcdp_of",
            "zcdp_of_bounded_range",
            "zcdp_of_pure",
        ),
        "conversions",
    ),
}


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a function of arrays when it is asked for."""
        if name not in _OF_ARRAYS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_OF_ARRAYS[name]}"), name)
        return found
