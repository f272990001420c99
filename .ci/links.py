"""What the prose names is there: files, headings, public names, extras; and what notebooks show.

python .ci/links.py
"""

import json
import pathlib
import pkgutil
import re
import sys
import tomllib
from collections.abc import Iterator

import dpjax

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = (".", ".ci", "tests", "benchmarks", "benchmarks/experiments")  # files are in one of them
sys.path.insert(0, str(ROOT / "benchmarks"))
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {*PROJECT["optional-dependencies"]}
# The words of docstrings are those of the field, not of this project alone.
IDIOMS = re.compile(r"at the door|leaves the house|as it is well|is as well|goes in 0\.")


def broken_links(text: str, folder: pathlib.Path) -> Iterator[str]:
    """Links to files that are not there, and to headings that no page has."""
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = folder / path
        if "://" in link or link.startswith("attachment:"):
            continue
        page = text if not path else target.read_text() if target.is_file() else ""
        headings = re.findall(r"^#+ (.*)$", page, flags=re.MULTILINE)
        anchors = [re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings]
        if not target.exists() or (anchor and anchor not in anchors):
            yield link


def missing(text: str, names: str) -> Iterator[str]:
    """Public names in the tables, and files anywhere, that are not there."""
    rows = "\n".join(line for line in text.splitlines() if line.startswith("| "))
    for name in {*re.findall(names, rows)} - EXTRAS:
        try:
            pkgutil.resolve_name(f"dpjax.{name}")
        except (AttributeError, ImportError):
            yield name
    for path in re.findall(r"`((?:\w+/)?\w+\.py)`", text):
        if not any((ROOT / folder / path).exists() for folder in SOURCES):
            yield path


def faults_of_a_notebook(path: pathlib.Path) -> Iterator[str]:
    """It has outputs, in order and without errors, and names no folder of a machine."""
    text = path.read_text()
    cells = json.loads(text)["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    if [cell["execution_count"] for cell in code] != list(range(1, len(code) + 1)):
        yield "was not run from its first cell to its last"
    for output in (output for cell in code for output in cell["outputs"]):
        if output["output_type"] == "error" or output.get("name") == "stderr":
            yield f"shows an error or a warning: {output}"
    if re.search("/tmp/|/home/|/root/", text):
        yield "names a folder of a machine"
    if f"(notebooks/{path.name})" not in README:
        yield "is not in the README"
    for cell in cells:
        if cell not in code:
            yield from broken_links("".join(cell["source"]), path.parent)


def faults() -> Iterator[tuple[object, str]]:
    """What is wrong, and where."""
    names = {"README.md": r"`(?:dpjax\.)?([\w.]+)`", "tests/README.md": r"`dpjax\.([\w.]+)`"}
    pages = [*names, "benchmarks/README.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md"]
    for page in pages:
        path = ROOT / page
        yield from ((page, link) for link in broken_links(path.read_text(), path.parent))
    for page, pattern in names.items():
        yield from ((page, name) for name in missing((ROOT / page).read_text(), pattern))
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        yield from ((path.name, fault) for fault in faults_of_a_notebook(path))
    yield from (("README.md", f"no `{extra}`") for extra in EXTRAS if f"`{extra}`" not in README)
    if len(README.splitlines()) > 200 or len(README.encode()) > 12_000:
        yield "README.md", "more than one page"
    if f"\nversion: {dpjax.__version__}\n" not in (ROOT / "CITATION.cff").read_text():
        yield "CITATION.cff", "another version"
    for path in (ROOT / "dpjax").rglob("*.py"):
        yield from ((path.name, idiom) for idiom in IDIOMS.findall(path.read_text()))
    import figures

    for path, text in figures.texts(json.loads(figures.MEASURED.read_text())).items():
        if path.read_text() != text:
            yield path, "has figures that report.py --write did not write"


# The control: what is found in a page of nothing but faults.
WRONG = (
    "# A b, c\n[x](gone.md) [y](#a-b-c) [z](#a-b)\n| `dpjax.gone` | `a/test_gone.py` | `test` |\n"
)
found = {*broken_links(WRONG, ROOT), *missing(WRONG, r"`(?:dpjax\.)?([\w.]+)`")}
if found != {"gone.md", "#a-b", "gone", "a/test_gone.py"}:
    sys.exit(f"the check does not see what it should: {found}")
sys.exit("\n".join(f"{where}: {fault}" for where, fault in faults()) or None)
