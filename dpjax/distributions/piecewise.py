"""The one distribution of the line: a density whose logarithm is linear between sorted edges, with optional exponential tails."""

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
        lower_scale: its scale in y for each unit of cost, ``(...)``; 0 for no tail.
        upper_cost: the same for the upper tail.
        upper_scale: the same for the upper tail.
    """

    lower_cost: jax.Array
    lower_scale: jax.Array
    upper_cost: jax.Array
    upper_scale: jax.Array


@jax.tree_util.register_pytree_with_keys_class
@dataclass(init=False, repr=False, eq=False, kw_only=True)
class PiecewiseExponential(Distribution):
    """A distribution on the line with density ``exp(-rate * cost(y)) / Z``, where ``cost`` is linear between sorted edges.

    It carries every continuous one-dimensional mechanism of this library: piecewise Laplace (cost linear in a piece), inverse
    sensitivity (constant), truncated, rho-smooth and radius-bounded variants, and the Laplace distribution itself (two tails).

    Leading axes are a batch; the fields broadcast against each other, so costs that all rows share stay of shape ``(m,)`` and a
    sweep over epsilon is a ``rate`` of shape ``(sweep, 1)``. It is a pytree: it passes through ``jit``, ``vmap`` and ``grad``.
    All methods but ``sample`` are closed forms. Pieces of width 0 (ties, padding) have no mass. It is kept as two sides that go
    outwards from a center, as a sensitivity profile is; the attributes below give it in ascending order.

    Attributes:
        edges: float ``(..., m+1)``, nondecreasing.
        cost_left: float ``(..., m)``, the cost at the left end of each piece.
        cost_right: float ``(..., m)``, the cost at the right end.
        rate: float ``(...)``, epsilon/2 for exponential mechanisms.
        tails: exponential tails beyond the outer edges, or None.
        center: static index of the edge that splits the two sides; a draw's randomness is indexed outwards from there.

    References:
        Durfee (2025), Definition 3.1 and Algorithm 1; Gillenwater and Munoz Medina, Algorithm 1.

    >>> import jax, jax.numpy as jnp
    >>> distribution = PiecewiseExponential(
    ...     jnp.array([0.0, 1.0, 3.0]), jnp.array([2.0, 1.0]), jnp.array([1.0, 2.0]), jnp.asarray(0.5), center=1
    ... )
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

    # The fields of the constructor, so that ``dataclasses.replace`` works; what is kept are the two sides.
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
        if edges.shape[-1] < 1 or not cost_left.shape[-1] == cost_right.shape[-1] == edges.shape[-1] - 1:
            raise ValueError(
                "m+1 edges need m costs on the left and on the right, got shapes "
                f"{edges.shape}, {cost_left.shape} and {cost_right.shape}."
            )
        center = checks.static_integer("center", center, 0, edges.shape[-1] - 1)
        self.lower: Side
        self.upper: Side
        self.lower, self.upper = _sides(edges, cost_left, cost_right, center)
        self.rate, self.tails = rate, tails

    @classmethod
    def from_sides(cls, lower: Side, upper: Side, rate: jax.Array, tails: Tails | None = None) -> PiecewiseExponential:
        """Return the distribution with these two sides, whose first values are the same point."""
        made = object.__new__(cls)
        made.lower, made.upper, made.rate, made.tails = lower, upper, rate, tails
        return made

    def tree_flatten_with_keys(self) -> Any:
        """The two sides, the rate and the tails."""
        names = ("lower", "upper", "rate", "tails")
        return tuple((jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in names), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> PiecewiseExponential:
        """The inverse of :meth:`tree_flatten_with_keys`."""
        return cls.from_sides(*children)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields, without the axis of pieces."""
        sides = [leaf.shape[:-1] for leaf in jax.tree.leaves((self.lower, self.upper))]
        return jnp.broadcast_shapes(*sides, *(leaf.shape for leaf in jax.tree.leaves((self.rate, self.tails))))

    @property
    def dtype(self) -> Any:
        """The dtype of the edges and of every result."""
        return self.upper.values.dtype

    def line(self) -> Line:
        """What the sampler and the closed forms read; every array gets the axis of pieces."""
        rate, tails = self.rate[..., None], None
        if self.tails is not None:
            batch = (*self.batch_shape, 1)

            def both(lower: jax.Array, upper: jax.Array) -> jax.Array:
                return jnp.concatenate([jnp.broadcast_to(lower, batch), jnp.broadcast_to(upper, batch)], axis=-1)

            start = both(self.lower.values[..., -1:], self.upper.values[..., -1:])
            scale = both(self.tails.lower_scale[..., None] / rate, self.tails.upper_scale[..., None] / rate)
            tails = Ends(start, scale, both(self.tails.lower_cost[..., None], self.tails.upper_cost[..., None]))
        return Line.of((self.lower, self.upper), rate, tails, self.batch_shape)

    def sample(self, key: jax.Array, shape: Shape = (), *, method: sampling.Method = "auto") -> jax.Array:
        """Draw from the distribution.

        A piece is chosen with its exact probability (to a few units in the last place), down to about 2^-60; the point inside is
        placed by inverse CDF from the piece's low-cost end and reaches 45 nats into a tail. Under jit, draws are bitwise unchanged
        by padding and by further rows of the batch.

        Args:
            key: a scalar typed threefry key.
            shape: the shape of the draws from each row, an integer or several.
            method: ``"tree"`` reads the data once and keeps nothing of their size, ``"table"`` makes a table of each row and then
                needs little for each draw, ``"gumbel"`` is Gumbel-max with two words for each piece and draw, the reference. All
                draw from the same distribution, with other words. ``"auto"`` takes the first for up to 64 draws a row, then
                the second.

        Returns:
            Float of shape ``shape + batch_shape``; NaN for a row whose parameters are bad.

        Raises:
            TypeError: ``key`` is not a typed key.
            ValueError: another kind of key, or an unknown method.
        """
        checks.one_of("method", method, ("auto", "tree", "table", "gumbel"))
        return sampling.sample(check_key(key), self, draws_shape(shape), method)

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
        return sampling.sample(key, self, shape, "auto", first)

    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Log-density at ``y``, ``-inf`` outside the support; at an edge, the limit from the right (from the left at the top).

        Args:
            y: float that broadcasts against ``batch_shape``.

        Returns:
            Float of the broadcast shape.
        """
        return closed_forms.log_prob(self, self._points("y", y))

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The outer edges, of shape ``batch_shape``, or minus infinity and infinity where there is a tail beyond them."""
        low, high = self.lower.values[..., -1], self.upper.values[..., -1]
        if self.tails is not None:
            low = jnp.where(self.tails.lower_scale > 0, -jnp.inf, low)
            high = jnp.where(self.tails.upper_scale > 0, jnp.inf, high)
        return jnp.broadcast_to(low, self.batch_shape), jnp.broadcast_to(high, self.batch_shape)

    def cdf(self, y: ArrayLike) -> jax.Array:
        """P(Y <= y), for a ``y`` that broadcasts against ``batch_shape``."""
        return closed_forms.cdf(self, self._points("y", y))

    def survival(self, y: ArrayLike) -> jax.Array:
        """P(Y > y) at full relative precision in the upper tail, for a ``y`` that broadcasts against ``batch_shape``."""
        return closed_forms.cdf(self.reflect(), -self._points("y", y))

    def quantile(self, p: ArrayLike) -> jax.Array:
        """The inverse of :meth:`cdf`, for a ``p`` that broadcasts against ``batch_shape``; NaN outside [0, 1].

        Pieces whose mass underflows in the dtype are not reached: in float32, ``quantile(1.0)`` can lie inside the support.
        """
        p = self._points("p", p)
        return closed_forms.quantile(self, p, 1 - p)

    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """The central interval of probability ``level``: each side leaves out ``(1 - level) / 2``.

        Args:
            level: float in [0, 1] that broadcasts against ``batch_shape``.

        Returns:
            Its lower and upper end.
        """
        return closed_forms.interval(self, (1 - self._points("level", level)) / 2)

    def mean(self) -> jax.Array:
        """E[Y], of shape ``batch_shape``."""
        return closed_forms.mean(self)

    def variance(self) -> jax.Array:
        """E[(Y - E[Y])^2], of shape ``batch_shape``; it underflows where :meth:`stddev` does not."""
        return jnp.square(closed_forms.stddev(self))

    def stddev(self) -> jax.Array:
        """The standard deviation, of shape ``batch_shape``."""
        return closed_forms.stddev(self)

    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """E|Y - center|, for a ``center`` that broadcasts against ``batch_shape``: the exact error bar of a draw."""
        return closed_forms.mean_abs_error(self, self._points("center", center))

    def entropy(self) -> jax.Array:
        """Differential entropy -E[log p(Y)] in nats, of shape ``batch_shape``."""
        return closed_forms.entropy(self)

    def log_normalizer(self) -> jax.Array:
        """Log of Z, the integral of ``exp(-rate * cost(y))``, of shape ``batch_shape``."""
        return closed_forms.log_normalizer(self)

    def restrict(self, lower: ArrayLike, upper: ArrayLike) -> PiecewiseExponential:
        """Return the distribution conditioned on ``[lower, upper]``: pieces and tails are cut there, costs stay where they are.

        Args:
            lower: float that broadcasts against ``batch_shape``.
            upper: the same.

        Returns:
            A distribution without tails. Where nothing is left of a row, its results are NaN.
        """
        return _restrict(self, self._points("lower", lower), self._points("upper", upper))

    def reflect(self) -> PiecewiseExponential:
        """Return the distribution of -Y."""
        tails = self.tails
        if tails is not None:
            tails = Tails(tails.upper_cost, tails.upper_scale, tails.lower_cost, tails.lower_scale)
        return self.from_sides(self.upper.negated(), self.lower.negated(), self.rate, tails)


@jax.jit
def _restrict(distribution: PiecewiseExponential, low: jax.Array, high: jax.Array) -> PiecewiseExponential:
    batch = jnp.broadcast_shapes(distribution.batch_shape, low.shape, high.shape)
    sides = [distribution.lower, distribution.upper]
    tails = distribution.tails
    if tails is not None:
        ends = (low, -1, tails.lower_cost, tails.lower_scale), (high, 1, tails.upper_cost, tails.upper_scale)
        sides = [_tail_as_piece(side, batch, *end) for side, end in zip(sides, ends, strict=True)]
    low, high = (jnp.broadcast_to(end, batch)[..., None] for end in (low, high))
    cut = [_clip(side, low, high) for side in sides]
    return PiecewiseExponential.from_sides(cut[0], cut[1], jnp.broadcast_to(distribution.rate, batch))


@partial(jax.jit, inline=True, static_argnames="center")
def _sides(edges: jax.Array, cost_left: jax.Array, cost_right: jax.Array, center: int) -> tuple[Side, Side]:
    below = edges[..., : center + 1], cost_right[..., :center], cost_left[..., :center]
    return Side(*(jnp.flip(part, -1) for part in below)), Side(
        edges[..., center:], cost_left[..., center:], cost_right[..., center:]
    )


def _tail_as_piece(side: Side, batch: tuple[int, ...], bound: jax.Array, sign: int, cost: jax.Array, scale: jax.Array) -> Side:
    """Replace a tail by one linear piece that reaches at least to the bound on its side."""
    edge = side.values[..., -1]
    none = scale <= 0  # a NaN scale stays visible and makes the row NaN
    length = jnp.where(none, 0.0, jnp.maximum(sign * (bound - edge), 0.0))
    end = jnp.where(length > 0, bound, edge)  # not edge + length, which rounds: the support is public
    far = cost + length / jnp.where(none, 1.0, scale)
    values, near, far = (jnp.broadcast_to(one, batch)[..., None] for one in (end, cost, far))
    return Side(concatenate(side.values, values), concatenate(side.cost_near, near), concatenate(side.cost_far, far))


def _clip(side: Side, low: jax.Array, high: jax.Array) -> Side:
    """Cut every piece to ``[low, high]``; the cost at a cut is where the line passes."""
    values = jnp.clip(side.values, low, high)
    near, far = side.values[..., :-1], side.values[..., 1:]
    width = jnp.where(far != near, far - near, 1.0)

    def cost_at(cut: jax.Array) -> jax.Array:
        share = jnp.clip((cut - near) / width, 0.0, 1.0)
        # At the ends exactly: a cost must not move where nothing is cut. A piece of width 0 keeps both.
        inside = side.cost_near + (side.cost_far - side.cost_near) * share
        return jnp.where(cut == far, side.cost_far, jnp.where(cut == near, side.cost_near, inside))

    kept = far == near
    cost_near = jnp.where(kept, side.cost_near, cost_at(values[..., :-1]))
    return Side(values, cost_near, jnp.where(kept, side.cost_far, cost_at(values[..., 1:])))
