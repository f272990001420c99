"""The three mechanisms against the independent oracle and the golden table, and the theorems that
relate them.
"""

import json
import pathlib
from dataclasses import replace
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import inverse_sensitivity, laplace, median, order_statistic, piecewise_laplace, quantile
from tests.support import oracle
from tests.support.audit import padded
from tests.support.distributions import of_one_size
from tests.support.statistics import assert_follows

MECHANISMS = {"piecewise_laplace": piecewise_laplace, "inverse_sensitivity": inverse_sensitivity}
GOLDEN = json.loads(
    (pathlib.Path(__file__).parent.parent / "golden" / "A3_golden_1d.json").read_text()
)
LOW, HIGH = -2.0, 3.0


def random_datasets(neighbors, definition, number, rng):
    """Normal, heavily tied, at the bounds, constant; sizes 0 (add/remove) to 33."""
    smallest = 0 if neighbors == "add_remove" and definition == "lower" else 1
    sizes = np.concatenate([[smallest, 1, 2, 3, 33], rng.integers(1, 34, number - 5)])
    kinds = [
        lambda n: np.clip(rng.normal(size=n), LOW, HIGH),
        lambda n: rng.choice([-2.0, 0.0, 0.5, 3.0], n),
        lambda n: rng.choice([-2.0, 3.0], n),
        lambda n: np.full(n, 0.25),
        lambda n: rng.uniform(LOW, HIGH, n),
    ]
    return [kinds[i % 5](n) for i, n in enumerate(sizes)]


@jax.jit
def of_oracle(distribution, value, points):
    """What the oracle knows, in one program."""
    return (
        distribution.log_normalizer(),
        distribution.mean_abs_error(value),
        distribution.cdf(points),
        distribution.log_prob(points),
    )


def known_of(distribution, value=0.0, points=(0.0, 0.0)):
    """The same of one distribution, in the program of the test below."""
    distribution = of_one_size(distribution, 64, (10,))
    parts = of_oracle(
        distribution,
        jnp.full(10, value, distribution.dtype),
        np.repeat(np.array(points)[:, None], 10, axis=1),
    )
    return [np.asarray(part)[..., 0] for part in parts]


@pytest.mark.parametrize(
    ("neighbors", "definition", "number"),
    [
        ("add_remove", "linear", 10),
        *(
            pytest.param(neighbors, definition, 40, marks=pytest.mark.slow)
            for neighbors in ("add_remove", "swap")
            for definition in ("linear", "lower")
        ),
    ],
)
def test_exact_agreement_with_the_oracle(neighbors, definition, number, x64):
    """40 random datasets, each with both mechanisms, sharp and smooth, for each of 4 settings: 640
    comparisons in all.
    """
    rng = np.random.default_rng([len(neighbors), len(definition)])
    datasets = random_datasets(neighbors, definition, number, rng)
    x, count = padded(datasets, 33)
    profile = median(
        x, lower=LOW, upper=HIGH, neighbors=neighbors, definition=definition, num_records=count
    )

    def statistic(data):
        return oracle.quantile(data, Fraction(1, 2), definition, LOW, HIGH)

    values = [statistic(data) for data in datasets]
    reached = [
        oracle.extremes(data.tolist(), len(data) + 1, statistic, neighbors, LOW, HIGH)
        for data in datasets
    ]
    for name, mechanism in MECHANISMS.items():
        for rho in (0.0, 0.1):
            epsilon = rng.choice([0.1, 0.5, 1.0, 4.0], len(datasets))
            distribution, points = (
                mechanism(profile, epsilon, rho=rho),
                rng.uniform(LOW - 0.1, HIGH + 0.1, (2, len(datasets))),
            )
            got = [
                np.asarray(part)
                for part in of_oracle(of_one_size(distribution, 64), profile.value, points)
            ]
            for row, (f, extremes) in enumerate(zip(values, reached, strict=True)):
                exact = oracle.mechanism(*extremes, epsilon[row], name, rho=rho)
                np.testing.assert_allclose(
                    got[0][row], exact.log_normalizer, rtol=1e-10, atol=1e-12
                )
                np.testing.assert_allclose(
                    got[1][row], exact.expectation(lambda y, f=f: abs(y - f), [f]), rtol=1e-10
                )
                np.testing.assert_allclose(
                    got[2][:, row], [exact.cdf(y) for y in points[:, row]], rtol=1e-10, atol=1e-12
                )
                np.testing.assert_allclose(
                    got[3][:, row],
                    [exact.log_prob(y) for y in points[:, row]],
                    rtol=1e-10,
                    atol=1e-12,
                )


