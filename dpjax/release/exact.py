"""Random bits of the operating system, and e^-rate and decimals without rounding that matters.

There is no key and no seed: nothing that a public function returns can be drawn again. A uniform
begins with one 64-bit word; an exact comparison reads as many further words as it takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from dpjax import checks

Words = Callable[[tuple[int, ...]], np.ndarray]  # a shape -> uint64 words of this shape


def system_words(shape: tuple[int, ...]) -> np.ndarray:
    """Return 64-bit words from the operating system."""
    return np.frombuffer(os.urandom(8 * prod(shape)), np.uint64).reshape(shape)


def seeded(seed: int | np.random.Generator) -> Words:
    """Return a substitute of :func:`system_words` for simulations: words of a NumPy generator."""
    generator = np.random.default_rng(seed)
    return lambda shape: generator.integers(0, 2**64, shape, np.uint64)


class Bits:
    """A uniform on [0, 1) that begins with a word; further words are read as needed.

    Attributes:
        value: the bits that are known, as an integer.
        count: how many they are.
    """

    def __init__(self, word: int, words: Words) -> None:
        self.value, self.count, self._words = int(word), 64, words

    def read(self) -> None:
        """Read 64 more bits."""
        self.value = self.value << 64 | int(self._words((1,))[0])
        self.count += 64

    def decimal(self, digits: int) -> Decimal:
        """Return the uniform as a decimal of so many digits, after reading enough bits."""
        while self.count < 4 * digits:
            self.read()
        return Decimal(self.value) / 2**self.count

    def below(self, width: int) -> int:
        """Return the integer floor(width U)."""
        while (found := self.value * width >> self.count) != (
            (self.value + 1) * width - 1
        ) >> self.count:
            self.read()
        return found


def places(width: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return floor(width U) for widths below 2^63, int64, and where further bits cannot change it.

    ``words`` has the first 64 bits of each U.
    """
    wide = width.astype(np.uint64)
    low, half = np.uint64(2**32 - 1), np.uint64(32)
    # The product has 128 bits: ``upper`` counts units of 2^64, and ``rest`` what is below them
    lower = (wide & low) * (words & low)
    middle = (wide & low) * (words >> half) + (lower >> half)
    other = (wide >> half) * (words & low) + (middle & low)
    upper = (wide >> half) * (words >> half) + (middle >> half) + (other >> half)
    rest = other << half | (lower & low)
    return upper.astype(np.int64), rest <= np.uint64(2**64 - 1) - wide


def decay(rate: Fraction, bits: int) -> int:
    """Return e^-rate in units of 2^-bits, rounded up, by less than 2 units.

    The rate is halved until it is below 1/2, then Taylor's series is summed and squared.

    >>> decay(Fraction(1), 20) / 2**20
    0.36787986755371094
    """
    halvings = max(rate.numerator.bit_length() - rate.denominator.bit_length() + 2, 0)
    work = bits + 2 * halvings + 32
    x = rate / 2**halvings
    total = term = 1 << work
    k = 0
    while term:  # alternating and decreasing: the error is below the number of terms
        k += 1
        term = term * x.numerator // (x.denominator * k)
        total += -term if k % 2 else term
    total += k + 1
    for _ in range(halvings):
        total = -(-total * total >> work)
    return -(-total >> work - bits)


def base_of(rate: Fraction) -> Decimal:
    """Return e^-rate, rounded up to 128 binary digits: the base of all weights."""
    return Decimal(decay(rate, 128)) / 2**128


def by_decimals(draw: Callable[[int], Any]) -> Any:
    """Return the first ``draw(digits)`` that is not None, with more and more digits."""
    digits, found = 20, None
    while found is None:
        digits *= 2
        with localcontext(Context(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX)):
            found = draw(digits)
    return found


def exact_epsilon(epsilon: float | Fraction) -> Fraction:
    """Return an epsilon in [2^-30, 64] as an exact fraction.

    It is exactly the float, not the decimal it is written as.
    """
    number = checks.static_number("epsilon", epsilon, 2.0**-30, 64)
    return epsilon if isinstance(epsilon, Fraction) else Fraction(number)
