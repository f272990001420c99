"""Display of objects: a short repr, tables as text and HTML, and plots by matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np

TEXT_WIDTH = 100  # the maximal width of a text table, in characters
_CELL = 40  # the maximal number of characters of a cell of a text table
_ROWS = 5  # the maximal number of rows of an HTML table
# The leaves of a pytree need not be arrays: axes, shardings, tracers
_NO_ARRAYS = (AttributeError, TypeError, ValueError)


class Picture(NamedTuple):
    """Curves through points, a row of ``x`` and of ``y`` each.

    Attributes:
        kind: "steps" stay at each height up to the next point, as the cdf of a distribution on a
            grid does; "stems" are points on vertical lines.
    """

    x: Any
    y: Any
    xlabel: str
    ylabel: str
    kind: Literal["curve", "steps", "stems"] = "curve"


class Shown:
    """A mixin for objects with a repr, an HTML table and a plot, which subclasses define."""

    def _facts(self) -> dict[str, Any]:
        """Return the names and values that the repr shows."""
        return {}

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        """Return table columns of the first ``rows`` rows, and a plot of these rows."""
        del rows
        return {}, None

    def _row_names(self, rows: int) -> list[str]:
        """Return the indices of the first ``rows`` rows of the batch, as text."""
        indices = np.ndindex(getattr(self, "batch_shape", (rows,)))
        return [", ".join(map(str, index)) for index in islice(indices, rows)]

    def __repr__(self) -> str:
        try:
            facts = ", ".join(f"{name}={fact}" for name, fact in self._facts().items())
        except _NO_ARRAYS:
            facts = "..."
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str | None:
        try:
            table, _ = self._looks(_ROWS + 1)
        except _NO_ARRAYS:
            table = {}
        if not table:
            return None  # notebooks show the repr
        columns = {name: np.asarray(column).ravel() for name, column in table.items()}
        size = min(column.size for column in columns.values())
        lines = [
            [name, *(_number(column[row]) for column in columns.values())]
            for row, name in enumerate(self._row_names(min(size, _ROWS)))
        ]
        if size > _ROWS:
            lines.append(["..."])
        body = "".join(_cells("td", line) for line in lines)
        head = _cells("th", ["", *columns])
        return f"<div><code>{escape(repr(self))}</code><table>{head}{body}</table></div>"

    def plot(self, axes: Any = None) -> Any:
        """Plot with matplotlib, at most the first ten rows of a batch, and return the axes.

        Args:
            axes: matplotlib axes to draw on; by default new ones.

        Raises:
            ImportError: matplotlib is not installed.
            TypeError: objects of this class have no plot.
        """
        _, picture = self._looks(10)
        if picture is None:
            raise TypeError(f"{type(self).__name__} has no plot.")
        axes = new_axes(axes)
        names = self._row_names(len(picture.x))
        for row, (x, y, name) in enumerate(zip(picture.x, picture.y, names, strict=True)):
            if picture.kind == "stems" or x.size == 1:
                axes.stem(x, y, linefmt=f"C{row}", basefmt=" ", label=name)
            else:
                step = "steps-post" if picture.kind == "steps" else "default"
                axes.plot(x, y, color=f"C{row}", drawstyle=step, label=name)
        if len(names) > 1:
            axes.legend(title="row")
        axes.set(xlabel=picture.xlabel, ylabel=picture.ylabel)
        return axes


def new_axes(axes: Any = None) -> Any:
    """Return matplotlib axes, new ones by default."""
    if axes is not None:
        return axes
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('matplotlib is not installed: pip install "dpjax[notebooks]".') from error
    return plt.subplots()[1]


def _cells(tag: str, texts: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>"


def _number(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def text_table(columns: Mapping[str, Sequence[Any]], keys: int = 0) -> str:
    """Return a text table.

    Columns that are too wide follow in further blocks.
    Each block repeats the first ``keys`` columns.

    >>> print(text_table({"group": ["a", "bc"], "records": [1, 20], "value": [0.5, None]}, 1))
    group  records  value
    a            1    0.5
    bc          20
    """
    blocks: list[list[list[str]]] = []
    for place, (name, column) in enumerate(columns.items()):
        cells = [name, *map(cell_of, column)]
        width = max(map(len, cells))
        left = any(isinstance(value, str) for value in column)
        cells = [cell.ljust(width) if left else cell.rjust(width) for cell in cells]
        if not blocks or (
            place > keys and sum(len(other[0]) + 2 for other in blocks[-1]) + width > TEXT_WIDTH
        ):
            blocks.append(blocks[0][:keys] if blocks else [])
        blocks[-1].append(cells)
    return "\n\n".join(map(_joined, blocks))


def _joined(columns: Iterable[Sequence[str]]) -> str:
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def cell_of(value: Any) -> str:
    """Format a table cell.

    Floats have all digits, None is "", long text is cut, and unprintable text is escaped.
    """
    if value is None:
        return ""
    text = str(value).removesuffix(".0") if isinstance(value, float) else str(value)
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= _CELL else f"{text[: _CELL - 3]}..."
