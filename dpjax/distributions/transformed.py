"""Distributions on a transformed scale, mapped back to the scale of the data.

Probabilities and quantiles are those of the transformed scale at T(y); densities are multiplied by
the derivative of T. Moments are quadratures in each piece, because the distribution has kinks and
jumps at its edges: Gauss-Legendre with 16 nodes in w, where w^4 is the probability of the piece
beyond a point, counted from its low-cost end. The fourth power resolves steep pieces and the last
piece, in which x may grow by sixty decades. Symmetric noise is a map of a Laplace variate, the sum
over pieces of its tails. All of it is in float64, where no square of the data overflows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import log
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.base import Distribution, compiled
from dpjax.distributions.clamped import Bounded
from dpjax.distributions.discrete_laplace import DiscreteLaplace
from dpjax.distributions.noise import SymmetricNoise
from dpjax.distributions.piecewise import PiecewiseExponential, Tails
from dpjax.distributions.transforms import Transform, ends_on_scale
from dpjax.numerics.arrays import concatenate
from dpjax.numerics.float64 import in_float64

# Edges of the pieces of a tail, as minus the logarithm of the probability beyond.
_NATS = np.concatenate([np.arange(0.0, 16.0), np.arange(16.0, 232.0, 4.0)])

Dense = PiecewiseExponential | SymmetricNoise
Map = Callable[[jax.Array], jax.Array]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Transformed(Bounded):
    """The distribution of ``transform.inverse(Y)``, with values between the transform's bounds.

    A public map of a draw is post-processing: the guarantee is that of ``distribution``, and so is
    every privacy loss between two of them with the same transform. Leading axes are a batch.

    All methods except ``sample`` and the moments are as exact as those of ``distribution``, up to
    the rounding of T (see the transform). The moments (``mean``, ``variance``, ``stddev``,
    ``mean_abs_error``, ``mean_squared_error``) and ``entropy`` are quadratures in float64 with 16
    nodes in each piece, cut at the center and at the bounds, with a relative error below 1e-8.
    Where the last piece, which extends to the bounds, dominates a moment, the error is 1e-5, and
    2e-2 for ``LogCauchy``. (A private median of few records sometimes comes from this piece. Its
    mean error is then as large as reported, and ``quantile`` is more informative.) Moments are
    finite, because the bounds are; a variance may overflow float32. Tails and symmetric noise are
    integrated down to a probability of e^-228, in pieces of 1 and then of 4 in its logarithm.

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

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The batch shape of the distribution."""
        return self.distribution.batch_shape

    @property
    def dtype(self) -> Any:
        """The dtype of every result."""
        return self.distribution.dtype

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
        return self._in_float64(lambda wide: wide._expect(lambda y: y))

    def variance(self) -> jax.Array:
        """Return the variance, ``batch_shape``; infinite if it overflows, see :meth:`stddev`."""
        return jnp.square(self.stddev())

    @compiled
    def stddev(self) -> jax.Array:
        """Return the standard deviation, of shape ``batch_shape``."""

        def compute(wide: Transformed) -> jax.Array:
            mean = jax.lax.stop_gradient(wide._expect(lambda y: y))[..., None]
            return jnp.sqrt(wide._expect(lambda y: jnp.square(y - mean)))

        return self._in_float64(compute)

    @compiled
    def entropy(self) -> jax.Array:
        """Return the differential entropy in nats; only for a :class:`PiecewiseExponential`."""
        inner = self.distribution.entropy()  # type: ignore[union-attr]
        return inner - self._in_float64(lambda wide: wide._expect(self.transform.log_derivative))

    @compiled
    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|Y - center|, for a ``center`` in units of the data."""

        def compute(wide: Transformed, center: jax.Array) -> jax.Array:
            kink, at = wide._place(center), center[..., None]
            below = wide._expect(lambda y: jnp.maximum(at - y, 0.0), end=kink)
            return below + wide._expect(lambda y: jnp.maximum(y - at, 0.0), start=kink)

        return self._in_float64(compute, jnp.asarray(center))

    def _in_float64(self, compute: Callable[..., jax.Array], *points: jax.Array) -> jax.Array:
        """Return ``compute(distribution, *points)`` in float64, at least of the batch's shape."""
        leaves, tree = jax.tree.flatten(self)

        def of_leaves(*arrays: jax.Array) -> jax.Array:
            own = jax.tree.unflatten(tree, arrays[: len(leaves)])
            return compute(own, *arrays[len(leaves) :])

        found = in_float64(of_leaves, *leaves, *points)
        return jnp.broadcast_to(found, jnp.broadcast_shapes(found.shape, self.batch_shape))

    def _expect(
        self,
        function: Callable[[jax.Array], jax.Array],
        start: ArrayLike = -jnp.inf,
        end: ArrayLike = jnp.inf,
    ) -> jax.Array:
        """Return E[function(Y)], for a function that is 0 where T(Y) is not in [start, end]."""
        low, high = ends_on_scale(self.transform, self.dtype)
        law, to_law, from_law = _law(self.distribution)
        kept = law.restrict(to_law(jnp.clip(start, low, high)), to_law(jnp.clip(end, low, high)))
        found = _integrate(kept, law.log_normalizer(), lambda z: function(self._value(from_law(z))))
        below, above = self.distribution.cdf(low), self.distribution.survival(high)
        for mass, value in ((below, self.transform.lower), (above, self.transform.upper)):
            at_bound = _product(mass[..., None], function(jnp.full(1, value, mass.dtype)))
            found = found + at_bound[..., 0]
        return found

    @property
    def _bounds(self) -> tuple[float, float]:
        return self.transform.lower, self.transform.upper

    def _place(self, y: jax.Array) -> jax.Array:
        return self.transform.forward(jnp.clip(y, *self._bounds))

    def _value(self, z: jax.Array) -> jax.Array:
        ends = ends_on_scale(self.transform, self.dtype)
        return jnp.clip(self.transform.inverse(jnp.clip(z, *ends)), *self._bounds)


