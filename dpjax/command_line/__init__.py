"""The command line, ``python -m dpjax``.

<<<<<<< HEAD
``release`` and ``simulate`` give statistics of the columns of a file, by groups if wanted; ``ledger``
shows what was spent of a budget; ``demo`` shows what the library is for. ``files`` reads a file,
``options`` has the options, most of them the fields of the statistics, and ``main`` runs a command.
=======
It computes medians and quantiles of the columns of a file, and a demo. Input is
well-formed CSV (RFC 4180) with any delimiter, gzipped or not, or Parquet (with Polars, DuckDB or
PyArrow). A file that is not well-formed is refused before any budget is spent; with
``--records lines`` each line is a record, whatever it contains. ``--decimal comma`` reads 1,5 as
one and a half, ``--thousands comma`` reads 1,200 as twelve hundred. Bounds such as 2024-01-31 and a
resolution such as ``1d`` are for dates. ``--json`` and ``--output`` produce machine-readable
results.
>>>>>>> d893ff32ee022d0449d62321f6d3ea9a5899b936

A release prints private values and nothing else about the records: one that cannot be read counts
as missing, without a message. To see what is in a file, simulate.
"""
