"""The releases as a user calls them: containers, what they refuse, what data cannot do, draws, and
what is said of them.
"""

import json
import math
import warnings
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars
import pytest

from dpjax import release
from dpjax.release import exact_distribution
from tests.support.exact_draws import captured, repeat_entropy
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

BOUNDS = {"lower": 10, "upper": 30, "resolution": 1}
RECORDS = np.array([12, 14, 14, 15, 19, 22, 28])
VALUES, NUMBERS = [12, 14, 15.2, 19, 22, 28, 29], [1, 2, 1, 1, 1, 1, 0]  # RECORDS, rounded
ADDED = {"epsilon": 1.0, "neighbors": "add_remove"}


def bounds(upper, lower=0, resolution=1):
    return {"lower": lower, "upper": upper, "resolution": resolution}


def logs_of(distribution):
    """All values with the logarithms of their probabilities, as lists."""
    return distribution.values.tolist(), distribution.log_pmf(distribution.values).tolist()


# Functions, statistics, what is public of them, records.
FOLLOWED = {
    "median": (release.median, release.Median, {"definition": "linear"}, "add_remove"),
    "order statistic": (release.order_statistic, release.OrderStatistic, {"rank": 6}, "add_remove"),
    "maximum": (release.maximum, release.Maximum, {"tau": 2}, "add_remove"),
    "total": (
        release.nonnegative_sum,
        release.NonnegativeSum,
        {"tau": 1, "upper": 199, "lower": None},
        "add_remove",
    ),
    "quantile": (release.quantile, release.Quantile, {"q": 0.9}, "swap"),
    "not from 0": (
        release.quantile,
        release.Quantile,
        {"q": 0.25, "lower": 5, "upper": 30, "resolution": 0.5},
        "add_remove",
    ),
    "decimals": (
        release.maximum,
        release.Maximum,
        {"tau": 1, "lower": -0.3, "upper": 30, "resolution": "0.1"},
        "add_remove",
    ),
    "sum": (release.sum, release.Sum, {"upper": 40}, "swap"),
    "mean": (release.mean, release.Mean, {"upper": 40}, "swap"),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_releases_follow_the_distribution_that_is_evaluated_beforehand(name):
    function, kind, options, neighbors = FOLLOWED[name]
    public = {key: value for key, value in (bounds(29) | options).items() if value is not None}
    cost = {"epsilon": 1.2, "neighbors": neighbors}
    exact = exact_distribution(kind(**public), RECORDS, **cost)
    np.testing.assert_allclose(exact.pmf(exact.values).sum(), 1.0, rtol=1e-12)
    found = function([RECORDS] * 3, **public, **cost, draws=7000)
    assert found.multiples.shape == found.values.shape == (7000, 3)
    assert found.resolution == exact.grid.resolution
    np.testing.assert_array_equal(found.values, exact.values[found.multiples - exact.grid.start])
    assert found.values[:9, 0].tolist() == [
        float(int(m) * found.resolution) for m in found.multiples[:9, 0]
    ]
    counts = np.bincount((found.multiples - exact.grid.start).ravel(), minlength=exact.size)
    assert_counts_follow(counts, exact.pmf(exact.values))
    other = exact_distribution(kind(**public), RECORDS, **cost | {"epsilon": 1.6})
    assert_counts_rejected(counts, other.pmf(exact.values))
    for row in range(3):  # rows are independent: one alone follows too
        own = np.bincount(found.multiples[:, row] - exact.grid.start, minlength=exact.size)
        assert_counts_follow(own, exact.pmf(exact.values))
    assert not np.array_equal(found.multiples[:, 0], found.multiples[:, 1])
    center = exact.values[exact.size // 2]
    measured = np.abs(found.values - center)
    assert abs(measured.mean() - exact.mean_abs_error(center)) < 5 * measured.std() / np.sqrt(
        measured.size
    )


def test_means_are_multiples_of_the_resolution_over_the_number_of_records():
    """Three records of cents: thirds of a cent, each the float that is nearest to it."""
    found = release.mean(
        [[0.1, 0.25, 0.29]], **bounds(1, 0, 0.01), epsilon=8.0, neighbors="swap", draws=300
    )
    assert found.resolution == Fraction(1, 300)
    assert found.values.tolist() == [
        [float(Fraction(int(number), 300))] for (number,) in found.multiples
    ]
    assert len(set(found.multiples.ravel().tolist())) > 50


def test_two_calls_differ_and_guarantees_add_up():
    arguments = {"epsilon": 0.25, **bounds(2**20 - 1), "neighbors": "swap", "draws": 8}
    first, second = (release.median(np.arange(100) * 10_000, **arguments) for _ in range(2))
    assert not np.array_equal(first.multiples, second.multiples)
    assert first.guarantee.epsilon == first.guarantee.bounded_range == 2.0
    assert first.guarantee.neighbors == "swap"
    assert first.draws == 8


def test_promises_that_would_be_rounded_down():
    for epsilon, draws in ((0.1, 5), (0.1, 9), (0.3, 3), (0.25, 4)):
        found = release.median(RECORDS, epsilon=epsilon, **BOUNDS, neighbors="swap", draws=draws)
        assert Fraction(found.guarantee.epsilon) >= Fraction(epsilon) * draws


class Column:
    """An array of another library, as pandas has them: a dtype of its own, and NumPy's protocol."""

    dtype = "Float64"

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "objects": lambda values: np.array(values, object),
    "JAX": lambda values: jnp.asarray(values, jnp.float32),
    "column": Column,
    "column of objects": lambda values: Column(np.array(values, object)),
    "list of arrays": lambda values: [np.array(value) for value in values],
    "list of both": lambda values: [
        np.float32(value) if i % 2 else value for i, value in enumerate(values)
    ],
    "fractions": lambda values: [Fraction(value) for value in values],
}
WHOLE = {
    **{kind.__name__: kind for kind in (np.int64, np.int32, np.int16, np.uint8, np.uint64)},
    "integers": lambda values: [int(value) for value in values],
    "column of integers": lambda values: Column([int(value) for value in values]),
    "JAX's integers": lambda values: jnp.asarray(values, jnp.int32),
    "bfloat16": lambda values: jnp.asarray(values, jnp.bfloat16),
}
PROFILED = {
    "median": release.Median(**bounds(20)),
    "lower quantile": release.Quantile(0.9, **bounds(20)),
    "maximum": release.Maximum(1, **bounds(20)),
    "order statistic": release.OrderStatistic(2, **bounds(20)),
    "total": release.NonnegativeSum(1, 20, 1),
    "sum": release.Sum(**bounds(20)),
    "mode": release.Mode((2.5, 3, 14)),
    "mode of halves": release.Mode((2.5, 3, 14), "0.5"),
}


@pytest.mark.parametrize("name", PROFILED)
def test_the_container_of_the_records_changes_nothing(name):
    """Ties, halves between two multiples, and numbers beyond the bounds: values alone decide."""
    statistic = PROFILED[name]
    for neighbors in statistic.relations:
        options = {"epsilon": 1.0, "neighbors": neighbors}
        for values, kinds in (
            ([2.5, 3.5, 14, 14.25, 30, 0.5], CONTAINERS),
            ([14.0, 3, 14, 14, 30, 0], WHOLE),
        ):
            expected = logs_of(exact_distribution(statistic, list(values), **options))
            for make in kinds.values():
                x = (
                    np.array(values, make)
                    if isinstance(make, type) and issubclass(make, np.generic)
                    else make(values)
                )
                assert logs_of(exact_distribution(statistic, x, **options)) == expected
            # The control
            assert logs_of(exact_distribution(statistic, [3, 3, 3, 9, 9, 9], **options)) != expected


def test_persons_from_any_container(monkeypatch):
    seen = captured(monkeypatch)
    options = {"tau": 1, "upper": 20, "resolution": 1, "epsilon": 1.0, "neighbors": "add_remove"}
    for ids in (
        [1, 1, 2, 3, 4, 4],
        ["a", "a", "b", "c", "d", "d"],
        np.array([1, 1, 2, 3, 4, 4]),
        jnp.array([1, 1, 2, 3, 4, 4]),
    ):
        for make in (*CONTAINERS.values(), *WHOLE.values()):
            values = [14.0, 3, 14, 14, 30, 0]
            x = (
                np.array(values, make)
                if isinstance(make, type) and issubclass(make, np.generic)
                else make(values)
            )
            release.user_sum(x, ids, **options)
    laws = [found.log_pmf(found.values[:, None]) for found in seen]
    assert all(np.array_equal(law, laws[0]) for law in laws)
    persons = release.exact_distribution(
        release.NonnegativeSum(1, 20, 1), [14, 14, 17, 30], epsilon=1.0, neighbors="add_remove"
    )
    assert np.array_equal(laws[0][:, 0], persons.log_pmf(persons.values))


def test_the_container_of_the_records_changes_no_draw(monkeypatch):
    repeat_entropy(monkeypatch)
    values = [12.0, 14, 14, 15.5, 19, 22, 28]
    arguments = {"epsilon": 1.0, **BOUNDS, "neighbors": "swap", "draws": 20}
    drawn = [
        release.median(x, **arguments).multiples.tolist()
        for x in (
            values,
            np.array(values),
            np.array(values, np.float32),
            jnp.asarray(values, jnp.float32),
            Column(values),
        )
    ]
    assert all(other == drawn[0] for other in drawn)
    assert len(set(drawn[0])) > 3
    # Padding first, last or in between, by NaN or mask: the same draws, too.
    absent, common = np.nan, arguments | {"neighbors": "add_remove"}
    versions = [
        ({}, values),
        ({}, [*values, absent, absent]),
        ({}, [absent, *values, absent]),
        ({}, [values[0], absent, *values[1:6], absent, values[6]]),
        ({"mask": [True] * 7 + [False] * 2}, [*values, 99.0, 11.0]),
        ({"counts": [1, 2, 1, 1, 1, 1]}, [12.0, 14, 15.5, 19, 22, 28]),
    ]
    drawn = [release.median(x, **options, **common).multiples.tolist() for options, x in versions]
    assert all(other == drawn[0] for other in drawn)
    other = release.median(values, **common | {"epsilon": 3.0}).multiples.tolist()
    assert other != drawn[0]  # the control


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_what_is_released_as_json(neighbors):
    public = bounds(30, 10, 0.1) | {"definition": "linear", "epsilon": 1.0, "neighbors": neighbors}
    found = release.quantile(np.tile(RECORDS, (30, 1)), 0.25, **public, draws=2)
    read = json.loads(found.to_json())
    assert read == found.to_dict()
    assert read["resolution"] == "1/40"
    assert np.array_equal(read["values"], found.values)
    assert np.array_equal(found.values, found.multiples / 40)
    assert read["guarantee"]["epsilon"] == read["guarantee"]["bounded_range"] == 2.0
    assert read["guarantee"]["neighbors"] == neighbors
    again = release.Release.from_json(found.to_json())
    for name in ("values", "multiples", "resolution", "guarantee"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))


