"""Distributions on a transformed scale, mapped back to the scale of the data.

Probabilities and quantiles are those of the transformed scale at T(y); densities are multiplied by
the derivative of T. Moments are quadratures in each piece, because the distribution has kinks and
jumps at its edges: Gauss-Legendre with 16 nodes in w, where w^4 is the probability of the piece
beyond a point, counted from its low-cost end. The fourth power resolves steep pieces and the last
piece, in which x may grow by sixty decades.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.distributions import truncated_exponential as piece
from dpjax.distributions.base import Distribution, compiled
from dpjax.distributions.closed_forms import Half, Resolved, by_rows, center_of
from dpjax.distributions.discrete_laplace import DiscreteLaplace
from dpjax.distributions.noise import SymmetricNoise
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.distributions.transforms import Transform, ends_on_scale, in_whole_lanes

Term = Callable[[jax.Array, jax.Array], jax.Array]
Sum = Callable[[Term], jax.Array]
_NATS = {4: 85, 8: 230}  # the integrated length of tails, by size of the dtype: float32 holds e^-87


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

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
        return in_whole_lanes(self._value, self.distribution._sample(key, shape, first))

    @compiled
    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return the log-density at ``y``: that at T(y) plus the log of the derivative of T."""
        y, x = jnp.asarray(y), self._clipped(y)
        value = self.distribution.log_prob(
            self.transform.forward(x)
        ) + self.transform.log_derivative(x)
        return jnp.where((y < self.transform.lower) | (y > self.transform.upper), -jnp.inf, value)

    @compiled
    def cdf(self, y: ArrayLike) -> jax.Array:
        """Return P(Y <= y)."""
        y, inside = jnp.asarray(y), self.distribution.cdf(self.transform.forward(self._clipped(y)))
        return jnp.where(
            y >= self.transform.upper, 1.0, jnp.where(y < self.transform.lower, 0.0, inside)
        )

    @compiled
    def survival(self, y: ArrayLike) -> jax.Array:
        """Return P(Y > y), at the precision of the distribution's upper tail."""
        y, inside = (
            jnp.asarray(y),
            self.distribution.survival(self.transform.forward(self._clipped(y))),
        )
        return jnp.where(
            y >= self.transform.upper, 0.0, jnp.where(y < self.transform.lower, 1.0, inside)
        )

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
        return self._integrate(self._mean)

    def variance(self) -> jax.Array:
        """Return the variance, ``batch_shape``; infinite if it overflows, see :meth:`stddev`."""
        return jnp.square(self.stddev())

    @compiled
    def stddev(self) -> jax.Array:
        """Return the standard deviation, of shape ``batch_shape``."""

        def compute(total: Sum, origin: jax.Array) -> jax.Array:
            mean = jax.lax.stop_gradient(self._mean(total, origin))
            unit = jax.lax.stop_gradient(total(lambda p, z: p * jnp.abs(self._value(z) - mean)))
            unit = jnp.where(unit > 0, unit, 1.0)

            def term(p: jax.Array, z: jax.Array) -> jax.Array:
                # Inside the square, which could otherwise overflow.
                root = jnp.where(p > 0, jnp.sqrt(jnp.where(p > 0, p, 1.0)), 0.0)
                return jnp.square((self._value(z) - mean) / unit * root)

            return unit * jnp.sqrt(total(term))

        return self._integrate(compute)

    @compiled
    def entropy(self) -> jax.Array:
        """Return the differential entropy in nats; only for a :class:`PiecewiseExponential`."""

        def term(p: jax.Array, z: jax.Array) -> jax.Array:
            return jnp.where(p > 0, p * self.transform.log_derivative(self._value(z)), 0.0)

        return self.distribution.entropy() - self._integrate(lambda total, _: total(term))  # type: ignore[union-attr]

    @compiled
    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|Y - center|, for a ``center`` in units of the data."""
        center = jnp.asarray(center)
        if isinstance(self.distribution, SymmetricNoise):
            return _over_noise(
                self.distribution,
                lambda p, z: p * jnp.abs(self._value(z) - center),
                rank=center.ndim,
            )
        return by_rows(self._mean_abs_error, self.distribution, center)

    def _mean_abs_error(self, r: Resolved, center: jax.Array) -> jax.Array:
        origin, z = self._value(center_of(r)), self.transform.forward(self._clipped(center))
        away, error = center - origin, jnp.zeros_like(center)

        def from_origin(p: jax.Array, z: jax.Array) -> jax.Array:
            return p * (self._value(z) - origin)

        for half in r.halves:
            means = _in_pieces(*_ends(half), half.decay, jnp.ones_like(half.weight), from_origin)
            error = error + jnp.sum(
                half.weight[..., None, :] * jnp.abs(means[..., None, :] - away[..., None]), axis=-1
            )
            if r.line.tails is not None:
                p, values = _tail(self.dtype)
                values = self._value(half.end + half.sign * half.scale * values) - origin
                error = error + half.tail * jnp.sum(
                    p * jnp.abs(values[..., None, :] - away[..., None]), axis=-1
                )
        # In the piece that contains the center, E|Y - c| replaces |E Y - c|, which is not larger.
        upper = z >= center_of(r)
        here = r.piece_at(upper, r.locate(z, upper))
        low, high = (
            jnp.where(here.rises, here.near, here.far),
            jnp.where(here.rises, here.far, here.near),
        )
        inner = jnp.where(here.rises, here.share(z), 1 - here.share(z))
        outer, s = 1 - inner, here.decay

        def over(start: jax.Array, end: jax.Array, s: jax.Array) -> jax.Array:
            return _in_pieces(
                start, end, s, jnp.ones_like(center), lambda p, z: p * (self._value(z) - center)
            )

        exact = inner * piece.mass_fraction(s * inner) * jnp.abs(over(low, z, s * inner))
        exact = exact + jnp.exp(-s * inner) * outer * piece.mass_fraction(s * outer) * jnp.abs(
            over(z, high, s * outer)
        )
        rough = jnp.abs(over(low, high, s))
        within = (z > jnp.minimum(low, high)) & (z < jnp.maximum(low, high))
        return (
            error + jnp.where(within, here.weight * (exact / piece.mass_fraction(s) - rough), 0.0)
        ) / r.total

    def _mean(self, total: Sum, origin: jax.Array) -> jax.Array:
        return origin + total(lambda p, z: p * (self._value(z) - origin))

    def _integrate(self, compute: Callable[[Sum, jax.Array], jax.Array]) -> jax.Array:
        """Call ``compute(total, origin)``; ``total(term)`` sums ``term(mass, point)``."""
        distribution = self.distribution
        if isinstance(distribution, SymmetricNoise):
            return compute(
                partial(_over_noise, distribution),
                self._value(jnp.broadcast_to(distribution.loc, self.batch_shape)),
            )
        return by_rows(
            lambda r: compute(partial(_over_pieces, r), self._value(center_of(r))), distribution
        )

    def _clipped(self, y: ArrayLike) -> jax.Array:
        return jnp.clip(jnp.asarray(y), self.transform.lower, self.transform.upper)

    def _value(self, z: jax.Array) -> jax.Array:
        """Invert T, within the transform's bounds."""
        return self._clipped(
            self.transform.inverse(jnp.clip(z, *ends_on_scale(self.transform, self.dtype)))
        )


