"""From the integer profiles of a statistic to its draws on a grid, for the functions of ``api.py``."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, NamedTuple, get_args

import jax
import numpy as np

from dpjax import checks
from dpjax.checks import Neighbors, Resolution
from dpjax.release import integer_profiles
from dpjax.release.distribution import GridDistribution, Mechanism
from dpjax.release.exact import More, exact_draw
from dpjax.release.grid import Floats, Multiples, values_of
from dpjax.release.integer_profiles import IntegerProfile
from dpjax.release.permute_and_flip import draw_by_permute_and_flip, groups_of
from dpjax.release.records import Records, reader
from dpjax.release.result import EVALUATE, Release, cost_of
from dpjax.release.sampler import WORDS, Draw, certified_draw
from dpjax.release.tables import exact_epsilon, level_weights, public_tables
from dpjax.release.words import draw_lanes
from dpjax.statistics.ranks import Ranks
from dpjax.statistics.records import levels_needed


class Asked(NamedTuple):
    """What is drawn from each row."""

    epsilon: float
    mechanism: Mechanism
    draws: int


def release_ranks(records: Records, ranks: Ranks, grid: Multiples | Floats, asked: Asked) -> Release:
    """Draw a quantile or order statistic."""
    options: Any = {"count_is_public": records.neighbors == "swap", "most": levels_needed(exact_epsilon(asked.epsilon))}
    statistic = partial(integer_profiles.order_statistic, ranks=ranks, **options)
    refined = ranks.refinement
    if isinstance(grid, Floats):
        return release_statistic(records, statistic, grid, asked)
    return release_statistic(records, statistic, grid, asked, unit=unit_of(grid, refined, grid.resolution / refined))


def unit_of(grid: Multiples, times: int, resolution: Fraction) -> tuple[Fraction, int, int]:
    """The resolution, start and end of a statistic that is so many times as long as the grid."""
    return resolution, times * grid.start, times * (grid.start + grid.size - 1)


def release_sum(
    x: Any, lower: float, upper: float, resolution: Resolution, neighbors: Neighbors, asked: Asked, *, of_mean: bool
) -> Release:
    """Draw a sum or mean."""
    if neighbors != "swap":
        raise ValueError(f"neighbors must be 'swap': sums and means are released under swap only; got {neighbors!r}.")
    grid = Multiples.between(lower, upper, resolution)
    records = Records(x, reader(grid), neighbors)
    n = records.size
    if n == 0:
        raise ValueError("a sum or mean needs at least one record.")

    def statistic(cells: np.ndarray, present: np.ndarray, *, high: int) -> IntegerProfile:
        return integer_profiles.sum_of_records(cells, high=high)

    return release_statistic(records, statistic, grid, asked, unit=unit_of(grid, n, grid.resolution / (n if of_mean else 1)))


def release_statistic(
    records: Records,
    statistic: Callable[..., IntegerProfile],
    grid: Multiples | Floats,
    asked: Asked,
    *,
    unit: tuple[Fraction, int, int] | None = None,
) -> Release:
    """Draw from the statistic's profiles; ``unit`` is their resolution, start and end, where those are not the grid's."""
    epsilon, mechanism, draws = exact_epsilon(asked.epsilon), asked.mechanism, asked.draws
    checks.one_of("mechanism", mechanism, get_args(Mechanism))
    floats, size = grid if isinstance(grid, Floats) else None, grid.size
    if unit is None and isinstance(grid, Multiples):
        unit = grid.resolution, grid.start, grid.start + size - 1
    resolution, start, end = unit or (Fraction(1), 0, size - 1)

    def profile(first: int, last: int) -> IntegerProfile:
        return statistic(*records.read(slice(first, last)), high=size - 1)

    ends = profile(0, 0)  # raises for public numbers that do not fit
    if max(abs(start), abs(end)) > 2**53:
        raise ValueError("a float cannot count so far: take a coarser resolution, or bounds closer to 0.")
    if draws is EVALUATE:
        if records.batch:
            raise ValueError(f"exact_distribution takes one dataset (n,), got the leading shape {records.batch}.")
        one = IntegerProfile(*(side[0] for side in profile(0, 1)))
        of_one: Any = GridDistribution(one, float(epsilon), resolution, start, mechanism, floats)
        return of_one
    number, rows = checks.static_integer("draws", draws, 1), math.prod(records.batch)
    levels = max(2, *(side.shape[-1] for side in ends)) - 1
    draw = draw_piecewise_laplace if mechanism == "piecewise_laplace" else _permute_and_flip
    multiples = (start + draw(epsilon, profile, levels, rows, number)).reshape(number, *records.batch)
    guarantee = cost_of(epsilon, number, records.neighbors, mechanism)
    if floats is not None:
        return Release(floats.values_of(multiples), multiples, None, guarantee)
    return Release(values_of(multiples, resolution), multiples, resolution, guarantee)


Profiles = Callable[[int, int], IntegerProfile]  # of some rows


def draw_piecewise_laplace(epsilon: Fraction, profile: Profiles, levels: int, rows: int, draws: int) -> np.ndarray:
    """Draw numbers ``(draws, rows)`` from profiles with so many levels."""
    tables = public_tables(epsilon, levels=levels)
    at_hand = lru_cache(maxsize=1)(profile)  # many draws of the same rows come one after the other

    def on_host(row: int, words: list[int], more: More) -> int:
        lower, upper = (side[0].tolist() for side in profile(row, row + 1))
        return exact_draw(epsilon, lower, upper, words, more=more)

    def on_device(some: slice, words: jax.Array) -> Draw:
        return certified_draw(tables, *at_hand(some.start, some.stop), words)

    return draw_lanes(rows, draws, 2 * levels, WORDS, on_device, on_host)


def _permute_and_flip(epsilon: Fraction, profile: Profiles, levels: int, rows: int, draws: int) -> np.ndarray:
    """Draw numbers ``(draws, rows)`` from profiles with so many levels."""
    weights = level_weights(epsilon, 2 * levels + 1)  # a level and a depth, which may be one more than there are levels
    at_hand = lru_cache(maxsize=1)(lambda first, last: groups_of(profile(first, last)))
    return draw_by_permute_and_flip(epsilon, weights, at_hand, rows, draws)
