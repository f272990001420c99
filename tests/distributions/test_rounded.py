"""Distributions on a grid: golden numbers, and every closed form against sums over probabilities
from the definition.
"""

from dataclasses import replace
from fractions import Fraction

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax.distributions import sampling
from tests.support import oracle, statistics
from tests.support.distributions import of_one_size

# BEYOND the papers: computed from the definition, apart from this library; epsilon 1, x[ceil(q n)]
# on 0, 1, ...
GOLDEN = {
    ("piecewise_laplace", "swap", 0.5, (1, 2, 2, 2, 4)): (
        *(
            0.072445401332869,
            0.119442274141909,
            0.535303134558117,
            0.153366915825196,
            0.119442274141909,
        ),
    ),
    ("piecewise_laplace", "swap", 0.5, (0, 2, 2, 4)): (
        *(
            0.188037854187688,
            0.241445384076415,
            0.310022009896051,
            0.146444028088438,
            0.114050723751407,
        ),
    ),
    ("piecewise_laplace", "swap", 0.5, (2, 2, 2, 2, 9)): (
        *(
            0.039811270791669,
            0.051118683567142,
            0.294167713249363,
            0.100757988347511,
            0.093812012708219,
            0.087344873321744,
        ),
        *(
            0.081323560547839,
            0.075717340339099,
            0.070497597367917,
            0.065637688967828,
            0.039811270791669,
        ),
    ),
    ("piecewise_laplace", "add_remove", 0.5, (1, 2, 2, 2, 4)): (
        *(
            0.024630872462842,
            0.066953653034835,
            0.815662473743913,
            0.052143557413021,
            0.040609443345389,
        ),
    ),
    ("piecewise_laplace", "add_remove", 0.5, (0, 2, 2, 4)): (
        *(
            0.122683641904509,
            0.157528914417207,
            0.549829937032709,
            0.095546116385284,
            0.074411390260291,
        ),
    ),
    ("piecewise_laplace", "add_remove", 0.9, (1, 2, 2, 3, 5, 5, 7, 8, 9, 9)): (
        *(
            0.002188726135433,
            0.003608599335226,
            0.009809189999134,
            0.016172620199912,
            0.020766055391124,
            0.043961739607989,
        ),
        *(
            0.056447991018467,
            0.072480655188673,
            0.119500397923846,
            0.535563627276350,
            0.119500397923846,
        ),
    ),
    ("inverse_sensitivity", "swap", 0.5, (1, 2, 2, 2, 4)): (
        *(
            0.074989389501765,
            0.123636601548377,
            0.554100805853104,
            0.123636601548377,
            0.123636601548377,
        ),
    ),
    ("inverse_sensitivity", "swap", 0.5, (0, 2, 2, 4)): (
        *(
            0.205685873743319,
            0.205685873743319,
            0.339118675123152,
            0.124754788695105,
            0.124754788695105,
        ),
    ),
    ("inverse_sensitivity", "add_remove", 0.5, (1, 2, 2, 2, 4)): (
        *(
            0.024918282778782,
            0.067734915273966,
            0.825180196253856,
            0.041083302846698,
            0.041083302846698,
        ),
    ),
    ("inverse_sensitivity", "add_remove", 0.5, (0, 2, 2, 4)): (
        *(
            0.129958731517834,
            0.129958731517834,
            0.582434626638475,
            0.078823955162929,
            0.078823955162929,
        ),
    ),
}
ROWS, TOP = 24, 12  # rows of a batch, and the largest value of their range


def of_size(distribution):
    """One program for all numbers of levels; one distribution becomes as many equal rows as other
    tests have.
    """
    return of_one_size(distribution, pieces=48, batch=distribution.batch_shape or (ROWS,))


@pytest.mark.parametrize(("dtype", "within"), [(jnp.float64, 1e-14), (jnp.float32, 3e-7)])
def test_golden_numbers_of_single_values(dtype, within, x64):
    for (name, neighbors, q, x), expected in GOLDEN.items():
        bounds = {"lower": 0, "upper": len(expected) - 1, "resolution": 1}
        profile = dpjax.quantile(
            jnp.asarray(x, dtype), q, definition="lower", neighbors=neighbors, **bounds
        )
        found = of_size(getattr(dpjax, name)(profile, 1.0)).prob(
            jnp.arange(TOP, dtype=dtype)[:, None]
        )
        assert found.dtype == dtype
        found = np.asarray(found, np.float64)
        np.testing.assert_allclose(
            found[:, 0], np.append(expected, np.zeros(TOP - len(expected))), rtol=0, atol=within
        )
        assert np.abs(np.roll(expected, 1) - found[: len(expected), 0]).max() > 0.01  # the control


