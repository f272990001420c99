"""Local float64 inside float32 programs: sums of 10^4 records near 10^6 that must be exact under
every transformation, which float32 cannot represent.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import Mesh, PartitionSpec

from dpjax.numerics.float64 import in_float64

pytestmark = pytest.mark.compat
ROWS, N = 4, 10_000
X = (1e6 + np.random.default_rng(0).normal(size=(ROWS, N))).astype(np.float32)
BETWEEN = np.array([[17, 9_981]] * ROWS, np.int32)
WANTED = X[:, 17:9981].sum(-1, dtype=np.float64) - 9964 * 1e6


@partial(jax.jit, inline=True)
def excess(x, between):
    """The sum of some records beyond 10^6 each: a difference of two sums near 10^10."""
    sums = jnp.cumsum(jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 0)]), axis=-1)
    start, end = jnp.moveaxis(jnp.take_along_axis(sums, between, axis=-1), -1, 0)
    return end - start - 1e6 * (between[..., 1] - between[..., 0]).astype(x.dtype)


def wide(x, between):
    return in_float64(excess, x, between)


def one_after_another(x, between):
    return jax.lax.scan(lambda carry, row: (carry, wide(*row)), 0.0, (x, between))[1]


def one_of_two(x, between):
    return jax.lax.cond(x[0, 0] > 0, wide, lambda x, _: x[:, 0], x, between)


def exported(x, between):
    return export.export(jax.jit(wide))(x, between).call(x, between)


def on_devices(x, between):
    rows = PartitionSpec("rows")
    mesh = Mesh(np.array(jax.devices()[:1]), ("rows",))
    return jax.jit(jax.shard_map(wide, mesh=mesh, in_specs=(rows, rows), out_specs=rows))(
        x, between
    )


def looped(x, between):
    return jax.lax.map(lambda row: wide(*row), (x, between), batch_size=2)


@pytest.mark.parametrize(
    "run",
    [
        wide,
        jax.jit(wide),
        jax.vmap(wide),
        jax.jit(jax.vmap(jax.jit(wide))),
        jax.jit(one_after_another),
        jax.jit(one_of_two),
        jax.jit(looped),
        exported,
        on_devices,
    ],
)
def test_sums_are_exact_under_every_transformation(run):
    found = run(X, BETWEEN)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, WANTED.astype(np.float32))


def test_control_float32_has_no_digit_left():
    assert (np.abs(excess(X, BETWEEN) - WANTED) > 10).all()


@pytest.mark.parametrize("outer", [jax.jit, jax.vmap, lambda f: jax.jit(jax.vmap(f))])
def test_gradients_are_float32_and_right(outer):
    def squared(x, between):
        return jnp.square(in_float64(excess, x, between)).sum()

    found = outer(jax.grad(squared))(X, BETWEEN)
    inside = (np.arange(N) >= 17) & (np.arange(N) < 9981)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, 2 * WANTED[:, None] * inside, rtol=1e-6)
    _, tangent = jax.jvp(partial(wide, between=BETWEEN), (X,), (np.ones_like(X),))
    np.testing.assert_array_equal(tangent, np.full(ROWS, 9964, np.float32))


def test_float64_stays_what_it_is(x64):
    found = in_float64(excess, jnp.asarray(X, jnp.float64), BETWEEN)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, WANTED)
