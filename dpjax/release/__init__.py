"""Exact draws for publication, on a public grid.

They are from piecewise Laplace distributions (or permute and flip).

**Why.** A floating-point draw from a continuous distribution reveals its data: the set of floats
that the sampler can return depends on the data, so that a good part of the outputs are impossible
on a neighbor, whatever the precision. Everything outside this package is for simulation; publish
only what it returns: :func:`median`, :func:`quantile`, :func:`order_statistic`, :func:`mode` and,
for a user's integer scores, :func:`release_choice`; :func:`count` and :func:`histogram`; under swap
:func:`sum` and :func:`mean`; and, for statistics that one person can increase without bound,
:func:`maximum`, :func:`nonnegative_sum`, :func:`user_sum` and :func:`distinct_count`.

    records --(round, count)--> counts --statistic--> profile --mechanism(epsilon)--> distribution
    distribution --> release or error bars

**The distribution** is the one that ``dpjax.piecewise_laplace`` simulates for a statistic with the
same ``resolution``; tests check that both agree. Each record is rounded to a multiple of a public
resolution, which keeps neighbors neighbors; after that only the number of occurrences of each value
matters (``counts``). ``profiles`` has the values that a statistic can reach after each number of
changes, ``distribution`` the weight of every value and the proof.

**The draw** is explained in ``draw``: floats decide it only where no rounding can change it, and
otherwise exact arithmetic decides it, with further bits of the same uniforms. Nothing here imports
JAX, and nothing is compiled.

**Statistic objects** (``statistics``): ``Median(lower=0, upper=120, resolution=1)`` has the public
parameters of a median. The functions create such objects; :func:`exact_distribution` takes one, to
compute the error before any budget is spent. Statistics and releases can be converted to and from
JSON.

**Candidates.** A mode and a choice by integer scores use the exponential mechanism: a piece of one
position for each candidate, chosen in the same way. Each score is clamped to a public range.

**Permute and flip**, with ``mechanism="permute_and_flip"``, is for a single release: epsilon-DP,
and 2 epsilon-bounded-range.

**Several quantiles**: :func:`joint_quantiles`, :func:`nested_quantiles` and
:func:`recursive_quantiles`, among which :func:`private_quantiles` selects by their number; two
joint quantiles are a :func:`confidence_interval`.

**Metric privacy**: :func:`metric_laplace` answers linear queries with discrete Laplace noise,
:func:`metric_choice` and :func:`small_db` choose by integer scores; rates are exact quotients of
budgets and changes (``metric``).

**Whose records.** The guarantee is for one record, and so for one person if each person has one
record: an array does not say whose records it has. If a person can have several,
``dpjax.frames.release`` with ``unit=`` combines them into one.

**What is not covered by the guarantee**: see :func:`median`.

**Data without known bounds.** Quantiles, order statistics and maxima take ``grid=Floats(digits=3)``
in place of bounds and resolution: all numbers of three significant digits from 10^-30 to 10^30, of
both signs, and 0. On 1001 incomes at epsilon 0.2 the median's error is 1.6 % larger than with good
bounds. With five people, nothing would be found without bounds.

**Data in a database.** The database counts and this package draws: only the number of occurrences
of each value is needed, and a group of a billion records costs as much time as its distinct values.
There must be one record per person and group, and groups and values must be public
(``SELECT region, age, count(*) ... GROUP BY region, age``):

>>> import numpy as np
>>> counts = np.zeros((2, 121), int)  # of two groups and the ages 0, ..., 120
>>> counts[0, [31, 28, 35]], counts[1, [52, 47]] = [120, 80, 100], [90, 70]
>>> public = {"lower": 0, "upper": 120, "resolution": 1, "epsilon": 30.0, "neighbors": "add_remove"}
>>> median(np.arange(121), counts=counts, **public).values.tolist()
[[31.0, 52.0]]

**Speed.** Joint deciles of 1000 groups of 1000 records take a second with ``public_n=1000`` and 15
to 20 without it; recursive ones take one or two. Of millions of records in a group, only those near
the quantiles take time.
"""

from __future__ import annotations

import importlib

from dpjax.release._released_interval import (
    ConfidenceInterval,
    ReleasedInterval,
    confidence_interval,
)
from dpjax.release._released_quantiles import (
    Quantiles,
    joint_quantiles,
    nested_quantiles,
    private_quantiles,
    recursive_quantiles,
)
from dpjax.release.api import (
    count,
    distinct_count,
    exact_distribution,
    histogram,
    maximum,
    mean,
    median,
    mode,
    nonnegative_sum,
    order_statistic,
    quantile,
    release_choice,
    sum,
    user_sum,
)
from dpjax.release.counts import Counts
from dpjax.release.distribution import GridDistribution
from dpjax.release.grid import Floats
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
    OrderStatistic,
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
    "GridDistribution",
    "Histogram",
    "Maximum",
    "Mean",
    "Median",
    "Mode",
    "NonnegativeSum",
    "OrderStatistic",
    "Quantile",
    "Quantiles",
    "Release",
    "ReleasedInterval",
    "Statistic",
    "Sum",
    "confidence_interval",
    "count",
    "distinct_count",
    "exact_distribution",
    "histogram",
    "joint_quantiles",
    "maximum",
    "mean",
    "median",
    "metric_choice",
    "metric_laplace",
    "mode",
    "nested_quantiles",
    "nonnegative_sum",
    "order_statistic",
    "private_quantiles",
    "quantile",
    "recursive_quantiles",
    "release_choice",
    "small_db",
    "sum",
    "user_sum",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    # Imported on use, as they import JAX
    if name in ("metric_choice", "metric_laplace", "small_db"):
        return getattr(importlib.import_module("dpjax.release.metric"), name)
    raise AttributeError(f"module 'dpjax.release' has no attribute {name!r}")
