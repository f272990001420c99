"""The piecewise exponential distribution: its log-density is linear between sorted edges.

It may have exponential tails beyond the outer edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.distributions import closed_forms, sampling
from dpjax.distributions.base import Distribution, Shape, draws_shape
from dpjax.distributions.line import Ends, Line, Side
from dpjax.numerics.batching import concatenate
from dpjax.random.keys import check_key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
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


@jax.tree_util.register_pytree_with_keys_class
@dataclass(init=False, repr=False, eq=False, kw_only=True)
class PiecewiseExponential(Distribution):
    """The distribution with density ``exp(-rate * cost(y)) / Z`` for a piecewise linear cost.

    All continuous one-dimensional mechanisms of this library return it: piecewise Laplace (cost
    linear on each piece), inverse sensitivity (cost constant on each piece), their truncated,
    rho-smooth and radius-bounded variants, and the Laplace distribution itself (two tails).

    Leading axes are a batch. The fields broadcast against each other: costs shared by all rows have
    shape ``(m,)``, and a sweep over epsilon is a ``rate`` of shape ``(sweep, 1)``. As a pytree it
    passes through ``jit``, ``vmap`` and ``grad``. All methods except ``sample`` are closed forms.
    Pieces of width 0 (ties, padding) have no mass. It is stored as two sides that extend outwards
    from a center, as a sensitivity profile is; the attributes below are in ascending order.

    Attributes:
        edges: float ``(..., m+1)``, nondecreasing.
        cost_left: float ``(..., m)``, the cost at the left end of each piece.
        cost_right: float ``(..., m)``, the cost at the right end.
        rate: float ``(...)``; epsilon/2 for exponential mechanisms.
        tails: exponential tails beyond the outer edges, or None.
        center: static index of the edge that separates the two sides; a draw's
            randomness is indexed outwards from there.

    References:
        Durfee (2025), Definition 3.1 and Algorithm 1; Gillenwater and Munoz Medina, Algorithm 1.

    >>> import jax, jax.numpy as jnp
    >>> breakpoints, cost = jnp.array([0.0, 1.0, 3.0]), jnp.array([2.0, 1.0])
    >>> slope = jnp.array([1.0, 2.0])
    >>> distribution = PiecewiseExponential(breakpoints, cost, slope, jnp.asarray(0.5), center=1)
    >>> distribution.sample(jax.random.key(0), (4,)).shape
    (4,)
    >>> round(float(distribution.cdf(1.0)), 4)
    0.3333
    """

    @partial(jax.jit, inline=True)
    def _edges(self) -> jax.Array:
        return concatenate(jnp.flip(self.lower.values, -1), self.upper.values[..., 1:])

    @partial(jax.jit, inline=True)
    def _cost_left(self) -> jax.Array:
        return concatenate(jnp.flip(self.lower.cost_far, -1), self.upper.cost_near)

    @partial(jax.jit, inline=True)
    def _cost_right(self) -> jax.Array:
        return concatenate(jnp.flip(self.lower.cost_near, -1), self.upper.cost_far)

    # Fields of the constructor, so that ``dataclasses.replace`` works; the two sides are what is
    # stored.
    edges: jax.Array = property(_edges)  # type: ignore[assignment]  # noqa: RUF009
    cost_left: jax.Array = property(_cost_left)  # type: ignore[assignment]  # noqa: RUF009
    cost_right: jax.Array = property(_cost_right)  # type: ignore[assignment]  # noqa: RUF009
    rate: jax.Array
    tails: Tails | None
    center: int = property(lambda self: self.lower.size)  # type: ignore[assignment]

    _event_axes = ("lower", "upper")
    _parameters = ("rate",)

    def __init__(
        self,
        edges: jax.Array,
        cost_left: jax.Array,
        cost_right: jax.Array,
        rate: jax.Array,
        tails: Tails | None = None,
        center: int = 0,
    ) -> None:
        if (
            edges.shape[-1] < 1
            or not cost_left.shape[-1] == cost_right.shape[-1] == edges.shape[-1] - 1
        ):
            raise ValueError(
                "cost_left and cost_right must have one element fewer than edges on the last "
                f"axis, got shapes {cost_left.shape}, {cost_right.shape} and {edges.shape}."
            )
        center = checks.static_integer("center", center, 0, edges.shape[-1] - 1)
        self.lower: Side
        self.upper: Side
        self.lower, self.upper = _sides(edges, cost_left, cost_right, center)
        self.rate, self.tails = rate, tails

    @classmethod
    def from_sides(
        cls, lower: Side, upper: Side, rate: jax.Array, tails: Tails | None = None
    ) -> PiecewiseExponential:
        """Return the distribution with these two sides, whose first values are the same point."""
        distribution = object.__new__(cls)
        distribution.lower, distribution.upper, distribution.rate, distribution.tails = (
            lower,
            upper,
            rate,
            tails,
        )
        return distribution

    def tree_flatten_with_keys(self) -> Any:
        """Return the two sides, the rate and the tails, with their names."""
        names = ("lower", "upper", "rate", "tails")
        return tuple((jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in names), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> PiecewiseExponential:
        """Invert :meth:`tree_flatten_with_keys`."""
        return cls.from_sides(*children)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields without the axis of pieces."""
        sides = [leaf.shape[:-1] for leaf in jax.tree.leaves((self.lower, self.upper))]
        return jnp.broadcast_shapes(
            *sides, *(leaf.shape for leaf in jax.tree.leaves((self.rate, self.tails)))
        )

    @property
    def dtype(self) -> Any:
        """The dtype of the edges and of every result."""
        return self.upper.values.dtype

    def line(self) -> Line:
        """Return the form that sampler and closed forms use; every array gets an axis of pieces."""
        rate, tails = self.rate[..., None], None
        if self.tails is not None:
            batch = (*self.batch_shape, 1)

            def both(lower: jax.Array, upper: jax.Array) -> jax.Array:
                return jnp.concatenate(
                    [jnp.broadcast_to(lower, batch), jnp.broadcast_to(upper, batch)], axis=-1
                )

            start = both(self.lower.values[..., -1:], self.upper.values[..., -1:])
            scale = both(
                self.tails.lower_scale[..., None] / rate, self.tails.upper_scale[..., None] / rate
            )
            tails = Ends(
                start,
                scale,
                both(self.tails.lower_cost[..., None], self.tails.upper_cost[..., None]),
            )
        return Line.of((self.lower, self.upper), rate, tails, self.batch_shape)

    def sample(
        self, key: jax.Array, shape: Shape = (), *, method: sampling.Method = "auto"
    ) -> jax.Array:
        """Draw samples from each row.

        A piece is drawn with its exact probability (to a few units in the last place), down to
        about 2^-60. The point inside it is drawn by inverse cdf from the end of lower cost, and
        reaches 45 nats into a tail. Under jit, draws are bitwise independent of padding and of
        further rows of the batch.

        Args:
            key: a scalar typed threefry key.
            shape: the shape of the draws from each row, an integer or a sequence of integers.
            method: ``"tree"`` reads the data once and stores no array of their size. ``"table"``
                tabulates each row, after which draws are cheap. ``"gumbel"`` is the Gumbel-max
                trick with two words for each piece and draw, a reference. All draw from the same
                distribution, but use the key differently. ``"auto"`` is ``"tree"`` for up to 64
                draws a row, and else ``"table"``.

        Returns:
            Float of shape ``shape + batch_shape``; NaN for a row whose parameters are invalid.

        Raises:
            TypeError: ``key`` is not a typed key.
            ValueError: ``key`` is a typed key, but not a scalar threefry key; or ``method`` is
                unknown.
        """
        checks.one_of("method", method, ("auto", "tree", "table", "gumbel"))
        return sampling.sample(check_key(key), self, draws_shape(shape), method)

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
        return sampling.sample(key, self, shape, "auto", first)

    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return the log-density at ``y``, ``-inf`` outside the support.

        At an edge it is the limit from the right, at the last edge from the left.

        Args:
            y: float that broadcasts against ``batch_shape``.

        Returns:
            Float of the broadcast shape.
        """
        return closed_forms.log_prob(self, self._points("y", y))

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The outer edges, each of shape ``batch_shape``, or -inf and inf where there is a tail."""
        low, high = self.lower.values[..., -1], self.upper.values[..., -1]
        if self.tails is not None:
            low = jnp.where(self.tails.lower_scale > 0, -jnp.inf, low)
            high = jnp.where(self.tails.upper_scale > 0, jnp.inf, high)
        return jnp.broadcast_to(low, self.batch_shape), jnp.broadcast_to(high, self.batch_shape)

    def cdf(self, y: ArrayLike) -> jax.Array:
        """Return P(Y <= y), for ``y`` that broadcasts against ``batch_shape``."""
        return closed_forms.cdf(self, self._points("y", y))

    def survival(self, y: ArrayLike) -> jax.Array:
        """Return P(Y > y), at full relative precision in the upper tail."""
        return closed_forms.cdf(self.reflect(), -self._points("y", y))

    def quantile(self, p: ArrayLike) -> jax.Array:
        """Return the inverse of :meth:`cdf`; NaN outside [0, 1].

        Pieces whose mass underflows are not reached: in float32, ``quantile(1.0)`` can lie inside
        the support.
        """
        p = self._points("p", p)
        return closed_forms.quantile(self, p, 1 - p)

    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """Return the central interval of probability ``level``; each side has ``(1 - level) / 2``.

        Args:
            level: float in [0, 1] that broadcasts against ``batch_shape``.

        Returns:
            The lower and the upper end.
        """
        return closed_forms.interval(self, (1 - self._points("level", level)) / 2)

    def mean(self) -> jax.Array:
        """Return the mean, E[Y], of shape ``batch_shape``."""
        return closed_forms.mean(self)

    def variance(self) -> jax.Array:
        """Return the variance, ``batch_shape``; it can underflow where :meth:`stddev` does not."""
        return jnp.square(closed_forms.stddev(self))

    def stddev(self) -> jax.Array:
        """Return the standard deviation, of shape ``batch_shape``."""
        return closed_forms.stddev(self)

    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|Y - center|, the exact error of a draw."""
        return closed_forms.mean_abs_error(self, self._points("center", center))

    def entropy(self) -> jax.Array:
        """Return the differential entropy -E[log p(Y)] in nats, of shape ``batch_shape``."""
        return closed_forms.entropy(self)

    def log_normalizer(self) -> jax.Array:
        """Return log Z, Z the integral of ``exp(-rate * cost(y))``, of shape ``batch_shape``."""
        return closed_forms.log_normalizer(self)

    def restrict(self, lower: ArrayLike, upper: ArrayLike) -> PiecewiseExponential:
        """Return the distribution conditioned on ``[lower, upper]``; costs are unchanged.

        Args:
            lower: float that broadcasts against ``batch_shape``.
            upper: float that broadcasts against ``batch_shape``.

        Returns:
            A distribution without tails. A row whose support does not meet the interval is NaN.
        """
        return _restrict(self, self._points("lower", lower), self._points("upper", upper))

    def reflect(self) -> PiecewiseExponential:
        """Return the distribution of -Y."""
        tails = self.tails
        if tails is not None:
            tails = Tails(tails.upper_cost, tails.upper_scale, tails.lower_cost, tails.lower_scale)
        return self.from_sides(self.upper.negated(), self.lower.negated(), self.rate, tails)


@jax.jit
def _restrict(
    distribution: PiecewiseExponential, low: jax.Array, high: jax.Array
) -> PiecewiseExponential:
    batch = jnp.broadcast_shapes(distribution.batch_shape, low.shape, high.shape)
    sides = [distribution.lower, distribution.upper]
    tails = distribution.tails
    if tails is not None:
        ends = (
            (low, -1, tails.lower_cost, tails.lower_scale),
            (high, 1, tails.upper_cost, tails.upper_scale),
        )
        sides = [_tail_as_piece(side, batch, *end) for side, end in zip(sides, ends, strict=True)]
    low, high = (jnp.broadcast_to(end, batch)[..., None] for end in (low, high))
    cut = [_clip(side, low, high) for side in sides]
    return PiecewiseExponential.from_sides(
        cut[0], cut[1], jnp.broadcast_to(distribution.rate, batch)
    )


@partial(jax.jit, inline=True, static_argnames="center")
def _sides(
    edges: jax.Array, cost_left: jax.Array, cost_right: jax.Array, center: int
) -> tuple[Side, Side]:
    below = edges[..., : center + 1], cost_right[..., :center], cost_left[..., :center]
    return Side(*(jnp.flip(part, -1) for part in below)), Side(
        edges[..., center:], cost_left[..., center:], cost_right[..., center:]
    )


def _tail_as_piece(
    side: Side,
    batch: tuple[int, ...],
    bound: jax.Array,
    sign: int,
    cost: jax.Array,
    scale: jax.Array,
) -> Side:
    """Replace a tail by one linear piece that extends at least to the bound on its side."""
    edge = side.values[..., -1]
    none = scale <= 0  # a NaN scale stays visible and makes the row NaN
    length = jnp.where(none, 0.0, jnp.maximum(sign * (bound - edge), 0.0))
    # Not edge + length, which is rounded: the support is public.
    end = jnp.where(length > 0, bound, edge)
    far = cost + length / jnp.where(none, 1.0, scale)
    values, near, far = (jnp.broadcast_to(one, batch)[..., None] for one in (end, cost, far))
    return Side(
        concatenate(side.values, values),
        concatenate(side.cost_near, near),
        concatenate(side.cost_far, far),
    )


def _clip(side: Side, low: jax.Array, high: jax.Array) -> Side:
    """Cut every piece to ``[low, high]``; costs at the cuts are interpolated."""
    values = jnp.clip(side.values, low, high)
    near, far = side.values[..., :-1], side.values[..., 1:]
    width = jnp.where(far != near, far - near, 1.0)

    def cost_at(cut: jax.Array) -> jax.Array:
        share = jnp.clip((cut - near) / width, 0.0, 1.0)
        # Exact at the ends: a cost must not change where nothing is cut. A piece of width 0 keeps
        # both.
        inside = side.cost_near + (side.cost_far - side.cost_near) * share
        return jnp.where(cut == far, side.cost_far, jnp.where(cut == near, side.cost_near, inside))

    kept = far == near
    cost_near = jnp.where(kept, side.cost_near, cost_at(values[..., :-1]))
    return Side(values, cost_near, jnp.where(kept, side.cost_far, cost_at(values[..., 1:])))
