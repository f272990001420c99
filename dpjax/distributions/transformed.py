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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.base import Distribution, compiled
from dpjax.distributions.discrete_laplace import DiscreteLaplace
from dpjax.distributions.noise import SymmetricNoise
from dpjax.distributions.piecewise import PiecewiseExponential, Tails
from dpjax.distributions.transforms import Transform, ends_on_scale
from dpjax.numerics.arrays import concatenate

# Edges of the pieces of a tail, as minus the logarithm of the probability beyond.
_NATS = np.concatenate([np.arange(0.0, 16.0), np.arange(16.0, 232.0, 4.0)])


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Transformed(Distribution):
    """The distribution of ``transform.inverse(Y)``, with values between the transform's bounds.

    A public map of a draw is post-processing: the guarantee is that of ``distribution``, and so is
    every privacy loss between two of them with the same transform. Leading axes are a batch.

    All methods except ``sample`` and the moments are as exact as those of ``distribution``, up to
    the rounding of T (see the transform). The moments (``mean``, ``variance``, ``stddev``,
    ``mean_abs_error``, ``mean_squared_error``) and ``entropy`` are quadratures with 16 nodes in
    each piece, with a relative error below 1e-7 in float64. Where the last piece, which extends to
    the bounds, dominates a moment, the error is 1e-5, and 2e-2 for ``LogCauchy``. (A private median
    of few records sometimes comes from this piece. Its mean error is then as large as reported, and
    ``quantile`` is more informative.) Moments are finite, because the bounds are; a variance may
    overflow float32, and events of probability below e^-87 are left out of its moments. Tails and
    symmetric noise are integrated down to a probability of e^-85 (float32) or e^-230, in panels of
    1/8 and then of 1 in its logarithm with 8 nodes each; with a center or a bound inside them,
    which is a kink, the relative error is below 1e-3.

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

    distribution: PiecewiseExponential | SymmetricNoise
    transform: Transform = field(metadata={"static": True})

    def __post_init__(self) -> None:
        distribution = self.distribution  # inside JAX, the leaves of a pytree need not be arrays
        dense = isinstance(distribution, (PiecewiseExponential, SymmetricNoise)) and not isinstance(
            distribution, DiscreteLaplace
        )
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

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The bounds of the support in units of y, within the transform's bounds."""
        low, high = (self._value(end) for end in self.distribution.support)
        return low, high

    def _sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return self._value(self.distribution._sample(key, shape))

    @compiled
    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return the log-density at ``y``: that at T(y) plus the log of the derivative of T."""
        inner, derivative = (
            self.distribution.log_prob(self._place(y)),
            self.transform.log_derivative,
        )
        value = inner + derivative(self._clipped(y))
        return jnp.where((y < self.transform.lower) | (y > self.transform.upper), -jnp.inf, value)

    @compiled
    def cdf(self, y: ArrayLike) -> jax.Array:
        """Return P(Y <= y), at the precision of the distribution's lower tail."""
        inside = jnp.where(y < self.transform.lower, 0.0, self.distribution.cdf(self._place(y)))
        return jnp.where(y >= self.transform.upper, 1.0, inside)

    @compiled
    def survival(self, y: ArrayLike) -> jax.Array:
        """Return P(Y > y), at the precision of the distribution's upper tail."""
        inside = self.distribution.survival(self._place(y))
        inside = jnp.where(y < self.transform.lower, 1.0, inside)
        return jnp.where(y >= self.transform.upper, 0.0, inside)

    @compiled
    def quantile(self, p: ArrayLike) -> jax.Array:
        """Return the smallest y with ``cdf(y) >= p``, up to rounding; NaN outside [0, 1]."""
        return self._value(self.distribution.quantile(p))

    @compiled
    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the central interval of probability ``level``.

        Each side leaves out ``(1 - level) / 2``.
        """
        low, high = self.distribution.interval(level)
        return self._value(low), self._value(high)

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

        def compute(wide: Transformed) -> jax.Array:
            at = jnp.asarray(center).astype(jnp.float64)
            kink = wide._place(at)
            below = wide._expect(lambda y: jnp.maximum(at[..., None] - y, 0.0), end=kink)
            above = wide._expect(lambda y: jnp.maximum(y - at[..., None], 0.0), start=kink)
            return below + above

        return self._in_float64(compute)

    def _in_float64(self, compute: Callable[[Transformed], jax.Array]) -> jax.Array:
        """Compute from this distribution in float64, at least of the batch's shape."""
        with jax.enable_x64(True):
            wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), self)
            found = compute(wide).astype(self.dtype)
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
        whole = _Nodes.of(law, law)
        kept = law.restrict(to_law(jnp.clip(start, low, high)), to_law(jnp.clip(end, low, high)))
        found = _Nodes.of(kept, law).sum(lambda z: function(self._value(from_law(z))))
        found = found / whole.sum(jnp.ones_like)
        atoms = (
            (self.distribution.cdf(low), self.transform.lower),
            (self.distribution.survival(high), self.transform.upper),
        )
        for mass, value in atoms:
            found = found + _product(mass[..., None], function(jnp.full(1, value)))[..., 0]
        return found

    def _clipped(self, y: ArrayLike) -> jax.Array:
        return jnp.clip(jnp.asarray(y), self.transform.lower, self.transform.upper)

    def _place(self, y: ArrayLike) -> jax.Array:
        """Return T(y), within the transform's bounds."""
        return self.transform.forward(self._clipped(y))

    def _value(self, z: jax.Array) -> jax.Array:
        """Invert T, within the transform's bounds."""
        ends = ends_on_scale(self.transform, self.dtype)
        return self._clipped(self.transform.inverse(jnp.clip(z, *ends)))


