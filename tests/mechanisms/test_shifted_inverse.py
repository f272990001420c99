"""Shifted inverse sensitivity: the exact audit of four statistics, the golden losses, candidates,
and mistakes.
"""

from functools import cache, partial
from math import ceil, log

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpjax import DownSensitivity, inverse_sensitivity, piecewise_laplace, shifted_inverse
from dpjax.mechanisms import shift_for
from tests.support.audit import Audit, audit
from tests.support.golden import golden
from tests.support.profiles import profile_of_sides, sides_of
from tests.support.removals import (
    DATASETS,
    DEFINITIONS,
    GRID,
    N_MAX,
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


def smallest_first():
    """What remains if the smallest records leave first is no minimum."""
    left = [[max(data[k:], default=0.0) for k in range(N_MAX + 1)] for data in DATASETS]
    return np.asarray(compiled(np.array(left), CANDIDATES, EPSILON, 2))


PEOPLE = np.array([len(data) for data in DATASETS])
MISTAKES = {
    # A third of the number of people: more people, another target
    "a shift that depends on the data": lambda: np.where(
        (PEOPLE >= 3)[:, None], logs_of(3)[0], logs_of(1)[0]
    ),
    "the full rate": lambda: logs_of(2, 2.0)[0],
    "removals in the wrong order": smallest_first,
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_controls_on_candidates_are_caught(mistake, x64):
    least = 1.9 if mistake == "the full rate" else 1.2
    assert max(losses_of(MISTAKES[mistake](), neighboring())) >= least * EPSILON


@cache
def controls():
    """Profiles of the maximum at tau = 2 with mistakes, as rows of one."""
    right = sides_of(DownSensitivity(minima()[0], np.array(TOP)).shift(2))
    up, down = right["upper"], right["lower"]
    start, end, last = up[:, :1], up[:, -1:], down[:, -1:]
    # Above at tau - s + 1 instead of tau - s, or below at half the pace; too fast a pace only
    # wastes error
    sides = {
        "right": (up, down),
        "above too fast": (np.concatenate([start, up[:, 2:], end], axis=-1), down),
        "above too slow": (np.concatenate([start, start, up[:, 1:-2], end], axis=-1), down),
        "below too slow": (
            up,
            np.append(np.repeat(down, 2, axis=-1)[:, : down.shape[-1] - 1], last, -1),
        ),
        "the bound of the data": (np.append(up[:, :-1], up[:, -2:-1] + 1, axis=-1), down),
        "a level off by one": (up, down),
    }
    upper, lower = (np.stack(side) for side in zip(*sides.values(), strict=True))
    level = right["upper_levels"]
    off = (np.array(list(sides)) == "a level off by one")[:, None, None]
    rows = profile_of_sides(upper, lower, level + off * (level > 0))
    found = shares(jax.jit(lambda profile: piecewise_laplace(profile, EPSILON))(rows))
    return dict(zip(sides, np.maximum(*found), strict=True)), found.loss[-1]


@pytest.mark.parametrize(
    ("mistake", "least", "most"),
    [
        ("right", 0.0, 1 + ROUNDING),
        ("above too fast", 0.0, 1 + ROUNDING),
        ("above too slow", 1.2, np.inf),
        ("below too slow", 1.2, np.inf),
        ("a level off by one", 1.2, np.inf),
    ],
)
def test_controls_on_the_line_are_caught(mistake, least, most, x64):
    found, loss = controls()
    assert least <= found[mistake] <= most
    assert loss >= 1.2
    assert np.isinf(found["the bound of the data"])


@pytest.mark.parametrize(("epsilon", "k", "beta"), [(0.1, 7, 0.3), (1.0, 8, 0.05), (9.0, 2, 0.9)])
def test_the_shift_is_enough_for_constant_data(epsilon, k, beta, x64):
    """Footnote 4: with removals to at most a value in both places there is no target there."""
    tau = shift_for(epsilon, num_candidates=k, failure=beta)
    assert tau == max(1, ceil(2 / epsilon * log(k / beta)))
    values = np.where(np.arange(200) < 199, 1.0, 0.0)
    assert np.exp(compiled(values, np.arange(float(k)), epsilon, tau)[1]) >= 1 - beta
