"""Above threshold, the sparse vector technique (Dwork and Roth 2014), with an exact distribution.

It returns the first of many queries that is above a threshold, and the gap between the two. The
textbook adds noise to every query and to the threshold T. Here only the threshold has noise, and a
smooth maximum replaces the largest query so far. With

    w_i = exp(r (q_i - T)),  A_i = w_0 + ... + w_(i-1),  psi(z) = min(z^(l-1), z^-(k+1)),  k = 1,

draw Z > 0 with density C psi, C = l k / (l + k), and stop at the i where A_i < Z <= A_(i+1), or
never. log(Z)/r is the noise of the threshold, with exponential tails of rates r l below and r k
above. Write Z = A_i + s w_i: the density of the pair (i, s) is

    C w_i psi(A_i + s w_i),    0 < s <= 1,

and the gap is -log(s)/r >= 0. Where the earlier queries are small against q_i, the gap is q_i minus
the noisy threshold.

Privacy. Compare the density for a neighboring dataset at the same (i, s): so s, and with it the
gap, costs nothing more. Let every query change by at most the sensitivity, and r' = r *
sensitivity. Then log(w'/w) = a and log(z'/z) = b are both in [-r', r'], and log(psi(z')/psi(z))
lies between (l-1) b and -(k+1) b. So the log-ratio is at most max(r' + (l-1) r', r' + (k+1) r') =
r' max(l, k+2) on either side. If the mechanism never stops, P = C * integral of psi from A on, and
log(P'/P) lies between l b and -k b, by substituting z for z'. So epsilon = r' (k+2), with l = k+2.
If all queries change in one direction, a and b have the same sign, and a + (l-1) b <= l r', a -
(k+1) b >= -(k+1) r': epsilon = r' (k+1), with l = k+1.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from math import log, prod
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.batch import Batch
from dpjax.distributions.base import Shape, draws_first, draws_shape
from dpjax.distributions.finite import Finite
from dpjax.mechanisms.mechanism import Number, Positive, mechanism
from dpjax.mechanisms.selection import log_decayed
from dpjax.numerics.arrays import broadcast_rows, concatenate, take
from dpjax.numerics.float64 import in_float64
from dpjax.numerics.search import count_leading
from dpjax.pytrees import pytree
from dpjax.random import check_key
from dpjax.random.variates import uniform, words

Changes = Literal["any", "one_direction"]
_TAIL = 1.0  # k
# Replaces infinite logarithms of weights, of very small or large queries.
_FAR = 1e4


@pytree
class AboveThreshold(Batch):
    """The exact joint distribution of the index where above threshold stops and the gap; a pytree.

    A draw is a pair, so there is no event shape, support or cdf; those of the index are in
    :meth:`index`.

    Attributes:
        weight: r (q_i - threshold), float ``(..., m)``; ``-inf`` for a query that is excluded.
        rate: r, float ``(...)``, broadcasting against ``weight[..., 0]``.
        below: static, the exponent l of the lower tail.

    >>> import jax.numpy as jnp
    >>> above_threshold(jnp.array([3.0, 0.0, 8.0, 61.0, 20.0]), 1.0, threshold=35.0).weight.shape
    (5,)
    """

    weight: jax.Array
    rate: jax.Array
    below: float = field(metadata={"static": True})

    _event_axes = ("weight",)
    _parameters = ("rate",)

    def index(self) -> Finite:
        """Return the distribution of the index where it stops; m stands for no stop."""
        return _index(self)

    def sample(self, key: jax.Array, shape: Shape = ()) -> tuple[jax.Array, jax.Array]:
        """Draw indices and gaps, without derivatives, from the definition: Z is drawn.

        Returns:
            Indices, int32 of shape ``shape + batch_shape``: m where no query is above, -1 in a row
            with invalid parameters. And gaps, float, NaN where there is none.
        """
        shape = draws_shape(shape)
        index, gap = _draw(check_key(key), self, prod(shape))
        return draws_first(index, shape), draws_first(gap, shape)

    def log_prob(self, index: ArrayLike, gap: ArrayLike) -> jax.Array:
        """Return the joint log-density of an index below m and a gap.

        The shape is the broadcast shape of both and ``batch_shape``. Where the index is m, it is
        the log-probability of no stop, whatever the gap; ``-inf`` where there is no such outcome.
        """
        return _log_prob(
            self, jnp.asarray(index, jnp.int32), checks.float_array("gap", gap).astype(self.dtype)
        )


@mechanism(ranges=2)
def above_threshold(
    queries: ArrayLike,
    epsilon: Positive,
    *,
    threshold: Number,
    sensitivity: Positive = 1.0,
    changes: Changes = "any",
) -> AboveThreshold:
    """Return the distribution of the first query above a threshold, and of its gap to it.

    The gap is that to the noisy threshold.

    The cost does not depend on the number m of queries. The probability of stopping too early is
    about ``(m exp(-r d))^l / (l + 1)`` if all queries are d below the threshold, and that of
    passing a query d above it about ``exp(-r d)``; here r = epsilon / (3 sensitivity) and l = 3, or
    r = epsilon / (2 sensitivity) and l = 2 for changes in one direction. So set the threshold about
    ``log(m) / r`` above queries that should not be found.

    Probability of missing the query that is above, for m queries of 0 followed by one of G, epsilon
    = 1, sensitivity 1, each mechanism at its best threshold, the textbook mechanism with the split
    of epsilon of Lyu, Su and Li and Laplace or exponential noise on the queries:
                     any changes                    in one direction
        m      G     here   Laplace  exponential    here    Laplace  exponential
        10     20    0.038  0.230    0.156          0.0059  0.061    0.037
        100    30    0.018  0.169    0.107          0.0011  0.020    0.011
        10000  40    0.046  0.311    0.232          0.0008  0.017    0.0089

    Args:
        queries: float ``(..., m)``, in the order of evaluation; ``-inf``, publicly, excludes a
            query.
        epsilon: positive.
        threshold: public, ``(...)``.
        sensitivity: positive, the sensitivity of each query.
        changes: static, ``"any"``, or ``"one_direction"`` if between two neighbors no query
            increases while another decreases, as with counts under add/remove.

    Returns:
        An :class:`AboveThreshold`. ``index()`` is the exact :class:`Finite` of the index where it
        stops. Rows with a NaN or invalid public parameters are NaN. Queries further than 10^4 / r
        from the threshold count as if they were that far.

    Privacy:
        epsilon-DP for index and gap together, under the relation that the sensitivity holds for
        (proof in the module docstring). The bounded range is up to 2 epsilon. Public: all arguments
        except the queries. To continue, exclude the queries up to the drawn index and call it
        again, at the cost of another epsilon. Float draws are simulations.

    References:
        Dwork and Roth (2014), Section 3.6; Lyu, Su and Li (2017); Ding, Wang, Zhang and Kifer
        (2019, 2023), for the free gap. The distribution is not taken from these papers.

    >>> import jax.numpy as jnp
    >>> visits = jnp.array([3.0, 0.0, 8.0, 61.0, 20.0])
    >>> found = above_threshold(visits, 1.0, threshold=35.0, changes="one_direction")
    >>> [round(float(p), 4) for p in found.index().probabilities()]
    [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    """
    if jnp.ndim(queries) == 0 or jnp.shape(queries)[-1] == 0:
        raise ValueError(
            f"queries must have a last axis of size at least 1, got shape {jnp.shape(queries)}."
        )
    below = _TAIL + (
        2 if checks.one_of("changes", changes, ("any", "one_direction")) == "any" else 1
    )
    return _distribution(queries, threshold, sensitivity, epsilon, below)


@partial(jax.jit, static_argnames="below")
def _distribution(
    values: jax.Array, level: jax.Array, unit: jax.Array, epsilon: jax.Array, below: int
) -> AboveThreshold:
    rate = jnp.minimum(epsilon, 2.0**60) / (below * unit)
    absent = values == -jnp.inf
    gaps = jnp.where(absent, 0.0, values) - level[..., None]
    weight = jnp.where(absent, -jnp.inf, jnp.clip(rate[..., None] * gaps, -_FAR, _FAR))
    return AboveThreshold(weight, rate, below)


@jax.jit
def _index(found: AboveThreshold) -> Finite:
    before = _log_sums(found)
    # The last interval is unbounded; no mass is beyond such an end.
    after = concatenate(before[..., 1:], jnp.full(1, 3 * _FAR, found.dtype))
    weight = concatenate(found.weight, after[..., -1:])
    # after - before without its rounding error, bounded from below so that no log-probability is
    # infinite.
    width = jax.nn.softplus(jnp.maximum(weight, -_FAR) - before)
    width = jnp.maximum(width, float(jnp.finfo(found.dtype).tiny))
    # The lengths of an interval of log Z below and above 0.
    low = jnp.where(before >= 0, 0.0, jnp.where(after <= 0, width, -before))
    high = jnp.where(after <= 0, 0.0, jnp.where(before >= 0, width, after))
    mass_low = log(_TAIL) + found.below * jnp.minimum(after, 0.0) + log_decayed(found.below * low)
    mass_high = log(found.below) - _TAIL * jnp.maximum(before, 0.0) + log_decayed(_TAIL * high)
    cost = log(found.below + _TAIL) - jnp.logaddexp(mass_low, mass_high)
    values = jnp.arange(cost.shape[-1], dtype=found.dtype)
    cost = broadcast_rows(jnp.where(weight == -jnp.inf, jnp.inf, cost), found.batch_shape)
    return Finite(values, cost, jnp.ones((), found.dtype))


def _log_sums(found: AboveThreshold) -> jax.Array:
    """Return the logarithms of A_0, A_1, ..., ``(..., m + 1)``."""
    weight = jnp.maximum(found.weight, -_FAR)
    sums = jax.lax.cumlogsumexp(weight, axis=weight.ndim - 1)
    return concatenate(jnp.full(1, -jnp.inf, found.dtype), sums)


@partial(jax.jit, static_argnames=("draws",))
def _draw(key: jax.Array, found: AboveThreshold, draws: int) -> tuple[jax.Array, jax.Array]:
    fixed = jax.lax.stop_gradient(found)
    return in_float64(_stop, fixed, words(key, (*found.batch_shape, draws, 4)))


def _stop(found: AboveThreshold, drawn: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return where the sums exceed Z, and the gap there."""
    side, size = (uniform(drawn[..., i], drawn[..., i + 1], found.dtype) for i in (0, 2))
    below = side * (found.below + _TAIL) <= _TAIL
    noise = jnp.log(size) * jnp.where(below, 1 / found.below, -1 / _TAIL)  # log Z
    ends, last, one = _log_sums(found), found.weight.shape[-1] - 1, np.int32(1)
    index = count_leading(lambda i: take(ends, i + one) < noise, last + 1, noise.shape)
    index = jnp.where(jnp.isnan(ends[..., -1:]), np.int32(-1), index)
    place = jnp.clip(index, 0, last)
    # S = (Z - A) / w
    log_share = noise + log_decayed(noise - take(ends, place)) - take(found.weight, place)
    gap = jnp.maximum(-log_share / found.rate[..., None], 0.0)
    return index, jnp.where(index == place, gap, jnp.nan)


@jax.jit
def _log_prob(found: AboveThreshold, index: jax.Array, gap: jax.Array) -> jax.Array:
    size, none = found.weight.shape[-1], _index(found).log_probabilities()[..., -1]
    shape = jnp.broadcast_shapes(index.shape, gap.shape, found.batch_shape)
    column = jnp.broadcast_to(jnp.clip(index, 0, size - 1), shape)[..., None]
    before, weight = (take(part, column)[..., 0] for part in (_log_sums(found), found.weight))
    down = found.rate * gap
    z = jnp.logaddexp(before, weight - down)
    density = (
        log(found.below * _TAIL / (found.below + _TAIL))
        + (found.below - 1) * jnp.minimum(z, 0)
        - (_TAIL + 1) * jnp.maximum(z, 0)
        + (weight + jnp.log(found.rate) - down)
    )
    possible = (gap >= 0) & (weight > -jnp.inf) & (index >= 0) & (index < size)
    density = jnp.where(jnp.isnan(none), jnp.nan, jnp.where(possible, density, -jnp.inf))
    return jnp.where(index == size, none, density)