HOSTILE = {
    "nan": np.full(5, np.nan),
    "infinite": np.array([np.inf, -np.inf, np.inf, 0, 0]),
    "denormal": np.array([5e-324, -5e-324, -0.0, 0.0, 1e-310]),
    "far": np.array([1e300, -1e300, 1e308, 2.0, 3.0]),
    "all equal": np.full(5, 7.0),
    "at the bounds": np.array([10.0, 10.0, 30.0, 30.0, 30.0]),
    "beyond a bound": np.array([10.0, 10.0, 31.0, 31.0, 31.0]),
    "below a line": np.nextafter(np.arange(11.0, 16.0), 0),
    "halfway": np.arange(11.5, 16.0),
    "below a half": np.nextafter(np.arange(11.5, 16.0), 0),
    "ties": np.array([14.0, 14.0, 14.0, 14.0, 29.0]),
    "signaling": np.array([0x7FF0000000000001, 0, 0, 1, 2], np.uint64).view(np.float64),
    "signaling in single precision": np.array([0x7FA00000, 0, 0, 1, 2], np.uint32).view(np.float32),
    "wide integers": np.array([2**63 - 1, -(2**63), 0, 1, 14], np.int64),
    "unsigned": np.array([2**64 - 1, 0, 2**63, 1, 14], np.uint64),
    "wide floats": np.array([1e300, -1e300, 0, 1, 14], np.longdouble) ** 2,
    "huge": [10**5000, -(10**5000), 14, 10**400, 3],
    "decimals": [
        Decimal("sNaN"),
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("1e999999"),
        Decimal("14.5"),
    ],
    "fractions": [Fraction(10**5000, 3), Fraction(1, 10**5000), Fraction(-(10**400)), 14, 3],
    "text": ["x", "", "14", b"3", "nan"],
    "dates": [
        date(2020, 1, 1),
        datetime(9999, 12, 31),
        timedelta.max,
        np.datetime64("NaT", "s"),
        np.timedelta64(3, "D"),
    ],
    "lists": [[1, 2], (), {}, 14, np.ones(3)],
    "nothing": [None, np.ma.masked, ..., NotImplemented, object()],
    "arrays without axes": [
        np.array(14),
        np.array(np.nan),
        np.ma.array(3, mask=True),
        jnp.float32(15),
        np.array("x"),
    ],
    "scalars": [
        np.float16(14),
        np.float32("nan"),
        np.longdouble("inf"),
        np.uint64(2**64 - 1),
        np.bool_(True),
    ],
    "complex": [1 + 2j, np.complex64(14), 14, complex("nan"), 3.0],
    "functions": [float, abs, lambda: 14, type, 14],
}
EVERY = {
    "median": (release.median, {**BOUNDS}),
    "midpoint median": (release.median, {**BOUNDS, "definition": "linear"}),
    "quantile": (release.quantile, {**BOUNDS, "q": 0.9}),
    "order statistic": (release.order_statistic, {**BOUNDS, "rank": 2}),
    "maximum": (release.maximum, {**BOUNDS, "tau": 1}),
    "floats": (release.median, {"grid": release.Floats()}),
    "total": (release.nonnegative_sum, {"tau": 1, "upper": 100, "resolution": 1}),
    "persons": (
        release.user_sum,
        {"tau": 1, "upper": 100, "resolution": 1, "person_ids": [1, 1, 2, 3, 3]},
    ),
    "sum": (release.sum, {**BOUNDS}),
    "mean": (release.mean, {**BOUNDS}),
    "mode": (release.mode, {"candidates": (3, 14)}),
    "mode of halves": (release.mode, {"candidates": (3, 14), "resolution": 0.5}),
    "joint": (release.joint_quantiles, {**BOUNDS, "qs": (0.25, 0.5), "max_records": 20}),
    "recursive": (release.recursive_quantiles, {**BOUNDS, "qs": (0.25, 0.5)}),
    "nested": (release.nested_quantiles, {**BOUNDS, "qs": (0.25, 0.5, 0.75)}),
    "suited": (release.private_quantiles, {**BOUNDS, "qs": (0.25, 0.5)}),
    "count": (release.count, {}),
    "histogram": (release.histogram, {"edges": (0, 14, 20)}),
    "candidates": (release.histogram, {"candidates": (3, 14)}),
}
ONE_RELATION = {"sum": "swap", "mean": "swap", "persons": "add_remove"}


