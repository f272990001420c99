"""Integrals of r^power * exp(-slope * r) over an interval of radii: what a shell of R^(power + 1) weighs, and draws from it.

The difference of two incomplete gamma functions cancels: in R^100 they agree in all digits. So the integrand, whose logarithm is
concave, is integrated by Gauss-Legendre quadrature around its peak, as far as it falls by a fixed number of nats; nothing cancels,
the error does not grow with the dimension, and powers never overflow. The peak and how fast the integrand falls are closed forms.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.random.uniforms import UniformPair

_NEWTON_STEPS = 12


class Shell(NamedTuple):
    """Intervals of radii, each with the density proportional to r^power * exp(-slope * (r - near)).

    Attributes:
        near: float, not negative.
        far: float of the same shape, from ``near`` on; may be infinite where the slope is positive.
        slope: float of the same shape, not negative.
        power: static, from 0 on.
    """

    near: jax.Array
    far: jax.Array
    slope: jax.Array
    power: int

    def moments(self) -> tuple[jax.Array, jax.Array]:
        """The logarithm of the integral, ``-inf`` for an empty interval, and the mean radius."""
        log, mean = _integrals(self)
        empty = self.far <= self.near
        return jnp.where(empty, -jnp.inf, log), jnp.where(empty, self.near, mean)

    def log_mass(self) -> jax.Array:
        """The logarithm of the integral; ``-inf`` for an empty interval."""
        return self.moments()[0]

    def part(self, near: jax.Array, far: jax.Array) -> jax.Array:
        """The logarithm of the integral over a part of the interval."""
        log = Shell(near, far, self.slope, self.power).log_mass()
        return jnp.where(log == -jnp.inf, log, log - self.slope * (near - self.near))

    def quantile(self, pair: UniformPair) -> jax.Array:
        """The radius with the probability ``pair.value`` below it and ``pair.complement`` above it.

        By Newton's method on the logarithm of the smaller of the two. It is concave, in r and in log(r), so that the steps from a
        start that is too far out never pass the radius. Near 0, where the integral is a power of r, steps are taken in log(r).
        """
        lower = pair.value <= pair.complement
        small = jnp.minimum(pair.value, pair.complement)
        whole, peak = self.log_mass(), _Peak.of(self)
        target, drop = whole + jnp.log(small), -jnp.log(small)
        # At the ends themselves the logarithm is infinite, and a step from there would stay.
        apart, ulps = (self.far - self.near) / 4, 2 * float(jnp.finfo(small.dtype).eps)
        low = self.near + jnp.minimum(ulps * self.near, apart)
        high = jnp.where(self.far < jnp.inf, self.far - jnp.minimum(ulps * self.far, apart), self.far)
        # Beyond the point where the density has fallen by that many nats there is less than the probability, and so there is in
        # an interval at the end in which it would be reached at the largest density.
        inside = small * jnp.exp(whole - self._log_density(peak.radius))
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
    """Where the density of a shell is largest, in a unit of its own, in which it is at most about 1.

    Attributes:
        unit: of the following numbers.
        before: how far the near end is from the peak.
        mode: the peak.
        after: how far the far end is from it.
        slope: of the shell.
        power: static, of the shell.
    """

    unit: jax.Array
    before: jax.Array
    mode: jax.Array
    after: jax.Array
    slope: jax.Array
    power: int

    @staticmethod
    def of(shell: Shell) -> "_Peak":
        near, far, slope, power = shell
        far = jnp.where(far <= near, 2 * near + 1, far)  # an empty one, whose integral is not used
        endless = far == jnp.inf
        steep = slope > 0
        falling = jnp.where(steep, slope, 1.0)
        unit = jax.lax.stop_gradient(jnp.where(endless, jnp.maximum(near, (power + 1) / falling), far))
        start, width, slope = near / unit, (jnp.where(endless, 0.0, far) - near) / unit, slope * unit
        free = jnp.where(steep, power / jnp.where(steep, slope, 1.0), jnp.inf)
        end = jnp.where(endless, start, far / unit)
        room = jax.lax.stop_gradient(jnp.where(endless, jnp.inf, width))
        before = jax.lax.stop_gradient(jnp.clip(free - start, 0.0, room))
        at_end = before >= room
        mode = jax.lax.stop_gradient(jnp.where(at_end, end, start + before))
        # What is 0 at an end of the interval still has a derivative: the peak is a number, the ends may move.
        before = jnp.where(at_end, width - (end - mode), mode - start)
        after = jnp.where(at_end, end - mode, jnp.where(endless, jnp.inf, width - before))
        return _Peak(unit, before, mode, after, slope, power)

    @property
    def radius(self) -> jax.Array:
        """The peak in the unit of the shell."""
        return self.unit * self.mode

    def left(self, drop: jax.Array | float) -> jax.Array:
        """At least how far before the peak the logarithm has fallen by ``drop``: -log(1 - y) >= y + y^2/2."""
        rise = jnp.maximum(self._tangent() - self.slope, 0.0)
        bend = self._tangent() / _positive(self.mode)
        return 2 * drop / (rise + jnp.sqrt(jnp.square(rise) + 2 * bend * drop))

    def right(self, drop: jax.Array | float) -> jax.Array:
        """At least how far beyond the peak the logarithm has fallen by ``drop``: y - log(1 + y) >= y^2 / (2 + 2y)."""
        fall = jnp.maximum(self.slope - self._tangent(), 0.0)
        square, linear = fall + self._tangent() / 2, fall * self.mode - drop
        root = jnp.sqrt(jnp.square(linear) + 4 * square * drop * self.mode)
        return jnp.where(linear < 0, (root - linear) / (2 * square), 2 * drop * self.mode / _positive(linear + root))

    def _tangent(self) -> jax.Array:
        """The slope of power * log(r) at the peak."""
        return self.power / _positive(self.mode)


def _integrals(shell: Shell) -> tuple[jax.Array, jax.Array]:
    """The logarithm of the integral and the mean of r; what they are of an empty interval is of no use."""
    peak = _Peak.of(shell)
    dtype = peak.mode.dtype
    # What is left out is below a rounding error, and so is the error of the quadrature.
    drop, count = (20.0, 32) if dtype == jnp.float32 else (40.0, 64)
    before = jnp.minimum(peak.before, jax.lax.stop_gradient(peak.left(drop)))
    after = jnp.minimum(peak.after, jax.lax.stop_gradient(peak.right(drop)))
    length, mode = before + after, _positive(peak.mode)
    nodes, shares = (jnp.asarray(part / 2, dtype) for part in np.polynomial.legendre.leggauss(count))

    def add(number: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        offset = (nodes[number] + 0.5) * length - before  # from the peak: no digit of it is lost
        exponent = -peak.slope * offset
        if peak.power:
            exponent = exponent + peak.power * jnp.log1p(offset / mode)
        term = shares[number] * jnp.exp(exponent)
        return sums[0] + term, sums[1] + term * offset

    zero = jnp.zeros_like(length)
    total, moment = jax.lax.fori_loop(np.int32(0), np.int32(count), add, (zero, zero))
    log = jnp.log(total * length) + jnp.log(peak.unit) + _log_power(peak.radius, shell.power) - peak.slope * peak.before
    return log, peak.unit * (peak.mode + moment / total)


def _log_power(r: jax.Array, power: int) -> jax.Array:
    return power * jnp.log(_positive(r)) if power else jnp.zeros_like(r)


def _positive(x: jax.Array) -> jax.Array:
    """Where it is 0, 1 instead: it is multiplied by 0 then, or not used."""
    return jnp.where(x == 0, 1.0, x)
