"""The scores of the mode against breadth-first search over all small datasets, with records that
equal no candidate.
"""

import importlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.sensitivity.scores import CandidateScores
from dpjax.statistics import candidate_counts, mode
from tests.support import oracle
from tests.support.audit import padded

CANDIDATES = (0.0, 1.0, 4.0)
GRID = (*CANDIDATES, 9.0)  # 9 is no candidate
DATASETS = [
    *oracle.all_datasets(range(5), GRID),
    (0.0, 1.0, 1.0, 4.0, 4.0, 4.0),
    (0.0, 0.0, 1.0, 1.0, 9.0, 9.0),
]


def is_a_mode(data, candidate):
    counts = [data.count(c) for c in CANDIDATES]
    return data.count(candidate) == max(counts)


def is_the_mode(data, candidate):
    """Ties go to the smallest; an empty dataset has none."""
    if not data:
        return False
    counts = [data.count(c) for c in CANDIDATES]
    return CANDIDATES[counts.index(max(counts))] == candidate


def distances(datasets, neighbors, test, grid=GRID):
    """The number of changes before each candidate passes the test, by breadth-first search; 1 where
    none helps.
    """

    def of(data, candidate):
        layer, seen, level = {data}, {data}, 0
        while not any(test(other, candidate) for other in layer):
            layer = {
                other for near in layer for other in oracle.neighbors_of(near, neighbors, grid)
            } - seen
            seen |= layer
            level += 1
            if not layer:  # an empty dataset has nothing to swap
                return 1
        return level

    return np.array([[of(data, candidate) for candidate in CANDIDATES] for data in datasets])


def scores_of(datasets, neighbors, candidates=CANDIDATES, size=8):
    x, count = padded(datasets, size)
    return mode(
        jnp.asarray(x, jnp.float32), candidates=candidates, neighbors=neighbors, num_records=count
    )


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_the_score_is_the_exact_distance_to_being_a_mode_or_to_not_being_one(neighbors):
    to_be = distances(DATASETS, neighbors, is_a_mode)
    to_lose = distances(DATASETS, neighbors, lambda data, candidate: not is_a_mode(data, candidate))
    expected = np.where(to_be > 0, -to_be, np.maximum(to_lose - 1, 0))
    np.testing.assert_array_equal(scores_of(DATASETS, neighbors).scores, expected)
    assert expected.max() >= 2


def test_broken_ties_change_the_distance_by_one_in_42_of_105_cases():
    """The paper's n_x - n_max is the distance where a dataset may have several modes."""
    datasets = oracle.all_datasets(range(5), CANDIDATES)
    score = np.maximum(-np.asarray(scores_of(DATASETS, "add_remove").scores), 0)[
        [DATASETS.index(data) for data in datasets]
    ]
    difference = distances(datasets, "add_remove", is_the_mode, CANDIDATES) - score
    assert np.bincount(difference.ravel().astype(int)).tolist() == [63, 42]


def test_half_the_gap_is_not_the_distance_under_swap():
    """Counts (0, 3, 3, 3): half the gap rounded up is 2, three swaps are needed. And many random
    counts by direct search.
    """
    x = np.repeat([1.0, 2.0, 3.0], 3)
    assert mode(x, candidates=[0, 1, 2, 3], neighbors="swap").scores.tolist() == [
        -3.0,
        0.0,
        0.0,
        0.0,
    ]
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, (500, 5))
    rows = np.full((500, 40), np.nan)
    for row, own in zip(rows, counts, strict=True):
        row[: own.sum()] = rng.permutation(np.repeat(np.arange(5.0), own))
    scores = np.asarray(mode(rows, candidates=np.arange(5), neighbors="swap").scores)
    for own, score in zip(counts, scores, strict=True):
        for c in range(5):
            least = next(d for d in itertools.count() if np.maximum(own - own[c] - d, 0).sum() <= d)
            assert min(score[c], 0) == -least
    others = np.stack([np.delete(counts, c, axis=-1).max(axis=-1) for c in range(5)], axis=-1)
    np.testing.assert_array_equal(
        mode(rows, candidates=np.arange(5), neighbors="add_remove").scores,
        counts - counts.max(axis=-1, keepdims=True) + np.maximum(counts - others, 0),
    )


def largest_change(scores, neighbors, datasets):
    index = {data: row for row, data in enumerate(datasets)}
    pairs = [
        (index[d], index[o])
        for d in datasets
        for o in oracle.neighbors_of(d, neighbors, GRID)
        if o in index
    ]
    first, second = np.array(pairs).T
    return np.abs(scores[first] - scores[second]).max()


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_the_sensitivity_is_one_with_records_that_are_no_candidates(neighbors):
    scores = np.asarray(scores_of(DATASETS, neighbors).scores)
    assert largest_change(scores, neighbors, DATASETS) == 1
    # Control: the add/remove score has sensitivity 2 under swap.
    assert (
        largest_change(np.asarray(scores_of(DATASETS, "add_remove").scores), "swap", DATASETS) == 2
    )


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_the_range_of_changes_of_counts_is_twice_their_sensitivity(neighbors):
    x, count = padded(DATASETS, 8)
    found = candidate_counts(x, candidates=CANDIDATES, neighbors=neighbors, num_records=count)
    scores, index = np.asarray(found.scores), {data: row for row, data in enumerate(DATASETS)}
    expected = [
        [data.count(c) - max(map(data.count, CANDIDATES)) for c in CANDIDATES] for data in DATASETS
    ]
    np.testing.assert_array_equal(scores, expected)
    ranges = [
        np.ptp(scores[index[d]] - scores[index[o]])
        for d in DATASETS
        for o in oracle.neighbors_of(d, neighbors, GRID)
        if o in index
    ]
    assert (
        max(ranges) == 2 * float(found.sensitivity) == (1.0 if neighbors == "add_remove" else 2.0)
    )
    # Further from the best than the distance, for every candidate: a sharper distribution at the
    # same sensitivity.
    gap = np.asarray(mode(x, candidates=CANDIDATES, neighbors=neighbors, num_records=count).scores)
    sharper = (scores - scores.max(axis=-1, keepdims=True)) / float(found.sensitivity)
    assert (sharper <= gap - gap.max(axis=-1, keepdims=True)).all()


