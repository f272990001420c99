"""Estimates in JAX: of records as they are, without a resolution, and of several quantiles together."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from math import lcm
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import checks, mechanisms
from dpjax.command_line.estimate import JOINT, Found, Ties
from dpjax.command_line.kept import Table
from dpjax.command_line.parser import LINE_MECHANISMS
from dpjax.mechanisms import joint_quantiles
from dpjax.numerics.multiples import most_multiples
from dpjax.release.grid import Multiples
from dpjax.several_quantiles.ranks import levels_needed
from dpjax.statistics import quantile, quantiles

TIED_SHARE = 0.1  # from this share of the records on, it is said that a statistic is tied
_LEAST = 64  # places for the records of a group
_CELLS = 2**22  # of a batch


def check(asked: argparse.Namespace) -> None:
    """Raise for public numbers that arrays do not take."""
    dtype = jnp.result_type(float)
    for bounds, statistic in zip(asked.bounds, getattr(asked, "statistics", ()), strict=False):
        refined = lcm(*(q.denominator for q in asked.quantile))
        checks.resolution(statistic.resolution, bounds, most_multiples(dtype) // refined)
    # Under a trace, public numbers are checked and nothing is computed.
    jax.eval_shape(
        lambda: [checks.bounds(low, high, dtype) for low, high in asked.bounds] + [checks.positive("epsilon", asked.epsilon, dtype)]
    )


def estimate(table: Table, column: int, asked: argparse.Namespace) -> tuple[dict[tuple[str, float], Found], Ties]:
    """By mechanism and epsilon, draws and error bars of each group of a column; and ties."""
    bounds, step = asked.bounds[column], None if asked.resolution is None else asked.statistics[column].resolution
    shape = len(table.labels), len(asked.quantile)
    share, spoils = np.zeros(shape), np.zeros(shape, bool)
    parts: dict[tuple[str, float], Any] = {}
    for number, (groups, rows, there) in enumerate(_batches(table, column)):
        records = np.clip(rows, *bounds)  # in float64: none overflows in float32
        if asked.neighbors == "swap":
            records = np.where(np.isnan(records) & there, bounds[0], records)
        if step is not None:
            grid = Multiples.between(bounds[0], bounds[1], step)
            records = np.where(np.isnan(records), np.nan, grid.values_of(grid.numbers_of(records)[0]))
        records = np.sort(records, axis=-1).astype(jnp.result_type(float))  # what is missing comes last
        count = np.sum(~np.isnan(records), axis=-1).astype(np.int32)
        for mechanism in asked.mechanism:
            value, *found = _answer(mechanism, records, count, column + number * len(table.columns), bounds, step, asked)
            for place, epsilon in enumerate(asked.epsilon):
                each = value, found[0][:, place], *(bar[place] for bar in found[1:])
                empty = Found(*(np.zeros((*part.shape[:-2], *shape), part.dtype) for part in each))
                for whole, part in zip(parts.setdefault((mechanism, epsilon), empty), each, strict=True):
                    whole[..., groups, :] = part[..., : len(groups), :]
        equal = np.stack([np.sum(records == one[:, None], axis=-1) for one in value.T], axis=-1)
        share[groups] = (equal / np.maximum(count, 1)[:, None])[: len(groups)]
        spoils[groups] = (share[groups] >= TIED_SHARE) & (equal[: len(groups)] > 1) & (step is None)
    return parts, Ties(share, spoils)


def _batches(table: Table, column: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Groups of nearby sizes, the largest first: which ones, their records as padded rows, and which places are records.

    Rows and places are powers of two, so that few programs are compiled.
    """
    assert table.codes is not None
    sizes, records = table.sizes, table.kept[column][np.argsort(table.codes, kind="stable")]
    ends = records.size - np.sum(sizes) + np.cumsum(sizes)  # records of no group come first
    order, first = np.argsort(-sizes, kind="stable"), 0
    while first < order.size:
        places = _power(max(int(sizes[order[first]]), _LEAST))
        rows = min(_power(order.size - first), max(_CELLS // places, 1))
        some, there = np.sort(order[first : first + rows]), np.zeros((rows, places), bool)
        there[: some.size] = np.arange(places) < sizes[some, None]
        padded = np.full((rows, places), np.nan)
        padded[there] = np.concatenate([records[ends[g] - sizes[g] : ends[g]] for g in some])
        yield some, padded, there
        first += rows


def _power(n: int) -> int:
    """The least power of two from n on."""
    return 1 << (n - 1).bit_length()


def _answer(
    mechanism: str,
    records: np.ndarray,
    count: np.ndarray,
    stream: int,
    bounds: tuple[float, float],
    step: Any,
    asked: argparse.Namespace,
) -> list[np.ndarray]:
    """Values ``(groups, quantiles)``, draws ``(draws, epsilons, groups, quantiles)``, errors and both ends of intervals."""
    numbers = {
        "seed": np.uint32(asked.seed),
        "stream": np.uint32(stream),
        # A mechanism's key goes by its own number: its draws are the same whichever others are asked for.
        "number": np.uint32(LINE_MECHANISMS.index(mechanism) if mechanism in LINE_MECHANISMS else len(LINE_MECHANISMS)),
        "lower": records.dtype.type(bounds[0]),
        "upper": records.dtype.type(bounds[1]),
        "epsilon": np.array(asked.epsilon)[:, None],
    }
    near, qs = None, tuple(asked.quantile)
    if mechanism == JOINT:
        near = joint_quantiles.records_near(qs, step, min(asked.epsilon), bounds, records, count)
    options = {name: getattr(asked, name) for name in ("neighbors", "definition", "draws")}
    options |= {"mechanism": mechanism, "qs": qs, "resolution": step, "most": levels_needed(min(asked.epsilon)), "near": near}
    found = [np.asarray(part) for part in _program(records, count, numbers, **options)]
    return found if mechanism == JOINT else [part[..., None] for part in found]


@partial(jax.jit, static_argnames=("mechanism", "qs", "neighbors", "definition", "resolution", "draws", "most", "near"))
def _program(
    records: jax.Array,
    count: jax.Array,
    numbers: dict[str, jax.Array],
    *,
    mechanism: str,
    qs: tuple[Any, ...],
    neighbors: checks.Neighbors,
    definition: Any,
    resolution: Any,
    draws: int,
    most: int,
    near: tuple[int, int] | None,
) -> tuple[jax.Array, ...]:
    """The statistic of each group, draws, and for each epsilon the error of a draw and where 95 % of the draws are."""
    bounds, epsilon = (numbers["lower"], numbers["upper"]), numbers["epsilon"]
    options: Any = {"lower": bounds[0], "upper": bounds[1], "neighbors": neighbors, "count": count}
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(numbers["seed"]), numbers["stream"]), numbers["number"])
    if mechanism == JOINT:
        asked = quantiles(records, qs, resolution=resolution, **options)
        joint = joint_quantiles.joint_quantiles(asked, epsilon)
        joint = joint if near is None else joint_quantiles.without_far(joint, *near)
        value, drawn, bars = asked.value, joint.sample(key, (draws,)), joint.marginals()
    else:
        profile = quantile(records, qs[0], definition=definition, truncate=most, **options)
        distribution = distribution_of(mechanism, profile, epsilon, bounds)
        value, drawn, bars = profile.value, distribution.sample(key, (draws,)), distribution
    return value, drawn, bars.mean_abs_error(value), *bars.interval(0.95)


def distribution_of(mechanism: str, profile: Any, epsilon: Any, bounds: tuple[Any, Any]) -> Any:
    """Return the output distribution of a mechanism by its name.

    One record can move a quantile from one bound to the other: Laplace noise takes their distance as the sensitivity and stays
    between them.
    """
    if mechanism == "laplace":
        lower, upper = bounds
        return mechanisms.laplace.laplace(profile.value, epsilon, sensitivity=upper - lower, lower=lower, upper=upper)
    return getattr(getattr(mechanisms, mechanism), mechanism)(profile, epsilon)
