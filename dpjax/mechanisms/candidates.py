"""Public candidates of a monotone statistic (a finite range), for mechanisms and error bounds."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import checks
from dpjax.sensitivity.down import DownSensitivity

Candidates = jax.Array | np.ndarray | Sequence[float]


def finite_range(candidates: Candidates, dtype: jnp.dtype) -> jax.Array:
    """Return public candidates as a float array ``(k,)``, checked as in :mod:`dpjax.checks`."""
    values = checks.float_array("candidates", candidates).astype(dtype)
    if values.ndim != 1 or values.shape[0] == 0:
        raise ValueError(
            f"candidates must be one-dimensional with at least one value, got shape {values.shape}."
        )
    if not isinstance(candidates, jax.Array):
        on_host = checks.host_floats("candidates", candidates)
        with np.errstate(over="ignore"):
            representable = np.all(np.isfinite(on_host.astype(dtype)))
        if not (representable and np.all(on_host[1:] > on_host[:-1])):
            raise ValueError(
                f"candidates must be finite and increasing (in {jnp.dtype(dtype).name})."
            )
    # Unsorted candidates would still be private, but without the documented properties.
    good = jnp.all(jnp.isfinite(values)) & jnp.all(values[1:] >= values[:-1])
    return jnp.where(good, values, jnp.nan)


@jax.jit
def removals(down: DownSensitivity, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return how many people must leave until f <= y, and until f < y, for values y, ``(k,)``.

    These are l and lbar of the post: two float arrays ``(..., k)``, infinite where no removal
    suffices, and NaN in a row whose statistic is NaN.
    """
    batch, size = down.values.shape[:-1], down.values.shape[-1]
    rows = jnp.flip(down.values, -1).reshape(prod(batch), size)  # ascending

    def larger(side: str) -> jax.Array:
        found = jax.vmap(lambda row: jnp.searchsorted(row, values, side=side))(rows).reshape(
            *batch, values.shape[-1]
        )
        count = (size - found).astype(values.dtype)
        return jnp.where(
            jnp.isnan(down.value)[..., None], jnp.nan, jnp.where(found == 0, jnp.inf, count)
        )

    return larger("right"), larger("left")


def num_candidates_over(failure: float, num_candidates: int) -> float:
    """Return the number of candidates divided by the failure probability, both checked."""
    number = checks.static_integer("num_candidates", num_candidates, 1)
    return number / checks.concrete_probability("failure", failure)
