"""Matrices of common linear queries: ranges of ordered values, and marginals of attributes.

Marginals are contingency tables. The universe is the grid of all combinations of values of the
attributes; its elements are in the order of ``itertools.product`` (the last attribute changes
first), as in :func:`dpjax.metric_privacy.product`. A matrix has at most 2^28 numbers. See
Kamalaruban et al. (2020), Section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from math import comb, prod

import numpy as np

from dpjax import checks

_MOST = 2**28  # numbers in a matrix


def range_queries(sizes: int | Sequence[int]) -> np.ndarray:
    """Return all range queries as 0 and 1, float32 ``(K, N)``.

    Each counts the records with lo_a <= value <= hi_a in every attribute a.

    ``sizes`` are the numbers of values of the attributes; an int for one attribute. K is the
    product of n (n + 1) / 2.

    >>> range_queries(3).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 0], [0, 1, 1], [0, 0, 1]]
    """
    each = _sizes(sizes)
    _check_room(prod(n * (n + 1) // 2 for n in each), prod(each))
    tables = [
        [[i <= v <= j for v in range(n)] for i in range(n) for j in range(i, n)] for n in each
    ]
    return reduce(np.kron, [np.array(table, np.float32) for table in tables])


def marginal_queries(sizes: Sequence[int], *, ways: int) -> np.ndarray:
    """Return the cells of all marginal tables of ``ways`` attributes, float32 ``(K, N)``.

    The values are 0 and 1 (Barak et al. 2007).

    Args:
        sizes: the number of values of each attribute.
        ways: the number of attributes of a table, from 0 (the number of records) to all. Tables are
            in the order of ``itertools.combinations``, and the cells of each in that of its
            attributes' values.

    >>> marginal_queries([2, 2], ways=1).astype(int).tolist()
    [[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    """
    each = _sizes(sizes)
    ways = checks.static_integer("ways", ways, 0, len(each))
    _check_room(comb(len(each), ways), prod(each))
    tables = list(combinations(range(len(each)), ways))
    _check_room(sum(prod(each[a] for a in table) for table in tables), prod(each))

    def cells(table: tuple[int, ...]) -> np.ndarray:
        factors = [
            np.eye(n, dtype=np.float32) if a in table else np.ones((1, n), np.float32)
            for a, n in enumerate(each)
        ]
        return reduce(np.kron, factors)

    return np.concatenate([cells(table) for table in tables])


def _sizes(sizes: int | Sequence[int]) -> list[int]:
    each = [sizes] if isinstance(sizes, (int, np.integer)) else list(sizes)
    if not each:
        raise ValueError(
            "sizes must have at least one element, the number of values of an attribute."
        )
    return [checks.static_integer("sizes", n, 1) for n in each]


def _check_room(queries: int, elements: int) -> None:
    if queries * elements > _MOST:
        raise ValueError(
            f"the matrix must have at most 2^28 numbers, got {queries} queries of {elements} "
            "elements: use fewer attributes or values."
        )
