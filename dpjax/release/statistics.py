"""The statistics of a release: frozen dataclasses that hold only public parameters.

    counts --statistic--> profile --mechanism(epsilon)--> distribution
    distribution --> a release, or its error bars

Parameters are checked once, when the object is made. Statistics can be converted to and from JSON.

>>> ages = Median(lower=0, upper=120, resolution=1)
>>> counts = Counts.of_rows([0, 0, 0], [31, 40, 52], [3, 1, 2], groups=1)
>>> ages.distribution(counts, 4.0, "add_remove").mean_abs_error(31.0).round(2).tolist()
[3.01]
>>> Statistic.from_json(ages.to_json()) == ages
True
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.ledger import Budget, charge
from dpjax.checks import Resolution
from dpjax.release import profiles
from dpjax.release.chunks import in_threads
from dpjax.release.counts import MOST, Counts, sums_of
from dpjax.release.distribution import GridDistribution, Mechanism
from dpjax.release.exponentials import exact_epsilon
from dpjax.release.grid import Candidates, Floats, Multiples, grid_of, kind_of
from dpjax.release.integer_noise import CountDistribution
from dpjax.release.profiles import Profile
from dpjax.release.records import as_reals, codes_of, increasing
from dpjax.release.result import Release, cost_of, release_of
from dpjax.several_quantiles.ranks import Ranks, ranks_of_order_statistic, ranks_of_quantile

Definition = Literal["linear", "lower"]
ChoiceMechanism = Literal["exponential", "permute_and_flip"]
LEVELS = 2**40  # more than any number of records
_COUNTED = 2**53  # float64 holds all integers up to this
_ENTRIES = 2**17  # entries of counts processed together
_LEVELS = 2**22  # levels of profiles processed together
_FINER = ("ns", "ps", "fs", "as")  # finer than microseconds, the finest unit of Python's datetime


class Statistic:
    """The base class of all statistics, such as ``Median`` and ``Sum``.

    >>> Statistic.from_json('{"statistic": "Median", "lower": 0, "upper": 120, "resolution": 1}')
    Median(lower=0, upper=120, resolution=1, grid=None, definition='lower')
    """

    relations: ClassVar[tuple[str, ...]] = checks.NEIGHBORS
    mechanisms: ClassVar[tuple[str, ...]] = ()
    kinds: ClassVar[dict[str, Callable[..., Statistic]]] = {}  # all statistics by name

    def __init_subclass__(cls) -> None:
        """Register the statistic by its name, for :meth:`from_dict`."""
        if not cls.__name__.startswith("_"):
            Statistic.kinds[cls.__name__] = cls

    def read(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the position of each record, and which are present, in the shape of ``x``."""
        raise NotImplementedError

    def distribution(
        self,
        counts: Counts,
        epsilon: float | Fraction,
        neighbors: str,
        *,
        mechanism: str | None = None,
        batch_shape: Sequence[int] | None = None,
    ) -> Any:
        """Return the output distributions of a release of each group, for evaluation.

        They are functions of the data, without a privacy guarantee.

        Args:
            counts: the counts of the groups; under swap all groups have the same, public number of
                records.
            epsilon: the privacy loss of one draw, from 2^-30 to 64.
            neighbors: ``"add_remove"`` or ``"swap"``.
            mechanism: one of ``mechanisms``, by default the first.
            batch_shape: the shape of the groups, by default ``(groups,)``.
        """
        name, batch = (
            self.checked(neighbors, mechanism),
            (counts.groups,) if batch_shape is None else tuple(batch_shape),
        )
        self._refuse_many(counts, neighbors)
        return self._distribution(counts, exact_epsilon(epsilon), neighbors, name, batch)

    def release(
        self,
        counts: Counts,
        epsilon: float | Fraction,
        neighbors: str,
        *,
        mechanism: str | None = None,
        draws: int = 1,
        batch_shape: Sequence[int] | None = None,
        budget: Budget | None = None,
    ) -> Release:
        """Draw exactly ``draws`` times from each group.

        The other arguments are those of :meth:`distribution`. The cost of all draws from one group
        is charged to the budget, after all checks and before any draw.
        """
        name, batch = (
            self.checked(neighbors, mechanism),
            (counts.groups,) if batch_shape is None else tuple(batch_shape),
        )
        cost, number = exact_epsilon(epsilon), checks.static_integer("draws", draws, 1)
        self._refuse_many(counts, neighbors)
        if budget is not None:
            self.check(counts, cost, neighbors, name)
            self.charge(budget, cost, number, neighbors, name)
        return self._release(counts, cost, neighbors, name, number, batch)

    def charge(
        self,
        budget: Budget | None,
        epsilon: Fraction,
        draws: int,
        neighbors: str,
        mechanism: str | None = None,
    ) -> Guarantee:
        """Charge the budget, if there is one, for all draws together, and return what they cost."""
        guarantee = self.cost(epsilon, draws, neighbors, mechanism)
        charge(budget, guarantee, {"statistic": self.to_dict(), "draws": draws})
        return guarantee

    def check(self, counts: Counts, epsilon: Fraction, neighbors: str, mechanism: str) -> None:
        """Raise for public parameters for which :meth:`release` would raise.

        This happens before a budget is charged. Of the counts, only their number of records under
        swap is used, which is public.
        """
        self._distribution(counts.some(0, 0), epsilon, neighbors, mechanism, (0,))

    def _distribution(
        self,
        counts: Counts,
        epsilon: Fraction,
        neighbors: str,
        mechanism: str,
        batch: tuple[int, ...],
    ) -> Any:
        raise ValueError(
            f"{type(self).__name__} has no distribution in closed form: use its method sample."
        )

    def _release(
        self,
        counts: Counts,
        epsilon: Fraction,
        neighbors: str,
        mechanism: str,
        draws: int,
        batch: tuple[int, ...],
    ) -> Release:
        drawn, grids = np.zeros((draws, counts.groups), np.int64), []

        def some(first: int, last: int) -> None:
            found = self._distribution(
                counts.some(first, last), epsilon, neighbors, mechanism, (last - first,)
            )
            drawn[:, first:last] = found.positions(draws)
            grids.append(found.grid)

        # Permute and flip has a piece for each level. Their number may depend on the data, but this
        # bound on it does not.
        levels = 2 * profiles.levels_needed(epsilon) if mechanism == "permute_and_flip" else 1
        in_threads(some, _in_cache(counts, max(_LEVELS // levels, 1)))
        return release_of(
            drawn.reshape(draws, *batch), grids[0], self.cost(epsilon, draws, neighbors, mechanism)
        )

    def _refuse_many(self, counts: Counts, neighbors: str) -> None:
        """Raise for more records than are counted without a limit on equal ones, under swap.

        There the number of records is public, and must be the same for neighbors.
        """
        most = self._most_records()
        if neighbors == "swap" and np.max(counts.totals, initial=0) > most:
            raise ValueError(f"at most {most} records are supported under swap neighbors.")

    def _most_records(self) -> int:
        """Return the largest number of equal records that are all counted."""
        return MOST - 1

    def near(self, n: int, epsilon: float, neighbors: str) -> tuple[int, int] | None:
        """Return the first and the last rank that matter among n records; None means all."""
        return None

    def checked(self, neighbors: str, mechanism: str | None) -> str:
        """Return the mechanism, by default the first one of this statistic.

        Raises:
            ValueError: if the statistic does not have the mechanism or the neighbor relation.
        """
        checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
        if neighbors not in self.relations:
            instead = " By group use a median, or nonnegative_sum and count."
            raise ValueError(
                f"neighbors must be {self.relations[0]!r} for {type(self).__name__}, got "
                f"{neighbors!r}.{instead if neighbors == 'add_remove' else ''}"
            )
        if mechanism is not None and not self.mechanisms:
            raise ValueError(
                f"{type(self).__name__} has only one mechanism: mechanism must be None, got "
                f"{mechanism!r}."
            )
        if not self.mechanisms:
            return ""
        return checks.one_of(
            "mechanism", self.mechanisms[0] if mechanism is None else mechanism, self.mechanisms
        )

    def cost(
        self, epsilon: float | Fraction, draws: int, neighbors: str, mechanism: str | None = None
    ) -> Guarantee:
        """Return the guarantee of all draws together."""
        return cost_of(epsilon, draws, neighbors, 2 if mechanism == "permute_and_flip" else 1)

    def value(self, counts: Counts) -> np.ndarray:
        """Return the exact statistic of each group, float64, for evaluation: it is private."""
        return self.distribution(counts, 1.0, self.relations[-1]).value

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as numbers, text and lists for :mod:`json`, without defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        defaults = {field.name: field.default for field in fields(self)}  # type: ignore[arg-type]
        changed = {
            name: _plain(value)
            for name, value in values.items()
            if defaults[name] is MISSING or value != defaults[name]
        }
        return {"statistic": type(self).__name__, **changed}

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict())

    @staticmethod
    def from_dict(given: dict[str, Any]) -> Statistic:
        """Return the statistic that :meth:`to_dict` describes."""
        if not isinstance(given, dict) or not isinstance(given.get("statistic"), str):
            raise ValueError(
                "a statistic must be a dictionary as to_dict returns it, with a 'statistic' name, "
                f"got {given!r}."
            )
        parameters = dict(given)
        kind = checks.one_of("statistic", parameters.pop("statistic"), Statistic.kinds)
        return Statistic.kinds[kind](
            **{name: _from_plain(value) for name, value in parameters.items()}
        )

    @staticmethod
    def from_json(text: str) -> Statistic:
        """Return the statistic that :meth:`to_json` describes."""
        return Statistic.from_dict(json.loads(text))

    def _settle(self) -> None:
        """Replace lists by tuples and text such as "1/10" by fractions.

        Equal objects then compare equal.
        """
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, np.datetime64 | np.timedelta64):
                value = (
                    value.astype(f"{value.dtype.kind}8[us]")
                    if np.datetime_data(value.dtype)[0] in _FINER
                    else value
                )
            if isinstance(value, np.ndarray | np.generic):
                value = value.tolist()
            if isinstance(value, str) and "/" in value:
                value = checks.exact(value) or value
            if isinstance(value, range | list):
                value = tuple(value)
            if isinstance(value, tuple):
                value = tuple(
                    (checks.exact(v) or v) if isinstance(v, str) and "/" in v else v for v in value
                )
            object.__setattr__(self, field.name, value)


def _from_plain(value: Any) -> Any:
    """Return the grid, date, time or duration that :func:`_plain` wrote.

    Other values are returned unchanged.
    """
    if not isinstance(value, dict):
        return value
    if set(value) == {"microseconds"}:
        return datetime.timedelta(microseconds=value["microseconds"])
    kinds: Any = {"date": datetime.date, "datetime": datetime.datetime, "time": datetime.time}
    if len(value) == 1 and (kind := kinds.get(next(iter(value)))):
        return kind.fromisoformat(next(iter(value.values())))
    return Floats(**value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return {"microseconds": value // datetime.timedelta(microseconds=1)}
    if (kind := kind_of(value)) is not None:
        return {kind.lower(): value.isoformat()}
    if isinstance(value, Floats):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, Fraction) else value


class _OnGrid(Statistic):
    """A statistic whose values and records lie on a public grid."""

    mechanisms: ClassVar[tuple[str, ...]] = get_args(Mechanism)

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        self._settle()
        if max(abs(end) for end in self._ends(self.values_grid())) > _COUNTED:
            raise ValueError(
                "resolution is too fine for a float: use a coarser resolution, or bounds closer to "
                "0."
            )

    @staticmethod
    def _ends(grid: Multiples | Floats) -> tuple[int, int]:
        return grid.start, grid.start + grid.size - 1

    @cached_property
    def records_grid(self) -> Multiples | Floats:
        """The grid that records are rounded to."""
        given: Any = self
        return grid_of(given.lower, given.upper, given.resolution, given.grid)

    def values_grid(self, n: int = 1) -> Multiples | Floats:
        """Return the grid of the released values, for n records where their number is public."""
        return self.records_grid

    def read(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Round each record to the grid; NaN is a missing record."""
        return self.records_grid.numbers_of(x)

    def profile(self, counts: Counts, neighbors: str, most: int = LEVELS) -> Profile:
        """Return the values that the statistic of each group can take, up to ``most`` changes.

        After these it can take any value. Under swap all groups have the same, public number of
        records.
        """
        raise NotImplementedError

    def _distribution(
        self,
        counts: Counts,
        epsilon: Fraction,
        neighbors: str,
        mechanism: str,
        batch: tuple[int, ...],
    ) -> GridDistribution:
        profile = self.profile(counts, neighbors, profiles.levels_needed(epsilon))
        values = self.values_grid(max(_public_size(counts), 1) if neighbors == "swap" else 1)
        return GridDistribution.of(profile, epsilon, values, mechanism, batch)


def _in_cache(counts: Counts, most: int) -> list[tuple[int, int]]:
    """Split the groups into ranges with at most ``most`` groups and few enough entries.

    There is at least one range.
    """
    ends = (
        np.searchsorted(counts.starts, np.arange(_ENTRIES, counts.starts[-1], _ENTRIES), "right")
        - 1
    )
    cuts = sorted({*range(0, counts.groups, most), 0, *ends.tolist(), counts.groups})
    return list(itertools.pairwise(cuts)) or [(0, 0)]


def _public_size(counts: Counts) -> int:
    """Return the number of records of each group, where all have the same public number."""
    return int(np.max(counts.totals, initial=0))


class ByRank(_OnGrid):
    """A statistic that is one record, or interpolates between two, by rank."""

    def ranks(self, neighbors: str) -> Ranks:
        """Return the ranks that the profile reads."""
        raise NotImplementedError

    def near(self, n: int, epsilon: float, neighbors: str) -> tuple[int, int] | None:
        """Return the first and the last rank that matter among n records."""
        return profiles.near_ranks(
            self.ranks(neighbors), n, profiles.levels_needed(exact_epsilon(epsilon))
        )

    def profile(self, counts: Counts, neighbors: str, most: int = LEVELS) -> Profile:
        """Return the values that each group's statistic can take; after ``most`` changes any."""
        return profiles.quantile(
            counts, self.ranks(neighbors), high=self.records_grid.size - 1, most=most
        )


class _OfLevel(ByRank):
    """A quantile."""

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        given: Any = self
        checks.one_of("definition", given.definition, get_args(Definition))
        if given.grid is not None and given.definition == "linear":
            raise ValueError(
                "a grid of floats has no values between records: definition must be 'lower'."
            )
        denominator = self.ranks("add_remove").denominator
        # Whatever the number of records, which may be private: ranks are 64-bit integers
        if denominator >= 2**22:
            raise ValueError(
                f"q has the denominator {denominator}, too large for exact ranks: use a short "
                "decimal or a Fraction such as Fraction(1, 3)."
            )
        super().__post_init__()

    def ranks(self, neighbors: Any) -> Ranks:
        """Return the ranks that the profile reads."""
        given: Any = self
        return ranks_of_quantile(given.q, definition=given.definition, neighbors=neighbors)

    def values_grid(self, n: int = 1) -> Multiples | Floats:
        """Return the grid of the released values.

        Between two records lie multiples of the resolution divided by the denominator of q.
        """
        refined, grid = self.ranks("add_remove").refinement, self.records_grid
        return (
            grid.times(refined, grid.resolution / refined) if isinstance(grid, Multiples) else grid
        )


@dataclass(frozen=True)
class Median(_OfLevel):
    """The median.

    Attributes:
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: the public resolution of the data: 1 for integers, 0.01 for cents; 0.1 is 1/10.
        grid: instead of these three, if no bounds are known: :class:`Floats`.
        definition: ``"lower"``, the record x[ceil(n/2)], or ``"linear"``, the midpoint median, a
            multiple of half the resolution.

    >>> Median(lower=0, upper=120, resolution=1).to_dict()
    {'statistic': 'Median', 'lower': 0, 'upper': 120, 'resolution': 1}
    """

    q: ClassVar[Fraction] = Fraction(1, 2)
    lower: float | None = None
    upper: float | None = None
    resolution: Resolution | None = None
    grid: Floats | None = None
    definition: Definition = "lower"


@dataclass(frozen=True)
class Quantile(_OfLevel):
    """The q-quantile, for q strictly between 0 and 1.

    Attributes:
        q: a short decimal or a Fraction; the other attributes are those of :class:`Median`.

    >>> Quantile("9/10", lower=0, upper=120, resolution=1).to_dict()
    {'statistic': 'Quantile', 'q': '9/10', 'lower': 0, 'upper': 120, 'resolution': 1}
    """

    q: float | Fraction | str
    lower: float | None = None
    upper: float | None = None
    resolution: Resolution | None = None
    grid: Floats | None = None
    definition: Definition = "lower"


@dataclass(frozen=True)
class OrderStatistic(ByRank):
    """The record of a fixed rank.

    Attributes:
        rank: at least 1; the other attributes are those of :class:`Median`.

    >>> OrderStatistic(3, lower=0, upper=120, resolution=1).to_dict()
    {'statistic': 'OrderStatistic', 'rank': 3, 'lower': 0, 'upper': 120, 'resolution': 1}
    """

    rank: int
    lower: float | None = None
    upper: float | None = None
    resolution: Resolution | None = None
    grid: Floats | None = None

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        super().__post_init__()
        self.ranks("swap")

    def ranks(self, neighbors: str) -> Ranks:
        """Return the ranks that the profile reads."""
        return ranks_of_order_statistic(self.rank, 2**40)


class _Shifted(_OnGrid):
    """A statistic by shifted inverse sensitivity (Steinke 2023).

    It is centered where tau people have left.
    """

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        given: Any = self
        checks.shift(given.tau)
        super().__post_init__()

    def value(self, counts: Counts) -> np.ndarray:
        """Return the exact statistic of each group, float64, which the distribution stays below."""
        numbers = self._numbers(counts)
        grid = self.records_grid
        return np.asarray(grid.values_of(np.minimum(numbers, grid.size - 1)))

    def _numbers(self, counts: Counts) -> np.ndarray:
        """Return the statistic of each group as a position."""
        raise NotImplementedError


@dataclass(frozen=True)
class Maximum(_Shifted, ByRank):
    """The largest record, by shifted inverse sensitivity: near the (tau + 1)-th largest.

    Attributes:
        tau: at least 1, chosen without the data; the other attributes are those of :class:`Median`.

    >>> Maximum(10, lower=0, upper=120, resolution=1).to_dict()
    {'statistic': 'Maximum', 'tau': 10, 'lower': 0, 'upper': 120, 'resolution': 1}
    """

    tau: int
    lower: float | None = None
    upper: float | None = None
    resolution: Resolution | None = None
    grid: Floats | None = None

    def ranks(self, neighbors: str) -> Ranks:
        """Return the ranks that the profile reads: at level 0, the tau-th before the last."""
        return Ranks(per_record=1, constant=-self.tau, step=1, denominator=1, definition="lower")

    def _numbers(self, counts: Counts) -> np.ndarray:
        filled = np.diff(counts.starts) > 0
        return np.where(
            filled, np.append(counts.values, 0)[np.maximum(counts.starts[1:] - 1, 0)], 0
        )


class _FromZero(_Shifted):
    """A shifted statistic with values from 0 to ``upper``."""

    lower: ClassVar[int] = 0
    grid: ClassVar[None] = None


@dataclass(frozen=True)
class NonnegativeSum(_FromZero):
    """The sum of nonnegative records, by shifted inverse sensitivity.

    It is near the sum without the tau largest records.

    Attributes:
        tau: at least 1, chosen without the data.
        upper: public, a multiple of the resolution: larger sums and larger records are clamped to
            it.
        resolution: the public resolution of the data.

    >>> NonnegativeSum(10, upper=1000, resolution=1).to_dict()
    {'statistic': 'NonnegativeSum', 'tau': 10, 'upper': 1000, 'resolution': 1}
    """

    tau: int
    upper: float
    resolution: Resolution

    def profile(self, counts: Counts, neighbors: str, most: int = LEVELS) -> Profile:
        """Return the values that the statistic of each group can take, up to ``most`` changes."""
        return profiles.nonnegative_sum(
            counts, self.tau, high=self.records_grid.size - 1, most=most
        )

    def _numbers(self, counts: Counts) -> np.ndarray:
        high = self.records_grid.size - 1
        return sums_of(
            np.minimum(counts.counts, high // np.maximum(counts.values, 1) + 1) * counts.values,
            counts.starts,
        )


@dataclass(frozen=True)
class DistinctCount(_FromZero):
    """The number of distinct ids, one for each person, by shifted inverse sensitivity.

    It is near the number of ids that remain when tau people leave.

    Attributes:
        tau: at least 1, chosen without the data.
        upper: public, the largest possible count: larger ones are clamped to it.

    >>> DistinctCount(10, upper=1000).to_dict()
    {'statistic': 'DistinctCount', 'tau': 10, 'upper': 1000}
    """

    tau: int
    upper: int

    resolution: ClassVar[int] = 1

    def read(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return integer codes of the ids.

        Records that are neither integers nor text are missing.
        """
        return codes_of(x)

    def profile(self, counts: Counts, neighbors: str, most: int = LEVELS) -> Profile:
        """Return the values that the statistic of each group can take, up to ``most`` changes."""
        return profiles.distinct_count(counts, self.tau, high=self.records_grid.size - 1, most=most)

    def _numbers(self, counts: Counts) -> np.ndarray:
        return np.diff(counts.starts)


@dataclass(frozen=True)
class Sum(_OnGrid):
    """The sum, if the number of records is public (swap).

    Attributes:
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: the public resolution of the data.

    >>> Sum(lower=0, upper=120, resolution=1).to_dict()
    {'statistic': 'Sum', 'lower': 0, 'upper': 120, 'resolution': 1}
    """

    lower: float
    upper: float
    resolution: Resolution

    relations: ClassVar[tuple[str, ...]] = ("swap",)
    grid: ClassVar[None] = None

    def values_grid(self, n: int = 1) -> Multiples:
        """Return the grid of the released values, for n records."""
        found = self._records().times(n, self._records().resolution)
        if max(abs(end) for end in self._ends(found)) > _COUNTED:
            raise ValueError(
                f"a float cannot count the sum of {n} records: use a coarser resolution, or bounds "
                "closer to 0."
            )
        return found

    def _records(self) -> Multiples:
        found: Any = self.records_grid
        return found

    def release(
        self, counts: Counts, epsilon: float | Fraction, neighbors: str, **options: Any
    ) -> Release:
        """Draw exactly from each group; all groups have the same, public number of records."""
        if counts.groups and np.any(counts.totals != counts.totals[0]):
            raise ValueError(
                "sums and means need the same public number of records in all groups: release "
                "other groups separately."
            )
        return super().release(counts, epsilon, neighbors, **options)

    def profile(self, counts: Counts, neighbors: str, most: int = LEVELS) -> Profile:
        """Return the values that the statistic of each group can take, up to ``most`` changes."""
        return profiles.sum_of_records(
            counts, self._public_n(counts), high=self.records_grid.size - 1, most=most
        )

    def _public_n(self, counts: Counts) -> int:
        """Return the number of records of each group, at least 1.

        Raises:
            ValueError: if there are no records, or too many to count their sum.
        """
        n = _public_size(counts)
        if n == 0 and counts.groups:
            raise ValueError("a sum or mean needs at least one record.")
        self.values_grid(max(n, 1))
        return max(n, 1)

    def check(self, counts: Counts, epsilon: Fraction, neighbors: str, mechanism: str) -> None:
        """Raise for public parameters for which :meth:`release` would raise."""
        self._public_n(counts)
        super().check(counts, epsilon, neighbors, mechanism)


@dataclass(frozen=True)
class Mean(Sum):
    """The mean, if the number of records is public (swap): the :class:`Sum` divided by that number.

    >>> Mean(lower=0, upper=120, resolution=1).to_dict()
    {'statistic': 'Mean', 'lower': 0, 'upper': 120, 'resolution': 1}
    """

    def values_grid(self, n: int = 1) -> Multiples:
        """Return the grid of the released values, for n records."""
        sums = super().values_grid(n)
        return Multiples(sums.resolution / n, sums.start, sums.size)


class _Counted(Statistic):
    """A statistic that counts records, with discrete Laplace noise, under add/remove."""

    relations: ClassVar[tuple[str, ...]] = ("add_remove",)

    def cost(
        self, epsilon: float | Fraction, draws: int, neighbors: str, mechanism: str | None = None
    ) -> Guarantee:
        """Return the guarantee of all draws together."""
        return cost_of(epsilon, draws, neighbors, ranges=2)

    def numbers(self, counts: Counts) -> np.ndarray:
        """Return the counts, int64 ``(groups,)``, or with a last axis of bins."""
        raise NotImplementedError

    def _distribution(
        self,
        counts: Counts,
        epsilon: Fraction,
        neighbors: str,
        mechanism: str,
        batch: tuple[int, ...],
    ) -> CountDistribution:
        numbers = self.numbers(counts)
        return CountDistribution(numbers.reshape(batch + numbers.shape[1:]), epsilon)

    def _release(
        self,
        counts: Counts,
        epsilon: Fraction,
        neighbors: str,
        mechanism: str,
        draws: int,
        batch: tuple[int, ...],
    ) -> Release:
        drawn = self._distribution(counts, epsilon, neighbors, mechanism, batch).positions(draws)
        return Release(
            drawn.astype(np.float64), drawn, Fraction(1), self.cost(epsilon, draws, neighbors)
        )


@dataclass(frozen=True)
class Count(_Counted):
    """The number of records that are numbers.

    >>> Count().to_dict()
    {'statistic': 'Count'}
    """

    def read(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return position 0 for all records; NaN is a missing record."""
        records = as_reals(x)
        with np.errstate(invalid="ignore"):  # a signaling NaN
            return np.zeros(records.shape, np.int64), (records >= -math.inf).astype(bool)

    def numbers(self, counts: Counts) -> np.ndarray:
        """Return the counts, int64 ``(groups,)``."""
        return counts.totals


@dataclass(frozen=True)
class Histogram(_Counted):
    """The number of records in each bin, or of those that equal each candidate.

    Attributes:
        edges: public, increasing: each bin includes its lower edge, and the last one its upper edge
            too.
        candidates: public, finite and increasing: instead of ``edges``.

    >>> Histogram([0, 10, 20]).to_dict()
    {'statistic': 'Histogram', 'edges': [0, 10, 20]}
    """

    edges: Any = None
    candidates: Any = None

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        self._settle()
        if (self.edges is None) == (self.candidates is None):
            raise ValueError("a histogram needs exactly one of edges and candidates.")
        if self.edges is not None:
            increasing("edges", self.edges, 2)
        else:
            increasing("candidates", self.candidates, 1)

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.candidates) if self.edges is None else len(self.edges) - 1

    def read(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the bin of each record; records outside all bins are missing."""
        records = as_reals(x)
        if self.edges is None:
            return equal_to(records, increasing("candidates", self.candidates, 1).tolist())
        edges = increasing("edges", self.edges, 2)
        edges[-1] = np.nextafter(edges[-1], np.inf)
        found = np.full(records.shape, -1, np.int64)
        with np.errstate(invalid="ignore"):
            for edge in edges:
                found += (records >= edge).astype(bool)
            return found.clip(0, self.bins - 1), (records >= edges[0]).astype(bool) & (
                found < self.bins
            )

    def numbers(self, counts: Counts) -> np.ndarray:
        """Return the counts, int64 ``(groups, bins)``."""
        found = np.zeros((counts.groups, self.bins), np.int64)
        found[counts.group, counts.values] = counts.counts
        return found


@dataclass(frozen=True)
class Mode(Statistic):
    """The most frequent of finitely many public candidates, by the exponential mechanism.

    Attributes:
        candidates: increasing finite numbers that float64 holds. Records that equal none are
            ignored.
        resolution: if not None, the candidates are multiples of it, and records are rounded to its
            multiples.

    >>> Mode([1, 2, 3]).to_dict()
    {'statistic': 'Mode', 'candidates': [1, 2, 3]}
    """

    candidates: Any
    resolution: Resolution | None = None

    mechanisms: ClassVar[tuple[str, ...]] = get_args(ChoiceMechanism)

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        candidates = list(self.candidates)
        self._settle()
        for number, label in zip(
            candidates, increasing("candidates", candidates, 1).tolist(), strict=True
        ):
            if isinstance(number, (int, np.integer)) and int(number) != label:
                raise ValueError(f"candidates must be numbers that float64 holds, got {number}.")
        if self.resolution is not None:
            checks.resolution(self.resolution, (np.asarray(candidates),), 2**51)

    def read(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the candidate that each record equals.

        Integers are compared exactly, of any size.
        """
        labels = increasing("candidates", self.candidates, 1).tolist()
        if self.resolution is None:
            return equal_to(as_reals(x), labels)
        step = checks.resolution(self.resolution, (), 0)
        exact = [Fraction(str(label)) for label in self.candidates]
        # Clamped records equal no candidate
        grid = Multiples.between(exact[0] - step, exact[-1] + step, step)
        cells, present = grid.numbers_of(x)
        found, equal = equal_to(cells, [float(label / step - grid.start) for label in exact])
        return found, equal & present

    def _distribution(
        self,
        counts: Counts,
        epsilon: Fraction,
        neighbors: str,
        mechanism: str,
        batch: tuple[int, ...],
    ) -> GridDistribution:
        scores = np.zeros((counts.groups, len(self.candidates)), np.int64)
        scores[counts.group, counts.values] = counts.counts
        # Half of the sensitivity is enough where all scores change in the same direction.
        sensitivity = Fraction(1, 2) if neighbors == "add_remove" else Fraction(1)
        labels = increasing("candidates", self.candidates, 1)
        return choice_of(scores, epsilon, sensitivity, mechanism, Candidates(labels), batch)


def choice_of(
    scores: np.ndarray,
    epsilon: float | Fraction,
    sensitivity: Fraction,
    mechanism: str,
    grid: Candidates,
    batch_shape: Sequence[int],
) -> GridDistribution:
    """Return the distributions of a selection mechanism on integer scores ``(groups, k)``.

    The mechanism is permute and flip, or the exponential mechanism.
    """
    sharp = exact_epsilon(epsilon) / sensitivity
    try:
        exact_epsilon(sharp)
    except ValueError as error:
        raise ValueError(f"epsilon / sensitivity is out of range: {error}") from error
    costs = scores.max(axis=-1, keepdims=True) - scores
    name = "permute_and_flip" if mechanism == "permute_and_flip" else "piecewise_laplace"
    return GridDistribution.of(Profile.of_costs(costs), sharp, grid, name, batch_shape)


def equal_to(records: np.ndarray, labels: Iterable[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the label that each record equals exactly, and whether it equals one.

    Integers are compared as integers, which floats would round.
    """
    found, present = np.zeros(records.shape, np.int64), np.zeros(records.shape, bool)
    for number, label in enumerate(labels):
        if records.dtype.kind in "iu":
            same = (
                records == int(label)
                if float(label).is_integer()
                else np.zeros(records.shape, bool)
            )
        else:
            with np.errstate(invalid="ignore"):  # a signaling NaN
                same = (
                    records == (label if records.dtype.kind == "O" else np.float64(label))
                ).astype(bool)
        found[same], present = number, present | same
    return found, present
