"""Release of a confidence interval for a quantile of the population.

It is a pair of joint quantiles, drawn exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.accounting.ledger import Budget
from dpjax.checks import Neighbors, Resolution
from dpjax.release._released_quantiles import countable, most_countable
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
    """Released confidence intervals, from :func:`confidence_interval`.

    ``values`` has the shape ``(draws, ..., 2)``, the lower and the upper end.

    Attributes:
        coverage: a lower bound on the probability that an interval contains the quantile of the
            population.

    >>> public = {"lower": 0, "upper": 5000, "resolution": 1, "neighbors": "swap"}
    >>> confidence_interval(range(2000), 0.5, epsilon=1.0, **public).values.shape
    (1, 2)
    """

    coverage: float

    def to_dict(self) -> dict[str, Any]:
        """Return the dictionary of :meth:`Release.to_dict`, with the coverage."""
        return super().to_dict() | {"coverage": self.coverage}


@dataclass(frozen=True)
class ConfidenceInterval(Statistic):
    """A confidence interval for the population's q-quantile, from two joint quantiles.

    Attributes:
        q: in (0, 1).
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: public; a finer one makes the interval little wider.
        public_n: the number of records of a group, public, for which the coverage holds.
        coverage: the least coverage.
        ties: public, the maximal number of records that share one multiple near the quantile; by
            default n, which always holds.
        terms: as for :class:`Quantiles`.

    >>> asked = ConfidenceInterval(0.5, lower=0, upper=5000, resolution=1, public_n=2000)
    >>> asked.to_dict()["statistic"]
    'ConfidenceInterval'
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
        """Raise for public parameters out of range."""
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
        self,
        counts: Counts,
        epsilon: Fraction,
        neighbors: str,
        mechanism: str,
        draws: int,
        batch: tuple[int, ...],
    ) -> ReleasedInterval:
        grid = self.records_grid
        counts = countable(counts, grid.size)
        parameters, coverage = self._parameters(counts, epsilon, neighbors)
        drawn = release_of(
            draw_quantiles(parameters, counts, draws).reshape(draws, *batch, 2),
            grid,
            self.cost(epsilon, draws, neighbors),
        )
        return ReleasedInterval(
            drawn.values, drawn.multiples, drawn.resolution, drawn.guarantee, coverage
        )

    def _most_records(self) -> int:
        return most_countable(self.records_grid.size)

    def check(self, counts: Counts, epsilon: Fraction, neighbors: str, mechanism: str) -> None:
        """Raise for public parameters for which :meth:`release` would raise."""
        self._parameters(countable(counts, self.records_grid.size), epsilon, neighbors)

    def _parameters(
        self, counts: Counts, epsilon: Fraction, neighbors: str
    ) -> tuple[Parameters, float]:
        """Return the public parameters of the joint distribution and the coverage.

        Raise if it is too low.
        """
        ties = self.public_n if self.ties is None else self.ties
        plan = plan_of(
            float(epsilon), self.lower, self.upper, self.resolution, neighbors, ties, self.terms
        )
        levels, coverage = planned_levels(
            plan, level_of(self.q), self.public_n, self.public_n, self.coverage
        )
        size, most = self.records_grid.size, int(np.max(counts.counts, initial=1))
        parameters = Parameters.of(
            levels, epsilon, neighbors, size, False, plan.reach, self.terms, most
        )
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

    It is the interval that :func:`dpjax.confidence_interval` simulates, where its coverage and cost
    are described.

    Args:
        x: numbers ``(..., n)``, as for :func:`median`.
        q: in (0, 1).
        epsilon: from 2^-28 to 64 for both ends together, for each draw.
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: public; a finer one makes the interval little wider.
        neighbors: ``"add_remove"`` or ``"swap"``.
        coverage: the least coverage.
        ties: public, the maximal number of records that share one multiple near the quantile; by
            default n, which always holds.
        public_n: the number of records of a row, public, for which the coverage holds; by default
            the number of columns of ``x``. Required under add/remove.
        terms: as for :func:`joint_quantiles`.
        counts: the number of records that each entry of ``x`` stands for.
        mask: which records are present.
        draws: the number of intervals from each row; each costs epsilon.
        budget: as for :func:`median`.

    Returns:
        A :class:`ReleasedInterval` with ``values`` of the shape ``(draws, ..., 2)``.

    Raises:
        ValueError: so few records cannot reach the coverage at this epsilon, or a parameter is out
            of range.

    Privacy:
        As for :func:`joint_quantiles`. The coverage is computed from public numbers only.

    References:
        As for :func:`dpjax.confidence_interval`.

    >>> public = {"lower": 0, "upper": 5000, "resolution": 1, "neighbors": "swap"}
    >>> found = confidence_interval(range(2000), 0.5, epsilon=1.0, **public)
    >>> found.values.shape, found.coverage >= 0.95
    ((1, 2), True)
    """
    if public_n is None:
        if neighbors == "add_remove":
            raise ValueError(
                "public_n must be given under add_remove: a public number of records for the "
                "coverage."
            )
        shape = shape_of(x)
        public_n = shape[-1] if shape else 0
    statistic = ConfidenceInterval(q, lower, upper, resolution, public_n, coverage, ties, terms)
    found, batch = counts_of(statistic, x, neighbors, counts, mask)
    made: Any = statistic.release(
        found, epsilon, neighbors, draws=draws, batch_shape=batch, budget=budget
    )
    return made