@jax.jit
def closed_forms(distribution, points, centers, shares):
    """All that is known of a distribution, for points, centers and probabilities ``(j, 1)``."""
    names = ("log_prob", "cdf", "survival")
    return {
        **{name: getattr(distribution, name)(points) for name in names},
        **{
            name: getattr(distribution, name)()
            for name in ("mean", "variance", "stddev", "entropy")
        },
        "mean_abs_error": distribution.mean_abs_error(centers),
        "mean_squared_error": distribution.mean_squared_error(centers),
        "quantile": distribution.quantile(shares),
        "interval": jnp.stack(distribution.interval(shares)),
    }


CENTERS = np.array([-1.0, 0.0, 0.4, 2.0, 2.5, 3.7, 5.0, 6.2, 11.0, 12.0, 14.0])
SHARES = np.array([1e-12, 0.013, 0.2, 0.31, 0.5, 0.77, 0.95, 0.9999, 1 - 1e-9])


def assert_are_sums(distribution, masses, rtol=1e-10):
    """Closed forms of each row against sums over its probabilities of 0, 1, ..., TOP, which are
    given from elsewhere.
    """
    values = np.arange(TOP + 1.0)
    points = np.concatenate([values, values - 0.3, [-1.0, TOP + 1.0]])
    found = closed_forms(
        of_size(distribution), *(jnp.asarray(part)[:, None] for part in (points, CENTERS, SHARES))
    )
    found = {name: np.asarray(value, np.float64) for name, value in found.items()}
    log_prob, off_grid = found["log_prob"][: TOP + 1], found["log_prob"][TOP + 1 :]
    assert np.isneginf(off_grid).all()
    for row, mass in enumerate(masses):
        there = mass > 0
        np.testing.assert_allclose(log_prob[there, row], np.log(mass[there]), rtol=rtol, atol=rtol)
        assert np.isneginf(log_prob[~there, row]).all()
        mean = mass @ values
        expected = {
            "cdf": [mass[values <= y].sum() for y in points],
            "survival": [mass[values > y].sum() for y in points],
            "mean": mean,
            "variance": mass @ (values - mean) ** 2,
            "stddev": np.sqrt(mass @ (values - mean) ** 2),
            "entropy": -mass[there] @ np.log(mass[there]),
            "mean_abs_error": [mass @ np.abs(values - c) for c in CENTERS],
            "mean_squared_error": [mass @ (values - c) ** 2 for c in CENTERS],
        }
        for name, value in expected.items():
            # Survival has the digits of the tail; the others are sums of numbers of this size.
            atol = {"survival": 1e-300, "cdf": 1e-15}.get(name, 10 * rtol)
            np.testing.assert_allclose(
                found[name][..., row], value, rtol=10 * rtol, atol=atol, err_msg=name
            )
        # The smallest value that reaches a probability, for all that are not within rounding of one
        # that is reached.
        cumulative = np.cumsum(mass)

        def quantile(share, cumulative=cumulative):
            return values[min(np.searchsorted(cumulative, share), TOP)]

        for name, shares in (
            ("quantile", [SHARES]),
            ("interval", [(1 - SHARES) / 2, (1 + SHARES) / 2]),
        ):
            for end, own in zip(found[name].reshape(-1, len(SHARES), ROWS), shares, strict=True):
                clear = [np.abs(cumulative - share).min() > 1e-13 for share in own]
                np.testing.assert_array_equal(
                    end[clear, row],
                    np.array([quantile(share) for share in own])[clear],
                    err_msg=name,
                )


def tied_rows(seed, sizes, most=TOP):
    """Records with many ties, and some rows of one value, as one padded array with counts."""
    generator = np.random.default_rng(seed)
    count = generator.integers(*sizes, ROWS, endpoint=True)
    x = np.minimum(
        generator.geometric(generator.uniform(0.1, 0.6, (ROWS, 1)), (ROWS, sizes[1])) - 1, most
    ).astype(float)
    x[0], x[1], x[2, :5] = 3.0, float(most), 0.0
    return x, count, np.exp(generator.uniform(np.log(0.05), np.log(8.0), ROWS))


def reached(row, count, statistic, neighbors, levels):
    """(level, value) of both sides by editing the dataset."""
    sides = oracle.extremes(list(row[:count]), levels, statistic, neighbors, 0, TOP)
    return tuple([(level, int(value)) for level, value in enumerate(side)] for side in sides)


