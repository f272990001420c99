"""Objects that describe how far a statistic changes when 1, 2, ... individuals change."""

from __future__ import annotations

from dpjax.sensitivity.down import DownSensitivity, from_removals
from dpjax.sensitivity.local import LocalSensitivity, SmoothSensitivity, local_sensitivity_bound
from dpjax.sensitivity.profile import SensitivityProfile
from dpjax.sensitivity.radii import from_local_sensitivity, from_radii
from dpjax.sensitivity.scores import CandidateScores, from_distances
from dpjax.sensitivity.sorted_records import SortedRecords
from dpjax.sensitivity.vector_profile import VectorProfile, from_vector_radii

__all__ = [
    "CandidateScores",
    "DownSensitivity",
    "LocalSensitivity",
    "SensitivityProfile",
    "SmoothSensitivity",
    "SortedRecords",
    "VectorProfile",
    "from_distances",
    "from_local_sensitivity",
    "from_radii",
    "from_removals",
    "from_vector_radii",
    "local_sensitivity_bound",
]


def __dir__() -> list[str]:
    return __all__
