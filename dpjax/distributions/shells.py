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
    """Intervals of radii with density proportional to r^power * exp(-slope * (r - near)).

    Attributes:
        near: float, nonnegative.
        far: float, at least ``near``; may be infinite where the slope is positive.
        slope: float, nonnegative.
        power: static, nonnegative.
    """

    near: jax.Array
    far: jax.Array
    slope: jax.Array
    power: int

    def moments(self) -> tuple[jax.Array, jax.Array]:
        """Return the log of the integral, ``-inf`` for an empty interval, and the mean radius."""
        near, far, slope, power = self
        tiny = float(jnp.finfo(slope.dtype).tiny)
        empty = far <= near
        far = jnp.where(empty, 2 * near + 1, far)
        # The ends are variables and the peak is a constant: a distance of 0 has a derivative too.
        peak = jax.lax.stop_gradient(jnp.clip(power / jnp.maximum(slope, tiny), near, far))
        unit = jnp.maximum(peak, tiny) if power else jnp.ones_like(peak)
        # The truncated part and the error of the quadrature are below a rounding error.
        drop, count = (20.0, 32) if slope.dtype == jnp.float32 else (40.0, 64)
        reach = _reach(jax.lax.stop_gradient(slope), power / unit, power, drop)
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
        log = jnp.log(total * length) + power * jnp.log(unit) - slope * (peak - near)
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

        def side(shell: Shell, r: jax.Array) -> jax.Array:
            return shell.part(jnp.where(lower, shell.near, r), jnp.where(lower, r, shell.far))

        near, far, slope = jnp.broadcast_arrays(*self[:3])
        near, far, slope, goal = jax.lax.stop_gradient((near, far, slope, target))
        fixed = Shell(near, far, slope, self.power)
        r = bisect(lambda r: (side(fixed, r) > goal) != lower, near, far)[0]
        found = side(self, r)
        log_density = self.power * jnp.log(r) - self.slope * (r - self.near)
        move = (target - found) * jax.lax.stop_gradient(jnp.exp(found - log_density))
        move = jnp.where(found > -jnp.inf, jnp.where(lower, move, -move), 0.0)
        return jnp.clip(r + move, self.near, self.far)


def _reach(slope: jax.Array, tangent: jax.Array, power: int, drop: float) -> jax.Array:
    """Bound the distance from the peak at which the log density has fallen by ``drop``.

    It follows from x - log(1 + x) >= x^2 / (2 + 2x), on either side; ``tangent`` is the slope of
    power * log(r) at the peak.
    """
    curved = (drop + (drop * (drop + 2 * power)) ** 0.5) / tangent
    return jnp.minimum(drop / jnp.abs(slope - tangent), curved)
