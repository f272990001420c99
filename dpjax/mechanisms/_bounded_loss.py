"""A mechanism with loss at most target + 2 tau: retry until a private loss estimate is low.

It is from Steinke (2025):

    for each of m attempts: y = draw(key),  z = loss(y) + truncated Laplace noise,  |noise| <= tau;
    return the first y with z <= target + tau, or else the fallback

    tau = sensitivity/epsilon * log(1 + (e^epsilon - 1) / (2 delta))

If loss(y) <= target then z <= target + tau, so an attempt fails with at most the probability that
the mechanism misses the target; and z <= target + tau implies loss(y) <= target + 2 tau. Privacy: y
and z together are a composition, success is a function of z, and ``dpjax.accounting.failures``
bounds the cost of the retries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import expm1, inf, log1p
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.failures import Bound, Fallback, condition_on_success, retry_until_success
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions import Finite, PiecewiseExponential
from dpjax.mechanisms._bounded_noise_laplace import bounded_noise_laplace
from dpjax.mechanisms._never_fail import never_fail, never_fail_distribution, where
from dpjax.numerics.arrays import fits
from dpjax.random import check_key

Outcome = TypeVar("Outcome")


def guarantee(
    attempt: Guarantee,
    *,
    epsilon: float,
    delta: float,
    failure: float,
    attempts: int | None,
    fallback: Fallback,
    bound: Bound = "sharp",
) -> Guarantee:
    """Return the guarantee of one draw of :func:`bounded_loss`.

    The attempt and the estimate of its loss compose to (attempt.epsilon + epsilon, attempt.delta +
    delta)-DP, to which :func:`dpjax.accounting.failures.retry_until_success` is applied. With
    ``bound="published"``, the same epsilon and delta for both and no limit on the attempts, this is
    Theorem 2: 4 epsilon - log(1 - 2 delta/(1-failure)) and 2 delta/(1-failure).

    Args:
        attempt: the guarantee of one attempt, without the estimate of its loss.
        epsilon: the epsilon of the estimate of the loss.
        delta: the delta of the estimate of the loss.
        failure: in [0, 1), a bound on the probability that the loss of an attempt exceeds the
            target, on every dataset.
        attempts: as in :func:`bounded_loss`, or None for the loop of the blog post, which only ends
            with a success.
        fallback: ``"public"`` or ``"private"``, whether the fallback depends on the data.
        bound: ``"sharp"`` or ``"published"``; see
            :func:`dpjax.accounting.failures.condition_on_success`.

    >>> one = Guarantee(1.0, 1.0, "swap")
    >>> options = {"failure": 0.1, "attempts": 6, "fallback": "public"}
    >>> print(bounded_loss.guarantee(one, epsilon=1.0, delta=1e-6, **options))
    (2.09174, 2.11111e-06)-DP under swap neighbors
    """
    estimate_epsilon, estimate_delta = (
        checks.concrete_epsilon(epsilon),
        checks.concrete_delta(delta),
    )
    epsilon, delta = attempt.epsilon + estimate_epsilon, attempt.delta + estimate_delta
    both = Guarantee(epsilon, inf, attempt.neighbors, delta, unit=attempt.unit)
    if attempts is None:
        return condition_on_success(both, failure, bound=bound)
    return retry_until_success(both, failure, attempts=attempts, fallback=fallback, bound=bound)


@with_guarantee(guarantee)
def bounded_loss(
    key: jax.Array,
    draw: Callable[[jax.Array], Outcome],
    *,
    loss: Callable[[Outcome], jax.Array],
    target: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
    sensitivity: ArrayLike = 1.0,
    fallback: Outcome,
    attempts: int,
) -> Outcome:
    """Return, for each batch element, the first attempt whose privately estimated loss is low.

    If there is none in a fixed number of attempts, return the fallback.

    Args:
        key: a scalar typed threefry key.
        draw: one attempt of the mechanism, a function from a key to an array or a pytree of arrays.
        loss: a function from an outcome to float ``(...)``, which may read the data. Its shape must
            be the leading axes of all arrays of the outcome. A loss of NaN is a failure.
        target: alpha, public, the loss that an attempt does not exceed except with its failure
            probability. It must broadcast to the shape of the loss, as must the next three.
        epsilon: positive, of the truncated Laplace noise on the loss.
        delta: in (0, 1/2), of that noise.
        sensitivity: positive, the sensitivity of the loss of every outcome, as a function of the
            data.
        fallback: a pytree like the outcome, either public or computed from the data, such as the
            outcome of the smallest loss. In the second case the loss is bounded with probability 1,
            and the guarantee needs ``fallback="private"``.
        attempts: static, at least 1, chosen without the data; see
            :func:`dpjax.accounting.failures.attempts_for`.

    Returns:
        A pytree like the outcome. Unless it is the fallback, its loss is at most target + 2 tau
        (:func:`loss_margin`), up to the rounding of that sum. Floats are NaN in batch elements
        whose public parameters are invalid.

    Privacy:
        (epsilon', delta')-DP, see ``bounded_loss.guarantee``, if on EVERY dataset the loss of an
        attempt is within the target except with the stated failure probability, and if the target
        does not depend on the data. A bound on the average loss gives one by Markov's inequality:
        failure <= average/target for a nonnegative loss (footnote 9 of the post has the ratio
        inverted).

    References:
        Steinke, "Differentially private algorithms that never fail", differentialprivacy.org
        (2025), Theorem 2.

    >>> import jax
    >>> draw = lambda key: 3 + 9 * jax.random.exponential(key, (1000,))
    >>> noise = {"epsilon": 1.0, "delta": 0.1}
    >>> loss, options = lambda y: y - 3.0, {"target": 1.0, "fallback": 3.0, "attempts": 200}
    >>> y = bounded_loss(jax.random.key(0), draw, loss=loss, **noise, **options)
    >>> 1 < float(y.max()) - 3 <= 1 + 2 * loss_margin(**noise)
    True
    """
    like = jax.eval_shape(lambda key: loss(draw(key)), check_key(key))
    dtype = like.dtype if jnp.issubdtype(like.dtype, jnp.floating) else jnp.result_type(float)
    public = _public(target, epsilon, delta, sensitivity, dtype)
    for name, parameter in zip(("target", "epsilon", "delta", "sensitivity"), public, strict=True):
        fits(like.shape, False, **{name: parameter.shape})
    # The axes along which the noise varies.
    noise_shape = like.shape[like.ndim - max(parameter.ndim for parameter in public[1:]) :]
    noise, others = _noise(public, noise_shape), like.shape[: like.ndim - len(noise_shape)]

    def attempt(key: jax.Array) -> tuple[Outcome, jax.Array]:
        key_outcome, key_noise = jax.random.split(key)
        outcome = draw(key_outcome)
        return outcome, noise.sample(key_noise, others) <= _room(
            public, loss(outcome).astype(dtype)
        )

    end = (fallback, jnp.zeros((), jnp.bool_))
    answer = never_fail(
        key, attempt, succeeded=lambda pair: pair[1], fallback=end, attempts=attempts
    )[0]
    broken = jnp.broadcast_to(jnp.isnan(sum(public)), like.shape)
    invalid = jax.tree.map(
        lambda leaf: (
            jnp.full_like(leaf, jnp.nan) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
        ),
        answer,
    )
    return where(broken, invalid, answer)


def bounded_loss_distribution(
    distribution: Finite,
    losses: ArrayLike,
    *,
    target: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
    sensitivity: ArrayLike = 1.0,
    fallback: ArrayLike,
    attempts: int,
) -> Finite:
    """Return the exact distribution of :func:`bounded_loss` over candidates.

    ``distribution`` is that of one attempt, and ``losses`` ``(..., k)`` are the losses of its
    candidates. A candidate is accepted with probability P[noise <= target + tau - loss], which is 1
    up to the target and 0 beyond target + 2 tau. The other arguments are those of
    :func:`bounded_loss`; they broadcast against the batch shape. The result has k+1 values, of
    which the last is the fallback; see :func:`dpjax.mechanisms.never_fail_distribution`.

    >>> import jax.numpy as jnp
    >>> one = Finite(jnp.arange(3.0), jnp.zeros(3), jnp.ones(()))
    >>> options = {"target": 0.0, "epsilon": 1.0, "delta": 1e-3, "fallback": 0.0, "attempts": 9}
    >>> found = bounded_loss_distribution(one, [0.0, 1.0, 30.0], **options)
    >>> round(float(found.prob(1.0)), 4), float(found.prob(2.0))
    (0.4997, 0.0)
    """
    checks.instance(
        "bounded_loss_distribution", distribution, Finite, "such as dpjax.exponential(...)"
    )
    public = [
        parameter[..., None]
        for parameter in _public(target, epsilon, delta, sensitivity, distribution.dtype)
    ]
    room = _room(public, checks.float_array("losses", losses).astype(distribution.dtype))
    found = never_fail_distribution(
        distribution, _noise(public).cdf(room), fallback=fallback, attempts=attempts
    )
    return Finite(found.values, jnp.where(jnp.isnan(sum(public)), jnp.nan, found.cost), found.rate)


def _public(
    target: ArrayLike, epsilon: ArrayLike, delta: ArrayLike, sensitivity: ArrayLike, dtype: Any
) -> list[jax.Array]:
    """Return the public parameters of the test; NaN where they are invalid."""
    return [
        checks.finite("target", target, dtype),
        checks.positive("epsilon", epsilon, dtype),
        checks.probability("delta", delta, dtype, below=0.5),
        checks.positive("sensitivity", sensitivity, dtype),
    ]


def _noise(public: Sequence[jax.Array], shape: tuple[int, ...] = ()) -> PiecewiseExponential:
    _, epsilon, delta, sensitivity = public
    return bounded_noise_laplace(
        jnp.zeros(shape, epsilon.dtype), epsilon, sensitivity=sensitivity, delta=delta
    )


def _room(public: Sequence[jax.Array], loss: jax.Array) -> jax.Array:
    """Return the upper bound on the noise, which always holds where the loss is within the target.

    The order of the sums ensures this in spite of rounding.
    """
    return (public[0] - loss) + _noise(public).edges[..., 2]


def loss_margin(*, epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return tau, the largest error of the estimated loss; the loss is at most target + 2 tau.

        tau = sensitivity/epsilon * log(1 + (e^epsilon - 1) / (2 delta))

    From Geng, Ding, Guo and Kumar (2020), Theorem 1. Footnote 4 of the post has its order of
    magnitude, (1 + log(1/(2 delta)))/epsilon.

    >>> round(loss_margin(epsilon=1.0, delta=1e-6), 3)
    13.664
    """
    rate, failure = checks.concrete_epsilon(epsilon), checks.concrete_delta(delta)
    if failure >= 0.5:
        raise ValueError(f"delta must be below 1/2, got {delta}.")
    sensitivity = checks.concrete_positive("sensitivity", sensitivity)
    return sensitivity * (1 + log1p(-expm1(-rate) * (1 / (2 * failure) - 1)) / rate)
