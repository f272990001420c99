"""Docstrings say what a function does: they begin with a verb, and use the words of the field (PEP
257).
"""

import ast
import pathlib
import re

import pytest

import dpjax

PACKAGE = pathlib.Path(dpjax.__file__).parent
ROOMS = sorted({path.parent for path in PACKAGE.rglob("*.py")})

VERBS = set(
    """Accept Account Add Adjust Align Allow Answer Append Apply Ask Assert Assign Audit Average
    Bisect Bound Bracket Broadcast Build Call Cast Charge Check Choose Clamp Clear Clip Close
    Collect Combine Compare Compile Complete Compose Compute Connect Construct Convert Copy
    Correct Count Create Cut Decide Declare Decode Describe Differentiate Discard Divide Draw
    Drop Encode Enclose Ensure Estimate Evaluate Expand Export Extend Extract Fetch Fill Find
    Finish Fit Flush Fold Format Fuse Gather Generate Give Go Group Guard Halve Hash Hold
    Import Index Insert Inspect Integrate Interpolate Invert Iterate Join Keep Label Let List
    Load Lock Look Lower Make Map Mark Match Maximize Measure Merge Minimize Move Multiply
    Name Normalize Open Order Pad Parse Perform Pick Place Plot Prepare Print Project Put
    Quote Raise Read Recompute Record Reduce Refine Refuse Register Release Remove Rename
    Repeat Replace Report Represent Require Reshape Resolve Restore Return Reverse Round Run
    Sample Save Scale Scan Score Search Select Separate Set Shift Show Simulate Skip Solve
    Sort Split Start Stop Store Subtract Sum Summarize Swap Tabulate Take Tell Test Transform
    Translate Trim Truncate Try Turn Undo Update Use Validate Verify Wait Warn Weigh Widen
    Wrap Write Yield""".split()  # noqa: SIM905
)
NO_SUBJECT = {
    "Of",
    "What",
    "Where",
    "Whether",
    "How",
    "Why",
    "Which",
    "That",
    "By",
    "From",
    "To",
    "With",
    "As",
    "At",
    "Over",
    "Within",
    "Up",
}
# Idioms of this project alone, for which the field has its own words.
IDIOMS = (
    "cacheful",
    "at the door",
    "leaves the house",
    "words of",
    "as it is well",
    "is as well",
    "goes in 0.",
)


def _documented(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node, docstring


def _is_function(node):
    properties = [
        decorator
        for decorator in getattr(node, "decorator_list", ())
        if "property" in ast.unparse(decorator)
    ]
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not properties


def _faults(path):
    faults = []
    for node, docstring in _documented(path):
        where = f"{path.name}:{getattr(node, 'lineno', 1)}"
        first = re.match(r"\W*(\w*)", docstring)[1]
        if _is_function(node) and first not in VERBS:
            faults.append(
                f"{where}: begins with {docstring.split()[0]!r}, not with a verb: "
                f"{docstring.splitlines()[0]}"
            )
        elif first in NO_SUBJECT:
            faults.append(f"{where}: begins with {first!r}: {docstring.splitlines()[0]}")
        faults += [f"{where}: {idiom!r}" for idiom in IDIOMS if idiom in docstring]
    return faults


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_docstrings_begin_with_a_verb_and_use_the_words_of_the_field(room):
    faults = [fault for path in sorted(room.glob("*.py")) for fault in _faults(path)]
    assert not faults, "\n".join(faults)


def test_a_docstring_without_a_verb_is_a_fault(tmp_path):
    path = tmp_path / "example.py"
    path.write_text(
        '"""Of all of it."""\n\n\ndef mean(x):\n    """What a mean is, at the door."""\n\n\ndef '
        'total(x):\n    """Return the total."""\n'
    )
    assert len(_faults(path)) == 3
