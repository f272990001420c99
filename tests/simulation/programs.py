"""What the tests run, also in a process of its own with four devices, which is killed.

`python -m tests.simulation.programs FILE` prints one line of JSON and dies while it saves to FILE.
"""

import json
import os
import signal
import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import Finite, median, piecewise_laplace, sharded_sample, simulate

KEY = jax.random.key(7)
CHUNK = 200
DATA = {"x": np.random.default_rng(0).normal(size=(6, 101)).astype(np.float32)}


def medians(data):
    profile = median(data["x"], lower=-4, upper=4, neighbors="swap")
    return piecewise_laplace(profile, 1.0)


def choices(data):
    """Two values of epsilon for each row."""
    costs = jnp.abs(data["x"][:, None, :5])
    return Finite(jnp.arange(5.0), costs, jnp.array([0.5, 2.0]))


PIPELINES = {"medians": medians, "choices": choices}


def run(draws=700, **options):
    return simulate(KEY, medians, DATA, draws=draws, chunk=CHUNK, bins=[-0.5, 0.0, 0.5], **options)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scaled:
    """A distribution of somebody else: Laplace noise of any scale."""

    loc: jax.Array
    scale: jax.Array

    @property
    def batch_shape(self):
        return self.loc.shape

    def sample(self, key, shape=()):
        noise = jax.random.laplace(key, (*shape, *self.loc.shape), self.loc.dtype)
        return self.loc + self.scale * noise


def unit(x):
    return Scaled(x, jnp.ones_like(x))


def on_devices():
    """Draws of rows that divide among three devices, but not among four, and how many each has."""
    found = {}
    for name, distribution in PIPELINES.items():
        for count in (3, 4):
            draws = sharded_sample(
                KEY, distribution, DATA, shape=CHUNK, devices=jax.devices()[:count]
            )
            found[f"{name} on {count}"] = np.asarray(draws).tolist()
    placed = sharded_sample(KEY, choices, DATA, devices=jax.devices()[:3])
    rows = [shard.data.shape[0] for shard in placed.addressable_shards]
    return {"draws": found, "rows": rows, "sorted": len({sorted_sum() for _ in range(4)})}


def sorted_sum():
    """Sort big rows on every device."""
    x = np.random.default_rng(0).normal(size=(64, 5001)).astype(np.float32)
    return float(np.sum(sharded_sample(KEY, lambda x: Scaled(jnp.sort(x), jnp.zeros(5001)), x)))


if __name__ == "__main__":

    def stop(progress):
        if progress.done >= 600:
            os.kill(os.getpid(), signal.SIGKILL)

    jax.config.update("jax_numpy_dtype_promotion", "strict")
    print(json.dumps(on_devices()), flush=True)
    run(checkpoint=sys.argv[1], checkpoint_every=0, progress=stop)
