"""What every public object is: one line in a console, a table in a notebook, a plot or a reason."""

import xml.etree.ElementTree as ET

import pytest

from tests.contracts.objects import ABSTRACT, NAMES, OBJECTS, made
from tests.contracts.public import classes

IN_NOTEBOOKS = {"Estimate", "FrameResult", "Guarantee", "Release", "SensitivityProfile"}


def test_every_public_class_has_an_object():
    listed = {(package, name) for package, each in OBJECTS.items() for name in each}
    assert listed | ABSTRACT == set(classes())


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_an_object_shows_itself(package, name):
    shown = made(package, name)
    assert type(shown) is classes()[package, name]
    assert type(shown).__name__ in repr(shown) or str(shown) in repr(shown)
    if not isinstance(shown, tuple) and name != "FrameResult":  # a table, to be printed
        assert "\n" not in repr(shown)
        assert len(repr(shown)) < 400  # no arrays


@pytest.mark.parametrize(
    ("package", "name"),
    [
        pytest.param(package, name, marks=[pytest.mark.slow] * (name not in IN_NOTEBOOKS))
        for package, name in NAMES
        if hasattr(classes()[package, name], "_repr_html_")
    ],
)
def test_a_notebook_shows_it(package, name):
    tree = ET.fromstring(f"<div>{made(package, name)._repr_html_()}</div>")
    assert "".join(tree.itertext()).strip()
