"""Down sensitivity against every removal from every small dataset, and in order between neighbors;
ids, totals and precision.
"""

from decimal import Decimal
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import distinct_count, maximum, nonnegative_sum, order_statistic, user_sum
from dpjax.sensitivity import from_removals
from tests.statistics.small_datasets import (
    LEVELS,
    SHOWN,
    UNIVERSE,
    datasets,
    rows,
    search,
    values_of,
)

GRID = (0.0, 1.0, 4.0, 5.0, 9.0)
TOP = 7.0  # the upper bound of every range: above some values and below others
PERSONS = ((1.0,), (2.0, 0.5), (0.25, 0.5, 0.25), (6.0,), (0.0, 3.0))  # amounts of a person's rows
IDS = ((2**40,), (-5,), (2**32 + 7,), (7,), (0,))
BASKETS = ((0,), (0, 1), (0, 2), (1, 2), (2, 3))  # items of persons with several


@cache
def crowds(kinds, columns=12):
    """All small datasets of such persons as rows in random order among others that are not there:
    entries, persons (ids that 32 bits cannot hold), and which rows are there.
    """
    rng = np.random.default_rng(0)
    dtype = np.float64 if isinstance(kinds[0][0], float) else np.int64
    entries, who = (
        np.full((SHOWN, columns), fill, kind) for fill, kind in ((99, dtype), (7, np.int64))
    )
    mask = np.zeros(who.shape, bool)
    names = np.array([-(2**40), 2**40, 2**32 + 7, 7, 0, -1])
    for row, crowd in enumerate(datasets(kinds)[:SHOWN]):
        chosen = rng.choice(names, len(crowd), replace=False)
        each = [(own, name) for person, name in zip(crowd, chosen, strict=True) for own in person]
        places = rng.permutation(columns)[: len(each)]
        mask[row, places] = True
        for place, (own, name) in zip(places, each, strict=True):
            entries[row, place], who[row, place] = own, name
    return entries, who, mask


def of_rows(statistic, **options):
    some = rows("add_remove", "mask", 0, GRID)
    return jax.jit(partial(statistic, upper=TOP, **options))(
        some.x.astype(np.float32), **some.given
    )


def of_crowds(kinds, statistic):
    entries, who, mask = crowds(kinds)
    entries = entries.astype(np.float32) if entries.dtype == np.float64 else entries
    return statistic(entries, who, mask)


STATISTICS = {  # what the library finds, the definition, and what it is asked of
    "maximum": (
        partial(of_rows, maximum, lower=0.0),
        lambda data: min(TOP, max(data, default=0.0)),
        GRID,
    ),
    "sum": (partial(of_rows, nonnegative_sum), lambda data: min(TOP, sum(data)), GRID),
    "distinct ids": (
        lambda: of_crowds(IDS, lambda ids, _, mask: distinct_count(ids, upper=4, mask=mask)),
        lambda crowd: min(4, len(set(crowd))),
        IDS,
    ),
    "sum of persons": (
        lambda: of_crowds(PERSONS, lambda x, who, mask: user_sum(x, who, upper=TOP, mask=mask)),
        lambda crowd: min(TOP, sum(map(sum, crowd))),
        PERSONS,
    ),
}


def in_order(values):
    """Whether h_x(l+1) <= h_x'(l) <= h_x(l) for everybody who leaves: ``(datasets, levels)``."""
    more, fewer = np.asarray(values)[UNIVERSE.pairs("remove")]
    return bool((more[:, 1:] <= fewer[:, :-1]).all() and (fewer <= more).all())


@pytest.mark.parametrize("name", STATISTICS)
def test_every_removal_from_every_small_dataset(name):
    found, defined, kinds = STATISTICS[name]
    down = jax.device_get(found())
    exact = search(values_of(defined, kinds), "remove")[1].T
    np.testing.assert_array_equal(down.values[:, :LEVELS], exact)
    assert (down.values[:, LEVELS:] == exact[:, -1:]).all()
    assert in_order(down.values)
    assert (down.upper == (4 if name == "distinct ids" else TOP)).all()


