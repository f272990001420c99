"""A theorem is a function whose annotations say what numbers it is given."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import numpy as np

from dpjax import checks
from dpjax.checks.numbers import FINITE, NONNEGATIVE, POSITIVE, PROBABILITY, Interval
from dpjax.mechanisms.mechanism import checked
from dpjax.sensitivity.profile import SensitivityProfile

Function = TypeVar("Function")

ANY = FINITE._replace(must="a number or NaN")
COUNT = POSITIVE._replace(must="an integer from 1 on")
Data = Annotated[Any, ANY]  # data never raise
Finite = Annotated[Any, FINITE]
Positive = Annotated[Any, POSITIVE]
NotNegative = Annotated[Any, NONNEGATIVE]
Probability = Annotated[Any, PROBABILITY]
Count = Annotated[int, COUNT]


def theorem(function: Function) -> Function:
    """Return the function of checked numbers: float64 arrays of NumPy, or one Python number."""
    return checked(function, lambda first: first, _number)  # type: ignore


def _number(interval: Interval, name: str, value: Any, _: Any) -> Any:
    if interval is COUNT:
        return checks.static_integer(name, value, 1)
    given = checks.host_floats(name, None if isinstance(value, bool) else value)
    if interval is not ANY and not np.all(interval.holds(given)):
        raise ValueError(f"{name} must be {interval.must}, got {value}.")
    return given.astype(float) if given.ndim else float(given)


def reach(profile: SensitivityProfile) -> tuple[Any, Any]:
    """Return how far from its value the statistic can get, and by how many changes."""
    checks.instance("a bound", profile, SensitivityProfile, "such as dpjax.median(...)")
    if not profile.integer_levels or profile.step is not None:
        raise ValueError("profile must have integer levels and no steps, and end at its bounds.")
    values = np.asarray(profile.values, float)
    return values - values[..., [profile.center]], np.asarray(profile.levels, float)
