"""Sorted records and the quantiles that are asked of them: what a sensitivity profile is for several quantiles at once."""

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
    """The sorted records of each row, between public bounds, and m quantiles that are asked of them.

    Mechanisms for several quantiles take it, as those for one take a :class:`SensitivityProfile`. Leading axes are a batch. It is
    a pytree.

    Attributes:
        values: float ``(..., n)``, ascending; the columns from ``num_records`` on are padding, equal to ``upper``.
        num_records: int32 ``(...)``, how many records are present.
        lower: float ``(...)``, public.
        upper: float ``(...)``, public.
        levels: static, the m quantile levels, strictly ascending between 0 and 1.
        neighbors: static.
        resolution: static, a public number that all values are multiples of, or None.

    >>> import jax.numpy as jnp
    >>> from dpjax import quantiles
    >>> asked = quantiles(jnp.arange(1.0, 12.0), [0.1, 0.5], lower=0, upper=20, neighbors="add_remove")
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
        """The quantiles, and the share of records up to each; not private."""
        few = self._first(rows)
        n, shape = self.values.shape[-1], few.batch_shape
        asked = np.asarray(few.value).reshape(-1, len(self.levels)).T
        count, x = np.broadcast_to(few.num_records, shape).reshape(-1, 1), np.broadcast_to(few.values, (*shape, n)).reshape(-1, n)
        number = np.arange(1, n + 1)
        y = np.where(number <= count, number / np.maximum(count, 1), np.nan)
        table = {"records": count, **dict(zip(map(str, self.levels), asked, strict=True))}
        return table, Picture(x, y, "value", "share of records up to it")

    @property
    @partial(jax.jit, inline=True)
    def value(self) -> jax.Array:
        """The quantiles themselves, not private, ``(..., m)``.

        As in :func:`dpjax.quantile`: interpolated between records, and with a resolution the record x[ceil(q n)].
        """
        batch, n = self.batch_shape, self.values.shape[-1]
        padded = broadcast_rows(concatenate(self.lower[..., None], self.values, self.upper[..., None]), batch)
        parts, whole = level_parts(self.levels)
        u: Any = np.array(parts, np.int32)
        v, count = np.int32(whole), self.num_records[..., None]
        if self.resolution is not None:
            return take(padded, broadcast_rows(-(-u * count // v), batch))
        place = u * count + (v - u)  # v times the rank q n + 1 - q
        rank = broadcast_rows(place // v, batch)
        share = (place - rank * v).astype(self.dtype) / whole
        # Two products: the value lies between its neighbours whatever is rounded, and is theirs where they agree.
        below, above = take(padded, rank), take(padded, jnp.minimum(rank + 1, np.int32(n + 1)))
        return jnp.clip(below * (1 - share) + above * share, below, above)
