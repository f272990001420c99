"""The order in which quantiles are drawn one inside the other: the middle one first, then the middle ones of both halves."""

from fractions import Fraction
from typing import NamedTuple

from dpjax.checks import Neighbors


class Part(NamedTuple):
    """A quantile that is drawn from the records between two others; 0 and m + 1 stand for the bounds.

    Attributes:
        left: the quantile below.
        middle: the quantile.
        right: the quantile above.
        level: that of the quantile among the records between the two.
        neighbors: the relation that its profile is for: how many records a part has is private, but not how many there are in all
            under swap.
        share: of the epsilon of a depth: under swap a record may leave one part and another enter a second one.
    """

    left: int
    middle: int
    right: int
    level: Fraction
    neighbors: Neighbors
    share: Fraction


def depths_of(levels: tuple[Fraction, ...], neighbors: str) -> list[list[Part]]:
    """Return the parts that have no record in common and are drawn together, depth by depth.

    >>> [[part[:3] for part in parts] for parts in depths_of((Fraction(1, 5), Fraction(1, 2), Fraction(2, 3)), "swap")]
    [[(0, 2, 4)], [(0, 1, 2), (2, 3, 4)]]
    """
    ends, spans, depths = (Fraction(0), *levels, Fraction(1)), [(0, len(levels) + 1)], list[list[Part]]()
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
