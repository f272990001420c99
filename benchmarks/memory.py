"""10^9 draws in bounded memory: the peak resident memory of a fresh process, and draws per second.

python benchmarks/memory.py [--draws 10000000] [--rows 100] [--points 1001] [--chunk 1000000]
[--quick] [--out FILE]

``dpjax.simulation.simulate`` runs in a process of its own, once small (imports, compilation) and
once in full. The absolute peak is what the bar is about; what lies above the resident memory after
the small run is what the draws themselves need. On a CPU; on an accelerator the draws lie in its
own memory, which this does not see.
"""

import argparse
import importlib.util
import json
import pathlib
import resource
import subprocess
import sys
import time
from typing import Any

import jax

import harness
from harness import Case, row

GIGABYTE = 1e9


def peak() -> float:
    """The largest resident memory of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def resident() -> float:
    """The resident memory of this process now, in bytes (where the system does not say: the largest
    so far).
    """
    try:
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak()
    return pages * resource.getpagesize()


def measure(
    simulate: Any, *, rows: int, points: int, draws: int, chunk: int, relation: str
) -> dict[str, Any]:
    """Simulate twice, small and in full, in this process."""
    case = Case(rows, points, relation)
    data = jax.numpy.asarray(case.data)
    imported = resident()
    jax.block_until_ready(
        simulate(
            jax.random.key(0), case.distribution, data, draws=min(draws, 2 * chunk), chunk=chunk
        ).mean
    )
    before, before_peak = resident(), peak()
    start = time.perf_counter()
    result = simulate(jax.random.key(1), case.distribution, data, draws=draws, chunk=chunk)
    mean, standard_error = jax.block_until_ready((result.mean, result.standard_error))
    seconds = time.perf_counter() - start
    errors = jax.numpy.abs(mean - case.distribution(data).mean()) / standard_error
    return {
        "seconds": seconds,
        "draws": rows * draws,
        "resident_after_import": imported,
        "resident_after_compile": before,
        "peak_before": before_peak,
        "peak": peak(),
        "standard_errors_off": float(jax.numpy.max(errors)),
        "counted": bool(jax.numpy.all(jax.numpy.asarray(result.count) == draws)),
    }


def rows_of(found: dict[str, Any], args: argparse.Namespace) -> list[dict]:
    shape = f"{args.rows} x {args.points}, {found['draws']:.2g} draws, chunks of {args.chunk}"
    # The exact mean is a float32 closed form, so a few standard errors at 10^7 draws can be
    # rounding; 8 is a wrong distribution.
    if not found["counted"] or not found["standard_errors_off"] < 8:
        return [
            row(
                "memory",
                "dpjax.simulation",
                args.relation,
                shape,
                status="rejected: wrong mean or count",
                **found,
            )
        ]
    common = {"relation": args.relation, "shape": shape, "compile_seconds": None}
    above = found["peak"] - found["resident_after_compile"]
    full = found["draws"] >= 1e9
    return [
        row(
            "memory, peak resident",
            "dpjax.simulation",
            **common,
            value=found["peak"] / GIGABYTE,
            unit="GB",
            ratio=found["peak"] / (2 * GIGABYTE),
            reference="2 GB",
            bar={"at_most": 1} if full else None,
            reach={"at_most": 0.5} if full else None,
            note="" if full else "the bar is for 10^9 draws",
            detail=found,
        ),
        row(
            "memory, peak above compiled",
            "dpjax.simulation",
            **common,
            value=above / GIGABYTE,
            unit="GB",
        ),
        row(
            "memory, time",
            "dpjax.simulation",
            **common,
            value=found["seconds"] / found["draws"],
            unit="s a draw",
        ),
    ]


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--points", type=int, default=1001)
    parser.add_argument("--draws", type=int, default=10_000_000, help="for each dataset")
    parser.add_argument(
        "--chunk", type=int, default=10_000, help="draws for each dataset held at a time"
    )
    parser.add_argument("--relation", default="add_remove")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.quick:
        args.rows, args.points, args.draws, args.chunk = 4, 101, 400_000, 100_000
    sizes = {name: getattr(args, name) for name in ("rows", "points", "draws", "chunk", "relation")}
    if args.child:
        from dpjax.simulation import simulate

        print(json.dumps(measure(simulate, **sizes)))
        return
    if importlib.util.find_spec("dpjax.simulation") is None:
        shape = f"{args.rows} x {args.points}, {args.rows * args.draws:.2g} draws"
        rows = [
            row(
                "memory, peak resident",
                "dpjax.simulation",
                args.relation,
                shape,
                status="not there yet",
            )
        ]
    else:
        flags = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
        child = subprocess.run(
            [sys.executable, __file__, "--child", *flags],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        rows = rows_of(json.loads(child.stdout.splitlines()[-1]), args)
    harness.finish("memory", args, rows, [])


if __name__ == "__main__":
    main()
