"""Records between several quantiles that are far from all of them: with or without them, the joint distribution is the same.

Its weights read the distances of ranks, less p_k N, the parts of N + 1 records between two quantiles (see ``dpjax.mechanisms``).
Without t p_k w records between each pair of quantiles, w the common denominator of the levels, a distance falls by t p_k w, and for
N - t w instead of N so does what is taken from it. So the weights of tuples with each quantile near its own rank stay as they are.
Those of others, with or without the records, are at most exp(-rate (near - 1)): with D = n - 1 - N, a rank r which is x away from
1 + q (n - 1), and a rounding d of at most 1, the cost is at least

    |x + q D - d| + |x - (1 - q) D - d| >= max(|D|, 2 |x - d| - |D|) >= |x| - 1.
"""

from fractions import Fraction
from functools import reduce
from itertools import pairwise
from math import ceil
from typing import Any

from dpjax.several_quantiles.levels import level_parts


def far_records(levels: tuple[Fraction, ...], n: Any, near: Any, spacing: Any, xp: Any) -> list[tuple[Any, Any]]:
    """Return which of ``n`` sorted records are far: after how many they begin, and how many they are, for each of m + 1 stretches.

    Args:
        levels: of the m quantiles.
        n: integers of any shape.
        near: how many records on either side of each quantile are not, integers that broadcast against ``n``.
        spacing: the terms N are multiples of it; ``n`` falls by a multiple of it, so that they stay the same.
        xp: ``numpy`` or ``jax.numpy``.

    >>> import numpy as np
    >>> [(int(after), int(number)) for after, number in far_records((Fraction(1, 4), Fraction(1, 2)), 1000, 20, 1, np)]
    [(0, 208), (271, 208), (521, 416)]
    """
    parts, whole = level_parts(levels)
    steps = [b - a for a, b in pairwise((0, *parts, whole))]
    ranks = [1 + u * ((n - 1) // whole) + u * ((n - 1) % whole) // whole for u in parts]  # no product passes 64 bits
    first = [0 * n, *(rank + 1 + near for rank in ranks)]
    end = [*(rank - near for rank in ranks), n]
    times = reduce(xp.minimum, [(last - 1 - after) // step for after, last, step in zip(first, end, steps, strict=True)])
    times = xp.maximum(times, 0) // spacing * spacing
    return [(after, times * step) for after, step in zip(first, steps, strict=True)]


def most_left(levels: tuple[Fraction, ...], near: int, spacing: int) -> int:
    """How many records are left at most without the far ones, whatever their number."""
    parts, whole = level_parts(levels)
    least = min(b - a for a, b in pairwise((0, *parts, whole)))
    return 1 + whole * (ceil(Fraction(2 * near + 4, least)) + spacing)


def slots_left(far: list[tuple[Any, Any]], per_rank: int, size: int, xp: Any) -> tuple[Any, Any]:
    """Return the indices of the first ``size`` slots without the far records, ``(..., size)``, and how many of these there are.

    There are ``per_rank`` slots from one record to the next.
    """
    slot: Any = xp.arange(size, dtype=far[0][0].dtype)
    index, gone = slot, far[0][0]
    for after, number in far:
        index = index + xp.where(slot > per_rank * (after - gone)[..., None], per_rank * number[..., None], 0)
        gone = gone + number
    return index, gone
