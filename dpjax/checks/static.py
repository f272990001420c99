"""Static facts: options, integers, types and resolutions, which are looked at when a function is called or traced."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpjax.checks.host import is_jax_array

if TYPE_CHECKING:
    from jax.typing import ArrayLike

Neighbors = Literal["add_remove", "swap"]
Relation = Literal["add_remove", "swap", "edge"]
Resolution = float | Fraction | str | datetime.timedelta
NEIGHBORS = ("add_remove", "swap")  # of a table of records
RELATIONS = (*NEIGHBORS, "edge")  # and of a graph


def counted_neighbors(neighbors: Any) -> None:
    """Raise for another relation than that for which numbers of records are drawn."""
    if one_of("neighbors", neighbors, NEIGHBORS) == "swap":
        raise ValueError("numbers of records are drawn for add_remove neighbors: under swap how many there are is public.")


def one_of(name: str, value: Any, options: Collection[str]) -> str:
    """Return a static option, or raise with the list of what is known."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}.")
    return str(value)


def static_integer(name: str, value: Any, least: int, most: int | None = None, *, must: str | None = None) -> int:
    """Return a static integer of Python, NumPy or JAX as a Python integer, or raise ``ValueError``; a bool is no number.

    Args:
        name: of the argument.
        value: what was given for it.
        least: the smallest that is allowed.
        most: the largest, if there is one.
        must: what it must be, in words, where "an integer from 1 on" or "an integer from 0 to 9" does not say it well.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:  # traced values too
        number = None
    if number is None or number < least or (most is not None and number > most):
        must = must or f"an integer from {least} {'on' if most is None else f'to {most}'}"
        raise ValueError(f"{name} must be {must}, got {value!r}.")
    return number


def static_number(name: str, value: Any, least: float, most: float) -> float:
    """Return a static number from ``least`` to ``most`` as a Python float, or raise ``ValueError``; a bool or a string is none."""
    try:
        number = None if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError):  # traced values too
        number = None
    if number is None or not least <= number <= most:
        raise ValueError(f"{name} must be a static number from {least:g} to {most:g}, got {value!r}.")
    return number


def instance(caller: str, value: Any, kind: type, hint: str) -> None:
    """Raise where an argument is of another type, and say where that type comes from, and what takes the argument."""
    if not isinstance(value, kind):
        found = "an array" if is_jax_array(value) or isinstance(value, np.ndarray) else type(value).__name__
        raise TypeError(f"{caller} takes a {kind.__name__} ({hint}), got {found}{getattr(value, '_next_step', '')}.")


def resolution(value: Resolution, bounds: Sequence[ArrayLike], most: int) -> Fraction:
    """Return a public resolution as the decimal that it is written as: 0.1 is 1/10.

    Raises:
        TypeError: a JAX array: the shape of a grid is static.
        ValueError: a resolution that is not positive; bounds, given as Python or NumPy values, that are not multiples of it, or
            more than ``most`` of them.
    """
    if is_jax_array(value):
        raise TypeError("resolution must be a static number or Fraction, not a JAX array: grids are exact.")
    step = exact(value)
    if step is None or step <= 0:
        raise ValueError(f"resolution must be a positive number or a Fraction, got {value!r}.")
    for bound in bounds:
        for number in () if is_jax_array(bound) else np.ravel(bound):
            place = exact(number)
            if place is not None and (place / step).denominator != 1:
                raise ValueError(f"bounds and candidates must be multiples of the resolution {value}, got {number}.")
            if place is not None and abs(place / step) > most:
                raise ValueError(f"{number} is more than {most} times the resolution {value}: a float cannot count so far.")
    return step


def exact(value: Any) -> Fraction | None:
    """Return a number as the decimal that it is written as, or None for what is no finite number.

    A date or a time becomes the microseconds since 1970, a time of day those since midnight, and a duration its microseconds.

    >>> exact(0.1), exact(datetime.timedelta(seconds=1)), exact(datetime.date(1970, 1, 2))
    (Fraction(1, 10), Fraction(1000000, 1), Fraction(86400000000, 1))
    """
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        return Fraction(_microseconds(value))
    try:
        return value if isinstance(value, Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        return None


def _microseconds(value: datetime.date | datetime.time | datetime.timedelta) -> int:
    if isinstance(value, datetime.time):
        value = datetime.datetime.combine(datetime.date(1970, 1, 1), value.replace(tzinfo=None))
    elif not isinstance(value, datetime.datetime | datetime.timedelta):
        value = datetime.datetime(value.year, value.month, value.day)
    if isinstance(value, datetime.datetime):
        value = value - datetime.datetime(1970, 1, 1, tzinfo=None if value.tzinfo is None else datetime.UTC)
    return value // datetime.timedelta(microseconds=1)


def shift(tau: int) -> int:
    """Return a static tau of a shift of levels, or raise ``ValueError``."""
    return static_integer("tau", tau, 1, must="an integer from 1 on, chosen without the data")
