"""Inverse sensitivity on a finite range: arbitrary statistics on all small datasets, with distances
by breadth-first search.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import CandidateScores, exponential, from_distances, permute_and_flip
from tests.statistics.small_datasets import SHOWN, UNIVERSE, datasets, distances, values_of
from tests.support import oracle
from tests.support.removals import losses_of

CELLS = (0.0, 1.0, 2.0, 3.0, 4.0)
EPSILONS = np.array([0.5, 3.0])
SIZES = {"add_remove": UNIVERSE.n <= 4, "swap": UNIVERSE.n == 4}


@pytest.mark.parametrize("neighbors", SIZES)
def test_any_statistic_is_private_and_two_mistakes_are_not(neighbors, x64):
    """Statistics without any structure, and one that is nearly constant, so that many changes leave
    it as it is.
    """
    rng = np.random.default_rng(0)
    nearly = np.array([float(not data or set(data) == {1.0}) for data in datasets(CELLS)])
    random = [rng.choice(3, len(nearly), p=(0.8, 0.15, 0.05)) for _ in range(20)]
    away = np.stack(
        [[distances(values == y, neighbors) for y in range(3)] for values in (nearly, *random)]
    )
    away = np.moveaxis(away, 1, -1)  # (statistics, datasets, candidates)
    shown = np.flatnonzero(SIZES[neighbors][:SHOWN])
    # A value that no dataset of these sizes has is far from all of them.
    assert (
        np.isfinite(away[:, shown]).all(axis=1) == np.isfinite(away[:, shown]).any(axis=1)
    ).all()

    @jax.jit
    def logs(away):
        scores = from_distances(away, candidates=CELLS[:3], neighbors=neighbors)
        doubled = CandidateScores(
            jnp.where(scores.scores > 0, 2 * scores.scores, scores.scores),
            scores.candidates,
            neighbors=neighbors,
        )
        missing = from_distances(away[..., 1:], candidates=CELLS[1:3], neighbors=neighbors)
        epsilon = EPSILONS[:, None, None]
        made = exponential(scores, epsilon), permute_and_flip(scores, epsilon)
        mistakes = exponential(doubled, 1.0), exponential(missing, 1.0)
        return [one.log_probabilities() for one in (*made, *mistakes)], scores.scores

    (right, flipped, doubled, missing), scores = logs(away)
    pairs = UNIVERSE.pairs(neighbors)
    pairs = pairs[:, np.isin(pairs, shown).all(axis=0)]

    def audit(some):
        return np.max(losses_of(np.asarray(some, np.float64), pairs), axis=-1)

    for epsilon, of_right, of_flipped in zip(EPSILONS, right, flipped, strict=True):
        assert max(*audit(of_right), audit(of_flipped)[0]) <= epsilon * (1 + 1e-9)
        assert audit(of_right)[1] == pytest.approx(epsilon, rel=1e-9)
    assert np.max(np.where(np.isfinite(scores[:, shown]), scores[:, shown], 0)) >= 2
    assert audit(doubled)[1] >= 1.4
    assert audit(missing)[1] >= 1.4


GOLDEN = {  # of a lower median on five cells, epsilon 1
    ("swap", (0, 2, 2, 4)): (
        0.205685873743319,
        0.205685873743319,
        0.339118675123152,
        0.124754788695105,
        0.124754788695105,
    ),
    ("add_remove", (0, 2, 2, 4)): (
        0.129958731517834,
        0.129958731517834,
        0.582434626638475,
        0.078823955162929,
        0.078823955162929,
    ),
}


@pytest.mark.parametrize(("neighbors", "data"), GOLDEN)
def test_it_is_the_distribution_of_the_median_on_a_grid_with_its_depth(neighbors, data, x64):
    """Distances from the statistic itself, not from its ranks; and golden numbers."""
    values = values_of(
        partial(oracle.quantile, q="1/2", definition="lower", lower=0, upper=4), CELLS
    )
    own = datasets(CELLS).index(tuple(map(float, data)))
    far = np.array([distances(values == cell, neighbors)[own] for cell in CELLS])

    @jax.jit
    def asked(far, data):
        scores = from_distances(far, candidates=CELLS, neighbors=neighbors)
        profile = dpjax.median(data, lower=0, upper=4, resolution=1, neighbors=neighbors)
        return exponential(scores, 1.0).probabilities(), scores.scores.max(), profile.depth

    probabilities, best, depth = asked(far, np.array(data, float))
    np.testing.assert_allclose(probabilities, GOLDEN[neighbors, data], rtol=1e-12)
    assert far[int(values[own])] == 0
    assert float(depth) == float(best) + 1


def test_candidates_that_no_dataset_has_and_rows_without_scores():
    @jax.jit
    def scores():
        rows = np.array([[0, 3, np.inf], [2, 0, np.inf], [0, np.nan, 1]], np.float32)
        pairs = ((rows, [5, 6, 7]), ([0.0], [1.0]), ([0.0, np.inf], [1.0, 2.0]))
        return [from_distances(far, candidates=c, neighbors="edge").scores for far, c in pairs]

    rows, one, two = scores()
    np.testing.assert_array_equal(rows, [[2, -3, -np.inf], [-2, 1, -np.inf], [np.nan] * 3])
    assert (one.tolist(), two.tolist()) == ([0.0], [0.0, -np.inf])
    with pytest.raises(ValueError, match="candidates"):
        from_distances([0.0, 1.0], candidates=[1.0], neighbors="swap")
