"""What people call first, each in a new process: ``python first_calls.py NAME``.

Nothing is imported before it is asked for, and no call but an import may need JAX.
"""

import importlib
import sys
from typing import Any

AGES: dict[str, Any] = {"lower": 0, "upper": 120, "resolution": 1}
PUBLIC: dict[str, Any] = {"epsilon": 1.0, "neighbors": "add_remove"}


def nine_numbers() -> None:
    from dpjax import release

    release.Median(**AGES).release([31, 40, 28, 35, 52, 33, 47, 29, 38], **PUBLIC)


def table() -> tuple[Any, ...]:
    """20,000 rows in 20 groups, and what is asked of them."""
    import numpy as np
    import pandas as pd

    from dpjax import release

    generator = np.random.default_rng(0)
    columns = {
        "age": generator.integers(0, 100, 20_000),
        "group": generator.integers(0, 20, 20_000),
    }
    return pd.DataFrame(columns), {"age": release.Median(**AGES)}


def frames_release() -> None:
    from dpjax import frames

    frames.release(*table(), by="group", groups=range(20), **PUBLIC)


def frames_simulate() -> None:
    from dpjax import frames

    frames.simulate(0, *table(), by="group", groups=range(20), **PUBLIC)


CALLS = {
    "Median.release of nine numbers": nine_numbers,
    "frames.release, 20,000 rows, 20 groups": frames_release,
    "frames.simulate, 20,000 rows, 20 groups": frames_simulate,
}

if __name__ == "__main__":
    name = sys.argv[1]
    if name in CALLS:
        CALLS[name]()
        sys.exit("JAX was imported." if "jax" in sys.modules else 0)
    importlib.import_module(name.removeprefix("import "))
