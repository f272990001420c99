"""The marginal distributions of several private quantiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.distributions.base import Distribution, compiled
from dpjax.numerics.batching import take
from dpjax.numerics.bisection import bisect
from dpjax.numerics.multiples import from_multiples, to_multiples

_STEPS = {32: 64, 64: 100}  # bisection steps, by the number of bits of a float


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class QuantileMarginals(Distribution):
    """The distribution of y_k, for each of the m quantiles of a :class:`JointQuantiles`.

    The quantiles are the last batch axis. It mixes two kinds of parts: a run, in which exactly the
    quantiles l <= k < l + c (counted from 0) are in one slot, and, for the flat term, all of them
    in the whole range. Of c values in a slot of width w, all tuples y_1 <= ... <= y_c are equally
    likely. So the number b of those within the first r has the probability

        C(c, b) r (r + u) ... (r + (b-1) u) * (w - r) ... (w - r + (c-b-1) u) / (w (w + u) ... (w +
        (c-1) u)),

    binomial on the real line (u = 0), and Polya's distribution on a grid of w points (u = 1). All
    methods are closed forms except ``quantile`` and ``interval``, which use bisection.

    Attributes:
        left: the first point of each slot, ``(..., J)``, as in :class:`JointQuantiles`.
        width: their widths, ``(..., J)``.
        mass: the probability of each run in each slot, ``(..., m (m + 1) / 2, J)``, in the order of
            :func:`runs`.
        flat: the probability of the flat term, ``(...)``.
        size: static, the number m of quantiles.
        resolution: static, the number of which values are multiples, or None.

    >>> import jax.numpy as jnp
    >>> from dpjax import joint_quantiles, quantiles
    >>> asked = quantiles(jnp.arange(100.0), [0.25, 0.75], lower=0, upper=100, neighbors="swap")
    >>> joint_quantiles(asked, 1.0).marginals().batch_shape
    (2,)
    """

    left: jax.Array
    width: jax.Array
    mass: jax.Array
    flat: jax.Array
    size: int = field(kw_only=True, metadata={"static": True})
    resolution: Fraction | None = field(kw_only=True, metadata={"static": True})

    _event_axes = ("left", "width", "mass", "mass")

    @property
    def _row_shape(self) -> tuple[int, ...]:
        """The batch shape without the quantiles, which stay together."""
        return self.mass.shape[:-2]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The batch shape of the joint distribution, followed by m."""
        return (*self.mass.shape[:-2], self.size)

    @property
    def dtype(self) -> Any:
        """The dtype of every result."""
        return self.mass.dtype

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The smallest and the largest value of the slots, of shape ``batch_shape`` each."""
        low, high = (
            jnp.broadcast_to(end[..., None], self.batch_shape)
            for end in ends_of(self.left, self.width, self.resolution)
        )
        return low, high

    @compiled
    def cdf(self, y: ArrayLike) -> jax.Array:
        """Return P(y_k <= y), for ``y`` that broadcasts against ``batch_shape``."""
        return self._cdf(self._place(jnp.asarray(y)))

    @compiled
    def quantile(self, p: ArrayLike) -> jax.Array:
        """Return the least value with ``cdf(value) >= p``, up to rounding; NaN outside [0, 1]."""
        p = jnp.asarray(p)
        shape = jnp.broadcast_shapes(p.shape, self.batch_shape)
        target, lowest = jnp.broadcast_to(p, shape), self.left[..., :1]
        low = jnp.broadcast_to(lowest, shape)
        high = jnp.broadcast_to(lowest + whole_width(self.left, self.width), shape)
        if self.resolution is None:
            found = bisect(
                lambda y: self._cdf(y) < target, low, high, _STEPS[jnp.finfo(self.dtype).bits]
            )[1]
        else:  # between integers: below all of them the cdf is 0
            steps = jnp.finfo(self.dtype).nmant + 2
            found = jnp.floor(bisect(lambda y: self._cdf(y) < target, low - 1, high - 1, steps)[1])
        return jnp.where((target >= 0) & (target <= 1), self._value(found), jnp.nan)

    @compiled
    def mean(self) -> jax.Array:
        """Return the mean, E[y_k], of shape ``batch_shape``."""
        return self._value(self._mean())

    @compiled
    def variance(self) -> jax.Array:
        """Return the variance, E[(y_k - E[y_k])^2], of shape ``batch_shape``."""
        origin = jax.lax.stop_gradient(self._mean())
        square, offset = (
            sum(jnp.sum(of(part, origin), axis=-1) for part in self._parts())
            for of in (_Part.squares, _Part.offsets)
        )
        scale = 1.0 if self.resolution is None else float(self.resolution)
        return jnp.maximum(square - offset**2, 0.0) * scale**2

    @compiled
    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|y_k - center|, the exact error of a draw."""
        at = self._place(jnp.asarray(center))
        at = jnp.broadcast_to(at, jnp.broadcast_shapes(at.shape, self.batch_shape))
        counted = at if self.resolution is None else jnp.floor(at)
        total: Any = 0.0
        for part in self._parts():
            here = part.locate(counted)
            offsets = part.offsets(at)
            sign = jnp.sign(np.arange(offsets.shape[-1], dtype=np.int32) - here.slot[..., None])
            total = (
                total
                + jnp.sum(sign.astype(self.dtype) * offsets, axis=-1)
                + part.inside(here, at - counted)
            )
        return self._value(total)

    def _mean(self) -> jax.Array:
        found: Any = sum(
            jnp.sum(part.offsets(jnp.zeros((1,), self.dtype)), axis=-1) for part in self._parts()
        )
        return found

    def _parts(self) -> list[_Part]:
        """Return the slots, and the range as one slot with the flat term's run of all quantiles."""
        everything = np.array([run == (0, self.size) for run in runs(self.size)])
        flat = jnp.where(everything, self.flat[..., None], 0.0)[..., None]
        total_width = whole_width(self.left, self.width)
        unit = 0 if self.resolution is None else 1
        # All quantiles in a part of a multiple have its value, as those in the whole multiple.
        width = jnp.where(self.width > 0, jnp.maximum(self.width, unit), 0.0)
        return [
            _Part(self.left, width, self.mass, self.size, unit),
            _Part(self.left[..., :1], total_width, flat, self.size, unit),
        ]

    def _value(self, number: Any) -> jax.Array:
        return number if self.resolution is None else from_multiples(number, self.resolution)

    def _place(self, y: jax.Array) -> jax.Array:
        """Return a value in multiples, an integer where it is one up to rounding."""
        if self.resolution is None:
            return y
        near = to_multiples(y, self.resolution)
        value = from_multiples(near, self.resolution)
        exact = jnp.abs(y - value) <= 8 * float(jnp.finfo(self.dtype).eps) * jnp.abs(value)
        return jnp.where(exact, near, y * (self.resolution.denominator / self.resolution.numerator))

    def _cdf(self, points: jax.Array) -> jax.Array:
        points = jnp.broadcast_to(points, jnp.broadcast_shapes(points.shape, self.batch_shape))
        counted = points if self.resolution is None else jnp.floor(points)
        total: Any = 0.0
        for part in self._parts():
            here = part.locate(counted)
            below = np.arange(part.width.shape[-1], dtype=np.int32) < here.slot[..., None]
            total = (
                total
                + jnp.sum(jnp.where(below, part.there(), 0.0), axis=-1)
                + jnp.sum(here.mass * here.share(0), axis=-1)
            )
        return jnp.where(jnp.isnan(points), jnp.nan, jnp.clip(total, 0.0, 1.0))


