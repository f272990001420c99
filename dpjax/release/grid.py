"""The public grid of a release, and the total map that takes every record to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dpjax import checks

_LARGEST = 2**31 - 2  # cells: one more point than cells still fits into int32


@dataclass(frozen=True)
class Grid:
    """Cells of width 2^log2_step from ``lower`` on; all of it is public, and chosen without the data.

    Cell i is [lower + i step, lower + (i+1) step), for i = 0, ..., size - 1. Values and bounds are exact: a ``lower`` that is no
    multiple of the step is refused.

    Attributes:
        log2_step: an integer; 0 for integers, -7 for steps of 1/128.
        lower: the lower bound, a multiple of the step.
        size: the number of cells, 1 to 2^31 - 2.

    Raises:
        ValueError: a ``log2_step`` or ``size`` out of range, a ``lower`` off the grid, or a grid that float64 cannot hold.

    >>> grid = Grid(log2_step=-1, lower=10, size=4)
    >>> grid.values(range(4)).tolist(), grid.upper
    ([10.0, 10.5, 11.0, 11.5], 12.0)
    """

    log2_step: int
    lower: float
    size: int

    def __post_init__(self) -> None:
        checks.static_integer("log2_step", self.log2_step, -1000, 900)
        checks.static_integer("size", self.size, 1, _LARGEST)
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
        x: real numbers of any shape: an array of floats or integers, or a list, whose elements may be integers of any size. An
            element of a list that is no real number counts as NaN.
        grid: public.

    Returns:
        The cells, int32, and which records are numbers, bool; a NaN has cell 0. Both of the shape of ``x``.

    Raises:
        TypeError: ``x`` is an array of text or of complex numbers, or a masked array.
        ValueError: rows of different lengths.

    >>> to_grid([9.0, 10.7, 11.99, 1e300, float("nan")], Grid(log2_step=-1, lower=10, size=4))[0].tolist()
    [0, 1, 3, 3, 0]
    """
    array = as_reals(x)
    # Integers are rounded down to the grid before they become floats, which would round those from 2^53 on to nearest.
    ends, shift = (math.floor(grid.lower), math.ceil(grid.upper)), max(int(grid.log2_step), 0)
    if array.dtype.kind in "iu":
        shift = min(shift, 8 * array.dtype.itemsize - 1)
        array = clip_integers(array, *ends) >> shift << shift
    elif array.dtype.kind == "O":
        exact = [v if isinstance(v, float) else min(max(v, ends[0]), ends[1]) >> shift << shift for v in array.flat]
        array = np.array(exact, np.float64).reshape(array.shape)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        records = array.astype(np.float64)
        present = ~np.isnan(records)
        inside = np.clip(np.where(present, records, grid.lower), grid.lower, grid.upper)
        # Exact: a power of two scales without rounding (but for what underflows), and both are within 2^53 steps of 0.
        steps = np.floor(np.ldexp(inside, -int(grid.log2_step)))
        steps = np.where((inside < 0) & (steps == 0), -1.0, steps)
        cells = np.clip(steps - grid.start, 0, grid.size - 1)
    return cells.astype(np.int32), present


def clip_integers(array: np.ndarray, low: int, high: int) -> np.ndarray:
    """Clip an array of NumPy's integers to ends that its dtype need not hold."""
    limits = np.iinfo(array.dtype)
    return np.clip(array, *np.clip([low, high], limits.min, limits.max).astype(array.dtype))


def as_array(x: Any) -> np.ndarray:
    """Return an array of NumPy or JAX as NumPy's, and anything else as an array of objects.

    That is a list, since NumPy's dtype for it depends on all its records at once, and an array of another library with a dtype of
    its own. Floats that only JAX knows become float32, which holds them, and its narrow integers int32.

    Raises:
        TypeError: a masked array, or a list of them: their mask would be lost.
        ValueError: rows of different lengths.
    """
    if _is_masked(x):
        raise TypeError("masked arrays are refused, since their mask would be lost: pass NaN (.filled(np.nan)) or mask=.")
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
    arrays = (np.ndarray, jax.Array)
    if isinstance(x, (list, tuple)) and any(isinstance(v, (list, tuple)) or (isinstance(v, arrays) and v.ndim) for v in array.flat):
        raise ValueError(ragged)
    return array


def _is_masked(x: Any) -> bool:
    """Whether it is a masked array, or a list of them. One masked record in a list is data, and missing."""
    if isinstance(x, (list, tuple)):
        return any(map(_is_masked, x))
    return isinstance(x, np.ma.MaskedArray) and x.ndim > 0


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


def without_axes(value: Any) -> Any:
    """Return an element of an array of objects without the array of no axes that it may stand in; None for a masked one."""
    if isinstance(value, (np.ndarray, jax.Array)) and value.ndim == 0:
        return None if np.ma.is_masked(value) else value.item()
    return value


def is_integer(value: Any) -> bool:
    """Whether an object is an integer. A time difference is none, though NumPy counts it among them."""
    return isinstance(value, Integral) and not isinstance(value, np.timedelta64)


def _real(value: Any) -> int | float:
    """One object as a Python integer, or else as the nearest float; NaN if it is no real number, since a record must not raise."""
    if type(value) in (int, float):
        return value
    value = without_axes(value)
    if is_integer(value):
        return int(value)
    kinds: Any = (Real, Decimal, np.bool_)
    if not isinstance(value, kinds) or isinstance(value, np.timedelta64):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return -math.inf if value < 0 else math.inf
    except ValueError:  # a signaling NaN
        return math.nan
