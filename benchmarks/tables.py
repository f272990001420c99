"""The tables that the benchmarks print: Markdown, with columns aligned, for a person to read."""

from collections.abc import Sequence
from typing import Any

UNITS = ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table of these cells."""
    widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
    whole = [head, ["-" * width for width in widths], *lines]
    padded = [
        [cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in whole
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def of_rows(rows: Sequence[dict[str, Any]], judge: bool = True, leave_out: str = "") -> str:
    """The table of rows as ``harness.row`` makes them, with the columns that have something in
    them; bars are not judged where ``judge`` is false, as in quick runs.
    """
    found = [cells(line, judge) for line in rows]
    head = [name for name in found[0] if name != leave_out and any(line[name] for line in found)]
    return markdown(head, [[line[name] for name in head] for line in found])


def cells(line: dict[str, Any], judge: bool) -> dict[str, str]:
    ratio, quartiles = line.get("ratio"), line.get("ratio_spread")
    shown = "" if ratio is None else f"{ratio:.3g}"
    if quartiles:
        shown += f" ({quartiles['first_quartile']:.3g}-{quartiles['third_quartile']:.3g})"
    measured = line["status"] == "measured"
    return {
        **{name: line[name] for name in ("question", "contestant", "relation", "shape")},
        "median": number(line.get("value"), line.get("unit")) if measured else line["status"],
        "a call in a queue of ten": number(line.get("queued"), "s"),
        "one call alone": number(line.get("alone"), "s"),
        "compile": number(line.get("compile_seconds"), "s"),
        "ratio (quartiles)": shown,
        "against": line.get("reference") or "",
        "bar": bar(line),
        "met": met(line, judge),
    }


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
    reach, ratio = line.get("reach") or {}, line["ratio"]
    reached = ("at_least" in reach and ratio >= reach["at_least"]) or (
        "at_most" in reach and ratio <= reach["at_most"]
    )
    return "reached" if reached else "met" if line["met"] else "NOT MET"
