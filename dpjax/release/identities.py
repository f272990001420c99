"""Whose record it is: ids as small integers, and the totals of persons with many records."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpjax.release.grid import as_array, bare, is_integer


def codes_of(ids: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return integers that are equal where the ids are, int64, and which ids there are, both of the shape of ``ids``.

    An object is an id if it is an integer or a text; it never raises.

    Raises:
        TypeError: an array of floats or of another dtype that does not hold ids, or a masked array.
        ValueError: rows of different lengths.
    """
    array = as_array(ids)
    if array.dtype.kind == "O":
        known: dict[Any, int] = {}
        ids_of = [int(v) if is_integer(v) else str(v) if isinstance(v, str) else None for v in map(bare, array.flat)]
        codes = [-1 if v is None else known.setdefault(v, len(known)) for v in ids_of]
        found = np.array(codes, np.int64).reshape(array.shape)
    elif array.dtype.kind in "iuUSb":
        found = np.unique(array, return_inverse=True)[1].reshape(array.shape).astype(np.int64)
    else:
        raise TypeError(f"ids must be integers or text, got dtype {array.dtype}.")
    return found, found >= 0


def totals_of_persons(cells: np.ndarray, there: np.ndarray, owners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the total of each person, int64 ``(..., n)`` with zeros after the last of them, and that all are there.

    A total of 0 changes no sum, so it need not be told from nobody.
    """
    totals = np.zeros(cells.shape, np.int64)
    for row in np.ndindex(cells.shape[:-1]):
        _, person = np.unique(owners[row][there[row]], return_inverse=True)
        np.add.at(totals[row], person, cells[row][there[row]])
    return totals, np.ones(cells.shape, bool)
