"""Distributions on a grid: golden numbers, and every closed form against sums over probabilities
from the definition.
"""

from dataclasses import replace
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from tests.distributions.laws import Law, assert_known
from tests.support import oracle, statistics
from tests.support.distributions import of_one_size
from tests.support.golden import golden

# BEYOND the papers: computed from the definition, apart from this library
GOLDEN = golden("pointwise")
ROWS, TOP = 12, 12  # rows of a batch, and the largest value of their range
GRID = {"lower": 0, "upper": TOP, "resolution": 1}
LOWER = {"definition": "lower", **GRID}


def of_size(distribution):
    """One program for all numbers of levels; one distribution becomes as many equal rows as other
    tests have.
    """
    return of_one_size(distribution, pieces=48, batch=distribution.batch_shape or (ROWS,))


@jax.jit
def probabilities(distribution, points):
    return distribution.prob(points)


def test_golden_numbers_of_single_values(x64):
    for case in GOLDEN["cases"]:
        expected = case["probabilities"]
        bounds = {"lower": 0, "upper": len(expected) - 1, "resolution": 1}
        q = Fraction(case["q"])

        @jax.jit
        def distribution(x, case=case, bounds=bounds, q=q):
            options = bounds | {"definition": "lower", "neighbors": case["neighbors"]}
            return getattr(dpjax, case["mechanism"])(dpjax.quantile(x, q, **options), 1.0)

        made = of_size(distribution(np.array(case["records"], float)))
        found = probabilities(made, np.arange(TOP + 1.0)[:, None])[:, 0]
        wanted = np.zeros(TOP + 1)
        wanted[: len(expected)] = expected
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)
        assert np.abs(np.roll(wanted, 1) - found).max() > 0.01  # the control


def tied_rows(seed, sizes, most=TOP):
    """Records with many ties, and some rows of one value, as one padded array with counts."""
    generator = np.random.default_rng(seed)
    count = generator.integers(*sizes, ROWS, endpoint=True)
    x = np.minimum(
        generator.geometric(generator.uniform(0.1, 0.6, (ROWS, 1)), (ROWS, sizes[1])) - 1, most
    ).astype(float)
    x[0], x[1], x[2, :5] = 3.0, float(most), 0.0
    return x, count, np.exp(generator.uniform(np.log(0.05), np.log(8.0), ROWS))


def reached(row, count, q, neighbors):
    """(level, value) of both sides by editing the dataset."""
    sides = oracle.extremes(
        list(row[:count]),
        12,
        lambda data: oracle.quantile(data, q, "lower", 0, TOP),
        neighbors,
        0,
        TOP,
    )
    return [[(level, int(value)) for level, value in enumerate(side)] for side in sides]


def law_of(all_sides, epsilon, mechanism, *ends):
    """Probabilities of 0, 1, ..., TOP for each row."""
    mass = np.zeros((TOP + 1, ROWS))
    for row, sides in enumerate(all_sides):
        values, costs = oracle.costs_on_grid(*sides, mechanism, *ends)
        mass[values, row] = oracle.probabilities(costs, epsilon[row])
    with np.errstate(divide="ignore"):
        return Law.of_values(np.tile(np.arange(TOP + 1.0)[:, None], ROWS), np.log(mass))


@pytest.mark.parametrize("mechanism", ["piecewise_laplace", "inverse_sensitivity"])
@pytest.mark.parametrize(("q", "neighbors"), [("1/2", "swap"), ("9/10", "add_remove")])
def test_quantiles_have_the_probabilities_of_the_definition(q, neighbors, mechanism, x64):
    x, count, epsilon = tied_rows(1, (1, 9))

    @jax.jit
    def distribution(x, count, epsilon):
        options = LOWER | {"neighbors": neighbors, "num_records": count}
        return getattr(dpjax, mechanism)(dpjax.quantile(x, Fraction(q), **options), epsilon)

    sides = [reached(row, n, q, neighbors) for row, n in zip(x, count, strict=True)]
    assert_known(of_size(distribution(x, count, epsilon)), law_of(sides, epsilon, mechanism))


def with_steps(side, k, step, sign):
    """The first k levels, no further out than steps from an inner one; steps beyond all bounds."""
    values = [value for _, value in side] + [side[-1][1]] * k
    nearest = [
        sign * min(sign * values[j] + (level - j) * step for j in range(min(level, k) + 1))
        for level in range(k + TOP)
    ]
    return list(enumerate(nearest))


def jumping(side, k, bound):
    """The first k levels, and the bound."""
    return [*side[: k + 1], (k + 1, bound)]


