"""From the integer profiles of a statistic to its draws on a grid, for the functions of ``api.py``."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, get_args

import numpy as np

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.release import integer_profiles
from dpjax.release.distribution import GridDistribution, Mechanism
from dpjax.release.exact import More, exact_draw
from dpjax.release.grid import Floats, Multiples
from dpjax.release.integer_profiles import IntegerProfile
from dpjax.release.permute_and_flip import draw_by_permute_and_flip, groups_of
from dpjax.release.records import Records
from dpjax.release.result import EVALUATE, Release, cost_of, ranges_of, release_of
from dpjax.release.sampler import WORDS, Draw, certified_draw
from dpjax.release.tables import exact_epsilon, level_weights, public_tables
from dpjax.release.words import draw_lanes
from dpjax.several_quantiles.ranks import Ranks, levels_needed


def release_ranks(records: Records, ranks: Ranks, epsilon: float, mechanism: Mechanism, draws: int) -> Release:
    """Draw a quantile or order statistic."""
    options: Any = {"count_is_public": records.neighbors == "swap", "most": levels_needed(exact_epsilon(epsilon))}
    statistic = partial(integer_profiles.order_statistic, ranks=ranks, **options)
    grid, refined = records.grid, ranks.refinement
    values = grid.times(refined, grid.resolution / refined) if isinstance(grid, Multiples) else grid
    return release_statistic(records, statistic, epsilon, mechanism, draws, values=values)


def release_sum(
    x: Any, grid: Multiples, neighbors: Neighbors, epsilon: float, mechanism: Mechanism, draws: int, *, of_mean: bool
) -> Release:
    """Draw a sum or mean."""
    if neighbors != "swap":
        raise ValueError(f"neighbors must be 'swap': sums and means are released under swap only; got {neighbors!r}.")
    records = Records(x, grid, neighbors)
    n = records.size
    if n == 0:
        raise ValueError("a sum or mean needs at least one record.")

    def statistic(cells: np.ndarray, present: np.ndarray, *, high: int) -> IntegerProfile:
        return integer_profiles.sum_of_records(cells, high=high)

    values = grid.times(n, grid.resolution / (n if of_mean else 1))
    return release_statistic(records, statistic, epsilon, mechanism, draws, values=values)


def release_statistic(
    records: Records,
    statistic: Callable[..., IntegerProfile],
    epsilon: float,
    mechanism: Mechanism,
    draws: int,
    *,
    values: Multiples | Floats | None = None,
) -> Release:
    """Draw from the statistic's profiles; ``values`` is the grid that these count on, by default that of the records."""
    cost, values = exact_epsilon(epsilon), values or records.grid
    checks.one_of("mechanism", mechanism, get_args(Mechanism))

    def profile(first: int, last: int) -> IntegerProfile:
        return statistic(*records.read(slice(first, last)), high=records.grid.size - 1)

    ends = profile(0, 0)  # raises for public numbers that do not fit
    if max(abs(values.start), abs(values.start + values.size - 1)) > 2**53:
        raise ValueError("a float cannot count so far: take a coarser resolution, or bounds closer to 0.")
    if draws is EVALUATE:
        if records.batch:
            raise ValueError(f"exact_distribution takes one dataset (n,), got the leading shape {records.batch}.")
        one, floats = IntegerProfile(*(side[0] for side in profile(0, 1))), values if isinstance(values, Floats) else None
        found: Any = GridDistribution(one, float(cost), values.resolution or Fraction(1), values.start, mechanism, floats)
        return found
    number, rows = checks.static_integer("draws", draws, 1), math.prod(records.batch)
    levels = max(2, *(side.shape[-1] for side in ends)) - 1
    if mechanism == "piecewise_laplace":
        drawn = draw_piecewise_laplace(cost, profile, levels, rows, number)
    else:  # a level and a depth, which may be one more than there are levels
        weights = level_weights(cost, 2 * levels + 1)
        drawn = draw_by_permute_and_flip(cost, weights, lambda *some: groups_of(profile(*some)), rows, number)
    numbers = drawn.reshape(number, *records.batch)
    return release_of(numbers, values, cost_of(cost, number, records.neighbors, ranges_of(mechanism)))


def draw_piecewise_laplace(
    epsilon: Fraction, profile: Callable[[int, int], IntegerProfile], levels: int, rows: int, draws: int
) -> np.ndarray:
    """Draw numbers ``(draws, rows)`` from ``profile(first, last)`` of some rows, which have so many levels.

    On the device they are a round number, by last values that are repeated, which has no mass: datasets of about the same size
    share a program.
    """
    step = max(32, 1 << max(levels.bit_length() - 4, 0))
    width = -(-levels // step) * step
    tables = public_tables(epsilon, levels=width)

    def widened(side: np.ndarray) -> np.ndarray:
        return np.pad(side, [(0, 0), (0, width + 1 - side.shape[-1])], mode="edge")

    def on_device(here: IntegerProfile, words: Any) -> Draw:
        return certified_draw(tables, *map(widened, here), words)

    def on_host(here: IntegerProfile, row: int, words: list[int], more: More) -> int:
        return exact_draw(epsilon, here.lower[row].tolist(), here.upper[row].tolist(), words, more=more)

    return draw_lanes(rows, draws, 2 * width, WORDS, profile, on_device, on_host)
