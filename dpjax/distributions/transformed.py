"""Distributions on a transformed scale, mapped back to the scale of the data.

Probabilities and quantiles are those of the transformed scale at T(y); densities are multiplied by
the derivative of T. Moments are quadratures in each piece, because the distribution has kinks and
jumps at its edges: Gauss-Legendre in w, where w^4 is the probability of the piece beyond a point,
counted from its low-cost end. The fourth power resolves steep pieces and the last piece, in which x
may grow by sixty decades. Symmetric noise is a map of a Laplace variate, and tails are cut into
pieces. All of it is in float64, where no square of the data overflows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.base import Distribution, compiled
from dpjax.distributions.clamped import Bounded
from dpjax.distributions.discrete_laplace import DiscreteLaplace
from dpjax.distributions.noise import SymmetricNoise
from dpjax.distributions.piecewise import PiecewiseExponential, laplace_noise
from dpjax.distributions.transforms import Transform, ends_on_scale
from dpjax.numerics.arrays import concatenate, take, varying
from dpjax.numerics.float64 import in_float64
from dpjax.pytrees import pytree

_NODES = 32
# Tails are cut here; each number is minus the logarithm of the probability beyond.
_NATS = [*range(0, 64, 4), 64, 96, 128, 256, 768]

Dense = PiecewiseExponential | SymmetricNoise
Map = Callable[[jax.Array], jax.Array]


@pytree
class Transformed(Bounded):
    """The distribution of ``transform.inverse(Y)``, with values between the transform's bounds.

    A public map of a draw is post-processing: the guarantee is that of ``distribution``, and so is
    every privacy loss between two of them with the same transform. Leading axes are a batch.

    All methods except ``sample`` and the moments are as exact as those of ``distribution``, up to
    the rounding of T (see the transform). The moments (``mean``, ``variance``, ``stddev``,
    ``mean_abs_error``, ``mean_squared_error``) and ``entropy`` are quadratures in float64 with 32
    nodes in each piece, cut at the center and at the bounds, with a relative error below 1e-8.
    Where the last piece, which extends to the bounds, dominates a moment, the error is 1e-5, and
    2e-2 for ``LogCauchy``. (A private median of few records sometimes comes from this piece. Its
    mean error is then as large as reported, and ``quantile`` is more informative.) Moments are
    finite, because the bounds are; a variance may overflow float32.

    Attributes:
        distribution: the distribution of Y on the transformed scale, such as
            :class:`PiecewiseExponential`, :class:`Cauchy` or :class:`LaplaceLogNormal`.
        transform: static, the map T.

    >>> import jax.numpy as jnp
    >>> from dpjax import Log, median, on_scale, piecewise_laplace
    >>> scale = Log()
    >>> incomes = jnp.exp(jnp.linspace(9.5, 11.5, 101))
    >>> profile = on_scale(median, incomes, transform=scale, neighbors="add_remove")
    >>> distribution = Transformed(piecewise_laplace(profile, 1.0), scale)
    >>> error = distribution.mean_abs_error(incomes[50])
    >>> round(float(distribution.quantile(0.5))), round(float(error))
    (36316, 727)
    """

    distribution: Dense
    transform: Transform = field(metadata={"static": True})

    def __post_init__(self) -> None:
        distribution = self.distribution  # inside JAX, the leaves of a pytree need not be arrays
        dense = isinstance(distribution, Dense) and not isinstance(distribution, DiscreteLaplace)
        if isinstance(distribution, Distribution) and not dense:
            raise TypeError(
                "distribution must have a density on the real line (PiecewiseExponential, Cauchy, "
                f"LaplaceLogNormal, ...), got {type(distribution).__name__}."
            )
        if not isinstance(self.transform, Transform):
            raise TypeError(
                f"transform must be a Transform (such as Log()), got {self.transform!r}."
            )

    def _sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return self._value(self.distribution._sample(key, shape))

    @compiled
    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return the log-density at ``y``: that at T(y) plus the log of the derivative of T."""
        y, (low, high) = jnp.asarray(y), self._bounds
        slope = self.transform.log_derivative(jnp.clip(y, low, high))
        value = self.distribution.log_prob(self._place(y)) + slope
        return jnp.where((y < low) | (y > high), -jnp.inf, value)

    @compiled
    def mean(self) -> jax.Array:
        """Return the mean, E[Y], of shape ``batch_shape``."""
        return in_float64(lambda wide: wide._expect(lambda y: y), self)

    def variance(self) -> jax.Array:
        """Return the variance, ``batch_shape``; infinite if it overflows, see :meth:`stddev`."""
        return jnp.square(self.stddev())

    @compiled
    def stddev(self) -> jax.Array:
        """Return the standard deviation, of shape ``batch_shape``."""

        def compute(wide: Transformed) -> jax.Array:
            mean = jax.lax.stop_gradient(wide._expect(lambda y: y))[..., None]
            return jnp.sqrt(wide._expect(lambda y: jnp.square(y - mean)))

        return in_float64(compute, self)

    @compiled
    def entropy(self) -> jax.Array:
        """Return the differential entropy in nats; only for a :class:`PiecewiseExponential`."""
        inner = self.distribution.entropy()  # type: ignore[union-attr]
        return inner - in_float64(lambda wide: wide._expect(self.transform.log_derivative), self)

    @compiled
    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|Y - center|, for a ``center`` in units of the data."""

        def compute(wide: Transformed, center: jax.Array) -> jax.Array:
            return wide._expect(lambda y: jnp.abs(y - center[..., None]), wide._place(center))

        return in_float64(compute, self, jnp.asarray(center))

    def _expect(self, function: Map, *kinks: jax.Array) -> jax.Array:
        """Return E[function(Y)], for a function that is smooth but for ``kinks``, on the scale.

        The function maps points on a last axis, which results of the batch shape do not have.
        """
        law, ends = self.distribution, jnp.asarray(ends_on_scale(self.transform, self.dtype))
        atoms = jnp.stack([law.cdf(ends[0]), law.survival(ends[1])], axis=-1)
        found = jnp.sum(_product(atoms, function(jnp.asarray(self._bounds))), axis=-1)
        pieces, forth, back = _as_pieces(law)
        cuts = forth(concatenate(ends, *(kink[..., None] for kink in kinks)))
        return found + _integrate(pieces, cuts, lambda z: function(self._value(back(z))))

    @property
    def _bounds(self) -> tuple[float, float]:
        return self.transform.lower, self.transform.upper

    def _place(self, y: jax.Array) -> jax.Array:
        return self.transform.forward(jnp.clip(y, *self._bounds))

    def _value(self, z: jax.Array) -> jax.Array:
        ends = ends_on_scale(self.transform, self.dtype)
        return jnp.clip(self.transform.inverse(jnp.clip(z, *ends)), *self._bounds)


def _as_pieces(distribution: Dense) -> tuple[PiecewiseExponential, Map, Map]:
    """Return a piecewise distribution, and the maps to it and back.

    Symmetric noise is a map of a Laplace variate, the logarithm of its tails.
    """
    if isinstance(distribution, PiecewiseExponential):
        return distribution, lambda z: z, lambda z: z
    noise, one = distribution._rows(), jnp.ones((), distribution.dtype)

    def forth(z: jax.Array) -> jax.Array:
        tail = jnp.minimum(noise.cdf(z), noise.survival(z))
        height = -jnp.log(2 * jnp.maximum(tail, jnp.finfo(tail.dtype).tiny))
        return jnp.where(z < noise.loc, -height, height)

    def back(height: jax.Array) -> jax.Array:
        low = noise.quantile(jnp.exp(-jnp.abs(height)) / 2)
        return jnp.where(height < 0, low, 2 * noise.loc - low)

    return laplace_noise(0 * one, one, one), forth, back


def _integrate(distribution: PiecewiseExponential, cuts: jax.Array, function: Map) -> jax.Array:
    """Integrate the function times the density between the first two of the cuts.

    It is smooth between cuts.
    """
    masses, ends = distribution._masses, (cuts[..., :1], cuts[..., 1:2])
    edges, tails = masses.line.edges, distribution.tails
    cuts = concatenate(edges, cuts)
    if tails is not None:
        reach = jnp.asarray(_NATS, cuts.dtype) / distribution.rate[..., None]
        below = distribution.edges[..., :1] - tails.lower_scale[..., None] * reach
        above = distribution.edges[..., -1:] + tails.upper_scale[..., None] * reach
        cuts = concatenate(cuts, below, above)
    cuts = jnp.clip(jnp.clip(jnp.sort(cuts, axis=-1), *ends), edges[..., :1], edges[..., -1:])
    start, width = cuts[..., :-1], jnp.diff(cuts)
    here = masses.at(start)
    share = width / jnp.where(here.width > 0, here.width, 1.0)
    decay, nearest = here.decay * share, jnp.where(here.rises, here.away, here.away - share)
    height = jnp.exp(-take(masses.energy, here.piece) - here.decay * nearest) / masses.total
    mass = width * height * piece.mass_fraction(decay)
    y, weights = np.polynomial.legendre.leggauss(_NODES)
    w = (1 - y) / 2
    # The probability before each node, beyond it, and at it.
    rule = jnp.asarray([1 - w**4, w**4, 2 * w**3 * weights], mass.dtype)

    def add(number: jax.Array, found: jax.Array) -> jax.Array:
        before, beyond, weight = rule[:, number]
        away = width * piece.quantile_fraction(before, beyond, decay)
        values = function(start + jnp.where(here.rises, away, width - away))
        return found + jnp.sum(_product(mass * weight, values), axis=-1)

    zeros = jnp.zeros(jax.eval_shape(function, mass).shape[:-1], mass.dtype)
    zeros = varying(zeros, jnp.any(mass > 0))
    return jax.lax.fori_loop(np.int32(0), np.int32(_NODES), add, zeros)


def _product(mass: jax.Array, value: jax.Array) -> jax.Array:
    """Multiply, where a value without mass may be infinite."""
    return mass * jnp.where(mass == 0, 0.0, value)
