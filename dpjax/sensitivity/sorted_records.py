"""Sorted records and requested levels: the counterpart of a profile for several quantiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.batch import Batch
from dpjax.checks import Neighbors
from dpjax.display import Picture
from dpjax.numerics.batching import broadcast_rows, concatenate, take
from dpjax.several_quantiles.levels import level_parts


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class SortedRecords(Batch):
    """The sorted records of each row, between public bounds, and m requested quantile levels.

    Mechanisms for several quantiles take it, as those for one take a :class:`SensitivityProfile`.
    Leading axes are a batch. It is a pytree.

    Attributes:
        values: float ``(..., n)``, ascending; the columns from ``num_records`` on are padding,
            equal to ``upper``.
        num_records: int32 ``(...)``, the number of records that are present.
        lower: float ``(...)``, public.
        upper: float ``(...)``, public.
        levels: static, the m quantile levels, strictly ascending between 0 and 1.
        neighbors: static, the neighbor relation.
        resolution: static, a public number of which all values are multiples, or None.

    >>> import jax.numpy as jnp
    >>> from dpjax import quantiles
    >>> asked = quantiles(
    ...     jnp.arange(1.0, 12.0), [0.1, 0.5], lower=0, upper=20, neighbors="add_remove"
    ... )
    >>> asked.value.tolist(), asked.batch_shape
    ([2.0, 6.0], ())
    """

    values: jax.Array
    num_records: jax.Array
    lower: jax.Array
    upper: jax.Array
    levels: tuple[Fraction, ...] = field(kw_only=True, metadata={"static": True})
    neighbors: Neighbors = field(kw_only=True, metadata={"static": True})
    resolution: Fraction | None = field(default=None, kw_only=True, metadata={"static": True})

    _event_axes = ("values",)

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        """Return the quantiles and the fraction of records up to each value; not private."""
        few = self._first(rows)
        n, shape = self.values.shape[-1], few.batch_shape
        quantiles = np.asarray(few.value).reshape(-1, len(self.levels)).T
        count, x = (
            np.broadcast_to(few.num_records, shape).reshape(-1, 1),
            np.broadcast_to(few.values, (*shape, n)).reshape(-1, n),
        )
        number = np.arange(1, n + 1)
        y = np.where(number <= count, number / np.maximum(count, 1), np.nan)
        table = {"records": count, **dict(zip(map(str, self.levels), quantiles, strict=True))}
        return table, Picture(x, y, "value", "share of records up to it")

    @property
    @partial(jax.jit, inline=True)
    def value(self) -> jax.Array:
        """The quantiles themselves, ``(..., m)``; not private.

        As in :func:`dpjax.quantile`: interpolated between records, and with a resolution the record
        x[ceil(q n)].
        """
        batch, n = self.batch_shape, self.values.shape[-1]
        padded = broadcast_rows(
            concatenate(self.lower[..., None], self.values, self.upper[..., None]), batch
        )
        parts, denominator = level_parts(self.levels)
        u: Any = np.array(parts, np.int32)
        v, count = np.int32(denominator), self.num_records[..., None]
        if self.resolution is not None:
            return take(padded, broadcast_rows(-(-u * count // v), batch))
        scaled_rank = u * count + (v - u)  # v times the rank q n + 1 - q
        rank = broadcast_rows(scaled_rank // v, batch)
        share = (scaled_rank - rank * v).astype(self.dtype) / denominator
        # Two products: the value lies between its neighbors despite rounding, and equals them if
        # they agree.
        below, above = take(padded, rank), take(padded, jnp.minimum(rank + 1, np.int32(n + 1)))
        return jnp.clip(below * (1 - share) + above * share, below, above)
