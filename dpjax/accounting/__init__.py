"""What draws cost: guarantees as data, conversions, composition, subsampling, budgets, and the hand-over to dp-accounting.

Importing this package does not import JAX; the functions of arrays do, when the first of them is asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

from dpjax.accounting._gaussian import delta_of_gdp, epsilon_of_gdp, gdp_of
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
