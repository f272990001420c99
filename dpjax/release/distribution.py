"""The two output distributions on a grid, and their probabilities: for evaluation before anything is spent.

Around a value f that can move to U(l) >= f and L(l) <= f after l changes, all integers, the line falls into pieces; with
lam = epsilon/2,

    variant       pieces upwards             weight        pieces downwards       the value itself
    "cell"        [U(l), U(l+1))             w e^(-lam l)  [L(l+1), L(l))         none
    "owned_cell"  [U(l) + 1, U(l+1) + 1)     w e^(-lam l)  [L(l+1), L(l))         [f, f+1), weight lam / (1 - e^-lam)

and the j-th cell of a piece of width w, counted from its inner end, has a share of its weight proportional to e^(-lam j / w).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from dpjax.release.integer_profiles import IntegerProfile

Variant = Literal["cell", "owned_cell"]
VARIANTS = ("cell", "owned_cell")


class Piece(NamedTuple):
    """Cells next to each other whose log-probability is linear.

    Attributes:
        width: how many.
        level: the cost of its inner end, less 1.
        inner: the end next to the statistic.
        below: whether it goes downwards.
        flat: whether it is the cell of the value itself.
    """

    width: int
    level: int
    inner: int
    below: bool = False
    flat: bool = False


def pieces_of(lower: Sequence[int], upper: Sequence[int], variant: Variant) -> list[Piece]:
    """Return the pieces of one row in the order of the sampler: upwards, downwards, the value's own."""
    own = int(variant == "owned_cell")
    pieces = [Piece(int(b) - int(a), level, int(a) + own) for level, (a, b) in enumerate(pairwise(upper))]
    pieces += [Piece(int(a) - int(b), level, int(a), below=True) for level, (a, b) in enumerate(pairwise(lower))]
    return pieces + [Piece(1, 0, int(upper[0]), flat=True)] * own


@dataclass(frozen=True)
class GridDistribution:
    """The output distribution of a release of one dataset, exact to the rounding of float64; a function of the data, not private.

    Attributes:
        profile: of the dataset, ``(D+1,)`` and ``(U+1,)``, in refined cells.
        epsilon: of one draw.
        variant: ``"cell"`` or ``"owned_cell"``.
        refined: how many refined cells are one cell of the grid.
    """

    profile: IntegerProfile
    epsilon: float
    variant: Variant
    refined: int = 1

    @property
    def size(self) -> int:
        """The number of cells of the grid that have a probability."""
        end = int(self.profile.upper[-1]) + (self.variant == "owned_cell")
        return -(-end // self.refined)

    def pmf(self, cells: Any) -> np.ndarray:
        """The probability of cells of the grid, of the shape of ``cells``; 0 outside of it."""
        return np.exp(self.log_pmf(cells))

    def log_pmf(self, cells: Any) -> np.ndarray:
        """The logarithm of :meth:`pmf`; -inf outside of the grid."""
        at = np.asarray(cells)[..., None] * self.refined + np.arange(self.refined)
        rate, found, weights = self.epsilon / 2, np.full(at.shape, -np.inf), []
        for width, level, inner, below, flat in pieces_of(self.profile.lower.tolist(), self.profile.upper.tolist(), self.variant):
            if width == 0:
                continue
            weights.append((np.log(rate / -np.expm1(-rate)) if flat else np.log(width)) - rate * level)
            step = inner - 1 - at if below else at - inner
            share = np.log(np.expm1(-rate / width) / np.expm1(-rate)) - rate * step / width
            found = np.where((step >= 0) & (step < width), weights[-1] + share, found)
        return np.logaddexp.reduce(found, axis=-1) - np.logaddexp.reduce(weights)

    def mean_abs_error(self, cell: float) -> float:
        """E|Y - cell| in cells, by the sum over all of them.

        Raises:
            ValueError: more than 2^22 cells.
        """
        if self.size > 2**22:
            raise ValueError(f"a sum over {self.size} cells is too long: evaluate on a coarser grid.")
        every = np.arange(self.size)
        return float(np.sum(np.abs(every - cell) * self.pmf(every)))
