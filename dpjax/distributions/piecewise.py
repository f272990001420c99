"""The one law of the line: a density whose logarithm is linear between sorted edges, with optional exponential tails."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.distributions import closed_forms, sampling
from dpjax.numerics.batching import align, broadcast_batch, broadcast_rows, concatenate
from dpjax.random.keys import check_key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tails:
    """Exponential tails beyond the first and the last edge of a law.

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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PiecewiseExponential:
    """A law on the line with density ``exp(-rate * cost(y)) / Z``, where ``cost`` is linear between sorted edges.

    It carries every continuous one-dimensional mechanism of this library: piecewise Laplace (cost linear in a piece), inverse
    sensitivity (constant), truncated, rho-smooth and radius-bounded variants, and the Laplace law itself (two tails).

    Leading axes are a batch; the fields broadcast against each other, so costs that all rows share stay of shape ``(m,)`` and a
    sweep over epsilon is a ``rate`` of shape ``(sweep, 1)``. It is a pytree: it passes through ``jit``, ``vmap`` and ``grad``.
    All methods but ``sample`` are closed forms. Pieces of width 0 (ties, padding) have no mass.

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
    >>> law = PiecewiseExponential(
    ...     jnp.array([0.0, 1.0, 3.0]), jnp.array([2.0, 1.0]), jnp.array([1.0, 2.0]), jnp.asarray(0.5), center=1
    ... )
    >>> law.sample(jax.random.key(0), (4,)).shape
    (4,)
    >>> round(float(law.cdf(1.0)), 4)
    0.3333
    """

    edges: jax.Array
    cost_left: jax.Array
    cost_right: jax.Array
    rate: jax.Array
    tails: Tails | None = None
    center: int = field(default=0, metadata={"static": True})

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields, without the axis of pieces."""
        if self.edges.shape[-1] < 1 or not self.cost_left.shape[-1] == self.cost_right.shape[-1] == self.edges.shape[-1] - 1:
            raise ValueError(
                "m+1 edges need m costs on the left and on the right, got shapes "
                f"{self.edges.shape}, {self.cost_left.shape} and {self.cost_right.shape}."
            )
        shapes = [self.edges.shape[:-1], self.cost_left.shape[:-1], self.cost_right.shape[:-1], self.rate.shape]
        if self.tails is not None:
            shapes += [a.shape for a in jax.tree.leaves(self.tails)]
        return jnp.broadcast_shapes(*shapes)

    @property
    def dtype(self) -> Any:
        """The dtype of the edges and of every result."""
        return self.edges.dtype

    def sample(
        self, key: jax.Array, shape: tuple[int, ...] = (), *, method: Literal["auto", "tree", "table", "gumbel"] = "auto"
    ) -> jax.Array:
        """Draw from the law.

        Both methods draw a piece with its exact probability (to a relative error of a few units in the last place) and reach
        every piece of probability above about 2^-60; the point inside is placed by inverse cdf from the piece's low-cost end and
        reaches 45 nats into a tail. Under jit, draws are bitwise unchanged by padding and by further rows of the batch.

        Args:
            key: a scalar typed threefry key.
            shape: the shape of the draws from each row.
            method: ``"tree"`` sums each row in blocks and goes down to one piece, ``"table"`` makes a table once a row and then
                needs a bisection a draw; they give the same draws, and ``"auto"`` takes the first for up to 64 draws a row.
                ``"gumbel"`` is the reference, Gumbel-max with two words for each piece and draw: other draws of the same law.

        Returns:
            Float of shape ``shape + batch_shape``; NaN for a row whose parameters are bad.

        Raises:
            TypeError: ``key`` is not a typed key.
            ValueError: another kind of key, or an unknown method.
        """
        checks.one_of("method", method, ("auto", "tree", "table", "gumbel"))
        shape = tuple(shape)
        return sampling.sample(check_key(key), self, shape, method)

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike) -> jax.Array:
        """Draw where the batch's first row is row number ``first`` of a larger batch; see ``dpjax.simulation``."""
        return sampling.sample(key, self, shape, "auto", first)

    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Log-density at ``y``, ``-inf`` outside the support; at an edge, the limit from the right (from the left at the top).

        Args:
            y: float that broadcasts against ``batch_shape``.

        Returns:
            Float of the broadcast shape.
        """
        return closed_forms.log_prob(self, self._points("y", y))

    def prob(self, y: ArrayLike) -> jax.Array:
        """Density at ``y``; see :meth:`log_prob`."""
        return jnp.exp(self.log_prob(y))

    def cdf(self, y: ArrayLike) -> jax.Array:
        """P(Y <= y), for a ``y`` that broadcasts against ``batch_shape``."""
        return closed_forms.cdf(self, self._points("y", y))

    def survival(self, y: ArrayLike) -> jax.Array:
        """P(Y > y) at full relative precision in the upper tail, for a ``y`` that broadcasts against ``batch_shape``."""
        return closed_forms.survival(self, self._points("y", y))

    def quantile(self, p: ArrayLike) -> jax.Array:
        """The inverse of :meth:`cdf`, for a ``p`` that broadcasts against ``batch_shape``; NaN outside [0, 1].

        Pieces whose mass underflows in the dtype are not reached: in float32, ``quantile(1.0)`` can lie inside the support.
        """
        return closed_forms.quantile(self, self._points("p", p))

    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """The central interval of probability ``level``: each side leaves out ``(1 - level) / 2``.

        Args:
            level: float in [0, 1] that broadcasts against ``batch_shape``.

        Returns:
            Its lower and upper end.
        """
        return closed_forms.interval(self, self._points("level", level))

    def mean(self) -> jax.Array:
        """E[Y], of shape ``batch_shape``."""
        return closed_forms.mean(self)

    def variance(self) -> jax.Array:
        """E[(Y - E[Y])^2], of shape ``batch_shape``."""
        return closed_forms.variance(self)

    def stddev(self) -> jax.Array:
        """The standard deviation, of shape ``batch_shape``."""
        return jnp.sqrt(self.variance())

    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """E|Y - center|, for a ``center`` that broadcasts against ``batch_shape``: the exact error bar of a draw."""
        return closed_forms.mean_abs_error(self, self._points("center", center))

    def mean_squared_error(self, center: ArrayLike) -> jax.Array:
        """E[(Y - center)^2], for a ``center`` that broadcasts against ``batch_shape``."""
        at = self._points("center", center)
        return align(self.variance(), at.ndim) + jnp.square(align(self.mean(), at.ndim) - at)

    def entropy(self) -> jax.Array:
        """Differential entropy -E[log p(Y)] in nats, of shape ``batch_shape``."""
        return closed_forms.entropy(self)

    def log_normalizer(self) -> jax.Array:
        """Log of Z, the integral of ``exp(-rate * cost(y))``, of shape ``batch_shape``."""
        return closed_forms.log_normalizer(self)

    def restrict(self, lower: ArrayLike, upper: ArrayLike) -> PiecewiseExponential:
        """Return the law conditioned on ``[lower, upper]``: pieces and tails are cut there, costs stay where they are.

        Args:
            lower: float that broadcasts against ``batch_shape``.
            upper: the same.

        Returns:
            A law without tails. Where nothing is left of a row, its results are NaN.
        """
        return _restrict(self, self._points("lower", lower), self._points("upper", upper))

    def reflect(self) -> PiecewiseExponential:
        """Return the law of -Y."""
        tails = self.tails
        if tails is not None:
            tails = Tails(tails.upper_cost, tails.upper_scale, tails.lower_cost, tails.lower_scale)
        return PiecewiseExponential(
            edges=-jnp.flip(self.edges, -1),
            cost_left=jnp.flip(self.cost_right, -1),
            cost_right=jnp.flip(self.cost_left, -1),
            rate=self.rate,
            tails=tails,
            center=self.cost_left.shape[-1] - self.center,
        )

    def _points(self, name: str, value: ArrayLike) -> jax.Array:
        """A float argument in the law's dtype, with as many axes as the batch."""
        array = checks.float_array(name, value).astype(self.dtype)
        return align(array, max(array.ndim, len(self.batch_shape)))


