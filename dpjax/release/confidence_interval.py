"""The release of a confidence interval for a quantile of the population: two joint quantiles, drawn exactly, and their coverage."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpjax import checks
from dpjax.checks import Neighbors, Resolution
from dpjax.release.grid import Multiples
from dpjax.release.joint_quantiles import draw_quantiles, parameters_of
from dpjax.release.records import Records
from dpjax.release.result import Release
from dpjax.release.tables import exact_epsilon
from dpjax.several_quantiles.interval_bound import plan_of, planned_levels
from dpjax.several_quantiles.ranks import level_of


@dataclass(frozen=True, repr=False)
class ReleasedInterval(Release):
    """Confidence intervals, ``values`` being ``(draws, ..., 2)``, the lower and the upper end.

    Attributes:
        coverage: the computed lower bound on the probability that an interval holds the quantile of the population.
    """

    coverage: float

    def to_dict(self) -> dict[str, Any]:
        """As that of :class:`Release`, with the coverage."""
        return super().to_dict() | {"coverage": self.coverage}


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
    n: int | None = None,
    terms: int = 32,
    counts: Any = None,
    n_max: int | None = None,
    mask: Any = None,
    draws: int = 1,
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
        n: public, how many records a row has, for the promise alone; by default all columns of ``x``. Needed under add/remove.
        terms: as for :func:`joint_quantiles`.
        counts: how many records each entry of ``x`` stands for.
        n_max: the public capacity of a row.
        mask: which records are present.
        draws: how many intervals from each row; each costs epsilon.

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
    grid = Multiples.between(lower, upper, resolution)
    records = Records(x, grid, neighbors, mask, n_max, counts=counts)
    if n is None:
        if neighbors == "add_remove":
            raise ValueError("n is needed under add_remove: a public number of records to plan for.")
        n = records.size
    n = checks.static_integer("n", n, 1, records.size)
    plan = plan_of(epsilon, lower, upper, resolution, neighbors, n if ties is None else ties, terms)
    levels, found = planned_levels(plan, level_of(q), n, records.size, checks.concrete_fraction("coverage", coverage))
    parameters = parameters_of(
        levels, exact_epsilon(epsilon), neighbors, grid.size, False, plan.reach, terms, records.size, "ranks"
    )
    drawn = draw_quantiles(parameters, records, None, epsilon, draws)
    return ReleasedInterval(drawn.values, drawn.multiples, drawn.resolution, drawn.guarantee, found)
