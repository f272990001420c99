"""Median, quantiles and order statistics: their sensitivity profiles under both neighbour relations.

With x[1..n] sorted, x[j] = lower for j <= 0, x[j] = upper for j > n, and X the piecewise linear interpolation of j -> x[j], every
profile here is x (or X) read at ranks that move outwards from a base rank by a fixed step per changed individual:

    relation     statistic                            base rank     step           read
    swap         quantile q, "linear"                 q n + 1 - q   1              X(rank)
    swap         quantile q, "lower"                  q n           1              x[ceil(rank)]
    add/remove   quantile q, "linear"                 q n + 1 - q   max(q, 1-q)    X(rank)
    add/remove   quantile q, "lower"                  q n           max(q, 1-q)    x[ceil(rank)]
    both         order statistic of fixed rank m      m             1              x[rank]
    both         quantile q, "continuous"             q n + 1 - q   as "linear"    X(rank), and between the levels too

A swap moves every order statistic by one place. Under add/remove, A records added at the top and R removed at the bottom shift the
rank that the statistic reads by q A + (1-q) R, at most max(q, 1-q) each. These are the exact extreme values of the statistic, with
one exception: a linear quantile other than the median, under add/remove, at levels that could empty the dataset, where they are
an outer bound that keeps Corollary 3.1.

"continuous" moves the rank by fractions of a step: the level of y is |rank of y - base rank| / step, a real number, and the profile
has a knot at every record. It keeps the corollary at all real levels: with F(u) = X(h + s u), and F' that of a dataset with one
record more, X'(r) <= X(r) <= X'(r + 1) at every real r, so F'(u) = X'(h + q + s u) <= X(h + s (u + 1)) = F(u + 1) because q <= s,
and F(u) <= X'(h + s u + 1) <= X'(h + q + s (u + 1)) = F'(u + 1) because 1 - q <= s; below and under swap likewise. So the level of
y changes by at most 1 between neighbours (Durfee's Theorem 1 without its integers).

Ranks are fractions with the denominator of q, in integer arithmetic: 0.1 * n in floating point is off by a rank now and then, and a
rank off by one on one side leaks 1.44 epsilon.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors, Resolution
from dpjax.numerics.multiples import most_multiples, to_multiples
from dpjax.sensitivity.profile import SensitivityProfile, from_sides
from dpjax.statistics.records import levels_kept, present_records
from dpjax.statistics.sorting import Window, sort_rows

Definition = Literal["linear", "lower", "continuous"]
DEFINITIONS = ("linear", "lower", "continuous")
_STRIDED = 8  # denominators up to which the levels of one fraction are read together


def median(
    x: ArrayLike,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    resolution: Resolution | None = None,
    definition: Definition | None = None,
    count: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    truncate: int | None = None,
) -> SensitivityProfile:
    """Return the sensitivity profile of the median: :func:`quantile` at 1/2.

    Without a resolution the default is the midpoint median, ``definition="linear"``; with one it is ``"lower"``, x[ceil(n/2)], the
    median of the Duff paper. On evenly spaced data the midpoint is the better target under add/remove: at epsilon = 2 its error is
    1.15 times smaller. On data with ties it is not: its multiples are half as far apart, and the median's own value keeps half the
    mass. ``"continuous"`` gives piecewise Laplace the same distribution as ``"linear"`` under add/remove, with half the pieces.

    Args:
        x: float ``(..., n)``; this and what is not named here, see :mod:`dpjax.statistics`.
        lower: public, of a record.
        upper: public, of a record.
        neighbors: ``"add_remove"`` or ``"swap"``.
        resolution: public and static, that of the data: 1 for integers, 0.01 for cents (read by its decimal value). Records are
            rounded to its multiples, one by one, the bounds are multiples of it, and mechanisms draw on them: the value keeps
            mass, the more the more individuals must change to move it. Without a resolution the profile is for data without ties.
        definition: ``"linear"``, ``"lower"`` or ``"continuous"``; by default ``"linear"``, and with a resolution ``"lower"``.
        count: which records are present.
        mask: which records are present.
        truncate: static k.

    Returns:
        A profile of batch shape ``(...)``.

    Raises:
        ValueError: as :func:`quantile`.

    Privacy:
        As :func:`quantile`.

    References:
        Durfee (2025), Section 3.1; Gillenwater and Munoz Medina, Section 4.

    >>> import jax.numpy as jnp
    >>> ages = jnp.array([[23.0, 35.0, 41.0, 62.0], [19.0, 20.0, 80.0, 0.0]])
    >>> median(ages, lower=0, upper=100, neighbors="add_remove", resolution=1, count=jnp.array([4, 3])).value.tolist()
    [35.0, 20.0]
    """
    options: Any = {"resolution": resolution, "count": count, "mask": mask, "truncate": truncate}
    return quantile(x, Fraction(1, 2), lower=lower, upper=upper, neighbors=neighbors, definition=definition, **options)


def quantile(
    x: ArrayLike,
    q: float | Fraction | str,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    resolution: Resolution | None = None,
    definition: Definition | None = None,
    count: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    truncate: int | None = None,
) -> SensitivityProfile:
    """Return the sensitivity profile of the q-quantile.

    ``definition="linear"``, the default without a resolution, reads rank q n + 1 - q with interpolation (NumPy's default);
    ``"lower"``, the default with one, is x[ceil(q n)] (NumPy's ``"inverted_cdf"``, Duff's convention). Records are clamped to
    ``[lower, upper]``. An empty dataset under add/remove has the value lower + (1-q) (upper - lower), or ``lower`` for
    ``"lower"``: a constant, fixed so that it fits its neighbours.
    ``"continuous"`` is the value of ``"linear"`` with another profile, for piecewise Laplace: the cost of y is the distance of its
    (interpolated) rank from q n + 1 - q, in units of max(q, 1-q) under add/remove and 1 under swap. Its levels are not integers:
    inverse sensitivity refuses it. Neither profile wins in every row. On random rows of 1 to 100 records its mean error was that of
    ``"linear"`` times 1.02 at epsilon = 1 and 1.07 at 4, and under add/remove that of ``"lower"`` (each against its own value)
    times 0.95 and 0.8; in one row of ten to one of three it was above that of ``"lower"``.

    Args:
        x: float ``(..., n)``; this and what is not named here, see :mod:`dpjax.statistics`.
        q: static, strictly between 0 and 1, read by its decimal value: 0.1 is 1/10. For 1/3 give ``Fraction(1, 3)``.
        lower: public, of a record.
        upper: public, of a record.
        neighbors: ``"add_remove"`` or ``"swap"``.
        resolution: as in :func:`median`; an interpolated quantile is a multiple of it over the denominator of q.
        definition: which quantile, or how fine its profile is.
        count: which records are present.
        mask: which records are present.
        truncate: static k.

    Returns:
        A profile of batch shape ``(...)`` with levels 0, 1, 2, ...; about n+1 pieces in all under swap, 2(n+1) under add/remove
        at the median. ``"continuous"``: n+2 pieces with fractional levels, each row its own where their numbers differ.

    Raises:
        TypeError: ``q`` is a JAX array.
        ValueError: q outside (0, 1) or with a denominator too large for exact ranks.

    Privacy:
        The values interleave for neighbouring datasets as in Corollary 3.1, so mechanisms on this profile are epsilon-DP and
        epsilon-bounded-range. Public: q, the bounds and the shape of ``x``; under swap also the number of records (so ``count``
        and ``mask``), under add/remove not.

    References:
        Durfee (2025), Section 3.1; Gillenwater and Munoz Medina, Section 4 (where the second case should read "n even").
        ``"continuous"`` is in neither paper; the proof is at the head of this file.

    >>> import jax.numpy as jnp
    >>> profile = quantile(jnp.arange(1.0, 12.0), 0.9, lower=0, upper=20, neighbors="swap")
    >>> float(profile.value), profile.upper.tolist()
    (10.0, [10.0, 11.0, 20.0])
    """
    if definition is None:
        definition = "linear" if resolution is None else "lower"
    checks.one_of("definition", definition, DEFINITIONS)
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    ranks = ranks_of_quantile(q, definition=definition, neighbors=neighbors)
    return _profile(x, ranks, lower, upper, neighbors, resolution, count, mask, truncate)


def order_statistic(
    x: ArrayLike,
    rank: int,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    resolution: Resolution | None = None,
    count: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    truncate: int | None = None,
) -> SensitivityProfile:
    """Return the sensitivity profile of the ``rank``-th smallest record, x[rank] counted from 1.

    Args:
        x: float ``(..., n)``; this and what is not named here, see :mod:`dpjax.statistics`.
        rank: static, 1..n, and fixed: it does not move when records come or go. With fewer than ``rank`` records present the
            value is ``upper``.
        lower: public, of a record.
        upper: public, of a record.
        neighbors: ``"add_remove"`` or ``"swap"``; the values are x[rank + l] and x[rank - l] under both.
        resolution: as in :func:`median`.
        count: which records are present.
        mask: which records are present.
        truncate: static k.

    Returns:
        A profile of batch shape ``(...)``.

    Raises:
        ValueError: a rank outside 1..n.

    Privacy:
        As :func:`quantile`; ``rank`` is public.

    References:
        Durfee (2025), Section 3.1.

    >>> import jax.numpy as jnp
    >>> order_statistic(jnp.array([3.0, 1.0, 2.0]), 1, lower=0, upper=9, neighbors="swap").upper.tolist()
    [1.0, 2.0, 3.0, 9.0]
    """
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    ranks = ranks_of_order_statistic(rank, np.shape(x)[-1] if np.ndim(x) else 0)
    return _profile(x, ranks, lower, upper, neighbors, resolution, count, mask, truncate)


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
        raise ValueError(f"a level must be a number or a Fraction, got {q!r}; dpjax.quantiles takes several.")
    if not 0 < fraction < 1:
        raise ValueError(f"a level must be strictly between 0 and 1, got {q}.")
    return fraction


def _profile(
    x: ArrayLike,
    ranks: Ranks,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    resolution: Resolution | None,
    count: ArrayLike | None,
    mask: ArrayLike | None,
    truncate: int | None,
) -> SensitivityProfile:
    keep = levels_kept(truncate)
    records, present = present_records(x, count=count, mask=mask)
    if ranks.denominator * (records.shape[-1] + 2) >= 2**31:
        raise ValueError(
            f"q has the denominator {ranks.denominator}, too large for exact ranks of {records.shape[-1]} records; "
            "give a short decimal or a Fraction such as Fraction(1, 3)."
        )
    low, high = checks.bounds(lower, upper, records.dtype)
    step = None
    if resolution is not None:
        step = checks.resolution(resolution, (lower, upper), most_multiples(records.dtype) // ranks.refinement)
    return _read(records, present, low, high, ranks, neighbors, keep, step)


@partial(jax.jit, static_argnames=("ranks", "neighbors", "keep", "resolution"))
def _read(
    records: jax.Array,
    present: jax.Array | None,
    low: jax.Array,
    high: jax.Array,
    ranks: Ranks,
    neighbors: Neighbors,
    keep: int | None,
    resolution: Fraction | None,
) -> SensitivityProfile:
    if resolution is not None:  # whole numbers; interpolated values are multiples of 1 / refinement
        records, low, high = (to_multiples(array, resolution) for array in (records, low, high))
    n_max = records.shape[-1]
    down, up = ranks.levels(n_max)
    ends_low, ends_high = (keep is not None and keep < levels for levels in (down, up))
    if keep is not None:
        down, up = min(down, keep), min(up, keep)
    near = None
    if ends_low or ends_high:
        width = min((down + up) * ranks.step // ranks.denominator + 3, n_max + 2)
        near = Window(ranks.per_record, ranks.constant - down * ranks.step, ranks.denominator, width)
    read = None if ranks.definition == "continuous" else _Sides(ranks, n_max, down, up, near)
    x = sort_rows(records, present, low, high, neighbors=neighbors, window=near, read=read)
    if read is None:
        ends = (x.low if ends_low else None, x.high if ends_high else None)
        (upper, upper_levels), (lower, lower_levels) = _continuous(x.values, x.n, n_max, ranks, near, keep, ends)
        found = SensitivityProfile(upper, lower, upper_levels, lower_levels, neighbors=neighbors, integer_levels=False)
    else:
        lower, upper = x.read
        if ends_high:
            upper = jnp.concatenate([upper, x.high], axis=-1)
        if ends_low:
            lower = jnp.concatenate([lower, x.low], axis=-1)
        found = from_sides(upper, lower, neighbors=neighbors)
    return found if resolution is None else found.in_units(resolution, ranks.refinement)


class _Sides(NamedTuple):
    """Both sides of a profile, each outwards from f(x): the values at levels 0, ..., ``down`` below, then 0, ..., ``up`` above."""

    ranks: Ranks
    n_max: int
    down: int
    up: int
    near: Window | None

    @property
    def sizes(self) -> tuple[int, int]:
        return self.down + 1, self.up + 1

    def __call__(self, ordered: jax.Array, n: Any) -> tuple[jax.Array, ...]:
        return tuple(_at_rank(ordered, side, self.ranks) for side in self._numerators(n, np if isinstance(n, np.ndarray) else jnp))

    def write(self, results: Sequence[np.ndarray], ordered: np.ndarray, n: Any) -> None:
        v = self.ranks.denominator
        for result, side in zip(results, self._numerators(n, np), strict=True):
            # The fraction of the rank comes back every v levels: v slices, unless they are short.
            stride = v if v <= _STRIDED else 1
            for start in range(min(stride, side.size)):
                result[:, start::stride] = _at_rank(ordered, side[start::stride], self.ranks)

    def _numerators(self, n: Any, xp: Any) -> list[Any]:
        """Of the ranks of each level, in ``ordered``."""
        base = n * np.int32(self.ranks.per_record) + np.int32(self.ranks.constant)
        if self.near is not None:
            base = base - self.near.first(n, self.n_max, xp) * np.int32(self.ranks.denominator)
        step = np.int32(self.ranks.step)
        return [base + sign * step * np.arange(k + 1, dtype=np.int32) for sign, k in ((-1, self.down), (1, self.up))]


def _continuous(
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

    def side(numerator: Any, end: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        levels = abs(numerator - base).astype(ordered.dtype) / np.asarray(ranks.step, ordered.dtype)
        levels = jnp.concatenate([jnp.zeros_like(levels[..., :1]), jnp.asarray(levels)], axis=-1)
        values = jnp.concatenate([value, _at_rank(ordered, numerator - origin, ranks)], axis=-1)
        if end is not None:
            values = jnp.concatenate([values, end], axis=-1)
            levels = jnp.concatenate([levels, levels[..., -1:]], axis=-1)
        return values, levels.reshape(-1) if xp is np else levels

    def whole_ranks(knots: int, end: jax.Array | None) -> Any:
        if end is not None and keep is not None:  # the last of these is at level keep or beyond it
            knots = min(knots, ranks.step * keep // ranks.denominator + 2)
        return np.arange(1, knots + 1, dtype=np.int32)

    above = xp.minimum(base // v + whole_ranks(n_max + 1 - top // ranks.denominator, ends[1]), n + np.int32(1)) * v
    below = xp.maximum(-(-base // v) - whole_ranks(-(-top // ranks.denominator), ends[0]), np.int32(0)) * v
    if ends[1] is not None and keep is not None:
        above = xp.minimum(above, base + step * np.int32(keep))
    if ends[0] is not None and keep is not None:
        below = xp.maximum(below, base - step * np.int32(keep))
    return side(above, ends[1]), side(below, ends[0])


def _at_rank(ordered: Any, numerator: Any, ranks: Ranks) -> Any:
    """Read x (or its interpolation) at ``numerator / denominator``, where ``ordered[..., j]`` is x[j] for j = 0, 1, ...

    NumPy rows come with ranks ``(k,)``, JAX rows also with ranks ``(..., k)``.
    """
    v = np.int32(ranks.denominator)

    def x(j: Any) -> Any:
        j = (np if isinstance(j, np.ndarray) else jnp).clip(j, 0, ordered.shape[-1] - 1)
        if not isinstance(j, np.ndarray):
            return jnp.take_along_axis(ordered, j, axis=-1)
        j = j.reshape(-1)
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
    if isinstance(ordered, np.ndarray):
        part = ((numerator - whole * v) / v).astype(ordered.dtype)
        below, above = x(whole), x(whole + np.int32(1))
        found = above - below
        found *= part
        found += below
        return np.minimum(found, above, out=found)
    part = jnp.asarray(numerator - whole * v).astype(ordered.dtype) / float(ranks.denominator)
    below, above = x(whole), x(whole + np.int32(1))
    # The barrier keeps the product from being fused into the sum in some lanes and not in others, which would let the last bit
    # of a value depend on the padding.
    return jnp.minimum(below + jax.lax.optimization_barrier(part * (above - below)), above)
