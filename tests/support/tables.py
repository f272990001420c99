"""Tables of every library, made of one of Arrow, and their counts before anything is drawn."""

import shutil
from collections import Counter

import pytest

polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")
narwhals = pytest.importorskip("narwhals")

from dpjax.frames.options import Options  # noqa: E402
from dpjax.frames.tables import Table  # noqa: E402


def as_arrow(arrow):
    return arrow


def as_polars(arrow):
    return polars.from_arrow(arrow)


def as_lazy_polars(arrow):
    return as_polars(arrow).lazy()


def as_arrow_in_pandas(arrow):
    return arrow.to_pandas(types_mapper=pytest.importorskip("pandas").ArrowDtype)


def as_pandas(arrow):
    """With the dtypes of pandas and NumPy where there are some, and text in Python objects."""
    plain = {"int64": "Int64", "uint64": "UInt64", "int8": "Int8", "bool": "boolean"}
    plain |= {"float": "float32", "double": "float64", "string": object}
    plain |= {f"timestamp[{unit}]": f"M8[{unit}]" for unit in ("us", "ns")}
    plain |= {f"duration[{unit}]": f"m8[{unit}]" for unit in ("us", "ns")}
    kinds = {field.name: plain.get(str(field.type)) for field in arrow.schema}
    known = {name: kind for name, kind in kinds.items() if kind is not None}
    return as_arrow_in_pandas(arrow).astype(known)


def as_duckdb(arrow):
    duckdb = pytest.importorskip("duckdb")
    duckdb.execute("set timezone='America/New_York'")  # the clock of the session decides nothing
    return duckdb.from_arrow(arrow)


def as_ibis(arrow):
    return pytest.importorskip("ibis").memtable(arrow)


def as_dask(arrow):
    return pytest.importorskip("dask.dataframe").from_pandas(as_pandas(arrow), npartitions=2)


def spark():
    """A session of two threads, whose clock is that of New York."""
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "America/New_York")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def as_spark(arrow):
    return spark().createDataFrame(arrow)


IN_MEMORY = [as_pandas, as_arrow_in_pandas, as_arrow, as_polars, as_lazy_polars]
OTHERS = [as_duckdb, as_ibis, as_dask, as_spark]


def options(by, persons, neighbors="add_remove"):
    who = dict(zip(("unit", "per_unit", "max_groups"), persons or (), strict=False))
    return Options(1.0, neighbors, by, **who)


def counted(frame, column, statistic, by=(), groups=None, persons=None, neighbors="add_remove"):
    """The number of records of each label and position, and of rows without a value.

    Args:
        frame: of any kind.
        column: the name of the only column that is asked for.
        statistic: its statistic.
        by: the names of the columns of labels.
        groups: public labels; None for all that have rows.
        persons: the column of the person, the rule and the most groups; None for rows.
        neighbors: of the release.
    """
    table = Table(frame, [(column, statistic)], options(by, persons, neighbors))
    if groups is not None:
        table.name(groups)
    elif by:
        table.find(bounded=False)
    counts, missing, _ = table.counts(column, statistic)
    labels = table.labels.rows() if by else [()]
    found = Counter({(label, None): int(n) for label, n in zip(labels, missing, strict=True)})
    for group, value, count in zip(counts.group, counts.values, counts.counts, strict=True):
        found[labels[group], int(value)] += int(count)
    return +found


def sized(frame, column, statistic, by, persons=None):
    """The size of each group, as private groups count it."""
    table = Table(frame, [(column, statistic)], options(by, persons))
    sizes = table.find(bounded=True)
    return Counter(dict(zip(table.labels.rows(), sizes.tolist(), strict=True)))
