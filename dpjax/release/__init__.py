"""Releases that floats do not undo: exact draws from piecewise Laplace distributions (or permute and flip) on a public grid.

**Why.** A float draw from a continuous distribution gives its data away: the set of floats that the sampler can return depends on
the data, so that a good part of the outputs are impossible for a neighbor, whatever the precision. Everything outside this package
is for simulation; what is published comes from here: :func:`median`, :func:`quantile`, :func:`order_statistic`, :func:`mode` and,
for integer scores of a user's own, :func:`release_choice`; :func:`count` and :func:`histogram`; under swap :func:`sum` and
:func:`mean`; and, for statistics that one person can raise without bound, :func:`maximum`, :func:`nonnegative_sum`,
:func:`user_sum` and :func:`distinct_count`.

    records --(round, count)--> counts --statistic--> profile --mechanism(epsilon)--> distribution --> a release, or its error bars

**The distribution** is the one that ``dpjax.piecewise_laplace`` simulates for a statistic with the same ``resolution``; both are
tested to agree. Records are rounded to multiples of a public resolution, one by one, so neighbors stay neighbors; then only how
often each value occurs matters (``counts.py``). ``profiles.py`` has the values that a statistic can reach after each number of
changes, ``distribution.py`` the weight of every number and the proof.

**The draw** is explained at the head of ``draw.py``: floats decide it only where no rounding can change it, and exact arithmetic,
with further bits of the same uniforms, decides the others. Nothing here imports JAX, and nothing is compiled.

**Statistics are objects** (``statistics.py``): ``Median(lower=0, upper=120, resolution=1)`` is what is public of a median. The
functions are a line on top; :func:`exact_distribution` takes the objects, to know the error before anything is spent.
They go to and from JSON, and so does what is released: ``found.to_json()`` is for machines.

**Candidates.** A mode and a choice by integer scores are the exponential mechanism: a piece of one position for each candidate,
chosen in the same way. Scores are clamped one by one to a public range.

**Permute and flip**, with ``mechanism="permute_and_flip"``, is for a single release: epsilon-DP, and 2 epsilon-bounded-range.

**Several quantiles**: :func:`joint_quantiles`, :func:`nested_quantiles` and :func:`recursive_quantiles` (``exact_joint.py`` and
others), of which :func:`private_quantiles` takes the one that suits their number; two of the first are a
:func:`confidence_interval`.

**Metric privacy**: :func:`metric_laplace` answers linear queries with discrete Laplace noise, :func:`metric_choice` and
:func:`small_db` choose by integer scores; rates are the exact quotients of budgets and changes (``metric.py``).

**Whose records.** The guarantee is for one record, and for one person where each has one: arrays do not say whose records they
are. Where a person can have several, ``dpjax.frames.release`` with ``unit=`` makes one of them.

**What is not covered**: see :func:`median`.

**Where nobody knows bounds**, quantiles, order statistics and maxima take ``grid=Floats(digits=3)`` in the place of bounds and
resolution: all numbers of three significant digits from 10^-30 to 10^30, of both signs, and 0. On 1001 incomes at epsilon 0.2 the
median's error is 1.6 % larger than between good bounds. Of five people nothing would be found without bounds.

**Where the data are in a database**, it counts and this package draws: records enter only by how often each value occurs, and a
group of a billion records costs what its different values cost. One record per person and group must hold there, and groups and
values are public (``SELECT region, age, count(*) ... GROUP BY region, age``):

>>> import numpy as np
>>> counts = np.zeros((2, 121), int)  # of two groups and the ages 0, ..., 120
>>> counts[0, [31, 28, 35]], counts[1, [52, 47]] = [120, 80, 100], [90, 70]
>>> public = {"lower": 0, "upper": 120, "resolution": 1, "epsilon": 30.0, "neighbors": "add_remove"}
>>> median(np.arange(121), counts=counts, **public).values.tolist()
[[31.0, 52.0]]

**Speed.** Joint deciles of 1000 groups of 1000 records take a second with ``public_n=1000`` and 15 to 20 without it; recursive
ones take one or two. Of millions of records in a group only those near the quantiles cost time.
"""

import importlib

from dpjax.release._confidence_interval import ConfidenceInterval, ReleasedInterval, confidence_interval
from dpjax.release._joint_quantiles import Quantiles, joint_quantiles, nested_quantiles, private_quantiles, recursive_quantiles
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
    if name in ("metric_choice", "metric_laplace", "small_db"):  # they load metric_privacy, and JAX
        return getattr(importlib.import_module("dpjax.release.metric"), name)
    raise AttributeError(f"module 'dpjax.release' has no attribute {name!r}")
