"""What the experiments of this folder share: their flags, the folder of real tables, the table,
the JSON document, the plot.
"""

import argparse
import inspect
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

import jax

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))  # where the benchmarks are

import figures
import harness

Rows = list[dict[str, Any]]


def data_folder() -> pathlib.Path:
    """The folder of real tables; where there is none, the program ends with a message and the
    status that ``report.py`` takes for skipped.
    """
    folder = os.environ.get("DPJAX_DATA")
    if not folder or not pathlib.Path(folder).is_dir():
        missing = f"set DPJAX_DATA to it (now {folder!r})."
        print(f"This experiment needs the folder of real tables: {missing}", file=sys.stderr)
        raise SystemExit(harness.SKIPPED)
    return pathlib.Path(folder)


def lines(axis: Any, rows: Rows, x: str, names: Iterable[str], **how: Any) -> None:
    """Draw the columns of these names against the column ``x``."""
    for name in names:
        here = [row for row in rows if row.get(name) is not None]
        if here:
            axis.plot([row[x] for row in here], [row[name] for row in here], "-o", ms=3, label=name)
    axis.set(xlabel=x, **{"xscale": "log", "yscale": "log"} | how)
    axis.legend(fontsize=7)


def panels(
    by: tuple[str, ...], x: str, names: Iterable[str], y: str
) -> Callable[[Any, Rows], None]:
    """A plot with a panel for each value of the columns ``by``."""

    def draw(figure: Any, rows: Rows) -> None:
        found: dict[str, Rows] = {}
        for row in rows:
            if all(row.get(name) is not None for name in (*by, x)):
                found.setdefault(", ".join(str(row[name]) for name in by), []).append(row)
        across = min(4, len(found))
        down = math.ceil(len(found) / across)
        figure.set_size_inches(5 * across, 4 * down)
        for place, (title, here) in enumerate(found.items(), 1):
            lines(figure.add_subplot(down, across, place), here, x, names, title=title, ylabel=y)

    return draw


def of_cells(rows: Rows, part: str) -> Rows:
    """The rows with one number of each cell that has several."""
    return [
        {name: cell[part] if isinstance(cell, dict) else cell for name, cell in row.items()}
        for row in rows
    ]


def run(
    rows: Callable[..., Rows],
    plot: Callable[[Any, Rows], None],
    quick: dict[str, Any] | None = None,
    shown: Callable[[Rows], list[Rows]] = lambda rows: [rows],
) -> None:
    """Make the rows in float64, print what is shown of them, and write and draw what is asked for.

    ``quick`` has what ``rows`` takes in a quick run; without it there is none.
    """
    module = inspect.getmodule(rows)
    parser = argparse.ArgumentParser(description=module.__doc__.splitlines()[0])
    parser.add_argument("--out", metavar="FILE", help="write rows and machine to this file")
    parser.add_argument("--png", metavar="FILE", help="draw the plot (needs matplotlib)")
    if quick:
        parser.add_argument("--quick", action="store_true", help=f"only {quick}")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    found = rows(**quick or {}) if getattr(arguments, "quick", False) else rows()
    where = harness.environment()
    print(figures.machine(where) + "\n")
    for table in shown(found):
        print_table(table)
    if arguments.out:
        name = pathlib.Path(module.__file__).stem
        document = {"experiment": name, "environment": where, "rows": found}
        text = json.dumps(document, indent=1, allow_nan=False)
        pathlib.Path(arguments.out).write_text(text + "\n")
    if arguments.png:
        from matplotlib.figure import Figure

        figure = Figure(layout="constrained")
        plot(figure, found)
        figure.savefig(arguments.png, dpi=120)


def print_table(rows: Rows) -> None:
    """One line for each row, one column for each name in any of them whose cells are no lists;
    numbers with four digits.
    """
    names = dict.fromkeys(
        name for row in rows for name, cell in row.items() if not isinstance(cell, list)
    )
    cells = [list(names), *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    print()


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
