"""Quantiles beyond small datasets: exact ranks, many records, odd numbers and bounds, and what is
refused.
"""

from fractions import Fraction
from functools import partial
from math import ceil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import maximum, mean, median, nonnegative_sum, order_statistic, quantile

SWAP = {"lower": 0, "upper": 10, "neighbors": "swap"}


def test_ranks_are_exact_where_floating_point_is_not():
    """ceil(q n) for decimal q: in floating point 0.1 * 30, 0.7 * 10 and many others land on the
    wrong side of an integer.
    """
    n, traps = 100, [Fraction(k, 100) for k in range(1, 100) if ceil(k / 100 * 100) != k]
    assert traps  # the trap exists
    levels = [*traps[:3], Fraction(1, 10), Fraction(7, 10)]
    given = {"lower": 0, "upper": n + 1, "neighbors": "swap", "definition": "lower"}
    values = jax.jit(lambda x: [quantile(x, float(q), **given).value for q in levels])(
        np.arange(1.0, n + 1, dtype=np.float32)
    )
    assert [float(value) for value in values] == [q * n for q in levels]


def test_median_is_the_quantile_at_one_half_however_it_is_written():
    x = np.random.default_rng(0).normal(size=(9, 12)).astype(np.float32)
    given = {"lower": -9, "upper": 9, "neighbors": "add_remove"}
    own, *others = jax.jit(
        lambda x: (
            median(x, **given),
            *(quantile(x, q, **given) for q in (0.5, "1/2", Fraction(1, 2), np.float32(0.5))),
        )
    )(x)
    for other in others:
        jax.tree.map(np.testing.assert_array_equal, own, other)
    np.testing.assert_allclose(own.value, np.median(x, axis=-1), rtol=1e-6)


def test_the_number_of_values_is_public_and_not_padded_to_twice_what_it_is():
    x = jax.ShapeDtypeStruct((1001,), np.float32)
    given = {"lower": 0, "upper": 1001, "neighbors": "swap"}
    for of, center in ((median, 501), (partial(order_statistic, rank=10), 10)):
        profile = jax.eval_shape(partial(of, **given), x)
        assert (profile.values.shape, profile.center) == ((1003,), center)


@pytest.mark.parametrize(
    ("x", "options", "wanted"),
    [
        ([1.0, 2.0, 5.0], {"num_records": 2**40}, 2),
        ([1.0, 2.0, 5.0], {"num_records": np.array(2**32 + 1)}, 2),
        ([1.0, 2.0, 5.0], {"num_records": 3}, 2),
        ([1.0] * 5 + [9.0] * 295, {"num_records": np.array(5, np.uint8)}, 1),
        ([1.0] * 5 + [9.0] * 295, {"num_records": np.array(5, np.int8)}, 1),
        ([1.0] * 5 + [9.0] * 295, {"num_records": np.array(5, np.uint32)}, 1),
        ([1, 2**64, 3], {}, 3),
        (np.array([1, 2, 2**40], np.int64), {"upper": 1e30}, 2),
        ([True, False, True], {"upper": 1}, 1),
        (np.array([1e300, -1e300, 0.0]), {"lower": -1, "upper": 1}, 0),
    ],
)
def test_counts_and_records_of_any_type(x, options, wanted):
    profile = median(x, **SWAP | options)
    assert float(profile.value) == wanted
    assert float(profile.upper[-1]) == np.float32(options.get("upper", 10))


def test_bounds_may_differ_by_row_and_a_bad_row_stays_alone():
    ones, low = np.ones((3, 4), np.float32), jnp.array([0.0, 2.0, 3.0])
    high = jnp.array([1.5, 4.0, 1.0])

    @jax.jit
    def sides(low, high):
        swap, removal = {"neighbors": "swap"}, {"neighbors": "add_remove"}
        return (
            median(ones, lower=low, upper=high, **swap).upper,
            mean(ones, lower=low, upper=high, **removal).lower,
            maximum(ones, lower=low, upper=high).values,
            nonnegative_sum(ones, upper=high - low).values,
        )

    first, *others = map(np.asarray, sides(low, high))
    assert first[:2, 0].tolist() == [1.0, 2.0]
    for found in (first, *others):
        assert np.isnan(found).any(axis=-1).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("word", "given"),
    [
        ("num_records and mask", {"num_records": 2, "mask": np.ones(3, bool)}),
        ("mask", {"mask": np.ones(2, bool)}),
        ("Fraction", {"q": 1 / 3}),
    ],
)
def test_what_is_refused(word, given):
    with pytest.raises(ValueError, match=word):
        quantile(np.arange(3.0, dtype=np.float32), **{"q": 0.5, **SWAP} | given)
