"""What DESIGN promises of every function: one trace over a sweep, gradients, precision, and the
shape of the public face.
"""

import inspect
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import (
    Clamped,
    exponential,
    inverse_sensitivity,
    maximum,
    median,
    piecewise_laplace,
    smooth_cauchy,
    smooth_laplace,
    smooth_laplace_log_normal,
)
from tests.support.distributions import of_one_size, strong
from tests.support.pipelines import PIPELINES

X = np.asarray(jax.random.normal(jax.random.key(0), (6, 21)))


FEW = X[:2, :9]
QUICK = ("exponential",)
NAMES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PIPELINES
]


@pytest.fixture(params=NAMES)
def pipeline(request):
    return PIPELINES[request.param]


def sweep(run, pipeline, data):
    """Other epsilons, bounds and data with ties and a NaN: draws and error bars are finite."""
    n = data.shape[-1]
    for i, eps in enumerate((0.1, 1.0, 5.0)):
        ties = np.where(np.arange(n) < n // 3 * i, 0.25, data)
        draws, error = run(
            jax.random.key(i), np.where(ties > 2, np.nan, ties), eps, -3.0 - i, 3.0 + i
        )
        # NaN scores make NaN rows
        if not any(word in inspect.getsource(pipeline) for word in ("jnp.mean", "between")):
            assert np.isfinite(draws).all()
            assert np.isfinite(error).all()


@jax.jit
def draws_and_errors(key, distribution):
    return distribution.sample(key), distribution.mean_abs_error(0.0)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_sweep_over_epsilon_bounds_and_data_compiles_once(name):
    """From data to a distribution in one program, and on to draws and errors in one that all of a
    kind share.
    """
    pipeline, programs = PIPELINES[name], draws_and_errors._cache_size()
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def distribution(x, eps, a, b):
        return jax.tree.map(strong, of_one_size(pipeline(x, eps, a, b)))

    sweep(lambda key, *given: draws_and_errors(key, distribution(*given)), pipeline, FEW)
    assert draws_and_errors._cache_size() <= programs + 1


@pytest.mark.parametrize("name", NAMES)
def test_a_sweep_compiles_once_from_data_to_draws(name):
    pipeline = PIPELINES[name]
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def run(key, x, eps, a, b):
        distribution = pipeline(x, eps, a, b)
        return distribution.sample(key), distribution.mean_abs_error(0.0)

    sweep(run, pipeline, X)


def wide(distribution):
    """Of one size, for the programs below to serve distributions of a kind; what makes a
    distribution is a program of its own.
    """
    return jax.tree.map(strong, of_one_size(distribution, pieces=48))


def gradient_through(distribution_of, function, *given):
    """The gradient of a number that a program computes of distributions, pulled back to what they
    are made of.
    """
    distribution, back = jax.jit(lambda *given: jax.vjp(distribution_of, *given))(*given)
    return jax.jit(lambda back, gradient: back(gradient))(back, function(distribution))


@jax.jit
def error_at(distribution):
    return jnp.sum(distribution.mean_abs_error(0.1))


gradient_of_error = jax.jit(jax.grad(error_at))


def test_the_error_bar_s_gradient_by_epsilon_agrees_with_finite_differences(pipeline, x64):
    @jax.jit
    def distribution_of(eps):
        return wide(pipeline(jnp.asarray(X, jnp.float64), eps, jnp.float64(-3.0), jnp.float64(3.0)))

    for eps in (0.3, 2.0):
        h = 1e-5
        above, below = (error_at(distribution_of(jnp.float64(at))) for at in (eps + h, eps - h))
        (gradient,) = gradient_through(distribution_of, gradient_of_error, jnp.float64(eps))
        assert float(gradient) == pytest.approx(
            (float(above) - float(below)) / (2 * h), rel=1e-6, abs=1e-9
        )


TIED = jnp.asarray(np.where(np.arange(21) < 15, 0.25, X))


@jax.jit
@jax.grad
def gradient_of_total(distribution):
    values = [
        getattr(distribution, name)()
        for name in ("variance", "entropy")
        if hasattr(distribution, name)
    ]
    points = ("mean_abs_error", "cdf", "survival", "quantile", "log_prob")
    return sum(
        jnp.sum(value)
        for value in values
        + [getattr(distribution, name)(0.3) for name in points if hasattr(distribution, name)]
    )


@pytest.mark.slow
def test_gradients_by_data_epsilon_and_bounds_are_finite_with_ties(pipeline):
    given = TIED, jnp.float32(1.0), jnp.float32(-3.0), jnp.float32(3.0)
    for gradient in gradient_through(
        lambda *given: wide(pipeline(*given)), gradient_of_total, *given
    ):
        assert jnp.isfinite(gradient).all()


@jax.jit
def summaries(distribution):
    points = np.linspace(-2.5, 2.5, 6)
    return {
        **{
            name: getattr(distribution, name)(points)
            for name in ("cdf", "survival", "mean_abs_error")
        },
        "mean": distribution.mean(),
    }


def test_float32_agrees_with_float64(pipeline, x64):
    """Within the rounding of 44 pieces: each edge is off by 3 units of 2^-24, against masses of
    widths of at least 1e-3.
    """
    distribution_of = jax.jit(lambda *given: wide(pipeline(*given)))
    single, double = (
        summaries(distribution_of(*(jnp.asarray(value, dtype) for value in (X, 1.0, -3.0, 3.0))))
        for dtype in (jnp.float32, jnp.float64)
    )
    for name, value in single.items():
        assert value.dtype == jnp.float32
        assert double[name].dtype == jnp.float64
        np.testing.assert_allclose(value, double[name], atol=44 * 3 * 6 * 2.0**-24)


@jax.jit
def error(distribution):
    return distribution.mean_abs_error(0.0)


def test_distributions_pass_through_vmap_and_jit_as_values(pipeline):
    def distribution(x):
        return wide(pipeline(x, 1.0, -3.0, 3.0))

    whole, mapped = (
        jax.jit(distribution)(jnp.asarray(X)),
        jax.jit(jax.vmap(distribution))(jnp.asarray(X)),
    )
    np.testing.assert_allclose(error(mapped), error(whole), rtol=2e-6)


def test_a_row_of_a_batch_is_made_as_one_dataset_is(pipeline):
    """By its shapes, which take no compiling."""

    def shapes(distribution_of):
        def shown(x):
            found = distribution_of(x)
            assert "(..." not in repr(found)  # it says its facts
            return found

        return [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(shown, jnp.asarray(X)))]

    row = shapes(lambda x: pipeline(x, 1.0, -3.0, 3.0)[2])
    assert row == shapes(lambda x: pipeline(x[2], 1.0, -3.0, 3.0))
    assert row != shapes(lambda x: pipeline(x, 1.0, -3.0, 3.0))


