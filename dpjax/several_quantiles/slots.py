"""The slots of a grid in the order of their ranks: slot 2 i is between record i and the next one, slot 2 i - 1 is that of record i.

"Ties" at the head of ``dpjax/mechanisms/_joint_quantiles.py`` says what each record has of a number.
"""

from typing import Any


def slot_ends(index: Any, value: Any, following: Any, place: Any, equal: Any, power: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Return the first number of some slots, and their widths as fractions: how many numbers, and by what that is divided.

    Args:
        index: of the slots; this and all others are arrays of integers, or of floats that are, which broadcast.
        value: that of record i, or the number below the grid if i is 0.
        following: that of the record after it, or the number above the grid.
        place: how many of the records with the same value come before record i.
        equal: how many records have that value.
        power: the power of two up to it.
        xp: ``numpy`` or ``jax.numpy``.

    >>> import numpy as np
    >>> [part.tolist() for part in slot_ends(np.array([1, 3, 5, 6]), 7, 9, np.array([0, 1, 2, 2]), 3, 2, np)]
    [[7, 7, 7, 8], [1, 1, 1, 1], [4, 4, 2, 1]]
    """
    between = index % 2 == 0
    parts = xp.where(place < 2 * (equal - power), 2 * power, power)
    left, numbers = xp.where(between, value + 1, value), xp.where(between, xp.maximum(following - value - 1, 0), 1)
    return left, numbers, xp.where(between, 1, parts)
