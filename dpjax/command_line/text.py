"""Output of the commands: aligned tables, wrapped paragraphs, JSON, and guarantees rounded up."""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np

from dpjax.accounting import Composition, Guarantee
from dpjax.accounting.guarantee import promised as promised
from dpjax.command_line.csv_text import is_parquet
from dpjax.command_line.errors import UserError
from dpjax.display import joined, padded
from dpjax.version import __version__

_ARGUMENTS = (
    "lower|upper|resolution|max_records|groups|unit|per_unit|max_groups|neighbors|draws|mechanism"
)
SIMULATION = (
    "Simulation: floating-point draws reveal low-order bits of the records, and error bars, sizes, "
    "ties and group names are computed from the data. None of this is a private release."
)


def report(
    asked: argparse.Namespace,
    results: Sequence[Any],
    facts: dict[str, Any],
    text: Callable[[], str],
) -> str:
    """Return the output of a command for the results of each mechanism.

    It is text, JSON, or the path written to. JSON has the facts and the rows; a CSV file has the
    rows.
    """
    if asked.output is None and not asked.json:
        return text()
    rows = []
    for mechanism, found in zip(asked.mechanism, results, strict=True):
        more = {"mechanism": mechanism} if len(results) > 1 else {}
        cells = found.cells()
        rows += [
            dict(zip(cells, row, strict=True)) | more for row in zip(*cells.values(), strict=True)
        ]
    if asked.output is None:
        return as_json(facts | {"rows": rows})
    try:
        with open(asked.output, "w", encoding="utf-8", newline="") as file:
            if asked.output.lower().endswith(".json"):
                file.write(as_json(facts | {"rows": rows}) + "\n")
            else:
                names = [*results[0].cells(), *(["mechanism"] if len(results) > 1 else [])]
                writer = csv.DictWriter(file, names, lineterminator="\n")
                writer.writeheader()
                writer.writerows(plain(row) for row in rows)
    except OSError as error:
        raise UserError(f"cannot write {asked.output}: {error.strerror}.") from error
    return f"Wrote {asked.output}."


def cost_of_all(asked: argparse.Namespace, guarantee: Guarantee | Composition) -> str:
    """Return the text of a guarantee, and for whom it holds: a person, or a record, line or row."""
    what = "row" if is_parquet(asked.file) else "line" if asked.records == "lines" else "record"
    change = " replaced" if asked.neighbors == "swap" else ", more or less"
    if asked.unit is None:
        more = [
            f"A person with several {what}s has a weaker guarantee: give --unit, the column that "
            "identifies the person."
        ]
        more += (
            ["A record is in one group, so that this is the cost of all groups together."]
            if asked.by
            else []
        )
        whom = f"one {what} of the file{change}"
    else:
        more = [
            f"A person is all {what}s with one label in the column {asked.unit}, combined by the "
            f"{asked.per_unit or 'mean'}."
        ]
        more += (
            [f"The cost is that of {_groups(asked.max_groups)} in which a person counts at most."]
            if asked.by
            else []
        )
        whom = f"one person with all {what}s{change}"
    return " ".join([f"{words_of(_without_unit(guarantee))}, for {whom}.", *more])


def _groups(number: int) -> str:
    return "the one group" if number == 1 else f"the {number} groups"


def _without_unit(guarantee: Guarantee | Composition) -> Guarantee:
    whole = guarantee.guarantee() if isinstance(guarantee, Composition) else guarantee
    return replace(whole, unit="")


def in_options(text: str) -> str:
    """Replace the arguments of the library in a message by options of the command line.

    >>> in_options(
    ...     "by needs neighbors='add_remove'. A release needs resolution=, groups= in addition."
    ... )
    'by needs --neighbors add_remove. A release needs --resolution, --groups in addition.'
    """

    def option(found: re.Match[str]) -> str:
        value = found[2] or ""
        return f"--{found[1].replace('_', '-')}{' ' * bool(value)}{value}"

    return re.sub(rf"\b({_ARGUMENTS})=(?:'(\w+)')?", option, text)


