"""Classes that are pytrees."""

import importlib
import itertools
import pkgutil
from dataclasses import FrozenInstanceError, field, fields, is_dataclass
from typing import Any

import jax
import pytest

import dpjax
from dpjax.pytrees import pytree


@pytree
class Pair:
    first: Any
    kind: str = field(metadata={"static": True})
    second: Any = 2.0


@pytree
class Other:
    first: Any
    kind: str = field(metadata={"static": True})
    second: Any = 2.0

    def __repr__(self):
        return "another"


def test_a_frozen_dataclass_with_static_fields():
    pair = Pair(1.0, "a")
    paths, structure = jax.tree_util.tree_flatten_with_path(pair)
    assert [(jax.tree_util.keystr(path), leaf) for path, leaf in paths] == [
        (".first", 1.0),
        (".second", 2.0),
    ]
    assert structure == jax.tree.structure(pair)
    assert structure != jax.tree.structure(Pair(1.0, "b"))
    assert jax.tree.map(lambda leaf: leaf + 1, pair) == Pair(2.0, "a", 3.0)
    assert (repr(pair), repr(Other(1.0, "a"))) == (
        "Pair(first=1.0, kind='a', second=2.0)",
        "another",
    )
    with pytest.raises(FrozenInstanceError):
        pair.first = 3.0


def structures():
    """Of every class of the library that is a pytree, with a number in each field."""
    found = {}
    for module in pkgutil.walk_packages(dpjax.__path__, "dpjax."):
        if module.name in ("dpjax.__main__", "dpjax.distributions.numpyro_adapter"):
            continue
        for cls in vars(importlib.import_module(module.name)).values():
            if isinstance(cls, type) and is_dataclass(cls) and cls not in found:
                one = object.__new__(cls)
                for each in fields(cls):
                    object.__setattr__(one, each.name, 0)
                if jax.tree.structure(one) != jax.tree.structure(0):
                    found[cls] = jax.tree.structure(one)
    return found


def test_structures_of_two_classes_are_never_equal():
    """Otherwise a program of one class may serve another, with dataclasses that JAX registers."""
    of_classes = structures() | {cls: jax.tree.structure(cls(0, "a")) for cls in (Pair, Other)}
    assert len(of_classes) > 25
    for one, other in itertools.combinations(of_classes.values(), 2):
        assert one != other
