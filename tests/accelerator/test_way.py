"""The device under test goes the way of accelerators, also where the CPU stands in for one: else
nothing here would be tested.
"""

import jax
import numpy as np

import dpjax
from tests.support.lowering import traced_conditions

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


def test_rows_are_weighed_again_at_once_and_not_in_turns(under_test, on_cpu):
    """Where the mass of some row is far from cost 0: by one condition; on the CPU by a loop over
    rows that stay in the cache.
    """
    text = lowered(under_test, draw, jax.random.key(0), X)
    assert "stablehlo.while" not in text
    assert len(traced_conditions(text)) == 1
    assert "stablehlo.while" in lowered(on_cpu, draw, jax.random.key(0), X)


def test_what_was_traced_for_one_is_not_run_by_the_other(under_test, on_cpu):
    """One jitted function, in turns: each way makes its own program, whichever came first."""
    run = jax.jit(draw)
    texts = [lowered(on, run, jax.random.key(0), X) for on in (on_cpu, under_test, on_cpu)]
    assert texts[0] == texts[2] != texts[1]
