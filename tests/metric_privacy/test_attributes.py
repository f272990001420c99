"""Metrics from attributes, against sums over pairs in plain Python."""

import datetime
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy import (
    from_budgets,
    from_dates,
    from_graph,
    from_points,
    product,
    uniform,
    validate,
    value_budgets,
    weighted_hamming,
)
from tests.metric_privacy.golden import golden

CODES = np.array([[0, 0, 2], [0, 1, 0], [1, 1, 1], [1, 0, 2], [0, 0, 2]])
WEIGHTS = np.array([[0.5, 2.0, 0.25], [1.0, np.inf, 0.0]])
VALUES = {
    "sum": (CODES, [np.array([1.0, 2.0]), np.array([0.5, 0.0]), np.array([3.0, np.inf, 1.0])]),
    "min": (CODES[:, :2], [np.array([0.5, 2.0]), np.array([np.inf, 1.0])]),
}


@jax.jit
def of_attributes():
    labels = np.array(["no", "yes", "x"], object)[CODES]
    same = CODES, labels, CODES - 7.5, np.stack([CODES, CODES + 1])
    hamming = [weighted_hamming(records, budgets=WEIGHTS).budgets for records in same]
    return hamming, {
        rule: value_budgets(codes, budgets=budgets, rule=rule).budgets
        for rule, (codes, budgets) in VALUES.items()
    }


def test_budgets_of_attributes_and_of_values(x64):
    """Against a sum over the attributes in which two records differ."""
    hamming, of_values = of_attributes()
    different = CODES[:, None] != CODES
    for found in hamming:
        expected = np.where(different, WEIGHTS[:, None, None], 0.0).sum(-1)
        np.testing.assert_allclose(found, expected, rtol=1e-15)
    for rule, both in {"sum": np.add, "min": np.minimum}.items():
        codes, budgets = VALUES[rule]
        own = np.stack([each[code] for each, code in zip(budgets, codes.T, strict=True)], -1)
        apart = codes[:, None] != codes
        expected = np.where(apart, both(own[:, None], own), 0.0).sum(-1)
        np.testing.assert_array_equal(of_values[rule], expected)
        assert int(validate(of_values[rule]).violations) == 0


def test_the_minimum_is_for_two_values():
    """Of budgets (1, 10, 10) the last two values are 10 apart, and 2 by way of the first."""
    each, counted = [1.0, 10.0, 10.0], golden("D_thresholds")
    with pytest.raises(ValueError, match="got 3 for attribute 0"):
        value_budgets([[0], [1], [2]], budgets=[each], rule="min")
    least = np.minimum.outer(each, each) * (1 - np.eye(3))
    summed = value_budgets([[0], [1], [2]], budgets=[each], rule="sum").budgets
    report = validate(np.stack([least, summed]))
    assert np.asarray(report.triple)[0].tolist() == [1, 2, 0]
    expected = [counted["min_metric_3values_viol"], counted["sum_metric_viol"]]
    assert (2 * np.asarray(report.violations)).tolist() == expected


def test_instance_specific_privacy_is_that_of_its_shortest_paths(x64):
    """Two swaps lead from one value to another by way of the most protected: min(e(u), e(v)) is at
    most twice its budget there. The maximum is a metric, by which the value of budget 1 is told
    from that of 10 by a factor of exp(10): it protects nothing.
    """
    own = np.array([1.0, 10.0, 4.0, 1.5])
    least, most = (
        outer(own, own) * (1 - np.eye(4)) for outer in (np.minimum.outer, np.maximum.outer)
    )
    closed = from_budgets(np.stack([least, most])).closure().budgets
    np.testing.assert_allclose(closed, [np.minimum(least, 2 * own.min()), most])
    assert (closed[0] < least).any()


DAYS = [datetime.date(2024, 2, 28), datetime.date(2024, 3, 1), datetime.date(1969, 12, 31)]
HOURS = ["2024-02-28T12", "2024-02-28T18", "2024-02-28"]


