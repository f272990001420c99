"""The privacy loss between the output laws of two neighbouring datasets, exactly.

The loss at an output y is log p(y) - log q(y). Its supremum is epsilon, its supremum minus its infimum the bounded range, and

    delta(epsilon) = sup_S P(S) - e^epsilon Q(S) = integral of max(p - e^epsilon q, 0),

the privacy profile (Balle, Barthe and Gaboardi 2018). On each common segment of two laws (``segments.py``) the loss is linear: its
supremum is at an end, the integrand is positive on one side of at most one crossing, and what is left are integrals of
exponentials. Nothing is sampled or put on a grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.auditing import segments
from dpjax.auditing.segments import Segments
from dpjax.distributions.finite import Finite
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.distributions.truncated_exponential import log_integral, mean_position
from dpjax.numerics.batching import align, fits

Direction = Literal["both", "forward", "backward"]
DIRECTIONS = ("both", "forward", "backward")
_BISECTIONS = 64


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PrivacyLoss:
    """The loss of two laws P and Q, from :func:`privacy_loss`; ``forward`` is P against Q, ``backward`` Q against P.

    Leading axes are a batch of pairs. It is a pytree: it passes through ``jit``, ``vmap`` and ``grad``. In float64, losses are
    accurate to about 1e-15 times the largest log-density, and probabilities to as much absolutely; in float32, to 1e-6.
    A row in which one of the laws is NaN is NaN.

    Attributes:
        segments: the two laws on their common segments.

    >>> from dpjax import laplace
    >>> loss = privacy_loss(laplace(0.0, 1.0, sensitivity=1.0), laplace(1.0, 1.0, sensitivity=1.0))
    >>> float(loss.epsilon), float(loss.bounded_range)
    (1.0, 2.0)
    """

    segments: Segments

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of the two laws."""
        return self.segments.length.shape[:-1]

    @property
    def dtype(self) -> Any:
        """The dtype of the laws and of every result."""
        return self.segments.length.dtype

    @property
    def epsilon(self) -> jax.Array:
        """The least epsilon of pure differential privacy, sup abs(log p/q), of shape ``batch_shape``; inf on unequal supports."""
        return _suprema(self).epsilon

    @property
    def forward(self) -> jax.Array:
        """Sup log p/q, which is the Renyi divergence of infinite order, of shape ``batch_shape``."""
        return _suprema(self).forward

    @property
    def backward(self) -> jax.Array:
        """Sup log q/p, of shape ``batch_shape``."""
        return _suprema(self).backward

    @property
    def bounded_range(self) -> jax.Array:
        """Sup log p/q minus inf log p/q (Durfee and Rogers 2019), of shape ``batch_shape``."""
        return _suprema(self).bounded_range

    def reverse(self) -> PrivacyLoss:
        """Return the loss of Q against P."""
        s = self.segments
        return PrivacyLoss(Segments(s.log_q, s.log_p, s.slope_q, s.slope_p, -s.loss_start, -s.loss_end, s.length, s.wide))

    def delta(self, epsilon: ArrayLike, *, direction: Direction = "both") -> jax.Array:
        """The least delta of (epsilon, delta)-differential privacy: the integral of max(p - e^epsilon q, 0).

        Args:
            epsilon: not negative; broadcasts against ``batch_shape``, so ``epsilon[:, None]`` is a curve for each pair of a batch.
            direction: ``"forward"`` for P against Q, ``"backward"`` for Q against P, ``"both"`` for the larger.

        Returns:
            Float of the broadcast shape; at epsilon 0, the total variation distance.

        Raises:
            ValueError: a bad ``epsilon`` or ``direction``.
        """
        at = self._points("epsilon", checks.nonnegative("epsilon", epsilon, self.dtype))
        return _delta(self, at, checks.one_of("direction", direction, DIRECTIONS))

    def epsilon_at(self, delta: ArrayLike, *, direction: Direction = "both") -> jax.Array:
        """The least epsilon of (epsilon, delta)-differential privacy, the inverse of :meth:`delta`.

        By bisection; the result is the upper end of the last bracket: ``delta(result)``, as computed, is at most ``delta``, or the
        result is the supremum of the loss. Its derivative is that of the implicit function.

        Args:
            delta: in (0, 1); broadcasts against ``batch_shape``.
            direction: as in :meth:`delta`.

        Returns:
            Float of the broadcast shape; inf where one law has more than ``delta`` outside the support of the other.

        Raises:
            ValueError: a bad ``delta`` or ``direction``.
        """
        at = self._points("delta", checks.probability("delta", delta, self.dtype, below=1.0))
        return _epsilon_at(self, at, checks.one_of("direction", direction, DIRECTIONS))

    def renyi(self, order: ArrayLike, *, direction: Direction = "both") -> jax.Array:
        """The Renyi divergence log(integral of p^order q^(1 - order)) / (order - 1), accurate to rounding over order - 1.

        Args:
            order: finite, above 1; broadcasts against ``batch_shape``.
            direction: as in :meth:`delta`.

        Returns:
            Float of the broadcast shape; inf where the integral diverges.

        Raises:
            ValueError: a bad ``order`` or ``direction``.

        References:
            Mironov (2017), Definition 3.
        """
        above = checks.positive("order", order, self.dtype) - 1
        if not isinstance(order, jax.Array) and not np.all(np.asarray(order) > 1):
            raise ValueError(f"order must be above 1 (order 1 is kl), got {order}.")
        above = self._points("order", jnp.where(above > 0, above, jnp.nan))
        return _renyi(self, above, checks.one_of("direction", direction, DIRECTIONS))

    def kl(self, *, direction: Direction = "both") -> jax.Array:
        """The Kullback-Leibler divergence E[log p/q], the Renyi divergence of order 1, of shape ``batch_shape``.

        Raises:
            ValueError: a bad ``direction``.
        """
        return _kl(self, checks.one_of("direction", direction, DIRECTIONS))

    def _points(self, name: str, array: jax.Array) -> jax.Array:
        fits(self.batch_shape, **{name: array.shape})
        return align(array, max(array.ndim, len(self.batch_shape)))


