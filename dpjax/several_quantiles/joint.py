"""The joint distribution of several private quantiles: a mixture of chains over slots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from math import gcd, prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.batch import Batch
from dpjax.distributions.base import Shape, draws_shape
from dpjax.numerics.batching import by_chunks, some_rows, take
from dpjax.numerics.multiples import from_multiples, to_multiples
from dpjax.numerics.sums import LANES, pad
from dpjax.numerics.two_words import Words
from dpjax.random.keys import check_key, row_words
from dpjax.random.uniforms import uniform_from_words
from dpjax.several_quantiles.chain import (
    NOTHING,
    Chains,
    Noise,
    draw_runs,
    forward,
    log,
    run_masses,
    total,
)
from dpjax.several_quantiles.levels import Aims, after_first, level_parts
from dpjax.several_quantiles.marginals import QuantileMarginals, ends_of, slot_at, whole_width

# Numbers stored for the chains of a chunk of rows; more exceed the caches and are slower.
_MEMORY = 2**24


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class JointQuantiles(Batch):
    """The exact joint distribution of m private quantiles y_1 <= ... <= y_m of each row.

    The density of a tuple only depends on the ranks of its values. With d_k = r(y_k) - r(y_{k-1}),
    r(y_0) = 1, r(y_{m+1}) = n and p_k the difference of two levels, it is proportional to

        sum over N of exp(-rate * sum over k of |d_k - p_k N|) + 2 exp(-rate (reach + 1)) / (1 -
        exp(-rate))

    over the multiples N of a public spacing, ceil((2 reach + 1) / terms), that are at most
    ``reach`` away from n - 1. If ``terms`` is 1, there is only the term for N = ``number``. The p_k
    N are the steps between the ranks 1 + q_k N, rounded according to ``aims``. With a resolution,
    it is the probability of a tuple and a place in each value. Leading axes are a batch. It is a
    pytree.

    Attributes:
        left: the first point of each slot, ``(..., J)``. A slot is an interval without a record, of
            rank j + 1/2. With a resolution it is a range of multiples or a part of one, of rank (j
            + 1) / 2, and points are counted in multiples.
        width: the widths of the slots, or their numbers of multiples, ``(..., J)``: integers, or
            less than 1.
        num_records: n, int32 ``(...)``.
        rate: float ``(...)``.
        reach: int32 ``(...)``.
        number: int32 ``(...)``.
        levels: static, the m quantile levels.
        terms: static, the number of terms N.
        aims: static, the ranks of the quantiles: ``"ranks"`` 1 + q N, ``"slots"`` floor(1 + q N) +
            1/2, or ``"records"`` ceil(q (N + 1)).
        resolution: static, the number of which draws are multiples, or None.

    References:
        Gillenwater, Joseph and Kulesza (2021), "Differentially private quantiles": one term.

    >>> import jax.numpy as jnp
    >>> from dpjax import joint_quantiles, quantiles
    >>> asked = quantiles(jnp.arange(100.0), [0.25, 0.75], lower=0, upper=100, neighbors="swap")
    >>> joint_quantiles(asked, 1.0).event_shape
    (2,)
    """

    left: jax.Array
    width: jax.Array
    num_records: jax.Array
    rate: jax.Array
    reach: jax.Array
    number: jax.Array
    levels: tuple[Fraction, ...] = field(kw_only=True, metadata={"static": True})
    terms: int = field(kw_only=True, metadata={"static": True})
    aims: Aims = field(default="ranks", kw_only=True, metadata={"static": True})
    resolution: Fraction | None = field(default=None, kw_only=True, metadata={"static": True})

    _event_axes = ("left", "width")
    _parameters = ("rate",)

    @property
    def event_shape(self) -> tuple[int]:
        """The shape of one draw, ``(m,)``."""
        return (len(self.levels),)

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The smallest and largest possible value of a quantile, of shape ``batch_shape`` each."""
        low, high = (
            jnp.broadcast_to(end, self.batch_shape)
            for end in ends_of(self.left, self.width, self.resolution)
        )
        return low, high

    def sample(self, key: jax.Array, shape: Shape = ()) -> jax.Array:
        """Draw tuples; under jit, the draws of a row do not change when rows are added.

        Args:
            key: a scalar typed threefry key.
            shape: the shape of the draws from each row, an integer or a sequence of integers.

        Returns:
            Float of shape ``shape + batch_shape + (m,)``, ascending on the last axis; NaN for a row
            with invalid parameters.

        Raises:
            TypeError: ``key`` is not a typed key.
            ValueError: ``key`` is a typed key, but not a scalar threefry key.
        """
        return self._sample(check_key(key), draws_shape(shape))

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
        draws, _ = _draw(key, self, prod(shape), first)
        return jnp.moveaxis(draws, -2, 0).reshape(*shape, *self.batch_shape, *self.event_shape)

    def sample_ranked(self, key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        """Draw tuples, and the number of records up to each place, int32 of that shape.

        With a resolution these numbers are private: a place is a part of a multiple, which is not
        released.
        """
        draws = _draw(key, self, prod(shape), 0, ranked=True)
        points, ranks = (
            jnp.moveaxis(a, -2, 0).reshape(*shape, *self.batch_shape, *self.event_shape)
            for a in draws
        )
        return points, ranks

    def log_prob_ranked(self, y: jax.Array, ranks: jax.Array) -> jax.Array:
        """Return the log-probability of tuples and of the numbers of records up to their places.

        ``ranks`` are integers ``(..., m)``; see :meth:`log_prob` and :meth:`sample_ranked`.
        """
        return _log_prob(self, y, ranks)

    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return the log-density, or log-probability with a resolution, of tuples ``(..., m)``.

        It is -inf where they do not ascend.

        Returns:
            Float of the shape that the leading axes of ``y`` and ``batch_shape`` broadcast to.
        """
        points = checks.float_array("y", y).astype(self.dtype)
        if points.shape[-1:] != self.event_shape:
            raise ValueError(
                f"y must have a last axis of size {self.event_shape[0]} (quantiles), got shape "
                f"{points.shape}."
            )
        return _log_prob(self, points, None)

    def marginals(self) -> QuantileMarginals:
        """Return the marginal distributions, of batch shape ``batch_shape + (m,)``."""
        mass, flat = _masses(self)
        batch = self.batch_shape
        left, width = (jnp.broadcast_to(a, (*batch, a.shape[-1])) for a in (self.left, self.width))
        return QuantileMarginals(
            left, width, mass, flat, size=len(self.levels), resolution=self.resolution
        )

    def log_normalizer(self) -> jax.Array:
        """Return the logarithm of the normalizer of :meth:`log_prob`, of shape ``batch_shape``."""
        return _log_normalizer(self)

    @property
    def per_rank(self) -> int:
        """The number of slots between the ranks of two successive records."""
        return 1 if self.resolution is None else 2

    @property
    def unit(self) -> int:
        """The least distance of two values: 0 on the real line, 1 on a grid."""
        return self.per_rank - 1


def _by_rows(joint: JointQuantiles, compute: Callable[..., Any], *arrays: jax.Array) -> Any:
    """Apply ``compute(rows, *arrays)`` to chunks of rows: fields and arrays are ``(B, k)`` there.

    Results are ``(B, ...)``. Slots are padded to a whole number of vectors, and so are the terms of
    all rows of a chunk together: otherwise exponentials in a remainder loop would be rounded
    differently, and draws would depend on the number of rows. The arrays are not padded; results of
    padding are dropped.
    """
    batch, width = joint.batch_shape, pad(joint.width)
    left = jnp.pad(
        joint.left,
        [(0, 0)] * (joint.left.ndim - 1) + [(0, width.shape[-1] - joint.width.shape[-1])],
        "edge",
    )
    others = {
        name: getattr(joint, name)[..., None] for name in ("num_records", "rate", "reach", "number")
    }
    spread = replace(joint, left=left, width=width, **others)
    rows, kept = prod(batch), 4 * width.shape[-1] * joint.terms * len(joint.levels)
    lanes = LANES // gcd(LANES, joint.terms)  # this many rows fill whole vectors
    size = min(max(_MEMORY // kept // lanes, 1) * lanes, rows)

    def some(start: Any, size: int) -> Any:
        more = -size % lanes

        def padded(a: jax.Array) -> jax.Array:
            return jnp.pad(jnp.broadcast_to(a, (size, a.shape[-1])), ((0, more), (0, 0)), "edge")

        chunk, chunk_arrays = some_rows((spread, arrays), batch, start, size)
        return jax.tree.map(lambda a: a[:size], compute(jax.tree.map(padded, chunk), *chunk_arrays))

    found = by_chunks(some, rows, size)
    return jax.tree.map(lambda a: a.reshape(*batch, *a.shape[1:]), found)


def _numbers(joint: JointQuantiles) -> tuple[jax.Array, jax.Array]:
    """Return the terms N, int32 ``(B, T)``, and which of them are within reach."""
    if joint.terms == 1:
        return joint.number, jnp.ones(joint.number.shape, bool)
    middle = joint.num_records - 1
    spacing = (2 * joint.reach + joint.terms) // np.int32(joint.terms)
    first = -((joint.reach - middle) // spacing) * spacing
    number = first + spacing * jnp.arange(joint.terms, dtype=jnp.int32)
    return number, number <= middle + joint.reach


def _chains(joint: JointQuantiles, slot: Any = None) -> Chains:
    """Return the chains of some rows, with the start and end weights of slots, or of ``slot``."""
    (number, exists), (parts, common) = _numbers(joint), level_parts(joint.levels)
    denominator, each_part = np.int32(common), np.array(parts, np.int32)[:, None, None]
    # Ranks and steps are in units of 1 / (2 denominator) of a slot.
    ranks = jnp.concatenate(
        [
            jnp.zeros_like(number)[None],
            after_first(each_part, denominator, number, joint.aims),
            2 * denominator * number[None],
        ]
    )
    steps = (ranks[1:] - ranks[:-1]) * np.int32(joint.per_rank)
    j = jnp.arange(joint.width.shape[-1], dtype=jnp.int32)[:, None, None] if slot is None else slot
    rate, each, half = (
        joint.rate / joint.per_rank,
        2 * denominator,
        denominator * np.int32(joint.per_rank),
    )

    def floats(scaled: jax.Array) -> jax.Array:  # a distance in slots
        return scaled.astype(rate.dtype) / each.astype(rate.dtype)

    ends = j * each - half - steps[0], 2 * half * joint.num_records - half - j * each - steps[-1]
    start, end = (jnp.where(exists, -rate * floats(jnp.abs(scaled)), NOTHING) for scaled in ends)
    step = steps[1:-1] // each
    part = floats(steps[1:-1] - step * each)
    return Chains(
        jnp.moveaxis(joint.width, -1, 0)[..., None], start, end, step, part, rate, joint.unit
    )


def _log_flat(joint: JointQuantiles) -> jax.Array:
    """Return the logarithm of the flat term."""
    return -joint.rate * (joint.reach + 1).astype(joint.dtype) + jnp.log(
        -2 / jnp.expm1(-joint.rate)
    )


def _log_weights(joint: JointQuantiles, chains: Chains, after: jax.Array) -> jax.Array:
    """Return the log weights of all terms, followed by that of the flat term, ``(B, T + 1)``."""
    weights, width = total(chains, after), whole_width(joint.left, joint.width)
    if joint.terms == 1:
        return jnp.concatenate([weights, jnp.full_like(weights, NOTHING)], axis=-1)
    k = np.arange(len(joint.levels)).astype(width.dtype)
    flat = _log_flat(joint) + jnp.sum(
        jnp.log((width + k * joint.unit) / (k + 1)), axis=-1, keepdims=True
    )
    return jnp.concatenate([weights, flat], axis=-1)


def _weighted(joint: JointQuantiles) -> tuple[Chains, jax.Array, jax.Array, jax.Array]:
    """Return the chains of some rows, the results of :func:`forward`, and all log weights."""
    chains = _chains(joint)
    before, after = forward(chains)
    return chains, before, after, _log_weights(joint, chains, after)


def _is_bad(joint: JointQuantiles) -> jax.Array:
    """Return True for rows with a NaN parameter or bound."""
    return jnp.isnan(joint.rate + whole_width(joint.left, joint.width)[..., 0])


@partial(jax.jit, static_argnames=("draws", "ranked"))
def _draw(
    key: jax.Array, joint: JointQuantiles, draws: int, first: ArrayLike, ranked: bool = False
) -> tuple[jax.Array, jax.Array | None]:
    """Draw tuples ``(*batch, draws, m)``, and if ``ranked`` the ranks of their places."""
    batch, m = joint.batch_shape, len(joint.levels)
    if draws == 0 or prod(batch) == 0:
        none = jnp.zeros((*batch, draws, m), joint.dtype)
        return none, none.astype(jnp.int32) if ranked else None
    keys = row_words(key, batch, first)

    def compute(rows: JointQuantiles, high: jax.Array, low: jax.Array) -> Any:
        chains, before, after, weights = _weighted(rows)
        # Draws use whole vectors of slots, so padded rows are no longer needed.
        size = high.shape[0]
        rows, chains, weights = (
            jax.tree.map(lambda a: a[:size], rows),
            chains.rows(size),
            weights[:size],
        )
        before, after = before[..., :size, :], after[..., :size, :]
        size = max(_MEMORY // (8 * rows.width.size), 1)

        def some(start: Any, size: int) -> tuple[jax.Array, jax.Array | None]:
            number = jnp.asarray(start, jnp.uint32) + jnp.arange(size, dtype=jnp.uint32)
            noise = Noise(Words(high, low), number, m + 2, rows.dtype)
            points, slot = _values(rows, chains, before, after, weights, noise)
            ranks = (slot + rows.unit) // rows.per_rank if ranked else None
            return jax.tree.map(lambda a: jnp.moveaxis(a, 1, 0), (points, ranks))

        return jax.tree.map(lambda a: jnp.moveaxis(a, 0, 1), by_chunks(some, draws, size))

    found, ranks = _by_rows(joint, compute, keys.high[..., None], keys.low[..., None])
    found = found if joint.resolution is None else from_multiples(found, joint.resolution)
    return jnp.where(_is_bad(joint)[..., None, None], jnp.nan, found), ranks


def _values(
    joint: JointQuantiles,
    chains: Chains,
    before: jax.Array,
    after: jax.Array,
    weights: jax.Array,
    noise: Noise,
) -> tuple[jax.Array, jax.Array]:
    """Return tuples ``(B, D, m)`` and their slots."""
    m = len(joint.levels)
    term, slot, first = draw_runs(chains, before, after, weights, noise)
    flat = term == joint.terms
    # All quantiles of the flat term are one run, in one slot as wide as the range.
    lowest, total = joint.left[..., :1], whole_width(joint.left, joint.width)
    first = jnp.where(flat, 0, first)

    def at_slot(array: jax.Array, whole: jax.Array) -> jax.Array:
        return jnp.where(flat, whole, jax.vmap(lambda slot: take(array, slot))(slot))

    left, width = at_slot(joint.left, lowest), at_slot(joint.width, total)
    words = Words(*(jnp.moveaxis(a, -1, 0) for a in noise.words(jnp.int32(m + 1), 0, m)))
    uniform = uniform_from_words(words, width.dtype).value
    # Sorting also sorts the places of a run.
    place = width * uniform if joint.resolution is None else _on_grid(width, first, uniform)
    points = jnp.clip(left + place, lowest, lowest + total - joint.unit)
    return jnp.moveaxis(jnp.sort(points, axis=0), 0, -1), jnp.moveaxis(slot, 0, -1)


def _on_grid(width: jax.Array, first: jax.Array, uniform: jax.Array) -> jax.Array:
    """Draw cells by Polya's urn: a new cell, or that of an earlier quantile of the run.

    So all multisets are equally likely.
    """
    m = width.shape[0]
    before = jnp.arange(m, dtype=jnp.int32)[:, None, None] - first
    earlier = before.astype(width.dtype)
    # One of the cells, or beyond them one of the earlier quantiles. A part of a multiple, which has
    # less weight than an earlier quantile, is the cell 0.
    ball = uniform * (width + earlier)
    along = jnp.where(width < 1, ball, jnp.floor(ball)) - width
    # The index of the copied quantile.
    again = jnp.where(along >= 0, first + jnp.minimum(along, earlier - 1).astype(jnp.int32), -1)
    again = jnp.where(before > 0, again, -1)

    def copy(k: Any, place: jax.Array) -> jax.Array:
        copied = jnp.take_along_axis(place, jnp.maximum(again[k], 0)[None], axis=0)[0]
        return place.at[k].set(jnp.where(again[k] < 0, place[k], copied))

    return jax.lax.fori_loop(1, m, copy, jnp.where(width < 1, 0.0, jnp.floor(ball)))


@jax.jit
def _log_normalizer(joint: JointQuantiles) -> jax.Array:
    found = _by_rows(joint, lambda rows: jax.nn.logsumexp(_weighted(rows)[-1], axis=-1))
    return jnp.where(_is_bad(joint), jnp.nan, found)


@jax.jit
def _masses(joint: JointQuantiles) -> tuple[jax.Array, jax.Array]:
    """Return the probabilities of all runs in all slots, and of the flat term."""

    def compute(rows: JointQuantiles) -> tuple[jax.Array, jax.Array]:
        chains, before, _, weights = _weighted(rows)
        total = jax.nn.logsumexp(weights, axis=-1)
        return jnp.moveaxis(run_masses(chains, before, total), -1, 0), jnp.exp(
            weights[:, -1] - total
        )

    bad = _is_bad(joint)
    mass, flat = _by_rows(joint, compute)
    mass = mass[..., : joint.width.shape[-1]]
    return jnp.where(bad[..., None, None], jnp.nan, mass), jnp.where(bad, jnp.nan, flat)


@jax.jit
def _log_prob(joint: JointQuantiles, y: jax.Array, ranks: jax.Array | None) -> jax.Array:
    batch, resolution, near = (
        jnp.broadcast_shapes(
            joint.batch_shape, y.shape[:-1], () if ranks is None else ranks.shape[:-1]
        ),
        joint.resolution,
        jnp.bool_(True),
    )
    y = point = jnp.broadcast_to(y, (*batch, y.shape[-1]))
    if resolution is not None:
        point = to_multiples(y, resolution)
        value = from_multiples(point, resolution)
        near = jnp.all(
            jnp.abs(value - y) <= 8 * float(jnp.finfo(joint.dtype).eps) * jnp.abs(value), axis=-1
        )

    def compute(rows: JointQuantiles, point: jax.Array, *own: jax.Array) -> jax.Array:
        point, *given = (
            jnp.pad(a, ((0, rows.width.shape[0] - a.shape[0]), (0, 0)), "edge")
            for a in (point, *own)
        )
        if resolution is None:
            weights = _log_weights_along(rows, point)
        else:  # all places in the multiples of a tuple, by chains restricted to them
            chains = _chains(rows)
            weights = total(chains, forward(chains, _volumes_at(rows, point, *given))[1])
        if joint.terms > 1:  # the flat term has equal weights for all multisets
            weights = jnp.concatenate([weights, _log_flat(rows)], axis=-1)
        return jax.nn.logsumexp(weights, axis=-1)

    numbers = () if ranks is None else (jnp.broadcast_to(ranks, point.shape),)
    weight = _by_rows(
        replace(joint, rate=jnp.broadcast_to(joint.rate, batch)), compute, point, *numbers
    )
    found = jnp.where(_ascends(joint, point) & near, weight - joint.log_normalizer(), -jnp.inf)
    return jnp.where(jnp.any(jnp.isnan(y), axis=-1) | _is_bad(joint), jnp.nan, found)


def _log_weights_along(joint: JointQuantiles, y: jax.Array) -> jax.Array:
    """Return the log weights of a tuple ``(B, m)`` on the real line in all terms."""
    slot = jnp.maximum(slot_at(joint.left, joint.width, y), 0).T[..., None]
    chains = _chains(joint, slot)
    steps = jnp.abs((slot[1:] - slot[:-1] - chains.step).astype(joint.dtype) - chains.part)
    return chains.start[0] - chains.rate * jnp.sum(steps, axis=0) + chains.end[-1]


def _volumes_at(
    joint: JointQuantiles, number: jax.Array, ranks: jax.Array | None = None
) -> jax.Array:
    """Return the log volumes of runs in each slot at the multiples ``(B, m)`` only.

    The result is ``(m, m, J, B, 1)``, by last and first quantile. With ``ranks`` ``(B, m)``, only
    slots with these numbers of records up to their places count.
    """
    m = number.shape[-1]
    y, left, width = jnp.moveaxis(number, -1, 0)[:, None], joint.left.T, joint.width.T
    # (m, J, B).
    part = jnp.where((left <= y) & (y < left + jnp.ceil(width)), jnp.minimum(width, 1.0), 0.0)
    if ranks is not None:
        slot = (jnp.arange(left.shape[0], dtype=jnp.int32) + joint.unit) // joint.per_rank
        part = jnp.where(slot[:, None] == jnp.moveaxis(ranks, -1, 0)[:, None], part, 0.0)
    level = np.arange(m, dtype=np.int32)
    earlier = (level[:, None, None, None] < level[:, None, None]) & (y[:, None] == y)
    # Quantiles of a run before a quantile, by its first one.
    longest = np.maximum(level - level[:, None], 0)[..., None, None]
    before = jnp.minimum(jnp.sum(earlier, axis=0, dtype=jnp.int32), longest).astype(part.dtype)
    inside = (level[:, None] <= level)[..., None, None]
    grown = jnp.where(part > 0, log((part + before) / (before + 1)), NOTHING)
    runs = jnp.cumsum(jnp.where(inside, grown, 0.0), axis=1)
    return jnp.where(inside, runs, NOTHING).swapaxes(0, 1)[..., None]


def _ascends(joint: JointQuantiles, point: jax.Array) -> jax.Array:
    """Return True where tuples ascend between the bounds."""
    lowest = joint.left[..., :1]
    inside = (point >= lowest) & (
        point <= lowest + whole_width(joint.left, joint.width) - joint.unit
    )
    return jnp.all(inside, axis=-1) & jnp.all(point[..., 1:] >= point[..., :-1], axis=-1)