def test_hostile_records_count_for_nobody():
    x = np.array(
        [
            [1.0, np.nan, np.inf, -np.inf, 1.0, 2.5, 4.0, 1e30],
            [-0.0, 0.0, 4.0, 4.0, 4.0, 9.0, 9.0, 9.0],
        ],
        np.float32,
    )
    found = mode(x, candidates=CANDIDATES, neighbors="add_remove")
    assert found.scores.tolist() == [[-2.0, 1.0, -1.0], [-1.0, -3.0, 1.0]]
    assert (
        np.asarray(mode(np.full((2, 8), np.nan), candidates=CANDIDATES, neighbors="swap").scores)
        == 0
    ).all()


def test_masks_counts_and_own_candidates_for_each_row():
    x = np.array([[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0]])
    mask = np.array([[True, True, True, False], [False, True, True, True]])
    found = mode(x, candidates=[1, 2], neighbors="add_remove", mask=mask)
    assert found.scores.tolist() == [[1.0, -1.0], [-1.0, 1.0]]
    assert found.batch_shape == (2,)
    own = mode(
        x[0],
        candidates=np.array([[1.0, 2.0], [2.0, 7.0]]),
        neighbors="add_remove",
        num_records=np.array([3, 3]),
    )
    assert own.scores.tolist() == [[1.0, -1.0], [1.0, -1.0]]
    assert mode(np.zeros((2, 0)), candidates=[1, 2], neighbors="swap").scores.tolist() == [
        [0.0, 0.0],
        [0.0, 0.0],
    ]


def test_bad_public_parameters():
    x = np.zeros(3)
    for candidates in ([1, 1], [1, np.nan], [np.inf, 1], [2**24, 2**24 + 1]):
        with pytest.raises(ValueError, match="finite and distinct"):
            mode(x, candidates=candidates, neighbors="swap")
    for candidates in ([1.0, 1.0], [1.0, np.nan]):
        assert np.isnan(mode(x, candidates=jnp.array(candidates), neighbors="swap").scores).all()
    with pytest.raises(ValueError, match="neighbors"):
        mode(x, candidates=[1, 2], neighbors="both")
    with pytest.raises(ValueError, match="only one of"):
        mode(x, candidates=[1, 2], neighbors="swap", num_records=np.int32(1), mask=np.ones(3, bool))
    with pytest.raises(ValueError, match="at least one"):
        mode(x, candidates=[], neighbors="swap")
    with pytest.raises(ValueError, match="same last axis"):
        _ = CandidateScores(jnp.zeros(3), jnp.zeros(2), neighbors="swap").batch_shape


def test_scores_are_a_pytree_and_padding_records_change_nothing():
    x = np.array([[0.0, 1.0, 1.0, 4.0], [4.0, 4.0, 0.0, 0.0]], np.float32)

    @jax.jit
    def of(x):
        return mode(x, candidates=CANDIDATES, neighbors="swap")

    found = of(x)
    assert found.neighbors == "swap"
    np.testing.assert_array_equal(
        found.scores, of(np.pad(x, [(0, 0), (0, 3)], constant_values=np.nan)).scores
    )
    np.testing.assert_array_equal(found.scores, jax.vmap(of)(x).scores)


def test_counts_beyond_the_integers_of_float32(monkeypatch):
    """Scores of neighbors differ by one or nothing up to a common shift, although float32 has only
    every other count.
    """
    size = 2**24
    pairs = np.array([[size + 1, size + 9], [size + 2, size + 9], [size + 3, size + 9]], np.int32)
    monkeypatch.setattr(
        importlib.import_module("dpjax.statistics._mode"),
        "_read",
        lambda *_: (jnp.asarray(pairs), jnp.asarray([0.0, 1.0], jnp.float32)),
    )
    for scores, change in ((candidate_counts, [1.0, 0.0]), (mode, [1.0, -1.0])):
        found = scores([0.0], candidates=[0.0, 1.0], neighbors="add_remove").scores
        assert np.diff(found, axis=0).tolist() == [change, change]
    # Control: the counts themselves
    assert np.diff(pairs.astype(np.float32)[:, 0]).tolist() == [2.0, 2.0]


def test_candidates_off_the_resolution_have_no_scores():
    """Given as a JAX array they cannot be refused; two that are rounded to one multiple would count
    its records twice.
    """
    x = np.array([[0.0] * 5 + [1.0] + [2.0] * 6, [0.0] * 6 + [2.0] * 6])
    for candidates in ([-0.2, -0.1, 0.0, 0.1, 0.2, 1.0, 2.0], [0.0, 1.5, 2.0]):
        for statistic in (mode, candidate_counts):
            found = statistic(x, candidates=jnp.array(candidates), neighbors="swap", resolution=1)
            assert np.isnan(found.scores).all()
    found = mode(x, candidates=jnp.array([0.0, 1.0, 2.0]), neighbors="swap", resolution=1)
    assert found.scores.tolist() == [[-1.0, -3.0, 0.0], [0.0, -4.0, 0.0]]