def _over_pieces(r: Resolved, term: Term) -> jax.Array:
    """Sum ``term`` over the nodes in all pieces and tails, ``(rows, 1)``."""
    found = jnp.zeros_like(r.total)
    for half in r.halves:
        sums = _in_pieces(*_ends(half), half.decay, half.weight / r.total, term)
        found = found + jnp.sum(sums, axis=-1, keepdims=True)
        if r.line.tails is not None:
            p, past = _tail(found.dtype)
            sums = term(half.tail / r.total * p, half.end + half.sign * half.scale * past)
            found = found + jnp.sum(sums, axis=-1, keepdims=True)
    return found


def _ends(half: Half) -> tuple[jax.Array, jax.Array]:
    """Return the low-cost and the high-cost end of each piece."""
    near, far, rises = (
        half.side.values[..., :-1],
        half.side.values[..., 1:],
        half.side.cost_near <= half.side.cost_far,
    )
    return jnp.where(rises, near, far), jnp.where(rises, far, near)


def _in_pieces(
    low: jax.Array, high: jax.Array, decay: jax.Array, mass: jax.Array, term: Term
) -> jax.Array:
    """Sum ``term`` over the nodes in each piece, low-cost end first, of the shape of ``mass``."""
    y, weights = np.polynomial.legendre.leggauss(16)
    w = (1 - y) / 2
    # The probability before each node, beyond it, and at it.
    rule = jnp.asarray([1 - w**4, w**4, 2 * w**3 * weights], mass.dtype)

    def add(number: jax.Array, found: jax.Array) -> jax.Array:
        before, beyond, weight = rule[:, number]
        return found + term(
            mass * weight,
            low + (high - low) * piece.quantile_fraction(before, beyond, piece.Decay.of(decay)),
        )

    return jax.lax.fori_loop(0, len(y), add, jnp.zeros_like(mass))


def _over_noise(noise: SymmetricNoise, term: Term, rank: int = 0) -> jax.Array:
    """Sum ``term`` over nodes on both sides of symmetric noise.

    A term has up to ``rank`` axes in addition to that of the nodes.
    """
    p, nats = (
        nodes.reshape(-1, *(1,) * max(rank, len(noise.batch_shape))) for nodes in _tail(noise.dtype)
    )
    below = noise.quantile(jnp.exp(-nats) / 2)
    return jnp.sum(term(p / 2, below) + term(p / 2, 2 * noise.loc - below), axis=0)


def _tail(dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Return the probabilities and positions of nodes for an exponential variate of rate 1.

    There are eight nodes in each panel.
    """
    y, weights = np.polynomial.legendre.leggauss(8)
    last = _NATS[jnp.dtype(dtype).itemsize]
    # Finer where a kink matters.
    panels = np.concatenate([np.arange(0, 16, 1 / 8), np.arange(16, last + 1)])
    nats = ((panels[:-1] + panels[1:])[:, None] + np.diff(panels)[:, None] * y) / 2
    masses = np.diff(panels)[:, None] / 2 * weights * np.exp(-nats)
    return jnp.asarray(masses.reshape(-1), dtype), jnp.asarray(nats.reshape(-1), dtype)
