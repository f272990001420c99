"""Independent quantiles: m draws of piecewise Laplace from the same records, which share epsilon.

They are returned in ascending order. This is the baseline of the mechanisms for several quantiles,
and a good choice for few levels or with a delta. No draw depends on another, so m draws of bounded
range e are together (epsilon, delta)-DP by the optimal composition theorem for fixed queries;
without a delta e = epsilon / m. Sorting is post-processing, and does not increase the error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.allocation import shared_epsilon
from dpjax.accounting.budgeting import epsilon_per_query
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.batch import Batch
from dpjax.distributions import PiecewiseExponential, Rounded
from dpjax.distributions.base import Shape
from dpjax.mechanisms._piecewise_laplace import piecewise_laplace
from dpjax.numerics.batching import fits
from dpjax.sensitivity import SensitivityProfile, SortedRecords
from dpjax.sensitivity.parts import Parts, Ranks, Reading, rows_of
from dpjax.statistics.padded_records import levels_kept


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class IndependentQuantiles(Batch):
    """The joint distribution of independent draws in ascending order, as a pytree.

    Attributes:
        unsorted: the distribution of each draw, of batch shape ``(..., m)``.

    >>> import jax.numpy as jnp
    >>> from dpjax import quantiles
    >>> asked = quantiles(jnp.arange(9.0), [0.2, 0.8], lower=0, upper=9, neighbors="swap")
    >>> independent_quantiles(asked, 1.0).event_shape
    (2,)
    """

    unsorted: PiecewiseExponential | Rounded

    _event_axes = ("unsorted",)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The number of quantiles, ``(m,)``."""
        return self.unsorted.batch_shape[-1:]

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The bounds of all quantiles, each of shape ``batch_shape``."""
        low, high = self.unsorted.support
        return jnp.min(low, axis=-1), jnp.max(high, axis=-1)

    def sample(self, key: jax.Array, shape: Shape = ()) -> jax.Array:
        """Draw all quantiles, ascending: float of shape ``shape + batch_shape + (m,)``.

        Rows with invalid parameters are NaN.
        """
        return jnp.sort(self.unsorted.sample(key, shape), axis=-1)


def guarantee(asked: SortedRecords, epsilon: float, *, delta: float = 0.0) -> Guarantee:
    """Return the guarantee of one draw of :func:`independent_quantiles`.

    >>> import jax.numpy as jnp
    >>> from dpjax import quantiles
    >>> asked = quantiles(jnp.arange(9.0), [0.2, 0.4, 0.6, 0.8], lower=0, upper=9, neighbors="swap")
    >>> print(independent_quantiles.guarantee(asked, 1.0))
    1-DP and 1-bounded-range and 0.03125-zCDP under swap neighbors
    """
    checks.instance(
        "guarantee",
        asked,
        SortedRecords,
        "from dpjax.quantiles: the guarantee depends on the number of levels",
    )
    m = len(asked.levels)
    each = epsilon_per_query(count=m, epsilon=epsilon, delta=delta, queries="fixed")
    return Guarantee(
        epsilon, m * each if delta else epsilon, asked.neighbors, delta, m * each * each / 8
    )


@with_guarantee(guarantee)
def independent_quantiles(
    asked: SortedRecords, epsilon: ArrayLike, *, delta: float = 0.0, truncate: int | None = None
) -> IndependentQuantiles:
    """Return the distribution of independent draws of all quantiles, in ascending order.

    Each is that of :func:`dpjax.piecewise_laplace` for :func:`dpjax.quantile`, at the epsilon per
    query ``accounting.epsilon_per_query(count=m, epsilon=epsilon, delta=delta, queries="fixed")``,
    which is epsilon/m without a delta.

    Args:
        asked: as for :func:`dpjax.recursive_quantiles`, like all other arguments.

    Returns:
        An :class:`IndependentQuantiles` of the broadcast batch shape.

    Raises:
        TypeError: ``epsilon`` is a JAX array and ``delta`` is positive.

    Privacy:
        (epsilon, delta)-DP under the relation of ``asked``; with e the epsilon of each draw, also m
        e-DP, m e-bounded-range and m e^2/8-zCDP. Public: epsilon, delta, and what
        :func:`dpjax.quantiles` documents as public. Float draws are simulations.

    References:
        Dong, Durfee and Rogers (2020), Theorem 2; Durfee (2025), Definition 3.1.

    >>> import jax, jax.numpy as jnp
    >>> from dpjax import quantiles
    >>> grid = {"lower": 0, "upper": 200, "resolution": 1}
    >>> asked = quantiles(jnp.arange(1.0, 200.0), [0.25, 0.5, 0.75], neighbors="add_remove", **grid)
    >>> independent_quantiles(asked, 50_000.0).sample(jax.random.key(0)).tolist()
    [50.0, 100.0, 150.0]
    """
    checks.instance("independent_quantiles", asked, SortedRecords, "from dpjax.quantiles")
    each = shared_epsilon(
        epsilon, count=len(asked.levels), delta=delta, queries="fixed", dtype=asked.dtype
    )
    fits(asked.batch_shape, epsilon=each.shape)
    profile = _profile(asked, truncate=levels_kept(truncate))
    return IndependentQuantiles(piecewise_laplace(profile, each[..., None]))


def _profile(asked: SortedRecords, *, truncate: int | None) -> SensitivityProfile:
    """Return the profiles of all quantiles of all records, of batch shape ``(..., m)``."""
    shape = (*asked.batch_shape, len(asked.levels))
    rows, last = rows_of(asked), jnp.broadcast_to(asked.num_records[..., None], shape)
    ends = (jnp.broadcast_to(rows[..., end, None], shape) for end in (0, -1))
    ranks, of_records = Ranks.of(asked.levels, asked.neighbors), asked.resolution is not None
    reading = Reading.of(ranks, asked.values.shape[-1], of_records=of_records, truncate=truncate)
    rows = jnp.broadcast_to(rows, (*asked.batch_shape, rows.shape[-1]))
    profile = replace(
        Parts(rows, jnp.zeros_like(last), last, *ends).profile(ranks, reading),
        neighbors=asked.neighbors,
    )
    return profile if asked.resolution is None else profile.in_units(asked.resolution)
