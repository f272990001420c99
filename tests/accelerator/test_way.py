"""The device under test goes the way of accelerators, also where the CPU stands in for one: else
nothing here would be tested.
"""

import jax
import numpy as np

import dpjax

X = np.zeros((4, 33), np.float32)


def profile(x):
    return dpjax.median(x, lower=-3, upper=3, neighbors="swap")


def lowered(on, function, *given):
    with on.way(), jax.default_device(on.device):
        return jax.jit(function).lower(*jax.device_put(given, on.device)).as_text()


def test_records_are_sorted_by_xla(under_test, on_cpu):
    text = lowered(under_test, profile, X)
    assert "stablehlo.sort" in text
    assert "dpjax_host_call" not in text
    assert "dpjax_host_call" in lowered(on_cpu, profile, X)


def test_what_was_traced_for_one_is_not_run_by_the_other(under_test, on_cpu):
    """One jitted function, in turns: each way makes its own program, whichever came first."""
    run = jax.jit(profile)
    texts = [lowered(on, run, X) for on in (on_cpu, under_test, on_cpu)]
    assert texts[0] == texts[2] != texts[1]
