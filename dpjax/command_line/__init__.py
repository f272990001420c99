"""The command line, ``python -m dpjax``.

It computes medians and quantiles of the columns of a file, and a demo. Input is
well-formed CSV (RFC 4180) with any delimiter, gzipped or not, or Parquet (with Polars, DuckDB or
PyArrow). A file that is not well-formed is refused before any budget is spent; with
``--records lines`` each line is a record, whatever it contains. ``--decimal comma`` reads 1,5 as
one and a half, ``--thousands comma`` reads 1,200 as twelve hundred. Bounds such as 2024-01-31 and a
resolution such as ``1d`` are for dates. ``--json`` and ``--output`` produce machine-readable
results.

With ``--resolution``, ``median`` and ``quantile`` simulate what ``release`` draws, and report which
options differ; these commands do not import JAX. Without it they compile for some seconds.
``release`` prints private values and nothing else about the data: a record that it cannot read
counts as missing, without a message. To test the options, use ``median`` on other data, or
``--dry-run``, which checks public properties and reads no records.

With a resolution, memory does not grow with the number of lines: only the number of records of each
multiple and group is kept, 16 bytes for each that occurs (more while the file is read). Without a
resolution each line takes about 20 bytes per column.
"""