MECHANISMS = ("piecewise_laplace", pytest.param("inverse_sensitivity", marks=pytest.mark.slow))
SLOW_QUANTILES = (("1/2", "add_remove"), ("9/10", "swap"), ("1/3", "swap"), ("1/3", "add_remove"))
QUANTILES = [
    ("1/2", "swap"),
    ("9/10", "add_remove"),
    *(pytest.param(q, neighbors, marks=pytest.mark.slow) for q, neighbors in SLOW_QUANTILES),
]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("q", "neighbors"), QUANTILES)
def test_quantiles_have_the_probabilities_of_the_definition(q, neighbors, mechanism, x64):
    q = Fraction(q)
    x, count, epsilon = tied_rows(1, (1, 9))
    options = {
        "lower": 0,
        "upper": TOP,
        "resolution": 1,
        "neighbors": neighbors,
        "definition": "lower",
        "num_records": count,
    }
    distribution = getattr(dpjax, mechanism)(
        dpjax.quantile(jnp.asarray(x), q, **options), jnp.asarray(epsilon)
    )
    masses = []
    for row, n, own in zip(x, count, epsilon, strict=True):
        sides = reached(
            row, n, lambda data: oracle.quantile(data, q, "lower", 0, TOP), neighbors, 12
        )
        _, costs = oracle.costs_on_grid(*sides, mechanism)
        masses.append(oracle.probabilities(costs, own))
    assert_are_sums(distribution, masses)


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


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["sum", "truncated", "steps", "some steps"])
def test_sums_and_truncated_profiles_have_the_probabilities_of_the_definition(name, mechanism, x64):
    if name == "steps" and mechanism == "inverse_sensitivity":
        return  # refused: it needs a static number of steps
    x, count, epsilon = tied_rows(2, (4, 4), most=3) if name == "sum" else tied_rows(3, (1, 9))
    options = {"lower": 0, "resolution": 1, "neighbors": "swap"}
    if name == "sum":  # 0 to 3 each, 12 together
        profile = dpjax.statistics.sum(jnp.asarray(x), upper=3, **options)
    else:
        profile = dpjax.median(
            jnp.asarray(x), upper=TOP, num_records=count, definition="lower", **options
        )
    k, step = 2, 3
    change = {"truncated": (k,), "steps": (k, step), "some steps": (k, step, 2)}.get(name)
    if change is not None:
        profile = profile.truncate(k, **dict(zip(("step", "num_steps"), change[1:], strict=False)))
    distribution = getattr(dpjax, mechanism)(profile, jnp.asarray(epsilon))
    masses = []
    for row, n, own in zip(x, count, epsilon, strict=True):
        if name == "sum":
            values = (
                np.cumsum([row.sum(), *sign * np.sort(sign * (end - row))[::-1]])
                for sign, end in ((1, 3), (-1, 0))
            )
            sides = [[(level, int(value)) for level, value in enumerate(side)] for side in values]
        else:
            sides = reached(
                row, n, lambda data: oracle.quantile(data, "1/2", "lower", 0, TOP), "swap", 12
            )
        if name == "truncated":
            sides = [jumping(side, k, bound) for side, bound in zip(sides, (TOP, 0), strict=True)]
        elif name in ("steps", "some steps"):
            sides = [
                with_steps(side, k, step, sign) for side, sign in zip(sides, (1, -1), strict=True)
            ]
        if name == "some steps":
            sides = [
                jumping([(level, min(max(value, 0), TOP)) for level, value in side], k + 2, bound)
                for side, bound in zip(sides, (TOP, 0), strict=True)
            ]
        _, costs = oracle.costs_on_grid(*sides, mechanism, 0, TOP)
        masses.append(oracle.probabilities(costs, own))
    assert_are_sums(distribution, masses)


