"""The output distribution on a grid, and its probabilities: for evaluation before anything is spent.

Around a value f that can move to U(l) >= f and L(l) <= f after l changes, all integers, the grid falls into pieces; with
lam = epsilon/2, and c the least l >= 1 with U(l) > f or L(l) < f,

    piece                    width            weight
    U(l) + 1, ..., U(l+1)    w = U(l+1)-U(l)  w e^(-lam l)
    L(l) - 1, ..., L(l+1)    w = L(l)-L(l+1)  w e^(-lam l)
    f                        1                lam / (1 - e^-lam) e^(lam (c - 1))

and the j-th number of a piece of width w, counted from its inner end, has a share of its weight proportional to e^(-lam j / w).

In permute and flip a number of the piece at level l has the cost l + 1, and the value the cost 1 - c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from dpjax.display import Picture, Shown
from dpjax.release.grid import Floats, values_of
from dpjax.release.integer_profiles import IntegerProfile

Mechanism = Literal["piecewise_laplace", "permute_and_flip"]


class Piece(NamedTuple):
    """Numbers next to each other whose log-probability is linear.

    Attributes:
        width: how many.
        level: the cost of its inner end, less 1.
        inner: its number next to the statistic.
        below: whether it goes downwards.
        flat: whether it is the value itself.
    """

    width: int
    level: int
    inner: int
    below: bool = False
    flat: bool = False

    @property
    def first(self) -> int:
        """Its smallest number."""
        return self.inner - self.width + 1 if self.below else self.inner


def pieces_of(lower: Sequence[int], upper: Sequence[int]) -> list[Piece]:
    """Return the pieces of one row in the order of the sampler: upwards, downwards, the value's own."""
    pieces = [Piece(int(b) - int(a), level, int(a) + 1) for level, (a, b) in enumerate(pairwise(upper))]
    pieces += [Piece(int(a) - int(b), level, int(a) - 1, below=True) for level, (a, b) in enumerate(pairwise(lower))]
    return [*pieces, Piece(1, 1 - int(depths_of(np.asarray(lower), np.asarray(upper))), int(upper[0]), flat=True)]


