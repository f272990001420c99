"""Both distributions on all small datasets and all their neighbours, exactly; and the faults that must be caught."""

from itertools import product

import numpy as np
import pytest

from dpjax.release import integer_profiles
from dpjax.release.distribution import VARIANTS, GridDistribution, pieces_of
from dpjax.release.integer_profiles import IntegerProfile, totals_of_persons
from dpjax.statistics.quantiles import ranks_of_order_statistic, ranks_of_quantile

TOP = 4  # records are 0..4
EPSILON = 1.0


def log_pmf(profile, epsilon, cells, *, variant):
    return GridDistribution(profile, epsilon, variant).log_pmf(cells)


def datasets(sizes):
    return [data for n in sizes for data in product(range(TOP + 1), repeat=n) if list(data) == sorted(data)]


def neighbours_of(data, neighbors):
    rest = [tuple(data[:i] + data[i + 1 :]) for i in range(len(data))]
    base = [data] if neighbors == "add_remove" else rest
    added = [tuple(sorted((*other, v))) for other in base for v in range(TOP + 1)]
    return set(added + (rest if neighbors == "add_remove" else [])) - {data}


def high_of(variant):
    return TOP + (variant == "cell")


def profile_of(data, statistic, neighbors, variant, n_max=4):
    cells, present = np.zeros((1, n_max), np.int32), np.zeros((1, n_max), bool)
    cells[0, : len(data)], present[0, : len(data)] = data, True
    if neighbors == "swap":
        cells, present = cells[:, : len(data)], present[:, : len(data)]
    if statistic == "sum":
        found = integer_profiles.sum_of_records(cells, high=TOP)
    elif statistic == "maximum":
        found = integer_profiles.maximum(cells, present, tau=2, high=high_of(variant))
    elif statistic == "distinct":
        found = integer_profiles.distinct_count(cells, present, tau=1, high=3 + (variant == "cell"))
    elif statistic == "total":
        found = integer_profiles.nonnegative_sum(cells, present, tau=1, high=10 + (variant == "cell"))
    else:
        ranks = {
            "median": lambda: ranks_of_quantile(0.5, definition="linear", neighbors=neighbors),
            "lower quantile": lambda: ranks_of_quantile(0.3, definition="lower", neighbors=neighbors),
            "quantile": lambda: ranks_of_quantile(0.25, definition="linear", neighbors=neighbors),
            "second": lambda: ranks_of_order_statistic(2, cells.shape[-1]),
        }[statistic]()
        found = integer_profiles.order_statistic(cells, present, ranks, high=high_of(variant), count_is_public=neighbors == "swap")
    return IntegerProfile(found.lower[0], found.upper[0])


def distributions_of(statistic, neighbors, variant, pmf=log_pmf):
    every = datasets(range(4) if neighbors == "add_remove" else [3])
    rows = [profile_of(data, statistic, neighbors, variant) for data in every]
    low, high = rows[0].lower[-1], rows[0].upper[-1] + (variant == "owned_cell")
    cells = np.arange(low, high)
    return every, np.stack([pmf(row, EPSILON, cells, variant=variant) for row in rows])


def audit(statistic, neighbors, variant, pmf=log_pmf):
    """The largest loss and the largest range over all neighbours, in units of epsilon."""
    every, found = distributions_of(statistic, neighbors, variant, pmf)
    index = {data: row for row, data in enumerate(every)}
    loss = spread = 0.0
    for data in every:
        for other in neighbours_of(data, neighbors):
            if other in index:
                with np.errstate(invalid="ignore"):
                    ratio = found[index[data]] - found[index[other]]
                ratio = np.where(np.isneginf(found[index[data]]) & np.isneginf(found[index[other]]), 0.0, ratio)
                loss, spread = max(loss, np.abs(ratio).max()), max(spread, ratio.max() - min(ratio.min(), 0.0))
    return loss / EPSILON, spread / EPSILON


NAMES = ("median", "lower quantile", "quantile", "second", "maximum", "total", "distinct")
CASES = [(s, r) for r in ("add_remove", "swap") for s in NAMES] + [("sum", "swap")]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("statistic", "neighbors"), CASES)
def test_loss_and_range_of_all_neighbours(statistic, neighbors, variant):
    loss, spread = audit(statistic, neighbors, variant)
    assert loss <= 1 + 1e-12
    assert 0.3 < spread <= 1 + 1e-12
    _, found = distributions_of(statistic, neighbors, variant)
    np.testing.assert_allclose(np.exp(found).sum(axis=-1), 1.0, rtol=1e-12)


