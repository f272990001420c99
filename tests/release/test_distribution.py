"""Closed forms of the distributions against sums over all values, one by one."""

from fractions import Fraction

import numpy as np
import pytest

from dpjax import release
from dpjax.release import Counts, Floats, GridDistribution, exact_distribution
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

MECHANISMS = ("piecewise_laplace", "inverse_sensitivity", "permute_and_flip")
TENTHS = {"lower": -0.3, "upper": 2.0, "resolution": "0.1"}
LEVELS = np.array([0.0, 1e-9, 0.025, 0.3, 0.5, 0.77, 0.975, 1 - 1e-9, 1.0])


def datasets(seed, groups=4, top=23):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), 5)
    count = rng.integers(0, 4, group.size) * (group > 0)
    return Counts.of_rows(group, rng.integers(0, top + 1, group.size), count, groups=groups)


def same_size(seed, n=7, top=9):
    return Counts.of_records(
        np.random.default_rng(seed).integers(0, top + 1, (4, n)) // np.array([[1], [2], [4], [20]])
    )


def of_votes(votes, mechanism, epsilon, candidates=None):
    """Distributions of the choice by these numbers of votes."""
    kind = "permute_and_flip" if mechanism == "permute_and_flip" else "exponential"
    places = np.arange(votes.shape[1])
    mode = release.Mode(places if candidates is None else candidates)
    return mode.distribution(Counts.of_matrix(places, votes), epsilon, "swap", mechanism=kind)


VOTES = np.random.default_rng(6).integers(0, 9, (4, 5))


CASES = {
    "median": lambda mechanism, e: release.Median(**TENTHS).distribution(
        datasets(1), e, "add_remove", mechanism=mechanism
    ),
    "quantile": lambda mechanism, e: release.Quantile(
        "0.75", **TENTHS, definition="linear"
    ).distribution(datasets(2), e, "swap", mechanism=mechanism),
    "floats": lambda mechanism, e: release.Maximum(
        1, grid=Floats(digits=1, smallest=-1, largest=1)
    ).distribution(datasets(3), e, "add_remove", mechanism=mechanism),
    "sum": lambda mechanism, e: release.Sum(-2, 7, 1).distribution(
        same_size(4), e, "swap", mechanism=mechanism
    ),
    "mean": lambda mechanism, e: release.Mean(0, 9, 1).distribution(
        same_size(5), e, "swap", mechanism=mechanism
    ),
    "total": lambda mechanism, e: release.NonnegativeSum(1, 50, 1).distribution(
        datasets(7, top=12), e, "add_remove", mechanism=mechanism
    ),
    "candidates": lambda mechanism, e: of_votes(VOTES, mechanism, e, (-2.0, 0.5, 1.0, 7.0, 9.5)),
}


