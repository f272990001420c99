"""Programs from records to draws that ``jax.export`` writes, to be read by JAX alone."""

import jax
import numpy as np
import pytest
from jax import export

import dpjax
from dpjax.statistics import without_host_calls

X = np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)


def draw(key, x):
    return dpjax.piecewise_laplace(
        dpjax.median(x, lower=-5, upper=5, neighbors="swap"), 1.0
    ).sample(key)


def test_a_program_from_records_to_draws_survives_the_journey():
    pytest.importorskip("flatbuffers", reason="jax.export needs it to write")
    key = jax.random.key(0)
    wanted = jax.jit(draw)(key, X)
    with without_host_calls():
        exported = export.export(jax.jit(draw), platforms=["cpu", "cuda"])(key, X)
    assert "dpjax_host_call" not in exported.mlir_module()
    assert export.deserialize(exported.serialize()).call(key, X).tolist() == wanted.tolist()