def own_cell_at_cost_0(profile, epsilon, cells, *, variant):
    found = log_pmf(profile, epsilon, cells, variant=variant)
    found = np.where(cells == profile.upper[0], found + epsilon / 2, found)
    return found - np.logaddexp.reduce(found)


def rounded_towards_the_value(profile, epsilon, cells, *, variant):
    """The cells below the value are moved up by one: the value is the end of its own last cell."""
    found = log_pmf(profile, epsilon, cells, variant=variant)
    below = np.where(cells <= profile.lower[0], log_pmf(profile, epsilon, cells - 1, variant=variant), -np.inf)
    return np.logaddexp(np.where(cells >= profile.upper[0], found, -np.inf), below)


def with_other_levels(change):
    """The distribution with the levels of its pieces changed: the weights are wrong, the shares within a piece are not."""

    def pmf(profile, epsilon, cells, *, variant):
        found = log_pmf(profile, epsilon, cells, variant=variant)
        for width, level, inner, below, _ in pieces_of(profile.lower.tolist(), profile.upper.tolist(), variant):
            step = inner - 1 - cells if below else cells - inner
            inside = (step >= 0) & (step < width)
            found = np.where(inside, found - epsilon / 2 * (change(level, below) - level), found)
        return found - np.logaddexp.reduce(found)

    return pmf


def test_control_the_own_cell_at_cost_0():
    loss, spread = audit("quantile", "add_remove", "owned_cell", own_cell_at_cost_0)
    assert loss > 1.1
    assert spread > 1.5


def test_control_rounding_towards_the_value():
    assert audit("lower quantile", "swap", "cell", rounded_towards_the_value)[0] == np.inf


MUTATIONS = {
    "sign": lambda level, below: -level,
    "lower levels from 1": lambda level, below: level + (below and level >= 0),
    "two levels a change": lambda level, below: 2 * level,
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_control_wrong_levels(name):
    loss, spread = audit("quantile", "add_remove", "owned_cell", with_other_levels(MUTATIONS[name]))
    assert max(loss, spread) > 1.05


def test_tied_data_keep_their_value():
    """Without the owned cell a constant column has no mass of its own near its median."""
    data = (2,) * 4
    for variant, least, most in (("cell", 0.0, 0.3), ("owned_cell", 0.3, 1.0)):
        profile = profile_of(data, "lower quantile", "swap", variant)
        assert least < np.exp(log_pmf(profile, EPSILON, 2, variant=variant)) < most


@pytest.mark.parametrize("variant", VARIANTS)
def test_control_a_shift_that_depends_on_the_data(variant):
    """The maximum: private for each shift, not for one that the data choose."""

    def shifted_by_choice(data):
        cells, present = np.zeros((1, 4), np.int32), np.zeros((1, 4), bool)
        cells[0, : len(data)], present[0, : len(data)] = data, True
        found = integer_profiles.maximum(cells, present, tau=1 + 3 * (sum(data) % 2), high=high_of(variant))
        return log_pmf(IntegerProfile(found.lower[0], found.upper[0]), EPSILON, np.arange(TOP + 1), variant=variant)

    worst = max(
        np.ptp(shifted_by_choice(data) - shifted_by_choice(other))
        for data in datasets(range(4))
        for other in neighbours_of(data, "add_remove")
        if len(other) < 4
    )
    assert worst > 1.05 * EPSILON


HOUSEHOLDS = [(), (1,), (3,), (1, 1), (3, 2), (3, 3)]  # the records of one person


def test_persons_with_many_records_count_once():
    """All sets of up to three persons, one person more or less; record by record, the same promise is broken."""

    def log_probabilities(people, *, by_person):
        cells, present, owners = np.zeros((1, 8), np.int32), np.zeros((1, 8), bool), np.zeros((1, 8), np.int64)
        records = [(amount, 10 - number) for number, records in enumerate(people) for amount in records]
        for place, (amount, person) in enumerate(records):
            cells[0, place], owners[0, place], present[0, place] = amount, person, True
        totals, every = totals_of_persons(cells, present, owners) if by_person else (cells, present)
        found = integer_profiles.nonnegative_sum(totals, every, tau=1, high=14)
        return log_pmf(IntegerProfile(found.lower[0], found.upper[0]), EPSILON, np.arange(15), variant="owned_cell")

    worst = {True: 0.0, False: 0.0}
    for size in range(3):
        for people in product(HOUSEHOLDS, repeat=size):
            for one_more in HOUSEHOLDS:
                for by_person in worst:
                    one, other = (log_probabilities(some, by_person=by_person) for some in (people, (*people, one_more)))
                    worst[by_person] = max(worst[by_person], np.ptp(one - other) / EPSILON)
    assert 0.5 < worst[True] <= 1 + 1e-12
    assert worst[False] > 1.2
