"""Data frames in, data frames out: statistics of columns, by groups, simulated or released. Needs the extra ``frames``.

A frame of pandas, Polars (eager or lazy) or PyArrow, or a DuckDB relation, goes in, and one of the same kind comes out, with a row
for each group, column and quantile. :func:`release` draws exactly (:mod:`dpjax.release`), and says nothing else of the data.
:func:`simulate` draws from a seed, with exact error bars, and is not private.

**The same arguments.** What was planned with the one is released by the other, by the same arguments but for the seed, one epsilon
and public groups. A statistic with a resolution (or a ``grid``, or candidates, or a count) is simulated from the very distribution
that a release draws from, in NumPy. Without a resolution there is nothing to release: :func:`simulate` then draws from a continuous
distribution, by JAX, and its note says what a release needs besides.

**Groups.** One row of the frame is one record of one person, and it is in one group: one person more or less changes one group, so
that all groups together cost what one costs (parallel composition). Who has several rows must keep one before. Under swap
neighbours a person could leave one group for another: ``by`` needs ``"add_remove"``. Groups are public, known without the data, and
named by the caller; or found by a private threshold on their size (:class:`PrivateGroups`). A row of no group that is asked for
counts nowhere, and so does one whose label is missing. Columns that pandas calls ``object`` have their labels compared as text.
Missing values are as everywhere: absent under add/remove, the lower bound under swap.

**From rows to draws.** The rows of all groups become counts of values by one sort, and all groups are drawn from together: there is
no padding and no limit on sizes. Running time grows with the numbers of rows, groups and different values, and is not covered.
"""

from dpjax.frames.private_groups import PrivateGroups
from dpjax.frames.release import release
from dpjax.frames.result import FrameResult
from dpjax.frames.simulate import simulate

__all__ = ["FrameResult", "PrivateGroups", "release", "simulate"]


def __dir__() -> list[str]:
    return __all__
