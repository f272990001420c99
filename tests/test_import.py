"""What imports do: ``import dpjax`` next to nothing until a name is asked for, and host code never
imports JAX or SciPy.
"""

import os
import subprocess
import sys

import pytest

import dpjax

HOST = {
    "the package": "import dpjax",
    "checks": "from dpjax.checks import exact, host_floats, is_jax_array, is_traced, "
    "refuse_frame, resolution, static_integer",
    "guarantees": "from dpjax.accounting import Composition, Guarantee, PrivacyOdometer, "
    "poisson_subsample, to_dp_event",
    "budgets": "from dpjax.accounting import epsilon_per_query; epsilon_per_query(count=4, "
    "epsilon=1.0, delta=1e-6)",
    "a filter at work": (
        "from dpjax.accounting import Guarantee, PrivacyFilter\n"
        "each = Guarantee(0.1, 0.1, 'swap')\n"
        "PrivacyFilter(1.0, 1e-6, 'swap').charge(each)\n"
        "(2 * each).epsilon_at(1e-6)"
    ),
    "a ledger at work": (
        "import os, tempfile\n"
        "from dpjax.accounting import Guarantee, Ledger\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    Ledger(os.path.join(folder, 'people.ledger'), epsilon=1.0).charge(Guarantee(0.1, "
        "0.1, 'add_remove'))"
    ),
    "display": "import dpjax.display",
    "ranks": "from dpjax.several_quantiles.ranks import ranks_of_quantile as f; f(0.1, "
    "definition='lower', neighbors='swap')",
    "asked": "from dpjax.several_quantiles.levels import levels_of, rank_steps; "
    "rank_steps(levels_of([0.1, '1/3']), 9, 'records')",
    "far records": "from dpjax.several_quantiles.far_records import far_records",
    "slots": "from dpjax.several_quantiles import slots",
    "halving": "from dpjax.several_quantiles import halving",
    "exact quantiles": "from dpjax.release import exact_chain, exact_joint, exact_nested, "
    "exact_recursive",
    "interval bound": "from dpjax.several_quantiles.interval import plan_of; plan_of(1.0, 0, 9, "
    "1, 'swap', 1, 2)",
    "host bisection": "import dpjax.numerics.host_bisection",
    "binomial": "import dpjax.numerics.binomial",
    "frames": "from dpjax import frames; frames.PrivateGroups(1.0, 1e-6).threshold",
    "releases": "from dpjax import release",
    "a release": (
        "from dpjax import release\n"
        "public = {'lower': 0, 'upper': 9, 'resolution': 1, 'epsilon': 1.0, 'neighbors': "
        "'add_remove'}\n"
        "for mechanism in ('piecewise_laplace', 'inverse_sensitivity', 'permute_and_flip'):\n"
        "    float(release.median([1, 2, 3], **public, mechanism=mechanism))\n"
        "release.joint_quantiles([1, 2, 3], [0.25, 0.5], max_records=9, **public)\n"
        "release.recursive_quantiles([1, 2, 3], [0.25, 0.5], **public)\n"
        "release.nested_quantiles([1, 2, 3], [0.25, 0.5, 0.75], **public)\n"
        "release.mode([1, 2, 3], candidates=(1, 2), epsilon=1.0, neighbors='swap').to_json()\n"
        "release.histogram([1, 2, 3], edges=(0, 2, 4), epsilon=1.0)"
    ),
    "what a release draws from": (
        "from dpjax import release\n"
        "median = release.Statistic.from_json(release.Median(0, 9, 1).to_json())\n"
        "found = release.exact_distribution(median, [1, 2, 3], epsilon=1.0, neighbors='swap')\n"
        "found.mean_abs_error(2), found.interval(0.9), found.sample(0, 3), repr(found)"
    ),
}


def modules_after(program):
    """The packages outside the standard library that a new process has imported after a program."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.split()} & {
        "jax",
        "jaxlib",
        "scipy",
        "numpy",
    }


@pytest.mark.parametrize("program", HOST.values(), ids=HOST)
def test_host_code_imports_no_jax(program):
    assert modules_after(program) <= {"numpy"}


@pytest.mark.parametrize(
    "program",
    [
        "import dpjax.distributions",
        "from dpjax.accounting import zcdp_of",
        "from dpjax.checks import float_array",
        "from dpjax.statistics.sorting import sort_rows",
        "from dpjax.release import metric_laplace",
    ],
)
def test_what_computes_arrays_imports_jax(program):
    """The control: where JAX is imported, it is seen."""
    assert "jax" in modules_after(program)


def test_importing_compiles_nothing_and_leaves_packages_for_later():
    program = (
        "import sys, dpjax, dpjax.command_line.main\n"
        "assert 'jax' not in sys.modules and 'numpy' not in sys.modules\n"
        "assert callable(dpjax.median) and 'jax' in sys.modules\n"
        "later = {'auditing', 'bounds', 'frames', 'metric_privacy', 'release', 'simulation'}\n"
        "assert not [name for name in later if 'dpjax.' + name in sys.modules]\n"
        "assert later <= set(dir(dpjax)) and 'simulate' in dir(dpjax)\n"
        "from dpjax import simulate, sharded_sample\n"
        "assert dpjax.simulation.simulate is simulate and dpjax.release.Release and "
        "dpjax.auditing.worst_neighbor\n"
    )
    environment = os.environ | {"JAX_LOG_COMPILES": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Compiling" not in done.stderr


def test_everything_public_is_there():
    assert "unbounded_quantile" in dpjax.__all__
    assert "sum" in dir(dpjax)
    for name in dir(dpjax):
        assert getattr(dpjax, name) is not None
        assert name in dir(dpjax)
