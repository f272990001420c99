"""Golden numbers, with their provenance inside."""

import json
import pathlib


def golden(name):
    """The numbers of a file of ``tests/golden``."""
    path = pathlib.Path(__file__).parent.parent / "golden" / f"{name}.json"
    return json.loads(path.read_text())
