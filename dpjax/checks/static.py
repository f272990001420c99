"""Validation of static arguments: options, integers, types and resolutions.

The functions raise when a function is called or traced.
"""

from __future__ import annotations

import datetime
import inspect
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpjax.checks.host import is_jax_array

if TYPE_CHECKING:
    from jax.typing import ArrayLike

Neighbors = Literal["add_remove", "swap"]
Relation = Literal["add_remove", "swap", "edge"]
Resolution = float | Fraction | str | datetime.timedelta
NEIGHBORS = ("add_remove", "swap")  # the relations of a table of records
RELATIONS = (*NEIGHBORS, "edge")  # and that of a graph
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def counted_neighbors(neighbors: Any) -> None:
    """Raise ``ValueError`` unless the relation is add/remove.

    Counts are private only under this relation.

    >>> counted_neighbors("add_remove")
    """
    if one_of("neighbors", neighbors, NEIGHBORS) == "swap":
        raise ValueError(
            'neighbors must be "add_remove" to draw numbers of records: under swap '
            "neighbors they are public."
        )


def one_of(name: str, value: Any, options: Collection[str | None]) -> str:
    """Return a static option; raise ``ValueError`` with the list of options if it is unknown.

    >>> one_of("neighbors", "swap", NEIGHBORS)
    'swap'
    """
    if value not in options:
        raise ValueError(f"{name} must be {' or '.join(map(repr, options))}; got {value!r}.")
    return str(value)


def static_integer(
    name: str, value: Any, least: int, most: int | None = None, *, must: str | None = None
) -> int:
    """Return a static Python, NumPy or JAX integer as a Python integer.

    Raise ``ValueError`` if it is none.

    Args:
        name: of the argument.
        value: of the argument; a bool is not a number.
        least: the smallest allowed integer.
        most: the largest allowed integer, if there is one.
        must: the condition in the error message, by default "an integer from 0 to 9", for example.

    >>> static_integer("draws", np.int32(3), 1)
    3
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:  # traced values too
        number = None
    if number is None or number < least or (most is not None and number > most):
        must = must or f"an integer from {least} {'on' if most is None else f'to {most}'}"
        raise ValueError(f"{name} must be {must}, got {value!r}.")
    return number


def instance(caller: str, value: Any, kind: type, hint: str) -> None:
    """Raise ``TypeError`` if an argument is not an instance of ``kind``.

    The message says where such objects come from (``hint``), and which function takes the argument
    instead.

    >>> instance("median", Fraction(1), Fraction, "a Fraction")
    """
    if not isinstance(value, kind):
        found = "an array" if hasattr(value, "ndim") else type(value).__name__
        raise TypeError(
            f"{caller} takes a {kind.__name__} ({hint}), got "
            f"{found}{getattr(value, '_next_step', '')}."
        )


def takes(name: str, function: Callable[..., Any], *arguments: str) -> None:
    """Raise ``TypeError`` if a function cannot be called with these positional arguments.

    >>> takes("statistic", lambda draws, rows: draws, "draws", "rows")
    >>> takes("statistic", lambda draws: draws, "draws", "rows")
    Traceback (most recent call last):
        ...
    TypeError: statistic must be a function of (draws, rows): too many positional arguments.
    """
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise TypeError(
            f"{name} must be a function of ({', '.join(arguments)}): {error}."
        ) from error
    except ValueError:
        return  # Some built-in functions have no signature.


def resolution(value: Resolution, bounds: Sequence[ArrayLike], most: int) -> Fraction:
    """Return a public resolution as an exact decimal fraction: 0.1 is 1/10.

    Raises:
        TypeError: the resolution is a JAX array, but the shape of a grid is static.
        ValueError: the resolution is not positive, or a bound that is a Python or NumPy value is
            not a multiple of it, or is more than ``most`` times the resolution.

    >>> resolution(0.1, (0, 120), 2**51)
    Fraction(1, 10)
    """
    if is_jax_array(value):
        raise TypeError(
            "resolution must be a static number or Fraction, not a JAX array: grids are exact."
        )
    step = exact(value)
    if step is None or step <= 0:
        raise ValueError(f"resolution must be a positive number or a Fraction, got {value!r}.")
    for bound in bounds:
        for number in () if is_jax_array(bound) else np.ravel(bound):
            multiple = (exact(number) or Fraction(0)) / step
            if multiple.denominator != 1:
                raise ValueError(
                    f"bounds and candidates must be multiples of the resolution {value}, got "
                    f"{number}."
                )
            if abs(multiple) > most:
                raise ValueError(
                    f"{number} is more than {most} times the resolution {value}, too many for a "
                    "float: use a coarser resolution."
                )
    return step


def exact(value: Any) -> Fraction | None:
    """Return a number as the exact decimal fraction it is written as, or None.

    None stands for a number that is not finite. A date or time becomes microseconds since 1970, and
    a duration its microseconds.

    >>> exact(0.1), exact(datetime.timedelta(seconds=1)), exact(datetime.date(1970, 1, 2))
    (Fraction(1, 10), Fraction(1000000, 1), Fraction(86400000000, 1))
    """
    if isinstance(value, datetime.date):
        if not isinstance(value, datetime.datetime):
            value = datetime.datetime.combine(value, datetime.time())
        value = value.replace(tzinfo=value.tzinfo or datetime.UTC) - _EPOCH
    if isinstance(value, datetime.timedelta):
        return Fraction(value // datetime.timedelta(microseconds=1))
    try:
        return value if isinstance(value, Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        return None


def level(q: Any) -> Fraction:
    """Return the level of a quantile as a fraction, read by its decimal value.

    Floats are read to 15 digits, so that three times 0.1 is 3/10.

    Raises:
        TypeError: the level is a JAX array, but ranks are exact.
        ValueError: it is not a number strictly between 0 and 1.

    >>> level(0.1 + 0.2), level("1/3")
    (Fraction(3, 10), Fraction(1, 3))
    """
    if is_jax_array(q):
        raise TypeError(
            "a level must be a static number or Fraction, not a JAX array, because ranks are "
            "computed exactly."
        )
    fraction = exact(f"{q:.15g}" if isinstance(q, float) else q)
    if fraction is None:
        raise ValueError(
            f"a level must be a number or a Fraction, got {q!r}: for several levels use quantiles."
        )
    if not 0 < fraction < 1:
        raise ValueError(f"a level must be strictly between 0 and 1, got {q}.")
    return fraction


def levels(qs: Iterable[float | Fraction | str]) -> tuple[Fraction, ...]:
    """Return several ascending levels as fractions, each read as by :func:`level`.

    Raises:
        TypeError: ``qs`` is a single level.
        ValueError: there is no level, or they do not ascend.

    >>> levels([0.25, "1/2"])
    (Fraction(1, 4), Fraction(1, 2))
    """
    if isinstance(qs, str) or not isinstance(qs, Iterable) or getattr(qs, "ndim", 1) == 0:
        raise TypeError(
            f"qs must be several levels such as [0.25, 0.5], got {qs!r}: for one level use "
            "quantile."
        )
    found = tuple(level(q) for q in qs)
    if not found or any(a >= b for a, b in pairwise(found)):
        raise ValueError(
            f"qs must be one or more levels in ascending order, got {list(map(str, found))}."
        )
    return found


def shift(tau: int) -> int:
    """Return a static tau of a shift of levels.

    Raise ``ValueError`` if it is not an integer from 1 to 2^40.

    >>> shift(10)
    10
    """
    must = "an integer from 1 to 2^40, chosen without the data"
    return static_integer("tau", tau, 1, 2**40, must=must)
