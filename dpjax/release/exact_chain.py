"""Chains of quantiles in NumPy, with error bounds that show which draws rounding cannot change.

As in ``dpjax/several_quantiles/chain.py``, for one term N of the sum and all rows at once:

    after[k](j)  = width * (before[k](j) + stay_k (width + 1)/2 *
                            (before[k-1](j) + stay_{k-1} (width + 2)/3 * ...))
    before[k](j) = sum over slots i < j of
                   after[k-1](i) * exp(-rate |distance of the ranks of i and j - p_k N|).

The sum over i splits where the kernel has its peak, b slots below j. Partition the slots into
blocks of b. With R the weights from a slot to the end of its block, Y those from the beginning of a
block, decaying with the distance from there, and P those up to a slot,

    before(j + b) = inside * (R(j) + e^(-rho (b - o)) Y(next block, below j + b))
                    + below * P(j - 1),   o = offset of j.

If there are few rows, blocks are shorter: the window then has several blocks and some slots more,
which are added one by one.

**Errors.** All numbers are positive and nothing is subtracted, so every result is correct up to a
factor (1 + u)^operations on the longest path, where u is the rounding of one operation, and up to
underflow. In float64 u is 2^-53. Widths are divided by a power of two that is at least the size of
the grid, so that those of a row sum to at most 1. If each operation loses 2^-1074, before[k + 1]
has lost at most what before[k], 3/4 of what before[k-1], (3/4)^2 of what before[k-2] has lost and
so on, and 2^-1074 (10 J + 8 m) itself: less than 2^(k - 1068) (J + m) in all, and so has any sum of
weights. A choice is certain if the uniform is further than all of that from where the choice
changes. Otherwise it is made by the same sums in decimals of more digits, which lose nothing by
underflow: u is 10^(1 - digits).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dpjax import checks
from dpjax.release.exponentials import exponential, powers
from dpjax.several_quantiles.levels import Aims, aims_of, level_parts, rank_steps, single_term

_TILE = 2**13  # numbers that fit in the cache


@dataclass(frozen=True)
class Arithmetic:
    """The number type of the weights: float64, or object arrays of ``digits``-digit decimals."""

    digits: int = 0

    @property
    def dtype(self) -> type:
        """The dtype of the arrays."""
        return object if self.digits else float

    @property
    def context(self) -> Context:
        """The context of decimal arithmetic: without traps, so that 0 / 0 is NaN as in float64."""
        return Context(prec=self.digits or 1, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])

    @property
    def bits(self) -> int:
        """The precision in bits."""
        return self.digits * 10 // 3 or 53

    @property
    def rounding(self) -> Any:
        """The largest relative error of one operation."""
        return Decimal(10) ** (1 - self.digits) if self.digits else 2.0**-53

    def of(self, x: Fraction) -> Any:
        """Return a fraction in this arithmetic; it must neither overflow nor underflow."""
        return (
            self.context.divide(Decimal(x.numerator), Decimal(x.denominator))
            if self.digits
            else float(x)
        )


@lru_cache(maxsize=4096)
def decay(x: Fraction, arithmetic: Arithmetic) -> Any:
    """Return e^-x with a relative error of at most twice the rounding.

    In float64 it may underflow.
    """
    found = exponential(x, arithmetic.bits + 27)
    return arithmetic.of(Fraction(found.low, 1 << found.scale))


@lru_cache(maxsize=4)
def decays(rate: Fraction, size: int, arithmetic: Arithmetic) -> np.ndarray:
    """Return e^(-rate j) for j = 0, ..., size - 1.

    The relative errors are at most twice the rounding.
    """
    if not arithmetic.digits:
        return powers(rate, size)
    finer = Arithmetic(arithmetic.digits + 20)
    with localcontext(finer.context):
        return np.cumprod([Decimal(1)] + (size - 1) * [decay(rate, finer)])


class Parameters(NamedTuple):
    """The public parameters of the distribution of m quantiles.

    Slots are at multiples of ``whole``, and ranks at multiples of 2 ``whole``.

    Attributes:
        unit: the rate for a cost of 1 / (2 whole).
        levels: the levels of the quantiles.
        whole: the common denominator of the levels.
        aims: the ranks of the quantiles.
        size: the number of positions on the grid.
        cut: the number of pieces that a number is cut into, for the parts of it that equal records
            have; a power of two.
        reach: R, or None where there is one term and no flat one.
        spacing: the distance between the terms N.
    """

    unit: Fraction
    levels: tuple[Fraction, ...]
    whole: int
    aims: Aims
    size: int
    cut: int
    reach: int | None
    spacing: int

    @staticmethod
    def of(
        levels: tuple[Fraction, ...],
        epsilon: Fraction,
        neighbors: str,
        size: int,
        size_is_public: bool,
        reach: int,
        terms: int,
        most: int,
    ) -> Parameters:
        """Return the parameters of quantiles on a grid of ``size`` numbers.

        Numbers are cut into a power of two of pieces, which the distribution does not depend on:
        enough pieces for ``most`` equal records.

        Raises:
            ValueError: if the levels have a common denominator of 2^27 or more, or ``terms`` is
                invalid.
        """
        terms = checks.static_integer("terms", terms, 2)
        whole, single = level_parts(levels)[1], single_term(levels, neighbors, size_is_public)
        # Whatever the number of records, which may be private: places are 64-bit integers
        if whole >= 2**27:
            raise ValueError(
                f"qs have the common denominator {whole}, too large for exact ranks: use short "
                "decimals or Fractions such as Fraction(1, 3)."
            )
        unit = epsilon / (4 * whole * (single or 1))
        aims, cut = (
            aims_of(neighbors, len(levels), size_is_public, True),
            2 << (most - 1).bit_length(),
        )
        spacing = (2 * reach + terms) // terms
        return Parameters(unit, levels, whole, aims, size, cut, None if single else reach, spacing)

    @property
    def quantiles(self) -> int:
        """The number of quantiles, m."""
        return len(self.levels)

    @property
    def scale(self) -> int:
        """A power of two that is at least the size of the grid in pieces."""
        return self.cut * 2 ** self.size.bit_length()

    def numbers(self, middle: int) -> range:
        """Return the terms N of a row with the middle n - 1, or its only term."""
        if self.reach is None:
            return range(middle, middle + 1)
        return range(
            -((self.reach - middle) // self.spacing) * self.spacing,
            middle + self.reach + 1,
            self.spacing,
        )

    def targets(self, number: int, count: int) -> tuple[int, int]:
        """Return the positions where the first and the last quantile of the term cost nothing."""
        steps = self.steps(number)
        return self.whole + steps[0], self.whole * (2 * count - 1) - steps[-1]

    def steps(self, number: int) -> list[int]:
        """Return the distances in rank between the quantiles of ``number + 1`` records."""
        return rank_steps(self.levels, number, self.aims)


class _Step(NamedTuple):
    """The kernel from a quantile to the next one, up to a factor e^(-unit moved)."""

    window: int  # b
    inside: float
    below: float
    stay: float
    moved: int


class Chain(NamedTuple):
    """The weights of one term for R rows, up to a factor e^(-unit moved).

    Those of k quantiles are multiplied by ``parameters.scale`` ^ -k.

    Attributes:
        before: before[0], ..., before[m-1], float64 ``(m, J, R)``.
        after: after[1], ..., after[m], of the same shape.
        stays: the factors for one more quantile in the same slot, m - 1 floats.
        moved: an integer.
    """

    before: np.ndarray
    after: np.ndarray
    stays: list[float]
    moved: int


def from_target(
    parameters: Parameters, target: int, slots: int, arithmetic: Arithmetic
) -> tuple[np.ndarray, int]:
    """Return the weights e^(-unit |whole j - target|) of all slots, and ``moved``.

    The weights lack a factor e^(-unit moved).
    """
    unit, whole, last = parameters.unit, parameters.whole, parameters.whole * (slots - 1)
    moved = max(-target, target - last, 0)
    peak = min(max(target, 0), last)
    positions = whole * np.arange(slots)
    below, above = (decay(unit * rest, arithmetic) for rest in (peak % whole, -peak % whole))
    found = decays(unit * whole, slots + 1, arithmetic)[np.abs(positions - peak) // whole]
    return found * np.where(positions <= peak, below, above), moved


def _step(parameters: Parameters, number: int, k: int, slots: int, arithmetic: Arithmetic) -> _Step:
    length, whole, unit = parameters.steps(number)[k], parameters.whole, parameters.unit
    if length < 0:
        return _Step(0, 0, decay(unit * whole, arithmetic), decay(0 * unit, arithmetic), -length)
    window = min(length // whole, slots)
    moved, part = (length // whole - window) * whole, length % whole
    inside, below, stay = (
        decay(unit * rest, arithmetic) for rest in (part, whole - part, part + whole * window)
    )
    return _Step(window, inside, below, stay, moved)


def arrays_of(parameters: Parameters) -> int:
    """Return how many numbers of memory :func:`forward` needs for each slot of each row."""
    return 2 * parameters.quantiles + 6


def forward(
    parameters: Parameters,
    number: int,
    width: np.ndarray,
    memory: np.ndarray,
    arithmetic: Arithmetic,
) -> Chain:
    """Return the chains of the term ``number`` for rows whose slots have the widths ``(J, R)``.

    Widths are divided by ``parameters.scale``. The chains are written to ``memory``, which holds
    all arrays: allocating new ones for each term would take as long as the sums.
    """
    slots, rows = width.shape
    m, powers_of = (
        parameters.quantiles,
        decays(parameters.unit * parameters.whole, slots + 1, arithmetic),
    )
    start, moved = from_target(parameters, parameters.targets(number, 0)[0], slots, arithmetic)
    steps = [_step(parameters, number, k, slots, arithmetic) for k in range(1, m)]
    piece = arithmetic.of(Fraction(parameters.cut, parameters.scale))
    before, after = memory[: 2 * m * width.size].reshape(2, m, slots, rows)
    rest = memory[2 * m * width.size :]
    before[0] = start[:, None]
    tile = max(_TILE // rows, 1)
    for k in range(m):
        for first in range(0, slots, tile):  # tiles that fit in the cache
            block = slice(first, first + tile)
            found, here, spent = after[k, block], width[block], np.empty_like(width[block])
            found[:] = before[0, block]
            for i in range(1, k + 1):
                c = k + 1 - i
                np.add(here, c * piece, out=spent)
                spent *= steps[i - 1].stay / (c + 1)
                found *= spent
                found += before[i, block]
            found *= here
        if k < m - 1:
            _advance(after[k], steps[k], powers_of, before[k + 1], rest)
    return Chain(
        before, after, [step.stay for step in steps], moved + sum(step.moved for step in steps)
    )


def _advance(
    after: np.ndarray, step: _Step, decay: np.ndarray, out: np.ndarray, memory: np.ndarray
) -> None:
    """Write before[k + 1]: all blocks at once, and their offsets one after the other.

    The block length suits the number of rows; the window has h blocks and a few slots more.
    """
    slots, rows = after.shape
    wanted = max(32, slots * rows // 4000)
    h = -(-step.window // wanted)
    block = step.window // h if h else min(wanted, slots)
    full, more = slots // block, step.window - h * block
    blocks = h + -(-slots // block)  # the first h are empty
    inner, spent, y = np.zeros((3, blocks, rows), after.dtype)
    x, found = (
        memory[i * 3 * after.size :][: block * inner.size].reshape(block, blocks, rows)
        for i in (0, 1)
    )
    x[:, :h] = 0
    x[:, h : h + full] = after[: full * block].reshape(full, block, rows).swapaxes(0, 1)
    x[: slots - full * block, h + full :] = after[full * block :, None]
    x[slots - full * block :, h + full :] = 0
    # P: the decayed sum of all blocks before, and the sum within each block.
    ends = np.einsum("o,oqr->qr", decay[:block][::-1], x)
    for q in range(h + 1, blocks):
        inner[q] = inner[q - 1] * decay[block] + ends[q - 1]
    for o in range(block):
        np.multiply(inner, step.below, out=found[o])
        inner *= decay[1]
        inner += x[o]
    if h:
        for o in range(block):  # Y, h blocks further up
            np.multiply(y, decay[h * block - o] * step.inside, out=spent)
            found[o, : blocks - h] += spent[h:]
            np.multiply(x[o], decay[o], out=spent)
            y += spent
        # R, and the full blocks of the window before its last one; y is now the sum of a full block
        inner[:] = 0
        for g in range(1, h):
            inner[:-g] += y[g:] * decay[(g - 1) * block]
        for o in reversed(range(block)):
            inner *= decay[1]
            inner += x[o]
            np.multiply(inner, step.inside, out=spent)
            found[o] += spent
    out[:more] = 0
    out[more:] = found.swapaxes(0, 1).reshape(-1, rows)[: slots - more]
    for near in range(1, more + 1):
        out[near:] += after[: slots - near] * (decay[step.window - near] * step.inside)


def kernel(
    parameters: Parameters, number: int, k: int, slots: int, arithmetic: Arithmetic
) -> np.ndarray:
    """Return the kernel of the step to quantile k + 1, at the slot distances -J, ..., J.

    0 if not ascending.
    """
    step, away = _step(parameters, number, k, slots, arithmetic), np.arange(1, slots + 1)
    powers_of, inside = (
        decays(parameters.unit * parameters.whole, slots + 1, arithmetic),
        away <= step.window,
    )
    found = (
        np.where(inside, step.inside, step.below)
        * powers_of[np.where(inside, step.window - away, away - step.window - 1)]
    )
    return np.concatenate([np.zeros(slots + 1, arithmetic.dtype), found])


def errors(parameters: Parameters, slots: int, arithmetic: Arithmetic) -> tuple[Any, float]:
    """Return bounds on the error of any weight or cumulative weight.

    The first is relative, for rounding, and the second absolute, for underflow.
    """
    longest = (parameters.quantiles + 1) * (6 * slots + 6 * parameters.quantiles + 64)
    lost = (
        0
        if arithmetic.digits
        else 2.0 ** (parameters.quantiles - 1067) * (slots + parameters.quantiles)
    )
    return arithmetic.rounding * longest, lost


def choose(
    weights: np.ndarray, row: np.ndarray, uniform: np.ndarray, relative: float, lost: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Choose by weights ``(R, C)``, with one uniform for each entry of ``row``, both ``(L,)``.

    Returns the choices, which of them are certain, and log2 of their probabilities. ``relative``
    bounds the relative error of cumulative weights and the error of uniforms, which are rounded
    down; ``lost`` bounds the further absolute error of cumulative weights.
    """
    sums, last = np.cumsum(weights, axis=-1), weights.shape[-1] - 1
    total = sums[row, -1]
    target, chosen = uniform * total, np.zeros(len(row), np.int64)
    # Binary search: how many sums are at most the target
    for bit in reversed(range(last.bit_length())):
        further = np.minimum(chosen + (1 << bit), last)
        chosen = np.where(sums[row, further - 1] <= target, further, chosen)
    slack = 4 * relative * total + 4 * lost
    least, most = np.where(chosen > 0, sums[row, np.maximum(chosen - 1, 0)], 0), sums[row, chosen]
    return (
        chosen,
        (least + slack < target) & (target + slack < most),
        np.log2(((most - least) / total).astype(float)),
    )
