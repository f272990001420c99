"""Parts of sorted records (ranges of ranks), and the profile of a quantile of each part.

With z[1..c] the records of a part between its bounds, z[j] = lower for j <= 0 and z[j] = upper for
j > c, the profile of its u/v quantile is that of :func:`dpjax.quantile`: z at the ranks (u c + v -
u +- step l) / v, interpolated, or, if quantiles are records, z at the ranks (u c +- step l) / v
rounded up. The records of the row outside a part lie outside its bounds, so z is the row itself,
clamped to the bounds, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.checks import Neighbors
from dpjax.numerics.batching import concatenate, take
from dpjax.numerics.bisection import count_leading
from dpjax.numerics.multiples import most_multiples, to_multiples
from dpjax.sensitivity.profile import SensitivityProfile, from_sides
from dpjax.sensitivity.sorted_records import SortedRecords


class Ranks(NamedTuple):
    """The ranks read by the profile of the u/v quantile of each part, int32 ``(p,)``.

    Attributes:
        numerator: u.
        denominator: v.
        step: v times the distance of the ranks of adjacent levels.
    """

    numerator: Any
    denominator: Any
    step: Any

    @staticmethod
    def of(levels: Sequence[Fraction], neighbors: Neighbors) -> Ranks:
        """Return the ranks of levels; ``"swap"`` if the number of records of a part is public."""
        u, v = (
            np.array([getattr(q, name) for q in levels], np.int32)
            for name in ("numerator", "denominator")
        )
        return Ranks(u, v, v if neighbors == "swap" else np.maximum(u, v - u))


@dataclass(frozen=True)
class Reading:
    """The values of a part that a profile reads, static.

    Attributes:
        of_records: true if the quantile is a record, z[ceil(q c)]; otherwise it is interpolated.
        down: the number of levels below the quantile.
        up: the number of levels above it.
        ends: for both sides, true if the level after the last one extends to the bound.
    """

    of_records: bool
    down: int
    up: int
    ends: tuple[bool, bool]

    @staticmethod
    def of(ranks: Ranks, n: int, *, of_records: bool, truncate: int | None) -> Reading:
        """Return all levels of a part of up to ``n`` records, or the first k = ``truncate``."""
        u, v, step = (part.astype(np.int64) for part in ranks)
        base = u * n if of_records else u * n + v - u
        down = int(np.max(-(-base // step)))
        up = int(
            np.max((v * n - base) // step + 1 if of_records else -(-(v * (n + 1) - base) // step))
        )
        if truncate is None:
            return Reading(of_records, down, up, (False, False))
        return Reading(
            of_records, min(down, truncate), min(up, truncate), (truncate < down, truncate < up)
        )

    @property
    def size(self) -> int:
        """The number of values that are read of each part."""
        return self.down + self.up + 2 + sum(self.ends)


class Parts(NamedTuple):
    """Several parts (p of them) of each row of sorted records.

    Attributes:
        rows: float ``(..., n + 2)``: the lower bound of all records, the sorted records, and the
            upper bound.
        first: int32 ``(..., p)``, the number of records of the row before the part.
        last: int32 ``(..., p)``, the rank of its last record.
        lower: float ``(..., p)``; not above the part's records and those after them, not below
            those before.
        upper: float ``(..., p)``; not below the part's records and those before them, not above
            those after.
    """

    rows: jax.Array
    first: jax.Array
    last: jax.Array
    lower: jax.Array
    upper: jax.Array

    @partial(jax.jit, inline=True, static_argnames="reading")
    def profile(self, ranks: Ranks, reading: Reading) -> SensitivityProfile:
        """Return the profile of one quantile of each part, of batch shape ``(..., p)``.

        It is valid under add/remove, or under swap with the ranks for swap. Ranks are exact for
        denominators below 2^31 / 4(n + 2).
        """
        v = ranks.denominator[:, None]
        constant = 0 if reading.of_records else ranks.denominator - ranks.numerator
        base = ranks.numerator * (self.last - self.first) + constant
        sides = []
        for sign, size, end, bound in (
            (-1, reading.down, 0, self.lower),
            (1, reading.up, 1, self.upper),
        ):
            numerator = base[..., None] + ranks.step[:, None] * (
                np.int32(sign) * np.arange(size + 1, dtype=np.int32)
            )
            if reading.of_records:
                values = self._at(-((-numerator) // v))
            else:
                quotient = numerator // v
                share = (numerator - quotient * v).astype(self.rows.dtype) / v.astype(
                    self.rows.dtype
                )
                below, above = self._at(quotient), self._at(quotient + np.int32(1))
                # The barrier keeps the product from being fused into the sum in some lanes and not
                # in others.
                values = jnp.minimum(
                    below + jax.lax.optimization_barrier(share * (above - below)), above
                )
            sides.append(
                jnp.concatenate([values, bound[..., None]], axis=-1)
                if reading.ends[end]
                else values
            )
        return from_sides(sides[1], sides[0], neighbors="add_remove")

    @partial(jax.jit, inline=True)
    def around(self, at: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the ranks of the last record of each part below a point, and of the last up to it.

        Both are ranks in the row, for points ``(..., p)``.
        """
        size = self.rows.shape[-1] - 2
        below = count_leading(lambda index: take(self.rows, index + 1) < at, size, at.shape)
        through = count_leading(lambda index: take(self.rows, index + 1) <= at, size, at.shape)
        # Equal records may also belong to the parts before and after this one.
        return jnp.clip(below, self.first, self.last), jnp.clip(through, self.first, self.last)

    def _at(self, rank: jax.Array) -> jax.Array:
        """Return z[rank] of each part, for ranks ``(..., p, k)`` within the part."""
        column = jnp.clip(self.first[..., None] + rank, 0, np.int32(self.rows.shape[-1] - 1))
        found = take(self.rows, column.reshape(*column.shape[:-2], -1)).reshape(column.shape)
        return jnp.clip(found, self.lower[..., None], self.upper[..., None])


def rows_of(asked: SortedRecords) -> jax.Array:
    """Return records and bounds, ``(..., n + 2)``, in multiples of the resolution, if any."""
    values, ends = asked.values, (asked.lower[..., None], asked.upper[..., None])
    if asked.resolution is None:
        return concatenate(ends[0], values, ends[1])
    values, *counted = (to_multiples(array, asked.resolution) for array in (values, *ends))
    fitting = (
        jnp.where(jnp.abs(end) <= most_multiples(asked.dtype), end, jnp.nan) for end in counted
    )
    return concatenate(next(fitting), values, next(fitting))