class _Here(NamedTuple):
    """The slot at a place, for each quantile ``(..., m)``."""

    slot: jax.Array
    offset: jax.Array  # distance of the place from the first point of the slot
    near: jax.Array  # length of the slot up to the place
    width: jax.Array
    mass: jax.Array  # (..., m, runs)
    size: int
    unit: int

    def share(self, more: int) -> jax.Array:
        """Return P(y_k within ``near``) in each run with ``more`` values added below y_k.

        The result is ``(..., m, runs)``.
        """
        most, index = self.size + 1, _order(self.size)
        column = np.where(
            index.there > 0, (index.runs + more - 1) * (most + 1) + index.order + more, 0
        ).astype(np.int32)
        table = _within(self.near, self.width, self.unit, most)
        found = jnp.take_along_axis(
            table, jnp.broadcast_to(column, (*self.near.shape, column.shape[-1])), axis=-1
        )
        return jnp.where(index.there > 0, found, 0.0)


class _Part(NamedTuple):
    """Adjacent slots, ``(..., J)``, and the masses of all runs in them, ``(..., runs, J)``."""

    left: jax.Array
    width: jax.Array
    mass: jax.Array
    size: int
    unit: int

    def _sum(self, table: np.ndarray) -> jax.Array:
        """Sum over runs, ``(..., m, J)``."""
        return jnp.einsum(
            "kr,...rj->...kj",
            jnp.asarray(table, self.mass.dtype),
            self.mass,
            precision=jax.lax.Precision.HIGHEST,
        )

    def there(self) -> jax.Array:
        """Return P(y_k in the slot)."""
        return self._sum(_order(self.size).there)

    def offsets(self, origin: jax.Array) -> jax.Array:
        """Return E[y_k - origin; y_k in the slot], for an origin ``(..., m)``."""
        near = self.left[..., None, :] - origin[..., None]
        return (
            self.there() * near
            + self._sum(_order(self.size).mean) * (self.width - self.unit)[..., None, :]
        )

    def squares(self, origin: jax.Array) -> jax.Array:
        """Return E[(y_k - origin)^2; y_k in the slot]."""
        index, wide, near = (
            _order(self.size),
            (self.width - self.unit)[..., None, :],
            self.left[..., None, :] - origin[..., None],
        )
        inside = self._sum(index.square) * wide**2 + self._sum(index.spread) * wide * self.unit
        return self.there() * near**2 + 2 * near * wide * self._sum(index.mean) + inside

    def locate(self, point: jax.Array) -> _Here:
        """Return the slot at a point ``(..., m)``: the last of positive width that begins up to it.

        If there is none, it is the first slot.
        """
        left, width = (
            jnp.broadcast_to(a[..., None, :], (*point.shape, a.shape[-1]))
            for a in (self.left, self.width)
        )
        slot = jnp.maximum(slot_at(self.left, self.width, point), 0)
        wide, first = take(width, slot[..., None])[..., 0], take(left, slot[..., None])[..., 0]
        near = jnp.clip(point - first + self.unit, 0.0, wide)
        mass = jnp.broadcast_to(self.mass[..., None, :, :], (*point.shape, *self.mass.shape[-2:]))
        mass = jnp.take_along_axis(mass, slot[..., None, None], axis=-1)[..., 0]
        return _Here(slot, point - first, near, wide, mass, self.size, self.unit)

    def inside(self, here: _Here, rest: jax.Array) -> jax.Array:
        """Return E[|y_k - at|; y_k in the slot], for a point ``rest`` above that of ``here``.

        The mean of the a-th of c values, restricted to values up to a point, is a (w + c u) / (c +
        1) times the probability that the (a+1)-th of c + 1 is, minus a u times its own.
        """
        index, wide = (
            _Order(*(table.astype(self.mass.dtype) for table in _order(self.size))),
            here.width[..., None],
        )
        share = here.share(0)
        mean = index.order * (
            (wide + index.runs * self.unit) / (index.runs + 1) * here.share(1) - self.unit * share
        )
        at = (here.offset + rest)[..., None]
        mean_all = index.mean * (wide - self.unit)
        return jnp.sum(here.mass * index.there * (mean_all - at + 2 * (at * share - mean)), axis=-1)


