"""Several quantiles in one draw: the exponential mechanism on the ranks of all of them together.

With t_k = 1 + floor(q_k (N - 1)) the ranks of the quantiles of N records, the distance of a tuple
y_1 <= ... <= y_m, y_k above j_k records, from the quantiles of n records is

    |j_1 - t_1| + |j_2 - j_1 - (t_2 - t_1)| + ... + |n - N - j_m + t_m|.

**Add/remove.** One more record raises n and the j_k of all y_k above it by 1: so it raises by 1 the
argument of exactly one term. For a fixed N the cost changes by at most 1, and the density
proportional to exp(-epsilon / 2 * cost) is epsilon-DP and epsilon-bounded-range. If N followed n,
all terms could change. N need not be correct: it is a public number, or n with discrete Laplace
noise for a share of epsilon, and the two costs add up.

**Swap.** N = n is public, and a replaced record is one removed and one added: the cost changes by
at most 2, and the rate is epsilon / 4.

A term may be bounded: exp(-rate |d|) + c, c constant, changes by a factor of at most exp(rate) from
d to d + 1 (``distributions/_joint_quantiles.py``, where c is exp(-600)).
"""

from __future__ import annotations

from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.distributions import JointQuantiles
from dpjax.mechanisms.mechanism import Amount, Positive, mechanism
from dpjax.numerics.arrays import fits
from dpjax.sensitivity.sorted_records import SortedRecords

Asked = Annotated[SortedRecords, "from dpjax.quantiles"]


def _count_share(asked: SortedRecords, public_n: ArrayLike | None) -> float:
    """Return the share of epsilon that a noisy number of records costs: more for few levels."""
    if asked.neighbors == "swap" or public_n is not None:
        return 0.0
    return 1 / 5 if len(asked.levels) <= 4 else 1 / 8


def _guarantee(
    asked: SortedRecords, epsilon: Amount, *, public_n: ArrayLike | None = None
) -> Guarantee:
    """Return the guarantee of one draw of :func:`joint_quantiles`, for all quantiles together.

    >>> import jax.numpy as jnp
    >>> from dpjax import quantiles
    >>> asked = quantiles(jnp.arange(9.0), [0.25, 0.75], lower=0, upper=9, neighbors="add_remove")
    >>> print(joint_quantiles.guarantee(asked, 1.0, public_n=9))
    1-DP under add_remove neighbors
    >>> print(joint_quantiles.guarantee(asked, 1.0))
    1-DP under add_remove neighbors
    """
    checks.instance(
        "guarantee",
        asked,
        SortedRecords,
        "from dpjax.quantiles: the guarantee depends on the relation and the number of levels",
    )
    count = epsilon * _count_share(asked, public_n)
    if count == 0:
        return Guarantee(epsilon, epsilon, asked.neighbors)
    # The interval of the losses of the joint draw depends on the noisy number: ranges do not add
    # up, but their ends do.
    zcdp = count**2 / 2 + (epsilon - count) ** 2 / 8
    return Guarantee(epsilon, 2 * epsilon, asked.neighbors, 0.0, zcdp)


@mechanism(_guarantee)
def joint_quantiles(
    asked: Asked, epsilon: Positive, *, public_n: ArrayLike | None = None
) -> JointQuantiles:
    """Return the joint distribution of all requested quantiles, under one epsilon.

    Rows are drawn one after the other, which is the fastest way on a CPU; ``jax.vmap`` over rows
    draws them together.

    Args:
        asked: from :func:`dpjax.quantiles`, batch shape ``(...)``, with any number m of levels.
        epsilon: positive.
        public_n: under add/remove, the number of records or a public estimate of it, integers that
            broadcast against ``(...)``; clipped to 1 and the number of columns of ``x``. The
            guarantee does not require it to be correct. Without it, each draw has its own noisy
            number, for 1/5 of epsilon with up to 4 levels and 1/8 with more.

    Returns:
        A :class:`JointQuantiles` of the broadcast batch shape.

    Privacy:
        epsilon-DP under the relation of ``asked``, for all quantiles together, and
        epsilon-bounded-range where the number of records is public (proof in the module docstring).
        Public: epsilon, ``public_n``, and what :func:`dpjax.quantiles` documents as public. Float
        draws are simulations.

    References:
        Gillenwater, Joseph and Kulesza (2021), "Differentially private quantiles" (JointExp), under
        swap. The cost under add/remove is not published elsewhere.

    >>> import jax, jax.numpy as jnp
    >>> from dpjax import quantiles
    >>> asked = quantiles(
    ...     jnp.arange(1.0, 1001.0), [0.25, 0.5, 0.75], lower=0, upper=2000, neighbors="add_remove"
    ... )
    >>> distribution = joint_quantiles(asked, 1.0, public_n=1000)
    >>> distribution.sample(jax.random.key(0), (4,)).shape
    (4, 3)
    >>> error = distribution.measured_error(jax.random.key(1), asked.value)
    >>> bool((error < 4).all())
    True
    """
    if public_n is not None and asked.neighbors == "swap":
        raise ValueError(
            "public_n is only for add_remove neighbors: under swap the number of records is public."
        )
    public = asked.num_records if public_n is None else public_n
    xp: Any = jnp if isinstance(public, jax.Array) else np
    most, share = max(asked.values.shape[-1], 1), _count_share(asked, public_n)
    number = xp.clip(public, 1, most)
    if not jnp.issubdtype(number.dtype, jnp.integer):
        raise ValueError(f"public_n must be integers, got dtype {number.dtype}.")
    fits(asked.batch_shape, epsilon=jnp.shape(epsilon), public_n=number.shape)
    return JointQuantiles(
        asked.values,
        asked.num_records,
        asked.lower,
        asked.upper,
        jnp.multiply(epsilon, (1 - share) / (4 if asked.neighbors == "swap" else 2)),
        None if share else jnp.asarray(number, jnp.int32),
        jnp.multiply(epsilon, share) if share else None,
        levels=asked.levels,
        resolution=asked.resolution,
    )
