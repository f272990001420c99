"""What draws cost: guarantees as data, conversions, composition, subsampling, budgets, and the hand-over to dp-accounting."""

from dpjax.accounting.budgeting import allocate, epsilon_for_error, epsilon_per_query
from dpjax.accounting.composition import Composition
from dpjax.accounting.composition_theorems import (
    advanced_epsilon,
    bounded_range_delta,
    bounded_range_epsilon,
    optimal_pure_delta,
    optimal_pure_epsilon,
)
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
from dpjax.accounting.failures import absorb_failure, attempts_for, condition_on_success, retry_until_success
from dpjax.accounting.filters import BudgetExceeded, PrivacyFilter, PrivacyOdometer
from dpjax.accounting.gaussian import delta_of_gdp, epsilon_of_gdp, gdp_of
from dpjax.accounting.groups import for_groups, parallel
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.interop import dp_accounting_relation, to_dp_event
from dpjax.accounting.loss_distributions import LossDistribution
from dpjax.accounting.subsampling import epsilon_before_sampling, poisson_subsample, sampling_efficiency, subsampled_epsilon

__all__ = [
    "BudgetExceeded",
    "Composition",
    "Guarantee",
    "LossDistribution",
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
    "for_groups",
    "gdp_of",
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
    "subsampled_epsilon",
    "to_dp_event",
    "zcdp_of",
    "zcdp_of_bounded_range",
    "zcdp_of_pure",
]


def __dir__() -> list[str]:
    return __all__
