"""Draws in decimal arithmetic of 125 digits, 415 bits, from the definition: what exact arithmetic
makes of the same uniforms.

A uniform chooses the piece, a second one the step in it, a third one the place in the step; or, in
permute and flip, each piece of w positions has a uniform, whose 1 - (1 - V)^(1/w) is the least of w
uniforms.
"""

import decimal
import hashlib
from fractions import Fraction

import numpy as np

CONTEXT = decimal.Context(prec=125, Emin=-(10**12), Emax=10**12)
EXTREME = np.array([0, 1, 2**11, 2**63 - 1, 2**63, 2**64 - 2**11, 2**64 - 2, 2**64 - 1], np.uint64)


def more(role, number, seed=0):
    """The bits that follow: the same ones whoever asks."""
    return int.from_bytes(
        hashlib.blake2b(f"{seed} {role} {number}".encode(), digest_size=4).digest(), "little"
    )


def words_of(seed, shape):
    """64-bit words that depend on no version of NumPy."""
    size = int(np.prod(shape))
    stream = hashlib.shake_128(f"words {seed}".encode()).digest(8 * size)
    return np.frombuffer(stream, "<u8").astype(np.uint64).reshape(shape)


def repeat_entropy(monkeypatch, seed=0):
    """Let the operating system give the same bytes to every call that asks for as many, and return
    the list of the numbers of bytes that are asked for from now on.
    """
    asked = []

    def urandom(size):
        asked.append(size)
        return hashlib.shake_128(f"entropy {seed}".encode()).digest(size)

    monkeypatch.setattr("os.urandom", urandom)
    return asked


def captured(monkeypatch):
    """Let releases draw the first position of their grids, and return the list of the distributions
    that they draw from from now on.
    """
    seen = []

    def positions(distribution, draws):
        seen.append(distribution)
        return np.zeros((draws, distribution.profile.groups), np.int64)

    monkeypatch.setattr("dpjax.release.GridDistribution.positions", positions)
    return seen


def given(*arrays):
    """What a draw calls for its words: these arrays, one after the other."""
    left = list(arrays)

    def words(shape):
        found = left.pop(0)
        assert found.shape == tuple(shape), (found.shape, shape)
        return found

    return words


def decimal_of(number):
    exact = Fraction(number)
    return CONTEXT.divide(decimal.Decimal(exact.numerator), decimal.Decimal(exact.denominator))


def uniform_of(word, role, further=more, count=10):
    """A uniform as a decimal: a word of 64 bits and ``count`` words of 32 bits that follow."""
    value = int(word)
    for number in range(count):
        value = value << 32 | further(role, number)
    return CONTEXT.divide(decimal.Decimal(2 * value + 1), decimal.Decimal(2 ** (65 + 32 * count)))


def exponential(rate, cost):
    """e^(-rate cost) for fractions."""
    return CONTEXT.exp(-decimal_of(Fraction(rate) * cost))


class InDecimals:
    """One dataset of a distribution that is drawn by inverse cdf."""

    def __init__(self, distribution, group):
        self.profile, self.rate = distribution.profile.one(group), distribution.exact_rate
        pieces = zip(
            *(getattr(self.profile, name).tolist() for name in ("length", "level", "rise")),
            strict=True,
        )
        smooth, depth = distribution.mechanism == "piecewise_laplace", int(self.profile.depth[0])
        self.pieces = []  # (steps, positions of each, the cost of a step, weight)
        with decimal.localcontext(CONTEXT):
            for length, level, rise in pieces:
                steps = (length if smooth else rise) if rise else 1
                each, span = Fraction(rise, steps), length // steps
                weight = exponential(self.rate, level + depth - 1) * span
                if rise:
                    weight *= exponential(self.rate, each) * self.below(rise) / self.below(each)
                self.pieces.append((steps, span, each, weight))
            total = sum(weight for *_, weight in self.pieces)
            self.ends = np.cumsum([weight / total for *_, weight in self.pieces])

    def below(self, cost):
        """1 - e^(-rate cost)."""
        return 1 - exponential(self.rate, cost)

    def share(self, piece, number):
        """P(step <= number) in a piece."""
        steps, _, each, _ = self.pieces[piece]
        with decimal.localcontext(CONTEXT):
            return (
                self.below(each * number) / self.below(each * steps)
                if each
                else decimal.Decimal(number) / steps
            )

    def draw(self, uniforms):
        """The position that uniforms stand for."""
        with decimal.localcontext(CONTEXT):
            piece = min(
                int(np.searchsorted(self.ends, uniforms[0], side="right")), len(self.pieces) - 1
            )
            low, high = 1, self.pieces[piece][0]
            while low < high:
                middle = (low + high) // 2
                low, high = (
                    (low, middle) if uniforms[1] < self.share(piece, middle) else (middle + 1, high)
                )
            span = self.pieces[piece][1]
            number = low if len(uniforms) == 2 else (low - 1) * span + int(span * uniforms[2]) + 1
        return int(self.profile.near[piece] + self.profile.sign[piece] * number)


class ByFlips:
    """One dataset of permute and flip."""

    def __init__(self, distribution, group):
        self.profile, self.rate = distribution.profile.one(group), distribution.exact_rate
        some = slice(distribution.profile.starts[group], distribution.profile.starts[group + 1])
        self.costs = distribution.costs[some].tolist()

    def draw(self, uniforms, place):
        """The position that the uniforms of all pieces, and that of the place, stand for."""
        least = []
        with decimal.localcontext(CONTEXT):
            for cost, width, uniform in zip(
                self.costs, self.profile.length.tolist(), uniforms, strict=True
            ):
                none = ((1 - uniform).ln() / width).exp()
                least.append((1 - none).ln() + decimal_of(self.rate * cost))
            piece = min(range(len(least)), key=least.__getitem__)
            number = int(self.profile.length[piece] * place) + 1
        return int(self.profile.near[piece] + self.profile.sign[piece] * number)
