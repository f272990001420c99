"""The privacy loss between the output distributions of two neighbouring datasets, exactly.

The loss at an output y is log p(y) - log q(y). Its supremum is epsilon, its supremum minus its infimum the bounded range, and

    delta(epsilon) = sup_S P(S) - e^epsilon Q(S) = integral of max(p - e^epsilon q, 0),

the privacy profile (Balle, Barthe and Gaboardi 2018). On each common segment of two distributions (``segments.py``) the loss is
linear: its supremum is at an end, the integrand is positive on one side of at most one crossing, and the rest are integrals of
exponentials. Nothing is sampled or put on a grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.auditing.segments import Distribution, Segments, multiples_of, of_candidates, of_lines, on_multiples
from dpjax.batch import span
from dpjax.display import Picture, Shown
from dpjax.distributions.finite import Finite
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.distributions.rounded import Rounded
from dpjax.distributions.truncated_exponential import log_integral, mean_position
from dpjax.numerics.batching import fits
from dpjax.numerics.bisection import bisect

Direction = Literal["both", "forward", "backward"]
_BISECTIONS = 64


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class PrivacyLoss(Shown):
    """The loss of two distributions P and Q, from :func:`privacy_loss`; ``forward`` is P against Q, ``backward`` Q against P.

    Leading axes are a batch of pairs. It is a pytree: it passes through ``jit``, ``vmap`` and ``grad``. In float64, losses are
    accurate to about 1e-15 times the largest log-density, and probabilities to as much absolutely; in float32, to 1e-6.
    A row in which one of the distributions is NaN is NaN. Every method takes a ``direction``: ``"forward"``, ``"backward"``, or
    ``"both"`` for the larger.

    Attributes:
        segments: the two distributions on their common segments.

    >>> from dpjax import laplace
    >>> loss = privacy_loss(laplace(0.0, 1.0, sensitivity=1.0), laplace(1.0, 1.0, sensitivity=1.0))
    >>> float(loss.epsilon), float(loss.bounded_range)
    (1.0, 2.0)
    """

    segments: Segments

    def _facts(self) -> dict[str, Any]:
        """With numbers where they are at hand: a repr adds nothing to a trace."""
        numbers = ("epsilon", "bounded_range") if span(self.segments.length) is not None else ()
        shown = {"batch_shape": self.batch_shape, "dtype": jnp.dtype(self.dtype).name}
        return shown | {name: span(getattr(self, name)) for name in numbers}

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        return {name.replace("_", " "): getattr(self, name) for name in ("epsilon", "forward", "backward", "bounded_range")}, None

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of the two distributions."""
        return self.segments.length.shape[:-1]

    @property
    def dtype(self) -> Any:
        """The dtype of the distributions and of every result."""
        return self.segments.length.dtype

    @property
    def epsilon(self) -> jax.Array:
        """The least epsilon of pure differential privacy, sup abs(log p/q), of shape ``batch_shape``; inf on unequal supports."""
        return supremum(self, direction="both")

    @property
    def forward(self) -> jax.Array:
        """Sup log p/q, which is the Renyi divergence of infinite order, of shape ``batch_shape``."""
        return supremum(self, direction="forward")

    @property
    def backward(self) -> jax.Array:
        """Sup log q/p, of shape ``batch_shape``."""
        return supremum(self, direction="backward")

    @property
    def bounded_range(self) -> jax.Array:
        """Sup log p/q minus inf log p/q (Durfee and Rogers 2019), of shape ``batch_shape``."""
        return self.forward + self.backward

    def reverse(self) -> PrivacyLoss:
        """Return the loss of Q against P."""
        s = self.segments
        return PrivacyLoss(Segments(s.log_q, s.log_p, s.slope_q, s.slope_p, -s.loss_start, -s.loss_end, s.length, s.wide))

    def _sides(self, direction: Direction) -> list[PrivacyLoss]:
        """Return this loss, the reverse one, or both, as ``direction`` says."""
        checks.one_of("direction", direction, ("both", "forward", "backward"))
        return ([] if direction == "backward" else [self]) + ([] if direction == "forward" else [self.reverse()])

    def delta(self, epsilon: ArrayLike, *, direction: Direction = "both") -> jax.Array:
        """The least delta of (epsilon, delta)-differential privacy: the integral of max(p - e^epsilon q, 0).

        Args:
            epsilon: not negative; broadcasts against ``batch_shape``, so ``epsilon[:, None]`` is a curve for each pair of a batch.
            direction: see the class.

        Returns:
            Float of the broadcast shape; at epsilon 0, the total variation distance.
        """
        at = checks.nonnegative("epsilon", epsilon, self.dtype)
        fits(self.batch_shape, epsilon=at.shape)
        return delta_of_loss(self, at, direction=direction)

    def epsilon_at(self, delta: ArrayLike, *, direction: Direction = "both") -> jax.Array:
        """The least epsilon of (epsilon, delta)-differential privacy, the inverse of :meth:`delta`.

        By bisection; the result is the upper end of the last bracket: ``delta(result)``, as computed, is at most ``delta``, or the
        result is the supremum of the loss. Its derivative is that of the implicit function.

        Args:
            delta: in (0, 1); broadcasts against ``batch_shape``.
            direction: see the class.

        Returns:
            Float of the broadcast shape; inf where one distribution has more than ``delta`` outside the support of the other.
        """
        at = checks.probability("delta", delta, self.dtype, below=1.0)
        fits(self.batch_shape, delta=at.shape)
        return _epsilon_at(self, at, direction=direction)

    def renyi(self, order: ArrayLike, *, direction: Direction = "both") -> jax.Array:
        """The Renyi divergence log(integral of p^order q^(1 - order)) / (order - 1), accurate to rounding over order - 1.

        Args:
            order: finite, above 1; broadcasts against ``batch_shape``.
            direction: see the class.

        Returns:
            Float of the broadcast shape; inf where the integral diverges.

        References:
            Mironov (2017), Definition 3.
        """
        at = checks.above_one("order", order, self.dtype)
        fits(self.batch_shape, order=at.shape)
        return _renyi(self, at - 1, direction=direction)

    def kl(self, *, direction: Direction = "both") -> jax.Array:
        """The Kullback-Leibler divergence E[log p/q], the Renyi divergence of order 1, of shape ``batch_shape``."""
        return _kl(self, direction=direction)


