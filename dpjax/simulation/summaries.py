"""Running summaries: chunks are summarized on devices in their dtype, and merged on the host.

The host uses float64 and int64. Results are bitwise the same on any number of devices: sums over a
chunk are explicit pairwise additions (XLA's own sum changes with the shape), and chunks are merged
in order. Accuracy: a chunk is first centered on its mean, so an offset of the data costs no
precision, and the error of the mean of n values is at most (log2(n) + 4) u times their mean
absolute deviation, the relative error of the sum of squares likewise, where u is 2^-24 for float32.
At 2^20 draws a chunk that is below 1.5e-6 of a standard deviation: less than the standard error of
the mean up to 4e11 draws. Deviations are also scaled by their range, so that no square over- or
underflows in float32; in float64 the variance may if it is not representable.
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
    """The result of :func:`dpjax.simulate`, for each value separately; NumPy arrays.

    The values have the shape ``(rows, ...)``: that of the distribution's batch, or of the statistic
    without its first axis. If a row has no distribution (invalid parameters), its numbers are NaN
    and its counts 0.

    Attributes:
        count: the number of draws from each row.
        mean: float64 ``(rows, ...)``.
        variance: the sample variance, with ``count - 1`` in the denominator; NaN for one draw.
        minimum: the smallest value.
        maximum: the largest value.
        bins: the edges, rounded to the dtype of the values, ``(k+1,)``; None without bins.
        counts: int64 ``(rows, ..., k+2)``: the numbers of values below the first edge, in each
            ``[bins[i], bins[i+1])``, and from the last edge on; None without bins.

    >>> import jax, jax.numpy as jnp, dpjax
    >>> means = jnp.array([1.0, 5.0])
    >>> distribution_fn = lambda x: dpjax.laplace(x, 1.0, sensitivity=1.0)
    >>> dpjax.simulate(jax.random.key(0), distribution_fn, means, draws=1000).mean.shape
    (2,)
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
        """Return the histogram of each row, or without bins the mean against the row."""
        table = {
            "mean": self.mean,
            "standard error": self.standard_error,
            "minimum": self.minimum,
            "maximum": self.maximum,
        }
        if self.bins is None or self.counts is None or self.bins.size < 2:
            mean = self.mean.ravel()[None]
            return table, Picture(np.arange(mean.size)[None], mean, "row", "mean")
        shares = self.counts.reshape(-1, self.counts.shape[-1])[:rows, 1:-1] / self.count
        middles = np.broadcast_to((self.bins[1:] + self.bins[:-1]) / 2, shares.shape)
        return table, Picture(middles, shares, "value", "share of draws in a bin")

    @property
    def standard_error(self) -> np.ndarray:
        """The estimated standard deviation of ``mean`` over keys, ``sqrt(variance / count)``.

        By the central limit theorem the expected value is within 1.96 of it in 95 % of the runs. It
        only measures the randomness of the draws, not that of the data, and does not include rare
        values that were never drawn.
        """
        return np.sqrt(self.variance / self.count)


