"""Values of sorted rows that profiles of quantiles read, at the ranks of :class:`Ranks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.statistics.ranks import Ranks

_STRIDED = 8  # denominators up to which the levels with equal fractions of a rank are read together


class Window(NamedTuple):
    """A window of ``width`` consecutive ranks within 0..n_max+1.

    It starts at ``(per_record * n + constant) // denominator``, unless it would exceed that range.
    """

    per_record: int
    constant: int
    denominator: int
    width: int

    def first(self, n: Any, n_max: int, xp: Any) -> Any:
        """Return the first rank, for NumPy or JAX arrays of counts."""
        rank = (n * np.int32(self.per_record) + np.int32(self.constant)) // np.int32(
            self.denominator
        )
        return xp.clip(rank, 0, n_max + 2 - self.width)


class Sides(NamedTuple):
    """Both sides of a profile outwards from f(x), with levels 0..``down`` below, 0..``up`` above.

    They are read from sorted rows, or from a ``near`` window of them.
    """

    ranks: Ranks
    n_max: int
    down: int
    up: int
    near: Window | None

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of values of each side."""
        return self.down + 1, self.up + 1

    def __call__(self, ordered: jax.Array, n: Any) -> tuple[jax.Array, ...]:
        """Return the sides, from rows and their counts ``(..., 1)``."""
        return tuple(
            _at_rank(ordered, side, self.ranks)
            for side in self._numerators(n, np if isinstance(n, np.ndarray) else jnp)
        )

    def write(self, results: Sequence[np.ndarray], ordered: np.ndarray, n: Any) -> None:
        """Write the sides into ``results``, from rows that all have n records."""
        v = self.ranks.denominator
        for result, side in zip(results, self._numerators(n, np), strict=True):
            # The fraction of the rank recurs every v levels: v slices, unless they are short.
            stride = v if v <= _STRIDED else 1
            for start in range(min(stride, side.size)):
                result[:, start::stride] = _at_rank(ordered, side[start::stride], self.ranks)

    def _numerators(self, n: Any, xp: Any) -> list[Any]:
        """Return the numerators of the ranks of each level, as positions in ``ordered``."""
        base = n * np.int32(self.ranks.per_record) + np.int32(self.ranks.constant)
        if self.near is not None:
            base = base - self.near.first(n, self.n_max, xp) * np.int32(self.ranks.denominator)
        step = np.int32(self.ranks.step)
        return [
            base + sign * step * np.arange(k + 1, dtype=np.int32)
            for sign, k in ((-1, self.down), (1, self.up))
        ]


def continuous(
    ordered: jax.Array,
    n: Any,
    n_max: int,
    ranks: Ranks,
    near: Window | None,
    keep: int | None,
    ends: tuple[jax.Array | None, jax.Array | None],
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """Return the values and levels above and below, with a knot at every integer rank.

    A side that has an end is cut at level ``keep``.
    """
    xp: Any = np if isinstance(n, np.ndarray) else jnp
    v, step = np.int32(ranks.denominator), np.int32(ranks.step)
    base = n * np.int32(ranks.per_record) + np.int32(ranks.constant)
    # For a full row, which has the most knots on either side.
    top = ranks.per_record * n_max + ranks.constant
    origin = 0 if near is None else near.first(n, n_max, xp) * v
    value = _at_rank(ordered, base - origin, ranks)

    def side(knots: int, end: jax.Array | None, sign: int) -> tuple[jax.Array, jax.Array]:
        cut = keep if end is not None else None
        if cut is not None:  # the last knot is at level keep or beyond it
            knots = min(knots, ranks.step * cut // ranks.denominator + 2)
        number = np.arange(1, knots + 1, dtype=np.int32)
        above, below = (
            xp.minimum(base // v + number, n + np.int32(1)),
            xp.maximum(-(-base // v) - number, np.int32(0)),
        )
        distance = sign * ((above if sign > 0 else below) * v - base)
        if cut is not None:
            distance = xp.minimum(distance, step * np.int32(cut))
        levels = distance.astype(ordered.dtype) / np.asarray(ranks.step, ordered.dtype)
        levels = jnp.concatenate([jnp.zeros_like(levels[..., :1]), jnp.asarray(levels)], axis=-1)
        values = jnp.concatenate(
            [value, _at_rank(ordered, base + sign * distance - origin, ranks)], axis=-1
        )
        if end is not None:
            values = jnp.concatenate([values, end], axis=-1)
            levels = jnp.concatenate([levels, levels[..., -1:]], axis=-1)
        return values, levels.reshape(-1) if xp is np else levels

    return side(n_max + 1 - top // ranks.denominator, ends[1], 1), side(
        -(-top // ranks.denominator), ends[0], -1
    )


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
    # The barrier keeps the product from being fused into the sum in some lanes and not in others,
    # which would make the last bit of a value depend on the padding.
    return jnp.minimum(below + jax.lax.optimization_barrier(part * (above - below)), above)
