"""Releases that floats do not undo: exact draws from piecewise Laplace distributions (or permute and flip) on a public grid.

**Why.** A float draw from a continuous distribution gives its data away: the set of floats that the sampler can return depends on
the data, so that a good part of the outputs are impossible for a neighbour, whatever the precision. Everything outside this package
is for simulation; what is published comes from here: :func:`median`, :func:`quantile`, :func:`order_statistic`, :func:`mode` and,
for integer scores of a user's own, :func:`release_choice`; :func:`count` and :func:`histogram`; under swap :func:`sum` and
:func:`mean`; and, for statistics that one person can raise without bound, :func:`maximum`, :func:`nonnegative_sum`,
:func:`user_sum` and :func:`distinct_count`.

**The distribution** is the one that ``dpjax.piecewise_laplace`` simulates for a statistic with the same ``resolution``; both are
tested to agree. Records are rounded to multiples of a public resolution, one by one, so neighbours stay neighbours. Let V(l) be the
integers that the statistic can reach after l changes, f the value itself, and c its depth: the least l >= 1 with U(l) > f or
L(l) < f. ``distribution.py`` has the weight of every number, with lam = epsilon/2.

Privacy. Call C(y) the continuous function that is 2 - c on [f - 1/2, f + 1/2] and, outside, 1 at its ends and l + 1 at U(l) + 1/2
and at L(l) - 1/2, linear in between; the release is a draw from the density e^(-lam C), rounded. Let x and x' be neighbours.

* If c = c' = 1, C changes by at most 1. By Corollary 3.1, U(l) <= U'(l + 1) and L(l) >= L'(l + 1), and so for the shifted ends
  and all points in between: a y above one's own cell at cost 1 + s, y = U(s) + 1/2, lies at or below U'(s + 1) + 1/2, so its cost
  for x' is at most 2 + s if it is above the cell of x', 1 within it, and at most 2 below it, since y > f >= L'(1). Likewise below.
* If f and f' differ, one change has moved either: c = c' = 1.
* If they agree, the cells are the same, outside of them C is as above, and inside it changes by |c - c'| <= 1: from U(l) = f for
  all l < c and Corollary 3.1 follows U'(l) = f for all l < c - 1.

Hence epsilon-DP and epsilon-bounded-range. (With 3 - 2 c in the place of 2 - c the loss passes epsilon.) The values of shifted
inverse sensitivity interleave too (see ``dpjax.shifted_inverse``), which is all that the proof needs.

**The draw** is explained at the head of ``sampler.py``, with the bound on every truncation: 32-bit integers decide the piece and
the cell within it, or say that they do not, with a probability of about 2^-27 for a thousand pieces: 2^-32 for each of 24 digits,
and at most 4 P^2 / 2^min(51, 61 - log2 P) for the choice among P pieces, which grows for very many. Then ``exact.py`` reads on in
the same uniforms, with exact arithmetic, so that the result is that of infinitely many bits.

**Candidates.** A mode and a choice by integer scores are the exponential mechanism: a piece of width 1 for each candidate, chosen
in the same way. Scores are clamped one by one to a public range, so that the tables cover every cost; to clamp the costs would be
another distribution.

**Permute and flip**, with ``mechanism="permute_and_flip"``, is for a single release: epsilon-DP, and 2 epsilon-bounded-range. A
number y beside the value has the cost of the level that reaches it, the value 1 - c; these costs change by at most 1 between
neighbours, by the same three cases. ``permute_and_flip.py`` says how it is drawn, on the host, as exactly as the rest.

**Several quantiles**: :func:`joint_quantiles` (``joint_quantiles.py``) and :func:`recursive_quantiles`; two of the former are a
:func:`confidence_interval`.

**Metric privacy**: :func:`metric_laplace` answers linear queries with discrete Laplace noise, :func:`metric_choice` and
:func:`small_db` choose by integer scores; rates are the exact quotients of budgets and changes (``metric.py``).

**What is not covered**: see :func:`median`.
"""

import importlib

from dpjax.release.api import (
    distinct_count,
    exact_distribution,
    maximum,
    mean,
    median,
    nonnegative_sum,
    order_statistic,
    quantile,
    sum,
    user_sum,
)
from dpjax.release.candidates import mode, release_choice
from dpjax.release.confidence_interval import ReleasedInterval, confidence_interval
from dpjax.release.counts import count, histogram
from dpjax.release.distribution import GridDistribution
from dpjax.release.grid import Floats
from dpjax.release.joint_quantiles import joint_quantiles
from dpjax.release.recursive_quantiles import recursive_quantiles
from dpjax.release.result import Release

__all__ = [
    "Floats",
    "GridDistribution",
    "Release",
    "ReleasedInterval",
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
    "nonnegative_sum",
    "order_statistic",
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
    if name in ("metric_choice", "metric_laplace", "small_db"):  # they load metric_privacy
        return getattr(importlib.import_module("dpjax.release.metric"), name)
    raise AttributeError(f"module 'dpjax.release' has no attribute {name!r}")
