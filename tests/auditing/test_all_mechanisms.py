"""What the guarantee of every mechanism claims, against its exact distributions for all datasets of
up to four records from five values and all their neighbors.

Other statistics, epsilons and mistakes are audited with each mechanism, in ``tests/mechanisms`` and
``tests/metric_privacy``.
"""

from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import jax
import numpy as np
import pytest

from dpjax import mechanisms
from dpjax.distributions import Finite
from dpjax.metric_privacy import (
    MetricGuarantee,
    from_points,
    linear_selection,
    lipschitz_queries,
    metric_laplace,
    small_db,
)
from dpjax.statistics import candidate_counts, maximum, mean, median, quantile
from tests.support import oracle
from tests.support.audit import neighboring_rows, one_sided_limits, padded

EPSILON, ATTEMPTS, ROUNDING = 0.5, 10, 1e-9
VALUES = (0.0, 1.0, 5.0, 6.0, 20.0)
LOW, HIGH, RECORDS = VALUES[0], VALUES[-1], 4
POINTS, QUERY = np.array(VALUES)[:, None], np.array([VALUES])
DATASETS = tuple(oracle.all_datasets(range(RECORDS + 1), VALUES))
X, COUNT = padded(DATASETS, RECORDS)
HISTOGRAMS = np.array([[float(data.count(value)) for value in VALUES] for data in DATASETS])
# The share of the claimed loss and of the claimed range that some neighbors need
NEEDED = {
    "piecewise_laplace": (0.95, 1),
    "inverse_sensitivity": (0.8, 1),
    "exponential": (0.59, 1),
    "permute_and_flip": (0.79, 0.69),
    "noisy_tree": (0.64, 0.47),
    "laplace": (1, 1),
    "laplace within bounds": (0.83, 1),
    "never_fail": (0, 0),
    "metric_laplace": (1, 1),
    "linear_selection": (0.83, 1),
    "small_db": (0.92, 1),
    "duff": (0.9, 1),
    "shifted_inverse": (0.97, 1),
}
CASES = [
    (name, neighbors)
    for name in NEEDED
    for neighbors in ("add_remove", "swap")
    if neighbors == "add_remove" or name not in ("duff", "shifted_inverse")
]


def metric_of(epsilon, neighbors):
    """Budgets by the distance of two values, at most epsilon; a record more or less costs it."""
    if neighbors == "swap":
        return from_points(POINTS, epsilon=epsilon / (HIGH - LOW))
    return from_points(POINTS, epsilon=2 * epsilon / (HIGH - LOW)).with_absence(epsilon)


def statistics_of(neighbors):
    counted = {"num_records": COUNT, "neighbors": neighbors}
    known = {"lower": LOW, "upper": HIGH, **counted}
    votes = candidate_counts(X, candidates=np.array(VALUES), **counted)
    found = {
        "piecewise_laplace": quantile(X, Fraction(9, 10), **known),
        "inverse_sensitivity": mean(X, **known),
        **dict.fromkeys(("exponential", "permute_and_flip", "noisy_tree"), votes),
    }
    if neighbors == "add_remove":
        found["duff"] = median(X, definition="lower", **known)
        found["shifted_inverse"] = maximum(X, lower=LOW, upper=HIGH, num_records=COUNT)
    return found


@partial(jax.jit, static_argnames=("epsilon", "neighbors"))
def distributions(epsilon, neighbors):
    """A row for each dataset; of distributions on candidates, the log-probabilities."""
    statistics, options = statistics_of(neighbors), {"piecewise_laplace": {"rho": 0.5}}
    options["shifted_inverse"] = {"tau": 2}
    found = {
        name: getattr(mechanisms, name)(statistic, epsilon=epsilon, **options.get(name, {}))
        for name, statistic in statistics.items()
    }
    noisy = partial(mechanisms.laplace, X.sum(axis=-1), epsilon, sensitivity=HIGH - LOW)
    metric = metric_of(epsilon, neighbors)
    found |= {
        "laplace": noisy(),
        "laplace within bounds": noisy(lower=0.0, upper=RECORDS * HIGH),
        # The last value is accepted half of the time: at most half of all attempts fail
        "never_fail": mechanisms.never_fail_distribution(
            found["exponential"],
            np.array([1.0, 1.0, 1.0, 1.0, 0.5]),
            fallback=-1.0,
            attempts=ATTEMPTS,
        ),
        "metric_laplace": metric_laplace(HISTOGRAMS, QUERY, metric),
        "linear_selection": linear_selection(
            HISTOGRAMS, metric, weights=-np.abs(np.subtract.outer(VALUES, VALUES))
        ),
        "small_db": small_db(
            HISTOGRAMS, lipschitz_queries(QUERY, metric), size=2, public_n=float(RECORDS)
        ),
    }
    logs = {
        name: one.log_probabilities() if isinstance(one, Finite) else one
        for name, one in found.items()
    }
    return statistics, logs


