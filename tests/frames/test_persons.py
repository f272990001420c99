"""Every table of up to three persons, three groups and two rows each: the exact loss of one person
more, against the promise.
"""

import functools
import itertools

import numpy as np
import pytest

from dpjax.frames import PrivateGroups, simulate
from dpjax.release import Count, Counts, Median, Sum
from tests.support.noisy_sizes import divergence, outcomes
from tests.support.tables import IN_MEMORY, as_duckdb, as_polars, counted, pyarrow, sized

EPSILON, GROUPS = 0.7, "abc"
VALUES = np.arange(3.0)
ROWS = tuple(itertools.product(range(3), range(3)))  # (group, value)
PERSONS = tuple(
    rows for number in range(3) for rows in itertools.combinations_with_replacement(ROWS, number)
)
STATISTIC, TOTAL = Median(0, 2, 1), Sum(0, 2, 1)
RULES = ("mean", "sum", "min", "max", "count")
SETTINGS = list(itertools.product(RULES, (1, 2)))
OTHERS = [kind for kind in [*IN_MEMORY, as_duckdb] if kind is not as_polars]
MAKERS = [as_polars, *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS)]
SAME = 1 + 1e-12  # but for rounding


def table_of(persons):
    """A table of Arrow with the rows of these persons."""
    rows = [(who, group, value) for who, rows in enumerate(persons) for group, value in rows]
    return pyarrow.table(
        {
            "who": np.array([who for who, _, _ in rows], np.int64),
            "g": pyarrow.array([GROUPS[group] for _, group, _ in rows], "string"),
            "x": np.array([VALUES[value] for _, _, value in rows]),
        }
    )


def counts_of(persons, rule, most, make=as_polars):
    """How many records of each group have each value, (3, 3), as the library counts them."""
    asked = "x", STATISTIC, ["g"], list(GROUPS), ("who", rule, most)
    found = np.zeros((3, 3), np.int64)
    for ((group,), value), records in counted(make(table_of(persons)), *asked).items():
        found[GROUPS.index(group), value] = records
    return found


def sizes_of(persons, most, make=as_polars):
    """How many persons each group has, (3,), as private groups count them."""
    found = sized(make(table_of(persons)), "x", STATISTIC, ["g"], ("who", None, most))
    return np.array([found[group,] for group in GROUPS])


@functools.cache
def added(rule, most):
    """What each person alone adds to the counts."""
    return {person: counts_of([person], rule, most) for person in PERSONS}


@functools.cache
def added_sizes(most):
    return {person: sizes_of([person], most) for person in PERSONS}


def some_tables(seed, number):
    rng = np.random.default_rng(seed)
    return [
        [PERSONS[k] for k in rng.integers(0, len(PERSONS), rng.integers(1, 9))]
        for _ in range(number)
    ]


@pytest.mark.parametrize(("rule", "most"), SETTINGS)
def test_a_person_adds_at_most_one_record_to_each_of_few_groups(rule, most):
    for person, found in added(rule, most).items():
        assert np.all(found.sum(axis=1) <= 1)
        assert found.sum() == min(len({group for group, _ in person}), most)


@pytest.mark.parametrize(("rule", "most"), SETTINGS)
@pytest.mark.parametrize("make", MAKERS)
def test_the_counts_of_a_table_are_the_sum_of_what_each_person_adds(make, rule, most):
    for table in some_tables(most, 10):
        whole = sum(added(rule, most)[person] for person in table)
        np.testing.assert_array_equal(counts_of(table, rule, most, make), whole)
        whole = sum(added_sizes(most)[person] for person in table)
        np.testing.assert_array_equal(sizes_of(table, most, make), whole)


# Counts of the three values in one group
VECTORS = [v for v in itertools.product(range(4), repeat=3) if sum(v) <= 3]
EVERY = Counts.of_rows(
    *np.indices((len(VECTORS), 3)).reshape(2, -1), np.ravel(VECTORS), groups=len(VECTORS)
)


def losses(law):
    """The largest log ratio of each two rows of a law: of the first over the second."""
    return np.max(law[:, None] - law[None], axis=-1)


