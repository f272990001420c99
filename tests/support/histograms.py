"""All histograms of a few records, and all moves of one record between two of them."""

import itertools

import numpy as np


def histograms(size, records):
    """Every histogram of ``records`` records on ``size`` elements, float64."""
    found = itertools.combinations_with_replacement(range(size), records)
    return np.array([np.bincount(data, minlength=size) for data in found], np.float64).reshape(
        -1, size
    )


def moves(rows):
    """Rows a and b and elements i and j of every pair in which one record moves from i (in a) to j
    (in b).
    """
    rows = np.asarray(rows)
    index = {tuple(row): number for number, row in enumerate(rows)}
    found = []
    for number, row in enumerate(rows):
        for i, j in itertools.permutations(range(rows.shape[1]), 2):
            other = row.copy()
            other[i] -= 1
            other[j] += 1
            if tuple(other) in index:
                found.append((number, index[tuple(other)], i, j))
    return np.array(found).T


def losses(log_probabilities, rows, budgets):
    """For distributions on candidates, one for each histogram: the largest log-ratio and range,
    each over d(i, j).
    """
    a, b, i, j = moves(rows)
    logs = np.asarray(log_probabilities, np.float64)
    ratio = logs[..., a, :] - logs[..., b, :]
    most, least = ratio.max(axis=-1), ratio.min(axis=-1)
    allowed = np.asarray(budgets)[..., i, j]
    return (np.maximum(most, -least) / allowed).max(axis=-1), ((most - least) / allowed).max(
        axis=-1
    )