@pytest.mark.slow
def test_an_epsilon_sweep_against_rows_broadcasts(pipeline):
    @jax.jit
    def distribution(x, eps):
        return wide(pipeline(x, eps, -3.0, 3.0))

    sweep = distribution(jnp.asarray(X), jnp.array([0.5, 1.0, 2.0])[:, None])
    assert sweep.batch_shape == (3, 6)
    assert jax.eval_shape(lambda key: sweep.sample(key, (4,)), jax.random.key(0)).shape == (4, 3, 6)
    one = distribution(jnp.asarray(X[4]), 2.0)
    np.testing.assert_allclose(error(sweep)[2, 4], error(one), rtol=2e-6)


HOSTILE = {
    "all equal": np.full(21, 0.5),
    "all at the lower bound": np.full(21, -3.0),
    "all at the upper bound": np.full(21, 3.0),
    "nan": np.full(21, np.nan),
    "infinities": np.tile([np.inf, -np.inf, 0.0], 7),
    "huge": np.tile([1e30, -1e30, 0.0], 7),
    "tiny": np.tile([1e-45, -1e-45, -0.0], 7),
}


@pytest.mark.parametrize(
    ("neighbors", "shape"),
    [
        ("add_remove", (50,)),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("add_remove", ()), ("swap", ()), ("swap", (50,)))
        ),
    ],
)
def test_data_never_raise_warn_or_leave_the_range(neighbors, shape):
    """Warnings are errors in this suite."""
    x = np.stack([data.astype(np.float32) for data in HOSTILE.values()])
    draw = jax.jit(lambda key, distribution: distribution.sample(key, shape))
    for mechanism in (piecewise_laplace, inverse_sensitivity):
        distribution = mechanism(
            median(x, lower=-3.0, upper=3.0, neighbors=neighbors), np.array([0.01, 100.0])[:, None]
        )
        draws = np.asarray(draw(jax.random.key(0), of_one_size(distribution, pieces=24)))
        assert draws.shape == (*shape, 2, len(HOSTILE))
        assert ((draws >= -3) & (draws <= 3)).all()


