"""Programs that the tests run in processes of their own: virtual devices, several processes, a run
that is killed.

Each prints one line of JSON. `python -m tests.simulation.programs NAME ARGUMENTS...`
"""

import hashlib
import json
import os
import signal
import sys
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import (
    Cauchy,
    Clamped,
    Finite,
    LaplaceLogNormal,
    median,
    piecewise_laplace,
    sharded_sample,
    simulate,
)
from dpjax.random import row_keys

KEY = 7
CHUNK = 1000
BINS = np.linspace(-2, 2, 9)


def data(rows=11, columns=101):
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(size=(rows, columns)).astype(np.float32),
        "center": np.linspace(-1, 1, rows).astype(np.float32),
    }


def distribution(data):
    """Two values of epsilon for each row."""
    profile = median(data["x"][:, None], lower=-4, upper=4, neighbors="add_remove")
    return piecewise_laplace(profile, jnp.array([0.5, 2.0]))


def one_each(data):
    """One value of epsilon, under the other relation, and the rows are the whole batch."""
    return piecewise_laplace(median(data["x"], lower=-4, upper=4, neighbors="swap"), 1.0)


def error(draws, data):
    return jnp.abs(draws - data["center"][:, None])


def sha(*arrays):
    return hashlib.sha256(b"".join(np.asarray(array).tobytes() for array in arrays)).hexdigest()


def estimate_sha(estimate):
    fields = [estimate.mean, estimate.variance, estimate.minimum, estimate.maximum]
    return sha(*fields, *([] if estimate.counts is None else [estimate.counts]))


def plain_noise(data):
    """The same shapes as :func:`distribution`."""
    return Plain(jnp.stack([data["center"], data["x"][:, 0]], axis=-1))


def run(data, draws=3500, distribution=distribution, **options):
    return simulate(
        jax.random.key(KEY),
        distribution,
        data,
        draws=draws,
        chunk=CHUNK,
        bins=BINS,
        statistic=error,
        **options,
    )


def devices():
    """Digests of draws and estimates on 1, 2 and 8 devices, sharded here, placed for plain jit, and
    not sharded.

    Draws are of fewer rows than devices, which do not divide, and of rows that do: only there can
    plain jit have them on every device. Estimates are of private medians where more rows do not
    divide, of plain noise elsewhere. Medians are estimated on all devices by a mesh only: the
    programs are those of the default, with which the others compare it.
    """
    one, two, mesh = jax.devices()[:1], jax.devices()[:2], jax.make_mesh((2, 4), ("i", "j"))
    found = {"11 rows, estimate": estimates_of(11, distribution, (one, two, mesh))}
    for rows, shape, drawn in ((3, (2, 100), distribution), (16, (), one_each)):
        found[f"{rows} rows, plain {shape}"] = draws_of(data(rows), shape, drawn)
        found[f"{rows} rows, estimate"] = estimates_of(rows, plain_noise, (one, two, None, mesh))
    for name, other in OTHERS.items():
        found[name] = draws_of(data()["center"], (3,), other, own=name != "Foreign")
    return found | {"devices": len(jax.devices())}


def draws_of(everything, shape, distribution, own=True):
    """Digests of the draws, and of those by ``sample`` of the distribution itself."""
    key, rows = jax.random.key(KEY), len(jax.tree.leaves(everything)[0])
    plain = jax.jit(lambda key, data: distribution(data).sample(key, shape))
    digests = [sha(plain(key, everything))] * own
    for count in (1, 2, 8):
        chosen = jax.devices()[:count]
        digests.append(
            sha(sharded_sample(key, distribution, everything, shape=shape, devices=chosen))
        )
        if own and rows % count == 0 and count > 1:  # on one device it is the first
            # Automatic axes
            rows_on = jax.NamedSharding(jax.sharding.Mesh(np.array(chosen), ("i",)), jax.P("i"))
            digests.append(sha(plain(key, jax.device_put(everything, rows_on))))
    return digests


def estimates_of(rows, distribution, chosen):
    return [
        estimate_sha(run(data(rows), distribution=distribution, devices=devices))
        for devices in chosen
    ]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Plain:
    """``loc + scale`` times standard Laplace noise, with the hook of the library's distributions,
    and compiled in no time.
    """

    loc: jax.Array
    scale: float = field(default=1.0, metadata={"static": True})

    @property
    def batch_shape(self):
        return self.loc.shape

    def sample(self, key, shape=()):
        return self._sample(key, shape, 0)

    def _sample(self, key, shape, first):
        keys = row_keys(key, self.loc.shape, first)
        noise = jax.vmap(lambda key: jax.random.laplace(key, shape, self.loc.dtype), out_axes=-1)(
            keys.reshape(-1)
        )
        return self.loc + self.scale * noise.reshape(*shape, *self.loc.shape)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Foreign:
    """A distribution of somebody else: ``loc`` plus a uniform variate."""

    loc: jax.Array

    @property
    def batch_shape(self):
        return self.loc.shape

    def sample(self, key, shape=()):
        return self.loc + jax.random.uniform(key, (*shape, *self.loc.shape))


OTHERS = {
    "Cauchy": lambda x: Cauchy(x, jnp.ones(1)),
    "LaplaceLogNormal": lambda x: LaplaceLogNormal(x[:, None], jnp.array([1.0, 2.0]), jnp.ones(())),
    "Clamped": lambda x: Clamped.of(Cauchy(x, jnp.ones(1)), lower=-1, upper=2),
    "Finite": lambda x: Finite(jnp.arange(5.0), jnp.abs(x[:, None] - jnp.arange(5.0)), jnp.ones(1)),
    "Foreign": Foreign,
}


def process(address, number, count):
    """One process of several, with its share of the rows."""
    jax.distributed.initialize(address, int(count), int(number))
    everything = data()
    bounds = np.linspace(0, 11, int(count) + 1).astype(int)
    mine = jax.tree.map(
        lambda leaf: leaf[bounds[int(number)] : bounds[int(number) + 1]], everything
    )
    estimate = run(mine)
    noise = [
        run(mine, distribution=plain_noise, first_row=first)
        for first in (None, int(bounds[int(number)]))
    ]
    draws = sharded_sample(jax.random.key(KEY), plain_noise, mine, shape=(3,))
    jax.distributed.shutdown()
    return {
        "rows": len(mine["x"]),
        "mean": estimate.mean.tolist(),
        "counts": estimate.counts.tolist(),
        "draws": np.asarray(draws).tolist(),
        "same": estimate_sha(noise[0]) == estimate_sha(noise[1]),
    }


def killed(path, at):
    """A run that kills itself after a number of draws, saving after every chunk."""

    def stop(progress):
        if progress.done >= int(at):
            os.kill(os.getpid(), signal.SIGKILL)

    run(data(), checkpoint=path, checkpoint_every=0, progress=stop)
    return {"killed": False}


def stress(rows, columns, repeats):
    """Sort big rows on every device, many times; what is drawn, in next to no time, shows all that
    was sorted.
    """
    x = np.random.default_rng(0).normal(size=(int(rows), int(columns))).astype(np.float32)

    def distribution(x):
        profile = median(x, lower=-4, upper=4, neighbors="swap")
        return Plain(jnp.sum(profile.upper, axis=-1) - jnp.sum(profile.lower, axis=-1))

    found = {sha(sharded_sample(jax.random.key(1), distribution, x)) for _ in range(int(repeats))}
    return {"different": len(found)}


if __name__ == "__main__":
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    programs = {
        "devices": devices,
        "process": process,
        "killed": killed,
        "stress": stress,
    }
    print(json.dumps(programs[sys.argv[1]](*sys.argv[2:])))
