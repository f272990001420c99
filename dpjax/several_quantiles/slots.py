"""The slots of a grid by rank: slot 2 i - 1 of record i, slot 2 i between records i and i + 1.

The part of a multiple that belongs to each record is defined in "Ties" in
``dpjax/mechanisms/_joint_quantiles.py``.
"""

from __future__ import annotations

from typing import Any


def slot_ends(
    index: Any, value: Any, following: Any, place: Any, equal: Any, power: Any, xp: Any
) -> tuple[Any, Any, Any]:
    """Return the first multiple of some slots, and their widths as numerators and denominators.

    Args:
        index: the indices of the slots; this and all others are arrays of integers, or of
            integer-valued floats, that broadcast.
        value: the multiple of record i, or the one below the grid if i is 0.
        following: the multiple of the next record, or the one above the grid.
        place: the number of records with the same value before record i.
        equal: the number of records with that value.
        power: the largest power of two up to ``equal``.
        xp: ``numpy`` or ``jax.numpy``.

    >>> import numpy as np
    >>> parts = slot_ends(np.array([1, 3, 5, 6]), 7, 9, np.array([0, 1, 2, 2]), 3, 2, np)
    >>> [part.tolist() for part in parts]
    [[7, 7, 7, 8], [1, 1, 1, 1], [4, 4, 2, 1]]
    """
    between = index % 2 == 0
    parts = xp.where(place < 2 * (equal - power), 2 * power, power)
    left, numbers = (
        xp.where(between, value + 1, value),
        xp.where(between, xp.maximum(following - value - 1, 0), 1),
    )
    return left, numbers, xp.where(between, 1, parts)
