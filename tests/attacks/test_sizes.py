"""Sizes at powers of two, where rows are padded anew, sums get a level and integers a bit: losses
across them, and releases.

A dataset and its neighbor of one record more may go through programs of two shapes, and these must
not tell them apart.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import piecewise_laplace, release, statistics
from tests.attacks.profiles import PROFILES
from tests.support.audit import audit_pairs
from tests.support.distributions import of_one_size

BOUNDS = {"lower": 0.0, "upper": 1.0}
STATISTICS = {name: PROFILES[name][0] for name in ("median", "mean", "quantile")} | {
    "lower median": partial(statistics.median, definition="lower"),
    "continuous median": partial(statistics.median, definition="continuous"),
    "sum": partial(statistics.sum, max_count=140),
}
FIRST = ("median", "mean", "sum")
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
    return [of_one_size(piecewise_laplace(profile, EPSILON), pieces=512) for profile in profiles]


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
    assert loss(one, of_one_size(other, pieces=512)) > 1.3 * EPSILON


@pytest.mark.parametrize("mechanism", release.Median.mechanisms)
def test_releases_of_such_sizes_keep_their_promise(mechanism):
    """Up to 2^24 + 1 records: from counts, against those of records where arrays can hold them."""
    values, epsilon = np.arange(9.0), 0.01
    median = release.Median(lower=0, upper=8, resolution=1)
    public = {"epsilon": epsilon, "neighbors": "add_remove", "mechanism": mechanism}
    for size in (2**10 - 1, 2**10, 2**10 + 1, 2**24 - 1, 2**24, 2**24 + 1):
        some = np.random.default_rng(size).multinomial(size, np.ones(9) / 9)
        shares, one_more, ten_more = (
            median.distribution(values, counts=some + more * (values == 8), **public).pmf(values)
            for more in (0, 1, 10)
        )
        assert np.isclose(shares.sum(), 1)
        assert np.abs(np.log(one_more / shares)).max() <= epsilon * (1 + 1e-9)
        if size < 2**12:
            records = median.distribution(np.repeat(values, some), **public)
            np.testing.assert_array_equal(records.pmf(values), shares)
            assert np.abs(np.log(ten_more / shares)).max() > epsilon
