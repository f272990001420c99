"""The public grid of a release, and the total map that takes every record to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
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
        TypeError: ``x`` is an array of text or of complex numbers, or a masked array. An object that is no real number counts as
            NaN.
        ValueError: rows of different lengths.

    >>> to_grid([9.0, 10.7, 11.99, 1e300, float("nan")], Grid(log2_step=-1, lower=10, size=4))[0].tolist()
    [0, 1, 3, 3, 0]
    """
    array = as_reals(x)
    if array.dtype.kind in "iu" and array.size and max(abs(int(array.max())), abs(int(array.min()))) >= 2**53:
        array = array.astype(object)  # float64 would round them
    if array.dtype.kind == "O":
        array = np.array([_line_below(v, grid) for v in array.flat], np.float64).reshape(array.shape)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        records = array.astype(np.float64)
        there = ~np.isnan(records)
        inside = np.clip(np.where(there, records, grid.lower), grid.lower, grid.upper)
        # Exact: a power of two scales without rounding (but for what underflows), and both are within 2^53 steps of 0.
        steps = np.floor(np.ldexp(inside, -int(grid.log2_step)))
        steps = np.where((inside < 0) & (steps == 0), -1.0, steps)
        cells = np.clip(steps - grid.start, 0, grid.size - 1)
    return cells.astype(np.int32), there


def as_array(x: Any) -> np.ndarray:
    """Return an array as it is, and what NumPy has no dtype for as one of objects.

    That is a list, since NumPy's dtype for it depends on all its records at once, and an array of another library with a dtype of
    its own. Floats that only JAX knows become float32, which holds them, and its narrow integers int32.

    Raises:
        TypeError: a masked array.
        ValueError: rows of different lengths.
    """
    refuse_masked_arrays(x)
    if isinstance(getattr(x, "dtype", None), np.dtype):
        array = np.asarray(x)
        for kind, wider in ((jnp.floating, np.float32), (jnp.integer, np.int32)):
            if array.dtype.kind == "V" and jnp.issubdtype(array.dtype, kind):
                array = array.astype(wider)
        return array
    ragged = "x has rows of different lengths: pad them with NaN."
    try:
        array = np.asarray(x, dtype=object)
    except ValueError as error:
        raise ValueError(ragged) from error
    if not hasattr(x, "dtype") and any(isinstance(v, (list, tuple)) or _has_axes(v) for v in array.flat):
        raise ValueError(ragged)
    return array


def refuse_masked_arrays(x: Any) -> None:
    """Raise for a masked array, or a list of them: their mask would be lost. A masked record in a list is data, and no mistake."""
    if isinstance(x, np.ma.MaskedArray) and x.ndim:
        raise TypeError(
            "masked arrays are refused, since their mask would be lost: pass NaN (.filled(np.nan)) or a mask of its own."
        )
    if isinstance(x, (list, tuple)):
        for part in x:
            refuse_masked_arrays(part)


def as_reals(x: Any) -> np.ndarray:
    """Return records as an array of floats, integers or bools, or as one of objects, each a Python integer or float.

    Raises:
        TypeError: ``x`` has a dtype that is not of real numbers, or is a masked array.
        ValueError: rows of different lengths.
    """
    array = as_array(x)
    if array.dtype.kind == "O":
        found = np.empty(array.size, object)
        found[:] = [_real(value) for value in array.flat]
        return found.reshape(array.shape)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"records must be real numbers, got dtype {array.dtype}.")
    return array


def bare(value: Any) -> Any:
    """Return an element of an array of objects without the array of no axes that it may stand in; None for a masked one."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return None if np.ma.is_masked(value) else np.asarray(value)[()]
    return value


def is_integer(value: Any) -> bool:
    """Whether an object is an integer. A time difference is none, though NumPy counts it among them."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, np.timedelta64)


def _has_axes(value: Any) -> bool:
    return isinstance(value, (np.ndarray, jax.Array)) and value.ndim > 0


def _real(value: Any) -> int | float:
    """One object as a Python integer, or else as the nearest float; NaN if it is no real number, since a record must not raise."""
    if type(value) in (int, float):
        return value
    value = bare(value)
    try:
        kind = getattr(getattr(value, "dtype", None), "kind", None)
        # Some arrays, and numbers with an imaginary part, would become a float with a warning, and times would in some units.
        if isinstance(value, np.ndarray) or getattr(value, "ndim", 0) != 0 or kind in ("c", "m", "M"):
            return math.nan
        if is_integer(value):
            return int(value)
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    except Exception:  # whatever an object does that is asked for its value
        return math.nan


def _line_below(number: int | float, grid: Grid) -> float:
    """One number, within the grid and rounded down to it if it is an integer, before it becomes a float."""
    if isinstance(number, float):
        return number
    inside = Fraction(min(max(number, math.floor(grid.lower)), math.ceil(grid.upper)))
    return float(inside // grid._step * grid._step) if inside >= Fraction(grid.lower) else grid.lower
