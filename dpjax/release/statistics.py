"""What can be released on a grid, and the integer values that each can take around a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.release.grid import Grid
from dpjax.release.knots import Knots, distinct_knots, maximum_knots, order_knots, sum_knots, total_knots
from dpjax.release.tables import Law
from dpjax.sensitivity.down import check_shift
from dpjax.statistics.quantiles import Ranks, ranks_of_order_statistic, ranks_of_quantile


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


@dataclass(frozen=True)
class Maximum:
    """The largest record, by shifted inverse sensitivity: near the (tau+1)-th largest.

    Attributes:
        tau: at least 1, chosen without the data, for example by :func:`dpjax.shift_for`.
    """

    tau: int


@dataclass(frozen=True)
class Total:
    """The sum of nonnegative records, with no bound on one of them but the grid's, by shifted inverse sensitivity.

    It lies near the sum without the tau largest records. The grid must start at 0.

    Attributes:
        tau: at least 1, chosen without the data, for example by :func:`dpjax.shift_for`.
        size: the number of cells of the sum's range, public; a larger sum counts as its end.
    """

    tau: int
    size: int


@dataclass(frozen=True)
class Distinct:
    """The number of different ids among the records, one id a person, by shifted inverse sensitivity.

    It lies near the number that is left when tau people leave, those of the rarest ids first. An id is an integer or a text;
    anything else is absent.

    Attributes:
        tau: at least 1, chosen without the data, for example by :func:`dpjax.shift_for`.
        size: the number of possible counts, 0 to size - 1; public, and a larger count counts as its end.
    """

    tau: int
    size: int


@dataclass(frozen=True)
class Mode:
    """The most frequent of finitely many public candidates; a record that equals none counts for none.

    Attributes:
        candidates: finite numbers, distinct and increasing, which float64 holds; chosen without the data. Integers are compared
            with them exactly, however large they are.

    Raises:
        ValueError: other candidates.
    """

    candidates: tuple[float, ...]

    def __post_init__(self) -> None:
        labels = np.asarray(self.candidates, np.float64)
        if labels.ndim != 1 or labels.size == 0 or not np.isfinite(labels).all() or not np.all(np.diff(labels) > 0):
            raise ValueError(f"candidates must be finite, distinct and increasing, got {self.candidates}.")
        for given, label in zip(self.candidates, labels.tolist(), strict=True):
            if isinstance(given, (int, np.integer)) and int(given) != label:
                raise ValueError(f"candidates must be numbers that float64 holds, got {given}.")


MEDIAN = Quantile(Fraction(1, 2))
Statistic = Quantile | OrderStatistic | Maximum | Total | Distinct | Mode | Literal["median", "sum", "mean"]


def knots_of(
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
        if n * max(abs(grid.start), abs(grid.start + grid.size)) > 2**53:
            raise ValueError(
                f"float64 cannot hold every sum of {n} records of this grid: take bounds closer to 0 or a larger step."
            )
        return sum_knots(cells, high=grid.size - 1), 1, True
    if isinstance(statistic, Maximum):
        return maximum_knots(cells, there, tau=check_shift(statistic.tau), high=high), 1, False
    if isinstance(statistic, Total):
        if grid.lower != 0:
            raise ValueError(f"a Total needs a grid that starts at 0, this one starts at {grid.lower}.")
        top = Grid(grid.log2_step, 0, statistic.size).size - (law == "owned_cell")
        return total_knots(cells, there, tau=check_shift(statistic.tau), high=top), 1, False
    if isinstance(statistic, Distinct):
        return distinct_knots(cells, there, tau=check_shift(statistic.tau), high=high), 1, False
    if statistic == "median":
        statistic = MEDIAN
    if isinstance(statistic, Quantile):
        checks.one_of("definition", statistic.definition, ("linear", "lower"))
        ranks: Ranks = ranks_of_quantile(statistic.q, definition=statistic.definition, neighbors=neighbors)
    elif isinstance(statistic, OrderStatistic):
        ranks = ranks_of_order_statistic(statistic.rank, n)
    else:
        raise ValueError(
            'statistic must be "median", "sum", "mean", a Quantile, OrderStatistic, Maximum, Total, Distinct or Mode; '
            f"got {statistic!r}."
        )
    refined = 1 if ranks.definition == "lower" else ranks.denominator
    return order_knots(cells, there, ranks, high=high, count_is_public=neighbors == "swap"), refined, False