GOLDEN_PROFILES = {
    "swap_m5": lambda x: order_statistic(x, 5, lower=0, upper=1, neighbors="swap"),
    "ar_duff": lambda x: median(x, lower=0, upper=1, neighbors="add_remove", definition="lower"),
    "ar_mid": lambda x: median(x, lower=0, upper=1, neighbors="add_remove"),
    "ar_q25": lambda x: quantile(
        x, 0.25, lower=0, upper=1, neighbors="add_remove", definition="lower"
    ),
    "swap_m5_trunc3": lambda x: order_statistic(x, 5, lower=0, upper=1, neighbors="swap").truncate(
        3
    ),
    "swap_m5_rho.02_unclipped": lambda x: order_statistic(x, 5, lower=0, upper=1, neighbors="swap"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in GOLDEN if "|" in case])
def test_golden_table(case, x64):
    statistic, mechanism, epsilon = case.split("|")
    options = {"rho": 0.02, "support": "extended"} if "rho" in statistic else {}
    profile = GOLDEN_PROFILES[statistic](np.array(GOLDEN["x"]))
    distribution = MECHANISMS[
        {"PLM": "piecewise_laplace", "INV": "inverse_sensitivity"}[mechanism]
    ](profile, float(epsilon), **options)
    golden = GOLDEN[case]
    close = {"rtol": 0, "atol": 1e-10}
    points = np.concatenate([golden["logpdf_at"], np.arange(1, 10) / 10])
    log_normalizer, error, cdf, log_prob = of_oracle(
        of_one_size(distribution), profile.value, points
    )
    np.testing.assert_allclose(profile.value, golden["f"], **close)
    np.testing.assert_allclose(log_normalizer, golden["logZ_with_cost_from_1"], **close)
    np.testing.assert_allclose(error, golden["mean_abs_err"], **close)
    np.testing.assert_allclose(log_prob[:-9], golden["logpdf"], **close)
    np.testing.assert_allclose(cdf[-9:], golden["cdf"], **close)


def test_the_golden_table_is_sensitive_to_the_mechanism(x64):
    profile = GOLDEN_PROFILES["swap_m5"](np.array(GOLDEN["x"]))
    right, wrong = (
        known_of(mechanism(profile, 1.0), profile.value)[1] for mechanism in MECHANISMS.values()
    )
    golden = GOLDEN["swap_m5|PLM|1.0"]["mean_abs_err"]
    assert right == pytest.approx(golden, abs=1e-10)
    assert abs(wrong - golden) > 1e-3


@pytest.mark.slow
def test_piecewise_laplace_dominates_inverse_sensitivity(x64):
    """Theorem 2 under swap, exactly: P(|error| > alpha) is never larger, on 500 random datasets
    with ties.
    """
    rng = np.random.default_rng(0)
    x = np.where(
        rng.random((500, 11)) < 0.5,
        rng.normal(size=(500, 11)),
        rng.integers(-2, 3, (500, 11)).astype(float),
    )
    profile = median(x, lower=-3.0, upper=3.0, neighbors="swap")
    f, alpha = profile.value[None], np.linspace(0.01, 5.9, 60)[:, None]
    for epsilon in (0.1, 1.0, 8.0):
        distributions = [
            mechanism(profile, epsilon) for mechanism in (piecewise_laplace, inverse_sensitivity)
        ]
        plm, inv = (
            distribution.cdf(f - alpha) + distribution.survival(f + alpha)
            for distribution in distributions
        )
        assert (plm <= inv + 1e-13).all()
        assert (plm < inv - 1e-6).any()


def test_the_theorem_does_not_extend_to_rho_and_the_docstring_is_right_to_say_so(x64):
    x = np.array([0.0, 0.205, 0.48, 0.66, 0.735, 0.755])
    profile = order_statistic(x, 1, lower=0, upper=1, neighbors="swap")
    alpha, within = 0.04708333333333334, []
    for mechanism in (piecewise_laplace, inverse_sensitivity):
        below, above = known_of(
            mechanism(profile, 4.0, rho=0.02, support="extended"), points=(-alpha, alpha)
        )[2]
        within.append(above - below)
    np.testing.assert_allclose(within, [0.4362981028565655, 0.5960788815307859], atol=1e-9)


