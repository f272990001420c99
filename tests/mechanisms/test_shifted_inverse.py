"""Shifted inverse sensitivity: the exact audit of four statistics, the golden losses, candidates,
and mistakes.
"""

from dataclasses import replace
from functools import cache, partial
from math import ceil, log

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpjax import DownSensitivity, inverse_sensitivity, shifted_inverse
from dpjax.mechanisms import shift_for
from tests.support.audit import Audit, audit
from tests.support.golden import golden
from tests.support.removals import (
    DATASETS,
    DEFINITIONS,
    GRID,
    TOP,
    losses_of,
    minima,
    neighboring,
)

GOLDEN = golden("E_shifted")["loss_over_epsilon"]
ROUNDING = 1e-9
EPSILON = 2.0
TAUS = (1, 2, 3)
RELATIONS = ("add_remove", "swap")
# Every value of the statistics, and one below
CANDIDATES = np.array([-1.0, *np.unique([*GRID, TOP, 0.5, 2.0, 3.0, 4.5, 6.0])])


def shares(distribution, relation="add_remove"):
    """Loss and range over epsilon, of each statistic."""
    found = audit(distribution, DATASETS, relation, GRID)
    return Audit(*(np.asarray(part) / EPSILON for part in found))


@partial(jax.jit, static_argnames=("tau", "interpolated"))
def on_the_line(values, tau, interpolated):
    down = DownSensitivity(values, np.array(TOP))
    if interpolated:
        return shifted_inverse(down, EPSILON, tau=tau)
    return inverse_sensitivity(down.shift(tau), EPSILON)


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("interpolated", [True, False])
def test_golden_losses_on_the_line(interpolated, tau, x64):
    """Every dataset and neighbor at both limits of every breakpoint; the losses are the golden
    ones. Unlike for profiles in general, one person replaced costs no more: a removal and an
    addition move h in opposite directions.
    """
    distribution = on_the_line(minima(), tau, interpolated)
    golden = [GOLDEN[name][f"interp={interpolated},tau={tau}"] for name in DEFINITIONS]
    assert_allclose(np.transpose(shares(distribution)), golden, rtol=1e-9)
    for relation in RELATIONS:
        assert (np.array(shares(distribution, relation)) <= 1 + ROUNDING).all()
    # Control: a distribution at the full rate
    assert (np.array(shares(replace(distribution, rate=np.asarray(EPSILON)))) > 1.2).any()


@partial(jax.jit, static_argnames="tau")
def compiled(values, candidates, epsilon, tau):
    down = DownSensitivity(values, np.array(TOP))
    return shifted_inverse(down, epsilon, tau=tau, candidates=candidates).log_probabilities()


@cache
def logs_of(tau, factor=1.0):
    """On candidates, of each statistic and dataset."""
    return np.asarray(compiled(minima(), CANDIDATES, factor * EPSILON, tau))


@pytest.mark.parametrize("tau", TAUS)
def test_costs_on_candidates_count_removals_to_at_most_and_to_below(tau, x64):
    """Equations 4 and A from the definition, over all subsets; a value that no subset is below has
    no mass.
    """
    h = minima()[..., None, :]
    candidates = CANDIDATES[:, None]
    at_most = np.where(h[..., -1] <= CANDIDATES, np.sum(h > candidates, axis=-1), np.inf)
    below = np.where(h[..., -1] < CANDIDATES, np.sum(h >= candidates, axis=-1), np.inf)
    weights = np.exp(-EPSILON / 2 * np.maximum(at_most - tau, tau - below))
    expected = weights / weights.sum(axis=-1, keepdims=True)
    assert_allclose(np.exp(logs_of(tau)), expected, rtol=1e-12)


@pytest.mark.parametrize("relation", RELATIONS)
def test_loss_and_range_on_candidates(relation, x64):
    found = [losses_of(logs_of(tau), neighboring(neighbors=relation)) for tau in TAUS]
    most = np.max(found, axis=(0, 1)) / EPSILON
    assert (most <= 1 + ROUNDING).all()
    if relation == "add_remove":
        assert_allclose(most, 1.0, rtol=ROUNDING)


def test_controls_on_candidates_are_caught(x64):
    """A third of the number of people as the shift: more people, another target. The full rate."""
    many = np.array([len(data) >= 3 for data in DATASETS])
    of_people = np.where(many[:, None], logs_of(3)[0], logs_of(1)[0])
    for mistaken, least in ((of_people, 1.2), (logs_of(2, 2.0)[0], 1.9)):
        assert max(losses_of(mistaken, neighboring())) >= least * EPSILON


@pytest.mark.parametrize(("epsilon", "k", "beta"), [(0.1, 7, 0.3), (1.0, 8, 0.05), (9.0, 2, 0.9)])
def test_the_shift_is_enough_for_constant_data(epsilon, k, beta, x64):
    """Footnote 4: with removals to at most a value in both places there is no target there."""
    tau = shift_for(epsilon, num_candidates=k, failure=beta)
    assert tau == max(1, ceil(2 / epsilon * log(k / beta)))
    values = np.where(np.arange(200) < 199, 1.0, 0.0)
    assert np.exp(compiled(values, np.arange(float(k)), epsilon, tau)[1]) >= 1 - beta
