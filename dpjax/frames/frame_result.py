"""Results: a frame with a row for each group, column, epsilon, draw and quantile."""

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

_SAID_ONCE = ("column", "missing", "epsilon")  # printed once below a table if equal in all rows
_FIRST = ("records", "released")  # columns before these identify a row
ORDER = (
    "quantile",
    "draw",
    "records",
    "missing",
    "value",
    "simulated",
    "mean_abs_error",
    "lower95",
    "upper95",
    "tied_share",
)


@dataclass(frozen=True, repr=False)
class FrameResult:
    """The result of a simulation or release of a frame.

    Its repr is a table, the guarantee and the note.

    Attributes:
        frame: of the kind of the input, with a row for each group, column, epsilon and quantile.
        guarantee: the total cost.
        guarantees: the cost of the draws for each column and epsilon, over all groups:
            ``guarantees["age", 0.5]``.
        note: a few sentences on what makes a simulation inaccurate, and what a release would need
            in addition; or empty.
        columns: the columns of the frame, as arrays and lists.

    >>> from dpjax import frames
    >>> bounds = {"lower": 0, "upper": 9, "resolution": 1, "epsilon": 1.0}
    >>> found = frames.simulate(0, {"x": np.arange(9.0)}, "x", neighbors="swap", **bounds)
    >>> found.columns["value"].tolist(), found.guarantee.epsilon
    ([4.0], 1.0)
    """

    frame: Any
    guarantee: Guarantee | Composition
    guarantees: dict[tuple[str, float], Guarantee | Composition]
    note: str = ""
    columns: Mapping[Any, Any] = field(default_factory=dict, compare=False)

    def table(self) -> str:
        """Return the rows as text, and below them the values that are equal in all rows."""
        cells = self.cells()
        same = {}
        if len(next(iter(cells.values()))) > 1:
            same = {
                name: column[0]
                for name, column in cells.items()
                if name in _SAID_ONCE and len(set(column)) == 1
            }
        left = {name: column for name, column in cells.items() if name not in same}
        table = text_table(left, min(list(left).index(name) for name in _FIRST if name in left))
        below = ", ".join(f"{name} {cell_of(value)}" for name, value in same.items())
        return "\n".join([table, *([below] if below else [])])

    def __repr__(self) -> str:
        below = [
            textwrap.fill(line, TEXT_WIDTH) for line in (str(self.guarantee), self.note) if line
        ]
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
            str(name): column.tolist() if isinstance(column, np.ndarray) else list(column)
            for name, column in self.columns.items()
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
    """Return the result with a frame of the kind of the input.

    Args:
        table: the input.
        groups: of the result.
        found: for each column, arrays that broadcast to ``(groups, epsilons, draws, quantiles)``.
        sizes: further columns ``(groups,)``.
        costs: the cost of each column and epsilon.
        others: further costs.
        note: of the result.
    """
    shapes = {
        column: np.broadcast_shapes(*(part.shape for part in parts.values()))
        for column, parts in found.items()
    }
    group = np.concatenate(
        [np.repeat(np.arange(len(groups.names)), prod(shape[1:])) for shape in shapes.values()]
    )
    columns: dict[str, Any] = {
        name: [part[k] for k in group.tolist()] for name, part in groups.shown.items()
    }
    columns |= {name: of_groups[group] for name, of_groups in sizes.items()}
    columns["column"] = [column for column, shape in shapes.items() for _ in range(prod(shape))]
    for name in (*ORDER, "released", "epsilon"):
        parts = [
            np.broadcast_to(own[name], shapes[column]).ravel() if name in own else None
            for column, own in found.items()
        ]
        there = [part for part in parts if part is not None]
        if len(there) == len(parts):
            columns[name] = np.concatenate(there)
        elif there:
            each = zip(parts, shapes.values(), strict=True)
            columns[name] = [
                cell
                for part, shape in each
                for cell in ([None] * prod(shape) if part is None else part.tolist())
            ]
    total = reduce(add, [*others, *costs.values()])
    return FrameResult(table.remake(columns), total, dict(costs), note, columns)
