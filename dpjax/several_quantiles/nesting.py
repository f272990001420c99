"""Assignment of levels to the first and second draw of nested quantiles, with its costs."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import isqrt
from typing import Any, NamedTuple

# Shares of epsilon, and of the remainder: the largest rank error is smallest near them.
_NUMBER, _FIRST = Fraction(1, 24), Fraction(7, 16)


class Part(NamedTuple):
    """Levels that are drawn between two others.

    Attributes:
        first: the number of levels before them.
        levels: the levels among the records of the part, strictly between 0 and 1.
        share: the share of all records that are in the part.
    """

    first: int
    levels: tuple[Fraction, ...]
    share: Fraction


class Nesting(NamedTuple):
    """The levels of the first draw, and the parts between them; levels are counted from 0.

    >>> nesting = Nesting.of(tuple(Fraction(k, 100) for k in range(1, 100)))
    >>> nesting.first, len(nesting.parts), nesting.parts[1].first, nesting.parts[1].levels[0]
    ((9, 19, 29, 39, 49, 59, 69, 79, 89), 10, 10, Fraction(1, 10))
    """

    first: tuple[int, ...]
    parts: tuple[Part, ...]

    @property
    def most(self) -> int:
        """The largest number of levels that are drawn together."""
        return max(len(self.first), *(len(part.levels) for part in self.parts))

    @staticmethod
    def of(levels: tuple[Fraction, ...]) -> Nesting:
        """Return parts with nearly equal numbers of levels, about as many parts as levels each."""
        steps = len(levels) + 1
        root = isqrt(steps)
        # If the number of parts divides the steps, all parts are alike, and share one program.
        even = [
            number
            for number in range(max(root * 2 // 3, 2), root * 3 // 2 + 1)
            if steps % number == 0
        ]
        number = min(
            even,
            key=lambda number: (max(number * number / steps, steps / number**2), -number),
            default=root,
        )
        first = tuple(i * steps // number - 1 for i in range(1, number))
        ends, parts = (Fraction(0), *levels, Fraction(1)), list[Part]()
        for left, right in pairwise((-1, *first, len(levels))):
            low, share = ends[left + 1], ends[right + 1] - ends[left + 1]
            parts.append(
                Part(
                    left + 1,
                    tuple((ends[k + 1] - low) / share for k in range(left + 1, right)),
                    share,
                )
            )
        return Nesting(first, tuple(parts))


class Shares(NamedTuple):
    """Shares of epsilon for the number of records, the first draw, and each part of the second."""

    number: Fraction
    first: Fraction
    second: Fraction

    @staticmethod
    def of(nesting: Nesting, neighbors: str, size_is_public: bool) -> Shares:
        """Return the shares; under swap a part has half of the second draw's.

        A record may leave one part and another enter a second one.
        """
        number = Fraction(0) if neighbors == "swap" or size_is_public else _NUMBER
        first = (1 - number) * _FIRST
        return Shares(number, first, (1 - number - first) / (2 if neighbors == "swap" else 1))


def records_of(part: Part, number: Any) -> Any:
    """Return the assumed number of records of a part, an integer share of a public number."""
    u, v = part.share.numerator, part.share.denominator
    return u * (number // v) + u * (number % v) // v


def ends_of(cuts: Any, number: Any, xp: Any) -> tuple[Any, Any]:
    """Return the number of records before each part, and the rank of its last record.

    Args:
        cuts: the number of records up to the place of each draw, ``(..., k)``, ascending.
        number: the number of all records, ``(..., 1)``.
        xp: ``numpy`` or ``jax.numpy``.

    >>> import numpy as np
    >>> [end.tolist() for end in ends_of(np.array([3, 8, 8]), np.array([20]), np)]
    [[0, 3, 8, 8], [3, 8, 8, 20]]
    """
    return xp.concatenate([xp.zeros_like(number), cuts], axis=-1), xp.concatenate(
        [cuts, number], axis=-1
    )
