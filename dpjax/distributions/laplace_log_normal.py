"""The Laplace-log-normal distribution of Bun and Steinke (2019): X e^(sigma Y).

X is standard Laplace and Y standard normal. With Psi(z) = E exp(-z e^(-sigma Y)), the tail is P(Z >
z) = Psi(z)/2 and the density e^(sigma^2/2) Psi(z e^(sigma^2)) / 2. The integrand of Psi is
log-concave with curvature at least 1, so a trapezoidal rule around its peak (located by Lambert's
W) has the same relative precision however large z is: its error is below 1e-13 for sigma up to 4.
"""

from __future__ import annotations

from dataclasses import field
from math import log, pi, sqrt

import jax
import jax.numpy as jnp

from dpjax.distributions.noise import SymmetricNoise, tail_and_sign
from dpjax.pytrees import pytree

# The error of the trapezoidal rule is e^(-pi^2 / (sigma * step)): 7e-18 at sigma = 4.
_STEP = 1 / 16
_TURNS = 13  # standard deviations on either side, up to 4 of which a derivative takes away


@pytree
class LaplaceLogNormal(SymmetricNoise):
    """``loc + scale * X e^(sigma Y)`` with X standard Laplace and Y standard normal, independent.

    All moments are finite: E|Z| = e^(sigma^2/2), E[Z^2] = 2 e^(2 sigma^2). (The Duff paper writes Y
    ~ N(0, sigma) together with e^(sigma Y), which counts sigma twice.) Densities, tails and clamped
    errors are quadratures with an error below 1e-13 for sigma up to 4.

    Attributes:
        loc: float ``(...)``.
        scale: float ``(...)``, positive.
        sigma: float ``(...)``, nonnegative; 0 is the Laplace distribution.

    References:
        Bun and Steinke (2019), Section 3.

    >>> import jax.numpy as jnp
    >>> noise = LaplaceLogNormal(jnp.asarray(0.0), jnp.asarray(1.0), jnp.asarray(0.0))
    >>> round(float(noise.survival(2.0)), 5), round(float(noise.mean_abs_error(0.0)), 5)
    (0.06767, 1.0)
    """

    sigma: jax.Array = field(default_factory=lambda: jnp.asarray(0.0))

    def _log_density(self, z: jax.Array) -> jax.Array:
        half = jnp.square(self.sigma) / 2
        return half - log(2) + self._log_psi(z * jnp.exp(2 * half))

    def _tail(self, z: jax.Array) -> jax.Array:
        return jnp.exp(self._log_psi(z)) / 2

    def _tail_integral(self, z: jax.Array) -> jax.Array:
        """Return E[e^(sigma Y) (1 - exp(-z e^(-sigma Y)))] / 2; e^(sigma Y) shifts Y by sigma."""
        shifted = self._log_psi(z * jnp.exp(-jnp.square(self.sigma)))
        return -self._mean_abs() * jnp.expm1(shifted) / 2

    def _mean_abs(self) -> jax.Array:
        return jnp.exp(jnp.square(self.sigma) / 2)

    def _mean_square(self) -> jax.Array:
        return 2 * jnp.exp(2 * jnp.square(self.sigma))

    def _standard(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        key_laplace, key_normal = jax.random.split(key)
        half, sign = tail_and_sign(key_laplace, shape, self.dtype)
        tail, side = tail_and_sign(key_normal, shape, self.dtype)
        normal = -side * jax.scipy.special.ndtri(tail)
        return sign * -jnp.log(2 * half) * jnp.exp(self.sigma * normal)

    def _log_psi(self, z: jax.Array) -> jax.Array:
        """Return log E exp(-z e^(-sigma Y)), for z >= 0."""
        # The peak solves y = sigma z e^(-sigma y), that is, sigma y = W(sigma^2 z). It need not be
        # exact: Newton's method for w + log w = log x.
        fixed_sigma, fixed_z = jax.lax.stop_gradient((self.sigma, z))
        x = jnp.maximum(jnp.square(fixed_sigma) * fixed_z, jnp.finfo(z.dtype).tiny)
        w = jnp.log1p(x)
        for _ in range(4):
            w = w * (1 + jnp.log(x / w)) / (1 + w)
        peak = fixed_sigma * fixed_z * jnp.exp(-w)
        top = -jnp.square(peak) / 2 - fixed_z * jnp.exp(-fixed_sigma * peak)

        def add(number: jax.Array, total: jax.Array) -> jax.Array:
            places = number.astype(top.dtype) + jnp.arange(0, 1, _STEP, top.dtype)
            y = jnp.expand_dims(peak, -1) + places
            sigma, rate, least = (jnp.expand_dims(a, -1) for a in (self.sigma, z, top))
            height = jnp.exp(-jnp.square(y) / 2 - rate * jnp.exp(-sigma * y) - least)
            return total + jnp.sum(height, axis=-1)

        total = jax.lax.fori_loop(-_TURNS, _TURNS, add, jnp.zeros_like(top))
        return jnp.minimum(top + jnp.log(total * (_STEP / sqrt(2 * pi))), 0.0)
