"""What a release returns, and what all its draws cost together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpjax.accounting.guarantee import Guarantee
from dpjax.release.grid import Grid
from dpjax.release.tables import Law


@dataclass(frozen=True)
class Release:
    """What was released; no error bar, since that would be a function of the data.

    Attributes:
        cells: int64 ``(draws, ...)``, in steps of the grid from the range's lower end; of candidates, the number of the chosen one.
        values: float64 of the same shape, the lower ends of the cells; of a mode, the candidates; of scores, the numbers.
        guarantee: what all draws of one row cost together.
        grid: the public grid; None for candidates.
        law: ``"cell"`` or ``"owned_cell"``; None for candidates.
        draws: how many from each row.
    """

    cells: np.ndarray
    values: np.ndarray
    guarantee: Guarantee
    grid: Grid | None
    law: Law | None
    draws: int


def cost_of(epsilon: float, draws: int, neighbors: str) -> Guarantee:
    """What so many draws cost together: the product, rounded up."""
    cost = epsilon * draws
    cost = cost if Fraction(cost) >= Fraction(epsilon) * draws else math.nextafter(cost, math.inf)
    return Guarantee(cost, cost, neighbors)
