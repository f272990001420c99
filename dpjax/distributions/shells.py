"""Integrals of r^power * exp(-slope * r) over intervals of radii (shells), and draws from them.

A shell is the set of points of R^(power + 1) with a norm in an interval. A difference of incomplete
gamma functions would cancel: in R^100 they agree in all digits. So the integrand, whose logarithm
is concave, is integrated by Gauss-Legendre quadrature around its peak, up to where it has fallen by
a fixed number of nats. Nothing cancels, the error does not grow with the dimension, and powers
never overflow. The peak and bounds on the fall of the integrand are closed forms.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.random.uniforms import UniformPair

_NEWTON_STEPS = 12


class Shell(NamedTuple):
    """Intervals of radii with density proportional to r^power * exp(-slope * (r - near)).

    Attributes:
        near: float, nonnegative.
        far: float of the same shape, at least ``near``; may be infinite where the slope is
            positive.
        slope: float of the same shape, nonnegative.
        power: static, nonnegative.
    """

    near: jax.Array
    far: jax.Array
    slope: jax.Array
    power: int

    def moments(self) -> tuple[jax.Array, jax.Array]:
        """Return the log of the integral, ``-inf`` for an empty interval, and the mean radius."""
        log, mean = _integrals(self)
        empty = self.far <= self.near
        return jnp.where(empty, -jnp.inf, log), jnp.where(empty, self.near, mean)

    def log_mass(self) -> jax.Array:
        """Return the logarithm of the integral; ``-inf`` for an empty interval."""
        return self.moments()[0]

    def part(self, near: jax.Array, far: jax.Array) -> jax.Array:
        """Return the logarithm of the integral over a part of the interval."""
        log = Shell(near, far, self.slope, self.power).log_mass()
        return jnp.where(log == -jnp.inf, log, log - self.slope * (near - self.near))

    def quantile(self, pair: UniformPair) -> jax.Array:
        """Return the radius with mass ``pair.value`` below and ``pair.complement`` above it.

        Newton's method is applied to the logarithm of the smaller of the two masses. It is concave,
        in r and in log(r), so that steps from a start too far out never pass the root. Near 0,
        where the integral is a power of r, steps are taken in log(r).
        """
        lower = pair.value <= pair.complement
        small = jnp.minimum(pair.value, pair.complement)
        total, peak = self.log_mass(), _Peak.of(self)
        target, drop = total + jnp.log(small), -jnp.log(small)
        # At the ends themselves the logarithm is infinite, and steps from there would not move.
        apart, ulps = (self.far - self.near) / 4, 2 * float(jnp.finfo(small.dtype).eps)
        low = self.near + jnp.minimum(ulps * self.near, apart)
        high = jnp.where(
            self.far < jnp.inf, self.far - jnp.minimum(ulps * self.far, apart), self.far
        )
        # Beyond the point where the density has fallen by that many nats, the mass is below the
        # target; so it is in an interval at the end that would reach the target at the largest
        # density.
        inside = small * jnp.exp(total - self._log_density(peak.radius))
        below = jnp.maximum(peak.radius - peak.unit * peak.left(drop), self.near + inside)
        above = jnp.minimum(peak.radius + peak.unit * peak.right(drop), self.far - inside)
        start = jnp.clip(jnp.where(lower, below, above), low, high)

        def step(_: int, r: jax.Array) -> jax.Array:
            found = self.part(jnp.where(lower, self.near, r), jnp.where(lower, r, self.far))
            move = (target - found) * jnp.exp(found - self._log_density(r))
            return jnp.clip(jnp.where(lower, r * jnp.exp(move / _positive(r)), r - move), low, high)

        return jax.lax.fori_loop(np.int32(0), np.int32(_NEWTON_STEPS), step, start)

    def _log_density(self, r: jax.Array) -> jax.Array:
        return _log_power(r, self.power) - self.slope * (r - self.near)


class _Peak(NamedTuple):
    """The peak of the density of a shell, in a unit in which it is at most about 1.

    Attributes:
        unit: the unit of the following fields.
        before: the distance from the near end to the peak.
        mode: the peak.
        after: the distance from the peak to the far end.
        slope: the slope of the shell.
        power: static, the power of the shell.
    """

    unit: jax.Array
    before: jax.Array
    mode: jax.Array
    after: jax.Array
    slope: jax.Array
    power: int

    @staticmethod
    def of(shell: Shell) -> _Peak:
        near, far, slope, power = shell
        # An empty interval, whose integral is not used.
        far = jnp.where(far <= near, 2 * near + 1, far)
        endless = far == jnp.inf
        steep = slope > 0
        falling = jnp.where(steep, slope, 1.0)
        unit = jax.lax.stop_gradient(
            jnp.where(endless, jnp.maximum(near, (power + 1) / falling), far)
        )
        start, width, slope = (
            near / unit,
            (jnp.where(endless, 0.0, far) - near) / unit,
            slope * unit,
        )
        free = jnp.where(steep, power / jnp.where(steep, slope, 1.0), jnp.inf)
        end = jnp.where(endless, start, far / unit)
        room = jax.lax.stop_gradient(jnp.where(endless, jnp.inf, width))
        before = jax.lax.stop_gradient(jnp.clip(free - start, 0.0, room))
        at_end = before >= room
        mode = jax.lax.stop_gradient(jnp.where(at_end, end, start + before))
        # A distance of 0 to an end still has a derivative: the peak is a constant, the ends are
        # variables.
        before = jnp.where(at_end, width - (end - mode), mode - start)
        after = jnp.where(at_end, end - mode, jnp.where(endless, jnp.inf, width - before))
        return _Peak(unit, before, mode, after, slope, power)

    @property
    def radius(self) -> jax.Array:
        """The peak in the unit of the shell's radii."""
        return self.unit * self.mode

    def left(self, drop: jax.Array | float) -> jax.Array:
        """Bound the distance before the peak at which the log density has fallen by ``drop``.

        It follows from -log(1 - y) >= y + y^2/2.
        """
        rise = jnp.maximum(self._tangent() - self.slope, 0.0)
        bend = self._tangent() / _positive(self.mode)
        return 2 * drop / (rise + jnp.sqrt(jnp.square(rise) + 2 * bend * drop))

    def right(self, drop: jax.Array | float) -> jax.Array:
        """Bound the distance beyond the peak at which the log density has fallen by ``drop``.

        It follows from y - log(1 + y) >= y^2 / (2 + 2y).
        """
        fall = jnp.maximum(self.slope - self._tangent(), 0.0)
        square, linear = fall + self._tangent() / 2, fall * self.mode - drop
        root = jnp.sqrt(jnp.square(linear) + 4 * square * drop * self.mode)
        return jnp.where(
            linear < 0,
            (root - linear) / (2 * square),
            2 * drop * self.mode / _positive(linear + root),
        )

    def _tangent(self) -> jax.Array:
        """Return the slope of power * log(r) at the peak."""
        return self.power / _positive(self.mode)


