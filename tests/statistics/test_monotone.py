"""Down sensitivity: against every subset of every small dataset, and the contracts of batches,
padding and precision.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import order_statistic, shifted_inverse
from dpjax.sensitivity.down import DownSensitivity, from_removals
from dpjax.statistics.monotone import distinct_count, maximum, nonnegative_sum, user_sum
from tests.support import removals
from tests.support.removals import (
    DATASETS,
    DEFINITIONS,
    N_MAX,
    TOP,
    down_sensitivity_of,
    kept,
    neighboring,
)

# Persons with several rows each; a dataset is a multiset of such persons.
PERSONS = ((1.0,), (2.0, 0.5), (0.25, 0.5, 0.25), (6.0,))
ROWS = 3 * N_MAX


def rows_of(crowd, rng):
    """The rows of a crowd in random order, with ids that JAX's 32 bits cannot hold."""
    ids = rng.choice(np.array([-(2**40), 2**40, 2**32 + 7, 7, 0, -1]), len(crowd), replace=False)
    rows = [(amount, who) for person, who in zip(crowd, ids, strict=True) for amount in person]
    order = rng.permutation(len(rows))
    amounts, who = np.full(ROWS, 99.0), np.zeros(ROWS, np.int64)
    for place, row in enumerate(order):
        amounts[place], who[place] = rows[row]
    return amounts, who, len(rows)


CROWDS = [
    crowd for n in range(N_MAX + 1) for crowd in itertools.combinations_with_replacement(PERSONS, n)
]


def user_sums(dtype=np.float64):
    rng = np.random.default_rng(0)
    amounts, who, count = (
        np.array(part) for part in zip(*(rows_of(crowd, rng) for crowd in CROWDS), strict=True)
    )
    return user_sum(jnp.asarray(amounts, dtype), who, upper=TOP, num_records=count)


def brute_force(datasets, statistic, length):
    table = [kept(data, statistic) for data in datasets]
    return np.array([np.concatenate([h, np.full(length - len(h), h[-1])]) for h in table])


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_subset_of_every_small_dataset(name, x64):
    down = down_sensitivity_of(name)
    np.testing.assert_array_equal(down.values, brute_force(DATASETS, DEFINITIONS[name], N_MAX + 1))
    assert down.dtype == jnp.float64
    first, second = neighboring()  # the smaller dataset comes first
    smaller, larger = np.asarray(down.values)[first], np.asarray(down.values)[second]
    assert (smaller <= larger).all()
    assert (larger[:, 1:] <= smaller[:, :-1]).all()


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_user_sum_of_every_small_crowd(dtype, request):
    if dtype is np.float64:
        request.getfixturevalue("x64")
    down = user_sums(dtype)
    exact = brute_force(CROWDS, lambda crowd: min(TOP, sum(map(sum, crowd))), ROWS + 1)
    np.testing.assert_array_equal(down.values, exact)
    assert down.dtype == dtype


BASKETS = ((0,), (0, 1), (0, 2), (1, 2), (2, 3))
SHOPPERS = [
    crowd for n in range(5) for crowd in itertools.combinations_with_replacement(BASKETS, n)
]


def items_of(crowd):
    """Rows of the items of a crowd, in a capacity of 10."""
    rows = [(item, who) for who, items in enumerate(crowd) for item in items]
    items, who = np.full(10, 7), np.full(10, 2**40)
    items[: len(rows)], who[: len(rows)] = np.reshape(rows, (-1, 2)).T
    return items, who, len(rows)


def in_order(values, crowds=SHOPPERS):
    """Whether h_x(l+1) <= h_x'(l) <= h_x(l) for everybody who leaves a crowd."""
    of = dict(zip(crowds, np.asarray(values), strict=True))
    pairs = [
        (of[crowd], of[crowd[:who] + crowd[who + 1 :]])
        for crowd in crowds
        for who in range(len(crowd))
    ]
    return all((more[1:] <= fewer[:-1]).all() and (fewer <= more).all() for more, fewer in pairs)


