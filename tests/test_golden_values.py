"""The library still computes what it computed when ``tests/golden/v01_*.json`` was recorded (see ``tests/golden/README.md``)."""

import jax
import numpy as np
import pytest

from tests.golden import compare
from tests.golden.cases import FAMILIES

ALL = [(name, dtype) for name, family in FAMILIES.items() for dtype in family.dtypes]
QUICK = [(name, dtype) for name, family in FAMILIES.items() for dtype in family.quick if dtype in family.dtypes]


@pytest.fixture
def precision(request):
    """As the fixture ``x64``, in either direction."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param == "float64")
    yield request.param
    jax.config.update("jax_enable_x64", before)


def compared(name, dtype, quick):
    family = FAMILIES[name]
    recorded = compare.load(dtype)[family.recorded_as or name]
    computed = family.compute(quick)
    missing = [] if quick or family.recorded_as else sorted(recorded.keys() - computed.keys())
    assert computed
    assert not missing
    assert not compare.differences(computed, recorded, dtype)


@pytest.mark.parametrize(("name", "precision"), QUICK, indirect=["precision"])
def test_some_values_are_those_recorded(name, precision):
    compared(name, precision, quick=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision"), ALL, indirect=["precision"])
def test_all_values_are_those_recorded(name, precision):
    compared(name, precision, quick=False)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_change_of_ten_times_the_tolerance_is_seen(dtype):
    """Of every single quantity, at its first and its largest number; and no difference is seen where there is none."""
    for name, cases in compare.load(dtype).items():
        assert not compare.differences(cases, cases, dtype)
        for case, quantities in cases.items():
            for quantity, recorded in quantities.items():
                for at, changed in perturbed(quantity, recorded, dtype):
                    seen = compare.differences({case: {quantity: recorded}}, {case: {quantity: changed}}, dtype)
                    assert len(seen) == 1, f"{name}, {case}, {quantity} at {at}"


def perturbed(quantity, recorded, dtype):
    if quantity.endswith("exact"):
        yield "all", [recorded]
        return
    flat = np.asarray(recorded, np.float64)
    finite = np.flatnonzero(np.isfinite(flat))
    if finite.size:
        allowed = compare.tolerance_of(quantity).of(flat, dtype).reshape(-1)
        for at in {int(finite[0]), int(finite[np.argmax(np.abs(flat.reshape(-1)[finite]))])}:
            changed = flat.reshape(-1).copy()
            changed[at] += max(10 * allowed[at], np.spacing(np.abs(changed[at])), 1e-300)
            yield at, changed.reshape(flat.shape).tolist()
    for at in np.flatnonzero(~np.isfinite(flat))[:1]:
        changed = flat.reshape(-1).copy()
        changed[at] = 0.0
        yield at, changed.reshape(flat.shape).tolist()
