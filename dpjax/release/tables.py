"""The public tables of a release, from exact integer arithmetic: weights of levels, probabilities of binary digits.

Everything here depends on epsilon and the number of levels only. Numbers are enclosed between integers; where an enclosure
does not decide a floor, the precision doubles (the numbers are irrational, so it ends). The last tables are kept: they are public.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

DIGITS = 24  # binary digits with a word of their own; the rest of the fraction takes one word more
_BITS = 62  # of a weight's mantissa
_GUARD = 64
MOST_LEVELS = 2**24


class Enclosure(NamedTuple):
    """A positive number between ``low * 2^-scale`` and ``high * 2^-scale``."""

    low: int
    high: int
    scale: int

    def times(self, other: Enclosure, bits: int) -> Enclosure:
        """The product, to about so many bits."""
        low, high = self.low * other.low, self.high * other.high
        drop = max(high.bit_length() - bits, 0)
        return Enclosure(low >> drop, -(-high >> drop), self.scale + other.scale - drop)

    def one_minus(self) -> Enclosure:
        """1 less a number below 1."""
        return Enclosure((1 << self.scale) - self.high, (1 << self.scale) - self.low, self.scale)

    def one_plus(self) -> Enclosure:
        """1 more."""
        return Enclosure((1 << self.scale) + self.low, (1 << self.scale) + self.high, self.scale)

    def over(self, other: Enclosure, bits: int) -> Enclosure:
        """The quotient, to about so many bits."""
        shift = max(bits + other.high.bit_length() - self.low.bit_length() + 2, 0)
        low, high = (self.low << shift) // other.high, -((-self.high << shift) // other.low)
        return Enclosure(low, high, self.scale - other.scale + shift)


def exponential(x: Fraction, bits: int) -> Enclosure:
    """Enclose e^-x for x >= 0, to about so many bits: Taylor's series after halvings, then squarings."""
    halvings = max((x.numerator.bit_length() - x.denominator.bit_length()) + 2, 0)
    work = bits + halvings + 16
    small = x / 2**halvings  # below 1/2
    low = high = term_low = term_high = 1 << work
    k = 0
    while term_high > 1:
        k += 1
        numerator, denominator = small.numerator, small.denominator * k
        term_low, term_high = term_low * numerator // denominator, -(-term_high * numerator // denominator)
        low, high = (low - term_high, high - term_low) if k % 2 else (low + term_low, high + term_high)
    # The rest of an alternating series is less than its next term, here less than one unit.
    found = Enclosure(low - 1, high + 1, work)
    for _ in range(halvings):
        found = found.times(found, work)
    return found


def floor_of(enclose: Callable[[int], Enclosure], bits: int) -> tuple[int, int]:
    """Return m and s with m * 2^-s <= value < (m + 1) * 2^-s and m of so many bits; ``enclose(bits)`` encloses the value."""
    precision = bits + _GUARD
    while True:
        found = enclose(precision)
        drop = found.high.bit_length() - bits
        if drop >= 0 and found.low >> drop == (found.high - 1) >> drop and (found.low >> drop).bit_length() == bits:
            return found.low >> drop, found.scale - drop
        if found.low == found.high and drop < 0:  # an exact power of two, such as e^0
            return found.low << -drop, found.scale - drop
        precision *= 2


class Weights(NamedTuple):
    """Numbers between mantissa and mantissa + 1, times 2^-scale.

    Attributes:
        high: uint32 ``(k,)``, the upper 30 bits of each mantissa.
        low: uint32 ``(k,)``, the lower 32 bits.
        scale: int32 ``(k,)``.
    """

    high: np.ndarray
    low: np.ndarray
    scale: np.ndarray


class Tables(NamedTuple):
    """What a draw reads besides integer profiles and words.

    Attributes:
        levels: e^(-lam l) for l = 0, ..., levels - 1.
        own: of the value itself, lam / (1 - e^-lam) e^(lam (c - 1)) for a depth c = 1, ..., levels + 1.
        thresholds: uint32 ``(24,)``, floor(2^32 / (1 + e^(lam 2^-k))) for k = 1, ..., 24.
        slack: uint32 scalar, how far the last word can be from the fraction it stands for, in units of 2^-32.
    """

    levels: Weights
    own: Weights
    thresholds: np.ndarray
    slack: np.ndarray


