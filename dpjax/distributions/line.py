"""Densities on the real line, exp(-rate * cost(y)) / Z, as the sampler and closed forms use them.

The cost is linear on the pieces between ascending edges. The mass of a piece is width * exp(-rate *
lowest cost) * phi0(decay). Costs are usually the same for all rows, so heights are computed once
for each piece, in float64, as a mantissa times a power of two. Weights are relative to the heaviest
power of their row, by exact products: no cost, rate or width makes all weights of a row vanish.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import reduce
from math import log, log2
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions import truncated_exponential as piece
from dpjax.numerics.arrays import integers, take
from dpjax.pytrees import pytree

ALL = slice(None)
Read = Callable[[Any], jax.Array]  # from a slice of pieces, or from indices (*batch, j)
_SLOTS = 16
_NEVER = 2**30  # an exponent beyond all others
FAR = 2.0**28  # nats above the least cost, from which costs are told apart, but not exactly


class Heights(NamedTuple):
    """exp(-nats) * phi0(decay) = mantissa * 2^-exponent, on the last axis.

    Attributes:
        exponent: int32.
        mantissa: float, at most 1; 0 for an infinite cost.
        nats: float64, rate times the cost above the least one.
    """

    exponent: jax.Array
    mantissa: jax.Array
    nats: jax.Array

    @staticmethod
    def of(low: jax.Array, decay: jax.Array, rate: jax.Array) -> Heights:
        """Compute heights from the lower cost and the decay of each piece; rate is ``(..., 1)``."""
        absent = low == jnp.inf
        with jax.enable_x64(True):
            cost, rate = low.astype(jnp.float64), jnp.minimum(rate.astype(jnp.float64), 1e100)
            least = jnp.min(jax.lax.stop_gradient(cost), axis=-1, keepdims=True)
            least = jnp.where(jnp.isinf(least), 0.0, least)
            nats = rate * (jnp.where(absent, least, cost) - least)
            power = near(nats) / log(2)
            exponent = jnp.floor(jax.lax.stop_gradient(power))
            fraction = (exponent - power).astype(low.dtype)
            exponent = jnp.where(absent, _NEVER // 2, exponent).astype(jnp.int32)
        mantissa = jnp.where(absent, 0.0, jnp.exp2(fraction) * piece.mass_fraction(decay))
        return Heights(exponent, mantissa, nats)


class Lanes(NamedTuple):
    """A row of pieces as slots of ``lanes`` pieces; the last slot overlaps the one before it."""

    lanes: int
    starts: np.ndarray
    begins: np.ndarray  # earlier pieces of a slot count in the slot before

    @staticmethod
    def of(size: int) -> Lanes:
        """Split ``size`` pieces into about as many slots as lanes, at most 16."""
        lanes = -(-size // min(2 ** round(log2(size) / 2), _SLOTS))
        begins = integers(0, size, lanes)
        return Lanes(lanes, np.minimum(begins, size - lanes).astype(np.int32), begins)

    @property
    def noise(self) -> int:
        """The number of random words of a draw by races."""
        return self.lanes + len(self.starts) + 2

    def over(self, read: Read, combine: Callable[..., jax.Array], nothing: Any) -> jax.Array:
        """Combine all slots of the pieces that ``read`` reads, ``(..., lanes)``."""

        def slot(start: int, begin: int) -> jax.Array:
            found = read(slice(start, start + self.lanes))
            late = np.arange(start, start + self.lanes) >= begin
            return found if late.all() else jnp.where(late, found, nothing)

        parts = [slot(*map(int, at)) for at in zip(*self[1:], strict=True)]
        return reduce(combine, parts)


class Weights(NamedTuple):
    """Weights of ``size`` pieces, each a float times a power of two.

    Attributes:
        size: the number of pieces.
        power: returns about -log2 of the weights of pieces, int32, 2^30 for a weight of 0.
        weigh: returns the weights of pieces in units of 2^-base, for a base, int32.
    """

    size: int
    power: Read
    weigh: Callable[[Any, jax.Array], jax.Array]

    @staticmethod
    def of(weights: jax.Array) -> Weights:
        """Weights that are floats, about 1 at most."""
        one = jnp.zeros(weights.shape[-1:], jnp.int32)
        return Weights(one.size, lambda at: pick(one, at), lambda at, _: pick(weights, at))

    @property
    def units(self) -> jax.Array:
        """The least power of each lane."""
        return Lanes.of(self.size).over(self.power, jnp.minimum, np.int32(_NEVER))

    def by_lanes(self) -> tuple[jax.Array, jax.Array]:
        """Return the sums of the lanes, and the base of their row, ``(..., 1)``.

        A lane is summed in its own unit, so that its pieces are read once.
        """
        units = self.units
        sums = Lanes.of(self.size).over(lambda at: self.weigh(at, units), jnp.add, 0.0)
        units, sums = jax.lax.optimization_barrier((units, sums))
        base = jnp.min(units, axis=-1, keepdims=True)
        return sums * _power_of_two(base - units, sums.dtype), base

    def of_all(self) -> tuple[jax.Array, jax.Array]:
        """Return the weights of all pieces, and the base of their row, ``(..., 1)``."""
        units = jax.lax.optimization_barrier(self.units)
        base = jnp.min(units, axis=-1, keepdims=True)
        return self.weigh(ALL, base), base


@pytree
class Line:
    """A density on the real line, with pieces on the last axis.

    Attributes:
        edges: float ``(..., m+1)``, nondecreasing, m >= 1.
        left: float ``(m,)`` or ``(..., m)``, the cost at the lower edge of each piece.
        right: the cost at the upper edge.
        rate: float ``(..., 1)``.
        batch: the broadcast shape without the last axis.
        widths: float ``(..., m)``, the lengths of pieces if edges are too coarse for them: those of
            tails, the first and the last piece; or None.
        cells: if true, edges are half-integers, and the mass of a piece is the sum, over its cells
            of width 1, of the height at the end of higher cost, not the integral.
    """

    edges: jax.Array
    left: jax.Array
    right: jax.Array
    rate: jax.Array
    batch: tuple[int, ...] = field(metadata={"static": True})
    widths: jax.Array | None = None
    cells: bool = field(default=False, metadata={"static": True})

    @property
    def size(self) -> int:
        """The number of pieces."""
        return self.edges.shape[-1] - 1

    @property
    def dtype(self) -> Any:
        """The dtype of the edges."""
        return self.edges.dtype

    @property
    def low(self) -> jax.Array:
        """The cost at the end of lower cost of each piece."""
        return jnp.where(self.right >= self.left, self.left, self.right)

    @property
    def rise(self) -> jax.Array:
        """Rate times the change of the cost over each piece, from its lower to its upper edge."""
        most = float(jnp.finfo(self.dtype).max) / 2**8  # the mass of such a piece is normal
        rise = self.rate * (self.right - self.left)
        return jnp.clip(jnp.where(self.low == jnp.inf, 0.0, rise), -most, most)

    @property
    def decay(self) -> jax.Array:
        """Rate times the change of the cost over each piece, nonnegative."""
        return steepness(self.rise)

    @property
    def cell_decay(self) -> jax.Array:
        """The decay over one cell of each piece."""
        return self.decay / jnp.maximum(self.width(ALL), 1.0)

    @property
    def heights(self) -> Heights:
        """The heights of all pieces."""
        return Heights.of(self.low, self.decay, self.rate)

    def ends(self, at: Any) -> tuple[jax.Array, jax.Array]:
        """Return the edges of a slice of pieces, or of pieces with indices ``(*batch, j)``."""
        if not isinstance(at, slice):
            return take(self.edges, at), take(self.edges, at + np.int32(1))
        start, stop, _ = at.indices(self.size)
        return self.edges[..., start:stop], self.edges[..., start + 1 : stop + 1]

    def width(self, at: Any) -> jax.Array:
        """Return the lengths of pieces; see :meth:`ends`."""
        if self.widths is not None:
            return pick(self.widths, at)
        start, end = self.ends(at)
        return end - start

    def weights(self) -> Weights:
        """Return the weights of the pieces, as functions."""
        heights = self.heights

        def power(at: Any) -> jax.Array:
            start, end = jax.lax.stop_gradient(self.ends(at))
            gap = start - end if self.widths is None else -pick(self.widths, at)
            # Minus the length: XLA does not store it for the weights
            return jnp.where(gap < 0, pick(heights.exponent, at) - _exponent(gap), _NEVER)

        def weigh(at: Any, base: jax.Array) -> jax.Array:
            width = self.width(at)
            exponent = _exponent(jax.lax.stop_gradient(width)) - np.int32(1)
            # In two steps, of which neither over- nor underflows
            weight = width * _power_of_two(-exponent, self.dtype)
            weight *= _power_of_two(base + exponent - pick(heights.exponent, at), self.dtype)
            weight *= pick(heights.mantissa, at)
            if self.cells:
                decay = pick(self.decay, at)
                weight *= piece.far_height(decay / jnp.maximum(width, 1.0))
            return weight

        return Weights(self.size, power, weigh)


def steepness(rise: jax.Array) -> jax.Array:
    """Return abs(rise), with the derivative of a rising piece at 0, where abs has none."""
    return jnp.where(rise >= 0, rise, -rise)


def pick(array: jax.Array, at: Any) -> jax.Array:
    """Return a slice of the last axis, or the entries with the indices ``(*batch, j)``."""
    return array[..., at] if isinstance(at, slice) else take(array, at)


def near(nats: jax.Array) -> jax.Array:
    """Bring float64 numbers beyond 2^28 nearer, in their order, so that they are exponents.

    The bits of a float, read as an integer, are its logarithm but for a small curve.
    """
    bits = jax.lax.bitcast_convert_type(jnp.maximum(nats / FAR, 1.0), jnp.int64)
    beyond = bits.astype(nats.dtype) * 2.0**-52 - 1023
    return jnp.minimum(nats, FAR) + 2.0**16 * beyond


def _exponent(x: jax.Array) -> jax.Array:
    """Return floor(log2(abs(x))), int32, and less than for any normal number at 0."""
    info, kind = jnp.finfo(x.dtype), _integer_of(x.dtype)
    bits = jax.lax.bitcast_convert_type(x, kind) & np.array(np.iinfo(kind).max, kind)
    return (bits >> np.array(info.nmant, kind)).astype(jnp.int32) - np.int32(info.maxexp - 1)


def _power_of_two(n: jax.Array, dtype: Any) -> jax.Array:
    """Return 2**n as a float; 0 if it is below the smallest normal number."""
    info, kind = jnp.finfo(dtype), _integer_of(dtype)
    biased = jnp.clip(n + np.int32(info.maxexp - 1), 0, 2 * info.maxexp - 2).astype(kind)
    return jax.lax.bitcast_convert_type(biased << np.array(info.nmant, kind), dtype)


def _integer_of(dtype: Any) -> Any:
    return np.dtype(f"int{8 * jnp.dtype(dtype).itemsize}")