@cache
def at(factor, neighbors):
    """Claims, and log-densities of all datasets with ``factor`` times the epsilon of the claims."""
    statistics, logs = distributions(factor * EPSILON, neighbors)
    logs = {
        name: np.asarray(one)
        if isinstance(one, jax.Array)
        else one_sided_limits(one).reshape(len(DATASETS), -1)
        for name, one in logs.items()
    }
    claims = {
        name: getattr(mechanisms, name).guarantee(statistic, epsilon=EPSILON)
        for name, statistic in statistics.items()
    }
    metric = metric_of(EPSILON, neighbors)
    claims |= {
        "laplace": mechanisms.laplace.guarantee(neighbors, EPSILON),
        "laplace within bounds": mechanisms.laplace.guarantee(neighbors, EPSILON, bounded=True),
        "never_fail": mechanisms.never_fail.guarantee(
            claims["exponential"], failure=0.5, attempts=ATTEMPTS, fallback="public"
        ),
        "metric_laplace": metric_laplace.guarantee(metric),
        "linear_selection": linear_selection.guarantee(metric),
        "small_db": small_db.guarantee(lipschitz_queries(QUERY, metric), metric),
    }
    return claims, logs


def shares(logs, claim, neighbors):
    """Of every pair of neighbors, the loss and the range over what is claimed for the pair.

    With a delta, the first is the probability beyond exp(epsilon) times the neighbor's, over delta.
    """
    rows = neighboring_rows(DATASETS, neighbors, VALUES)
    if isinstance(claim, MetricGuarantee):
        counts = np.column_stack([HISTOGRAMS, RECORDS - COUNT])
        moved = counts[rows[0]] - counts[rows[1]]
        ends = zip(moved.argmin(axis=-1), moved.argmax(axis=-1), strict=True)
        epsilon = np.array([claim.between(*pair) for pair in ends])
        claim = claim.guarantee(neighbors=neighbors)
    else:
        epsilon = np.full(rows.shape[1], claim.epsilon)
    one, other = logs[rows]
    if claim.delta:
        pairs = np.exp([[one, other], [other, one]])
        beyond = pairs[:, 0] - np.exp(claim.epsilon) * pairs[:, 1]
        return np.maximum(beyond, 0).sum(axis=-1).max(axis=0) / claim.delta, np.zeros(1)
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isneginf(one) & np.isneginf(other), 0.0, one - other)
    ranges = epsilon * claim.bounded_range / claim.epsilon
    return np.abs(ratio).max(axis=-1) / epsilon, np.ptp(ratio, axis=-1) / ranges


@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_no_loss_or_range_is_above_the_claim(name, neighbors, x64):
    claims, logs = at(1, neighbors)
    found = shares(logs[name], claims[name], neighbors)
    most = np.array([share.max() for share in found])
    assert claims[name].neighbors == neighbors
    assert (most <= 1 + ROUNDING).all()
    assert (most >= np.array(NEEDED[name]) - ROUNDING).all()
    if name == "metric_laplace":  # of a sum, every pair needs the budget of its two values
        assert neighbors == "add_remove" or found[0].min() >= 1 - ROUNDING


@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_control_half_of_epsilon_is_too_small_a_claim(name, neighbors, x64):
    claims, logs = at(2, neighbors)
    found = shares(logs[name], claims[name], neighbors)
    assert max(share.max() for share in found) > 1.2


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_control_a_delta_that_is_forgotten(neighbors, x64):
    claims, logs = at(1, neighbors)
    claim = replace(claims["never_fail"], delta=0.0)
    assert shares(logs["never_fail"], claim, neighbors)[0].max() > 1.2
