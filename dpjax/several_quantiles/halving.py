"""The order of recursive draws of quantiles: the middle one first, then those of both halves.

**Ties.** Each draw splits the records of its part in two, for the draws of the next depth. Where
records have a resolution, many of them may equal the draw. With B records of the part below it, T
equal to it and A above it, the left half should have the share q of all, so q T + q A - (1 - q) B
of the equal records. But B and A are private: with one more record above the draw, one of the equal
ones would go to the other side, and the right half change by two records. So a noisy number is
drawn first,

    w = floor(8 (q A - (1 - q) B)) + discrete Laplace noise,

and ceil(q T) + floor((w + 4) / 8) of the equal records go to the left, between 0 and T. Its error
is that of the noise, whereas the error of a fixed share of the equal records is the excess of
records on one side.

*Privacy.* One more record below the draw or above it changes q A - (1 - q) B by at most max(q, 1 -
q), one that equals it does not, so the integer that gets the noise changes by at most ceil(8 max(q,
1 - q)), and under swap among all records by at most 8. Given the draw and w, one more record is one
more on one side and none on the other: with T, either the number on the left grows by one, or T
minus that number does. The numbers of one depth are of disjoint parts, as the draws are; the last
depth needs none. Together they have 1/12 of epsilon, divided evenly among the depths, and none is
spent on records without a resolution, which no draw equals.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

from dpjax.checks import Neighbors

# Share of epsilon. With less, ranks of records with many ties have a larger error than those of
# others; with more, a smaller one.
_SPLITS = Fraction(1, 12)
_UNITS = 8  # units of a noisy number per record


class Part(NamedTuple):
    """A quantile that is drawn from the records between two others; 0 and m + 1 are the bounds.

    Attributes:
        left: the quantile below.
        middle: the quantile.
        right: the quantile above.
        level: the level of the quantile among the records between the two.
        neighbors: the relation of its profile: the number of records of a part is private, except
            for that of all records under swap.
        share: the share of the epsilon of a depth: under swap a record may leave one part and
            another enter a second one.
    """

    left: int
    middle: int
    right: int
    level: Fraction
    neighbors: Neighbors
    share: Fraction

    @property
    def sensitivity(self) -> int:
        """The sensitivity of :func:`to_the_left` to one record, or to a swap for all records."""
        return (
            _UNITS if self.neighbors == "swap" else ceil(_UNITS * max(self.level, 1 - self.level))
        )


class Costs(NamedTuple):
    """Shares of epsilon for the draws and for the noisy numbers of each depth but the last.

    >>> Costs.of(3, tied=True), Costs.of(3, tied=False).draw
    (Costs(draw=Fraction(11, 36), split=Fraction(1, 24)), Fraction(1, 3))
    """

    draw: Fraction
    split: Fraction

    @staticmethod
    def of(depths: int, tied: bool) -> Costs:
        """Return the shares for this number of depths; ``tied`` if records may equal a draw."""
        if depths == 1 or not tied:
            return Costs(Fraction(1, depths), Fraction(0))
        return Costs((1 - _SPLITS) / depths, _SPLITS / (depths - 1))


def to_the_left(u: Any, v: Any, below: Any, above: Any) -> Any:
    """Return floor(8 (q A - (1 - q) B)) for q = u/v, A records above a draw and B below it."""
    number = u * above - (v - u) * below
    quotient = number // v
    return _UNITS * quotient + _UNITS * (number - quotient * v) // v


def equal_on_the_left(u: Any, v: Any, equal: Any, noisy: Any, xp: Any) -> Any:
    """Return how many of the records that equal a draw go to the left, by its noisy number.

    >>> import numpy as np
    >>> [int(equal_on_the_left(1, 3, 10, noisy, np)) for noisy in (-99, -20, 0, 3, 4, 99)]
    [0, 2, 4, 4, 5, 10]
    """
    return xp.clip(-((-u * equal) // v) + (noisy + _UNITS // 2) // _UNITS, 0, equal)


def depths_of(levels: tuple[Fraction, ...], neighbors: str) -> list[list[Part]]:
    """Return the disjoint parts that are drawn together, depth by depth.

    >>> depths = depths_of((Fraction(1, 5), Fraction(1, 2), Fraction(2, 3)), "swap")
    >>> [[part[:3] for part in parts] for parts in depths]
    [[(0, 2, 4)], [(0, 1, 2), (2, 3, 4)]]
    """
    ends, spans, depths = (
        (Fraction(0), *levels, Fraction(1)),
        [(0, len(levels) + 1)],
        list[list[Part]](),
    )
    while spans:
        relation: Neighbors = "add_remove" if depths or neighbors != "swap" else "swap"
        share = Fraction(1, 1 if relation == neighbors else 2)
        parts, halves = list[Part](), list[tuple[int, int]]()
        for left, right in spans:
            middle = (left + right) // 2
            level = (ends[middle] - ends[left]) / (ends[right] - ends[left])
            parts.append(Part(left, middle, right, level, relation, share))
            halves += [(left, middle), (middle, right)]
        depths.append(parts)
        spans = [(left, right) for left, right in halves if right - left > 1]
    return depths
