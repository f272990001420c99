"""Exact draws for publication, on a public grid.

**Why.** A draw in floating point reveals its data: the set of floats that a sampler can return
depends on them, and a good part of its outputs are impossible for a neighbor, whatever the
precision. Everything outside this package is for simulation; publish only what it returns.

**How.** A statistic is an object that holds only public parameters. It rounds records to a public
grid, which keeps neighbors neighbors, and counts equal ones; the counts say where it jumps after
each number of changes (``jumps``), and so how probable each value is (``distribution``). Floats
decide a draw only where no rounding can change it, and integers and decimals decide the rest, with
further bits of the operating system. Nothing here imports JAX, except for metric privacy, and
nothing is compiled.

    records --read, count--> counts --statistic--> distribution --> a release, or error bars

>>> ages = [31, 40, 28, 35, 52, 33, 47, 29, 38] * 4
>>> median = Median(lower=0, upper=120, resolution=1)
>>> public = {"epsilon": 1.0, "neighbors": "add_remove"}
>>> median.distribution(ages, **public).mean_abs_error(35).round(2)  # not private: for planning
np.float64(0.11)
>>> found = median.release(ages, **public)  # for publication
>>> found.values.shape, str(found.guarantee)
((1,), '1-DP under add_remove neighbors')

**Statistics.** :class:`Median`, :class:`Quantile`, :class:`Quantiles` and
:class:`ConfidenceInterval`; :class:`Mode`; :class:`Sum`, :class:`Mean`, :class:`Count` and
:class:`Histogram`, with discrete Laplace noise; and :class:`Maximum`, :class:`NonnegativeSum` and
:class:`DistinctCount`, which one person can increase without bound. :func:`metric_laplace` answers
linear queries with metric privacy.

**Mechanism and resolution.** One value on a grid is drawn by permute and flip;
``mechanism="piecewise_laplace"`` is for many draws. Choose a resolution near the error that you
expect, not finer. :class:`Statistic` has the numbers for both.

**Several values.** :class:`Quantiles` draws any number of quantiles together, in ascending order,
at the cost of one. With straight lines between them they are a cdf:
``np.interp(y, [lower, *q, upper], [0, *levels, 1])``. The two ends of a
:class:`ConfidenceInterval` contain the quantile of a population from which the records are drawn
independently, with a probability that is computed beforehand.

**Whose records.** The guarantee is for one record, and so for one person if each person has one
record: an array does not say whose records it has. If a person can have several,
``dpjax.frames.release`` with ``unit=`` combines them into one.

**Data without known bounds.** Quantiles and maxima take ``grid=Floats(digits=3)`` in place of
bounds and a resolution: all numbers of three significant digits from 10^-30 to 10^30, of both
signs, and 0.

>>> Median(grid=Floats(digits=3)).release([3.14159] * 1000, **public).values.tolist()
[3.14]

**Data in a database.** The database counts and this package draws: ``counts=`` is how often each
record of ``x`` occurs. There must be one record per person and group, and groups and values must be
public (``SELECT region, age, count(*) ... GROUP BY region, age``):

>>> import numpy as np
>>> counts = np.zeros((2, 121), int)  # of two groups and the ages 0, ..., 120
>>> counts[0, [31, 28, 35]], counts[1, [52, 47]] = [120, 80, 100], [90, 70]
>>> regions = median.release(np.arange(121), counts=counts, epsilon=30.0, neighbors="add_remove")
>>> regions.values.tolist()
[[31.0, 52.0]]

**What the guarantee does not cover**: the time that a draw takes, memory, and parameters that are
chosen from the data.

**Speed.** A group takes the time of its different values, not of its records: one value from
each of 1000 groups on 121 values takes some milliseconds.
"""

from __future__ import annotations

import importlib

from dpjax.release.counts import Counts
from dpjax.release.grid import Floats
from dpjax.release.interval import ConfidenceInterval
from dpjax.release.result import Release
from dpjax.release.several_quantiles import Quantiles
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
    "ConfidenceInterval",
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
