"""Exact draws for publication, on a public grid."""

from __future__ import annotations

import importlib

from dpjax.release.counts import Counts
from dpjax.release.grid import Floats
from dpjax.release.quantiles import Quantiles
from dpjax.release.result import Release
from dpjax.release.statistics import (
    Count,
    DistinctCount,
    Histogram,
    Maximum,
    Mean,
    Median,
    Mode,
    NonnegativeSum,
    Quantile,
    Statistic,
    Sum,
)

__all__ = [
    "Count",
    "Counts",
    "DistinctCount",
    "Floats",
    "Histogram",
    "Maximum",
    "Mean",
    "Median",
    "Mode",
    "NonnegativeSum",
    "Quantile",
    "Quantiles",
    "Release",
    "Statistic",
    "Sum",
    "metric_laplace",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    # Imported on use, as it imports JAX
    if name == "metric_laplace":
        return importlib.import_module("dpjax.release.metric").metric_laplace
    raise AttributeError(f"module 'dpjax.release' has no attribute {name!r}")