def privacy_loss(
    p: PiecewiseExponential | Finite, q: PiecewiseExponential | Finite, *, resolution: float | None = None
) -> PrivacyLoss:
    """Return the exact privacy loss between two laws, or between two batches of laws row by row.

    Args:
        p: a :class:`PiecewiseExponential` or a :class:`Finite`, with the batch shape ``(...)``.
        q: a law of the same kind and dtype, with a batch shape that broadcasts against it: one law against thousands of neighbours.
            Two laws on candidates have the same ones in the same places, and a row in which they differ is NaN; the loss is that
            of the place, and with equal candidates at several places can only be smaller for the value.
        resolution: not negative; an interval of at most this times the largest edge of the row is left out of suprema, and if
            it lies in the support of one law only, out of everything; tails whose scales differ by at most this much, relatively,
            are taken to be parallel. By default 16 units in the last place.

    Returns:
        A :class:`PrivacyLoss` of the broadcast batch shape.

    Raises:
        TypeError: what is no law, two kinds of law, or two dtypes.
        ValueError: batch shapes or numbers of candidates that do not fit, or a bad ``resolution``.

    Privacy:
        None: it reads both laws. The loss between the laws of two datasets is a function of private data, for evaluation and tests
        only. It is that of laws of real numbers, not of their samplers in floating point. Breakpoints that are equal in exact
        arithmetic may differ in floats; without a ``resolution``, the sliver between them, of no mass to speak of, would be the
        supremum. A supremum that data attain on gaps that small only is missed in this dtype: use float64, or move the origin.

    References:
        Balle, Barthe and Gaboardi (2018), Theorem 1; Durfee and Rogers (2019) for the bounded range.

    >>> from dpjax import laplace
    >>> loss = privacy_loss(laplace(0.0, 1.0, sensitivity=1.0), laplace(1.0, 1.0, sensitivity=1.0))
    >>> round(float(loss.delta(0.5)), 4)
    0.2212
    """
    for name, law in (("p", p), ("q", q)):
        if not isinstance(law, (PiecewiseExponential, Finite)):
            raise TypeError(f"privacy_loss takes two PiecewiseExponential or two Finite laws, got {type(law).__name__} for {name}.")
    if p.dtype != q.dtype:
        raise TypeError(f"privacy_loss takes two laws of one dtype, got {p.dtype} and {q.dtype}.")
    try:
        jnp.broadcast_shapes(p.batch_shape, q.batch_shape)
    except ValueError:
        raise ValueError(f"the batch shapes {p.batch_shape} of p and {q.batch_shape} of q do not broadcast.") from None
    width = checks.nonnegative("resolution", 16 * jnp.finfo(p.dtype).eps if resolution is None else resolution, p.dtype)
    if isinstance(p, PiecewiseExponential) and isinstance(q, PiecewiseExponential):
        return _of_lines(p, q, width)
    if isinstance(p, Finite) and isinstance(q, Finite):
        if p.values.shape[-1] != q.values.shape[-1]:
            raise ValueError(f"p and q need the same candidates, got {p.values.shape[-1]} and {q.values.shape[-1]} of them.")
        return _of_candidates(p, q)
    raise TypeError(f"privacy_loss takes two laws of one kind, got {type(p).__name__} and {type(q).__name__}.")


