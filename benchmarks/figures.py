"""The figures of the two READMEs, written from what the benchmarks measured: nobody edits a figure
by hand.

``measured.json`` has, for each script, the machine and those of its rows that carry a bar or that a
sentence names. ``report.py --write`` replaces the scripts that it ran, and then both texts;
``.ci/links.py`` compares them with the file.
"""

import json
import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import tables

HERE = pathlib.Path(__file__).parent
MEASURED, README, TABLES = HERE / "measured.json", HERE.parent / "README.md", HERE / "README.md"
BEGIN, END = "<!-- measured: written by report.py --write -->", "<!-- measured: end -->"
FIELDS = (
    *("question", "contestant", "relation", "shape", "status", "value", "unit"),
    *("ratio", "ratio_spread", "reference", "bar", "reach", "met"),
)
SHARE = ", share of the copy bandwidth"
# The questions that are kept, beside bars.
ON_A_DEVICE = ("one draw", "many draws", "raw records to a draw", "error bars", "simulate")

# The sentences of the README: what names a row (script, question, contestant, relation), and
# whether its ratio is turned over.
SENTENCES: tuple[tuple[str, Sequence[tuple[tuple[str, str, str, str], bool]]], ...] = (
    (
        "From sorted records to one draw for each of 4096 datasets: {} times faster than "
        "Gumbel-max in JAX.",
        [(("one_jit", "sorted records to a draw", "dpjax, one jit", "swap"), True)],
    ),
    (
        "From unsorted records to one draw each: {} times the time of `np.sort`, and {} times "
        "faster than OpenDP in a loop.",
        [
            (("one_jit", "raw records to a draw", "dpjax, one jit", "swap"), False),
            (("from_raw", "from raw records", "loop over OpenDP", "swap"), False),
        ],
    ),
    (
        "10,000 draws for each of 100 datasets: {} times the time of `jax.random.laplace` of that "
        "shape.",
        [(("one_jit", "many draws", "dpjax", "swap"), False)],
    ),
    (
        "On an NVIDIA H200, 10,000 draws for each of 100 datasets: {} times faster than "
        "Gumbel-max there.",
        [(("accelerator", "many draws", "naive jitted Gumbel-max", "swap"), False)],
    ),
)
NAMED = {row for _, rows in SENTENCES for row, _ in rows}


def kept(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """What ``measured.json`` keeps of the document of a script."""
    where = document["environment"]
    versions = {package: version for package, version in where["versions"].items() if version}
    machine = {
        "device": where["device"],
        "processor": where["processor"],
        "cores": where["cores"],
        "versions": versions,
    }
    rows = [
        _rounded({field: row[field] for field in FIELDS if row.get(field) is not None})
        for row in document["rows"]
        if _belongs(name, row)
    ]
    for row in rows:
        if "ratio_spread" in row:
            row["ratio_spread"] = {
                end: row["ratio_spread"][end] for end in ("first_quartile", "third_quartile")
            }
    return {"machine": machine, "rows": rows}


def _belongs(name: str, row: Mapping[str, Any]) -> bool:
    if row["status"] != "measured":
        return False
    on_a_device = (
        name == "accelerator"
        and row["question"] in ON_A_DEVICE
        and not row["contestant"].endswith(SHARE)
    )
    return bool(row.get("bar")) or _named(name, row) in NAMED or on_a_device


def _named(name: str, row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return name, row["question"], row["contestant"], row["relation"]


def _rounded(value: Any) -> Any:
    """With four digits, as deep as it goes."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def sentences(measured: Mapping[str, Any]) -> str:
    """The list of the README, of the sentences whose rows are there."""
    ratios: dict[tuple[str, str, str, str], float] = {}
    for name, document in measured.items():
        for row in document["rows"]:
            if "ratio" in row:
                ratios.setdefault(_named(name, row), row["ratio"])
    lines = []
    for sentence, rows in SENTENCES:
        if all(row in ratios for row, _ in rows):
            lines.append(
                sentence.format(
                    *(
                        f"{float(f'{1 / ratios[row] if turned else ratios[row]:.2g}'):g}"
                        for row, turned in rows
                    )
                )
            )
    return "\n".join(textwrap.fill(f"* {line}", 128, subsequent_indent="  ") for line in lines)


def text_of(measured: Mapping[str, Any]) -> str:
    """The tables of the README of this folder, one for each script."""
    parts = []
    for name, document in measured.items():
        machine = document["machine"]
        versions = ", ".join(
            f"{package} {version}" for package, version in machine["versions"].items()
        )
        device = "" if machine["device"] == "cpu" else f"{machine['device']}, "
        head = (
            f"### {name}\n\n{device}{machine['cores']} cores ({machine['processor']}); {versions}."
        )
        columns = [column for column in range(len(tables.HEAD)) if tables.HEAD[column] != "compile"]
        lines = [
            [line[column] for column in columns]
            for line in (tables.cells(row, True) for row in document["rows"])
        ]
        parts.append(
            f"{head}\n\n{tables.markdown([tables.HEAD[column] for column in columns], lines)}"
        )
    return "\n\n".join(parts)


def written(text: str, found: str) -> str:
    """A text with what is found between the two comments."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{found}\n{END}{rest.split(END)[1]}"


def texts(measured: Mapping[str, Any]) -> dict[pathlib.Path, str]:
    """Both READMEs with these figures."""
    return {
        path: written(path.read_text(), of(measured))
        for path, of in ((README, sentences), (TABLES, text_of))
    }


def write(documents: Mapping[str, Mapping[str, Any]], order: Sequence[str]) -> None:
    """Put documents of whole runs into ``measured.json``, and its figures into both READMEs."""
    measured = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    measured |= {
        name: kept(name, document)
        for name, document in documents.items()
        if not document["settings"]["quick"]
    }
    measured = {
        name: measured[name] for name in order if name in measured and measured[name]["rows"]
    }
    MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
    for path, text in texts(measured).items():
        path.write_text(text)
