"""Profiles of all statistics of one number against a search over all small datasets; Corollary 3.1,
loss and range between all neighbors.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial

import jax
import numpy as np
import pytest

import dpjax
from tests.statistics.small_datasets import (
    GRID,
    LEVELS,
    RELATIONS,
    SHOWN,
    UNIVERSE,
    disorder,
    rows,
    search,
    values_of,
)
from tests.support import oracle
from tests.support.audit import one_sided_limits
from tests.support.profiles import profile_of_sides
from tests.support.removals import losses_of

LOW, HIGH = GRID[0], GRID[-1]
POSITIVE, NEGATIVE = (2.0, 3.0, 4.0, 6.0, 7.0), (-4.0, -3.0, -2.5, -2.0, -1.0)
N = UNIVERSE.n[:SHOWN]


@dataclass(frozen=True)
class Statistic:
    """A statistic of the library, ``of(x, lower=, upper=, neighbors=, mask=)``, and its definition
    for a dataset, an ascending tuple.

    ``ends`` are those of the range, for every dataset; ``kept`` levels are left by a truncation.
    """

    of: Callable
    defined: Callable
    ends: tuple | None = (LOW, HIGH)
    relations: tuple = RELATIONS
    given_by: str | None = "mask"
    least: int = 1  # record, where their number is public
    kept: int | None = None
    grid: tuple = GRID
    interpolable: bool = True


def quantile(q, definition, **options):
    q = Fraction(q)
    return Statistic(
        partial(dpjax.quantile, q=q, definition=definition, **options),
        lambda data: oracle.quantile(data, q, definition, LOW, HIGH),
    )


def rank(number):
    return Statistic(
        partial(dpjax.order_statistic, rank=number),
        lambda data: data[number - 1] if len(data) >= number else HIGH,
        least=number,
    )


SUM_OF_SIX = partial(dpjax.sum, max_count=6)


def at_most_six(grid):
    ends = 6 * min(grid[0], 0), 6 * max(grid[-1], 0)
    return Statistic(SUM_OF_SIX, np.sum, ends, relations=("add_remove",), grid=grid)


def mean(data):
    return np.mean(data) if data else (LOW + HIGH) / 2


MEDIAN, MEAN = quantile("1/2", "linear"), Statistic(dpjax.mean, mean)
SUM = Statistic(dpjax.sum, np.sum, given_by="num_records")
VARIANCE = Statistic(
    partial(dpjax.variance, truncate=None),
    lambda data: np.var(data) if data else 0,
    (0 * N, (HIGH - LOW) ** 2 * (N // 2) * (N - N // 2) / np.maximum(N, 1) ** 2),
    relations=("swap",),
    least=2,
)
STATISTICS = {
    "linear median": MEDIAN,
    "linear median of full rows": replace(MEDIAN, relations=("swap",), given_by=None),
    "linear median, truncated": replace(
        MEDIAN,
        of=lambda x, **given: MEDIAN.of(x, **given).truncate(1),
        kept=1,
        given_by="num_records",
    ),
    "linear 9/10": quantile("9/10", "linear"),
    "linear 1/3 of integers": quantile("1/3", "linear", resolution=1),
    "lower 1/4": quantile("1/4", "lower"),
    "lower 9/10": quantile("9/10", "lower"),
    "second smallest": rank(2),
    "mean": MEAN,
    "hull of the mean": replace(
        MEAN, of=partial(dpjax.mean, values="hull"), relations=("add_remove",), interpolable=False
    ),
    "sum": replace(SUM, relations=("swap",), ends=(N * LOW, N * HIGH)),
    "sum without an end": replace(SUM, relations=("add_remove",), ends=None),
    "sum of at most 6": at_most_six(GRID),
    "sum of at most 6, all positive": at_most_six(POSITIVE),
    "sum of at most 6, all negative": at_most_six(NEGATIVE),
    "variance": VARIANCE,
    "variance, truncated": replace(
        VARIANCE, of=partial(dpjax.variance, truncate=1), kept=1, given_by="num_records"
    ),
}
CASES = [(name, relation) for name, made in STATISTICS.items() for relation in made.relations]


@cache
def program(of, neighbors):
    """One for all datasets, whatever their bounds are."""

    @jax.jit
    def profile(x, lower, upper, given):
        found = of(x=x, lower=lower, upper=upper, neighbors=neighbors, **given)
        return found, found.support

    return profile


def asked(name, neighbors):
    """The rows of a case, with what the library makes of them."""
    made = STATISTICS[name]
    some = rows(neighbors, made.given_by, made.least if neighbors == "swap" else 0, made.grid)
    ends = np.float64([made.grid[0], made.grid[-1]])
    return some, jax.device_get(program(made.of, neighbors)(some.x, *ends, some.given))


def sides(profile, levels=LEVELS):
    """Upper and lower values at the levels 0, 1, ..., ``(levels, rows)`` each."""
    return [
        np.asarray(side)[:, np.minimum(np.arange(levels), side.shape[1] - 1)].T
        for side in (profile.upper, profile.lower)
    ]


def searched(name, neighbors):
    """The same for all datasets, by the search."""
    made = STATISTICS[name]
    values = values_of(made.defined, made.grid)
    above, below = (side.copy() for side in search(values, neighbors))
    if "hull" in name:  # what one more record and other changes cover
        more = values[UNIVERSE.neighbors["add_remove"][:, : len(GRID)]]
        above[1:], below[1:] = (
            search(ends, neighbors)[side][:-1]
            for side, ends in enumerate((more.max(axis=1), more.min(axis=1)))
        )
    if "variance" in name:  # the records that go come to the mean of those that are kept
        squares = UNIVERSE.n * values
        below = search(squares, "remove")[1] / np.maximum(N, 1)
    if made.ends is not None:
        above, below = np.minimum(above, made.ends[1]), np.maximum(below, made.ends[0])
    if made.kept is not None:
        below[made.kept + 1 :], above[made.kept + 1 :] = made.ends
    return above, below


def exact(name, neighbors):
    """Where a profile is exact, and not only further out: everywhere, but for a linear quantile
    that is not the median, under add/remove, at levels that could empty the dataset (the value of
    an empty dataset lies within what the ranks read there).
    """
    outer = name.startswith("linear") and "median" not in name and neighbors == "add_remove"
    return (np.arange(LEVELS)[:, None] < N) | (not outer)


def rounding(name):
    """How far values may be out of order: sums, means and variances not at all."""
    return 1e-12 if any(word in name for word in ("linear", "lower", "smallest")) else 0.0


@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_profiles_are_exact_by_the_search_and_in_order(name, neighbors, x64):
    made, (some, (profile, support)) = STATISTICS[name], asked(name, neighbors)
    where, first = exact(name, neighbors)[:, some.which], int(not made.interpolable)
    for sign, found, wanted in zip((1, -1), sides(profile), searched(name, neighbors), strict=True):
        wanted = wanted[:, some.which]
        assert (sign * (found - wanted)).min() >= -1e-12
        assert (sign * np.diff(found, axis=0)).min() >= 0
        near = 1e-10 if "variance" in name else 1e-12  # which has a slack
        np.testing.assert_allclose(np.where(where, found, wanted), wanted, rtol=0, atol=near)
        assert disorder(sign * found[first:], some.pairs(neighbors)) <= rounding(name)
    assert where.mean() > 0.5
    static = profile.neighbors, profile.interpolable, profile.integer_levels
    assert static == (neighbors, made.interpolable, True)
    if made.ends is None:
        assert support is None
        assert (np.asarray(profile.step) == max(-LOW, HIGH)).all()
    else:
        wanted = np.broadcast_to(np.array(made.ends).T, (SHOWN, 2))[some.which].T
        np.testing.assert_allclose(support, wanted, rtol=0, atol=1e-12)


def levels_twice(*both):
    return [np.repeat(side, 2, axis=0)[1:] for side in both]


def test_hulls_that_are_not_interpolated_are_private(x64):
    audits = ranges("add_remove", dpjax.inverse_sensitivity)
    loss, spread = audits[list(AUDITS["add_remove"]).index("hulls, interpolated")]
    assert 1 < spread <= 2 * (1 + 1e-9)
    assert loss <= 2 * (1 + 1e-9)


def as_it_is(*both):
    return both


# Of a statistic and a relation: how its sides are changed, and the range that this must have.
AUDITS = {
    "add_remove": {
        "linear median": ("linear median", as_it_is, 1),
        "linear 9/10": ("linear 9/10", as_it_is, 1),
        "mean": ("mean", as_it_is, 1),
        "sum of at most 6": ("sum of at most 6", as_it_is, 1),
        "levels twice": ("linear 9/10", levels_twice, 1.9),
        "hulls, interpolated": ("hull of the mean", as_it_is, 1.5),
    },
    "swap": {
        "linear 9/10": ("linear 9/10", as_it_is, 1),
        "mean": ("mean", as_it_is, 1),
        "sum": ("sum", as_it_is, 1),
        "variance": ("variance", as_it_is, 1),
        "levels twice": ("sum", levels_twice, 1.9),
        "means for add_remove": ("mean", None, 1.1),
        "sums for add_remove": ("sum of at most 6", None, 1.1),
    },
}


@cache
def ranges(neighbors, mechanism=dpjax.piecewise_laplace):
    """Of each audit: its largest loss and range at epsilon 2, by all pairs of neighbors."""
    size, pairs, stacked = 14, [], []
    for name, change, _ in AUDITS[neighbors].values():
        some, (profile, _) = asked(name, neighbors if change else "add_remove")
        both = (change or as_it_is)(*(side.copy() for side in sides(profile, size)))
        every = np.full(SHOWN, 0)
        every[some.which] = np.arange(len(some.which))
        stacked.append([side[:size, every].T for side in both])
        pairs.append(some.which[some.pairs(neighbors)])
    upper, lower = np.stack(stacked, axis=1)
    made = profile_of_sides(upper, lower, neighbors=neighbors)
    limits = one_sided_limits(jax.jit(mechanism)(made, 2.0))
    limits = limits.reshape(*limits.shape[:2], -1)
    return [losses_of(of, its) for of, its in zip(limits, pairs, strict=True)]


@pytest.mark.parametrize(
    ("neighbors", "name"), [(relation, name) for relation in AUDITS for name in AUDITS[relation]]
)
def test_the_range_is_epsilon_and_that_of_a_mistake_is_more(neighbors, name, x64):
    at_least = AUDITS[neighbors][name][2]
    loss, spread = ranges(neighbors)[list(AUDITS[neighbors]).index(name)]
    assert spread >= at_least * 2 * (1 - 1e-9)
    if at_least == 1:
        assert max(loss, spread) <= 2 * (1 + 1e-9)