@pytest.mark.parametrize(
    ("dates", "apart"),
    [
        (DAYS, [2, 19782, 19784]),
        (np.array(DAYS, "datetime64[s]"), [2, 19782, 19784]),
        ([19781.0, 19783.0, -1.0], [2, 19782, 19784]),
        (np.array(HOURS, "datetime64"), [0.25, 0.5, 0.75]),
        (np.array([-20000, 0, 20000], np.int16), [20000, 40000, 20000]),
        (np.array([10**18, 10**18 + 64, 10**18 + 65]), [64, 65, 1]),
    ],
)
def test_dates(dates, apart):
    budgets = np.asarray(from_dates(dates, epsilon=0.25).budgets)
    np.testing.assert_allclose(4 * budgets[np.triu_indices(3, 1)], apart, rtol=1e-6, atol=1e-6)


def test_moments_of_a_century_are_told_apart_by_seconds():
    """In float32 days, one second would be nothing or 2.6 seconds within a year, and five minutes
    within a century.
    """
    first = np.datetime64("1924-01-01T00:00:00")
    late = first + np.arange(36524 * 86400, 36524 * 86400 + 40).astype("timedelta64[s]")
    budgets = from_dates(np.concatenate([[first], late]), epsilon=86400.0).budgets
    np.testing.assert_allclose(np.diag(np.asarray(budgets)[1:, 1:], 1), 1.0, rtol=1e-4)
    days = np.float32((late - first) / np.timedelta64(1, "D"))
    assert not np.allclose(np.diff(days) * 86400, 1.0, rtol=0.5)  # the control


@pytest.mark.parametrize(("unit", "far"), [("D", 200_000_000), ("Y", -(2**62)), ("h", 2**62)])
def test_dates_that_microseconds_do_not_hold_are_refused(unit, far):
    """They would wrap around, to budgets that are too large or too small."""
    with pytest.raises(ValueError, match="years"):
        from_dates(np.array([0, far]).astype(f"datetime64[{unit}]"), epsilon=1.0)


def test_codes_and_nodes_that_int32_does_not_hold_do_not_wrap_around(x64):
    codes = (1, "uint8"), (2**32 - 1, "uint32"), (2**32 + 1, "int64"), (-(2**32), "int64")
    pairs = [np.array([[0], [code]], dtype) for code, dtype in codes]

    @jax.jit
    def budgets(pairs):
        return [
            (
                value_budgets(pair, budgets=[jnp.ones(300)], rule="sum").budgets,
                from_graph(pair.T, size=300, budgets=2.0).budgets[:2, :2],
            )
            for pair in pairs
        ]

    right, *wrong = budgets(pairs)
    np.testing.assert_array_equal(right, np.broadcast_to([[0, 2], [2, 0]], (2, 2, 2)))
    assert np.isnan(wrong).all()


def test_the_product_of_universes_and_the_attributes_of_one_record():
    """Records of all attributes one by one: what any two of them may cost is what their attributes
    cost together.
    """
    born, kinds = np.array([0.0, 2.0, 5.0]), np.array([1.0, 3.0])
    parts = (
        from_points(born[:, None], epsilon=0.5),
        uniform(2, epsilon=kinds),
        uniform(2, epsilon=0.25),
    )
    both = product(*parts)
    assert (both.size, both.batch_shape) == (12, (2,))
    records = np.array(list(itertools.product(range(3), range(2), range(2))))
    different = records[:, None] != records
    apart = 0.5 * np.abs(np.subtract.outer(born, born))[records[:, 0][:, None], records[:, 0]]
    expected = apart + kinds[:, None, None] * different[..., 1] + 0.25 * different[..., 2]
    np.testing.assert_allclose(both.budgets, expected, rtol=1e-6)
    attributes = weighted_hamming(records[:, 1:], budgets=np.stack([kinds, [0.25] * 2], -1))
    whole = attributes + from_dates(born[records[:, 0]], epsilon=0.5)
    np.testing.assert_allclose(whole.budgets, expected, rtol=1e-6)
