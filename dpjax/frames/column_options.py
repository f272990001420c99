"""Conversion of the arguments of a simulation or release, for each column.

The result is a statistic or a JAX function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.frames.columns import NESTED, TIMES, is_numbers
from dpjax.release import (
    Count,
    Maximum,
    Mean,
    Median,
    OrderStatistic,
    Quantile,
    Quantiles,
    Statistic,
    Sum,
)
from dpjax.release.counts import Counts
from dpjax.release.exponentials import exact_epsilon
from dpjax.release.grid import kind_of

Columns = str | Iterable[str] | Mapping[str, Mapping[str, Any] | Statistic]

# The names of functions of dpjax and dpjax.release, and the statistic of each: order_statistic is
# OrderStatistic.
_NAMES = (
    "median",
    "quantile",
    "order_statistic",
    "mode",
    "maximum",
    "nonnegative_sum",
    "sum",
    "mean",
    "count",
    "distinct_count",
)
# Mechanisms of several quantiles.
_METHODS = {
    "joint_quantiles": "joint",
    "nested_quantiles": "nested",
    "recursive_quantiles": "recursive",
}
_KINDS: dict[str, Any] = {
    name: Statistic.kinds[name.title().replace("_", "")] for name in _NAMES
} | dict.fromkeys(_METHODS, Quantiles)
# Functions of dpjax with other names
_SIMULATED_AS = {"quantiles": "joint_quantiles", "candidate_counts": "mode"}
_NO_RELEASE = "dpjax.statistics._mode.mode"  # its profile has no release
# Simulated by JAX without a resolution
ON_THE_LINE = (Median, Quantile, OrderStatistic, Quantiles, Sum, Mean)
BY_RANK = (Median, Quantile, OrderStatistic, Quantiles)
_FOR_EACH = ("epsilon", "draws", "mechanism")


@dataclass(frozen=True)
class Asked:
    """The statistic of a column, and the options of its draws.

    Attributes:
        statistic: the statistic of a release; None if only JAX can simulate it.
        function: the function for JAX if ``statistic`` is None; None for the median.
        name: of the statistic.
        options: of the function.
        epsilons: one or several; one for a release.
        draws: the number of draws, each of which costs epsilon.
        mechanism: its name, or None.
        lacking: what a release needs in addition, as text.
    """

    statistic: Statistic | None
    function: Callable[..., Any] | None
    name: str
    options: dict[str, Any]
    epsilons: tuple[Any, ...]
    draws: int
    mechanism: str | None
    lacking: tuple[str, ...] = ()

    @property
    def levels(self) -> tuple[float, ...]:
        """The levels of several quantiles; empty for other statistics."""
        return (
            tuple(map(float, self.statistic.levels))
            if isinstance(self.statistic, Quantiles)
            else ()
        )

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The public bounds of records; None where there are none."""
        has = isinstance(self.statistic, (*ON_THE_LINE, Maximum))
        values: Any = (
            self.options if self.statistic is None else vars(self.statistic) if has else {}
        )
        low, high = (
            None if values.get(name) is None else float(checks.exact(values[name]) or 0)
            for name in ("lower", "upper")
        )
        return low, high

    @property
    def kind(self) -> str | None:
        """The kind of the bounds if they are dates, times or durations, as the name of a dtype.

        None for numbers.
        """
        return kind_of(getattr(self.statistic, "lower", None)) or kind_of(
            getattr(self.statistic, "upper", None)
        )


def check_kind(column: Any, kind: str, asked: Asked) -> None:
    """Raise ``TypeError`` if a column's dtype does not hold numbers.

    With bounds of that kind, it must hold dates or times.
    """
    if isinstance(asked.statistic, Count) and not kind.startswith(NESTED):
        return  # values of any kind can be counted
    if asked.kind is None and is_numbers(kind):
        return
    if asked.kind is None and kind in TIMES:
        raise TypeError(
            f"column {column!r} holds {kind.lower()} values: lower and upper must be of this kind, "
            "and resolution a timedelta."
        )
    if asked.kind is None:
        raise TypeError(
            f"column {column!r} must have a dtype of numbers, dates, times or durations: convert "
            "it first."
        )
    if kind != asked.kind and (kind, asked.kind) != ("Datetime", "Date"):
        raise TypeError(
            f"column {column!r} holds {kind.lower()} values, but the bounds are of the kind "
            f"{asked.kind.lower()}."
        )