def test_distinct_items_of_persons_with_several():
    """Every small crowd: the items now, never more than what the worst removals leave, and in order
    between neighbors.
    """
    items, who, rows = (np.array(part) for part in zip(*map(items_of, SHOPPERS), strict=True))
    down = distinct_count(items, who, upper=10, num_records=rows)
    exact = brute_force(SHOPPERS, lambda crowd: float(len(set().union(*crowd))), 11)
    np.testing.assert_array_equal(down.values[:, 0], exact[:, 0])
    assert (down.values <= exact).all()
    assert (down.values[:, :5] == exact[:, :5]).mean() > 0.85
    assert in_order(down.values)
    twice = distinct_count(
        np.repeat(items, 2, axis=-1), np.repeat(who, 2, axis=-1), upper=10, num_records=2 * rows
    )
    np.testing.assert_array_equal(twice.values[:, :11], down.values)
    for tau in (1, 2):
        loss, spread = removals.finite_losses(
            shifted_inverse(down, 2.0, tau=tau, candidates=np.arange(11.0)),
            neighboring(SHOPPERS, grid=BASKETS),
        )
        assert loss <= 2.0 * (1 + 1e-5)
        assert spread <= 2.0 * (1 + 1e-5)
    alone = np.array([4, 4, 4, 9, 9, 1])
    np.testing.assert_array_equal(
        distinct_count(alone, np.arange(6), upper=10).values, distinct_count(alone, upper=10).values
    )

    # Control: a greedy order of removals, by whom most items are lost, is not in order.
    def greedy(crowd):
        left, values = list(crowd), []
        for _ in range(11):
            values.append(len(set().union(*left)))
            left = min(
                (left[:i] + left[i + 1 :] for i in range(len(left))),
                key=lambda some: len(set().union(*some)),
                default=[],
            )
        return values

    assert not in_order(np.array([greedy(crowd) for crowd in SHOPPERS]))


def test_values_of_one_s_own_by_removals():
    """The largest g of any subset, for a g that rises when people leave: exact minima, and only the
    first few of them.
    """
    values = (-3.0, 1.0, 2.0)
    crowds = [
        crowd for n in range(5) for crowd in itertools.combinations_with_replacement(values, n)
    ]

    def subsets(crowd):
        return itertools.chain.from_iterable(
            itertools.combinations(crowd, k) for k in range(len(crowd) + 1)
        )

    largest = brute_force(crowds, lambda crowd: max(map(sum, subsets(crowd))), 5)
    pairs = neighboring(crowds, grid=values)
    for levels in (5, 2, 1):
        down = from_removals(largest[:, :levels], lower=0, upper=6, resolution=1)
        assert down.values.shape == (len(crowds), levels + 1)
        assert in_order(down.values, crowds)
        assert removals.finite_losses(
            shifted_inverse(down, 2.0, tau=1, candidates=np.arange(7.0)), pairs
        )[0] <= 2.0 * (1 + 1e-5)
    np.testing.assert_array_equal(
        from_removals(np.minimum(largest, 6), lower=0, upper=6).values[:, :5],
        np.minimum(largest, 6),
    )
    # Control: the least of g itself, where removals that raise it count too.
    itself = np.array(
        [
            [min(map(sum, itertools.combinations(crowd, max(len(crowd) - k, 0)))) for k in range(5)]
            for crowd in crowds
        ]
    )
    assert not in_order(from_removals(itself, lower=-12, upper=6).values, crowds)
    assert from_removals([np.nan, 3.0, -1.0], lower=1, upper=6).values.tolist() == [1, 1, 1, 1]
    assert np.isnan(from_removals([3.0], lower=jnp.float32(jnp.nan), upper=6).values).all()
    with pytest.raises(ValueError, match="number of people who leave"):
        from_removals(3.0, lower=0, upper=6)


def test_control_leaving_in_the_wrong_order_is_seen():
    """The commonest ids first, or the smallest records first, is not the worst case."""
    exact = brute_force(DATASETS, DEFINITIONS["distinct"], N_MAX + 1)
    commonest = [
        len(set(data)) - sum(np.cumsum(sorted(map(data.count, set(data)))[::-1]) <= 1)
        for data in DATASETS
    ]
    assert (np.array(commonest) > exact[:, 1]).any()


def test_the_shift_of_the_maximum_is_the_order_statistic_from_the_top(x64):
    x = jnp.asarray(np.random.default_rng(1).uniform(0, 6, (4, 12)))
    for tau in (1, 3, 11):
        shifted = maximum(x, lower=0.0, upper=TOP).shift(tau)
        top = order_statistic(x, 12 - tau, lower=0.0, upper=TOP, neighbors="add_remove")
        np.testing.assert_array_equal(shifted.upper[:, : tau + 2], top.upper[:, : tau + 2])
        np.testing.assert_array_equal(shifted.lower, top.lower[:, : shifted.lower.shape[-1]])
        assert (shifted.neighbors, shifted.interpolable, shifted.integer_levels) == (
            "add_remove",
            True,
            True,
        )


def test_a_shift_beyond_all_people_is_the_empty_dataset():
    profile = maximum(jnp.array([2.0, 4.0]), lower=1.0, upper=9.0).shift(4)
    assert profile.upper.tolist() == [1, 1, 1, 2, 4, 9]
    assert profile.lower.tolist() == [1]
    assert [float(end) for end in profile.support] == [1, 9]


