"""What `import dpjax` costs beside `import jax`: fresh processes in turn, the ratio pair by pair. Prints JSON.

python benchmarks/import_time.py [--pairs 9]
"""

import argparse
import json
import statistics
import subprocess
import sys
import time


def seconds(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9)
    pairs = parser.parse_args().pairs
    codes = {"jax": "import jax, jax.numpy", "dpjax": "import dpjax"}
    for code in codes.values():
        seconds(code)  # warm the file cache
    times = [{name: seconds(code) for name, code in codes.items()} for _ in range(pairs)]
    print(
        json.dumps(
            {
                "benchmark": "import_time",
                "python": sys.version.split()[0],
                "pairs": pairs,
                "jax_seconds_median": round(statistics.median(t["jax"] for t in times), 3),
                "dpjax_seconds_median": round(statistics.median(t["dpjax"] for t in times), 3),
                "ratio_median": round(statistics.median(t["dpjax"] / t["jax"] for t in times), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
