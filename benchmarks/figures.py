"""The figures of the two READMEs, written from what the benchmarks measured: nobody edits a figure
by hand.

``measured.json`` has, for each script and kind of device, the machine and those of its rows that
carry a bar or that a sentence names; of an accelerator, all. ``report.py --write`` replaces the
scripts that it ran, and then both texts; ``.ci/links.py`` compares them with the file.
"""

import json
import pathlib
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tables

HERE = pathlib.Path(__file__).parent
MEASURED, README, TABLES = HERE / "measured.json", HERE.parent / "README.md", HERE / "README.md"
BEGIN, END = "<!-- measured: written by report.py --write -->", "<!-- measured: end -->"
FIELDS = (
    *("question", "contestant", "relation", "shape", "status", "value", "unit", "queued", "alone"),
    *("ratio", "ratio_spread", "reference", "bar", "reach", "met"),
)
NAIVE, RAW, MANY = "naive jitted Gumbel-max", "raw records to a draw", "many draws"
Name = tuple[str, str, str, str]

# The sentences of the README: what names a row (script, question, contestant, relation), and
# whether its ratio is turned over.
SENTENCES: tuple[tuple[str, Sequence[tuple[Name, bool]]], ...] = (
    (
        "From sorted records to one draw for each of 4096 datasets: {} times as fast as Gumbel-max "
        "in JAX.",
        [(("draws", "one draw", NAIVE, "swap"), False)],
    ),
    (
        "From unsorted records: {} times as fast as NumPy's sort and sums, {} under add/remove; {} "
        "times as fast as OpenDP.",
        [
            (("draws", RAW, "NumPy, cumulative sums", "swap"), False),
            (("draws", RAW, "NumPy, cumulative sums", "add_remove"), False),
            (("draws", RAW, "loop over OpenDP", "swap"), False),
        ],
    ),
    (
        "10,000 draws for each of 100 datasets: {} times the time of `jax.random.laplace` of that "
        "shape.",
        [(("draws", MANY, "jax.random.laplace", "no privacy"), True)],
    ),
    (
        "On an NVIDIA H200, by an earlier version: such draws {} times as fast as Gumbel-max, and "
        "one for each of 65,536 datasets {}.",
        [
            (("draws on NVIDIA H200", MANY, NAIVE, "swap"), False),
            (("draws on NVIDIA H200", "one draw", NAIVE, "swap"), False),
        ],
    ),
)
NAMED = {row for _, rows in SENTENCES for row, _ in rows}


def title(document: Mapping[str, Any]) -> str:
    """The script, and the device where it is no CPU."""
    where = document["environment"]
    on = "" if where["platform"] == "cpu" else f" on {where['device']}"
    return document["benchmark"] + on


def kept(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """What ``measured.json`` keeps of the document of a script."""
    where = document["environment"]
    machine = {field: where[field] for field in ("device", "processor", "cores", "versions")}
    rows = [
        _rounded({field: row[field] for field in FIELDS if row.get(field) is not None})
        for row in document["rows"]
        if row["status"] == "measured"
        and (row.get("bar") or where["platform"] != "cpu" or (name, *_place(row)) in NAMED)
    ]
    return {"machine": machine, "rows": rows, "shown": document.get("shown")}


def _place(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["question"], row["contestant"], row["relation"]


def _rounded(value: Any) -> Any:
    """With four digits, as deep as it goes."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items() if key not in ("min", "median")}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def sentences(measured: Mapping[str, Any]) -> str:
    """The list of the README, of the sentences whose rows are there."""
    ratios: dict[Name, float] = {}
    for name, document in measured.items():
        for row in document["rows"]:
            if "ratio" in row:
                ratios.setdefault((name, *_place(row)), row["ratio"])

    def numbers(rows: Iterable[tuple[Name, bool]]) -> Iterator[str]:
        for row, turned in rows:
            yield f"{float(f'{1 / ratios[row] if turned else ratios[row]:.2g}'):g}"

    lines = [
        sentence.format(*numbers(rows))
        for sentence, rows in SENTENCES
        if all(row in ratios for row, _ in rows)
    ]
    return "\n".join(textwrap.fill(f"* {line}", 128, subsequent_indent="  ") for line in lines)


def machine(where: Mapping[str, Any]) -> str:
    """The line that says on what and with what something was measured."""
    versions = ", ".join(f"{name} {found}" for name, found in where["versions"].items() if found)
    device = "" if where["device"] == "cpu" else f"{where['device']}, "
    return f"{device}{where['cores']} cores ({where['processor']}); {versions}."


def text_of(measured: Mapping[str, Any]) -> str:
    """The tables of the README of this folder, one for each script and device."""
    return "\n\n".join(
        f"### {name}\n\n{machine(document['machine'])}\n\n"
        + (document.get("shown") or tables.of_rows(document["rows"], leave_out="compile"))
        for name, document in measured.items()
    )


def texts(measured: Mapping[str, Any]) -> dict[pathlib.Path, str]:
    """Both READMEs, with these figures between the two comments."""
    found = {}
    for path, of in ((README, sentences), (TABLES, text_of)):
        before, rest = path.read_text().split(BEGIN)
        found[path] = f"{before}{BEGIN}\n{of(measured)}\n{END}{rest.split(END)[1]}"
    return found


def write(documents: Iterable[Mapping[str, Any]], order: Sequence[str]) -> None:
    """Put documents of whole runs into ``measured.json``, and its figures into both READMEs."""
    measured = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    for document in documents:
        if not document["settings"]["quick"]:
            measured[title(document)] = kept(title(document), document)
    names = sorted(measured, key=lambda name: order.index(name.split(" ")[0]))
    shown = [name for name in names if measured[name]["rows"] or measured[name]["shown"]]
    measured = {name: measured[name] for name in shown}
    MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
    for path, text in texts(measured).items():
        path.write_text(text)
