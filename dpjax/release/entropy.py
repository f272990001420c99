"""Uniform bits from the operating system, extended by as many bits as an exact comparison needs.

There is no key and no seed. Bits are drawn only when they are needed: they are independent of all
others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from dpjax.release.exponentials import Enclosure

More = Callable[[int, int], int]  # (role of a uniform, index of the word) -> the next 32 bits


def system_words(shape: Sequence[int], dtype: type[np.unsignedinteger] = np.uint64) -> np.ndarray:
    """Return random words from the operating system, of the given shape and dtype."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return np.frombuffer(bytearray(os.urandom(size)), dtype).reshape(shape)


def further_word(role: int, number: int) -> int:
    """Return 32 more random bits of a uniform; the arguments are ignored."""
    del role, number
    return int.from_bytes(os.urandom(4), "little")


def seeded(seed: int | np.random.Generator) -> tuple[Callable[..., np.ndarray], More]:
    """Return substitutes of :func:`system_words` and :func:`further_word` for a simulation.

    They draw from a NumPy generator, or from a new one with this seed.
    """
    generator = np.random.default_rng(seed)

    def words(shape: Sequence[int], dtype: type[np.unsignedinteger] = np.uint64) -> np.ndarray:
        return generator.integers(0, 2 ** (8 * np.dtype(dtype).itemsize), shape, dtype)

    def more(role: int, number: int) -> int:
        return int(generator.integers(0, 2**32))

    return words, more


class Bits:
    """A uniform on [0, 1) of which a prefix of bits is known; further bits are read as needed.

    Attributes:
        value: the bits read so far, as an integer.
        count: how many bits these are.
    """

    def __init__(self, value: int, count: int, role: int, more: More) -> None:
        self.value, self.count, self._next = value, count, 0
        self._role, self._more = role, more

    def read(self) -> None:
        """Read 32 more bits."""
        self.value, self.count = (
            self.value << 32 | self._more(self._role, self._next),
            self.count + 32,
        )
        self._next += 1

    def times(self, width: int) -> int:
        """Return the integer floor(width U)."""
        while (integer := self.value * width >> self.count) != (
            (self.value + 1) * width - 1
        ) >> self.count:
            self.read()
        return integer

    def below(self, enclose: Callable[[int], Enclosure]) -> bool:
        """Return whether the uniform is below the number that ``enclose(bits)`` encloses."""
        while True:
            number = enclose(self.count + 64)
            if (self.value + 1) << number.scale <= number.low << self.count:
                return True
            if self.value << number.scale >= number.high << self.count:
                return False
            self.read()
