"""A score that is a sum over parts: one exponential mechanism on all tuples, its losses over all
small scores, what it costs.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import CandidateScores, decomposable_exponential, exponential
from tests.support.removals import finite_losses, log_probabilities

ROUNDING = 1e-9
SENSITIVITY = np.array([1.0, 2.0])


def tuples(scores):
    """The summed scores of all tuples of candidates, ``(..., k**d)``."""
    total = np.zeros((*scores.shape[:-2], 1))
    for part in range(scores.shape[-2]):
        total = (total[..., :, None] + scores[..., part, None, :]).reshape(*scores.shape[:-2], -1)
    return total


def neighbors():
    """Two parts of three candidates, of sensitivities 1 and 2: scores, and pairs of rows for all
    extreme changes.
    """
    points = np.array(
        [[[0, 0, 0], [0, 0, 0]], [[0, 5, 1], [3, 0, 7]], [[0, 40, 80], [90, 0, 0]]], float
    )
    changes = (
        np.array(list(itertools.product((-1, 0, 1), repeat=6))).reshape(-1, 2, 3)
        * SENSITIVITY[:, None]
    )
    rows = np.concatenate([points, (points[:, None] + changes).reshape(-1, 2, 3)])
    first = np.repeat(np.arange(3), len(changes))
    return rows, np.array([first, 3 + np.arange(3 * len(changes))])


class Tuples:
    """The joint distribution of all tuples, as ``finite_losses`` reads it."""

    def __init__(self, distribution):
        logs = log_probabilities(distribution)
        self.logs = (logs[..., 0, :, None] + logs[..., 1, None, :]).reshape(*logs.shape[:-2], -1)


def losses(logs, pairs):
    ratio = logs[pairs[0]] - logs[pairs[1]]
    return np.abs(ratio).max(), np.ptp(ratio, axis=-1).max()


def renyi(logs, pairs, order):
    terms = order * logs[pairs[0]] + (1 - order) * logs[pairs[1]]
    return float(np.log(np.exp(terms).sum(-1)).max() / (order - 1))


def test_it_is_the_exponential_mechanism_on_all_tuples_and_keeps_its_promise(x64):
    rows, pairs = neighbors()
    pairs = np.concatenate([pairs, pairs[::-1]], axis=1)
    for budget in ({"epsilon": 1.5}, {"zcdp": 0.4}):
        found = decomposable_exponential(rows, sensitivity=SENSITIVITY, **budget)
        assert found.batch_shape == (len(rows), 2)
        logs = Tuples(found).logs
        cost = decomposable_exponential.guarantee(
            rows, neighbors="swap", sensitivity=SENSITIVITY, **budget
        )
        whole = exponential(jnp.asarray(tuples(rows)), cost.epsilon, sensitivity=3.0)
        np.testing.assert_allclose(logs, log_probabilities(whole), rtol=1e-11, atol=1e-12)
        loss, spread = losses(logs, pairs)
        assert (loss, spread) == finite_losses(whole, pairs) or spread == pytest.approx(
            finite_losses(whole, pairs)[1]
        )
        assert loss <= cost.epsilon * (1 + ROUNDING)
        assert spread == pytest.approx(cost.bounded_range, rel=ROUNDING)
        for order in (1.01, 2.0, 8.0, 60.0):
            divergence = renyi(logs, pairs, order)
            assert divergence <= min(cost.zcdp * order, float(cost.rdp(order))) * (1 + ROUNDING)
        # Control: the zCDP of equal parts.
        equal = decomposable_exponential.guarantee(
            rows, neighbors="swap", sensitivity=1.0, epsilon=cost.epsilon
        )
        assert renyi(logs, pairs, 1.01) > 1.05 * 1.01 * equal.zcdp
    # Control: half of what a part may change
    wrong = Tuples(decomposable_exponential(rows, epsilon=1.0, sensitivity=1.0)).logs
    assert losses(wrong, pairs)[1] >= 1.4


def test_many_parts_cost_as_much_less_as_stated():
    cost = decomposable_exponential.guarantee(
        np.zeros((64, 2)), zcdp=0.5, sensitivity=1.0, neighbors="swap"
    )
    assert cost.zcdp == pytest.approx(0.5)
    assert cost.epsilon == pytest.approx(16.0)
    assert cost.epsilon**2 / 8 == pytest.approx(64 * 0.5)
    assert cost.epsilon_at(1e-6) < 5.3
    rates = [
        decomposable_exponential(np.zeros((3, 64, 2), np.float32), zcdp=0.5, sensitivity=s).rate
        for s in (1.0, np.full(64, 2.0))
    ]
    np.testing.assert_allclose(rates, [[1 / 8], [1 / 16]], rtol=1e-6)


def test_draws_have_an_axis_of_parts_and_rows_are_nan_where_public_parameters_are_bad():
    scores = CandidateScores(
        jnp.zeros((4, 2, 3)).at[:, :, 2].set(9.0), jnp.arange(3.0), neighbors="add_remove"
    )
    found = jax.jit(
        lambda epsilon: decomposable_exponential(scores, epsilon=epsilon).sample(
            jax.random.key(0), (5,)
        )
    )(jnp.array([[50.0], [-1.0]]))
    assert found.shape == (5, 2, 4, 2)
    assert (found[:, 0] == 2).all()
    assert np.isnan(found[:, 1]).all()
    assert decomposable_exponential.guarantee(scores, epsilon=1.0).neighbors == "add_remove"


def test_errors():
    for options, match in (
        ({"sensitivity": 1.0}, "exactly one"),
        ({"sensitivity": 1.0, "epsilon": 1.0, "zcdp": 1.0}, "exactly one"),
        ({"epsilon": 1.0}, "sensitivity"),
        ({"epsilon": -1.0, "sensitivity": 1.0}, "epsilon"),
        ({"zcdp": 0.0, "sensitivity": 1.0}, "zcdp"),
    ):
        with pytest.raises(ValueError, match=match):
            decomposable_exponential(np.zeros((2, 3)), **options)
    with pytest.raises(ValueError, match="axis of parts"):
        decomposable_exponential(np.zeros(3), epsilon=1.0, sensitivity=1.0)
    with pytest.raises(ValueError, match="axis of parts"):
        decomposable_exponential.guarantee(
            np.zeros(3), epsilon=1.0, sensitivity=1.0, neighbors="swap"
        )
