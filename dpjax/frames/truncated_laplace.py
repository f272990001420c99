"""Truncated Laplace noise, the classical mechanism, in NumPy, for all groups at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class TruncatedLaplace(NamedTuple):
    """Laplace noise around values ``(groups,)``, truncated to two bounds.

    The sensitivity of a quantile is the distance of the bounds. Half of epsilon pays for it, and
    the other half for the mass between the bounds, which depends on the value.
    """

    value: np.ndarray
    epsilon: float
    lower: float
    upper: float

    @property
    def rate(self) -> float:
        """The inverse scale of the noise."""
        return self.epsilon / 2 / (self.upper - self.lower)

    @property
    def _lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """The distances of the value from both bounds, in units of the scale."""
        return self.rate * (self.value - self.lower), self.rate * (self.upper - self.value)

    def quantile(self, p: np.ndarray | float) -> np.ndarray:
        """Return the quantile at the probability p."""
        below, above = self._lengths
        # Signed, relative to the value.
        mass = p * -(np.expm1(-below) + np.expm1(-above)) + np.expm1(-below)
        left = np.log(np.minimum(mass, 0) + 1)
        found: np.ndarray = (
            self.value + np.where(mass < 0, left, -np.log1p(-np.maximum(mass, 0))) / self.rate
        )
        return np.clip(found, self.lower, self.upper)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the central interval of probability ``level``."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def mean_abs_error(self, center: np.ndarray) -> np.ndarray:
        """Return the mean absolute error, E|Y - center|, where the center is the value."""
        below, above = self._lengths
        found: np.ndarray = (
            (_moment(below) + _moment(above)) / -(np.expm1(-below) + np.expm1(-above)) / self.rate
        )
        return found

    def sample(self, seed: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
        """Draw by inverse CDF, float64 of shape ``shape + (groups,)``."""
        return self.quantile(seed.random((*shape, *self.value.shape)))


def _moment(length: np.ndarray) -> np.ndarray:
    """Return the integral of x e^-x from 0 to ``length``."""
    return np.where(
        length < 1e-3,
        length**2 * (0.5 - length / 3 + length**2 / 8),
        -np.expm1(-length) - length * np.exp(-length),
    )
