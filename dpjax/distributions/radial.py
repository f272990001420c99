"""Distributions on R^d whose density is piecewise log-linear in the L_p norm of the distance.

The norm and the direction are independent: the density of the norm is r^(d-1) times the piecewise
density, and the direction follows the cone measure of the L_p ball. So a draw is a radius, by
inverse cdf, times a direction, without rejection.
"""

from __future__ import annotations

from dataclasses import field
from math import log, prod

import jax
import jax.numpy as jnp

from dpjax.distributions.directions import directions, log_volume
from dpjax.distributions.sampler import choose
from dpjax.distributions.shells import Shell
from dpjax.distributions.vectors import VectorDistribution
from dpjax.numerics.arrays import broadcast_rows, concatenate, take
from dpjax.pytrees import pytree
from dpjax.random.variates import uniforms, words


@pytree
class Radial(VectorDistribution):
    """The distribution with density ``exp(-rate * cost(r)) / Z`` on R^d.

    r is the L_p norm of ``y - loc``, and the cost is linear in each shell. Beyond the last radius
    it continues with slope ``1 / step``. Leading axes are a batch; the fields broadcast against
    each other. Integrals have a relative error of about d rounding errors, for d from 1 to
    thousands.

    A shell is drawn with its exact probability, down to about 2^-60, and the radius in it by
    inverse cdf, up to 44 nats into the tail.

    Attributes:
        loc: float ``(..., d)``.
        radii: float ``(..., k+1)``, nondecreasing from 0: the boundaries of the k shells.
        cost_near: float ``(..., k)``, the cost at the inner end of each shell.
        cost_far: float ``(..., k)``, the cost at the outer end, at least that at the inner end.
        rate: float ``(...)``, positive; epsilon/2 for exponential mechanisms.
        step: float ``(...)``, positive: the distance in which the cost rises by 1 beyond the last
            radius.
        p: static float from 1 to ``inf``.

    References:
        Durfee (2025), Section 5.1, where p = 1 is sampled by rejection; Hardt and Talwar (2010),
        without shells.

    >>> import jax.numpy as jnp
    >>> none = jnp.zeros((0,))
    >>> noise = Radial(
    ...     jnp.zeros(2), jnp.zeros(1), none, none, jnp.asarray(0.5), jnp.asarray(1.0), p=2.0
    ... )
    >>> round(float(noise.mean_norm_error()), 4), round(float(noise.norm_survival(6.0)), 4)
    (4.0, 0.1991)
    """

    loc: jax.Array
    radii: jax.Array
    cost_near: jax.Array
    cost_far: jax.Array
    rate: jax.Array
    step: jax.Array
    p: float = field(default=2.0, metadata={"static": True})

    _event_axes = ("loc", "radii", "cost_near", "cost_far")
    _parameters = ("rate",)

    def _sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        drawn = (*self.batch_shape, prod(shape))
        shell_key, side_key, radius_key, direction_key = jax.random.split(key, 4)
        shells = self._shells()
        masses = shells.moments()[0]
        top = jnp.max(masses, axis=-1, keepdims=True)
        weights = broadcast_rows(jnp.exp(masses - top), self.batch_shape)
        index = choose(shell_key, weights, drawn[-1])
        near, far, slope = (take(part, index) for part in shells[:3])
        # Half of the mass is measured from either end, so that the tails at both are full.
        lower = words(side_key, drawn) % 2 == 0
        half = uniforms(radius_key, drawn, self.dtype) / 2
        radius = Shell(near, far, slope, shells.power).quantile(lower, jnp.log(half))
        radius = jnp.where(jnp.isnan(top), jnp.nan, radius * self._unit())
        units = directions(direction_key, (*drawn, *self.event_shape), self.p, self.dtype)
        points = jnp.moveaxis(self.loc[..., None, :] + radius[..., None] * units, -2, 0)
        return points.reshape(*shape, *points.shape[1:])

    def _unit(self) -> jax.Array:
        """Return a radius beyond which is little mass, ``(..., 1)``, a unit to keep powers finite.

        It is a power of two, so that differences of quotients by it are exact, however compiled.
        """
        reach = self.loc.shape[-1] * (self.step / self.rate)
        largest = jax.lax.stop_gradient(jnp.maximum(self.radii[..., -1], reach))
        return (largest / (2 * jnp.frexp(largest)[0]))[..., None]

    def _shells(self) -> Shell:
        """Return the shells, the unbounded one last, ``(..., k+1)``.

        Radii are in multiples of ``_unit``, and costs relative to that at the center.
        """
        unit, rate = self._unit(), self.rate[..., None]
        near, zero = self.radii / unit, jnp.zeros((1,), self.dtype)
        width = near[..., 1:] - near[..., :-1]
        fall = rate * (self.cost_far - self.cost_near)
        slope = fall / jnp.where(width > 0, width, 1.0)
        costs = concatenate(self.cost_near, concatenate(zero, self.cost_far)[..., -1:])
        return Shell(
            near,
            concatenate(near[..., 1:], zero + jnp.inf),
            concatenate(slope, rate * unit / self.step[..., None]),
            self.loc.shape[-1] - 1,
            rate * (costs - costs[..., :1]),
        )

    def _log_density(self, r: jax.Array) -> jax.Array:
        d, unit = self.loc.shape[-1], self._unit()
        shells = self._shells()
        # Not by quotients, whose rounding may differ; a NaN is beyond all.
        passed = ~(r[..., None] < self.radii)
        inside = passed & ~concatenate(passed[..., 1:], jnp.zeros((1,), bool))
        rise = shells.slope * (r[..., None] - self.radii) / unit
        cost = jnp.sum(jnp.where(inside, shells.cost + rise, 0.0), axis=-1)
        total = jax.nn.logsumexp(shells.moments()[0], axis=-1)
        return -cost - total - d * jnp.log(unit[..., 0]) - (log(d) + log_volume(d, self.p))

    def _norm_tails(self, r: jax.Array) -> tuple[jax.Array, jax.Array]:
        shells = self._shells()
        cut = jnp.clip(r[..., None] / self._unit(), shells.near, shells.far)
        parts = shells.part(shells.near, cut), shells.part(cut, shells.far)
        logs = jnp.stack([jax.nn.logsumexp(part, axis=-1) for part in parts])
        below, above = jax.nn.softmax(logs, axis=0)
        return below, above

    def _norm_moment(self) -> jax.Array:
        shells = self._shells()
        masses, means = shells.moments()
        return jnp.sum(jax.nn.softmax(masses, axis=-1) * means * self._unit(), axis=-1)
