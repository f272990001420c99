"""Tables as a release reads them, before anything is drawn: who is counted where."""

from dpjax.frames.column_options import asked_of
from dpjax.frames.persons import Persons, costs_of
from dpjax.frames.tables import read_table


class Opened:
    """A table whose columns are asked for by an object, or by the options of a function.

    Args:
        frame: of any kind.
        column: the name of the only column that is asked for.
        statistic: an object, or a function of ``dpjax.release`` that ``options`` are for.
        persons: the arguments of :class:`Persons`.
    """

    def __init__(
        self,
        frame,
        column,
        statistic,
        options=None,
        *,
        by=None,
        groups=None,
        persons=None,
        neighbors="add_remove",
    ):
        given = {"epsilon": 1.0} | (options or {})
        asked = asked_of(column, statistic, given, neighbors, simulated=False)
        self.column, self.statistic, self.neighbors = column, asked[column].statistic, neighbors
        of = None if persons is None else Persons(*persons)
        self.table = read_table(frame, asked, by, groups, neighbors, of)

    def sizes(self, bounded=True):
        """The groups that have rows, and how many rows or persons each has."""
        return self.table.groups(bounded=bounded)

    def groups(self, bounded=True):
        """Those that are named, or those that have rows."""
        return self.table.named or self.sizes(bounded)[0]

    def tally(self, bounded=True):
        """Which records of which groups are counted."""
        groups = self.groups(bounded)
        return self.table.rows.tally(self.column, self.statistic, groups, self.neighbors)


def promise_of(statistic, epsilon, persons, neighbors="add_remove"):
    """What a statistic of a column costs a person."""
    asked = asked_of({"x": statistic}, None, {"epsilon": epsilon}, neighbors, simulated=False)
    (promise,) = costs_of(asked, neighbors, Persons(*persons)).values()
    return promise
