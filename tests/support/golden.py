"""Numbers computed apart from the library; ``tests/golden/README.md`` says how."""

import json
import pathlib


def golden(name):
    """The contents of a file of golden numbers."""
    folder = pathlib.Path(__file__).parent.parent / "golden"
    return json.loads((folder / f"{name}.json").read_text())