class ChunkSummary(NamedTuple):
    """The summary of one chunk of values v, on a device; fields are ``(rows, ...)``.

    It is expressed in d = (v - shift) / spread.

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
    """The state of a run on the host; arrays are float64 and int64 ``(rows, ...)``.

    Attributes:
        chunks: the number of chunks so far.
        draws: the number of draws of each row so far.
        mean: the mean of the values.
        squares: the sum of squared deviations from the mean.
        minimum: the smallest value.
        maximum: the largest value.
        counts: the histogram, or None.
    """

    chunks: int
    draws: int
    mean: np.ndarray
    squares: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray
    counts: np.ndarray | None

    @staticmethod
    def empty(shape: tuple[int, ...], bins: int | None) -> State:
        """Return the state before the first chunk."""
        zero, inf = np.zeros(shape), np.full(shape, np.inf)
        return State(
            0,
            0,
            zero,
            zero,
            inf,
            -inf,
            None if bins is None else np.zeros((*shape, bins + 1), np.int64),
        )

    def merge(self, chunk: ChunkSummary, size: int) -> State:
        """Add a chunk of ``size`` draws that was copied to the host (Chan, Golub and LeVeque)."""
        with np.errstate(all="ignore"):  # a row without a distribution is NaN, quietly
            shift, spread, first, second = (np.asarray(field, np.float64) for field in chunk[:4])
            mean = shift + spread * (first / size)
            squares = np.square(spread) * np.maximum(second - first * first / size, 0.0)
            total = self.draws + size
            step = mean - self.mean
            # Step may be infinite, and 0 * inf is NaN.
            apart = step * step * (self.draws * (size / total)) if self.draws else 0.0
            return State(
                chunks=self.chunks + 1,
                draws=total,
                mean=mean if self.draws == 0 else self.mean + step * (size / total),
                squares=self.squares + squares + apart,
                minimum=np.minimum(self.minimum, chunk.minimum),
                maximum=np.maximum(self.maximum, chunk.maximum),
                counts=None
                if self.counts is None
                else self.counts + np.asarray(chunk.counts, np.int64),
            )

    def estimate(self, bins: np.ndarray | None) -> Estimate:
        """Return the estimate of the finished run."""
        variance = (
            self.squares / (self.draws - 1) if self.draws > 1 else np.full(self.mean.shape, np.nan)
        )
        return Estimate(
            self.draws, self.mean, variance, self.minimum, self.maximum, bins, self.counts
        )


def summarize(values: jax.Array, keep: jax.Array, edges: jax.Array | None) -> ChunkSummary:
    """Summarize the first ``keep`` (int32) of the values, ``(chunk, rows, ...)``."""
    values = jax.lax.optimization_barrier(values)
    number = jnp.arange(values.shape[0], dtype=jnp.int32)
    kept = jnp.broadcast_to((number < keep).reshape((-1,) + (1,) * (values.ndim - 1)), values.shape)
    minimum = jnp.min(jnp.where(kept, values, jnp.inf), axis=0)
    maximum = jnp.max(jnp.where(kept, values, -jnp.inf), axis=0)
    spread = jnp.where(maximum > minimum, maximum - minimum, 1.0)
    # These clips change numbers by at most a rounding. They separate each product from the sum that
    # uses it, so that the compiler cannot fuse the two into one multiply-add in some loops and not
    # in others.
    shift = jnp.clip(
        pairwise_sum(jnp.where(kept, values, 0.0)) / keep.astype(values.dtype), minimum, maximum
    )
    deviations = jnp.clip(jnp.where(kept, (values - shift) / spread, 0.0), -2.0, 2.0)
    squares = jnp.minimum(deviations * deviations, 4.0)
    counts = None if edges is None else _count(values, kept, edges)
    return ChunkSummary(
        shift, spread, pairwise_sum(deviations), pairwise_sum(squares), minimum, maximum, counts
    )


def pairwise_sum(values: jax.Array) -> jax.Array:
    """Sum over the first axis by a fixed tree of additions."""
    while values.shape[0] > 1:
        quarter = -(-values.shape[0] // 4)
        values = jnp.pad(
            values, [(0, 4 * quarter - values.shape[0])] + [(0, 0)] * (values.ndim - 1)
        )
        a, b, c, d = (values[i * quarter : (i + 1) * quarter] for i in range(4))
        values = jax.lax.optimization_barrier((a + b) + (c + d))
    return values[0]


def _count(values: jax.Array, kept: jax.Array, edges: jax.Array) -> jax.Array:
    places = edges.shape[0] + 1
    # Unrolled bisection is three times as fast on the CPU as a loop. Values that do not count are
    # moved beyond the end and dropped.
    bin_of = jnp.searchsorted(edges, values, side="right", method="scan_unrolled").astype(jnp.int32)
    bin_of = jnp.where(kept & ~jnp.isnan(values), bin_of, np.int32(places)).reshape(
        values.shape[0], -1
    )
    cell = jnp.broadcast_to(jnp.arange(bin_of.shape[1], dtype=jnp.int32)[None], bin_of.shape)
    counts = jnp.zeros((bin_of.shape[1], places), jnp.int32).at[cell, bin_of].add(1, mode="drop")
    return counts.reshape(*values.shape[1:], places)


def to_host(chunk: ChunkSummary, rows: int) -> Any:
    """Wait for a chunk and drop padded rows."""
    return jax.tree.map(lambda array: np.asarray(array)[:rows], chunk)