@jax.jit
def _of_lines(p: PiecewiseExponential, q: PiecewiseExponential, resolution: jax.Array) -> PrivacyLoss:
    return PrivacyLoss(segments.of_lines(p, q, resolution))


@jax.jit
def _of_candidates(p: Finite, q: Finite) -> PrivacyLoss:
    return PrivacyLoss(segments.of_candidates(p, q))


class _Suprema(NamedTuple):
    forward: jax.Array
    backward: jax.Array
    epsilon: jax.Array
    bounded_range: jax.Array


@jax.jit
def _suprema(loss: PrivacyLoss) -> _Suprema:
    s = loss.segments
    nowhere = ~s.wide | (s.log_p == -jnp.inf) & (s.log_q == -jnp.inf)
    forward = jnp.max(jnp.where(nowhere, -jnp.inf, jnp.maximum(s.loss_start, s.loss_end)), axis=-1)
    backward = jnp.max(jnp.where(nowhere, -jnp.inf, jnp.maximum(-s.loss_start, -s.loss_end)), axis=-1)
    forward, backward = jnp.maximum(forward, 0.0), jnp.maximum(backward, 0.0)  # below 0 by rounding only
    return _Suprema(forward, backward, jnp.maximum(forward, backward), forward + backward)


def _in(direction: str, loss: PrivacyLoss, function: Callable[[Segments], jax.Array]) -> jax.Array:
    if direction == "forward":
        return function(loss.segments)
    backward = function(loss.reverse().segments)
    return backward if direction == "backward" else jnp.maximum(function(loss.segments), backward)


def _change(s: Segments) -> jax.Array:
    """The change of the loss over a unit of t, 0 where one of the laws has no mass."""
    both = (s.log_p > -jnp.inf) & (s.log_q > -jnp.inf)
    within = jnp.where(both & (s.length < jnp.inf), s.loss_end, 0.0) - jnp.where(both & (s.length < jnp.inf), s.loss_start, 0.0)
    return jnp.where(both & (s.length == jnp.inf), s.slope_p - s.slope_q, within)


def _mass(s: Segments) -> jax.Array:
    """The probability of each segment under p."""
    there = ~(s.log_p == -jnp.inf)
    log_mass = jnp.where(there, s.log_p, 0.0) + log_integral(jnp.where(there, s.slope_p, 0.0), jnp.where(there, s.length, 1.0))
    return jnp.where(there, jnp.exp(log_mass), 0.0)


@partial(jax.jit, static_argnames=("direction",))
def _delta(loss: PrivacyLoss, epsilon: jax.Array, direction: str) -> jax.Array:
    return _in(direction, loss, lambda s: _hockey_stick(s, epsilon))


