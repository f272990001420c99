"""The exact privacy loss between the output distributions of two neighboring datasets.

The loss at an output y is log p(y) - log q(y). Its supremum is epsilon, its supremum minus its
infimum is the bounded range, and the privacy profile (Balle, Barthe and Gaboardi 2018) is

    delta(epsilon) = sup_S P(S) - e^epsilon Q(S) = integral of max(p - e^epsilon q, 0).

On each common segment of two distributions (``segments``) the loss is linear: its supremum is at an
end, the integrand is positive on one side of at most one crossing, and all integrals are of
exponentials. Nothing is sampled or discretized.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.auditing.segments import (
    Distribution,
    Segments,
    multiples_of,
    of_candidates,
    of_lines,
    on_multiples,
)
from dpjax.batch import span
from dpjax.display import Picture, Shown
from dpjax.distributions.finite import Finite
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.distributions.rounded import Rounded
from dpjax.distributions.truncated_exponential import log_integral, mean_position
from dpjax.numerics.arrays import fits
from dpjax.numerics.search import bisect
from dpjax.pytrees import pytree

Direction = Literal["both", "forward", "backward"]


@pytree
class PrivacyLoss(Shown):
    """The privacy loss between two distributions P and Q, or between batches of them.

    :func:`privacy_loss` returns it. It is a pytree, for ``jit``, ``vmap`` and ``grad``. Methods
    take a ``direction``: ``"forward"`` is P against Q, ``"backward"`` Q against P, and ``"both"``
    the larger result of the two. In float64, losses are accurate to about 1e-15 times the largest
    log-density, and probabilities to about 1e-15; in float32, to 1e-6 likewise. A row in which one
    of the distributions is NaN gives NaN.

    Attributes:
        segments: the two distributions on their common segments.

    >>> from dpjax import laplace
    >>> loss = privacy_loss(laplace(0.0, 1.0, sensitivity=1.0), laplace(1.0, 1.0, sensitivity=1.0))
    >>> float(loss.epsilon), float(loss.bounded_range)
    (1.0, 2.0)
    """

    segments: Segments

    def _facts(self) -> dict[str, Any]:
        """Return the facts of the repr.

        Epsilon and range only outside a trace, to which a repr must add nothing.
        """
        numbers = ("epsilon", "bounded_range") if span(self.segments.length) is not None else ()
        shown = {"batch_shape": self.batch_shape, "dtype": jnp.dtype(self.dtype).name}
        return shown | {name: span(getattr(self, name)) for name in numbers}

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        return {
            name.replace("_", " "): getattr(self, name)
            for name in ("epsilon", "forward", "backward", "bounded_range")
        }, None

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
        """The least epsilon of pure DP, sup abs(log p/q), of shape ``batch_shape``.

        It is infinite where the supports differ.
        """
        return supremum(self, direction="both")

    @property
    def forward(self) -> jax.Array:
        """The supremum of log p/q, of shape ``batch_shape``.

        It is the Renyi divergence of infinite order.
        """
        return supremum(self, direction="forward")

    @property
    def backward(self) -> jax.Array:
        """The supremum of log q/p, of shape ``batch_shape``."""
        return supremum(self, direction="backward")

    @property
    def bounded_range(self) -> jax.Array:
        """The supremum minus the infimum of log p/q, of shape ``batch_shape``.

        See Durfee and Rogers (2019).
        """
        return self.forward + self.backward

    def reverse(self) -> PrivacyLoss:
        """Return the loss with P and Q exchanged."""
        s = self.segments
        return PrivacyLoss(
            Segments(
                s.log_q, s.log_p, s.slope_q, s.slope_p, -s.loss_start, -s.loss_end, s.length, s.wide
            )
        )

    def _sides(self, direction: Direction) -> list[PrivacyLoss]:
        """Return the losses that ``direction`` selects: this one, the reverse one, or both."""
        checks.one_of("direction", direction, ("both", "forward", "backward"))
        return ([] if direction == "backward" else [self]) + (
            [] if direction == "forward" else [self.reverse()]
        )

    def delta(self, epsilon: ArrayLike, *, direction: Direction = "both") -> jax.Array:
        """Return the least delta of (epsilon, delta)-DP, the integral of max(p - e^epsilon q, 0).

        Args:
            epsilon: at least 0; broadcasts against ``batch_shape``, so that ``epsilon[:, None]``
                gives a curve for each pair of a batch.
            direction: ``"forward"``, ``"backward"`` or ``"both"``, as described in the class.

        Returns:
            Float array of the broadcast shape; at epsilon 0, the total variation distance.
        """
        at = checks.nonnegative("epsilon", epsilon, self.dtype)
        fits(self.batch_shape, epsilon=at.shape)
        return delta_of_loss(self, at, direction=direction)

    def epsilon_at(self, delta: ArrayLike, *, direction: Direction = "both") -> jax.Array:
        """Return the least epsilon of (epsilon, delta)-DP, the inverse of :meth:`delta`.

        By bisection, rounded up: the computed ``delta(result)`` is at most ``delta``, or the result
        is the supremum of the loss. The derivative is that of the implicit function.

        Args:
            delta: in (0, 1); broadcasts against ``batch_shape``.
            direction: ``"forward"``, ``"backward"`` or ``"both"``, as described in the class.

        Returns:
            Float array of the broadcast shape; infinite where one distribution has a mass of more
            than ``delta`` outside the support of the other.
        """
        at = checks.probability("delta", delta, self.dtype, below=1.0)
        fits(self.batch_shape, delta=at.shape)
        return _epsilon_at(self, at, direction=direction)

    def renyi(self, order: ArrayLike, *, direction: Direction = "both") -> jax.Array:
        """Return the Renyi divergence log(integral of p^order q^(1 - order)) / (order - 1).

        It is accurate up to the rounding error divided by order - 1.

        Args:
            order: finite, above 1; broadcasts against ``batch_shape``.
            direction: ``"forward"``, ``"backward"`` or ``"both"``, as described in the class.

        Returns:
            Float array of the broadcast shape; infinite where the integral diverges.

        References:
            Mironov (2017), Definition 3.
        """
        at = checks.above_one("order", order, self.dtype)
        fits(self.batch_shape, order=at.shape)
        return _renyi(self, at - 1, direction=direction)

    def kl(self, *, direction: Direction = "both") -> jax.Array:
        """Return the Kullback-Leibler divergence E[log p/q], of shape ``batch_shape``.

        It is the Renyi divergence of order 1.
        """
        return _kl(self, direction=direction)


def privacy_loss(
    p: Distribution, q: Distribution, *, resolution: float | None = None
) -> PrivacyLoss:
    """Return the exact privacy loss between two distributions, or row by row between two batches.

    Args:
        p: a :class:`PiecewiseExponential`, a :class:`Rounded` or a :class:`Finite`, with the batch
            shape ``(...)``.
        q: a distribution of the same class and dtype, whose batch shape broadcasts against that of
            ``p``, for example one distribution against thousands of neighbors. Two finite
            distributions must have the same candidates at the same indices: a row in which they
            differ is NaN. The loss is that of the index; if several indices have equal candidates,
            the loss of the value can only be smaller. Two rounded distributions must have the same
            resolution; every multiple is compared.
        resolution: at least 0, by default 16 units in the last place. An interval of at most this
            times the largest edge of its row, whose probability under both distributions is below
            the square root of the dtype's precision, is excluded from suprema, and from everything
            if it is in the support of only one distribution. Tails whose scales differ relatively
            by at most ``resolution`` are treated as parallel.

    Returns:
        A :class:`PrivacyLoss` of the broadcast batch shape.

    Raises:
        TypeError: the distributions are of other classes, or of different classes or dtypes.
        ValueError: their resolutions differ, or their batch shapes do not broadcast.

    Privacy:
        Not private: the loss between the distributions of two datasets is a function of private
        data, for evaluation and tests only. It is the loss of distributions of real numbers, not of
        their floating-point samplers. Breakpoints that are equal in exact arithmetic may differ in
        floating point; without a ``resolution``, the supremum would be that on the sliver between
        them, of negligible mass. A true supremum that is attained only on gaps that small, with
        next to no probability, is missed in this dtype: use float64, or shift the data towards 0.

    References:
        Balle, Barthe and Gaboardi (2018), Theorem 1; Durfee and Rogers (2019) for the bounded
        range.

    >>> from dpjax import laplace
    >>> loss = privacy_loss(laplace(0.0, 1.0, sensitivity=1.0), laplace(1.0, 1.0, sensitivity=1.0))
    >>> round(float(loss.delta(0.5)), 4)
    0.2212
    """
    if isinstance(p, Rounded) and isinstance(q, Rounded):
        if p.resolution != q.resolution:
            raise ValueError(
                f"p and q must have the same resolution, got {p.resolution} and {q.resolution}."
            )
        ends = multiples_of(p, q)
        p, q = on_multiples(p, ends), on_multiples(q, ends)
    lines, finite = (
        isinstance(p, kind) and isinstance(q, kind) for kind in (PiecewiseExponential, Finite)
    )
    if not (lines or finite) or p.dtype != q.dtype:
        kinds = " and ".join(
            f"{type(of).__name__} of {getattr(of, 'dtype', None)}" for of in (p, q)
        )
        raise TypeError(
            "privacy_loss takes two PiecewiseExponential, two Rounded or two Finite distributions "
            f"of one dtype, got {kinds}; dpjax.auditing.lower_bound audits draws of any "
            "distribution."
        )
    try:
        jnp.broadcast_shapes(p.batch_shape, q.batch_shape)
    except ValueError:
        raise ValueError(
            f"the batch shapes {p.batch_shape} of p and {q.batch_shape} of q do not broadcast."
        ) from None
    width = checks.nonnegative(
        "resolution", 16 * jnp.finfo(p.dtype).eps if resolution is None else resolution, p.dtype
    )
    if isinstance(p, PiecewiseExponential) and isinstance(q, PiecewiseExponential):
        return PrivacyLoss(of_lines(p, q, width))
    assert isinstance(p, Finite)
    assert isinstance(q, Finite)
    return PrivacyLoss(of_candidates(p, q))


def _directed(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return a jitted version of a function of segments that takes a loss and a direction.

    "both" is the larger.
    """

    @partial(jax.jit, static_argnames=("direction",))
    def call(loss: PrivacyLoss, *at: jax.Array, direction: Direction) -> jax.Array:
        return reduce(
            jnp.maximum, [function(side.segments, *at) for side in loss._sides(direction)]
        )

    return call