@pytest.mark.parametrize("name", EVERY)
def test_records_never_raise_nor_warn_nor_change_a_shape_or_a_dtype(name):
    function, options = EVERY[name]
    counted = name in ("count", "histogram", "candidates")
    last = {
        "joint": (2,),
        "recursive": (2,),
        "nested": (3,),
        "suited": (2,),
        "histogram": (2,),
        "candidates": (2,),
    }.get(name, ())
    for neighbors in ("add_remove", "swap"):
        if neighbors != ONE_RELATION.get(name, neighbors) or (counted and neighbors == "swap"):
            continue
        cost = {"epsilon": 1.0, "draws": 3} | ({} if counted else {"neighbors": neighbors})
        every = [*HOSTILE.values(), [14] * 5]
        alone = (
            [(make(data), (3,)) for data in HOSTILE.values() for make in (list, as_objects)]
            if name in ("median", "mode")
            else []
        )
        alone += [(data, (3,)) for data in HOSTILE.values() if name == "median"]
        for x, shape in (*alone, ([list(data) for data in every], (3, len(every)))):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found = function(x, **options, **cost)
            assert found.multiples.shape == found.values.shape == shape + last
            assert (found.multiples.dtype, found.values.dtype) == (np.int64, np.float64)
            assert np.isfinite(found.values).all()
            if "lower" in options and name not in ("sum", "mean"):
                assert ((found.values >= 10) & (found.values <= 30)).all()


