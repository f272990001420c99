"""The release itself: entropy from the operating system, the draw on the device, the doubtful lanes exactly."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import parameters
from dpjax.accounting.guarantees import Guarantee
from dpjax.profiles.order_statistics import Ranks, ranks_of_order_statistic, ranks_of_quantile
from dpjax.profiles.profile import NEIGHBORS, Neighbors
from dpjax.release.chacha20 import WORDS as BLOCK
from dpjax.release.chacha20 import chacha20, chacha20_on_host
from dpjax.release.draw import WORDS, certified_draw
from dpjax.release.exact import host_exact
from dpjax.release.grid import Grid, to_grid
from dpjax.release.knots import Knots, order_knots, sum_knots
from dpjax.release.tables import LAWS, Law, Tables, public_tables

_BLOCKS = -(-WORDS // BLOCK)  # of a lane
_LANES = 2**16  # of a chunk: 8 MB of words
_PIECES = 2**21  # of a chunk of rows


@dataclass(frozen=True)
class Quantile:
    """The q-quantile: NumPy's linear interpolation, or with ``"lower"`` the record x[ceil(q n)].

    Attributes:
        q: strictly between 0 and 1, a short decimal or a Fraction; its denominator refines the grid if it interpolates.
        definition: ``"linear"`` or ``"lower"``.
    """

    q: float | Fraction
    definition: Literal["linear", "lower"] = "linear"


@dataclass(frozen=True)
class OrderStatistic:
    """The record of a fixed rank, counted from 1.

    Attributes:
        rank: from 1 to the number of records on the last axis.
    """

    rank: int


MEDIAN = Quantile(Fraction(1, 2))
Statistic = Quantile | OrderStatistic | Literal["median", "sum", "mean"]


@dataclass(frozen=True)
class Release:
    """What was released; no error bar, since that would be a function of the data.

    Attributes:
        cells: int64 ``(draws, ...)``, in steps of the grid from the range's lower end.
        values: float64 of the same shape, the lower ends of the cells.
        guarantee: what all draws of one row cost together.
        grid: the public grid.
        law: ``"cell"`` or ``"owned_cell"``.
        draws: how many from each row.
    """

    cells: np.ndarray
    values: np.ndarray
    guarantee: Guarantee
    grid: Grid
    law: Law
    draws: int


def release(
    x: Any,
    *,
    statistic: Statistic,
    epsilon: float,
    grid: Grid,
    neighbors: Literal["add_remove", "swap"],
    law: Literal["auto", "cell", "owned_cell"] = "auto",
    n_max: int | None = None,
    mask: Any = None,
    draws: int = 1,
) -> Release:
    """Release a statistic of every row, drawn exactly on a public grid.

    The draws have exactly the stated law if the operating system's entropy is uniform and ChaCha20 is: no float, no truncated
    table and no rounding takes part in the choice of a cell. There is no key and no seed; two calls never give the same draws.

    Args:
        x: numbers ``(..., n)``, individuals on the last axis, in memory (not traced). Each is rounded down to the grid, and those
            beyond it to its ends. NaN is absent under add/remove and the lowest cell under swap.
        statistic: ``"median"``, a :class:`Quantile` or an :class:`OrderStatistic`; under swap also ``"sum"`` and ``"mean"``.
        epsilon: from 2^-30 to 64, for each draw.
        grid: public, chosen without the data.
        neighbors: ``"add_remove"`` or ``"swap"``.
        law: ``"cell"``: the cell that the continuous piecewise Laplace draw falls into; ``"owned_cell"``: a value v owns the cell
            [v, v + 1), which keeps mass at the median of tied data; ``"auto"``: the second if ``x`` has an integer dtype.
        n_max: the public capacity of a row; shorter ones are padded with absent records (add/remove only). More records than
            that are refused, which discloses that there are more: choose it generously.
        mask: bool that broadcasts against ``x``, which records are present (add/remove only).
        draws: how many from each row; each costs epsilon.

    Returns:
        A :class:`Release`.

    Raises:
        TypeError: under a trace, or ``x`` is not numeric.
        ValueError: a bad public parameter. Records never raise.

    Privacy:
        epsilon-DP and epsilon-bounded-range for each draw, under the relation. Public: all parameters and the shape of ``x`` (under
        add/remove the number of records is private, its capacity is not). Not covered: timing (a doubtful lane takes longer,
        whose probability is about 2^-25 or less), caches, power, memory that is not wiped, parameters chosen from the data, and a
        call inside a ``vmap`` that closes over the data, which cannot be detected.

    References:
        Durfee (2025), Algorithm 1; Mironov (2012), for what floats give away; RFC 8439.

    >>> grid = Grid(log2_step=0, lower=0, size=121)
    >>> found = release([[31, 40, 28, 35, 52, 33, 47, 29, 38]], statistic="median", epsilon=1.0, grid=grid, neighbors="add_remove")
    >>> found.values.shape, bool((found.values >= 0).all()), found.law
    ((1, 1), True, 'owned_cell')
    >>> print(found.guarantee)
    1-DP and 1-bounded-range under add_remove neighbors
    """
    parameters.one_of("neighbors", neighbors, NEIGHBORS)
    parameters.one_of("law", law, ("auto", *LAWS))
    if isinstance(draws, bool) or not isinstance(draws, (int, np.integer)) or draws < 1:
        raise ValueError(f"draws must be a positive integer, got {draws!r}.")
    if not isinstance(grid, Grid):
        raise TypeError(f"grid must be a Grid, got {type(grid).__name__}.")
    if isinstance(x, jax.core.Tracer) or isinstance(jnp.zeros(()), jax.core.Tracer):
        raise TypeError("release cannot run inside jit, vmap or grad: it would not draw anew at each call.")
    array = np.asarray(x)
    if array.ndim == 0:
        raise ValueError("x needs an axis of individuals (the last one); got a scalar.")
    chosen: Law = ("owned_cell" if array.dtype.kind in "iub" else "cell") if law == "auto" else law
    cells, there = to_grid(array, grid)
    cells, there = _padded(cells, there, mask, n_max, neighbors)
    knots, refined, total = _knots(cells, there, statistic, grid, chosen, neighbors)
    drawn = _draw(knots, float(epsilon), chosen, int(draws)) // refined
    start = Fraction(grid.lower) / Fraction(grid.step)
    offset = int(start) * (cells.shape[-1] if total else 1)
    values = np.ldexp((drawn + offset).astype(np.float64), int(grid.log2_step))
    if statistic == "mean":
        values = values / cells.shape[-1]
    cost = float(epsilon) * int(draws)
    return Release(drawn, values, Guarantee(cost, cost, neighbors), grid, chosen, int(draws))


def _padded(cells: np.ndarray, there: np.ndarray, mask: Any, n_max: int | None, neighbors: str) -> tuple[np.ndarray, np.ndarray]:
    if neighbors == "swap":
        if mask is not None or n_max is not None:
            raise ValueError("mask and n_max are for add_remove neighbors: under swap the number of records is public.")
        return cells, np.ones_like(there)  # a NaN has cell 0
    if mask is not None:
        given = np.asarray(mask)
        if given.dtype != np.bool_:
            raise ValueError(f"mask must be bool, got dtype {given.dtype}.")
        there = there & np.broadcast_to(given, there.shape)
    if n_max is not None:
        missing = int(n_max) - cells.shape[-1]
        if missing < 0:
            raise ValueError(f"x has room for {cells.shape[-1]} records, more than n_max = {n_max}.")
        padding = [(0, 0)] * (cells.ndim - 1) + [(0, missing)]
        cells, there = np.pad(cells, padding), np.pad(there, padding)
    return cells, there


def _knots(
    cells: np.ndarray, there: np.ndarray, statistic: Statistic, grid: Grid, law: Law, neighbors: Neighbors
) -> tuple[Knots, int, bool]:
    """The knots, by how much the grid is refined, and whether they are sums."""
    high = grid.size if law == "cell" else grid.size - 1
    n = cells.shape[-1]
    if statistic in ("sum", "mean"):
        if neighbors != "swap":
            raise ValueError(f"the {statistic} is released under swap neighbors only, where the number of records is public.")
        if n == 0 or grid.size < 2:
            raise ValueError(f"a {statistic} needs at least one record and two cells.")
        return sum_knots(cells, high=grid.size - 1), 1, True
    if statistic == "median":
        statistic = MEDIAN
    if isinstance(statistic, Quantile):
        parameters.one_of("definition", statistic.definition, ("linear", "lower"))
        ranks: Ranks = ranks_of_quantile(statistic.q, definition=statistic.definition, neighbors=neighbors)
    elif isinstance(statistic, OrderStatistic):
        ranks = ranks_of_order_statistic(statistic.rank, n)
    else:
        raise ValueError(f'statistic must be "median", "sum", "mean", a Quantile or an OrderStatistic, got {statistic!r}.')
    refined = 1 if ranks.definition == "lower" else ranks.denominator
    return order_knots(cells, there, ranks, high=high, count_is_public=neighbors == "swap"), refined, False


def _draw(knots: Knots, epsilon: float, law: Law, draws: int) -> np.ndarray:
    """Cells ``(draws, ...)``, int64."""
    batch = knots.lower.shape[:-1]
    rows = int(np.prod(batch, dtype=np.int64))
    lower, upper = (side.reshape(rows, side.shape[-1]) for side in knots)
    levels = max(lower.shape[-1], upper.shape[-1]) - 1
    tables = public_tables(epsilon, levels=max(levels, 1))
    found = np.zeros((draws, rows), np.int64)
    if draws * rows * _BLOCKS >= 2**32:
        raise ValueError(f"{draws} draws from {rows} rows pass the block counter of one key: release them in parts.")
    entropy = np.frombuffer(os.urandom(32), "<u4").astype(np.uint32)
    many_rows = max(min(rows, _PIECES // (2 * max(levels, 1))), 1)
    for first in range(0, rows, many_rows):
        some = slice(first, first + many_rows)
        width = len(lower[some])
        many_draws = max(min(draws, _LANES // width), 1)
        for start in range(0, draws, many_draws):
            number = min(many_draws, draws - start)
            lane = (np.arange(start, start + number)[:, None] * rows + np.arange(first, first + width)).astype(np.uint32)
            found[start : start + number, some] = _lanes(tables, lower[some], upper[some], epsilon, law, entropy, lane)
    return found.reshape(draws, *batch)


def _lanes(
    tables: Tables, lower: np.ndarray, upper: np.ndarray, epsilon: float, law: Law, entropy: np.ndarray, lane: np.ndarray
) -> np.ndarray:
    """One cell for each lane ``(draws, rows)``."""
    drawn = _from_entropy(tables, lower, upper, entropy, lane, law=law)
    cells, certified = np.array(drawn.cell, np.int64), np.asarray(drawn.certified)
    for draw, row in zip(*np.nonzero(~certified), strict=True):
        own = lane[draw, row]
        words = _on_host(entropy, own)

        def more(role: int, i: int, own: np.uint32 = own) -> int:
            return int(chacha20_on_host(entropy, np.array([1, role, i], np.uint32), np.asarray(own))[0])

        cells[draw, row] = host_exact(epsilon, lower[row].tolist(), upper[row].tolist(), words, law=law, more=more)
    return cells


_NONCE = np.zeros(3, np.uint32)  # that of the first words; further ones have (1, role, i)


def _from_entropy(tables: Tables, lower: Any, upper: Any, entropy: Any, lane: Any, *, law: Law) -> Any:
    counter = lane[None] * np.uint32(_BLOCKS) + np.arange(_BLOCKS, dtype=np.uint32)[:, None, None]
    blocks = chacha20(entropy, _NONCE, counter)  # (16, blocks, draws, rows)
    words = jnp.moveaxis(blocks, 1, 0).reshape(_BLOCKS * BLOCK, *lane.shape)[:WORDS]
    return certified_draw(tables, lower, upper, words, law=law)


def _on_host(entropy: np.ndarray, lane: np.uint32) -> list[int]:
    """The words of one lane."""
    counter = np.uint32(lane) * np.uint32(_BLOCKS) + np.arange(_BLOCKS, dtype=np.uint32)
    return [int(word) for word in chacha20_on_host(entropy, _NONCE, counter).T.ravel()[:WORDS]]
