"""Base class of the distributions on R^d whose density depends on a norm of the distance to loc."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.distributions.base import Drawn, compiled
from dpjax.numerics.search import bisect


class VectorDistribution(Drawn):
    """A batch of distributions on R^d, as a pytree; the last axis of draws is coordinates.

    A subclass describes the density and the norm of ``Y - loc``, which is the L_p norm of its
    attribute ``p``, from 1 to infinity.
    """

    p = 2.0
    _event_axes: ClassVar[tuple[str, ...]] = ("loc",)
    _parameters = ("scale",)

    if TYPE_CHECKING:  # declared, not defined
        loc: jax.Array

        def _log_density(self, r: jax.Array) -> jax.Array:
            """Return the log-density of Y where the norm of Y - loc is r."""

        def _norm_tails(self, r: jax.Array) -> tuple[jax.Array, jax.Array]:
            """Return P(norm <= r) and P(norm > r), each at full relative precision where small."""

        def _norm_moment(self) -> jax.Array:
            """Return the mean of the norm, of shape ``batch_shape``."""

    @property
    def event_shape(self) -> tuple[int]:
        """The shape of one vector, ``(d,)``."""
        return (self.loc.shape[-1],)

    @compiled
    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return the log-density of vectors ``(..., d)``.

        The result has the shape to which leading axes and ``batch_shape`` broadcast.

        Raises:
            ValueError: the last axis of ``y`` does not have size d.
        """
        return self._log_density(norm(jnp.asarray(y) - self.loc, self.p))

    @compiled
    def norm_cdf(self, r: ArrayLike) -> jax.Array:
        """Return P(norm of Y - loc <= r), at full relative precision for small r."""
        return self._norm_tails(jnp.maximum(r, 0.0))[0]

    @compiled
    def norm_survival(self, r: ArrayLike) -> jax.Array:
        """Return P(norm of Y - loc > r), at full relative precision for large r."""
        return self._norm_tails(jnp.maximum(r, 0.0))[1]

    @compiled
    def norm_quantile(self, p: ArrayLike) -> jax.Array:
        """Return the inverse of :meth:`norm_cdf`.

        It is the radius of the ball around ``loc`` of probability p.
        """
        # NaN where the parameters define no distribution.
        p = jnp.asarray(p) + 0 * self.mean_norm_error()

        def is_below(r: jax.Array) -> jax.Array:
            below, above = self._norm_tails(r)
            return jnp.where(p < 0.5, below < p, above >= 1 - p)

        radius = bisect(is_below, jnp.zeros_like(p), jnp.full_like(p, inf))[1]
        return jnp.where((p >= 0) & (p <= 1), radius, jnp.nan)

    @compiled
    def mean_norm_error(self) -> jax.Array:
        """Return E[norm of Y - loc], of shape ``batch_shape``."""
        return jnp.broadcast_to(self._norm_moment(), self.batch_shape)


@partial(jax.jit, inline=True, static_argnames="p")
def norm(vectors: jax.Array, p: float) -> jax.Array:
    """Return the L_p norm over the last axis, for p in [1, inf], without overflow of powers.

    >>> float(norm(jnp.array([3.0, 4.0]), 2.0)), float(norm(jnp.array([3.0, -4.0]), float("inf")))
    (5.0, 4.0)
    """
    size = jnp.abs(vectors)
    if p == 1:
        return jnp.sum(size, axis=-1)
    largest = jnp.max(size, axis=-1)
    if p == inf:
        return largest
    unit = jax.lax.stop_gradient(jnp.where((largest > 0) & (largest < jnp.inf), largest, 1.0))
    total = jnp.sum((size / unit[..., None]) ** p, axis=-1)
    return unit * jnp.where(total > 0, jnp.where(total > 0, total, 1.0) ** (1 / p), 0.0)
