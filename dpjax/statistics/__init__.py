"""From data to a sensitivity profile: what a statistic can become after 1, 2, ... individuals change."""

from dpjax.statistics.local_sensitivity import local_sensitivity, smooth_sensitivity
from dpjax.statistics.mode import candidate_counts, mode
from dpjax.statistics.moments import mean, sum, variance
from dpjax.statistics.monotone import distinct_count, maximum, nonnegative_sum, user_sum
from dpjax.statistics.quantiles import median, order_statistic, quantile
from dpjax.statistics.triangles import triangle_count, triangle_count_of_edges

__all__ = [
    "candidate_counts",
    "distinct_count",
    "local_sensitivity",
    "maximum",
    "mean",
    "median",
    "mode",
    "nonnegative_sum",
    "order_statistic",
    "quantile",
    "smooth_sensitivity",
    "sum",
    "triangle_count",
    "triangle_count_of_edges",
    "user_sum",
    "variance",
]
