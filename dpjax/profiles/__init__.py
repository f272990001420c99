"""From data to a sensitivity profile: what a statistic can become after 1, 2, ... individuals change."""

from dpjax.profiles.order_statistics import median, order_statistic, quantile
from dpjax.profiles.profile import SensitivityProfile, from_radii

__all__ = ["SensitivityProfile", "from_radii", "median", "order_statistic", "quantile"]