@pytest.mark.parametrize("name", ["truncated", "steps", "some steps"])
def test_truncated_profiles_have_the_probabilities_of_the_definition(name, x64):
    x, count, epsilon = tied_rows(3, (1, 9))
    k, step = 2, 3
    change = {
        "truncated": {},
        "steps": {"step": step},
        "some steps": {"step": step, "num_steps": 2},
    }

    @jax.jit
    def distribution(x, count, epsilon):
        profile = dpjax.median(x, neighbors="swap", num_records=count, **LOWER)
        return dpjax.piecewise_laplace(profile.truncate(k, **change[name]), epsilon)

    every = []
    for row, n in zip(x, count, strict=True):
        sides = reached(row, n, "1/2", "swap")
        if name != "truncated":
            sides = [with_steps(side, k, step, s) for side, s in zip(sides, (1, -1), strict=True)]
        if name != "steps":
            levels = k if name == "truncated" else k + 2
            sides = [[(level, min(max(value, 0), TOP)) for level, value in side] for side in sides]
            sides = [jumping(side, levels, end) for side, end in zip(sides, (TOP, 0), strict=True)]
        every.append(sides)
    law = law_of(every, epsilon, "piecewise_laplace", 0, TOP)
    assert_known(of_size(distribution(x, count, epsilon)), law)


