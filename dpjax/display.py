"""Display of objects: a short repr, an HTML table with a plot in notebooks, and matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import prod
from typing import Any, NamedTuple

import numpy as np

_WIDTH, _HEIGHT = 260, 90  # of an inline plot, in pixels
TEXT_WIDTH = 100  # the maximal width of a text table, in characters
_CELL = 40  # the maximal number of characters of a cell of a text table
_COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd")


class Picture(NamedTuple):
    """Curves through points ``(rows, k)``, one per row.

    ``log`` makes the vertical axis logarithmic.
    """

    x: np.ndarray
    y: np.ndarray
    xlabel: str
    ylabel: str
    log: bool = False


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
        """Return the labels of the first ``rows`` rows of the table."""
        return index_names((rows,), rows)

    def __repr__(self) -> str:
        try:
            facts = ", ".join(f"{name}={fact}" for name, fact in self._facts().items())
        except (
            AttributeError,
            TypeError,
            ValueError,
        ):  # the leaves of a pytree need not be arrays: axes, shardings
            facts = "..."
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str:
        columns, picture = self._looks(len(_COLORS))
        cells = {name: np.asarray(column).ravel() for name, column in columns.items()}
        rows = min([len(_COLORS), *(column.size for column in cells.values())]) if cells else 0
        lines = [
            [name, *(_number(column[row]) for column in cells.values())]
            for row, name in enumerate(self._row_names(rows)[:rows])
        ]
        if rows and min(column.size for column in cells.values()) > rows:
            lines.append(["...", *("" for _ in cells)])
        table = (
            [_cells("th", ["", *cells]), *(_cells("td", line) for line in lines)] if rows else []
        )
        shown = _svg(picture) if picture else ""
        code = f"<code>{escape(repr(self))}</code>"
        return f"<div>{code}<table>{''.join(table)}</table>{shown}</div>"

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
        for x, y in zip(picture.x, picture.y, strict=True):
            axes.plot(x, y)
        axes.set(xlabel=picture.xlabel, ylabel=picture.ylabel)
        if picture.log:
            axes.set_yscale("log")
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


def index_names(shape: tuple[int, ...], rows: int) -> list[str]:
    """Return the indices of the first ``rows`` entries of an array of this shape, as text."""
    if len(shape) < 2:
        return [str(row) for row in range(rows)]
    return [
        str(tuple(map(int, np.unravel_index(row, shape)))) for row in range(min(rows, prod(shape)))
    ]


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
        cells = padded(name, map(cell_of, column), any(isinstance(value, str) for value in column))
        if not blocks or (
            place > keys
            and sum(len(other[0]) + 2 for other in blocks[-1]) + len(cells[0]) > TEXT_WIDTH
        ):
            blocks.append(blocks[0][:keys] if blocks else [])
        blocks[-1].append(cells)
    return "\n\n".join(map(joined, blocks))


def padded(name: str, cells: Iterable[str], left: bool) -> list[str]:
    """Return a column of a text table: its name and its cells, padded to the same width."""
    lines = [name, *cells]
    width = max(map(len, lines))
    return [line.ljust(width) if left else line.rjust(width) for line in lines]


def joined(columns: Iterable[Sequence[str]]) -> str:
    """Join columns of text side by side."""
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


def _svg(picture: Picture) -> str:
    """Return the curves as SVG, with the ends of both axes as numbers."""
    kept = np.unique(np.linspace(0, max(picture.x.shape[-1] - 1, 0), 200).astype(int))
    x, heights = (np.asarray(a, np.float64)[:, kept] for a in picture[:2])
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.log(heights) if picture.log else heights
    finite = np.isfinite(x) & np.isfinite(y)
    if not np.any(finite):
        return ""

    def scaled(values: np.ndarray, size: int) -> np.ndarray:
        least, largest = np.min(values[finite]), np.max(values[finite])
        return (values - least) / ((largest - least) or 1.0) * size

    across, up = scaled(x, _WIDTH), _HEIGHT - scaled(y, _HEIGHT)
    lines = []
    for color, seen, horizontal, vertical in zip(_COLORS, finite, across, up, strict=False):
        points = " ".join(
            f"{a:.1f},{b:.1f}" for a, b in zip(horizontal[seen], vertical[seen], strict=True)
        )
        lines.append(f'<polyline fill="none" stroke="{color}" points="{points}"/>')
    left, right = _number(np.min(x[finite])), _number(np.max(x[finite]))
    low, high = (_number(end(heights[finite])) for end in (np.min, np.max))
    label = escape(f"{picture.ylabel} ({low} to {high}) against {picture.xlabel}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 4}" height="{_HEIGHT + 34}" '
        f'viewBox="-2 -2 {_WIDTH + 4} {_HEIGHT + 34}" font-size="11" '
        f'fill="currentColor">{"".join(lines)}<text y="{_HEIGHT + 13}">{left}</text><text '
        f'x="{_WIDTH}" y="{_HEIGHT + 13}" text-anchor="end">{right}</text><text '
        f'y="{_HEIGHT + 27}">{label}</text></svg>'
    )
