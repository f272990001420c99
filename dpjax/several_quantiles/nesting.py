"""Which quantiles are drawn first when some are drawn between others, what each draw costs, and where the records are split."""

from fractions import Fraction
from itertools import pairwise
from math import isqrt
from typing import Any, NamedTuple

from dpjax.several_quantiles.asked import level_parts

# Parts of epsilon, and of the rest of it: near them the largest rank error is least.
_NUMBER, _FIRST = Fraction(1, 24), Fraction(7, 16)


class Part(NamedTuple):
    """Levels that are drawn between two others.

    Attributes:
        first: how many levels come before them.
        levels: among the records of the part, strictly between 0 and 1.
        share: of all records, those of the part.
    """

    first: int
    levels: tuple[Fraction, ...]
    share: Fraction


class Nesting(NamedTuple):
    """The levels that are drawn first, and the parts between them; levels are counted from 0.

    >>> nesting = Nesting.of(tuple(Fraction(k, 100) for k in range(1, 100)))
    >>> nesting.first, len(nesting.parts), nesting.parts[1].first, nesting.parts[1].levels[0]
    ((9, 19, 29, 39, 49, 59, 69, 79, 89), 10, 10, Fraction(1, 10))
    """

    first: tuple[int, ...]
    parts: tuple[Part, ...]

    @staticmethod
    def of(levels: tuple[Fraction, ...]) -> "Nesting":
        """Return parts of as nearly the same number of levels as possible, and about as many as each of them has levels."""
        steps = len(levels) + 1
        root = isqrt(steps)
        # A number of parts that divides the steps makes all parts alike, and their programs one.
        even = [number for number in range(max(root * 2 // 3, 2), root * 3 // 2 + 1) if steps % number == 0]
        number = min(even, key=lambda number: (max(number * number / steps, steps / number**2), -number), default=root)
        first = tuple(i * steps // number - 1 for i in range(1, number))
        ends, parts = (Fraction(0), *levels, Fraction(1)), list[Part]()
        for left, right in pairwise((-1, *first, len(levels))):
            low, share = ends[left + 1], ends[right + 1] - ends[left + 1]
            parts.append(Part(left + 1, tuple((ends[k + 1] - low) / share for k in range(left + 1, right)), share))
        return Nesting(first, tuple(parts))


class Shares(NamedTuple):
    """Parts of epsilon: for the noisy number of records, for the first draw, and for each part of the second one."""

    number: Fraction
    first: Fraction
    second: Fraction

    @staticmethod
    def of(nesting: Nesting, neighbors: str, size_is_public: bool) -> "Shares":
        """Return them; under swap a part has half of the second draw's: a record may leave it and another enter a second one."""
        number = Fraction(0) if neighbors == "swap" or size_is_public else _NUMBER
        first = (1 - number) * _FIRST
        return Shares(number, first, (1 - number - first) / (2 if neighbors == "swap" else 1))


def records_of(part: Part, number: Any) -> Any:
    """Return how many records a part is taken to have, of a public number of all records: an integer."""
    return (part.share.numerator * number) // part.share.denominator


def split(levels: tuple[Fraction, ...], draws: Any, below: Any, through: Any, xp: Any) -> tuple[Any, Any]:
    """Return up to which rank records go to the left of each draw, and after which rank they go to its right.

    Args:
        levels: of the draws.
        draws: ``(..., m)``, ascending.
        below: how many records are below each draw, integers ``(..., m)``.
        through: how many are not above it.
        xp: ``numpy`` or ``jax.numpy``.

    >>> import numpy as np
    >>> levels = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
    >>> [rank.tolist() for rank in split(levels, np.array([3, 5, 5]), np.array([2, 6, 6]), np.array([3, 14, 14]), np)]
    [[3, 8, 8], [3, 12, 12]]
    """
    parts, whole = level_parts(levels)
    rank = xp.asarray((0, *parts, whole), dtype=below.dtype)
    number = xp.arange(len(levels))
    equal = draws[..., :, None] == draws[..., None, :]
    a = xp.min(xp.where(equal, number, len(levels)), axis=-1)  # the first draw that equals it
    b = xp.max(xp.where(equal, number, 0), axis=-1)
    before, first, last, after = rank[a], rank[a + 1], rank[b + 1], rank[b + 2]
    ties = through - below
    left = -(-ties * (first - before) // (last + after - before - first))
    right = -(-(ties - left) * (after - last) // (last + after - 2 * first))
    return below + left, through - right
