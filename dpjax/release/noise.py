"""Exact discrete Laplace noise (to be written)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpjax.release.distribution import GridDistribution


@dataclass(frozen=True, eq=False)
class DiscreteLaplace(GridDistribution):
    number: np.ndarray
    rate: Fraction
    unit: np.ndarray
