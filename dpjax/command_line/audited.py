"""The mechanisms, small datasets and budgets of ``dpjax audit``."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.accounting import Guarantee
from dpjax.checks import Neighbors
from dpjax.distributions import Finite, PiecewiseExponential
from dpjax.mechanisms import (
    duff,
    exponential,
    inverse_sensitivity,
    laplace,
    never_fail,
    never_fail_distribution,
    noisy_tree,
    permute_and_flip,
    piecewise_laplace,
    shifted_inverse,
)
from dpjax.metric_privacy import (
    Metric,
    MetricGuarantee,
    from_points,
    linear_selection,
    lipschitz_queries,
    metric_laplace,
    small_db,
)
from dpjax.statistics import candidate_counts, maximum, mean, median, quantile

VALUES = (0.0, 1.0, 5.0, 6.0, 20.0)
LOWER, UPPER, RECORDS = VALUES[0], VALUES[-1], 4

Distribution = PiecewiseExponential | Finite
Dataset = tuple[float, ...]


@dataclass(frozen=True)
class Family:
    """Small datasets, padded to one size, and the indices of all neighboring pairs."""

    datasets: list[Dataset]
    x: jax.Array
    num_records: jax.Array
    pairs: np.ndarray
    neighbors: Neighbors

    @property
    def known(self) -> dict[str, Any]:
        """The keyword arguments of statistics of bounded records."""
        return {
            "lower": LOWER,
            "upper": UPPER,
            "neighbors": self.neighbors,
            "num_records": self.num_records,
        }


Build = Callable[[Family, float], tuple[Distribution, Guarantee | MetricGuarantee]]


def family_of(neighbors: Neighbors) -> Family:
    """Return all datasets of at most four records and their neighboring pairs.

    Under swap they have exactly four records.
    """
    sizes = range(RECORDS + 1) if neighbors == "add_remove" else [RECORDS]
    datasets = [
        data for size in sizes for data in itertools.combinations_with_replacement(VALUES, size)
    ]
    row = {data: i for i, data in enumerate(datasets)}
    pairs = set()
    for data, i in row.items():
        fewer = [data[:index] + data[index + 1 :] for index in range(len(data))]
        others = (
            fewer
            if neighbors == "add_remove"
            else [tuple(sorted((*rest, value))) for rest in fewer for value in VALUES]
        )
        pairs |= {(min(i, row[other]), max(i, row[other])) for other in others if other != data}
    x = np.zeros((len(datasets), RECORDS))
    for i, data in enumerate(datasets):
        x[i, : len(data)] = data
    count = jnp.asarray([len(data) for data in datasets], jnp.int32)
    return Family(
        datasets,
        jnp.asarray(x, jnp.result_type(float)),
        count,
        np.array(sorted(pairs)).T,
        neighbors,
    )


def _of_profile(mechanism: Any, statistic: Callable[[Family], Any], **options: Any) -> Build:
    """Return a function that builds a mechanism and its guarantee from a statistic's result."""

    def build(family: Family, epsilon: float) -> tuple[Distribution, Guarantee]:
        profile = statistic(family)
        return mechanism(profile, epsilon, **options), mechanism.guarantee(profile, epsilon)

    return build


def _laplace(**bounds: float) -> Build:
    def build(family: Family, epsilon: float) -> tuple[Distribution, Guarantee]:
        distribution = laplace(
            jnp.sum(family.x, axis=-1), epsilon, sensitivity=UPPER - LOWER, **bounds
        )
        return distribution, laplace.guarantee(family.neighbors, epsilon, bounded=bool(bounds))

    return build


def _median(family: Family) -> Any:
    return median(family.x, **family.known)


def _counts(family: Family) -> Any:
    return candidate_counts(
        family.x,
        candidates=np.array(VALUES),
        neighbors=family.neighbors,
        num_records=family.num_records,
    )


def _noisy_tree(family: Family, epsilon: float) -> tuple[Distribution, Guarantee]:
    return noisy_tree(_counts(family), epsilon=epsilon), noisy_tree.guarantee(
        _counts(family), epsilon=epsilon
    )


def _never_fail(family: Family, epsilon: float) -> tuple[Distribution, Guarantee]:
    """Return five attempts at the mode, where the last value is accepted with probability 0.5.

    So no dataset fails with a larger probability than 0.5.
    """
    attempt, cost = (
        exponential(_counts(family), epsilon),
        exponential.guarantee(_counts(family), epsilon),
    )
    accepted = np.array([1.0] * (len(VALUES) - 1) + [0.5])
    found = never_fail_distribution(attempt, accepted, fallback=LOWER, attempts=5)
    return found, never_fail.guarantee(cost, failure=0.5, attempts=5, fallback="public")


