"""How often each pipeline reads its data on an accelerator, and how much memory it needs beside
them: counted, not measured.

python benchmarks/counted.py [--rows 64] [--points 255] [--quick] [--out FILE]

Every pipeline of ``tests/contracts/pipelines.py`` is compiled, once for a draw from each row and
once for its error bar, in the way that other devices than the CPU take, but by XLA's compiler for
the CPU: no accelerator is needed, and nothing is run. Its count of the bytes that all steps read
and write, and the temporaries that it asks for, are divided by the bytes of the records. A compiler
for a GPU fuses other steps, so these are no times, and a sort counts as one step whatever it costs.
Graphs and metrics have a number for every pair of records.
"""

import pathlib
import sys
from typing import Any

import jax
import numpy as np

import harness
import tables

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))  # the pipelines that are tested

from tests.contracts.pipelines import FURTHER, PIPELINES, WEIGHTS
from tests.support.devices import as_on_other_devices

QUICK = "plm of the median", "inv of a quantile", "plm of a mean", "exponential", "laplace"
COLUMNS = "draw: bytes", "draw: temporaries", "error bar: bytes", "error bar: temporaries"


def error_bar(distribution: Any) -> Any:
    """The mean absolute error around 0, or what a distribution has in its place; None where it has
    nothing.
    """
    if hasattr(distribution, "mean_norm_error"):
        return distribution.mean_norm_error()
    return distribution.mean_abs_error(0.0) if hasattr(distribution, "mean_abs_error") else None


def counts(program: Any, *given: Any) -> tuple[float, float]:
    """Bytes accessed and bytes of temporaries, as the compiler counts them."""
    with as_on_other_devices():
        compiled = jax.jit(program).lower(*given).compile()
    bytes_accessed = compiled.cost_analysis()["bytes accessed"]
    return float(bytes_accessed), float(compiled.memory_analysis().temp_size_in_bytes)


def count(pipeline: Any, rows: int, points: int) -> dict[str, float]:
    """Multiples of the bytes of the records, for one draw from each row and for the error bar."""
    x, number = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((rows, points), ()))
    key, public, data = jax.random.key(0), (number,) * 3, 4 * rows * points
    found = counts(lambda key, *given: pipeline(*given).sample(key), key, x, *public)
    if jax.eval_shape(lambda *given: error_bar(pipeline(*given)), x, *public) is not None:
        found += counts(lambda *given: error_bar(pipeline(*given)), x, *public)
    return {name: number / data for name, number in zip(COLUMNS, found, strict=False)}


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--points", type=int, default=255)
    args = parser.parse_args()
    rows, lines = [], []
    for name, pipeline in (PIPELINES | FURTHER).items():
        if args.quick and name not in QUICK:
            continue
        code = getattr(pipeline, "func", pipeline).__code__
        # Some have public weights for as many records as ``WEIGHTS`` has columns
        points = WEIGHTS.shape[-1] if "WEIGHTS" in code.co_names else args.points
        found, shape = count(pipeline, args.rows, points), f"{args.rows} x {points}"
        bytes_read, unit = found[COLUMNS[0]], "times the data"
        rows.append(
            harness.row(
                "counted", name, "its own", shape, value=bytes_read, unit=unit, detail=found
            )
        )
        cells = [f"{found[column]:.1f}" if column in found else "" for column in COLUMNS]
        lines.append([name, shape, *cells])
        print(f"{len(rows)}: {name}", file=sys.stderr, flush=True)
    table = tables.markdown(["pipeline", "records", *COLUMNS], lines)
    shown = f"Counted, not measured, in multiples of the bytes of the records.\n\n{table}"
    harness.finish("counted", args, rows, [], (), shown, shown=shown)


if __name__ == "__main__":
    main()
