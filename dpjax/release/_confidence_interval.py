"""The release of a confidence interval for a quantile of the population: two joint quantiles, drawn exactly, and their coverage."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.accounting.ledger import Budget
from dpjax.checks import Neighbors, Resolution
from dpjax.release._joint_quantiles import countable
from dpjax.release.api import counts_of
from dpjax.release.counts import Counts
from dpjax.release.exact_chain import Parameters
from dpjax.release.exact_joint import draw_quantiles
from dpjax.release.grid import Multiples
from dpjax.release.records import shape_of
from dpjax.release.result import Release, release_of
from dpjax.release.statistics import Statistic
from dpjax.several_quantiles.interval import plan_of, planned_levels
from dpjax.several_quantiles.ranks import level_of


@dataclass(frozen=True, repr=False)
class ReleasedInterval(Release):
    """Confidence intervals, ``values`` being ``(draws, ..., 2)``, the lower and the upper end.

    Attributes:
        coverage: the computed lower bound on the probability that an interval holds the quantile of the population.
    """

    coverage: float

    def to_dict(self) -> dict[str, Any]:
        """Return As that of :class:`Release`, with the coverage."""
        return super().to_dict() | {"coverage": self.coverage}


@dataclass(frozen=True)
class ConfidenceInterval(Statistic):
    """A confidence interval for the population's q-quantile: two joint quantiles.

    Attributes:
        q: strictly between 0 and 1.
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: public; a finer one costs little width.
        public_n: how many records a group has, for the promise alone.
        coverage: what the bound must reach at least.
        ties: public, how many records share one multiple at most, near the quantile; by default n, which always holds.
        terms: as for :class:`Quantiles`.
    """

    q: float | Fraction | str
    lower: float
    upper: float
    resolution: Resolution
    public_n: int
    coverage: float = 0.95
    ties: int | None = None
    terms: int = 32

    def __post_init__(self) -> None:
        """Raise for bad public parameters."""
        checks.static_integer("public_n", self.public_n, 1)
        checks.concrete_fraction("coverage", self.coverage)
        level_of(self.q)
        self._settle()

    @cached_property
    def records_grid(self) -> Multiples:
        """The values that records are rounded to."""
        return Multiples.between(self.lower, self.upper, self.resolution)

    def read(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Round each record to the grid; NaN is absent."""
        return self.records_grid.numbers_of(x)

    def _release(
        self, counts: Counts, epsilon: Fraction, neighbors: str, mechanism: str, draws: int, batch: tuple[int, ...]
    ) -> ReleasedInterval:
        grid = self.records_grid
        counts = countable(counts, grid.size)
        parameters, coverage = self._parameters(counts, epsilon, neighbors)
        drawn = release_of(
            draw_quantiles(parameters, counts, draws).reshape(draws, *batch, 2), grid, self.cost(epsilon, draws, neighbors)
        )
        return ReleasedInterval(drawn.values, drawn.multiples, drawn.resolution, drawn.guarantee, coverage)

    def _check(self, counts: Counts, epsilon: Fraction, neighbors: str, mechanism: str) -> None:
        self._parameters(countable(counts, self.records_grid.size), epsilon, neighbors)

    def _parameters(self, counts: Counts, epsilon: Fraction, neighbors: str) -> tuple[Parameters, float]:
        """Return the public part of the joint distribution and the coverage, or an error where it is not reached."""
        ties = self.public_n if self.ties is None else self.ties
        plan = plan_of(float(epsilon), self.lower, self.upper, self.resolution, neighbors, ties, self.terms)
        levels, coverage = planned_levels(plan, level_of(self.q), self.public_n, self.public_n, self.coverage)
        size, most = self.records_grid.size, int(np.max(counts.counts, initial=1))
        parameters = Parameters.of(levels, epsilon, neighbors, size, False, plan.reach, self.terms, most)
        return parameters._replace(aims="ranks"), coverage


def confidence_interval(
    x: Any,
    q: float | Fraction | str,
    *,
    epsilon: float,
    lower: float,
    upper: float,
    resolution: Resolution,
    neighbors: Neighbors,
    coverage: float = 0.95,
    ties: int | None = None,
    public_n: int | None = None,
    terms: int = 32,
    counts: Any = None,
    mask: Any = None,
    draws: int = 1,
    budget: Budget | None = None,
) -> ReleasedInterval:
    """Release a confidence interval for the population's q-quantile from every row, drawn exactly.

    It is what :func:`dpjax.confidence_interval` simulates, which says what is promised and what it costs.

    Args:
        x: numbers ``(..., n)``; this and the rest as for :func:`median`.
        q: strictly between 0 and 1.
        epsilon: from 2^-28 to 64 for both ends together, for each draw.
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: public; a finer one costs little width.
        neighbors: ``"add_remove"`` or ``"swap"``.
        coverage: what the bound must reach at least.
        ties: public, how many records share one multiple at most, near the quantile; by default n, which always holds.
        public_n: how many records a row has, for the promise alone; by default all columns of ``x``. Needed under add/remove.
        terms: as for :func:`joint_quantiles`.
        counts: how many records each entry of ``x`` stands for.
        mask: which records are present.
        draws: how many intervals from each row; each costs epsilon.
        budget: as for :func:`median`.

    Returns:
        A :class:`ReleasedInterval` with ``values`` of the shape ``(draws, ..., 2)``.

    Raises:
        ValueError: a coverage that so few records cannot reach at this epsilon.

    Privacy:
        That of :func:`joint_quantiles`. The coverage is computed from public numbers only.

    References:
        As :func:`dpjax.confidence_interval`.

    >>> public = {"lower": 0, "upper": 5000, "resolution": 1, "neighbors": "swap"}
    >>> found = confidence_interval(range(2000), 0.5, epsilon=1.0, **public)
    >>> found.values.shape, found.coverage >= 0.95
    ((1, 2), True)
    """
    if public_n is None:
        if neighbors == "add_remove":
            raise ValueError("public_n is needed under add_remove: a public number of records to plan for.")
        shape = shape_of(x)
        public_n = shape[-1] if shape else 0
    statistic = ConfidenceInterval(q, lower, upper, resolution, public_n, coverage, ties, terms)
    found, batch = counts_of(statistic, x, neighbors, counts, mask)
    made: Any = statistic.release(found, epsilon, neighbors, draws=draws, batch_shape=batch, budget=budget)
    return made
