"""From data to a sensitivity profile: what a statistic can become after 1, 2, ... individuals change.

**Neighbours.** Add/remove and swap promise different things, and the choice is worth about a factor of two in error. Numbers for
one must not be compared with numbers for the other.

**Ties.** Ages, ratings, hours and clicks have few distinct values. A continuous distribution has no mass on a single value: if
most records are equal, it draws from the gaps further out, and for a constant column almost uniformly over the whole range. With
``resolution=``, draws lie on the multiples of the resolution and the value itself has mass. The errors with and without it:

>>> import jax.numpy as jnp, dpjax
>>> constant, ties = jnp.full(100, 30.0), {"lower": 0, "upper": 100, "neighbors": "add_remove"}
>>> round(float(dpjax.piecewise_laplace(dpjax.median(constant, **ties), 1.0).mean_abs_error(30.0)), 1)
24.2
>>> round(float(dpjax.piecewise_laplace(dpjax.median(constant, resolution=1, **ties), 0.1).mean_abs_error(30.0)), 3)
0.137

**No bounds.** Where nobody knows how large a record can be, map the records by a public increasing function, take the statistic
there (:func:`on_scale`), and map the draw back (:class:`dpjax.Transformed`); neither map costs privacy. :class:`dpjax.Log` is for
positive data, :class:`dpjax.Asinh` for both signs, :class:`dpjax.LogCauchy` and :class:`dpjax.Prior` are the distribution
functions of public priors. Over 100 samples of 1000 lognormal, normal, Pareto or Student t records, the exact mean error of the
median is within 0.5 % of that between good bounds (both relations, epsilon 0.2 and 1, ``Asinh(1.0)`` and ``LogCauchy(1.0)``).
Few records or extreme quantiles need bounds, see :func:`on_scale` and :func:`dpjax.unbounded_quantile`.

>>> scale = dpjax.Asinh(1.0)
>>> earnings = jnp.exp(10.5 + 0.7 * jnp.linspace(-2, 2, 1001))
>>> profile = dpjax.on_scale(dpjax.median, earnings, transform=scale, neighbors="add_remove")
>>> free = dpjax.Transformed(dpjax.piecewise_laplace(profile, 0.2), scale)
>>> between = dpjax.piecewise_laplace(dpjax.median(earnings, lower=0, upper=1e6, neighbors="add_remove"), 0.2)
>>> bool(free.mean_abs_error(earnings[500]) < 1.02 * between.mean_abs_error(earnings[500]))
True

**Your own statistic** with several components has one profile, :func:`dpjax.from_vector_radii`, and its distribution is around
the whole vector, in any dimension. :func:`dpjax.from_local_sensitivity` costs several times the exact profile of a median. A
truncation needs about log(range/gap)/epsilon levels, not 1/epsilon (``benchmarks/experiments/approximations.py``).

Arguments that statistics share:

* ``x``: float ``(..., n)``, individuals on the last axis, every other axis a batch. Integers become floats. Records are clamped to
  ``[lower, upper]``. A NaN record is absent under add/remove; under swap, where the number of records is public, it counts as
  ``lower``.
* ``lower``, ``upper``: float ``(...)``, the public bounds of a record, ``lower < upper``, in float32 2^-104 to 2^104 apart.
* ``neighbors``: ``"add_remove"`` (one record more or less) or ``"swap"`` (one record replaced). It has no default, since the two
  promise different things, and a profile made for one is not valid for the other: add/remove values under swap leak 1.97 epsilon.
* ``resolution``: public and static, that of the data: 1 for integers, 0.01 for cents (read by its decimal value). Records are
  rounded to its multiples, one by one, the bounds are multiples of it, and mechanisms draw on them: the value of the statistic
  keeps mass, the more the more individuals must change to move it. Give it wherever records can be equal: without one, a profile
  is for data without ties, and mechanisms draw from the gaps between records.
* ``num_records``: int ``(...)``, how many leading records of each row are present, clamped to 0..n; the rest is padding. Public
  under swap, private under add/remove.
* ``mask``: bool ``(..., n)``, which records are present; instead of ``num_records``.
* ``truncate``: static k, chosen without the data; the same as ``.truncate(k)`` afterwards, but reads only the records near the
  statistic: 2 to 4 times faster from 10^5 records on.

What is public: the bounds, the shape of ``x`` and static arguments; under swap also the number of records (so ``num_records`` and
``mask``), under add/remove not.

All raise ``TypeError`` if ``x`` is not numeric, and ``ValueError`` for ``lower >= upper``, an unknown option, or both
``num_records`` and ``mask``.
"""

from dpjax.numerics.host_call import without_host_calls
from dpjax.statistics._local_sensitivity import local_sensitivity, smooth_sensitivity
from dpjax.statistics._mean import mean
from dpjax.statistics._mean_local_sensitivity import mean_local_sensitivity
from dpjax.statistics._mode import candidate_counts, mode
from dpjax.statistics._on_scale import on_scale
from dpjax.statistics._quantiles import median, order_statistic, quantile
from dpjax.statistics._sum import sum
from dpjax.statistics._variance import variance
from dpjax.statistics.counting import count, histogram
from dpjax.statistics.monotone import distinct_count, maximum, nonnegative_sum, user_sum
from dpjax.statistics.several_quantiles import quantiles
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
