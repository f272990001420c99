"""Distributions clamped to public bounds, which is post-processing, with their exact errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.distributions.base import Distribution, compiled
from dpjax.distributions.noise import SymmetricNoise
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.numerics.float64 import in_float64
from dpjax.pytrees import pytree


class Bounded(Distribution):
    """An increasing map of a draw of ``distribution`` to values between bounds.

    A subclass has ``distribution`` and the members declared here.
    """

    if TYPE_CHECKING:
        distribution: Any

        @property
        def _bounds(self) -> tuple[Any, Any]:
            """The smallest and the largest value."""

        def _place(self, y: jax.Array) -> jax.Array:
            """Return the draw that is mapped to y, for any y."""

        def _value(self, z: jax.Array) -> jax.Array:
            """Return the value of a draw."""

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The values of the bounds of the distribution's support, of shape ``batch_shape`` each."""
        low, high = self.distribution.support
        return self._value(low), self._value(high)

    @compiled
    def cdf(self, y: ArrayLike) -> jax.Array:
        """Return P(Y <= y), at the precision of the distribution's lower tail."""
        return self._at(y, 0.0, self.distribution.cdf, 1.0)

    @compiled
    def survival(self, y: ArrayLike) -> jax.Array:
        """Return P(Y > y), at the precision of the distribution's upper tail."""
        return self._at(y, 1.0, self.distribution.survival, 0.0)

    def _at(self, y: Any, below: float, inside: Any, above: float) -> jax.Array:
        low, high = self._bounds
        return jnp.where(y < low, below, jnp.where(y >= high, above, inside(self._place(y))))

    @compiled
    def quantile(self, p: ArrayLike) -> jax.Array:
        """Return the smallest y with ``cdf(y) >= p``, up to rounding; NaN outside [0, 1]."""
        return self._value(self.distribution.quantile(p))

    @compiled
    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the central interval of probability ``level``.

        Each side leaves out ``(1 - level) / 2``.
        """
        low, high = self.distribution.interval(level)
        return self._value(low), self._value(high)


@pytree
class Clamped(Bounded):
    """The distribution of ``clip(Y, lower, upper)``, which has atoms at the two bounds.

    Leading axes are a batch. All methods except ``sample`` are as exact as those of the
    distribution. Along batch axes that only the bounds have, the same draws of Y are clamped.

    Attributes:
        distribution: the distribution of Y, such as :class:`PiecewiseExponential`, :class:`Cauchy`
            or :class:`LaplaceLogNormal`.
        lower: float that broadcasts against the distribution's batch shape.
        upper: float that broadcasts likewise, above ``lower``.

    >>> import jax.numpy as jnp
    >>> from dpjax.distributions.cauchy import Cauchy
    >>> clamped = Clamped.of(Cauchy(jnp.asarray(0.0), jnp.asarray(1.0)), lower=-1, upper=1)
    >>> round(float(clamped.mean_abs_error(0.0)), 4)
    0.7206
    """

    distribution: PiecewiseExponential | SymmetricNoise
    lower: jax.Array
    upper: jax.Array

    @staticmethod
    def of(
        distribution: PiecewiseExponential | SymmetricNoise, *, lower: ArrayLike, upper: ArrayLike
    ) -> Clamped:
        """Return the clamped distribution; bounds that are Python or NumPy values are checked.

        Raises:
            TypeError: ``distribution`` is of another class.
            ValueError: ``lower >= upper``.
        """
        if not isinstance(distribution, (PiecewiseExponential, SymmetricNoise)):
            raise TypeError(
                "distribution must have a density on the real line (PiecewiseExponential, Cauchy, "
                f"LaplaceLogNormal, ...), got {type(distribution).__name__}."
            )
        return Clamped(distribution, *checks.bounds(lower, upper, distribution.dtype))

    @property
    def _bounds(self) -> tuple[jax.Array, jax.Array]:
        return self.lower, self.upper

    def _sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        inner = self.distribution.batch_shape
        more = (1,) * (len(self.batch_shape) - len(inner))
        draws = self.distribution._sample(key, shape)
        return self._value(draws.reshape(*shape, *more, *inner))

    def mean(self) -> jax.Array:
        """Return the mean, E[Y], of shape ``batch_shape``."""
        return in_float64(lambda wide: wide.lower + wide.mean_abs_error(wide.lower), self)

    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|Y - center|."""
        at = self._points("center", center)
        if isinstance(self.distribution, SymmetricNoise):
            return self.distribution.clamped_mean_abs_error(at, self.lower, self.upper)
        inner = self.distribution
        below, above = inner.cdf(self.lower), inner.survival(self.upper)
        # From the smaller tails.
        more, less = inner.survival(self.lower), inner.cdf(self.upper)
        mass = jnp.where(more < 0.5, more - above, less - below)
        inside = inner.restrict(self.lower, self.upper).mean_abs_error(at)
        inside = jnp.where(mass == 0, 0.0, mass * jnp.where(mass == 0, 0.0, inside))
        return inside + below * jnp.abs(at - self.lower) + above * jnp.abs(at - self.upper)

    def _value(self, z: jax.Array) -> jax.Array:
        return jnp.clip(z, self.lower, self.upper)

    def _place(self, y: jax.Array) -> jax.Array:
        return self._value(y)
