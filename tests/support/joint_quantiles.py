"""The law of joint quantiles on a small grid as it is defined: plain sums over all ranks of all
places of every tuple, in floats or in decimals.
"""

import decimal
import itertools
from decimal import Decimal
from fractions import Fraction
from math import ceil, prod

import numpy as np


def tuples(m, cells):
    """All ascending tuples of m numbers of the grid."""
    return list(itertools.combinations_with_replacement(range(cells), m))


def parts(x, value):
    """Ranks and sizes of the parts of a multiple: those of its records, or of the gap."""
    below, c = sum(v < value for v in x), sum(v == value for v in x)
    if c == 0:
        return [(below + 0.5, 1.0)]
    cuts = []  # one point more at a time: halves from left to right
    while len(cuts) < c - 1:
        cuts = sorted([*cuts, _first_of_the_largest([0.0, *cuts, 1.0])])
    return [(below + i, size) for i, size in enumerate(np.diff([0.0, *cuts, 1.0]), start=1)]


def _first_of_the_largest(ends):
    sizes = np.diff(ends)
    i = int(np.argmax(sizes))
    return ends[i] + sizes[i] / 2


def exact_parts(x, value):
    """The same as fractions."""
    return [(Fraction(rank), Fraction(size)) for rank, size in parts(x, value)]


def places(x, y, parts=parts):
    """All ranks of the quantiles of a tuple, with the volumes of its places."""
    found = [((), 1)]
    for value in sorted(set(y)):
        own, k = parts(x, value), y.count(value)
        runs = list(itertools.combinations_with_replacement(range(len(own)), k))
        volumes = [
            prod(prod((own[i][1] + j) / (j + 1) for j in range(run.count(i))) for i in set(run))
            for run in runs
        ]
        found = [
            ((*ranks, *(own[i][0] for i in run)), volume * more)
            for ranks, volume in found
            for run, more in zip(runs, volumes, strict=True)
        ]
    return found


def weights(x, levels, numbers, weigh, *, cells, rest=0, aims="records", parts=parts):
    """The weights of all tuples: ``weigh`` of the cost and the volume of each place, for each of
    the numbers of records less 1 that terms aim at, and the flat ``rest``.
    """
    goals = []
    for number in numbers:
        ranks = [1 + q * number if aims == "ranks" else ceil(q * (number + 1)) for q in levels]
        goals.append(
            [later - before for before, later in itertools.pairwise([1, *ranks, 1 + number])]
        )
    found = []
    for y in tuples(len(levels), cells):
        total = rest
        for ranks, volume in places(x, y, parts):
            steps = _steps([1, *ranks, len(x)])
            for goal in goals:
                cost = sum(abs(step - aim) for step, aim in zip(steps, goal, strict=True))
                total += weigh(cost, volume)
        found.append(total)
    return found


def _steps(ranks):
    return [later - before for before, later in itertools.pairwise(ranks)]


def probabilities(x, law, middle, flat=True):
    """Those of all tuples for the parameters of a release, with 60 digits; ``middle`` is the number
    of records less 1 that the terms are around.
    """
    decimal.getcontext().prec = 60
    rate = 2 * law.whole * Decimal(law.unit.numerator) / law.unit.denominator

    def weigh(cost, volume):
        share = (-rate * cost.numerator / cost.denominator).exp()
        return share * volume.numerator / volume.denominator

    rest = Decimal(0)
    if law.reach is not None and flat:
        rest = 2 * (-rate * (law.reach + 1)).exp() / (1 - (-rate).exp())
    given = {"cells": law.size, "rest": rest, "aims": law.aims, "parts": exact_parts}
    found = np.array(weights(x, law.levels, law.numbers(middle), weigh, **given))
    return found / sum(found)
