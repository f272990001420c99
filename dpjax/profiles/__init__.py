"""From data to a sensitivity profile: what a statistic can become after 1, 2, ... individuals change."""

from dpjax.profiles.graphs import triangle_count, triangle_count_of_edges
from dpjax.profiles.monotone import DownSensitivity, distinct_count, maximum, nonnegative_sum, user_sum
from dpjax.profiles.order_statistics import median, order_statistic, quantile
from dpjax.profiles.profile import SensitivityProfile, from_local_sensitivity, from_radii

__all__ = [
    "DownSensitivity",
    "SensitivityProfile",
    "distinct_count",
    "from_local_sensitivity",
    "from_radii",
    "maximum",
    "median",
    "nonnegative_sum",
    "order_statistic",
    "quantile",
    "triangle_count",
    "triangle_count_of_edges",
    "user_sum",
]