def asked_of(
    columns: Columns, statistic: Any, shared: dict[str, Any], neighbors: str, *, simulated: bool
) -> dict[str, Asked]:
    """Return the statistic and options of each column; its options override the shared ones."""
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    if isinstance(columns, Mapping):
        by_column: dict[str, tuple[Any, dict[str, Any]]] = {
            name: (arguments, shared)
            if isinstance(arguments, Statistic)
            else (statistic, shared | dict(arguments))
            for name, arguments in columns.items()
        }
    elif hasattr(columns, "dtype"):
        raise TypeError(
            f"columns must be names of columns of the frame, got the {type(columns).__name__} "
            "itself."
        )
    else:
        names = (
            [columns]
            if isinstance(columns, str) or not isinstance(columns, Iterable)
            else list(columns)
        )
        if len(set(names)) < len(names):
            raise ValueError(f"columns must be one or more different names, got {columns!r}.")
        by_column = dict.fromkeys(names, (statistic, shared))
    if not by_column:
        raise ValueError(f"columns must be one or more different names, got {columns!r}.")
    return {
        name: _asked(one, arguments, neighbors, simulated)
        for name, (one, arguments) in by_column.items()
    }


def _asked(statistic: Any, options: Mapping[str, Any], neighbors: str, simulated: bool) -> Asked:
    arguments = {name: value for name, value in options.items() if value is not None}
    for arrays in ("counts", "mask"):
        if arrays in arguments:
            raise ValueError(
                f"{arrays}= is for arrays only: every row of a frame is one record; filter the "
                "frame first."
            )
    for weights in ("weights", "weight", "sample_weight", "sample_weights"):
        if weights in arguments:
            raise TypeError(
                f"{weights}= is not supported: each person counts once, by one row, or with unit= "
                "by all rows. A person with weight w would change the counts by w records, and "
                "have a guarantee of w times epsilon."
            )
    if "epsilon" not in arguments:
        raise TypeError(
            "epsilon= is missing: give one for all columns, or one for each in a mapping of "
            "columns."
        )
    if np.ndim(arguments["epsilon"]) and not simulated:
        raise ValueError(
            "epsilon must be one number, or one for each column, in a release; simulate takes "
            "several."
        )
    epsilons = tuple(
        dict.fromkeys(np.atleast_1d(np.asarray(arguments.pop("epsilon"), object)).tolist())
    )
    draws, mechanism = (
        checks.static_integer("draws", arguments.pop("draws", 1), 1),
        arguments.pop("mechanism", None),
    )
    common: Any = {"epsilons": epsilons, "draws": draws, "mechanism": mechanism}
    name = _name_of(statistic)
    if isinstance(statistic, Statistic):
        if arguments:
            raise TypeError(
                f"{statistic!r} takes only epsilon, draws and mechanism as options, got "
                f"{', '.join(arguments)}."
            )
        made, lacking = statistic, []
        if simulated and mechanism == "laplace" and isinstance(statistic, Median | Quantile):
            lacking = ["another mechanism"]
    elif name is None:
        _refuse_other(statistic, simulated)
        # Its name may be that of a statistic
        called = f"function {getattr(statistic, '__name__', statistic)}"
        return Asked(None, statistic, called, arguments, lacking=("another statistic",), **common)
    else:
        by_jax = simulated and not getattr(statistic, "__module__", "").startswith("dpjax.release")
        lacking = _lacking(name, arguments, mechanism, neighbors) if by_jax else []
        # Laplace noise on a grid
        in_numpy = lacking == ["another mechanism"] and name in ("median", "quantile")
        if lacking and not in_numpy and mechanism != "permute_and_flip":
            return Asked(None, statistic, name, arguments, lacking=tuple(lacking), **common)
        made = _made(name, arguments, neighbors)
    if not isinstance(made, tuple(_KINDS.values())):
        _refuse_other(made, simulated=False)
    name_of = made.checked(neighbors, None if mechanism == "laplace" and lacking else mechanism)
    nobody = Counts.of_rows([], [], [], groups=0)
    for epsilon in epsilons:
        made.check(nobody, exact_epsilon(epsilon), neighbors, name_of)
    return Asked(
        made, None, name or type(made).__name__, arguments, lacking=tuple(lacking), **common
    )


