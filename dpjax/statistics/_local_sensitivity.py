"""Local sensitivity of quantiles and order statistics at every distance, and its smooth bound.

With A_k the largest local sensitivity of the datasets z within k changes, the beta-smooth
sensitivity is max_k A_k e^{-beta k} (Nissim, Raskhodnikova and Smith 2007). Let x[1..n] be sorted,
x[j] = lower for j <= 0 and x[j] = upper for j > n; likewise z, of N records. Let q >= 1/2: a
smaller q is that of the mirrored records.

One more change moves the rank r(N) that is read by s = 1 under swap, and under add/remove by at
most s = q, when a record is added or removed at the top. So the local sensitivity is the rise of z
over the ranks r to r + s or r - s to r, which are r(N) to r(N + 1) or r(N - 1) to r(N) under
add/remove. Such an interval has its largest part, a, in a gap (z[g], z[g + 1]), and s - a in an
adjacent gap. Let c records of x be removed, p added below and u added above. The rise is linear in
the records, and with i = g - p it is largest if all c are removed from the first gap:

    V = a (x[i + c + 1] - x[i]) + (s - a) (x[i + c + 2] - x[i + c + 1], or x[i] - x[i - 1] if the
    other gap is
        below)

    swap          c = k; N = n; p = 0, ..., k above r, and p = 1, ..., k + 1 below it
    add/remove    c = (k + n - N) / 2, rounded down; N and p any with c >= 0 and u = k - c - p >= 0

Rounding down includes the intervals that end at z rather than start there; those with u > 0 add
nothing new. A_k is the largest V: O(n^2) operations a row, for any number of betas.

Under add/remove, p > 0 only helps if a is smaller at N - 2, ..., N - 2p than at N: if j of the p
records are not added and j more are removed, N decreases by 2j, and the first gap grows on both
sides. Hence most N have p = 0 only. At q = 1/2, u = 0 too, and A_k is read at c = k: O(n).

A statistic that reads one record, ``definition="lower"`` or a fixed rank, moves by a complete gap:
a = s = 1. Then r(N) to r(N + 1) is the gap below rank r(N + 1), and it ends at z only if r(N + 1) >
r(N). A fixed rank m is q = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.numerics.arrays import integers, take
from dpjax.sensitivity import LocalSensitivity, SmoothSensitivity
from dpjax.statistics.padded_records import bounded_records
from dpjax.statistics.ranks import (
    Definition,
    Ranks,
    check_denominator,
    ranks_of_order_statistic,
    ranks_of_quantile,
)
from dpjax.statistics.sorting import sort_rows


def smooth_sensitivity(x: ArrayLike, beta: ArrayLike, **of_records: Any) -> SmoothSensitivity:
    """Return the beta-smooth sensitivity of a quantile (or the median), max_k A_k e^{-beta k}.

    It equals ``local_sensitivity(...).smooth(beta)``, which is cheaper for several betas.

    Args:
        x: records, with the other arguments as in :func:`local_sensitivity`.
        beta: positive, chosen **without the data**, broadcasts against ``(...)``;
            :func:`optimal_beta` returns a good one. (Published comparisons choose the beta that is
            best for the dataset at hand, which is not private.) The mechanisms choose a beta
            themselves where they are given a :class:`LocalSensitivity`.

    Returns:
        A :class:`SmoothSensitivity`.

    Privacy:
        No guarantee by itself: it is an input of :func:`smooth_cauchy`, :func:`smooth_laplace` and
        :func:`smooth_laplace_log_normal`. Public: beta, and what :mod:`dpjax.statistics` lists.

    References:
        Nissim, Raskhodnikova and Smith (2007), Definition 2.2 and Claim 3.3; Gillenwater and Munoz
        Medina, Definition 6.

    >>> import jax.numpy as jnp
    >>> smooth_sensitivity(
    ...     jnp.arange(1.0, 10.0), jnp.log(2.0), lower=0, upper=10, neighbors="swap"
    ... ).bound.item()
    1.0
    """
    return local_sensitivity(x, **of_records).smooth(beta)


def local_sensitivity(
    x: ArrayLike,
    *,
    q: float | Fraction | str = 0.5,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    definition: Definition = "linear",
    rank: int | None = None,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> LocalSensitivity:
    """Return the local sensitivity of a quantile at every distance k.

    It is A_k = max of LS(z) over d(x, z) <= k, exactly.

    Args:
        x: float ``(..., n)``. See :mod:`dpjax.statistics` for it and for the arguments not listed
            here; there is no resolution.
        q: static, as in :func:`dpjax.quantile`; by default the median.
        neighbors: the median under ``"add_remove"`` costs O(n) operations a row. All else costs
            O(n^2), and linear quantiles under ``"add_remove"`` a multiple of it: 2 times at q =
            0.9, 14 times at 0.99.
        definition: ``"linear"`` or ``"lower"``, as in :func:`dpjax.quantile`.
        rank: static; if given, the statistic is x[rank], as in :func:`dpjax.order_statistic`, not a
            quantile.

    Returns:
        A :class:`LocalSensitivity` of batch shape ``(...)``, with ``at_distance`` of shape ``(...,
        n + 1)``; for a rank under ``"add_remove"`` ``(..., n + rank)``, since all records may be
        removed and ``rank`` - 1 others added.

    Raises:
        ValueError: as :func:`dpjax.quantile`; or both ``rank`` and ``q`` are given.

    Privacy:
        No guarantee by itself; A_k(x) <= A_{k+1}(x') for neighbors, as smooth bounds and
        propose-test-release require.

    References:
        Nissim, Raskhodnikova and Smith (2007), Claim 3.3 (swap, fixed rank). The other forms, in
        the module docstring, are new; the tests compare them with a search over all datasets on a
        grid.

    >>> import jax.numpy as jnp
    >>> local_sensitivity(
    ...     jnp.array([20.0, 30.0, 50.0]), lower=0, upper=100, neighbors="add_remove"
    ... ).at_distance.tolist()
    [10.0, 15.0, 40.0, 50.0]
    """
    checks.one_of("definition", definition, ("linear", "lower"))
    if rank is not None and q != 0.5:
        raise ValueError(f"only one of q and rank can be given, got q={q} and rank={rank}.")
    (records, present, low, high), _ = bounded_records(x, lower, upper, num_records, mask)
    if rank is None:
        ranks = ranks_of_quantile(q, definition=definition, neighbors=neighbors)
    else:
        ranks = ranks_of_order_statistic(rank, records.shape[-1])
        if neighbors == "add_remove":  # columns without a record, one for each additional distance
            more = [(0, 0)] * (records.ndim - 1) + [(0, rank - 1)]
            records = jnp.pad(records, more, constant_values=jnp.nan)
            present = None if present is None else jnp.pad(present, more[-present.ndim :])
    columns = records.shape[-1]
    check_denominator("q", ranks.denominator, columns, 4 * (columns + 2))
    value, at_distance = _local_sensitivity(records, present, low, high, ranks, neighbors)
    return LocalSensitivity(value, at_distance, low, high, neighbors=neighbors)


@partial(jax.jit, static_argnames=("ranks", "neighbors"))
def _local_sensitivity(
    records: jax.Array,
    present: jax.Array | None,
    low: jax.Array,
    high: jax.Array,
    ranks: Ranks,
    neighbors: Neighbors,
) -> tuple[jax.Array, jax.Array]:
    """Return the statistic ``(...)`` and A_0, A_1, ..."""
    x = sort_rows(records, present, low, high, neighbors=neighbors)
    value = ranks.read(x, ranks.base(x.n))[..., 0]
    rows, n, size, u, v = x.values, x.n, x.n_max + 1, ranks.per_record, ranks.denominator
    if neighbors == "swap":
        below = integers(size + 1)
        return value, _largest_rise(rows, n, ranks, v, None, below)
    if 2 * u < v:
        rows = -take(rows, jnp.maximum(n + 1 - integers(size + 1), 0))
        constant = 1 - ranks.constant if ranks.definition == "lower" else v - ranks.constant
        u, ranks = v - u, ranks._replace(per_record=v - u, constant=constant)
    if 2 * u == v:
        of_counts, k = _rise(rows, n, ranks, u, 2), integers(size)
        found = of_counts(jnp.maximum(n - k, 0), 0)[0]
        if ranks.definition == "linear":
            found = jnp.maximum(found, of_counts(jnp.maximum(n - k - 1, 0), 0)[0])
        return value, found
    found = _largest_rise(rows, n, ranks, u, *_datasets(ranks, u, 2 * size))
    # Removal of a single record: the empty dataset has its own value.
    if ranks.definition == "linear":
        one = jnp.concatenate([rows[..., 1:2], take(rows, n)], axis=-1) - rows[..., :1]
        share = float(1 - Fraction(u, v))
        rise = jnp.maximum(share * one, abs(one - share * (rows[..., -1:] - rows[..., :1])))
        emptied = jnp.maximum(found, jnp.max(rise, axis=-1, keepdims=True))
        found = jnp.where(integers(size) < n - 1, found, emptied)
    return value, found


def _interval(ranks: Ranks, step: int, count: Any) -> tuple[Any, Any, Any, Any]:
    """Return the gap and share of the largest part of the ranks r(N) to r(N) + s, for integers N.

    The share is in units of half the denominator. The flags are true if the rest of the interval is
    in the gap above, and if it ends at a dataset.
    """
    u, constant, _, v, definition = ranks
    if definition == "lower":
        gap, remainder = divmod(u * count + constant - 1 + step, v)
        return gap, 0 * gap + 2 * v, gap > gap, remainder < u
    # Gap of the middle of the interval.
    gap, remainder = divmod(2 * (u * count + constant) + step, 2 * v)
    part = (v - abs(remainder - v) + step).clip(max=2 * step)
    return gap, part, remainder > v, count > 0


def _datasets(ranks: Ranks, step: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of N < size and p that can be optimal under add/remove."""
    counts = [integers(size)]
    while (last := counts[-1]).size:
        fewer = last - 2 * len(counts)
        smaller = _interval(ranks, step, fewer)[1] < _interval(ranks, step, last)[1]
        counts.append(last[smaller & (fewer >= 0)])
    below = np.repeat(integers(len(counts)), [len(some) for some in counts])
    return np.concatenate(counts), below


def _largest_rise(
    rows: jax.Array,
    n: jax.Array,
    ranks: Ranks,
    step: int,
    counts: np.ndarray | None,
    below: np.ndarray,
) -> jax.Array:
    """Return the largest V at k = 0, 1, ..., ``(..., size)``, over pairs of N and p.

    Without ``counts``, N = n.
    """
    rise = _rise(rows, n, ranks, step, 1 if counts is None else 2)

    @jax.checkpoint
    def wider(pair: jax.Array, best: jax.Array) -> jax.Array:
        count = n if counts is None else jnp.asarray(counts)[pair]
        found, reachable = rise(count, jnp.asarray(below)[pair])
        return jnp.maximum(best, jnp.where(reachable, found, -1.0))

    start = jnp.full_like(rows[..., 1:], -1)
    return jax.lax.fori_loop(np.int32(0), np.int32(len(below)), wider, start)


def _rise(
    rows: jax.Array, n: jax.Array, ranks: Ranks, step: int, width: int
) -> Callable[[jax.Array, Any], tuple[jax.Array, Any]]:
    """Return a function of N and p: V at k = 0, 1, ..., and whether their datasets are that near.

    N and p may differ between the k. A dataset has k // ``width`` records less per distance.
    """
    size, unit, pad = rows.shape[-1] - 1, 2.0 * ranks.denominator, 2 * rows.shape[-1] + 2
    k = integers(size)
    # Every record is repeated as often as consecutive distances read it.
    padded = jnp.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(pad, pad)], mode="edge")
    records = jnp.repeat(padded, width, axis=-1)

    def rise(count: jax.Array, p: Any) -> tuple[jax.Array, Any]:
        gap, part, above, ends = _interval(ranks, step, count)
        more = count - n
        start = width * (gap - p + pad) + 0 * more
        near, far = take(records, start), take(records, start + width - more + k)
        farther = take(records, start + 2 * width - more + k)
        next_to = jnp.where(above, farther - far, near - take(records, start - width))
        share, rest = (weight.astype(rows.dtype) / unit for weight in (part, 2 * step - part))
        if ranks.definition == "lower":
            rest = 0 * rest
        first = p - 1 if width == 1 else jnp.maximum(more, 2 * p - more - ends.astype(jnp.int32))
        return share * (far - near) + rest * next_to, k >= first

    return rise