@jax.jit
def _restrict(law: PiecewiseExponential, low: jax.Array, high: jax.Array) -> PiecewiseExponential:
    law = _tails_as_pieces(law, low, high)
    batch = jnp.broadcast_shapes(law.batch_shape, low.shape, high.shape)
    pieces = closed_forms.pieces_of(replace(law, rate=jnp.broadcast_to(law.rate, batch)))
    cut = pieces.clip(align(low, len(batch))[..., None], align(high, len(batch))[..., None])
    edges = jnp.concatenate([cut.left, cut.right[..., -1:]], axis=-1)
    return replace(law, edges=edges, cost_left=cut.cost_left, cost_right=cut.cost_right)


def _tails_as_pieces(law: PiecewiseExponential, low: jax.Array, high: jax.Array) -> PiecewiseExponential:
    """Replace each tail by one linear piece that reaches at least to the bound on its side."""
    if law.tails is None:
        return law
    batch = jnp.broadcast_shapes(law.batch_shape, low.shape, high.shape)
    edges = broadcast_rows(law.edges, batch)
    ends, far_costs, near_costs = [], [], []
    for edge, bound, sign, cost, scale in (
        (edges[..., 0], low, -1, law.tails.lower_cost, law.tails.lower_scale),
        (edges[..., -1], high, 1, law.tails.upper_cost, law.tails.upper_scale),
    ):
        cost, scale = broadcast_batch(cost, batch), broadcast_batch(scale, batch)
        none = scale <= 0  # a NaN scale stays visible and makes the row NaN
        bound = align(bound, len(batch))
        length = jnp.where(none, 0.0, jnp.maximum(sign * (bound - edge), 0.0))
        ends.append(jnp.where(length > 0, bound, edge)[..., None])  # not edge + length, which rounds: the support is public
        far_costs.append((cost + length / jnp.where(none, 1.0, scale))[..., None])
        near_costs.append(cost[..., None])
    return replace(
        law,
        edges=concatenate(ends[0], edges, ends[1]),
        cost_left=concatenate(far_costs[0], law.cost_left, near_costs[1]),
        cost_right=concatenate(near_costs[0], law.cost_right, far_costs[1]),
        tails=None,
        center=law.center + 1,
    )
