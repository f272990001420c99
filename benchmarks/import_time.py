"""What `import dpjax` costs beside `import jax`: fresh processes in turn, and the ratio pair by
pair.

python benchmarks/import_time.py [--repeats 9] [--quick] [--out FILE]
"""

import functools
import subprocess
import sys

import harness


def main() -> None:
    args = harness.parser(__doc__).parse_args()
    repeats = args.repeats or (1 if args.quick else 9)
    works = {
        name: functools.partial(subprocess.run, [sys.executable, "-c", name], check=True)
        for name in ("import jax", "import dpjax")
    }
    compared = {"import dpjax": ("import jax", None)}
    shape = f"{repeats} fresh processes"
    rows = harness.in_turns("import", works, compared, shape, repeats)
    harness.finish("import_time", args, rows, [])


if __name__ == "__main__":
    main()
