"""The output distribution on a grid, and its probabilities: for evaluation before anything is spent.

Around a value f that can move to U(l) >= f and L(l) <= f after l changes, all integers, the grid falls into pieces; with
lam = epsilon/2, and c the least l >= 1 with U(l) > f or L(l) < f,

    piece                    width            weight
    U(l) + 1, ..., U(l+1)    w = U(l+1)-U(l)  w e^(-lam l)
    L(l) - 1, ..., L(l+1)    w = L(l)-L(l+1)  w e^(-lam l)
    f                        1                lam / (1 - e^-lam) e^(lam (c - 1))

and the j-th number of a piece of width w, counted from its inner end, has a share of its weight proportional to e^(-lam j / w).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dpjax.release.integer_profiles import IntegerProfile


class Piece(NamedTuple):
    """Numbers next to each other whose log-probability is linear.

    Attributes:
        width: how many.
        level: the cost of its inner end, less 1.
        inner: its number next to the statistic.
        below: whether it goes downwards.
        flat: whether it is the value itself.
    """

    width: int
    level: int
    inner: int
    below: bool = False
    flat: bool = False


def pieces_of(lower: Sequence[int], upper: Sequence[int]) -> list[Piece]:
    """Return the pieces of one row in the order of the sampler: upwards, downwards, the value's own."""
    pieces = [Piece(int(b) - int(a), level, int(a) + 1) for level, (a, b) in enumerate(pairwise(upper))]
    pieces += [Piece(int(a) - int(b), level, int(a) - 1, below=True) for level, (a, b) in enumerate(pairwise(lower))]
    return [*pieces, Piece(1, 1 - depth_of(lower, upper), int(upper[0]), flat=True)]


def depth_of(lower: Sequence[int], upper: Sequence[int]) -> int:
    """How many changes move the value; one more than there are levels if none do."""
    value, most = upper[0], max(len(lower), len(upper))
    return min(next((level for level, v in enumerate(side) if v != value), most) for side in (lower, upper))


@dataclass(frozen=True)
class GridDistribution:
    """The output distribution of a release of one dataset, exact to the rounding of float64; a function of the data, not private.

    Attributes:
        profile: of the dataset, ``(D+1,)`` and ``(U+1,)``, in multiples of ``resolution`` counted from ``start``.
        epsilon: of one draw.
        resolution: of the released values.
        start: the multiple that is the smallest value.
    """

    profile: IntegerProfile
    epsilon: float
    resolution: Fraction = Fraction(1)
    start: int = 0

    @property
    def size(self) -> int:
        """The number of values that have a probability."""
        return int(self.profile.upper[-1]) + 1

    @property
    def values(self) -> np.ndarray:
        """All values that have a probability, ascending, float64.

        Raises:
            ValueError: more than 2^22 of them.
        """
        if self.size > 2**22:
            raise ValueError(f"a sum over {self.size} values is too long: evaluate with a coarser resolution.")
        return values_of(self.start + np.arange(self.size), self.resolution)

    def pmf(self, values: Any) -> np.ndarray:
        """The probability of values, of their shape; 0 where one is not a multiple of the resolution, or out of range."""
        return np.exp(self.log_pmf(values))

    def log_pmf(self, values: Any) -> np.ndarray:
        """The logarithm of :meth:`pmf`."""
        given = np.asarray(values, np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            number = np.rint(given * self.resolution.denominator / self.resolution.numerator)
            there = np.abs(given - values_of(number, self.resolution)) <= 8 * np.finfo(np.float64).eps * np.abs(given)
        return np.where(there, self._log_pmf(number - self.start), -np.inf)

    def _log_pmf(self, at: np.ndarray) -> np.ndarray:
        rate, found, weights = self.epsilon / 2, np.full(at.shape, -np.inf), []
        for width, level, inner, below, flat in pieces_of(self.profile.lower.tolist(), self.profile.upper.tolist()):
            if width == 0:
                continue
            weights.append((np.log(rate / -np.expm1(-rate)) if flat else np.log(width)) - rate * level)
            step = inner - at if below else at - inner
            share = np.log(np.expm1(-rate / width) / np.expm1(-rate)) - rate * step / width
            found = np.where((step >= 0) & (step < width), weights[-1] + share, found)
        return found - np.logaddexp.reduce(weights)

    def mean_abs_error(self, center: float) -> float:
        """E|Y - center|, by the sum over all values.

        Raises:
            ValueError: more than 2^22 values.
        """
        return float(np.sum(np.abs(self.values - center) * np.exp(self._log_pmf(np.arange(self.size)))))


def values_of(number: Any, resolution: Fraction) -> np.ndarray:
    """Multiples of the resolution as float64, rounded once."""
    return np.asarray(number, np.float64) * resolution.numerator / resolution.denominator
