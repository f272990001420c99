"""Statistic objects: what is public of a statistic, checked once, equal where it is the same, and
as JSON.
"""

import json
from fractions import Fraction

import numpy as np
import pytest

from dpjax import release
from dpjax.release import Counts, Floats, Statistic
from tests.support.exact_draws import captured

GRID = {"lower": 0, "upper": 120, "resolution": 1}
COUNTS = Counts.of_rows([0] * 6, [3, 5, 20, 31, 40, 52], [2, 1, 4, 1, 1, 1], groups=1)
EVERY = [
    release.Median(**GRID),
    release.Median(lower=-0.3, upper=1.2, resolution="0.1", definition="linear"),
    release.Median(grid=Floats(digits=2, smallest=-3, largest=4)),
    release.Quantile(0.9, **GRID),
    release.Quantile("1/3", **GRID, definition="linear"),
    release.Quantile(Fraction(1, 3), lower=0, upper=2, resolution=Fraction(1, 3)),
    release.OrderStatistic(4, **GRID),
    release.Maximum(3, **GRID),
    release.Maximum(1, grid=Floats()),
    release.NonnegativeSum(2, 1000, 0.5),
    release.DistinctCount(1, 99),
    release.Sum(**GRID),
    release.Mean(0, 1, "1/100"),
    release.Count(),
    release.Histogram(edges=(0, 1.5, 3)),
    release.Histogram(candidates=[1, 2, 7]),
    release.Mode((3, 5, 9)),
    release.Mode(np.array([0.3, 0.7]), resolution="0.1"),
    release.Mode(range(4)),
    release.Quantiles((0.25, 0.5, "3/4"), **GRID),
    release.Quantiles([0.25, Fraction(1, 3)], **GRID, method="recursive"),
    release.Quantiles([0.25, Fraction(1, 3), 0.5], **GRID, method="nested"),
    release.Quantiles([0.25, Fraction(1, 3), 0.5], **GRID, method="auto"),
    release.Quantiles((0.5,), grid=Floats(), max_records=100, reach=3, terms=4),
    release.ConfidenceInterval(0.5, 0, 100, 1, 500),
    release.ConfidenceInterval("1/2", 0, 100, "0.5", 500, coverage=0.9, ties=3, terms=8),
]


def names(statistics):
    return [f"{type(one).__name__}{number}" for number, one in enumerate(statistics)]


@pytest.mark.parametrize("statistic", EVERY, ids=names(EVERY))
def test_to_json_and_back(statistic):
    text = statistic.to_json()
    found = Statistic.from_json(text)
    assert type(found) is type(statistic)
    assert found == statistic
    assert hash(found) == hash(statistic)
    assert found.to_json() == text
    given = json.loads(text)
    assert given == statistic.to_dict()
    assert Statistic.from_dict(given) == statistic
    # And nothing is taken out of what is given
    assert given["statistic"] == type(statistic).__name__
    assert all(given[name] is not None for name in given)
    x = [3, 3, 5, 20, 20, 20, 20, 31, 40, 0.25]
    if not isinstance(statistic, release.DistinctCount):
        for a, b in zip(statistic.read(np.array(x)), found.read(np.array(x)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_equal_where_what_is_public_is_the_same():
    assert release.Quantile("1/3", **GRID) == release.Quantile(Fraction(1, 3), **GRID)
    assert release.Mode([3, 5]) == release.Mode((3, 5)) == release.Mode(np.array([3, 5]))
    assert release.Histogram(edges=range(4)) == release.Histogram(edges=(0, 1, 2, 3))
    different = [one for one in EVERY if one not in (release.Median(**GRID),)]
    assert len({*different, release.Median(**GRID)}) == len(EVERY)
    assert release.Sum(**GRID) != release.Mean(**GRID)
    assert release.Median(**GRID) != release.Median(**GRID | {"resolution": 2})
    # Defaults are left out
    assert release.Median(**GRID).to_dict() == {"statistic": "Median", **GRID}
    assert json.loads(release.Quantile("1/3", 0, 1, "0.1").to_json()) == {
        **{"statistic": "Quantile", "q": "1/3", "lower": 0, "upper": 1, "resolution": "0.1"}
    }


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: release.Median(), "resolution"),
        (lambda: release.Median(0, 10, 3), "resolution"),
        (lambda: release.Median(**GRID, grid=Floats()), "grid"),
        (lambda: release.Median(grid=Floats(), definition="linear"), "definition"),
        (lambda: release.Quantile(1 / 3, **GRID), "Fraction"),  # its ranks pass 64 bits
        (lambda: release.NonnegativeSum(1, 2**31, 1), "resolution"),
        (lambda: release.Sum(2**60, 2**60 + 2**4, 1), "float"),
        (lambda: release.Histogram((0, 1), (0, 1)), "exactly one"),
        (lambda: release.Mode((0, 2**53 + 1)), "float64"),
        (lambda: release.Mode((0.3, 0.7), 0.2), "resolution"),
        (lambda: Statistic.from_dict({"statistic": "Range", **GRID}), "statistic"),
        (lambda: Statistic.from_dict({"statistic": "Median", **GRID, "upper": -1}), "lower"),
        (lambda: Statistic.from_json('{"statistic": "Median", "low": 0}'), "low"),
    ],
)
def test_what_does_not_fit_together_is_refused_where_it_is_given(make, word):
    with pytest.raises((TypeError, ValueError), match=word):
        make()