def as_objects(data):
    found = np.empty(len(data), object)
    for i, value in enumerate(data):
        found[i] = value
    return found


def test_ids_never_raise_nor_warn():
    for data in HOSTILE.values():
        if getattr(data, "dtype", None) is not None and data.dtype.kind == "f":
            continue  # a dtype that is public, and refused
        for x in (list(data), as_objects(data), [list(data), [14] * 5]):
            common = {"tau": 1, "upper": 9, "epsilon": 1.0, "neighbors": "add_remove"}
            assert release.distinct_count(x, **common).values.shape == np.shape(
                release.count(x, epsilon=1.0).values
            )
            if len(np.shape(release.count(x, epsilon=1.0).values)) == 1:
                assert release.user_sum([14] * 5, x, resolution=1, **common).values.shape == (1,)


def test_hostile_records_are_read_as_they_are_said_to_be():
    """NaN and what is no number: absent under add/remove, the lower bound under swap; what is
    beyond a bound is at it.
    """
    absent, low, high = None, 10.0, 30.0
    for records, read in (
        ([np.nan, Decimal("sNaN"), "x", None, [1], np.ma.masked, date(2020, 1, 1), 1 + 2j], absent),
        ([-np.inf, -(10**5000), Decimal("-Infinity"), np.float32(-1e38), 9.4, False], low),
        ([np.inf, 10**5000, Decimal("1e999999"), np.uint64(2**64 - 1), 30.4], high),
    ):
        for record in records:
            for neighbors in ("add_remove", "swap"):
                data = [14, record, 15]
                same = (
                    [14, 15]
                    if read is None and neighbors == "add_remove"
                    else [14, low if read is None else read, 15]
                )
                found, expected = (
                    exact_distribution(
                        release.Median(**BOUNDS), x, epsilon=1.0, neighbors=neighbors
                    )
                    for x in (data, same)
                )
                assert logs_of(found) == logs_of(expected), record