def halves(x, neighbors, definition):
    """A median between records, which are multiples of 1 here: a multiple of 1/2."""
    given = {"lower": 0, "upper": TOP // 2, "resolution": 1}
    return dpjax.median(jnp.floor(x / 2), neighbors=neighbors, definition=definition, **given)


PERSONS = [0, 0, 1, 2, 2, 2, 3, 4, 4]
OTHERS = {
    "maximum": lambda x: dpjax.maximum(x, lower=0, upper=TOP, resolution=1).shift(2),
    "nonnegative sum": lambda x: dpjax.nonnegative_sum(x / 4, upper=TOP / 4, resolution=0.25).shift(
        1
    ),
    "user sum": lambda x: dpjax.user_sum(x, jnp.array(PERSONS), upper=TOP, resolution=1).shift(1),
    "distinct count": lambda x: dpjax.distinct_count(x.astype(int), upper=TOP, resolution=1).shift(
        1
    ),
    "mean": lambda x: dpjax.mean(
        x[..., :3] / 4, lower=0, upper=1, neighbors="swap", resolution="1/4"
    ),
    "linear median": lambda x: halves(x, "add_remove", "linear"),
    "continuous median": lambda x: halves(x, "swap", "continuous"),
    "truncated continuous median": lambda x: halves(x, "swap", "continuous").truncate(2),
}


@pytest.mark.parametrize(
    "name",
    [name if "median" in name else pytest.param(name, marks=pytest.mark.slow) for name in OTHERS],
)
def test_every_statistic_has_the_probabilities_of_its_profile(name, x64):
    """Other levels than integers among them, and other resolutions."""
    x, _, epsilon = tied_rows(4, (9, 9), most=4 if name == "mean" else TOP)
    profile = OTHERS[name](jnp.asarray(x))
    distribution = dpjax.piecewise_laplace(profile, jnp.asarray(epsilon))
    masses = []
    for row in range(ROWS):
        sides = [
            [
                (Fraction(float(level)), round(float(value) / float(profile.resolution)))
                for level, value in zip(*side, strict=True)
            ]
            for side in (
                (
                    np.broadcast_to(profile.upper_levels, profile.upper.shape)[row],
                    profile.upper[row],
                ),
                (
                    np.broadcast_to(profile.lower_levels, profile.lower.shape)[row],
                    profile.lower[row],
                ),
            )
        ]
        values, costs = oracle.costs_on_grid(*sides, "piecewise_laplace")
        mass = np.zeros(TOP + 1)
        mass[values] = oracle.probabilities(costs, epsilon[row])
        masses.append(mass)
    assert_are_sums(replace(distribution, resolution=Fraction(1)), masses)
    found = of_size(distribution).prob(np.arange(TOP + 1)[:, None] * float(profile.resolution))
    np.testing.assert_allclose(np.asarray(found).T, masses, rtol=1e-10)


TIED = np.array([1, 3, 3, 3, 4, 5, 5, 9])


@pytest.mark.parametrize(
    "method",
    ["tree", *(pytest.param(name, marks=pytest.mark.slow) for name in ("table", "gumbel"))],
)
def test_draws_have_the_probabilities(method):
    """In float32, one draw from each of many rows and many from few; the control integrates the
    cost over cells.
    """
    profile = dpjax.median(
        TIED.astype(np.float32),
        lower=0,
        upper=TOP,
        neighbors="swap",
        resolution=1,
        definition="lower",
    )
    sides = reached(
        TIED, len(TIED), lambda data: oracle.quantile(data, "1/2", "lower", 0, TOP), "swap", 12
    )
    _, costs = oracle.costs_on_grid(*sides, "piecewise_laplace")
    exact = oracle.probabilities(costs, 0.8)
    values = [[value for _, value in side] for side in sides]
    integrated = oracle.mechanism(*values, 0.8, "piecewise_laplace", rho=0.5, support="extended")
    integrated = np.diff([integrated.cdf(y - 0.5) for y in range(TOP + 2)])
    draw = jax.jit(sampling.sample, static_argnames=("shape", "method"))
    for rows, draws in ((40_000, 1), (40, 1000)):
        distribution = dpjax.piecewise_laplace(profile, np.full(rows, 0.8, np.float32))
        points = np.asarray(draw(jax.random.key(0), distribution, (draws,), method))
        counts = np.bincount(np.floor(points + 0.5).astype(int).ravel(), minlength=TOP + 1)
        statistics.assert_counts_follow(counts, exact)
        statistics.assert_counts_rejected(counts, integrated)
    found = np.asarray(distribution.sample(jax.random.key(1), (1000,)))
    statistics.assert_counts_follow(
        np.bincount(found.astype(int).ravel(), minlength=TOP + 1), exact
    )


@pytest.mark.parametrize("draws", [1, pytest.param(300, marks=pytest.mark.slow)])
def test_draws_are_bitwise_unchanged_by_padding_and_further_rows(draws):
    options = {"lower": 0, "upper": 1000, "neighbors": "swap", "resolution": 1}

    @jax.jit
    def draw(key, x, count):
        return dpjax.piecewise_laplace(dpjax.median(x, num_records=count, **options), 0.7).sample(
            key, (draws,)
        )

    x = np.random.default_rng(0).integers(0, 1000, (512, 21)).astype(np.float32)
    x[::2] = np.round(x[::2], -2)
    few, count = draw(jax.random.key(3), x[:130], np.full(130, 21)), np.full(512, 21)
    np.testing.assert_array_equal(few, draw(jax.random.key(3), x, count)[:, :130])
    padded = np.pad(x, [(0, 0), (0, 23)], constant_values=7.0)
    np.testing.assert_array_equal(few, draw(jax.random.key(3), padded, count)[:, :130])
    assert (np.asarray(few) != draw(jax.random.key(3), x + 1, count)[:, :130]).any()  # the control


def test_a_sweep_over_epsilon_compiles_once_and_ends_are_finite(x64):
    """From 1e-6 to 1e9, in float32 and float64; the gradient by epsilon, too."""
    rows = np.stack([TIED, np.full(8, 3), np.arange(8)])
    for dtype in (jnp.float32, jnp.float64):
        chex.clear_trace_counter()
        profile = dpjax.median(
            jnp.asarray(rows, dtype), lower=0, upper=TOP, neighbors="add_remove", resolution=1
        )

        def numbers_at(epsilon, profile=profile):
            distribution = dpjax.piecewise_laplace(profile, epsilon)
            numbers = [
                getattr(distribution, name)() for name in ("mean", "stddev", "variance", "entropy")
            ]
            numbers += [
                getattr(distribution, name)(3.0)
                for name in ("cdf", "survival", "mean_abs_error", "log_prob")
            ]
            return jnp.stack(
                [*numbers, distribution.quantile(0.4), distribution.sample(jax.random.key(0))]
            )

        @jax.jit
        @chex.assert_max_traces(n=1)
        def evaluate(epsilon):
            return jax.jvp(numbers_at, (epsilon,), (jnp.ones_like(epsilon),))

        for epsilon in (1e-6, 1e-3, 0.5, 8.0, 177.0, 1e4, 1e9):
            found, slope = evaluate(jnp.asarray(epsilon, dtype))
            assert np.isfinite(found).all()
            assert np.isfinite(slope).all()
        # At 1e9 the value is all there is
        np.testing.assert_array_equal(found[-1], [3.0, 3.0, 3.0])
        uniform, _ = evaluate(jnp.asarray(1e-6, dtype))
        np.testing.assert_allclose(uniform[0], TOP / 2, atol=1e-4)
        np.testing.assert_allclose(uniform[3], np.log(TOP + 1), atol=1e-5)


def test_gradients_by_epsilon_agree_with_finite_differences(x64):
    profile = dpjax.quantile(
        jnp.asarray(TIED, jnp.float64),
        0.75,
        lower=0,
        upper=TOP,
        neighbors="add_remove",
        resolution=1,
    )

    def evaluate(epsilon):
        distribution = dpjax.piecewise_laplace(profile, epsilon)
        parts = [
            distribution.mean(),
            distribution.stddev(),
            distribution.entropy(),
            distribution.mean_abs_error(4.5),
        ]
        parts += [distribution.cdf(3.0), distribution.survival(6.0), distribution.log_prob(7.0)]
        return 2 * (jnp.stack(parts),)

    both = jax.jit(jax.jacrev(evaluate, has_aux=True))
    for epsilon in (0.05, 1.0, 6.0):
        (slope, _), (_, above), (_, below) = (
            both(jnp.float64(epsilon * factor)) for factor in (1, 1 + 1e-6, 1 - 1e-6)
        )
        np.testing.assert_allclose(slope, (above - below) / (2e-6 * epsilon), rtol=1e-6, atol=1e-8)


def test_float32_agrees_with_float64(x64):
    """A weight has the rounding of its height, of its measure (exp(-x) of a rounded x <= 4) and of
    sums: some 30 units of 2^-24.
    """
    x, count, epsilon = tied_rows(5, (1, 9))
    given = tuple(
        jnp.asarray(part)[:, None] for part in (np.arange(TOP + 1.0), CENTERS, SHARES[1:-1])
    )
    found = []
    for dtype in (jnp.float32, jnp.float64):
        profile = dpjax.median(
            jnp.asarray(x, dtype),
            lower=0,
            upper=TOP,
            neighbors="swap",
            resolution=1,
            definition="lower",
            num_records=count,
        )
        distribution = of_size(
            dpjax.piecewise_laplace(profile, jnp.asarray(np.float32(epsilon), dtype))
        )
        found.append(closed_forms(distribution, *(part.astype(dtype) for part in given)))
    for name in ("cdf", "survival", "mean", "stddev", "mean_abs_error", "entropy"):
        single, double = (np.asarray(part[name], np.float64) for part in found)
        np.testing.assert_allclose(
            single, double, rtol=30 * 2.0**-24, atol=30 * TOP * 2.0**-24, err_msg=name
        )
    np.testing.assert_allclose(
        found[0]["log_prob"], found[1]["log_prob"], rtol=30 * 2.0**-24, atol=30 * 2.0**-24
    )


def test_a_resolution_that_has_no_grid_is_refused():
    x = jnp.arange(4.0)
    bounds = {"lower": 0, "upper": 3, "resolution": 1}
    with pytest.raises(ValueError, match="needs max_count"):
        dpjax.statistics.sum(x, neighbors="add_remove", **bounds)
    for options in (
        {"neighbors": "add_remove"},
        {"neighbors": "swap", "num_records": 3},
        {"neighbors": "swap", "mask": x > 1},
    ):
        with pytest.raises(ValueError, match="same for all rows"):
            dpjax.mean(x, **bounds, **options)
    with pytest.raises(ValueError, match="use a coarser resolution"):
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
    distribution = dpjax.piecewise_laplace(
        dpjax.median(x, lower=0, upper=10, neighbors="add_remove", resolution=1), 1.0
    )
    assert distribution.mean_abs_error(jnp.array([7.0, 4.0])).max() < 1e-30
    np.testing.assert_array_equal(
        distribution.sample(jax.random.key(0), (50,)), np.broadcast_to([7.0, 4.0], (50, 2))
    )


def test_without_ties_the_depth_is_one_and_nothing_changes(x64):
    x = np.random.default_rng(0).normal(size=(4, 11))
    profile = dpjax.median(jnp.asarray(x), lower=-9, upper=9, neighbors="swap")
    np.testing.assert_array_equal(profile.depth, 1.0)
    flat = dpjax.piecewise_laplace(profile, 1.0, rho=0.1).upper.cost_near[..., 0]
    np.testing.assert_array_equal(flat, np.ones_like(flat))


def test_decimals_are_exact():
    prices = jnp.asarray([0.29, 0.29, 0.29, 0.57, 1.13], jnp.float32)
    profile = dpjax.median(
        prices, lower=0, upper=5, neighbors="swap", resolution="0.01", definition="lower"
    )
    assert profile.value == np.float32(0.29)
    assert profile.resolution == Fraction(1, 100)
    draws = dpjax.piecewise_laplace(profile, 0.5).sample(jax.random.key(0), (500,))
    assert set(np.asarray(draws)) <= {np.float32(f"{cents / 100}") for cents in range(501)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resolution": 0}, "positive"),
        ({"resolution": 0.3}, "multiples"),
        ({"resolution": 1e-7}, "too many for a float"),
        ({"resolution": "cents"}, "number or a Fraction"),
    ],
)
def test_a_bad_resolution_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        dpjax.median(jnp.zeros(3), lower=0, upper=4, neighbors="swap", **options)


def test_a_step_becomes_a_multiple_that_is_no_shorter(x64):
    """A shorter one is not private, and 0 would leave values out of reach."""
    profile = dpjax.median(
        jnp.arange(9.0), lower=0, upper=8, neighbors="swap", resolution=0.1, definition="linear"
    )
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


def test_sums_of_many_integers_are_exact_in_float32():
    n = 2**17
    x = np.random.default_rng(0).integers(0, 30, n)
    profile = dpjax.statistics.sum(
        x.astype(np.float32), lower=0, upper=30, neighbors="swap", resolution=1
    )
    ordered = np.sort(x)
    np.testing.assert_array_equal(profile.upper, np.cumsum(np.append(ordered.sum(), 30 - ordered)))
    np.testing.assert_array_equal(
        profile.lower, np.cumsum(np.append(ordered.sum(), -ordered[::-1]))
    )


def test_a_resolution_with_a_long_denominator():
    profile = dpjax.mean(
        np.full(3000, 2e-6), lower=0, upper=1e-3, neighbors="swap", resolution=1e-6
    )
    assert profile.resolution == Fraction(1, 3_000_000_000)
    assert dpjax.piecewise_laplace(profile, 1.0).prob(profile.value) > 0