def test_damaged_text_is_refused():
    for text in (
        "[]",
        "3",
        "null",
        "{}",
        '{"lower": 0}',
        '{"statistic": 3}',
        '{"statistic": ["Median"]}',
    ):
        with pytest.raises((TypeError, ValueError), match=r"statistic"):
            Statistic.from_json(text)


def test_relations_and_mechanisms_are_checked():
    for statistic in EVERY:
        for relation in ("add_remove", "swap"):
            if relation in statistic.relations:
                default = statistic.checked(relation, None)
                assert default == (statistic.mechanisms[0] if statistic.mechanisms else "")
            else:
                with pytest.raises(ValueError, match="neighbors"):
                    statistic.checked(relation, None)
    assert release.Median.mechanisms == (
        "piecewise_laplace",
        "inverse_sensitivity",
        "permute_and_flip",
    )
    assert release.Mode.mechanisms == ("exponential", "permute_and_flip")


def test_more_records_than_are_counted_are_refused_under_swap():
    """Their number is public, and must not depend on how many of them are equal."""
    counts = Counts.of_rows([0, 0], [0, 1], [2**62, 1], groups=1)
    for statistic in EVERY:
        if "swap" in statistic.relations:
            with pytest.raises(ValueError, match="at most"):
                statistic.release(counts, 1.0, "swap")
    with pytest.raises(ValueError, match="at most"):
        release.Median(0, 10, 1).distribution(counts, 1.0, "swap")
    assert release.Median(0, 10, 1).release(counts, 1.0, "add_remove").values.shape == (1, 1)


def test_values_are_those_of_the_records():
    """The statistic itself, not a shifted one: what an error is measured from."""
    x = np.repeat([3, 5, 20, 31, 40, 52], [2, 1, 4, 1, 1, 1])
    expected = {
        "Median": np.sort(x)[4],
        "Quantile": np.sort(x)[8],
        "OrderStatistic": np.sort(x)[3],
        "Maximum": 52,
        "Sum": x.sum(),
        "Mean": x.mean(),
        "Count": 10,
        "DistinctCount": 6,
    }
    statistics = [
        release.Median(**GRID),
        release.Quantile(0.9, **GRID),
        release.OrderStatistic(4, **GRID),
        release.Maximum(3, **GRID),
    ]
    statistics += [
        release.Sum(**GRID),
        release.Mean(**GRID),
        release.Count(),
        release.DistinctCount(2, 99),
    ]
    for statistic in statistics:
        np.testing.assert_allclose(
            statistic.value(COUNTS), [expected[type(statistic).__name__]], rtol=1e-15
        )
    assert release.NonnegativeSum(2, 1000, 1).value(COUNTS).tolist() == [x.sum()]
    assert release.NonnegativeSum(2, 100, 1).value(COUNTS).tolist() == [100]
    assert release.DistinctCount(2, 4).value(COUNTS).tolist() == [4]
    assert release.Median(**GRID, definition="linear").value(COUNTS).tolist() == [np.median(x)]
    assert release.Quantile("1/3", **GRID, definition="linear").value(COUNTS).tolist() == [
        pytest.approx(np.quantile(x, 1 / 3))
    ]
    empty = Counts.of_rows([], [], [], groups=2)
    for statistic in (
        *statistics[:4],
        release.NonnegativeSum(1, 9, 1),
        release.DistinctCount(1, 9),
        release.Count(),
    ):
        assert statistic.value(empty).shape == (2,)
    assert release.Maximum(1, 5, 9, 1).value(empty).tolist() == [5, 5]