@pytest.mark.parametrize(
    ("n", "epsilon"),
    [
        (57, [2.0, 4.0, 8.0]),
        pytest.param(8001, [0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0], marks=pytest.mark.slow),
    ],
)
def test_even_spacing_ratios(n, epsilon, x64):
    """INV/PLM under swap is (eps/4) coth(eps/4); the midpoint median under add/remove has Laplace
    noise of scale spacing/eps.
    """
    epsilon = np.array(epsilon)
    x = np.arange(1.0, n + 1)
    swap = median(x, lower=0.0, upper=n + 1.0, neighbors="swap")
    add_remove = median(x, lower=0.0, upper=n + 1.0, neighbors="add_remove")
    epsilon = np.resize(epsilon, 10)  # again from the first: one shape for the tests of this file

    def error(mechanism, profile):
        distribution = of_one_size(mechanism(profile, epsilon), max(64, n + 7), (10,))
        return np.asarray(
            of_oracle(
                distribution, jnp.full(10, profile.value, distribution.dtype), np.zeros((2, 10))
            )[1]
        )

    plm, inv = (error(mechanism, swap) for mechanism in (piecewise_laplace, inverse_sensitivity))
    np.testing.assert_allclose(inv / plm, epsilon / 4 / np.tanh(epsilon / 4), rtol=1e-8)
    np.testing.assert_allclose(error(piecewise_laplace, add_remove), 1 / epsilon, rtol=1e-8)


@pytest.mark.slow
def test_laplace_on_the_line(x64):
    @jax.jit
    def on_the_line(value):
        distribution = laplace(value, 2.0, sensitivity=3.0)
        return (
            distribution.mean_abs_error(value),
            distribution.variance(),
            distribution.entropy(),
            distribution.quantile(0.975),
        )

    error, variance, entropy, quantile = on_the_line(np.array([0.0, 10.0]))
    np.testing.assert_allclose(error, [1.5, 1.5], rtol=1e-14)
    np.testing.assert_allclose(variance, [4.5, 4.5], rtol=1e-14)
    np.testing.assert_allclose(entropy, np.log(2 * np.e * 1.5) * np.ones(2), rtol=1e-14)
    np.testing.assert_allclose(quantile, np.array([0.0, 10.0]) - 1.5 * np.log(0.05), rtol=1e-13)


