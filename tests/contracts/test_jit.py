"""Functions of arrays are the same under ``jit``, where data and public numbers are traced; others
say that they need concrete numbers.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.contracts.calls import calls_of
from tests.contracts.public import function, functions
from tests.contracts.test_refusals import error_of

# What works on the host by its nature: exact draws, files, draws in hand, functions of functions
ON_HOST = {"audit_in_one_run", "audit_scores", "epsilon_lower_bound", "lower_bound", "p_value"}
ON_HOST |= {"privacy_loss", "trade_off", "trade_off_bound", "worst_neighbor", "poisson"}
ON_HOST |= {"log_ratio", "to_numpyro", "negative_binomial"}
# Public numbers that decide a shape or a program, and are static
STATIC = {"q", "p", "resolution", "gamma", "failure", "base"}
# Promises and plans are of concrete numbers
CONCRETE = {
    "blowfish",
    "bounded_range_delta",
    "bounded_range_epsilon",
    "delta_of_gdp",
    "delta_of_rdp",
    "epsilon_before_sampling",
    "epsilon_of_gdp",
    "epsilon_of_rdp",
    "epsilon_per_query",
    "fit_lipschitz_queries",
    "fit_marginals",
    "fit_queries",
    "fit_statistics",
    "from_dates",
    "from_graph",
    "from_points",
    "gdp_of",
    "improvement_factor",
    "least_noise",
    "linear_selection",
    "lipschitz_queries",
    "load",
    "loss_margin",
    "metric_exponential",
    "metric_laplace",
    "mwem",
    "mwem_error",
    "mwem_rounds",
    "nearest_point",
    "noise_scales",
    "optimal_pure_delta",
    "optimal_pure_epsilon",
    "optimal_scales",
    "poisson_subsample",
    "rdp_of_bounded_range",
    "rdp_of_laplace",
    "rdp_of_pure",
    "sampling_efficiency",
    "search_shift_for",
    "shift_for",
    "single_query_scale",
    "small_db_error",
    "small_db_size",
    "smooth_threshold",
    "steps_within",
    "zcdp_of",
}
METRICS = {("metric_privacy", "uniform")}  # unlike that of dpjax.random
ARRAYS = [
    (package, name)
    for package, name in functions()
    if not package.startswith(("release", "frames", "simulation", "bounds."))
    and name not in ON_HOST
]


def is_traced(leaf):
    if isinstance(leaf, np.ndarray | jax.Array):
        return jnp.issubdtype(leaf.dtype, jnp.floating)
    return isinstance(leaf, float)


def with_traced_arguments(package, name):
    """A function of the numbers in the call of the registry, and these numbers; lists are static,
    as their lengths are.
    """
    call, (arguments, options) = function(package, name), calls_of(package)[name]
    bound = inspect.signature(call).bind(*arguments, **options)
    varying = {
        key: value
        for key, value in bound.arguments.items()
        if key not in STATIC and not isinstance(value, list | tuple)
    }
    leaves, structure = jax.tree.flatten(varying)
    places = [at for at, leaf in enumerate(leaves) if is_traced(leaf)]

    def run(*numbers):
        whole = list(leaves)
        for at, number in zip(places, numbers, strict=True):
            whole[at] = number
        bound.arguments.update(jax.tree.unflatten(structure, whole))
        return call(*bound.args, **bound.kwargs)

    return run, [jnp.asarray(leaves[at], jnp.float32) for at in places]


@pytest.mark.parametrize(("package", "name"), ARRAYS)
def test_numbers_may_be_traced_or_must_be_concrete(package, name):
    """Float32 comes out of float32."""
    run, numbers = with_traced_arguments(package, name)
    error = error_of(jax.eval_shape, (run, *numbers), {}) if numbers else None
    assert (error is not None) == (name in CONCRETE or (package, name) in METRICS)
    if error is not None:
        assert type(error) is TypeError
        assert "concrete" in str(error) or "static" in str(error)
    elif numbers:
        for leaf in jax.tree.leaves(jax.eval_shape(run, *numbers)):
            assert leaf.dtype in (jnp.float32, jnp.int32, jnp.uint32, jnp.bool_)


@pytest.mark.slow
@pytest.mark.parametrize(("package", "name"), ARRAYS)
def test_a_program_returns_what_the_call_does(package, name):
    run, numbers = with_traced_arguments(package, name)
    if not numbers or name in CONCRETE or (package, name) in METRICS:
        return
    both = (jax.tree.leaves(call(*numbers)) for call in (jax.jit(run), run))
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-5, atol=1e-6)
