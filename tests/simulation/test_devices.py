"""The same numbers on one, three and four devices, and from a run that was killed on four: in one
process of its own.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

from tests.simulation import programs

ROOT = pathlib.Path(__file__).parents[2]
FOUR = "--xla_force_host_platform_device_count=4"


@pytest.mark.slow
def test_draws_are_the_same_on_several_devices_and_a_killed_run_goes_on_on_another(tmp_path):
    path = tmp_path / "run.npz"
    flags = f"{os.environ.get('XLA_FLAGS', '')} {FOUR}".strip()
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.programs", str(path)],
        env=environment,
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    found = json.loads(done.stdout)
    for name, distribution in programs.PIPELINES.items():
        draw = jax.jit(lambda key, make=distribution: make(programs.DATA).sample(key, (200,)))
        here, other = draw(programs.KEY), draw(jax.random.key(8))
        for count in (3, 4):
            draws = found["draws"][f"{name} on {count}"]
            np.testing.assert_allclose(draws, here, rtol=1e-5, atol=1e-5)
        assert not np.allclose(draws, other, rtol=1e-5, atol=1e-5)  # the control
    assert found["rows"] == [2, 2, 2]
    assert found["sorted"] == 1

    seen = []
    resumed = programs.run(checkpoint=path, progress=seen.append)
    # The chunk that ended at 600 was done, but not yet saved
    assert [progress.done for progress in seen] == [600, 700]
    alone = programs.run()
    np.testing.assert_allclose(resumed.mean, alone.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(resumed.counts, alone.counts)
    assert not np.allclose(programs.run(draws=600).mean, alone.mean, rtol=1e-5, atol=1e-6)
