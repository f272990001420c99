"""Levels of several quantiles, the ranks that their joint distribution aims at, and its terms."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from math import lcm, log
from typing import Any, Literal

from dpjax.several_quantiles.ranks import level_of

Aims = Literal["ranks", "slots", "records"]
# On a grid, where the flat term then adds at most about exp(-3) multiples to the error.
_SLACK = 3.0


def levels_of(qs: Iterable[float | Fraction | str]) -> tuple[Fraction, ...]:
    """Return quantile levels as fractions; raise if they are not ascending or not in (0, 1)."""
    if isinstance(qs, str) or not isinstance(qs, Iterable) or getattr(qs, "ndim", 1) == 0:
        raise TypeError(
            f"qs must be several levels such as [0.25, 0.5], got {qs!r}: for one level use "
            "dpjax.quantile."
        )
    levels = tuple(level_of(q) for q in qs)
    if not levels or any(a >= b for a, b in pairwise(levels)):
        raise ValueError(
            "qs must be one or more levels in ascending order, got "
            f"{[str(level) for level in levels]}."
        )
    return levels


def level_parts(levels: tuple[Fraction, ...]) -> tuple[tuple[int, ...], int]:
    """Return the levels as integers over their common denominator.

    >>> level_parts((Fraction(1, 4), Fraction(1, 2)))
    ((1, 2), 4)
    """
    denominator = lcm(*(level.denominator for level in levels))
    return tuple(
        level.numerator * (denominator // level.denominator) for level in levels
    ), denominator


def aims_of(neighbors: str, m: int, size_is_public: bool, on_grid: bool) -> Aims:
    """Return the kind of ranks that quantiles aim at; see ``mechanisms/_joint_quantiles.py``.

    Aims are public for every N.
    """
    if on_grid:
        # For a single quantile of a private number of records, ranks depend on the data: rounding
        # them would have a sensitivity of 1.
        return "ranks" if m == 1 and neighbors == "add_remove" and not size_is_public else "records"
    return "slots" if size_is_public else "ranks"


def single_term(
    levels: tuple[Fraction, ...], neighbors: str, size_is_public: bool
) -> Fraction | None:
    """Return the divisor of the rate, the sensitivity of the cost, for a single term; else None."""
    if neighbors == "swap":
        return Fraction(2)
    if size_is_public:
        return Fraction(1)
    # |d_1 - p_1 N| + |d_2 - p_2 N| is 2 |r(y) - h|.
    return 2 * max(levels[0], 1 - levels[0]) if len(levels) == 1 else None


def log_parts(m: int, n_max: int, log_size: Any) -> Any:
    """Return the log of the weight that the flat term must not exceed on a grid.

    ``log_size`` is the log of the number of multiples. The weight is the volume of all multisets of
    m multiples relative to that of parts of equal records, times a margin that makes the flat term
    small.
    """
    return (m + 1) * log_size + m * log(n_max + 1) + _SLACK


def rank_steps(levels: tuple[Fraction, ...], number: Any, aims: Aims) -> list[Any]:
    """Return the distances of the ranks of the first record, the quantiles and the last record.

    There are N + 1 records. The distances are differences of successive ranks, integers in units of
    1 / (2 v) of a rank, with v the common denominator of the levels. A quantile has the
    rank 1 + q N; as a slot between records floor(1 + q N) + 1/2, and as a record ceil(q (N + 1)).

    >>> rank_steps((Fraction(1, 4), Fraction(1, 2)), 9, "ranks")  # 1, 3 1/4, 5 1/2, 10
    [18, 18, 36]
    >>> rank_steps((Fraction(1, 4), Fraction(1, 2)), 9, "slots")  # 1, 3 1/2, 5 1/2, 10
    [20, 16, 36]
    >>> rank_steps((Fraction(1, 4), Fraction(1, 2)), 9, "records")  # 1, 3, 5, 10
    [16, 16, 40]
    """
    parts, denominator = level_parts(levels)
    ranks = [after_first(part, denominator, number, aims) for part in parts]
    return [b - a for a, b in pairwise((0, *ranks, 2 * denominator * number))]


def after_first(part: Any, denominator: Any, number: Any, aims: Aims) -> Any:
    """Return the distance from the rank of the first record to that of a quantile.

    It is in the unit of :func:`rank_steps`; ``part`` is that of :func:`level_parts`.
    """
    if aims == "ranks":
        return 2 * part * number
    if aims == "slots":
        return denominator * (2 * (part * number // denominator) + 1)
    return -2 * denominator * (-part * (number + 1) // denominator + 1)