def _integrals(shell: Shell) -> tuple[jax.Array, jax.Array]:
    """Return the log of the integral and the mean of r; arbitrary for an empty interval."""
    peak = _Peak.of(shell)
    dtype = peak.mode.dtype
    # The truncated part and the error of the quadrature are below a rounding error.
    drop, count = (20.0, 32) if dtype == jnp.float32 else (40.0, 64)
    before = jnp.minimum(peak.before, jax.lax.stop_gradient(peak.left(drop)))
    after = jnp.minimum(peak.after, jax.lax.stop_gradient(peak.right(drop)))
    length, mode = before + after, _positive(peak.mode)
    nodes, shares = (
        jnp.asarray(part / 2, dtype) for part in np.polynomial.legendre.leggauss(count)
    )

    def add(number: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        # Relative to the peak, without loss of precision.
        offset = (nodes[number] + 0.5) * length - before
        exponent = -peak.slope * offset
        if peak.power:
            exponent = exponent + peak.power * jnp.log1p(offset / mode)
        term = shares[number] * jnp.exp(exponent)
        return sums[0] + term, sums[1] + term * offset

    zero = jnp.zeros_like(length)
    total, moment = jax.lax.fori_loop(np.int32(0), np.int32(count), add, (zero, zero))
    log = (
        jnp.log(total * length)
        + jnp.log(peak.unit)
        + _log_power(peak.radius, shell.power)
        - peak.slope * peak.before
    )
    return log, peak.unit * (peak.mode + moment / total)


def _log_power(r: jax.Array, power: int) -> jax.Array:
    return power * jnp.log(_positive(r)) if power else jnp.zeros_like(r)


def _positive(x: jax.Array) -> jax.Array:
    """Replace 0 by 1, where the result is multiplied by 0 or not used."""
    return jnp.where(x == 0, 1.0, x)