def test_control_leaving_in_the_wrong_order_is_seen():
    """Of items, the person by whom most are lost is not the worst."""

    def greedy(crowd):
        left, values = list(crowd), []
        for _ in range(LEVELS):
            values.append(len(set().union(*left)))
            fewer = (left[:i] + left[i + 1 :] for i in range(len(left)))
            left = min(fewer, key=lambda some: len(set().union(*some)), default=[])
        return values

    assert not in_order([greedy(crowd) for crowd in datasets(BASKETS)[:SHOWN]])


def test_distinct_items_of_persons_with_several():
    """The items now, never more than what the worst removals leave, and in order."""
    items, who, mask = crowds(BASKETS)
    found = np.asarray(distinct_count(items, who, upper=10, mask=mask).values)
    exact = search(values_of(lambda crowd: len(set().union(*crowd)), BASKETS), "remove")[1].T
    np.testing.assert_array_equal(found[:, 0], exact[:, 0])
    assert (found[:, :LEVELS] <= exact).all()
    assert (found[:, :LEVELS] == exact).mean() > 0.85
    assert in_order(found)
    twice = (np.repeat(array, 2, axis=-1) for array in (items, who, mask))
    items, who, mask = twice
    again = np.asarray(distinct_count(items, who, upper=10, mask=mask).values)
    np.testing.assert_array_equal(again[:, : found.shape[1]], found)
    alone = np.array([4, 4, 4, 9, 9, 1])
    one_each = distinct_count(alone, np.arange(6), upper=10).values.tolist()
    assert one_each == distinct_count(alone, upper=10).values.tolist() == [3, 2, 2, 1, 1, 1, 0]


def test_values_of_one_s_own_by_removals():
    """The largest sum of any subset, of records that lower it: exact minima, and only the first few
    of them.
    """
    values = (-3.0, -1.0, 0.5, 1.0, 2.0)
    largest = values_of(lambda data: sum(max(value, 0) for value in data), values)
    exact = search(largest, "remove")[1].T[:, :5]
    made = jax.jit(partial(from_removals, lower=0, upper=6))
    for levels in (5, 2, 1):
        down = jax.device_get(made(exact[:, :levels]))
        assert down.values.shape == (SHOWN, levels + 1)
        np.testing.assert_array_equal(down.values[:, :levels], np.minimum(exact[:, :levels], 6))
        assert in_order(down.values)
    # Control: the least sum itself, where removals that raise it count too.
    itself = search(values_of(sum, values), "remove")[1].T
    assert not in_order(jax.jit(partial(from_removals, lower=-12, upper=6))(itself).values)
    hostile = np.array([[np.nan, 3.0, -1.0], [7.0, 8.0, 2.0]], np.float32)
    odd = jax.jit(partial(from_removals, upper=6))
    assert odd(hostile, lower=1).values.tolist() == [[1, 1, 1, 1], [6, 6, 2, 1]]
    assert np.isnan(odd(hostile, lower=np.float32(np.nan)).values).all()


def test_the_shift_of_the_maximum_is_the_order_statistic_from_the_top(x64):
    x = np.random.default_rng(1).uniform(0, 6, (4, 12))

    @partial(jax.jit, static_argnames="tau")
    def both(x, tau):
        top = order_statistic(x, 12 - tau, lower=0.0, upper=TOP, neighbors="add_remove")
        return maximum(x, lower=0.0, upper=TOP).shift(tau), top

    for tau in (1, 11):
        shifted, top = jax.device_get(both(x, tau))
        np.testing.assert_array_equal(shifted.upper[:, : tau + 2], top.upper[:, : tau + 2])
        np.testing.assert_array_equal(shifted.lower, top.lower[:, : shifted.lower.shape[-1]])
        static = shifted.neighbors, shifted.interpolable, shifted.integer_levels
        assert static == ("add_remove", True, True)


