"""The statistics of a release: frozen dataclasses that hold only public parameters.

    records --read, count--> counts --statistic--> distribution --> a release, or error bars

A statistic says what it reads and, on a grid, where it jumps when records change (``jumps``).

>>> ages = [31, 40, 28, 35, 52, 33, 47, 29, 38] * 40
>>> median = Median(lower=0, upper=120, resolution=1)
>>> print(median.release(ages, epsilon=4.0, neighbors="add_remove"))
35
4-DP under add_remove neighbors
>>> median.distribution(ages, epsilon=0.1, neighbors="add_remove").mean_abs_error(35).round(3)
np.float64(0.085)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from dpjax import checks
from dpjax.accounting.filters import PrivacyFilter, charge
from dpjax.accounting.guarantee import Guarantee
from dpjax.checks import Neighbors, Resolution
from dpjax.release import jumps
from dpjax.release.counts import MOST, Counts, sums_of
from dpjax.release.distribution import How, Runs
from dpjax.release.exact import exact_epsilon
from dpjax.release.grid import Floats, Multiples, Points, grid_of, kind_of
from dpjax.release.jumps import Ranks
from dpjax.release.noise import LARGEST, DiscreteLaplace
from dpjax.release.records import as_counts, as_floats, codes_of, increasing
from dpjax.release.result import Release, cost_of

_RUNS = ("permute_and_flip", "piecewise_laplace")  # mechanisms
_SUMS = 2**24  # sums of one group that are looked at one by one
_ENTRIES = 2**15  # entries of counts of the groups that are drawn together


class Statistic:
    """The base class of all statistics, such as ``Median`` and ``Sum``.

    **Mechanisms.** By default a value on a grid is drawn by permute and flip, which is epsilon-DP;
    its bounded range is 2 epsilon. Its error is .5 to 1 times that of
    ``mechanism="piecewise_laplace"``, which is epsilon-DP and epsilon-bounded-range, and so the
    better one for many draws: of k draws that are together (1, 10^-6)-DP, each can have 1.02 times
    the epsilon of permute and flip for k = 2, 1.4 times for 8, and 1.8 to 2 times from 15 on. On
    medians of 1000 ages at 1, incomes at 10 to 5000, and N(0, 1) at .002 to .1, its error is the
    smaller one from 2 to 8 draws on, sooner on a finer grid.

    **Resolution.** Choose it near the error that you expect, not finer: permute and flip has the
    smaller error on a coarser grid. The mean error of the median of 50 records of N(0, 1), epsilon
    .25, add/remove, is .65 with a resolution of .002, .62 with .02, and .51 with .1.

    >>> Median(lower=0, upper=120, resolution=1).mechanisms
    ('permute_and_flip', 'piecewise_laplace')
    """

    relations: ClassVar[tuple[str, ...]] = checks.NEIGHBORS
    mechanisms: ClassVar[tuple[str, ...]] = ()
    zero_of_nobody: ClassVar[bool] = False  # whether it is 0 where there are no records
    skips_missing: ClassVar[bool] = False  # under swap too, where they are the lower bound if not

    # Methods that each statistic has of its own
    read: Any  # records -> their positions, integers of their shape, and which of them exist
    _distribution: Any  # counts, how -> the distribution of each group

    def release(
        self,
        x: Any,
        *,
        epsilon: float | Fraction,
        neighbors: Neighbors,
        counts: Any = None,
        draws: int = 1,
        budget: PrivacyFilter | None = None,
        mechanism: str | None = None,
    ) -> Release:
        """Draw exactly from each row of records.

        Args:
            x: ``(..., n)``, records, one for each person: numbers, in a list, or an array or a
                column of any library; NaN, None and what is not a number are missing records, and
                under swap count as the lower bound. Or :class:`Counts`.
            epsilon: the privacy loss of one draw from a row, from 2^-30 to 64.
            neighbors: ``"add_remove"`` or ``"swap"``, where the number of records is public.
            counts: ``(..., n)`` integers, how often each record of ``x`` occurs, under add/remove;
                it broadcasts against ``x``. Negative numbers are 0.
            draws: how often to draw from each row; each draw costs epsilon.
            budget: a :class:`dpjax.accounting.PrivacyFilter` or :class:`dpjax.accounting.Ledger`,
                charged for all draws from one row, after all checks and before any draw.
            mechanism: one of ``mechanisms``, by default the first.

        Raises:
            BudgetExceeded: the cost exceeds the remaining budget; nothing was drawn or charged.
            TypeError: ``x`` is a frame, a masked array or a column of other values than numbers,
                or this is traced by JAX.
            ValueError: a public parameter is out of range. Records never raise.

        Privacy:
            As the guarantee of the result states, exactly, for one record: on the public grid, and
            from independent fair bits. Public: all parameters, the shape of ``x``, and its dtype.
            Not covered are the time that a draw takes, memory, and parameters chosen from the data.
        """
        how = self._how(epsilon, neighbors, mechanism)
        guarantee, number = self.cost(epsilon, draws, neighbors, mechanism), int(draws)
        known, batch = self._count(x, how, counts)
        parts = self.parts(known, epsilon, neighbors, mechanism)
        first = next(parts)  # This checks all public parameters
        charge(budget, guarantee, {"draws": number, "statistic": repr(self)})
        drawn = [part.values_of(part.positions(number)) for part in (first, *parts)]
        values = np.concatenate(drawn, axis=1)
        return Release(values.reshape(number, *batch, *values.shape[2:]), guarantee)

    def distribution(
        self,
        x: Any,
        *,
        epsilon: float | Fraction,
        neighbors: Neighbors,
        counts: Any = None,
        mechanism: str | None = None,
    ) -> Any:
        """Return what a release with these arguments draws from, for planning.

        It is a function of the data, without a privacy guarantee.

        Returns:
            An object with the statistic itself, ``value``, and ``mean_abs_error(center)``,
            ``interval(level)`` and ``sample(seed, shape)``; for one value of a row also with
            ``pmf``, ``cdf``, ``quantile`` and ``plot``.
        """
        how = self._how(epsilon, neighbors, mechanism)
        known, batch = self._count(x, how, counts)
        return self._distribution(known, how).reshaped(batch)

    def cost(
        self,
        epsilon: float | Fraction,
        draws: int,
        neighbors: Neighbors,
        mechanism: str | None = None,
    ) -> Guarantee:
        """Return the guarantee of all draws from one row together."""
        how = self._how(epsilon, neighbors, mechanism)
        number = checks.static_integer("draws", draws, 1, 2**40)
        return cost_of(how.epsilon, number, neighbors, self._ranges(how))

    def _ranges(self, how: How) -> int:
        """Return the bounded range of a draw, in epsilons."""
        return 1 if how.mechanism in ("piecewise_laplace", "exponential") else 2

    def parts(
        self,
        counts: Counts,
        epsilon: float | Fraction,
        neighbors: Neighbors,
        mechanism: str | None = None,
    ) -> Iterator[Any]:
        """Yield the distributions of groups that fit into the cache together, at least one."""
        how = self._how(epsilon, neighbors, mechanism)
        part = np.cumsum(np.diff(counts.starts) + self._more(how.epsilon)) // _ENTRIES
        cuts = [0, *(np.flatnonzero(np.diff(part)) + 1), counts.groups]
        for start, stop in pairwise(cuts):
            yield self._distribution(counts.some(start, stop), how)

    def _more(self, epsilon: Fraction) -> int:
        """Return how many runs a distribution may have that are not those of counted values."""
        return 1

    def _how(self, epsilon: Any, neighbors: str, mechanism: str | None) -> How:
        """Return how to draw, after checks, by default by the first mechanism."""
        checks.one_of(f"{type(self).__name__}: neighbors", neighbors, self.relations)
        options = self.mechanisms or (None,)
        if mechanism is not None:
            checks.one_of("mechanism", mechanism, options)
        return How(exact_epsilon(epsilon), neighbors, mechanism or options[0])

    def _rows(self, positions: np.ndarray, how: How) -> tuple[np.ndarray, np.ndarray]:
        """Return sorted rows of records, negative if missing, and how often each counts."""
        return positions, positions >= 0

    def _count(self, x: Any, how: How, counts: Any) -> tuple[Counts, tuple[int, ...]]:
        """Return the counts of every row, and the batch shape."""
        swap = how.neighbors == "swap"
        if isinstance(x, Counts):
            if counts is not None:
                raise ValueError("counts must be None if x is a Counts, which has them.")
            # Clamped counts of neighbors under swap would not have the same, public sum
            if swap and not self.skips_missing and np.any(x.totals >= MOST):
                raise ValueError("x must have fewer than 2^32 records in a group under swap.")
            return x, (x.groups,)
        if kind_of(getattr(self, "lower", None)) is not None:
            raise TypeError(
                "x must be the column of a frame if the bounds are dates, times or durations: use "
                "dpjax.frames.release."
            )
        positions, present = self.read(x)
        if counts is None:
            # Under swap, a missing record is the lower bound
            if not swap or self.skips_missing:
                positions[~present] = -1
            positions.sort(axis=-1)
            positions, number = self._rows(positions, how)
        elif swap:
            raise ValueError(
                "counts must be None under swap neighbors, where x has the public number of "
                "records."
            )
        else:
            given = as_counts(counts)
            try:
                number = np.where(present, given, 0)
            except ValueError as error:
                raise ValueError(
                    f"counts of the shape {given.shape} must broadcast against x of the shape "
                    f"{positions.shape}."
                ) from error
        *batch, n = number.shape
        groups = math.prod(batch)
        values = np.broadcast_to(positions, number.shape).ravel()
        group = np.repeat(np.arange(groups), n)
        return Counts.of_rows(group, values, number.ravel(), groups=groups), tuple(batch)


class OnGrid(Statistic):
    """A statistic whose records lie on a public grid."""

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        _ = self.records_grid

    @cached_property
    def records_grid(self) -> Multiples | Floats:
        """The grid that records are rounded to."""
        given: Any = self
        grid = getattr(self, "grid", None)
        return grid_of(given.lower, given.upper, given.resolution, grid)

    def read(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Round each record to the grid; NaN is a missing record."""
        return self.records_grid.positions_of(x)


