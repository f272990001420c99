"""What a GPU would be given: every pipeline is lowered for CUDA on whatever machine this runs on,
and its program is read.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import dpjax
from dpjax.numerics.arrays import by_platform
from dpjax.numerics.host_call import host_call
from dpjax.statistics import without_host_calls
from tests.contracts.pipelines import DRAWN, FURTHER, PIPELINES
from tests.contracts.test_pipelines import KINDS
from tests.support.devices import as_on_other_devices
from tests.support.lowering import (
    float64s,
    host_calls,
    rounded_products,
    traced_conditions,
    traced_loops,
    turns,
)

# Loops whose number of turns depends on what they work on, and why they may.
INHERENT = {
    "laplace under a metric": "the least noise is searched until it is found, once for a public "
    "metric and its queries",
}
# Sums that are local float64, by design.
IN_FLOAT64 = {"joint quantiles", "joint quantiles on a grid"}
# Turns of all loops, one after the other, for 64 rows of 1001 records, where they are more than
# 200, and what they are made of.
TURNS = {
    "inv of a variance": 2000,  # windows are searched one length after the other
    "smooth laplace": 1100,  # the largest rise is searched one distance after the other
    "smooth laplace of a quantile": 5000,
    "clamped smooth laplace-log-normal": 1600,
    "joint quantiles": 300_000,  # rows one after the other, draws too, each with its own number
    "joint quantiles on a grid": 6000,
    "k-norm": 1100,  # integrals over shells
    "plm of vectors": 1100,
    "planar laplace": 1100,
}
BY_DEFAULT = {"above threshold", "inv of a quantile", "k-norm", "noisy tree", "plm of a mean"}
BY_DEFAULT |= {"joint quantiles on a grid", "propose-test-release"}
BY_DEFAULT |= {*KINDS, *DRAWN}
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
        "float64": float64s(text),
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
    if name in INHERENT:
        assert found.pop("traced loops")  # else it goes from the list
    if name in IN_FLOAT64:
        assert found.pop("float64")
    assert found == {}
    assert number <= TURNS.get(name, 200)


def test_few_draws_have_one_condition():
    """Whether the mass of some row is so far from cost 0 that all rows are weighed again."""

    def draw(key, x):
        profile = dpjax.median(x, lower=-3, upper=3, neighbors="swap")
        return dpjax.piecewise_laplace(profile, 1.0, rho=0.01).sample(key)

    text = lowered(draw, KEY, jax.ShapeDtypeStruct((8192, 1023), np.float32))
    assert faults(text) == {}
    assert len(traced_conditions(text)) == 1
    # Without which XLA runs both branches on a GPU
    assert text.count("stablehlo.optimization_barrier") == 3


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
    assert {
        platform: ("stablehlo.sine" in text, "stablehlo.cosine" in text)
        for platform, text in found.items()
    } == {
        "cpu": (True, False),
        "cuda": (False, True),
        "tpu": (False, True),
    }
    both = export.export(jax.jit(way), platforms=["cpu", "cuda"])(one).mlir_module()
    assert "stablehlo.sine" in both
    assert "stablehlo.cosine" in both


def test_one_draw_is_chosen_another_way_on_cuda_than_on_the_cpu():
    def draw(key, widths):
        return dpjax.sample_intervals(key, widths, np.arange(21, dtype=np.float32), epsilon=1.0)

    cpu, cuda = (lowered(draw, KEY, FEW, platform=platform) for platform in ("cpu", "cuda"))
    assert traced_loops(cpu)  # weights from another base, a cacheful of rows at a time
    assert traced_conditions(cpu)  # what is kept in memory
    assert not traced_loops(cuda)
    assert len(traced_conditions(cuda)) == 1 < len(traced_conditions(cpu))


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


def test_float64_is_caught(x64):
    for shape in ((), (3,)):
        given = jax.ShapeDtypeStruct(shape, np.float32)
        assert "float64" in faults(
            lowered(lambda x: x.astype(np.float64).astype(np.float32), given)
        )
        assert faults(lowered(lambda x: x + np.float32(3), given)) == {}


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