def _law(
    distribution: PiecewiseExponential | SymmetricNoise,
) -> tuple[PiecewiseExponential, Map, Map]:
    """Return a piecewise distribution without tails, and how to go to it and back.

    Points of it have an axis of pieces.
    """
    if isinstance(distribution, PiecewiseExponential):
        return _without_tails(distribution), lambda z: z, lambda z: z
    dtype = distribution.dtype
    zero, one, nothing = jnp.zeros((), dtype), jnp.ones((), dtype), jnp.zeros(0, dtype)
    tails = Tails(zero, one, zero, one)
    laplace = PiecewiseExponential(zero[None], nothing, nothing, one, tails)

    def to_law(z: jax.Array) -> jax.Array:
        below, above = distribution.cdf(z), distribution.survival(z)
        nats = -jnp.log(2 * jnp.maximum(jnp.minimum(below, above), jnp.finfo(z.dtype).tiny))
        return jnp.where(below < above, -nats, nats)

    def from_law(nats: jax.Array) -> jax.Array:
        low = distribution.quantile(jnp.moveaxis(jnp.exp(-jnp.abs(nats)) / 2, -1, 0))
        low = jnp.moveaxis(low, 0, -1)
        return jnp.where(nats < 0, low, 2 * distribution.loc[..., None] - low)

    return _without_tails(laplace), to_law, from_law


def _without_tails(law: PiecewiseExponential) -> PiecewiseExponential:
    """Return the distribution with its tails as pieces."""
    if law.tails is None:
        return law
    most = -log(jnp.finfo(law.dtype).tiny) - 2
    nats = _NATS[: np.searchsorted(_NATS, most)]
    cost = jnp.asarray(nats, law.dtype) / law.rate[..., None]
    lower, upper = law.tails.lower_cost[..., None] + cost, law.tails.upper_cost[..., None] + cost
    below = law.edges[..., :1] - law.tails.lower_scale[..., None] * cost
    above = law.edges[..., -1:] + law.tails.upper_scale[..., None] * cost
    below, lower = jnp.flip(below, -1), jnp.flip(lower, -1)
    return PiecewiseExponential(
        concatenate(below[..., :-1], law.edges, above[..., 1:]),
        concatenate(lower[..., :-1], law.cost_left, upper[..., :-1]),
        concatenate(lower[..., 1:], law.cost_right, upper[..., 1:]),
        law.rate,
    )


def _integrate(law: PiecewiseExponential, log_normalizer: jax.Array, function: Map) -> jax.Array:
    """Integrate the function times exp(-rate * cost), over its pieces, with 16 nodes in each."""
    left, right, rate = law.edges[..., :-1], law.edges[..., 1:], law.rate[..., None]
    rises, cost = law.cost_left <= law.cost_right, jnp.minimum(law.cost_left, law.cost_right)
    low, high = jnp.where(rises, left, right), jnp.where(rises, right, left)
    absent = (right <= left) | (cost == jnp.inf)
    decay = jnp.where(absent, 0.0, rate * jnp.abs(law.cost_right - law.cost_left))
    decay = jnp.minimum(decay, jnp.finfo(decay.dtype).max)
    fall = jnp.where(absent, jnp.inf, rate * cost + log_normalizer[..., None])
    mass = (right - left) * jnp.exp(-fall) * piece.mass_fraction(decay)
    y, weights = np.polynomial.legendre.leggauss(16)
    w = (1 - y) / 2
    # The probability before each node, beyond it, and at it.
    rule = jnp.asarray([1 - w**4, w**4, 2 * w**3 * weights], mass.dtype)

    def add(number: jax.Array, found: jax.Array) -> jax.Array:
        before, beyond, weight = rule[:, number]
        values = function(low + (high - low) * piece.quantile_fraction(before, beyond, decay))
        return found + jnp.sum(_product(mass * weight, values), axis=-1)

    start = jnp.zeros(jax.eval_shape(function, mass).shape[:-1], mass.dtype)
    return jax.lax.fori_loop(np.int32(0), np.int32(y.size), add, start)


def _product(mass: jax.Array, value: jax.Array) -> jax.Array:
    """Multiply, where a value without mass may be infinite."""
    return mass * jnp.where(mass == 0, 0.0, value)
