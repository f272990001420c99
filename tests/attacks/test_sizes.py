"""Sizes at powers of two, where rows are padded anew, sums get a level and integers a bit: losses
across them.

A dataset and its neighbor of one record more may go through programs of two shapes, and these must
not tell them apart.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import piecewise_laplace, statistics
from tests.attacks.profiles import PROFILES
from tests.support.audit import audit_pairs
from tests.support.distributions import of_one_size

BOUNDS = {"lower": 0.0, "upper": 1.0}
STATISTICS = {name: PROFILES[name][0] for name in ("median", "mean", "quantile")} | {
    "lower median": partial(statistics.median, definition="lower"),
    "continuous median": partial(statistics.median, definition="continuous"),
    "sum": partial(statistics.sum, max_count=140),
}
FIRST = ("median", "sum")
NIGHTLY = [pytest.mark.slow, pytest.mark.nightly]
SIZES = [
    31,
    *(pytest.param(size, marks=pytest.mark.slow) for size in (32, 63)),
    *(pytest.param(size, marks=NIGHTLY) for size in (30, 33, 64, 127, 128)),
]
EPSILON = 4.0


def pair(statistic, size):
    """Distributions of a dataset without its last record, in a row of that many columns, and of the
    whole.
    """
    x = np.random.default_rng(size).uniform(size=(8, size + 1)).astype(np.float32)
    x[::2] = np.round(x[::2] * 8) / 8  # ties
    x[:4, -1] = [0.0, 1.0, 0.5, np.inf]
    profiles = [
        statistic(jnp.asarray(rows), neighbors="add_remove", **BOUNDS) for rows in (x[:, :-1], x)
    ]
    return [of_one_size(piecewise_laplace(profile, EPSILON), pieces=640) for profile in profiles]


def loss(one, other):
    both = jax.tree.map(
        lambda a, b: jnp.stack([a, b], axis=1).reshape(-1, *a.shape[1:]), one, other
    )
    return audit_pairs(both).loss


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in FIRST)) for n in STATISTICS]
)
def test_one_record_more_in_a_longer_row(name, size):
    assert 0 < loss(*pair(STATISTICS[name], size)) <= EPSILON * (1 + 1e-3)


def test_control_the_row_of_two_records_more():
    one, _ = pair(STATISTICS["lower median"], 31)
    x = np.random.default_rng(31).uniform(size=(8, 32)).astype(np.float32)
    far = np.concatenate([x[:, :-1], np.ones((8, 3), np.float32)], axis=1)
    other = piecewise_laplace(
        STATISTICS["lower median"](jnp.asarray(far), neighbors="add_remove", **BOUNDS), EPSILON
    )
    assert loss(one, of_one_size(other, pieces=640)) > 1.3 * EPSILON
