"""Frozen dataclasses that are pytrees."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

import jax
from jax.tree_util import GetAttrKey

Class = TypeVar("Class", bound=type)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def pytree(cls: Class) -> Class:
    """Make the class a frozen dataclass and a pytree.

    Fields with ``metadata={"static": True}`` belong to the structure. So does the class, unlike
    with ``jax.tree_util.register_dataclass``: JAX 0.10 to 0.12 take the structures of all its
    classes with as many fields for equal, and then, where hashes happen to collide, a program that
    was compiled for one class serves another.
    """
    made: Any = dataclass(frozen=True, repr=cls.__repr__ is object.__repr__)(cls)
    made._whole = True
    static = [one.name for one in fields(made) if one.metadata.get("static")]
    names = [one.name for one in fields(made) if one.name not in static]
    keys = [GetAttrKey(name) for name in names]

    def flatten(tree: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(tree, name) for name in names], tuple(getattr(tree, n) for n in static)

    def with_keys(tree: Any) -> tuple[list[Any], tuple[Any, ...]]:
        leaves, structure = flatten(tree)
        return list(zip(keys, leaves, strict=True)), structure

    def unflatten(structure: tuple[Any, ...], leaves: Any) -> Any:
        tree = object.__new__(made)  # JAX may put anything into it
        vars(tree).update(zip(names + static, (*leaves, *structure), strict=True))
        return tree

    jax.tree_util.register_pytree_with_keys(made, with_keys, unflatten, flatten)
    return made