def _metric(family: Family, epsilon: float) -> Metric:
    """Return a metric with budgets proportional to the distance of two values.

    Adding or removing a record costs epsilon, and replacing one end by the other costs twice as
    much.
    """
    ends = epsilon if family.neighbors == "swap" else 2 * epsilon
    metric = from_points(np.array(VALUES)[:, None], epsilon=ends / (UPPER - LOWER))
    return metric if family.neighbors == "swap" else metric.with_absence(epsilon)


def _histograms(family: Family) -> np.ndarray:
    return np.array([[data.count(value) for value in VALUES] for data in family.datasets], float)


def _metric_laplace(family: Family, epsilon: float) -> tuple[Distribution, MetricGuarantee]:
    metric = _metric(family, epsilon)
    answers = metric_laplace(_histograms(family), np.array([VALUES]), metric)
    scales = jnp.broadcast_to(answers.scales, answers.values.shape)[:, 0]
    return laplace(answers.values[:, 0], 1.0, sensitivity=scales), metric_laplace.guarantee(metric)


def _linear_selection(family: Family, epsilon: float) -> tuple[Distribution, MetricGuarantee]:
    """Return the selection of the candidate with the least sum of distances to all records."""
    metric, weights = _metric(family, epsilon), -np.abs(np.subtract.outer(VALUES, VALUES))
    found = linear_selection(
        _histograms(family), metric, weights=weights, candidates=np.array(VALUES)
    )
    return found, linear_selection.guarantee(metric)


def _small_db(family: Family, epsilon: float) -> tuple[Distribution, MetricGuarantee]:
    metric = _metric(family, epsilon)
    queries = lipschitz_queries(np.array([VALUES]), metric)
    found = small_db(_histograms(family), queries, size=2, public_n=float(RECORDS))
    return found, small_db.guarantee(queries, metric)


def budgets(guarantee: Guarantee | MetricGuarantee, family: Family) -> np.ndarray:
    """Return the epsilon that a guarantee promises for every pair of the family."""
    if isinstance(guarantee, Guarantee):
        return np.full(family.pairs.shape[1], guarantee.epsilon)
    between = []
    for one, other in family.pairs.T:
        first, second = (Counter(family.datasets[row]) for row in (one, other))
        ends = [*(first - second).elements(), *(second - first).elements()]
        i, j = [VALUES.index(value) for value in ends] + [guarantee.metric.size - 1] * (
            2 - len(ends)
        )  # or the null record, for an absent value
        between.append(guarantee.between(i, j))
    return np.array(between)


MECHANISMS: dict[str, Build] = {
    "piecewise_laplace, median": _of_profile(piecewise_laplace, _median),
    "piecewise_laplace, median, rho 0.5": _of_profile(piecewise_laplace, _median, rho=0.5),
    "piecewise_laplace, quantile 0.9": _of_profile(
        piecewise_laplace, lambda family: quantile(family.x, 0.9, **family.known)
    ),
    "piecewise_laplace, mean": _of_profile(
        piecewise_laplace, lambda family: mean(family.x, **family.known)
    ),
    "inverse_sensitivity, median": _of_profile(inverse_sensitivity, _median),
    "duff, median": _of_profile(
        duff, lambda family: median(family.x, definition="lower", **family.known)
    ),
    "shifted_inverse, maximum, tau 2": _of_profile(
        shifted_inverse,
        lambda family: maximum(family.x, lower=LOWER, upper=UPPER, num_records=family.num_records),
        tau=2,
    ),
    "laplace, sum": _laplace(),
    "laplace within bounds, sum": _laplace(lower=0.0, upper=RECORDS * UPPER),
    "exponential, mode": _of_profile(exponential, _counts),
    "permute_and_flip, mode": _of_profile(permute_and_flip, _counts),
    "noisy_tree, mode": _noisy_tree,
    "never_fail, mode": _never_fail,
    "metric_laplace, sum": _metric_laplace,
    "linear_selection, median": _linear_selection,
    "small_db, sum": _small_db,
}
ADD_REMOVE_ONLY = ("duff, median", "shifted_inverse, maximum, tau 2")
