"""The same words give the same cells on eight devices as on one, in a process of its own."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from dpjax.release.sampler import certified_draw
from dpjax.release.tables import public_tables
from tests.release.test_sampler import WORDS, random_profile
rng = np.random.default_rng(0)
profile, tables = random_profile(rng, 64, 40, 2**20), public_tables(0.7, levels=41)
words = rng.integers(0, 2**32, (WORDS, 64), dtype=np.uint32)
alone = certified_draw(tables, *profile, words)
rows = NamedSharding(Mesh(np.array(jax.devices()), ("i",)), P("i"))
columns = NamedSharding(rows.mesh, P(None, "i"))
spread = [jax.device_put(part, by) for part, by in ((profile.lower, rows), (profile.upper, rows), (words, columns))]
spread = certified_draw(tables, *spread)
assert len(jax.devices()) == 8
np.testing.assert_array_equal(alone.cell, spread.cell)
np.testing.assert_array_equal(alone.certified, spread.certified)
assert np.asarray(alone.certified).all()
print("the same")
"""


@pytest.mark.slow
def test_eight_devices():
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, cwd=ROOT, text=True, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "the same"
