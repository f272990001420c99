"""A mechanism whose loss never exceeds target + 2 tau: retried until a private estimate of the loss is low (Steinke 2025).

    for each of m attempts: y = draw(key),  z = loss(y) + truncated Laplace noise,  |noise| <= tau;
    the first y with z <= target + tau, or else the fallback

    tau = sensitivity/epsilon * log(1 + (e^epsilon - 1) / (2 delta))

If loss(y) <= target then z <= target + tau, so an attempt fails with at most the probability that the mechanism misses the target;
and z <= target + tau implies loss(y) <= target + 2 tau. Privacy: y and z together are a composition, success is read from z, and
``dpjax.accounting.failures`` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from math import expm1, inf, log1p
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.failures import Bound, Fallback, condition_on_success, retry_until_success
from dpjax.accounting.guarantee import Guarantee
from dpjax.distributions.finite import Finite
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.mechanisms.bounded_noise_laplace import bounded_noise_laplace
from dpjax.mechanisms.never_fail import never_fail, never_fail_law
from dpjax.numerics.batching import align, broadcast_batch, fits_into
from dpjax.random.keys import check_key

Outcome = TypeVar("Outcome")


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
    """Return the first of a fixed number of attempts whose privately estimated loss is low, for each row, or the fallback.

    Args:
        key: a scalar typed threefry key.
        draw: one attempt of the mechanism: a function of a key, to an array or a pytree of arrays.
        loss: from an outcome to float ``(...)``, read from the data too; the axes that all arrays of the outcome begin with. A loss
            of NaN is a failure.
        target: alpha, public, the loss that an attempt stays within but for its failure probability; broadcasts to the shape of the
            loss, which it cannot widen.
        epsilon: positive, of the truncated Laplace noise on the loss; broadcasts likewise.
        delta: in (0, 1/2), of that noise; broadcasts likewise.
        sensitivity: positive, of the loss of every outcome, as a function of the data; broadcasts likewise.
        fallback: a pytree like the outcome, public, or read from the data, such as the outcome of the smallest loss: then the loss
            is bounded with probability 1 (and the guarantee asked for with ``fallback="private"``).
        attempts: static, at least 1, chosen without the data; see :func:`dpjax.accounting.failures.attempts_for`.

    Returns:
        A pytree like the outcome. But for the fallback, its loss is at most target + 2 tau (:func:`loss_margin`), up to the
        rounding of that sum. Floats are NaN in rows whose public parameters are bad.

    Raises:
        TypeError: ``key`` is not a typed key.
        ValueError: a bad public parameter, another kind of key, shapes or a structure that do not fit.

    Privacy:
        (epsilon', delta')-DP, see :func:`guarantee`, if on EVERY dataset an attempt's loss is within the target but for the stated
        failure probability, and if the target does not depend on the data. An average that is within the target bounds it by
        Markov: failure <= average/target for a loss that is never negative (footnote 9 of the post has the ratio upside down).

    References:
        Steinke, "Differentially private algorithms that never fail", differentialprivacy.org (2025), Theorem 2.

    >>> import jax
    >>> from dpjax.random import exponential
    >>> draw, noise = lambda key: 3 + 9 * exponential(key, (1000,)), {"epsilon": 1.0, "delta": 0.1}
    >>> y = bounded_loss(jax.random.key(0), draw, loss=lambda y: y - 3.0, target=1.0, **noise, fallback=3.0, attempts=200)
    >>> 1 < float(y.max()) - 3 <= 1 + 2 * loss_margin(**noise)
    True
    """
    like = jax.eval_shape(lambda key: loss(draw(key)), check_key(key))
    dtype = like.dtype if jnp.issubdtype(like.dtype, jnp.floating) else jnp.result_type(float)
    for name, value in (("target", target), ("epsilon", epsilon), ("delta", delta), ("sensitivity", sensitivity)):
        fits_into(like.shape, "the loss", **{name: np.shape(value)})
    test = _Test.of(target, epsilon, delta, sensitivity, dtype)

    def attempt(key: jax.Array) -> tuple[Outcome, jax.Array]:
        key_outcome, key_noise = jax.random.split(key)
        outcome = draw(key_outcome)
        found = loss(outcome).astype(dtype)
        return outcome, test.draws(key_noise, found.shape) <= test.room(found)

    end = (fallback, jnp.zeros((), jnp.bool_))
    answer = never_fail(key, attempt, succeeded=lambda pair: pair[1], fallback=end, attempts=attempts)[0]
    broken = jnp.broadcast_to(align(test.broken(), like.ndim), like.shape)

    def spoil(leaf: jax.Array) -> jax.Array:
        here = broken.reshape(broken.shape + (1,) * (leaf.ndim - broken.ndim))
        return jnp.where(here, jnp.nan, leaf) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(spoil, answer)


def bounded_loss_law(
    law: Finite,
    losses: ArrayLike,
    *,
    target: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
    sensitivity: ArrayLike = 1.0,
    fallback: ArrayLike,
    attempts: int,
) -> Finite:
    """Return the exact law of :func:`bounded_loss` over candidates.

    A candidate is accepted with probability P[noise <= target + tau - loss], which is 1 up to the target and 0 beyond
    target + 2 tau.

    Args:
        law: of one attempt, of batch shape ``(...)``.
        losses: float ``(..., k)``, of each candidate.
        target: alpha, public; broadcasts against the batch shape, as do the next three.
        epsilon: positive, of the truncated Laplace noise.
        delta: in (0, 1/2), of that noise.
        sensitivity: positive, of the loss of every candidate, as a function of the data.
        fallback: float ``(...)``, as for :func:`bounded_loss`.
        attempts: static, at least 1, chosen without the data.

    Returns:
        A :class:`Finite` of k+1 values, the last the fallback; see :func:`dpjax.mechanisms.never_fail.never_fail_law`.

    Raises:
        TypeError: what is no :class:`Finite`.
        ValueError: a bad public parameter, shapes that do not fit.

    Privacy:
        As :func:`bounded_loss`.

    References:
        Steinke, "Differentially private algorithms that never fail", differentialprivacy.org (2025), Theorem 2.

    >>> import jax.numpy as jnp
    >>> law = Finite(jnp.arange(3.0), jnp.zeros(3), jnp.ones(()))
    >>> out = bounded_loss_law(law, [0.0, 1.0, 30.0], target=0.0, epsilon=1.0, delta=1e-3, fallback=0.0, attempts=9)
    >>> round(float(out.prob(1.0)), 4), float(out.prob(2.0))
    (0.4997, 0.0)
    """
    checks.instance("bounded_loss_law", law, Finite, "such as dpjax.exponential(...)")
    found = checks.float_array("losses", losses).astype(law.dtype)
    test = _Test.of(target, epsilon, delta, sensitivity, law.dtype)
    out = never_fail_law(law, test.acceptance(found), fallback=fallback, attempts=attempts)
    broken = align(test.broken(), out.cost.ndim - 1)[..., None]
    return Finite(out.values, jnp.where(broken, jnp.nan, out.cost), out.rate)


class _Test(NamedTuple):
    """The public parameters of the test, of one shape; NaN where one is bad."""

    target: jax.Array
    epsilon: jax.Array
    delta: jax.Array
    sensitivity: jax.Array

    @staticmethod
    def of(target: ArrayLike, epsilon: ArrayLike, delta: ArrayLike, sensitivity: ArrayLike, dtype: Any) -> _Test:
        given = (
            checks.finite("target", target, dtype),
            checks.positive("epsilon", epsilon, dtype),
            checks.probability("delta", delta, dtype, below=0.5),
            checks.positive("sensitivity", sensitivity, dtype),
        )
        shape = jnp.broadcast_shapes(*(parameter.shape for parameter in given))
        return _Test(*(broadcast_batch(parameter, shape) for parameter in given))

    def noise(self, shape: tuple[int, ...]) -> PiecewiseExponential:
        center = jnp.zeros(shape, self.epsilon.dtype)
        return bounded_noise_laplace(center, self.epsilon, sensitivity=self.sensitivity, delta=self.delta)

    def draws(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Noise for each loss: draws from one law, or from a law for each."""
        return self.noise(()).sample(key, shape) if self.epsilon.ndim == 0 else self.noise(shape).sample(key)

    def room(self, loss: jax.Array) -> jax.Array:
        """What the noise must not exceed. In this order of sums it never does where the loss is within the target."""
        tau = self.noise(()).edges[..., 2]
        return (align(self.target, loss.ndim) - loss) + align(tau, loss.ndim)

    @jax.jit
    def acceptance(self, losses: jax.Array) -> jax.Array:
        """The exact probability of acceptance of each candidate, ``(..., k)``."""
        rank = max(losses.ndim - 1, self.target.ndim)
        rows = jax.tree.map(lambda parameter: align(parameter, rank)[..., None], self)
        return rows.noise(()).cdf(rows.room(align(losses, rank + 1)))

    def broken(self) -> jax.Array:
        return jnp.isnan(self.target + self.epsilon + self.delta + self.sensitivity)


