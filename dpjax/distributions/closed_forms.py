"""Closed forms of the piecewise exponential law: normaliser, cdf, quantiles, moments, entropy.

A law is read as pieces in ascending order, each with its ends, the costs there and the rate, plus two optional exponential
tails. Everything is a sum over pieces of something known for one truncated exponential (``truncated_exponential.py``), so a
method costs O(m), or O(log m) a point once the masses are known. Pieces of width 0 are masked before any logarithm: they have
no mass and no gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.distributions import truncated_exponential as piece
from dpjax.numerics.batching import align

if TYPE_CHECKING:
    from dpjax.distributions.piecewise import PiecewiseExponential


class Pieces(NamedTuple):
    """The pieces of a law, on the last axis; every field broadcasts to ``(*batch_shape, m)``, and m >= 1."""

    left: jax.Array
    right: jax.Array
    cost_left: jax.Array
    cost_right: jax.Array
    rate: jax.Array

    @property
    def width(self) -> jax.Array:
        return self.right - self.left

    @property
    def ascending(self) -> jax.Array:
        """Whether the low-cost end is the left one."""
        return self.cost_left <= self.cost_right

    @property
    def decay(self) -> jax.Array:
        return self.rate * jnp.abs(self.cost_right - self.cost_left)

    @property
    def low_cost(self) -> jax.Array:
        return jnp.minimum(self.cost_left, self.cost_right)

    def log_mass(self) -> jax.Array:
        """Unnormalised log masses; -inf for a piece of width 0."""
        open_piece = ~(self.width <= 0)  # a NaN stays visible
        log_width = jnp.where(open_piece, jnp.log(jnp.where(open_piece, self.width, 1.0)), -jnp.inf)
        return log_width + (piece.log_mass_fraction(self.decay) - self.rate * self.low_cost)

    def mean_from(self, origin: jax.Array) -> jax.Array:
        """The mean of each piece minus ``origin``, so that a large offset of the data costs no digits."""
        offset = self.width * piece.mean_fraction(self.decay)
        return jnp.where(self.ascending, (self.left - origin) + offset, (self.right - origin) - offset)

    def variance(self) -> jax.Array:
        return jnp.square(self.width) * piece.variance_fraction(self.decay)

    def clip(self, lower: jax.Array, upper: jax.Array) -> Pieces:
        """Cut every piece to ``[lower, upper]``; the cost at a cut is where the line passes."""
        left, right = jnp.clip(self.left, lower, upper), jnp.clip(self.right, lower, upper)
        return self._replace(left=left, right=right, cost_left=self.cost_at(left), cost_right=self.cost_at(right))

    def cost_at(self, y: jax.Array) -> jax.Array:
        """The cost at ``y`` inside each piece; a piece of width 0 keeps its left cost."""
        width = jnp.where(self.width > 0, self.width, 1.0)
        at = jnp.where(y >= self.right, self.cost_right, self.cost_left)
        inside = self.cost_left + (self.cost_right - self.cost_left) * ((y - self.left) / width)
        return jnp.where((y > self.left) & (y < self.right), inside, at)


class Tail(NamedTuple):
    """An exponential tail beyond one end: where it starts, the log of its normalised mass, and its scale in y."""

    start: jax.Array
    log_mass: jax.Array
    scale: jax.Array

    @property
    def mass(self) -> jax.Array:
        return jnp.exp(self.log_mass)


class Masses(NamedTuple):
    """A law resolved: its pieces, their normalised masses, the tails if any, and the log-normaliser.

    The costs of ``pieces`` and the normaliser are counted from ``base`` (``batch_shape``), the smallest cost that has mass in the
    row: with ties it can be a level of many thousands, whose float32 product with the rate would be off by more than the masses
    it decides.
    """

    pieces: Pieces
    mass: jax.Array
    lower_tail: Tail | None
    upper_tail: Tail | None
    log_normalizer: jax.Array
    base: jax.Array


def lowest_cost(cost: jax.Array, width: jax.Array) -> jax.Array:
    """The smallest cost on the last axis among pieces of positive width, inf if there is none; constant under differentiation."""
    return jax.lax.stop_gradient(jnp.min(jnp.where(width > 0, cost, jnp.inf), axis=-1))


def pieces_of(law: PiecewiseExponential) -> Pieces:
    """Read a law's pieces; a law of tails only gets one piece of width 0."""
    rank = len(law.batch_shape) + 1
    edges, rate = align(law.edges, rank), align(law.rate, rank - 1)[..., None]
    cost_left, cost_right = align(law.cost_left, rank), align(law.cost_right, rank)
    if edges.shape[-1] == 1:
        edges = jnp.concatenate([edges, edges], axis=-1)
        cost_left = cost_right = jnp.zeros((1,) * rank, edges.dtype)
    return Pieces(edges[..., :-1], edges[..., 1:], cost_left, cost_right, rate)


