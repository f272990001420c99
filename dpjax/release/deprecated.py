"""The names of version 0.1, until 0.3: each warns when it is read, and says what it is called now."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import make_dataclass
from typing import Any

from dpjax.release import api, candidates, distribution, exact, integer_profiles, sampler, tables

Quantile = make_dataclass("Quantile", ["q", ("definition", str, "linear")], frozen=True)
OrderStatistic = make_dataclass("OrderStatistic", ["rank"], frozen=True)
Maximum = make_dataclass("Maximum", ["tau"], frozen=True)
Total = make_dataclass("Total", ["tau", "size"], frozen=True)
Distinct = make_dataclass("Distinct", ["tau", "size"], frozen=True)
Mode = make_dataclass("Mode", ["candidates"], frozen=True)
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    "median": api.median,
    "sum": api.sum,
    "mean": api.mean,
    Quantile: api.quantile,
    OrderStatistic: api.order_statistic,
    Maximum: api.maximum,
    Total: api.nonnegative_sum,
    Distinct: api.distinct_count,
    Mode: candidates.mode,
}


def release(x: Any, *, statistic: Any, law: str = "auto", **options: Any) -> api.Release:
    """Was the release of any statistic: now a function of each."""
    function, arguments = _asked(statistic, law, options)
    return function(x, **arguments)


def exact_law(x: Any, *, statistic: Any, law: str = "auto", **options: Any) -> GridLaw:
    """Is :func:`dpjax.release.exact_distribution`."""
    function, arguments = _asked(statistic, law, options)
    found = api.exact_distribution(function, x, **arguments)
    return GridLaw(found.profile, found.epsilon, found.variant, found.refined)


def _asked(statistic: Any, law: str, options: dict[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function of a statistic and its arguments; one that it does not take is a TypeError, unless it says nothing."""
    kind = statistic if isinstance(statistic, str) else type(statistic)
    if kind not in _FUNCTIONS:
        raise ValueError(f"statistic must be one of {', '.join(map(repr, _FUNCTIONS))}; got {statistic!r}.")
    given = options | ({} if isinstance(statistic, str) else vars(statistic)) | ({} if law == "auto" else {"variant": law})
    given = {name: value for name, value in given.items() if value is not None}
    if "persons" in given and isinstance(statistic, Total):
        return api.user_sum, {"person_ids": given.pop("persons"), **given}
    return _FUNCTIONS[kind], given


class GridLaw(distribution.GridDistribution):
    """Is :class:`dpjax.release.GridDistribution`."""

    knots = property(lambda self: self.profile)
    law = property(lambda self: self.variant)


def log_pmf(knots: Any, epsilon: float, cells: Any, *, law: Any) -> Any:
    """Is ``GridDistribution(profile, epsilon, variant).log_pmf(cells)``."""
    return distribution.GridDistribution(knots, epsilon, law).log_pmf(cells)


def certified_draw(*arguments: Any, law: Any, precision: int = 32) -> sampler.Draw:
    """Is ``sampler.certified_draw``."""
    return sampler.certified_draw(*arguments, variant=law, precision=precision)


def host_exact(*arguments: Any, law: Any, more: exact.More) -> int:
    """Is ``exact.exact_draw``."""
    return exact.exact_draw(*arguments, variant=law, more=more)


_STATISTICS = "median, quantile, order_statistic, maximum, nonnegative_sum, user_sum, distinct_count, sum, mean or mode"
_NAMES: dict[str, tuple[Any, str]] = {
    "release": (release, _STATISTICS),
    "exact_law": (exact_law, "exact_distribution"),
    "GridLaw": (GridLaw, "GridDistribution"),
    "log_pmf": (log_pmf, "GridDistribution.log_pmf"),
    "Quantile": (Quantile, "quantile"),
    "OrderStatistic": (OrderStatistic, "order_statistic"),
    "Maximum": (Maximum, "maximum"),
    "Total": (Total, "nonnegative_sum"),
    "Distinct": (Distinct, "distinct_count"),
    "Mode": (Mode, "mode"),
    "Draw": (sampler.Draw, "sampler.Draw"),
    "certified_draw": (certified_draw, "sampler.certified_draw"),
    "certified_choice": (sampler.certified_choice, "sampler.certified_choice"),
    "host_exact": (host_exact, "exact.exact_draw"),
    "exact_choice": (exact.exact_choice, "exact.exact_choice"),
    "Tables": (tables.Tables, "tables.Tables"),
    "public_tables": (tables.public_tables, "tables.public_tables"),
    "Knots": (integer_profiles.IntegerProfile, "integer_profiles.IntegerProfile"),
    "order_knots": (integer_profiles.order_statistic, "integer_profiles.order_statistic"),
    "sum_knots": (integer_profiles.sum_of_records, "integer_profiles.sum_of_records"),
    "maximum_knots": (integer_profiles.maximum, "integer_profiles.maximum"),
    "total_knots": (integer_profiles.nonnegative_sum, "integer_profiles.nonnegative_sum"),
    "distinct_knots": (integer_profiles.distinct_count, "integer_profiles.distinct_count"),
}


def renamed(name: str) -> Any:
    """Return what had this name, with a warning that names the new one."""
    if name not in _NAMES:
        raise AttributeError(f"module 'dpjax.release' has no attribute {name!r}")
    found, new = _NAMES[name]
    warnings.warn(f"dpjax.release.{name} goes in version 0.3: use {new} of dpjax.release.", DeprecationWarning, stacklevel=3)
    return found
