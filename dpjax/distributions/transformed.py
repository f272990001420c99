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
from dpjax.distributions.line import ALL
from dpjax.distributions.noise import SymmetricNoise
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.distributions.transforms import Transform, ends_on_scale
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
        """Return E[function(Y)], for a function that is smooth but for ``kinks``, on the scale."""
        low, high = ends_on_scale(self.transform, self.dtype)
        masses = self.distribution.cdf(low), self.distribution.survival(high)
        found = jnp.zeros((), self.dtype)
        for mass, value in zip(masses, self._bounds, strict=True):
            found = found + _product(mass[..., None], function(jnp.full(1, value)))[..., 0]
        first, tails = jnp.full(self.batch_shape, low), _in_tails(self.distribution)
        cuts = jnp.stack(jnp.broadcast_arrays(first, *kinks, *tails, high))
        cuts = jnp.sort(jnp.clip(cuts, low, high), axis=0)
        law, log_normalizer, place = _between(self.distribution, cuts[:-1], cuts[1:])
        parts = _integrate(law, log_normalizer, lambda z: function(self._value(place(z))))
        return found + jnp.sum(parts, axis=0)

    @property
    def _bounds(self) -> tuple[float, float]:
        return self.transform.lower, self.transform.upper

    def _place(self, y: jax.Array) -> jax.Array:
        return self.transform.forward(jnp.clip(y, *self._bounds))

    def _value(self, z: jax.Array) -> jax.Array:
        ends = ends_on_scale(self.transform, self.dtype)
        return jnp.clip(self.transform.inverse(jnp.clip(z, *ends)), *self._bounds)


def _between(
    distribution: Dense, start: jax.Array, end: jax.Array
) -> tuple[PiecewiseExponential, jax.Array, Map]:
    """Return the pieces of a law between two points, its log Z, and the map to the distribution.

    Symmetric noise is a map of a Laplace variate, the logarithm of its tails.
    """
    if isinstance(distribution, PiecewiseExponential):
        return distribution.restrict(start, end), distribution.log_normalizer(), lambda z: z
    one = jnp.ones((), distribution.dtype)
    noise = distribution._rows()

    def reach(z: jax.Array) -> jax.Array:
        tail = jnp.minimum(distribution.cdf(z), distribution.survival(z))
        height = -jnp.log(2 * jnp.maximum(tail, jnp.finfo(tail.dtype).tiny))
        return jnp.where(z < distribution.loc, -height, height)

    def place(reach: jax.Array) -> jax.Array:
        low = noise.quantile(jnp.exp(-jnp.abs(reach)) / 2)
        return jnp.where(reach < 0, low, 2 * noise.loc - low)

    grid = jnp.asarray([-nats for nats in reversed(_NATS)] + _NATS[1:], one.dtype)
    edges = jnp.clip(grid, reach(start)[..., None], reach(end)[..., None])
    cost = jnp.abs(edges)
    return PiecewiseExponential(edges, cost[..., :-1], cost[..., 1:], one), jnp.log(2 * one), place


def _in_tails(distribution: Dense) -> list[jax.Array]:
    """Return points in the tails of a piecewise distribution, where they are cut."""
    if isinstance(distribution, SymmetricNoise) or distribution.tails is None:
        return []
    tails = distribution.tails
    first, last = distribution.edges[..., 0], distribution.edges[..., -1]
    ends = (first, -tails.lower_scale), (last, tails.upper_scale)
    return [end + scale * nats / distribution.rate for nats in _NATS for end, scale in ends]


def _integrate(law: PiecewiseExponential, log_normalizer: jax.Array, function: Map) -> jax.Array:
    """Integrate the function times exp(-rate * cost) / Z over the pieces."""
    line = law.line()
    (start, end), width, decay = line.ends(ALL), line.width(ALL), line.decay
    absent = (width <= 0) | (line.low == jnp.inf)
    fall = jnp.where(absent, jnp.inf, line.rate * line.low + log_normalizer[..., None])
    mass = width * jnp.exp(-fall) * piece.mass_fraction(decay)
    y, weights = np.polynomial.legendre.leggauss(_NODES)
    w = (1 - y) / 2
    # The probability before each node, beyond it, and at it.
    rule = jnp.asarray([1 - w**4, w**4, 2 * w**3 * weights], mass.dtype)

    def add(number: jax.Array, found: jax.Array) -> jax.Array:
        before, beyond, weight = rule[:, number]
        away = width * piece.quantile_fraction(before, beyond, decay)
        values = function(jnp.where(line.rise >= 0, start + away, end - away))
        return found + jnp.sum(_product(mass * weight, values), axis=-1)

    shape = jax.eval_shape(function, mass).shape[:-1]
    return jax.lax.fori_loop(np.int32(0), np.int32(_NODES), add, jnp.zeros(shape, mass.dtype))


def _product(mass: jax.Array, value: jax.Array) -> jax.Array:
    """Multiply, where a value without mass may be infinite."""
    return mass * jnp.where(mass == 0, 0.0, value)