def test_numbers_that_no_float_holds_and_signaling_nans():
    """Neither raise nor warn: they are infinities and missing records."""
    signaling = np.array([0x7FF0000000000001, 0], np.uint64).view(np.float64)
    assert median([2**1100, 1, -(2**1100)], lower=-3.0, upper=3.0, neighbors="swap").value == 1
    assert median([2**1100, 1.5, 0.0], lower=-3.0, upper=3.0, neighbors="swap").value == 1.5
    for bits in (signaling, np.array([0x7F800001, 0], np.uint32).view(np.float32)):
        assert median(bits, lower=-3.0, upper=3.0, neighbors="add_remove").value == 0
        assert dpjax.mean(bits, lower=-3.0, upper=3.0, neighbors="swap").value == -1.5


@pytest.mark.slow
def test_one_record_and_none():
    for n in (0, 1):
        for neighbors in ("add_remove", "swap"):
            distribution = piecewise_laplace(
                median(jnp.zeros(n), lower=-3.0, upper=3.0, neighbors=neighbors), 1.0
            )
            assert jnp.isfinite(distribution.sample(jax.random.key(0)))
            np.testing.assert_allclose(distribution.mean(), 0.0, atol=1e-6)


def public_functions():
    for name in dir(dpjax):
        item = getattr(dpjax, name)
        if inspect.isfunction(item):
            yield name, item


def test_public_functions_take_key_and_data_first_and_everything_else_by_keyword():
    names = dict(public_functions())
    assert {
        "median",
        "quantile",
        "order_statistic",
        "piecewise_laplace",
        "inverse_sensitivity",
        "laplace",
    } <= names.keys()
    for name, function in names.items():
        parameters = list(inspect.signature(function).parameters.values())
        positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert len(positional) <= 3, (name, positional)
        if any(p.name == "key" for p in parameters):
            assert parameters[0].name == "key", name
        for p in parameters:
            assert not isinstance(p.default, bool), (
                f"{name}: {p.name} is a boolean that flips meaning"
            )
            # They have one relation
            if p.name in ("key", "neighbors") and (
                p.name == "key" or name not in ("count", "histogram")
            ):
                assert p.default is p.empty, f"{name}: {p.name} must have no default"


def test_public_docstrings_have_their_sections():
    for name, function in public_functions():
        for section in ("Args:", "Returns:", "Privacy:", "References:", ">>>"):
            assert section in (function.__doc__ or ""), f"{name} lacks {section}"


def test_what_does_not_fit_is_named():
    records = np.zeros((5, 7), np.float32)
    profile = median(records, lower=-1, upper=1, neighbors="swap")
    for wrong in (
        lambda: piecewise_laplace(records, 1.0),
        lambda: inverse_sensitivity(maximum(records, lower=-1, upper=1), 1.0),
        lambda: smooth_cauchy(profile, 1.0),
        lambda: smooth_laplace(profile, 1.0, delta=1e-3),
        lambda: smooth_laplace_log_normal(records, 1.0, sigma=0.3),
        lambda: dpjax.propose_test_release(profile, 1.0, delta=1e-3, proposal=0.1),
        lambda: exponential(profile, 1.0),
        lambda: Clamped.of(exponential(records, 1.0, sensitivity=1.0), lower=0, upper=1),
        lambda: dpjax.piecewise_laplace.guarantee(profile, np.ones(3)),
    ):
        with pytest.raises(TypeError, match=r"takes|must have a density|concrete"):
            wrong()
    with pytest.raises(ValueError, match=r"epsilon\[:, None\]"):
        piecewise_laplace(profile, np.ones(3))


def test_guarantees_carry_the_relation_and_refuse_what_is_not_one():
    profile = median(X, lower=-3.0, upper=3.0, neighbors="swap")
    for mechanism in (piecewise_laplace, inverse_sensitivity):
        assert mechanism.guarantee(profile, 0.7) == dpjax.Guarantee(0.7, 0.7, "swap")
        for bad in (0, -1.0, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="epsilon"):
                mechanism.guarantee(profile, bad)
    assert dpjax.laplace.guarantee("swap", 0.7).bounded_range == 1.4
    assert dpjax.laplace.guarantee("swap", 0.7, bounded=True).bounded_range == 0.7


def test_importing_dpjax_loads_nothing_beside_jax():
    """The price of the import is that of JAX: no further package comes along."""
    code = (
        "import sys, jax, jax.numpy; before = {m.split('.')[0] for m in sys.modules}; import "
        "dpjax;print(sorted({m.split('.')[0] for m in sys.modules} - before))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    extra = set(eval(out)) - set(sys.stdlib_module_names)
    assert extra == {"dpjax"}
