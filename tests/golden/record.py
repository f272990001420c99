"""Write what the library computes today: ``python -m tests.golden.record``, to be run by hand, from the root of the repository.

It overwrites ``v01_float64.json`` and ``v01_float32.json``: only where a change of values is meant, and then say in the commit which.
"""

import json
import math
import sys

import jax
import numpy as np

from tests.golden import compare
from tests.golden.cases import FAMILIES


def record(dtype: str) -> None:
    """Compute and write one file, a case on a line."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    jax.clear_caches()
    lines, cases, numbers = [], 0, 0
    for name, family in FAMILIES.items():
        if family.recorded_as or dtype not in family.dtypes:
            continue
        values = {
            case: {quantity: compare.plain(value, quantity, dtype) for quantity, value in quantities.items()}
            for case, quantities in family.compute(False).items()
        }
        text = ",\n".join(f"{json.dumps(case)}:{json.dumps(found, separators=(',', ':'))}" for case, found in values.items())
        lines.append(f"{json.dumps(name)}:{{\n{text}\n}}")
        cases += len(values)
        numbers += sum(math.prod(np.shape(v)) for found in values.values() for v in found.values())
    (compare.FOLDER / f"v01_{dtype}.json").write_text("{" + ",\n".join(lines) + "}\n")
    sys.stdout.write(f"{dtype}: {cases} cases, {numbers} numbers\n")


if __name__ == "__main__":
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    for precision in ("float64", "float32"):
        record(precision)
