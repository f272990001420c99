"""One record of a dataset becomes the worst that a float can be: every statistic has the loss that
it promises, and no row is NaN.

What each such record counts as is tested with the statistics; here only the promise is, over pairs
that differ in it.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import (
    duff,
    exponential,
    inverse_sensitivity,
    mode,
    piecewise_laplace,
    statistics,
    user_sum,
)
from tests.attacks.profiles import BOTH, PROFILES, shifted
from tests.support.audit import audit_pairs

WORST = np.array(
    [
        np.nan,
        -np.nan,
        np.inf,
        -np.inf,
        -0.0,
        5e-324,
        -1e-310,
        1.7e308,
        -1.7e308,
        3e38,
        1e30,
        2**24 + 1,
        -3.5,
    ],
    np.float64,
)
REST = np.array(
    [
        [2.0, 2.0, 7.0, 0.5],
        [0.0, 0.0, 0.0, 0.0],
        [8.0, 8.0, -1.0, np.inf],
        [np.nan, 3.0, 3.0, 3.0],
        [np.nan] * 4,
    ]
)
BOUNDS = {"lower": 0.0, "upper": 8.0}
EPSILON = 2.0


def of_persons(x, lower, upper):
    return user_sum(x, np.array([1, 1, 2, 3, 4]), upper=upper)


STATISTICS = PROFILES | {
    "lower quantile": (partial(statistics.quantile, q=0.3, definition="lower"), BOTH),
    "continuous quantile": (partial(statistics.quantile, q=0.3, definition="continuous"), BOTH),
    "order statistic": (partial(statistics.order_statistic, rank=2), BOTH),
    "median of integers": (partial(statistics.median, resolution=1), BOTH),
    "user sum": (partial(shifted, of_persons), BOTH[:1]),
}
OTHERS = ("lower quantile", "continuous quantile", "order statistic")
CASES = [
    pytest.param(name, relation, marks=[pytest.mark.slow] * (name in OTHERS))
    for name in STATISTICS
    for relation in STATISTICS[name][1]
]


def neighboring(neighbors):
    """Rows 2i and 2i+1 that differ in the first record: any two of the worst, or one of them and
    none.
    """
    others = WORST if neighbors == "swap" else [np.nan]
    pairs = [[[one, *rest], [other, *rest]] for rest in REST for one in WORST for other in others]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.array(pairs).reshape(-1, REST.shape[1] + 1).astype(np.float32)


def loss(name, neighbors, rows):
    @jax.jit
    def run(rows):
        profile = STATISTICS[name][0](rows, **BOUNDS, neighbors=neighbors)
        law = (piecewise_laplace if profile.interpolable else duff)(profile, EPSILON)
        on_grid = profile.resolution is not None
        return profile.value, law, law.log_prob(jnp.arange(9.0)[:, None]) if on_grid else None

    value, law, logs = jax.device_get(run(rows))
    assert np.isfinite(value).all()
    if logs is None:
        return audit_pairs(law).loss
    return np.abs(logs[:, ::2] - logs[:, 1::2]).max()


@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_the_loss_of_one_record_that_becomes_the_worst(name, neighbors):
    found = loss(name, neighbors, neighboring(neighbors))
    assert 0 < found <= EPSILON * (1 + 1e-4)


def test_candidates():
    for neighbors in ("swap", "add_remove"):
        count = partial(mode, candidates=np.float32([0, 3, 8]), neighbors=neighbors)
        run = jax.jit(
            lambda rows, count=count: exponential(count(rows), EPSILON).log_probabilities()
        )
        logs = np.asarray(run(neighboring(neighbors)))
        assert np.isfinite(logs).all()
        assert np.abs(logs[::2] - logs[1::2]).max() <= EPSILON * (1 + 1e-5)


def test_controls_more_than_one_record_and_the_other_relation(x64):
    """Two records changed are seen, and an absent one that counts as a bound under add/remove."""
    rows = neighboring("swap")
    rows[1::2, 1:3] = 8.0
    assert loss("sum", "swap", rows) > 1.4 * EPSILON
    rows = neighboring("add_remove")
    rows[1::2, 0] = 0.0
    rows[::2, 0] = 8.0
    profile = statistics.median(jnp.asarray(rows), **BOUNDS, neighbors="add_remove")
    assert audit_pairs(jax.device_get(inverse_sensitivity(profile, EPSILON))).loss > 1.2 * EPSILON
