"""The exact privacy loss between the output distributions of two neighboring datasets.

The loss at an output y is log p(y) - log q(y). Its supremum is epsilon, its supremum minus its
infimum is the bounded range, and the privacy profile (Balle, Barthe and Gaboardi 2018) is

    delta(epsilon) = sup_S P(S) - e^epsilon Q(S) = integral of max(p - e^epsilon q, 0).

Between adjacent edges of two distributions both log-densities are linear, so two inner points of
``log_prob`` determine them; in a tail, one point and its scale do. The loss is linear there too:
its supremum is at an end, the integrand is positive on one side of at most one crossing, and all
integrals are of exponentials. Nothing is sampled or discretized, and all is float64 in NumPy.

For tests of P against Q with rejection regions R, the trade-off curve is

    f(a) = inf over P(R) <= a of Q(not R) = sup over t > 0 of 1 - E_t - t a,
    E_t = integral of max(q - t p, 0),

since every 1 - E_t - t a is a lower bound, which the likelihood ratio test at the best t attains
(Neyman and Pearson). As a function of t it is concave with the slope P(q > t p) - a, whose sign is
bisected in log t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import jax
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.batch import span
from dpjax.distributions.finite import Finite
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.distributions.rounded import Rounded
from dpjax.numerics.arrays import fits

Array = np.ndarray
Distribution = PiecewiseExponential | Rounded | Finite
Direction = Literal["both", "forward", "backward"]

_MULTIPLES = 2**20  # the maximal number of multiples of a resolution that are compared


@dataclass(frozen=True, repr=False, eq=False)
class PrivacyLoss:
    """The privacy loss between two distributions P and Q, or between batches of them.

    :func:`privacy_loss` returns it. Methods take a ``direction``: ``"forward"`` is P against Q,
    ``"backward"`` Q against P, and ``"both"`` the larger result of the two. Losses are accurate to
    about 1e-15 times the largest log-density, and probabilities to about 1e-15. A row in which one
    of the distributions is NaN gives NaN.

    Attributes:
        log_p: float64 ``(..., k)``, the log-density of P at the start of each segment, or the
            log-probability of each outcome; -inf where it has no mass.
        log_q: that of Q.
        slope_p: float64 ``(..., k)``, the slope of the log-density of P, in a lower tail away from
            the edge; -1 where it has no mass.
        slope_q: that of Q.
        length: float64 ``(..., k)``, the length of each segment: infinite for a tail, 1 for an
            outcome.
        wide: bool ``(..., k)``, whether suprema include the segment.

    >>> from dpjax import laplace
    >>> loss = privacy_loss(laplace(0.0, 1.0, sensitivity=1.0), laplace(1.0, 1.0, sensitivity=1.0))
    >>> float(loss.epsilon), float(loss.bounded_range)
    (1.0, 2.0)
    """

    log_p: Array
    log_q: Array
    slope_p: Array
    slope_q: Array
    length: Array
    wide: Array

    def __repr__(self) -> str:
        numbers = f"epsilon={span(self.epsilon)}, bounded_range={span(self.bounded_range)}"
        return f"PrivacyLoss(batch_shape={self.batch_shape}, {numbers})"

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of the two distributions."""
        return self.length.shape[:-1]

    @property
    def epsilon(self) -> Array:
        """The least epsilon of pure DP, sup abs(log p/q), of shape ``batch_shape``.

        It is infinite where the supports differ.
        """
        return np.maximum(self.forward, self.backward)

    @property
    def forward(self) -> Array:
        """The supremum of log p/q, of shape ``batch_shape``.

        It is the Renyi divergence of infinite order.
        """
        start, end, _ = self._losses()
        largest = np.max(np.where(self.wide, np.maximum(start, end), -inf), axis=-1)
        return np.maximum(largest, 0.0)  # it is below only by rounding

    @property
    def backward(self) -> Array:
        """The supremum of log q/p, of shape ``batch_shape``."""
        return self.reverse().forward

    @property
    def bounded_range(self) -> Array:
        """The supremum minus the infimum of log p/q, of shape ``batch_shape``.

        See Durfee and Rogers (2019).
        """
        return self.forward + self.backward

    def reverse(self) -> PrivacyLoss:
        """Return the loss with P and Q exchanged."""
        return PrivacyLoss(
            self.log_q, self.log_p, self.slope_q, self.slope_p, self.length, self.wide
        )

    def delta(self, epsilon: ArrayLike, *, direction: Direction = "both") -> Array:
        """Return the least delta of (epsilon, delta)-DP, the integral of max(p - e^epsilon q, 0).

        Args:
            epsilon: finite; broadcasts against ``batch_shape``, so that ``epsilon[:, None]``
                gives a curve for each pair of a batch.
            direction: ``"forward"``, ``"backward"`` or ``"both"``, as described in the class.

        Returns:
            Float64 of the broadcast shape; at epsilon 0, the total variation distance.

        Raises:
            ValueError: ``epsilon`` is not finite or does not broadcast.
        """
        at = self._public("epsilon", epsilon)
        return np.max([side._above(at)[1] for side in self._sides(direction)], axis=0)

    def epsilon_at(self, delta: ArrayLike, *, direction: Direction = "both") -> Array:
        """Return the least epsilon of (epsilon, delta)-DP, the inverse of :meth:`delta`.

        By bisection, rounded up: the computed ``delta(result)`` is at most ``delta``, or the result
        is the supremum of the loss.

        Args:
            delta: in (0, 1); broadcasts against ``batch_shape``.
            direction: ``"forward"``, ``"backward"`` or ``"both"``, as described in the class.

        Returns:
            Float64 of the broadcast shape; infinite where one distribution has a mass of more than
            ``delta`` outside the support of the other.

        Raises:
            ValueError: ``delta`` is not a probability or does not broadcast.
        """
        target = self._public("delta", delta, 0, 1)
        sides = self._sides(direction)
        top = np.max([side.forward for side in sides], axis=0) + 0 * target
        # On log(1 + epsilon), so that the error is relative for a large epsilon and absolute for a
        # small one.
        reach = np.log1p(np.minimum(top, 1e150))
        low, high = bisected(
            lambda at: np.max([side._above(np.expm1(at))[1] for side in sides], axis=0) > target,
            0 * reach,
            reach,
        )
        return np.where(high >= reach, top, np.expm1(high) * (low > 0))

    @np.errstate(all="ignore")
    def renyi(self, order: ArrayLike, *, direction: Direction = "both") -> Array:
        """Return the Renyi divergence log(integral of p^order q^(1 - order)) / (order - 1).

        It is accurate up to the rounding error divided by order - 1.

        Args:
            order: finite, above 1; broadcasts against ``batch_shape``.
            direction: ``"forward"``, ``"backward"`` or ``"both"``, as described in the class.

        Returns:
            Float64 of the broadcast shape; infinite where the integral diverges.

        Raises:
            ValueError: ``order`` is at most 1 or does not broadcast.

        References:
            Mironov (2017), Definition 3.
        """
        above = self._public("order", order, 1) - 1
        more, found = above[..., None], []
        for side in self._sides(direction):
            start, _, slope = side._losses()
            integral = _log_integral(side.slope_p + more * slope, side.length)
            found.append(np.logaddexp.reduce(side.log_p + more * start + integral, axis=-1))
        return np.maximum(np.max(found, axis=0), 0.0) / above

    def _sides(self, direction: Direction) -> list[PrivacyLoss]:
        """Return the losses that ``direction`` selects: this one, the reverse one, or both."""
        back = self.reverse()
        sides = {"both": [self, back], "forward": [self], "backward": [back]}
        checks.one_of("direction", direction, sides)
        return sides[direction]

    def _public(self, name: str, value: ArrayLike, low: float = -inf, high: float = inf) -> Array:
        numbers = checks.host_floats(name, value).astype(np.float64)
        if not np.all((low < numbers) & (numbers < high)):
            raise ValueError(f"{name} must be above {low} and below {high}, got {value}.")
        fits(self.batch_shape, **{name: numbers.shape})
        return numbers

    def _losses(self) -> tuple[Array, Array, Array]:
        """Return the losses at the start and the end of each segment, and their slope.

        They are -inf where P has no mass.
        """
        with np.errstate(invalid="ignore"):
            start = np.where(np.isneginf(self.log_p), -inf, self.log_p - self.log_q)
            slope = np.where(np.isfinite(start), self.slope_p - self.slope_q, 0.0)
            return start, start + np.where(slope == 0, 0.0, slope * self.length), slope

    @np.errstate(all="ignore")
    def _above(self, epsilon: Array) -> tuple[Array, Array]:
        """Return Q(loss > epsilon) and the integral of max(p - e^epsilon q, 0)."""
        at = epsilon[..., None]
        start, end, slope = self._losses()
        rises, falls = (start <= at) & (end > at), (start > at) & (end <= at)
        crossing = np.clip((at - start) / slope, 0.0, self.length)
        begin, width = np.where(rises, crossing, 0.0), np.where(falls, crossing, self.length)
        width = width - begin
        log_p = self.log_p + self.slope_p * begin + _log_integral(self.slope_p, width)
        log_q = self.log_q + self.slope_q * begin + _log_integral(self.slope_q, width)
        lost = -np.expm1(np.minimum(log_q + at - log_p, 0.0))  # of P's mass; negative by rounding
        kept = (np.maximum(start, end) > at) & (width > 0)
        undefined = np.where(np.isnan(start).any(axis=-1), np.nan, 0.0)
        of_q, excess = (
            np.where(kept, part, 0.0).sum(axis=-1) + undefined
            for part in (np.exp(log_q), np.exp(log_p) * lost)
        )
        return of_q, excess


