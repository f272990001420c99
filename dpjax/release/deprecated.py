"""The names of version 0.1, until 0.3: each warns when it is read, and says what it is called now."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import make_dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from dpjax.release import api, candidates, distribution

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


class Grid(NamedTuple):
    """Was a grid of cells of width 2^log2_step from ``lower`` on: now ``lower``, ``upper`` and ``resolution`` of each function."""

    log2_step: int
    lower: float
    size: int


def release(x: Any, *, statistic: Any, law: str = "auto", **options: Any) -> api.Release:
    """Was the release of any statistic: now a function of each."""
    function, arguments = _asked(statistic, law, options)
    return function(x, **arguments)


def exact_law(x: Any, *, statistic: Any, law: str = "auto", **options: Any) -> distribution.GridDistribution:
    """Is :func:`dpjax.release.exact_distribution`, and speaks in the units of the data."""
    function, arguments = _asked(statistic, law, options)
    return api.exact_distribution(function, x, **arguments)


def _asked(statistic: Any, law: str, options: dict[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function of a statistic and its arguments; one that it does not take is a TypeError, unless it says nothing."""
    kind = statistic if isinstance(statistic, str) else type(statistic)
    if kind == "median":
        options = {"definition": "linear", **options}
    if kind not in _FUNCTIONS:
        raise ValueError(f"statistic must be one of {', '.join(map(repr, _FUNCTIONS))}; got {statistic!r}.")
    if law not in ("auto", "owned_cell"):
        raise ValueError(f"there is one distribution on a grid, in which a value keeps mass: law={law!r} is gone.")
    given = options | ({} if isinstance(statistic, str) else vars(statistic))
    given = {name: value for name, value in given.items() if value is not None}
    grid, size = given.pop("grid", None), given.pop("size", None)
    if grid is not None:
        step = Fraction(2) ** grid.log2_step
        least = Fraction(grid.lower)
        given |= {"resolution": step, "lower": least, "upper": least + ((size or grid.size) - 1) * step}
    elif size is not None:
        given["upper"] = size - 1
    if isinstance(statistic, Total):
        given.pop("lower", None)
        if "persons" in given:
            return api.user_sum, {"person_ids": given.pop("persons"), **given}
    return _FUNCTIONS[kind], given


_STATISTICS = "median, quantile, order_statistic, maximum, nonnegative_sum, user_sum, distinct_count, sum, mean or mode"
_NAMES: dict[str, tuple[Any, str]] = {
    "release": (release, _STATISTICS),
    "exact_law": (exact_law, "exact_distribution"),
    "GridLaw": (distribution.GridDistribution, "GridDistribution"),
    "Grid": (Grid, "lower=, upper= and resolution="),
    "Quantile": (Quantile, "quantile"),
    "OrderStatistic": (OrderStatistic, "order_statistic"),
    "Maximum": (Maximum, "maximum"),
    "Total": (Total, "nonnegative_sum"),
    "Distinct": (Distinct, "distinct_count"),
    "Mode": (Mode, "mode"),
}


def renamed(name: str) -> Any:
    """Return what had this name, with a warning that names the new one."""
    if name not in _NAMES:
        raise AttributeError(f"module 'dpjax.release' has no attribute {name!r}")
    found, new = _NAMES[name]
    warnings.warn(f"dpjax.release.{name} goes in version 0.3: use {new} of dpjax.release.", DeprecationWarning, stacklevel=3)
    return found