def test_records_that_are_no_numbers_are_missing_wherever_they_stand():
    common = {"epsilon": 1.0, "neighbors": "add_remove"}
    for records in ([31, 40, None], ["x", 40.0, 2**70], np.array([31, None, 2.5], object)):
        data = np.asarray(records, object)
        assert release.median(data, **BOUNDS, **common).values.shape == (1,)
        assert release.mode(data, candidates=(1.0, 31.0), **common).values.shape == (1,)
    assert release.mode([1, 2, 2**70], candidates=(1.0, 2.0), **common).values[0] in (1.0, 2.0)
    assert release.maximum(np.zeros((2, 0)), tau=3, **BOUNDS, **common).values.shape == (1, 2)
    assert release.median(np.zeros((4, 0)), **BOUNDS, **common).values.shape == (1, 4)
    for function, options in (
        EVERY[name]
        for name in (
            "median",
            "floats",
            "total",
            "mode",
            "joint",
            "recursive",
            "count",
            "histogram",
        )
    ):
        cost = {"epsilon": 1.0} if function in (release.count, release.histogram) else common
        assert function(np.zeros((2, 0)), **options, **cost).values.shape[:2] == (1, 2)
        assert function(np.zeros((0, 3)), **options, **cost).values.shape[:2] == (1, 0)
        assert function([7.0], **options, **cost).values.shape[:1] == (1,)


def test_the_records_of_a_list_do_not_depend_on_each_other():
    """NumPy would make floats of all of it for one fraction, and text for one word; and wrap
    around, or refuse, for 2^70.
    """
    median = release.Median(0, (2**31 - 3) * 2**30, 2**30)
    for other in (1, 2.5, float("nan"), None, "x", 2**70):
        for value in (2**60 - 1, 2**61 - 2**32, 12.0 * 2**30):
            assert (
                median.read([value, other])[0][0]
                == median.read([value])[0][0]
                == math.floor(value / 2**30 + 0.5)
            )
    assert np.asarray([2**60 - 1, 2.5])[0] == 2**60  # the controls
    assert np.asarray([2**60 - 1, "x"]).dtype.kind == "U"
    with pytest.raises(ValueError, match="different lengths"):
        release.median([[1.0, 2.0], [3.0]], epsilon=1.0, **BOUNDS, neighbors="swap")