def privacy_loss(p: Distribution | ArrayLike, q: Distribution | ArrayLike) -> PrivacyLoss:
    """Return the exact privacy loss between two distributions, or row by row between two batches.

    Args:
        p: a :class:`PiecewiseExponential`, a :class:`Rounded` or a :class:`Finite`, with the batch
            shape ``(...)``; or float ``(..., k)``, the log-probabilities of k outcomes.
        q: another one of the same kind, whose batch shape broadcasts against that of ``p``, for
            example one distribution against thousands of neighbors. Two finite distributions must
            have the same candidates at the same indices: a row in which they differ is NaN. The
            loss is that of the index; if several indices have equal candidates, the loss of the
            value can only be smaller. Two rounded distributions must have the same resolution;
            every multiple is compared.

    Returns:
        A :class:`PrivacyLoss` of the broadcast batch shape, in float64 for any dtype.

    Raises:
        TypeError: the distributions are of other kinds, of different kinds, or traced.
        ValueError: their resolutions or numbers of outcomes differ, their batch shapes do not
            broadcast, or probabilities do not sum to 1.

    Privacy:
        Not private: the loss between the distributions of two datasets is a function of private
        data, for evaluation and tests only. It is the loss of distributions of real numbers, not of
        their floating-point samplers. Breakpoints that are equal in exact arithmetic may differ in
        floating point. So an interval of at most 16 units in the last place of the largest edge is
        excluded from suprema if its probability under both distributions is below 1e-8 (the square
        root of the precision), and from everything if it is in the support of only one of them;
        tails whose scales differ by as little are treated as parallel. A true supremum that is
        attained only on gaps that small is missed: shift the data towards 0.

    References:
        Balle, Barthe and Gaboardi (2018), Theorem 1; Durfee and Rogers (2019) for the bounded
        range.

    >>> from dpjax import laplace
    >>> loss = privacy_loss(laplace(0.0, 1.0, sensitivity=1.0), laplace(1.0, 1.0, sensitivity=1.0))
    >>> round(float(loss.delta(0.5)), 4)
    0.2212
    """
    pair: Any = p, q
    if any(map(checks.is_traced, jax.tree.leaves(pair))):
        raise TypeError("privacy_loss reads its numbers on the host: call it outside jit and vmap.")
    kinds = {type(p), type(q)}
    if kinds == {PiecewiseExponential}:
        return _on_lines(*pair)
    if kinds == {Rounded}:
        return _on_multiples(*pair)
    if kinds == {Finite}:
        return _of_outcomes(*map(_log_prob, pair), *(np.asarray(of.values) for of in pair))
    if all(map(np.ndim, pair)):
        return _of_outcomes(*(np.asarray(of, np.float64) for of in pair))
    raise TypeError(
        "privacy_loss takes two PiecewiseExponential, two Rounded or two Finite distributions, or "
        f"two arrays of log-probabilities, got {type(p).__name__} and {type(q).__name__}; "
        "dpjax.auditing.lower_bound audits draws of any distribution."
    )


