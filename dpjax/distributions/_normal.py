"""The Gaussian distribution on the real line and in R^d."""

from __future__ import annotations

from math import exp, lgamma, log, pi, sqrt

import jax
import jax.numpy as jnp

from dpjax.distributions.noise import SymmetricNoise
from dpjax.distributions.vectors import VectorDistribution
from dpjax.pytrees import pytree


@pytree
class Gaussian(SymmetricNoise):
    """``loc + scale * Z`` with Z standard normal.

    Attributes:
        loc: float ``(...)``.
        scale: float ``(...)``, positive: the standard deviation.

    >>> import jax.numpy as jnp
    >>> noise = Gaussian(jnp.asarray(0.0), jnp.asarray(2.0))
    >>> round(float(noise.survival(2.0)), 5), round(float(noise.mean_abs_error(0.0)), 5)
    (0.15866, 1.59577)
    """

    _parameters = ("scale",)

    def _log_density(self, z: jax.Array) -> jax.Array:
        return -jnp.square(z) / 2 - log(2 * pi) / 2

    def _tail(self, z: jax.Array) -> jax.Array:
        return jax.scipy.special.erfc(z * sqrt(0.5)) / 2

    def _tail_integral(self, z: jax.Array) -> jax.Array:
        """Integrate by parts: z P(Z > z) plus the integral of t times the density."""
        return jnp.where(z < jnp.inf, z, 0.0) * self._tail(z) - jnp.expm1(
            -jnp.square(z) / 2
        ) / sqrt(2 * pi)

    def _tail_quantile(self, p: jax.Array) -> jax.Array:
        return -jax.scipy.special.ndtri(p)

    def _mean_abs(self) -> jax.Array:
        return jnp.asarray(sqrt(2 / pi), self.dtype)

    def _mean_square(self) -> jax.Array:
        return jnp.ones((), self.dtype)


@pytree
class SphericalGaussian(VectorDistribution):
    """``loc + scale * Z`` with Z standard normal in R^d and the Euclidean norm.

    Attributes:
        loc: float ``(..., d)``.
        scale: float ``(...)``, positive: the standard deviation of each coordinate.

    >>> import jax.numpy as jnp
    >>> noise = SphericalGaussian(jnp.zeros(100), jnp.asarray(1.0))
    >>> round(float(noise.mean_norm_error()), 4), round(float(noise.norm_quantile(0.95)), 4)
    (9.975, 11.1509)
    """

    loc: jax.Array
    scale: jax.Array

    @property
    def coordinates(self) -> Gaussian:
        """The distributions of the coordinates, of batch shape ``(..., d)``."""
        return Gaussian(self.loc, self.scale[..., None])

    def _sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return self.coordinates._sample(key, shape)

    def _log_density(self, r: jax.Array) -> jax.Array:
        d = self.loc.shape[-1]
        return -jnp.square(r / self.scale) / 2 - d * (jnp.log(self.scale) + log(2 * pi) / 2)

    def _norm_tails(self, r: jax.Array) -> tuple[jax.Array, jax.Array]:
        half = jnp.square(r / self.scale) / 2
        d = jnp.asarray(self.loc.shape[-1] / 2, self.dtype)
        return jax.scipy.special.gammainc(d, half), jax.scipy.special.gammaincc(d, half)

    def _norm_moment(self) -> jax.Array:
        d = self.loc.shape[-1]
        return self.scale * (sqrt(2) * exp(lgamma((d + 1) / 2) - lgamma(d / 2)))
