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

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np

from dpjax.display import Picture, Shown
from dpjax.release.grid import Floats, Multiples
from dpjax.release.integer_profiles import IntegerProfile

_NODES, _PARTS = np.polynomial.legendre.leggauss(20)

Mechanism = Literal["piecewise_laplace", "permute_and_flip"]


class Pieces(NamedTuple):
    """Runs of neighbouring numbers whose log-probability is linear; arrays ``(..., P)``, or lists for one row.

    Attributes:
        width: how many numbers.
        level: the cost of the inner end, less 1.
        inner: the number next to the statistic.
        sign: 1 upwards, -1 downwards, 0 for the value itself.
    """

    width: Any
    level: Any
    inner: Any
    sign: Any


def pieces_of(lower: Any, upper: Any, xp: Any = np) -> Pieces:
    """Return the pieces of profiles ``(..., k)``, by NumPy or JAX: upwards, downwards, and last the value itself."""
    own = upper[..., :1]
    steps = [xp.ones_like(side[..., 1:]) for side in (upper, lower)]
    levels = [step * xp.arange(step.shape[-1], dtype=step.dtype) for step in steps]
    depth = depths_of(lower, upper, xp)[..., None].astype(own.dtype)
    return Pieces(
        width=xp.concatenate([xp.diff(upper), -xp.diff(lower), xp.ones_like(own)], axis=-1),
        level=xp.concatenate([*levels, 1 - depth], axis=-1),
        inner=xp.concatenate([upper[..., :-1] + 1, lower[..., :-1] - 1, own], axis=-1),
        sign=xp.concatenate([steps[0], -steps[1], xp.zeros_like(own)], axis=-1),
    )


def depths_of(lower: Any, upper: Any, xp: Any = np) -> Any:
    """Return how many changes move the value, for sides ``(..., k)``; one more than there are levels if none do."""
    most = np.int32(max(lower.shape[-1], upper.shape[-1]))

    def moves(side: Any) -> Any:
        unmoved = xp.sum(side == side[..., :1], axis=-1, dtype=np.int32)  # sides are monotone: these come first
        return xp.where(unmoved == side.shape[-1], most, unmoved)

    return xp.minimum(moves(lower), moves(upper))


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
        return self._numbers.values_of(np.arange(self.size))

    @property
    def _numbers(self) -> Multiples | Floats:
        return self.grid or Multiples(self.resolution, self.start, self.size)

    def pmf(self, values: Any) -> np.ndarray:
        """The probability of values, of their shape; 0 where one is not on the grid."""
        return np.exp(self.log_pmf(values))

    def log_pmf(self, values: Any) -> np.ndarray:
        """The logarithm of :meth:`pmf`."""
        given = np.asarray(values, np.float64)
        number, _ = self._numbers.numbers_of(given)
        there = np.isclose(self._numbers.values_of(number), given, rtol=8 * np.finfo(np.float64).eps, atol=0)
        return np.where(there, self._log_pmf(number), -np.inf)

    def _log_pmf(self, at: np.ndarray) -> np.ndarray:
        rate, pieces = self.epsilon / 2, pieces_of(*self.profile)
        first = np.where(pieces.sign < 0, pieces.inner - pieces.width + 1, pieces.inner)
        order = np.argsort(first, kind="stable")
        order = order[pieces.width[order] > 0]
        first = first[order]
        widths, levels, inner, sign = (field[order] for field in pieces)
        if self.mechanism == "permute_and_flip":
            weights, slopes = log_shares(rate, levels + np.abs(sign), widths), np.zeros(widths.shape)
            innermost = -np.log(widths)
        else:
            weights = np.where(sign == 0, np.log(rate / -np.expm1(-rate)), np.log(widths)) - rate * levels
            weights, slopes = weights - np.logaddexp.reduce(weights), rate / widths
            innermost = np.log(np.expm1(-slopes) / np.expm1(-rate))
        i = np.maximum(np.searchsorted(first, at, side="right") - 1, 0)
        inside = (at >= first[i]) & (at < first[i] + widths[i])
        return np.where(inside, (weights + innermost)[i] - slopes[i] * np.abs(at - inner[i]), -np.inf)

    def mean_abs_error(self, center: float) -> float:
        """E|Y - center|, by the sum over all values, at most 2^22 of them."""
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
    ends = np.concatenate([[0.0], 2.0 ** np.arange(-int(np.sum(total)).bit_length(), 1)])
    t = (ends[1:, None] + ends[:-1, None] + np.diff(ends)[:, None] * _NODES).ravel() / 2
    parts = (np.diff(ends)[:, None] * _PARTS).ravel() / 2
    misses = np.log1p(-np.outer(t, accepted))
    integral = parts @ np.exp((misses @ total)[:, None] - misses)
    return np.log(widths) + (np.log(integral) - rate * (levels - levels[0]))[level]
