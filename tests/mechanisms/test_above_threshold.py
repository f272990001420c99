"""Above threshold: its distribution by quadrature, exact losses over all small queries, and the
broken variants of Lyu et al.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import AboveThreshold, Guarantee, above_threshold
from tests.support.removals import log_probabilities
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
GAPS = np.concatenate([[0.0], np.geomspace(1e-3, 200, 60)])


def moved(changes):
    """All bases, then all that they become by each of the changes; and the rows of the pairs."""
    changes = np.array(list(changes), float)
    rows = np.concatenate([BASES, (BASES[:, None] + changes).reshape(-1, 3)])
    return rows, np.array(
        [
            np.repeat(np.arange(len(BASES)), len(changes)),
            len(BASES) + np.arange(len(BASES) * len(changes)),
        ]
    )


ANY = moved(itertools.product((-1, 0, 1), repeat=3))
ONE_WAY = moved(itertools.product((0, 1), repeat=3))


def losses(found, pairs):
    """The largest log-ratio for each epsilon, of the index alone and of the density of index and
    gap.
    """
    index = log_probabilities(found.index())
    place = jnp.arange(3)[:, None, None, None]
    # (place, gap, epsilon, row)
    joint = np.asarray(jax.jit(found.log_prob)(place, jnp.asarray(GAPS)[:, None, None]))
    alone = np.abs(index[:, pairs[0]] - index[:, pairs[1]]).max(axis=(1, 2))
    together = np.abs(joint[..., pairs[0]] - joint[..., pairs[1]]).max(axis=(0, 1, 3))
    return alone, together


@pytest.mark.parametrize("changes", ["one_direction", pytest.param("any", marks=pytest.mark.slow)])
def test_the_loss_of_index_and_gap_stays_within_epsilon_and_attains_it(changes, x64):
    rows, pairs = ANY if changes == "any" else ONE_WAY
    found = above_threshold(rows, EPSILONS[:, None], threshold=0.5, changes=changes)
    alone, together = losses(found, pairs)
    assert (np.maximum(alone, together) <= EPSILONS * (1 + ROUNDING)).all()
    np.testing.assert_allclose(together, EPSILONS, rtol=1e-3)
    if changes == "one_direction":  # control: queries that change in both directions
        rows, pairs = ANY
        assert (
            losses(
                above_threshold(rows, EPSILONS[:, None], threshold=0.5, changes="one_direction"),
                pairs,
            )[1]
            > 1.4 * EPSILONS
        ).all()


def laplace_cdf(t):
    return np.where(t < 0, np.exp(np.minimum(t, 0)) / 2, 1 - np.exp(-np.abs(t)) / 2)


def answer_vectors(queries, of_threshold, of_queries, stop):
    """The textbook with Laplace noise, by quadrature over the threshold: the probabilities of all
    answers to integer queries.

    Vectors of answers in all; with ``stop``, of what follows the first positive answer nothing is
    asked.
    """
    nodes, weights = np.polynomial.legendre.leggauss(12)
    z = (np.arange(-60, 60)[:, None] + (nodes + 1) / 2).ravel()
    mass = np.tile(weights / 2, 120) * np.exp(-np.abs(z) / of_threshold) / (2 * of_threshold)
    if of_queries == 0:
        below = (z > np.asarray(queries)[:, None]).astype(float)
    else:
        below = laplace_cdf((z - np.asarray(queries)[:, None]) / of_queries)
    size = len(queries)
    first = [(0,) * i + (1,) for i in range(size)] + [(0,) * size]
    vectors = first if stop else list(itertools.product((0, 1), repeat=size))
    return np.array(
        [
            mass @ np.prod([below[i] if a == 0 else 1 - below[i] for i, a in enumerate(v)], axis=0)
            for v in vectors
        ]
    )


def test_the_audit_passes_the_textbook_and_fails_the_broken_variants_of_lyu_et_al():
    """Algorithms 1, 4, 5 and 6 of Lyu, Su and Li (2017) for a single positive answer, each said to
    be 1-DP.
    """

    def loss(one, other, *variant):
        p, q = (answer_vectors(queries, *variant) for queries in (one, other))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nanmax(np.abs(np.log(p) - np.log(q)))

    pairs = [((0,) * m + (d,), (1,) * m + (d - 1,)) for m in (1, 3, 5) for d in (-3, 0, 4)]
    pairs += [(other, one) for one, other in pairs] + [((0,) * 3 + (1,) * 3, (1,) * 3 + (0,) * 3)]
    textbook = max(loss(*pair, 2.0, 4.0, True) for pair in pairs)
    assert 0.6 < textbook <= 1 + 1e-6
    # 4: noise of the queries for one direction only
    assert max(loss(*pair, 4.0, 4 / 3, True) for pair in pairs) > 1.1
    assert max(loss(*pair, 2.0, 0.0, False) for pair in pairs) > 100  # 5: no noise on the queries
    # 6: goes on after a positive answer
    assert max(loss(*pair, 2.0, 2.0, False) for pair in pairs) > 1.5


def test_it_finds_the_query_that_is_above_more_often_than_the_textbook():
    """Ten queries of 0 and then one of 20, each mechanism at its best threshold; figures of the
    docstring.
    """
    queries, thresholds = np.array([0.0] * 10 + [20.0], np.float32), np.arange(33)
    for changes, share, expected in (
        ("any", 1 / (1 + 2 ** (2 / 3)), (0.038, 0.230)),
        ("one_direction", 1 / 2, (0.006, 0.061)),
    ):
        right = (
            above_threshold(queries, 1.0, threshold=thresholds, changes=changes)
            .index()
            .probabilities()[:, 10]
        )
        scale = (2 if changes == "any" else 1) / (1 - share)
        textbook = [answer_vectors(queries - t, 1 / share, scale, True)[10] for t in thresholds]
        np.testing.assert_allclose([1 - right.max(), 1 - max(textbook)], expected, atol=3e-3)


def test_control_the_noisy_threshold_must_stay_secret():
    """Algorithm 3: with the noise beside it, the index is a function of the queries."""
    logs = np.logaddexp.accumulate(np.array([[0.0, 0, 0], [1.0, 0, 0]]) / 3, axis=-1)
    places = np.searchsorted(logs[0], 0.8), np.searchsorted(logs[1], 0.8)
    assert places == (2, 1)
    # What is released says nothing of the sort: no outcome is impossible
    for row, place in enumerate(places):
        found = above_threshold(np.array([[0.0, 0, 0], [1.0, 0, 0]])[row], 1.0, threshold=0.0)
        assert np.isfinite(found.log_prob(jnp.array(places), jnp.array([[0.0], [9.0]]))).all(), (
            place
        )


@pytest.mark.slow
def test_probabilities_and_the_joint_density_are_those_of_the_threshold(x64):
    rows, below = BASES[:, [1, 0, 2]], 3.0
    found = above_threshold(rows, EPSILONS[:, None], threshold=0.5)
    probabilities = np.exp(log_probabilities(found.index()))
    with np.errstate(over="ignore"):
        edges = np.cumsum(np.exp((EPSILONS / 3)[:, None, None] * (rows - 0.5)), axis=-1)
    cdf = np.where(edges < 1, edges**below / (1 + below), 1 - below / (1 + below) / edges)
    cdf = np.concatenate([0 * cdf[..., :1], cdf, 0 * cdf[..., :1] + 1], axis=-1)
    np.testing.assert_allclose(probabilities, np.diff(cdf), atol=1e-14)
    few, t = (
        above_threshold(rows[::12], EPSILONS[:, None], threshold=0.5),
        np.linspace(0, 120, 12_001),
    )
    density = np.exp(
        jax.jit(few.log_prob)(jnp.arange(3)[:, None, None, None], jnp.asarray(t)[:, None, None])
    )
    masses = (density[:, 1:] + density[:, :-1]).sum(axis=1) * 0.005
    np.testing.assert_allclose(np.moveaxis(masses, 0, -1), probabilities[:, ::12, :3], atol=5e-5)
    np.testing.assert_allclose(found.log_prob(3, 0.0), np.log(probabilities[..., 3]), atol=1e-12)
    outside = found.log_prob(
        jnp.array([0, 4, -1])[:, None, None], jnp.array([-1.0, 1.0, 1.0])[:, None, None]
    )
    assert np.isneginf(outside).all()


def test_gradients_are_those_of_the_formula(x64):
    queries, epsilon = jnp.array([0.0, -jnp.inf, 0.5, 3.0]), jnp.asarray(1.0)
    mean = jax.jit(lambda *given: above_threshold(*given, threshold=0.5).index().mean())
    slopes = jax.grad(mean, argnums=(0, 1))(queries, epsilon)
    assert np.isfinite(slopes[0]).all()
    step = 1e-5 * jnp.array([1.0, 0, 0, 0])
    assert float(slopes[0][0]) == pytest.approx(
        float(mean(queries + step, epsilon) - mean(queries - step, epsilon)) / 2e-5, rel=1e-6
    )
    assert float(slopes[1]) == pytest.approx(
        float(mean(queries, epsilon + 1e-5) - mean(queries, epsilon - 1e-5)) / 2e-5, rel=1e-6
    )


@pytest.mark.slow
def test_draws_follow_the_joint_distribution_and_do_not_change_with_further_rows():
    rows = np.array(
        [[-2.0, 0.5, 0.4, 3.0, -np.inf, 9.0], [-30, -np.inf, 4.0, -9, 2, 60]], np.float32
    )
    found, other = (above_threshold(rows, epsilon, threshold=1.0) for epsilon in (1.0, 1.3))
    assert isinstance(found, AboveThreshold)
    index, gap = (np.asarray(part) for part in found.sample(jax.random.key(0), (200_000,)))
    assert np.isnan(gap[index == 6]).all()
    assert (gap[index < 6] >= 0).all()
    for row in range(2):
        counts = np.bincount(index[:, row], minlength=7)
        assert_counts_follow(counts, found.index().probabilities()[row])
        assert_counts_rejected(counts, other.index().probabilities()[row])
        for place in range(6):
            own = gap[index[:, row] == place, row]
            if len(own) < 2000:
                continue

            def cdf(t, which, place=place, row=row):
                """By the trapezoidal rule over the joint density."""
                grid = np.concatenate([np.linspace(0, 60, 6001), np.linspace(60, 400, 2001)[1:]])
                some = AboveThreshold(which.weight[row], which.rate, which.below)
                density = np.exp(
                    np.asarray(some.log_prob(place, grid.astype(np.float32)), np.float64)
                )
                sums = np.concatenate(
                    [[0], np.cumsum(np.diff(grid) * (density[1:] + density[:-1]) / 2)]
                )
                return np.interp(t, grid, sums / sums[-1])

            assert_follows(own, lambda t: cdf(t, found))
            if len(own) > 50_000:
                assert_rejected(own, lambda t: cdf(t, other))
    assert (index[:, 0] != 4).all()

    @jax.jit
    def draw(rows):
        return above_threshold(rows, 1.0, threshold=1.0).sample(jax.random.key(0), (50,))

    for few, many in zip(draw(rows), draw(np.concatenate([rows, rows + 1])), strict=True):
        np.testing.assert_array_equal(few, many[:, :2])


def test_hostile_data_and_bad_public_parameters():
    rows = np.array(
        [[np.nan, 0, 0], [np.inf, 0, 0], [1e30, -1e30, 0], [-np.inf] * 3, [0, 0, 0]], np.float32
    )
    found = np.asarray(above_threshold(rows, 1.0, threshold=0.5).index().probabilities())
    np.testing.assert_array_equal(np.isnan(found).all(axis=-1), [True, False, False, False, False])
    np.testing.assert_allclose(found[1:4], [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]], atol=1e-6)
    index, gap = above_threshold(rows, jnp.array([1.0, 1.0, 1.0, 1.0, -1.0]), threshold=0.5).sample(
        jax.random.key(0)
    )
    np.testing.assert_array_equal(index, [-1, 0, 0, 3, -1])
    assert np.isnan(np.asarray(gap)[[0, 3, 4]]).all()
    assert np.isfinite(np.asarray(gap)[1:3]).all()
    for options, match in (
        ({"epsilon": 0.0}, "epsilon"),
        ({"threshold": np.nan}, "threshold"),
        ({"sensitivity": -1}, "sensitivity"),
    ):
        with pytest.raises(ValueError, match=match):
            above_threshold(rows, **({"epsilon": 1.0, "threshold": 0.0} | options))
    with pytest.raises(ValueError, match="changes"):
        above_threshold(rows, 1.0, threshold=0.0, changes="monotone")
    with pytest.raises(ValueError, match="last axis"):
        above_threshold(0.0, 1.0, threshold=0.0)
    assert above_threshold.guarantee("swap", 0.7) == Guarantee(0.7, 1.4, "swap")
