"""Metrics from attributes, against sums over pairs in plain Python."""

import datetime
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.metric_privacy.attributes import from_dates, product, value_budgets, weighted_hamming
from dpjax.metric_privacy.metrics import from_budgets, uniform
from dpjax.metric_privacy.points import from_points
from dpjax.metric_privacy.validation import validate
from tests.metric_privacy.golden import THRESHOLDS

CODES = np.array([[0, 0, 2], [0, 1, 0], [1, 1, 1], [1, 0, 2], [0, 0, 2]])


def over_pairs(records, cost):
    return [
        [
            sum(cost(a, u, v) for a, (u, v) in enumerate(zip(p, q, strict=True)) if u != v)
            for q in records
        ]
        for p in records
    ]


def is_metric(budgets):
    budgets = np.asarray(budgets)
    # [i, k, j]
    return np.all(budgets[:, None, :] <= (budgets[:, :, None] + budgets[None]) * (1 + 1e-12))


def test_weighted_hamming(x64):
    budgets = np.array([[0.5, 2.0, 0.25], [1.0, np.inf, 0.0]])
    found = weighted_hamming(CODES, budgets=budgets)
    np.testing.assert_allclose(
        found.budgets, [over_pairs(CODES, lambda a, u, v, w=w: w[a]) for w in budgets], rtol=1e-15
    )
    labels = np.array(["no", "yes", "x"], object)[CODES]
    for same in (labels, CODES - 7.5, jnp.asarray(CODES, jnp.float32)):
        np.testing.assert_array_equal(
            weighted_hamming(same, budgets=budgets).budgets, found.budgets
        )
    stacked = weighted_hamming(np.stack([CODES, CODES + 1]), budgets=budgets)
    np.testing.assert_array_equal(stacked.budgets, found.budgets)
    assert all(map(is_metric, found.budgets))


def test_the_sum_of_value_budgets(x64):
    budgets = [np.array([1.0, 2.0]), np.array([0.5, 0.0]), np.array([3.0, np.inf, 1.0])]
    found = value_budgets(CODES, budgets=budgets, rule="sum")
    np.testing.assert_array_equal(
        found.budgets, over_pairs(CODES, lambda a, u, v: budgets[a][u] + budgets[a][v])
    )
    assert is_metric(found.budgets)
    each = np.array([0.5, 1.0, 4.0])
    found = value_budgets(np.arange(3)[:, None], budgets=[each], rule="sum")
    np.testing.assert_array_equal(found.budgets, (each[:, None] + each) * ~np.eye(3, dtype=bool))


def test_the_minimum_is_for_two_values(x64):
    binary = CODES[:, :2]
    budgets = np.array([[0.5, 2.0], [np.inf, 1.0]])
    found = value_budgets(binary, budgets=budgets, rule="min")
    np.testing.assert_array_equal(
        found.budgets, over_pairs(binary, lambda a, u, v: min(budgets[a][u], budgets[a][v]))
    )
    assert is_metric(found.budgets)
    with pytest.raises(ValueError, match=r"got 3 for attribute 0: with budgets \(1, 10, 10\)"):
        value_budgets([[0], [1], [2]], budgets=[[1.0, 10.0, 10.0]], rule="min")
    # The counterexample, and its count on record.
    report = validate([[0, 1, 1], [1, 0, 10], [1, 10, 0]])
    assert 2 * int(report.violations) == THRESHOLDS["min_metric_3values_viol"]
    assert (report.triple.tolist(), float(report.direct), float(report.detour)) == (
        [1, 2, 0],
        10,
        2,
    )
    summed = validate(value_budgets([[0], [1], [2]], budgets=[[1.0, 10.0, 10.0]], rule="sum"))
    assert int(summed.violations) == THRESHOLDS["sum_metric_viol"]


def test_dates():
    days = [datetime.date(2024, 2, 28), datetime.date(2024, 3, 1), datetime.date(1969, 12, 31)]
    expected = [[abs((a - b).days) / 4 for b in days] for a in days]
    for given in (
        days,
        np.array(days, "datetime64[D]"),
        np.array(days, "datetime64[s]"),
        [19781.0, 19783.0, -1.0],
    ):
        np.testing.assert_array_equal(from_dates(given, epsilon=0.25).budgets, expected)
    noon = [
        np.datetime64("2024-02-28T12:00"),
        np.datetime64("2024-02-28T18:00"),
        np.datetime64("2024-02-28"),
    ]
    assert np.asarray(from_dates(noon, epsilon=4).budgets).tolist() == [
        [0, 1, 2],
        [1, 0, 3],
        [2, 3, 0],
    ]
    assert np.all(np.isnan(from_dates(jnp.array([0.0, jnp.nan, 1.0]), epsilon=1).budgets))
    with pytest.raises(ValueError, match="NaT"):
        from_dates(np.array(["2024-01-01", "NaT"], "datetime64[D]"), epsilon=1)
    with pytest.raises(ValueError, match="dates must be finite"):
        from_dates([0.0, np.nan], epsilon=1)
    with pytest.raises(TypeError, match="dates must be dates"):
        from_dates(["soon", "later"], epsilon=1)
    for empty in ([], 3.0):
        with pytest.raises(ValueError, match="of shape"):
            from_dates(empty, epsilon=1)


