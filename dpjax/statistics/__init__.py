"""Statistics: from data to a sensitivity profile, the values after 1, 2, ... individuals change.

**Neighbors.** Add/remove and swap are different guarantees, and the choice changes the error by
about a factor of two. Results under one must not be compared with results under the other.

**Ties.** Ages, ratings, hours and clicks have few distinct values. A continuous distribution has no
mass on a single value: if most records are equal, it draws from the gaps further out, and for a
constant column almost uniformly from the whole range. With ``resolution=``, draws are multiples of
the resolution and the value itself has mass. The errors without and with it:

>>> import jax.numpy as jnp, dpjax
>>> constant, ties = jnp.full(100, 30.0), {"lower": 0, "upper": 100, "neighbors": "add_remove"}
>>> continuous = dpjax.piecewise_laplace(dpjax.median(constant, **ties), 1.0)
>>> round(float(continuous.mean_abs_error(30.0)), 1)
24.2
>>> multiples = dpjax.piecewise_laplace(dpjax.median(constant, resolution=1, **ties), 0.1)
>>> round(float(multiples.mean_abs_error(30.0)), 3)
0.137

**No bounds.** If no bounds on the records are known, map the records by a public increasing
function, compute the statistic there (:func:`on_scale`), and map the draw back
(:class:`dpjax.Transformed`); neither map costs privacy. :class:`dpjax.Log` is for positive data,
:class:`dpjax.Asinh` for data of both signs, and :class:`dpjax.LogCauchy` and :class:`dpjax.Prior`
are the distribution functions of public priors. Over 100 samples of 1000 lognormal, normal, Pareto
or Student t records, the exact mean error of the median is within 0.5 % of that between good bounds
(both relations, epsilon 0.2 and 1, ``Asinh(1.0)`` and ``LogCauchy(1.0)``). Few records or extreme
quantiles need bounds, see :func:`on_scale`.

>>> scale = dpjax.Asinh(1.0)
>>> earnings = jnp.exp(10.5 + 0.7 * jnp.linspace(-2, 2, 1001))
>>> profile = dpjax.on_scale(dpjax.median, earnings, transform=scale, neighbors="add_remove")
>>> free = dpjax.Transformed(dpjax.piecewise_laplace(profile, 0.2), scale)
>>> between = dpjax.piecewise_laplace(
...     dpjax.median(earnings, lower=0, upper=1e6, neighbors="add_remove"), 0.2
... )
>>> bool(free.mean_abs_error(earnings[500]) < 1.02 * between.mean_abs_error(earnings[500]))
True

**Other statistics.** A statistic with several components has one
profile, :func:`dpjax.from_vector_radii`, and one distribution of the vector, in any dimension. The
error with :func:`dpjax.from_local_sensitivity` is several times that of the exact profile of a
median. A truncation needs about log(range/gap)/epsilon levels, not 1/epsilon
(``benchmarks/experiments/optimality.py``).

Arguments that statistics share:

* ``x``: float ``(..., n)``, individuals on the last axis; every other axis is a batch. Integers
  become floats. Records are clamped to ``[lower, upper]``. A NaN record is absent under
  add/remove; under swap, where the number of records is public, it counts as ``lower``.
* ``lower``, ``upper``: float ``(...)``, the public bounds of a record, ``lower < upper``, in
  float32 2^-104 to 2^104 apart.
* ``neighbors``: ``"add_remove"`` (one record more or less) or ``"swap"`` (one record replaced).
  There is no default, because the guarantees differ, and a profile for one is not valid for the
  other: values for add/remove leak 1.97 epsilon under swap.
* ``resolution``: public and static, that of the data: 1 for integers, 0.01 for cents (read by its
  decimal value). Records are rounded to its multiples, one by one, the bounds must be multiples
  of it, and draws are multiples: the value of the statistic has mass, which increases with the
  number of individuals who must change to move it. Set it whenever records can be equal: without
  one, a profile is for data without ties, and mechanisms draw from the gaps between records.
* ``num_records``: int ``(...)``, the number of leading records of each row that are present,
  clamped to 0..n; the rest is padding. Public under swap, private under add/remove.
* ``mask``: bool ``(..., n)``, the records that are present; in place of ``num_records``.

The bounds, the shape of ``x`` and static arguments are public; under swap also the number of
records (so ``num_records`` and ``mask``), but not under add/remove.

All raise ``TypeError`` if ``x`` is not numeric, and ``ValueError`` for ``lower >= upper``, an
unknown option, or both ``num_records`` and ``mask``.
"""

from __future__ import annotations

from dpjax.numerics.host_call import without_host_calls
from dpjax.statistics._local_sensitivity import local_sensitivity, smooth_sensitivity
from dpjax.statistics._mean import mean
from dpjax.statistics._mean_local_sensitivity import mean_local_sensitivity
from dpjax.statistics._mode import candidate_counts, mode
from dpjax.statistics._on_scale import on_scale
from dpjax.statistics._quantiles import median, order_statistic, quantile
from dpjax.statistics._several_quantiles import quantiles
from dpjax.statistics._sum import sum
from dpjax.statistics._variance import variance
from dpjax.statistics.counting import count, histogram
from dpjax.statistics.monotone import distinct_count, maximum, nonnegative_sum, user_sum
from dpjax.statistics.triangles import (
    triangle_count,
    triangle_count_of_edges,
    triangle_local_sensitivity,
    triangle_local_sensitivity_of_edges,
)

__all__ = [
    "candidate_counts",
    "count",
    "distinct_count",
    "histogram",
    "local_sensitivity",
    "maximum",
    "mean",
    "mean_local_sensitivity",
    "median",
    "mode",
    "nonnegative_sum",
    "on_scale",
    "order_statistic",
    "quantile",
    "quantiles",
    "smooth_sensitivity",
    "sum",
    "triangle_count",
    "triangle_count_of_edges",
    "triangle_local_sensitivity",
    "triangle_local_sensitivity_of_edges",
    "user_sum",
    "variance",
    "without_host_calls",
]


def __dir__() -> list[str]:
    return __all__