def test_ranks_that_would_overflow_are_refused():
    """A float 1/3 has a denominator of 10^15: products with it wrap around in 64 bits."""
    common = {"epsilon": 1.0, **BOUNDS}
    for definition in ("lower", "linear"):
        with pytest.raises(ValueError, match="denominator"):
            release.quantile(
                np.zeros(3000), 1 / 3, definition=definition, neighbors="swap", **common
            )
    x = np.full(3000, np.nan)
    x[:2767] = 20.0
    options = common | {"definition": "lower", "neighbors": "add_remove", "draws": 1000}
    found = release.quantile(x, Fraction(1, 3), **options)
    assert ((found.values >= 10) & (found.values <= 30)).all()
    assert np.mean(found.values == 20) > 0.999  # all records are equal


@pytest.mark.parametrize("statistic", ["sum", "mean", "quantile"])
def test_values_that_float64_cannot_hold_are_refused(statistic):
    """The sum of 4096 numbers of 2^52 passes 64 bits, and that of 2^50 the integers that float64
    counts; so do thousandths.
    """
    options = {"epsilon": 1.0, "neighbors": "swap"} | (
        {"q": 0.999, "definition": "linear"} if statistic == "quantile" else {}
    )
    for records, lower in (
        (2048, 2**52),
        (2048, 2**53 - 4),
        (2048, 2**52 - 9),
        (4096, 2**50),
        (4096, -(2**50)),
    ):
        with pytest.raises(ValueError, match="float"):
            getattr(release, statistic)(np.zeros(records), **bounds(lower + 9, lower), **options)


PUBLIC = {"epsilon": 1.0, **BOUNDS, "neighbors": "swap"}
DENOMINATORS = {"q": Fraction(1, 2**22 + 1), "definition": "linear"} | bounds(2**12 - 1)


@pytest.mark.parametrize(
    ("draw", "word"),
    [
        (lambda: release.quantile(RECORDS, 0.5, **PUBLIC, mask=True), "mask"),
        (lambda: release.quantile(RECORDS, 0.5, **PUBLIC, counts=1), "counts"),
        (lambda: release.median(VALUES, **BOUNDS, **ADDED, counts=[1.5] * 7), "counts"),
        (lambda: release.median(VALUES, **BOUNDS, **ADDED, counts=[True] * 7), "counts"),
        (lambda: release.median(RECORDS, **BOUNDS, **ADDED, mask=[1] * 7), "mask"),
        (lambda: release.median(RECORDS, **BOUNDS, **ADDED, mask=[True] * 6), "mask"),
        (lambda: release.median(RECORDS, **PUBLIC | {"epsilon": 65.0}), "epsilon"),
        (lambda: release.median(RECORDS, **PUBLIC | {"epsilon": 2.0**-31}), "epsilon"),
        (lambda: release.median(VALUES, counts=NUMBERS, **PUBLIC), "swap"),
        (lambda: release.quantile(RECORDS, **PUBLIC | DENOMINATORS), "denominator"),
        (lambda: release.sum(RECORDS, **PUBLIC | {"neighbors": "add_remove"}), "swap"),
        (lambda: release.mean(RECORDS, **PUBLIC | {"neighbors": "add_remove"}), "swap"),
        (lambda: release.sum(np.zeros((2, 0)), **PUBLIC), "at least one record"),
        (lambda: release.mean(np.zeros((2, 0)), **PUBLIC), "at least one record"),
        (lambda: jax.jit(lambda x: release.median(x, **PUBLIC).values)(RECORDS), "jit"),
        (lambda: exact_distribution(release.Sum(**BOUNDS), RECORDS, **ADDED), "swap"),
        (lambda: exact_distribution(release.Quantiles([0.2], **BOUNDS), RECORDS, **ADDED), "form"),
    ],
)
def test_what_would_depend_on_the_records_is_refused(draw, word):
    with pytest.raises((TypeError, ValueError), match=word):
        draw()


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_modes_follow_the_exponential_mechanism(neighbors):
    votes = np.array([[3, 3, 5, 9, 3, 5, 7, -1], [9, 9, 9, 9, 9, 9, 9, 9]])
    candidates = (3.0, 5.0, 8.0, 9.0)
    found = release.mode(
        votes, candidates=candidates, epsilon=0.7, neighbors=neighbors, draws=20_000
    )
    assert set(np.unique(found.values)) <= set(candidates)
    counts = np.stack([np.sum(votes == c, axis=-1) for c in candidates], axis=-1)
    for row in range(2):
        weights = np.exp((0.7 if neighbors == "add_remove" else 0.35) * counts[row])
        drawn = np.bincount(found.multiples[:, row], minlength=4)
        assert_counts_follow(drawn, weights / weights.sum())
        wrong = np.exp(0.9 * np.log(weights))
        assert row == 1 or not np.allclose(wrong / wrong.sum(), weights / weights.sum())
    assert_counts_rejected(np.bincount(found.multiples[:, 1], minlength=4), wrong / wrong.sum())
    assert found.guarantee.epsilon == pytest.approx(0.7 * 20_000)


