"""Both laws on all small datasets and all their neighbours, exactly; and the variants that must be caught."""

from itertools import product

import numpy as np
import pytest

from dpjax.release.exact import pieces_of
from dpjax.release.identities import totals_of_persons
from dpjax.release.knots import Knots, distinct_knots, maximum_knots, order_knots, sum_knots, total_knots
from dpjax.release.law import log_pmf
from dpjax.release.tables import LAWS
from dpjax.statistics.quantiles import ranks_of_order_statistic, ranks_of_quantile

TOP = 4  # records are 0..4
EPSILON = 1.0


def datasets(sizes):
    return [data for n in sizes for data in product(range(TOP + 1), repeat=n) if list(data) == sorted(data)]


def neighbours_of(data, neighbors):
    rest = [tuple(data[:i] + data[i + 1 :]) for i in range(len(data))]
    base = [data] if neighbors == "add_remove" else rest
    added = [tuple(sorted((*other, v))) for other in base for v in range(TOP + 1)]
    return set(added + (rest if neighbors == "add_remove" else [])) - {data}


def high_of(law):
    return TOP + (law == "cell")


def knots_of(data, statistic, neighbors, law, n_max=4):
    cells, there = np.zeros((1, n_max), np.int32), np.zeros((1, n_max), bool)
    cells[0, : len(data)], there[0, : len(data)] = data, True
    if neighbors == "swap":
        cells, there = cells[:, : len(data)], there[:, : len(data)]
    if statistic == "sum":
        found = sum_knots(cells, high=TOP)
    elif statistic == "maximum":
        found = maximum_knots(cells, there, tau=2, high=high_of(law))
    elif statistic == "distinct":
        found = distinct_knots(cells, there, tau=1, high=3 + (law == "cell"))
    elif statistic == "total":
        found = total_knots(cells, there, tau=1, high=10 + (law == "cell"))
    else:
        ranks = {
            "median": lambda: ranks_of_quantile(0.5, definition="linear", neighbors=neighbors),
            "lower quantile": lambda: ranks_of_quantile(0.3, definition="lower", neighbors=neighbors),
            "quantile": lambda: ranks_of_quantile(0.25, definition="linear", neighbors=neighbors),
            "second": lambda: ranks_of_order_statistic(2, cells.shape[-1]),
        }[statistic]()
        found = order_knots(cells, there, ranks, high=high_of(law), count_is_public=neighbors == "swap")
    return Knots(found.lower[0], found.upper[0])


def laws_of(statistic, neighbors, law, pmf=log_pmf):
    every = datasets(range(4) if neighbors == "add_remove" else [3])
    rows = [knots_of(data, statistic, neighbors, law) for data in every]
    low, high = rows[0].lower[-1], rows[0].upper[-1] + (law == "owned_cell")
    cells = np.arange(low, high)
    return every, np.stack([pmf(row, EPSILON, cells, law=law) for row in rows])


def audit(statistic, neighbors, law, pmf=log_pmf):
    """The largest loss and the largest range over all neighbours, in units of epsilon."""
    every, laws = laws_of(statistic, neighbors, law, pmf)
    index = {data: row for row, data in enumerate(every)}
    loss = spread = 0.0
    for data in every:
        for other in neighbours_of(data, neighbors):
            if other in index:
                with np.errstate(invalid="ignore"):
                    ratio = laws[index[data]] - laws[index[other]]
                ratio = np.where(np.isneginf(laws[index[data]]) & np.isneginf(laws[index[other]]), 0.0, ratio)
                loss, spread = max(loss, np.abs(ratio).max()), max(spread, ratio.max() - min(ratio.min(), 0.0))
    return loss / EPSILON, spread / EPSILON


NAMES = ("median", "lower quantile", "quantile", "second", "maximum", "total", "distinct")
CASES = [(s, r) for r in ("add_remove", "swap") for s in NAMES] + [("sum", "swap")]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("statistic", "neighbors"), CASES)
def test_loss_and_range_of_all_neighbours(statistic, neighbors, law):
    loss, spread = audit(statistic, neighbors, law)
    assert loss <= 1 + 1e-12
    assert 0.3 < spread <= 1 + 1e-12
    _, laws = laws_of(statistic, neighbors, law)
    np.testing.assert_allclose(np.exp(laws).sum(axis=-1), 1.0, rtol=1e-12)


def own_cell_at_cost_0(knots, epsilon, cells, *, law):
    found = log_pmf(knots, epsilon, cells, law=law)
    found = np.where(cells == knots.upper[0], found + epsilon / 2, found)
    return found - np.logaddexp.reduce(found)


def rounded_towards_the_value(knots, epsilon, cells, *, law):
    """The cells below the value are moved up by one: the value is the end of its own last cell."""
    found = log_pmf(knots, epsilon, cells, law=law)
    below = np.where(cells <= knots.lower[0], log_pmf(knots, epsilon, cells - 1, law=law), -np.inf)
    return np.logaddexp(np.where(cells >= knots.upper[0], found, -np.inf), below)


def with_other_levels(change):
    """The law with the levels of its pieces changed: the weights are wrong, the shares within a piece are not."""

    def pmf(knots, epsilon, cells, *, law):
        found = log_pmf(knots, epsilon, cells, law=law)
        for width, level, inner, below in pieces_of(knots.lower.tolist(), knots.upper.tolist(), law):
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
    for law, least, most in (("cell", 0.0, 0.3), ("owned_cell", 0.3, 1.0)):
        knots = knots_of(data, "lower quantile", "swap", law)
        assert least < np.exp(log_pmf(knots, EPSILON, 2, law=law)) < most


@pytest.mark.parametrize("law", LAWS)
def test_control_a_shift_that_depends_on_the_data(law):
    """The maximum: private for each shift, not for one that the data choose."""

    def shifted_by_choice(data):
        cells, there = np.zeros((1, 4), np.int32), np.zeros((1, 4), bool)
        cells[0, : len(data)], there[0, : len(data)] = data, True
        found = maximum_knots(cells, there, tau=1 + 3 * (sum(data) % 2), high=high_of(law))
        return log_pmf(Knots(found.lower[0], found.upper[0]), EPSILON, np.arange(TOP + 1), law=law)

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

    def law_of(people, *, by_person):
        cells, there, owners = np.zeros((1, 8), np.int32), np.zeros((1, 8), bool), np.zeros((1, 8), np.int64)
        records = [(amount, 10 - number) for number, records in enumerate(people) for amount in records]
        for place, (amount, person) in enumerate(records):
            cells[0, place], owners[0, place], there[0, place] = amount, person, True
        totals, every = totals_of_persons(cells, there, owners) if by_person else (cells, there)
        found = total_knots(totals, every, tau=1, high=14)
        return log_pmf(Knots(found.lower[0], found.upper[0]), EPSILON, np.arange(15), law="owned_cell")

    worst = {True: 0.0, False: 0.0}
    for size in range(3):
        for people in product(HOUSEHOLDS, repeat=size):
            for one_more in HOUSEHOLDS:
                for by_person in worst:
                    ratio = law_of(people, by_person=by_person) - law_of((*people, one_more), by_person=by_person)
                    worst[by_person] = max(worst[by_person], np.ptp(ratio) / EPSILON)
    assert 0.5 < worst[True] <= 1 + 1e-12
    assert worst[False] > 1.2
