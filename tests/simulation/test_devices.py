"""The same numbers on 1, 2 and 8 devices and on two processes, and from a run that was killed: each
in processes of their own.
"""

import functools
import json
import os
import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from tests.simulation import programs

ROOT = pathlib.Path(__file__).parents[2]


def start(name, *arguments, flags=""):
    # A single space would be the name of a file.
    flags = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.simulation.programs", name, *map(str, arguments)]
    return subprocess.Popen(
        command,
        env=environment,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def result(process, timeout=600):
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


EIGHT = "--xla_force_host_platform_device_count=8"


@pytest.mark.slow
def test_draws_and_estimates_are_the_same_on_1_2_and_8_devices():
    """Of any distribution; fewer rows than devices, rows that do not divide, rows that do: there
    also plain jit on placed rows.
    """
    found = result(start("devices", flags=EIGHT))
    assert found.pop("devices") == 8
    for name, digests in found.items():
        assert len(digests) >= 3, name
        assert len(set(digests)) == 1, f"{name}: {digests}"
    # The digests do see what they digest
    assert len({digests[0] for digests in found.values()}) == len(found)


@functools.cache
def alone():
    """The run of this process, on its one device and without an interruption."""
    return programs.run(programs.data())


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    found = [result(process) for process in [start("process", address, i, 2) for i in (0, 1)]]
    assert [part["rows"] for part in found] == [5, 6]
    assert all(part["same"] for part in found)
    np.testing.assert_array_equal(np.concatenate([part["mean"] for part in found]), alone().mean)
    np.testing.assert_array_equal(
        np.concatenate([part["counts"] for part in found]), alone().counts
    )
    draws = jax.jit(lambda key, data: programs.plain_noise(data).sample(key, (3,)))(
        jax.random.key(programs.KEY), programs.data()
    )
    joined = np.concatenate([np.asarray(part["draws"], np.float32) for part in found], axis=1)
    np.testing.assert_array_equal(joined, draws)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_numbers_of_an_uninterrupted_one(tmp_path):
    path = tmp_path / "run"
    for at in (2000, 3000):  # killed twice
        process = start("killed", path, at)
        process.communicate(timeout=600)
        assert process.returncode == -9
    seen = []
    resumed = programs.run(programs.data(), checkpoint=path, progress=seen.append)
    # The chunk that ended at 3000 was done, but not yet saved
    assert [progress.done for progress in seen] == [3000, 3500]
    assert programs.estimate_sha(resumed) == programs.estimate_sha(alone())


@pytest.mark.optimized
@pytest.mark.slow
def test_sorting_on_eight_devices_does_not_hang():
    assert result(start("stress", 64, 50_001, 4, flags=EIGHT)) == {"different": 1}
