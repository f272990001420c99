"""Symmetric noise on the line: what every law ``loc + scale * Z`` with Z symmetric around 0 has in common.

A law says what its standard noise Z is by six functions of z >= 0 and one of uniforms; everything else follows from them here.
Draws are an inverse cdf of pairs of words (``dpjax.random``), so that both tails are there at full precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.numerics.batching import align, broadcast_batch
from dpjax.numerics.sums import pad
from dpjax.random.keys import check_key, fold_in, fold_in_range, row_words
from dpjax.random.noise import UniformPair, uniform_from_words

_LANES = 32  # XLA's vector loop and its remainder loop round differently: transcendental functions run over multiples of this


@dataclass(frozen=True)
class SymmetricNoise:
    """``loc + scale * Z`` for a Z that is symmetric around 0; the public laws are its two children.

    Leading axes are a batch, and the fields broadcast against each other. ``scale`` is positive; a NaN makes its own row NaN.
    """

    loc: jax.Array
    scale: jax.Array

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields."""
        return jnp.broadcast_shapes(*(leaf.shape for leaf in jax.tree.leaves(self)))

    @property
    def dtype(self) -> Any:
        """The dtype of every result."""
        return self.loc.dtype

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw from the law by inverse cdf; reaches tails of probability 2^-64.

        Under jit, draws are bitwise unchanged by further rows of the batch and by further draws.

        Args:
            key: a scalar typed threefry key.
            shape: the shape of the draws from each row.

        Returns:
            Float of shape ``shape + batch_shape``; NaN for a row whose parameters are bad.

        Raises:
            TypeError: ``key`` is not a typed key.
            ValueError: another kind of key.
        """
        return _sample(check_key(key), self, tuple(shape))

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike) -> jax.Array:
        """Draw where the batch's first row is row number ``first`` of a larger batch; see ``dpjax.simulation``."""
        return _sample(key, self, shape, first)

    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Log-density at ``y``, which broadcasts against ``batch_shape``."""
        return _log_prob(self, self._points("y", y))

    def prob(self, y: ArrayLike) -> jax.Array:
        """Density at ``y``, which broadcasts against ``batch_shape``."""
        return jnp.exp(self.log_prob(y))

    def cdf(self, y: ArrayLike) -> jax.Array:
        """P(Y <= y) at full relative precision in the lower tail, for a ``y`` that broadcasts against ``batch_shape``."""
        return _survival(self, self._points("y", y), sign=-1)

    def survival(self, y: ArrayLike) -> jax.Array:
        """P(Y > y) at full relative precision in the upper tail, for a ``y`` that broadcasts against ``batch_shape``."""
        return _survival(self, self._points("y", y), sign=1)

    def quantile(self, p: ArrayLike) -> jax.Array:
        """The inverse of :meth:`cdf`, for a ``p`` that broadcasts against ``batch_shape``; NaN outside [0, 1]."""
        return _quantile(self, self._points("p", p))

    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """The lower and upper end of the central interval of probability ``level``, which broadcasts against ``batch_shape``."""
        return _interval(self, self._points("level", level))

    def mean(self) -> jax.Array:
        """E[Y], of shape ``batch_shape``; NaN if it does not exist."""
        loc, scale = self._fields()
        return jnp.where(broadcast_batch(self._mean_abs(), self.batch_shape) < jnp.inf, loc + 0 * scale, jnp.nan)

    def variance(self) -> jax.Array:
        """E[(Y - loc)^2], of shape ``batch_shape``; infinite if it does not exist."""
        _, scale = self._fields()
        return jnp.square(scale) * broadcast_batch(self._mean_square(), self.batch_shape)

    def stddev(self) -> jax.Array:
        """The standard deviation, of shape ``batch_shape``."""
        return jnp.sqrt(self.variance())

    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """E|Y - center|, for a ``center`` that broadcasts against ``batch_shape``; infinite if the mean does not exist."""
        return _mean_abs_error(self, self._points("center", center))

    def mean_squared_error(self, center: ArrayLike) -> jax.Array:
        """E[(Y - center)^2], for a ``center`` that broadcasts against ``batch_shape``; infinite without a variance."""
        at = self._points("center", center)
        return align(self.variance(), at.ndim) + jnp.square(align(self.loc, at.ndim) - at)

    def clamped_mean_abs_error(self, center: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> jax.Array:
        """E|clip(Y, lower, upper) - center|, always finite; the arguments broadcast against ``batch_shape``."""
        return _clamped_mean_abs_error(
            self, self._points("center", center), self._points("lower", lower), self._points("upper", upper)
        )

    def _points(self, name: str, value: ArrayLike) -> jax.Array:
        """A float argument in the law's dtype, with as many axes as the batch."""
        array = checks.float_array(name, value).astype(self.dtype)
        return align(array, max(array.ndim, len(self.batch_shape)))

    def _fields(self) -> tuple[jax.Array, jax.Array]:
        return broadcast_batch(self.loc, self.batch_shape), broadcast_batch(self.scale, self.batch_shape)

    # The standard law, for z >= 0. Parameters of a child are aligned with z by their trailing axes.

    def _log_density(self, z: jax.Array) -> jax.Array:
        """Log-density of Z."""
        raise NotImplementedError

    def _tail(self, z: jax.Array) -> jax.Array:
        """P(Z > z)."""
        raise NotImplementedError

    def _tail_integral(self, z: jax.Array) -> jax.Array:
        """The integral of P(Z > t) over t in [0, z]."""
        raise NotImplementedError

    def _tail_quantile(self, p: jax.Array) -> jax.Array:
        """The z with P(Z > z) = p, for p in (0, 1/2], near enough for one step of Newton's method."""
        raise NotImplementedError

    def _mean_abs(self) -> jax.Array:
        """E|Z|, of shape ``()`` or a batch shape."""
        raise NotImplementedError

    def _mean_square(self) -> jax.Array:
        """E[Z^2]."""
        raise NotImplementedError

    def _variates(self) -> int:
        """How many uniforms a draw takes."""
        return 1

    def _shape_parameters(self) -> tuple[jax.Array, ...]:
        """The fields that :meth:`_standard` needs, in its layout."""
        return ()

    def _standard(self, pairs: list[UniformPair], *shape_parameters: jax.Array) -> jax.Array:
        """Z from uniforms."""
        raise NotImplementedError