def test_modes_count_what_equals_a_candidate_exactly():
    odd = 2**53 + 1  # float64 would round it to 2^53
    for other in (np.int64, np.uint64, object, list, np.longdouble):
        # Some have no more digits than float64
        exact = other is not np.longdouble or np.longdouble(odd) != np.longdouble(2**53)
        for value, equal in ((odd, not exact), (2**53, True)):
            x = [[value] * 40] if other is list else np.array([[value] * 40], other)
            found = release.mode(x, candidates=(0, 2**53), epsilon=5.0, neighbors="swap", draws=200)
            assert (np.mean(found.values == 2**53) > 0.9) == equal

    def counts(x, labels):
        found, there = release.Mode(labels).read(x)
        return np.bincount(found[there], minlength=len(labels)).tolist()

    for x in (
        np.array([3, 200], np.uint8),
        np.array([3.0, 200.0], np.float16),
        [3, 200.0],
        np.array([3, 200], object),
    ):
        assert counts(x, (-1.0, 2.5, 3.0, 200.0, 256.0, 1e300)) == [0, 0, 1, 1, 0, 0]
    assert counts([2**2000, None, "x", float("nan"), 3], (0.0, 3.0)) == [0, 1]
    assert counts(np.array([True, False, True]), (0.0, 1.0)) == [1, 2]
    assert counts(np.array([0x7FF0000000000001], np.uint64).view(np.float64), (0.0,)) == [0]
    for candidates in ((0, odd), (np.int64(odd), 2.0**60)):
        with pytest.raises(ValueError, match="float64 holds"):
            release.mode([1, 2], candidates=candidates, epsilon=5.0, neighbors="swap")


def test_arrays_that_numpy_does_not_know():
    statistic, options = release.Median(**BOUNDS), {"epsilon": 1.0, "neighbors": "swap"}
    for x, same in (
        (jnp.full(3, 12, jnp.bfloat16), [12] * 3),
        (jnp.ones(3, jnp.int4), [1] * 3),
        (Column([12.0, None, 14.0]), [12.0, float("nan"), 14.0]),
    ):
        assert release.median(x, **BOUNDS, **options).values.shape == (1,)
        found, expected = (exact_distribution(statistic, data, **options) for data in (x, same))
        assert logs_of(found) == logs_of(expected)


def test_distinct_ids_and_totals_of_persons():
    ids = ["a", "b", "b", 7, 7, 7, None, 2**80, float("nan")]
    common = {"epsilon": 1.5, "neighbors": "add_remove"}
    statistic = release.DistinctCount(1, 19)
    exact = exact_distribution(statistic, ids, **common)
    assert exact.value == 3  # of four ids, of which two are held by one person each
    for data in (
        [1, 2, 2, 3, 3, 3, None, 5],
        np.array([1, 2, 2, 3, 3, 3, 5]),
        np.array(list("abbcccd")),
    ):
        assert logs_of(exact_distribution(statistic, data, **common)) == logs_of(exact)
    found = release.distinct_count(ids, tau=1, upper=19, draws=20_000, **common)
    counts = np.bincount(found.multiples, minlength=20)
    assert_counts_follow(counts, exact.pmf(np.arange(20)))
    assert_counts_rejected(
        counts, exact_distribution(statistic, ids[:6], **common).pmf(np.arange(20))
    )
    np.testing.assert_array_equal(found.values, found.multiples)

    amounts, persons = [[5, 1, 2.5, 9, 4]], [7, "x", 7, None, "x"]
    summed = common | {"tau": 1, "upper": 29.5, "resolution": 0.5, "person_ids": persons}
    exact = exact_distribution(release.NonnegativeSum(1, 29.5, 0.5), [7.5, 5.0], **common)
    drawn = release.user_sum(amounts, draws=60_000, **summed)
    assert_counts_follow(
        np.bincount(drawn.multiples[:, 0], minlength=60), exact.pmf(np.arange(60) / 2)
    )
    masked = release.user_sum(amounts, draws=20_000, mask=[True, True, False, True, True], **summed)
    without = exact_distribution(release.NonnegativeSum(1, 29.5, 0.5), [5.0, 5.0], **common).pmf(
        np.arange(60) / 2
    )
    assert_counts_follow(np.bincount(masked.multiples[:, 0], minlength=60), without)
    assert_counts_rejected(np.bincount(drawn.multiples[:, 0], minlength=60), without)