def _name_of(statistic: Any) -> str | None:
    """Return the name of the statistic of a function of the library, or of None: the median.

    Else None.
    """
    if statistic is None:
        return "median"
    module, name = getattr(statistic, "__module__", None) or "", getattr(statistic, "__name__", "")
    if f"{module}.{name}" == _NO_RELEASE or not module.startswith(
        ("dpjax.release.", "dpjax.statistics.", "dpjax.mechanisms.")
    ):
        return None
    name = _SIMULATED_AS.get(name, name)
    return name if name in _KINDS else None


def _lacking(name: str, own: Mapping[str, Any], mechanism: str | None, neighbors: str) -> list[str]:
    """Return the arguments that a release needs but JAX simulates without."""
    kind = _KINDS[name]
    if kind not in ON_THE_LINE or own.get("grid") is not None:
        return []
    found = ["resolution="] if "resolution" not in own else []
    if mechanism == "laplace":
        found.append("another mechanism")
    if neighbors not in kind.relations:
        found.append("neighbors='swap'")
    several = name == "joint_quantiles" and np.size(np.asarray(own.get("qs", ()), object)) > 1
    if several and neighbors == "add_remove" and not {"max_records", "reach"} & set(own):
        found.append("max_records=")
    return found


def _made(name: str, own: Mapping[str, Any], neighbors: str) -> Statistic:
    """Return the statistic with this function name and these options."""
    kind, fixed = _KINDS[name], {"method": _METHODS[name]} if name in _METHODS else {}
    if name == "joint_quantiles" and "public_n" in own:
        raise ValueError(
            "public_n= is not for frames, whose sizes are private: give max_records=, a public "
            "guess of the largest group's size."
        )
    if neighbors == "swap" and name == "joint_quantiles" and "max_records" in own:
        raise ValueError(
            "max_records is for add_remove neighbors: under swap the number of records is public."
        )
    takes = [field for field in fields(kind) if field.name not in fixed]
    if name in ("nested_quantiles", "recursive_quantiles"):
        takes = [field for field in takes if field.name not in ("max_records", "reach", "terms")]
    if unknown := sorted(set(own) - {field.name for field in takes}):
        known = [
            *(field.name for field in takes),
            *_FOR_EACH[:2],
            *_FOR_EACH[2:] * bool(kind.mechanisms),
        ]
        raise TypeError(f"{name} has no option {unknown[0]!r}: its options are {', '.join(known)}.")
    if missing := [
        field.name for field in takes if field.default is MISSING and field.name not in own
    ]:
        raise TypeError(f"{name} needs {', '.join(f'{each}=' for each in missing)}.")
    made: Statistic = kind(**own, **fixed)
    return made


def _refuse_other(statistic: Any, simulated: bool) -> None:
    if simulated and callable(statistic):
        return
    raise TypeError(
        "statistic must be an object such as dpjax.release.Median(lower=0, upper=120, "
        f"resolution=1), or one of these functions of dpjax.release: {', '.join(_KINDS)}; got "
        f"{statistic!r}. For histograms and other results that are arrays, call the function with "
        "a column as an array: dpjax.release.histogram(column, ...)."
    )
