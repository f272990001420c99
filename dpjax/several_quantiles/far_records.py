"""Records far from all of several quantiles, which do not change their joint distribution.

The weights depend on the distances of ranks minus p_k N, the parts of N + 1 records between two
quantiles (see ``dpjax.mechanisms``). Without t p_k w records between each pair of quantiles, w the
common denominator of the levels, a distance decreases by t p_k w, and with N - t w in place of N so
does the number subtracted from it. So the weights of tuples with each quantile near its rank do not
change. Those of other tuples, with or without the records, are at most exp(-rate (near - 1)): with
D = n - 1 - N, a rank r at distance x from 1 + q (n - 1), and a rounding d of at most 1, the cost is
at least

    |x + q D - d| + |x - (1 - q) D - d| >= max(|D|, 2 |x - d| - |D|) >= |x| - 1.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import pairwise
from math import ceil
from typing import Any

from dpjax.several_quantiles.levels import level_parts


def far_records(
    levels: tuple[Fraction, ...], n: Any, near: Any, spacing: Any, xp: Any
) -> list[tuple[Any, Any]]:
    """Return the far records of ``n`` sorted ones: the rank before and the number, m + 1 times.

    Args:
        levels: the levels of the m quantiles.
        n: integers of any shape.
        near: the number of records on either side of each quantile that are not far, integers that
            broadcast against ``n``.
        spacing: the spacing of the terms N; ``n`` decreases by a multiple of it, so that the terms
            are the same.
        xp: ``numpy`` or ``jax.numpy``.

    >>> import numpy as np
    >>> found = far_records((Fraction(1, 4), Fraction(1, 2)), 1000, 20, 1, np)
    >>> [(int(after), int(number)) for after, number in found]
    [(0, 208), (271, 208), (521, 416)]
    """
    parts, denominator = level_parts(levels)
    steps = [b - a for a, b in pairwise((0, *parts, denominator))]
    # No product exceeds 64 bits.
    ranks = [
        1 + u * ((n - 1) // denominator) + u * ((n - 1) % denominator) // denominator for u in parts
    ]
    first = [0 * n, *(rank + 1 + near for rank in ranks)]
    end = [*(rank - near for rank in ranks), n]
    times = reduce(
        xp.minimum,
        [(last - 1 - after) // step for after, last, step in zip(first, end, steps, strict=True)],
    )
    times = xp.maximum(times, 0) // spacing * spacing
    return [(after, times * step) for after, step in zip(first, steps, strict=True)]


def most_left(levels: tuple[Fraction, ...], near: int, spacing: int) -> int:
    """Return the largest number of records that remain without the far ones."""
    parts, denominator = level_parts(levels)
    least = min(b - a for a, b in pairwise((0, *parts, denominator)))
    return 1 + denominator * (ceil(Fraction(2 * near + 4, least)) + spacing)


def slots_left(far: list[tuple[Any, Any]], per_rank: int, size: int, xp: Any) -> tuple[Any, Any]:
    """Return the first ``size`` slots without far records, and the number of far records.

    The slots are indices ``(..., size)``; there are ``per_rank`` slots from one record to the next.
    """
    slot: Any = xp.arange(size, dtype=far[0][0].dtype)
    index, gone = slot, far[0][0]
    for after, number in far:
        index = index + xp.where(
            slot > per_rank * (after - gone)[..., None], per_rank * number[..., None], 0
        )
        gone = gone + number
    return index, gone
