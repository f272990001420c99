"""Collations of databases, by which different texts may be equal.

A database that groups rows by equal texts shows the text of one of them, and which one depends on
the records. So labels are compared by their bytes, or refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

# The databases of Ibis whose texts are equal only if their bytes are, unless a column was given
# another collation. Those of MySQL and SQL Server ignore case by default.
_BINARY = (
    *("athena", "bigquery", "clickhouse", "databricks", "datafusion", "druid", "exasol", "flink"),
    *("impala", "oracle", "polars", "postgres", "pyspark", "risingwave", "snowflake", "trino"),
)
_NONE = ("", "binary", "c", "posix")  # the collations of DuckDB that compare bytes


def with_binary_text(frame: Any, labels: Sequence[Any]) -> Any:
    """Return a narwhals frame whose texts are equal only if their bytes are.

    Args:
        frame: the lazy frame.
        labels: the names of the columns of labels.

    Raises:
        TypeError: that cannot be said of a column of labels.
    """
    schema, engine = frame.collect_schema(), frame.implementation.name.lower()
    texts = [
        name for name, dtype in schema.items() if str(dtype).startswith(("String", "Enum", "Categ"))
    ]
    if not texts or engine not in ("duckdb", "ibis", "pyspark", "pyspark_connect"):
        return frame
    native, found = frame.to_native(), [name for name in labels if name in texts]
    if engine == "duckdb":
        quoted = ['"' + name.replace('"', '""') + '"' for name in texts]
        replaced = ", ".join(f'{name}::varchar collate "C" as {name}' for name in quoted)
        return _narwhals(native.project(f"* replace ({replaced})"))
    if engine == "ibis":
        return _narwhals(_of_ibis(native, texts, found))
    for name in found:
        collation = getattr(native.schema[name].dataType, "collation", "UTF8_BINARY")
        if collation not in (None, "UTF8_BINARY"):
            raise TypeError(_said(name, collation, "cast it to string collate UTF8_BINARY"))
    return frame


def _of_ibis(table: Any, texts: Sequence[str], labels: Sequence[str]) -> Any:
    """Return a table of Ibis whose texts have no collation of their column."""
    backend = table.get_backend()
    if backend.name != "duckdb":
        if labels and backend.name not in _BINARY:
            raise TypeError(
                _said(labels[0], f"of {backend.name}", "use numbers, or a frame of another engine")
            )
        return table
    ((default,),) = backend.con.execute("select current_setting('default_collation')").fetchall()
    if labels and default.lower() not in _NONE:
        raise TypeError(_said(labels[0], default, "run reset default_collation first"))
    builtin = import_module("ibis").udf.scalar.builtin

    def encode(text: str) -> bytes:  # type: ignore[empty-body]
        """Call the function of DuckDB that returns the bytes of a text."""

    def decode(data: bytes) -> str:  # type: ignore[empty-body]
        """Call the function of DuckDB that returns the text of bytes, without a collation."""

    to_bytes = builtin(encode, signature=((str,), bytes))
    to_text = builtin(decode, signature=((bytes,), str))
    return table.mutate(**{name: to_text(to_bytes(table[name])) for name in texts})


def _said(name: Any, collation: str, step: str) -> str:
    return (
        f"column {name!r} holds text with the collation {collation}, by which different labels may "
        f"be equal: {step}."
    )


def _narwhals(native: Any) -> Any:
    return import_module("narwhals").from_native(native).lazy()