def name_of(quantiles: Sequence[Fraction]) -> str:
    """Return the title of a table of quantiles.

    >>> name_of([Fraction(1, 2)]), name_of([Fraction(1, 4), Fraction(3, 4)])
    ('Median', 'Quantiles 0.25, 0.75')
    """
    levels = ", ".join(f"{float(q):g}" for q in quantiles)
    return (
        "Median"
        if quantiles == [Fraction(1, 2)]
        else f"Quantile{'s' if len(quantiles) > 1 else ''} {levels}"
    )


def as_json(answer: dict[str, Any]) -> str:
    r"""Return an object as JSON, including guarantees and NumPy numbers.

    A non-finite number is null.
    A float32 becomes the shortest decimal that reads back as the same float32.

    >>> print(as_json({"x": np.float32(0.1), "y": (1, float("nan"))}).replace("\n", ""))
    {  "x": 0.1,  "y": [    1,    null  ]}
    """
    return json.dumps(plain(answer), indent=2, allow_nan=False)


def plain(value: Any) -> Any:
    """Convert a value to types that JSON has, as :func:`as_json` does."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, Composition):
        return plain(value.guarantee())
    if isinstance(value, Guarantee):
        found = {
            "epsilon": value.epsilon,
            "bounded_range": value.bounded_range,
            "neighbors": value.neighbors,
        }
        return plain(
            found
            | ({"delta": value.delta} if value.delta else {})
            | ({"unit": value.unit} if value.unit else {})
        )
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(str(value)) if math.isfinite(value) else None
    return (
        str(value)
        if isinstance(
            value, datetime.date | datetime.time | datetime.timedelta | Decimal | Fraction | bytes
        )
        else value
    )


def versions(*, jax: bool = False) -> dict[str, str]:
    """Return the versions of dpjax and NumPy, or of dpjax, JAX and its device."""
    if not jax:
        return {"dpjax_version": __version__, "numpy_version": np.__version__}
    module = import_module("jax")
    device = module.devices()[0]
    name = (
        device.platform
        if device.device_kind == device.platform
        else f"{device.platform} ({device.device_kind})"
    )
    return {"dpjax_version": __version__, "jax_version": module.__version__, "device": name}


def versions_line() -> str:
    """Return :func:`versions` of JAX as a sentence."""
    return "Device {device}; dpjax {dpjax_version}; JAX {jax_version}.".format(**versions(jax=True))


def words_of(guarantee: Guarantee | Composition) -> str:
    """Return the text of a guarantee, or of a composition as one guarantee.

    It is rounded up as by :func:`promised`. Sums of floats are printed as the decimals that they
    approximate: ten times 0.1, rounded up, is 1.

    >>> words_of(Guarantee(0.12345649, 0.25, "swap"))
    '0.123457-DP and 0.25-bounded-range under swap neighbors'
    >>> words_of(Guarantee(1.0000000000000002, 2.0, "swap"))
    '1-DP and 2-bounded-range under swap neighbors'
    """
    whole = guarantee.guarantee() if isinstance(guarantee, Composition) else guarantee
    epsilon, bounded_range, delta = map(_decimal, (whole.epsilon, whole.bounded_range, whole.delta))
    return str(replace(whole, epsilon=epsilon, bounded_range=bounded_range, delta=delta))


def _decimal(value: float) -> float:
    """Return the decimal of twelve digits that a float equals up to rounding, or the float."""
    short = float(f"{value:.12g}")
    return short if abs(value - short) <= value * 2.0**-50 else value


def aligned(fields: dict[str, Sequence[str] | None], *, left: Sequence[str] = ()) -> str:
    r"""Return a text table of columns of equal length, without those that are None.

    Columns in ``left`` are aligned to the left, the others to the right.

    >>> print(aligned({"name": ["a", "bcdef"], "n": ["1", "20"], "missing": None}, left=("name",)))
    name    n
    a       1
    bcdef  20
    """
    shown = {
        name: [cell if cell.isprintable() else ascii(cell) for cell in cells]
        for name, cells in fields.items()
        if cells is not None
    }
    return joined(padded(name, cells, name in left) for name, cells in shown.items())


def wrapped(*paragraphs: str) -> str:
    """Return paragraphs in lines of at most 118 characters, with further lines indented by two."""
    fill = textwrap.TextWrapper(
        118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    ).fill
    return "\n".join(map(fill, paragraphs))