def loss_margin(*, epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return tau, the largest error of the estimated loss; the loss is promised to be within target + 2 tau.

        tau = sensitivity/epsilon * log(1 + (e^epsilon - 1) / (2 delta))

    Args:
        epsilon: positive, of the truncated Laplace noise.
        delta: in (0, 1/2), of that noise.
        sensitivity: positive, of the loss.

    Returns:
        A Python float.

    Raises:
        ValueError: a parameter outside its range.

    Privacy:
        None is spent: it reads public numbers only.

    References:
        Geng, Ding, Guo and Kumar (2020), Theorem 1. Footnote 4 of the post has the order of it, (1 + log(1/(2 delta)))/epsilon.

    >>> round(loss_margin(epsilon=1.0, delta=1e-6), 3)
    13.664
    """
    rate, failure = checks.concrete_epsilon(epsilon), checks.concrete_delta(delta)
    if not (failure < 0.5 and 0 < sensitivity < inf):
        raise ValueError(f"delta must be below 1/2 and sensitivity finite and positive, got {delta} and {sensitivity}.")
    return sensitivity * (1 + log1p(-expm1(-rate) * (1 / (2 * failure) - 1)) / rate)


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
    """Return what one draw of :func:`bounded_loss` costs.

    The attempt and the estimate of its loss compose to (attempt.epsilon + epsilon, attempt.delta + delta)-DP; then see
    :func:`dpjax.accounting.failures.retry_until_success`. With ``bound="published"``, the same epsilon and delta for both and no
    limit on the attempts, it is Theorem 2: 4 epsilon - log(1 - 2 delta/(1-failure)) and 2 delta/(1-failure).

    Args:
        attempt: the guarantee of one attempt, without the estimate of its loss.
        epsilon: of the estimate.
        delta: of the estimate.
        failure: in [0, 1), a bound on the probability that the loss of an attempt exceeds the target, on every dataset.
        attempts: as for the draw, or None for the loop of the post, which never ends but by success.
        fallback: ``"public"`` or ``"private"``.
        bound: ``"sharp"`` or ``"published"``; see :func:`dpjax.accounting.failures.condition_on_success`.

    >>> one = Guarantee(1.0, 1.0, "swap")
    >>> print(guarantee(one, epsilon=1.0, delta=1e-6, failure=0.1, attempts=6, fallback="public"))
    (2.09173, 2.11111e-06)-DP under swap neighbors
    """
    both = Guarantee(
        attempt.epsilon + checks.concrete_epsilon(epsilon),
        inf,
        attempt.neighbors,
        delta=attempt.delta + checks.concrete_delta(delta),
    )
    if attempts is None:
        return condition_on_success(both, failure, bound=bound)
    return retry_until_success(both, failure, attempts=attempts, fallback=fallback, bound=bound)
