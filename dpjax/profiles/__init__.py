"""From data to a sensitivity profile: what a statistic can become after 1, 2, ... individuals change."""

from dpjax.profiles.counts import candidate_counts, mode
from dpjax.profiles.graphs import triangle_count, triangle_count_of_edges
from dpjax.profiles.moments import mean, sum, variance
from dpjax.profiles.monotone import DownSensitivity, distinct_count, maximum, nonnegative_sum, user_sum
from dpjax.profiles.order_statistics import median, order_statistic, quantile
from dpjax.profiles.profile import SensitivityProfile, from_local_sensitivity, from_radii
from dpjax.profiles.scores import CandidateScores
from dpjax.profiles.smooth_sensitivity import LocalSensitivity, SmoothSensitivity, local_sensitivity, smooth_sensitivity

__all__ = [
    "CandidateScores",
    "DownSensitivity",
    "LocalSensitivity",
    "SensitivityProfile",
    "SmoothSensitivity",
    "candidate_counts",
    "distinct_count",
    "from_local_sensitivity",
    "from_radii",
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
