"""Every table of up to three persons, three groups and two rows each: the exact loss of one person
more, against the promise.
"""

import itertools
import math

import numpy as np
import pytest

from dpjax.frames import PrivateGroups, simulate
from dpjax.release import Count, Counts, Median
from tests.support.tables import Opened, promise_of

EPSILON, GROUPS, VALUES = 0.7, "abc", (0.0, 1.0, 2.0)
ROWS = tuple(itertools.product(range(3), range(3)))  # (group, value)
PERSONS = tuple(
    rows for number in range(3) for rows in itertools.combinations_with_replacement(ROWS, number)
)
STATISTIC = Median(0, 2, 1)
SETTINGS = [(rule, most) for rule in ("mean", "sum", "min", "max", "count") for most in (1, 2)]
SAME = 1 + 1e-12  # but for rounding


def as_arrays(persons):
    """A mapping of arrays with the rows of these persons."""
    rows = [(who, group, value) for who, rows in enumerate(persons) for group, value in rows]
    return {
        "who": np.array([who for who, _, _ in rows], np.int64),
        "g": np.array([GROUPS[group] for _, group, _ in rows], "U1"),
        "x": np.array([VALUES[value] for _, _, value in rows]),
    }


def as_pandas(persons):
    return pytest.importorskip("pandas").DataFrame(as_arrays(persons))


def as_polars(persons):
    return pytest.importorskip("polars").DataFrame(as_arrays(persons))


def as_arrow(persons):
    return pytest.importorskip("pyarrow").table(as_arrays(persons))


def as_duckdb(persons):
    arrow = as_arrow(persons)
    return pytest.importorskip("duckdb").from_arrow(arrow)


def counts_of(persons, rule, most, make=as_arrays):
    """How many records of each group have each value, (3, 3), as the library counts them."""
    given = {"by": "g", "groups": list(GROUPS), "persons": ("who", rule, most)}
    tally = Opened(make(persons), "x", STATISTIC, **given).tally()
    found = np.zeros((3, 3), np.int64)
    weight = np.ones(len(tally.group), np.int64) if tally.weight is None else tally.weight
    there = (tally.group >= 0) & (tally.position >= 0)
    np.add.at(found, (tally.group[there], tally.position[there]), weight[there])
    return found


def sizes_of(persons, most, make=as_arrays):
    """How many persons each group has, (3,), as private groups count them."""
    given = {"by": "g", "groups": PrivateGroups(1.0, 0.1), "persons": ("who", None, most)}
    groups, sizes = Opened(make(persons), "x", STATISTIC, **given).sizes()
    found = np.zeros(3, np.int64)
    found[[GROUPS.index(name) for name in groups.names]] = sizes
    return found


def some_tables(seed, number):
    rng = np.random.default_rng(seed)
    return [
        [PERSONS[k] for k in rng.integers(0, len(PERSONS), rng.integers(1, 6))]
        for _ in range(number)
    ]


@pytest.mark.parametrize(("rule", "most"), SETTINGS)
def test_the_counts_of_a_table_are_the_sum_of_what_each_person_adds(rule, most):
    added = {person: counts_of([person], rule, most) for person in PERSONS}
    for person, found in added.items():
        assert found.max(initial=0) <= 1
        assert np.all(found.sum(axis=1) <= 1)
        assert found.sum() == min(len({group for group, _ in person}), most)
    for table in some_tables(most, 60):
        np.testing.assert_array_equal(
            counts_of(table, rule, most), sum(added[person] for person in table)
        )
    alone = {person: sizes_of([person], most) for person in PERSONS}
    for table in some_tables(most + 2, 20):
        np.testing.assert_array_equal(sizes_of(table, most), sum(alone[person] for person in table))


@pytest.mark.slow
@pytest.mark.parametrize("make", [as_pandas, as_polars, as_arrow, as_duckdb])
@pytest.mark.parametrize(("rule", "most"), SETTINGS)
def test_engines_add_the_same_for_every_person(make, rule, most):
    for person in PERSONS:
        np.testing.assert_array_equal(
            counts_of([person], rule, most, make), counts_of([person], rule, most)
        )
    for table in some_tables(9, 20):
        np.testing.assert_array_equal(
            counts_of(table, rule, most, make), counts_of(table, rule, most)
        )
        np.testing.assert_array_equal(sizes_of(table, most, make), sizes_of(table, most))


# Counts of the three values in one group
VECTORS = [v for v in itertools.product(range(4), repeat=3) if sum(v) <= 3]
EVERY = Counts.of_matrix(np.arange(3), np.array(VECTORS))
NUMBER = {vector: number for number, vector in enumerate(VECTORS)}


def losses(law):
    """The largest log ratio of each two rows of a law: of the first over the second."""
    return np.max(law[:, None] - law[None], axis=-1)


def law_of_medians():
    """The logarithm of what a median of each row of counts is, exactly."""
    law = STATISTIC.distribution(EVERY, EPSILON, "add_remove").log_pmf(np.array(VALUES)[:, None]).T
    np.testing.assert_allclose(np.exp(law).sum(axis=1), 1, rtol=1e-12)
    return law


