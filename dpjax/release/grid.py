"""The public grids of a release, and the map that takes every record to a position on its grid."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.release.records import as_floats

_LARGEST = 2**31 - 2


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

    def values_of(self, position: Any) -> np.ndarray:
        """Return the values at positions, counted from the lower bound, float64."""
        multiples = np.asarray(position, np.float64) + self.start
        return multiples * self.resolution.numerator / self.resolution.denominator

    def multiples_of(self, values: np.ndarray) -> np.ndarray:
        """Turn values, in place, into multiples of the resolution, which are not rounded."""
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            # The same arithmetic as in dpjax.numerics.multiples
            values *= float(self.resolution.denominator)
            values /= float(self.resolution.numerator)
        return values

    def positions_of(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Round every record to the nearest multiple.

        Each record is mapped by itself, so neighboring datasets stay neighbors. Ties round up, by
        floor(x + 1/2), which every data frame engine computes alike. Records beyond the bounds are
        clamped; those that :func:`as_floats` reads as NaN get position 0. Returns the positions
        counted from the lower bound, int32, and a bool mask of the records that are numbers.

        >>> grid = grid_of(0, 0.3, 0.1)
        >>> grid.positions_of([0.04, 0.07, 0.29, 1e300, float("nan")])[0].tolist()
        [0, 1, 3, 3, 0]
        """
        records = self.multiples_of(as_floats(x))
        present = ~np.isnan(records)
        records[~present] = self.start
        np.clip(records, self.start, self.start + self.size - 1, out=records)
        records += 0.5
        np.floor(records, out=records)
        records -= self.start
        return records.astype(np.int32 if self.size < 2**31 else np.int64), present

    def distances(self, first: np.ndarray, length: np.ndarray, center: np.ndarray) -> np.ndarray:
        """Return the sum of abs(value - center) over each run of adjacent positions."""
        unit = float(self.resolution)
        ahead = center / unit - self.start - first  # of the first position of each run
        near = np.clip(np.floor(ahead) + 1, 0, length)  # how many positions are up to the center
        rest = length - near
        far = rest * (near + (rest - 1) / 2 - ahead)
        return np.multiply(unit, near * (ahead - (near - 1) / 2) + far)


class Points:
    """Finitely many public values, ascending."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self.values)

    def values_of(self, position: Any) -> np.ndarray:
        """Return the values at positions, float64."""
        return np.take(self.values, position)

    def positions_of(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the position of the value nearest to each record, and which are numbers.

        See :meth:`Multiples.positions_of`.
        """
        records = as_floats(x)
        halfway = self.values[:-1] + np.diff(self.values) / 2
        found = np.searchsorted(halfway, np.fmax(records, -np.inf))  # NaN is the lowest
        return found.astype(np.int32), ~np.isnan(records)

    def distances(self, first: np.ndarray, length: np.ndarray, center: np.ndarray) -> np.ndarray:
        """Return the sum of abs(value - center) over each run of adjacent positions."""
        runs = zip(first, length, center, strict=True)
        each = [np.abs(self.values[start : start + k] - middle).sum() for start, k, middle in runs]
        return np.array(each, np.float64)


@dataclass(frozen=True)
class Floats(Points):
    """All numbers of both signs with ``digits`` significant digits, and 0.

    This is a grid for data without bounds. A factor of ten near 1 has as many values as one near
    10^6: only the relative precision of the data has to be known. A grid of three digits from
    10^-30 to 10^30 has 54,001 values on either side of 0.

    Attributes:
        digits: the number of significant digits, 1 to 6.
        smallest: the smallest positive value is 10^smallest.
        largest: the largest value is 10^largest.

    >>> grid = Floats(digits=1, smallest=-1, largest=1)
    >>> grid.values[18:25].tolist()
    [-0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    """

    digits: int = 3
    smallest: int = -30
    largest: int = 30

    def __post_init__(self) -> None:
        """Raise if float64 cannot hold the values, or more than 2^24 are on either side."""
        checks.static_integer("digits", self.digits, 1, 6)
        checks.static_integer("smallest", self.smallest, -300, 299)
        checks.static_integer("largest", self.largest, self.smallest + 1, 300)
        if (self.largest - self.smallest) * 9 * 10 ** (self.digits - 1) >= 2**24:
            raise ValueError(f"{self} has more than 2^24 values on either side of 0.")

    @cached_property
    def values(self) -> np.ndarray:  # type: ignore[override]
        """All values, ascending."""
        least = 10 ** (self.digits - 1)
        positive = [
            float(f"{mantissa}e{exponent - self.digits + 1}")
            for exponent in range(self.smallest, self.largest)
            for mantissa in range(least, 10 * least + 1)
        ]
        return np.unique([0.0, *positive, *np.negative(positive)])


def resolution_of(value: checks.Resolution, bounds: Any) -> Fraction:
    """Return a public resolution as an exact fraction; raise if a float cannot hold the bounds."""
    step = checks.resolution(value, bounds, 2**51)
    if max(step.numerator, step.denominator) >= 2**1000:
        raise ValueError(f"resolution {value} is out of the range of float64.")
    return step


def grid_of(lower: Any, upper: Any, resolution: Any, grid: Any = None) -> Multiples | Floats:
    """Return the grid of a release: multiples of a resolution between bounds, or floats.

    A float is read as the decimal that it prints as.

    Raises:
        TypeError: if an argument is missing or has the wrong type, such as a JAX array.
        ValueError: if both a grid and bounds or a resolution are given; if the bounds are not
            finite, not multiples of the resolution, or not ``lower < upper``; if there are more
            than 2^31 - 2 values, or if float64 cannot hold them.

    >>> grid_of(0, 0.3, 0.1)
    Multiples(resolution=Fraction(1, 10), start=0, size=4)
    """
    missing = [value is None for value in (lower, upper, resolution)]
    if grid is not None:
        checks.instance("grid", grid, Floats, "dpjax.release.Floats(digits=3)")
        if not all(missing):
            raise ValueError("grid cannot be combined with lower, upper or resolution.")
        return grid
    if any(missing):
        raise TypeError(
            "a release needs lower, upper and resolution; or, without bounds, a grid such as "
            "dpjax.release.Floats()."
        )
    kind = kind_of(lower)
    if (
        kind != kind_of(upper)
        or isinstance(resolution, datetime.timedelta) == (kind is None)
        or any(map(checks.is_jax_array, (lower, upper)))
    ):
        raise TypeError(
            "lower and upper must both be static numbers, dates, times or durations, and "
            "resolution must be a datetime.timedelta unless they are numbers: got "
            f"{lower!r}, {upper!r} and {resolution!r}."
        )
    step = resolution_of(resolution, (lower, upper))
    start, end = checks.exact(lower), checks.exact(upper)
    if start is None or end is None or start >= end:
        raise ValueError(
            f"lower and upper must be finite, and lower below upper, got {lower} and {upper}."
        )
    size = int((end - start) / step) + 1
    if size > _LARGEST:
        raise ValueError(
            f"{size} multiples of {resolution} are more than 2^31 - 2: use a coarser resolution."
        )
    return Multiples(step, int(start / step), size)


def kind_of(value: Any) -> str | None:
    """Return the kind of time that a bound is, as data frame engines name it, or None for a number.

    >>> kind_of(datetime.date(2020, 1, 1)), kind_of(datetime.timedelta(1)), kind_of(3)
    ('Date', 'Duration', None)
    """
    kinds = {
        datetime.datetime: "Datetime",
        datetime.date: "Date",
        datetime.timedelta: "Duration",
    }
    return next((name for kind, name in kinds.items() if isinstance(value, kind)), None)
