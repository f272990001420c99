"""What a theorem is: a function whose annotations check the numbers that it is given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np

from dpjax import checks
from dpjax.checks.numbers import FINITE, NONNEGATIVE, POSITIVE, PROBABILITY, Interval
from dpjax.sensitivity.profile import SensitivityProfile

Function = TypeVar("Function", bound=Callable[..., Any])


class TailBound(NamedTuple):
    """A tail bound, P(error > threshold) <= probability; both are floats or float arrays."""

    threshold: Any
    probability: Any


def theorem(function: Function) -> Function:
    """Return the function of checked numbers: float64 arrays of NumPy, or one Python number.

    Defaults are not checked.
    """
    signature = inspect.signature(function, eval_str=True)

    @wraps(function)
    def checked(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options)
        for name, value in given.arguments.items():
            parameter = signature.parameters[name]
            for check in getattr(parameter.annotation, "__metadata__", ()):
                if value is not parameter.default:
                    given.arguments[name] = check(name, value)
        return function(*given.args, **given.kwargs)

    return checked  # type: ignore[return-value]


def data(name: str, value: Any) -> Any:
    """Return numbers of any value, as data never raise."""
    numbers = checks.host_floats(name, value).astype(np.float64)
    return numbers if numbers.ndim else float(numbers)


def public(interval: Interval, name: str, value: Any) -> Any:
    """Return numbers; raise ``ValueError`` if one of them is not in the interval."""
    numbers = data(name, None if isinstance(value, bool) else value)
    if not np.all(interval.holds(numbers)):
        raise ValueError(f"{name} must be {interval.must}, got {value}.")
    return numbers


Data = Annotated[Any, data]
Finite = Annotated[Any, partial(public, FINITE)]
Positive = Annotated[Any, partial(public, POSITIVE)]
NotNegative = Annotated[Any, partial(public, NONNEGATIVE)]
Probability = Annotated[Any, partial(public, PROBABILITY)]
Count = Annotated[int, partial(checks.static_integer, least=1)]


def reach(profile: SensitivityProfile) -> tuple[Any, Any]:
    """Return how far from its value the statistic can get, and by how many changes."""
    checks.instance("a bound", profile, SensitivityProfile, "such as dpjax.median(...)")
    if not profile.integer_levels or profile.step is not None:
        raise ValueError("profile must have integer levels and no steps, and end at its bounds.")
    values = data("profile", profile.values)
    return values - values[..., [profile.center]], data("profile", profile.levels)
