"""What the experiments of this folder share: their flags, the folder of real tables, the table,
the JSON document, the plot.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
from typing import Any

import jax
import numpy as np

VERSIONS = ("dpjax", "jax", "jaxlib", "numpy")
SKIPPED = 77  # the exit status of an experiment whose data are not there: ../report.py knows it


def parse(
    description: str, argv: list[str] | None = None, quick: str | None = None
) -> argparse.Namespace:
    """The flags ``--json`` and ``--png``, and ``--quick`` where ``quick`` says what it runs; the
    help shows the first line of the description.
    """
    parser = flags(description)
    if quick:
        parser.add_argument("--quick", action="store_true", help=quick)
    return parser.parse_args(argv)


def flags(description: str) -> argparse.ArgumentParser:
    """The parser of :func:`parse`, for an experiment that has flags of its own."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument(
        "--json", metavar="FILE", help="write rows, settings and versions to this file"
    )
    parser.add_argument(
        "--png", metavar="FILE", help="draw the plot into this file (needs matplotlib)"
    )
    return parser


def data_folder() -> pathlib.Path:
    """The folder of real tables; where there is none, the program ends with a message and the
    status ``SKIPPED``.
    """
    folder = os.environ.get("DPJAX_DATA")
    if not folder or not pathlib.Path(folder).is_dir():
        print(
            "This experiment needs the folder of real tables: set DPJAX_DATA to it (now "
            f"{folder!r}).",
            file=sys.stderr,
        )
        raise SystemExit(SKIPPED)
    return pathlib.Path(folder)


def print_table(rows: list[dict[str, Any]]) -> None:
    """One line for each row, one column for each name in any of them; numbers with four digits."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def save(
    rows: list[dict[str, Any]], arguments: argparse.Namespace, settings: dict[str, Any]
) -> None:
    """Write the JSON document, if asked for: nothing in it depends on the machine but the last
    digits of numbers.
    """
    if not arguments.json:
        return
    versions = {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in VERSIONS},
    }
    text = json.dumps(
        {"settings": settings, "versions": versions, "rows": rows}, indent=1, allow_nan=False
    )
    pathlib.Path(arguments.json).write_text(text + "\n")


def pyplot() -> Any:
    """Matplotlib's pyplot, drawing into files only."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise SystemExit("--png needs matplotlib: pip install 'dpjax[benchmarks]'") from None
    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    return plt


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def of_one_shape(distributions: list[Any]) -> list[Any]:
    """Piecewise distributions with pieces without width behind the ends of the shorter ones: one
    program describes them all.
    """

    def is_side(part: Any) -> bool:
        return hasattr(part, "values")

    def longer(side: Any) -> Any:
        more = length - side.values.shape[-1]
        return jax.tree.map(
            lambda part: np.pad(part, [(0, 0)] * (part.ndim - 1) + [(0, more)], mode="edge"), side
        )

    parts = [part for one in distributions for part in jax.tree.leaves(one, is_leaf=is_side)]
    length = max(side.values.shape[-1] for side in parts if is_side(side))
    return [
        jax.tree.map(lambda part: longer(part) if is_side(part) else part, one, is_leaf=is_side)
        for one in distributions
    ]
