"""Data frames in, data frames out: statistics of columns, by groups, simulated or released. Needs the extra ``frames``.

A frame of pandas, Polars (eager or lazy) or PyArrow, or a DuckDB relation, goes in, and one of the same kind comes out, with a row
for each group, column and quantile. :func:`simulate` draws from a key, with exact error bars, and is not private; :func:`release`
draws exactly (:mod:`dpjax.release`), and says nothing else of the data. Both take the same options, so that what was planned with
the one is released by the other: without the key, with one epsilon and with public groups.

**Groups.** One row of the frame is one record of one person, and it is in one group: one person more or less changes one group, so
that all groups together cost what one costs (parallel composition). Who has several rows must keep one before. Under swap
neighbours a person could leave one group for another: ``by`` needs ``"add_remove"``. Groups are public and named by the caller, or
found by a private threshold on their size (:class:`PrivateGroups`); a row of no group that is asked for counts nowhere, and so
does one whose group is missing. Labels in columns that pandas calls ``object`` are compared as text. Missing values are as
everywhere: absent under add/remove, the lower bound under swap.

**Ragged groups** are padded to powers of two, and groups of nearby sizes share one shape, so that a frame compiles a few programs
whatever its sizes are. So running time and the compilation cache tell the sizes of groups roughly, which are not covered. Neither
is that ``recursive_quantiles``, ``maximum`` and ``nonnegative_sum`` raise for groups of more than eight million records.
"""

from dpjax.frames.private_groups import PrivateGroups
from dpjax.frames.release import release
from dpjax.frames.simulate import simulate
from dpjax.frames.tables import FrameResult

__all__ = ["FrameResult", "PrivateGroups", "release", "simulate"]


def __dir__() -> list[str]:
    return __all__
