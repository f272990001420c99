"""Which statistics there are: each by the function that releases it or by the one that simulates it, in either call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpjax import mechanisms, statistics
from dpjax import release as exact
from dpjax.checks import Neighbors

RELEASED: tuple[Callable[..., exact.Release], ...] = (
    *(exact.median, exact.quantile, exact.joint_quantiles, exact.recursive_quantiles, exact.mode),
    *(exact.maximum, exact.nonnegative_sum, exact.sum, exact.mean, exact.count),
)
# What they release, as a function of records; the statistics of monotone sums and maxima are drawn on the release's own grid.
SIMULATED: dict[Any, Callable[..., Any]] = {
    exact.median: statistics.median,
    exact.quantile: statistics.quantile,
    exact.recursive_quantiles: statistics.quantiles,
    exact.joint_quantiles: statistics.quantiles,
    exact.mode: statistics.candidate_counts,
    exact.sum: statistics.sum,
    exact.mean: statistics.mean,
    exact.count: statistics.count,
}
_RELEASED_AS: dict[Any, Callable[..., exact.Release]] = {simulated: released for released, simulated in SIMULATED.items()}
_RELEASED_AS |= {statistics.maximum: exact.maximum, statistics.nonnegative_sum: exact.nonnegative_sum}
_RELEASED_AS |= {
    mechanisms.joint_quantiles.joint_quantiles: exact.joint_quantiles,
    mechanisms.recursive_quantiles.recursive_quantiles: exact.recursive_quantiles,
}
SWAP_ONLY = (exact.sum, exact.mean)  # as releases
SHIFTED = (exact.maximum, exact.nonnegative_sum)
ON_A_GRID = (exact.median, exact.quantile, exact.sum, exact.mean, *SHIFTED)
RANKS = (exact.median, exact.quantile, exact.joint_quantiles, exact.recursive_quantiles)


def released_as(statistic: Callable[..., Any]) -> Callable[..., exact.Release] | None:
    """Return the function of :mod:`dpjax.release` for a statistic; None if it has none."""
    return statistic if statistic in RELEASED else _RELEASED_AS.get(statistic)


def check_options(released: Callable[..., exact.Release] | None, own: Mapping[str, Any], neighbors: Neighbors) -> None:
    """Refuse what is for arrays, and what would tell how large a group is."""
    for name in ("counts", "mask"):
        if name in own:
            raise ValueError(f"{name}= is for arrays: here every row of the frame is one record; filter the frame before.")
    if released is exact.count and neighbors == "swap":
        raise ValueError("under swap neighbors the number of records is public: count needs neighbors='add_remove'.")
    if released is not exact.joint_quantiles:
        if "n_max" in own:
            raise ValueError("n_max is for joint_quantiles: other statistics do not need it.")
    elif neighbors == "swap" and "n_max" in own:
        raise ValueError("n_max is for add_remove neighbors: under swap the number of records is public.")
    elif neighbors == "add_remove" and "n" in own:
        raise ValueError("n= is not for frames: sizes are private. Give n_max=, a public guess of the most records of a group.")
