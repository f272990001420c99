"""What `import dpjax` costs beside `import jax`: fresh processes in turn, and the ratio pair by
pair.

python benchmarks/import_time.py [--repeats 9] [--quick] [--out FILE]
"""

import statistics
import subprocess
import sys
import time

import harness
from harness import NO_RELATION, row

CODES = {"import jax": "import jax, jax.numpy", "import dpjax": "import dpjax"}


def seconds(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main() -> None:
    args = harness.parser(__doc__).parse_args()
    repeats = args.repeats or (1 if args.quick else 9)
    for code in CODES.values():
        seconds(code)  # warm the file cache
    turns = [{name: seconds(code) for name, code in CODES.items()} for _ in range(repeats)]
    times = {name: [turn[name] for turn in turns] for name in CODES}
    ratios = [turn["import dpjax"] / turn["import jax"] for turn in turns]
    compared = {
        "ratio": statistics.median(ratios),
        "ratio_spread": harness.spread(ratios),
        "reference": "import jax",
    }
    rows = [
        row(
            *("import", name, NO_RELATION, f"{repeats} fresh processes"),
            value=statistics.median(times[name]),
            unit="s",
            seconds=harness.spread(times[name]),
            repeats=repeats,
            **(compared if name == "import dpjax" else {}),
        )
        for name in CODES
    ]
    harness.finish("import_time", args, rows, [])


if __name__ == "__main__":
    main()
