"""Exponentials of rational numbers, enclosed between integers, for the comparisons of exact draws.

If an enclosure does not decide a comparison or a floor, the precision is increased. The numbers are
irrational, so this terminates.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import numpy as np

from dpjax import checks

_GUARD = 64


class Enclosure(NamedTuple):
    """A positive number between ``low * 2^-scale`` and ``high * 2^-scale``."""

    low: int
    high: int
    scale: int

    def times(self, other: Enclosure, bits: int) -> Enclosure:
        """Return the product, rounded outwards to about ``bits`` bits."""
        low, high = self.low * other.low, self.high * other.high
        drop = max(high.bit_length() - bits, 0)
        return Enclosure(low >> drop, -(-high >> drop), self.scale + other.scale - drop)

    def one_minus(self) -> Enclosure:
        """Return an enclosure of 1 - x, for x below 1."""
        return Enclosure((1 << self.scale) - self.high, (1 << self.scale) - self.low, self.scale)

    def one_plus(self) -> Enclosure:
        """Return an enclosure of 1 + x."""
        return Enclosure((1 << self.scale) + self.low, (1 << self.scale) + self.high, self.scale)

    def over(self, other: Enclosure, bits: int) -> Enclosure:
        """Return the quotient, rounded outwards to about ``bits`` bits."""
        shift = max(bits + other.high.bit_length() - self.low.bit_length() + 2, 0)
        low, high = (self.low << shift) // other.high, -((-self.high << shift) // other.low)
        return Enclosure(low, high, self.scale - other.scale + shift)

    def scaled(self, bits: int) -> tuple[int, int]:
        """Return both ends in units of 2^-bits, rounded outwards."""
        shift = bits - self.scale
        if shift >= 0:
            return self.low << shift, self.high << shift
        return self.low >> -shift, -(-self.high >> -shift)


def exponential(x: Fraction, bits: int) -> Enclosure:
    """Enclose e^-x for x >= 0 to about ``bits`` bits.

    The argument is halved until it is below 1/2, then Taylor's series is summed and squared.
    """
    halvings = max((x.numerator.bit_length() - x.denominator.bit_length()) + 2, 0)
    work = bits + halvings + 16
    numerator, denominator = x.numerator, x.denominator << halvings  # below 1/2
    low = high = term_low = term_high = 1 << work
    k = 0
    while term_high > 1:
        k += 1
        term_low, term_high = (
            term_low * numerator // (denominator * k),
            -(-term_high * numerator // (denominator * k)),
        )
        low, high = (
            (low - term_high, high - term_low) if k % 2 else (low + term_low, high + term_high)
        )
    # The rest of an alternating series is less than its next term, here less than one unit.
    found = Enclosure(low - 1, high + 1, work)
    for _ in range(halvings):
        found = found.times(found, work)
    return found


def one_minus_exponential(x: Fraction, bits: int) -> Enclosure:
    """Enclose 1 - e^-x for x > 0 to about ``bits`` significant bits."""
    lost = max(x.denominator.bit_length() - x.numerator.bit_length(), 0)
    return exponential(x, bits + lost + 2).one_minus()


def digit_probability(rate: Fraction, bits: int) -> Enclosure:
    """Enclose e^-x / (1 + e^-x), the probability that a binary digit of a geometric number is 1."""
    found = exponential(rate, bits + 8)
    return found.over(found.one_plus(), bits + 8)


def floor_of(enclose: Callable[[int], Enclosure], bits: int) -> tuple[int, int]:
    """Return m and s with m * 2^-s <= value < (m + 1) * 2^-s, where m has ``bits`` bits.

    ``enclose(bits)`` encloses the value.
    """
    precision = bits + _GUARD
    while True:
        found = enclose(precision)
        drop = found.high.bit_length() - bits
        if (
            drop >= 0
            and found.low >> drop == (found.high - 1) >> drop
            and (found.low >> drop).bit_length() == bits
        ):
            return found.low >> drop, found.scale - drop
        if found.low == found.high and drop < 0:  # an exact power of two, such as e^0
            return found.low << -drop, found.scale - drop
        precision *= 2


def powers(rate: Fraction, size: int) -> np.ndarray:
    """Return e^(-rate j) for j = 0, ..., size - 1 in float64.

    Each is accurate up to a factor 1 + 2^-52.
    """
    bits = 62
    precision = bits + _GUARD + size.bit_length()
    power, step = Enclosure(1 << precision, 1 << precision, precision), exponential(rate, precision)
    mantissas, scales = np.zeros(size), np.zeros(size, np.int64)
    for j in range(size):
        drop = power.high.bit_length() - bits
        if power.low >> drop == power.high >> drop:
            mantissas[j], scales[j] = power.low >> drop, power.scale - drop
        else:
            mantissas[j], scales[j] = floor_of(partial(exponential, rate * j), bits)
        power = power.times(step, precision)
    with np.errstate(under="ignore"):
        return np.ldexp(mantissas, -scales)


def exact_epsilon(epsilon: float | Fraction) -> Fraction:
    """Return an epsilon in [2^-30, 64] as an exact fraction.

    It is exactly the float, not the decimal it is written as.
    """
    if not 2.0**-30 <= checks.concrete_epsilon(epsilon) <= 64:  # type: ignore[arg-type]
        raise ValueError(f"epsilon must be from 2^-30 to 64, got {epsilon}.")
    return epsilon if isinstance(epsilon, Fraction) else Fraction(float(epsilon))
