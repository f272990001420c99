"""Sorted records and requested levels: the counterpart of a profile for several quantiles."""

from __future__ import annotations

from dataclasses import field
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.batch import Batch
from dpjax.checks import Neighbors
from dpjax.numerics.arrays import concatenate, take
from dpjax.pytrees import pytree


@pytree
class SortedRecords(Batch):
    """The sorted records of each row, between public bounds, and m requested quantile levels.

    :func:`dpjax.joint_quantiles` takes it, as mechanisms for one quantile take a
    :class:`SensitivityProfile`. Leading axes are a batch. It is a pytree.

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

    @property
    @partial(jax.jit, inline=True)
    def value(self) -> jax.Array:
        """The quantiles themselves, ``(..., m)``; not private.

        As in :func:`dpjax.quantile`: interpolated between records, and with a resolution the record
        x[ceil(q n)].
        """
        padded = concatenate(self.lower[..., None], self.values, self.upper[..., None])
        u, v = (
            np.array([getattr(q, part) for q in self.levels], np.int32)
            for part in ("numerator", "denominator")
        )
        count = self.num_records[..., None]
        if self.resolution is not None:
            return take(padded, -(-u * count // v))
        scaled = u * count + (v - u)  # v times the rank q n + 1 - q
        rank = scaled // v
        share = (scaled - rank * v).astype(self.dtype) / v.astype(self.dtype)
        below, above = take(padded, rank), take(padded, rank + 1)
        # Two products: the value lies between its neighbors despite rounding.
        return jnp.clip(below * (1 - share) + above * share, below, above)
