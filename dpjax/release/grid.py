"""The public grids of a release, and the map that takes every record to a position on its grid."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dpjax import checks
from dpjax.release.chunks import in_threads, ranges
from dpjax.release.records import as_floats

_LARGEST = 2**31 - 2
# Records; smaller chunks lose more to threads waiting for the interpreter lock than the cache saves
_AT_A_TIME = 2**18


@dataclass(frozen=True)
class Multiples:
    """The multiples of a resolution between two bounds, indexed from the lower one; all public.

    Attributes:
        resolution: positive, exact.
        start: the lower bound, in units of the resolution.
        size: the number of multiples, 2 to 2^31 - 2.
    """

    resolution: Fraction
    start: int
    size: int

    @staticmethod
    def between(
        lower: float | Fraction, upper: float | Fraction, resolution: checks.Resolution
    ) -> Multiples:
        """Return the multiples from ``lower`` to ``upper``.

        A float is read as the decimal that it prints as.

        Raises:
            TypeError: for a JAX array.
            ValueError: if the bounds are not finite, not multiples of the resolution, or not
                ``lower < upper``, if there are more than 2^31 - 2 values, or if float64 cannot hold
                the values.

        >>> Multiples.between(0, 0.3, 0.1)
        Multiples(resolution=Fraction(1, 10), start=0, size=4)
        """
        step = checks.resolution(resolution, (np.asarray(lower), np.asarray(upper)), 2**51)
        if max(step.numerator, step.denominator) >= 2**1000:
            raise ValueError(f"resolution {resolution} is out of the range of float64.")
        ends = [checks.exact(bound) for bound in (lower, upper)]
        if ends[0] is None or ends[1] is None or not ends[0] < ends[1]:
            raise ValueError(
                f"lower and upper must be finite, and lower below upper, got {lower} and {upper}."
            )
        start, end = (int(bound / step) for bound in ends if bound is not None)
        if end - start >= _LARGEST:
            raise ValueError(
                f"{end - start + 1} multiples of {resolution} are more than 2^31 - 2: use a "
                "coarser resolution."
            )
        return Multiples(step, start, end - start + 1)

    @property
    def lower(self) -> float:
        """The smallest value."""
        return float(self.start * self.resolution)

    @property
    def upper(self) -> float:
        """The largest value."""
        return float((self.start + self.size - 1) * self.resolution)

    def times(self, factor: int, resolution: Fraction) -> Multiples:
        """Return the grid between ``factor`` times the bounds, in multiples of ``resolution``."""
        return Multiples(resolution, factor * self.start, factor * (self.size - 1) + 1)

    def values_of(self, number: Any) -> np.ndarray:
        """Return the values at positions, counted from the lower bound, float64."""
        return values_of(np.asarray(number) + self.start, self.resolution)

    def numbers_of(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Round every record to the nearest multiple, on the host.

        Each record is mapped by itself, so neighboring datasets stay neighbors. Ties round up, by
        floor(x + 1/2), which every data frame engine computes alike. Records beyond the bounds are
        clamped; those that :func:`as_reals` reads as NaN get position 0. Returns the positions
        counted from the lower bound, int32, and a bool mask of the records that are numbers.

        >>> grid = Multiples.between(0, 0.3, 0.1)
        >>> grid.numbers_of([0.04, 0.07, 0.29, 1e300, float("nan")])[0].tolist()
        [0, 1, 3, 3, 0]
        """
        if isinstance(x, np.ndarray) and x.size > _AT_A_TIME:
            flat, cells, present = x.reshape(-1), np.empty(x.size, np.int32), np.empty(x.size, bool)

            def some(first: int, last: int) -> None:
                cells[first:last], present[first:last] = self.numbers_of(flat[first:last])

            in_threads(some, ranges(x.size, _AT_A_TIME))
            return cells.reshape(x.shape), present.reshape(x.shape)
        end = self.start + self.size - 1
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            if self.resolution == 1 and type(x) is np.ndarray and x.dtype == np.float64:
                records = np.clip(x, self.start, end)
            else:
                records = as_floats(x, math.floor(self.lower) - 1, math.ceil(self.upper) + 1)
                # The same arithmetic as in dpjax.numerics.multiples.
                if self.resolution.denominator != 1:
                    records *= float(self.resolution.denominator)
                if self.resolution.numerator != 1:
                    records /= float(self.resolution.numerator)
                np.clip(records, self.start, end, out=records)
            present = np.ones(records.shape, bool)
            if records.size and np.isnan(np.min(records)):
                present = ~np.isnan(records)
                records[~present] = self.start
            records += 0.5
            if self.start:  # otherwise the integer part is the floor
                np.floor(records, out=records)
                records -= float(self.start)
        return records.astype(np.int32), present


