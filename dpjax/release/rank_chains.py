"""Chains of quantiles in float64, with bounds on their errors: which draws are certain, whatever was rounded.

As in ``dpjax.distributions.rank_chains``, for one term N of the sum and all rows at a time:

    after[k](j) = width * (before[k](j) + stay_k (width + 1)/2 * (before[k-1](j) + stay_{k-1} (width + 2)/3 * ...))
    before[k](j) = sum over slots i < j of after[k-1](i) * exp(-rate |distance of the ranks of i and j - p_k N|).

The sum over i splits where the kernel has its peak, b slots below j. Cut the slots into blocks of b. With R the weights from a slot
to the end of its block, Y those from the beginning of a block, decaying with the distance from there, and P those up to a slot,

    before(j + b) = inside * (R(j) + e^(-rho (b - o)) Y(next block, below j + b)) + below * (P(j - 1)),   o = offset of j.

**Errors.** All numbers are positive and nothing is subtracted, so every result is right up to a factor (1 + 2^-53)^operations on
the longest path, and what underflows. Each operation loses 2^-1074 at most; ``lost`` carries that on, by the same sums and products
with every width as large as the grid and every kernel 1. Powers of two keep the largest number of each step near 1. A choice is
certain if the uniform is further than all of that from where the choice changes. Otherwise ``exact_chains`` makes it.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpjax.release.tables import exponential, level_weights

UNDERFLOW = 2.0**-174  # what an operation loses, in units of 2^-900


class Law(NamedTuple):
    """What is public of the distribution of m quantiles; slots are at multiples of ``whole``, ranks at those of 2 ``whole``.

    Attributes:
        unit: the rate for a cost of 1 / (2 whole).
        lengths: the m + 1 differences of the levels, times ``whole``.
        whole: the common denominator of the levels.
        size: how many numbers the grid has.
        reach: R, or None where there is one term and no flat one.
        spacing: of the terms N.
    """

    unit: Fraction
    lengths: tuple[int, ...]
    whole: int
    size: int
    reach: int | None
    spacing: int

    @property
    def quantiles(self) -> int:
        """How many, m."""
        return len(self.lengths) - 1

    def numbers(self, middle: int) -> range:
        """The terms N of a row with the middle n - 1, or the only one."""
        if self.reach is None:
            return range(middle, middle + 1)
        return range(-((self.reach - middle) // self.spacing) * self.spacing, middle + self.reach + 1, self.spacing)

    def targets(self, number: int, count: int) -> tuple[int, int]:
        """Where the first and the last quantile of the term cost nothing."""
        return self.whole + 2 * self.lengths[0] * number, self.whole * (2 * count - 1) - 2 * self.lengths[-1] * number


class _Step(NamedTuple):
    """The kernel from a quantile to the next one, without a factor e^(-unit moved)."""

    window: int  # b
    inside: float
    below: float
    stay: float
    moved: int


class Chain(NamedTuple):
    """The weights of one term for R rows.

    Attributes:
        before: before[0], ..., before[m-1], float64 ``(m, J, R)``.
        after: after[1], ..., after[m], of the same shape.
        stay: what one more quantile in the same slot costs, ``(m - 1, R)``.
        scale: after[m] is the true one times 2^-scale e^(unit moved), int64 ``(R,)``.
        moved: an integer.
        lost: how much of each entry of ``after`` underflow can have cost, in units of 2^-900, ``(m, R)``.
    """

    before: np.ndarray
    after: np.ndarray
    stay: np.ndarray
    scale: np.ndarray
    moved: int
    lost: np.ndarray


@lru_cache(maxsize=4)
def decays(rate: Fraction, size: int) -> np.ndarray:
    """e^(-rate j) for j = 0, ..., size - 1, each right up to a factor 1 + 2^-52."""
    table = level_weights(2 * rate, size)
    with np.errstate(under="ignore"):
        return np.ldexp(table.high * 2.0**32 + table.low, -table.scale)


@lru_cache(maxsize=4096)
def scaled_exponential(x: Fraction) -> tuple[float, int]:
    """A number in [1/2, 1] and an exponent, whose product with that power of two is e^-x up to a factor 1 + 2^-52."""
    found = exponential(x, 80)
    bits = found.low.bit_length()
    return float(Fraction(found.low, 1 << bits)), bits - found.scale


def _exponential(x: Fraction) -> float:
    with np.errstate(under="ignore"):
        return float(np.ldexp(*scaled_exponential(x)))


def from_target(law: Law, target: int, slots: int) -> tuple[np.ndarray, int]:
    """The weights e^(-unit |whole j - target|) of all slots, without a factor e^(-unit moved), and that integer."""
    last = law.whole * (slots - 1)
    moved = max(-target, target - last, 0)
    peak = min(max(target, 0), last)
    away = np.abs(law.whole * np.arange(slots) - peak)
    below, above = (_exponential(law.unit * rest) for rest in (peak % law.whole, -peak % law.whole))
    rest = np.where(law.whole * np.arange(slots) <= peak, below, above)
    return decays(law.unit * law.whole, slots + 1)[away // law.whole] * rest, moved


def _step(law: Law, number: int, k: int, slots: int) -> _Step:
    length, whole = 2 * law.lengths[k] * number, law.whole
    if length < 0:
        return _Step(0, 0.0, _exponential(law.unit * whole), 1.0, -length)
    window = min(length // whole, slots)
    moved, part = (length // whole - window) * whole, length % whole
    inside, below, stay = (_exponential(law.unit * rest) for rest in (part, whole - part, part + whole * window))
    return _Step(window, inside, below, stay, moved)


def forward(law: Law, number: int, width: np.ndarray) -> Chain:
    """Return the chains of the term ``number`` for rows whose slots have the widths ``(J, R)``."""
    slots, rows = width.shape
    m, rho = law.quantiles, law.unit * law.whole
    start, moved = from_target(law, law.targets(number, 0)[0], slots)
    before, after = np.empty((m, slots, rows)), np.empty((m, slots, rows))
    before[0] = start[:, None]
    stay, scale, spent = np.ones((max(m - 1, 0), rows)), np.zeros(rows, np.int64), np.empty(width.shape)
    growth = [(law.size + c) / (c + 1) for c in range(m)]
    lost, carried = np.zeros((m, rows)), np.full((m, rows), 4 * UNDERFLOW)
    for k in range(m):
        found, loss = after[k], carried[0]
        found[:] = before[0]
        for i in range(1, k + 1):
            c = k + 1 - i
            np.add(width, c, out=spent)
            found *= spent
            found *= stay[i - 1] / (c + 1)
            found += before[i]
            loss = loss * growth[c] * stay[i - 1] + carried[i] + 4 * UNDERFLOW
        found *= width
        lost[k] = 2 * law.size * loss + 4 * UNDERFLOW
        if k < m - 1:
            step = _step(law, number, k + 1, slots)
            _advance(found, step, decays(rho, slots + 1), before[k + 1])
            exponent = np.maximum(np.frexp(before[k + 1].max(axis=0))[1], -1000)
            down = np.ldexp(1.0, -exponent)
            before[k + 1] *= down
            stay[k] = step.stay * down
            carried[k + 1] = down * slots * (2 * lost[k] + 8 * UNDERFLOW) + 4 * UNDERFLOW
            scale, moved = scale + exponent, moved + step.moved
    return Chain(before, after, stay, scale, moved, lost)


def _advance(after: np.ndarray, step: _Step, decay: np.ndarray, out: np.ndarray) -> None:
    """Write before[k + 1]; in blocks of b slots, offsets first, so that numbers next to each other are added to those."""
    slots, rows = after.shape
    block = step.window or min(64, slots)
    blocks, shift = -(-slots // block), min(step.window, 1)
    padded = np.zeros((blocks * block, rows))
    padded[:slots] = after
    x = np.ascontiguousarray(padded.reshape(blocks, block, rows).swapaxes(0, 1))  # (block, blocks, rows)
    # P: first within each block, then from all blocks before.
    found = np.zeros((block, blocks + shift, rows))
    sums = found[:, shift:]
    inner, carry = np.zeros((blocks, rows)), np.zeros((blocks, rows))
    for o in range(block):
        sums[o] = inner
        inner *= decay[1]
        inner += x[o]
    for q in range(1, blocks):
        carry[q] = carry[q - 1] * decay[block] + inner[q - 1]
    spent = np.empty_like(carry)
    for o in range(block):
        np.multiply(carry, decay[o], out=spent)
        sums[o] += spent
    found *= step.below
    if step.window:
        y = np.zeros((blocks, rows))
        for o in range(block):  # Y of the block itself, for sums that begin in the one before
            np.multiply(y, decay[block - o] * step.inside, out=spent)
            found[o, :blocks] += spent
            np.multiply(x[o], decay[o], out=spent)
            y += spent
        inner[:] = 0
        for o in reversed(range(block)):  # R
            inner *= decay[1]
            inner += x[o]
            np.multiply(inner, step.inside, out=spent)
            found[o, 1:] += spent
    out[:] = found.swapaxes(0, 1).reshape(-1, rows)[:slots]


def kernel(law: Law, number: int, k: int, slots: int) -> np.ndarray:
    """The kernel of the step to quantile k + 1, at the distances -J, ..., J of slots; 0 where they do not ascend."""
    step, decay = _step(law, number, k, slots), decays(law.unit * law.whole, slots + 1)
    away = np.arange(1, slots + 1)
    near = np.where(away <= step.window, step.inside, step.below)
    found = near * decay[np.where(away <= step.window, step.window - away, away - step.window - 1)]
    return np.concatenate([np.zeros(slots + 1), found])


def relative_error(law: Law, slots: int) -> float:
    """How far any weight, or running sum of weights, is off by rounding: operations on the longest path, times 2^-53."""
    return 2.0**-53 * (law.quantiles + 1) * (6 * slots + 6 * law.quantiles + 64)


def choose(weights: np.ndarray, uniform: np.ndarray, relative: float, lost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose by weights ``(L, C)``, and say where that is certain.

    ``relative`` is how far running sums are off as a part of themselves, or uniforms at all, which are rounded down; ``lost`` is
    how far they are off besides. Both ``uniform`` and ``lost`` are ``(L,)``.
    """
    sums = np.cumsum(weights, axis=-1)
    total, lane = sums[:, -1], np.arange(len(sums))
    target = uniform * total
    chosen = np.minimum(np.sum(sums <= target[:, None], axis=-1), weights.shape[-1] - 1)
    slack = 4 * relative * total + 4 * lost
    least = np.where(chosen > 0, sums[lane, np.maximum(chosen - 1, 0)], 0.0)
    return chosen, (least + slack < target) & (target + slack < sums[lane, chosen])