def smaller_tail(pair: UniformPair) -> tuple[jax.Array, jax.Array]:
    """Return the smaller of u and 1-u, and the sign of the variate that has it as its tail: -1 where u is the smaller."""
    return jnp.minimum(pair.value, pair.complement), jnp.where(pair.value <= pair.complement, -1.0, 1.0).astype(pair.value.dtype)


@partial(jax.jit, static_argnames=("shape",))
def _sample(key: jax.Array, law: SymmetricNoise, shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
    batch, draws = law.batch_shape, prod(shape)
    if draws == 0 or prod(batch) == 0:
        return jnp.zeros(shape + batch, law.dtype)
    rows = row_words(key, batch, first)
    lanes = 1 if draws == 1 else -(-draws // _LANES) * _LANES

    def layout(array: jax.Array) -> jax.Array:  # one draw a row: the rows are the lanes
        return pad(array.reshape(-1), _LANES) if lanes == 1 else array

    pairs = []
    for role in range(law._variates()):
        words = fold_in_range(fold_in(rows, jnp.full(rows.high.shape, role, jnp.uint32)), lanes)
        pairs.append(UniformPair(*map(layout, uniform_from_words(words, law.dtype))))
    shape_parameters = [layout(broadcast_batch(field, batch)[..., None]) for field in law._shape_parameters()]
    noise = law._standard(pairs, *shape_parameters)
    noise = noise[: prod(batch)].reshape(*batch, 1) if lanes == 1 else noise[..., :draws]
    loc, scale = law._fields()
    # The barrier keeps the product from being fused into the sum in some lanes and not in others.
    points = loc[..., None] + jax.lax.optimization_barrier(scale[..., None] * noise)
    return jnp.moveaxis(points, -1, 0).reshape(shape + batch)


def _standardized(law: SymmetricNoise, y: jax.Array) -> jax.Array:
    return (y - align(law.loc, y.ndim)) / align(law.scale, y.ndim)


@jax.jit
def _log_prob(law: SymmetricNoise, y: jax.Array) -> jax.Array:
    return law._log_density(jnp.abs(_standardized(law, y))) - jnp.log(align(law.scale, y.ndim))


@partial(jax.jit, static_argnames=("sign",))
def _survival(law: SymmetricNoise, y: jax.Array, sign: int) -> jax.Array:
    z = sign * _standardized(law, y)
    tail = law._tail(jnp.abs(z))
    return jnp.where(z >= 0, tail, 1 - tail)


def _upper_quantile(law: SymmetricNoise, p: jax.Array) -> jax.Array:
    """The z >= 0 with tail p <= 1/2, differentiable: a step of Newton's method from the inverse."""
    safe = jnp.where(p > 0, p, 0.25)
    z = jax.lax.stop_gradient(law._tail_quantile(safe))
    excess = law._tail(z) / safe - 1
    # Far out the density underflows, and the step with it: the inverse is then the answer.
    slope = jax.lax.stop_gradient(safe / jnp.exp(law._log_density(z)))
    z = z + excess * jnp.where((slope > 0) & (slope < jnp.finfo(z.dtype).max / 2), slope, 0.0)
    return jnp.where(p > 0, jnp.maximum(z, 0.0), jnp.inf)


@jax.jit
def _quantile(law: SymmetricNoise, p: jax.Array) -> jax.Array:
    p = jnp.broadcast_to(p, jnp.broadcast_shapes(p.shape, law.batch_shape))
    inside = (p >= 0) & (p <= 1)
    safe = jnp.where(inside, p, 0.5)
    z = _upper_quantile(law, jnp.minimum(safe, 1 - safe))
    y = align(law.loc, p.ndim) + align(law.scale, p.ndim) * jnp.where(safe < 0.5, -z, z)
    return jnp.where(inside, y, jnp.nan)


@jax.jit
def _interval(law: SymmetricNoise, level: jax.Array) -> tuple[jax.Array, jax.Array]:
    level = jnp.broadcast_to(level, jnp.broadcast_shapes(level.shape, law.batch_shape))
    inside = (level >= 0) & (level <= 1)
    reach = align(law.scale, level.ndim) * _upper_quantile(law, (1 - jnp.where(inside, level, 0.5)) / 2)
    reach, loc = jnp.where(inside, reach, jnp.nan), align(law.loc, level.ndim)
    return loc - reach, loc + reach


@jax.jit
def _mean_abs_error(law: SymmetricNoise, center: jax.Array) -> jax.Array:
    z = jnp.abs(_standardized(law, center))
    return align(law.scale, z.ndim) * (align(law._mean_abs(), z.ndim) + (z - 2 * law._tail_integral(z)))


@jax.jit
def _clamped_mean_abs_error(law: SymmetricNoise, center: jax.Array, lower: jax.Array, upper: jax.Array) -> jax.Array:
    shape = jnp.broadcast_shapes(law.batch_shape, center.shape, lower.shape, upper.shape)
    center, lower, upper = (broadcast_batch(array, shape) for array in (center, lower, upper))
    inside = jnp.clip(center, lower, upper)

    def integral(z: jax.Array) -> jax.Array:
        """The integral of P(Z > t) from 0 to z, of any sign."""
        reach = jnp.abs(z)
        tail = law._tail_integral(reach)
        return jnp.where(z >= 0, tail, tail - reach)

    low, mid, high = (_standardized(law, point) for point in (lower, inside, upper))
    above, below = integral(high) - integral(mid), integral(-low) - integral(-mid)
    return broadcast_batch(law.scale, shape) * (above + below) + jnp.abs(center - inside)
