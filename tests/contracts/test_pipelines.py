"""What DESIGN promises of everything that draws: asked by default of a pipeline of each kind of
profile and distribution, and in CI of all.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import dpjax
from tests.contracts.pipelines import PIPELINES
from tests.support.distributions import of_one_size, strong

KINDS = (
    "plm of the median",
    "plm on a resolution",
    "exponential",
    "clamped smooth cauchy",
    "gaussian",
)


def by_default(names):
    return [n if n in names else pytest.param(n, marks=pytest.mark.slow) for n in PIPELINES]


ALL, TWO = by_default(KINDS), by_default(("plm of the median", "exponential"))
# These take numbers and scores, of which a NaN makes a row of NaN
OF_NUMBERS = {"best of", "bounded laplace", "bounded loss", "bounded noise laplace", "exponential"}
OF_NUMBERS |= {"gaussian", "gaussian noisy tree", "laplace", "never fail"}
OF_NUMBERS |= {"noisy tree", "permute and flip", "plm of radii", "stand out"}
# Draws of equal rows may be equal
OF_FEW_VALUES = {"above threshold", "best of", "bounded loss", "clamped smooth cauchy"}
OF_FEW_VALUES |= {"clamped smooth laplace-log-normal", "duff of a mode", "exponential"}
OF_FEW_VALUES |= {"gaussian noisy tree", "never fail", "noisy tree", "permute and flip"}
OF_FEW_VALUES |= {"permute and flip on a resolution", "plm on a resolution", "stand out"}
X = np.asarray(jax.random.normal(jax.random.key(0), (8, 21)))
TIED = np.where(np.arange(21) < 15, np.float32(0.25), X)
HOSTILE = {
    "all equal": np.full(21, 0.5),
    "at the lower bound": np.full(21, -3.0),
    "at the upper bound": np.full(21, 3.0),
    "nan": np.full(21, np.nan),
    "one record": np.where(np.arange(21) == 5, 1.0, np.nan),
    "infinities": np.tile([np.inf, -np.inf, 0.0], 7),
    "huge": np.tile([1e30, -1e30, 0.0], 7),
    "tiny": np.tile([1e-45, -1e-45, -0.0], 7),
}


def given(x, epsilon=1.0, lower=-3.0, upper=3.0, dtype=jnp.float32):
    return tuple(jnp.asarray(value, dtype) for value in (x, epsilon, lower, upper))


def wide(distribution):
    """Of one size, for the programs below to serve all distributions of a kind."""
    return jax.tree.map(strong, of_one_size(distribution, pieces=352))


@functools.cache
def made_by(name):
    """The program from data and public parameters to a distribution, and a list of its traces."""
    traces = []

    def make(*given):
        traces.append(given)
        found = PIPELINES[name](*given)
        assert "(..." not in repr(found)  # it says its facts
        return wide(found)

    return jax.jit(make), traces


def distribution(name, x, *public, **options):
    return made_by(name)[0](*given(x, *public, **options))


@functools.cache
def with_gradients(name):
    """A distribution, and what pulls a gradient back to the data and the public parameters."""
    return jax.jit(lambda *given: jax.vjp(lambda *given: wide(PIPELINES[name](*given)), *given))


draws_of = jax.jit(lambda key, distribution: distribution.sample(key))
many_draws_of = jax.jit(lambda key, distribution: distribution.sample(key, (50,)))
error_of = jax.jit(lambda distribution: distribution.mean_abs_error(0.1))
gradient_of_error = jax.jit(jax.grad(lambda distribution: jnp.sum(error_of(distribution))))
pull_back = jax.jit(lambda back, gradient: back(gradient))


@jax.jit
def summaries(distribution):
    points = np.linspace(-2.5, 2.5, 6)[:, None]
    found = {name: getattr(distribution, name)(points) for name in ("cdf", "survival")}
    return found | {"error": distribution.mean_abs_error(points), "mean": distribution.mean()}


@jax.jit
@jax.grad
def gradient_of_all(distribution):
    asked = dict.fromkeys(("variance", "entropy"), ())
    asked |= dict.fromkeys(("mean_abs_error", "cdf", "quantile", "log_prob"), (0.3,))
    found = [
        getattr(distribution, name)(*points)
        for name, points in asked.items()
        if hasattr(distribution, name)
    ]
    return sum(map(jnp.sum, found))


@pytest.mark.parametrize("name", ALL)
def test_one_trace_serves_all_epsilons_bounds_and_data(name):
    """Draws and error bars are finite, also of rows with ties and missing records."""
    made, traces = made_by(name)
    before = len(traces)
    for i, epsilon in enumerate((0.1, 1.0, 5.0)):
        x = np.where(np.arange(21) < 7 * i, 0.25, X)
        if name not in OF_NUMBERS:
            x = np.where(x > 2, np.nan, x)
        found = made(*given(x, epsilon, -3.0 - i, 3.0 + i))
        assert np.isfinite(draws_of(jax.random.key(i), found)).all()
        assert np.isfinite(error_of(found)).all()
    assert len(traces) <= before + 1


@pytest.mark.parametrize("name", ALL)
def test_hostile_records_never_raise_warn_or_leave_the_range(name):
    """Warnings are errors in this suite."""
    rows = np.stack([row.astype(np.float32) for row in HOSTILE.values()])
    for epsilon in (0.1, 100.0):
        found = distribution(name, rows, epsilon)
        one, many = (draw(jax.random.key(0), found) for draw in (draws_of, many_draws_of))
        assert (one.shape, many.shape) == ((8,), (50, 8))
        draws = np.vstack([one, many])
        if name not in OF_NUMBERS:
            assert np.isfinite(draws).all()
        if name.startswith(("plm of the median", "plm on a", "inv of a q", "clamped")):
            assert (np.abs(draws) <= 3).all()


@pytest.mark.parametrize("name", TWO)
def test_gradients_agree_with_finite_differences(name, x64):
    double = functools.partial(given, dtype=jnp.float64)
    for epsilon in (0.3, 1.9):
        made, back = with_gradients(name)(*double(X, epsilon))
        gradients = pull_back(back, gradient_of_error(made))
        h = 1e-5
        public = (epsilon, -3.0, 3.0)
        for at in range(3):
            above, below = (
                jnp.sum(
                    error_of(
                        distribution(
                            name,
                            X,
                            *(value + step * (k == at) for k, value in enumerate(public)),
                            dtype=jnp.float64,
                        )
                    )
                )
                for step in (h, -h)
            )
            assert float(gradients[at + 1]) == pytest.approx(
                float(above - below) / (2 * h), rel=1e-6, abs=1e-9
            )
    made, back = with_gradients(name)(*double(TIED, 1.0))
    for gradient in pull_back(back, gradient_of_error(made)):
        assert jnp.isfinite(gradient).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", PIPELINES)
def test_gradients_are_finite_with_ties(name):
    """Of all that is asked for at a time."""
    made, back = with_gradients(name)(*given(TIED))
    for gradient in pull_back(back, gradient_of_all(made)):
        assert gradient.dtype == jnp.float32
        assert jnp.isfinite(gradient).all()


@pytest.mark.parametrize("name", TWO)
def test_float32_agrees_with_float64(name, x64):
    """Within the rounding of 44 pieces: each edge is off by 3 units of 2^-24, against masses of
    widths of at least 1e-3.
    """
    single, double = (
        summaries(distribution(name, X, dtype=dtype)) for dtype in (jnp.float32, jnp.float64)
    )
    for key, value in single.items():
        assert (value.dtype, double[key].dtype) == (jnp.float32, jnp.float64)
        np.testing.assert_allclose(value, double[key], atol=44 * 3 * 6 * 2.0**-24)


@pytest.mark.parametrize("name", ALL)
def test_rows_may_be_split_by_shard_map(name):
    """Under its own checks, which tracing makes. Control: a loop that starts from constants."""
    key, rows = jax.random.key(0), PartitionSpec("rows")
    mesh = Mesh(np.array(jax.devices()[:1]), ("rows",))

    def traced(compute):
        return jax.eval_shape(jax.shard_map(compute, mesh=mesh, in_specs=rows, out_specs=rows), X)

    def found(x):
        made = PIPELINES[name](x, *given(X)[1:])
        return draws_of(key, made), jnp.swapaxes(many_draws_of(key, made), 0, 1), error_of(made)

    assert len(traced(found)) == 3
    with pytest.raises(TypeError, match="carry"):
        traced(lambda x: jax.lax.fori_loop(0, 3, lambda _, total: total + x, jnp.zeros(X.shape)))


@pytest.mark.parametrize("name", TWO)
def test_vmap_sweeps_and_single_rows_are_the_batch(name):
    """Single rows by their shapes, which take no compiling."""
    made, pipeline = made_by(name)[0], PIPELINES[name]
    whole = error_of(distribution(name, X))
    mapped = jax.jit(jax.vmap(made, in_axes=(0, None, None, None)))(*given(X))
    np.testing.assert_allclose(error_of(mapped), whole, rtol=2e-6)
    swept = distribution(name, X, np.array([0.5, 1.0, 2.0])[:, None])
    assert swept.batch_shape == (3, 8)
    assert jax.eval_shape(lambda key: swept.sample(key, (4,)), jax.random.key(0)).shape == (4, 3, 8)
    np.testing.assert_allclose(error_of(swept)[1], whole, rtol=2e-6)

    def shapes(run):
        return [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(run, jnp.asarray(X)))]

    row = shapes(lambda x: pipeline(x, 1.0, -3.0, 3.0)[2])
    assert row == shapes(lambda x: pipeline(x[2], 1.0, -3.0, 3.0))
    assert row != shapes(lambda x: pipeline(x, 1.0, -3.0, 3.0))


@pytest.mark.parametrize("name", ALL)
def test_further_rows_leave_draws_alone(name):
    """But for the rounding of another program. Equal rows have noise of their own."""
    key, rows = jax.random.key(1), np.tile(X[0], (8, 1))
    draws = draws_of(key, distribution(name, rows))
    assert len(np.unique(draws)) >= (2 if name in OF_FEW_VALUES else 7)
    more = draws_of(key, distribution(name, np.tile(rows, (64, 1)), np.ones(512)))
    np.testing.assert_allclose(more[:8], draws, rtol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_a_traced_epsilon_that_is_wrong_makes_its_own_row_nan(name):
    """And no row without noise, nor one of its neighbors; among thousands of numbers, where a
    maximum may lose a NaN on a CPU.
    """
    epsilons = np.tile([1.0, 0.0, -1.0, np.inf, np.nan, 0.5, 2.0, 4.0], 64)
    wrong = ~((epsilons > 0) & (epsilons < np.inf))
    found = distribution(name, np.tile(X, (64, 1)), epsilons)
    np.testing.assert_array_equal(np.isnan(error_of(found)), wrong)
    np.testing.assert_array_equal(np.isnan(draws_of(jax.random.key(0), found)), wrong)


@pytest.mark.parametrize("name", [name for name in KINDS if name not in OF_NUMBERS])
def test_missing_records_leave_errors_alone(name):
    """As under add/remove a NaN is no record."""
    padded = np.pad(X, [(0, 0), (0, 9)], constant_values=np.nan)
    for epsilon in (0.3, 3.0):
        wide, narrow = (distribution(name, x, epsilon) for x in (padded, X))
        np.testing.assert_allclose(error_of(wide), error_of(narrow), rtol=3e-6)


def test_numbers_that_no_float_holds_and_signaling_nans():
    """Neither raise nor warn: they are infinities and missing records."""
    signaling = np.array([0x7FF0000000000001, 0], np.uint64).view(np.float64)
    public = {"lower": -3.0, "upper": 3.0}
    assert dpjax.median([2**1100, 1, -(2**1100)], **public, neighbors="swap").value == 1
    assert dpjax.median([2**1100, 1.5, 0.0], **public, neighbors="swap").value == 1.5
    for bits in (signaling, np.array([0x7F800001, 0], np.uint32).view(np.float32)):
        assert dpjax.median(bits, **public, neighbors="add_remove").value == 0
        assert dpjax.mean(bits, **public, neighbors="swap").value == -1.5


@pytest.mark.slow
def test_one_record_and_none():
    for n in (0, 1):
        for neighbors in ("add_remove", "swap"):
            found = dpjax.piecewise_laplace(
                dpjax.median(jnp.zeros(n), lower=-3.0, upper=3.0, neighbors=neighbors), 1.0
            )
            assert jnp.isfinite(found.sample(jax.random.key(0)))
            np.testing.assert_allclose(found.mean(), 0.0, atol=1e-6)
