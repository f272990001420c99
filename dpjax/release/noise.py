"""Exact discrete Laplace noise on integers, such as counts and sums in units of a resolution.

P(Z = z) is proportional to e^(-rate abs(z)): Z is the difference of two geometric variables G with
P(G >= g) = e^(-rate g). If neighbors change the integers of a row by at most s in total, noise of
the rate epsilon / s is epsilon-DP.

**Exactness.** G is the largest g with U < e^(-rate g), and nothing is truncated. Floats decide
where no rounding error can change it; the margin, 2^-40 in -log(U), is far above the errors of log
(accurate to 2^-48) and of the first 64 bits of U where these are above 2^44. Otherwise decimals of
as many digits as it takes decide, with further bits of U.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np

from dpjax.release.distribution import MARGIN, GridDistribution
from dpjax.release.exact import Bits, Words, by_decimals, system_words

LARGEST = 2**62  # larger integers are clamped to this before noise is added


def geometric(
    rate: Fraction, shape: tuple[int, ...], words: Words = system_words, margin: float = MARGIN
) -> np.ndarray:
    """Draw exactly from P(G >= g) = e^(-rate g), int64; floats decide what the margin leaves."""
    given = words(shape)
    real = -np.log((given + 0.5) * 2.0**-64) / float(rate)
    found = np.floor(real).astype(np.int64)
    unsure = (np.abs(real - np.rint(real)) * float(rate) <= margin) | (given <= 2**44)
    for at in np.argwhere(unsure):
        uniform = Bits(given[*at], words)
        found[*at] = by_decimals(partial(_floor, rate, uniform))
    return found


def _floor(rate: Fraction, uniform: Bits, digits: int) -> int | None:
    """Return the largest g with U < e^(-rate g) if decimals of so many digits decide it, or None.

    The bits of U that are not known change -log(U) / rate by less than 2^(40 - 3 digits).
    """
    known = uniform.decimal(digits)
    if uniform.value < 8**digits:
        return None
    real = -known.ln() * rate.denominator / rate.numerator
    near = abs(real - real.to_integral_value()) < Decimal(10) ** -(digits // 2)
    return None if near else int(real)


@dataclass(frozen=True, eq=False, repr=False)
class DiscreteLaplace(GridDistribution):
    """Integers with independent discrete Laplace noise.

    Attributes:
        number: int64, ``(groups,)`` or ``(groups, bins)``, the integers without noise.
        rate: the rate of the noise, from 2^-40 to 2^20.
        multiple: values are multiples of ``multiple / parts``.
        parts: float64, broadcasts against ``number``.

    Raises:
        ValueError: the rate is out of range.

    >>> noisy = DiscreteLaplace(np.array([40, 3]), Fraction(1, 2), parts=10.0)
    >>> noisy.value, noisy.mean_abs_error(noisy.value).round(3)
    (array([4. , 0.3]), array([0.192, 0.192]))
    """

    number: np.ndarray
    rate: Fraction
    multiple: float = 1.0
    parts: Any = 1.0

    def __post_init__(self) -> None:
        """Raise for a rate out of range."""
        if not 2**-40 <= self.rate <= 2**20:
            raise ValueError("noise must be from 2^-20 to 2^40 times the resolution.")

    @cached_property
    def value(self) -> np.ndarray:  # type: ignore[override]
        """The values without noise."""
        return self.values_of(self.number)

    def positions(self, draws: int, words: Words = system_words) -> np.ndarray:
        """Draw noisy integers exactly, int64 of shape ``(draws,)`` and that of ``number``."""
        more, less = geometric(self.rate, (2, draws, *self.number.shape), words)
        return self.number + more - less

    def values_of(self, positions: np.ndarray) -> np.ndarray:
        """Return integers as values, float64, rounded once up to 2^53."""
        with np.errstate(over="ignore"):
            return np.asarray(positions * self.multiple / self.parts)

    def reshaped(self, batch: tuple[int, ...]) -> DiscreteLaplace:
        """Return the same distributions with another batch shape."""
        shape = batch + self.number.shape[1:]
        parts = np.broadcast_to(self.parts, self.number.shape).reshape(shape)
        return replace(self, number=self.number.reshape(shape), parts=parts)

    def pmf(self, values: Any) -> np.ndarray:
        """Return the probability of each value; 0 for a value that is not on the grid."""
        noise, on_grid = self._noise(values)
        share = -np.expm1(-float(self.rate)) * self._tail(np.abs(noise))
        return np.where(on_grid, share, 0.0)

    def cdf(self, values: Any) -> np.ndarray:
        """Return P(Y <= value)."""
        noise, _ = self._noise(values)
        tail = self._tail(np.where(noise < 0, -noise, noise + 1))
        return np.where(noise < 0, tail, 1 - tail)

    def quantile(self, p: Any) -> np.ndarray:
        """Return the least value with ``cdf(value) >= p``, up to rounding; NaN outside [0, 1]."""
        p, rate = np.asarray(p, np.float64), float(self.rate)
        with np.errstate(divide="ignore", invalid="ignore"):
            away = -np.log(np.minimum(p, 1 - p) * (1 + np.exp(-rate))) / rate
        noise = np.where(p <= 0.5, -np.floor(away + 1e-12), np.ceil(away - 1e-12) - 1)
        return self.values_of(self.number + noise)

    def mean_abs_error(self, center: Any) -> np.ndarray:
        """Return E|Y - center|, the mean absolute error of a draw."""
        away = np.abs(center - self.value) / self._one
        whole = np.floor(away)
        beyond = whole - away - 1 / np.expm1(-float(self.rate))  # E[Z - away | Z > whole]
        return (away + 2 * self._tail(whole + 1) * beyond) * self._one

    @property
    def _one(self) -> np.ndarray:
        return self.values_of(np.ones_like(self.number))

    def _noise(self, values: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the largest noise that leads to at most a value, and whether it leads to it."""
        multiple = np.asarray(values, np.float64) / self._one
        whole = np.rint(multiple)
        on_grid = np.isclose(whole, multiple, rtol=1e-14, atol=0)
        return np.where(on_grid, whole, np.floor(multiple)) - self.number, on_grid

    def _tail(self, least: np.ndarray) -> np.ndarray:
        """Return P(Z >= least) for positive integers."""
        return np.exp(-float(self.rate) * least) / (1 + np.exp(-float(self.rate)))
