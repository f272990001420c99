"""The release itself: from records to cells, their values and what they cost."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from dpjax import checks
from dpjax.release.arguments import check_draws, refuse_traces
from dpjax.release.candidates import counts_of, draw_candidates
from dpjax.release.draw import WORDS, certified_draw
from dpjax.release.exact import More, host_exact
from dpjax.release.grid import Grid, as_array
from dpjax.release.knots import Knots
from dpjax.release.lanes import draw_lanes
from dpjax.release.law import GridLaw
from dpjax.release.request import Request, as_mask
from dpjax.release.result import Release, cost_of
from dpjax.release.statistics import Mode, Statistic
from dpjax.release.tables import LAWS, public_tables, rate_of


def release(
    x: Any,
    *,
    statistic: Statistic,
    epsilon: float,
    grid: Grid | None = None,
    neighbors: Literal["add_remove", "swap"],
    law: Literal["auto", "cell", "owned_cell"] = "auto",
    n_max: int | None = None,
    mask: Any = None,
    persons: Any = None,
    draws: int = 1,
) -> Release:
    """Release a statistic of every row, drawn exactly on a public grid.

    The draws have exactly the stated law if the operating system's entropy is uniform and ChaCha20 is: no float, no truncated
    table and no rounding takes part in the choice of a cell. There is no key and no seed; two calls never give the same draws.

    Args:
        x: numbers ``(..., n)``, individuals on the last axis, in memory (not traced). Each is rounded down to the grid, and those
            beyond it to its ends. NaN is absent under add/remove and the lowest cell under swap.
        statistic: ``"median"``, a :class:`Quantile`, :class:`OrderStatistic`, :class:`Maximum`, :class:`Total`, :class:`Mode` or
            :class:`Distinct`; under swap also ``"sum"`` and ``"mean"``. For scores of your own see :func:`release_choice`.
        epsilon: from 2^-30 to 64 for each draw (to 32 for a mode).
        grid: public, chosen without the data; not for a mode or a number of distinct ids.
        neighbors: ``"add_remove"`` or ``"swap"``.
        law: ``"cell"``: the cell that the continuous piecewise Laplace draw falls into; ``"owned_cell"``: a value v owns the cell
            [v, v + 1), which keeps mass at the median of tied data; ``"auto"``: the first if ``x`` is an array of floats, the
            second otherwise, also for a list (whose dtype would depend on the records).
        n_max: the public capacity of a row; shorter ones are padded with absent records (add/remove only). More records than
            that are refused, which discloses that there are more: choose it generously.
        mask: bool that broadcasts against ``x``, which records are present (add/remove only).
        persons: for a :class:`Total` under add/remove: whose record each is, integers or text that broadcast against ``x``. All
            records of a person then count as one individual, however many; a record of nobody (None, NaN) is absent.
        draws: how many from each row; each costs epsilon.

    Returns:
        A :class:`Release`.

    Raises:
        TypeError: under a trace, ``x`` is not numeric or a masked array, or ``n_max`` is no integer.
        ValueError: a bad public parameter. Records never raise.

    Privacy:
        epsilon-DP and epsilon-bounded-range for each draw, under the relation. Public: all parameters, the shape and the dtype
        of ``x`` (under add/remove the number of records is private, its capacity is not; a column that turns to floats for one
        missing value gives that away: state the law). Not covered: timing (a doubtful lane takes longer,
        with a probability of about 2^-27 for a thousand records, which grows with their number), caches, power, memory that is
        not wiped, parameters chosen from the data, and a call inside a ``vmap`` that closes over the data, which cannot be
        detected.

    References:
        Durfee (2025), Algorithm 1; Mironov (2012), for what floats give away; RFC 8439.

    >>> grid = Grid(log2_step=0, lower=0, size=121)
    >>> found = release([[31, 40, 28, 35, 52, 33, 47, 29, 38]], statistic="median", epsilon=1.0, grid=grid, neighbors="add_remove")
    >>> found.values.shape, bool((found.values >= 0).all()), found.law
    ((1, 1), True, 'owned_cell')
    >>> print(found.guarantee)
    1-DP and 1-bounded-range under add_remove neighbors
    """
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    checks.one_of("law", law, ("auto", *LAWS))
    number = check_draws(draws)
    rate_of(epsilon)
    if isinstance(statistic, Mode):
        if grid is not None or law != "auto" or n_max is not None:
            raise ValueError("a mode is released from its candidates: give no grid, no law and no n_max.")
        if epsilon > 32:
            raise ValueError(f"epsilon must be from 2^-30 to 32 for a mode, got {epsilon}.")
    refuse_traces(x, "release")
    array = as_array(x)
    if array.ndim == 0:
        raise ValueError("x needs an axis of individuals (the last one); got a scalar.")
    promise = cost_of(float(epsilon), number, neighbors)
    if isinstance(statistic, Mode):
        if mask is not None and neighbors == "swap":
            raise ValueError("mask is for add_remove neighbors: under swap the number of records is public.")
        if persons is not None:
            raise ValueError("persons are for a Total under add_remove neighbors.")
        counts = counts_of(array, statistic.candidates, None if mask is None else as_mask(mask, array))
        alike = Fraction(1, 2) if neighbors == "add_remove" else Fraction(1)  # all counts change in the same direction
        found = draw_candidates(counts, float(epsilon), alike, array.shape[-1], number)
        return Release(found, np.asarray(statistic.candidates, np.float64)[found], promise, None, None, number)
    asked = Request.of(array, statistic, grid, neighbors, law, n_max, mask, persons)
    _, refined, total = asked.knots(slice(0, 0))
    drawn = _draw(asked, float(epsilon), number).reshape(number, *array.shape[:-1]) // refined
    # A sum of n records starts at n times the lower bound.
    values = asked.grid.values(drawn + (array.shape[-1] - 1) * asked.grid.start if total else drawn)
    if statistic == "mean":
        values = values / array.shape[-1]
    return Release(drawn, values, promise, asked.grid, asked.law, number)


def exact_law(
    x: Any,
    *,
    statistic: Statistic,
    epsilon: float,
    grid: Grid | None = None,
    neighbors: Literal["add_remove", "swap"],
    law: Literal["auto", "cell", "owned_cell"] = "auto",
    n_max: int | None = None,
    mask: Any = None,
    persons: Any = None,
) -> GridLaw:
    """Return the law that :func:`release` draws from for one dataset: to know the utility before anything is spent.

    Args:
        x: one dataset, ``(n,)``; simulated or public data, since the law is a function of it.
        statistic: as for :func:`release`, but a mode, whose law is ``dpjax.exponential``'s.
        epsilon: likewise.
        grid: likewise.
        neighbors: likewise.
        law: likewise.
        n_max: likewise.
        mask: likewise.
        persons: likewise.

    Returns:
        A :class:`GridLaw`.

    Raises:
        TypeError, ValueError: as :func:`release`; more than one dataset, or a mode.

    Privacy:
        A function of the private data: not a release.

    References:
        As :func:`release`.

    >>> grid = Grid(log2_step=0, lower=0, size=128)
    >>> law = exact_law([31, 40, 28, 35, 52, 33, 47, 29, 38], statistic="median", epsilon=4.0, grid=grid, neighbors="swap")
    >>> round(float(law.pmf(35)), 3), round(law.mean_abs_error(35), 2)
    (0.31, 1.44)
    """
    rate_of(epsilon)
    array = as_array(x)
    if isinstance(statistic, Mode) or array.ndim != 1:
        raise ValueError("exact_law takes one dataset (n,), and every statistic but a mode (see dpjax.exponential).")
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    checks.one_of("law", law, ("auto", *LAWS))
    asked = Request.of(array, statistic, grid, neighbors, law, n_max, mask, persons)
    knots, refined, _ = asked.knots(slice(0, 1))
    return GridLaw(Knots(knots.lower[0], knots.upper[0]), float(epsilon), asked.law, refined)


def _draw(asked: Request, epsilon: float, draws: int) -> np.ndarray:
    """Refined cells ``(draws, rows)``, int64. The records of a chunk of rows are read when its turn comes."""
    sides = [side.shape[-1] for side in asked.knots(slice(0, 0))[0]]
    levels = max(*sides, 2) - 1
    tables = public_tables(epsilon, levels=levels)

    def on_host(row: int, words: list[int], more: More) -> int:
        lower, upper = asked.knots(slice(row, row + 1))[0]
        return host_exact(epsilon, lower[0].tolist(), upper[0].tolist(), words, law=asked.law, more=more)

    @lru_cache(maxsize=1)  # many draws of the same rows come one after the other
    def of_rows(first: int, last: int) -> Knots:
        return asked.knots(slice(first, last))[0]

    def on_device(some: slice, words: Any) -> Any:
        return certified_draw(tables, *of_rows(some.start, some.stop), words, law=asked.law)

    return draw_lanes(asked.records.shape[0], draws, 2 * levels, WORDS, on_device, on_host)
