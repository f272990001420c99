"""Exact releases with metric privacy: answers of linear queries with discrete Laplace noise.

Queries are rounded to multiples of a public resolution, so that answers of integer counts are
integers. One record that moves from element i to j changes answer k by m_ki - m_kj, and noise of
rates lam_k loses sum_k lam_k |m_ki - m_kj|, a rational number, which is at most d(i, j) for every
pair: rates are divided by the largest load, as Fractions. Budgets are the exact values of the
metric's floats. The distributions are those that ``dpjax.metric_privacy`` simulates, except for the
grid.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.filters import PrivacyFilter, charge
from dpjax.checks import Resolution
from dpjax.metric_privacy.guarantees import MetricGuarantee
from dpjax.metric_privacy.metric import Metric
from dpjax.metric_privacy.scales import Strategy, noise_scales
from dpjax.release.grid import Multiples, resolution_of
from dpjax.release.noise import LARGEST, DiscreteLaplace
from dpjax.release.records import as_counts
from dpjax.release.result import Release


def metric_laplace(
    x: Any,
    queries: ArrayLike,
    metric: Metric,
    *,
    resolution: Resolution,
    strategy: Strategy = "optimal",
    draws: int = 1,
    budget: PrivacyFilter | None = None,
) -> Release:
    """Release noisy answers of linear queries, with discrete Laplace noise on a public grid.

    Args:
        x: histograms ``(..., N)`` of integers, concrete (not traced); what is none, or negative, is
            0.
        queries: ``(K, N)``, public; they are rounded to multiples of the resolution, and the
            rounded queries are answered.
        metric: the metric on the N elements.
        resolution: public, well below the scales of the noise; 1 for counts.
        strategy: as for :func:`dpjax.metric_privacy.metric_laplace`.
        draws: the number of draws of each answer; each costs the metric.
        budget: as for :meth:`dpjax.release.Statistic.release`. It is charged the differential
            privacy that follows from the metric; if some pair of elements has no budget, none
            follows, and the release is refused.

    Returns:
        A :class:`Release` with values ``(draws, ..., K)`` whose guarantee is a
        :class:`dpjax.metric_privacy.MetricGuarantee`.

    Raises:
        TypeError: if the counts are not integers, or this is traced by JAX.
        ValueError: if a query distinguishes elements of budget 0, or if the noise is below
            2^-20 or above 2^40 times the resolution.

    Privacy:
        d-private under the relation of the metric, exactly: the load of the rates is at most 1 in
        rational arithmetic, and it is 1 for the rates of a strategy. A query that distinguishes no
        protected pair is answered without noise, as n is then public. Public: all parameters and
        the shape of ``x``.

    References:
        Kamalaruban et al. (2020), Theorem 1, with the noise of Ghosh, Roughgarden and Sundararajan
        (2009).

    >>> from dpjax.metric_privacy import from_points
    >>> metric = from_points([[0.0], [1.0], [3.0]], epsilon=8.0)
    >>> found = metric_laplace([400, 250, 350], [[0, 0, 1], [1, 1, 1]], metric, resolution=1)
    >>> abs(found.values[0, 0] - 350) < 20, found.values[0, 1]
    (np.True_, np.float64(1000.0))
    """
    number, step = checks.static_integer("draws", draws, 1, 2**40), resolution_of(resolution, ())
    checks.instance("metric", metric, Metric, "from_points, from_budgets, ...")
    guarantee = number * MetricGuarantee(metric)
    private = metric.neighbors == "add_remove"
    elements = metric.size - private
    rows = checks.host_floats("queries", queries)
    if rows.ndim != 2 or rows.shape[1] != elements or not rows.size or not np.isfinite(rows).all():
        raise ValueError(
            f"queries must be finite, of shape (K, {elements}), got shape {rows.shape}."
        )
    counts = as_counts(x, "x")
    if counts.shape[-1] != elements:
        raise ValueError(
            f"x must count {elements} elements on its last axis, got shape {counts.shape}."
        )
    whole = np.array([[round(Fraction(str(v)) / step) for v in row] for row in rows], object)
    # Python's integers do not overflow
    answers = np.maximum(counts.astype(object), 0) @ whole.T
    answers = np.clip(answers, -LARGEST, LARGEST).astype(np.int64)
    if not private:
        whole -= whole[:, :1]  # n is public: a constant changes nothing
    moves = np.pad(whole, ((0, 0), (0, private)))  # null records contribute 0
    one, other = np.nonzero(np.tril(metric.budgets < np.inf, -1))  # the protected pairs
    moves, budgets = np.abs(moves[:, one] - moves[:, other]), metric.budgets[one, other]
    if moves[:, budgets == 0].any():
        raise ValueError("queries must not distinguish elements with a budget of 0.")
    rounded = np.array([[float(v * step) for v in row] for row in whole])
    known = np.asarray(noise_scales(rounded, metric, strategy=strategy)).tolist()
    # Rounded up, so that sums stay short; what this adds to the load is divided out
    rates = np.array(
        [
            Fraction(ceil(step * 2**100 / Fraction(scale)), 2**100) if own.any() else Fraction(0)
            for scale, own in zip(known, moves, strict=True)
        ]
    )
    spent = zip(rates @ moves, budgets.tolist(), strict=True)
    load = max((loss / Fraction(budget) for loss, budget in spent if loss), default=1)
    rates = rates / load
    noisy = {k: DiscreteLaplace(answers[..., k], rate) for k, rate in enumerate(rates) if rate}
    if budget is not None:
        implied = guarantee.guarantee(neighbors=metric.neighbors)
        described = {"draws": number, "elements": metric.size, "resolution": step}
        charge(budget, implied, described | {"queries": len(rows), "statistic": "metric_laplace"})
    drawn = np.broadcast_to(answers, (number, *answers.shape)).copy()
    for k, answer in noisy.items():
        drawn[..., k] = answer.positions(number)
    return Release(Multiples(step, 0, 1).values_of(drawn), guarantee)
