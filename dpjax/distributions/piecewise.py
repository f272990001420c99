"""The piecewise exponential distribution: its log-density is linear between sorted edges.

It may have exponential tails beyond the outer edges.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.distributions.base import compiled
from dpjax.distributions.closed_forms import OnLine
from dpjax.distributions.line import Line
from dpjax.numerics.arrays import concatenate
from dpjax.pytrees import pytree

_NATS = {4: 100.0, 8: 700.0}  # of a tail at least, by size of the dtype: e^-100 is 0 in float32


@pytree
class Tails:
    """Exponential tails beyond the first and the last edge of a distribution.

    Attributes:
        lower_cost: the cost where the lower tail starts, ``(...)``.
        lower_scale: the scale in y of the lower tail per unit of cost, ``(...)``; 0 for no tail.
        upper_cost: the cost where the upper tail starts, ``(...)``.
        upper_scale: the scale in y of the upper tail per unit of cost, ``(...)``; 0 for no tail.

    >>> import jax.numpy as jnp
    >>> zero, one = jnp.array(0.0), jnp.array(1.0)
    >>> laplace = PiecewiseExponential(
    ...     jnp.zeros(1), jnp.zeros(0), jnp.zeros(0), one, Tails(zero, one, zero, one)
    ... )
    >>> round(float(laplace.variance()), 4)
    2.0
    """

    lower_cost: jax.Array
    lower_scale: jax.Array
    upper_cost: jax.Array
    upper_scale: jax.Array


@pytree
class PiecewiseExponential(OnLine):
    """The distribution with density ``exp(-rate * cost(y)) / Z`` for a piecewise linear cost.

    All continuous one-dimensional mechanisms of this library return it: piecewise Laplace (cost
    linear on each piece), inverse sensitivity (cost constant on each piece), their truncated,
    rho-smooth and radius-bounded variants, and the Laplace distribution itself (two tails).

    Leading axes are a batch. The fields broadcast against each other: costs shared by all rows have
    shape ``(1, m)``, and a sweep over epsilon is a ``rate`` of shape ``(sweep, 1)``. As a pytree it
    passes through ``jit`` and ``grad``, and leaves ``vmap``. All methods except ``sample`` are
    closed forms. Pieces of width 0 (ties, padding) have no mass. Costs of more than 2^28 nats above
    the least one of a row are told apart, but their differences are smaller than they should be.

    Attributes:
        edges: float ``(..., m+1)``, nondecreasing.
        cost_left: float ``(..., m)``, the cost at the left end of each piece.
        cost_right: float ``(..., m)``, the cost at the right end.
        rate: float ``(...)``; epsilon/2 for exponential mechanisms.
        tails: exponential tails beyond the outer edges, or None.

    References:
        Durfee (2025), Definition 3.1 and Algorithm 1; Gillenwater and Munoz Medina, Algorithm 1.

    >>> import jax, jax.numpy as jnp
    >>> breakpoints, cost = jnp.array([0.0, 1.0, 3.0]), jnp.array([2.0, 1.0])
    >>> slope = jnp.array([1.0, 2.0])
    >>> distribution = PiecewiseExponential(breakpoints, cost, slope, jnp.asarray(0.5))
    >>> distribution.sample(jax.random.key(0), (4,)).shape
    (4,)
    >>> round(float(distribution.cdf(1.0)), 4)
    0.3333
    """

    edges: jax.Array
    cost_left: jax.Array
    cost_right: jax.Array
    rate: jax.Array
    tails: Tails | None = None

    _event_axes = ("edges", "cost_left", "cost_right")
    _parameters = ("rate",)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields without the axis of pieces."""
        pieces = self.edges.shape[-1] - 1
        if not self.cost_left.shape[-1] == self.cost_right.shape[-1] == pieces:
            raise ValueError(
                "cost_left and cost_right must have one element fewer than edges on the last "
                f"axis, got shapes {self.cost_left.shape}, {self.cost_right.shape} and "
                f"{self.edges.shape}."
            )
        return super().batch_shape

    def line(self) -> Line:
        """Return the form that the sampler and closed forms use; tails are two more pieces."""
        rate, tails = self.rate[..., None], self.tails
        left, right = self.cost_left, self.cost_right
        if tails is None:
            return Line(self.edges, left, right, rate, self.batch_shape)
        low, high = tails.lower_cost[..., None], tails.upper_cost[..., None]
        # So long that the float at the far end has the digits of the length.
        nats = _NATS[self.edges.dtype.itemsize] / rate
        far_low, far_high = (cost + (nats + jnp.abs(cost) * 2.0**-10) for cost in (low, high))
        lower = tails.lower_scale[..., None] * (far_low - low)
        upper = tails.upper_scale[..., None] * (far_high - high)
        return Line(
            concatenate(self.edges[..., :1] - lower, self.edges, self.edges[..., -1:] + upper),
            concatenate(far_low, left, high),
            concatenate(low, right, far_high),
            rate,
            self.batch_shape,
            concatenate(lower, jnp.diff(self.edges), upper),
        )

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The outer edges, each of shape ``batch_shape``, or -inf and inf where there is a tail."""
        low, high = super().support
        if (tails := self.tails) is not None:
            low = jnp.where(tails.lower_scale > 0, -jnp.inf, low)
            high = jnp.where(tails.upper_scale > 0, jnp.inf, high)
        return low, high

    @compiled
    def restrict(self, lower: ArrayLike, upper: ArrayLike) -> PiecewiseExponential:
        """Return the distribution conditioned on ``[lower, upper]``; costs are unchanged.

        Args:
            lower: float that broadcasts against ``batch_shape``.
            upper: float that broadcasts against ``batch_shape``.

        Returns:
            A distribution without tails. A row whose support does not meet the interval is NaN.
        """
        batch = jnp.broadcast_shapes(self.batch_shape, jnp.shape(lower), jnp.shape(upper))
        low, high = (jnp.broadcast_to(end, batch)[..., None] for end in (lower, upper))
        edges, left, right = self.edges, self.cost_left, self.cost_right
        if (tails := self.tails) is not None:
            below, from_below = _tail(edges[..., :1] - low, tails.lower_cost, tails.lower_scale)
            above, to_above = _tail(high - edges[..., -1:], tails.upper_cost, tails.upper_scale)
            # Not an edge plus a length, which is rounded: the support is public.
            first = jnp.where(below, low, edges[..., :1])
            last = jnp.where(above, high, edges[..., -1:])
            near = tails.lower_cost[..., None], tails.upper_cost[..., None]
            left, right = (
                concatenate(from_below, left, near[1]),
                concatenate(near[0], right, to_above),
            )
            edges = concatenate(first, edges, last)
        start, end = edges[..., :-1], edges[..., 1:]
        width = jnp.where(end != start, end - start, 1.0)

        def cost_at(cut: jax.Array) -> jax.Array:
            share = jnp.clip((cut - start) / width, 0.0, 1.0)
            # Exact at the ends: a cost must not change where nothing is cut.
            inside = left + (right - left) * share
            return jnp.where(cut == end, right, jnp.where(cut == start, left, inside))

        cut, rate = jnp.clip(edges, low, high), jnp.broadcast_to(self.rate, batch)
        return PiecewiseExponential(cut, cost_at(cut[..., :-1]), cost_at(cut[..., 1:]), rate)


def _tail(length: jax.Array, cost: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return whether a tail reaches beyond its edge, and its cost at that distance."""
    cost, scale = cost[..., None], scale[..., None]
    none = scale <= 0  # a NaN scale stays visible and makes the row NaN
    length = jnp.where(none, 0.0, jnp.maximum(length, 0.0))
    return length > 0, cost + length / jnp.where(none, 1.0, scale)


def laplace_noise(center: jax.Array, rate: jax.Array, scale: jax.Array) -> PiecewiseExponential:
    """Return the distribution of a center plus Laplace noise of scale ``scale / rate``."""
    none, zero = jnp.zeros((0,), center.dtype), jnp.zeros_like(scale)
    return PiecewiseExponential(
        center[..., None], none, none, rate, Tails(zero, scale, zero, scale)
    )
