"""Distributions on a grid: closed forms against plain sums, golden numbers, and the same probabilities as an exact release."""

from dataclasses import replace
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import release
from tests.support import statistics
from tests.support.distributions import of_one_size

ROWS = 6
GRID = {"lower": 0, "upper": 4, "resolution": 1, "definition": "lower"}
GOLDEN = {  # BEYOND the papers: exact rational arithmetic over all neighbours, apart from this library
    ("inverse_sensitivity", "swap", (1, 2, 2, 2, 4)): [0.074989389501765, 0.123636601548377, 0.554100805853104, 0.123636601548377],
    ("piecewise_laplace", "swap", (1, 2, 2, 2, 4)): [0.085901376914521, 0.141627427301399, 0.489216341181283, 0.159239223019516],
    ("inverse_sensitivity", "swap", (0, 2, 2, 4)): [0.205685873743319, 0.205685873743319, 0.339118675123152, 0.124754788695105],
    ("piecewise_laplace", "swap", (0, 2, 2, 4)): [0.195290906253838, 0.250758487277912, 0.283407973545018, 0.152092710717214],
    ("inverse_sensitivity", "add_remove", (1, 2, 2, 2, 4)): [
        0.024918282778782,
        0.067734915273966,
        0.825180196253856,
        0.041083302846698,
    ],
    ("piecewise_laplace", "add_remove", (1, 2, 2, 2, 4)): [
        0.030732011006322,
        0.083538267070489,
        0.784392681448162,
        0.056969302824373,
    ],
    ("inverse_sensitivity", "add_remove", (0, 2, 2, 4)): [
        0.129958731517834,
        0.129958731517834,
        0.582434626638475,
        0.078823955162929,
    ],
    ("piecewise_laplace", "add_remove", (0, 2, 2, 4)): [0.131334377734440, 0.168636679095890, 0.518087300175674, 0.102283316223778],
}


def of_size(distribution):
    """One program for all numbers of levels; one distribution becomes as many equal rows as other tests have."""
    return replace(distribution, line=of_one_size(distribution.line, batch=distribution.batch_shape or (ROWS,)))


def probabilities(distribution, values):
    """Of values ``(values, rows)``, by one program for all numbers of values."""
    values = np.asarray(values)
    padded = np.pad(values, (0, -values.size % 64), mode="edge")
    return np.asarray(distribution.prob(padded[:, None]))[: values.size]


def of_records(mechanism, x, epsilon, **options):
    return getattr(dpjax, mechanism)(dpjax.median(jnp.asarray(x, float), **options), epsilon)


@pytest.mark.parametrize("neighbors", ["swap", pytest.param("add_remove", marks=pytest.mark.slow)])
def test_golden_numbers_of_single_values(neighbors, x64):
    for (name, relation, x), expected in GOLDEN.items():
        if relation == neighbors:
            distribution = of_records(name, x, 1.0, neighbors=neighbors, **GRID)
            prob = probabilities(of_size(distribution), np.arange(5.0))
            np.testing.assert_allclose(prob[:4, 0], expected, rtol=0, atol=2e-15)
            np.testing.assert_allclose(prob[4, 0], 1 - np.sum(expected), rtol=1e-13)