@dataclass(frozen=True)
class Floats:
    """All numbers of both signs with ``digits`` significant digits, and 0.

    This is a grid for data without bounds. A factor of ten near 1 has as many values as one near
    10^6: only the relative precision of the data has to be known. A grid of three digits from
    10^-30 to 10^30 has 54,001 values on either side of 0.

    Attributes:
        digits: the number of significant digits, 1 to 6.
        smallest: the smallest positive value is 10^smallest.
        largest: the largest value is 10^largest.

    >>> grid = Floats(digits=1, smallest=-1, largest=1)
    >>> grid.values_of(np.arange(grid.size))[18:25].tolist()
    [-0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    """

    digits: int = 3
    smallest: int = -30
    largest: int = 30

    start: ClassVar[int] = 0  # as in Multiples
    resolution: ClassVar[None] = None

    def __post_init__(self) -> None:
        """Raise if float64 cannot hold the values, or more than 2^24 are on either side."""
        checks.static_integer("digits", self.digits, 1, 6)
        checks.static_integer("smallest", self.smallest, -300, 299)
        checks.static_integer("largest", self.largest, self.smallest + 1, 300)
        if (self.largest - self.smallest) * 9 * 10 ** (self.digits - 1) >= 2**24:
            raise ValueError(
                f"{self} has more than 2^24 values on either side of 0: use fewer digits or a "
                "smaller range of exponents."
            )

    @property
    def size(self) -> int:
        """The number of values."""
        return len(_floats(self))

    def values_of(self, number: Any) -> np.ndarray:
        """Return the values at positions, counted from the smallest, float64."""
        return _floats(self)[np.asarray(number)]

    def numbers_of(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the values nearest to records, and which records are numbers.

        See :meth:`Multiples.numbers_of`.
        """
        records, values = as_floats(x), _floats(self)
        present = ~np.isnan(records)
        halfway = values[:-1] + (values[1:] - values[:-1]) / 2
        return np.searchsorted(halfway, np.where(present, records, -np.inf)).astype(
            np.int32
        ), present


@dataclass(frozen=True, eq=False)
class Candidates:
    """Finitely many values in any order: a position is the index of a candidate.

    Attributes:
        labels: float64 ``(k,)``, distinct.
    """

    labels: np.ndarray

    start: ClassVar[int] = 0  # as in Multiples
    resolution: ClassVar[None] = None

    @property
    def size(self) -> int:
        """The number of candidates."""
        return len(self.labels)

    def values_of(self, number: Any) -> np.ndarray:
        """Return the candidates with these indices, float64."""
        return self.labels[np.asarray(number)]

    def numbers_of(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the candidates that equal the values, and which values equal one.

        The index of a value that equals none is arbitrary.
        """
        values = np.asarray(x, np.float64)
        order = np.argsort(self.labels)
        indices = order[np.searchsorted(self.labels[order], values).clip(0, self.size - 1)]
        return indices, self.labels[indices] == values


def grid_of(
    lower: float | None,
    upper: float | None,
    resolution: checks.Resolution | None,
    grid: Floats | None,
) -> Multiples | Floats:
    """Return the grid of a release: multiples of a resolution between bounds, or floats.

    Raises:
        TypeError: if an argument is missing or has the wrong type.
        ValueError: if both a grid and bounds or a resolution are given, or they are invalid.
    """
    if grid is not None:
        checks.instance("grid", grid, Floats, "dpjax.release.Floats(digits=3)")
        if not (lower is None and upper is None and resolution is None):
            raise ValueError(
                "grid cannot be combined with lower, upper or resolution: it has a range and a "
                "precision."
            )
        return grid
    if lower is None or upper is None or resolution is None:
        raise TypeError(
            "a release needs lower, upper and resolution; or, without bounds, a grid such as "
            "dpjax.release.Floats()."
        )
    kinds = {kind_of(lower), kind_of(upper)}
    if len(kinds) > 1 or isinstance(resolution, datetime.timedelta) != (kinds != {None}):
        raise TypeError(
            "lower and upper must both be numbers, dates, times or durations, and resolution must "
            f"be a datetime.timedelta unless they are numbers: got {lower!r}, {upper!r} and "
            f"{resolution!r}."
        )
    return Multiples.between(lower, upper, resolution)


def kind_of(value: Any) -> str | None:
    """Return the kind of time that a bound is, as data frame engines name it, or None for a number.

    >>> kind_of(datetime.date(2020, 1, 1)), kind_of(datetime.timedelta(1)), kind_of(3)
    ('Date', 'Duration', None)
    """
    kinds = (
        (datetime.datetime, "Datetime"),
        (datetime.date, "Date"),
        (datetime.time, "Time"),
        (datetime.timedelta, "Duration"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), None)


@lru_cache(maxsize=4)
def _floats(grid: Floats) -> np.ndarray:
    """Return all values of a grid, ascending."""
    mantissas = range(10 ** (grid.digits - 1), 10**grid.digits)
    exponents = range(grid.smallest - grid.digits + 1, grid.largest - grid.digits + 1)
    positive = [float(f"{mantissa}e{exponent}") for exponent in exponents for mantissa in mantissas]
    positive.append(float(f"1e{grid.largest}"))
    return np.array([*(-value for value in reversed(positive)), 0.0, *positive])


def values_of(number: Any, resolution: Fraction) -> np.ndarray:
    """Return multiples of the resolution as float64, rounded once."""
    return np.asarray(number, np.float64) * resolution.numerator / resolution.denominator
