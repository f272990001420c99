"""Records and ids in containers of other libraries, one of them missing: it changes no other."""

import numpy as np
import pandas
import polars
import pyarrow
import pytest

from dpjax import release


def containers(cells):
    """The same integers, some of them missing, in containers that know missing ones."""
    known = sorted({cell for cell in cells if cell is not None})
    array = pyarrow.array(cells, pyarrow.int64())
    return {
        "list": cells,
        "nullable": pandas.Series(cells, dtype="Int64"),
        "categories": pandas.Series(pandas.Categorical(cells, categories=known)),
        "arrow": array,
        "chunks": pyarrow.chunked_array([array[:3], array[3:]]),
        "dictionary": array.dictionary_encode(),
        "pandas of arrow": pandas.Series(cells, dtype=pandas.ArrowDtype(pyarrow.int64())),
        "polars": polars.Series(cells, dtype=polars.Int64),
    }


def test_a_missing_integer_changes_no_other():
    """NumPy makes floats of all integers of PyArrow, Polars and categories if one is missing: ids
    were invalid then, and 2^53 + 1 was 2^53.
    """
    cells = [5, 2**53 + 1, 5, 7, 2**53]
    ids, known = release.DistinctCount(1, 9), release.Mode((5.0, 7.0, 2.0**53))
    for name, whole in containers(cells).items():
        gap = containers([*cells, None])[name]
        codes, valid = ids.read(gap)
        assert codes[:5].tolist() == ids.read(whole)[0].tolist(), name
        assert (len(set(codes[:5])), valid.tolist()) == (4, [True] * 5 + [False]), name
        candidates, counts = known.read(gap)
        assert counts.tolist() == [True, False, True, True, True, False], name
        assert candidates[counts].tolist() == [0, 0, 1, 2], name
    floats = np.asarray([5, 2**53 + 1, None], float)  # the control: what NumPy would make
    assert int(floats[1]) == 2**53


def test_a_missing_id_costs_one_person():
    people = list(range(60))
    for name, whole in containers(people).items():
        options = {"tau": 5, "upper": 200, "resolution": 1, "epsilon": 64.0}
        for ids in (whole, containers([*people, None])[name]):
            found = release.user_sum(np.ones(len(ids)), ids, neighbors="add_remove", **options)
            assert 50 <= float(found) <= 60, name


def test_unsigned_counts_beyond_int64_are_clamped_in_any_order():
    median = release.Median(lower=0, upper=9, resolution=1)
    for most in (2**63 - 1, 2**63, 2**64 - 1):
        counts = np.array([most, 3], np.uint64)
        law = release.exact_distribution(
            median, [5, 2], counts=counts, epsilon=1.0, neighbors="add_remove"
        )
        assert law.pmf(np.array([[5.0]]))[0, 0] == pytest.approx(1.0)
