"""Simulated draws from the distributions of a release, with error bars, from counts, in NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dpjax.accounting.composition import Composition
from dpjax.accounting.guarantee import Guarantee
from dpjax.frames.column_options import BY_RANK, Asked
from dpjax.frames.truncated_laplace import TruncatedLaplace
from dpjax.release import Counts, DistinctCount, Maximum, NonnegativeSum, Quantiles
from dpjax.release.counts import sums_of

MEASURED = 1000  # the number of draws for the error bars of mechanisms without a closed form
# The number of entries of counts processed together, so that temporary arrays stay in the cache
_ENTRIES = 2**16
_GROUP = 32  # the weight of a group in addition to its entries


class Drawn(NamedTuple):
    """The simulated results of a column.

    Attributes:
        value: the statistic, ``(groups, quantiles)``.
        draws: ``(groups, epsilons, draws, quantiles)``.
        bars: the mean absolute error and both ends of the central interval of 95 % of the draws,
            ``(3, groups, epsilons, quantiles)``.
        tied: the share of the records that equal the statistic, ``(groups, quantiles)``, or None if
            the statistic is not decided by ranks.
        costs: the cost of all draws, for each epsilon.
        levels: the levels of several quantiles.
    """

    value: np.ndarray
    draws: np.ndarray
    bars: np.ndarray
    tied: np.ndarray | None
    costs: Sequence[Guarantee | Composition]
    levels: Sequence[float]


def drawn_from_counts(
    own: Asked, counts: Counts, neighbors: str, generator: np.random.Generator
) -> Drawn:
    """Draw from the distributions of a release for all groups.

    Error bars of several quantiles are estimated from 1000 draws.
    """
    statistic: Any = own.statistic
    shape = counts.groups, len(own.epsilons), own.draws, max(len(own.levels), 1)
    draws, value, bars = (
        np.zeros(shape),
        np.zeros((shape[0], shape[3])),
        np.zeros((3, *shape[:2], shape[3])),
    )
    tied = np.zeros_like(value) if isinstance(statistic, BY_RANK) else None
    for place, some in _some_at_a_time(counts):
        for number, epsilon in enumerate(own.epsilons):
            if isinstance(statistic, Quantiles):
                center = statistic.value(some)
                many = statistic.sample(generator, MEASURED + own.draws, some, epsilon, neighbors)
                drawn, many = many[: own.draws], many[own.draws :]
                ends = np.quantile(many, [0.025, 0.975], axis=0, method="inverted_cdf")
                each = (np.mean(np.abs(many - center), axis=0), *ends)
            else:
                known = None if own.mechanism == "laplace" else own.mechanism
                found = statistic.distribution(some, epsilon, neighbors, mechanism=known)
                if own.mechanism == "laplace":
                    found = TruncatedLaplace(found.value, float(epsilon), *own.bounds)  # type: ignore[arg-type]
                shifted = isinstance(statistic, Maximum | NonnegativeSum | DistinctCount)
                center = statistic.value(some) if shifted else found.value
                drawn, each = (
                    found.sample(generator, (own.draws,)),
                    (found.mean_abs_error(center), *found.interval(0.95)),
                )
            value[place] = np.reshape(center, (some.groups, -1))
            draws[place, number] = np.reshape(drawn, (own.draws, some.groups, -1)).swapaxes(0, 1)
            for bar, one in zip(bars, each, strict=True):
                bar[place, number] = np.reshape(one, (some.groups, -1))
        if tied is not None:
            tied[place] = _tied(statistic, some, value[place])
    costs = [
        statistic.cost(epsilon, own.draws, neighbors, own.mechanism) for epsilon in own.epsilons
    ]
    return Drawn(value, draws, bars, tied, costs, own.levels)


def _tied(statistic: Any, counts: Counts, value: np.ndarray) -> np.ndarray:
    """Return the share of the records that equal the statistic, ``(groups, quantiles)``."""
    cells = statistic.records_grid.values_of(counts.values)
    equal = [
        sums_of(np.where(cells == one[counts.group], counts.counts, 0), counts.starts)
        for one in value.T
    ]
    return np.stack(equal, axis=-1) / np.maximum(counts.totals, 1)[:, None]


def _some_at_a_time(counts: Counts) -> Iterator[tuple[slice, Counts]]:
    """Yield all groups in order, in blocks that fit into the cache."""
    weight = counts.starts + _GROUP * np.arange(counts.groups + 1)
    ends = np.searchsorted(weight, np.arange(_ENTRIES, weight[-1], _ENTRIES), "right") - 1
    cuts = np.unique([0, *ends, counts.groups]).tolist()
    for first, last in pairwise(cuts):
        yield slice(first, last), counts.some(first, last)
