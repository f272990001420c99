"""Above threshold: its distribution from that of the noisy threshold, its draws, and exact losses
over all small queries.
"""

import itertools
from functools import cache, partial

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpjax import above_threshold
from tests.support.statistics import (
    assert_counts_follow,
    assert_counts_rejected,
    assert_follows,
    assert_rejected,
)

ROUNDING = 1e-9
EPSILONS = np.array([0.5, 3.0])
LEVELS = (-40.0, -3.0, 0.0, 2.0, 30.0)
BASES = np.array(list(itertools.product(LEVELS, repeat=3)))
CHANGES = np.array(list(itertools.product((-1, 0, 1), repeat=3)))
ROWS = np.concatenate([BASES, (BASES[:, None] + CHANGES).reshape(-1, 3)])
GAPS = np.concatenate([[0.0], np.geomspace(1e-3, 200, 30)])
THRESHOLD = 0.5


@partial(jax.jit, static_argnames="changes")
def logarithms(queries, gaps, changes):
    """Of the probabilities of the index, and of the joint density ``(place, gap, ...)``."""
    found = above_threshold(queries, EPSILONS[:, None], threshold=THRESHOLD, changes=changes)
    places = np.arange(queries.shape[-1])[:, None, None, None]
    return found.index().log_probabilities(), found.log_prob(places, gaps[:, None, None])


@cache
def losses(changes, one_way):
    """The largest log-ratio of all bases and what becomes of each, for each epsilon; of the index,
    and of index and gap.
    """
    index, joint = (np.asarray(part) for part in logarithms(ROWS, GAPS, changes))
    joint = np.moveaxis(joint.reshape(-1, 2, len(ROWS)), 0, -1)
    some = np.tile((CHANGES >= 0).all(axis=-1) | (not one_way), len(BASES))
    first = np.repeat(np.arange(len(BASES)), len(CHANGES))[some]
    second = len(BASES) + np.flatnonzero(some)
    return [np.abs(part[:, first] - part[:, second]).max(axis=(1, 2)) for part in (index, joint)]


@pytest.mark.parametrize("changes", ["any", "one_direction"])
def test_the_loss_of_index_and_gap_stays_within_epsilon_and_attains_it(changes, x64):
    alone, together = losses(changes, changes == "one_direction")
    assert (np.maximum(alone, together) <= EPSILONS * (1 + ROUNDING)).all()
    assert_allclose(together, EPSILONS, rtol=1e-3)


def test_control_queries_that_change_in_both_directions(x64):
    assert (losses("one_direction", False)[1] > 1.4 * EPSILONS).all()


def log_masses(ends, below, above):
    """Of the threshold Z between consecutive ends, whose density is that of z^(below - 1) up to 1
    and z^(-above - 1) beyond.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.minimum(np.log(ends), 0.0), np.maximum(np.log(ends), 0.0)
        small = below * low[..., 1:] + np.log(-np.expm1(below * (low[..., :-1] - low[..., 1:])))
        large = np.log(-np.expm1(above * (high[..., :-1] - high[..., 1:]))) - above * high[..., :-1]
        small = np.where(np.isneginf(low[..., 1:]), -np.inf, small) + np.log(above)
        return np.logaddexp(small, large + np.log(below)) - np.log(below + above)


def ends_of(queries, epsilon, threshold, below):
    """The sums of weights exp(r (query - threshold)) before each query, after the last one, and
    infinity; the weights and r.
    """
    rate = epsilon / below
    weights = np.exp(rate * (queries - threshold))
    sums = np.cumsum(weights, axis=-1)
    pads = np.zeros((*queries.shape[:-1], 1))
    return np.concatenate([pads, sums, pads + np.inf], axis=-1), weights, rate


def upto(start, weight, rate, gap):
    """P(A < Z <= A + e^(-rt) w): the threshold is in this interval, and the gap at least t."""
    ends = np.stack(np.broadcast_arrays(start, start + np.exp(-rate * gap) * weight), axis=-1)
    return np.exp(log_masses(ends, BELOW, 1.0))[..., 0]


BELOW = 3.0  # where queries change in any way


def test_probabilities_and_the_joint_density_are_those_of_the_threshold(x64):
    """The density of the gap is the derivative of a probability."""
    queries, gaps = np.array([[0.5, -np.inf, 2.0], [-3.0, 8, 0], [-40, -3, 2]]), GAPS[:20]
    step = 1e-4 * gaps[:, None, None] + 1e-6
    index, joint = logarithms(queries, gaps, "any")
    for row, epsilon in enumerate(EPSILONS):
        ends, weights, rate = ends_of(queries, epsilon, THRESHOLD, BELOW)
        expected = np.exp(log_masses(ends, BELOW, 1.0))
        assert_allclose(np.exp(index[row]), expected, rtol=1e-9)
        before, after = (
            upto(ends[:, :-2], weights, rate, gaps[:, None, None] + change)
            for change in (-step, step)
        )
        found = np.exp(np.moveaxis(joint[:, :, row], 0, -1))
        assert_allclose(found, (before - after) / (2 * step), rtol=1e-5)
    index, _ = logarithms(queries, gaps, "one_direction")
    ends, _, _ = ends_of(queries, EPSILONS[0], THRESHOLD, 2.0)
    assert_allclose(index[0], log_masses(ends, 2.0, 1.0), rtol=1e-9)
    assert np.isneginf(logarithms(queries, -gaps - 1, "any")[1]).all()


def test_draws_follow_the_joint_distribution():
    queries = np.array([[-2.0, 0.5, 0.4, 3.0, -np.inf, 9.0], [-9, -np.inf, 4.0, -9, 2, 60]])
    found = above_threshold(queries.astype(np.float32), 1.0, threshold=1.0)
    index, gap = (np.asarray(part) for part in found.sample(jax.random.key(0), (12_000,)))
    (ends, weights, rate), (slower, _, _) = (
        ends_of(queries, epsilon, 1.0, BELOW) for epsilon in (1.0, 0.8)
    )
    for row in range(2):
        counts = np.bincount(index[:, row], minlength=7)
        assert_counts_follow(counts, np.exp(log_masses(ends[row], BELOW, 1.0)))
        assert_counts_rejected(counts, np.exp(log_masses(slower[row], BELOW, 1.0)))
        for place in np.flatnonzero(counts[:6] > 3000):
            law = partial(upto, ends[row, place], weights[row, place])
            own = gap[index[:, row] == place, row]
            assert_follows(own, lambda t, law=law: 1 - law(rate, t) / law(rate, 0.0))
            assert_rejected(own, lambda t, law=law: 1 - law(rate, 1.3 * t) / law(rate, 0.0))
    assert np.isnan(gap[index == 6]).all()
