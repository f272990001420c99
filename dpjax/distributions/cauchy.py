"""The generalized Cauchy distribution, with density proportional to 1 / (1 + |z|^gamma), gamma > 1.

The ordinary Cauchy distribution has gamma = 2. With u = 1 / (1 + |z|^gamma), P(|Z| > z) is the
regularized incomplete beta function I_u(1 - 1/gamma, 1/gamma). Its two parameters add up to 1, so a
single hypergeometric series of positive terms, 2F1(1, 1; p+1; u) = sum_k k! / (p+1)_k u^k, gives
both it and the integral of the tail to a few units in the last place: in u <= 1/2 for |z| >= 1, in
1 - u for |z| < 1. Both are x / (1 + x) with x = r^gamma, r the smaller of |z| and 1/|z|.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import fsum, inf, log, pi, sin

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import checks
from dpjax.distributions.noise import SymmetricNoise, smaller_tail
from dpjax.random.uniforms import UniformPair

_STEPS = 7  # of Newton's method, which is monotone here and converges quadratically from the start


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Cauchy(SymmetricNoise):
    """``loc + scale * Z`` with density of Z proportional to ``1 / (1 + |z|^gamma)``.

    The tail falls like z^(1 - gamma): the mean exists for gamma > 2, the variance for gamma > 3.
    For smaller gamma, ``mean`` is NaN, ``mean_abs_error`` and ``variance`` are infinite, and only
    errors of the clamped distribution are finite. For gamma < 1.5, a float32 draw can overflow.

    Attributes:
        loc: float ``(...)``.
        scale: float ``(...)``, positive.
        gamma: static float above 1. For gamma = 2, closed forms are used.

    References:
        Nissim, Raskhodnikova and Smith (2007), Lemma 2.7; Gillenwater and Munoz Medina, Proposition
        3.

    >>> import jax, jax.numpy as jnp
    >>> cauchy = Cauchy(jnp.asarray(0.0), jnp.asarray(1.0))
    >>> round(float(cauchy.survival(1.0)), 6), float(cauchy.mean_abs_error(0.0))
    (0.25, inf)
    """

    gamma: float = field(default=2.0, metadata={"static": True})

    def __post_init__(self) -> None:
        if checks.concrete_positive("gamma", self.gamma) <= 1:
            raise ValueError(f"gamma must be a static number above 1, got {self.gamma}.")

    @property
    def _beta(self) -> float:
        """B(1/gamma, 1 - 1/gamma): gamma times the integral of 1 / (1 + z^gamma) over z > 0."""
        return pi / sin(pi / self.gamma)

    def _log_density(self, z: jax.Array) -> jax.Array:
        _, beyond, r = _split(z)
        return log(self.gamma / (2 * self._beta)) - (
            self.gamma * jnp.log(beyond) + jnp.log1p(r**self.gamma)
        )

    def _tail(self, z: jax.Array) -> jax.Array:
        g = self.gamma
        if g == 2:
            return jnp.arctan2(jnp.ones_like(z), z) / pi
        a, b = 1 - 1 / g, 1 / g
        far, beyond, r = _split(z)
        x = r**g
        mass = (
            jnp.where(far, beyond ** (1 - g) / a, r / b)
            / (1 + x)
            * _series(far, a, b, x)
            / self._beta
        )
        return jnp.where(far, mass, 1 - mass) / 2

    def _tail_integral(self, z: jax.Array) -> jax.Array:
        """Integrate by parts: z P(Z > z) plus the integral of t times the density."""
        g = self.gamma
        far, beyond, r = _split(z)
        x, rise = r**g, jnp.log(beyond)
        if g == 2:
            moment = rise + jnp.log1p(x) / 2
        else:
            # Beyond 1, the integral of t^(1 - gamma), less a correction that converges.
            p, q = 2 - 2 / g, 2 / g
            start = _hypergeometric(q, 0.5) / 4 - _hypergeometric(p, 0.5) / (4 * g - 4)
            growth = jnp.expm1((2 - g) * rise) / (2 - g)
            rest = (
                jnp.where(far, beyond ** (2 - 2 * g) / (2 * g - 2), jnp.square(r) / 2)
                / (1 + x)
                * _series(far, p, q, x)
            )
            moment = jnp.where(far, start + growth + rest, rest)
        return z * self._tail(z) + g / (2 * self._beta) * moment

    def _tail_quantile(self, p: jax.Array) -> jax.Array:
        g = self.gamma
        if g == 2:
            far = p < 0.25
            return jnp.where(
                far,
                1 / jnp.tan(pi * jnp.where(far, p, 0.25)),
                jnp.tan(pi * (0.5 - jnp.where(far, 0.25, p))),
            )
        a, b = 1 - 1 / g, 1 / g
        far = p < _hypergeometric(a, 0.5) / (4 * a * self._beta)  # P(Z > 1)
        # In w = |log z|, both log masses are concave and nearly linear, with slope -rate / series.
        rate = jnp.where(far, g - 1, 1.0).astype(p.dtype)
        target = jnp.log(jnp.where(far, 2 * p, 1 - 2 * p)) + jnp.where(
            far, log(a * self._beta), log(b * self._beta)
        )

        def step(_: int, w: jax.Array) -> jax.Array:
            x = jnp.exp(-g * w)
            series = _series(far, a, b, x)
            return jnp.maximum(
                w + (jnp.log(series) - jnp.log1p(x) - rate * w - target) * series / rate, 0.0
            )

        w = jax.lax.fori_loop(0, _STEPS, step, jnp.maximum(-target / rate, 0.0))
        return jnp.where(2 * p < 1, jnp.exp(jnp.where(far, w, -w)), 0.0)

    def _mean_abs(self) -> jax.Array:
        return self._moment(1)

    def _mean_square(self) -> jax.Array:
        return self._moment(2)

    def _moment(self, power: int) -> jax.Array:
        """E[|Z|^power], infinite unless gamma is above power + 1."""
        angle = (power + 1) * pi / self.gamma
        moment = sin(pi / self.gamma) / sin(angle) if angle < pi else inf
        return jnp.asarray(moment, self.dtype)

    def _standard(self, uniform: Callable[[int], UniformPair]) -> jax.Array:
        tail, sign = smaller_tail(uniform(0))
        return sign * self._tail_quantile(tail)


def _split(z: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return z > 1, max(z, 1) and min(z, 1/z); the result is differentiable."""
    far = z > 1
    beyond = jnp.where(far, z, 1.0)
    return far, beyond, jnp.where(far, 1 / beyond, z)