def halves(x, neighbors, definition):
    """A median between records, which are multiples of 1 here: a multiple of 1/2."""
    given = {"lower": 0, "upper": TOP // 2, "resolution": 1}
    return dpjax.median(jnp.floor(x / 2), neighbors=neighbors, definition=definition, **given)


OTHERS = {
    "sum": lambda x: dpjax.statistics.sum(
        jnp.minimum(x[:, :4], 3), lower=0, upper=3, resolution=1, neighbors="swap"
    ),
    "maximum": lambda x: dpjax.maximum(x, **GRID).shift(2),
    "mean": lambda x: dpjax.mean(
        jnp.minimum(x[:, :3], 4) / 4, lower=0, upper=1, neighbors="swap", resolution="1/4"
    ),
    "linear median": lambda x: halves(x, "add_remove", "linear"),
    "continuous median": lambda x: halves(x, "swap", "continuous"),
    "truncated continuous median": lambda x: halves(x, "swap", "continuous").truncate(2),
}


@pytest.mark.parametrize("name", OTHERS)
def test_every_statistic_has_the_probabilities_of_its_profile(name, x64):
    """Other levels than integers among them, and other resolutions."""
    x, _, epsilon = tied_rows(4, (9, 9))

    @jax.jit
    def asked(x, epsilon):
        profile = OTHERS[name](x)
        sides = [
            (jnp.broadcast_to(levels, values.shape), values)
            for levels, values in (
                (profile.upper_levels, profile.upper),
                (profile.lower_levels, profile.lower),
            )
        ]
        return sides, dpjax.piecewise_laplace(profile, epsilon)

    sides, distribution = jax.device_get(asked(x, epsilon))
    unit = float(distribution.resolution)
    every = [
        [
            [
                (Fraction(float(level)), round(float(value) / unit))
                for level, value in zip(levels[row], values[row], strict=True)
            ]
            for levels, values in sides
        ]
        for row in range(ROWS)
    ]
    law = law_of(every, epsilon, "piecewise_laplace")
    assert_known(of_size(replace(distribution, resolution=Fraction(1))), law)
    found = probabilities(of_size(distribution), np.arange(TOP + 1)[:, None] * unit)
    np.testing.assert_allclose(found, law.mass, rtol=1e-10)


TIED = np.array([1, 3, 3, 3, 4, 5, 5, 9], np.float32)


@pytest.mark.parametrize(("rows", "draws"), [(2048, 32), (1, 65_536)])
def test_draws_have_the_probabilities(rows, draws):
    """In float32, few from each of many rows, and many; a control integrates over cells."""
    sides = reached(TIED, len(TIED), "1/2", "swap")
    _, costs = oracle.costs_on_grid(*sides, "piecewise_laplace")
    values = [[value for _, value in side] for side in sides]
    integrated = oracle.mechanism(*values, 0.8, "piecewise_laplace", rho=0.5, support="extended")

    @jax.jit
    def sample(epsilon):
        profile = dpjax.median(TIED, neighbors="swap", **LOWER)
        return dpjax.piecewise_laplace(profile, epsilon).sample(jax.random.key(0), draws)

    points = np.asarray(sample(np.full(rows, 0.8, np.float32)))
    counts = np.bincount(points.astype(int).ravel(), minlength=TOP + 1)
    statistics.assert_counts_follow(counts, oracle.probabilities(costs, 0.8))
    control = np.diff([integrated.cdf(y - 0.5) for y in range(TOP + 2)])
    for other in (control, oracle.probabilities(costs, 0.88)):
        statistics.assert_counts_rejected(counts, other)


def test_a_resolution_that_has_no_grid_is_refused():
    """Where the number of records, which the grid would tell, is not public."""
    x = jnp.arange(4.0)
    bounds = {"lower": 0, "upper": 3, "resolution": 1}
    with pytest.raises(ValueError, match="max_count"):
        dpjax.statistics.sum(x, neighbors="add_remove", **bounds)
    for options in (
        {"neighbors": "add_remove"},
        {"neighbors": "swap", "num_records": 3},
    ):
        with pytest.raises(ValueError, match="same for all rows"):
            dpjax.mean(x, **bounds, **options)
    with pytest.raises(ValueError, match="coarser resolution"):
        dpjax.statistics.sum(x, neighbors="swap", lower=0, upper=2**20, resolution=0.5)
    profile = dpjax.median(x, neighbors="swap", **bounds)
    for options in ({"rho": 0.5}, {"support": "extended"}):
        with pytest.raises(ValueError, match="resolution"):
            dpjax.piecewise_laplace(profile, 1.0, **options)


def test_decimals_are_exact():
    prices = np.float32([0.29, 0.29, 0.29, 0.57, 1.13])
    options = {"lower": 0, "upper": 5, "neighbors": "swap", "resolution": "0.01"}
    long = {"lower": 0, "upper": 1e-3, "neighbors": "swap", "resolution": 1e-6}

    @jax.jit
    def known(prices, small):
        profile = dpjax.median(prices, definition="lower", **options)
        draws = dpjax.piecewise_laplace(profile, 0.5).sample(jax.random.key(0), (500,))
        mean = dpjax.mean(small, **long)
        return profile, draws, mean, dpjax.piecewise_laplace(mean, 1.0).prob(mean.value)

    profile, draws, mean, mass = known(prices, np.full(3000, 2e-6, np.float32))
    assert profile.value == np.float32(0.29)
    assert profile.resolution == Fraction(1, 100)
    assert set(np.asarray(draws)) <= {np.float32(f"{cents / 100}") for cents in range(501)}
    assert mean.resolution == Fraction(1, 3_000_000_000)
    assert mass > 0


def test_a_step_becomes_a_multiple_that_is_no_shorter(x64):
    """A shorter one is not private, and 0 would leave values out of reach."""
    options = {"neighbors": "swap", "resolution": 0.1, "definition": "linear"}

    @jax.jit
    def known(x):
        profile = dpjax.median(x, lower=0, upper=8, **options)
        steps = [profile.truncate(1, step=step).step for step in (0.01, 0.3, 0.1 + 0.2, 0.33, 8.0)]
        far = dpjax.piecewise_laplace(profile.truncate(1, step=8.01), 1.0)
        return jnp.stack(steps), far.prob(np.arange(161) / 20)

    steps, mass = known(np.arange(9.0))
    np.testing.assert_allclose(steps, [0.05, 0.3, 0.3, 0.35, 8.0], rtol=1e-12)
    np.testing.assert_allclose(mass.sum(), 1, rtol=1e-12)
    assert (mass > 0).all()


def test_bounds_that_a_float_cannot_count_to_have_no_distribution():
    """Given as JAX arrays they cannot be refused."""

    @jax.jit
    def known(lower, upper):
        bounds = {"lower": lower, "upper": upper, "resolution": 1}
        median = dpjax.median(jnp.zeros(3), neighbors="swap", **bounds)
        return dpjax.maximum(jnp.zeros(3), **bounds).values, median.value

    for bounds in ((-1e9, 4.0), (0.0, 1e9)):
        assert all(np.isnan(values).all() for values in known(*bounds))


def test_sums_of_many_integers_are_exact_in_float32():
    x = np.random.default_rng(0).integers(0, 30, 2**17)
    profile = jax.jit(
        lambda x: dpjax.statistics.sum(x, lower=0, upper=30, neighbors="swap", resolution=1)
    )(x.astype(np.float32))
    ordered = np.sort(x)
    for found, changes in ((profile.upper, 30 - ordered), (profile.lower, -ordered[::-1])):
        np.testing.assert_array_equal(found, np.cumsum(np.append(ordered.sum(), changes)))
