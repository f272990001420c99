"""Which quantiles are drawn first when some are drawn between others, what each draw costs, and which records each part has."""

from fractions import Fraction
from itertools import pairwise
from math import isqrt
from typing import Any, NamedTuple

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

    @property
    def most(self) -> int:
        """How many levels are drawn together at most."""
        return max(len(self.first), *(len(part.levels) for part in self.parts))

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
    u, v = part.share.numerator, part.share.denominator
    return u * (number // v) + u * (number % v) // v


def ends_of(cuts: Any, number: Any, xp: Any) -> tuple[Any, Any]:
    """Return after how many records each part begins, and up to which rank it goes.

    Args:
        cuts: how many records are up to the place of each draw, ``(..., k)``, ascending.
        number: of all records, ``(..., 1)``.
        xp: ``numpy`` or ``jax.numpy``.

    >>> import numpy as np
    >>> [end.tolist() for end in ends_of(np.array([3, 8, 8]), np.array([20]), np)]
    [[0, 3, 8, 8], [3, 8, 8, 20]]
    """
    return xp.concatenate([xp.zeros_like(number), cuts], axis=-1), xp.concatenate([cuts, number], axis=-1)