def _series(far: jax.Array, p: float, q: float, x: jax.Array) -> jax.Array:
    """Evaluate 2F1(1, 1; p+1; u), with q for p where not ``far``, u = x / (1 + x), x in [0, 1]."""
    s = 4 * (x / (1 + x)) - 1
    degree = 11 if s.dtype == jnp.float32 else 23

    def polynomial(p: float) -> jax.Array:
        total = jnp.zeros_like(s)
        for coefficient in _coefficients(p, degree):
            total = total * s + coefficient
        return total

    # A single polynomial with selected coefficients is not used: XLA would hoist the coefficients
    # out of a loop and keep them all in memory.
    return jnp.where(far, polynomial(p), polynomial(q))


@lru_cache
def _coefficients(p: float, degree: int) -> tuple[float, ...]:
    """Compute 2F1(1, 1; p+1; u) on [0, 1/2] as a polynomial in s = 4u - 1, highest power first.

    It is interpolated at Chebyshev points. The singularity at u = 1 is s = 3, so the error falls
    like (3 + sqrt 8)^-degree, to 4e-9 and 3e-18 for the two degrees in use, and coefficients like
    3^-k.
    """
    exact = np.vectorize(lambda s: _hypergeometric(p, (s + 1) / 4))
    fit = np.polynomial.Chebyshev.interpolate(exact, degree).convert(kind=np.polynomial.Polynomial)
    return tuple(float(c) for c in reversed(fit.coef))


def _hypergeometric(p: float, u: float) -> float:
    """Compute 2F1(1, 1; p+1; u) for u in [0, 1/2]."""
    terms = [1.0]
    while terms[-1] > 1e-18:
        terms.append(terms[-1] * u * len(terms) / (p + len(terms)))
    return fsum(terms)
