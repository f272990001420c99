"""The device under test goes the way of accelerators, also where the CPU stands in for one: else nothing here would be tested."""

import jax
import numpy as np

import dpjax

X = np.zeros((4, 33), np.float32)


def profile(x):
    return dpjax.median(x, lower=-3, upper=3, neighbors="swap")


def draw(key, x):
    return dpjax.piecewise_laplace(profile(x), 1.0).sample(key)


def lowered(on, function, *given):
    with on.way(), jax.default_device(on.device):
        return jax.jit(function).lower(*jax.device_put(given, on.device)).as_text()


def test_records_are_sorted_by_xla(under_test, on_cpu):
    text = lowered(under_test, profile, X)
    assert "stablehlo.sort" in text
    assert "dpjax_host_call" not in text
    assert "dpjax_host_call" in lowered(on_cpu, profile, X)


def test_few_draws_are_another_program(under_test, on_cpu):
    """Gumbel-max over all pieces has no loop; the CPU's way has one in which rows are weighed again."""
    assert "stablehlo.while" not in lowered(under_test, draw, jax.random.key(0), X)
    assert "stablehlo.while" in lowered(on_cpu, draw, jax.random.key(0), X)


def test_what_was_traced_for_one_is_not_run_by_the_other(under_test, on_cpu):
    """One jitted function, in turns: its draws are those of each way, whichever came first."""
    run, key = jax.jit(draw), jax.random.key(0)
    x = np.random.default_rng(0).normal(size=X.shape).astype(np.float32)
    first, second, again = (on(run, key, x) for on in (on_cpu, under_test, on_cpu))
    np.testing.assert_array_equal(first, again)
    assert (first != second).all()