def test_the_post_s_figure_and_a_shift_beyond_all_people():
    """Binomial(5, 1/2) counts, the post's Figure 1: the maximum is 5, the next five records are 4,
    then ten are 3.
    """

    @jax.jit
    def asked():
        down = maximum(np.repeat(np.arange(6.0), [1, 5, 10, 10, 5, 1]), lower=0.0, upper=5.0)
        lost = [down.down_sensitivity(k) for k in (0, 1, 5, 6, 16, 31, 32, 99)]
        few = maximum(np.array([2.0, 4.0]), lower=1.0, upper=9.0).shift(4)
        return lost, down.at(16), down.lower, few

    lost, at, low, few = jax.device_get(asked())
    assert [float(one) for one in lost] == [0, 1, 1, 2, 3, 5, 5, 5]
    assert (float(at), float(low)) == (2, 0)
    assert (few.upper.tolist(), few.lower.tolist()) == ([1, 1, 1, 2, 4, 9], [1])
    assert [float(end) for end in few.support] == [1, 9]


def test_sums_of_many_records_never_rise_by_rounding():
    x = np.random.default_rng(4).uniform(0.999, 1.001, (2, 5000)).astype(np.float32)
    values = np.asarray(jax.jit(partial(nonnegative_sum, upper=1e9))(x).values)
    assert (np.diff(values) <= 0).all()
    exact = np.cumsum(np.sort(x.astype(np.float64)), axis=-1)[:, ::-1]
    np.testing.assert_allclose(values[:, :-1], exact, rtol=2.0**-24)


class Evil(int):
    """An id that raises where it is compared, also with others."""

    __hash__ = int.__hash__

    def __eq__(self, other):
        raise KeyError


@pytest.mark.parametrize(
    ("ids", "left"),
    [
        (np.array([200, 3, 200, 0, 3, 200], np.uint8), [3, 2, 2, 1, 1, 1, 0]),
        (np.array([2**32 + 1, 1, 2**63 - 1, -1], np.int64), [4, 3, 2, 1, 0]),
        ([2**63, 1, 2**63 + 1], [3, 2, 1, 0]),  # NumPy would make floats of them, or refuse
        ([2**100, 2**100 + 1, 5], [3, 2, 1, 0]),
        ([1, "1", 2**100, "1"], [3, 2, 1, 1, 0]),  # NumPy would make text of them
        (np.array(["a", "bc", "a"]), [2, 1, 1, 0]),
        # What is missing, or cannot be compared, is one id
        ([None, float("nan"), 3, [1], Decimal("sNaN"), Evil(3)], [2, 1, 1, 1, 1, 1, 0]),
        (np.array([np.nan, 1.0, np.nan], np.float32), [2, 1, 1, 0]),
        ([("a", 1), ("a", 2), ("a", 1)], [2, 1, 1, 0]),
        ([("a", 1), None, ("a",)], [3, 2, 1, 0]),
        (jnp.array([2, -1, 2]), [2, 1, 1, 0]),
        ([], [0]),
    ],
)
def test_equal_ids_are_one_and_others_stay_apart(ids, left):
    assert not jax.config.jax_enable_x64
    assert distinct_count(ids, upper=9).values.tolist() == left
    totals = np.asarray(user_sum(np.ones(len(ids), np.float32), ids, upper=9).values)
    assert (totals[0], np.count_nonzero(totals)) == (len(ids), left[0])


@pytest.mark.parametrize(
    ("error", "word", "call"),
    [
        (ValueError, "person_ids", lambda: user_sum([1.0, 2.0], [1], upper=1)),
        (ValueError, "people who leave", lambda: from_removals(3.0, lower=0, upper=6)),
        (
            TypeError,
            "traced",  # it runs on the host
            lambda: jax.jit(lambda ids: distinct_count(ids, [0, 1], upper=1).values)(np.arange(2)),
        ),
    ],
)
def test_what_does_not_go_together(error, word, call):
    with pytest.raises(error, match=word):
        call()
