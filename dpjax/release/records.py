"""The records of a release, on the host: which grid they are rounded to, which of them are present, how often each occurs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.release import integer_profiles
from dpjax.release.grid import as_array, as_integers, clip_integers, refuse_text

Read = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # numbers of a grid, and which records are present


class Records:
    """Records as rows, of which some are read at a time.

    Attributes:
        grid: the numbers that they are read as; without one ``read`` says how.
        batch: the leading axes of ``x``.
        size: how many records a row has room for.
        neighbors: the relation.
    """

    def __init__(
        self,
        x: Any,
        grid: Any,
        neighbors: Neighbors,
        mask: Any = None,
        n_max: int | None = None,
        person_ids: Any = None,
        counts: Any = None,
        read: Read | None = None,
    ) -> None:
        checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
        if neighbors == "swap" and not (mask is None and n_max is None and counts is None):
            raise ValueError("mask, counts and n_max are for add_remove neighbors: under swap the number of records is public.")
        refuse_traces(x)
        if read is not integer_profiles.codes_of:
            refuse_text(x)
        array = as_array(x)
        if array.ndim == 0:
            raise ValueError("x needs an axis of individuals (the last one); got a scalar.")
        if counts is not None:
            array = np.broadcast_to(array, np.broadcast_shapes(array.shape, np.shape(counts)))
        self.batch, n = array.shape[:-1], array.shape[-1]
        least = n if counts is None else 0
        self.size = n if n_max is None else checks.static_integer("n_max", n_max, least, must=f"an integer, at least {least}")
        self.grid, self.neighbors = grid, neighbors
        self._read, self._x = read or grid.numbers_of, array.reshape(math.prod(self.batch), n)
        self._mask, self._person_ids = self._like_x("mask", mask), self._like_x("person_ids", person_ids)
        if self._mask is not None and self._mask.dtype != np.bool_:
            raise ValueError(f"mask must be bool, got dtype {self._mask.dtype}.")
        self._counts = None if counts is None else self._numbers(counts, n_max)

    def _numbers(self, counts: Any, n_max: int | None) -> np.ndarray:
        """How often each entry occurs, int64."""
        if n_max is None:
            raise ValueError("counts need n_max, the public capacity of a row: how many records there are is private.")
        given = clip_integers(as_integers("counts", self._like_x("counts", counts)), 0, self.size + 1)
        present = self._read(self._x)[1] if self._mask is None else self._read(self._x)[1] & self._mask
        found = np.where(present, given, 0).astype(np.int64)
        if np.any(np.sum(found, axis=-1) > self.size):
            raise ValueError(f"a row has more records than n_max = {self.size}.")
        return found

    def _like_x(self, name: str, value: Any) -> np.ndarray | None:
        if value is None:
            return None
        given, shape = as_array(value), (*self.batch, self._x.shape[-1])
        if name == "mask" and given.dtype == object:
            given = np.array(given.tolist())
        try:
            return np.broadcast_to(given, shape).reshape(self._x.shape)
        except ValueError as error:
            raise ValueError(f"{name} of shape {given.shape} does not fit x of shape {shape}.") from error

    def read(self, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """The numbers ``(rows, size)`` of the records, or of persons' totals, and which are present."""
        cells, present = self._read(self._x[rows])
        if self.neighbors == "swap":
            present = np.ones_like(present)  # a NaN has cell 0
        if self._mask is not None:
            present = present & self._mask[rows]
        if self._person_ids is not None:
            persons, known = integer_profiles.codes_of(self._person_ids[rows])
            cells, present = integer_profiles.totals_of_persons(cells, present & known, persons)
        if self._counts is not None:
            return _repeated(cells, np.where(present, self._counts[rows], 0), self.size)
        padding = [(0, 0), (0, self.size - cells.shape[-1])]
        return np.pad(cells, padding), np.pad(present, padding)


def _repeated(cells: np.ndarray, counts: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Each cell as often as it occurs, rows padded to ``size``, and which of them are records."""
    present = np.arange(size) < np.sum(counts, axis=-1, keepdims=True)
    found = np.zeros(present.shape, cells.dtype)
    found[present] = np.repeat(cells.ravel(), counts.ravel())
    return found, present


def refuse_traces(x: Any) -> None:
    """Raise under jit, vmap or grad; a vmap that closes over the data cannot be seen."""
    if isinstance(x, jax.core.Tracer) or isinstance(jnp.zeros(()), jax.core.Tracer):
        raise TypeError("a release cannot run inside jit, vmap or grad: it would not draw anew at each call.")
