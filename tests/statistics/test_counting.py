"""Counts and histograms against NumPy's, and the exact privacy loss of the geometric mechanism on
them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import Guarantee, count, histogram, release
from tests.support import statistics

X = np.array(
    [[0.0, 1.0, 1.5, 2.0, 3.0, 3.0, np.nan, 9.0], [2.0, 2.0, 2.0, -1.0, 3.0, 0.5, 0.5, np.inf]]
)
EDGES = [0.0, 1.0, 2.0, 3.0]


def test_counts_are_numpy_s():
    assert count(X).value.tolist() == [7, 8]
    assert count(X, num_records=np.array([7, 2])).value.tolist() == [6, 2]
    assert count(X, mask=X >= 2).value.tolist() == [4, 5]
    for given in ({}, {"mask": X < 3}, {"num_records": np.array([4, 0])}):
        kept = given.get("mask", np.arange(8) < given.get("num_records", np.array([8, 8]))[:, None])
        wanted = [
            np.histogram(row[there & np.isfinite(row)], EDGES)[0]
            for row, there in zip(X, kept, strict=True)
        ]
        assert histogram(X, edges=EDGES, **given).value.tolist() == np.array(wanted).tolist()
        wanted = [
            [np.sum(row[there] == label) for label in (3.0, 2.0)]
            for row, there in zip(X, kept, strict=True)
        ]
        assert (
            histogram(X, candidates=[3.0, 2.0], **given).value.tolist() == np.array(wanted).tolist()
        )
    assert histogram(np.zeros((2, 0)), edges=EDGES).value.tolist() == [[0, 0, 0]] * 2


def largest_loss(x, y, epsilon):
    """Of one draw of all bins, exactly: losses of independent bins add up."""
    profiles = [histogram(records, edges=EDGES) for records in (x, y)]
    values = np.arange(-20.0, 40.0)[:, None]
    p, q = (
        np.asarray(dpjax.laplace(profile, epsilon).log_prob(values), np.float64)
        for profile in profiles
    )
    return np.sum(np.max(np.abs(p - q), axis=0))


def test_one_record_more_or_less_costs_epsilon_in_all_bins_together():
    row = X[0]
    losses = [largest_loss(row, np.delete(row, i), 0.7) for i in range(row.size)]
    assert max(losses) == pytest.approx(0.7, rel=1e-5)
    # A swap is not covered
    assert largest_loss(row, np.where(row == 1.0, 2.5, row), 0.7) == pytest.approx(1.4, rel=1e-5)
    profile = histogram(row, edges=EDGES)
    assert dpjax.laplace.guarantee(profile, 0.7) == Guarantee(0.7, 1.4, "add_remove")


def test_what_laplace_does_with_profiles():
    total = dpjax.sum(X[0, :6], lower=-2, upper=3, neighbors="add_remove")
    assert float(dpjax.laplace(total, 0.5).mean_abs_error(total.value)) == pytest.approx(6.0)
    assert dpjax.laplace(count(X), np.array([0.5, 1.0])[:, None]).batch_shape == (2, 2)
    clamped = dpjax.Clamped.of(dpjax.laplace(count(X), 0.1), lower=0, upper=8)
    assert float(clamped.mean_abs_error(7.0)[0]) < 10 / 2
    median = dpjax.median(X, lower=0, upper=9, neighbors="swap")
    for wrong, match in (
        (lambda: dpjax.laplace(median, 1.0), "with steps"),
        (lambda: dpjax.laplace(count(X), 1.0, sensitivity=2.0), "with steps"),
        (lambda: dpjax.laplace(count(X), 1.0, lower=0, upper=9), "clamp the draws"),
        (lambda: dpjax.laplace(3.0, 1.0), "global sensitivity"),
        (lambda: dpjax.piecewise_laplace(count(X), 1.0), r"use dpjax.laplace"),
        (lambda: histogram(X), "exactly one"),
        (lambda: histogram(X, edges=[0.0, 0.0, 1.0]), "increasing"),
        (lambda: histogram(X, candidates=[0.0, 0.0]), "distinct"),
    ):
        with pytest.raises(ValueError, match=match):
            wrong()


def test_edges_that_do_not_increase_are_no_error_under_jit():
    values = jax.jit(lambda x, edges: histogram(x, edges=edges).value)(
        X, jnp.array([0.0, 2.0, 1.0])
    )
    assert np.isnan(values).all()


def test_draws_follow_the_distribution():
    distribution = dpjax.laplace(count(X[0]), 0.4)
    draws = np.asarray(distribution.sample(jax.random.key(3), (4000,)))
    assert np.all(draws == np.round(draws))
    numbers = np.arange(-5.0, 20.0)
    seen = [np.sum(draws == number) for number in numbers]
    inside = np.asarray(distribution.prob(numbers))
    statistics.assert_counts_follow([*seen, draws.size - sum(seen)], [*inside, 1 - inside.sum()])
    wrong = np.asarray(dpjax.laplace(count(X[0]), 0.5).prob(numbers))
    statistics.assert_counts_rejected([*seen, draws.size - sum(seen)], [*wrong, 1 - wrong.sum()])


def test_a_relation_may_be_given_and_is_add_remove():
    """The keywords that all other statistics take may be given to these, too."""
    x = [1.0, 2.0, 2.0]
    assert dpjax.count(x, neighbors="add_remove").value == dpjax.count(x).value == 3
    assert release.count(x, epsilon=32, neighbors="add_remove").values == 3
    for call in (
        lambda: dpjax.count(x, neighbors="swap"),
        lambda: dpjax.histogram(x, edges=[0, 1, 3], neighbors="swap"),
        lambda: release.count(x, epsilon=1, neighbors="swap"),
        lambda: release.histogram(x, epsilon=1, edges=[0, 1, 3], neighbors="swap"),
    ):
        with pytest.raises(ValueError, match="under swap neighbors they are public"):
            call()
