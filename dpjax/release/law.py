"""The two laws on a grid, as probabilities: what a release draws from, for evaluation before anything is spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpjax.release.exact import pieces_of
from dpjax.release.knots import Knots
from dpjax.release.tables import Law


def log_pmf(knots: Knots, epsilon: float, cells: Any, *, law: Law) -> np.ndarray:
    """Return the log-probability of cells under the law of one row, float64; -inf outside the range.

    Args:
        knots: of one dataset, ``(D+1,)`` and ``(U+1,)``.
        epsilon: positive.
        cells: integers of any shape.
        law: ``"cell"`` or ``"owned_cell"``.
    """
    rate = epsilon / 2
    at = np.asarray(cells)
    found, weights = np.full(at.shape, -np.inf), []
    for width, level, inner, below in pieces_of(knots.lower.tolist(), knots.upper.tolist(), law):
        if width == 0:
            continue
        log_weight = np.log(rate / -np.expm1(-rate)) if level < 0 else np.log(width) - rate * level
        weights.append(log_weight)
        step = inner - 1 - at if below else at - inner
        inside = (step >= 0) & (step < width)
        share = np.log(np.expm1(-rate / width) / np.expm1(-rate)) - rate * step / width
        found = np.where(inside, log_weight + share, found)
    return found - np.logaddexp.reduce(weights)


@dataclass(frozen=True)
class GridLaw:
    """The law of a release of one dataset, exact to the rounding of float64; a function of the data, not private.

    Attributes:
        knots: of the dataset, ``(D+1,)`` and ``(U+1,)``, in refined cells.
        epsilon: of one draw.
        law: ``"cell"`` or ``"owned_cell"``.
        refined: how many refined cells are one cell of the grid.
    """

    knots: Knots
    epsilon: float
    law: Law
    refined: int

    @property
    def size(self) -> int:
        """The number of cells of the grid that have a probability."""
        end = int(self.knots.upper[-1]) + (self.law == "owned_cell")
        return -(-end // self.refined)

    def pmf(self, cells: Any) -> np.ndarray:
        """The probability of cells of the grid, of the shape of ``cells``; 0 outside of it."""
        fine = np.asarray(cells)[..., None] * self.refined + np.arange(self.refined)
        return np.exp(log_pmf(self.knots, self.epsilon, fine, law=self.law)).sum(axis=-1)

    def mean_abs_error(self, cell: float) -> float:
        """E|Y - cell| in cells, by the sum over all of them.

        Raises:
            ValueError: more than 2^22 cells.
        """
        if self.size > 2**22:
            raise ValueError(f"a sum over {self.size} cells is too long: evaluate on a coarser grid.")
        every = np.arange(self.size)
        return float(np.sum(np.abs(every - cell) * self.pmf(every)))
