"""Values of sorted rows that profiles of quantiles read, at the ranks of :class:`Ranks`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.statistics.ranks import Ranks

_STRIDED = 8  # denominators up to which the levels with equal fractions of a rank are read together


class Reader(NamedTuple):
    """A profile in ascending order, with levels ``down``, ..., 1, 0, 1, ..., ``up`` around f(x)."""

    ranks: Ranks
    down: int
    up: int

    @property
    def size(self) -> int:
        """The number of values."""
        return self.down + self.up + 1

    def __call__(self, ordered: jax.Array, n: Any) -> jax.Array:
        """Return the values, from rows x[0..n_max+1] and their counts ``(..., 1)``."""
        return _at_rank(ordered, self._numerators(n), self.ranks)

    def write(self, result: np.ndarray, ordered: np.ndarray, n: Any) -> None:
        """Write the values into ``result``, from NumPy rows that all have n records."""
        numerators, v = self._numerators(n), self.ranks.denominator
        # The fraction of the rank recurs every v levels: v slices, unless they are short.
        stride = v if v <= _STRIDED else 1
        for start in range(min(stride, self.size)):
            result[:, start::stride] = _at_rank(ordered, numerators[start::stride], self.ranks)

    def is_the_row(self, n: int) -> bool:
        """Whether the values are those of a row with n records and its bounds, x[0..n+1]."""
        wanted = self.ranks.denominator * np.arange(n + 2, dtype=np.int32)
        return self.ranks.whole and np.array_equal(self._numerators(np.int32(n)), wanted)

    def _numerators(self, n: Any) -> Any:
        """Return the numerators of the rank of each value."""
        base = n * np.int32(self.ranks.per_record) + np.int32(self.ranks.constant)
        return base + np.int32(self.ranks.step) * np.arange(-self.down, self.up + 1, dtype=np.int32)


def continuous(
    ordered: jax.Array, n: Any, ranks: Ranks, keep: tuple[int | None, int | None]
) -> tuple[jax.Array, jax.Array, int]:
    """Return ascending values with a knot at every integer rank, their levels, and the center.

    A side with a number of levels to ``keep`` is cut there, and ends with a jump to the bound.
    """
    xp: Any = np if isinstance(n, np.ndarray) else jnp
    v, step, n_max = np.int32(ranks.denominator), np.int32(ranks.step), ordered.shape[-1] - 2
    base = n * np.int32(ranks.per_record) + np.int32(ranks.constant)
    # For a full row, which has the most knots on either side.
    top = ranks.per_record * n_max + ranks.constant

    def side(knots: int, cut: int | None, sign: int) -> tuple[Any, jax.Array]:
        """Return the distances of the knots from the base rank, and the values there."""
        if cut is not None:  # the last knot is at level ``cut`` or beyond it
            knots = min(knots, ranks.step * cut // ranks.denominator + 2)
        number = np.arange(1, knots + 1, dtype=np.int32)
        if sign > 0:
            distance = xp.minimum(base // v + number, n + np.int32(1)) * v - base
        else:
            distance = base - xp.maximum(-(-base // v) - number, np.int32(0)) * v
        if cut is not None:
            distance = xp.minimum(distance, step * np.int32(cut))
        values = _at_rank(ordered, base + sign * distance, ranks)
        if cut is not None:
            end = ordered[..., -1:] if sign > 0 else ordered[..., :1]
            values = jnp.concatenate([values, end], axis=-1)
            distance = xp.concatenate([distance, distance[..., -1:]], axis=-1)
        return distance, values

    above, upper = side(n_max + 1 - top // ranks.denominator, keep[1], 1)
    below, lower = side(-(-top // ranks.denominator), keep[0], -1)
    value = _at_rank(ordered, base, ranks)
    distances = xp.concatenate([below[..., ::-1], xp.zeros_like(base), above], axis=-1)
    levels = jnp.asarray(distances).astype(ordered.dtype) / np.asarray(ranks.step, ordered.dtype)
    values = jnp.concatenate([jnp.flip(lower, -1), value, upper], axis=-1)
    return values, levels.reshape(-1) if xp is np else levels, below.shape[-1]


def _at_rank(ordered: Any, numerator: Any, ranks: Ranks) -> Any:
    """Read x (or its interpolation) at ``numerator / denominator``; ``ordered[..., j]`` is x[j].

    NumPy rows need ranks ``(k,)``, JAX rows may also have ranks ``(..., k)``.
    """
    v = np.int32(ranks.denominator)

    def x(j: Any) -> Any:
        j = (np if isinstance(j, np.ndarray) else jnp).clip(j, 0, ordered.shape[-1] - 1)
        if not isinstance(j, np.ndarray):
            return jnp.take_along_axis(ordered, j, axis=-1)
        j = j.reshape(-1)
        step = int(j[1] - j[0]) if j.size > 1 else 1
        # Equally spaced known ranks: a slice makes no copy.
        if step != 0 and np.all(np.diff(j) == step):
            ascending = ordered[..., min(j[0], j[-1]) : max(j[0], j[-1]) + 1 : abs(step)]
            return ascending if step > 0 else ascending[..., ::-1]
        return ordered[..., j]

    if ranks.definition == "lower":
        return x(-((-numerator) // v))
    integer = numerator // v
    if isinstance(numerator, np.ndarray) and np.all(numerator == integer * v):
        return x(integer)
    if isinstance(ordered, np.ndarray):
        part = ((numerator - integer * v) / v).astype(ordered.dtype)
        below, above = x(integer), x(integer + np.int32(1))
        found = above - below
        found *= part
        found += below
        return np.minimum(found, above, out=found)
    part = jnp.asarray(numerator - integer * v).astype(ordered.dtype) / float(ranks.denominator)
    below, above = x(integer), x(integer + np.int32(1))
    return jnp.minimum(below + part * (above - below), above)
