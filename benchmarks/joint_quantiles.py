"""Joint quantiles: one jitted call from raw records, and its growth when m, n, terms or datasets
double.

python benchmarks/joint_quantiles.py [--quick] [--repeats 3] [--out FILE]

The first rows are a draw of nine deciles of every dataset from raw records, with n private and with
a public n. Then each size is doubled by itself. All programs run in turns, and a ratio is the
median over turns of the seconds for a dataset, against the program with half the size: 2 is linear.
In m the cost is quadratic at last, for the quantiles of a slot are counted in runs; the part that
scans the slots is linear. ``seconds to compile`` are those of the first call, before it runs.
"""

import statistics
from typing import Any

import jax
import numpy as np

import dpjax
import harness
from harness import Built, row

SMALL, FULL = (4, 3, 63, 8), (64, 4, 500, 16)  # datasets, m, n, terms


def built(datasets: int, m: int, n: int, terms: int, public: bool = False) -> Built:
    """Draws of m levels of each dataset of n records."""
    x = np.random.default_rng(0).lognormal(10.5, 0.8, (datasets, n)).astype(np.float32)
    levels = [f"{k}/{m + 1}" for k in range(1, m + 1)]
    known: dict[str, Any] = {"public_n": n} if public else {"terms": terms}

    def draw(key: jax.Array, x: jax.Array) -> jax.Array:
        asked = dpjax.quantiles(x, levels, lower=0, upper=1e6, neighbors="add_remove")
        return dpjax.joint_quantiles(asked, 1.0, **known).sample(key)

    return harness.build_jax(draw, x, units=datasets)


def main() -> None:
    args = harness.parser(__doc__).parse_args()
    repeats = args.repeats or (1 if args.quick else 3)
    sizes = dict(zip(("datasets", "m", "n", "terms"), SMALL if args.quick else FULL, strict=True))
    datasets, n = (232, 63) if args.quick else (1000, 1000)  # several chunks of rows both
    deciles = {"n private": False, "n public": True}
    programs = {name: built(datasets, 9, n, 32, public) for name, public in deciles.items()}
    times = harness.interleave(programs, repeats)
    rows = [
        _row(
            "deciles from raw records", name, f"{datasets} x {n}, m 9", programs[name], times[name]
        )
        for name in programs
    ]
    doubled = {name: {**sizes, name: 2 * size} for name, size in sizes.items()}
    programs = {"base": built(**sizes), **{name: built(**more) for name, more in doubled.items()}}
    times = harness.interleave(programs, repeats)
    for name, size in sizes.items():
        shape = ", ".join(f"{other} {doubled[name][other]}" for other in sizes)
        ratios = [a / b for a, b in zip(times[name], times["base"], strict=True)]
        # Times are those of a dataset
        grown = statistics.median(ratios) * (2 if name == "datasets" else 1)
        rows.append(
            _row(
                f"growth with {name}",
                f"{name} {size} to {2 * size}",
                shape,
                programs[name],
                times[name],
                ratio=grown,
            )
        )
    harness.finish("joint_quantiles", args, rows, [])


def _row(
    question: str, name: str, shape: str, program: Built, seconds: list[float], **rest: Any
) -> dict[str, Any]:
    costs = {"compile_seconds": program.compile_seconds, "temporary_bytes": program.temporary_bytes}
    reference = {"reference": "half the size"} if rest else {}
    value = statistics.median(seconds)
    return row(
        question,
        name,
        "add_remove",
        shape,
        value=value,
        unit="s a dataset",
        **costs,
        **rest,
        **reference,
    )


if __name__ == "__main__":
    main()
