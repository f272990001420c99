"""One missing integer makes no float of the others, in any table and for rows and persons."""

import numpy as np
import pytest

from dpjax import frames, release
from dpjax.release.statistics import Statistic

CELLS = [0] * 20 + [2**53 + 1] * 40  # as a float the latter is the second candidate, 2^53
MODE = release.Mode(candidates=(0.0, float(2**53)))


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
    counted, original = [], Statistic.release

    def release_of(self, counts, *args, **kwargs):
        counted.append((counts.values.tolist(), counts.counts.tolist()))
        return original(self, counts, *args, **kwargs)

    monkeypatch.setattr(Statistic, "release", release_of)
    options = {"epsilon": 1.0, "neighbors": "add_remove"}
    if unit:
        options |= {"unit": unit, "per_unit": "max"}
    for cells in (CELLS, [*CELLS, None]):
        frames.release(TABLES[name](cells), {"x": MODE}, **options)
    assert counted == [([0], [20])] * 2
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
