"""Tables in, tables out: statistics of columns, by groups, simulated or released. All but mappings need the extra ``frames``.

    table --(bound a person, round, count: in the engine)--> counts --statistic--> distribution --> a release, or its error bars

A frame of pandas, Polars (eager or lazy) or PyArrow, a DuckDB relation, a table of Ibis, Spark or Dask, or a mapping of names to
arrays goes in, and one of the same kind comes out (of PyArrow for Spark, of pandas for Dask), with a row for each group, column
and quantile. Engines count by themselves, and only groups, positions and counts come back, so that a billion rows cost what the
engine's own ``GROUP BY`` costs. Positions are the same in every engine: floor(value / resolution + 1/2), in float64.

:func:`release` draws exactly (:mod:`dpjax.release`), and says nothing else of the data. :func:`simulate` draws from a seed, with
exact error bars, and is not private.

**The same arguments.** What was planned with the one is released by the other, by the same arguments but for the seed, one
epsilon and public groups. A statistic with a resolution (or a ``grid``, or candidates, or a count) is simulated from the very
distribution that a release draws from, in NumPy. Without a resolution there is nothing to release: :func:`simulate` then draws
from a continuous distribution, by JAX, and its note says what a release needs besides.

**Who is protected.** Without ``unit`` a row: one row more or less is one record, in one group, so that all groups together cost
what one costs (parallel composition). With ``unit``, the column that names the person, a person with all rows: ``per_unit`` makes
one record of the rows of a person in a group, and a person counts in at most ``max_groups`` groups, each of which costs epsilon
(``persons.py`` has the proof). The guarantee says which of the two it is, and a budget takes only one kind. Under swap neighbors
a person could leave one group for another: ``by`` needs ``"add_remove"``.

**Groups** are public, known without the data, and named by the caller; or found by a private threshold on their size
(:class:`PrivateGroups`). A row of no group that is asked for counts nowhere, and so does one whose label is missing. Labels match
by value, and a label that the dtype of its column cannot hold is refused; columns that pandas calls ``object`` have their labels
compared as text. Missing values are as everywhere: absent under add/remove, the lower bound under swap.

**Dates, times and durations** are values like numbers: ``lower`` and ``upper`` are of the column's kind, ``resolution`` is a
``datetime.timedelta``, and what is released is of that kind, too.

**Several columns** are a list of names, or a mapping to options or statistic objects of their own: ``{"age": {"upper": 120},
"income": {"upper": 1e6}}``. Several columns of groups are a list, too, and their labels tuples. ``found.guarantees["age", 1.0]`` is
what one column costs at one epsilon, ``found.guarantee`` what all of it costs; both have ``to_json()``.

**Budgets.** ``budget=`` is charged before anything is drawn, and refuses what would pass it; a
:class:`dpjax.accounting.Ledger` keeps it in a file, for the next process, too.

**Time and memory.** With a resolution nothing is compiled. Without one a simulation compiles, once for each shape of padded
groups. In memory a frame's rows take about 100 bytes each.

**What is not covered**: running time and memory grow with the numbers of rows, groups and different values.
"""

from dpjax.frames._release import release
from dpjax.frames._simulate import simulate
from dpjax.frames.private_groups import PrivateGroups
from dpjax.frames.result import FrameResult

__all__ = ["FrameResult", "PrivateGroups", "release", "simulate"]


def __dir__() -> list[str]:
    return __all__
