"""All datasets of at most five records on five values, and all their neighbors: no value's
probability changes by more than is promised, and some does by as much.
"""

import numpy as np
import pytest

from dpjax.release import Mode
from tests.support.oracle import all_datasets
from tests.support.releases import (
    CASES,
    GRID,
    MECHANISMS,
    STATISTICS,
    TOP,
    after,
    law_of,
    loss_and_range,
    pairs_of,
    pmf,
)

DATA = all_datasets(range(6), GRID)
PAIRS = {neighbors: pairs_of(DATA, neighbors) for neighbors in ("add_remove", "swap")}
EPSILONS = (2.0**-10, 0.3, 1.0, 2.0, 3.0, 16.0)
ABOVE = 1.0000000001


@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_no_neighbor_of_a_small_dataset_loses_more_than_promised(name, neighbors):
    statistic = STATISTICS[name]
    for mechanism in statistic.mechanisms:
        largest = 0
        for epsilon in EPSILONS:
            promise = statistic.cost(epsilon, 1, neighbors, mechanism)
            shares = pmf(statistic, DATA, epsilon, neighbors, mechanism)
            loss, width = loss_and_range(shares, PAIRS[neighbors])
            assert loss <= promise.epsilon * ABOVE
            assert width <= promise.bounded_range * ABOVE
            largest = max(largest, loss / epsilon)
        assert largest > 0.999 or (name, neighbors) == ("distinct", "swap")


def forgetting(statistic, data, _, changes):
    """As if a window of 2 n + 1 changes were all."""
    reach = 2 * len(data) + 1
    if abs(changes) > reach:
        return TOP if changes > 0 else 0
    return after(statistic, data, "swap", changes)


VIOLATIONS = {
    "depths that count twice": ("median", "swap", "swap", {"depths": 2}),
    "the other relation": ("median", "add_remove", "swap", {}),
    "windows that forget tau": (
        "maximum of 3",
        "add_remove",
        "add_remove",
        {"changed": forgetting},
    ),
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("violation", VIOLATIONS)
def test_control_violations_are_found(violation, mechanism):
    name, neighbors, audited, variant = VIOLATIONS[violation]
    shares = law_of(STATISTICS[name], DATA, 3.0, neighbors, mechanism, **variant)
    assert loss_and_range(shares, PAIRS[audited])[0] > 1.4 * 3.0


@pytest.mark.parametrize(("wrong", "found"), [(1.0, False), (1.001, True)])
def test_control_a_rate_that_is_off_is_found(wrong, found):
    shares = pmf(STATISTICS["median"], DATA, 16.0 * wrong, "swap")
    assert (loss_and_range(shares, PAIRS["swap"])[0] > 16.0 * ABOVE) == found


def test_missing_ids_and_labels_are_neighbors_under_swap_too():
    """One record changes, whose id is the first of the list; the others are missing or 'b'."""
    first, second = (["a", None, None, "b", "b"], ["b", None, None, "b", "b"])
    for statistic, records in (
        (STATISTICS["distinct"], (first, second, [None, *first[1:]])),
        (Mode(GRID), ([0, None, 1, 1, 9], [None, None, 1, 1, 9], [1, None, 1, 1, 9])),
    ):
        law = [
            statistic.distribution(x, epsilon=1.0, neighbors="swap").pmf(np.arange(5.0))
            for x in records
        ]
        loss = np.log(np.array(law)[:, None] / np.array(law))
        assert 0.1 < loss.max() <= ABOVE


def test_records_of_one_row_do_not_change_the_law_of_another():
    rows = [["a", "b", "b", "c"], ["d", "a", None, "c"]]
    for changed in (None, "z", "d", 7):
        other = [[changed, *rows[0][1:]], rows[1]]
        laws = [
            STATISTICS["distinct"].distribution(x, epsilon=1.0, neighbors="swap").pmf(2.0)
            for x in (rows, other)
        ]
        assert laws[0][1] == laws[1][1]
