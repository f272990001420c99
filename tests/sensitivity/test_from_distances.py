"""Inverse sensitivity on a finite range: arbitrary statistics on all small datasets, with distances
by breadth-first search.
"""

from fractions import Fraction
from math import ceil

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import CandidateScores, exponential, from_distances, permute_and_flip
from dpjax.statistics import median
from tests.support import oracle
from tests.support.removals import finite_losses, neighboring

GRID = (0.0, 1.0, 2.0, 3.0, 4.0)
DATASETS = {
    "add_remove": oracle.all_datasets(range(5), GRID[:3]),
    "swap": oracle.all_datasets([3], GRID),
}
ROUNDING = 1e-9


def distances_between(datasets, pairs):
    """Between all datasets of a space, by breadth-first search from each."""
    near = np.zeros((len(datasets),) * 2, bool)
    near[pairs[0], pairs[1]] = near[pairs[1], pairs[0]] = True
    far, seen = np.where(np.eye(len(datasets)) > 0, 0.0, np.inf), np.eye(len(datasets), dtype=bool)
    for level in range(1, len(datasets)):
        reached = (seen @ near) & ~seen
        far[reached], seen = level, seen | reached
    return far


def distances_of(values, far):
    """How many changes until an arbitrary statistic has each of its values, ``(datasets, k)``:
    Equation 4.
    """
    return np.stack([far[:, values == y].min(axis=1) for y in np.unique(values)], axis=-1)


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_any_statistic_is_private_and_two_mistakes_are_not(neighbors, x64):
    """Statistics without any structure, and one that is nearly constant, so that many changes leave
    it as it is.
    """
    pairs = neighboring(
        DATASETS[neighbors], neighbors, GRID[:3] if neighbors == "add_remove" else GRID
    )
    far, rng = distances_between(DATASETS[neighbors], pairs), np.random.default_rng(0)
    nearly = np.array(
        [float(len(data) == 0 or min(data) == max(data) == 1) for data in DATASETS[neighbors]]
    )
    largest, deepest, twice, left_out = 0.0, 0.0, 0.0, 0.0
    for values in [nearly, *(rng.choice(3, len(far), p=(0.8, 0.15, 0.05)) for _ in range(20))]:
        away = np.pad(distances_of(values, far), [(0, 0), (0, 3)], constant_values=np.inf)[:, :3]
        scores = from_distances(away, candidates=GRID[:3], neighbors=neighbors)
        for epsilon in (0.5, 3.0):
            loss, spread = finite_losses(exponential(scores, epsilon), pairs)
            flipped, _ = finite_losses(permute_and_flip(scores, epsilon), pairs)
            assert max(loss, spread, flipped) <= epsilon * (1 + ROUNDING)
            largest = max(largest, spread / epsilon)
        deepest = max(deepest, float(scores.scores.max()))
        doubled = CandidateScores(
            jnp.where(scores.scores > 0, 2 * scores.scores, scores.scores),
            scores.candidates,
            neighbors=neighbors,
        )
        twice = max(twice, finite_losses(exponential(doubled, 1.0), pairs)[1])
        missing = from_distances(away[:, 1:], candidates=GRID[1:3], neighbors=neighbors)
        left_out = max(left_out, finite_losses(exponential(missing, 1.0), pairs)[1])
    assert deepest >= 2
    assert largest == pytest.approx(1, rel=ROUNDING)
    assert twice >= 1.4
    assert left_out >= 1.4
    assert exponential.guarantee(scores, 2.0).bounded_range == 2.0


GOLDEN = {  # of a lower median on five cells, epsilon 1
    ("swap", (1, 2, 2, 2, 4)): (
        0.074989389501765,
        0.123636601548377,
        0.554100805853104,
        0.123636601548377,
        0.123636601548377,
    ),
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
    far, layer, seen = np.full(5, np.inf), {tuple(map(float, data))}, set()
    for level in range(12):
        for other in layer:
            value = int(oracle.quantile(other, Fraction(1, 2), "lower", 0.0, 4.0))
            far[value] = min(far[value], level)
        if np.isfinite(far).all():
            break
        seen |= layer
        layer = {
            other
            for one in layer
            for other in oracle.neighbors_of(one, neighbors, (0.0, 2.0, 4.0, 1.0, 3.0))
        } - seen
    found = exponential(
        from_distances(far, candidates=GRID, neighbors=neighbors), 1.0
    ).probabilities()
    np.testing.assert_allclose(found, GOLDEN[neighbors, data], rtol=1e-12)
    assert far[sorted(data)[ceil(len(data) / 2) - 1]] == 0
    profile = median(np.array(data, float), lower=0, upper=4, resolution=1, neighbors=neighbors)
    assert (
        float(profile.depth)
        == from_distances(far, candidates=GRID, neighbors=neighbors).scores.max() + 1
    )


def test_batches_absent_candidates_and_errors():
    rows = from_distances(
        [[0, 3, np.inf], [2, 0, np.inf], [0, np.nan, 1]], candidates=[5, 6, 7], neighbors="edge"
    )
    np.testing.assert_array_equal(rows.scores, [[2, -3, -np.inf], [-2, 1, -np.inf], [np.nan] * 3])
    assert from_distances([0.0], candidates=[1.0], neighbors="swap").scores.tolist() == [0.0]
    assert from_distances(
        [0.0, np.inf], candidates=[1.0, 2.0], neighbors="swap"
    ).scores.tolist() == [0.0, -np.inf]
    with pytest.raises(ValueError, match="neighbors"):
        from_distances([0.0], candidates=[1.0], neighbors="hamming")
    with pytest.raises(ValueError, match="candidates must have"):
        from_distances([0.0, 1.0], candidates=[1.0], neighbors="swap")