def exact_epsilon(epsilon: float | Fraction) -> Fraction:
    """Return an epsilon in [2^-30, 64] exactly: the number of a float, and not of the decimal that it is written as."""
    if isinstance(epsilon, (list, tuple)) or getattr(epsilon, "ndim", 0) > 0:
        raise TypeError(f"epsilon must be one number, got {epsilon}; each release has its own.")
    if not 2.0**-30 <= float(epsilon) <= 64:
        raise ValueError(f"epsilon must be from 2^-30 to 64, got {epsilon}.")
    return epsilon if isinstance(epsilon, Fraction) else Fraction(float(epsilon))


def rate_of(epsilon: float | Fraction) -> Fraction:
    """Return lam = epsilon/2, exactly half of the number given."""
    return exact_epsilon(epsilon) / 2


def own_weight(rate: Fraction, bits: int) -> Enclosure:
    """Enclose lam / (1 - e^-lam)."""
    rest = exponential(rate, bits + 64).one_minus()
    times = Enclosure(rate.denominator * rest.low, rate.denominator * rest.high, rest.scale)
    return Enclosure(rate.numerator, rate.numerator, 0).over(times, bits + 32)


def digit_probability(rate: Fraction, k: int, bits: int) -> Enclosure:
    """Enclose P(binary digit k = 1) = e^-x / (1 + e^-x), x = lam 2^-k."""
    found = exponential(rate / 2**k, bits + 8)
    return found.over(found.one_plus(), bits + 8)


def own_weight_at(rate: Fraction, depth: int, bits: int) -> Enclosure:
    """Enclose lam / (1 - e^-lam) e^(lam (depth - 1))."""
    return own_weight(rate, bits + 8).over(exponential(rate * (depth - 1), bits + 8), bits + 8)


@lru_cache(maxsize=4)
def level_weights(epsilon: float | Fraction, levels: int) -> Weights:
    """Return e^(-lam l) for l = 0, ..., levels - 1; of a float epsilon the exact value is meant."""
    if not 1 <= levels <= MOST_LEVELS:
        raise ValueError(f"levels must be from 1 to 2^24, got {levels}.")
    rate, precision = rate_of(epsilon), _precision(levels)
    one = Enclosure(1 << precision, 1 << precision, precision)
    return _powers(one, exponential(rate, precision), levels, lambda level: partial(exponential, rate * level))


@lru_cache(maxsize=4)
def public_tables(epsilon: float | Fraction, *, levels: int) -> Tables:
    """Return the tables for so many levels; see :func:`level_weights`."""
    rate, precision = rate_of(epsilon), _precision(levels)
    one = Enclosure(1 << precision, 1 << precision, precision)
    rising = one.over(exponential(rate, precision), precision)
    digits = [floor_of(partial(digit_probability, rate, k), 32) for k in range(1, DIGITS + 1)]
    slack = rate / 2 ** (DIGITS + 3) * 2**32
    return Tables(
        levels=level_weights(epsilon, levels),
        own=_powers(own_weight(rate, precision), rising, levels + 1, lambda level: partial(own_weight_at, rate, level + 1)),
        thresholds=np.array([mantissa >> (scale - 32) for mantissa, scale in digits], np.uint32),
        slack=np.array(-(-slack.numerator // slack.denominator), np.uint32),
    )


def _precision(levels: int) -> int:
    return _BITS + _GUARD + levels.bit_length()


def _powers(first: Enclosure, step: Enclosure, count: int, exactly: Callable[[int], Callable[[int], Enclosure]]) -> Weights:
    """The numbers first * step^i for i = 0, ..., count - 1; where their digits do not decide, ``exactly(i)`` encloses number i."""
    high, low, scales = np.zeros(count, np.uint32), np.zeros(count, np.uint32), np.zeros(count, np.int32)
    power, precision = first, _precision(count)
    for i in range(count):
        drop = power.high.bit_length() - _BITS
        if power.low >> drop == power.high >> drop:
            mantissa, scale = power.low >> drop, power.scale - drop
        else:
            mantissa, scale = floor_of(exactly(i), _BITS)
        high[i], low[i], scales[i] = mantissa >> 32, mantissa & 0xFFFFFFFF, scale
        power = power.times(step, precision)
    for array in (high, low, scales):
        array.setflags(write=False)  # they are kept
    return Weights(high, low, scales)
