"""Range and marginal queries against their definitions."""

import itertools

import numpy as np

from dpjax.metric_privacy import marginal_queries, range_queries


def test_ranges_count_the_records_within_them():
    sizes = (3, 4)
    cells = list(itertools.product(*map(range, sizes)))
    bounds = [[(i, j) for i in range(n) for j in range(i, n)] for n in sizes]
    expected = [
        [all(a <= v <= b for v, (a, b) in zip(cell, box, strict=True)) for cell in cells]
        for box in itertools.product(*bounds)
    ]
    np.testing.assert_array_equal(range_queries(sizes), expected)


def test_marginals_are_the_sums_of_the_table():
    sizes = (2, 3, 2)
    table = np.random.default_rng(0).integers(0, 9, sizes)
    for ways in range(4):
        answers = marginal_queries(sizes, ways=ways) @ table.ravel()
        expected = [
            table.sum(tuple(set(range(3)) - set(kept))).ravel()
            for kept in itertools.combinations(range(3), ways)
        ]
        np.testing.assert_array_equal(answers, np.concatenate(expected))
