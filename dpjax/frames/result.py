"""What comes of a frame: another frame, with a row for each group, column, epsilon, draw and quantile."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from html import escape
from math import prod
from operator import add
from typing import Any

import numpy as np

from dpjax.accounting.composition import Composition
from dpjax.accounting.guarantee import Guarantee
from dpjax.display import TEXT_WIDTH, cell_of, text_table
from dpjax.frames.memory import Groups
from dpjax.frames.tables import Table

_SAID_ONCE = ("column", "missing", "epsilon")  # below a printed table, where they are the same in all rows
_FIRST = ("records", "released")  # before these, a row says what it is of
ORDER = ("quantile", "draw", "records", "missing", "value", "simulated", "mean_abs_error", "lower95", "upper95", "tied_share")


@dataclass(frozen=True, repr=False)
class FrameResult:
    """What came of a frame. Printed, it is a table with what is the same in all rows, the guarantee and the note below.

    Attributes:
        frame: of the kind that was given, a row for each group, column, epsilon and quantile.
        guarantee: what all of it costs together.
        guarantees: by column and epsilon, what its draws cost, in all groups together: ``guarantees["age", 0.5]``.
        note: what spoils a simulation, and what a release needs besides, in a few sentences; empty if nothing does.
        columns: those of the frame, as arrays and lists.
    """

    frame: Any
    guarantee: Guarantee | Composition
    guarantees: dict[tuple[str, float], Guarantee | Composition]
    note: str = ""
    columns: Mapping[Any, Any] = field(default_factory=dict, compare=False)

    def table(self) -> str:
        """Return the rows in text, and below them what is the same in all of them."""
        cells = self.cells()
        same = {}
        if len(next(iter(cells.values()))) > 1:
            same = {name: column[0] for name, column in cells.items() if name in _SAID_ONCE and len(set(column)) == 1}
        left = {name: column for name, column in cells.items() if name not in same}
        table = text_table(left, min(list(left).index(name) for name in _FIRST if name in left))
        below = ", ".join(f"{name} {cell_of(value)}" for name, value in same.items())
        return "\n".join([table, *([below] if below else [])])

    def __repr__(self) -> str:
        below = [textwrap.fill(line, TEXT_WIDTH) for line in (str(self.guarantee), self.note) if line]
        return "\n".join([self.table(), *below])

    def _repr_html_(self) -> str:
        native = self.frame.collect() if hasattr(self.frame, "collect") else self.frame
        if not hasattr(native, "_repr_html_"):
            return f"<pre>{escape(repr(self))}</pre>"
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<div>{native._repr_html_()}<p>{escape(str(self.guarantee))}</p>{note}</div>"

    def cells(self) -> dict[str, list[Any]]:
        """Return the columns as lists."""
        return {
            str(name): column.tolist() if isinstance(column, np.ndarray) else list(column) for name, column in self.columns.items()
        }


def result_of(
    table: Table,
    groups: Groups,
    found: Mapping[str, Mapping[str, np.ndarray]],
    sizes: Mapping[str, np.ndarray],
    costs: Mapping[tuple[str, float], Guarantee | Composition],
    others: Sequence[Guarantee] = (),
    note: str = "",
) -> FrameResult:
    """Make a frame of the kind of the one that was read.

    Args:
        table: that was read.
        groups: of the result.
        found: for each column, arrays that broadcast to ``(groups, epsilons, draws, quantiles)``.
        sizes: further columns ``(groups,)``.
        costs: of each column and epsilon.
        others: what else was spent.
        note: of the result.
    """
    shapes = {column: np.broadcast_shapes(*(part.shape for part in parts.values())) for column, parts in found.items()}
    group = np.concatenate([np.repeat(np.arange(len(groups.names)), prod(shape[1:])) for shape in shapes.values()])
    columns: dict[str, Any] = {name: [part[k] for k in group.tolist()] for name, part in groups.shown.items()}
    columns |= {name: of_groups[group] for name, of_groups in sizes.items()}
    columns["column"] = [column for column, shape in shapes.items() for _ in range(prod(shape))]
    for name in (*ORDER, "released", "epsilon"):
        parts = [np.broadcast_to(own[name], shapes[column]).ravel() if name in own else None for column, own in found.items()]
        there = [part for part in parts if part is not None]
        if len(there) == len(parts):
            columns[name] = np.concatenate(there)
        elif there:
            each = zip(parts, shapes.values(), strict=True)
            columns[name] = [cell for part, shape in each for cell in ([None] * prod(shape) if part is None else part.tolist())]
    total = reduce(add, [*others, *costs.values()])
    return FrameResult(table.remake(columns), total, dict(costs), note, columns)