@dataclass(frozen=True)
class Quantile(OnGrid):
    """The record x[ceil(q n)].

    Of nobody, and of fewer people than about 1 / epsilon, a draw is nearly uniform over the bounds,
    and looks like any other: a :class:`Count` beside it tells.

    Attributes:
        q: the level, strictly between 0 and 1, read by its decimal value: 0.1 is 1/10.
        lower: public, a multiple of the resolution: smaller records are clamped to it. For the
            column of a frame, it can be a date, time or duration, as ``upper`` and the records.
        upper: public, a multiple of the resolution.
        resolution: public: records are rounded to its multiples. See :class:`Statistic`.
        grid: instead of bounds and a resolution, :class:`Floats`.

    >>> high = Quantile(0.9, lower=0, upper=120, resolution=1)
    >>> high.level
    Fraction(9, 10)
    >>> nobody = high.distribution([], epsilon=0.1, neighbors="add_remove")
    >>> [float(end) for end in nobody.interval(0.9)]
    [5.0, 114.0]
    """

    q: float | Fraction | str
    lower: Any = None
    upper: Any = None
    resolution: Resolution | None = None
    grid: Floats | None = None

    mechanisms: ClassVar[tuple[str, ...]] = _RUNS

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        super().__post_init__()
        checks.level(self.q)

    @cached_property
    def level(self) -> Fraction:
        """The level as a fraction."""
        return checks.level(self.q)

    def _ranks(self, neighbors: str) -> Ranks:
        u, v = self.level.numerator, self.level.denominator
        return Ranks(u, 0, v if neighbors == "swap" else max(u, v - u), v)

    def _distribution(self, counts: Counts, how: How) -> Runs:
        return jumps.runs_of(counts, self._ranks(how.neighbors), how, self.records_grid)

    def _rows(self, positions: np.ndarray, how: How) -> tuple[np.ndarray, np.ndarray]:
        # Records beyond the ranks that matter, also of midpoints, count as the records at them
        n = positions.shape[-1]
        if not n or np.any(positions[..., 0] < 0):
            return super()._rows(positions, how)
        u, _, step, v = self._ranks(how.neighbors)[:4]
        far = step * (jumps.far_of(how.epsilon, 2 * self.records_grid.size) + 4)
        low, high = (min(max(-(-(u * n + away) // v), 1), n) for away in (-far, far))
        near = positions[..., low - 1 : high]
        number = np.ones(near.shape, np.int64)
        number[..., 0] = low
        number[..., -1] += n - high
        return near, number


@dataclass(frozen=True)
class Median(Quantile):
    """The record x[ceil(n / 2)], or the midpoint of the two middle ones.

    Attributes:
        definition: ``"lower"``, or ``"linear"`` for the midpoint, on the multiples of half of the
            resolution. The other attributes, and what is drawn of nobody, are as for
            :class:`Quantile`.

    >>> midpoint = Median(lower=0, upper=10, resolution=1, definition="linear")
    >>> float(midpoint.release([3, 4] * 100, epsilon=64.0, neighbors="swap"))
    3.5
    """

    q: ClassVar[Fraction] = Fraction(1, 2)  # type: ignore[misc]
    definition: Literal["lower", "linear"] = "lower"

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        checks.one_of("definition", self.definition, ("lower", "linear"))
        if self.definition == "linear" and self.grid is not None:
            raise ValueError("a midpoint of floats is not a float of the grid: use 'lower'.")
        super().__post_init__()

    def _distribution(self, counts: Counts, how: How) -> Runs:
        if self.definition == "lower":
            return super()._distribution(counts, how)
        grid: Any = self.records_grid
        halves = Multiples(grid.resolution / 2, 2 * grid.start, 2 * grid.size - 1)
        ranks = Ranks(1, 1, 4 if how.neighbors == "swap" else 2, 2)
        return jumps.runs_of(jumps.midpoints(counts, grid.size), ranks, how, halves)


class Shifted(OnGrid):
    """A statistic without bounded sensitivity, by shifted inverse sensitivity.

    It is near the statistic of the data without ``tau`` people.
    """

    tau: int

    mechanisms: ClassVar[tuple[str, ...]] = _RUNS

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        checks.shift(self.tau)
        super().__post_init__()

    def _distribution(self, counts: Counts, how: How) -> Runs:
        ranks = Ranks(1, -self.tau, 1, 1, of_last=True)
        return jumps.runs_of(counts, ranks, how, self.records_grid)


@dataclass(frozen=True)
class Maximum(Shifted):
    """The largest record, by shifted inverse sensitivity: near the (tau + 1)-th largest.

    Attributes:
        tau: at least 1, chosen without the data; the other attributes are those of
            :class:`Quantile`.

    References:
        Fang, Dong and Yi (2022), shifted inverse mechanism.

    >>> largest = Maximum(1, lower=0, upper=120, resolution=1)
    >>> float(largest.release([31, 40] * 100, epsilon=64.0, neighbors="swap"))
    40.0
    """

    tau: int
    lower: Any = None
    upper: Any = None
    resolution: Resolution | None = None
    grid: Floats | None = None


@dataclass(frozen=True)
class NonnegativeSum(Shifted):
    """The sum of nonnegative records, by shifted inverse sensitivity.

    It is near the sum without the tau largest records.

    Attributes:
        tau: at least 1, chosen without the data.
        upper: public, a multiple of the resolution: larger sums and larger records are clamped to
            it.
        resolution: the public resolution of the data.

    References:
        Fang, Dong and Yi (2022), shifted inverse mechanism.

    >>> hours = NonnegativeSum(1, upper=1000, resolution=1)
    >>> abs(float(hours.release([2] * 100, epsilon=64.0, neighbors="add_remove")) - 198) <= 1
    True
    """

    tau: int
    upper: float
    resolution: Resolution

    lower: ClassVar[int] = 0
    zero_of_nobody: ClassVar[bool] = True

    def _more(self, epsilon: Fraction) -> int:
        size = self.records_grid.size
        return min(self.tau + jumps.far_of(epsilon, size), size)

    def _distribution(self, counts: Counts, how: How) -> Runs:
        # The records that are ranked are the sums of the smallest ones
        if self._more(how.epsilon) > _SUMS:
            raise ValueError(
                "tau + 80 / epsilon, or the number of multiples up to upper, must be at most 2^24: "
                "use a larger epsilon or a coarser resolution."
            )
        size = self.records_grid.size
        far = jumps.far_of(how.epsilon, size)
        sums = jumps.sums_of_smallest(counts, size - 1, far, self.tau)
        return super()._distribution(sums, how)


@dataclass(frozen=True)
class DistinctCount(Shifted):
    """The number of distinct ids, one for each person, by shifted inverse sensitivity.

    It is near the number of ids that remain when tau people leave.

    Attributes:
        tau: at least 1, chosen without the data.
        upper: public, the largest possible count: larger ones are clamped to it.

    References:
        Fang, Dong and Yi (2022), shifted inverse mechanism.

    >>> kinds = DistinctCount(1, upper=100)
    >>> float(kinds.release(["a", "b", "b", "a"], epsilon=64.0, neighbors="add_remove"))
    2.0
    """

    tau: int
    upper: int

    lower: ClassVar[int] = 0
    resolution: ClassVar[int] = 1
    zero_of_nobody: ClassVar[bool] = True
    skips_missing: ClassVar[bool] = True

    def read(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return codes of the ids; records that are neither integers nor text are missing."""
        return codes_of(x)

    def _distribution(self, counts: Counts, how: How) -> Runs:
        # The records that are ranked are the numbers of ids up to each person, frequent ids first:
        # people with the rarest ids leave first, and the number of ids that remain is that of the
        # id of the last person who stays
        order = np.lexsort((-counts.counts, counts.group))
        number = np.arange(len(order)) - counts.starts[counts.group] + 1
        ids = Counts(counts.starts, np.minimum(number, self.upper), counts.counts[order])
        return super()._distribution(ids, how)


@dataclass(frozen=True)
class Mode(Statistic):
    """The most frequent of finitely many public candidates.

    Attributes:
        candidates: increasing finite numbers. Records that equal none are ignored.

    Privacy:
        Under add/remove all scores change in the same direction, by at most 1, so that half of the
        sensitivity is enough.

    References:
        McKenna and Sheldon (2020), permute and flip; McSherry and Talwar (2007).

    >>> rooms = Mode((1, 2, 3))
    >>> float(rooms.release([2, 2, 3] * 100, epsilon=64.0, neighbors="add_remove"))
    2.0
    """

    candidates: Any

    mechanisms: ClassVar[tuple[str, ...]] = ("permute_and_flip", "exponential")
    skips_missing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        increasing("candidates", self.candidates, 1)
        object.__setattr__(self, "candidates", tuple(self.candidates))

    @cached_property
    def records_grid(self) -> Points:
        """The candidates."""
        return Points(increasing("candidates", self.candidates, 1))

    def read(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Find the candidate that each record equals."""
        records, labels = as_floats(x), self.records_grid.values
        found = np.searchsorted(labels, records).clip(0, len(labels) - 1)
        return found, labels[found] == records

    def _more(self, epsilon: Fraction) -> int:
        return len(self.candidates)

    def _distribution(self, counts: Counts, how: How) -> Runs:
        size = self.records_grid.size
        scores = np.zeros((counts.groups, size), np.int64)
        scores[counts.group, counts.values] = counts.counts
        cost = np.max(scores, axis=1, keepdims=True) - scores
        first = np.tile(np.arange(size), counts.groups)
        best = self.records_grid.values_of(np.argmax(scores, axis=1))
        return Runs(
            np.arange(counts.groups + 1) * size,
            first,
            np.ones_like(first),
            cost.ravel(),
            how.epsilon if how.neighbors == "add_remove" else how.epsilon / 2,
            self.records_grid,
            best,
            how.mechanism,
        )


@dataclass(frozen=True)
class Sum(OnGrid):
    """The sum of bounded records, with discrete Laplace noise.

    The noise has the scale (upper - lower) / epsilon under swap, and max(abs(lower), abs(upper)) /
    epsilon under add/remove.

    Attributes:
        lower: public, a multiple of the resolution: smaller records are clamped to it.
        upper: public, a multiple of the resolution.
        resolution: the public resolution of the data.

    References:
        Ghosh, Roughgarden and Sundararajan (2009), the geometric mechanism.

    >>> sales = Sum(lower=0, upper=5, resolution=0.01)
    >>> sales.distribution([1.25] * 1000, epsilon=1.0, neighbors="add_remove").value
    array(1250.)
    """

    lower: float
    upper: float
    resolution: Resolution

    zero_of_nobody: ClassVar[bool] = True
    divided: ClassVar[bool] = False  # by the number of records

    def _distribution(self, counts: Counts, how: How) -> DiscreteLaplace:
        grid: Any = self.records_grid
        ends = abs(grid.start), abs(grid.start + grid.size - 1)
        most = grid.size - 1 if how.neighbors == "swap" else max(ends)
        multiples = counts.values + grid.start
        if max(ends) * counts.counts.sum(dtype=np.float64) >= LARGEST:
            multiples = multiples.astype(object)  # Python's integers do not overflow
        sums = np.clip(sums_of(multiples * counts.counts, counts.starts), -LARGEST, LARGEST)
        numbers = sums.astype(np.int64)
        parts = counts.totals if self.divided else 1
        unit = grid.resolution
        return DiscreteLaplace(
            numbers, how.epsilon / most, float(unit.numerator), parts * float(unit.denominator)
        )


@dataclass(frozen=True)
class Mean(Sum):
    """The mean, if the number of records is public (swap): the :class:`Sum` over that number.

    The mean of a group under add/remove is a :class:`Sum` and a :class:`Count`.

    >>> ages = Mean(lower=0, upper=120, resolution=1)
    >>> ages.distribution([31, 40, 28, 35], epsilon=1.0, neighbors="swap").value
    array(33.5)
    """

    relations: ClassVar[tuple[str, ...]] = ("swap",)
    zero_of_nobody: ClassVar[bool] = False
    divided: ClassVar[bool] = True

    def _count(self, *given: Any) -> tuple[Counts, tuple[int, ...]]:
        known, batch = super()._count(*given)
        if np.any(known.totals == 0):
            raise ValueError("a mean needs at least one record.")
        return known, batch


@dataclass(frozen=True)
class Count(Statistic):
    """The number of records that are numbers, with discrete Laplace noise of scale 1 / epsilon.

    >>> Count().distribution([31, 40, None], epsilon=1.0, neighbors="add_remove").value
    array(2.)
    """

    relations: ClassVar[tuple[str, ...]] = ("add_remove",)
    zero_of_nobody: ClassVar[bool] = True

    def read(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return position 0 for all records; NaN is a missing record."""
        records = as_floats(x)
        return np.zeros(records.shape, np.int64), ~np.isnan(records)

    def _distribution(self, counts: Counts, how: How) -> DiscreteLaplace:
        return DiscreteLaplace(self._numbers(counts), how.epsilon)

    def _numbers(self, counts: Counts) -> np.ndarray:
        return counts.totals


@dataclass(frozen=True)
class Histogram(Count):
    """The number of records in each bin.

    Attributes:
        edges: public, increasing: each bin includes its lower edge, and the last one its upper edge
            too.

    >>> Histogram([0, 10, 20]).bins
    2
    """

    edges: Any

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        increasing("edges", self.edges, 2)
        object.__setattr__(self, "edges", tuple(self.edges))

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.edges) - 1

    def read(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Find the bin of each record; records outside all bins are missing."""
        records, edges = as_floats(x), increasing("edges", self.edges, 2)
        inside = (records >= edges[0]) & (records <= edges[-1])
        return np.searchsorted(edges, records, "right").clip(1, self.bins) - 1, inside

    def _numbers(self, counts: Counts) -> np.ndarray:
        found = np.zeros((counts.groups, self.bins), np.int64)
        found[counts.group, counts.values] = counts.counts
        return found
