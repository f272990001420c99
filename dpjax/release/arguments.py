"""What every release asks of its arguments: a number of draws, and no trace."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def check_draws(draws: int) -> int:
    """Return a positive number of draws, or raise."""
    if isinstance(draws, bool) or not isinstance(draws, (int, np.integer)) or draws < 1:
        raise ValueError(f"draws must be a positive integer, got {draws!r}.")
    return int(draws)


def refuse_traces(x: Any, caller: str) -> None:
    """Raise under jit, vmap or grad; a vmap that closes over the data cannot be seen."""
    if isinstance(x, jax.core.Tracer) or isinstance(jnp.zeros(()), jax.core.Tracer):
        raise TypeError(f"{caller} cannot run inside jit, vmap or grad: it would not draw anew at each call.")
