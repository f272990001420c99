"""The public grid of a release, and the total map that takes every record to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_LARGEST = 2**31 - 2  # cells: one more point than cells still fits into int32


@dataclass(frozen=True)
class Grid:
    """Cells of width 2^log2_step from ``lower`` on; all of it is public, and chosen without the data.

    Cell i is [lower + i step, lower + (i+1) step), for i = 0, ..., size - 1. Values and bounds are exact: a ``lower`` that is no
    multiple of the step is refused.

    Attributes:
        log2_step: an integer; 0 for whole numbers, -7 for steps of 1/128.
        lower: the lower bound, a multiple of the step.
        size: the number of cells, 1 to 2^31 - 2.

    Raises:
        TypeError: a ``log2_step`` or ``size`` that is no integer.
        ValueError: a ``size`` out of range, a ``lower`` off the grid, or a grid that float64 cannot hold.

    >>> grid = Grid(log2_step=-1, lower=10, size=4)
    >>> grid.values(range(4)).tolist(), grid.upper
    ([10.0, 10.5, 11.0, 11.5], 12.0)
    """

    log2_step: int
    lower: float
    size: int

    def __post_init__(self) -> None:
        for name in ("log2_step", "size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise TypeError(f"{name} must be an integer, got {value!r}.")
        if not 1 <= self.size <= _LARGEST:
            raise ValueError(f"size must be from 1 to 2^31 - 2 cells, got {self.size}.")
        if not -1000 <= self.log2_step <= 900:
            raise ValueError(f"log2_step must be from -1000 to 900, got {self.log2_step}.")
        if not np.isfinite(self.lower):
            raise ValueError(f"lower must be finite, got {self.lower}.")
        start = Fraction(self.lower) / self._step
        if start.denominator != 1:
            raise ValueError(f"lower must be a multiple of the step 2^{self.log2_step}, got {self.lower}.")
        if max(abs(start), abs(start + int(self.size))) > 2**53:
            raise ValueError("float64 cannot hold every value of this grid: take a larger step or bounds closer to 0.")

    @property
    def _step(self) -> Fraction:
        return Fraction(2) ** int(self.log2_step)

    @property
    def start(self) -> int:
        """The lower bound in steps."""
        return int(Fraction(self.lower) / self._step)

    @property
    def step(self) -> float:
        """The width of a cell."""
        return float(self._step)

    @property
    def upper(self) -> float:
        """The end of the last cell."""
        return float(Fraction(self.lower) + int(self.size) * self._step)

    def values(self, cells: ArrayLike) -> np.ndarray:
        """The lower ends of cells, exact in float64."""
        return np.ldexp(self.start + np.asarray(cells, np.float64), int(self.log2_step))


def to_grid(x: Any, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Take every record to the cell it lies in, on the host: a map of one record at a time, so neighbours stay neighbours.

    Records beyond the grid go to its first or last cell.

    Args:
        x: real numbers of any shape: floats, or integers of any size.
        grid: public.

    Returns:
        The cells, int32, and which records are numbers, bool; a NaN has cell 0. Both of the shape of ``x``.

    Raises:
        TypeError: ``x`` is an array of text or of complex numbers. An object that is no number counts as NaN.

    >>> to_grid([9.0, 10.7, 11.99, 1e300, float("nan")], Grid(log2_step=-1, lower=10, size=4))[0].tolist()
    [0, 1, 3, 3, 0]
    """
    array = as_array(x)
    if array.dtype.kind in "iu" and array.size and max(abs(int(array.max())), abs(int(array.min()))) >= 2**53:
        array = array.astype(object)  # float64 would round them
    if array.dtype.kind == "O":
        array = np.array([_line_below(v, grid) for v in array.flat], np.float64).reshape(array.shape)
    records, there = as_numbers(array)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        inside = np.clip(np.where(there, records, grid.lower), grid.lower, grid.upper)
        # Exact: a power of two scales without rounding (but for what underflows), and both are within 2^53 steps of 0.
        steps = np.floor(np.ldexp(inside, -int(grid.log2_step)))
        steps = np.where((inside < 0) & (steps == 0), -1.0, steps)
        cells = np.clip(steps - grid.start, 0, grid.size - 1)
    return cells.astype(np.int32), there


def as_array(x: Any) -> np.ndarray:
    """Return an array as it is, and a list as one of objects: NumPy's dtype for a list depends on all its records at once.

    Raises:
        ValueError: rows of different lengths.
    """
    if hasattr(x, "dtype"):
        return np.asarray(x)
    array = np.asarray(x, dtype=object)
    if any(isinstance(value, (list, tuple, np.ndarray)) for value in array.flat):
        raise ValueError("x has rows of different lengths: pad them with NaN.")
    return array


def as_numbers(x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return records as float64 (the nearest one), and which of them are numbers.

    Raises:
        TypeError: ``x`` has no numeric dtype.
    """
    array = as_array(x)
    if array.dtype.kind == "O":
        array = np.array([_nearest(v) for v in array.flat], np.float64).reshape(array.shape)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"records must be real numbers, got dtype {array.dtype}.")
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        records = array.astype(np.float64)
    return records, ~np.isnan(records)


def _nearest(value: Any) -> float:
    """One object as a float; what is no number is NaN, since a record must not raise."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan


def _line_below(value: Any, grid: Grid) -> float:
    """One object, within the grid and rounded down to it if it is an integer, before it becomes a float."""
    if not isinstance(value, (int, np.integer)):
        return _nearest(value)
    inside = Fraction(min(max(int(value), math.floor(grid.lower)), math.ceil(grid.upper)))
    return float(inside // grid._step * grid._step) if inside >= Fraction(grid.lower) else grid.lower