@_directed
def supremum(s: Segments) -> jax.Array:
    """Return the supremum of log p/q, at least 0 (it is below only by rounding)."""
    excluded = ~s.wide | (s.log_p == -jnp.inf) & (s.log_q == -jnp.inf)
    return jnp.maximum(
        jnp.max(jnp.where(excluded, -jnp.inf, jnp.maximum(s.loss_start, s.loss_end)), axis=-1), 0.0
    )


def _change(s: Segments) -> jax.Array:
    """Return the change of the loss over a unit of t.

    0 where one of the distributions has no mass.
    """
    both = (s.log_p > -jnp.inf) & (s.log_q > -jnp.inf)
    finite = both & (s.length < jnp.inf)
    within = jnp.where(finite, s.loss_end, 0.0) - jnp.where(finite, s.loss_start, 0.0)
    return jnp.where(both & (s.length == jnp.inf), s.slope_p - s.slope_q, within)


@_directed
def delta_of_loss(s: Segments, epsilon: jax.Array) -> jax.Array:
    """Return the integral of max(p - e^epsilon q, 0)."""
    epsilon = epsilon[..., None]
    there, alone = ~(s.log_p == -jnp.inf), s.log_q == -jnp.inf
    change, shared = _change(s), there & ~alone
    above, above_end = s.loss_start - epsilon, s.loss_end - epsilon
    crosses = shared & ((above > 0) != (above_end > 0)) & (change != 0)
    crossing = jnp.clip(
        -jnp.where(crosses, above, 0.0) / jnp.where(crosses, change, 1.0), 0.0, s.length
    )
    falls = above > 0
    begin, end = (
        jnp.where(crosses & ~falls, crossing, 0.0),
        jnp.where(crosses & falls, crossing, s.length),
    )
    part = there & (falls | (above_end > 0)) & (end > begin)
    width = jnp.where(part, end - begin, 1.0)
    log_p = log_integral(jnp.where(part, s.slope_p, -1.0), width)
    mass = jnp.exp(jnp.where(part, s.log_p + s.slope_p * begin, 0.0) + log_p)
    # The ratio of e^epsilon times the mass of q to that of p, at most 1 up to rounding; its
    # logarithm cannot overflow.
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
    # Bisect on log(1 + epsilon), so that the error is relative for a large epsilon and absolute for
    # a small one.
    reach = jnp.log1p(jnp.where(jnp.isinf(top), jnp.sqrt(jnp.finfo(delta.dtype).max), top))

    def too_small(at: jax.Array) -> jax.Array:
        return ~(
            delta_of_loss(fixed, jnp.expm1(at), direction=direction) <= jax.lax.stop_gradient(delta)
        )

    low, high = bisect(too_small, jnp.zeros_like(reach), reach)
    epsilon = jnp.where(high >= reach, top, jnp.where(low <= 0, 0.0, jnp.expm1(high)))
    # A Newton step of length 0 has the derivative of the implicit function.
    inner = (low > 0) & (high < reach)
    at = jax.lax.stop_gradient(jnp.where(inner, epsilon, 0.0))
    value, slope = jax.jvp(
        lambda e: delta_of_loss(loss, e, direction=direction), (at,), (jnp.ones_like(at),)
    )
    slope = jax.lax.stop_gradient(jnp.where(inner & (slope < 0), slope, 1.0))
    step = ((delta - jax.lax.stop_gradient(delta)) - (value - jax.lax.stop_gradient(value))) / slope
    return jnp.where(
        jnp.isnan(delta) | jnp.isnan(top),
        jnp.nan,
        jax.lax.stop_gradient(epsilon) + jnp.where(inner, step, 0.0),
    )


@_directed
def _renyi(s: Segments, above: jax.Array) -> jax.Array:
    """Return the Renyi divergence of order 1 + ``above``."""
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
    log_mass = jnp.where(there, s.log_p, 0.0) + log_integral(
        jnp.where(there, s.slope_p, 0.0), jnp.where(there, s.length, 1.0)
    )
    mass = jnp.where(there, jnp.exp(log_mass), 0.0)
    total = jnp.sum(jnp.where(both, mass * mean_loss, 0.0), axis=-1)
    return jnp.maximum(jnp.where(jnp.any(there & alone & (mass > 0), axis=-1), jnp.inf, total), 0.0)
