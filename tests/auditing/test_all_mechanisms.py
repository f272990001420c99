"""What the guarantee of every mechanism claims, against its exact distributions for all datasets of
up to four records from five values and all their neighbors.

Other statistics, epsilons and mistakes are audited with each mechanism, in ``tests/mechanisms``;
mechanisms under a metric in ``tests/metric_privacy``.
"""

from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import jax
import numpy as np
import pytest

from dpjax import mechanisms
from dpjax.distributions import Finite, Rounded
from dpjax.statistics import candidate_counts, maximum, mean, median, mode, quantile
from tests.support import oracle
from tests.support.audit import neighboring_rows, one_sided_limits, padded
from tests.support.removals import losses_of

EPSILON, ATTEMPTS, ROUNDING = 0.5, 10, 1e-9
VALUES = (0.0, 1.0, 5.0, 6.0, 20.0)
LOW, HIGH, RECORDS = VALUES[0], VALUES[-1], 4
DATASETS = tuple(oracle.all_datasets(range(RECORDS + 1), VALUES))
X, COUNT = padded(DATASETS, RECORDS)
MULTIPLES = np.arange(LOW, HIGH + 1)[:, None]
# The share of the claimed loss and of the claimed range that some neighbors need
NEEDED = {
    "piecewise_laplace": (0.95, 1),
    "piecewise_laplace on multiples": (0.93, 1),
    "inverse_sensitivity": (0.8, 1),
    "inverse_sensitivity on multiples": (0.94, 1),
    "exponential": (0.59, 1),
    "exponential of a mode": (0.7, 1),
    "permute_and_flip": (0.79, 0.69),
    "noisy_tree": (0.64, 0.47),
    "laplace": (1, 1),
    "laplace within bounds": (0.83, 1),
    "never_fail": (0, 0),
    "duff": (0.9, 1),
    "shifted_inverse": (0.97, 1),
}
CASES = [
    (name, neighbors)
    for name in NEEDED
    for neighbors in ("add_remove", "swap")
    if neighbors == "add_remove" or name not in ("duff", "shifted_inverse")
]


def mechanism_of(name):
    return getattr(mechanisms, name.split()[0])


def statistics_of(neighbors):
    counted = {"num_records": COUNT, "neighbors": neighbors}
    known, choice = {"lower": LOW, "upper": HIGH, **counted}, {"candidates": np.array(VALUES)}
    votes = candidate_counts(X, **choice, **counted)
    found = {
        "piecewise_laplace": quantile(X, Fraction(9, 10), **known),
        "inverse_sensitivity": mean(X, **known),
        "exponential of a mode": mode(X, **choice, **counted),
        **dict.fromkeys(("exponential", "permute_and_flip", "noisy_tree"), votes),
    }
    for name in ("piecewise_laplace", "inverse_sensitivity"):
        found[f"{name} on multiples"] = median(X, resolution=1, **known)
    if neighbors == "add_remove":
        found["duff"] = median(X, definition="lower", **known)
        found["shifted_inverse"] = maximum(X, lower=LOW, upper=HIGH, num_records=COUNT)
    return found


@partial(jax.jit, static_argnames="neighbors")
def distributions(epsilon, neighbors):
    """A row for each dataset; of distributions on values, the log-probabilities."""
    statistics, options = statistics_of(neighbors), {"piecewise_laplace": {"rho": 0.5}}
    options["shifted_inverse"] = {"tau": 2}
    found = {
        name: mechanism_of(name)(statistic, epsilon=epsilon, **options.get(name, {}))
        for name, statistic in statistics.items()
    }
    noisy = partial(mechanisms.laplace, X.sum(axis=-1), epsilon, sensitivity=HIGH - LOW)
    # The last value is accepted half of the time: at most half of all attempts fail
    accepted, often = np.array([1.0, 1.0, 1.0, 1.0, 0.5]), {"fallback": -1.0, "attempts": ATTEMPTS}
    found |= {
        "laplace": noisy(),
        "laplace within bounds": noisy(lower=0.0, upper=RECORDS * HIGH),
        "never_fail": mechanisms.never_fail_distribution(found["exponential"], accepted, **often),
    }
    for name, one in found.items():
        if isinstance(one, Finite):
            found[name] = one.log_probabilities()
        if isinstance(one, Rounded):
            found[name] = one.log_prob(MULTIPLES).T
    return statistics, found


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
        name: mechanism_of(name).guarantee(statistic, epsilon=EPSILON)
        for name, statistic in statistics.items()
    }
    claims |= {
        "laplace": mechanisms.laplace.guarantee(neighbors, EPSILON),
        "laplace within bounds": mechanisms.laplace.guarantee(neighbors, EPSILON, bounded=True),
        "never_fail": mechanisms.never_fail.guarantee(
            claims["exponential"], failure=0.5, attempts=ATTEMPTS, fallback="public"
        ),
    }
    return claims, logs


def shares(logs, claim, neighbors):
    """The largest loss and range of neighbors over what is claimed.

    With a delta, the first is the probability beyond exp(epsilon) times the neighbor's, over delta.
    """
    rows = neighboring_rows(DATASETS, neighbors, VALUES)
    if claim.delta:
        one, other = np.exp(logs[np.concatenate([rows, rows[::-1]], axis=-1)])
        beyond = np.maximum(one - np.exp(claim.epsilon) * other, 0).sum(axis=-1)
        return np.array([beyond.max() / claim.delta, 0.0])
    return np.array(losses_of(logs, rows)) / [claim.epsilon, claim.bounded_range]


@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_no_loss_or_range_is_above_the_claim(name, neighbors, x64):
    claims, logs = at(1, neighbors)
    found = shares(logs[name], claims[name], neighbors)
    assert claims[name].neighbors == neighbors
    assert (found <= 1 + ROUNDING).all()
    assert (found >= np.array(NEEDED[name]) - ROUNDING).all()


@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_control_half_of_epsilon_is_too_small_a_claim(name, neighbors, x64):
    claims, logs = at(2, neighbors)
    assert shares(logs[name], claims[name], neighbors).max() > 1.2


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_control_a_delta_that_is_forgotten(neighbors, x64):
    claims, logs = at(1, neighbors)
    claim = replace(claims["never_fail"], delta=0.0)
    assert shares(logs["never_fail"], claim, neighbors)[0] > 1.2
