"""The generalised Cauchy law: density proportional to 1 / (1 + |z|^gamma), gamma > 1; gamma = 2 is the Cauchy law.

With u = 1 / (1 + |z|^gamma), P(|Z| > z) is the incomplete beta function I_u(1 - 1/gamma, 1/gamma). Its two parameters add up to 1,
so that one hypergeometric series of positive terms, sum_k k! / (p+1)_k u^k, gives it (and the integral of the tail) to a few units
in the last place: for |z| >= 1 in u <= 1/2, for |z| < 1 in 1 - u.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import fsum, inf, log, pi, sin

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions.noise import SymmetricNoise, smaller_tail
from dpjax.random.noise import UniformPair

_DEGREE = 23
_STEPS = 7  # of Newton's method: monotone, and quadratic from the first


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cauchy(SymmetricNoise):
    """``loc + scale * Z`` with density of Z proportional to ``1 / (1 + |z|^gamma)``.

    The tail falls like z^(1 - gamma): the mean exists for gamma > 2, the variance for gamma > 3. Below, ``mean`` is NaN,
    ``mean_abs_error`` and ``variance`` infinite; only clamped errors are finite. With gamma below 1.5, a float32 draw can overflow.

    Attributes:
        loc: float ``(...)``.
        scale: float ``(...)``, positive.
        gamma: static, above 1; 2 has its own closed forms.

    References:
        Nissim, Raskhodnikova and Smith (2007), Lemma 2.7; Gillenwater and Munoz Medina, Proposition 3.

    >>> import jax, jax.numpy as jnp
    >>> law = Cauchy(jnp.asarray(0.0), jnp.asarray(1.0))
    >>> round(float(law.survival(1.0)), 6), float(law.mean_abs_error(0.0))
    (0.25, inf)
    """

    gamma: float = field(default=2.0, metadata={"static": True})

    def __post_init__(self) -> None:
        if not 1 < self.gamma < inf:
            raise ValueError(f"gamma must be a static number above 1, got {self.gamma}.")

    @property
    def _beta(self) -> float:
        """B(1/gamma, 1 - 1/gamma), which is gamma times the integral of 1 / (1 + z^gamma) over z > 0."""
        return pi / sin(pi / self.gamma)

    def _log_density(self, z: jax.Array) -> jax.Array:
        far = z > 1
        near, beyond = jnp.where(far, 1.0, z), jnp.where(far, z, 1.0)
        power = self.gamma * jnp.log(beyond)
        log_weight = jnp.where(far, power + jnp.log1p(jnp.exp(-power)), jnp.log1p(near**self.gamma))
        return log(self.gamma / (2 * self._beta)) - log_weight

    def _tail(self, z: jax.Array) -> jax.Array:
        if self.gamma == 2:
            return jnp.arctan2(jnp.ones_like(z), z) / pi
        a, b = 1 - 1 / self.gamma, 1 / self.gamma
        far = z > 1
        near, inverse = jnp.where(far, 1.0, z), 1 / jnp.where(far, z, 1.0)
        t, x = near**self.gamma, inverse**self.gamma
        outside = inverse ** (self.gamma - 1) / (1 + x) * _series(a, x / (1 + x)) / (a * self._beta)
        inside = near / (1 + t) * _series(b, t / (1 + t)) / (b * self._beta)
        return jnp.where(jnp.isnan(z), jnp.nan, jnp.where(far, outside, 1 - inside)) / 2

    def _tail_integral(self, z: jax.Array) -> jax.Array:
        """By parts: z P(Z > z) plus the integral of t times the density."""
        far = z > 1
        near, beyond = jnp.where(far, 1.0, z), jnp.where(far, z, 1.0)
        rise, x = jnp.log(beyond), (1 / beyond) ** self.gamma
        if self.gamma == 2:
            moment = jnp.where(far, 2 * rise + jnp.log1p(x), jnp.log1p(jnp.square(near))) / 2
        else:
            p, t = 2 - 2 / self.gamma, near**self.gamma
            inside = jnp.square(near) / (2 * (1 + t)) * _series(2 / self.gamma, t / (1 + t))
            # Beyond 1, the integral of t^(1 - gamma), less a correction that converges.
            growth = jnp.expm1((2 - self.gamma) * rise) / (2 - self.gamma)
            rest = (1 / beyond) ** (2 * self.gamma - 2) / (1 + x) * _series(p, x / (1 + x)) / (2 * self.gamma - 2)
            half = jnp.full((), 0.5, z.dtype)
            start = _series(2 / self.gamma, half) / 4 - _series(p, half) / (4 * self.gamma - 4)
            moment = jnp.where(far, start.reshape((1,) * z.ndim) + growth + rest, inside)
        return z * self._tail(z) + self.gamma / (2 * self._beta) * moment

    def _tail_quantile(self, p: jax.Array) -> jax.Array:
        if self.gamma == 2:
            far = p < 0.25
            return jnp.where(far, 1 / jnp.tan(pi * jnp.where(far, p, 0.25)), jnp.tan(pi * (0.5 - jnp.where(far, 0.25, p))))
        a, b, g = 1 - 1 / self.gamma, 1 / self.gamma, self.gamma
        # In w = log z both log-masses are concave and nearly linear, and their slopes are -(g - 1) / series and 1 / series.
        far = 2 * p < 2 * self._tail(jnp.ones_like(p))
        outside, inside = jnp.log(2 * p) + log(a * self._beta), jnp.log(jnp.where(far, 1.0, 1 - 2 * p)) + log(b * self._beta)

        def step(_: int, w: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            high, low = w
            x, t = jnp.exp(-g * high), jnp.exp(g * low)
            tail, mass = _series(a, x / (1 + x)), _series(b, t / (1 + t))
            high = high + (jnp.log(tail) - jnp.log1p(x) - (g - 1) * high - outside) * tail / (g - 1)
            low = low - (low + jnp.log(mass) - jnp.log1p(t) - inside) * mass
            return jnp.maximum(high, 0.0), jnp.minimum(low, 0.0)

        start = jnp.maximum(-outside / (g - 1), 0.0), jnp.minimum(inside, 0.0)
        high, low = jax.lax.fori_loop(0, _STEPS, step, start)
        return jnp.where(far, jnp.exp(high), jnp.where(2 * p < 1, jnp.exp(low), 0.0))

    def _mean_abs(self) -> jax.Array:
        return jnp.asarray(sin(pi / self.gamma) / sin(2 * pi / self.gamma) if self.gamma > 2 else inf, self.dtype)

    def _mean_square(self) -> jax.Array:
        return jnp.asarray(sin(pi / self.gamma) / sin(3 * pi / self.gamma) if self.gamma > 3 else inf, self.dtype)

    def _standard(self, pairs: list[UniformPair], *shape_parameters: jax.Array) -> jax.Array:
        tail, sign = smaller_tail(pairs[0])
        return sign * self._tail_quantile(tail)


@lru_cache
def _coefficients(p: float) -> tuple[float, ...]:
    """2F1(1, 1; p+1; u) on [0, 1/2] as a polynomial in s = 4u - 1.

    Interpolated at Chebyshev points: the singularity at u = 1 is s = 3, so the error falls like (3 + sqrt 8)^-degree = 1e-17 and
    the coefficients like 3^-k.
    """

    def exact(s: float) -> float:
        u, terms = (s + 1) / 4, [1.0]
        while terms[-1] > 1e-18:
            terms.append(terms[-1] * u * len(terms) / (p + len(terms)))
        return fsum(terms)

    fit = np.polynomial.Chebyshev.interpolate(np.vectorize(exact), _DEGREE)
    return tuple(float(c) for c in fit.convert(kind=np.polynomial.Polynomial).coef)


def _horner(coefficients: Sequence[float], s: jax.Array) -> jax.Array:
    total = jnp.full_like(s, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * s + coefficient
    return total


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _series(p: float, u: jax.Array) -> jax.Array:
    """Return sum_k k! / (p+1)_k u^k = 2F1(1, 1; p+1; u), for u in [0, 1/2]."""
    return _horner(_coefficients(p), 4 * u - 1)


@_series.defjvp
def _series_jvp(p: float, primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    slopes = [4 * k * c for k, c in enumerate(_coefficients(p))][1:]
    return _series(p, primals[0]), _horner(slopes, 4 * primals[0] - 1) * tangents[0]