def test_profiles_end_after_a_public_number_of_changes():
    """By default at none that records can reach; of a distribution after 160 / epsilon."""
    statistic = release.Median(**GRID)
    many = Counts.of_rows([0, 0], [3, 90], [2000, 1], groups=1)
    whole = statistic.profile(many, "add_remove")
    assert whole.level.max() > 1900
    assert statistic.distribution(many, 8.0, "add_remove").profile.level.max() <= 21
    one = whole.one(0)
    for name in ("near", "length", "level", "rise", "sign"):
        np.testing.assert_array_equal(getattr(one, name), getattr(whole, name))


def test_releases_of_many_groups_are_drawn_in_parts():
    """What stays in the cache is drawn together; the parts have the distributions of the whole."""
    x = np.argsort(np.random.default_rng(0).random((20_000, 20)), axis=1)[:, :7]
    counts = Counts.of_matrix(x, np.full(x.shape, 40))
    assert len(counts.values) > 2**17
    found = release.Median(**GRID).release(counts, 64.0, "add_remove", draws=2)
    assert np.array_equal(found.values, np.tile(np.sort(x, axis=1)[:, 3], (2, 1)))
    means = release.Mean(0, 20, 1).release(counts, 64.0, "swap", batch_shape=(200, 100))
    assert np.abs(means.values - x.mean(axis=1).reshape(200, 100)).max() < 0.1
    assert means.resolution == Fraction(1, 280)


def test_permute_and_flip_takes_as_many_groups_at_a_time_as_fit_whatever_their_records_are(
    monkeypatch,
):
    """A group of many equal records has thousands of levels, and one of few has one: memory must
    not tell them apart.
    """
    total, drawn = release.NonnegativeSum(2, 2**20, 1), captured(monkeypatch)
    epsilon, sizes = Fraction(1, 64), {}
    for records in (1, 5000):
        counts = Counts.of_rows(np.arange(400), np.full(400, 3), np.full(400, records), groups=400)
        for mechanism in ("permute_and_flip", "piecewise_laplace"):
            drawn.clear()
            total.release(counts, epsilon, "add_remove", mechanism=mechanism)
            sizes[records, mechanism] = sorted(found.profile.groups for found in drawn)
            assert sum(sizes[records, mechanism]) == 400
    assert sizes[1, "permute_and_flip"] == sizes[5000, "permute_and_flip"] != [400]
    assert sizes[5000, "piecewise_laplace"] == [400]


def test_sums_of_groups_of_several_sizes_are_refused():
    """They were drawn as if the smaller groups had as many records as the largest."""
    different = Counts.of_rows([0, 1], [1, 2], [5, 50], groups=2)
    for statistic in (release.Sum(0, 10, 1), release.Mean(0, 10, 1)):
        with pytest.raises(ValueError, match="same public number of records"):
            statistic.release(different, 64.0, "swap")
        each = [float(statistic.release(different.some(g, g + 1), 64.0, "swap")) for g in (0, 1)]
        expected = (
            (5, 100)
            if isinstance(statistic, release.Sum) and not isinstance(statistic, release.Mean)
            else (1, 2)
        )
        np.testing.assert_allclose(each, expected, atol=2)
