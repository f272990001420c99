"""A draw and an error bar stay small programs: most of the time of tests, notebooks and the command
line is compilation.
"""

import jax
import jax.numpy as jnp
import pytest

import dpjax


def operations(function, *args):
    """How many operations the program has before the compiler sees it."""
    return sum(" = " in line for line in jax.jit(function).lower(*args).as_text().splitlines())


@pytest.fixture(scope="module")
def profile():
    return dpjax.median(jnp.zeros((8, 33)), lower=-1.0, upper=1.0, neighbors="swap")


PROGRAMS = {
    "one draw": (lambda key, d: d.sample(key), 1850),
    "many draws": (lambda key, d: d.sample(key, (1000,)), 1700),
    "mean absolute error": (lambda key, d: d.mean_abs_error(0.0), 1100),
    "interval": (lambda key, d: d.interval(0.95), 950),
}


@pytest.mark.parametrize(
    "name",
    [
        "one draw",
        "mean absolute error",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("many draws", "interval")),
    ],
)
def test_programs_are_small(name, profile):
    function, most = PROGRAMS[name]
    found = operations(function, jax.random.key(0), dpjax.piecewise_laplace(profile, 1.0))
    assert most / 4 < found <= most, found  # the lower end: the count sees something


def test_plain_laplace_noise_does_not_carry_the_pieces():
    found = operations(
        lambda key: dpjax.laplace(jnp.zeros(8), 1.0, sensitivity=1.0).sample(key), jax.random.key(0)
    )
    assert found <= 1300, found
