"""Statistics of the columns of data frames, by groups, simulated or released.

    table --(bound persons, round and count, in the engine)--> counts
    counts --statistic--> distribution --> release or error bars

The input is a frame of pandas, Polars (eager or lazy) or PyArrow, a DuckDB relation, a table of
Ibis, Spark or Dask, or a mapping of names to arrays. The output is of the same kind (of PyArrow for
Spark, of pandas for Dask), with a row for each group, column and quantile. All inputs but mappings
need the extra ``frames``. Engines count the records themselves, and only groups, positions and
counts are fetched, so that a billion rows cost as much as the engine's ``GROUP BY``. Positions are
equal in every engine: floor(value / resolution + 1/2), in float64.

:func:`release` draws exactly (:mod:`dpjax.release`), and returns nothing else about the data.
:func:`simulate` draws from a seed, with exact error bars, and is not private.

**The same arguments.** A release takes the arguments of the simulation that planned it, except for
the seed, with one epsilon and public groups. A statistic with a resolution (or a ``grid``,
candidates, or a count) is simulated from the same distribution that a release draws from, in NumPy.
A release needs a resolution: without one :func:`simulate` draws from a continuous distribution,
with JAX, and its note lists what a release needs in addition.

**Who is protected.** Without ``unit``, a row: adding or removing a row changes one record, in one
group, so that all groups together cost as much as one (parallel composition). With ``unit``, the
column that identifies the person, a person with all rows: ``per_unit`` combines the rows of a
person in a group into one record, and a person counts in at most ``max_groups`` groups, each of
which costs epsilon (the proof is in ``persons``). The guarantee states the unit, and a budget takes
only one unit, and the persons of one column. ``by`` needs ``"add_remove"``, since under swap
neighbors a person could move from one group to another.

**Groups** are public, known without the data, and named by the caller; or found by a private
threshold on their size (:class:`PrivateGroups`). Rows of other groups, or with a missing label, are
left out. Labels are compared by value, and a label that the dtype of its column cannot hold is
refused; labels of pandas ``object`` columns are compared as text. Databases must compare the text
of labels and persons by its bytes: DuckDB and SQLite are made to, and most others do unless a
column has another collation, which must be cast away first. Dtypes with equal labels that are shown
differently, or with labels that have no order, such as intervals, are refused: cast them to text. A
missing value is absent under add/remove, and counts as the lower bound under swap.

**Dates, times and durations** are values like numbers: ``lower`` and ``upper`` are of the column's
kind, ``resolution`` is a ``datetime.timedelta``, and released values are of that kind, too.

**Several columns** are a list of names, or a mapping to separate options or statistic objects:
``{"age": {"upper": 120}, "income": {"upper": 1e6}}``. Several columns of groups are also a list,
and their labels tuples. ``found.guarantees["age", 1.0]`` is the cost of one column at one epsilon,
``found.guarantee`` the total cost; both have ``to_json()``.

**Budgets.** ``budget=`` is charged before anything is drawn, and refuses what would exceed it; a
:class:`dpjax.accounting.Ledger` keeps the budget in a file, which later processes share.

**Time and memory.** With a resolution nothing is compiled. Without one a simulation compiles one
program per shape of padded groups. A frame in memory takes about 100 bytes per row.

**Not covered by the guarantee**: running time and memory grow with the numbers of rows, groups and
distinct values.
"""

from __future__ import annotations

from dpjax.frames._release import release
from dpjax.frames._simulate import simulate
from dpjax.frames.frame_result import FrameResult
from dpjax.frames.private_groups import PrivateGroups

__all__ = ["FrameResult", "PrivateGroups", "release", "simulate"]


def __dir__() -> list[str]:
    return __all__
