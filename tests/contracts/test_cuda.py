"""What a GPU would be given: every pipeline is lowered for CUDA on whatever machine this runs on,
and its program is read.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from dpjax.numerics.arrays import by_platform
from dpjax.numerics.host_call import host_call
from dpjax.statistics import without_host_calls
from tests.contracts.pipelines import DRAWN, FURTHER, PIPELINES
from tests.contracts.test_pipelines import KINDS
from tests.support.devices import as_on_other_devices
from tests.support.lowering import (
    host_calls,
    rounded_products,
    traced_loops,
    turns,
)

# Turns of all loops, one after the other, for 64 rows of 1001 records, where they are more than
# 200, and what they are made of.
TURNS = {
    "clamped smooth cauchy": 400,
    "inv of a variance": 2000,  # windows are searched one length after the other
    "smooth laplace": 1100,  # the largest rise is searched one distance after the other
    "smooth laplace of a quantile": 5000,
    "clamped smooth laplace-log-normal": 1600,
    "joint quantiles": 300_000,  # rows one after the other, draws too, each with its own number
    "joint quantiles on a grid": 6000,
    "k-norm": 2900,  # integrals over shells, at each step of a bisection
    "plm of vectors": 2900,
    "planar laplace": 2900,
}
BY_DEFAULT = {"above threshold", "k-norm", "noisy tree"}
BY_DEFAULT |= {"propose-test-release", *KINDS, *DRAWN}
KEY = jax.ShapeDtypeStruct((), jax.random.key(0).dtype)
FEW, ROWS = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((6, 21), (64, 1001)))
PUBLIC = (jax.ShapeDtypeStruct((), np.float32),) * 3
OF_FEW = ("selection under a metric",)  # its metric is of 21 elements


@pytest.fixture(scope="module", autouse=True)
def _for_any_device():
    with without_host_calls():
        yield


def lowered(function, *given, platform="cuda"):
    """The text of a program as ``jax.export`` writes it."""
    return export.export(jax.jit(function), platforms=[platform])(*given).mlir_module()


def faults(text):
    found = {
        "host calls": host_calls(text),
        "products in few digits": rounded_products(text),
        "traced loops": traced_loops(text),
    }
    return {name: lines for name, lines in found.items() if lines}


def draws_and_errors(key, distribution):
    """One draw, many draws and the error bar of a distribution."""
    found = {"one": distribution.sample(key), "many": distribution.sample(key, (100,))}
    if hasattr(distribution, "mean_norm_error"):
        return found | {"error": distribution.mean_norm_error()}
    if hasattr(distribution, "mean_abs_error"):
        return found | {"error": distribution.mean_abs_error(0.0)}
    return found


def read(function, *given):
    """The faults of a program for CUDA, and how many turns its loops take one after the other."""
    with as_on_other_devices():
        traced = jax.jit(function).trace(*given)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    return faults(text), turns(traced.jaxpr.jaxpr)


@cache
def read_kind(distribution):
    """Of the draws and errors of a distribution, by its shapes: all of a kind share them."""
    structure, leaves = distribution
    leaves = [jax.ShapeDtypeStruct(*leaf) for leaf in leaves]
    return read(draws_and_errors, KEY, jax.tree.unflatten(structure, leaves))


@pytest.mark.parametrize(
    "name",
    [
        name if name in BY_DEFAULT else pytest.param(name, marks=pytest.mark.slow)
        for name in (*PIPELINES, *FURTHER, *DRAWN)
    ],
)
def test_a_program_for_cuda_stays_on_the_device_and_its_loops_have_few_turns(name):
    """A device starts a kernel for each step of each turn, which takes longer than working on all
    numbers of a row at once.
    """
    data = FEW if name in OF_FEW else ROWS
    if name in DRAWN:
        found, number = read(DRAWN[name], KEY, data, *PUBLIC)
    else:
        pipeline = (PIPELINES | FURTHER)[name]
        found, number = read(pipeline, data, *PUBLIC)
        leaves, structure = jax.tree.flatten(jax.eval_shape(pipeline, data, *PUBLIC))
        of_draws, further = read_kind(
            (structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))
        )
        found, number = found | of_draws, number + further
    assert found == {}
    assert number <= TURNS.get(name, 200)


def test_turns_are_counted():
    def once(x):
        return jax.lax.fori_loop(0, 30, lambda _, x: x + 1, x)

    def nested(x):
        return once(jax.lax.scan(lambda x, _: (once(x), None), x, length=7)[0])

    assert [turns(jax.make_jaxpr(f)(0.0).jaxpr) for f in (lambda x: x, once, nested)] == [
        0,
        30,
        240,
    ]


def test_the_platform_that_is_lowered_for_decides():
    """Also on a machine without an accelerator: the program for CUDA is not the one for the CPU,
    one for both has both ways.
    """

    def way(x):
        return by_platform(x, cpu=lambda x: jnp.sin(x), default=lambda x: jnp.cos(x))

    one = jax.ShapeDtypeStruct((), np.float32)
    found = {platform: lowered(way, one, platform=platform) for platform in ("cpu", "cuda", "tpu")}
    for way_of, platforms in (("sine", ["cpu"]), ("cosine", ["cuda", "tpu"])):
        assert [p for p, text in found.items() if f"stablehlo.{way_of}" in text] == platforms
    both = export.export(jax.jit(way), platforms=["cpu", "cuda"])(one).mlir_module()
    assert "stablehlo.sine" in both
    assert "stablehlo.cosine" in both


# --- what must be caught ---


def noted(results, x):
    results[0][:] = x


def test_a_host_call_is_caught():
    def call(x):
        return host_call(noted, [jax.ShapeDtypeStruct(x.shape, x.dtype)], x)[0]

    def callback(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    for function, target in ((call, "dpjax_host_call"), (callback, "callback")):
        text = jax.jit(function).lower(jnp.zeros(3)).as_text()
        assert target in faults(text)["host calls"][0]
    # A library of the device is none
    assert not host_calls(jax.jit(jnp.linalg.cholesky).lower(jnp.eye(3)).as_text())


def test_a_product_in_few_digits_is_caught():
    matrices = (jax.ShapeDtypeStruct((3, 3), np.float32),) * 2
    assert rounded_products(lowered(jnp.matmul, *matrices))
    assert not rounded_products(
        lowered(lambda a, b: jnp.matmul(a, b, precision="highest"), *matrices)
    )
    assert not rounded_products(lowered(jnp.matmul, *(jax.ShapeDtypeStruct((3, 3), np.int32),) * 2))


LOOPS = {
    "as many turns as asked": (lambda n: jax.lax.fori_loop(0, n, lambda _, x: x * 2 + 1, n), True),
    "until it is small": (lambda n: jax.lax.while_loop(lambda x: x > 3, lambda x: x // 2, n), True),
    "from a traced start": (
        lambda n: jax.lax.while_loop(lambda x: x < 9, lambda x: x + 1, n),
        True,
    ),
    "a counter that another number moves": (
        lambda n: jax.lax.while_loop(
            lambda s: s[0] < 9, lambda s: (s[0] + s[1], s[1]), (jnp.int32(0), n)
        ),
        True,
    ),
    "inside a loop of ten turns": (
        lambda n: jax.lax.fori_loop(
            0, 10, lambda _, x: jax.lax.fori_loop(0, n, lambda _, y: y + 3, x), n
        ),
        True,
    ),
    "ten turns": (lambda n: jax.lax.fori_loop(0, 10, lambda _, x: x * 2 + 1, n), False),
    "a scan": (
        lambda n: jax.lax.scan(lambda x, y: (x + y, x), n, np.arange(7, dtype=np.int32)),
        False,
    ),
    "a map": (lambda n: jax.lax.map(lambda y: y * n, np.arange(7, dtype=np.int32)), False),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_with_a_traced_number_of_turns_is_caught(name):
    function, is_traced = LOOPS[name]
    text = lowered(function, jax.ShapeDtypeStruct((), np.int32))
    assert text.count("stablehlo.while(") >= 1
    assert len(traced_loops(text)) == is_traced
