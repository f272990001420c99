"""Exact sums of privacy parameters, and their text: rounded once, and up."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from math import inf, nextafter
from sys import float_info


def exact_total(numbers: Iterable[tuple[Fraction | float, int]]) -> Fraction | float:
    """Return the exact sum of nonnegative numbers, each times its count.

    Infinite if one of them is.
    """
    parts = [*numbers]
    if any(number == inf for number, _ in parts):
        return inf
    return sum((Fraction(number) * count for number, count in parts), Fraction(0))


def rounded_up(exact: Fraction | float) -> float:
    """Return the smallest float that is not below a number.

    >>> rounded_up(10 * Fraction(0.1))
    1.0000000000000002
    """
    if exact > float_info.max:
        return inf
    nearest = float(exact)
    return nearest if nearest >= exact else nextafter(nearest, inf)


def times(number: float, count: int) -> float:
    """Return a nonnegative number times a count, rounded up."""
    return rounded_up(exact_total([(number, count)]))


def promised(number: float, digits: int = 6) -> str:
    """Return a privacy parameter as text of at most so many digits, rounded up.

    An excess over the digits of relatively less than 1e-12 is attributed to floating-point rounding
    and dropped.

    >>> promised(0.5), promised(0.12345649), promised(0.1 + 0.2), promised(9.41808e-07, 2)
    ('0.5', '0.123457', '0.3', '9.5e-07')
    >>> promised(1e-7), promised(float("inf"))
    ('1e-07', 'inf')
    """
    nearly = Decimal(number) * (1 - Decimal("1e-12"))
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).plus(nearly)):g}"


def one_of_all(what: str, values: Iterable[str]) -> str:
    """Return the common relation or unit of guarantees, where ``""`` is any; ``""`` of none.

    Raises:
        ValueError: they differ.

    >>> one_of_all("neighbors", ["swap", "swap"])
    'swap'
    """
    stated = sorted(set(values) - {""}, reverse=True)
    if len(stated) > 1:
        raise ValueError(
            f"guarantees for {what} {' and '.join(stated)} do not compose: state them all for one."
        )
    return stated[0] if stated else ""
