"""The same draw in exact arithmetic, on the host: it reads on in the same uniforms until every comparison is decided."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import accumulate

import numpy as np

from dpjax.release.distribution import Pieces, pieces_of
from dpjax.release.tables import DIGITS, Enclosure, digit_probability, exponential, own_weight, rate_of

More = Callable[[int, int], int]


class Bits:
    """A uniform that is known to so many bits, and reads more where it must.

    Attributes:
        value: the bits read so far, as an integer.
        count: how many.
    """

    def __init__(self, words: Sequence[int], role: int, more: More) -> None:
        self.value, self.count, self._next = 0, 0, 0
        self._role, self._more = role, more
        for word in words:
            self._append(word)

    def _append(self, word: int) -> None:
        self.value, self.count = self.value << 32 | int(word), self.count + 32

    def read(self) -> None:
        """Read one word more."""
        self._append(self._more(self._role, self._next))
        self._next += 1

    def times(self, width: int) -> int:
        """The integer floor(width U)."""
        while (place := self.value * width >> self.count) != ((self.value + 1) * width - 1) >> self.count:
            self.read()
        return place

    def below(self, enclose: Callable[[int], Enclosure]) -> bool:
        """Whether the uniform is below a number that ``enclose(bits)`` encloses."""
        while True:
            number = enclose(self.count + 64)
            if (self.value + 1) << number.scale <= number.low << self.count:
                return True
            if self.value << number.scale >= number.high << self.count:
                return False
            self.read()


def exact_draw(epsilon: float | Fraction, lower: Sequence[int], upper: Sequence[int], words: Sequence[int], *, more: More) -> int:
    """Return the number that the 27 words of a lane stand for, as on the device, and as many further ones as it takes.

    ``more(role, i)`` is the i-th further word of a uniform: role 0 is that of the piece, 1..24 the digits', 25 the rest's.
    """
    rate = rate_of(epsilon)
    found = pieces_of(np.asarray(lower, np.int64), np.asarray(upper, np.int64))
    pieces = Pieces(*(field.tolist() for field in found))
    chosen = _piece_of(rate, pieces, Bits(words[:2], 0, more))
    digits = 0
    for k in range(1, DIGITS + 1):
        uniform = Bits(words[1 + k : 2 + k], k, more)
        digits = 2 * digits + uniform.below(partial(digit_probability, rate, k))
    step = _step(rate, pieces.width[chosen], digits, Bits(words[2 + DIGITS : 3 + DIGITS], DIGITS + 1, more))
    return pieces.inner[chosen] + pieces.sign[chosen] * step


def exact_choice(epsilon: float | Fraction, costs: Sequence[int], words: Sequence[int], *, more: More) -> int:
    """Return the candidate that the uniform stands for; ``epsilon`` as for the tables."""
    ones = [1] * len(costs)
    return _piece_of(rate_of(epsilon), Pieces(ones, list(map(int, costs)), ones, ones), Bits(words, 0, more))


def weights_of(rate: Fraction, pieces: Pieces, bits: int) -> tuple[list[int], list[int]]:
    """Enclose the weights e^(-lam (l - base)), base the smallest level, times the width or lam / (1 - e^-lam), times 2^bits.

    One scale for all: what is far out lies between 0 and a few units, so that neither time nor memory grows with its level.
    """
    base, last = min(pieces.level), max(pieces.level)
    step, own = (_scaled(number, bits) for number in (exponential(rate, bits), own_weight(rate, bits)))
    low, high = [1 << bits], [1 << bits]
    for _ in range(last - base):
        low.append(low[-1] * step[0] >> bits)
        high.append(-(-high[-1] * step[1] >> bits))
    known = [(width, level - base, sign == 0) for width, level, _, sign in zip(*pieces, strict=True)]
    return (
        [own[0] * low[at] >> bits if itself else width * low[at] for width, at, itself in known],
        [-(-own[1] * high[at] >> bits) if itself else width * high[at] for width, at, itself in known],
    )


def _scaled(number: Enclosure, bits: int) -> tuple[int, int]:
    shift = bits - number.scale
    if shift >= 0:
        return number.low << shift, number.high << shift
    return number.low >> -shift, -(-number.high >> -shift)


def _piece_of(rate: Fraction, pieces: Pieces, uniform: Bits) -> int:
    """The piece that a uniform chooses: reads until it is the same for all bits that may follow."""
    present = [number for number, width in enumerate(pieces.width) if width > 0]
    pieces = Pieces(*([field[number] for number in present] for field in pieces))
    bits = 128
    while (found := choose(*weights_of(rate, pieces, bits), uniform)) is None:
        uniform.read()
        bits += 64
    return present[found]


def choose(low: Sequence[int], high: Sequence[int], uniform: Bits) -> int | None:
    """Return the weight that a uniform chooses, from lower and upper ends of the weights; None if these and its bits leave a doubt.

    A weight whose upper end is 0 is never chosen.
    """
    present = [number for number, end in enumerate(high) if end > 0]
    lows, highs = ([0, *accumulate(ends[number] for number in present)] for ends in (low, high))
    least, most = lows[-1] * uniform.value, highs[-1] * (uniform.value + 1)  # of Z U, times 2^count
    i = bisect_right(highs, least >> uniform.count) - 1  # the last one that begins at or below Z U, whatever its bits
    decided = i == len(present) - 1 or most <= lows[i + 1] << uniform.count  # and the next one begins above it
    return present[i] if decided else None


def _step(rate: Fraction, width: int, digits: int, rest: Bits) -> int:
    mu, unit = rate / 2**DIGITS, Fraction(1, 2**DIGITS)
    least = max(Fraction(rest.value, 2**rest.count) - mu / 8, Fraction(0))
    most = Fraction(rest.value + 1, 2**rest.count)
    first = int(width * (digits + least) * unit)
    end = width * (digits + most) * unit  # not reached
    last = -(-end.numerator // end.denominator) - 1
    while last > first:
        border = Fraction(last, width) / unit - digits  # X is at least this for the last candidate
        if not rest.below(partial(_cdf, mu, border)):
            return last
        last -= 1
    return first


def _cdf(mu: Fraction, x: Fraction, bits: int) -> Enclosure:
    """Enclose (1 - e^(-mu x)) / (1 - e^-mu), for x in (0, 1)."""
    inner = bits + 2 * (mu.denominator.bit_length() + x.denominator.bit_length()) + 16
    return exponential(mu * x, inner).one_minus().over(exponential(mu, inner).one_minus(), bits)
