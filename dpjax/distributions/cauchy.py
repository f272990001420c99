"""The generalized Cauchy distribution, with density proportional to 1 / (1 + |z|^gamma), gamma > 1.

The ordinary Cauchy distribution has gamma = 2. With r the smaller of z and 1/z, all integrals of
t^k / (1 + t^gamma) that occur are r^a / a times the average of 1 / (1 + r^gamma t), where t has the
density p t^(p-1) on [0, 1] with p = a / gamma. Euler's transformation makes of it a series of
positive terms, which has the precision of its dtype in both tails and between them.
"""

from __future__ import annotations

from dataclasses import field
from math import inf, log, pi, sin

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.checks.numbers import ABOVE_ONE
from dpjax.distributions.noise import SymmetricNoise
from dpjax.pytrees import pytree


@pytree
class Cauchy(SymmetricNoise):
    """``loc + scale * Z`` with density of Z proportional to ``1 / (1 + |z|^gamma)``.

    The tail falls like z^(1 - gamma): the mean exists for gamma > 2, the variance for gamma > 3.
    For smaller gamma, ``mean`` is NaN, ``mean_abs_error`` and ``variance`` are infinite, and only
    errors of the clamped distribution are finite. For gamma < 1.5, a float32 draw can reach the
    largest floats, where it is cut.

    Attributes:
        loc: float ``(...)``.
        scale: float ``(...)``, positive.
        gamma: static float above 1.

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
        ABOVE_ONE.single("gamma", self.gamma)

    @property
    def _half(self) -> float:
        """The integral of 1 / (1 + t^gamma) over t > 0."""
        return pi / self.gamma / sin(pi / self.gamma)

    def _log_density(self, z: jax.Array) -> jax.Array:
        beyond, near = _folded(z)
        return -log(2 * self._half) - self.gamma * jnp.log(beyond) - jnp.log1p(near**self.gamma)

    def _tail(self, z: jax.Array) -> jax.Array:
        far, (_, near) = z > 1, _folded(z)
        mass = self._integral(jnp.where(far, self.gamma - 1, 1.0), near) / (2 * self._half)
        return jnp.where(far, mass, 0.5 - mass)

    def _tail_integral(self, z: jax.Array) -> jax.Array:
        """Integrate by parts: z P(Z > z) plus the integral of t times the density."""
        g, far, (beyond, near) = self.gamma, z > 1, _folded(z)
        # Beyond 1, the integral of t^(1 - gamma), less a correction that converges.
        rise = jnp.log(beyond)
        rise = rise if g == 2 else jnp.expm1((2 - g) * rise) / (2 - g)
        ends = self._integral(jnp.asarray([2, 2 * g - 2], z.dtype), jnp.ones(2, z.dtype))
        rest = self._integral(jnp.where(far, 2 * g - 2, 2.0), near)
        moment = jnp.where(far, ends[0] - ends[1] + rise, 0.0) + rest
        return z * self._tail(z) + moment / (2 * self._half)

    def _tail_quantile(self, p: jax.Array) -> jax.Array:
        return 1 / jnp.tan(pi * p) if self.gamma == 2 else super()._tail_quantile(p)

    def _integral(self, power: jax.Array, end: jax.Array) -> jax.Array:
        """Integrate t^(power - 1) / (1 + t^gamma) over t in [0, end], end in [0, 1]."""
        power = power.astype(end.dtype)
        return end**power / power * _average(power / self.gamma, end**self.gamma)

    def _mean_abs(self) -> jax.Array:
        return self._moment(1)

    def _mean_square(self) -> jax.Array:
        return self._moment(2)

    def _moment(self, power: int) -> jax.Array:
        """E[|Z|^power], infinite unless gamma is above power + 1."""
        angle = (power + 1) * pi / self.gamma
        moment = sin(pi / self.gamma) / sin(angle) if angle < pi else inf
        return jnp.asarray(moment, self.dtype)


def _folded(z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the larger of z and 1, and the smaller of z and 1/z."""
    beyond = jnp.maximum(z, 1.0)
    return beyond, jnp.where(z > 1, 1 / beyond, z)


def _average(p: jax.Array, x: jax.Array) -> jax.Array:
    """Average 1 / (1 + x t) over t of density p t^(p-1) on [0, 1], for x in [0, 1].

    It is the sum of k! / (p+1)_k u^k over k from 0 on, divided by 1 + x, with u = x / (1 + x). As u
    is at most 1/2, each term is at most half of the one before.
    """
    terms = jnp.finfo(x.dtype).nmant + 2

    def add(number: jax.Array, total: jax.Array) -> jax.Array:
        k = (terms - number).astype(x.dtype)
        return 1 + x / (1 + x) * (k / (p + k)) * total

    return jax.lax.fori_loop(np.int32(0), np.int32(terms), add, jnp.ones_like(x)) / (1 + x)
