"""What a person with a table waits for: first calls in new processes, and millions of rows in many
groups.

python benchmarks/tables_of_people.py [--rows 3000000] [--groups 100000] [--repeats 9] [--quick]
[--out FILE]

First calls are new processes with an empty home, and their figure is the processor time of the
whole process, against one that only imports what the bar names. Many groups are timed in one
process, in turns with pandas' own medians of the groups. Needs pandas and the extra frames.
"""

import argparse
import functools
import os
import resource
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

import harness

FIRST, MANY = "first call", "many groups"
BOUNDS, PUBLIC = "lower=0, upper=120, resolution=1", "epsilon=1.0, neighbors='add_remove'"
FRAME = (
    "import numpy as np, pandas as pd; g = np.random.default_rng(0); "
    "from dpjax import frames, release; people = pd.DataFrame({'age': g.integers(0, 100, 20000), "
    f"'group': g.integers(0, 20, 20000)}}); ages = {{'age': release.Median({BOUNDS})}}; "
)
NO_JAX = "; import sys; assert 'jax' not in sys.modules"
OPTIONS = "--column age --lower 0 --upper 120 --resolution 1 --neighbors add_remove --epsilon 1"


def programs(path: str) -> dict[str, tuple[list[str], str, float]]:
    """Each first call: the arguments of Python, what it is compared with, and how many times that
    it may take.
    """
    median = (
        "from dpjax import release; "
        f"release.Median({BOUNDS}).release([31, 40, 28, 35, 52, 33, 47, 29, 38], {PUBLIC})"
    )
    groups = f"people, ages, by='group', groups=range(20), {PUBLIC})"
    return {
        "Median.release of nine numbers": (["-c", median + NO_JAX], "import numpy", 3),
        "dpjax release, 20,000 lines": (
            ["-m", "dpjax", "release", path, *OPTIONS.split()],
            "one second",
            0.6,
        ),
        "dpjax simulate, 20,000 lines": (
            ["-m", "dpjax", "simulate", path, *OPTIONS.split()],
            "one second",
            0.6,
        ),
        "frames.release, 20,000 rows, 20 groups": (
            ["-c", FRAME + "frames.release(" + groups + NO_JAX],
            "import pandas",
            3,
        ),
        "frames.simulate, 20,000 rows, 20 groups": (
            ["-c", FRAME + "frames.simulate(0, " + groups + NO_JAX],
            "import pandas",
            3,
        ),
    }


def processor_seconds(arguments: list[str], home: str) -> float:
    """The processor time of a new process that must end well."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    variables = os.environ | {"HOME": home, "XDG_CACHE_HOME": os.path.join(home, "cache")}
    subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=variables
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_calls(repeats: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "people.csv")
        ages = np.random.default_rng(0).integers(18, 90, 20_000)
        with open(path, "w") as file:
            file.write("age\n" + "\n".join(map(str, ages.tolist())) + "\n")
        asked = programs(path)
        works = {name: ["-c", name] for name in ("import numpy", "import pandas")}
        works |= {name: arguments for name, (arguments, *_) in asked.items()}
        compared = {name: (reference, bar) for name, (_, reference, bar) in asked.items()}
        clock = functools.partial(processor_seconds, home=folder)
        shape = f"{repeats} new processes"
        unit = "s of processor time"
        return harness.in_turns(FIRST, works, compared, shape, repeats, clock, unit)


def many_groups(size: int, groups: int, repeats: int) -> list[dict[str, Any]]:
    """Releases, private groups and simulations by group, each turn beside pandas' medians."""
    import pandas as pd

    from dpjax import frames, release

    generator = np.random.default_rng(1)
    people = pd.DataFrame(
        {"age": generator.integers(0, 100, size), "group": generator.integers(0, groups, size)}
    )
    ages = {"age": release.Median(lower=0, upper=120, resolution=1)}
    public: Any = {"epsilon": 1.0, "neighbors": "add_remove", "by": "group"}
    tenth = public | {"epsilon": 0.1}
    unknown = frames.PrivateGroups(epsilon=1.0, delta=1e-6)
    works = {
        "pandas, groupby(...).median()": lambda: people.groupby("group")["age"].median(),
        "frames.release": lambda: frames.release(people, ages, groups=range(groups), **public),
        "frames.release, private groups": lambda: frames.release(
            people, ages, groups=unknown, **public
        ),
        "frames.simulate": lambda: frames.simulate(0, people, ages, **public),
        "frames.release, epsilon 0.1": lambda: frames.release(
            people, ages, groups=range(groups), **tenth
        ),
        "frames.simulate, epsilon 0.1": lambda: frames.simulate(0, people, ages, **tenth),
    }
    pandas, *ours = works
    compared = {name: (pandas, 15 if "0.1" in name else 10) for name in ours}
    return harness.in_turns(MANY, works, compared, f"{size} rows, {groups} groups", repeats)


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--groups", type=int, default=100_000)
    args = parser.parse_args()
    if args.quick:
        args.rows, args.groups = 30_000, 1000
    return args


def main() -> None:
    args = arguments()
    repeats = args.repeats or (1 if args.quick else 9)
    rows = first_calls(repeats)
    rows += many_groups(args.rows, args.groups, max(repeats // 3, 1))
    harness.finish("tables_of_people", args, rows, [])


if __name__ == "__main__":
    main()
