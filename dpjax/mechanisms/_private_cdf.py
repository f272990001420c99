"""Private cdfs: several private quantiles from one draw, interpolated linearly."""

from __future__ import annotations

import jax
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.mechanisms._private_quantiles import Method, private_quantiles
from dpjax.sensitivity.sorted_records import SortedRecords
from dpjax.several_quantiles.cdf import QuantileCdf


def guarantee(asked: SortedRecords, epsilon: float, *, method: Method = "auto") -> Guarantee:
    """Return the guarantee of one :func:`private_cdf`.

    >>> import jax.numpy as jnp
    >>> from dpjax import quantiles
    >>> asked = quantiles(jnp.arange(9.0), [0.25, 0.75], lower=0, upper=9, neighbors="add_remove")
    >>> print(private_cdf.guarantee(asked, 0.5))
    0.5-DP and 0.5-bounded-range under add_remove neighbors
    """
    return private_quantiles.guarantee(asked, epsilon, method=method)


@with_guarantee(guarantee)
def private_cdf(
    key: jax.Array, asked: SortedRecords, epsilon: ArrayLike, *, method: Method = "auto"
) -> QuantileCdf:
    """Draw all requested quantiles and return the cdf through them.

    It rises from 0 at the lower bound to 1 at the upper bound and is monotone. Functions of it (a
    histogram, a mean, synthetic records) cost nothing more.

    Args:
        key: a scalar typed threefry key.
        asked: as for :func:`dpjax.private_quantiles`, like ``epsilon`` and ``method``; its levels
            are the values of the cdf at the drawn quantiles.

    Returns:
        A :class:`QuantileCdf` of the broadcast batch shape.

    Privacy:
        That of :func:`dpjax.private_quantiles`, for the cdf as a whole.

    References:
        Those of the mechanism; functions of its draws are post-processing (Dwork and Roth 2014,
        Proposition 2.1).

    >>> import jax, jax.numpy as jnp
    >>> from dpjax import quantiles
    >>> x = jnp.linspace(0.0, 1.0, 1001) ** 2
    >>> asked = quantiles(x, [0.2, 0.4, 0.6, 0.8], lower=0, upper=1, neighbors="add_remove")
    >>> cdf = private_cdf(jax.random.key(0), asked, 1.0)
    >>> abs(float(cdf.cdf(0.25)) - 0.5) < 0.05
    True
    """
    checks.instance("private_cdf", asked, SortedRecords, "from dpjax.quantiles")
    draws = private_quantiles(asked, epsilon, method=method).sample(key)
    return QuantileCdf.through(draws, asked.levels, asked.lower, asked.upper)