def law_of_sizes():
    """The same for a count: discrete Laplace noise, up to a constant."""
    return -EPSILON * abs(np.arange(-9, 13) - Count().numbers(EVERY)[:, None])


def pairs_of(added):
    """All pairs of a table of up to two persons and the same with one person more, as numbers of
    rows of counts.
    """
    # Nobody adds nothing
    others = np.array([a + b for a, b in itertools.combinations_with_replacement(added, 2)])
    before = np.repeat(others, len(added), axis=0)
    after = before + np.tile(np.array(added), (len(others), 1, 1))
    place = np.zeros((4, 4, 4), np.int64)
    for vector, number in NUMBER.items():
        place[vector] = number
    return tuple(place[tuple(np.moveaxis(each, -1, 0))] for each in (before, after))


def worst_loss(rule, most, law):
    """The largest exact loss of one person more or less, and the number of pairs of tables."""
    before, after = pairs_of([counts_of([person], rule, most) for person in PERSONS])
    loss = losses(law)
    # Groups are drawn independently
    both = np.stack([loss[before, after].sum(axis=-1), loss[after, before].sum(axis=-1)])
    return float(both.max()), len(before)


@pytest.mark.parametrize(("rule", "most"), SETTINGS)
def test_no_person_more_or_less_costs_more_than_is_promised_and_some_cost_as_much(rule, most):
    promise = promise_of(STATISTIC, EPSILON, ("who", rule, most))
    assert (promise.epsilon, promise.unit) == (pytest.approx(most * EPSILON), "person")
    worst, pairs = worst_loss(rule, most, law_of_medians())
    assert pairs == 84_700
    assert 0.7 * promise.epsilon < worst <= promise.epsilon * SAME
    exact, _ = worst_loss(rule, most, law_of_sizes())
    assert exact == pytest.approx(promise.epsilon, rel=1e-9)
    of_one = promise_of(STATISTIC, EPSILON, ("who", rule, 1))
    # The control: a promise that forgets max_groups
    assert (worst > of_one.epsilon * SAME) == (most == 2)


def noisy_sizes(size, groups, most=40):
    """The probability of "not kept", of each noisy size that is, and of all from some size on,
    where ratios are constant.
    """
    if size == 0:
        return np.array([1.0, *[0.0] * (most - groups.threshold + 1)])
    noisy = np.arange(groups.threshold, most)
    mass = math.tanh(groups.epsilon / 2) * np.exp(-groups.epsilon * abs(noisy - size))
    rest = math.exp(-groups.epsilon * (most - size)) / (1 + math.exp(-groups.epsilon))
    return np.array([1 - mass.sum() - rest, *mass, rest])


def worst_delta(groups, most, epsilon):
    """The largest hockey-stick divergence at this epsilon of the noisy sizes of a table and of the
    one with a person more.
    """
    added = [sizes_of([person], most) for person in PERSONS]
    others = [a + b for a, b in itertools.combinations_with_replacement(added, 2)]
    # The groups whose size differs: the others have equal factors, which add up to 1
    changed = set()
    for before, person in itertools.product(others, added):
        changed.add(tuple(sorted(int(n) for n, more in zip(before, person, strict=True) if more)))
    return max(divergence(sizes, groups, epsilon) for sizes in changed)


def divergence(sizes, groups, epsilon):
    """The hockey-stick divergence, the larger one of both ways, where groups of these sizes all get
    one person more.
    """
    p, q = np.ones(1), np.ones(1)
    for size in sizes:
        p = np.outer(p, noisy_sizes(size, groups)).ravel()
        q = np.outer(q, noisy_sizes(size + 1, groups)).ravel()
    return max(
        float(np.sum(np.maximum(one - math.exp(epsilon) * other, 0)))
        for one, other in ((p, q), (q, p))
    )


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
        assert divergence((20, 20), groups, epsilon) > 10 * divergence(
            (20, 20), groups, most * epsilon
        )


@pytest.mark.parametrize("make", [as_arrays, as_pandas, as_polars, as_arrow, as_duckdb])
def test_a_simulation_says_how_many_persons_are_in_more_groups(make):
    """Three persons of seven are in two of the groups that are asked for, one of them in a third
    that is not.
    """
    persons = [[(0, 1.0), (1, 2.0)]] * 2 + [[(0, 0.0)] * 2] * 4 + [[(0, 1.0), (1, 2.0), (2, 1.0)]]
    persons = [tuple((group, int(value)) for group, value in rows) for rows in persons]
    given = {
        "statistic": STATISTIC,
        "by": "g",
        "groups": ["a", "b"],
        "unit": "who",
        "neighbors": "add_remove",
        "epsilon": 1.0,
    }
    note = simulate(0, make(persons), "x", **given).note
    assert "3 of 7 persons have rows in more groups than they count in, 1 (max_groups=)" in note
    assert "persons" not in simulate(0, make(persons), "x", **given, max_groups=2).note
    assert "persons" not in simulate(0, make([]), "x", **given).note
