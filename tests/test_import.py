"""What imports do: ``import dpjax`` next to nothing until a name is asked for, and host code never
imports JAX or SciPy, nor before a table is read what reads it.
"""

import json
import subprocess
import sys

HOST = {
    "packages": "import dpjax.accounting, dpjax.checks, dpjax.display, dpjax.frames, dpjax.release",
    "budgets": (
        "import os, tempfile\n"
        "from dpjax import accounting\n"
        "each = accounting.Guarantee(0.1, 0.1, 'swap')\n"
        "accounting.PrivacyFilter(1.0, 1e-6, 'swap').charge(each)\n"
        "(2 * each).epsilon_at(1e-6)\n"
        "accounting.epsilon_per_query(count=4, epsilon=1.0, delta=1e-6)\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    ledger = accounting.Ledger(os.path.join(folder, 'people.ledger'), epsilon=1.0)\n"
        "    ledger.charge(accounting.Guarantee(0.1, 0.1, 'add_remove'))"
    ),
    "releases": (
        "from dpjax import frames, release\n"
        "grid = {'lower': 0, 'upper': 9, 'resolution': 1}\n"
        "public = {'epsilon': 1.0, 'neighbors': 'add_remove'}\n"
        "for mechanism in ('permute_and_flip', 'piecewise_laplace'):\n"
        "    float(release.Median(**grid).release([1, 2, 3], **public, mechanism=mechanism))\n"
        "release.Quantiles([0.25, 0.5], **grid).release([1, 2, 3], **public)\n"
        "release.ConfidenceInterval(0.5, **grid, public_n=900).levels(1.0, 'swap')\n"
        "release.Mode((1, 2)).release([1, 2, 3], **public).to_json()\n"
        "release.Histogram(edges=(0, 2, 4)).release([1, 2, 3], **public)\n"
        "frames.PrivateGroups(1.0, 1e-6).threshold"
    ),
    "what a release draws from": (
        "from dpjax import release\n"
        "median = release.Median(lower=0, upper=9, resolution=1)\n"
        "found = median.distribution([1, 2, 3], epsilon=1.0, neighbors='swap')\n"
        "found.mean_abs_error(2), found.interval(0.9), found.sample(0, 3), repr(found)"
    ),
}
TABLES = {
    "a frame": (
        "import polars\n"
        "from dpjax import frames, release\n"
        "columns = {'x': release.Median(lower=0, upper=9, resolution=1)}\n"
        "public = {'epsilon': 1.0, 'neighbors': 'swap'}\n"
        "frames.release(polars.DataFrame({'x': [1, 2]}), columns, **public)\n"
        "repr(frames.simulate(0, polars.DataFrame({'x': [1, 2]}), columns, **public))"
    ),
    "a file": (
        "import os, pathlib, sys, tempfile\n"
        "from dpjax.command_line.main import main\n"
        "shown, sys.stdout = sys.stdout, open(os.devnull, 'w')\n"
        "public = '--lower 0 --upper 9 --resolution 1 --neighbors swap --epsilon 1'.split()\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    file = pathlib.Path(folder, 'x.csv')\n"
        "    file.write_text('x\\n1\\n2\\n')\n"
        "    assert main(['release', str(file), '--column', 'x', *public]) == 0\n"
        "    assert main(['simulate', str(file), '--column', 'x', *public]) == 0\n"
        "sys.stdout = shown"
    ),
}
# Each program runs in a child of one process, that has NumPy already.
CHILDREN = """
import json, os, sys, numpy
for name, program in json.load(sys.stdin).items():
    child = os.fork()
    if child == 0:
        exec(program, {})
        print(json.dumps([name, *{module.partition(".")[0] for module in sys.modules}]), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(name)
"""
READ_TABLES = {"narwhals", "polars", "pyarrow"}
HEAVY = READ_TABLES | {"jax", "jaxlib", "scipy", "pandas", "matplotlib", "dp_accounting"}


def heavy_after(programs):
    """The heavy packages that are imported after each program."""
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN],
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: HEAVY & {*modules} for name, *modules in lines}


def test_host_code_imports_no_jax():
    """The control: what computes arrays does."""
    needed = {name: set() for name in HOST} | dict.fromkeys(TABLES, READ_TABLES)
    needed["budgets"] = {"scipy"}  # its roots
    found = heavy_after(HOST | TABLES | {"arrays": "import dpjax.distributions"})
    assert {"jax", "jaxlib"} <= found.pop("arrays")
    assert found == needed


def test_importing_leaves_packages_for_later_and_compiles_nothing():
    program = (
        "import sys, dpjax, dpjax.command_line.main\n"
        "assert 'jax' not in sys.modules and 'numpy' not in sys.modules\n"
        "assert callable(dpjax.median) and 'jax' in sys.modules\n"
        "later = {'auditing', 'bounds', 'frames', 'metric_privacy', 'release', 'simulation'}\n"
        "assert not [name for name in later if 'dpjax.' + name in sys.modules]\n"
        "from dpjax import simulate, sharded_sample\n"
        "assert dpjax.simulation.simulate is simulate\n"
        "assert dpjax.release.Release and dpjax.auditing.worst_neighbor\n"
    )
    command = ["env", "JAX_LOG_COMPILES=1", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "Compiling" not in done.stderr
