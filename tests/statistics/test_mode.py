"""The scores of the mode against breadth-first search over all small datasets, with records that
equal no candidate.
"""

import importlib
import itertools
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import mode
from dpjax.statistics import candidate_counts
from tests.statistics.small_datasets import (
    RELATIONS,
    SHOWN,
    UNIVERSE,
    distances,
    rows,
)

CANDIDATES = (0.0, 1.0, 4.0)
GRID = (-2.0, *CANDIDATES, 9.0)  # the ends are no candidates
COUNTS = UNIVERSE.counts[:, 1:4]


@cache
def scores(statistic, neighbors):
    """Of all datasets, in NumPy."""
    some = rows("add_remove", "mask", 0, GRID)  # NaN is absent under both
    made = jax.jit(partial(statistic, candidates=CANDIDATES, neighbors=neighbors))
    found = made(some.x.astype(np.float32), **some.given)
    return np.asarray(found.scores), found.sensitivity.item()


def of_tests(tests, neighbors):
    """The distances until a test holds, ``(datasets, candidates)``."""
    return np.stack([distances(test, neighbors) for test in tests.T], axis=-1)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_the_score_is_the_exact_distance_to_being_a_mode_or_to_not_being_one(neighbors):
    modes = COUNTS.max(axis=1, keepdims=True) == COUNTS
    to_be, to_lose = (of_tests(test, neighbors) for test in (modes, ~modes))
    to_lose = np.where(np.isinf(to_lose), 1, to_lose)  # an empty dataset has nothing to swap
    expected = np.where(to_be > 0, -to_be, to_lose - 1)
    np.testing.assert_array_equal(scores(mode, neighbors)[0], expected)
    assert expected.max() >= 2


def test_half_the_gap_is_not_the_distance_under_swap():
    """Counts (0, 3, 3, 3): half the gap rounded up is 2, three swaps are needed. And many random
    counts by direct search.
    """
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, (300, 5))
    counts[0] = [0, 3, 3, 3, 0]
    x = np.full((300, 40), np.nan, np.float32)
    for row, own in zip(x, counts, strict=True):
        row[: own.sum()] = rng.permutation(np.repeat(np.arange(5.0), own))
    swap = jax.jit(partial(mode, candidates=np.arange(5), neighbors="swap"))(x).scores
    for own, score in zip(counts, np.asarray(swap), strict=True):
        for c in range(5):
            least = next(d for d in itertools.count() if np.maximum(own - own[c] - d, 0).sum() <= d)
            assert min(score[c], 0) == -least
    assert swap[0, 0] == -3


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_the_sensitivity_of_both_scores(neighbors):
    """Of the mode it is 1, with records that are no candidates; of counts the range of changes is
    twice theirs.
    """
    one, other = UNIVERSE.pairs(neighbors)
    distance, sensitivity = scores(mode, neighbors)
    assert np.abs(distance[one] - distance[other]).max() == sensitivity == 1
    if neighbors == "swap":  # control: the add/remove score has sensitivity 2 under swap
        wrong, _ = scores(mode, "add_remove")
        assert np.abs(wrong[one] - wrong[other]).max() == 2
    found, sensitivity = scores(candidate_counts, neighbors)
    expected = COUNTS[:SHOWN] - COUNTS[:SHOWN].max(axis=1, keepdims=True)
    np.testing.assert_array_equal(found, expected)
    ranges = np.ptp(found[one] - found[other], axis=-1)
    assert ranges.max() == 2 * sensitivity == (1.0 if neighbors == "add_remove" else 2.0)


def test_own_candidates_for_each_row_and_candidates_that_are_none():
    """Those given as a JAX array cannot be refused; two that are rounded to one multiple would
    count its records twice.
    """
    x = np.array([[0.0] * 5 + [1.0] + [2.0] * 6, [0.0] * 6 + [2.0] * 6], np.float32)
    off = [[1.0, np.nextafter(np.float32(1), 2)], [0.0, 1.5, 2.0], [0.0, 1.0, 2.0]]

    @jax.jit
    def scores(own, equal, unknown, *on_a_grid):
        of = partial(mode, x, neighbors="swap")
        grid = [
            partial(statistic, x, neighbors="swap", resolution=1)
            for statistic in (candidate_counts, mode)
        ]
        return (
            *(of(candidates=given).scores for given in (own, equal, unknown)),
            *(one(candidates=given).scores for given in on_a_grid for one in grid),
        )

    given = [[1.0, 2.0], [0.0, 7.0]], [0.0, 0.0], [0.0, np.nan], *off
    own, *none, _, found = scores(*map(np.float32, given))
    assert own.tolist() == [[-3.0, 2.0], [3.0, -3.0]]
    assert all(np.isnan(one).all() for one in none)
    assert found.tolist() == [[-1.0, -3.0, 0.0], [0.0, -4.0, 0.0]]
    for candidates in ([1, 1], [np.inf, 1], [2**24, 2**24 + 1]):
        with pytest.raises(ValueError, match="distinct"):
            mode(x, candidates=candidates, neighbors="swap")


def test_counts_beyond_the_integers_of_float32(monkeypatch):
    """Scores of neighbors differ by one or nothing up to a common shift, although float32 has only
    every other count.
    """
    size = 2**24
    pairs = np.array([[size + 1, size + 9], [size + 2, size + 9], [size + 3, size + 9]], np.int32)
    counted = jnp.asarray(pairs), jnp.asarray([0.0, 1.0], jnp.float32)
    module = importlib.import_module("dpjax.statistics._mode")
    monkeypatch.setattr(module, "_read", lambda *_: counted)  # else there are 10^8 records
    for statistic, change in ((candidate_counts, [1.0, 0.0]), (mode, [1.0, -1.0])):
        found = statistic([0.0], candidates=[0.0, 1.0], neighbors="add_remove").scores
        assert np.diff(found, axis=0).tolist() == [change, change]
    # Control: the counts themselves
    assert np.diff(pairs.astype(np.float32)[:, 0]).tolist() == [2.0, 2.0]