def privacy_loss(p: Distribution, q: Distribution, *, resolution: float | None = None) -> PrivacyLoss:
    """Return the exact privacy loss between two distributions, or between two batches of them row by row.

    Args:
        p: a :class:`PiecewiseExponential`, a :class:`Rounded` or a :class:`Finite`, with the batch shape ``(...)``.
        q: of the same kind and dtype, with a batch shape that broadcasts against it: one distribution against thousands of
            neighbours. Two finite ones have the same candidates in the same places, and a row in which they differ is NaN; the loss
            is that of the place, and with equal candidates at several places can only be smaller for the value. Two rounded ones
            have one resolution, and are looked at multiple by multiple.
        resolution: not negative; an interval of at most this times the largest edge of the row, whose probability is below the
            root of the dtype's precision in both, is left out of suprema, and if it lies in the support of one distribution only,
            out of everything; tails whose scales differ by at most this much,
            relatively, are taken to be parallel. By default 16 units in the last place.

    Returns:
        A :class:`PrivacyLoss` of the broadcast batch shape.

    Privacy:
        None: it reads both distributions. The loss between those of two datasets is a function of private data, for evaluation and
        tests only. It is that of distributions of real numbers, not of their samplers in floating point. Breakpoints that are equal
        in exact arithmetic may differ in floats; without a ``resolution``, the sliver between them, of negligible mass, would be
        the supremum. A supremum that data attain on gaps that small only, and with next to no probability, is missed in this
        dtype: use float64, or move the origin.

    References:
        Balle, Barthe and Gaboardi (2018), Theorem 1; Durfee and Rogers (2019) for the bounded range.

    >>> from dpjax import laplace
    >>> loss = privacy_loss(laplace(0.0, 1.0, sensitivity=1.0), laplace(1.0, 1.0, sensitivity=1.0))
    >>> round(float(loss.delta(0.5)), 4)
    0.2212
    """
    if isinstance(p, Rounded) and isinstance(q, Rounded):
        if p.resolution != q.resolution:
            raise ValueError(f"p and q need one resolution, got {p.resolution} and {q.resolution}.")
        ends = multiples_of(p, q)
        p, q = on_multiples(p, ends), on_multiples(q, ends)
    lines, finite = (isinstance(p, kind) and isinstance(q, kind) for kind in (PiecewiseExponential, Finite))
    if not (lines or finite) or p.dtype != q.dtype:
        kinds = " and ".join(f"{type(of).__name__} of {getattr(of, 'dtype', None)}" for of in (p, q))
        raise TypeError(
            "privacy_loss takes two PiecewiseExponential, two Rounded or two Finite distributions of one dtype, "
            f"got {kinds}; dpjax.auditing.lower_bound takes draws of anything."
        )
    try:
        jnp.broadcast_shapes(p.batch_shape, q.batch_shape)
    except ValueError:
        raise ValueError(f"the batch shapes {p.batch_shape} of p and {q.batch_shape} of q do not broadcast.") from None
    width = checks.nonnegative("resolution", 16 * jnp.finfo(p.dtype).eps if resolution is None else resolution, p.dtype)
    if isinstance(p, PiecewiseExponential) and isinstance(q, PiecewiseExponential):
        return PrivacyLoss(of_lines(p, q, width))
    assert isinstance(p, Finite)
    assert isinstance(q, Finite)
    return PrivacyLoss(of_candidates(p, q))


