"""Permute and flip on a public grid (McKenna and Sheldon 2020), drawn exactly on the host.

Every candidate is accepted with probability e^(-lam cost), the least cost being 0, and one of the accepted wins, each with the same
chance: that is the candidate with the least U e^(lam cost), for uniforms U. Candidates of one cost are a group. The least of w
uniforms is 1 - (1 - V)^(1/w) for one uniform V, so that a draw needs one V for each group, and a place in the group that wins.

Nearly all groups lose by bounds in float64 sums, products and quotients, with a margin far above their rounding. With
z = V / (2 - V), E = -ln(1 - V) is 2 (z + z^3/3 + ...), and x = E/w: the least uniform 1 - e^-x lies between x - x^2/2 and
x - x^2/2 + x^3/6, and between V/w and V. If several groups are left, their logarithms are enclosed in decimal arithmetic (whose ln
and exp are rounded correctly), with more and more words of the uniforms, until one group is below all others.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dpjax.release.distribution import Pieces, pieces_of
from dpjax.release.exact import Bits, More
from dpjax.release.integer_profiles import IntegerProfile
from dpjax.release.sampler import Draw
from dpjax.release.tables import Weights, rate_of
from dpjax.release.words import draw_lanes, places

_WORDS = 2  # of each uniform, before more are read
_MARGIN = 1e-9


def groups_of(profile: IntegerProfile) -> Pieces:
    """Return the pieces of a profile ``(rows, ...)`` as groups, whose ``level`` is the cost.

    A number beside the value costs as many changes as reach it, the value 1 - depth; here all of that and depth - 1.
    """
    pieces = pieces_of(*(side.astype(np.int64) for side in profile))
    return pieces._replace(level=pieces.level - pieces.level[:, -1:] + np.abs(pieces.sign))


def draw_by_permute_and_flip(
    epsilon: float | Fraction, weights: Weights, groups: Callable[[int, int], Pieces], rows: int, draws: int
) -> np.ndarray:
    """Draw numbers, int64 ``(draws, rows)``, with weights of :func:`dpjax.release.tables.level_weights` for every cost.

    ``groups(start, stop)`` are those of some rows, int64 ``(rows, G)``; their levels are costs, from 0 on.
    """
    rate, size = rate_of(epsilon), groups(0, 0).level.shape[-1]

    def certified(here: Pieces, words: Any) -> Draw:
        found = np.asarray(words)
        left = candidates(weights, here.level, here.width, found)
        group, row = np.argmax(left, axis=0), np.arange(here.level.shape[0])
        place, sure = places(here.width[row, group], found[-_WORDS:])
        return Draw(here.inner[row, group] + here.sign[row, group] * place, (np.sum(left, axis=0) == 1) & sure)

    def on_host(here: Pieces, row: int, words: list[int], more: More) -> int:
        one = Pieces(*(field[row] for field in here))
        left = candidates(weights, one.level[None], one.width[None], np.array(words, np.uint32)[:, None, None])[:, 0, 0]
        group, place = exact_winner(rate, one.level.tolist(), one.width.tolist(), words, np.flatnonzero(left).tolist(), more=more)
        return int(one.inner[group] + one.sign[group] * place)

    return draw_lanes(rows, draws, size, _WORDS * (size + 1), groups, certified, on_host)


def candidates(weights: Weights, costs: np.ndarray, widths: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return which groups may win, bool ``(G, draws, rows)``: the others have more than the least upper bound.

    Costs and widths are ``(rows, G)``, and words uint32 ``(2 G + 2, draws, rows)``. A group of width 0 never wins.
    """
    high, low = (words[start:-2:2].astype(np.uint64) for start in (0, 1))
    leading = (high << np.uint64(21)) | (low >> np.uint64(11))  # 53 bits, which float64 holds
    least, most = leading.astype(np.float64) * 2.0**-53, (leading + np.uint64(1)).astype(np.float64) * 2.0**-53
    cost, width = costs.T[:, None], widths.T[:, None].astype(np.float64)
    with np.errstate(under="ignore", over="ignore", divide="ignore", invalid="ignore"):
        heavy = np.maximum(np.ldexp(weights.high + 1.0, 32 - weights.scale), 1e-300)[cost]
        light = np.ldexp(weights.high.astype(np.float64), 32 - weights.scale)[cost]
        x = _logarithm(least)[0] / width
        below = np.maximum(least / width, np.where(x < 1, x - x * x / 2, 0.0)) / heavy
        x = _logarithm(most)[1] / width
        above = np.minimum(most, x - x * x / 2 + x * x * x / 6)  # NaN where V may be 1
        above = np.where(width > 0, np.where(np.isnan(above), most, above) / light, np.inf)
    bound = np.min(above, axis=0) * (1 + _MARGIN)
    return (width > 0) & ~(below * (1 - _MARGIN) > bound)


def _logarithm(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of -ln(1 - v), up to rounding: a series, and what is left of it."""
    z = v / (2 - v)
    square = z * z
    series = z * (1 + square * (1 / 3 + square * (1 / 5 + square * (1 / 7 + square * (1 / 9)))))
    return 2 * series, 2 * (series + z * square**5 / (11 * (1 - square)))


def exact_winner(
    rate: Fraction, costs: Sequence[int], widths: Sequence[int], words: Sequence[int], left: Sequence[int], *, more: More
) -> tuple[int, int]:
    """Return the group that wins among those ``left``, and the place in it, whatever it takes; for one row and draw."""
    uniforms = {group: Bits(words[_WORDS * group : _WORDS * (group + 1)], group, more) for group in left}
    while True:
        ends = {group: _enclose(rate, costs[group], widths[group], uniform) for group, uniform in uniforms.items()}
        best = min(ends, key=lambda group: ends[group][1])
        rivals = [group for group in ends if ends[group][0] <= ends[best][1]]
        if rivals == [best]:
            break
        uniforms = {group: uniforms[group] for group in rivals}
        for uniform in uniforms.values():
            uniform.read()
    return best, Bits(words[-_WORDS:], len(costs), more).times(widths[best])


def _enclose(rate: Fraction, cost: int, width: int, uniform: Bits) -> tuple[decimal.Decimal, decimal.Decimal]:
    """Enclose the logarithm of (1 - (1 - V)^(1/w)) e^(lam cost).

    V has b bits and b + 40 digits, and the difference from 1 is at least 2^-b / 2^32: the logarithm is off by less than 10^(-b/2).
    """
    bits, context = uniform.count, decimal.Context(prec=uniform.count + 40, Emin=-(10**9), Emax=10**9)
    margin = context.power(10, -(bits // 2))
    shift = context.divide(decimal.Decimal(rate.numerator * cost), decimal.Decimal(rate.denominator))

    def end(value: int) -> decimal.Decimal:
        if value == 0:
            return decimal.Decimal("-Infinity")
        rest = context.divide(decimal.Decimal(2**bits - value), decimal.Decimal(2**bits))
        if not rest:
            return shift
        stays = context.exp(context.divide(context.ln(rest), decimal.Decimal(width)))
        return context.add(context.ln(context.subtract(decimal.Decimal(1), stays)), shift)

    return context.subtract(end(uniform.value), margin), context.add(end(uniform.value + 1), margin)
