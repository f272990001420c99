"""Distributions on R^d whose density is piecewise log-linear in the L_p norm of the distance.

The norm and the direction are independent: the density of the norm is r^(d-1) times the piecewise
density, and the direction follows the cone measure of the L_p ball. So a draw is a radius, by
inverse cdf, times a direction, without rejection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import log, prod

import jax
import jax.numpy as jnp

from dpjax.distributions.base import Shape, draws_shape
from dpjax.distributions.directions import directions, log_volume
from dpjax.distributions.sampler import choose
from dpjax.distributions.shells import Shell
from dpjax.distributions.vectors import VectorDistribution
from dpjax.numerics.batching import concatenate, take
from dpjax.numerics.sums import pad
from dpjax.numerics.two_words import Words
from dpjax.random.keys import check_key, fold_in_range, row_words
from dpjax.random.uniforms import UniformPair, row_uniforms

_SHELL, _RADIUS, _DIRECTION = range(1, 4)  # streams of random words


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Radial(VectorDistribution):
    """The distribution with density ``exp(-rate * cost(r)) / Z`` on R^d.

    r is the L_p norm of ``y - loc``, and the cost is linear in each shell. Beyond the last radius
    it continues with slope ``1 / step``. Leading axes are a batch; the fields broadcast against
    each other. Integrals have a relative error of about d rounding errors, for d from 1 to
    thousands.

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

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all parameters without the axis of coordinates."""
        pieces = (self.loc, self.radii, self.cost_near, self.cost_far)
        return jnp.broadcast_shapes(
            *(one.shape[:-1] for one in pieces), self.rate.shape, self.step.shape
        )

    def sample(self, key: jax.Array, shape: Shape = ()) -> jax.Array:
        """Draw vectors, of shape ``shape + batch_shape + (d,)``; rows do not affect each other.

        A shell is drawn with its exact probability, down to about 2^-60, and the radius in it by
        inverse cdf, up to 44 nats into the tail. A row whose parameters define no distribution is
        NaN.

        Args:
            key: a scalar typed threefry key.
            shape: the shape of the draws from each row, an integer or a sequence of integers.

        Raises:
            TypeError: ``key`` is not a typed key.
            ValueError: ``key`` is a typed key, but not a scalar threefry key.
        """
        return _sample(check_key(key), self, draws_shape(shape))

    def _unit(self) -> jax.Array:
        """Return a radius beyond most mass, ``(..., 1)``, a unit that keeps powers finite."""
        reach = self.loc.shape[-1] * (self.step / self.rate)
        return jax.lax.stop_gradient(jnp.maximum(self.radii[..., -1], reach))[..., None]

    def _shells(self) -> tuple[Shell, jax.Array]:
        """Return the shells, unbounded one last, and rate * cost at inner ends: ``(..., k+1)``.

        Radii are in multiples of ``_unit``.
        """
        unit, rate = self._unit(), self.rate[..., None]
        edges = self.radii / unit
        fall, width = (
            rate * (self.cost_far - self.cost_near),
            (self.radii[..., 1:] - self.radii[..., :-1]) / unit,
        )
        slopes = fall / jnp.where(width > 0, width, 1.0), rate * unit / self.step[..., None]
        last = self.cost_far[..., -1:] if self.cost_far.shape[-1] else jnp.zeros((1,), self.dtype)
        far = concatenate(edges[..., 1:], jnp.full((1,), jnp.inf, self.dtype))
        return Shell(edges, far, concatenate(*slopes), self.loc.shape[-1] - 1), rate * concatenate(
            self.cost_near, last
        )

    def _log_masses(self) -> jax.Array:
        shells, start = self._shells()
        return shells.log_mass() - start

    def _log_density(self, r: jax.Array) -> jax.Array:
        d, unit = self.loc.shape[-1], self._unit()
        shells, start = self._shells()
        # Not by quotients, whose rounding may differ; a NaN is beyond all.
        passed = ~(r[..., None] < self.radii)
        inside = passed & ~concatenate(passed[..., 1:], jnp.zeros((1,), bool))
        above = jnp.maximum(r[..., None] / unit - shells.near, 0.0)
        cost = jnp.sum(jnp.where(inside, start + shells.slope * above, 0.0), axis=-1)
        total = jax.nn.logsumexp(self._log_masses(), axis=-1)
        return -cost - total - d * jnp.log(unit[..., 0]) - (log(d) + log_volume(d, self.p))

    def _norm_tails(self, r: jax.Array) -> tuple[jax.Array, jax.Array]:
        shells, start = self._shells()
        cut = jnp.clip(r[..., None] / self._unit(), shells.near, shells.far)
        near, far, cut = jnp.broadcast_arrays(shells.near, shells.far, cut)
        parts = shells.part(jnp.stack([near, cut]), jnp.stack([cut, far])) - start
        below, above = jax.nn.softmax(jax.nn.logsumexp(parts, axis=-1), axis=0)
        return below, above

    def _norm_moment(self) -> jax.Array:
        shells, start = self._shells()
        masses, means = shells.moments()
        return jnp.sum(jax.nn.softmax(masses - start, axis=-1) * means * self._unit(), axis=-1)

    def _norm_bound(self, survival: jax.Array) -> jax.Array:
        """Bound the norm by the last radius plus d exponentials (Laurent and Massart 2000)."""
        d, nats = self.loc.shape[-1], -jnp.log(survival)
        return self.radii[..., -1] + self.step / self.rate * (d + jnp.sqrt(2 * d * nats) + nats)


@partial(jax.jit, static_argnames=("shape",))
def _sample(key: jax.Array, distribution: Radial, shape: tuple[int, ...]) -> jax.Array:
    batch, draws, d = distribution.batch_shape, prod(shape), distribution.loc.shape[-1]
    if draws == 0 or prod(batch) == 0:
        return jnp.zeros((*shape, *batch, d), distribution.dtype)
    rows = row_words(key, batch)
    shells, start = distribution._shells()
    near, far, slope, start = (
        jnp.broadcast_to(part, (*batch, shells.near.shape[-1])) for part in (*shells[:3], start)
    )
    masses = (
        _in_lanes(
            lambda near, far, slope: Shell(near, far, slope, d - 1).log_mass(), near, far, slope
        )
        - start
    )
    weights = _in_lanes(jnp.exp, masses - jnp.max(masses, axis=-1, keepdims=True))
    index = choose(jax.random.fold_in(key, 1), weights, draws)
    chosen = (take(part, index) for part in (near, far, slope))
    pair = row_uniforms(rows, draws, distribution.dtype, stream=_RADIUS)
    radius = _in_lanes(partial(_radius, power=d - 1), *pair, *chosen)
    keys = fold_in_range(rows, draws, stream=_DIRECTION)
    flat = Words(*(pad(part.reshape(-1)) for part in keys))
    unit_vectors = directions(flat, d, distribution.p, distribution.dtype)[: radius.size].reshape(
        *radius.shape, d
    )
    # The barriers keep products from being fused into sums, which would change the last bit in some
    # programs.
    radius = jax.lax.optimization_barrier(radius * distribution._unit())
    moved = jax.lax.optimization_barrier(radius[..., None] * unit_vectors)
    points = jnp.broadcast_to(distribution.loc, (*batch, d))[..., None, :] + moved
    return jnp.moveaxis(points, -2, 0).reshape(*shape, *batch, d)


def _radius(
    value: jax.Array, rest: jax.Array, near: jax.Array, far: jax.Array, slope: jax.Array, power: int
) -> jax.Array:
    return Shell(near, far, slope, power).quantile(UniformPair(value, rest))


def _in_lanes(function: Callable[..., jax.Array], *arrays: jax.Array) -> jax.Array:
    """Apply an elementwise function to arrays of one shape, in a multiple of 32 lanes.

    See ``dpjax.numerics.sums``.
    """
    shape = arrays[0].shape
    return function(*(pad(array.reshape(-1)) for array in arrays))[: prod(shape)].reshape(shape)
