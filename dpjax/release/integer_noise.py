"""Exact draws of discrete Laplace noise with a rational rate lam.

P(z) = tanh(lam/2) e^(-lam abs(z)) for integers z. It is the difference of two geometric variables
G, P(G = g) = (1 - e^-lam) e^(-lam g). The binary digits of G are independent, since e^(-lam g) is a
product over them: digit j is 1 with probability 1 / (1 + e^(lam 2^j)). The part of G above the
first ``digits`` digits is geometric with the rate lam 2^digits, which is at least 32: it is 0
except with probability e^-32, and then counted by one trial at a time. A 32-bit word decides a
digit unless it equals the first 32 bits of its probability; a draw with such a word is repeated in
exact arithmetic, with further bits of the same uniforms. Nothing is truncated.

Privacy: for integers a and a' that differ by s, P(z - a) <= e^(lam s) P(z - a') for every z.

References: Ghosh, Roughgarden and Sundararajan (2009), the geometric mechanism; Canonne, Kamath and
Steinke (2020).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.release.entropy import Bits, More, further_word, system_words
from dpjax.release.exponentials import digit_probability, exponential, floor_of

_SURE = 32  # the rate from which on a geometric variable is 0 unless its word is 0
_WORDS = 2**22  # the number of words drawn at a time
# The number of uniforms reserved for one geometric variable: its digits, and the trials above them
_ROLES = 2**16


@dataclass(frozen=True, eq=False)
class CountDistribution:
    """The distributions of numbers with discrete Laplace noise.

    They are functions of the data, not private.

    Attributes:
        value: the numbers without noise, int64 of any shape.
        rate: the exact rate of the noise: epsilon, if one record changes one number by 1.
    """

    value: np.ndarray
    rate: Fraction

    def mean_abs_error(self, center: np.ndarray) -> np.ndarray:
        """Return E|Y - center|, for centers that broadcast against the numbers."""
        away = np.abs(np.asarray(center, np.float64) - self.value)
        whole, decay = np.floor(away), math.exp(-float(self.rate))
        # E|Z - a| is linear between integers, and n + 2 e^(-lam n) e^-lam / (1 - e^-2 lam) at the
        # integer n.
        ends = [
            n + 2 * decay ** (n + 1) / -math.expm1(-2 * float(self.rate))
            for n in (whole, whole + 1)
        ]
        found: np.ndarray = ends[0] + (ends[1] - ends[0]) * (away - whole)
        return found

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the central interval of probability ``level``.

        Each tail has (1 - level) / 2.
        """
        rate, outside = float(self.rate), (1 - checks.concrete_fraction("level", level)) / 2
        # P(Z <= -k) = e^(-lam k) / (1 + e^-lam)
        away = -math.log(outside * (1 + math.exp(-rate))) / rate
        return self.value - math.floor(away), self.value + math.ceil(away) - 1.0

    def sample(
        self, seed: int | np.random.Generator, shape: int | Sequence[int] = ()
    ) -> np.ndarray:
        """Draw for a simulation, by a seed or a NumPy generator.

        The result is float64 of shape ``shape + value.shape``.
        """
        generator, success = np.random.default_rng(seed), -math.expm1(-float(self.rate))
        size = ((shape,) if isinstance(shape, int) else tuple(shape)) + self.value.shape
        noise = generator.geometric(success, size) - generator.geometric(success, size)
        found: np.ndarray = self.value + noise.astype(np.float64)
        return found

    def positions(self, draws: int) -> np.ndarray:
        """Draw exactly, int64 ``(draws, ...)``."""
        noise = draw_discrete_laplace([self.rate], math.prod(self.value.shape), draws)
        return self.value + noise.reshape(draws, *self.value.shape)


def draw_discrete_laplace(
    rates: Sequence[Fraction],
    rows: int,
    draws: int,
    words: Any = system_words,
    more: More = further_word,
) -> np.ndarray:
    """Draw noise ``(draws, rows, K)``, int64, with one rate for each of the K columns.

    Rates are in [2^-40, 2^20].
    """
    check_rates(rates)
    digits = digits_of(min(rates))
    table = np.array([[threshold(rate, j) for rate in rates] for j in range(digits + 1)], np.uint32)
    found = np.zeros((draws * rows, len(rates)), np.int64)
    step = max(_WORDS // (2 * (digits + 1) * len(rates)), 1)
    for start in range(0, len(found), step):
        chunk = found[start : start + step]
        drawn = words((2 * (digits + 1), *chunk.shape), np.uint32)
        chunk[:], certain = decide(table, drawn)
        for at in zip(*np.nonzero(~certain), strict=True):
            chunk[at] = exact_noise(rates[at[1]], digits, drawn[:, at[0], at[1]].tolist(), more)
    return found.reshape(draws, rows, len(rates))


def check_rates(rates: Sequence[Fraction]) -> None:
    """Raise ``ValueError`` for noise that is too small or too large to draw."""
    for rate in rates:
        if not Fraction(1, 2**40) <= rate <= 2**20:
            raise ValueError(
                f"noise must be from 2^-20 to 2^40 times the resolution, got {float(1 / rate):g} "
                "times."
            )


def digits_of(rate: Fraction) -> int:
    """Return the number of binary digits that are drawn by a word each."""
    return max((_SURE * rate.denominator // rate.numerator).bit_length(), 0)


def threshold(rate: Fraction, j: int) -> int:
    """Return the first 32 bits of the probability that digit j is 1."""
    x = rate * 2**j
    if x > 2 * _SURE:
        return 0
    mantissa, scale = floor_of(partial(digit_probability, x), 32)
    return mantissa >> (scale - 32)


def decide(table: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the noise for some words, int64 ``(lanes, K)``, and whether it is certain.

    The words are ``(2 (digits + 1), lanes, K)``. ``table`` has the thresholds ``(digits + 1, K)``;
    the threshold above the digits is 0, and its word is certain unless it is 0 as well.
    """
    digits = table.shape[0] - 1
    halves = words.reshape(2, digits + 1, *words.shape[1:])
    certified = ~np.any(halves == table[None, :, None, :], axis=(0, 1))
    ones = (halves[:, :digits] < table[:digits, None, :]).astype(np.int64)
    numbers = np.sum(ones << np.arange(digits).reshape(-1, 1, 1), axis=1)
    return numbers[0] - numbers[1], certified


def exact_noise(rate: Fraction, digits: int, words: Sequence[int], more: More) -> int:
    """Return the noise for the uniforms that begin with these words, with bits as needed."""
    each = digits + 1
    return _exact_geometric(rate, digits, words[:each], more, 0) - _exact_geometric(
        rate, digits, words[each:], more, _ROLES
    )


def _exact_geometric(
    rate: Fraction, digits: int, words: Sequence[int], more: More, role: int
) -> int:
    low = sum(
        _happens(rate * 2**j, Bits(words[j], 32, role + j, more), digit=True) << j
        for j in range(digits)
    )
    above, uniform = 0, Bits(words[digits], 32, role + digits, more)
    while _happens(rate * 2**digits, uniform, digit=False):
        above += 1
        uniform = Bits(0, 0, role + digits + above, more)
    return (above << digits) + low


def _happens(x: Fraction, uniform: Bits, *, digit: bool) -> bool:
    """Return whether a uniform is below e^-x, or, for a digit, below 1 / (1 + e^x)."""
    while uniform.value == 0 and uniform.count < x:
        uniform.read()
    if uniform.value and x > uniform.count:  # the uniform is at least 2^-count, more than e^-x
        return False
    return uniform.below(partial(digit_probability, x) if digit else partial(exponential, x))