def trade_off(
    loss: PrivacyLoss, false_positive: ArrayLike, *, direction: Direction = "both"
) -> Array:
    """Return the least false negative rate of any test between two distributions (f-DP).

    Args:
        loss: the loss of P and Q, from :func:`privacy_loss`.
        false_positive: the false positive rate, in (0, 1); broadcasts against the batch of pairs.
        direction: ``"forward"`` tests P against Q, ``"backward"`` Q against P, and ``"both"``
            returns the smaller rate.

    Returns:
        Float64 of the broadcast shape, with an absolute error of 1e-14 and that of the deltas of
        ``loss``.

    Raises:
        ValueError: ``false_positive`` is not a probability or does not broadcast.

    Privacy:
        Not private, as for :func:`privacy_loss`.

    References:
        Dong, Roth and Su (2022), "Gaussian Differential Privacy", Definition 2 and Proposition 6.

    >>> from dpjax import laplace
    >>> from dpjax.auditing import privacy_loss
    >>> loss = privacy_loss(laplace(0.0, 1.0, sensitivity=1.0), laplace(1.0, 1.0, sensitivity=1.0))
    >>> round(float(trade_off(loss, 0.05)), 4)  # 1 - e * 0.05
    0.8641
    """
    rate = loss._public("false_positive", false_positive, 0, 1)
    return np.min([_trade_off(side, rate) for side in loss._sides(direction)], axis=0)


