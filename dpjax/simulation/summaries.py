"""Summaries of values: a chunk is summarized on devices, and chunks are merged on the host.

Means and squares are local float64 whatever the dtype of the values is, so that an offset of the
data or a large scale costs no precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

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
        squares: the sum of squared deviations from the mean.
        minimum: the smallest value.
        maximum: the largest value.
        bins: the edges, float64 ``(k+1,)``; None without bins.
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
    squares: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray
    bins: np.ndarray | None = None
    counts: np.ndarray | None = None

    def _facts(self) -> dict[str, Any]:
        bins = {} if self.bins is None else {"bins": self.bins.size - 1}
        return {
            "shape": self.mean.shape,
            "count": self.count,
            "mean": span(self.mean),
            "standard_error": span(self.standard_error),
            **bins,
        }

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        """Return the histogram of each row, or without bins the mean against the row."""
        names = "mean", "standard_error", "minimum", "maximum"
        table = {name.replace("_", " "): getattr(self, name) for name in names}
        if self.bins is None or self.counts is None:
            mean = self.mean.ravel()[None]
            return table, Picture(np.arange(mean.size)[None], mean, "row", "mean")
        shares = self.counts.reshape(-1, self.counts.shape[-1])[:rows, 1:-1] / self.count
        middles = np.broadcast_to((self.bins[1:] + self.bins[:-1]) / 2, shares.shape)
        return table, Picture(middles, shares, "value", "share of draws in a bin")

    @property
    def variance(self) -> np.ndarray:
        """The sample variance, with ``count - 1`` in the denominator; NaN for one draw."""
        with np.errstate(invalid="ignore"):
            return np.divide(self.squares, self.count - 1)

    @property
    def standard_error(self) -> np.ndarray:
        """The estimated standard deviation of ``mean`` over keys, ``sqrt(variance / count)``.

        By the central limit theorem the expected value is within 1.96 of it in 95 % of the runs. It
        only measures the randomness of the draws, not that of the data, and does not include rare
        values that were never drawn.
        """
        return np.sqrt(self.variance / self.count)

    def merge(self, other: Estimate) -> Estimate:
        """Return the estimate from both numbers of draws (Chan, Golub and LeVeque 1983)."""
        count = self.count + other.count
        with np.errstate(all="ignore"):  # values may be infinite
            step = other.mean - self.mean
            return Estimate(
                count,
                self.mean + step * (other.count / count),
                self.squares + other.squares + step * (self.count * (other.count / count)) * step,
                np.minimum(self.minimum, other.minimum),
                np.maximum(self.maximum, other.maximum),
                other.bins,
                other.counts if self.counts is None else self.counts + other.counts,
            )


@jax.jit
def summarize(values: jax.Array, count: ArrayLike, edges: jax.Array | None) -> dict[str, jax.Array]:
    """Summarize the first ``count`` of the values, ``(chunk, rows, ...)``, as an estimate does."""
    number = jnp.arange(values.shape[0], dtype=jnp.int32)
    kept = (number < count).reshape(-1, *[1] * (values.ndim - 1))
    with jax.enable_x64(True):
        wide = values.astype(jnp.float64)
        minimum = jnp.min(wide, axis=0, where=kept, initial=jnp.inf)
        maximum = jnp.max(wide, axis=0, where=kept, initial=-jnp.inf)
        # Equal values are their mean.
        mean = jnp.clip(jnp.mean(wide, axis=0, where=kept), minimum, maximum)
        squares = jnp.sum(jnp.square(wide - mean), axis=0, where=kept)
        fields = {"mean": mean, "squares": squares, "minimum": minimum, "maximum": maximum}
        if edges is not None:
            fields["counts"] = _histogram(jnp.where(kept, wide, jnp.nan), edges)
        return fields


def _histogram(values: jax.Array, edges: jax.Array) -> jax.Array:
    """Count the values on the first axis between edges; a NaN is in no bin."""
    edges = jnp.pad(edges.astype(jnp.float64), 1, constant_values=(-jnp.inf, jnp.inf))
    columns = values.reshape(values.shape[0], -1)
    counts = jax.vmap(lambda column: jnp.histogram(column, edges)[0], in_axes=1)(columns)
    return counts.reshape(*values.shape[1:], -1).astype(jnp.int64)
