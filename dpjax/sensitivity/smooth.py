"""Smooth upper bounds of the local sensitivity (Nissim, Raskhodnikova and Smith 2007): max_k A_k e^{-beta k}."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.batch import Batch
from dpjax.checks import Neighbors
from dpjax.numerics.sums import LANES


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class SmoothSensitivity(Batch):
    """A statistic and a beta-smooth upper bound of its local sensitivity; data, not private.

    Privacy rests on: ``bound`` is at least the local sensitivity, and changes by a factor of at most e^beta between neighbours.

    Attributes:
        value: float ``(...)``, the statistic.
        bound: float ``(...)``, the smooth sensitivity, positive.
        beta: ``(...)``, public. It stays a NumPy array where it was given as a Python or NumPy value: mechanisms can then still
            raise if it exhausts epsilon.
        lower: float ``(...)``, the public lower bound of the statistic.
        upper: float ``(...)``, the public upper bound.
        neighbors: static, the relation.

    References:
        Nissim, Raskhodnikova and Smith (2007), Definitions 2.1 and 2.2; Gillenwater and Munoz Medina, Definition 6.
    """

    value: jax.Array
    bound: jax.Array
    beta: jax.Array | np.ndarray
    lower: jax.Array
    upper: jax.Array
    neighbors: Neighbors = field(default="add_remove", metadata={"static": True})

    _parameters = ("beta",)


def representable(smooth: SmoothSensitivity, rate: jax.Array) -> jax.Array:
    """Return ``rate``, or NaN where ``bound/rate`` could overflow: for every dataset alike, since that would tell them apart."""
    width = smooth.upper - smooth.lower
    return jnp.where(width < rate * (float(jnp.finfo(rate.dtype).max) * 2.0**-20), rate, jnp.nan)


@jax.jit
def smooth_bound(at_distance: jax.Array, beta: jax.Array) -> jax.Array:
    """max_k A_k e^{-beta k}, of the broadcast batch shape."""
    # A multiple of 32 exponentials: XLA rounds those of a remainder loop differently, and padded data must give the same draws.
    size = at_distance.shape[-1]
    lengths = jnp.pad(at_distance, [(0, 0)] * (at_distance.ndim - 1) + [(0, -size % LANES)], mode="edge")
    # In halves: e^(-beta k) itself can underflow where its product with a long gap does not.
    half = jnp.exp(-beta[..., None] / 2 * jnp.arange(lengths.shape[-1], dtype=lengths.dtype))
    bound = jnp.max(lengths * half * half, axis=-1)
    # Long ties make it underflow. The maximum with a constant keeps both properties of a smooth bound, and a positive scale.
    return jnp.maximum(bound, float(jnp.finfo(bound.dtype).tiny) * 2.0**20)
