"""NumPy functions inside compiled programs: what they see and write, and that nothing waits for
ever.
"""

import os
import subprocess
import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax.numerics import host_call


def twice(outs, x, *masks):
    (out,) = outs
    out[...] = 2 * x
    for mask in masks:
        out[mask] = 0


def call(x, *masks, function=twice):
    return host_call.host_call(function, [jax.ShapeDtypeStruct(x.shape, x.dtype)], x, *masks)[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_function_gets_views_and_fills_the_result(dtype, x64):
    x = np.arange(24, dtype=dtype).reshape(2, 3, 4)
    found = jax.jit(lambda x: call(x + 1, x > 20) - 1)(x)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.where(x > 20, 0, 2 * (x + 1)) - 1)
    np.testing.assert_array_equal(jax.jit(jax.vmap(call, in_axes=1, out_axes=1))(x), 2 * x)
    assert jax.jit(call)(np.zeros((3, 0), dtype)).shape == (3, 0)


@dataclass(frozen=True)
class Same:
    """Equal functions are one, however often a program is traced."""

    number: int

    def __call__(self, outs, x):
        outs[0][...] = x + self.number


def fails(outs, x):
    raise ZeroDivisionError("on purpose")


@pytest.fixture
def seen(monkeypatch):
    """The exceptions that are printed."""
    found = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: found.append(error))
    return found


def test_an_exception_becomes_nan_and_is_printed(seen):
    assert np.isnan(jax.jit(lambda x: call(x, function=fails))(np.zeros(2, np.float32))).all()
    assert isinstance(seen[0], ZeroDivisionError)


def test_equal_functions_are_kept_once_and_a_program_of_another_process_gets_no_result(
    seen, monkeypatch
):
    x = np.zeros(2, np.float32)
    kept = {}
    monkeypatch.setattr(host_call, "_functions", kept)
    for _ in range(3):
        program = jax.jit(lambda x: call(x, function=Same(1))).lower(x).compile()
        assert program(x).tolist() == [1.0, 1.0]
    assert len(kept) == 1
    kept.clear()
    assert np.isnan(program(x)).all()
    assert "another process" in str(seen[0])


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"),
    reason="the system does not say which cores a process may use",
)
def test_one_core_does_not_wait_for_itself():
    """``jax.pure_callback`` does, with any program that runs while its own inputs are still being
    copied.
    """
    program = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import jax, numpy as np
from dpjax import median
x = np.random.default_rng(0).normal(size=(4096, 1001)).astype(np.float32)
of = lambda x: median(x, lower=-4, upper=4, neighbors="swap").upper.sum()
sums = [jax.jit(lambda x: of(x))(x + i) for i in range(5)]
print(np.isfinite(sums).all())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "True", done.stderr[-2000:]


def test_a_script_ends_whose_last_program_still_sorts():
    program = """
import functools, jax, jax.numpy as jnp, dpjax
x = jnp.zeros((4000, 1000))
median = jax.jit(functools.partial(dpjax.median, lower=-1, upper=1, neighbors="swap"))
jax.block_until_ready(median(x))
median(x)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_sort_uses_it_on_the_cpu():
    """Otherwise what is tested here would be of no use."""

    def run(x):
        return dpjax.median(x, lower=0, upper=1, neighbors="swap").upper

    assert ("dpjax_host_call" in jax.jit(run).lower(jnp.zeros((3, 4))).as_text()) == (
        jax.default_backend() == "cpu"
    )
