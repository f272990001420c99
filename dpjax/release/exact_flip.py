"""Exact draws of permute and flip (McKenna and Sheldon 2020).

Every position is accepted with probability e^(-lam cost), where the least cost is 0, and one of the
accepted positions is selected uniformly: this is the position with the least U e^(lam cost), for
independent uniforms U. Positions of equal cost form a group. The least of w uniforms is 1 - (1 -
V)^(1/w) for one uniform V, so that a draw needs one V per group, and a position in the winning
group.

Nearly all groups are excluded in float64: the logarithm of the least U e^(lam cost) is computed for
both ends of the interval that 53 bits of V leave open, widened by much more than the rounding
errors. If several groups are left, their logarithms are enclosed in decimal arithmetic (whose ln
and exp are correctly rounded), with more and more bits of the uniforms, until one group is below
all others.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpjax.release.draw import open_interval, place_in
from dpjax.release.entropy import Bits, More

if TYPE_CHECKING:
    from dpjax.release.distribution import GridDistribution

_NODES, _PARTS = np.polynomial.legendre.leggauss(20)
_WIDENED = 2.0**-36
_NUMBERS = 2**21  # the number of logarithms computed in a chunk of draws


def positions(
    distribution: GridDistribution, draws: int, words: Any, more: More, widened: float = _WIDENED
) -> np.ndarray:
    """Draw positions, int64 ``(draws, datasets)``.

    ``words(shape)`` returns 64-bit words, and ``more`` the bits that follow. With ``widened`` at 1
    or more, no draw is decided by floats.
    """
    profile, starts = distribution.profile, distribution.profile.starts
    found = np.zeros((draws, profile.groups), np.int64)
    size = max(_NUMBERS // max(int(starts[-1]), 1), 1)
    for start in range(0, draws if profile.groups else 0, size):
        chunk = found[start : start + size]
        drawn, placed = words((len(chunk), int(starts[-1]))), words(chunk.shape)
        left = candidates(distribution, drawn, widened)
        winner = np.maximum.reduceat(np.where(left, np.arange(starts[-1]), 0), starts[:-1], axis=1)
        place, sure = place_in(profile.length[winner], placed)
        sure &= (np.add.reduceat(left, starts[:-1], axis=1, dtype=np.int64) == 1) & (widened < 1)
        for draw, dataset in zip(*np.nonzero(~sure), strict=True):
            pieces = slice(starts[dataset], starts[dataset + 1])
            costs, widths = distribution.costs[pieces].tolist(), profile.length[pieces].tolist()
            words_of = drawn[draw, pieces].tolist()
            uniforms = {
                group: Bits(words_of[group], 64, group, more)
                for group in np.flatnonzero(left[draw, pieces]).tolist()
            }
            first = exact_winner(distribution.exact_rate, costs, widths, uniforms)
            winner[draw, dataset] = starts[dataset] + first
            place[draw, dataset] = Bits(int(placed[draw, dataset]), 64, len(costs), more).times(
                widths[first]
            )
        chunk[:] = profile.near[winner] + profile.sign[winner] * (place + 1)
    return found


def candidates(
    distribution: GridDistribution, words: np.ndarray, widened: float = _WIDENED
) -> np.ndarray:
    """Return which pieces may win by words ``(draws, pieces)``, bool.

    The others are above the least upper bound of their dataset.
    """
    profile = distribution.profile
    shift = distribution.rate * distribution.costs
    bounds = []
    with np.errstate(divide="ignore", under="ignore", invalid="ignore"):
        for uniform, away in zip(open_interval(words), (-widened, widened), strict=True):
            least = np.log(-np.expm1(np.log1p(-uniform) / profile.length)) + shift
            bounds.append(least + away * (1 + np.abs(least)))
    low, high = bounds
    low[np.isnan(low)] = -np.inf  # where the uniform may be 0
    best = np.minimum.reduceat(high, profile.starts[:-1], axis=1)
    found: np.ndarray = low <= best[:, distribution.group]
    return found


def exact_winner(
    rate: Fraction, costs: Sequence[int], widths: Sequence[int], uniforms: dict[int, Bits]
) -> int:
    """Return the winning group among those that have a uniform, with as many bits as it takes."""
    while True:
        ends = {
            group: _enclose(rate, costs[group], widths[group], uniform)
            for group, uniform in uniforms.items()
        }
        best = min(ends, key=lambda group: ends[group][1])
        rivals = [group for group in ends if ends[group][0] <= ends[best][1]]
        if rivals == [best]:
            return best
        uniforms = {group: uniforms[group] for group in rivals}
        for uniform in uniforms.values():
            uniform.read()


def _enclose(
    rate: Fraction, cost: int, width: int, uniform: Bits
) -> tuple[decimal.Decimal, decimal.Decimal]:
    """Enclose the logarithm of (1 - (1 - V)^(1/w)) e^(lam cost).

    V has b bits and b + 60 digits are used. The difference from 1 is at least 2^-b / 2^53, so the
    error of the logarithm is below 10^(-b/2).
    """
    bits, context = (
        uniform.count,
        decimal.Context(prec=uniform.count + 60, Emin=-(10**9), Emax=10**9),
    )
    margin = context.power(10, -(bits // 2))
    shift = context.divide(
        decimal.Decimal(rate.numerator * cost), decimal.Decimal(rate.denominator)
    )

    def end(value: int) -> decimal.Decimal:
        if value == 0:
            return decimal.Decimal("-Infinity")
        rest = context.divide(decimal.Decimal(2**bits - value), decimal.Decimal(2**bits))
        if not rest:
            return shift
        stays = context.exp(context.divide(context.ln(rest), decimal.Decimal(width)))
        return context.add(context.ln(context.subtract(decimal.Decimal(1), stays)), shift)

    return context.subtract(end(uniform.value), margin), context.add(end(uniform.value + 1), margin)


def probabilities(
    rate: float, costs: np.ndarray, widths: np.ndarray, log: bool = False
) -> np.ndarray:
    """Return the probability that each group of equal costs wins, or its logarithm, to about 1e-15.

    By quadrature: let positions arrive at independent times t, uniform on [0, 1], and be accepted
    with probability q = exp(-rate cost). A group of w positions wins with the probability w q times
    the integral over t of (1 - t q)^(w - 1) times the product over all other groups of (1 - t q)^w.

    Args:
        rate: lam.
        costs: the cost of each group.
        widths: w, the number of positions of each group.
        log: whether to return logarithms.
    """
    levels, level = np.unique(costs, return_inverse=True)
    total = np.bincount(level, weights=widths)
    with np.errstate(under="ignore"):
        accepted = np.exp(-rate * (levels - levels[0]))
        # Panels between powers of two, from 1 / number of positions on, in each of which the
        # integrand is smooth.
        ends = np.concatenate([[0.0], 2.0 ** np.arange(-int(np.sum(total)).bit_length(), 1)])
        t = (ends[1:, None] + ends[:-1, None] + np.diff(ends)[:, None] * _NODES).ravel() / 2
        parts = (np.diff(ends)[:, None] * _PARTS).ravel() / 2
        misses = np.log1p(-np.outer(t, accepted))
        integral = parts @ np.exp((misses @ total)[:, None] - misses)
        if log:
            return np.log(widths * integral[level]) - rate * (costs - levels[0])
        found: np.ndarray = widths * (integral * accepted)[level]
    return found
