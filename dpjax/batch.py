"""Base class of batched pytrees: indexing by row, and a repr that shows the batch but no array."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from functools import partial
from math import prod
from operator import attrgetter
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.checks import is_traced
from dpjax.display import Shown


class Batch(Shown):
    """A pytree with a ``batch_shape``.

    Its fields broadcast against each other along the batch axes. ``batch[i]`` is row i and
    ``batch[2:5]`` are three rows, as for a NumPy array; the index is static. A row taken out of a
    distribution draws what row 0 draws, because the randomness of a row is derived from its index.

    Fields that rows share have axes of size 1 there.
    """

    # Fields with a trailing event axis; named once per axis
    _event_axes: ClassVar[tuple[str, ...]] = ()
    _next_step: ClassVar[str] = ""  # which function accepts this object, for error messages
    _whole: ClassVar[bool] = False  # whether :func:`dpjax.pytrees.pytree` made the class
    # Dotted attribute paths of public numbers for the repr
    _parameters: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if self._whole:  # JAX may make a class of a user of anything
            vars(self).update(vars(self._with_rank(len(self.batch_shape))))

    def _with_rank(self, rank: int) -> Self:
        """Return the same with as many batch axes: ``vmap`` and ``scan`` add one in front."""

        def wider(path: tuple[Any, ...], leaf: Any) -> Any:
            axes = rank + self._event_axes.count(path[0].name)
            if isinstance(leaf, Batch):
                return leaf._with_rank(axes)
            more = (None,) * (axes - np.ndim(leaf))
            array = leaf if hasattr(leaf, "shape") else jnp.asarray(leaf)  # of no dtype of its own
            return array[more] if more else leaf

        return jax.tree_util.tree_map_with_path(wider, self, is_leaf=self._is_part)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields, without their event axes."""
        shapes = []
        for path, leaf in jax.tree_util.tree_leaves_with_path(self, is_leaf=self._is_part):
            shape = leaf.batch_shape if isinstance(leaf, Batch) else np.shape(leaf)
            shapes.append(shape[: max(len(shape) - self._event_axes.count(path[0].name), 0)])
        return jnp.broadcast_shapes(*shapes)

    @property
    def dtype(self) -> Any:
        """The dtype of the first field, float32 or float64."""
        first: Any = next(iter(vars(self).values()))
        return first.dtype

    def _is_part(self, leaf: Any) -> bool:
        return isinstance(leaf, Batch) and leaf is not self

    def __getitem__(self, index: Any) -> Self:
        rows = self.batch_shape
        if not rows and index not in ((), ...):
            raise TypeError(
                f"this {type(self).__name__} has no batch axes: there is no row {index!r}."
            )
        return self._take(index, rows)

    @partial(jax.jit, static_argnames="rows")
    def _first(self, rows: int) -> Self:
        """Return the first ``rows`` rows on one axis, or the object if it has no batch axes."""
        shape = self.batch_shape
        chosen = np.unravel_index(np.arange(min(rows, prod(shape))), shape) if shape else ()
        return self._take(chosen, shape)

    def _take(self, index: Any, batch: tuple[int, ...], more: int = 0) -> Self:
        """Return the rows with this index into the batch shape, as NumPy reads it.

        Fields without batch axes are returned unchanged.

        Args:
            index: of rows.
            batch: the shape of what is indexed.
            more: how many trailing batch axes of this object are not part of ``batch``.
        """

        def some(path: tuple[Any, ...], leaf: Any) -> Any:
            axes = self._event_axes.count(path[0].name) + more
            if isinstance(leaf, Batch):
                return leaf._take(index, batch, axes)
            shape = np.shape(leaf)
            split = max(len(shape) - axes, 0)
            if split == 0:
                return leaf
            # Numbers of rows are broadcast, as the array may be much smaller than the batch
            numbers = np.arange(prod(shape[:split])).reshape(shape[:split])
            chosen = np.broadcast_to(numbers, batch)[index]
            return leaf.reshape(numbers.size, *shape[split:])[chosen]

        return jax.tree_util.tree_map_with_path(some, self, is_leaf=self._is_part)

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"batch_shape": self.batch_shape}
        if event_shape := getattr(self, "event_shape", ()):
            facts["event_shape"] = event_shape
        facts["dtype"] = jnp.dtype(self.dtype).name
        for path in self._parameters:
            if (number := span(attrgetter(path)(self))) is not None:
                facts[path.rpartition(".")[2]] = number
        this: Any = self
        for field in dataclasses.fields(this):
            value = getattr(self, field.name) if field.metadata.get("static") else None
            if value is not None and (value != field.default or field.name == "neighbors"):
                facts[field.name] = _text(value)
        return facts


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})" if len(value) < 5 else f"{len(value)} values"
    return str(value) if isinstance(value, Fraction) else repr(value)


def span(value: Any) -> str | None:
    """Return a number as text, or "least to largest" for several.

    None if the values are not available.
    """
    if is_traced(value) or not (
        isinstance(value, float | np.ndarray | jax.Array) and np.size(value)
    ):
        return None
    if isinstance(value, jax.Array) and (value.is_deleted() or not value.is_fully_addressable):
        return None
    low, high = np.min(value), np.max(value)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
