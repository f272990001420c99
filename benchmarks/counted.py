"""How often each pipeline reads its data on an accelerator, and how much memory it needs beside
them: counted, not measured.

python benchmarks/counted.py [--rows 64] [--points 255] [--quick] [--write] [--out FILE]

Every pipeline of ``tests/contracts/pipelines.py`` is compiled, once for a draw from each row and
once for its error bar, in the way that other devices than the CPU take, but by XLA's compiler for
the CPU: no accelerator is needed, and nothing is run. Its count of the bytes that all steps read
and write, and the temporaries that it asks for, are divided by the bytes of the records. A compiler
for a GPU fuses other steps, so these are no times, and a sort counts as one step whatever it costs.
``--write`` puts the table into ``benchmarks/README.md``.
"""

import pathlib
import sys
from typing import Any

import jax
import numpy as np

import harness

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # the pipelines are those that are tested

from tests.contracts.pipelines import FURTHER, PIPELINES, WEIGHTS  # noqa: E402
from tests.support.devices import as_on_other_devices  # noqa: E402

BEGIN, END = "<!-- counted: written by counted.py --write -->", "<!-- counted: end -->"
OFTEN = 2  # reads of the data: the pipelines with no more are named
QUICK = (
    "plm of the median",
    "inv of a quantile",
    "plm of a mean",
    "exponential",
    "laplace",
    "plm on a resolution",
)
COLUMNS = ("draw: bytes", "draw: temporaries", "error bar: bytes", "error bar: temporaries")


def error_bar(distribution: Any) -> Any:
    """The mean absolute error around 0, or what a distribution has in its place; None where it has
    nothing.
    """
    if hasattr(distribution, "marginals"):
        return distribution.marginals().mean_abs_error(0.0)
    if hasattr(distribution, "mean_norm_error"):
        return distribution.mean_norm_error()
    return distribution.mean_abs_error(0.0) if hasattr(distribution, "mean_abs_error") else None


def counts(program: Any, *given: Any) -> dict[str, float]:
    """Bytes accessed and bytes of temporaries, as the compiler counts them."""
    with as_on_other_devices():
        compiled = jax.jit(program).lower(*given).compile()
    analysis, memory = compiled.cost_analysis(), compiled.memory_analysis()
    return {
        "bytes": float(analysis["bytes accessed"]),
        "temporaries": float(memory.temp_size_in_bytes),
    }


def count(pipeline: Any, rows: int, points: int) -> dict[str, float]:
    """Multiples of the bytes of the records, for one draw from each row and for the error bar."""
    x, number = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((rows, points), ()))
    key, public, data = jax.random.key(0), (number,) * 3, 4 * rows * points
    found = {"draw": counts(lambda key, *given: pipeline(*given).sample(key), key, x, *public)}
    if jax.eval_shape(lambda *given: error_bar(pipeline(*given)), x, *public) is not None:
        found["error bar"] = counts(lambda *given: error_bar(pipeline(*given)), x, *public)
    return {
        f"{of}: {what}": number / data
        for of, numbers in found.items()
        for what, number in numbers.items()
    }


def takes(pipeline: Any, points: int) -> bool:
    """Whether a pipeline takes so many records: some have public weights for as many as ``WEIGHTS``
    has columns.
    """
    return points <= WEIGHTS.shape[-1] or "WEIGHTS" not in pipeline.__code__.co_names


def table(rows: list[dict[str, Any]]) -> str:
    lines = [["pipeline", "records", *COLUMNS]]
    lines += [
        [line["contestant"], line["shape"], *(shown(line["detail"].get(name)) for name in COLUMNS)]
        for line in rows
    ]
    lines.insert(1, ["---", "---", *["---:"] * len(COLUMNS)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def shown(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def text(rows: list[dict[str, Any]]) -> str:
    rest = [line["contestant"] for line in rows if round(line["detail"]["draw: bytes"], 1) <= OFTEN]
    return "\n\n".join(
        [
            "**Counted, not measured**, in multiples of the bytes of the records; programs as "
            f"other devices than the CPU get them, compiled for the CPU by JAX {jax.__version__}. "
            "Graphs and metrics have a number for every pair of records.",
            table(rows),
            f"By this count, bytes for one draw are at most {OFTEN} times those of the records "
            f"in: {', '.join(rest) or 'none'}.",
        ]
    )


def write(found: str) -> None:
    """Replace what stands between the two comments in the README of this folder."""
    path = HERE / "README.md"
    before, rest = path.read_text().split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n\n{found}\n\n{END}{rest.split(END)[1]}")


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--points", type=int, default=255)
    parser.add_argument(
        "--write", action="store_true", help="write the table into the README of this folder"
    )
    args = parser.parse_args()
    names = QUICK if args.quick else [*PIPELINES, *FURTHER]
    rows = []
    for name in names:
        pipeline = (PIPELINES | FURTHER)[name]
        points = args.points if takes(pipeline, args.points) else WEIGHTS.shape[-1]
        found = count(pipeline, args.rows, points)
        shape = f"{args.rows} x {points}"
        rows.append(
            harness.row(
                "counted",
                name,
                "its own",
                shape,
                value=found["draw: bytes"],
                unit="times the data",
                detail=found,
            )
        )
        print(f"{len(rows)} of {len(names)}: {name}", file=sys.stderr, flush=True)
    if args.write:
        write(text(rows))
    harness.finish("counted", args, rows, [], table=text(rows))


if __name__ == "__main__":
    main()
