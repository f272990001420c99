"""The two laws on a grid, as probabilities: what a release draws from, for evaluation before anything is spent."""

from __future__ import annotations

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