def whole(found):
    """All values and their probabilities, ``(values, datasets)``."""
    return found.values, found.pmf(found.values[:, None])


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", CASES)
def test_closed_forms_are_sums_over_all_values(name, mechanism):
    for epsilon in (0.05, 1.0, 12.0):
        found = CASES[name](mechanism, epsilon)
        values, p = whole(found)
        np.testing.assert_allclose(p.sum(axis=0), 1, rtol=0, atol=1e-13)
        with np.errstate(under="ignore"):
            np.testing.assert_allclose(
                np.exp(found.log_pmf(values[:, None])), p, rtol=1e-12, atol=0
            )
        below = np.cumsum(p, axis=0)
        np.testing.assert_allclose(found.cdf(values[:, None]), below, rtol=0, atol=3e-15)
        between = (values[1:] + values[:-1])[:, None] / 2
        np.testing.assert_allclose(found.cdf(between), below[:-1], rtol=0, atol=3e-15)
        assert (found.pmf(between) == 0).all()
        outside = np.array([[-np.inf], [values[0] - 1], [values[-1] + 1], [1e300], [np.inf]])
        assert (found.pmf(outside) == 0).all()
        assert found.cdf(outside).T.tolist() == [[0, 0, 1, 1, 1]] * 4
        np.testing.assert_allclose(
            np.exp(found.log_cdf(values[:, None])), below, rtol=0, atol=3e-15
        )
        assert found.log_cdf(outside).T.tolist() == [[-np.inf, -np.inf, 0, 0, 0]] * 4
        assert found.event_shape == ()
        assert [end.tolist() for end in found.support] == [[values[0]] * 4, [values[-1]] * 4]
        for center in (
            *values[[0, len(values) // 3, -1]],
            values[1] + 0.37,
            values[0] - 5,
            values[-1] + 2.5,
        ):
            expected = np.sum(np.abs(values[:, None] - center) * p, axis=0)
            np.testing.assert_allclose(
                found.mean_abs_error(center), expected, rtol=1e-12, atol=1e-13
            )
        np.testing.assert_allclose(
            found.mean_abs_error(found.value),
            np.sum(np.abs(values[:, None] - found.value) * p, axis=0),
            rtol=1e-11,
            atol=1e-13,
        )
        # The smallest value with cdf >= p, where rounding leaves no doubt.
        for level in LEVELS[1:-1]:
            expected = values[np.minimum(np.sum(below < level, axis=0), len(values) - 1)]
            clear = np.abs(below - level).min(axis=0) > 1e-13
            np.testing.assert_array_equal(found.quantile(level)[clear], expected[clear])
        # The largest value, up to what has no weight in floats
        assert (found.quantile(1.0) == values[-1]).all() or mechanism
        steps = found.quantile(np.sort(np.random.default_rng(0).random(200))[:, None])
        assert (np.diff(steps, axis=0) >= 0).all()
        assert np.isin(steps, values).all()
        low, high = found.interval(0.9)
        np.testing.assert_array_equal(low, found.quantile((1 - 0.9) / 2))
        np.testing.assert_array_equal(high, found.quantile((1 + 0.9) / 2))
        inside = np.sum(
            np.where((values[:, None] >= low) & (values[:, None] <= high), p, 0), axis=0
        )
        assert (inside >= 0.9 - 1e-12).all()
        assert np.isnan(found.quantile([[-0.01], [1.01], [np.nan]])).all()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_points_broadcast_against_a_batch_of_datasets(mechanism):
    x = np.random.default_rng(1).integers(0, 12, (2, 3, 9)) / 10
    statistic = release.Median(**TENTHS)
    options = {"epsilon": 1.0, "neighbors": "add_remove", "mechanism": mechanism}
    found = exact_distribution(statistic, x, **options)
    assert found.batch_shape == found.value.shape == (2, 3)
    np.testing.assert_allclose(found.value, np.sort(x, axis=-1)[..., 4], rtol=1e-15)
    points = np.linspace(-0.3, 2, 24)
    for method in ("pmf", "log_pmf", "cdf", "mean_abs_error"):
        call = getattr(found, method)
        assert call(0.4).shape == (2, 3)
        assert call(points[:, None, None]).shape == (24, 2, 3)
        assert call(np.zeros((2, 1))).shape == (2, 3)
        for i, j in np.ndindex(2, 3):
            one = getattr(exact_distribution(statistic, x[i, j], **options), method)
            np.testing.assert_array_equal(call(points[:, None, None])[:, i, j], one(points))
            assert one(0.4).shape == ()
    assert found.quantile([[[0.1]], [[0.9]]]).shape == (2, 2, 3)
    assert found.interval(0.5)[0].shape == (2, 3)
    assert found.sample(0, 5).shape == (5, 2, 3)
    assert found.sample(0, (4, 1)).shape == (4, 1, 2, 3)
    assert found.sample(0).shape == (2, 3)
    for call in (found.pmf, found.quantile):
        with pytest.raises(ValueError, match="broadcast"):
            call(np.zeros(4))


def test_no_datasets_at_all():
    found = exact_distribution(
        release.Median(**TENTHS), np.zeros((0, 5)), epsilon=1.0, neighbors="swap"
    )
    assert found.pmf(np.zeros((3, 1))).shape == (3, 0)
    assert (
        found.interval(0.5)[1].shape
        == found.mean_abs_error(0.0).shape
        == found.sample(0).shape
        == (0,)
    )


def test_large_grids_are_not_listed_and_their_sums_are_exact():
    """Two billion values: against sums over pieces that are short, and symmetry."""
    size = 2**31 - 3
    found = exact_distribution(
        release.Median(0, size, 1), [size // 2] * 3, epsilon=1.0, neighbors="swap"
    )
    low, high = found.interval(0.9)
    assert abs((low + high) / 2 - size // 2) <= 1
    np.testing.assert_allclose(found.cdf(high) - found.cdf(low - 1), 0.9, rtol=0, atol=1e-8)
    # One record at the middle of a small and of a large grid: the same shape, as a fraction of the
    # range.
    small = exact_distribution(
        release.Median(0, 2**20, 1), [2**19] * 3, epsilon=1.0, neighbors="add_remove"
    )
    large = exact_distribution(
        release.Median(0, 2**30, 1), [2**29] * 3, epsilon=1.0, neighbors="add_remove"
    )
    np.testing.assert_allclose(
        small.mean_abs_error(2**19) * 2**10, large.mean_abs_error(2**29), rtol=2e-5
    )
    p = small.pmf(np.arange(2**20 + 1))
    np.testing.assert_allclose(p.sum(), 1, rtol=1e-12)
    np.testing.assert_allclose(
        small.mean_abs_error(2**19), p @ np.abs(np.arange(2**20 + 1) - 2**19), rtol=1e-12
    )


def test_probabilities_below_those_of_floats_have_logarithms():
    counts = Counts.of_rows([0, 0], [0, 50], [1, 12_000], groups=1)
    statistic, votes = release.Median(0, 99, 1), np.array([[0, 8000, 7997]])
    for mechanism in MECHANISMS:
        found = GridDistribution.of(
            statistic.profile(counts, "add_remove"), 4.0, statistic.records_grid, mechanism, (1,)
        )
        logs = found.log_pmf(np.array([0.0, 50.0, 99.0])[:, None])[:, 0]
        assert np.isfinite(logs).all()
        assert logs[0] < -10_000
        assert abs(logs[1]) < 1e-12
        assert found.pmf([0.0]) == 0
    for mechanism in ("exponential", "permute_and_flip"):
        found = of_votes(votes, mechanism, 2.0)
        logs = found.log_pmf(np.arange(3)[:, None])[:, 0]
        assert logs[0] - logs[1] == pytest.approx(-8000, abs=1)
        assert logs[1] == pytest.approx(
            -np.exp(-3) * (1 if mechanism == "exponential" else 0.5), rel=0.1
        )


def test_permute_and_flip_among_very_many():
    """In the limit of many candidates of equal cost one wins by chance, and the value as often as 1
    / (1 + accepted).
    """
    n = 10**6
    found = exact_distribution(
        release.Median(0, n, 1),
        [0.0] * 1,
        epsilon=2.0,
        neighbors="swap",
        mechanism="permute_and_flip",
    )
    q = np.exp(-1.0)
    np.testing.assert_allclose(found.pmf(0.0), (1 - (1 - q) ** (n + 1)) / (q * (n + 1)), rtol=1e-9)
    np.testing.assert_allclose(found.pmf([1.0, n]) * n, 1.0, rtol=1e-4)


def test_values_are_recognised_up_to_rounding_and_no_further():
    found = exact_distribution(
        release.Median(**TENTHS), [0.1, 0.3, 0.3], epsilon=1.0, neighbors="swap"
    )
    assert found.pmf(0.1 + 0.2) == found.pmf(0.3) > 0
    assert found.pmf(0.3 + 1e-12) == found.pmf(0.35) == found.pmf(np.nan) == 0
    assert found.cdf(0.1 + 0.2) == found.cdf(0.3) > found.cdf(0.3 - 1e-12) == found.cdf(0.2)


@pytest.mark.parametrize("level", [95, 1.0, -0.5, 1.5, float("nan")])
def test_levels_that_are_no_probabilities_are_refused(level):
    """Of an interval, and of a quantile where it is one of Python's numbers; in arrays they are
    NaN.
    """
    found = exact_distribution(release.Median(**TENTHS), [0.1, 0.3], epsilon=1.0, neighbors="swap")
    counted = exact_distribution(release.Count(), [0.1, 0.3], epsilon=1.0, neighbors="add_remove")
    for one in (found, counted):
        with pytest.raises(ValueError, match="level must be at least 0 and below 1"):
            one.interval(level)
    if level != 1.0:
        with pytest.raises(ValueError, match="between 0 and 1"):
            found.quantile(level)
        assert np.isnan(found.quantile(np.array([level]))).all()


@pytest.mark.parametrize("rate", [Fraction(1, 50), Fraction(1), Fraction(5)])
def test_numbers_with_noise_are_sums_over_all_values(rate):
    counts = np.array([[3, 0], [7, 10**6]])[..., None]
    asked = {"epsilon": rate, "neighbors": "add_remove", "counts": counts}
    found = exact_distribution(release.Count(), [0.0], **asked)
    lam, z = float(rate), np.arange(-4000, 4001)
    p = np.tanh(lam / 2) * np.exp(-lam * np.abs(z))
    for center in (3, 3.0, 2.25, -7.5, np.array([4, 9.5])):
        away = np.abs(z[:, None, None] + found.value - center)
        np.testing.assert_allclose(
            found.mean_abs_error(center), np.einsum("z,zij->ij", p, away), rtol=1e-10
        )
    for level in (0.0, 0.5, 0.9, 0.999):
        low, high = found.interval(level)
        below = np.cumsum(p)
        k = [z[np.argmax(below >= q - 1e-15)] for q in ((1 - level) / 2, (1 + level) / 2)]
        if np.abs(below - (1 - level) / 2).min() > 1e-12:
            np.testing.assert_array_equal(low - found.value, np.full((2, 2), k[0]))
            np.testing.assert_array_equal(high - found.value, np.full((2, 2), k[1]))
    drawn = found.sample(3, 5000)
    assert drawn.shape == (5000, 2, 2)
    exactly = found.positions(3000)
    for noise in ((drawn - found.value).ravel(), (exactly - found.value).ravel()):
        counts = [np.sum(noise == value) for value in range(-30, 31)]
        assert_counts_follow(
            [*counts, noise.size - sum(counts)], [*p[3970:4031], 1 - p[3970:4031].sum()]
        )
        wrong = np.tanh(0.6 * lam) * np.exp(-1.2 * lam * np.abs(np.arange(-30, 31)))
        assert_counts_rejected([*counts, noise.size - sum(counts)], [*wrong, 1 - wrong.sum()])
