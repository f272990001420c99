"""The tables that the benchmarks print: Markdown, with columns aligned, for a person to read."""

from collections.abc import Sequence
from typing import Any

UNITS = ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
HEAD = (
    "question",
    "contestant",
    "relation",
    "shape",
    "median",
    "compile",
    "ratio (quartiles)",
    "against",
    "bar",
    "met",
)


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table of these cells."""
    widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
    rules = ["-" * width for width in widths]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in (head, rules, *lines)
    )


def of_rows(rows: Sequence[dict[str, Any]], judge: bool = True) -> str:
    """The table of rows as ``harness.row`` makes them; bars are not judged where ``judge`` is
    false, as in quick runs.
    """
    return markdown(HEAD, [cells(line, judge) for line in rows])


def cells(line: dict[str, Any], judge: bool) -> list[str]:
    ratio, quartiles = line.get("ratio"), line.get("ratio_spread")
    shown = "" if ratio is None else f"{ratio:.3g}"
    if quartiles:
        shown += f" ({quartiles['first_quartile']:.3g}-{quartiles['third_quartile']:.3g})"
    value = (
        number(line.get("value"), line.get("unit"))
        if line["status"] == "measured"
        else line["status"]
    )
    compiled = number(line.get("compile_seconds"), "s")
    against, where = (
        line.get("reference") or "",
        [line[name] for name in ("question", "contestant", "relation", "shape")],
    )
    return [*where, value, compiled, shown, against, bar(line), met(line, judge)]


def number(value: float | None, unit: str | None) -> str:
    if value is None:
        return ""
    if unit and unit.split(" ")[0] == "s":
        size, name = next(((size, name) for size, name in UNITS if value >= size), UNITS[-1])
        return f"{value / size:.3g} {name}{unit[1:]}"
    return f"{value:.3g} {unit or ''}".strip()


def bar(line: dict[str, Any]) -> str:
    limit = line.get("bar")
    if not limit:
        return ""
    (kind, value), reach = next(iter(limit.items())), line.get("reach")
    sign = ">=" if kind == "at_least" else "<="
    return f"{sign} {value:.3g}" + (f" (reach {next(iter(reach.values())):.3g})" if reach else "")


def met(line: dict[str, Any], judge: bool) -> str:
    if "met" not in line:
        return ""
    if not judge:
        return "not judged"
    reach = line.get("reach") or {}
    ratio = line["ratio"]
    reached = ("at_least" in reach and ratio >= reach["at_least"]) or (
        "at_most" in reach and ratio <= reach["at_most"]
    )
    return "reached" if reached else "met" if line["met"] else "NOT MET"