def test_attributes_of_one_record_add_up(x64):
    born = np.array([3.0, 5.0, 5.0, 9.0, 3.0])
    whole = weighted_hamming(CODES[:, :2], budgets=[0.5, 2.0]) + from_dates(born, epsilon=0.1)
    expected = np.array(over_pairs(CODES[:, :2], lambda a, u, v: (0.5, 2.0)[a])) + 0.1 * np.abs(
        born[:, None] - born
    )
    np.testing.assert_allclose(whole.budgets, expected, rtol=1e-14)


def test_instance_specific_privacy_is_that_of_its_shortest_paths(x64):
    """Two swaps lead from one value to another by way of the most protected: min(e(u), e(v)) is at
    most twice its budget there.
    """
    own = np.array([1.0, 10.0, 4.0, 1.5])
    least = np.minimum.outer(own, own) * (1 - np.eye(4))
    closed = from_budgets(least).closure()
    np.testing.assert_allclose(closed.budgets, np.minimum(least, 2 * own.min()))
    assert is_metric(closed.budgets)
    assert not is_metric(least)
    # The maximum is a metric, by which the value of budget 1 is told from that of 10 by a factor of
    # exp(10): it protects nothing.
    most = from_budgets(np.maximum.outer(own, own) * (1 - np.eye(4)))
    np.testing.assert_array_equal(most.closure().budgets, most.budgets)
    assert float(most.budgets[0, 1]) == 10.0


def test_hostile_attributes():
    with pytest.raises(ValueError, match="each of the 3 attributes"):
        weighted_hamming(CODES, budgets=[1.0, 2.0])
    with pytest.raises(ValueError, match="budgets must be nonnegative and not NaN"):
        weighted_hamming(CODES, budgets=[1.0, -2.0, 0.0])
    with pytest.raises(ValueError, match="records must not be NaN"):
        weighted_hamming([[np.nan]], budgets=[1.0])
    for shape in ((3,), (0, 2), (3, 0)):
        with pytest.raises(ValueError, match="records must be of shape"):
            weighted_hamming(np.zeros(shape), budgets=[1.0])
    with pytest.raises(TypeError, match="integers or floats"):
        weighted_hamming(jnp.zeros((2, 1), complex), budgets=[1.0])
    with pytest.raises(TypeError, match="integer codes"):
        value_budgets([[0.5]], budgets=[[1.0]], rule="sum")
    with pytest.raises(ValueError, match="codes of attribute 0 must be 0 to 1"):
        value_budgets([[0], [2]], budgets=[[1.0, 1.0]], rule="sum")
    with pytest.raises(ValueError, match="one array for each of the 3 attributes"):
        value_budgets(CODES, budgets=[[1.0, 1.0]], rule="sum")
    with pytest.raises(ValueError, match="rule must be one of"):
        value_budgets(CODES, budgets=[[1.0, 1.0]], rule="max")
    records = jnp.array([[[0.0], [1.0]], [[0.0], [jnp.nan]]])
    spoilt = jax.jit(lambda r, b: weighted_hamming(r, budgets=b).budgets)(records, jnp.array([1.0]))
    assert np.isnan(spoilt[1]).all()
    np.testing.assert_array_equal(spoilt[0], [[0, 1], [1, 0]])
    # Though nothing differs
    assert np.isnan(weighted_hamming(np.zeros((2, 1)), budgets=jnp.array([-1.0])).budgets).all()
    codes = jnp.array([[[0], [1]], [[0], [5]], [[-1], [0]]])
    spoilt = value_budgets(codes, budgets=[jnp.array([1.0, 2.0])], rule="sum").budgets
    assert np.isnan(spoilt[1:]).all()
    np.testing.assert_array_equal(spoilt[0], [[0, 3], [3, 0]])
    assert np.isnan(
        value_budgets([[0], [0]], budgets=[jnp.array([1.0, -2.0])], rule="sum").budgets
    ).all()