def test_down_sensitivity_of_the_post_s_figure():
    """Binomial(5, 1/2) counts, the post's Figure 1: the maximum is 5, the next five records are 4,
    then ten are 3.
    """
    x = jnp.repeat(jnp.arange(6.0), jnp.array([1, 5, 10, 10, 5, 1]), total_repeat_length=32)
    down = maximum(x, lower=0.0, upper=5.0)
    assert [float(down.down_sensitivity(k)) for k in (0, 1, 5, 6, 16, 31, 32, 99)] == [
        0,
        1,
        1,
        2,
        3,
        5,
        5,
        5,
    ]
    assert float(down.at(16)) == 2
    assert float(down.lower) == 0


STATISTICS = {
    "maximum": lambda x, **kw: maximum(x, lower=-3.0, upper=3.0, **kw),
    "nonnegative sum": lambda x, **kw: nonnegative_sum(x, upper=100.0, **kw),
    "user sum": lambda x, **kw: user_sum(
        x, jnp.round(4 * jnp.where(jnp.isnan(x), 0.0, x)).astype(jnp.int32), upper=100.0, **kw
    ),
    "distinct count": lambda x, **kw: distinct_count(
        jnp.round(jnp.where(jnp.isnan(x), 9.0, x)).astype(jnp.int32), upper=5.0, **kw
    ),
}
X = np.random.default_rng(2).normal(size=(3, 21)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.optimized
@pytest.mark.parametrize("name", STATISTICS)
def test_padding_counts_masks_and_absent_records_agree_bit_for_bit(name):
    statistic = jax.jit(STATISTICS[name])
    plain = statistic(X[:, :14]).values
    count = statistic(X, num_records=jnp.full(3, 14, jnp.int32)).values
    np.testing.assert_array_equal(count[:, :15], plain)
    np.testing.assert_array_equal(count[:, 15:], np.broadcast_to(plain[:, -1:], (3, 7)))
    scattered, mask = np.full((3, 21), 2.5, np.float32), np.zeros((3, 21), bool)
    place = np.random.default_rng(3).permutation(21)[:14]  # other places, another order
    scattered[:, place], mask[:, place] = X[:, :14], True
    np.testing.assert_array_equal(statistic(scattered, mask=jnp.asarray(mask)).values, count)
    if name != "distinct count":
        np.testing.assert_array_equal(statistic(np.where(mask, scattered, np.nan)).values, count)


@pytest.mark.parametrize("name", STATISTICS)
def test_hostile_data_stay_in_the_range(name):
    bad = np.array(
        [
            [np.nan] * 21,
            [np.inf, -np.inf, 0.0] * 7,
            [3e38] * 21,
            [-3e38] * 21,
            [1e-45] * 21,
            [-0.0, 0.0, 1.0] * 7,
        ]
    )
    down = STATISTICS[name](
        jnp.asarray(np.clip(bad, -2e9, 2e9) if name == "distinct count" else bad, jnp.float32)
    )
    values, low = np.asarray(down.values), -3.0 if name == "maximum" else 0.0
    assert ((values >= low) & (values <= np.asarray(down.upper))).all()
    assert (np.diff(values) <= 0).all()
    assert (values[:, -1] == low).all()


def test_sums_of_many_records_never_rise_by_rounding():
    x = np.random.default_rng(4).uniform(0.999, 1.001, (2, 5000)).astype(np.float32)
    values = nonnegative_sum(x, upper=1e9).values
    assert (np.diff(values) <= 0).all()
    exact = np.cumsum(np.sort(x.astype(np.float64)), axis=-1)[:, ::-1]
    # One rounding for each doubling
    np.testing.assert_allclose(values[:, :-1], exact, rtol=14 * 2.0**-24)


def test_a_person_s_total_does_not_depend_on_other_rows():
    rng = np.random.default_rng(5)
    amounts, who = rng.lognormal(size=40).astype(np.float32), rng.integers(0, 6, 40)
    total = np.float32(
        user_sum(np.where(who == 3, amounts, np.nan).astype(np.float32), who, upper=1e6).value
    )
    alone = user_sum(amounts[who == 3], who[who == 3], upper=1e6).value
    reversed_order = user_sum(amounts[who == 3][::-1].copy(), who[who == 3], upper=1e6).value
    assert float(total) == float(alone) == float(reversed_order)


@pytest.mark.parametrize("dtype", [np.uint8, pytest.param(np.int64, marks=pytest.mark.slow)])
def test_ids_of_any_integer_type(dtype):
    ids = np.array([200, 3, 200, 0, 3, 200]).astype(dtype)
    assert distinct_count(ids, upper=9).values.tolist() == [3, 2, 2, 1, 1, 1, 0]


def test_ids_of_64_bits_are_told_apart_without_float64():
    assert not jax.config.jax_enable_x64
    ids = np.array([2**32 + 1, 1, 2**63 - 1, -1], np.int64)
    assert float(distinct_count(ids, upper=9).value) == 4
    assert user_sum(np.ones(4), ids, upper=9).values.tolist() == [4, 3, 2, 1, 0]


def test_bounds_broadcast_and_a_bad_one_spoils_its_own_row():
    upper = jnp.array([10.0, -1.0, 2.0])
    for name, down in {
        "sum": nonnegative_sum(X, upper=upper),
        "user": user_sum(X, np.arange(21), upper=upper),
        "distinct": distinct_count(np.arange(21), upper=upper),
        "max": maximum(X, lower=-1.0, upper=jnp.array([10.0, -1.0, 2.0])),
    }.items():
        assert down.values.shape == (3, 22), name
        assert down.batch_shape == (3,)
        assert np.isfinite(down.values[np.array([0, 2])]).all(), name
        assert np.isnan(down.values[1]).any() or np.isnan(down.upper[1]), name


def test_derivatives_by_the_data():
    amounts, who = jnp.array([1.0, 5.0, 2.0, 4.0]), jnp.array([7, 3, 7, 3])
    gradient = jax.jacobian(lambda v: user_sum(v, who, upper=100.0).values[:3])(amounts)
    np.testing.assert_array_equal(gradient, [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]])
    gradient = jax.jacobian(lambda v: nonnegative_sum(v, upper=100.0).values[:3])(amounts)
    np.testing.assert_array_equal(gradient, [[1, 1, 1, 1], [1, 0, 1, 1], [1, 0, 1, 0]])


