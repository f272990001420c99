"""Where the profiles of quantiles read sorted rows, and what they read there.

Ranks are fractions with the denominator of q, in integer arithmetic: 0.1 * n in floating point is off by a rank now and then, and a
rank off by one on one side leaks 1.44 epsilon.
"""

from fractions import Fraction
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.numerics.batching import take
from dpjax.numerics.multiples import from_multiples

Definition = Literal["linear", "lower", "continuous"]
DEFINITIONS = ("linear", "lower", "continuous")


class Ranks(NamedTuple):
    """Where a profile reads: at ``(per_record * n + constant +- step * level) / denominator``, all integers."""

    per_record: int
    constant: int
    step: int
    denominator: int
    definition: Definition

    @property
    def refinement(self) -> int:
        """Into how many parts an interpolated quantile cuts the distance of two records; 1 where it reads records only."""
        return 1 if self.definition == "lower" else self.denominator

    def levels(self, n: int) -> tuple[int, int]:
        """How many levels reach the bounds, below and above, for up to ``n`` records."""
        base = self.per_record * n + self.constant
        down = -(-base // self.step)
        if self.definition != "lower":  # up to rank n + 1
            return down, -(-(self.denominator * (n + 1) - base) // self.step)
        return down, (self.denominator * n - base) // self.step + 1  # past rank n: ceil takes it to n + 1

    def enough(self, levels: int) -> int:
        """From how many records on a quantile's profile of so many levels reaches neither end, whatever the records are."""
        u, v, far = self.per_record, self.denominator, self.step * levels
        return max(-(-(v - self.constant + far) // u), -(-(v + self.constant + far) // (v - u)))

    def unread(self, n: int, levels: int) -> tuple[int, int]:
        """How many of the smallest and of the largest of n records a quantile's profile of so many levels does without.

        Without the u k smallest and the (v - u) k largest, q = u/v, there are v k records fewer, so that the rank to start from
        falls by u k and reads the record it did before. The others are at least ``enough``, and at most v more than that.
        """
        u, v = self.per_record, self.denominator
        times = max((n - self.enough(levels)) // v, 0)
        return u * times, (v - u) * times


def ranks_of_quantile(q: Any, *, definition: Definition, neighbors: Neighbors) -> Ranks:
    """Return where the profile of a quantile reads, or raise for a bad ``q``."""
    fraction = level_of(q)
    u, v = fraction.numerator, fraction.denominator
    step = v if neighbors == "swap" else max(u, v - u)
    constant = 0 if definition == "lower" else v - u
    return Ranks(per_record=u, constant=constant, step=step, denominator=v, definition=definition)


def ranks_of_order_statistic(rank: int, n: int) -> Ranks:
    """Return where the profile of the record of a fixed rank reads, or raise for a rank outside 1..n."""
    rank = checks.static_integer("rank", rank, 1, n, must=f"an integer from 1 to the {n} records on the last axis of x")
    return Ranks(per_record=0, constant=rank, step=1, denominator=1, definition="lower")


def level_of(q: Any) -> Fraction:
    """Return the level of a quantile as a fraction, or raise for one that is not static or not in (0, 1).

    Floats are read to 15 digits, so that three times 0.1 is 3/10.

    >>> level_of(0.1 + 0.2), level_of("1/3")
    (Fraction(3, 10), Fraction(1, 3))
    """
    if isinstance(q, jax.Array):
        raise TypeError("a level must be a static number or Fraction, not a JAX array: ranks are computed exactly.")
    fraction = checks.exact(f"{q:.15g}" if isinstance(q, float) else q)
    if fraction is None:
        raise ValueError(
            f"a level must be a number or a Fraction, got {q!r}; dpjax.quantiles and dpjax.release.joint_quantiles take several."
        )
    if not 0 < fraction < 1:
        raise ValueError(f"a level must be strictly between 0 and 1, got {q}.")
    return fraction


class Window(NamedTuple):
    """The ranks ``(per_record * n + constant) // denominator``, the next and so on, ``width`` in all, moved into 0..n_max+1."""

    per_record: int
    constant: int
    denominator: int
    width: int

    def first(self, n: Any, n_max: int, xp: Any) -> Any:
        """The first rank, for NumPy or JAX arrays of counts."""
        rank = (n * np.int32(self.per_record) + np.int32(self.constant)) // np.int32(self.denominator)
        return xp.clip(rank, 0, n_max + 2 - self.width)


def sides(
    ordered: jax.Array, n: Any, n_max: int, ranks: Ranks, near: Window | None, down: int, up: int
) -> tuple[jax.Array, jax.Array]:
    """The values at the levels 0, ..., ``down`` below f(x) and 0, ..., ``up`` above, of sorted rows or of a window of them."""
    base = n * np.int32(ranks.per_record) + np.int32(ranks.constant)
    if near is not None:
        base = base - near.first(n, n_max, np if isinstance(n, np.ndarray) else jnp) * np.int32(ranks.denominator)
    step = np.int32(ranks.step)
    return (
        _at_rank(ordered, base - step * np.arange(down + 1, dtype=np.int32), ranks),
        _at_rank(ordered, base + step * np.arange(up + 1, dtype=np.int32), ranks),
    )


def continuous(
    ordered: jax.Array,
    n: Any,
    n_max: int,
    ranks: Ranks,
    near: Window | None,
    keep: int | None,
    ends: tuple[jax.Array | None, jax.Array | None],
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """The values and levels with a knot at every integer rank, above and below; a side that has an end is cut at level ``keep``."""
    xp: Any = np if isinstance(n, np.ndarray) else jnp
    v, step = np.int32(ranks.denominator), np.int32(ranks.step)
    base = n * np.int32(ranks.per_record) + np.int32(ranks.constant)
    top = ranks.per_record * n_max + ranks.constant  # of a full row: no other has more knots on either side
    origin = 0 if near is None else near.first(n, n_max, xp) * v
    value = _at_rank(ordered, base - origin, ranks)

    def side(knots: int, end: jax.Array | None, sign: int) -> tuple[jax.Array, jax.Array]:
        cut = keep if end is not None else None
        if cut is not None:  # the last knot is at level keep or beyond it
            knots = min(knots, ranks.step * cut // ranks.denominator + 2)
        number = np.arange(1, knots + 1, dtype=np.int32)
        above, below = xp.minimum(base // v + number, n + np.int32(1)), xp.maximum(-(-base // v) - number, np.int32(0))
        distance = sign * ((above if sign > 0 else below) * v - base)
        if cut is not None:
            distance = xp.minimum(distance, step * np.int32(cut))
        levels = distance.astype(ordered.dtype) / np.asarray(ranks.step, ordered.dtype)
        levels = jnp.concatenate([jnp.zeros_like(levels[..., :1]), jnp.asarray(levels)], axis=-1)
        values = jnp.concatenate([value, _at_rank(ordered, base + sign * distance - origin, ranks)], axis=-1)
        if end is not None:
            values = jnp.concatenate([values, end], axis=-1)
            levels = jnp.concatenate([levels, levels[..., -1:]], axis=-1)
        return values, levels.reshape(-1) if xp is np else levels

    return side(n_max + 1 - top // ranks.denominator, ends[1], 1), side(-(-top // ranks.denominator), ends[0], -1)


def _at_rank(ordered: jax.Array, numerator: Any, ranks: Ranks) -> jax.Array:
    """Read x (or its interpolation) at ``numerator / denominator``, where ``ordered[..., j]`` is x[j] for j = 0, 1, ..."""
    v = np.int32(ranks.denominator)

    def x(j: Any) -> jax.Array:
        if not isinstance(j, np.ndarray):
            return take(ordered, jnp.clip(j, 0, ordered.shape[-1] - 1))
        j = j.clip(0, ordered.shape[-1] - 1).reshape(-1)
        step = int(j[1] - j[0]) if j.size > 1 else 1
        if step != 0 and np.all(np.diff(j) == step):  # known ranks, one after the other: a slice costs nothing
            ascending = ordered[..., min(j[0], j[-1]) : max(j[0], j[-1]) + 1 : abs(step)]
            return ascending if step > 0 else ascending[..., ::-1]
        return ordered[..., j]

    if ranks.definition == "lower":
        return x(-((-numerator) // v))
    whole = numerator // v
    if isinstance(numerator, np.ndarray) and np.all(numerator == whole * v):
        return x(whole)
    part = from_multiples(jnp.asarray(numerator - whole * v).astype(ordered.dtype), Fraction(1, ranks.denominator))
    below, above = x(whole), x(whole + np.int32(1))
    # The barrier keeps the product from being fused into the sum in some lanes and not in others, which would let the last bit
    # of a value depend on the padding.
    return jnp.minimum(below + jax.lax.optimization_barrier(part * (above - below)), above)
