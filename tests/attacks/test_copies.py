"""Public objects come back from ``replace``, copies, pickles, pytrees and JSON as they were, and
show themselves without their arrays.

A promise that a copy loses or a field that it computes anew is an attack by ordinary means. What
accounting makes has tests of its own in ``accounting``, and budgets are no values.
"""

import copy
import dataclasses
import json
import pickle
import xml.etree.ElementTree as ET

import jax
import numpy as np
import pytest

from tests.contracts.calls import KEY
from tests.contracts.objects import NAMES, made
from tests.contracts.public import classes

VALUES = [(package, name) for package, name in NAMES if package != "accounting"]
IN_NOTEBOOKS = {"Composition", "Estimate", "FrameResult", "SensitivityProfile", "SortedRecords"}


def same(one, other):
    """Equal in every field, down to the type, the dtype, NaN and the sign of zero."""
    if type(one) is not type(other):
        return False
    if isinstance(one, jax.Array | np.ndarray):
        a, b = np.asarray(one), np.asarray(other)
        return (
            a.dtype == b.dtype
            and a.shape == b.shape
            and (a.tobytes() == b.tobytes() if a.dtype != object else (a == b).all())
        )
    if dataclasses.is_dataclass(one):
        return all(
            same(getattr(one, field.name), getattr(other, field.name))
            for field in dataclasses.fields(one)
        )
    if hasattr(one, "equals"):  # a frame
        return one.equals(other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    return one == other


@pytest.mark.parametrize(("package", "name"), VALUES)
def test_it_comes_back_as_it_was(package, name):
    """An object that is equal to the bit draws alike: one kind does draw."""
    one = made(package, name)
    ways = {
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
        "pickle": lambda one: pickle.loads(pickle.dumps(one)),
    }
    if dataclasses.is_dataclass(one):
        ways["replace"] = dataclasses.replace
    leaves, structure = jax.tree.flatten(one)
    if leaves and leaves[0] is not one:
        ways["pytree"] = lambda one: jax.tree.unflatten(structure, leaves)
        assert jax.tree.structure(copy.deepcopy(one)) == structure
    if hasattr(one, "from_json"):
        ways["json"] = lambda one: type(one).from_json(json.dumps(json.loads(one.to_json())))
    for way, back in ways.items():
        assert same(back(one), one), way
        if name == "PiecewiseExponential":
            assert same(back(one).sample(KEY), one.sample(KEY)), way


def test_controls_a_field_that_changes_is_seen():
    profile = made("sensitivity", "SensitivityProfile")
    for field in dataclasses.fields(profile):
        value = getattr(profile, field.name)
        if value is not None:
            other = dataclasses.replace(
                profile, **{field.name: -value if isinstance(value, jax.Array) else "another"}
            )
            assert not same(other, profile), field.name
    assert not same(np.array([0.0]), np.array([-0.0]))
    assert not same(np.float32([1]), np.float64([1]))
    rate = made("distributions", "PiecewiseExponential")
    assert not same(dataclasses.replace(rate, rate=2 * rate.rate).sample(KEY), rate.sample(KEY))


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_an_object_shows_itself(package, name):
    shown = made(package, name)
    assert type(shown) is classes()[package, name]
    assert type(shown).__name__ in repr(shown) or str(shown) in repr(shown)
    tables = ("FrameResult", "Release")  # to be printed
    if not isinstance(shown, tuple) and name not in tables:
        assert "\n" not in repr(shown)
        assert len(repr(shown)) < 400  # no arrays
    if name in IN_NOTEBOOKS:
        table = shown._repr_html_()  # None, where a notebook shows the repr
        assert table is None or {"td", "pre"} & {each.tag for each in ET.fromstring(table).iter()}