def depths_of(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """How many changes move the value, for sides ``(..., k)``; one more than there are levels if none do."""
    most = max(lower.shape[-1], upper.shape[-1])

    def moves(side: np.ndarray) -> np.ndarray:
        moved = side != side[..., :1]
        return np.where(np.any(moved, axis=-1), np.argmax(moved, axis=-1), most)

    return np.minimum(moves(lower), moves(upper))


@dataclass(frozen=True, repr=False)
class GridDistribution(Shown):
    """The output distribution of a release of one dataset, exact to the rounding of float64; a function of the data, not private.

    Attributes:
        profile: of the dataset, ``(D+1,)`` and ``(U+1,)``, in multiples of ``resolution`` counted from ``start``.
        epsilon: of one draw.
        resolution: of the released values.
        start: the multiple that is the smallest value.
        mechanism: ``"piecewise_laplace"`` or ``"permute_and_flip"``.
        grid: the values, where they are not multiples of a resolution.
    """

    profile: IntegerProfile
    epsilon: float
    resolution: Fraction = Fraction(1)
    start: int = 0
    mechanism: Mechanism = "piecewise_laplace"
    grid: Floats | None = None

    def _facts(self) -> dict[str, Any]:
        grid = {"resolution": self.resolution} if self.grid is None else {"grid": self.grid}
        return {"size": self.size, "epsilon": self.epsilon, **grid, "mechanism": repr(self.mechanism)}

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        """The probabilities of all values that have one worth seeing."""
        values, shares = self.values, self.pmf(self.values)
        seen = slice(*np.flatnonzero(shares > 1e-6 * np.max(shares))[[0, -1]] + [0, 1])
        return {}, Picture(values[None, seen], shares[None, seen], "value", "probability")

    @property
    def size(self) -> int:
        """The number of values that have a probability."""
        return int(self.profile.upper[-1]) + 1

    @property
    def values(self) -> np.ndarray:
        """All values that have a probability, ascending, float64.

        Raises:
            ValueError: more than 2^22 of them.
        """
        if self.size > 2**22:
            raise ValueError(f"a sum over {self.size} values is too long: evaluate with a coarser resolution.")
        if self.grid is not None:
            return self.grid.values_of(np.arange(self.size))
        return values_of(self.start + np.arange(self.size), self.resolution)

    def pmf(self, values: Any) -> np.ndarray:
        """The probability of values, of their shape; 0 where one is not a multiple of the resolution, or out of range."""
        return np.exp(self.log_pmf(values))

    def log_pmf(self, values: Any) -> np.ndarray:
        """The logarithm of :meth:`pmf`."""
        given = np.asarray(values, np.float64)
        if self.grid is not None:
            number, _ = self.grid.numbers_of(given)
            return np.where(self.grid.values_of(number) == given, self._log_pmf(number), -np.inf)
        with np.errstate(invalid="ignore", over="ignore"):
            number = np.rint(given * self.resolution.denominator / self.resolution.numerator)
            there = np.abs(given - values_of(number, self.resolution)) <= 8 * np.finfo(np.float64).eps * np.abs(given)
        return np.where(there, self._log_pmf(number - self.start), -np.inf)

    def _log_pmf(self, at: np.ndarray) -> np.ndarray:
        rate = self.epsilon / 2
        pieces = [piece for piece in pieces_of(self.profile.lower.tolist(), self.profile.upper.tolist()) if piece.width > 0]
        pieces.sort(key=lambda piece: piece.first)
        first = np.array([piece.first for piece in pieces])
        widths, levels, inner, _, flat = map(np.array, zip(*pieces, strict=True))
        if self.mechanism == "permute_and_flip":
            weights, slopes = log_shares(rate, np.where(flat, levels, levels + 1), widths), np.zeros(widths.shape)
            innermost = -np.log(widths)
        else:
            weights = np.where(flat, np.log(rate / -np.expm1(-rate)), np.log(widths)) - rate * levels
            weights, slopes = weights - np.logaddexp.reduce(weights), rate / widths
            innermost = np.log(np.expm1(-slopes) / np.expm1(-rate))
        i = np.maximum(np.searchsorted(first, at, side="right") - 1, 0)
        inside = (at >= first[i]) & (at < first[i] + widths[i])
        return np.where(inside, (weights + innermost)[i] - slopes[i] * np.abs(at - inner[i]), -np.inf)

    def mean_abs_error(self, center: float) -> float:
        """E|Y - center|, by the sum over all values.

        Raises:
            ValueError: more than 2^22 values.
        """
        return float(np.sum(np.abs(self.values - center) * np.exp(self._log_pmf(np.arange(self.size)))))


def log_shares(rate: float, costs: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Return the log-probability that each group, of so many candidates of a cost, wins in permute and flip.

    With arrival times t for their order, uniform on [0, 1], and q = e^(-rate cost) the chance to be accepted, that of one group is
    w q times the integral of (1 - t q)^(w - 1) times the product over all other groups of (1 - t q)^w.
    """
    levels, level = np.unique(costs, return_inverse=True)
    total = np.bincount(level, weights=widths)
    accepted = np.exp(-rate * (levels - levels[0]))
    # Panels between powers of two, from 1 / number of candidates on: in each the integrand is smooth.
    nodes, parts = np.polynomial.legendre.leggauss(20)
    ends = np.concatenate([[0.0], 2.0 ** np.arange(-int(np.sum(total)).bit_length(), 1)])
    t = (ends[1:, None] + ends[:-1, None] + np.diff(ends)[:, None] * nodes).ravel() / 2
    parts = (np.diff(ends)[:, None] * parts).ravel() / 2
    misses = np.log1p(-np.outer(t, accepted))
    integral = parts @ np.exp((misses @ total)[:, None] - misses)
    return np.log(widths) + (np.log(integral) - rate * (levels - levels[0]))[level]
