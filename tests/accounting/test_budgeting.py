"""Budgets the other way: an epsilon for k queries, for an error."""

from math import inf

import jax
import numpy as np
import pytest

import dpjax
from dpjax.accounting import (
    Guarantee,
    epsilon_for_error,
    epsilon_per_query,
)


@pytest.mark.parametrize(
    ("count", "epsilon", "delta"), [(1, 1.0, 1e-6), (9, 0.7, 1e-5), (300, 2.0, 1e-8)]
)
def test_per_query(count, epsilon, delta):
    at = {"count": count, "epsilon": epsilon, "delta": delta}
    found = {
        promise: epsilon_per_query(**at, promise=promise) for promise in ("pure", "bounded_range")
    }
    for promise, each in found.items():

        def spent(scale, each=each, promise=promise):
            one = scale * each
            spread = one if promise == "bounded_range" else inf
            return (count * Guarantee(one, spread, "swap")).epsilon_at(delta)

        assert spent(1.0) <= epsilon < spent(1 + 1e-5)
        assert each >= epsilon / count
    assert found["bounded_range"] > found["pure"]


def test_epsilon_for_error():
    """Just below it, the error is above the target; NaN where no epsilon has that error."""
    x = np.random.default_rng(0).normal(size=(5, 41)).astype(np.float32)
    target = np.array([[0.05], [0.5], [1e-30], [4.9], [np.nan]], np.float32)

    @jax.jit
    def run(target):
        profile = dpjax.median(x, lower=-5, upper=5, neighbors="add_remove")
        found = epsilon_for_error(profile, dpjax.piecewise_laplace, target, upper=500.0)
        errors = [
            dpjax.piecewise_laplace(profile, scale * found).mean_abs_error(profile.value)
            for scale in (1.0, 0.99)
        ]
        return found, *errors

    found, error, below = run(target)
    impossible = np.isnan(found).all(axis=1)
    np.testing.assert_array_equal(impossible, [False, False, True, False, True])
    assert found[3] == pytest.approx(1e-4)  # the range alone is that good
    np.testing.assert_allclose(error[:2], target[:2] * np.ones(5), rtol=1e-4)
    assert (below[:2] > target[:2] * (1 + 1e-4)).all()
