"""The release of a statistic on a public grid: a function for each, from records to cells, their values and what they cost."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.checks import Neighbors
from dpjax.release import integer_profiles
from dpjax.release.distribution import VARIANTS, GridDistribution, Variant
from dpjax.release.exact import More, exact_draw
from dpjax.release.grid import Grid, as_array, to_grid
from dpjax.release.integer_profiles import IntegerProfile
from dpjax.release.sampler import WORDS, Draw, certified_draw
from dpjax.release.tables import public_tables, rate_of
from dpjax.release.words import draw_lanes
from dpjax.sensitivity.down import check_shift
from dpjax.statistics.quantiles import Ranks, ranks_of_order_statistic, ranks_of_quantile

Choice = Literal["auto", "cell", "owned_cell"]
Definition = Literal["linear", "lower"]
EVALUATE: Any = object()  # in the place of the number of draws: see exact_distribution


@dataclass(frozen=True)
class Release:
    """What was released; no error bar, since that would be a function of the data.

    Attributes:
        cells: int64 ``(draws, ...)``, cells of the grid; of candidates, the number of the chosen one.
        values: float64 of the same shape, the lower ends of the cells, divided for a mean; of a mode, the candidates.
        guarantee: what all draws of one row cost together.
        grid: the public grid of the statistic's values; None for candidates.
        variant: ``"cell"`` or ``"owned_cell"``; None for candidates.
        draws: how many from each row.
    """

    cells: np.ndarray
    values: np.ndarray
    guarantee: Guarantee
    grid: Grid | None
    variant: Variant | None
    draws: int

    @property
    def law(self) -> Variant | None:
        """The old name of ``variant``, until 0.3."""
        warnings.warn("Release.law is now Release.variant.", DeprecationWarning, stacklevel=2)
        return self.variant


def median(
    x: Any,
    *,
    grid: Grid,
    epsilon: float,
    neighbors: Neighbors,
    definition: Definition = "linear",
    variant: Choice = "auto",
    n_max: int | None = None,
    mask: Any = None,
    draws: int = 1,
) -> Release:
    """Release the median of every row, drawn exactly on a public grid.

    The draws have exactly the stated distribution if the operating system's entropy is uniform and ChaCha20 is: no float, no
    truncated table and no rounding takes part in the choice of a cell. There is no key and no seed; two calls never give the same
    draws. :func:`exact_distribution` gives the probabilities.

    Args:
        x: numbers ``(..., n)``, individuals on the last axis, in memory (not traced). Each is rounded down to the grid, and those
            beyond it to its ends. NaN is absent under add/remove and the lowest cell under swap.
        grid: public, chosen without the data.
        epsilon: from 2^-30 to 64 for each draw.
        neighbors: ``"add_remove"`` or ``"swap"``.
        definition: ``"linear"``, the midpoint median, or ``"lower"``, the record x[ceil(n/2)].
        variant: ``"cell"``: the cell that the continuous piecewise Laplace draw falls into; ``"owned_cell"``: a value v owns the
            cell [v, v + 1), which keeps mass at the median of tied data; ``"auto"``: the first if ``x`` is an array of floats, the
            second otherwise, also for a list (whose dtype would depend on the records).
        n_max: the public capacity of a row; shorter ones are padded with absent records (add/remove only). More records than
            that are refused, which discloses that there are more: choose it generously.
        mask: bool that broadcasts against ``x``, which records are present (add/remove only).
        draws: how many from each row; each costs epsilon.

    Returns:
        A :class:`Release`.

    Raises:
        TypeError: under a trace; ``x`` is not numeric, or a masked array.
        ValueError: a bad public parameter. Records never raise.

    Privacy:
        epsilon-DP and epsilon-bounded-range for each draw, under the relation. Public: all parameters, the shape and the dtype
        of ``x`` (under add/remove the number of records is private, its capacity is not; a column that turns to floats for one
        missing value gives that away: state the variant). Not covered: timing (a doubtful lane takes longer, with a probability
        of about 2^-27 for a thousand records, which grows with their number), caches, power, memory that is not wiped,
        parameters chosen from the data, and a call inside a ``vmap`` that closes over the data, which cannot be detected.

    References:
        Durfee (2025), Algorithm 1; Mironov (2012), for what floats give away; RFC 8439.

    >>> grid = Grid(log2_step=0, lower=0, size=121)
    >>> found = median([[31, 40, 28, 35, 52, 33, 47, 29, 38]], grid=grid, epsilon=1.0, neighbors="add_remove")
    >>> found.values.shape, bool((found.values >= 0).all()), found.variant
    ((1, 1), True, 'owned_cell')
    >>> print(found.guarantee)
    1-DP and 1-bounded-range under add_remove neighbors
    """
    records = Records(x, _on(grid), neighbors, mask, n_max)
    return _release_quantile(records, Fraction(1, 2), definition, grid, epsilon, variant, draws)


def quantile(
    x: Any,
    q: float | Fraction,
    *,
    grid: Grid,
    epsilon: float,
    neighbors: Neighbors,
    definition: Definition = "linear",
    variant: Choice = "auto",
    n_max: int | None = None,
    mask: Any = None,
    draws: int = 1,
) -> Release:
    """Release the q-quantile of every row; the rest is as for :func:`median`.

    ``q`` is strictly between 0 and 1, a short decimal or a Fraction; its denominator refines the grid if it interpolates.
    ``definition`` is ``"linear"``, NumPy's interpolation, or ``"lower"``, the record x[ceil(q n)].

    >>> ages, grid = [31, 40, 28, 35, 52, 33, 47, 29, 38], Grid(log2_step=0, lower=0, size=128)
    >>> exact_distribution(quantile, ages, 0.9, definition="lower", grid=grid, epsilon=4.0, neighbors="swap").profile.upper.tolist()
    [52, 127]
    """
    records = Records(x, _on(grid), neighbors, mask, n_max)
    return _release_quantile(records, q, definition, grid, epsilon, variant, draws)


def order_statistic(
    x: Any,
    rank: int,
    *,
    grid: Grid,
    epsilon: float,
    neighbors: Neighbors,
    variant: Choice = "auto",
    n_max: int | None = None,
    mask: Any = None,
    draws: int = 1,
) -> Release:
    """Release the record of a fixed rank of every row, from 1 to the size of the last axis; the rest is as for :func:`median`.

    >>> ages, grid = [31, 40, 28, 35, 52, 33, 47, 29, 38], Grid(log2_step=0, lower=0, size=128)
    >>> exact_distribution(order_statistic, ages, 5, grid=grid, epsilon=4.0, neighbors="swap").profile.upper.tolist()
    [35, 38, 40, 47, 52, 127]
    """
    records = Records(x, _on(grid), neighbors, mask, n_max)
    return _release_ranks(records, ranks_of_order_statistic(rank, records.size), grid, epsilon, variant, draws)


def maximum(
    x: Any,
    *,
    tau: int,
    grid: Grid,
    epsilon: float,
    neighbors: Neighbors,
    variant: Choice = "auto",
    n_max: int | None = None,
    mask: Any = None,
    draws: int = 1,
) -> Release:
    """Release the largest record by shifted inverse sensitivity, which is near the (tau+1)-th largest.

    ``tau`` is at least 1, and chosen without the data, for example by :func:`dpjax.shift_for`; the rest is as for :func:`median`.

    References:
        Steinke (2023), Theorem 4; Fang, Dong and Yi (2022).

    >>> ages, grid = [31, 40, 28, 35, 52, 33, 47, 29, 38], Grid(log2_step=0, lower=0, size=128)
    >>> exact_distribution(maximum, ages, tau=2, grid=grid, epsilon=4.0, neighbors="add_remove").profile.upper.tolist()
    [40, 47, 52, 127]
    """
    records = Records(x, _on(grid), neighbors, mask, n_max)
    statistic = partial(integer_profiles.maximum, tau=check_shift(tau))
    return _release(records, statistic, grid, epsilon, variant, draws)


def nonnegative_sum(
    x: Any,
    *,
    tau: int,
    size: int,
    grid: Grid,
    epsilon: float,
    neighbors: Neighbors,
    variant: Choice = "auto",
    n_max: int | None = None,
    mask: Any = None,
    draws: int = 1,
) -> Release:
    """Release the sum of nonnegative records, with no bound on one of them but the grid's, by shifted inverse sensitivity.

    It lies near the sum without the ``tau`` largest records. ``grid`` is that of the records and starts at 0; ``size`` is the
    number of cells of the sum's range, public, and a larger sum counts as its end. The rest is as for :func:`maximum`.

    >>> options = {"tau": 1, "size": 200, "grid": Grid(log2_step=0, lower=0, size=24), "epsilon": 4.0, "neighbors": "swap"}
    >>> exact_distribution(nonnegative_sum, [3, 1, 4, 1, 5, 9], **options).profile.upper.tolist()
    [14, 23, 199]
    """
    records = Records(x, _on(grid), neighbors, mask, n_max)
    return _release_total(records, tau, size, grid, epsilon, variant, draws)


def user_sum(
    x: Any,
    person_ids: Any,
    *,
    tau: int,
    size: int,
    grid: Grid,
    epsilon: float,
    neighbors: Literal["add_remove"],
    variant: Choice = "auto",
    n_max: int | None = None,
    mask: Any = None,
    draws: int = 1,
) -> Release:
    """Release the sum of nonnegative amounts, where all records of a person count as one individual, however many.

    It lies near the sum without the ``tau`` largest persons. ``person_ids`` are integers or text that broadcast against ``x``; a
    record without one (None, NaN) is absent. The rest is as for :func:`nonnegative_sum`, for one person more or less.

    >>> options = {"tau": 1, "size": 200, "grid": Grid(log2_step=0, lower=0, size=24), "epsilon": 4.0, "neighbors": "add_remove"}
    >>> exact_distribution(user_sum, [3, 1, 4, 1, 5, 9], ["a", "a", "b", "b", "b", "c"], **options).profile.upper.tolist()
    [13, 23, 199]
    """
    checks.one_of("neighbors", neighbors, ("add_remove",))
    records = Records(x, _on(grid), neighbors, mask, n_max, person_ids)
    return _release_total(records, tau, size, grid, epsilon, variant, draws)


def distinct_count(
    ids: Any,
    *,
    tau: int,
    size: int,
    epsilon: float,
    neighbors: Neighbors,
    variant: Variant = "owned_cell",
    n_max: int | None = None,
    mask: Any = None,
    draws: int = 1,
) -> Release:
    """Release the number of different ids, one id a person, by shifted inverse sensitivity.

    It lies near the number that remains when ``tau`` people leave, those of the rarest ids first. ``ids`` are integers or text
    ``(..., n)``, and anything else in a list is absent; ``size`` is the number of possible counts, 0 to size - 1, public, and a
    larger count counts as its end. The rest is as for :func:`maximum`.

    >>> options = {"tau": 1, "size": 20, "epsilon": 4.0, "neighbors": "add_remove"}
    >>> exact_distribution(distinct_count, ["a", "b", "b", "c", "c", "c"], **options).profile.lower.tolist()
    [2, 2, 1, 1, 1, 0]
    """
    records = Records(ids, integer_profiles.codes_of, neighbors, mask, n_max)
    statistic = partial(integer_profiles.distinct_count, tau=check_shift(tau))
    return _release(records, statistic, Grid(0, 0, size), epsilon, variant, draws)


def sum(
    x: Any,
    *,
    grid: Grid,
    epsilon: float,
    neighbors: Literal["swap"],
    variant: Choice = "auto",
    draws: int = 1,
) -> Release:
    """Release the sum of every row, where the number of records is public; the rest is as for :func:`median`.

    >>> grid = Grid(log2_step=0, lower=0, size=121)
    >>> exact_distribution(sum, [31, 40, 28], grid=grid, epsilon=4.0, neighbors="swap").profile.upper.tolist()
    [99, 191, 280, 360]
    """
    checks.one_of("neighbors", neighbors, ("swap",))
    records = Records(x, _on(grid), neighbors)
    n, high_of_one = records.size, grid.size - 1
    if n == 0 or high_of_one == 0:
        raise ValueError("a sum or mean needs at least one record and two cells.")

    def statistic(cells: np.ndarray, present: np.ndarray, *, high: int) -> IntegerProfile:
        return integer_profiles.sum_of_records(cells, high=high_of_one)

    return _release(records, statistic, Grid(grid.log2_step, n * grid.lower, n * high_of_one + 1), epsilon, variant, draws)


def mean(
    x: Any,
    *,
    grid: Grid,
    epsilon: float,
    neighbors: Literal["swap"],
    variant: Choice = "auto",
    draws: int = 1,
) -> Release:
    """Release the mean of every row, where the number of records is public: :func:`sum`, whose values are divided by it.

    >>> grid = Grid(log2_step=0, lower=0, size=121)
    >>> exact_distribution(mean, [31, 40, 28], grid=grid, epsilon=4.0, neighbors="swap").profile.upper.tolist()
    [99, 191, 280, 360]
    """
    found = sum(x, grid=grid, epsilon=epsilon, neighbors=neighbors, variant=variant, draws=draws)
    return found if draws is EVALUATE else replace(found, values=found.values / as_array(x).shape[-1])


def exact_distribution(statistic: Callable[..., Release], x: Any, *arguments: Any, **options: Any) -> GridDistribution:
    """Return the distribution that a release of one dataset draws from: to know the utility before anything is spent.

    Args:
        statistic: one of the functions for values on a grid, such as :func:`median`; for a mode or scores, ``dpjax.exponential``
            has the distribution.
        x: one dataset, ``(n,)``; simulated or public data, since the distribution is a function of it.
        arguments: further positional arguments of that function, such as q.
        options: its keyword arguments but ``draws``.

    Returns:
        A :class:`GridDistribution`.

    Raises:
        TypeError, ValueError: as that function; more than one dataset.

    Privacy:
        A function of the private data: not a release.

    >>> ages, grid = [31, 40, 28, 35, 52, 33, 47, 29, 38], Grid(log2_step=0, lower=0, size=128)
    >>> found = exact_distribution(median, ages, grid=grid, epsilon=4.0, neighbors="swap")
    >>> round(float(found.pmf(35)), 3), round(found.mean_abs_error(35), 2)
    (0.31, 1.44)
    """
    found: Any = statistic(x, *arguments, **options, draws=EVALUATE)
    return found


Read = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def _on(grid: Grid) -> Read:
    """How to read records as cells, and which of them are present."""
    checks.instance("a release", grid, Grid, "dpjax.release.Grid")
    return partial(to_grid, grid=grid)


class Records:
    """Records as rows, of which some are read at a time.

    Attributes:
        batch: the leading axes of ``x``.
        size: how many records a row has room for.
        of_floats: whether ``x`` is an array of floats.
        neighbors: the relation.
    """

    def __init__(
        self, x: Any, read: Read, neighbors: Neighbors, mask: Any = None, n_max: int | None = None, person_ids: Any = None
    ) -> None:
        checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
        if neighbors == "swap" and not (mask is None and n_max is None):
            raise ValueError("mask and n_max are for add_remove neighbors: under swap the number of records is public.")
        refuse_traces(x)
        array = as_array(x)
        if array.ndim == 0:
            raise ValueError("x needs an axis of individuals (the last one); got a scalar.")
        self.batch, n = array.shape[:-1], array.shape[-1]
        self.size = n if n_max is None else checks.static_integer("n_max", n_max, n, must=f"an integer, at least the {n} of x")
        self.of_floats, self.neighbors = jnp.issubdtype(array.dtype, jnp.floating), neighbors
        self._read, self._x = read, array.reshape(math.prod(self.batch), n)
        self._mask, self._person_ids = self._like_x("mask", mask), self._like_x("person_ids", person_ids)
        if self._mask is not None and self._mask.dtype != np.bool_:
            raise ValueError(f"mask must be bool, got dtype {self._mask.dtype}.")

    def _like_x(self, name: str, value: Any) -> np.ndarray | None:
        if value is None:
            return None
        given, shape = as_array(value), (*self.batch, self._x.shape[-1])
        if name == "mask" and given.dtype == object:
            given = np.array(given.tolist())
        try:
            return np.broadcast_to(given, shape).reshape(self._x.shape)
        except ValueError as error:
            raise ValueError(f"{name} of shape {given.shape} does not fit x of shape {shape}.") from error

    def read(self, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """The cells ``(rows, size)`` of the records, or of persons' totals, and which are present."""
        cells, present = self._read(self._x[rows])
        if self.neighbors == "swap":
            present = np.ones_like(present)  # a NaN has cell 0
        if self._mask is not None:
            present = present & self._mask[rows]
        if self._person_ids is not None:
            persons, known = integer_profiles.codes_of(self._person_ids[rows])
            cells, present = integer_profiles.totals_of_persons(cells, present & known, persons)
        padding = [(0, 0), (0, self.size - cells.shape[-1])]
        return np.pad(cells, padding), np.pad(present, padding)


