"""All small datasets and all their neighbors, exactly: probabilities against the definition,
losses, and faults that are seen.
"""

import json
import pathlib
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest

from dpjax import release
from dpjax.release import Counts, Floats, GridDistribution, exact_distribution
from dpjax.release.api import choice_between
from tests.support.exact_draws import captured
from tests.support.reach_sets import (
    Reach,
    Universe,
    costs,
    log_probabilities,
    log_probabilities_by_flips,
    worst,
)

TOP, MOST = 4, 5  # records are 0, ..., TOP, and there are up to MOST of them
EITHER = ("add_remove", "swap")
EPSILONS = [0.3, 1.0, 3.0]
MECHANISMS = ("piecewise_laplace", "inverse_sensitivity", "permute_and_flip")
GRID = {"lower": 0, "upper": TOP, "resolution": 1}


@cache
def universe():
    return Universe(MOST, TOP)


@cache
def counts(size=None):
    """Of all datasets, or of those of one size."""
    every = universe().counts[: universe().looked_at]
    every = every if size is None else every[universe().n[: len(every)] == size]
    group, value = np.nonzero(every)
    return Counts.of_rows(group, value, every[group, value], groups=len(every))


def record(rank):
    """The record of each rank, 0 for rank 0 and TOP beyond the last one."""
    every = np.concatenate(
        [np.zeros((len(universe().n), 1), int), universe().records, universe().records[:, :1]],
        axis=1,
    )
    every[np.arange(len(every)), universe().n + 1] = TOP
    return every[np.arange(len(every)), np.minimum(rank, universe().n + 1)]


