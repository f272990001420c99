"""The trade-off curve of two distributions.

It is the least false negative rate at each false positive rate. For tests of P against Q with
rejection regions R it is

    f(a) = inf over P(R) <= a of Q(not R) = sup over t > 0 of 1 - E_t - t a,
    E_t = integral of max(q - t p, 0),

since every 1 - E_t - t a is a lower bound, which the likelihood ratio test at the best t attains
(Neyman and Pearson). As a function of t it is concave with the slope P(q > t p) - a, whose sign is
bisected in log t. With t = e^epsilon, E_t is the delta at epsilon of Q against P, also for a
negative epsilon.
"""

from __future__ import annotations

from functools import reduce

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.auditing._privacy_loss import Direction, PrivacyLoss, delta_of_loss
from dpjax.numerics.arrays import fits
from dpjax.numerics.search import bisect


def trade_off(
    loss: PrivacyLoss, false_positive: ArrayLike, *, direction: Direction = "both"
) -> jax.Array:
    """Return the least false negative rate of any test between two distributions (f-DP).

    Args:
        loss: the loss of P and Q, from :func:`privacy_loss`.
        false_positive: the false positive rate, in (0, 1); broadcasts against the batch of pairs.
        direction: ``"forward"`` tests P against Q, ``"backward"`` Q against P, and ``"both"``
            returns the smaller rate.

    Returns:
        Float array of the broadcast shape. Its absolute error is 64 units in the last place of 1,
        and the error of the deltas of ``loss``.

    Privacy:
        Not private, as for :func:`privacy_loss`.

    References:
        Dong, Roth and Su (2022), "Gaussian Differential Privacy", Definition 2 and Proposition 6.

    >>> from dpjax import laplace
    >>> from dpjax.auditing import privacy_loss
    >>> loss = privacy_loss(laplace(0.0, 1.0, sensitivity=1.0), laplace(1.0, 1.0, sensitivity=1.0))
    >>> round(float(trade_off(loss, 0.05)), 4)  # 1 - e * 0.05
    0.8641
    """
    rate = checks.probability("false_positive", false_positive, loss.dtype, below=1.0)
    fits(loss.batch_shape, false_positive=rate.shape)
    return reduce(jnp.minimum, [_trade_off(side, rate) for side in loss._sides(direction)])


@jax.jit
def _trade_off(loss: PrivacyLoss, rate: jax.Array) -> jax.Array:
    shape = jnp.broadcast_shapes(loss.batch_shape, rate.shape)
    # For smaller t the bound is at most t
    low = -jnp.minimum(loss.forward, -jnp.log(64 * jnp.finfo(rate.dtype).eps))
    high = jnp.minimum(loss.backward, -jnp.log(rate))  # for t above 1/a the bound is negative

    def bound(at: jax.Array) -> jax.Array:
        return 1 - delta_of_loss(loss, at, direction="backward") - jnp.exp(at) * rate

    def rises(at: jax.Array) -> jax.Array:
        return jax.jvp(bound, (at,), (jnp.ones_like(at),))[1] > 0

    ends = bisect(rises, jnp.broadcast_to(low, shape), jnp.broadcast_to(high, shape))
    found = jnp.maximum(*(bound(end) for end in ends))
    return jnp.where(jnp.isnan(found), jnp.nan, jnp.clip(found, 0.0, 1.0 - rate))