@functools.cache
def law_of(statistic):
    """The logarithm of the probability of each value for each row of counts, exactly; of noise
    without bounds, of the values beside all that there are.
    """
    found = statistic.distribution(EVERY, epsilon=EPSILON, neighbors="add_remove")
    values = VALUES if statistic is STATISTIC else np.arange(-9.0, 16)
    law = found.pmf(values[:, None]).T
    assert np.all(law.sum(axis=1) > (1 - 1e-12 if statistic is STATISTIC else 0.9))
    return np.log(law)


def pairs_of(alone):
    """All pairs of a table of up to two persons and the same with one person more, as numbers of
    rows of counts.
    """
    # Nobody adds nothing
    others = np.array([a + b for a, b in itertools.combinations_with_replacement(alone, 2)])
    before = np.repeat(others, len(alone), axis=0)
    after = before + np.tile(np.array(alone), (len(others), 1, 1))
    place = np.zeros((4, 4, 4), np.int64)
    place[tuple(np.transpose(VECTORS))] = np.arange(len(VECTORS))
    return [place[tuple(np.moveaxis(each, -1, 0))] for each in (before, after)]


@functools.cache
def promise_of(rule, most):
    """What a release costs a person, by its own words."""
    asked = {"unit": "who", "per_unit": rule, "max_groups": most, "neighbors": "add_remove"}
    found = simulate(0, table_of(PERSONS[:9]), {"x": STATISTIC}, by="g", epsilon=EPSILON, **asked)
    return found.guarantee.epsilon


@pytest.mark.parametrize(("rule", "most"), SETTINGS)
def test_no_person_more_or_less_costs_more_than_is_promised_and_some_cost_as_much(rule, most):
    promise = promise_of(rule, most)
    assert promise == pytest.approx(most * EPSILON)
    before, after = pairs_of(list(added(rule, most).values()))
    assert len(before) == 84_700
    for statistic, least in ((STATISTIC, 0.7), (TOTAL, 1 - 1e-9), (Count(), 1 - 1e-9)):
        loss = losses(law_of(statistic))  # groups are drawn independently
        both = loss[before, after].sum(axis=-1), loss[after, before].sum(axis=-1)
        worst = float(np.max(both))
        assert worst <= promise * SAME
        if rule == "count" and statistic is TOTAL:
            continue  # nobody here has two rows in each of two groups
        assert worst > least * promise
        # The control: a promise that forgets max_groups
        assert (worst > promise_of(rule, 1) * SAME) == (most == 2)


def delta_of(sizes, groups, epsilon):
    """The hockey-stick divergence where groups of these sizes all get one person more."""
    both = [np.ones(1), np.ones(1)]
    for size, more in itertools.product(sizes, (0, 1)):
        one = outcomes(size + more, groups.epsilon, groups.threshold, 40)
        both[more] = np.outer(both[more], one).ravel()
    return divergence(*both, epsilon)


def worst_delta(groups, most, epsilon):
    """The largest hockey-stick divergence at this epsilon of the noisy sizes of a table and of the
    one with a person more.
    """
    alone = sorted({tuple(sizes) for sizes in added_sizes(most).values()})
    # The groups whose size differs: the others have equal factors, which add up to 1
    changed = {
        tuple(sorted(a + b for a, b, more in zip(*persons, strict=True) if more))
        for persons in itertools.product(alone, repeat=3)
    }
    return max(delta_of(sizes, groups, epsilon) for sizes in changed)


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.7, 0.05), (1.5, 0.01), (0.2, 0.3)])
def test_private_groups_have_exactly_the_delta_of_a_person(most, epsilon, delta):
    groups = PrivateGroups(epsilon, delta, max_groups=most)
    promise = groups.guarantee
    assert promise.epsilon == pytest.approx(most * epsilon)
    worst = worst_delta(groups, most, promise.epsilon)
    assert worst <= promise.delta * SAME <= delta * SAME
    assert worst == pytest.approx(promise.delta, rel=1e-9)
    if most == 2:  # the controls: a threshold, or an epsilon, that forgets max_groups
        forgetful = PrivateGroups(epsilon, delta)
        assert worst_delta(forgetful, most, most * epsilon) > forgetful.guarantee.delta * 1.5
        assert delta_of((20, 20), groups, epsilon) > 10 * delta_of((20, 20), groups, 2 * epsilon)