@pytest.mark.parametrize("mechanism", ["piecewise_laplace", pytest.param("inverse_sensitivity", marks=pytest.mark.slow)])
def test_closed_forms_are_sums_over_the_values(mechanism, x64):
    x = np.array([[0.1, 0.3, 0.3, 0.3, 0.7, 0.9], [-0.4, 0.0, 0.6, 0.6, 1.4, 1.5], [0.2] * 6])
    options = {"lower": -0.5, "upper": 1.5, "neighbors": "add_remove", "resolution": 0.1, "definition": "linear"}
    distribution = of_records(mechanism, x, np.array([0.2, 1.0, 4.0]), **options)
    values, between = np.arange(-10, 31) / 20, np.array([-0.6, 0.324, 1.51])
    centers = np.array([-0.7, -0.5, 0.0, 0.3, 0.325, 0.35, 0.38, 1.5, 2.0])
    levels = np.array([0.0, 0.01, 0.3, 0.6, 0.999, 1.0])
    points = np.concatenate([values, between, [0.301, np.nan]])
    cdf, survival, log_prob = (np.asarray(getattr(distribution, name)(points[:, None])) for name in ("cdf", "survival", "log_prob"))
    prob = np.asarray(distribution.prob(points[:, None]))
    mass = prob[: values.size].T
    np.testing.assert_allclose(mass.sum(-1), 1, rtol=1e-13)
    mean = mass @ values
    np.testing.assert_allclose(distribution.mean(), mean, rtol=1e-12)
    variance = np.sum(mass * (values - mean[:, None]) ** 2, -1)
    np.testing.assert_allclose(distribution.variance(), variance, rtol=1e-9, atol=1e-14)  # a difference of numbers below 1
    np.testing.assert_allclose(distribution.entropy(), -np.sum(mass * np.log(mass), -1), rtol=1e-11, atol=1e-14)
    for center, error in zip(centers, np.asarray(distribution.mean_abs_error(centers[:, None])), strict=True):
        np.testing.assert_allclose(error, mass @ np.abs(values - center), rtol=1e-11)
    np.testing.assert_allclose(cdf[: values.size].T, np.cumsum(mass, -1), rtol=1e-12)
    np.testing.assert_allclose(survival[: values.size - 1].T, np.cumsum(mass[:, ::-1], -1)[:, -2::-1], rtol=1e-11)
    expected = [[np.sum(row[values <= y]) for row in mass] for y in between]
    np.testing.assert_allclose(cdf[values.size : -2], expected, rtol=1e-12)
    for p, quantile in zip(levels, np.asarray(distribution.quantile(levels[:, None])), strict=True):
        smallest = [values[np.argmax(np.cumsum(row) >= min(p, 1 - 1e-12))] if p > 0 else values[0] for row in mass]
        if p < 1:
            np.testing.assert_allclose(quantile, smallest, atol=1e-12)
        assert np.all(np.abs(quantile * 20 % 1) < 1e-9)
    assert np.all(np.isneginf(log_prob[-2]))
    assert np.all(np.isnan(log_prob[-1]))


@pytest.mark.parametrize("shape", [(40, 1000), pytest.param((1000, 40), marks=pytest.mark.slow)])
def test_draws_have_the_probabilities(shape):
    """Few and many draws a row, in float32."""
    x = np.array([1.0, 3, 3, 3, 4, 5, 5, 9], np.float32)
    options = {"lower": 0, "upper": 10, "neighbors": "swap", "resolution": 1, "definition": "linear"}
    profile = dpjax.median(np.broadcast_to(x, (shape[0], 8)), **options)
    distribution = dpjax.piecewise_laplace(profile, 0.8)
    draws = np.asarray(distribution.sample(jax.random.key(0), (shape[1],)))
    values = np.arange(21) / 2
    counts = np.bincount((draws.ravel() * 2).astype(int), minlength=21)
    assert set(np.unique(draws)) <= set(values)
    first = replace(distribution, line=jax.tree.map(np.asarray, distribution.line))
    first = jax.tree.map(lambda leaf: leaf[:1] if leaf.shape[:1] == shape[:1] else leaf, first)
    mass = probabilities(first, np.float32(values))[:, 0].astype(np.float64)
    statistics.assert_counts_follow(counts, mass / mass.sum())
    statistics.assert_counts_rejected(counts, np.roll(mass, 1) / mass.sum())