class _Order(NamedTuple):
    """Tables for the k-th quantile and each run ``(m, runs)``: membership, and order statistics.

    Attributes:
        there: 1 if the quantile is in the run, else 0.
        order: a, if the quantile is the a-th of the run.
        runs: c, the number of quantiles of the run.
        mean: the mean of its place in the slot, as a fraction of the width.
        square: its second moment, likewise.
        spread: the factor of the width times the unit in the second moment.
    """

    there: np.ndarray
    order: np.ndarray
    runs: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    spread: np.ndarray


@lru_cache(maxsize=32)
def _order(m: int) -> _Order:
    first, c = (np.array(column, float) for column in zip(*runs(m), strict=True))
    a = np.arange(1.0, m + 1)[:, None] - first
    there = ((a >= 1) & (a <= c)).astype(float)
    a, mean = a * there, a * there / (c + 1)
    spread = a * (c - a + 1) / ((c + 1) * (c + 2))
    return _Order(
        there, a, np.broadcast_to(c, a.shape), mean, there * (mean**2 + spread / (c + 1)), spread
    )


def _within(near: jax.Array, width: jax.Array, unit: int, most: int) -> jax.Array:
    """Return P(a-th of c values within ``near``), for c = 1, ..., ``most``, a = 0, ..., ``most``.

    The result is ``(..., most (most + 1))``, by Polya's urn: after c values, b of them within, the
    next one is within with probability (near + b u) / (width + c u).
    """
    near, wide, b = (
        near[..., None],
        jnp.where(width > 0, width, 1.0)[..., None],
        np.arange(most + 1).astype(near.dtype),
    )

    def draw(chance: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array]:
        within, beyond = chance * (near + b * unit), chance * (wide - near + (c - b) * unit)
        chance = (jnp.roll(within, 1, axis=-1) + beyond) / (wide + c * unit)
        return chance, jax.lax.cumsum(chance, axis=chance.ndim - 1, reverse=True)

    none = jnp.broadcast_to((b == 0).astype(b.dtype), (*near.shape[:-1], most + 1))
    found = jnp.moveaxis(jax.lax.scan(draw, none, jnp.asarray(b[:-1]))[1], 0, -2)
    return found.reshape(*none.shape[:-1], -1)


