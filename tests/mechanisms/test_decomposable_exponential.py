"""A score that is a sum over parts: one exponential mechanism on all tuples, its losses over all
small scores, what it costs.
"""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpjax import decomposable_exponential
from tests.support.removals import log_probabilities, losses_of, renyi

ROUNDING = 1e-9
SENSITIVITY = np.array([1.0, 2.0])


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


ROWS, PAIRS = neighbors()


def logs_of(**options):
    """Log-probabilities of all tuples: ``(rows, 9)``."""
    found = decomposable_exponential(ROWS, **options)
    assert found.batch_shape == (len(ROWS), 2)
    logs = log_probabilities(found)
    return (logs[:, 0, :, None] + logs[:, 1, None, :]).reshape(-1, 9)


def cost_of(scores=ROWS, **options):
    return decomposable_exponential.guarantee(scores, neighbors="swap", **options)


@pytest.mark.parametrize("budget", [{"epsilon": 1.5}, {"zcdp": 0.4}], ids=str)
def test_it_is_the_exponential_mechanism_on_all_tuples_and_keeps_its_promise(budget, x64):
    logs = logs_of(sensitivity=SENSITIVITY, **budget)
    cost = cost_of(sensitivity=SENSITIVITY, **budget)
    # The summed scores of all tuples, whose sensitivity is 3
    scores = cost.epsilon / 6 * (ROWS[:, 0, :, None] + ROWS[:, 1, None, :]).reshape(-1, 9)
    scores -= scores.max(-1, keepdims=True)
    whole = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    assert_allclose(logs, whole, rtol=1e-11, atol=1e-12)
    loss, spread = losses_of(logs, PAIRS)
    assert loss <= cost.epsilon * (1 + ROUNDING)
    assert spread == pytest.approx(cost.bounded_range, rel=ROUNDING)
    for order in (1.01, 2.0, 8.0, 60.0):
        most = min(cost.zcdp * order, float(cost.rdp(order)))
        assert renyi(logs, PAIRS, order) <= most * (1 + ROUNDING)
    # Control: the zCDP of equal parts.
    equal = cost_of(sensitivity=1.0, epsilon=cost.epsilon)
    assert renyi(logs, PAIRS, 1.01) > 1.05 * 1.01 * equal.zcdp


def test_control_half_of_what_a_part_may_change(x64):
    assert losses_of(logs_of(epsilon=1.0, sensitivity=1.0), PAIRS)[1] >= 1.4


def test_many_parts_cost_as_much_less_as_stated():
    cost = cost_of(np.zeros((64, 2)), zcdp=0.5, sensitivity=1.0)
    assert cost.zcdp == pytest.approx(0.5)
    assert cost.epsilon == pytest.approx(16.0)
    assert cost.epsilon_at(1e-6) < 5.3
