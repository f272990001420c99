"""Statistics of the columns of tables, by groups, released or simulated.

    table --(equal rows counted by its engine)--> rows --(labels, persons: Polars)--> counts
    counts --statistic--> distribution --> release, or draws with exact error bars

The input is a frame of pandas, Polars (eager or lazy) or PyArrow, a DuckDB relation, or a table of
Ibis, PySpark or Dask. The extra ``frames`` (narwhals, Polars, PyArrow) reads them all. The output
is a frame of pandas, PyArrow, DuckDB or Ibis for such an input, and of Polars for all others, with
a row for each group, column and quantile. An engine counts its equal rows, and nothing else: no
number is cast or rounded there, so that no record can make it raise. Dask does not count, nor do
databases that may compare text otherwise than by its bytes: they send the rows that are needed.

:func:`release` draws exactly (:mod:`dpjax.release`), and returns nothing else about the data.
:func:`simulate` takes the same arguments and a seed, has exact error bars, and is not private.

**Columns** are a mapping of names to statistics, objects of :mod:`dpjax.release`, one or a list
for each column: ``{"fare": [release.Median(lower=0, upper=500, resolution=1), release.Count()]}``.
Values are numbers of any width, decimals or booleans; or dates, times or durations (of micro- or
nanoseconds), with ``lower`` and ``upper`` of that kind and a ``datetime.timedelta`` as
``resolution``. Times are compared in UTC, and results have a zone if the bounds have one. Dtypes
alone decide what is refused, before any record is read; the message says what to cast. A missing
value is absent under add/remove, and counts as the lower bound under swap; modes and distinct
counts leave it out.

**Who is protected.** Without ``unit``, a row: adding or removing a row changes one record, in one
group, so that all groups together cost as much as one (parallel composition). With ``unit``, the
column that identifies the person, a person with all rows: ``per_unit`` combines the rows of a
person in a group into one record, and a person counts in at most ``max_groups`` groups, each of
which costs epsilon (the proof is in ``persons``). The guarantee states the unit, and a budget takes
only one unit, and the persons of one column. ``by`` needs ``"add_remove"``, since under swap
neighbors a person could move from one group to another.

**Groups** are public, known without the data, and named by the caller; or found by a private
threshold on their size (:class:`PrivateGroups`). Rows of other groups, or with a missing label, are
left out. Labels of groups and persons are text, categories, integers, floats, booleans or dates.
Numbers are compared by value, and both zeros are one label; text by its bytes, where a character
that is no Unicode is "?". pandas columns of Python objects are compared by their text, of which a
time at midnight is its date; of categories that are Python objects only texts are labels.

**Budgets.** ``budget=`` is charged before anything is drawn, and refuses what would exceed it; a
:class:`dpjax.accounting.Ledger` keeps the budget in a file, which later processes share.

**Not covered by the guarantee**: running time and memory grow with the numbers of rows, groups and
distinct values. A frame in memory takes about 100 bytes per row, an engine's one per distinct row.
"""

from __future__ import annotations

from dpjax.frames.private_groups import PrivateGroups
from dpjax.frames.result import FrameResult
from dpjax.frames.run import release, simulate

__all__ = ["FrameResult", "PrivateGroups", "release", "simulate"]


def __dir__() -> list[str]:
    return __all__