def resolve(law: PiecewiseExponential) -> Masses:
    """Normalise a law."""
    pieces = pieces_of(law)
    shape = law.batch_shape
    rate = align(law.rate, len(shape))
    base = jnp.broadcast_to(lowest_cost(pieces.low_cost, pieces.width), shape)
    ends: list[tuple[jax.Array, jax.Array, jax.Array]] = []
    if law.tails is not None:
        for start, cost, scale in (
            (pieces.left[..., 0], law.tails.lower_cost, law.tails.lower_scale),
            (pieces.right[..., -1], law.tails.upper_cost, law.tails.upper_scale),
        ):
            cost, scale = align(cost, len(shape)), align(scale, len(shape)) / rate
            base = jnp.minimum(base, lowest_cost(cost[..., None], scale[..., None]))
            ends.append((start, cost, scale))
    base = jnp.where(jnp.isinf(base), 0.0, base)
    pieces = pieces._replace(cost_left=pieces.cost_left - base[..., None], cost_right=pieces.cost_right - base[..., None])
    log_mass = pieces.log_mass()
    log_masses = [jnp.broadcast_to(log_mass, (*shape, log_mass.shape[-1]))]
    log_tails = []
    for _, cost, scale in ends:
        there = ~(scale <= 0)
        log_scale = jnp.where(there, jnp.log(jnp.where(there, scale, 1.0)), -jnp.inf)
        log_tails.append(jnp.broadcast_to(log_scale - rate * (cost - base), shape))
        log_masses.append(log_tails[-1][..., None])
    log_normalizer = jax.nn.logsumexp(jnp.concatenate(log_masses, axis=-1), axis=-1)
    tails = [Tail(end[0], log_tail - log_normalizer, end[2]) for end, log_tail in zip(ends, log_tails, strict=True)]
    lower, upper = tails or (None, None)
    return Masses(pieces, jnp.exp(log_masses[0] - log_normalizer[..., None]), lower, upper, log_normalizer, base)


def locate(grid: jax.Array, y: jax.Array) -> jax.Array:
    """Return the interval of ``grid`` (``(*batch, k+1)``, ascending) that holds ``y`` (``(*sample, *batch)``): 0..k-1.

    Of the intervals that share an end, the one that starts there; at the very top the last of positive width.
    """
    batch = grid.shape[:-1]
    if y.size == 0:
        return jnp.zeros(y.shape, jnp.int32)
    rows, columns = grid.reshape(-1, grid.shape[-1]), y.reshape(-1, *batch).reshape(-1, _size(batch)).T
    search = jax.vmap(lambda row, points, side: jnp.searchsorted(row, points, side=side), in_axes=(0, 0, None))
    after = search(rows, columns, "right") - 1
    before = search(rows, columns, "left") - 1
    index = jnp.where(columns >= rows[:, -1:], before, after)
    return jnp.clip(index, 0, grid.shape[-1] - 2).T.reshape(y.shape).astype(jnp.int32)


def gather(array: jax.Array, index: jax.Array) -> jax.Array:
    """Pick ``array[..., index]``, for ``index`` of shape ``(*sample, *batch)`` and an array that broadcasts to ``(*batch, k)``."""
    array = align(array, index.ndim + 1)
    if array.shape[-1] == 1:  # shared by all pieces
        return array[..., 0]
    return jnp.take_along_axis(array, index[..., None], axis=-1)[..., 0]


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _at(masses: Masses, y: jax.Array) -> tuple[jax.Array, Pieces, jax.Array]:
    """The piece that holds each ``y``: its index, the piece itself, and the edges of the support."""
    shape = masses.mass.shape
    edges = jnp.concatenate([masses.pieces.left, masses.pieces.right[..., -1:]], axis=-1)
    edges = jnp.broadcast_to(edges, (*shape[:-1], edges.shape[-1]))
    index = locate(edges, y)
    return index, Pieces(*(gather(field, index) for field in masses.pieces)), edges


def _points(law: PiecewiseExponential, y: jax.Array) -> jax.Array:
    return jnp.broadcast_to(y, jnp.broadcast_shapes(y.shape, law.batch_shape))


