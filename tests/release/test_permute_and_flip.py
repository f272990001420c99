"""Permute and flip on a grid: it is the mechanism for candidates, its draws follow it, and what it
costs.

Its losses are in ``test_privacy.py``, its draws word by word in ``test_draw.py``.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import release
from dpjax.accounting import Guarantee
from dpjax.release import exact_distribution
from tests.support.reach_sets import log_probabilities_by_flips
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

RECORDS = [31, 40, 28, 35, 52, 33, 47, 29, 38, 35, 35, 36]
OPTIONS = {"lower": 0, "upper": 60, "resolution": 1}
FLIP = "permute_and_flip"


def costs_of(neighbors):
    """The cost of every number, by counting: how many records have to change until the lower median
    is there.
    """
    n, records = len(RECORDS), sorted(RECORDS)

    def value(level):  # half a rank each under add/remove
        rank = -(-(n + level * (2 if neighbors == "swap" else 1)) // 2)
        return 0 if rank < 1 else 60 if rank > n else records[rank - 1]

    levels, own = range(2 * n + 3), value(0)
    depth = next(level for level in levels if value(level) != own or value(-level) != own)
    return np.array(
        [
            1 - depth if y == own else next(i for i in levels if value(-i) <= y <= value(i))
            for y in range(61)
        ]
    )


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_it_is_the_mechanism_for_candidates_on_the_same_costs(neighbors, x64):
    for epsilon in (0.1, 1.0, 8.0):
        found = exact_distribution(
            release.Median(**OPTIONS), RECORDS, epsilon=epsilon, neighbors=neighbors, mechanism=FLIP
        )
        costs = costs_of(neighbors)
        assert costs.min() == 1 - int(found.profile.depth[0]) < 0
        expected = dpjax.permute_and_flip(
            jnp.asarray(-costs, float), epsilon, sensitivity=1.0
        ).probabilities()
        np.testing.assert_allclose(found.pmf(found.values), expected, rtol=1e-9)
        one_by_one = dpjax.exponential(
            jnp.asarray(-costs, float), epsilon, sensitivity=1.0
        ).probabilities()
        assert found.mean_abs_error(35) < one_by_one @ np.abs(found.values - 35)


@pytest.mark.parametrize(
    ("neighbors", "epsilon", "resolution"), [("add_remove", 0.7, 1), ("swap", 1.2, 0.5)]
)
def test_draws_follow_the_probabilities(neighbors, epsilon, resolution):
    public, options = (
        OPTIONS | {"resolution": resolution},
        {"epsilon": epsilon, "neighbors": neighbors},
    )
    exact = exact_distribution(release.Median(**public), RECORDS, **options, mechanism=FLIP)
    drawn = release.median(RECORDS, **public, **options, mechanism=FLIP, draws=30_000).values
    observed = [np.sum(drawn == value) for value in exact.values]
    assert_counts_follow(observed, exact.pmf(exact.values))
    assert_counts_rejected(
        observed, replace(exact, exact_rate=exact.exact_rate * 2).pmf(exact.values)
    )


def test_every_statistic_takes_it_and_says_what_it_costs():
    common = {"epsilon": 1.0, "mechanism": FLIP, "draws": 2}
    grid = OPTIONS | common | {"neighbors": "swap"}
    bounded = {name: grid[name] for name in grid if name != "lower"}
    found = [
        release.median(RECORDS, **grid, definition="linear"),
        release.quantile(RECORDS, 0.9, **grid),
        release.order_statistic(RECORDS, 2, **grid),
        release.maximum(RECORDS, tau=1, **grid),
        release.nonnegative_sum(RECORDS, tau=1, **bounded | {"upper": 600}),
        release.user_sum(
            RECORDS, RECORDS, tau=1, **bounded | {"upper": 600, "neighbors": "add_remove"}
        ),
        release.distinct_count(RECORDS, tau=1, upper=20, neighbors="swap", **common),
        release.sum(RECORDS, **grid),
        release.mean(RECORDS, **grid),
        release.mode(RECORDS, candidates=(35, 36, 60), neighbors="swap", **common),
        release.release_choice(
            [[3, 4], [9, 2]], sensitivity=1, lower=0, upper=9, neighbors="swap", **common
        ),
    ]
    for one in found:
        assert one.guarantee == Guarantee(2.0, 4.0, one.guarantee.neighbors)
        assert one.values.shape[0] == 2


def test_choices_follow_the_probabilities():
    scores, options = [3, 5, 4, 0], {"sensitivity": 1, "lower": 0, "upper": 10, "neighbors": "swap"}
    drawn = np.bincount(
        release.release_choice(
            scores, epsilon=1.0, mechanism=FLIP, draws=40_000, **options
        ).multiples
    )
    assert_counts_follow(
        drawn, np.exp(log_probabilities_by_flips(-np.array([scores]).T.astype(float), 0.5))[:, 0]
    )
    exponential = np.exp(np.array(scores) / 2)
    assert_counts_rejected(drawn, exponential / exponential.sum())