def _trade_off(loss: PrivacyLoss, rate: Array) -> Array:
    other = loss.reverse()
    # For smaller t the bound is at most t, 1e-14 here, and for t above 1/a it is negative
    low = -np.minimum(loss.forward, 32.0) + 0 * rate
    high = np.minimum(loss.backward, -np.log(rate))
    ends = bisected(lambda at: other._above(at)[0] > rate, low, high)
    found = np.max([1 - other._above(end)[1] - np.exp(end) * rate for end in ends], axis=0)
    return np.clip(found, 0.0, 1 - rate)


def bisected(is_below: Callable[[Array], Array], low: Array, high: Array) -> tuple[Array, Array]:
    """Return the ends of a small interval at whose start ``is_below`` is true, or ``low``."""
    for _ in range(64):
        middle = (low + high) / 2
        below = is_below(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return low, high


def _log_integral(slope: Array, length: Array) -> Array:
    """Return the logarithm of the integral of ``exp(slope t)`` for t from 0 to ``length``."""
    steep = np.abs(slope)
    decay = steep * length
    # Relative to the larger end; without an underflow
    mean = np.where(decay > 1e-200, -np.expm1(-decay) / steep, length)
    return np.log(mean) + np.where(slope > 0, decay, 0.0)


def _log_prob(distribution: Distribution, points: Array | None = None) -> Array:
    """Return the log-densities of each row at its own points, or those of all candidates.

    Both are ``(..., k)``, and computed in float64 whatever the dtype is.
    """
    with jax.enable_x64(True):
        wide: Any = jax.tree.map(lambda field: np.asarray(field, np.float64), distribution)
        if points is None:
            return np.asarray(wide.log_probabilities())
        return np.moveaxis(np.asarray(wide.log_prob(np.moveaxis(points, -1, 0))), 0, -1)


def _of_outcomes(log_p: Array, log_q: Array, *values: Array) -> PrivacyLoss:
    """Return the loss between log-probabilities ``(..., k)`` of outcomes, perhaps with values."""
    if log_p.shape[-1] != log_q.shape[-1]:
        raise ValueError(
            "p and q must have the same candidates or outcomes, got "
            f"{log_p.shape[-1]} and {log_q.shape[-1]} of them."
        )
    fits(log_p.shape[:-1], q=log_q.shape[:-1])
    log_p, log_q = np.broadcast_arrays(log_p, log_q)
    if np.any(np.abs(np.exp([log_p, log_q]).sum(axis=-1) - 1) > 1e-6):
        raise ValueError("the probabilities of p and q must sum to 1 in each row.")
    if values:
        differ = np.not_equal(*values) & (np.maximum(log_p, log_q) > -inf)
        log_p = np.where(differ.any(axis=-1, keepdims=True), np.nan, log_p)
    flat = np.zeros(log_p.shape)
    return PrivacyLoss(log_p, log_q, flat, flat, flat + 1, flat == 0)


def _on_multiples(p: Rounded, q: Rounded) -> PrivacyLoss:
    """Compare all multiples that any row can take."""
    if p.resolution != q.resolution:
        raise ValueError(
            f"p and q must have the same resolution, got {p.resolution} and {q.resolution}."
        )
    edges = np.concatenate([np.ravel(of.edges) for of in (p, q)])
    numbers = np.arange(np.nanmin(edges) + 0.5, np.nanmax(edges))
    if numbers.size > _MULTIPLES:
        raise ValueError(
            f"resolution has {numbers.size} multiples, more than {_MULTIPLES}: use a coarser one."
        )
    values = numbers * p.resolution.numerator / p.resolution.denominator
    points = [np.broadcast_to(values, (*of.batch_shape, values.size)) for of in (p, q)]
    return _of_outcomes(*map(_log_prob, (p, q), points))


@np.errstate(all="ignore")
def _on_lines(p: PiecewiseExponential, q: PiecewiseExponential) -> PrivacyLoss:
    """Split two distributions on the real line at all their edges."""
    fits(p.batch_shape, q=q.batch_shape)
    batch = np.broadcast_shapes(p.batch_shape, q.batch_shape)
    edges = [np.broadcast_to(of.edges, (*batch, of.edges.shape[-1])) for of in (p, q)]
    inner = np.sort(np.concatenate(edges, axis=-1).astype(np.float64), axis=-1)
    precision = max(np.finfo(of.dtype).eps for of in (p, q))
    decay_p, decay_q = (_tail_decays(of, batch) for of in (p, q))
    # The loss at infinity of scales that were rounded differently is not infinite
    decay_q = np.where(np.isclose(decay_p, decay_q, 16 * precision, 0), decay_p, decay_q)
    steep = np.maximum(decay_p, decay_q)
    reach = 1 / np.where(steep > 0, steep, 1.0)  # to a point in a tail, one nat of the steeper one
    before, after = inner[..., :1] - reach[..., :1], inner[..., -1:] + reach[..., 1:]
    points = np.concatenate([before, inner, after], axis=-1)
    low, high = points[..., :-1], points[..., 1:]
    length = high - low
    # Only the first point of a few floats is inside: at an edge, log_prob is the right limit
    first, last = low + length / 4, high - length / 4
    inside = (first < last) & (last < high)
    away = first - low
    away[..., 0] = (high - first)[..., 0]
    length[..., [0, -1]] = inf
    wide = ~(length <= 16 * precision * np.max(np.abs(inner), axis=-1, keepdims=True))
    lines = []
    for of, decay in ((p, decay_p), (q, decay_q)):
        at_first, at_last = (_log_prob(of, points) for points in (first, last))
        there = ~np.isneginf(at_first)
        slope = np.where(inside, (at_last - at_first) / (last - first), 0.0)
        slope[..., [0, -1]] = -decay
        slope = np.where(there, slope, -1.0)
        start = np.where(there, at_first - slope * away, -inf)
        # An interval with more than negligible probability is not due to rounding
        wide |= start + _log_integral(slope, length) > np.log(precision) / 2
        lines.append((start, slope))
    (log_p, slope_p), (log_q, slope_q) = lines
    # Nor is a sliver, due to rounding, at the end of one of two equal supports infinitely revealing
    log_p, log_q = (
        np.where(wide | ~np.isneginf(other), own, -inf)
        for own, other in ((log_p, log_q), (log_q, log_p))
    )
    return PrivacyLoss(log_p, log_q, slope_p, slope_q, length, wide)


def _tail_decays(distribution: PiecewiseExponential, batch: tuple[int, ...]) -> Array:
    """Return how steeply the log-density falls in the lower and the upper tail, 0 without one."""
    tails = distribution.tails
    if tails is None:
        return np.zeros((*batch, 2))
    scales = np.stack(np.broadcast_arrays(tails.lower_scale, tails.upper_scale), axis=-1)
    rate = np.asarray(distribution.rate, np.float64)[..., None]
    return np.broadcast_to(np.where(scales > 0, rate / scales, 0.0), (*batch, 2))