def _tail_at(tail: Tail, ndim: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Start, mass and scale, aligned with points of this rank."""
    return align(tail.start, ndim), align(tail.mass, ndim), align(tail.scale, ndim)


@jax.jit
def log_normalizer(law: PiecewiseExponential) -> jax.Array:
    masses = resolve(law)
    return masses.log_normalizer - align(law.rate, masses.base.ndim) * masses.base


@jax.jit
def log_prob(law: PiecewiseExponential, y: jax.Array) -> jax.Array:
    masses, y = resolve(law), _points(law, y)
    _, here, edges = _at(masses, y)
    bottom, top = align(edges[..., 0], y.ndim), align(edges[..., -1], y.ndim)
    rate, normalizer = here.rate, align(masses.log_normalizer, y.ndim)
    inside = -rate * here.cost_at(jnp.clip(y, here.left, here.right)) - normalizer
    value = jnp.where((y >= bottom) & (y <= top) & (top > bottom), inside, -jnp.inf)
    for tail, distance in ((masses.lower_tail, bottom - y), (masses.upper_tail, y - top)):
        if tail is not None:
            scale = align(tail.scale, y.ndim)
            there = (distance >= 0) & (scale > 0)
            safe = jnp.where(there, scale, 1.0)
            log_density = jnp.where(there, align(tail.log_mass, y.ndim), 0.0) - jnp.log(safe) - distance / safe
            value = jnp.where((distance > 0) | (top <= bottom), jnp.where(there, log_density, value), value)
    return jnp.where(jnp.isnan(y) | jnp.isnan(normalizer), jnp.nan, value)


@jax.jit
def cdf(law: PiecewiseExponential, y: jax.Array) -> jax.Array:
    masses, y = resolve(law), _points(law, y)
    index, here, edges = _at(masses, y)
    bottom, top = align(edges[..., 0], y.ndim), align(edges[..., -1], y.ndim)
    below = gather(_cumulative(masses), index)
    width = jnp.where(here.width > 0, here.width, 1.0)
    from_left = jnp.clip((y - here.left) / width, 0.0, 1.0)
    from_right = jnp.clip((here.right - y) / width, 0.0, 1.0)
    up = piece.cdf_fraction(from_left, here.decay)
    down = jnp.exp(-here.decay * from_right) * piece.cdf_fraction(from_left, here.decay)  # as a product: a difference cancels
    value = below + gather(masses.mass, index) * jnp.where(here.ascending, up, down)
    value = jnp.where(y < bottom, 0.0, value)
    if masses.lower_tail is not None:
        scale, mass = align(masses.lower_tail.scale, y.ndim), align(masses.lower_tail.mass, y.ndim)
        distance = jnp.maximum(bottom - y, 0.0)
        value = jnp.where(
            y < bottom, jnp.where(scale > 0, mass * jnp.exp(-distance / jnp.where(scale > 0, scale, 1.0)), 0.0), value
        )
    if masses.upper_tail is not None:
        scale, mass = align(masses.upper_tail.scale, y.ndim), align(masses.upper_tail.mass, y.ndim)
        distance = jnp.maximum(y - top, 0.0)
        value = jnp.where(y > top, 1 - mass * jnp.exp(-distance / jnp.where(scale > 0, scale, 1.0)), value)
    else:
        value = jnp.where(y >= top, 1.0, value)
    normal = ~jnp.isnan(align(masses.log_normalizer, y.ndim))
    return jnp.where(jnp.isnan(y) | ~normal, jnp.nan, jnp.clip(value, 0.0, 1.0))


@jax.jit
def survival(law: PiecewiseExponential, y: jax.Array) -> jax.Array:
    return cdf(law.reflect(), -y)


def _cumulative(masses: Masses) -> jax.Array:
    """Mass below each edge, ``(*batch, m+1)``, which adds up to 1 with the upper tail whatever the rounding."""
    first = jnp.zeros_like(masses.mass[..., :1]) if masses.lower_tail is None else masses.lower_tail.mass[..., None]
    below = jnp.cumsum(jnp.concatenate([first, masses.mass], axis=-1), axis=-1)
    return below / (below[..., -1:] + (0.0 if masses.upper_tail is None else masses.upper_tail.mass[..., None]))


@jax.jit
def quantile(law: PiecewiseExponential, p: jax.Array) -> jax.Array:
    masses, p = resolve(law), _points(law, p)
    cumulative = _cumulative(masses)
    index = locate(cumulative, p)
    here = Pieces(*(gather(field, index) for field in masses.pieces))
    start, end = gather(cumulative, index), gather(cumulative, index + 1)
    mass = jnp.where(end > start, end - start, 1.0)
    below = jnp.clip((p - start) / mass, 0.0, 1.0)
    above = jnp.clip((end - p) / mass, 0.0, 1.0)
    up = here.left + here.width * piece.quantile_fraction(below, above, here.decay)
    down = here.right - here.width * piece.quantile_fraction(above, below, here.decay)
    value = jnp.clip(jnp.where(here.ascending, up, down), here.left, here.right)
    if masses.lower_tail is not None:
        start, mass, scale = _tail_at(masses.lower_tail, p.ndim)
        value = jnp.where(p < mass, start + scale * jnp.log(p / jnp.where(p < mass, mass, 1.0)), value)
    if masses.upper_tail is not None:
        start, mass, scale = _tail_at(masses.upper_tail, p.ndim)
        value = jnp.where(1 - p < mass, start - scale * jnp.log((1 - p) / jnp.where(1 - p < mass, mass, 1.0)), value)
    normal = ~jnp.isnan(align(masses.log_normalizer, p.ndim))
    return jnp.where((p >= 0) & (p <= 1) & normal, value, jnp.nan)


@jax.jit
def interval(law: PiecewiseExponential, level: jax.Array) -> tuple[jax.Array, jax.Array]:
    tail = (1 - level) / 2
    return quantile(law, tail), -quantile(law.reflect(), tail)  # each end by the tail it cuts off


@jax.jit
def mean(law: PiecewiseExponential) -> jax.Array:
    origin, offset = _mean(resolve(law))
    return origin + offset


def _mean(masses: Masses) -> tuple[jax.Array, jax.Array]:
    """The mean as an edge near the bulk and the distance from it."""
    heaviest = jnp.argmax(masses.mass, axis=-1).astype(jnp.int32)
    origin = gather(masses.pieces.left, heaviest)
    total = jnp.sum(masses.mass * masses.pieces.mean_from(origin[..., None]), axis=-1)
    for tail, sign in ((masses.lower_tail, -1), (masses.upper_tail, 1)):
        if tail is not None:
            total = total + tail.mass * ((tail.start - origin) + sign * tail.scale)
    return origin, total


@jax.jit
def variance(law: PiecewiseExponential) -> jax.Array:
    masses = resolve(law)
    origin, offset = _mean(masses)
    deviation = masses.pieces.mean_from(origin[..., None]) - offset[..., None]
    total = jnp.sum(masses.mass * (masses.pieces.variance() + jnp.square(deviation)), axis=-1)
    for tail, sign in ((masses.lower_tail, -1), (masses.upper_tail, 1)):
        if tail is not None:
            distance = (tail.start - origin) + sign * tail.scale - offset
            total = total + tail.mass * (jnp.square(tail.scale) + jnp.square(distance))
    return total


@jax.jit
def mean_abs_error(law: PiecewiseExponential, center: jax.Array) -> jax.Array:
    masses, center = resolve(law), _points(law, center)
    at, rank = center[..., None], center.ndim + 1
    pieces = Pieces(*(align(field, rank) for field in masses.pieces))
    normalizer = align(masses.log_normalizer, center.ndim)[..., None]
    infinity = jnp.asarray(jnp.inf, at.dtype)
    total = jnp.zeros_like(center)
    for part in (pieces.clip(at, infinity), pieces.clip(-infinity, at)):
        total = total + jnp.sum(jnp.exp(part.log_mass() - normalizer) * jnp.abs(part.mean_from(at)), axis=-1)
    for tail, sign in ((masses.lower_tail, -1), (masses.upper_tail, 1)):
        if tail is not None:
            start, mass, scale = _tail_at(tail, center.ndim)
            # E|T - d| for an exponential T of this scale and a centre that lies d inside the tail.
            depth = sign * (center - start)
            safe = jnp.where(scale > 0, scale, 1.0)
            inside = depth - scale + 2 * scale * jnp.exp(-jnp.maximum(depth, 0.0) / safe)
            total = total + mass * jnp.where(depth > 0, inside, scale - depth)
    return total


@jax.jit
def entropy(law: PiecewiseExponential) -> jax.Array:
    masses = resolve(law)
    pieces = masses.pieces
    log_height = -(pieces.rate * pieces.low_cost + pieces.decay * piece.mean_fraction(pieces.decay))
    total = jnp.sum(masses.mass * log_height, axis=-1)
    if law.tails is not None:
        rate = align(law.rate, len(law.batch_shape))
        for tail, cost in ((masses.lower_tail, law.tails.lower_cost), (masses.upper_tail, law.tails.upper_cost)):
            total = total - tail.mass * (rate * (align(cost, rate.ndim) - masses.base) + 1)  # type: ignore[union-attr]
    return masses.log_normalizer - total
