"""Metric privacy: a budget for every pair of values of a record, with mechanisms fitted to it.

This is d-privacy (Chatzikokolakis et al. 2013) for linear queries of a histogram, after
Kamalaruban, Perrier, Asghar and Kaafar (2020). The universe of N values, its metric and the queries
are public. Definition 2 of the paper, as printed, does not protect the number of records; here
neighbors differ by moving one record from a value to another, with n public, unless the metric has
the null record as an additional element (:meth:`Metric.with_absence`), which makes adding and
removing a record a move too.

**Getting started.** Nearby values are protected, distant ones less: a linear query of the histogram
then pays for its steepest slope and not for its range. For a few queries use
:func:`metric_laplace`, by default with the least noise for all of them together. For synthetic data
for many queries use ``mwem(key, x, lipschitz_queries(queries, metric), rounds=10, output="last",
passes=10)``. Distances come from coordinates, dates, attributes, a graph or a table. A threshold is
applied to distances in their own unit: ``blowfish(from_points(towns, epsilon=1), epsilon=0.5,
threshold=20)`` protects moves of up to 20 km. Guarantees on one universe add up, and
``.guarantee(neighbors="swap")`` converts them to one that adds up with those of all other
mechanisms.

>>> import jax.numpy as jnp
>>> towns = jnp.array([[0.0, 0.0], [10.0, 0.0], [90.0, 40.0]])  # public, in km
>>> metric = from_points(towns, epsilon=0.1)  # 0.1 per km
>>> visits = jnp.array([20, 30, 50])
>>> queries = jnp.stack([towns[:, 0] / 100, jnp.ones(3)])  # how far east, and how many
>>> answers = metric_laplace(visits, queries, metric)
>>> errors = answers.stddev()  # nothing for the number of records, which is public
>>> [round(float(error), 3) for error in errors]
[0.141, 0.0]

Arguments that most functions share:

    metric       a :class:`Metric` on the N elements: one NumPy matrix, checked once. For a sweep of
                 epsilons divide the scales
    queries      float ``(K, N)``, finite and public: the value of each query at each element
                 except the null record (where it is 0)
    x            histograms ``(..., N)``: the number of records of each element except the null
                 record. A count that is negative, infinite or NaN is 0
    public_n     n, positive and public, ``(...)``: by default the sum of the counts. With the null
                 record in the metric it is required, and is an upper bound on the number of
                 records; the remaining ones are null records
    num_records  n or a public guess of it, positive

A public argument out of range or of another shape raises ``ValueError``, and one that is traced or
of another class ``TypeError``; what a function refuses besides is said there. Counts never raise.

Float draws are simulations, as everywhere outside ``dpjax.release``: they reveal low-order bits.
Counts are floats: float32 is exact up to 2^24 only, so enable float64 for larger ones. A count
above 2^40 is treated as 2^40, and the guarantee ends there. Answers are computed in float64 and
rounded once, and so are the distances of scores from the best.

The ``guarantee`` of a mechanism (``metric_laplace.guarantee``, and those of ``planar_laplace``,
``metric_exponential``, ``linear_selection``, ``small_db`` and ``mwem``) returns the guarantee of
one draw, and checks that the metric allows the queries. Laplace noise has a bounded range of twice
its budgets, a selection of at most its budgets.
"""

from __future__ import annotations

from dpjax.metric_privacy._multiplicative_weights import mwem
from dpjax.metric_privacy.fitting import (
    FittedQueries,
    LipschitzQueries,
    fit_lipschitz_queries,
    fit_marginals,
    fit_queries,
    fit_statistics,
    lipschitz_queries,
)
from dpjax.metric_privacy.guarantees import MetricGuarantee
from dpjax.metric_privacy.laplace_noise import metric_laplace, nearest_point, planar_laplace
from dpjax.metric_privacy.metric import Metric, from_budgets, uniform
from dpjax.metric_privacy.scales import (
    OptimalScales,
    improvement_factor,
    load,
    noise_scales,
    optimal_scales,
    single_query_scale,
)
from dpjax.metric_privacy.selection import (
    linear_selection,
    metric_exponential,
    small_databases,
    small_db,
    small_db_size,
)
from dpjax.metric_privacy.universes import (
    blowfish,
    from_dates,
    from_graph,
    from_points,
    marginal_queries,
    product,
    range_queries,
    smooth_threshold,
    spanning_tree,
    value_budgets,
    weighted_hamming,
)

__all__ = [
    "FittedQueries",
    "LipschitzQueries",
    "Metric",
    "MetricGuarantee",
    "OptimalScales",
    "blowfish",
    "fit_lipschitz_queries",
    "fit_marginals",
    "fit_queries",
    "fit_statistics",
    "from_budgets",
    "from_dates",
    "from_graph",
    "from_points",
    "improvement_factor",
    "linear_selection",
    "lipschitz_queries",
    "load",
    "marginal_queries",
    "metric_exponential",
    "metric_laplace",
    "mwem",
    "nearest_point",
    "noise_scales",
    "optimal_scales",
    "planar_laplace",
    "product",
    "range_queries",
    "single_query_scale",
    "small_databases",
    "small_db",
    "small_db_size",
    "smooth_threshold",
    "spanning_tree",
    "uniform",
    "value_budgets",
    "weighted_hamming",
]


def __dir__() -> list[str]:
    return __all__