Map = Callable[[jax.Array], jax.Array]


def _law(
    distribution: PiecewiseExponential | SymmetricNoise,
) -> tuple[PiecewiseExponential, Map, Map]:
    """Return a piecewise distribution without tails, and how to go to it and back.

    Points of it have an axis of pieces.
    """
    if isinstance(distribution, PiecewiseExponential):
        return _without_tails(distribution), lambda z: z, lambda z: z
    zero, one = jnp.zeros(()), jnp.ones(())
    tails = Tails(zero, one, zero, one)
    nothing = jnp.zeros(0)
    laplace = PiecewiseExponential(jnp.zeros(1), nothing, nothing, one, tails)

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
    cost = _NATS / law.rate[..., None]
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


class _Nodes(NamedTuple):
    """The low-cost end, the high-cost end, the decay and the mass of each piece."""

    low: jax.Array
    high: jax.Array
    decay: jax.Array
    mass: jax.Array

    @staticmethod
    def of(law: PiecewiseExponential, whole: PiecewiseExponential) -> _Nodes:
        """Weigh the pieces of a law, relative to the lowest cost of the whole."""
        base = jnp.where(jnp.diff(whole.edges) > 0, _lowest(whole), jnp.inf).min(-1, keepdims=True)
        left, right, low = law.edges[..., :-1], law.edges[..., 1:], _lowest(law)
        rate, absent = law.rate[..., None], (right <= left) | (low == jnp.inf)
        fall = jnp.where(absent, jnp.inf, rate * (low - jax.lax.stop_gradient(base)))
        decay = jnp.where(absent, 0.0, rate * jnp.abs(law.cost_right - law.cost_left))
        decay = jnp.minimum(decay, 1e300)
        rises = law.cost_left <= law.cost_right
        return _Nodes(
            jnp.where(rises, left, right),
            jnp.where(rises, right, left),
            decay,
            (right - left) * jnp.exp(-fall) * piece.mass_fraction(decay),
        )

    def sum(self, function: Map) -> jax.Array:
        """Sum the function over 16 nodes in each piece."""
        y, weights = np.polynomial.legendre.leggauss(16)
        w = (1 - y) / 2
        # The probability before each node, beyond it, and at it.
        rule = jnp.asarray([1 - w**4, w**4, 2 * w**3 * weights])

        def add(number: jax.Array, found: jax.Array) -> jax.Array:
            before, beyond, weight = rule[:, number]
            away = piece.quantile_fraction(before, beyond, self.decay)
            values = function(self.low + (self.high - self.low) * away)
            return found + jnp.sum(_product(self.mass * weight, values), axis=-1)

        shape = jax.eval_shape(function, self.mass).shape
        return jax.lax.fori_loop(np.int32(0), np.int32(16), add, jnp.zeros(shape[:-1]))


def _lowest(law: PiecewiseExponential) -> jax.Array:
    return jnp.minimum(law.cost_left, law.cost_right)


def _product(mass: jax.Array, value: jax.Array) -> jax.Array:
    """Multiply, where a value without mass may be infinite."""
    return mass * jnp.where(mass == 0, 0.0, value)
