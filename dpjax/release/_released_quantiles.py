"""Exact releases of several quantiles, on the host: the statistic object and functions.

The distributions are those of ``dpjax.joint_quantiles``, ``dpjax.nested_quantiles`` and
``dpjax.recursive_quantiles``; ``exact_joint``, ``exact_nested`` and ``exact_recursive`` draw from
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, log
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.ledger import Budget
from dpjax.checks import Neighbors, Resolution
from dpjax.release import profiles
from dpjax.release.api import counts_of
from dpjax.release.counts import MOST, Counts, cap_of
from dpjax.release.entropy import More, further_word, seeded, system_words
from dpjax.release.exact_chain import Parameters
from dpjax.release.exact_joint import draw_quantiles, memory_for
from dpjax.release.exact_nested import Nested, least_epsilon
from dpjax.release.exact_recursive import draw_recursively
from dpjax.release.exponentials import exact_epsilon
from dpjax.release.grid import Floats, Multiples, grid_of
from dpjax.release.records import shape_of
from dpjax.release.result import Release, cost_of, release_of
from dpjax.release.statistics import Statistic
from dpjax.several_quantiles.halving import Costs, depths_of
from dpjax.several_quantiles.levels import level_parts, levels_of, log_parts
from dpjax.several_quantiles.nesting import Nesting
from dpjax.several_quantiles.ranks import ranks_of_quantile

# For each quantile, the best tuple may have a share of about 2^-(bits of the grid + bits of
# max_records) of the total weight. Beyond this many bits, with up to a million records, it
# underflows in floats if many records are equal, and exact draws take minutes.
_BITS_OF_PARTS, _BITS = 21, 960
# The number of levels up to which a joint draw is the default, and that from which on nested
# quantiles err less than recursive ones.
_JOINT, _NESTED = 32, 9
_MEMORY = 2**28  # numbers that a joint draw may need for a group of private size: 2 GiB
Method = Literal["auto", "joint", "nested", "recursive"]


@dataclass(frozen=True)
class Quantiles(Statistic):
    """Several quantiles under one budget.

    Attributes:
        qs: levels in (0, 1), ascending.
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: the public resolution of the data.
        grid: a :class:`Floats`, in place of the bounds and the resolution.
        method: ``"joint"``, one draw of all quantiles; ``"nested"``, some of them jointly and then
            those between; ``"recursive"``, the middle one first; or ``"auto"``, as for
            :func:`private_quantiles`.
        max_records: a public guess of the number of records of the largest group, for joint
            quantiles under add/remove. It affects the error, not privacy.
        reach: the largest distance of terms from the number of records, public; by default that for
            ``max_records`` records.
        terms: the number of terms, at least 2.

    >>> Quantiles((0.25, 0.75), lower=0, upper=120, resolution=1).to_dict()["qs"]
    [0.25, 0.75]
    """

    qs: Any
    lower: float | None = None
    upper: float | None = None
    resolution: Resolution | None = None
    grid: Floats | None = None
    method: Method = "joint"
    max_records: int | None = None
    reach: int | None = None
    terms: int = 32

    mechanisms: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Raise for public parameters out of range."""
        checks.one_of("method", self.method, get_args(Method))
        for name, least in (("max_records", 1), ("reach", 0)):
            if getattr(self, name) is not None:
                checks.static_integer(name, getattr(self, name), least, MOST)
        checks.static_integer("terms", self.terms, 2, 2**16)
        if not isinstance(self.qs, str):
            object.__setattr__(
                self, "qs", tuple(self.qs) if isinstance(self.qs, Iterable) else self.qs
            )
        methods = ("nested", "recursive") if self.method == "auto" else (self.method,)
        problems = [self._problem(method) for method in methods]
        if all(problems):
            raise ValueError(problems[-1])
        self._settle()

    def _problem(self, method: str) -> str:
        """Return an error message if this method cannot draw these levels on this grid, else ""."""
        levels, size = self.levels, self.records_grid.size
        if method == "nested" and len(levels) < 3:
            return (
                f"qs must have at least 3 levels for nested quantiles, got {len(levels)}: use "
                "dpjax.release.joint_quantiles."
            )
        most = _BITS // (size.bit_length() + _BITS_OF_PARTS)
        if method == "joint" and len(levels) > most:
            other = "nested" if len(levels) > 2 else "recursive"
            return (
                f"{len(levels)} quantiles on a grid of {size} numbers are too many for one draw, "
                f"at most {most}: use dpjax.release.{other}_quantiles, or a coarser resolution."
            )
        if method == "nested" and (together := Nesting.of(levels).most) > most:
            return (
                f"{len(levels)} nested quantiles on a grid of {size} numbers are too many: "
                f"{together} are drawn together, at most {most} are supported. Use "
                "dpjax.release.recursive_quantiles, or a coarser resolution."
            )
        if method == "joint":
            return ""
        parts = [part.level.denominator for some in depths_of(levels, "swap") for part in some]
        denominator = level_parts(levels)[1] if method == "nested" else max(parts)
        # Ranks are 64-bit integers for every number of records, which may be private.
        return "" if denominator < 2**22 else (
            f"qs lead to ranks with the denominator {denominator}, too large for exact ranks: use "
            "short decimals or Fractions such as Fraction(1, 3)."
        )  # fmt: skip

    def drawn_by(self, neighbors: str, epsilon: Fraction) -> str:
        """Return the method, where ``"auto"`` is resolved by public numbers."""
        if self.method != "auto":
            return self.method
        m, sized = (
            len(self.levels),
            neighbors == "swap" or self.max_records is not None or self.reach is not None,
        )
        jointly = m == 1 or (m <= _JOINT and sized and not self._problem("joint"))
        if jointly and not self._too_large(epsilon, neighbors):
            return "joint"
        enough = epsilon >= least_epsilon(self.levels, neighbors, False)
        nested = (m >= _NESTED and enough and not self._problem("nested")) or self._problem(
            "recursive"
        )
        return "nested" if nested else "recursive"

    @cached_property
    def levels(self) -> tuple[Fraction, ...]:
        """The levels as Fractions."""
        return levels_of(self.qs)

    @cached_property
    def records_grid(self) -> Multiples | Floats:
        """The values that records are rounded to."""
        return grid_of(self.lower, self.upper, self.resolution, self.grid)

    def read(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Round each record to the grid; NaN is absent."""
        return self.records_grid.numbers_of(x)

    def _release(
        self,
        counts: Counts,
        epsilon: Fraction,
        neighbors: str,
        mechanism: str,
        draws: int,
        batch: tuple[int, ...],
    ) -> Release:
        return self.draw(counts, epsilon, neighbors, draws, batch, None)

    def draw(
        self,
        counts: Counts,
        epsilon: Fraction,
        neighbors: str,
        draws: int,
        batch: tuple[int, ...],
        sizes: np.ndarray | None,
        budget: Budget | None = None,
    ) -> Release:
        """Draw from each group of counts exactly.

        ``sizes`` are public numbers of records, int64 ``(groups,)``, or None.
        """
        if budget is not None:
            self.check(counts, epsilon, neighbors, "", sizes is not None)
            self.charge(budget, epsilon, draws, neighbors)
        found = self._draw(counts, epsilon, neighbors, draws, sizes)
        shaped = found.reshape(draws, *batch, len(self.levels))
        return release_of(shaped, self.records_grid, self.cost(epsilon, draws, neighbors))

    def sample(
        self,
        seed: int | np.random.Generator,
        draws: int,
        counts: Counts,
        epsilon: float | Fraction,
        neighbors: str,
    ) -> np.ndarray:
        """Draw for a simulation, by a seed or a NumPy generator: float64 ``(draws, groups, m)``."""
        return self.records_grid.values_of(
            self._draw(counts, exact_epsilon(epsilon), neighbors, draws, None, *seeded(seed))
        )

    def cost(
        self, epsilon: float | Fraction, draws: int, neighbors: str, mechanism: str | None = None
    ) -> Guarantee:
        """Return the cost of this many draws together."""
        several = (
            len(self.levels) > 1 and self.drawn_by(neighbors, exact_epsilon(epsilon)) != "joint"
        )
        # The range of several draws in sequence is twice epsilon
        return cost_of(epsilon, draws, neighbors, 2 if several else 1)

    def value(self, counts: Counts) -> np.ndarray:
        """Return the quantiles of the data, float64 ``(groups, m)``."""
        high = self.records_grid.size - 1
        ranks = [
            ranks_of_quantile(level, definition="lower", neighbors="add_remove")
            for level in self.levels
        ]
        found = [profiles.quantile(counts, each, high=high, most=1).value for each in ranks]
        return self.records_grid.values_of(np.stack(found, axis=-1))

    def _draw(
        self,
        counts: Counts,
        epsilon: Fraction,
        neighbors: str,
        draws: int,
        sizes: np.ndarray | None,
        words: Any = system_words,
        more: More = further_word,
    ) -> np.ndarray:
        """Draw positions, int64 ``(draws, groups, m)``."""
        size, method = self.records_grid.size, self.drawn_by(neighbors, epsilon)
        self._refuse_many(counts, neighbors)
        if method == "recursive":
            return draw_recursively(
                self.levels, counts, size, epsilon, neighbors, draws, words, more
            )
        counts = countable(counts, size)
        if method == "joint" and neighbors == "add_remove":
            guess = self.max_records if sizes is None else sizes[counts.group]
            counts = counts if guess is None else counts.at_most(cap_of(guess))
        if method == "nested":
            return self._nested(epsilon, neighbors, sizes is not None).draw(
                counts, draws, sizes, words, more
            )
        return draw_quantiles(
            self._parameters(counts, epsilon, neighbors, sizes is not None),
            counts,
            draws,
            sizes,
            words,
            more,
        )

    def _most_records(self) -> int:
        return most_countable(self.records_grid.size)

    def check(
        self,
        counts: Counts,
        epsilon: Fraction,
        neighbors: str,
        mechanism: str,
        size_is_public: bool = False,
    ) -> None:
        """Raise for public parameters for which :meth:`release` would raise."""
        self._refuse_many(counts, neighbors)
        method = self.drawn_by(neighbors, epsilon)
        if method == "recursive":
            depths = depths_of(self.levels, neighbors)
            cost = Costs.of(len(depths), tied=True)
            for parts in depths:
                exact_epsilon(epsilon * cost.draw * parts[0].share)
        elif method == "nested":
            self._nested(epsilon, neighbors, size_is_public)
        else:
            self._parameters(counts, epsilon, neighbors, size_is_public)

    def _nested(self, epsilon: Fraction, neighbors: str, size_is_public: bool) -> Nested:
        """Return the public parameters of nested draws; raise if epsilon is too small for them."""
        return Nested(self.levels, self.records_grid.size, epsilon, neighbors, size_is_public)

    def _parameters(
        self, counts: Counts, epsilon: Fraction, neighbors: str, size_is_public: bool
    ) -> Parameters:
        """Return the public parameters of the joint distribution.

        Raise ``ValueError`` if a group of private size may need too much memory.
        """
        if not size_is_public and self._too_large(epsilon, neighbors):
            raise ValueError(
                f"epsilon={float(epsilon):g} is too small, or the levels of qs are too uneven, for "
                "a joint draw from groups of private size: use dpjax.release.recursive_quantiles, "
                "other levels, or a coarser resolution."
            )
        most = int(np.max(countable(counts, self.records_grid.size).counts, initial=1))
        return self._law(epsilon, neighbors, size_is_public, most)

    def _law(
        self, epsilon: Fraction, neighbors: str, size_is_public: bool, most: int
    ) -> Parameters:
        far, size = self._reach(epsilon, neighbors, size_is_public), self.records_grid.size
        return Parameters.of(
            self.levels, epsilon, neighbors, size, size_is_public, far, self.terms, most
        )

    def _too_large(self, epsilon: Fraction, neighbors: str) -> bool:
        """Return whether a joint draw may need too much memory for a group of private size."""
        if neighbors == "swap":
            return False
        size = self.records_grid.size
        equal = most_countable(size)
        if self.max_records is not None:
            equal = min(equal, cap_of(self.max_records))
        return memory_for(self._law(epsilon, neighbors, False, equal), size * equal) > _MEMORY

    def _reach(self, epsilon: Fraction, neighbors: str, size_is_public: bool) -> int:
        """Return the reach of the terms.

        Raise ``ValueError`` if ``max_records`` is needed and not given.
        """
        if self.reach is not None:
            return self.reach
        if neighbors == "swap" or size_is_public or len(self.levels) == 1:
            return 0
        if self.max_records is None:
            raise ValueError(
                "joint quantiles need max_records=, a public guess of the size of the largest "
                "group, as sizes are private; nested and recursive quantiles do not."
            )
        return default_reach(self.levels, epsilon, self.records_grid.size, self.max_records)


def joint_quantiles(
    x: Any,
    qs: Iterable[float | Fraction | str],
    *,
    epsilon: float,
    neighbors: Neighbors,
    lower: float | None = None,
    upper: float | None = None,
    resolution: Resolution | None = None,
    grid: Floats | None = None,
    counts: Any = None,
    max_records: int | None = None,
    mask: Any = None,
    public_n: Any = None,
    reach: int | None = None,
    terms: int = 32,
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release several quantiles of every row under one epsilon, drawn exactly on a public grid.

    They are the quantiles that
    ``dpjax.joint_quantiles(dpjax.quantiles(x, qs, resolution=...), epsilon)`` simulates. Time grows
    with ``terms``, m^2 and the records of a row, of which those far from all quantiles do not
    count: deciles of 1000 groups of 1000 records take a second with ``public_n``, and 15 to 20
    without it.

    Args:
        x: numbers ``(..., n)``, as for :func:`median`.
        qs: levels in (0, 1), ascending.
        epsilon: from 2^-28 to 64 for all quantiles together, for each draw.
        neighbors: ``"add_remove"`` or ``"swap"``.
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: the public resolution of the data.
        grid: a :class:`Floats`, in place of the bounds and the resolution.
        counts: the number of records that each entry of ``x`` stands for.
        max_records: under add/remove, and with ``counts``: a public guess of the number of records
            of the largest row, needed without ``public_n`` and ``reach``. It must not be computed
            from the data, nor be the number of columns of ``x`` if that is private. Of equal
            records, only twice this number plus 64 are counted.
        mask: which records are present.
        public_n: under add/remove, a public number of records, integers that broadcast against
            ``(...)``, if it is known at least approximately. Then there is one term, and the error
            is 5 to 20 % smaller. Privacy does not depend on whether it is right, but memory does:
            up to some hundred bytes for each record of a row with far more or fewer.
        reach: the largest distance of terms from the number of records, public; by default that of
            :func:`dpjax.joint_quantiles` for rows of ``max_records`` records.
        terms: the number of terms without ``public_n``, at least 2.
        draws: the number of draws from each row; each costs epsilon.
        budget: as for :func:`median`.

    Returns:
        A :class:`Release` whose ``values`` are ``(draws, ..., m)``, ascending.

    Raises:
        ValueError: too many quantiles for such a fine grid, such as 24 on a million numbers;
            levels or an epsilon for which a row of private size might need more than 2 GiB; or a
            parameter out of range.

    Privacy:
        epsilon-DP and epsilon-bounded-range under the relation, for each draw of all quantiles
        together. For what is not covered, see :func:`median`. About one draw in 10^9 is not
        decided by floats, and takes as long as a thousand others.

    References:
        Gillenwater, Joseph and Kulesza (2021), under swap. The cost under add/remove is not from a
        paper.

    >>> options = {"lower": 0, "upper": 2000, "resolution": 1, "neighbors": "add_remove"}
    >>> options["max_records"] = 2000  # a guess that is not made from the data
    >>> found = joint_quantiles(range(1001), [0.25, 0.5, 0.75], epsilon=50.0, **options)
    >>> found.values.tolist()
    [[250.0, 500.0, 750.0]]
    >>> print(found.guarantee)
    50-DP and 50-bounded-range under add_remove neighbors
    """
    if public_n is not None and neighbors == "swap":
        raise ValueError(
            "public_n is for add_remove neighbors: under swap the number of records is public."
        )
    shape = shape_of(x) if neighbors == "swap" and max_records is None and counts is None else ()
    capacity = max(shape[-1], 1) if shape else max_records
    statistic = Quantiles(
        tuple(levels_of(qs)), lower, upper, resolution, grid, "joint", capacity, reach, terms
    )
    found, batch = counts_of(statistic, x, neighbors, counts, mask)
    sizes = None if public_n is None else _public_sizes(public_n, batch)
    number = checks.static_integer("draws", draws, 1)
    return statistic.draw(found, exact_epsilon(epsilon), neighbors, number, batch, sizes, budget)


def nested_quantiles(
    x: Any,
    qs: Iterable[float | Fraction | str],
    *,
    epsilon: float,
    neighbors: Neighbors,
    lower: float | None = None,
    upper: float | None = None,
    resolution: Resolution | None = None,
    grid: Floats | None = None,
    counts: Any = None,
    mask: Any = None,
    public_n: Any = None,
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release many quantiles of every row, drawn exactly: some jointly, then those between them.

    They are the quantiles that ``dpjax.nested_quantiles`` simulates. A hundred quantiles of a
    million records take some seconds, and of a thousand groups of 10,000 records most of a minute.

    Args:
        x: numbers ``(..., n)``, as for :func:`median`.
        qs: levels in (0, 1), ascending, 3 or more.
        epsilon: at most 64 for all quantiles together, for each draw; for 99 levels at least
            0.0014.
        neighbors: ``"add_remove"`` or ``"swap"``.
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: the public resolution of the data.
        grid: a :class:`Floats`, in place of the bounds and the resolution.
        counts: the number of records that each entry of ``x`` stands for.
        mask: which records are present.
        public_n: under add/remove, a public number of records, integers that broadcast against
            ``(...)``, if it is known at least approximately; otherwise epsilon / 24 is spent on it.
            Privacy does not depend on whether it is right; memory does, as for
            :func:`joint_quantiles`.
        draws: the number of draws from each row; each costs epsilon.
        budget: as for :func:`median`.

    Returns:
        A :class:`Release` whose ``values`` are ``(draws, ..., m)``, ascending.

    Raises:
        ValueError: there are fewer than 3 levels (use :func:`joint_quantiles`), or a parameter is
            out of range.

    Privacy:
        epsilon-DP under the relation for each draw of all quantiles, by composition of the noisy
        number of records and two draws; the proof is in ``dpjax/several_quantiles/nesting.py``. For
        what is not covered, see :func:`median` and :func:`joint_quantiles`.

    References:
        Gillenwater, Joseph and Kulesza (2021), for each joint draw; Kaplan, Schnapp and Stemmer
        (2022), for draws between draws. Their combination is not from a paper.

    >>> options = {"lower": 0, "upper": 2000, "resolution": 1, "neighbors": "add_remove"}
    >>> found = nested_quantiles(
    ...     range(1001), ["1/6", "1/3", "1/2", "2/3", "5/6"], epsilon=60.0, **options
    ... )
    >>> bool((abs(found.values - [[167, 334, 501, 667, 834]]) < 20).all())
    True
    """
    if public_n is not None and neighbors == "swap":
        raise ValueError(
            "public_n is for add_remove neighbors: under swap the number of records is public."
        )
    statistic = Quantiles(tuple(levels_of(qs)), lower, upper, resolution, grid, "nested")
    found, batch = counts_of(statistic, x, neighbors, counts, mask)
    sizes = None if public_n is None else _public_sizes(public_n, batch)
    number = checks.static_integer("draws", draws, 1)
    return statistic.draw(found, exact_epsilon(epsilon), neighbors, number, batch, sizes, budget)


def recursive_quantiles(
    x: Any,
    qs: Iterable[float | Fraction | str],
    *,
    epsilon: float,
    neighbors: Neighbors,
    lower: float | None = None,
    upper: float | None = None,
    resolution: Resolution | None = None,
    grid: Floats | None = None,
    counts: Any = None,
    mask: Any = None,
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release many quantiles of every row, one after another, drawn exactly on a public grid.

    They are the quantiles that ``dpjax.recursive_quantiles`` simulates: the middle level first, by
    piecewise Laplace, then the levels below it from the records up to that draw, and so on. Noisy
    numbers, which take 1/12 of epsilon, decide how many of the records that equal a draw belong to
    its left side.

    Args:
        x: numbers ``(..., n)``, as for :func:`median`.
        qs: levels in (0, 1), ascending.
        epsilon: from 2^-24 to 64 for all quantiles together, for each draw.
        neighbors: ``"add_remove"`` or ``"swap"``.
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: the public resolution of the data.
        grid: a :class:`Floats`, in place of the bounds and the resolution.
        counts: the number of records that each entry of ``x`` stands for.
        mask: which records are present.
        draws: the number of draws from each row; each costs epsilon.
        budget: as for :func:`median`.

    Returns:
        A :class:`Release` whose ``values`` are ``(draws, ..., m)``, ascending.

    Privacy:
        epsilon-DP under the relation for each draw of all quantiles, by adaptive composition over
        the ceil(log2(m + 1)) depths; one record affects one part of each depth (add/remove), or two
        (swap); see ``dpjax/several_quantiles/halving.py``. For what is not covered, see
        :func:`median`.

    References:
        Kaplan, Schnapp and Stemmer (2022), Algorithm 1; Durfee (2025), Algorithm 1.

    >>> ages = [[31, 40, 28, 35, 52, 33, 47, 29, 38] * 50]
    >>> options = {"lower": 0, "upper": 120, "resolution": 1, "neighbors": "add_remove"}
    >>> found = recursive_quantiles(ages, [0.25, 0.5, 0.75], epsilon=40.0, **options)
    >>> found.values.tolist()
    [[[31.0, 35.0, 40.0]]]
    """
    statistic = Quantiles(tuple(levels_of(qs)), lower, upper, resolution, grid, "recursive")
    found, batch = counts_of(statistic, x, neighbors, counts, mask)
    return statistic.release(
        found, epsilon, neighbors, draws=draws, batch_shape=batch, budget=budget
    )


def private_quantiles(
    x: Any,
    qs: Iterable[float | Fraction | str],
    *,
    epsilon: float,
    neighbors: Neighbors,
    lower: float | None = None,
    upper: float | None = None,
    resolution: Resolution | None = None,
    grid: Floats | None = None,
    counts: Any = None,
    max_records: int | None = None,
    mask: Any = None,
    method: Method = "auto",
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release several quantiles of every row by the mechanism that suits their number.

    Draws are exact. ``"auto"`` depends on public numbers only. Up to 32 levels are drawn jointly
    (under add/remove if ``max_records`` is given and :func:`joint_quantiles` takes the epsilon);
    more levels, and 9 or more that are not drawn jointly, are nested; others are recursive. Means
    of the largest rank error, in records, of m evenly spaced levels of n normal records on a grid
    of a million numbers, at epsilon 1 under add/remove:

        m      n         joint    nested    recursive
        7      1000      5.4      12        9.6
        31     1000               17        27
        31     10,000             16        25
        255    1000               46        46
        255    10,000             36        59

    Args:
        x: numbers ``(..., n)``, as for :func:`median`.
        qs: levels in (0, 1), ascending.
        epsilon: for all quantiles together, for each draw.
        neighbors: ``"add_remove"`` or ``"swap"``.
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: the public resolution of the data.
        grid: a :class:`Floats`, in place of the bounds and the resolution.
        counts: the number of records that each entry of ``x`` stands for.
        max_records: a public guess of the number of records of the largest row, for a joint draw.
        mask: which records are present.
        method: ``"auto"``, ``"joint"``, ``"nested"`` or ``"recursive"``.
        draws: the number of draws from each row; each costs epsilon.
        budget: as for :func:`median`.

    Returns:
        A :class:`Release` whose ``values`` are ``(draws, ..., m)``, ascending.

    Privacy:
        epsilon-DP under the relation, for each draw of all quantiles together, as for
        :func:`joint_quantiles`, :func:`nested_quantiles` or :func:`recursive_quantiles`.

    References:
        As for the mechanism that is selected.

    >>> options = {"lower": 0, "upper": 2000, "resolution": 1, "epsilon": 60.0}
    >>> found = private_quantiles(
    ...     range(1001), [f"{k}/40" for k in range(1, 40)], neighbors="swap", **options
    ... )
    >>> found.values.shape, print(found.guarantee)
    60-DP and 120-bounded-range under swap neighbors
    ((1, 39), None)
    """
    statistic = Quantiles(tuple(levels_of(qs)), lower, upper, resolution, grid, method, max_records)
    found, batch = counts_of(statistic, x, neighbors, counts, mask)
    return statistic.release(
        found, epsilon, neighbors, draws=draws, batch_shape=batch, budget=budget
    )


def _public_sizes(n: Any, batch: tuple[int, ...]) -> np.ndarray:
    """Return a public number of records for each row, int64."""
    sizes = np.asarray(n)
    if sizes.dtype.kind not in "iu" or np.any(sizes < 0):
        raise ValueError(f"public_n must be integers of at least 0, got {n}.")
    return np.minimum(np.broadcast_to(sizes, batch).reshape(-1), MOST).astype(np.int64)


def default_reach(
    levels: Sequence[Fraction], epsilon: Fraction, size: int, max_records: int
) -> int:
    """Return R of :func:`dpjax.joint_quantiles` on a grid with ``size`` numbers."""
    return ceil(Fraction(log_parts(len(levels), max_records, log(size))) / (epsilon / 2))


def countable(counts: Counts, size: int) -> Counts:
    """Return the counts, limited so that their parts fit into 64 bits on a grid of this size."""
    return counts.at_most(most_countable(size))


def most_countable(size: int) -> int:
    """Return the largest number of equal records whose parts fit into 64 bits."""
    return min(MOST - 1, 2 ** (61 - size.bit_length()))
