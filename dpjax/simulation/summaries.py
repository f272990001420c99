"""Running summaries: each chunk of draws on its device in the dtype of the draws, merged on the host in float64 and int64.

Bitwise the same on any number of devices: sums over a chunk are explicit pairwise adds (XLA's own sum changes with the shape), the
merge goes chunk by chunk in order. Accuracy: a chunk is first centred on its own mean, so an offset of the data costs nothing, and
the mean of n values is off by at most (log2(n) + 4) u times their mean absolute deviation, the sum of squares by that relative
error, where u is 2^-24 for float32. At 2^20 draws a chunk that is below 1.5e-6 of a standard deviation: less than the standard
error of the mean up to 4e11 draws. Deviations are also scaled by their range, so that no square over- or underflows
in float32; in float64 the variance does where it is no float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.batch import span
from dpjax.display import Picture, Shown


@dataclass(frozen=True, eq=False, repr=False)
class Estimate(Shown):
    """What :func:`dpjax.simulate` found, for each value separately; NumPy arrays.

    The values have the shape ``(rows, ...)``: that of the distribution's batch, or of the statistic without its first axis.
    Where a row has no distribution (bad parameters), its numbers are NaN and its counts 0.

    Attributes:
        count: the number of draws from each row.
        mean: float64 ``(rows, ...)``.
        variance: the sample variance, with ``count - 1`` in the denominator; NaN for one draw.
        minimum: the smallest value.
        maximum: the largest value.
        bins: the edges as they were used, rounded to the dtype of the values, ``(k+1,)``; None without bins.
        counts: int64 ``(rows, ..., k+2)``: how many values lie below the first edge, in each ``[bins[i], bins[i+1])``, and from
            the last edge on; None without bins.
    """

    count: int
    mean: np.ndarray
    variance: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray
    bins: np.ndarray | None
    counts: np.ndarray | None

    def _facts(self) -> dict[str, Any]:
        bins = {} if self.bins is None else {"bins": self.bins.size - 1}
        numbers = {"mean": span(self.mean), "standard_error": span(self.standard_error)}
        return {"shape": self.mean.shape, "count": self.count, **numbers, **bins}

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        """The histogram of each row, or without bins the mean against the row."""
        table = {"mean": self.mean, "standard error": self.standard_error, "minimum": self.minimum, "maximum": self.maximum}
        if self.bins is None or self.counts is None:
            mean = self.mean.reshape(1, -1)
            return table, Picture(np.arange(mean.size).reshape(1, -1), mean, "row", "mean")
        shares = self.counts.reshape(-1, self.counts.shape[-1])[:rows, 1:-1] / max(self.count, 1)
        middles = np.broadcast_to((self.bins[1:] + self.bins[:-1]) / 2, shares.shape)
        return table, Picture(middles, shares, "value", "share of draws in a bin")

    @property
    def standard_error(self) -> np.ndarray:
        """The estimated standard deviation of ``mean`` over runs with other keys: ``sqrt(variance / count)``.

        By the central limit theorem the expected value lies within 1.96 of it in 95 % of the runs. It measures the
        randomness of the draws only, not that of the data, and cannot see rare values that no draw has met.
        """
        return np.sqrt(self.variance / self.count)


class ChunkSummary(NamedTuple):
    """One chunk of values v, on a device, in terms of d = (v - shift) / spread; all fields ``(rows, ...)``.

    Attributes:
        shift: the mean of v, up to rounding.
        spread: the range of v, or 1 if that is 0.
        first: the sum of d.
        second: the sum of d^2.
        minimum: the smallest v.
        maximum: the largest v.
        counts: int32 ``(rows, ..., k+2)``, or None.
    """

    shift: jax.Array
    spread: jax.Array
    first: jax.Array
    second: jax.Array
    minimum: jax.Array
    maximum: jax.Array
    counts: jax.Array | None


class State(NamedTuple):
    """Everything so far, on the host: the number of whole chunks and of draws, and float64 and int64 ``(rows, ...)``."""

    chunks: int
    draws: int
    mean: np.ndarray
    squares: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray
    counts: np.ndarray | None

    @staticmethod
    def empty(shape: tuple[int, ...], bins: int | None) -> State:
        """Nothing yet."""
        zero, inf = np.zeros(shape), np.full(shape, np.inf)
        return State(0, 0, zero, zero, inf, -inf, None if bins is None else np.zeros((*shape, bins + 1), np.int64))

    def merge(self, chunk: ChunkSummary, size: int) -> State:
        """Add a chunk of ``size`` draws that was brought to the host (Chan, Golub and LeVeque)."""
        with np.errstate(all="ignore"):  # a row without a distribution is NaN, quietly
            shift, spread, first, second = (np.asarray(field, np.float64) for field in chunk[:4])
            mean = shift + spread * (first / size)
            squares = np.square(spread) * np.maximum(second - first * first / size, 0.0)
            total = self.draws + size
            step = mean - self.mean
            apart = step * step * (self.draws * (size / total)) if self.draws else 0.0  # which may be infinite, and 0 inf is NaN
            return State(
                chunks=self.chunks + 1,
                draws=total,
                mean=mean if self.draws == 0 else self.mean + step * (size / total),
                squares=self.squares + squares + apart,
                minimum=np.minimum(self.minimum, chunk.minimum),
                maximum=np.maximum(self.maximum, chunk.maximum),
                counts=None if self.counts is None else self.counts + np.asarray(chunk.counts, np.int64),
            )

    def estimate(self, bins: np.ndarray | None) -> Estimate:
        """Finish."""
        variance = self.squares / (self.draws - 1) if self.draws > 1 else np.full(self.mean.shape, np.nan)
        return Estimate(self.draws, self.mean, variance, self.minimum, self.maximum, bins, self.counts)


def summarize(values: jax.Array, keep: jax.Array, edges: jax.Array | None) -> ChunkSummary:
    """Summarise the first ``keep`` (int32) of the values, ``(chunk, rows, ...)``."""
    values = jax.lax.optimization_barrier(values)
    number = jnp.arange(values.shape[0], dtype=jnp.int32)
    kept = jnp.broadcast_to((number < keep).reshape((-1,) + (1,) * (values.ndim - 1)), values.shape)
    minimum = jnp.min(jnp.where(kept, values, jnp.inf), axis=0)
    maximum = jnp.max(jnp.where(kept, values, -jnp.inf), axis=0)
    spread = jnp.where(maximum > minimum, maximum - minimum, 1.0)
    # These clips change numbers by a rounding at most. They stand between each product and the sum that takes it, so that the
    # compiler cannot fuse the two into one multiply-add in one loop and not in another.
    shift = jnp.clip(pairwise_sum(jnp.where(kept, values, 0.0)) / keep.astype(values.dtype), minimum, maximum)
    deviations = jnp.clip(jnp.where(kept, (values - shift) / spread, 0.0), -2.0, 2.0)
    squares = jnp.minimum(deviations * deviations, 4.0)
    counts = None if edges is None else _count(values, kept, edges)
    return ChunkSummary(shift, spread, pairwise_sum(deviations), pairwise_sum(squares), minimum, maximum, counts)


def pairwise_sum(values: jax.Array) -> jax.Array:
    """Sum over the first axis by a fixed tree of adds."""
    while values.shape[0] > 1:
        quarter = -(-values.shape[0] // 4)
        values = jnp.pad(values, [(0, 4 * quarter - values.shape[0])] + [(0, 0)] * (values.ndim - 1))
        a, b, c, d = (values[i * quarter : (i + 1) * quarter] for i in range(4))
        values = jax.lax.optimization_barrier((a + b) + (c + d))
    return values[0]


def _count(values: jax.Array, kept: jax.Array, edges: jax.Array) -> jax.Array:
    places = edges.shape[0] + 1
    # Unrolled bisection: three times as fast on the CPU as a loop. What does not count is sent beyond the end and dropped.
    bin_of = jnp.searchsorted(edges, values, side="right", method="scan_unrolled").astype(jnp.int32)
    bin_of = jnp.where(kept & ~jnp.isnan(values), bin_of, np.int32(places)).reshape(values.shape[0], -1)
    cell = jnp.broadcast_to(jnp.arange(bin_of.shape[1], dtype=jnp.int32)[None], bin_of.shape)
    counts = jnp.zeros((bin_of.shape[1], places), jnp.int32).at[cell, bin_of].add(1, mode="drop")
    return counts.reshape(*values.shape[1:], places)


def to_host(chunk: ChunkSummary, rows: int) -> Any:
    """Wait for a chunk and drop the rows that were padding."""
    return jax.tree.map(lambda array: np.asarray(array)[:rows], chunk)
