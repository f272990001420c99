"""A law whose draws are clamped to public bounds: post-processing, with the exact error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.distributions.noise import SymmetricNoise
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.numerics.batching import align, broadcast_batch
from dpjax.random.keys import check_key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Clamped:
    """``clip(Y, lower, upper)`` for a Y of another law: the mass beyond the bounds sits on them.

    Leading axes are a batch. It is a pytree; all methods but ``sample`` are as exact as those of the law.

    Attributes:
        law: :class:`PiecewiseExponential`, :class:`Cauchy` or :class:`LaplaceLogNormal`.
        lower: float that broadcasts against the law's batch shape.
        upper: the same, above ``lower``.

    >>> import jax.numpy as jnp
    >>> from dpjax.distributions.cauchy import Cauchy
    >>> law = Clamped.of(Cauchy(jnp.asarray(0.0), jnp.asarray(1.0)), lower=-1, upper=1)
    >>> round(float(law.mean_abs_error(0.0)), 4)
    0.7206
    """

    law: PiecewiseExponential | SymmetricNoise
    lower: jax.Array
    upper: jax.Array

    @staticmethod
    def of(law: PiecewiseExponential | SymmetricNoise, *, lower: ArrayLike, upper: ArrayLike) -> Clamped:
        """Return the clamped law; bounds given as Python or NumPy values are checked.

        Raises:
            TypeError: another kind of law.
            ValueError: ``lower >= upper``.
        """
        if not isinstance(law, (PiecewiseExponential, SymmetricNoise)):
            raise TypeError(f"Clamped takes a law with a density on the line, got {type(law).__name__}.")
        return Clamped(law, *checks.bounds(lower, upper, law.dtype))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of the law and the bounds."""
        return jnp.broadcast_shapes(self.law.batch_shape, self.lower.shape, self.upper.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of every result."""
        return self.law.dtype

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw from the law and clamp; a bound with further axes takes the same draws of the law.

        Args:
            key: a scalar typed threefry key.
            shape: the shape of the draws from each row.

        Returns:
            Float of shape ``shape + batch_shape``.

        Raises:
            TypeError: ``key`` is not a typed key.
            ValueError: another kind of key.
        """
        return self._sample(check_key(key), tuple(shape), 0)

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike) -> jax.Array:
        """Draw where the batch's first row is row number ``first`` of a larger batch; see ``dpjax.simulation``."""
        batch, own = self.batch_shape, self.law.batch_shape
        draws = self.law._sample(key, shape, first if own and len(own) == len(batch) and own[0] == batch[0] else 0)
        draws = draws.reshape(*shape, *(1,) * (len(batch) - len(own)), *own)
        low, high = (align(bound, draws.ndim) for bound in (self.lower, self.upper))
        return jnp.clip(draws, low, high)

    def cdf(self, y: ArrayLike) -> jax.Array:
        """P(Y <= y), for a ``y`` that broadcasts against ``batch_shape``."""
        points, low, high = self._points("y", y)
        inside = self.law.cdf(jnp.clip(points, low, high))
        return jnp.where(points >= high, jnp.ones_like(inside), jnp.where(points < low, 0.0, inside))

    def survival(self, y: ArrayLike) -> jax.Array:
        """P(Y > y), for a ``y`` that broadcasts against ``batch_shape``."""
        points, low, high = self._points("y", y)
        inside = self.law.survival(jnp.clip(points, low, high))
        return jnp.where(points >= high, 0.0, jnp.where(points < low, jnp.ones_like(inside), inside))

    def quantile(self, p: ArrayLike) -> jax.Array:
        """The smallest y with ``cdf(y) >= p``, for a ``p`` that broadcasts against ``batch_shape``; NaN outside [0, 1]."""
        points, low, high = self._points("p", p)
        return jnp.clip(self.law.quantile(points), low, high)

    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """The clamped ends of the law's central interval of probability ``level``."""
        points, low, high = self._points("level", level)
        below, above = self.law.interval(points)
        return jnp.clip(below, low, high), jnp.clip(above, low, high)

    def mean(self) -> jax.Array:
        """E[Y], of shape ``batch_shape``."""
        law, batch = self.law, self.batch_shape
        low, high = (broadcast_batch(bound, batch) for bound in (self.lower, self.upper))
        # From the point of the range that is nearest to the median: what lies on either side of it is small.
        median = broadcast_batch(law.loc if isinstance(law, SymmetricNoise) else law.quantile(0.5), batch)
        at = jax.lax.stop_gradient(jnp.clip(median, low, high))  # any point has the same sum
        return at + (Clamped(law, at, high).mean_abs_error(at) - Clamped(law, low, at).mean_abs_error(at))

    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """E|Y - center|, for a ``center`` that broadcasts against ``batch_shape``."""
        at, low, high = self._points("center", center)
        if isinstance(self.law, SymmetricNoise):
            return self.law.clamped_mean_abs_error(at, low, high)
        below, mass, above = self._masses(low, high)
        inside = self.law.restrict(low, high).mean_abs_error(at)
        return _times(mass, inside) + below * jnp.abs(at - low) + above * jnp.abs(at - high)

    def _masses(self, low: jax.Array, high: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """P(Y <= low), the rest, and P(Y > high) of the law: the rest as the difference of the smaller tails."""
        below, above, from_low, to_high = self.law.cdf(low), self.law.survival(high), self.law.survival(low), self.law.cdf(high)
        rest = jnp.where(from_low < 0.5, from_low - above, jnp.where(to_high < 0.5, to_high - below, 1 - below - above))
        return below, rest, above

    def _points(self, name: str, value: ArrayLike) -> tuple[jax.Array, jax.Array, jax.Array]:
        """An argument and the bounds, with as many axes as the batch."""
        array = checks.float_array(name, value).astype(self.dtype)
        shape = np.broadcast_shapes(array.shape, self.batch_shape)
        array, low, high = (
            jnp.broadcast_to(align(one, len(shape)), np.broadcast_shapes(align(one, len(shape)).shape, self.batch_shape))
            for one in (array, self.lower, self.upper)
        )
        return array, low, high


def _times(mass: jax.Array, value: jax.Array) -> jax.Array:
    """The product, 0 where there is no mass, and so no value."""
    return jnp.where(mass > 0, mass * jnp.where(mass > 0, value, 0.0), jnp.where(jnp.isnan(mass), mass, 0.0))
