"""Integrals of r^power * exp(-slope * r) over intervals of radii (shells), and their inverse.

A shell is the set of points of R^(power + 1) with a norm in an interval. A difference of incomplete
gamma functions would cancel: in R^100 they agree in all digits. So the integrand, whose logarithm
is concave, is integrated by Gauss-Legendre quadrature around its peak, up to where it has fallen by
a fixed number of nats. Nothing cancels, the error does not grow with the dimension, and powers
never overflow.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.numerics.search import bisect


class Shell(NamedTuple):
    """Intervals of radii with density r^power * exp(-cost - slope * (r - near)).

    Attributes:
        near: float, nonnegative.
        far: float, at least ``near``; may be infinite where the slope is positive.
        slope: float, nonnegative.
        power: static, nonnegative.
        cost: float, the log density falls by it up to the inner end.
    """

    near: jax.Array
    far: jax.Array
    slope: jax.Array
    power: int
    cost: jax.Array | float = 0.0

    def moments(self) -> tuple[jax.Array, jax.Array]:
        """Return the log of the integral, ``-inf`` for an empty interval, and the mean radius."""
        near, far, slope, power, cost = self
        tiny = float(jnp.finfo(slope.dtype).tiny)
        empty = far <= near
        far = jnp.where(empty, 2 * near + 1, far)
        # The ends are variables and the peak is a constant: a distance of 0 has a derivative too.
        peak = jax.lax.stop_gradient(jnp.clip(power / jnp.maximum(slope, tiny), near, far))
        unit = jnp.maximum(peak, tiny) if power else jnp.ones_like(peak)
        # The truncated part and the error of the quadrature are below a rounding error.
        drop, count = (20.0, 32) if slope.dtype == jnp.float32 else (40.0, 64)
        # The log density falls by it on either side, as x - log(1 + x) >= x^2 / (2 + 2x).
        tangent = power / unit  # of power * log(r) at the peak
        curved = (drop + (drop * (drop + 2 * power)) ** 0.5) / tangent
        steepest = jnp.abs(jax.lax.stop_gradient(slope) - tangent)
        reach = jnp.minimum(drop / steepest, curved)
        before, after = jnp.minimum(peak - near, reach), jnp.minimum(far - peak, reach)
        length = before + after
        nodes, shares = (
            jnp.asarray(part / 2, slope.dtype) for part in np.polynomial.legendre.leggauss(count)
        )

        def add(number: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            # Relative to the peak, without loss of precision.
            offset = (nodes[number] + 0.5) * length - before
            term = shares[number] * jnp.exp(power * jnp.log1p(offset / unit) - slope * offset)
            return sums[0] + term, sums[1] + term * offset

        zeros = jnp.zeros_like(length)
        total, moment = jax.lax.fori_loop(np.int32(0), np.int32(count), add, (zeros, zeros))
        log = jnp.log(total * length) + power * jnp.log(unit) - slope * (peak - near) - cost
        mean = peak + moment / total
        return jnp.where(empty, -jnp.inf, log), jnp.where(empty, near, mean)

    def part(self, near: jax.Array, far: jax.Array) -> jax.Array:
        """Return the logarithm of the integral over a part of the interval."""
        return self._replace(near=near, far=far).moments()[0] - self.slope * (near - self.near)

    def quantile(self, lower: jax.Array, log_share: jax.Array) -> jax.Array:
        """Return the radius with a share of the mass below it, or above it where not ``lower``.

        It is found by bisection. One step of Newton's method for the logarithm of the share makes
        it differentiable.
        """
        target = self.moments()[0] + log_share

        def side(r: jax.Array) -> jax.Array:
            return self.part(jnp.where(lower, self.near, r), jnp.where(lower, r, self.far))

        near, far = (jnp.broadcast_to(end, target.shape) for end in (self.near, self.far))
        r = bisect(lambda r: (side(r) > target) != lower, near, far)[0]
        found = side(r)
        log_density = self.power * jnp.log(r) - self.slope * (r - self.near)
        move = (target - found) * jax.lax.stop_gradient(jnp.exp(found - log_density))
        move = jnp.where(found > -jnp.inf, jnp.where(lower, move, -move), 0.0)
        return jnp.clip(r + move, self.near, self.far)