def test_narrow_integers_do_not_overflow():
    days = np.array([-20000, 0, 20000], np.int16)
    apart = np.abs(np.subtract.outer(days.astype(float), days.astype(float)))
    np.testing.assert_array_equal(from_dates(days, epsilon=1.0).budgets, apart)


def test_codes_that_int32_does_not_hold_do_not_wrap_around(x64):
    for code in (2**32, 2**32 + 1, -(2**32)):
        found = value_budgets(jnp.array([[0], [code]]), budgets=[[1.0, 2.0]], rule="sum").budgets
        assert np.isnan(found).all()
    found = value_budgets(
        jnp.array([[[0], [1]], [[0], [2**32 - 1]]], jnp.uint32), budgets=[[1.0, 2.0]], rule="sum"
    ).budgets
    np.testing.assert_array_equal(found[0], [[0, 3], [3, 0]])
    assert np.isnan(found[1]).all()
    found = value_budgets(
        jnp.array([[0], [1]], jnp.uint8), budgets=[jnp.ones(300)], rule="sum"
    ).budgets
    np.testing.assert_array_equal(found, [[0, 2], [2, 0]])


def test_moments_of_a_century_are_told_apart_by_seconds():
    """In float32 days, one second would be nothing or 2.6 seconds within a year, and five minutes
    within a century.
    """
    for span in (364, 36524):
        first = np.datetime64("1924-01-01T00:00:00")
        late = first + np.arange(span * 86400, span * 86400 + 40).astype("timedelta64[s]")
        found = np.asarray(from_dates(np.concatenate([[first], late]), epsilon=86400.0).budgets)[
            1:, 1:
        ]
        np.testing.assert_allclose(np.diag(found, 1), 1.0, rtol=1e-4)
    apart = from_dates(np.array([10**18, 10**18 + 64, 10**18 + 65]), epsilon=1.0).budgets[1, 2]
    assert float(apart) == 1.0
    days = np.float32((late - first) / np.timedelta64(1, "D"))
    assert not np.allclose(np.diff(days) * 86400, 1.0, rtol=0.5)  # control


def test_the_product_of_universes():
    """Records of all attributes one by one: what any two of them may cost is what their attributes
    cost together.
    """
    parts = [
        from_points([[0.0], [2.0], [5.0]], epsilon=0.5),
        uniform(2, epsilon=np.array([1.0, 3.0])),
        uniform(2, epsilon=0.25),
    ]
    both = product(*parts)
    assert (both.size, both.batch_shape) == (12, (2,))
    records = list(itertools.product(range(3), range(2), range(2)))
    for (a, one), (b, other) in itertools.combinations(enumerate(records), 2):
        budgets = [
            np.broadcast_to(part.budgets[..., i, j], 2)
            for part, i, j in zip(parts, one, other, strict=True)
        ]
        np.testing.assert_allclose(both.budgets[:, a, b], sum(budgets), rtol=1e-6)
    with pytest.raises(ValueError, match="afterwards"):
        product(parts[0].with_absence(1.0), parts[2])
    with pytest.raises(ValueError, match="at least one"):
        product()


def test_dates_that_microseconds_do_not_hold_are_refused():
    """They would wrap around, to budgets that are too large or too small."""
    for unit, first, far in (
        ("D", 0, 200_000_000),
        ("s", 0, 2**44),
        ("Y", 0, 600_000),
        ("Y", 0, -(2**62)),
        ("h", -(2**62), 2**62),
    ):
        with pytest.raises(ValueError, match="within 290,000 years"):
            from_dates(np.array([first, far]).astype(f"datetime64[{unit}]"), epsilon=1.0)
    with pytest.raises(ValueError, match="within 290,000 years"):
        from_dates(["2024-01-01", "300000-01-01"], epsilon=1.0)
    with pytest.raises(ValueError, match="NaT"):
        from_dates(np.array([0, "NaT"], "datetime64[D]"), epsilon=1.0)
    days = np.array([-100_000_000, 0, 100_000_000])  # the control: these are held, and right
    found = from_dates(days.astype("datetime64[D]"), epsilon=1.0).budgets
    np.testing.assert_allclose(found, np.abs(days[:, None] - days), rtol=1e-6)
    nanoseconds = np.array([0, 86_400 * 10**9]).astype("datetime64[ns]")
    assert float(from_dates(nanoseconds, epsilon=1.0).budgets[0, 1]) == 1.0