def test_static_facts_raise():
    x = jnp.ones((2, 3))
    with pytest.raises(ValueError, match="axis of individuals"):
        maximum(1.0, lower=0, upper=1)
    with pytest.raises(ValueError, match="axis of individuals"):
        distinct_count(1, upper=1)
    with pytest.raises(ValueError, match="only one of"):
        nonnegative_sum(x, upper=1, num_records=2, mask=x > 0)
    # Beyond those every row would be without a distribution, or its pieces without a width
    for upper in (0, 1e-35, 1e35):
        for call in (
            lambda upper: nonnegative_sum(x, upper=upper),
            lambda upper: distinct_count([[1, 2]], upper=upper),
        ):
            with pytest.raises(ValueError, match="lower must be below upper"):
                call(upper)
            assert np.isnan(np.asarray(call(jnp.float32(upper)).values)).all()
    with pytest.raises(ValueError, match="lower"):
        maximum(x, lower=1, upper=1)
    with pytest.raises(TypeError, match="integers"):
        distinct_count(x, upper=1)
    with pytest.raises(TypeError, match="person_ids"):
        user_sum(x, np.array(["a", "b", "c"]), upper=1)
    with pytest.raises(TypeError, match="cannot be traced"):
        jax.jit(lambda ids: distinct_count(ids, np.arange(3), upper=1).values)(np.arange(3))
    with pytest.raises(ValueError, match="person_ids"):
        user_sum(x, np.arange(2), upper=1)
    for tau in (0, -1, 1.5, True, None):
        with pytest.raises(ValueError, match="tau"):
            maximum(x, lower=0, upper=1).shift(tau)


def test_a_function_of_one_s_own_and_vmap():
    own = DownSensitivity(jnp.array([[9.0, 4.0, 0.0], [1.0, 0.0, 0.0]]), jnp.asarray(20.0))
    one = jax.vmap(lambda values: DownSensitivity(values, jnp.asarray(20.0)).shift(1).upper)(
        own.values
    )
    np.testing.assert_array_equal(one, own.shift(1).upper)
    assert own.value.tolist() == [9, 1]
    assert removals.TOP == TOP


def test_ids_beyond_64_bits_stay_apart():
    """In a list, NumPy would make floats of them, or refuse."""
    for ids in ([2**63, 1, 2**63 + 1], [2**64, 0, -1], [2**100, 2**100 + 1, 5]):
        assert distinct_count(ids, upper=10).values.tolist() == [3, 2, 1, 0]
        assert user_sum([1.0, 2.0, 4.0], ids, upper=10).values.tolist() == [7, 3, 1, 0]
    assert distinct_count([2**64, 2**64, 0], upper=10).values.tolist() == [2, 1, 1, 0]
    with pytest.raises(TypeError, match="integers"):
        distinct_count([1.0, 2.0], upper=10)