def lower_quantile(u, v):
    return record(-(-u * universe().n // v))


def linear_median():
    """In halves; nothing at all has the middle of the range."""
    n = universe().n
    return np.where(n == 0, TOP, record((n + 1) // 2) + record(n // 2 + 1))


def by_rank(u, v):
    """Interpolated quantiles but the median: what is left when everybody leaves has a rank here,
    and no value.
    """

    def reach(neighbors):
        n = universe().n[: universe().looked_at]
        return universe().of_rank(
            u * n + (v - u), v, step=v if neighbors == "swap" else max(u, v - u)
        )

    return reach


def by_search(values, high=TOP):
    return lambda neighbors: universe().reach(values(), neighbors, high)


def shifted(values, tau, high=TOP):
    return lambda neighbors: universe().reach_of_shifted(values(), tau, high)


def total(high):
    return np.minimum(universe().counts @ np.arange(TOP + 1), high)


SEARCHED = {
    "lower median": (release.Median(**GRID), by_search(lambda: lower_quantile(1, 2))),
    "median": (release.Median(**GRID, definition="linear"), by_search(linear_median, 2 * TOP)),
    "lower quantile": (release.Quantile("0.3", **GRID), by_search(lambda: lower_quantile(3, 10))),
    "upper quantile": (release.Quantile("0.9", **GRID), by_search(lambda: lower_quantile(9, 10))),
    "quantile": (release.Quantile("0.25", **GRID, definition="linear"), by_rank(1, 4)),
    "linear quantile": (
        release.Quantile(Fraction(2, 3), **GRID, definition="linear"),
        by_rank(2, 3),
    ),
    "first": (release.OrderStatistic(1, **GRID), by_search(lambda: record(1))),
    "second": (release.OrderStatistic(2, **GRID), by_search(lambda: record(2))),
    "maximum": (release.Maximum(2, **GRID), shifted(lambda: record(universe().n), 2)),
    "maximum without one": (release.Maximum(1, **GRID), shifted(lambda: record(universe().n), 1)),
    "total": (release.NonnegativeSum(1, 10, 1), shifted(lambda: total(10), 1, 10)),
    "total without three": (release.NonnegativeSum(3, 6, 1), shifted(lambda: total(6), 3, 6)),
    "distinct": (
        release.DistinctCount(1, 3),
        shifted(lambda: np.minimum((universe().counts > 0).sum(axis=1), 3), 1, 3),
    ),
}
CASES = [(name, neighbors) for neighbors in EITHER for name in SEARCHED]
SUMS = [("sum", n) for n in range(1, MOST + 1)] + [("mean", MOST)]


def rows_of(name, neighbors):
    """The datasets of a case; of sums those of one size. Under swap no change leads from nothing,
    or beyond too small a rank.
    """
    n = universe().n[: universe().looked_at]
    if name not in SEARCHED:
        return np.flatnonzero(n == neighbors)
    return np.flatnonzero(n >= (0 if neighbors == "add_remove" else 2 if name == "second" else 1))


@cache
def reach_of(name, neighbors):
    """The oracle's."""
    if name in SEARCHED:
        found = SEARCHED[name][1](neighbors)
    else:
        values = universe().counts @ np.arange(TOP + 1)
        found = universe().reach(
            np.where(universe().n == neighbors, values, 0), "swap", neighbors * TOP
        )
    return found.some(rows_of(name, neighbors))


def pairs_of(name, neighbors):
    """The pairs of neighbors among the datasets of a case."""
    rows, pairs = (
        rows_of(name, neighbors),
        universe().pairs(neighbors if name in SEARCHED else "swap"),
    )
    return pairs[:, np.isin(pairs, rows).all(axis=0)] - rows[0]


def logs_of(name, neighbors, epsilon, mechanism, most=None):
    """The library's log-probabilities, ``(positions, datasets)``; with ``most`` those of a profile
    that is cut there.
    """
    if name in SEARCHED:
        statistic, relation, every = (
            SEARCHED[name][0],
            neighbors,
            counts().some(rows_of(name, neighbors)[0], counts().groups),
        )
    else:
        kind = release.Sum if name == "sum" else release.Mean
        statistic, relation, every = kind(**GRID), "swap", counts(neighbors)
    if most is None:
        found = statistic.distribution(every, epsilon, relation, mechanism=mechanism)
    else:
        grid = statistic.values_grid(1 if name in SEARCHED else neighbors)
        profile = statistic.profile(every, relation, most)
        found = GridDistribution.of(profile, epsilon, grid, mechanism, (every.groups,))
    return found.log_pmf(found.values[:, None])


def oracle(reach, epsilon, mechanism):
    return law_of(costs(reach, steps=mechanism != "piecewise_laplace"), epsilon, mechanism)


def law_of(cost, epsilon, mechanism):
    return (log_probabilities_by_flips if mechanism == "permute_and_flip" else log_probabilities)(
        cost, epsilon / 2
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("name", "neighbors"), [*CASES, *SUMS])
def test_probabilities_losses_and_ranges_of_all_small_datasets(name, neighbors, mechanism):
    assert_private(
        name, neighbors, mechanism, EPSILONS[1:2] if mechanism == "permute_and_flip" else EPSILONS
    )


def assert_private(name, neighbors, mechanism, epsilons):
    reach, pairs = reach_of(name, neighbors), pairs_of(name, neighbors)
    largest, cost = np.zeros(2), costs(reach, steps=mechanism != "piecewise_laplace")
    for epsilon in epsilons:
        found, expected = (
            logs_of(name, neighbors, epsilon, mechanism),
            law_of(cost, epsilon, mechanism),
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-13)
        np.testing.assert_allclose(np.exp(found).sum(axis=0), 1, rtol=0, atol=1e-13)
        largest = np.maximum(largest, np.array(worst(found, pairs)) / epsilon)
    loss, spread = largest
    assert loss <= 1 + 1e-12
    if mechanism == "permute_and_flip":
        assert loss > 0.5
        assert spread <= 2 + 1e-12
    else:
        assert 1 - 1e-12 <= spread <= 1 + 1e-12


@pytest.mark.slow
def test_all_datasets_of_up_to_six_records(monkeypatch):
    """The same once more, with more datasets than the default run has."""
    monkeypatch.setattr("tests.release.test_privacy.MOST", 6)
    try:
        for cached in (universe, counts, reach_of):
            cached.cache_clear()
        for (name, neighbors), mechanism in product([*CASES, ("sum", 6), ("mean", 6)], MECHANISMS):
            assert_private(name, neighbors, mechanism, EPSILONS)
        assert universe().looked_at == 462
    finally:
        for cached in (universe, counts, reach_of):
            cached.cache_clear()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_some_statistic_attains_the_loss(mechanism):
    """Of piecewise Laplace and inverse sensitivity nearly, with many records that are equal; of
    permute and flip exactly.
    """
    if mechanism == "permute_and_flip":
        found = logs_of("lower median", "add_remove", 1.0, mechanism)
        assert worst(found, pairs_of("lower median", "add_remove"))[0] >= 1 - 1e-12
        return
    every = Counts.of_rows([0, 0, 1, 1], [0, TOP, 0, TOP], [25, 15, 26, 14], groups=2)
    found = release.Median(**GRID).distribution(every, 8.0, "swap", mechanism=mechanism)
    logs = found.log_pmf(found.values[:, None])
    assert 1 - 1e-6 < np.abs(logs[:, 0] - logs[:, 1]).max() / 8 <= 1 + 1e-12


@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_profiles_that_are_cut_after_a_public_number_of_changes(name, neighbors):
    for most, mechanism in zip((0, 1, 2, 1), (*MECHANISMS[:2], *MECHANISMS[:2]), strict=True):
        found = logs_of(name, neighbors, 1.0, mechanism, most)
        np.testing.assert_allclose(
            found, oracle(reach_of(name, neighbors).cut(most), 1.0, mechanism), rtol=0, atol=2e-13
        )
        loss, spread = worst(found, pairs_of(name, neighbors))
        assert loss <= spread <= 1 + 1e-12


@pytest.mark.parametrize("n", [2, MOST])
def test_sums_that_are_cut_after_a_public_number_of_changes(n):
    for most in (0, 1, 2):
        found = logs_of("sum", n, 1.0, "piecewise_laplace", most)
        np.testing.assert_allclose(
            found,
            oracle(reach_of("sum", n).cut(most), 1.0, "piecewise_laplace"),
            rtol=0,
            atol=2e-13,
        )
        assert worst(found, pairs_of("sum", n))[1] <= 1 + 1e-12


def test_control_a_profile_that_is_cut_must_end_at_the_ends_of_the_range():
    reach = reach_of("lower median", "add_remove").cut(1)
    log = log_probabilities(costs(reach, steps=False), 0.5)
    y = np.arange(TOP + 1)[:, None]
    inside = np.where((y <= reach.upper[1]) & (y >= reach.lower[1]), log, -np.inf)
    assert worst(inside, universe().pairs("add_remove"))[0] == np.inf


OWN = {
    "twice as deep": (lambda depth: 2 - 2 * depth, 1.5),
    "one less": (lambda depth: -depth, 2),
    "three less twice the depth": (lambda depth: 3 - 2 * depth, 1.5),
}


@pytest.mark.parametrize("control", OWN)
@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_controls_with_another_cost_of_the_value(name, neighbors, control):
    """2 - 2 depth, -depth, 3 - 2 depth in the place of 1 - depth: caught wherever a value can be
    deep.
    """
    own, factor = OWN[control]
    if control == "one less" and name in ("median", "quantile", "linear quantile"):
        # Neighbors of an even and an odd number of records do not have the values of each other
        factor = 1.4
    logs = log_probabilities(costs(reach_of(name, neighbors), steps=False, own=own), 0.5)
    assert worst(logs, pairs_of(name, neighbors))[1] > factor * (1 - 1e-9)


def ended(side, end):
    return np.concatenate([side, np.full_like(side[:1], end)])


def now_and_then(upper, n):
    """A rank too high on one side of some datasets, as a product with a float makes it."""
    return np.where(n % 2 == 1, np.concatenate([upper[:1], upper[2:], upper[-1:]]), upper)


FAULTS = {
    "a rank too high": lambda upper, lower, high, n: (now_and_then(upper, n), lower),
    "a rank too low": lambda upper, lower, high, n: (
        ended(upper, high),
        ended(np.concatenate([lower[:1], lower[:-1]]), 0),
    ),
    "two levels a change": lambda upper, lower, high, n: (
        np.repeat(upper, 2, axis=0)[1:],
        np.repeat(lower, 2, axis=0)[1:],
    ),
}


@pytest.mark.parametrize(
    ("fault", "neighbors"),
    [case for case in product(FAULTS, EITHER) if case != ("a rank too high", "swap")],
)
def test_controls_with_wrong_levels(fault, neighbors):
    """Under swap all datasets have one size, and so the same fault."""
    caught = {}
    for name in SEARCHED:
        reach, n = reach_of(name, neighbors), universe().n[rows_of(name, neighbors)]
        logs = log_probabilities(
            costs(Reach(*FAULTS[fault](*reach, n), reach.high), steps=False), 1.0
        )
        caught[name] = max(worst(logs, pairs_of(name, neighbors))) / 2
    assert min(caught[name] for name in ("lower median", "median", "lower quantile")) > 1.4, caught
    assert fault == "a rank too high" or min(caught.values()) > 1.05, caught


def test_control_ranks_of_the_other_relation():
    """Levels of add/remove are half a rank apart: under swap they leak."""
    logs = log_probabilities(costs(reach_of("lower median", "add_remove"), steps=False), 0.5)
    assert worst(logs, universe().pairs("swap"))[0] > 1.2


def test_control_inverse_sensitivity_with_the_ends_of_the_range_at_no_cost():
    reach = reach_of("lower median", "add_remove")
    cost = costs(reach, steps=True)
    assert (
        worst(
            log_probabilities(np.where(cost == cost.max(axis=0), 0, cost), 0.5),
            universe().pairs("add_remove"),
        )[1]
        > 1.4
    )


def test_interpolated_quantiles_are_the_extremes_that_data_can_reach():
    """Where no change takes the last record away, ranks are what a search finds."""
    n = universe().n
    for (u, v), neighbors in product(((1, 4), (2, 3)), EITHER):
        first, part = (n - 1) * u // v + 1, (n - 1) * u % v
        values = np.where(
            n == 0, TOP * (v - u), v * record(first) + part * (record(first + 1) - record(first))
        )
        searched = universe().reach(values, neighbors, v * TOP)
        ranked = by_rank(u, v)(neighbors)
        level = np.arange(len(searched.upper))[:, None]
        kept = level < np.maximum(n[: universe().looked_at], 1)
        for one, other in zip(searched[:2], ranked[:2], strict=True):
            np.testing.assert_array_equal(
                np.where(kept, one, 0), np.where(kept, other[: len(one)], 0)
            )
        # The control
        assert not np.array_equal(searched.upper[1:], ranked.upper[: len(searched.upper) - 1])


def test_the_oracle_flips_as_the_algorithm_does():
    """All orders of five candidates, one by one."""
    cost = np.array([[0.0, 2, 1, 1, 4]]).T
    accepted = np.exp(-0.7 * cost[:, 0])
    expected = np.zeros(5)
    orders = list(permutations(range(5)))
    for order in orders:
        left = 1.0
        for candidate in order:
            expected[candidate] += left * accepted[candidate] / len(orders)
            left *= 1 - accepted[candidate]
    found = np.exp(log_probabilities_by_flips(cost, 0.7))[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.abs(found - np.exp(log_probabilities(cost, 0.7))[:, 0]).max() > 0.01  # the control


def test_permute_and_flip_has_a_range_above_epsilon_and_a_deeper_value_is_caught():
    reach, pairs = reach_of("lower median", "add_remove"), universe().pairs("add_remove")
    assert (
        worst(logs_of("lower median", "add_remove", 0.3, "permute_and_flip"), pairs)[1] > 1.3 * 0.3
    )
    deeper = costs(reach, steps=True, own=lambda depth: 2 - 2 * depth)
    assert worst(log_probabilities_by_flips(deeper, 1.5), pairs)[0] > 1.3 * 3
    assert worst(logs_of("lower median", "add_remove", 6.0, "permute_and_flip"), pairs)[0] > 1.5 * 3


GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "pointwise.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["cases"])
def test_golden_probabilities(case):
    """They are given to 15 decimals: as near as 1e-14 within their rounding."""
    q, neighbors, data, expected = (
        case[name] for name in ("q", "neighbors", "records", "probabilities")
    )
    top = len(expected) - 1
    grid, options = (
        {"lower": 0, "upper": top, "resolution": 1},
        {"epsilon": 1.0, "neighbors": neighbors, "mechanism": case["mechanism"]},
    )
    statistics = [release.Quantile(q, **grid)]
    if q == "1/2":
        statistics.append(release.Median(**grid))
    if neighbors == "swap":  # the rank of a fixed number of records
        statistics.append(release.OrderStatistic((len(data) + 1) // 2, **grid))
    for statistic in statistics:
        found = exact_distribution(statistic, data, **options)
        assert found.values.tolist() == list(range(top + 1))
        np.testing.assert_allclose(found.pmf(found.values), expected, rtol=0, atol=1e-14)
        shifted_grid = exact_distribution(
            replace(statistic, lower=-2, upper=top - 2), np.array(data) - 2, **options
        )
        np.testing.assert_allclose(
            shifted_grid.pmf(np.arange(top + 1) - 2), expected, rtol=0, atol=1e-14
        )
        # The control
        other = exact_distribution(statistic, data, **options | {"epsilon": 1.0 + 1e-12})
        assert np.abs(other.pmf(found.values) - expected).max() > 5e-14


def test_tied_data_keep_their_value():
    """The more records would have to change before the value moves, the larger its odds: by
    exp(epsilon / 2) each.
    """
    for neighbors, definition in product(EITHER, ("lower", "linear")):
        statistic, before = release.Median(0, 9, 1, None, definition), None
        for n in (4, 8, 16, 32):
            found = exact_distribution(statistic, [2] * n, epsilon=1.0, neighbors=neighbors)
            mass = float(found.pmf(2))
            assert before is None or mass / (1 - mass) > 0.999 * np.exp(n / 2 / 2 * 0.5) * before
            before = mass / (1 - mass)
        assert mass > 0.99


def test_control_a_shift_that_depends_on_the_data():
    """The maximum: private for each shift, not for one that the data choose."""
    by_tau = {
        tau: release.Maximum(tau, **GRID).distribution(counts(), 1.0, "add_remove")
        for tau in (1, 4)
    }
    logs = {tau: found.log_pmf(found.values[:, None]) for tau, found in by_tau.items()}
    odd = (universe().counts[: universe().looked_at] @ np.arange(TOP + 1)) % 2 == 1
    assert worst(np.where(odd, logs[4], logs[1]), universe().pairs("add_remove"))[1] > 1.05


HOUSEHOLDS = [(), (1,), (3,), (1, 1), (3, 2), (3, 3)]  # the records of one person


def test_persons_with_many_records_count_once(monkeypatch):
    """All sets of up to three persons, one person more or less; record by record, the same promise
    is broken.
    """
    drawn = captured(monkeypatch)
    people = [some for size in range(4) for some in product(HOUSEHOLDS, repeat=size)]
    options = {"tau": 1, "upper": 14, "resolution": 1, "epsilon": 1.0, "neighbors": "add_remove"}
    x, ids = np.full((len(people), 8), np.nan), np.zeros((len(people), 8), int)
    for row, some in enumerate(people):
        records = [(amount, 10 - number) for number, own in enumerate(some) for amount in own]
        x[row, : len(records)] = [amount for amount, _ in records]
        ids[row, : len(records)] = [person for _, person in records]
    release.user_sum(x, ids, **options)
    release.user_sum(x, np.arange(8), **options)  # each record a person
    seen = [found.log_pmf(found.values[:, None]) for found in drawn]
    number = {some: row for row, some in enumerate(people)}
    pairs = np.array(
        [
            (number[some], number[(*some, own)])
            for some in people
            if len(some) < 3
            for own in HOUSEHOLDS
        ]
    ).T
    assert 0.5 < worst(seen[0], pairs)[1] <= 1 + 1e-12
    assert worst(seen[1], pairs)[1] > 1.2


@pytest.mark.parametrize("neighbors", EITHER)
def test_modes_of_all_datasets(neighbors):
    """Three of the five values are candidates; a rate of epsilon under add/remove, where all counts
    change in one direction.
    """
    candidates = (0, 2, 4)
    for epsilon, mechanism in product(EPSILONS, ("exponential", "permute_and_flip")):
        votes = universe().counts[: universe().looked_at, candidates]
        group, value = np.nonzero(votes)
        every = Counts.of_rows(group, value, votes[group, value], groups=len(votes))
        found = release.Mode(candidates).distribution(
            every, epsilon, neighbors, mechanism=mechanism
        )
        logs = found.log_pmf(np.array(candidates)[:, None])
        rate = epsilon if neighbors == "add_remove" else epsilon / 2
        law = log_probabilities if mechanism == "exponential" else log_probabilities_by_flips
        np.testing.assert_allclose(logs, law(-votes.T.astype(float), rate), rtol=0, atol=2e-13)
        loss, spread = np.array(worst(logs, universe().pairs(neighbors))) / epsilon
        assert 0.5 < loss <= 1 + 1e-12
        assert spread <= (1 if mechanism == "exponential" else 2) + 1e-12
        sharper = law(-votes.T.astype(float), 2 * rate)  # the control
        assert worst(sharper, universe().pairs(neighbors))[0] > 1.3 * epsilon


def worst_range(changes, sensitivity):
    """Over all scores 0..4 of two candidates and all changes of both: the range of the loss, in
    units of epsilon.
    """
    scores, change = (
        np.array(list(product(range(5), repeat=2))),
        np.array(list(product(changes, repeat=2))),
    )
    rows = np.stack(np.broadcast_arrays(scores[:, None], scores[:, None] + change)).reshape(-1, 2)
    found = choice_between(rows, 1.0, sensitivity, 1, 3, "exponential")
    one, other = np.split(found.log_pmf([[0], [1]]), 2, axis=1)
    return np.ptp(one - other, axis=0).max()


def test_clamping_keeps_either_sensitivity():
    assert 0.5 < worst_range((-1, 0, 1), Fraction(1)) <= 1 + 1e-12
    assert 0.5 < worst_range((0, 1), Fraction(1, 2)) <= 1 + 1e-12
    # Half is for scores that all change in one direction from 0 on; and only for them.
    assert worst_range((1, 2), Fraction(1, 2)) > 1.5
    assert worst_range((-1, 0, 1), Fraction(1, 2)) > 1.5


def test_counts_and_histograms_of_all_datasets():
    """One record changes one number by 1, and the noise of one number loses epsilon for that: a
    rate of epsilon.
    """
    edges, candidates = [0, 1, 3, 4], [0, 3]
    records = universe().records[: universe().looked_at].astype(float)
    for statistic, times in (
        (release.Count(), 1),
        (release.Histogram(edges), 1),
        (release.Histogram(candidates=candidates), 1),
    ):
        found = exact_distribution(
            statistic, np.where(records < 0, np.nan, records), epsilon=0.7, neighbors="add_remove"
        )
        assert found.rate == Fraction(0.7)
        numbers = found.value.reshape(len(records), -1)
        if isinstance(statistic, release.Count):
            np.testing.assert_array_equal(numbers[:, 0], universe().n[: len(records)])
        changed = np.abs(np.diff(numbers[universe().pairs("add_remove")], axis=0)).sum(axis=-1)
        assert changed.max() == times
        swapped = np.abs(np.diff(numbers[universe().pairs("swap")], axis=0)).sum(axis=-1)
        # The control: not under swap
        assert swapped.max() == (0 if isinstance(statistic, release.Count) else 2)


def test_what_is_released_is_what_is_audited(monkeypatch):
    """The functions that users call, from records: the profiles of the audit.

    One draw from each row goes without a profile where all records are there: ``test_rows.py`` has
    the same draws of the one as of the other. Two draws do not.
    """
    calls = {
        "lower median": (release.median, (), {}, EITHER),
        "median": (release.median, (), {"definition": "linear"}, EITHER),
        "upper quantile": (release.quantile, ("0.9",), {}, EITHER),
        "second": (release.order_statistic, (2,), {}, EITHER),
        "maximum without one": (release.maximum, (), {"tau": 1}, EITHER),
        "total": (release.nonnegative_sum, (), {"tau": 1, "upper": 10}, EITHER),
        "distinct": (release.distinct_count, (), {"tau": 1, "upper": 3}, EITHER),
    }
    five, seen = universe().n[: universe().looked_at] == 5, captured(monkeypatch)
    for name, (function, given, options, relations) in calls.items():
        for neighbors in relations:
            public = {"lower": {"lower": 0}, "": {}}[
                "" if name in ("total", "distinct") else "lower"
            ]
            public |= {} if name == "distinct" else {"upper": TOP, "resolution": 1}
            records = universe().records[: universe().looked_at][five, :5]
            public |= {"epsilon": 1.0, "neighbors": neighbors, "draws": 2}
            function(records, *given, **public | options)
            found = seen.pop()
            expected = logs_of(name, neighbors, 1.0, "piecewise_laplace")[
                :, five[rows_of(name, neighbors)]
            ]
            np.testing.assert_allclose(
                found.log_pmf(found.values[:, None]), expected, rtol=0, atol=1e-13
            )


def test_a_grid_of_floats_has_the_same_probabilities_by_position():
    """Twenty values on either side of 0: the positions are what counts."""
    grid = Floats(digits=1, smallest=-1, largest=1)
    middle = grid.size // 2
    for neighbors, mechanism in zip(EITHER, MECHANISMS[:2], strict=True):
        free = release.Median(grid=grid).distribution(counts(), 1.0, neighbors, mechanism=mechanism)
        ranks = release.Median(lower=0, upper=grid.size - 1, resolution=1)
        bounded = ranks.distribution(counts(), 1.0, neighbors, mechanism=mechanism)
        np.testing.assert_array_equal(
            free.log_pmf(free.values[:, None]), bounded.log_pmf(bounded.values[:, None])
        )
        assert free.values[middle] == 0
