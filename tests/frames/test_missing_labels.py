"""Missing labels of every dtype are in no group, are no person, and change no other row; and labels
that are equal are shown alike.
"""

import warnings
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dpjax import frames, release
from tests.support.tables import Opened

BOUNDS = {"lower": 0, "upper": 100, "resolution": 1, "neighbors": "add_remove"}
UNKNOWN = frames.PrivateGroups(30.0, 1e-6)
MEDIAN = release.Median(0, 100, 1)


def opened(frame, groups, persons=None, statistic=MEDIAN):
    by = None if groups is None else "g"
    return Opened(frame, "x", statistic, by=by, groups=groups, persons=persons)


def sizes(frame, groups, persons=None):
    """The number of records of each group; of all groups that have rows if they are unknown."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = opened(frame, groups, persons)
        if groups is UNKNOWN:
            named, numbers = table.sizes()
            return dict(zip(map(str, named.names), numbers.tolist(), strict=True))
        tally = table.tally()
        return dict(zip(groups, tally.numbers(len(groups)).tolist(), strict=True))


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="NumPy 2 has texts of any length")
@pytest.mark.parametrize("na_object", [np.nan, None, "a", "missing", 7])
@pytest.mark.parametrize("more", [[], ["c"], ["", "\0"]])
def test_missing_texts_of_numpy_are_in_no_group(na_object, more):
    gone = [] if isinstance(na_object, str) else [na_object] * 5
    dtype = np.dtypes.StringDType(na_object=na_object)
    labels = ["a"] * 3 + ["b"] * 3 + gone + more
    frame = {
        "x": np.full(len(labels), 50.0),
        "g": np.array(labels, dtype),
        "who": np.arange(len(labels)),
        "texts": np.array([str(k) for k in range(len(labels))], dtype),
    }
    expected = {"a": 3, "b": 3, **dict.fromkeys(more, 1)}
    assert sizes(frame, ["a", "b"]) == {"a": 3, "b": 3}
    assert sizes(frame, UNKNOWN) == expected
    assert sizes(frame, UNKNOWN, ("who",)) == expected
    assert sizes(frame, UNKNOWN, ("texts",)) == expected
    # Labels as persons: each is one
    rows = {"x": frame["x"], "who": frame["g"]}
    for statistic, column in ((release.Count(), "x"), (release.DistinctCount(1, 9), "x")):
        table = opened(rows if column == "x" else frame, None, ("who", "min"), statistic=statistic)
        tally = table.tally()
        assert tally.numbers(1).tolist() == [2 + len(more)]
    # The values whose number is asked for
    values = {"x": frame["g"]}
    for statistic in (release.Count(), release.DistinctCount(1, 9)):
        table = opened(values, None, statistic=statistic)
        tally = table.tally()
        assert tally.numbers(1, tally.position >= 0).tolist() == [6 + len(more)]
        assert len(set(tally.position.tolist()) - {-1}) in (1, 2 + len(more))


def tied_groups(labels):
    """66 persons with a row in each of two groups."""
    first, second = np.triu_indices(len(labels), 1)
    return np.concatenate([labels[first], labels[second]]), np.tile(np.arange(len(first)), 2)


@pytest.mark.parametrize("dtype", [np.longdouble, np.float64, np.float32, np.float16, object])
def test_a_label_that_is_no_number_changes_no_ties(dtype):
    labels = np.sort(np.random.default_rng(8).integers(0, 10**6, 12) / np.longdouble(7))
    if dtype is np.float16:
        labels = labels / 1000
    labels = labels.astype(dtype)
    group, who = tied_groups(labels)
    nan = np.longdouble("nan") if dtype is object else np.array(np.nan, dtype)[()]

    def found(rows):
        column, persons = np.append(group, [nan] * rows), np.append(who, [999] * rows)
        order = np.random.default_rng(rows).permutation(len(column))
        frame = {
            "x": np.full(len(column), 50.0),
            "g": column.astype(dtype)[order],
            "who": persons[order],
        }
        named = labels.tolist() if dtype is not object else list(map(str, labels))
        return (
            list(sizes(frame, named, ("who",)).values()),
            sizes(frame, UNKNOWN, ("who",)),
        )

    before, private = found(0)
    assert found(1) == found(3) == (before, private)
    assert sum(before) == sum(private.values()) == 66
    if dtype is not object:  # the first label of two, in the order of numbers
        assert before == list(range(11, -1, -1))


NANS = [
    float("nan"),
    np.float16("nan"),
    np.float32("nan"),
    np.float64("nan"),
    np.longdouble("nan"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("-NaN12"),
]


def test_the_nan_of_every_type_is_missing():
    class Own(float):
        def __ne__(self, other):
            raise ValueError

        __hash__ = float.__hash__

    for nan in [*NANS, Own("nan"), None]:
        frame = {"x": np.full(3, 50.0), "g": np.array(["a", nan, "b"], object)}
        assert sizes(frame, UNKNOWN) == {"a": 1, "b": 1}
        with pytest.raises(ValueError, match="must not contain None or NaN"):
            sizes(frame, ["a", nan])
    for label in (0, 0.0, "nan", float("inf"), np.longdouble("inf"), Decimal(1), Fraction(1, 3)):
        frame = {"x": np.full(2, 50.0), "g": np.array(["a", label], object)}
        assert sizes(frame, UNKNOWN) == {"a": 1, str(label): 1}


def test_the_missing_values_of_pandas_are_missing_in_arrays_of_objects():
    pandas = pytest.importorskip("pandas")
    gone = [pandas.NA, pandas.NaT, np.datetime64("NaT", "s"), np.timedelta64("NaT", "s"), None]

    class NAType:
        __module__ = 5

        def __str__(self):
            return "of another module"

    cells = np.empty(len(gone) + 2, object)
    cells[:] = [*gone, "a", NAType()]
    frame = {"x": np.full(len(cells), 50.0), "g": cells}
    assert sizes(frame, UNKNOWN) == {"a": 1, "of another module": 1}
    persons = release.Count()
    found = frames.release(frame, {"x": persons}, unit="g", epsilon=64.0, neighbors="add_remove")
    assert found.columns["released"].tolist() == [2]


def test_a_text_that_is_a_subclass_of_str_is_compared_as_text():
    class Text(str):
        def __str__(self):
            return self

        def __hash__(self):
            raise ValueError

        def __eq__(self, other):
            raise ValueError

    cells = np.empty(3, object)
    cells[:] = ["a", Text("a"), Text("b")]
    assert sizes({"x": np.full(3, 50.0), "g": cells}, UNKNOWN) == {"a": 2, "b": 1}


def test_texts_that_no_frame_can_hold_are_missing():
    pandas = pytest.importorskip("pandas")
    labels = ["\ud800"] * 60 + ["\udc80b"] * 60 + ["b", "\U0001f600"]
    asked = {"by": "g", "groups": frames.PrivateGroups(64.0, 1e-3)}
    x = np.full(len(labels), 50.0)
    of_pandas = pandas.DataFrame({"x": x, "g": pandas.Series(labels, dtype=object)})
    for table in ({"x": x, "g": np.array(labels)}, of_pandas):
        assert sizes(table, UNKNOWN) == {"b": 1, "\U0001f600": 1}
        frames.release(table, {"x": MEDIAN}, **asked, epsilon=1.0, neighbors="add_remove")


def test_what_is_no_number_but_says_so_is_no_missing_label():
    class Hostile:
        @property
        def __class__(self):
            raise ValueError

        def __ne__(self, other):
            raise ValueError

        def __str__(self):
            return "hostile"

        __hash__ = None

    frame = {"x": np.full(2, 50.0), "g": np.array(["a", Hostile()], object)}
    assert sizes(frame, UNKNOWN) == {"a": 1, "hostile": 1}


def test_equal_labels_are_shown_alike():
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    pytest.importorskip("narwhals")
    shown = Counter()
    for rows in ([-0.0, 0.0, 1.0], [0.0, -0.0, 1.0], [0.0, 1.0], [-0.0, 1.0]):
        dictionary = pyarrow.array(rows).dictionary_encode()
        for column in (
            np.array(rows),
            np.array(rows, np.longdouble),
            np.array(rows, np.float16),
            pandas.array(rows, "Float64"),
            pandas.Categorical(rows),
            pandas.Series(rows, dtype=pandas.ArrowDtype(pyarrow.float64())),
            pandas.Series(pandas.array(dictionary, pandas.ArrowDtype(dictionary.type))),
        ):
            if isinstance(column, np.ndarray):
                frame = {"x": np.full(len(rows), 50.0), "g": column}
            else:
                frame = pandas.DataFrame({"x": np.full(len(rows), 50.0), "g": column})
            shown[tuple(sizes(frame, UNKNOWN))] += 1
    assert shown == {("0.0", "1.0"): 28}


@pytest.mark.parametrize("rows", [0, 3])
def test_dtypes_whose_equal_labels_differ_are_refused_without_a_look(rows):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("narwhals")
    ends = pandas.arrays.IntervalArray.from_tuples([(-0.0, 1.0), (0.0, 1.0), (2.0, 3.0)][:rows])
    for labels in (
        ends,
        pandas.Categorical(ends),
        pandas.arrays.SparseArray([-0.0, 0.0, 1.0][:rows]),
        pandas.arrays.SparseArray(np.array(["a", 1, None], object)[:rows]),
        np.array([1j, 2, np.nan])[:rows],
    ):
        frame = pandas.DataFrame({"x": np.full(rows, 50.0), "g": labels, "who": np.arange(rows)})
        with pytest.raises(TypeError, match=r"column 'g' .* cannot (be used as labels|identify)"):
            sizes(frame, UNKNOWN)
        with pytest.raises(TypeError, match=r"column 'g' .* cannot (be used as labels|identify)"):
            sizes(frame, ["a"])
        with pytest.raises(TypeError, match=r"column 'who' .* cannot (be used as labels|identify)"):
            sizes(frame.rename(columns={"who": "g", "g": "who"}), UNKNOWN, ("who",))
        texts = frame.assign(g=pandas.Series(list(map(str, frame["g"])), dtype="str"))
        assert sizes(texts, ["(-0.0, 1.0]", "(0.0, 1.0]"]).keys() == {"(-0.0, 1.0]", "(0.0, 1.0]"}


@pytest.mark.parametrize("gone", [0, 1, 4])
def test_nan_in_a_dictionary_is_missing(gone):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    pytest.importorskip("narwhals")
    labels = [5.0, 3.0, *[float("nan")] * gone, -0.0, 2.0, 0.0, 5.0]
    dictionary = pyarrow.array(labels).dictionary_encode()
    column = pandas.Series(pandas.array(dictionary, pandas.ArrowDtype(dictionary.type)))
    frame = pandas.DataFrame(
        {"x": np.full(len(labels), 50.0), "g": column, "who": np.arange(len(labels))}
    )
    expected = {"0.0": 2, "2.0": 1, "3.0": 1, "5.0": 2}
    assert list(sizes(frame, UNKNOWN).items()) == list(expected.items())
    tied = frame.assign(who=7)  # a person with most rows in two groups: the first one counts
    assert sizes(tied, UNKNOWN, ("who",)) == {"0.0": 1}
