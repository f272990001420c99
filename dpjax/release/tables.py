"""The public tables of a release, from exact integer arithmetic: weights of levels, probabilities of binary digits.

Everything here depends on epsilon and the number of levels only. Numbers are enclosed between integers; where an enclosure
does not decide a floor, the precision doubles (the numbers are irrational, so it ends).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
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


class Tables(NamedTuple):
    """What a draw reads besides integer profiles and words.

    Attributes:
        high: uint32 ``(levels,)``, the upper 30 bits of each weight's mantissa.
        low: uint32 ``(levels,)``, the lower 32 bits.
        scale: int32 ``(levels,)``: e^(-lam l) is between mantissa and mantissa + 1, times 2^-scale.
        own: uint32 ``(3,)``, the same three numbers for the cell of the value itself, lam / (1 - e^-lam).
        thresholds: uint32 ``(24,)``, floor(2^32 / (1 + e^(lam 2^-k))) for k = 1, ..., 24.
        slack: uint32 scalar, how far the last word can be from the fraction it stands for, in units of 2^-32.
    """

    high: np.ndarray
    low: np.ndarray
    scale: np.ndarray
    own: np.ndarray
    thresholds: np.ndarray
    slack: np.ndarray


def rate_of(epsilon: float | Fraction) -> Fraction:
    """Return lam = epsilon/2, exactly half of the number given.

    Raises:
        ValueError: an epsilon outside [2^-30, 64].
    """
    if not 2.0**-30 <= float(epsilon) <= 64:
        raise ValueError(f"epsilon must be from 2^-30 to 64, got {epsilon}.")
    return (epsilon if isinstance(epsilon, Fraction) else Fraction(float(epsilon))) / 2


def own_weight(rate: Fraction, bits: int) -> Enclosure:
    """Enclose lam / (1 - e^-lam)."""
    inner = bits + 64
    e = exponential(rate, inner)
    one = 1 << e.scale
    numerator = rate.numerator << (inner + e.scale)
    return Enclosure(numerator // (rate.denominator * (one - e.low)), -(-numerator // (rate.denominator * (one - e.high))), inner)


def digit_probability(rate: Fraction, k: int, bits: int) -> Enclosure:
    """Enclose P(binary digit k = 1) = e^-x / (1 + e^-x), x = lam 2^-k."""
    e = exponential(rate / 2**k, bits + 8)
    one = 1 << e.scale
    return Enclosure((e.low << bits) // (one + e.low), -(-(e.high << bits) // (one + e.high)), bits)


def public_tables(epsilon: float | Fraction, *, levels: int) -> Tables:
    """Return the tables for so many levels.

    Args:
        epsilon: from 2^-30 to 64; a float's exact value is meant.
        levels: how many levels the profile has, a number that the shape of the data gives.

    Raises:
        ValueError: a bad epsilon or number of levels.
    """
    if not 1 <= levels <= MOST_LEVELS:
        raise ValueError(f"levels must be from 1 to 2^24, got {levels}.")
    rate = rate_of(epsilon)
    precision = _BITS + _GUARD + levels.bit_length()
    step, power = exponential(rate, precision), Enclosure(1 << precision, 1 << precision, precision)
    high, low, scales = np.zeros(levels, np.uint32), np.zeros(levels, np.uint32), np.zeros(levels, np.int32)
    high[0], scales[0] = 1 << (_BITS - 33), _BITS - 1
    for level in range(1, levels):
        power = power.times(step, precision)
        drop = power.high.bit_length() - _BITS
        if power.low >> drop == power.high >> drop:
            mantissa, scale = power.low >> drop, power.scale - drop
        else:
            mantissa, scale = floor_of(partial(exponential, rate * level), _BITS)
        high[level], low[level], scales[level] = mantissa >> 32, mantissa & 0xFFFFFFFF, scale
    own, own_scale = floor_of(partial(own_weight, rate), _BITS)
    digits = [floor_of(partial(digit_probability, rate, k), 32) for k in range(1, DIGITS + 1)]
    slack = rate / 2 ** (DIGITS + 3) * 2**32
    return Tables(
        high=high,
        low=low,
        scale=scales,
        own=np.array([own >> 32, own & 0xFFFFFFFF, own_scale], np.uint32),
        thresholds=np.array([mantissa >> (scale - 32) for mantissa, scale in digits], np.uint32),
        slack=np.array(-(-slack.numerator // slack.denominator), np.uint32),
    )
