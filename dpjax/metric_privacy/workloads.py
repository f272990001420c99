"""Matrices of the usual linear queries: ranges of ordered values, and marginals (contingency tables) of attributes.

The universe is the grid of all combinations of attributes with so many values each; its elements come in the order of
``itertools.product`` (the last attribute changes first), as in :func:`dpjax.metric_privacy.product`. A matrix has at most 2^28
numbers. See Kamalaruban et al. (2020), Section 2.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from math import comb, prod

import numpy as np

from dpjax import checks

_MOST = 2**28  # numbers in a matrix


def range_queries(sizes: int | Sequence[int]) -> np.ndarray:
    """Return all range queries, how many records have lo_a <= value <= hi_a in every attribute a, as 0 and 1, float32 ``(K, N)``.

    ``sizes`` says how many values each attribute has; one number for one attribute. K is the product of n (n + 1) / 2.

    >>> range_queries(3).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 0], [0, 1, 1], [0, 0, 1]]
    """
    each = _sizes(sizes)
    _check_room(prod(n * (n + 1) // 2 for n in each), prod(each))
    tables = [[[i <= v <= j for v in range(n)] for i in range(n) for j in range(i, n)] for n in each]
    return reduce(np.kron, [np.array(table, np.float32) for table in tables])


def marginal_queries(sizes: Sequence[int], *, ways: int) -> np.ndarray:
    """Return the cells of all marginal tables of so many attributes, as 0 and 1, float32 ``(K, N)`` (Barak et al. 2007).

    Args:
        sizes: how many values each attribute has.
        ways: how many attributes a table has, from 0 (the number of records) to all. Tables come in the order of
            ``itertools.combinations``, and the cells of each in that of its attributes' values.

    >>> marginal_queries([2, 2], ways=1).astype(int).tolist()
    [[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    """
    each = _sizes(sizes)
    ways = checks.static_integer("ways", ways, 0, len(each))
    _check_room(comb(len(each), ways), prod(each))
    tables = list(combinations(range(len(each)), ways))
    _check_room(sum(prod(each[a] for a in table) for table in tables), prod(each))

    def cells(table: tuple[int, ...]) -> np.ndarray:
        parts = [np.eye(n, dtype=np.float32) if a in table else np.ones((1, n), np.float32) for a, n in enumerate(each)]
        return reduce(np.kron, parts)

    return np.concatenate([cells(table) for table in tables])


def _sizes(sizes: int | Sequence[int]) -> list[int]:
    given = [sizes] if isinstance(sizes, (int, np.integer)) else list(sizes)
    if not given:
        raise ValueError("sizes must name at least one attribute.")
    return [checks.static_integer("sizes", n, 1) for n in given]


def _check_room(queries: int, elements: int) -> None:
    if queries * elements > _MOST:
        raise ValueError(f"{queries} queries of {elements} elements are more than 2^28 numbers: ask for fewer.")
