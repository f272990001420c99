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
and bisection finds it. The empty dataset, of mean (a + b) / 2, is reached at k = n, where A_k = (b
- a) / 2, the global sensitivity, and at k = n - 1 from its neighbors x[n] and x[1].
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.numerics.batching import take
from dpjax.numerics.double_float import DoubleFloat, prefix_sums, single
from dpjax.numerics.search import count_leading
from dpjax.sensitivity import LocalSensitivity
from dpjax.statistics.padded_records import bounded_records
from dpjax.statistics.sorting import sort_rows


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

    Raises:
        ValueError: the bounds are so large that the sum of n records overflows.

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
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    arrays = bounded_records(
        *(x, lower, upper, num_records, mask),
        range_of=lambda width, size, n, square: (
            2 * (size + width) * n,
            square * (2.0**10 * width + 2.0**4 * size),
        ),
    )
    value, at_distance = _local_sensitivity(*arrays, neighbors)
    return LocalSensitivity(value, at_distance, *arrays[2:], neighbors=neighbors)


@partial(jax.jit, static_argnames="neighbors")
def _local_sensitivity(
    records: jax.Array,
    present: jax.Array | None,
    low: jax.Array,
    high: jax.Array,
    neighbors: Neighbors,
) -> tuple[jax.Array, jax.Array]:
    """Return the mean ``(...)`` and A_0, ..., A_n."""
    x = sort_rows(records, present, low, high, neighbors=neighbors)
    n, k = jnp.asarray(x.n), np.arange(x.n_max + 1, dtype=np.int32)
    batch, dtype, width = x.values.shape[:-1], x.values.dtype, x.high - x.low
    descending = take(x.values, jnp.broadcast_to(jnp.maximum(n - k[:-1], 0), (*batch, x.n_max)))
    # Distances from the bound at which records are added, ascending: below for v > mean(y), else
    # above.
    above = single(x.values[..., 1:-1]).minus(single(x.low))
    distances = (above, single(x.high).minus(single(descending)))
    sums = prefix_sums(
        DoubleFloat(
            *(
                jnp.stack([x.present(part) for part in parts])
                for parts in zip(*distances, strict=True)
            )
        )
    )
    total = DoubleFloat(*(take(part[0], jnp.broadcast_to(n, (*batch, 1))) for part in sums))
    value = total.over(jnp.maximum(n, 1).astype(dtype)).plus(single(x.low)).value
    value = jnp.where(n == 0, x.low / 2 + x.high / 2, value)[..., 0]
    last = jnp.broadcast_to(jnp.maximum(n, 1), (*batch, 1))
    extreme = jnp.stack([x.at(last) - x.low, x.high - x.at(0 * last + 1)])
    if neighbors == "swap":
        rest = jnp.where(k > 0, width, jnp.max(extreme, axis=0))
        return value, rest / jnp.maximum(n, 1).astype(dtype)
    # On the first axis, v is a bound, or a record that is removed.
    record = jnp.arange(2, dtype=jnp.int32).reshape(2, *(1 for _ in sums.high.shape))
    v = jnp.where(record > 0, extreme, width)

    def change(gone: jax.Array) -> jax.Array:
        kept = jnp.maximum(n - record - gone, 0)
        size = (kept + k - gone).astype(dtype)
        mean = DoubleFloat(*(take(part, kept) for part in sums)).over(jnp.maximum(size, 1))
        return jnp.where(size > 0, single(v).minus(mean).value / (size + 1), v - width / 2)

    most = jnp.minimum(k, jnp.maximum(n - 1 - record, 0))  # up to these, y is not empty
    gone = count_leading(
        lambda gone: (
            (change(jnp.minimum(gone + 1, most)) > change(jnp.minimum(gone, most))) & (gone < most)
        ),
        x.n_max + 1,
        (*v.shape[:-1], x.n_max + 1),
    )
    emptied = jnp.where(k == n - 1, jnp.max(extreme, axis=0) - width / 2, 0)
    found = jnp.maximum(jnp.max(change(gone), axis=(0, 1)), emptied)
    return value, jnp.where(k < n, found, width / 2)
