"""The exponential mechanism over finitely many candidates with integer costs, drawn exactly: a piece of width 1 for each."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import jax
import jax.numpy as jnp

from dpjax.numerics.batching import align
from dpjax.numerics.two_words import Words
from dpjax.release.draw import Draw, choose, weigh
from dpjax.release.exact import Bits, More, piece_of
from dpjax.release.tables import Tables, rate_of

WORDS = 2  # of a lane


@jax.jit
def certified_choice(tables: Tables, costs: jax.Array, words: jax.Array) -> Draw:
    """Choose one candidate for each lane, with probability proportional to e^(-lam cost).

    Args:
        tables: of :func:`dpjax.release.public_tables`, for every cost up to the largest that any dataset can have.
        costs: int32 ``(..., k)``, from 0 on. A cost beyond the tables leaves its row in doubt, and is never clipped.
        words: uint32 ``(2, ...)`` or ``(2, draws, ...)``.

    Returns:
        A :class:`Draw` with the index of the candidate as its cell.
    """
    high, low, scale = (jnp.asarray(table) for table in tables[:3])
    covered = jnp.all((costs >= 0) & (costs < scale.size), axis=-1)
    level = jnp.clip(costs, 0, scale.size - 1)
    sums = weigh(jnp.ones(costs.shape, jnp.uint32), Words(high[level], low[level]), scale[level])
    index, certain = choose(sums, Words(words[0], words[1]))
    return Draw(index, certain & align(covered, index.ndim))


def exact_choice(epsilon: float | Fraction, costs: Sequence[int], words: Sequence[int], *, more: More) -> int:
    """Return the candidate that the uniform stands for, in exact arithmetic; ``epsilon`` as for the tables."""
    pieces = [(1, int(cost), number, False) for number, cost in enumerate(costs)]
    return piece_of(rate_of(epsilon), pieces, Bits(words, 0, more))
