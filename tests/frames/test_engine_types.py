"""Types of engines: no value that a column can hold raises or changes what others count as."""

import datetime

import pytest

from dpjax import frames, release

pytest.importorskip("narwhals")
duckdb = pytest.importorskip("duckdb")
pyarrow = pytest.importorskip("pyarrow")

START, DAY = datetime.datetime(2020, 1, 1), datetime.timedelta(days=1)
MOMENTS = release.Median(lower=START, upper=START + 100 * DAY, resolution=DAY)
NUMBERS = release.Median(lower=0, upper=100, resolution=1)
CERTAIN = {"epsilon": 64.0, "neighbors": "add_remove"}


def as_duckdb(sql, *before):
    connection = duckdb.connect()
    for each in before:
        connection.execute(each)
    connection.execute(f"create table known as {sql}")
    return connection.table("known")


def as_ibis(sql, *before):
    ibis = pytest.importorskip("ibis")
    connection = ibis.duckdb.connect()
    for each in before:
        connection.raw_sql(each)
    connection.raw_sql(f"create table known as {sql}")
    return connection.table("known")


ENGINES = [as_duckdb, as_ibis]


def of_arrow(kind, table):
    if kind is as_ibis:
        return pytest.importorskip("ibis").memtable(table)
    return duckdb.connect().from_arrow(table)


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_no_time_is_too_far_for_the_unit_of_its_column(kind, unit):
    known = int((START - datetime.datetime(1970, 1, 1)).total_seconds())
    known *= {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    for more in (2**63 - 2, -(2**63) + 2, 2**63 - 1, 253_402_300_800_000, 0):
        ticks = pyarrow.array([known] * 60 + [more], pyarrow.int64())
        table = pyarrow.table(
            {
                "x": ticks.cast(pyarrow.timestamp(unit)),
                "y": pyarrow.array([50.0] * 61),
                "who": pyarrow.array(range(61)),
            }
        )
        frame = of_arrow(kind, table)
        infinite = more == 2**63 - 1 and unit in ("us", "ns")
        for persons in ({}, {"unit": "who"}):
            found = frames.release(frame, {"x": MOMENTS}, **CERTAIN, **persons)
            assert found.columns["released"].tolist() == [START]
            found = frames.release(frame, {"x": release.Count()}, **CERTAIN, **persons)
            assert found.columns["released"].tolist() == [60 if infinite else 61]
            for groups in ([START], frames.PrivateGroups(64.0, 1e-9)):
                found = frames.release(
                    frame, {"y": release.Count()}, by="x", groups=groups, **CERTAIN, **persons
                )
                assert list(found.columns["x"]) == [START]
                assert found.columns["released"].tolist() == [60]
        frames.release(frame, {"x": release.DistinctCount(2, 100)}, **CERTAIN)
        frames.release(frame, {"y": NUMBERS}, unit="x", **CERTAIN)