def _hockey_stick(s: Segments, epsilon: jax.Array) -> jax.Array:
    """The integral of max(p - e^epsilon q, 0)."""
    rank = max(epsilon.ndim, s.length.ndim - 1) + 1
    s, epsilon = Segments(*(align(field, rank) for field in s)), align(epsilon, rank - 1)[..., None]
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
    left = jnp.where(alone, 1.0, -jnp.expm1(share))
    total = jnp.sum(jnp.where(part, mass * left, 0.0), axis=-1)
    bad = jnp.isnan(epsilon[..., 0]) | jnp.isnan(s.length[..., 0])
    return jnp.where(bad, jnp.nan, jnp.clip(total, 0.0, 1.0))


@partial(jax.jit, static_argnames=("direction",))
def _epsilon_at(loss: PrivacyLoss, delta: jax.Array, direction: str) -> jax.Array:
    fixed = jax.lax.stop_gradient(loss)
    suprema = _suprema(fixed)
    top = {"forward": suprema.forward, "backward": suprema.backward, "both": suprema.epsilon}[direction]
    top = jnp.broadcast_to(align(top, delta.ndim), jnp.broadcast_shapes(top.shape, delta.shape))
    # The bracket is one of log(1 + epsilon): relative for a large epsilon, absolute for a small one.
    reach = jnp.log1p(jnp.where(jnp.isinf(top), jnp.sqrt(jnp.finfo(delta.dtype).max), top))

    def halve(_: int, bracket: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bracket
        middle = (low + high) / 2
        enough = _delta(fixed, jnp.expm1(middle), direction) <= jax.lax.stop_gradient(delta)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (jnp.zeros_like(reach), reach))
    epsilon = jnp.where(high >= reach, top, jnp.where(low <= 0, 0.0, jnp.expm1(high)))
    # A step of Newton's method of length 0, for the derivative.
    inner = (low > 0) & (high < reach)
    at = jax.lax.stop_gradient(jnp.where(inner, epsilon, 0.0))
    value, slope = jax.jvp(lambda e: _delta(loss, e, direction), (at,), (jnp.ones_like(at),))
    slope = jax.lax.stop_gradient(jnp.where(inner & (slope < 0), slope, 1.0))
    step = (_without_value(delta) - _without_value(value)) / slope
    return jnp.where(jnp.isnan(delta) | jnp.isnan(top), jnp.nan, jax.lax.stop_gradient(epsilon) + jnp.where(inner, step, 0.0))


def _without_value(x: jax.Array) -> jax.Array:
    """Zero, with the derivative of ``x``."""
    return x - jax.lax.stop_gradient(x)


@partial(jax.jit, static_argnames=("direction",))
def _renyi(loss: PrivacyLoss, above: jax.Array, direction: str) -> jax.Array:
    return _in(direction, loss, lambda s: _renyi_of(s, above))


def _renyi_of(s: Segments, above: jax.Array) -> jax.Array:
    rank = max(above.ndim, s.length.ndim - 1) + 1
    s, more = Segments(*(align(field, rank) for field in s)), align(above, rank - 1)[..., None]
    there, alone = ~(s.log_p == -jnp.inf), s.log_q == -jnp.inf
    start = s.log_p + more * jnp.where(there & ~alone, s.loss_start, 0.0)
    slope = jnp.where(there, s.slope_p + more * _change(s), -1.0)
    log_mass = jnp.where(there, start, 0.0) + log_integral(slope, s.length)
    log_mass = jnp.where(there, jnp.where(alone, jnp.inf, log_mass), -jnp.inf)
    return jnp.maximum(jax.nn.logsumexp(log_mass, axis=-1), 0.0) / above


@partial(jax.jit, static_argnames=("direction",))
def _kl(loss: PrivacyLoss, direction: str) -> jax.Array:
    return _in(direction, loss, _kl_of)


def _kl_of(s: Segments) -> jax.Array:
    there, alone = ~(s.log_p == -jnp.inf), s.log_q == -jnp.inf
    both = there & ~alone
    mean = mean_position(jnp.where(both, s.slope_p, -1.0), s.length)
    mean_loss = jnp.where(both, s.loss_start, 0.0) + _change(s) * mean
    mass = _mass(s)
    total = jnp.sum(jnp.where(both, mass * mean_loss, 0.0), axis=-1)
    return jnp.maximum(jnp.where(jnp.any(there & alone & (mass > 0), axis=-1), jnp.inf, total), 0.0)
