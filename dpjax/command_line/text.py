"""What every command prints: aligned tables, wrapped paragraphs, JSON, promises rounded up, and the mistakes of the user."""

from __future__ import annotations

import argparse
import csv
import json
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np

from dpjax.accounting import Guarantee
from dpjax.command_line.errors import UserError
from dpjax.display import joined, padded
from dpjax.version import __version__

SIMULATION = (
    "Simulation: float draws reveal low-order bits of the records, and error bars, sizes, ties and group names are read from the "
    "data. None of this is a private release."
)


def report(
    asked: argparse.Namespace,
    rows: Sequence[dict[str, Any]],
    facts: dict[str, Any],
    text: Callable[[], str],
    header: Sequence[str] = (),
) -> str:
    """Return what a command prints of rows: its text, or JSON, or, with a file for them, where the rows are now.

    JSON has the facts and the rows. A file of CSV has a line for each of the draws of a row, its last field; the names of its
    columns are ``header`` where there is no row. A group by several columns takes a column for each of them.
    """
    if asked.output is None and not asked.json:
        return text()
    answer = facts | {"rows": [_with_total(row, asked.draws) | {"group": group_as_json(row["group"], asked.by)} for row in rows]}
    if asked.output is None:
        return as_json(answer)
    try:
        with open(asked.output, "w", encoding="utf-8", newline="") as file:
            if asked.output.lower().endswith(".json"):
                file.write(as_json(answer) + "\n")
            else:
                lines = [line for row in rows for line in _by_draw(_by_column(row, asked.by))]
                names = lines[0] if lines else _by_column(dict.fromkeys(header) | {"group": tuple(asked.by)}, asked.by)
                writer = csv.DictWriter(file, list(names), lineterminator="\n")
                writer.writeheader()
                writer.writerows(lines)
    except OSError as error:
        raise UserError(f"cannot write {asked.output}: {error.strerror}.") from error
    return f"Wrote {asked.output}."


def _with_total(row: dict[str, Any], draws: int) -> dict[str, Any]:
    """The row, whose guarantee says what all draws cost together."""
    if "guarantee" not in row:
        return row
    total = {"total_epsilon": rounded_up(Fraction(row["guarantee"].epsilon) * draws)}
    return row | {"guarantee": plain(row["guarantee"]) | total}


def name_of(quantiles: Sequence[Fraction]) -> str:
    """Return what a table of quantiles is called.

    >>> name_of([Fraction(1, 2)]), name_of([Fraction(1, 4), Fraction(3, 4)])
    ('Median', 'Quantiles 0.25, 0.75')
    """
    levels = ", ".join(f"{float(q):g}" for q in quantiles)
    return "Median" if quantiles == [Fraction(1, 2)] else f"Quantile{'s' if len(quantiles) > 1 else ''} {levels}"


def group_as_text(label: tuple[str, ...] | None) -> str:
    """Return what a table calls a group."""
    return ", ".join(label or ()) or "(empty)"


def group_as_json(label: tuple[str, ...] | None, by: Sequence[str]) -> Any:
    """Return the label of a group by one column, or an object with the label in each of several.

    >>> group_as_json(("north",), ["region"]), group_as_json(("north", "f"), ["region", "sex"])
    ('north', {'region': 'north', 'sex': 'f'})
    """
    return None if label is None else label[0] if len(by) == 1 else dict(zip(by, label, strict=True))


def _by_column(fields: dict[str, Any], by: Sequence[str]) -> dict[str, Any]:
    """The fields, with one for each of several columns of groups in the place of "group"."""
    label = group_as_json(fields["group"], by)
    if len(by) < 2:
        return fields | {"group": label}
    found: dict[str, Any] = {}
    for name, field in fields.items():
        parts = {f"group_{part}" if part in fields or part in ("draw", "drawn") else part: word for part, word in label.items()}
        found |= parts if name == "group" else {name: field}
    return found


