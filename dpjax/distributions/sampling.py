"""Sampling from a density on the line: a piece by its weight, then a point in it by inverse cdf.

``few.py`` is for one or a few draws from each row, ``many.py`` for more, and ``gumbel.py`` is a
reference; ``place.py`` is the second step of all three, and ``line.py`` the density.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.distributions.few import few
from dpjax.distributions.gumbel import by_gumbel_max
from dpjax.distributions.line import Line, OnLine
from dpjax.distributions.many import from_tails, many
from dpjax.random.keys import row_words

FEW = 64  # up to this many draws from a row, lanes cost less than a table
Method = Literal["auto", "tree", "table", "gumbel"]


def draw(
    key: jax.Array, line: Line, draws: int, method: Method, first: ArrayLike = 0
) -> tuple[jax.Array, jax.Array]:
    """Draw slots, counted outwards on their side (int32), and points, both ``(draws, *batch)``."""
    rows = row_words(key, line.batch, first)
    if not line.pieces:
        found = from_tails(rows, line, draws)
    elif method == "gumbel":
        found = by_gumbel_max(rows, line, draws)
    elif method == "table" or (method == "auto" and draws > FEW):
        found = many(rows, line, draws)
    else:
        found = few(rows, line, draws)
    return jnp.moveaxis(found[0], -1, 0), jnp.moveaxis(found[1], -1, 0)


@partial(jax.jit, static_argnames=("shape", "method"))
def sample(
    key: jax.Array,
    distribution: OnLine,
    shape: tuple[int, ...],
    method: Method,
    first: ArrayLike = 0,
) -> jax.Array:
    """Draw floats of shape ``shape + batch_shape``; ``first`` is the index of the first row."""
    batch, draws = distribution.batch_shape, prod(shape)
    if draws == 0 or prod(batch) == 0:
        return jnp.zeros(shape + batch, distribution.dtype)
    return draw(key, distribution.line(), draws, method, first)[1].reshape(shape + batch)
