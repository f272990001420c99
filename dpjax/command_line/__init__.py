"""``python -m dpjax``: medians and quantiles of the columns of a file, a demo and an audit that need none.

A room that only reads the library: arguments -> a table of the file -> rows -> text or JSON.

It reads well-formed CSV (RFC 4180) of any delimiter, gzipped or not, and Parquet (with Polars, DuckDB or PyArrow). A file that is
not well-formed is refused before anything is spent; ``--records lines`` takes each line for a record, whatever is in it.
``--decimal comma`` reads 1,5 as one and a half, ``--thousands comma`` 1,200 as twelve hundred; bounds such as 2024-01-31 and a
resolution such as ``1d`` are those of dates. ``--json`` and ``--output`` are for machines.

With ``--resolution``, ``median`` and ``quantile`` simulate what ``release`` draws, on any grid that it takes, and say which options
differ; they and ``release`` import no JAX and compile nothing. Without it they compile for some seconds. ``release`` prints private
values and nothing else of the data: a record that it cannot read counts as missing, and it does not say so. Try the options on
other data by ``median`` first, or with ``--dry-run``, which checks what is public and reads no record.

A file with a resolution takes no memory for a line: what is kept is how many records each multiple has in each group, 16 bytes
for each that occurs (more while it is read), so a grid as fine as the records saves nothing. Without a resolution a line takes
about 20 bytes for each column.
"""
