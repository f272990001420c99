"""What ``import dpjax`` does: next to nothing, until a name is asked for; that compiles nothing, and leaves packages for later."""

import os
import subprocess
import sys

import dpjax


def test_importing_compiles_nothing_and_leaves_packages_for_later():
    program = (
        "import sys, dpjax, dpjax.command_line.main\n"
        "assert 'jax' not in sys.modules and 'numpy' not in sys.modules\n"
        "assert callable(dpjax.median) and 'jax' in sys.modules\n"
        "later = {'auditing', 'bounds', 'frames', 'metric_privacy', 'release', 'simulation'}\n"
        "assert not [name for name in later if 'dpjax.' + name in sys.modules]\n"
        "assert later <= set(dir(dpjax)) and 'simulate' in dir(dpjax)\n"
        "from dpjax import simulate, sharded_sample\n"
        "assert dpjax.simulation.simulate is simulate and dpjax.release.Release and dpjax.auditing.worst_neighbor\n"
    )
    environment = os.environ | {"JAX_LOG_COMPILES": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Compiling" not in done.stderr


def test_everything_public_is_there():
    assert "unbounded_quantile" in dpjax.__all__
    for name in dpjax.__all__:
        assert getattr(dpjax, name) is not None
        assert name in dir(dpjax)
