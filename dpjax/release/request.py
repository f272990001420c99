"""What is asked of a release, checked once, and the integer values of the rows that are drawn next."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from dpjax.checks import Neighbors
from dpjax.release.grid import Grid, as_array, refuse_masked_arrays, to_grid
from dpjax.release.identities import codes_of, totals_of_persons
from dpjax.release.knots import Knots
from dpjax.release.statistics import Distinct, Statistic, Total, knots_of
from dpjax.release.tables import Law


@dataclass(frozen=True)
class Request:
    """Records as rows, and everything public.

    Attributes:
        records: ``(rows, n)``, as an array of NumPy's.
        there: bool ``(rows, n)``, the mask; None for all.
        persons: ids ``(rows, n)``, whose record it is; None where a record is a person.
        statistic: what is released.
        grid: that of the records, or of a count.
        neighbors: the relation.
        law: of the two on the grid.
        n_max: the capacity of a row; None for n.
    """

    records: np.ndarray
    there: np.ndarray | None
    persons: np.ndarray | None
    statistic: Statistic
    grid: Grid
    neighbors: Neighbors
    law: Law
    n_max: int | None

    @staticmethod
    def of(
        array: np.ndarray,
        statistic: Statistic,
        grid: Grid | None,
        neighbors: Neighbors,
        law: Literal["auto", "cell", "owned_cell"],
        n_max: int | None,
        mask: Any,
        persons: Any,
    ) -> Request:
        """Check what the records cannot change, and shape the rest.

        Raises:
            TypeError: a grid that is none, or an ``n_max`` that is no integer.
            ValueError: options that do not go together, or shapes that do not fit.
        """
        if neighbors == "swap" and not (mask is None and n_max is None):
            raise ValueError("mask and n_max are for add_remove neighbors: under swap the number of records is public.")
        room = None if n_max is None else _integer("n_max", n_max)
        if room is not None and room < array.shape[-1]:
            raise ValueError(f"x has room for {array.shape[-1]} records, more than n_max = {n_max}.")
        if persons is not None and not (isinstance(statistic, Total) and neighbors == "add_remove"):
            raise ValueError("persons are for a Total under add_remove neighbors.")
        if law == "auto":
            law = "cell" if jnp.issubdtype(array.dtype, jnp.floating) else "owned_cell"
        rows = (int(np.prod(array.shape[:-1], dtype=np.int64)), array.shape[-1])
        return Request(
            array.reshape(rows),
            None if mask is None else as_mask(mask, array).reshape(rows),
            None if persons is None else _like(array, "persons", as_array(persons)).reshape(rows),
            statistic,
            _grid_of(statistic, grid),
            neighbors,
            law,
            room,
        )

    def knots(self, some: slice) -> tuple[Knots, int, bool]:
        """The knots of some rows, by how much the grid is refined, and whether they are sums."""
        records = self.records[some]
        cells, there = codes_of(records) if isinstance(self.statistic, Distinct) else to_grid(records, self.grid)
        if self.neighbors == "swap":
            there = np.ones_like(there)  # a NaN has cell 0
        if self.there is not None:
            there = there & self.there[some]
        if self.persons is not None:
            owners, known = codes_of(self.persons[some])
            cells, there = totals_of_persons(cells, there & known, owners)
        if self.n_max is not None:
            padding = [(0, 0), (0, self.n_max - cells.shape[-1])]
            cells, there = np.pad(cells, padding), np.pad(there, padding)
        return knots_of(cells, there, self.statistic, self.grid, self.law, self.neighbors)


def as_mask(mask: Any, array: np.ndarray) -> np.ndarray:
    """Return a mask of the shape of ``array``, or raise."""
    refuse_masked_arrays(mask)
    given = np.asarray(mask)
    if given.dtype != np.bool_:
        raise ValueError(f"mask must be bool, got dtype {given.dtype}.")
    return _like(array, "mask", given)


def _integer(name: str, value: Any) -> int:
    try:
        if not isinstance(value, bool):
            return index(value)
    except TypeError:
        pass
    raise TypeError(f"{name} must be an integer, got {value!r}.")


def _like(array: np.ndarray, name: str, given: np.ndarray) -> np.ndarray:
    try:
        return np.broadcast_to(given, array.shape)
    except ValueError as error:
        raise ValueError(f"{name} of shape {given.shape} does not fit x of shape {array.shape}.") from error


def _grid_of(statistic: Statistic, grid: Grid | None) -> Grid:
    """The grid that is given, or that of a count."""
    if isinstance(statistic, Distinct):
        if grid is not None:
            raise ValueError("a number of distinct ids has its own range: give no grid.")
        return Grid(0, 0, statistic.size)
    if not isinstance(grid, Grid):
        raise TypeError(f"grid must be a Grid, got {type(grid).__name__}.")
    return grid