@pytest.mark.parametrize("resolution", [1, pytest.param(0.1, marks=pytest.mark.slow), pytest.param("5/2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("neighbors", ["swap", "add_remove"])
def test_simulation_and_release_are_one_distribution(resolution, neighbors, x64):
    """Probability by probability, with records that are not on the grid, ties and clamping."""
    step = float(Fraction(str(resolution)))
    bounds = {"lower": -4 * Fraction(str(resolution)), "upper": 6 * Fraction(str(resolution))}
    options = {name: float(bound) for name, bound in bounds.items()} | {"neighbors": neighbors, "resolution": resolution}
    generator = np.random.default_rng(3)
    for q, definition in ((0.5, "linear"), *([] if resolution == 1 else [(0.5, "lower"), (0.9, "lower"), (0.25, "linear")])):
        rows = np.round((generator.integers(-5, 8, (ROWS, 9)) + generator.uniform(-0.4, 0.4, (ROWS, 9))) * step, 7)
        rows[0], rows[1, :6] = rows[0, 0], rows[1, 0]
        profile = dpjax.quantile(jnp.asarray(rows), q, definition=definition, **options)
        distribution = of_size(dpjax.piecewise_laplace(profile, 1.3))
        at, exact = float(np.asarray(profile.value)[2]), {}
        for i, row in enumerate(rows):
            exact[i] = release.exact_distribution(release.quantile, row.tolist(), q, definition=definition, epsilon=1.3, **options)
            simulated = probabilities(distribution, exact[i].values)[:, i]
            np.testing.assert_allclose(simulated, exact[i].pmf(exact[i].values), rtol=1e-12)
            np.testing.assert_allclose(exact[i].pmf(exact[i].values).sum(), 1, rtol=1e-12)
        error = np.asarray(distribution.mean_abs_error(at))[2]
        np.testing.assert_allclose(error, exact[2].mean_abs_error(at), rtol=1e-12)


PERSONS = [0, 0, 1, 2, 2, 2, 3, 4, 4]
ALIKE = {
    "maximum": (lambda x, **kw: dpjax.maximum(x, **kw).shift(2), release.maximum, {"tau": 2, "lower": -2, "upper": 6}),
    "nonnegative_sum": (lambda x, **kw: dpjax.nonnegative_sum(x, **kw).shift(1), release.nonnegative_sum, {"tau": 1, "upper": 20}),
    "user_sum": (
        *(lambda x, **kw: dpjax.user_sum(x, jnp.array(PERSONS), **kw).shift(1), release.user_sum),
        {"tau": 1, "upper": 20, "person_ids": PERSONS},
    ),
    "distinct_count": (
        *(lambda x, **kw: dpjax.distinct_count(jnp.rint(x).astype(int), **kw).shift(1), release.distinct_count),
        {"tau": 1, "upper": 9},
    ),
    "sum": (lambda x, **kw: dpjax.statistics.sum(x, neighbors="swap", **kw), release.sum, {"lower": -2, "upper": 6}),
    "mean": (lambda x, **kw: dpjax.mean(x, neighbors="swap", **kw), release.mean, {"lower": -2, "upper": 6}),
}


@pytest.mark.parametrize("name", [*(pytest.param(name, marks=pytest.mark.slow) for name in list(ALIKE)[:4]), "sum", "mean"])
def test_every_statistic_is_simulated_as_it_is_released(name, x64):
    simulate, exactly, given = ALIKE[name]
    rows = np.random.default_rng(5).integers(-4, 9, (ROWS, 9)) / 2 + 0.1
    rows[0] = 3.1
    bounds = {key: value for key, value in given.items() if key in ("lower", "upper")}
    profile = simulate(jnp.asarray(rows), resolution=1, **bounds)
    distribution = of_size(dpjax.piecewise_laplace(profile, 1.3))
    options = {**given, "epsilon": 1.3, "neighbors": "swap" if name in ("sum", "mean") else "add_remove"}
    for i, row in enumerate(rows):
        records = np.rint(row).astype(int) if name == "distinct_count" else row
        exact = release.exact_distribution(exactly, records, **options, **({} if name == "distinct_count" else {"resolution": 1}))
        simulated = probabilities(distribution, exact.values)[:, i]
        np.testing.assert_allclose(simulated, exact.pmf(exact.values), rtol=1e-12)
        assert exact.pmf(exact.values).sum() == pytest.approx(1)
    assert profile.resolution == exact.resolution == (Fraction(1, 9) if name == "mean" else 1)


def test_a_resolution_that_has_no_grid_is_refused():
    x = jnp.arange(4.0)
    bounds = {"lower": 0, "upper": 3, "resolution": 1}
    with pytest.raises(ValueError, match="needs max_count"):
        dpjax.statistics.sum(x, neighbors="add_remove", **bounds)
    for options in ({"neighbors": "add_remove"}, {"neighbors": "swap", "count": 3}, {"neighbors": "swap", "mask": x > 1}):
        with pytest.raises(ValueError, match="same for all rows"):
            dpjax.mean(x, **bounds, **options)
    with pytest.raises(ValueError, match="cannot count so far"):
        dpjax.statistics.sum(x, neighbors="swap", lower=0, upper=2**20, resolution=0.5)
    with pytest.raises(ValueError, match="multiples of the resolution 2"):
        dpjax.distinct_count(jnp.arange(4), upper=4, resolution=2)


def test_candidates_on_a_resolution():
    x = jnp.asarray([0.1 + 0.2, 0.3, 0.31, 0.7, 0.7004], jnp.float32)
    options = {"candidates": [0.3, 0.7, 0.9], "neighbors": "swap"}
    assert dpjax.candidate_counts(x, **options, resolution=0.01).scores.tolist() == [0.0, 0.0, -2.0]
    assert dpjax.mode(x, **options, resolution=0.1).scores.tolist() == [0.0, -1.0, -2.0]
    with pytest.raises(ValueError, match="multiples of the resolution"):
        dpjax.mode(x, **options, resolution=0.5)


def test_all_records_equal_is_nearly_certain():
    """4001 changes would move it: far beyond what exponentials of float32 hold."""
    x = np.stack([np.full(4001, 7.0), np.arange(4001) % 9])
    distribution = of_records("piecewise_laplace", x, 1.0, lower=0, upper=10, neighbors="add_remove", resolution=1)
    assert distribution.mean_abs_error(jnp.array([7.0, 4.0])).max() < 1e-30
    np.testing.assert_array_equal(distribution.sample(jax.random.key(0), (50,)), np.broadcast_to([7.0, 4.0], (50, 2)))


def test_without_ties_the_depth_is_one_and_nothing_changes(x64):
    x = np.random.default_rng(0).normal(size=(4, 11))
    profile = dpjax.median(jnp.asarray(x), lower=-9, upper=9, neighbors="swap")
    np.testing.assert_array_equal(profile.depth, 1.0)
    flat = dpjax.piecewise_laplace(profile, 1.0, rho=0.1).upper.cost_near[..., 0]
    np.testing.assert_array_equal(flat, np.ones_like(flat))


def test_decimals_are_exact():
    prices = jnp.asarray([0.29, 0.29, 0.29, 0.57, 1.13], jnp.float32)
    profile = dpjax.median(prices, lower=0, upper=5, neighbors="swap", resolution="0.01", definition="lower")
    assert profile.value == np.float32(0.29)
    assert profile.resolution == Fraction(1, 100)
    draws = dpjax.piecewise_laplace(profile, 0.5).sample(jax.random.key(0), (500,))
    assert set(np.asarray(draws)) <= {np.float32(f"{cents / 100}") for cents in range(501)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resolution": 0}, "positive"),
        ({"resolution": 0.3}, "multiples"),
        ({"resolution": 1e-7}, "cannot count"),
        ({"resolution": "cents"}, "number or a Fraction"),
    ],
)
def test_a_bad_resolution_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        dpjax.median(jnp.zeros(3), lower=0, upper=4, neighbors="swap", **options)


def test_a_step_becomes_a_multiple_that_is_no_shorter(x64):
    """A shorter one is not private, and 0 would leave values out of reach."""
    profile = dpjax.median(jnp.arange(9.0), lower=0, upper=8, neighbors="swap", resolution=0.1, definition="linear")
    for step, multiple in ((0.01, 0.05), (0.3, 0.3), (0.1 + 0.2, 0.3), (0.33, 0.35), (8.0, 8.0)):
        np.testing.assert_allclose(profile.truncate(1, step=step).step, multiple, rtol=1e-12)
    mass = dpjax.piecewise_laplace(profile.truncate(1, step=8.01), 1.0).prob(jnp.arange(161) / 20)
    np.testing.assert_allclose(mass.sum(), 1, rtol=1e-12)
    assert (mass > 0).all()


def test_bounds_that_a_float_cannot_count_to_have_no_distribution():
    """Given as JAX arrays they cannot be refused."""
    for lower, upper in ((-1e9, 4.0), (0.0, 1e9)):
        bounds = {"lower": jnp.asarray(lower), "upper": jnp.asarray(upper), "resolution": 1}
        assert jnp.isnan(dpjax.maximum(jnp.zeros(3), **bounds).values).all()
        assert jnp.isnan(dpjax.median(jnp.zeros(3), neighbors="swap", **bounds).value)


def test_what_does_not_go_with_a_resolution_is_refused():
    profile = dpjax.median(jnp.zeros(3), lower=0, upper=4, neighbors="swap", resolution=1)
    for options in ({"rho": 0.5}, {"support": "extended"}):
        with pytest.raises(ValueError, match="resolution"):
            dpjax.piecewise_laplace(profile, 1.0, **options)
    with pytest.raises(TypeError, match="static"):
        dpjax.median(jnp.zeros(3), lower=0, upper=4, neighbors="swap", resolution=jnp.asarray(1.0))


@pytest.mark.slow
def test_sums_of_many_integers_are_exact_in_float32():
    n = 2**17
    x = np.random.default_rng(0).integers(0, 30, n)
    profile = dpjax.statistics.sum(x.astype(np.float32), lower=0, upper=30, neighbors="swap", resolution=1)
    ordered = np.sort(x)
    np.testing.assert_array_equal(profile.upper, np.cumsum(np.append(ordered.sum(), 30 - ordered)))
    np.testing.assert_array_equal(profile.lower, np.cumsum(np.append(ordered.sum(), -ordered[::-1])))


def test_a_resolution_with_a_long_denominator():
    profile = dpjax.mean(np.full(3000, 2e-6), lower=0, upper=1e-3, neighbors="swap", resolution=1e-6)
    assert profile.resolution == Fraction(1, 3_000_000_000)
    assert dpjax.piecewise_laplace(profile, 1.0).prob(profile.value) > 0
