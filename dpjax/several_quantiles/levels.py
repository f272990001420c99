"""The levels of several quantiles, the ranks that their joint distribution aims at, and the terms that it is a sum of."""

from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from math import lcm, log
from typing import Any, Literal

from dpjax.several_quantiles.ranks import level_of

Aims = Literal["ranks", "slots", "records"]
_SLACK = 3.0  # on a grid, where the flat term adds about exp(-3) multiples to the error at most


def levels_of(qs: Iterable[float | Fraction | str]) -> tuple[Fraction, ...]:
    """Return quantile levels as fractions, or raise for such that are not in (0, 1) or not ascending."""
    if isinstance(qs, str) or not isinstance(qs, Iterable) or getattr(qs, "ndim", 1) == 0:
        raise TypeError(f"qs must be several levels such as [0.25, 0.5], got {qs!r}; dpjax.quantile takes one.")
    levels = tuple(level_of(q) for q in qs)
    if not levels or any(a >= b for a, b in pairwise(levels)):
        raise ValueError(f"qs must be one or more levels in ascending order, got {[str(level) for level in levels]}.")
    return levels


def level_parts(levels: tuple[Fraction, ...]) -> tuple[tuple[int, ...], int]:
    """Return the levels as integers over their common denominator.

    >>> level_parts((Fraction(1, 4), Fraction(1, 2)))
    ((1, 2), 4)
    """
    whole = lcm(*(level.denominator for level in levels))
    return tuple(level.numerator * (whole // level.denominator) for level in levels), whole


def aims_of(neighbors: str, m: int, size_is_public: bool, on_grid: bool) -> Aims:
    """Return which ranks several quantiles aim at (see ``mechanisms/_joint_quantiles.py``); they are public for every N."""
    if on_grid:
        # Those of one quantile of a private number of records follow the data: rounded, they would have a sensitivity of 1.
        return "ranks" if m == 1 and neighbors == "add_remove" and not size_is_public else "records"
    return "slots" if size_is_public else "ranks"


def single_term(levels: tuple[Fraction, ...], neighbors: str, size_is_public: bool) -> Fraction | None:
    """Return what the rate is divided by where the sum has one term, the sensitivity of its cost; None where it has several."""
    if neighbors == "swap":
        return Fraction(2)
    if size_is_public:
        return Fraction(1)
    return 2 * max(levels[0], 1 - levels[0]) if len(levels) == 1 else None  # |d_1 - p_1 N| + |d_2 - p_2 N| is 2 |r(y) - h|


def log_parts(m: int, n_max: int, log_size: Any) -> Any:
    """Return the logarithm of what the flat term must not outweigh on a grid, by the logarithm of how many numbers it has.

    It is the volume of all multisets of m numbers over that of parts of equal records, and what makes the flat term small.
    """
    return (m + 1) * log_size + m * log(n_max + 1) + _SLACK


def rank_steps(levels: tuple[Fraction, ...], number: Any, aims: Aims) -> list[Any]:
    """The distances of ranks from the first of N + 1 records to the quantiles, from one to the next, and to the last record.

    Integers, in parts 1 / (2 whole) of a rank. A quantile has the rank 1 + q N; as a slot between records floor(1 + q N) + 1/2, and
    as a record ceil(q (N + 1)).

    >>> rank_steps((Fraction(1, 4), Fraction(1, 2)), 9, "ranks")  # 1, 3 1/4, 5 1/2, 10
    [18, 18, 36]
    >>> rank_steps((Fraction(1, 4), Fraction(1, 2)), 9, "slots")  # 1, 3 1/2, 5 1/2, 10
    [20, 16, 36]
    >>> rank_steps((Fraction(1, 4), Fraction(1, 2)), 9, "records")  # 1, 3, 5, 10
    [16, 16, 40]
    """
    parts, whole = level_parts(levels)

    def after_first(part: int) -> Any:
        if aims == "ranks":
            return 2 * part * number
        return whole * (2 * (part * number // whole) + 1) if aims == "slots" else -2 * whole * (-part * (number + 1) // whole + 1)

    return [b - a for a, b in pairwise((0, *map(after_first, parts), 2 * whole * number))]