def _by_draw(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for each draw, of which the fields have a list; an interval as its two ends, and a guarantee in words."""
    found: dict[str, Any] = {}
    draws: Any = ()
    for name, field in fields.items():
        if isinstance(field, list | np.ndarray):
            draws = field
        elif isinstance(field, tuple):
            found |= {"lower95": field[0], "upper95": field[1]}
        else:
            found[name] = words_of(field) if isinstance(field, Guarantee) else field
    return [plain(found) | {"draw": number, "drawn": plain(value)} for number, value in enumerate(draws, start=1)]


def as_json(answer: dict[str, Any]) -> str:
    r"""Return an object as JSON, with its guarantees and NumPy numbers; a number that is not finite is null.

    A float32 becomes the shortest decimal that reads back as the same float32.

    >>> print(as_json({"x": np.float32(0.1), "y": (1, float("nan"))}).replace("\n", ""))
    {  "x": 0.1,  "y": [    1,    null  ]}
    """
    return json.dumps(plain(answer), indent=2, allow_nan=False)


def plain(value: Any) -> Any:
    """Return a value as what JSON knows, as :func:`as_json` says."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, Guarantee):
        found = {"epsilon": value.epsilon, "bounded_range": value.bounded_range, "neighbors": value.neighbors}
        return plain(found | ({"delta": value.delta} if value.delta else {}) | ({"unit": value.unit} if value.unit else {}))
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(str(value)) if math.isfinite(value) else None
    return value


def versions(*, jax: bool = False) -> dict[str, str]:
    """Return what computed a report: the versions of dpjax and NumPy, or of JAX and its device."""
    if not jax:
        return {"dpjax_version": __version__, "numpy_version": np.__version__}
    module = import_module("jax")
    device = module.devices()[0]
    name = device.platform if device.device_kind == device.platform else f"{device.platform} ({device.device_kind})"
    return {"dpjax_version": __version__, "jax_version": module.__version__, "device": name}


def versions_line() -> str:
    """Return :func:`versions` of JAX as a sentence."""
    return "Device {device}; dpjax {dpjax_version}; JAX {jax_version}.".format(**versions(jax=True))


def rounded_up(total: Fraction) -> float:
    """Return the least float that is not below a cost.

    >>> rounded_up(3 * Fraction(0.1)) >= 3 * Fraction(0.1)
    True
    """
    return float(total) if Fraction(float(total)) >= total else math.nextafter(float(total), math.inf)


def promised(*epsilons: float, times: int = 1) -> str:
    """Return a privacy parameter, or the sum of several, so many times, as text of at most six digits, rounded up.

    No promise is printed too small. A parameter is read as the shortest decimal that stands for it, so that 0.1 stays 0.1, and
    three times 0.1 is 0.3.

    >>> promised(0.5), promised(0.1, times=3), promised(0.12345649), promised(0.1, 0.2), promised(1e-7), promised(float("inf"))
    ('0.5', '0.3', '0.123457', '0.3', '1e-07', 'inf')
    """
    if not math.isfinite(sum(epsilons)):
        return f"{sum(epsilons):g}"
    exact = sum(Fraction(Decimal(repr(float(epsilon)))) for epsilon in epsilons) * times
    total = Context(prec=60, rounding=ROUND_CEILING).divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).plus(total)):g}"


def words_of(guarantee: Guarantee) -> str:
    """Return the words of a guarantee, with its numbers as of :func:`promised`.

    >>> words_of(Guarantee(0.12345649, 0.25, "swap"))
    '0.123457-DP and 0.25-bounded-range under swap neighbors'
    """
    given = guarantee.epsilon, guarantee.bounded_range, guarantee.zcdp, guarantee.delta
    epsilon, bounded_range, zcdp, delta = (float(promised(value)) for value in given)
    return str(replace(guarantee, epsilon=epsilon, bounded_range=bounded_range, zcdp=zcdp, delta=delta))


def aligned(fields: dict[str, Sequence[str] | None], *, left: Sequence[str] = ()) -> str:
    r"""Return a table of columns of equal length, without those that are None; those named in ``left`` stay to the left.

    >>> print(aligned({"name": ["a", "bcdef"], "n": ["1", "20"], "missing": None}, left=("name",)))
    name    n
    a       1
    bcdef  20
    """
    shown = {
        name: [cell if cell.isprintable() else ascii(cell) for cell in cells] for name, cells in fields.items() if cells is not None
    }
    return joined(padded(name, cells, name in left) for name, cells in shown.items())


def wrapped(*paragraphs: str) -> str:
    """Return paragraphs in lines of at most 118 characters, the further lines of each indented by two."""
    fill = textwrap.TextWrapper(118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False).fill
    return "\n".join(map(fill, paragraphs))
