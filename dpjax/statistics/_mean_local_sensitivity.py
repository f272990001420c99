"""Local sensitivity of the mean at every distance.

A change moves the mean by abs(v - mean(y)) / (|y| + 1), where a record v is added to y, or removed
from y + v. Let v >= mean(y); the other side follows by symmetry. With a, b the bounds:

    swap          A_0 = max(b - x[1], x[n] - a) / n; A_k = (b - a) / n for k >= 1, as a record
                  may be at a bound
    add/remove    A_k = max over R of (v - mean(y)) / (|y| + 1), where y is x without its R largest
                  records, with k - R at a, and v = b; or where v = x[n] and y is that of x without
                  v

Any v other than x[n] would leave x[n] in y. All changes are used: without its largest record y
moves more. With D the sum of v - y over y and M = |y|, the ratio is D / (M (M + 1)). In R, D is
concave and the denominator convex: the ratio strictly increases up to the best R, then decreases,
and bisection finds it; where two ratios are rounded to the same number, the best is one of them, as
all sums are exact (``exact_sums``). The empty dataset, of mean (a + b) / 2, is reached at k = n,
where A_k = (b - a) / 2, the global sensitivity, and at k = n - 1 from its neighbors x[n] and x[1].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.checks import Neighbors
from dpjax.numerics.arrays import integers, take
from dpjax.numerics.search import count_leading
from dpjax.sensitivity import LocalSensitivity
from dpjax.statistics.exact_sums import from_sorted, on_grid, prefix_sums
from dpjax.statistics.padded_records import bounded_records
from dpjax.statistics.sorting import SortedRows


def mean_local_sensitivity(
    x: ArrayLike,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> LocalSensitivity:
    """Return the local sensitivity of the mean at every distance, max of LS(z), d(x, z) <= k.

    The values are exact.

    Args:
        x: float ``(..., n)``. See :mod:`dpjax.statistics` for it and for the other arguments.

    Returns:
        A :class:`LocalSensitivity` of batch shape ``(...)``, with ``at_distance`` of shape ``(...,
        n + 1)``. Under swap all but A_0 equal the global sensitivity (upper - lower) / n. An empty
        dataset has the value (lower + upper) / 2.

    Privacy:
        No guarantee by itself; A_k(x) <= A_{k+1}(x') for neighbors, as smooth bounds and
        propose-test-release require.

    References:
        Gillenwater and Munoz Medina, Definitions 3 to 5. The form in the module docstring is new;
        the tests compare it with a search over all datasets on a grid.

    >>> import jax.numpy as jnp
    >>> mean_local_sensitivity(
    ...     jnp.array([1.0, 2.0, 6.0]), lower=0, upper=10, neighbors="add_remove"
    ... ).at_distance.tolist()
    [1.75, 2.8333332538604736, 4.5, 5.0]
    """
    arrays, _ = bounded_records(x, lower, upper, num_records, mask)
    value, at_distance = from_sorted(
        _at_distances, *arrays, neighbors=neighbors, options=(neighbors,)
    )
    return LocalSensitivity(value, at_distance, *arrays[2:], neighbors=neighbors)


def _at_distances(x: SortedRows, neighbors: Neighbors) -> tuple[jax.Array, jax.Array]:
    """Return the mean ``(...)`` and A_0, ..., A_n."""
    n, dtype, k = x.n, x.values.dtype, integers(x.n_max + 1)
    grid = on_grid(x, x.low, x.high - x.low, 2 * x.n_max + 2)
    reach, unit = grid.high, grid.unit
    # On the first axis, distances from the bound at which records are added, ascending: below for v
    # > mean(y), else above.
    sums = prefix_sums(jnp.stack([grid.ascending, x.present(reach - grid.descending)]))

    def sum_of(kept: jax.Array) -> jax.Array:
        """Return the sums of the records next to the bound, ``kept`` of them."""
        return take(sums, jnp.broadcast_to(kept, (*sums.shape[:-1], kept.shape[-1])))

    number = jnp.maximum(n, 1)
    total = sum_of(number)
    mean = jnp.where(n == 0, reach / 2, total[0] / number.astype(dtype))
    value = (x.low + mean * unit)[..., 0]
    extreme = jnp.where(n == 0, reach, total - sum_of(number - 1))  # the distance of the last one
    farthest = jnp.max(extreme, axis=0)
    if neighbors == "swap":
        return value, jnp.where(k > 0, reach, farthest) / number.astype(dtype) * unit

    def largest(v: jax.Array, others: jax.Array) -> jax.Array:
        """Return the largest change by a record at ``v``, on either side, beside ``others``."""

        def change(gone: jax.Array) -> jax.Array:
            kept = jnp.maximum(others - gone, 0)
            size = (kept + k - gone).astype(dtype)
            change = (size * v - sum_of(kept)) / jnp.maximum(size * (size + 1), 1)
            return jnp.where(size > 0, change, v - reach / 2)

        most = jnp.minimum(k, jnp.maximum(others - 1, 0))  # up to these, y is not empty

        def rises(gone: jax.Array) -> jax.Array:
            next_one = jnp.minimum(gone + 1, most)
            return (change(next_one) > change(jnp.minimum(gone, most))) & (gone < most)

        gone = count_leading(rises, x.n_max + 1, sums.shape)
        return jnp.max(change(gone), axis=0)

    found = jnp.maximum(largest(reach, n), largest(extreme, n - 1))
    emptied = jnp.where(k == n - 1, farthest - reach / 2, 0)
    return value, jnp.where(k < n, jnp.maximum(found, emptied), reach / 2) * unit
