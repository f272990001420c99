"""What all batched pytrees share: rows by index, and a repr that says the batch and prints no array."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from math import prod
from operator import attrgetter
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.checks import is_traced
from dpjax.display import Shown, index_names


class Batch(Shown):
    """A pytree with a ``batch_shape``, whose fields broadcast against each other on the axes of the batch.

    ``batch[i]`` is its row i, ``batch[2:5]`` are three of them, as of a NumPy array; the index is static. A row of a distribution
    draws what row 0 draws: the randomness of a row comes from its number.
    """

    _event_axes: ClassVar[tuple[str, ...]] = ()  # fields that have an axis beside those of the batch; twice, where they have two
    _next_step: ClassVar[str] = ""  # what takes this, said where it does not fit
    _parameters: ClassVar[tuple[str, ...]] = ()  # public numbers that the repr shows, as paths of attributes

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields, without the axes of one event."""
        shapes = []
        for path, leaf in jax.tree_util.tree_leaves_with_path(self, is_leaf=self._is_part):
            shape = leaf.batch_shape if isinstance(leaf, Batch) else np.shape(leaf)
            shapes.append(shape[: max(len(shape) - self._event_axes.count(path[0].name), 0)])
        return jnp.broadcast_shapes(*shapes)

    @property
    def dtype(self) -> Any:
        """Float32 or float64: that of the first field."""
        first: Any = next(iter(vars(self).values()))
        return first.dtype

    def _is_part(self, leaf: Any) -> bool:
        return isinstance(leaf, Batch) and leaf is not self

    def __getitem__(self, index: Any) -> Self:
        rows = self._row_shape
        if not rows and index not in ((), ...):
            raise TypeError(f"this {type(self).__name__} has no batch axes: there is no row {index!r}.")
        return self._take(np.arange(prod(rows)).reshape(rows)[index], rows)

    @property
    def _row_shape(self) -> tuple[int, ...]:
        """The axes that an index chooses from."""
        return self.batch_shape

    def _first(self, rows: int) -> Self:
        """The first so many rows, on one axis; a single one as it is."""
        shape = self._row_shape
        return self._take(np.arange(min(rows, prod(shape))), shape) if shape else self

    def _take(self, numbers: np.ndarray, batch: tuple[int, ...], more: int = 0) -> Self:
        """The rows of these numbers, counted over ``batch``; what all rows share stays as it is.

        Args:
            numbers: of any shape, which becomes that of the batch.
            batch: that the rows are counted over.
            more: how many axes of this object's own batch lie behind those.
        """

        def some(path: tuple[Any, ...], leaf: Any) -> Any:
            axes = self._event_axes.count(path[0].name) + more
            if isinstance(leaf, Batch):
                return leaf._take(numbers, batch, axes)
            shape = np.shape(leaf)
            split = max(len(shape) - axes, 0)
            if split == 0:
                return leaf
            rows = prod(shape[:split])
            own = np.broadcast_to(np.arange(rows).reshape(shape[:split]), batch).reshape(-1)[numbers]
            return leaf.reshape(rows, *shape[split:])[own]

        return jax.tree_util.tree_map_with_path(some, self, is_leaf=self._is_part)

    def _row_names(self, rows: int) -> list[str]:
        return index_names(self.batch_shape, rows) if self.batch_shape else [""] * rows

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"batch_shape": self.batch_shape}
        if event_shape := getattr(self, "event_shape", ()):
            facts["event_shape"] = event_shape
        facts["dtype"] = jnp.dtype(self.dtype).name
        for path in self._parameters:
            if (number := span(attrgetter(path)(self))) is not None:
                facts[path.rpartition(".")[2]] = number
        fields: tuple[Any, ...] = dataclasses.fields(self) if dataclasses.is_dataclass(self) else ()
        for field in fields:
            value = getattr(self, field.name) if field.metadata.get("static") else None
            if value is not None and (value != field.default or field.name == "neighbors"):
                facts[field.name] = _text(value)
        return facts


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})" if len(value) < 5 else f"{len(value)} values"
    return str(value) if isinstance(value, Fraction) else repr(value)


def span(value: Any) -> str | None:
    """Return a number as text, or the least and the largest of several; None where they are not at hand."""
    if is_traced(value) or not (isinstance(value, float | np.ndarray | jax.Array) and np.size(value)):
        return None
    if isinstance(value, jax.Array) and (value.is_deleted() or not value.is_fully_addressable):
        return None
    low, high = np.min(value), np.max(value)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
