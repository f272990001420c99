"""Write what the library computes today: ``python -m tests.golden.record``, to be run by hand, from the root of the repository.

It overwrites ``v01_float64.json`` and ``v01_float32.json``: only where a change of values is meant; the commit says which.
Names of families as arguments write these only, and keep the others; ``float64`` or ``float32`` among them, that precision only.
"""

import json
import math
import sys
from typing import Any

import jax
import numpy as np

from tests.golden import compare
from tests.golden.cases import FAMILIES


def record(dtype: str, names: list[str]) -> None:
    """Compute and write one file."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    path = compare.path_of(dtype)
    every = compare.load(dtype) if path.exists() else {}
    for name in names:
        if dtype in FAMILIES[name].dtypes:
            every[name] = {
                case: {quantity: compare.plain(value, quantity, dtype) for quantity, value in quantities.items()}
                for case, quantities in FAMILIES[name].compute(False).items()
            }
            jax.clear_caches()
            path.write_text(text_of(every))
            sys.stdout.write(f"{dtype} {name}: {len(every[name])} cases, {numbers_in(every[name])} numbers\n")
            sys.stdout.flush()


def text_of(every: dict[str, Any]) -> str:
    """JSON with a case on a line, in the order of the list."""
    lines = []
    for name in (name for name in FAMILIES if name in every):
        cases = (f"{json.dumps(case)}:{json.dumps(found, separators=(',', ':'))}" for case, found in every[name].items())
        lines.append(f"{json.dumps(name)}:{{\n" + ",\n".join(cases) + "\n}")
    return "{" + ",\n".join(lines) + "}\n"


def numbers_in(cases: dict[str, dict[str, Any]]) -> int:
    """How many."""
    return sum(math.prod(np.shape(value)) for found in cases.values() for value in found.values())


if __name__ == "__main__":
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    precisions = [word for word in sys.argv[1:] if word in ("float64", "float32")]
    asked = [word for word in sys.argv[1:] if word not in precisions]
    for precision in precisions or ("float64", "float32"):
        record(precision, asked or [name for name, family in FAMILIES.items() if not family.recorded_as])