def test_laplace_on_an_interval(x64):
    exact = oracle.Distribution([(-1.0, 2.0, 1.0, 0.0), (2.0, 4.0, 0.0, 2 / 3)], 1.0)

    @jax.jit
    def on_an_interval(value, y):
        distribution = laplace(value, 2.0, sensitivity=3.0, lower=-1.0, upper=4.0)
        return distribution.cdf(y[:, None]), distribution.mean()

    y = np.linspace(-1.5, 4.5, 9)
    cdf, mean = on_an_interval(np.array([2.0, 99.0, 4.0]), y)
    np.testing.assert_allclose(cdf[:, 0], [exact.cdf(v) for v in y], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(mean[1], mean[2])  # a value beyond the bounds is clamped


@jax.jit
def all_of(distribution):
    """Draws, moments and quantiles of a distribution, and its error around 30, in one program."""
    draws = distribution.sample(jax.random.key(0)), distribution.sample(jax.random.key(0), (9,))
    moments = distribution.mean(), distribution.variance(), distribution.entropy()
    return (
        distribution.mean_abs_error(30.0),
        distribution.quantile(0.5),
        (draws, moments, distribution.interval(0.95)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_ties_and_the_remedy(neighbors):
    """A constant column: near uniform without rho, within a few rho with it; 90 % ties stay finite
    at every epsilon.
    """
    sweep = np.array([0.01, 0.1, 1.0, 10.0, 100.0], np.float32)
    profile = median(np.full(100, 30.0, np.float32), lower=0, upper=100, neighbors=neighbors)
    tied = np.concatenate([np.zeros(90), np.linspace(1.0, 100.0, 10)]).astype(np.float32)
    hard = median(tied, lower=0, upper=1000, neighbors=neighbors)
    for mechanism in MECHANISMS.values():
        for rho in (0.0, 0.5):
            error = all_of(of_one_size(mechanism(profile, sweep, rho=rho), 112))[0]
            assert error[2] < 0.51 if rho else error[2] > 15  # epsilon = 1
            _, middle, numbers = all_of(of_one_size(mechanism(hard, sweep, rho=rho), 112))
            assert all(np.isfinite(number).all() for number in jax.tree.leaves(numbers))
            assert ((middle >= 0) & (middle <= 1000)).all()


@pytest.mark.slow
def test_a_long_constant_column_is_exact_in_float32():
    """The first piece with mass has the level 50,000: a product with the rate in float32 would be
    off by half a percent.
    """
    n, x, low, high = 100_001, 3.0, 0.0, 10.0
    profile = median(jnp.full(n, x), lower=low, upper=high, neighbors="swap")
    for epsilon in (1.0, 10.0):
        first = n // 2 + 1  # changes until the median can reach either bound
        exact = oracle.Distribution([(low, x, 2.0, 1.0), (x, high, 1.0, 2.0)], epsilon / 2)
        distribution = piecewise_laplace(profile, epsilon)
        assert (
            int(np.argmax(np.asarray(profile.upper) == high))
            == int(np.argmax(np.asarray(profile.lower) == low))
            == first
        )
        points = np.array([1.0, 2.9, 3.1, 7.0])
        np.testing.assert_allclose(
            distribution.cdf(points), [exact.cdf(y) for y in points], rtol=2e-6
        )
        np.testing.assert_allclose(
            distribution.log_prob(points), [exact.log_prob(y) for y in points], rtol=4e-6, atol=4e-6
        )
        draws = distribution.sample(jax.random.key(0), (50_000,))
        assert_follows(draws, exact_cdf(exact))


def exact_cdf(distribution):
    grid = np.linspace(0, 10, 2001)
    return lambda y: np.interp(y, grid, [distribution.cdf(v) for v in grid])


def test_refused_profiles_are_explained():
    profile = median(jnp.arange(5.0), lower=0, upper=9, neighbors="swap")
    with pytest.raises(ValueError, match=r"must be interpolable.*inverse_sensitivity"):
        piecewise_laplace(replace(profile, interpolable=False), 1.0)
    inverse_sensitivity(replace(profile, interpolable=False), 1.0)
    with pytest.raises(ValueError, match="integer levels"):
        inverse_sensitivity(replace(profile, integer_levels=False), 1.0)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize(
    ("epsilon", "options", "error", "message"),
    [
        (0.0, {}, ValueError, "epsilon must be finite and positive.*got 0.0"),
        (-1, {}, ValueError, "epsilon must be finite and positive"),
        (np.array([1.0, np.nan]), {}, ValueError, "epsilon"),
        (float("inf"), {}, ValueError, "epsilon"),
        (1e-60, {}, ValueError, "epsilon.*float32"),
        ("one", {}, TypeError, "epsilon must be a real number"),
        (1.0, {"rho": -0.1}, ValueError, "rho must be finite and not negative"),
        (1.0, {"rho": float("nan")}, ValueError, "rho"),
        (
            1.0,
            {"rho": 0.1, "support": "clipped"},
            ValueError,
            "support must be one of 'restricted', 'extended'",
        ),
    ],
)
def test_bad_parameters_are_named(name, epsilon, options, error, message):
    profile = median(jnp.arange(5.0), lower=0, upper=9, neighbors="swap")
    with pytest.raises(error, match=message):
        MECHANISMS[name](profile, epsilon, **options)


def test_bad_laplace_parameters_are_named():
    for options, message in (
        ({"sensitivity": 0.0}, "sensitivity must be finite and positive"),
        ({"sensitivity": 1.0, "lower": 0.0}, "lower and upper must be given together"),
        ({"sensitivity": 1.0, "lower": 1.0, "upper": 0.0}, "lower must be below upper"),
    ):
        with pytest.raises(ValueError, match=message):
            laplace(0.0, 1.0, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_bad_jax_epsilon_makes_its_own_row_nan(name):
    profile = median(jnp.arange(5.0), lower=0, upper=9, neighbors="swap")
    distribution = MECHANISMS[name](profile, jnp.array([1.0, 0.0, -1.0, jnp.inf, jnp.nan]))
    for result in (
        distribution.sample(jax.random.key(0)),
        distribution.mean_abs_error(2.0),
        distribution.cdf(3.0),
    ):
        assert np.isnan(result).tolist() == [False, True, True, True, True]
