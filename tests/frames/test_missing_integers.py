"""One missing integer makes no float of the others, in any table and for rows and persons."""

import numpy as np
import pytest

from dpjax import frames, release
from tests.support.exact_draws import captured

CELLS = [0] * 20 + [2**53 + 1] * 40  # as a float the latter is the second candidate, 2^53
MODE = release.Mode(candidates=(0.0, float(2**53)))
ONE = {"epsilon": 1.0, "neighbors": "add_remove"}


def _pandas(kind):
    def table(cells):
        pandas = pytest.importorskip("pandas")
        dtype = kind
        if kind == "arrow":
            dtype = pandas.ArrowDtype(pytest.importorskip("pyarrow").int64())
        data = {"x": pandas.Series(cells, dtype=dtype), "id": range(len(cells))}
        return pandas.DataFrame(data)

    return table


def _arrow(cells):
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table({"x": pyarrow.array(cells, pyarrow.int64()), "id": range(len(cells))})


def _polars(cells):
    polars = pytest.importorskip("polars")
    return polars.DataFrame(
        {"x": polars.Series(cells, dtype=polars.Int64), "id": range(len(cells))}
    )


def _duckdb(cells):
    return pytest.importorskip("duckdb").arrow(_arrow(cells))


TABLES = {
    "nullable pandas": _pandas("Int64"),
    "pandas of Arrow": _pandas("arrow"),
    "Arrow": _arrow,
    "Polars": _polars,
    "lazy Polars": lambda cells: _polars(cells).lazy(),
    "DuckDB": _duckdb,
}


@pytest.mark.parametrize("unit", [None, "id"])
@pytest.mark.parametrize("name", TABLES)
def test_the_counts_are_the_same(name, unit, monkeypatch):
    drawn = captured(monkeypatch)
    options = ONE
    if unit:
        options = ONE | {"unit": unit, "per_unit": "max"}
    for cells in (CELLS, [*CELLS, None]):
        frames.release(TABLES[name](cells), {"x": MODE}, **options)
    expected = release.exact_distribution(MODE, [0] * 20, **ONE)
    for found in drawn:
        assert np.array_equal(found.pmf(found.values[:, None])[:, 0], expected.pmf(MODE.candidates))
    assert len(drawn) == 2
    # The control: floats of these records would be counted as the other candidate
    found = MODE.read(np.array(CELLS, np.float64))
    assert found[1].all()


def test_a_signaling_nan_is_missing_without_a_warning():
    """Warnings are errors in this suite. The record is missing, so that no other one changes."""
    signaling = np.array([0x7FF0000000000001], np.uint64).view(np.float64)
    table = {"x": np.concatenate([np.full(60, 7.0), signaling]), "id": np.arange(61)}
    options = {"unit": "id", "epsilon": 30.0, "neighbors": "add_remove"}
    for statistic, per_unit, value in (
        (release.Median(lower=0, upper=9, resolution=1), "mean", 7.0),
        (release.Mode(candidates=(0.0, 7.0)), "max", 7.0),
    ):
        found = frames.release(table, {"x": statistic}, per_unit=per_unit, **options)
        assert found.columns["released"].tolist() == [value]