def slot_at(left: jax.Array, width: jax.Array, point: jax.Array) -> jax.Array:
    """Return the last slot of positive width that begins up to each point ``(..., m)``, or -1."""
    begun = (left[..., None, :] <= point[..., None]) & (width[..., None, :] > 0)
    return jnp.max(jnp.where(begun, jnp.arange(left.shape[-1], dtype=jnp.int32), -1), axis=-1)


def whole_width(left: jax.Array, width: jax.Array) -> jax.Array:
    """Return the length of all slots together, ``(..., 1)``; a sum of widths would be rounded."""
    return jnp.max(left + width, axis=-1, keepdims=True) - left[..., :1]


def ends_of(
    left: jax.Array, width: jax.Array, resolution: Fraction | None
) -> tuple[jax.Array, jax.Array]:
    """Return the smallest and the largest value of all slots, ``(...)`` each."""
    low = left[..., 0]
    high = low + whole_width(left, width)[..., 0]
    return (
        (low, high)
        if resolution is None
        else (from_multiples(low, resolution), from_multiples(high - 1, resolution))
    )


def runs(m: int) -> list[tuple[int, int]]:
    """Return all runs (l, c) of m quantiles: c quantiles that follow l others.

    >>> runs(2)
    [(0, 1), (0, 2), (1, 1)]
    """
    return [(first, last - first) for first, last in combinations(range(m + 1), 2)]