def _directed(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """A function of segments (and numbers), compiled for a loss and one of its directions; for both, the larger."""

    @partial(jax.jit, static_argnames=("direction",))
    def call(loss: PrivacyLoss, *at: jax.Array, direction: Direction) -> jax.Array:
        return reduce(jnp.maximum, [function(side.segments, *at) for side in loss._sides(direction)])

    return call


@_directed
def supremum(s: Segments) -> jax.Array:
    """The supremum of log p/q, which is below 0 by rounding only."""
    nowhere = ~s.wide | (s.log_p == -jnp.inf) & (s.log_q == -jnp.inf)
    return jnp.maximum(jnp.max(jnp.where(nowhere, -jnp.inf, jnp.maximum(s.loss_start, s.loss_end)), axis=-1), 0.0)


def _change(s: Segments) -> jax.Array:
    """The change of the loss over a unit of t, 0 where one of the distributions has no mass."""
    both = (s.log_p > -jnp.inf) & (s.log_q > -jnp.inf)
    finite = both & (s.length < jnp.inf)
    within = jnp.where(finite, s.loss_end, 0.0) - jnp.where(finite, s.loss_start, 0.0)
    return jnp.where(both & (s.length == jnp.inf), s.slope_p - s.slope_q, within)


@_directed
def delta_of_loss(s: Segments, epsilon: jax.Array) -> jax.Array:
    """The integral of max(p - e^epsilon q, 0)."""
    epsilon = epsilon[..., None]
    there, alone = ~(s.log_p == -jnp.inf), s.log_q == -jnp.inf
    change, shared = _change(s), there & ~alone
    above, above_end = s.loss_start - epsilon, s.loss_end - epsilon
    crosses = shared & ((above > 0) != (above_end > 0)) & (change != 0)
    crossing = jnp.clip(-jnp.where(crosses, above, 0.0) / jnp.where(crosses, change, 1.0), 0.0, s.length)
    falls = above > 0
    begin, end = jnp.where(crosses & ~falls, crossing, 0.0), jnp.where(crosses & falls, crossing, s.length)
    part = there & (falls | (above_end > 0)) & (end > begin)
    width = jnp.where(part, end - begin, 1.0)
    log_p = log_integral(jnp.where(part, s.slope_p, -1.0), width)
    mass = jnp.exp(jnp.where(part, s.log_p + s.slope_p * begin, 0.0) + log_p)
    # e^epsilon times the mass of q, relative to that of p: as a logarithm it cannot overflow. It is at most 1, but for rounding.
    log_q = log_integral(jnp.where(part & shared, s.slope_q, -1.0), width)
    excess = jnp.where(shared & ~(crosses & ~falls), above, 0.0)
    share = jnp.where(part & shared, jnp.minimum(log_q - log_p - excess, 0.0), 0.0)
    kept = jnp.where(alone, 1.0, -jnp.expm1(share))
    total = jnp.sum(jnp.where(part, mass * kept, 0.0), axis=-1)
    bad = jnp.isnan(epsilon[..., 0]) | jnp.isnan(s.length[..., 0])
    return jnp.where(bad, jnp.nan, jnp.clip(total, 0.0, 1.0))


@partial(jax.jit, static_argnames=("direction",))
def _epsilon_at(loss: PrivacyLoss, delta: jax.Array, direction: Direction) -> jax.Array:
    fixed = jax.lax.stop_gradient(loss)
    top = supremum(fixed, direction=direction)
    top = jnp.broadcast_to(top, jnp.broadcast_shapes(top.shape, delta.shape))
    # The bracket is one of log(1 + epsilon): relative for a large epsilon, absolute for a small one.
    reach = jnp.log1p(jnp.where(jnp.isinf(top), jnp.sqrt(jnp.finfo(delta.dtype).max), top))

    def too_small(at: jax.Array) -> jax.Array:
        return ~(delta_of_loss(fixed, jnp.expm1(at), direction=direction) <= jax.lax.stop_gradient(delta))

    low, high = bisect(too_small, jnp.zeros_like(reach), reach, _BISECTIONS)
    epsilon = jnp.where(high >= reach, top, jnp.where(low <= 0, 0.0, jnp.expm1(high)))
    # A step of Newton's method of length 0, for the derivative.
    inner = (low > 0) & (high < reach)
    at = jax.lax.stop_gradient(jnp.where(inner, epsilon, 0.0))
    value, slope = jax.jvp(lambda e: delta_of_loss(loss, e, direction=direction), (at,), (jnp.ones_like(at),))
    slope = jax.lax.stop_gradient(jnp.where(inner & (slope < 0), slope, 1.0))
    step = ((delta - jax.lax.stop_gradient(delta)) - (value - jax.lax.stop_gradient(value))) / slope
    return jnp.where(jnp.isnan(delta) | jnp.isnan(top), jnp.nan, jax.lax.stop_gradient(epsilon) + jnp.where(inner, step, 0.0))


@_directed
def _renyi(s: Segments, above: jax.Array) -> jax.Array:
    """Of order 1 + ``above``."""
    there, alone, more = ~(s.log_p == -jnp.inf), s.log_q == -jnp.inf, above[..., None]
    start = s.log_p + more * jnp.where(there & ~alone, s.loss_start, 0.0)
    slope = jnp.where(there, s.slope_p + more * _change(s), -1.0)
    log_mass = jnp.where(there, start, 0.0) + log_integral(slope, s.length)
    log_mass = jnp.where(there, jnp.where(alone, jnp.inf, log_mass), -jnp.inf)
    return jnp.maximum(jax.nn.logsumexp(log_mass, axis=-1), 0.0) / above


@_directed
def _kl(s: Segments) -> jax.Array:
    there, alone = ~(s.log_p == -jnp.inf), s.log_q == -jnp.inf
    both = there & ~alone
    mean = mean_position(jnp.where(both, s.slope_p, -1.0), s.length)
    mean_loss = jnp.where(both, s.loss_start, 0.0) + _change(s) * mean
    log_mass = jnp.where(there, s.log_p, 0.0) + log_integral(jnp.where(there, s.slope_p, 0.0), jnp.where(there, s.length, 1.0))
    mass = jnp.where(there, jnp.exp(log_mass), 0.0)
    total = jnp.sum(jnp.where(both, mass * mean_loss, 0.0), axis=-1)
    return jnp.maximum(jnp.where(jnp.any(there & alone & (mass > 0), axis=-1), jnp.inf, total), 0.0)