def test_counts_of_every_dtype_stand_for_records():
    statistic, common = release.Median(**BOUNDS), {"epsilon": 1.0, "neighbors": "add_remove"}
    expected = logs_of(exact_distribution(statistic, RECORDS, **common))
    for dtype in (np.int8, np.uint8, np.int64, np.uint64, object):
        for order in (slice(None), slice(None, None, -1)):
            assert (
                logs_of(
                    exact_distribution(
                        statistic, VALUES[order], counts=np.array(NUMBERS, dtype)[order], **common
                    )
                )
                == expected
            )
    # Negative ones count as 0
    fewer = exact_distribution(statistic, VALUES, counts=[-3, *NUMBERS[1:]], **common)
    assert (
        logs_of(fewer) == logs_of(exact_distribution(statistic, RECORDS[1:], **common)) != expected
    )
    wide = release.median(VALUES, counts=[10**30, *NUMBERS[1:]], **BOUNDS, **common)
    assert float(wide) == 12.0
    top = release.median(
        VALUES, counts=np.array([2**64 - 1, *NUMBERS[1:]], np.uint64), **BOUNDS, **common
    )
    assert float(top) == 12.0
    drawn = release.median(
        VALUES, counts=[NUMBERS, [0] * 7, [0, 0, 11, 0, 0, 0, 0]], **BOUNDS, **common
    )
    assert drawn.values.shape == (1, 3)
    halves = release.median(
        [[1.0, 2.0], [3.0, 4.0]],
        counts=[[[5, 0]], [[0, 9]]],
        **bounds(9),
        **common | {"epsilon": 60.0},
    )
    assert halves.values.tolist() == [[[1.0, 3.0], [2.0, 4.0]]]


def test_an_epsilon_of_any_kind_is_that_number():
    common = {**BOUNDS, "neighbors": "swap"}
    for mechanism, times in (("piecewise_laplace", 1), ("permute_and_flip", 2)):
        found = release.median(
            RECORDS, epsilon=Fraction(3, 10), mechanism=mechanism, **common
        ).guarantee
        assert Fraction(found.epsilon) >= Fraction(3, 10)
        assert Fraction(found.bounded_range) >= times * Fraction(3, 10)
        for epsilon in (jnp.float32(1), np.array(1.0), 1, Fraction(1)):
            assert (
                release.median(
                    RECORDS, epsilon=epsilon, mechanism=mechanism, **common
                ).guarantee.epsilon
                == 1.0
            )


def test_columns_of_text_are_refused_by_their_dtype_alone():
    common = {**BOUNDS, "neighbors": "add_remove", "epsilon": 1.0}
    text = [
        np.array(["m"]),
        np.array([b"m"]),
        *(pd.Series(["1", "2"], dtype=kind) for kind in ("string", "category")),
    ]
    text += [
        polars.Series(["1"]),
        polars.Series(["1"], dtype=polars.Categorical),
        polars.Series(["1"], dtype=polars.Enum(["1"])),
    ]
    for x in text:
        with pytest.raises(TypeError, match="x must hold numbers, got dtype"):
            release.median(x, **common)
    for x in (
        pd.Series(["m", 10**30], dtype=object),
        ["m", 12],
        polars.Series([{"a": 1}]),
        pd.Series([12, None], dtype="Int64"),
    ):
        assert release.median(x, **common).draws == 1  # whatever it holds
    ids = polars.Series(["a", "b", "a"])
    assert (
        release.distinct_count(ids, tau=1, upper=9, epsilon=1.0, neighbors="add_remove").draws == 1
    )
    wide = polars.Series([50] * 200, dtype=polars.Int128)
    assert (
        float(release.median(wide, **BOUNDS | {"upper": 60}, epsilon=30.0, neighbors="add_remove"))
        == 50.0
    )