def _release_quantile(
    records: Records, q: Any, definition: Definition, grid: Grid, epsilon: float, variant: Choice, draws: int
) -> Release:
    checks.one_of("definition", definition, ("linear", "lower"))
    ranks = ranks_of_quantile(q, definition=definition, neighbors=records.neighbors)
    return _release_ranks(records, ranks, grid, epsilon, variant, draws)


def _release_ranks(records: Records, ranks: Ranks, grid: Grid, epsilon: float, variant: Choice, draws: int) -> Release:
    statistic = partial(integer_profiles.order_statistic, ranks=ranks, count_is_public=records.neighbors == "swap")
    return _release(records, statistic, grid, epsilon, variant, draws, integer_profiles.refinement(ranks))


def _release_total(records: Records, tau: int, size: int, grid: Grid, epsilon: float, variant: Choice, draws: int) -> Release:
    if grid.lower != 0:
        raise ValueError(f"a sum of nonnegative records needs a grid that starts at 0, this one starts at {grid.lower}.")
    statistic = partial(integer_profiles.nonnegative_sum, tau=check_shift(tau))
    return _release(records, statistic, Grid(grid.log2_step, 0, size), epsilon, variant, draws)


def _release(
    records: Records,
    statistic: Callable[..., IntegerProfile],
    grid: Grid,
    epsilon: float,
    variant: Choice,
    draws: int,
    refined: int = 1,
) -> Release:
    """Draw from the statistic's profiles, in refined cells of the grid of its values."""
    rate_of(epsilon)
    if checks.one_of("variant", variant, ("auto", *VARIANTS)) == "auto":
        variant = "cell" if records.of_floats else "owned_cell"
    own: Variant = "cell" if variant == "cell" else "owned_cell"
    high = grid.size - (own == "owned_cell")

    @lru_cache(maxsize=1)  # many draws of the same rows come one after the other
    def profile(first: int, last: int) -> IntegerProfile:
        return statistic(*records.read(slice(first, last)), high=high)

    if draws is EVALUATE:
        if records.batch:
            raise ValueError(f"exact_distribution takes one dataset (n,), got the leading shape {records.batch}.")
        of_one: Any = GridDistribution(IntegerProfile(*(side[0] for side in profile(0, 1))), float(epsilon), own, refined)
        return of_one
    number = checks.static_integer("draws", draws, 1)
    levels = max(2, *(side.shape[-1] for side in profile(0, 0))) - 1
    tables = public_tables(epsilon, levels=levels)

    def on_host(row: int, words: list[int], more: More) -> int:
        lower, upper = (side[0].tolist() for side in statistic(*records.read(slice(row, row + 1)), high=high))
        return exact_draw(epsilon, lower, upper, words, variant=own, more=more)

    def on_device(rows: slice, words: jax.Array) -> Draw:
        return certified_draw(tables, *profile(rows.start, rows.stop), words, variant=own)

    drawn = draw_lanes(math.prod(records.batch), number, 2 * levels, WORDS, on_device, on_host) // refined
    cells = drawn.reshape(number, *records.batch)
    return Release(cells, grid.values(cells), cost_of(float(epsilon), number, records.neighbors), grid, own, number)


def cost_of(epsilon: float, draws: int, neighbors: str) -> Guarantee:
    """What so many draws cost together: the product, rounded up."""
    cost = epsilon * draws
    cost = cost if Fraction(cost) >= Fraction(epsilon) * draws else math.nextafter(cost, math.inf)
    return Guarantee(cost, cost, neighbors)


def refuse_traces(x: Any) -> None:
    """Raise under jit, vmap or grad; a vmap that closes over the data cannot be seen."""
    if isinstance(x, jax.core.Tracer) or isinstance(jnp.zeros(()), jax.core.Tracer):
        raise TypeError("a release cannot run inside jit, vmap or grad: it would not draw anew at each call.")
