"""Attempts that are repeated: until one succeeds, until its loss is low, or for the best of them.

**Never fail**: retries of any mechanism, a fixed number of times, until it succeeds (Steinke 2025).

    for each of m attempts: outcome = draw(fresh key);  the first with succeeded(outcome), or else
    the fallback

The post repeats as long as necessary, which takes a time that depends on the data. Here all m
attempts are always made, which leaves a probability of failure^m to the fallback. Privacy: the
argument and its conditions are in ``dpjax.accounting.failures``: ``succeeded`` depends on the data
only through the outcome, and ``failure`` bounds the probability of a failed attempt on EVERY
dataset. A bound that holds for most datasets only is not enough: where it fails, so does delta.

**Bounded loss**: a mechanism with loss at most target + 2 tau, by retries until a private loss
estimate is low (Steinke 2025):

    for each of m attempts: y = draw(key),  z = loss(y) + truncated Laplace noise,  |noise| <= tau;
    return the first y with z <= target + tau, or else the fallback

    tau = sensitivity/epsilon * log(1 + (e^epsilon - 1) / (2 delta))

If loss(y) <= target then z <= target + tau, so an attempt fails with at most the probability that
the mechanism misses the target; and z <= target + tau implies loss(y) <= target + 2 tau. Privacy: y
and z together are a composition, success is a function of z, and ``dpjax.accounting.failures``
bounds the cost of the retries.

**Best of**: selection among private candidates (Liu and Talwar 2019; Papernot and Steinke 2022). It
returns the best of a random number of attempts. Draw K from a public distribution p on 1, ..., m,
attempt K times, and return the outcome with the best score, where the score is part of the outcome
of an attempt: a hyperparameter with a noisy accuracy, for example. With f(x) = sum of p_k x^k and F
the distribution function of the scores, the best outcome is y with probability Q(y) times the mean
of f' over [F(<y), F(<=y)] (outcomes of equal scores share their total). K is bounded: p is the
distribution of the number of attempts that is used, not an infinite distribution with its tail cut
off.

Privacy. For neighboring datasets, let q and q' be such values of F at the same place. The loss is
at most log(Q/Q') + log(f'(q)/f'(q')), for the largest q that the guarantee of an attempt allows. If
an attempt is epsilon-DP, q <= e^epsilon q' and 1 - q >= e^-epsilon (1 - q'). If it has range R, let
e^t be the largest ratio, t from R - epsilon to epsilon: Q <= e^t Q', and with s = 1 - q, s' = 1 -
q', q <= e^t q' and s >= e^(t-R) s'. While the first of the two is the smaller bound, f'(q)/f'(q')
increases with q', since log f'(e^x) is convex; beyond, log f'(1 - s) falls by s f''/f' per unit of
log s, at most S say, and the loss is at most t + (R - t) S. For Renyi divergences, the sum of Q^a
Q'^(1-a) is at most e^((a-1) D_a), and f'(q)^a f'(q')^(1-a) at most its largest value over all q, q'
that the guarantee of an attempt allows. All suprema are over cells, each with f' at the end that
makes it larger, so they are never underestimated.

Choice of the distribution of K. The slope of log f'(e^x) is the mean of K - 1 with K p_K tilted by
e^(xK). Removing large K decreases it, so p conditioned on K <= m costs no more than p. For
unbounded p_k proportional to gamma(k + eta) / k! the slope is (1 + eta) q / (1 - q), and the cost
is (2 + eta) epsilon. Using min(K, m) instead costs up to m epsilon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import exp, expm1, inf, log1p
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.failures import Fallback, number_of_attempts, retry_until_success
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.checks.numbers import Interval
from dpjax.distributions import Finite
from dpjax.mechanisms.mechanism import HALF
from dpjax.mechanisms.noise import bounded_noise_laplace
from dpjax.numerics.arrays import concatenate, fits
from dpjax.numerics.float64 import in_float64
from dpjax.random import check_key

Outcome = TypeVar("Outcome")


@with_guarantee(retry_until_success)
def never_fail(
    key: jax.Array,
    draw: Callable[[jax.Array], Outcome],
    *,
    succeeded: Callable[[Outcome], jax.Array],
    fallback: Outcome,
    attempts: int,
) -> Outcome:
    """Return the first success of a fixed number of attempts, or the fallback, per element.

    Args:
        key: a scalar typed threefry key.
        draw: one attempt, a function from a key to a float or integer array or a pytree of them,
            such as ``distribution.sample``.
        succeeded: a function from the outcome of ``draw`` to bool ``(...)``, whose shape must be
            the leading axes of all arrays of the outcome. Each element succeeds or fails
            separately.
        fallback: the result where no attempt succeeds: a pytree like the outcome, each array
            broadcasting against it.
        attempts: m, static, at least 1, chosen without the data. All fail with probability at most
            failure^m.

    Returns:
        A pytree like the outcome. An attempt with NaN succeeds if ``succeeded`` says so.

    Raises:
        TypeError: ``succeeded`` does not return booleans.
        ValueError: the structure of ``fallback`` or the shape of ``succeeded`` does not fit the
            outcome.

    Privacy:
        ``never_fail.guarantee`` is :func:`dpjax.accounting.failures.retry_until_success` of the
        guarantee of one attempt and its failure probability on the worst dataset. ``succeeded``
        must be a fixed function of the outcome: a threshold that depends on the data breaks the
        guarantee (:func:`dpjax.mechanisms.bounded_loss` tests a loss privately). The fallback is
        public, or depends on the data, for which the guarantee needs ``fallback="private"``. Float
        draws are simulations.

    References:
        Steinke, "Differentially private algorithms that never fail", differentialprivacy.org
        (2025), Theorem 1.

    >>> import jax
    >>> draw = lambda key: 3 + jax.random.exponential(key, (1000,))
    >>> y = never_fail(
    ...     jax.random.key(0), draw, succeeded=lambda y: y < 4, fallback=3.5, attempts=20
    ... )
    >>> bool((y < 4).all())
    True
    """
    keys = jax.random.split(check_key(key), number_of_attempts(attempts))
    outcome = jax.eval_shape(draw, keys[0])
    success = jax.eval_shape(succeeded, outcome)
    if success.dtype != jnp.bool_:
        raise TypeError(f"succeeded must return booleans, got {success.dtype}.")
    expected, found = str(jax.tree.structure(outcome)), str(jax.tree.structure(fallback))
    if expected != found:
        raise ValueError(
            f"fallback must have the pytree structure of the outcome, {expected}, got {found}."
        )
    start = jax.tree.map(
        lambda value, leaf: jnp.broadcast_to(jnp.asarray(value, leaf.dtype), leaf.shape),
        fallback,
        outcome,
    )
    held = start, jnp.zeros(success.shape, jnp.bool_)
    return _highest(draw, lambda outcome, _: succeeded(outcome), held, keys)


def _highest(
    draw: Callable[[jax.Array], Outcome],
    score: Callable[[Outcome, jax.Array], jax.Array],
    start: tuple[Outcome, jax.Array],
    keys: jax.Array,
) -> Outcome:
    """Return the outcome with the highest score of a start and of attempts, the first of equals.

    The score is a function of the outcome and of the number of the attempt, from 0. Any is higher
    than NaN, which only the start may have.
    """
    shape, shapes = start[1].shape, [leaf.shape for leaf in jax.tree.leaves(start[0])]
    if any(leaf_shape[: len(shape)] != shape for leaf_shape in shapes):
        raise ValueError(
            "every array of the outcome must begin with the axes of its score, or of whether it "
            f"succeeded, {shape}, got shapes {shapes}."
        )

    def attempt(
        held: tuple[Outcome, jax.Array], turn: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[Outcome, jax.Array], None]:
        outcome = draw(turn[1])
        value = score(outcome, turn[0])
        return _where(~(held[1] >= value), (outcome, value), held), None

    return jax.lax.scan(attempt, start, (jnp.arange(len(keys)), keys))[0][0]


def _where(condition: jax.Array, new: Outcome, old: Outcome) -> Outcome:
    """Select ``new`` where the condition holds, else ``old``, in pytrees with its leading axes."""

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(
            jnp.expand_dims(condition, tuple(range(condition.ndim, new.ndim))), new, old
        )

    return jax.tree.map(choose, new, old)


def never_fail_distribution(
    distribution: Finite, acceptance: ArrayLike, *, fallback: ArrayLike, attempts: int
) -> Finite:
    """Return the distribution of :func:`never_fail` over candidates.

    It is P(y) a(y) (1 - q^m)/(1 - q), plus q^m for the fallback. a(y) is the probability that y is
    accepted, 0 or 1 for a set of successes, and q = sum over y of P(y) (1 - a(y)).

    Args:
        distribution: the distribution of one attempt, of batch shape ``(...)``.
        acceptance: float ``(k,)`` or ``(..., k)``, clipped to [0, 1], and 0 where it is NaN.
        fallback: float ``(...)``.
        attempts: the number m of attempts, as for :func:`never_fail`.

    Returns:
        A :class:`Finite` of k+1 values, the last being the fallback (also if it equals a candidate:
        the probabilities of equal values add up), with minus log-probabilities as costs, at rate 1.
        A draw from it takes the same time for all data.

    >>> import jax.numpy as jnp
    >>> one = Finite(jnp.array([1.0, 2.0, 3.0]), jnp.zeros(3), jnp.ones(()))
    >>> found = never_fail_distribution(one, [1, 0, 0], fallback=9.0, attempts=2)
    >>> [round(float(p), 4) for p in found.probabilities()]
    [0.5556, 0.0, 0.0, 0.4444]
    """
    accepted = _of_candidates("never_fail_distribution", "acceptance", acceptance, distribution)
    last = checks.float_array("fallback", fallback).astype(distribution.dtype)
    cost = _cost_of_retries(distribution, accepted, number_of_attempts(attempts))
    values = concatenate(distribution.values, last[..., None])
    return Finite(values, cost, jnp.ones((), distribution.dtype))


@partial(jax.jit, static_argnames="attempts")
def _cost_of_retries(one: Finite, acceptance: jax.Array, attempts: int) -> jax.Array:
    """Return minus the log-probability of every candidate, and of the fallback."""

    def log(x: jax.Array) -> jax.Array:
        """Return the logarithm, whose derivative at 0 is 0."""
        return jnp.where(x == 0, -jnp.inf, jnp.log(jnp.where(x == 0, 1.0, x)))

    def compute(one: Finite, acceptance: jax.Array) -> jax.Array:
        accepted = jnp.where(jnp.isnan(acceptance), 0.0, jnp.clip(acceptance, 0.0, 1.0))
        log_chance = one.log_probabilities()
        failure = jnp.sum(jnp.exp(log_chance) * (1 - accepted), axis=-1, keepdims=True)
        # 1 + q + ... + q^(m - 1), which does not cancel
        repeats = jax.lax.fori_loop(
            0, attempts, lambda _, total: 1 + failure * total, jnp.zeros_like(failure)
        )
        return concatenate(-log_chance - log(accepted) - log(repeats), -attempts * log(failure))

    return in_float64(compute, one, acceptance)


def _guarantee_of_losses(
    attempt: Guarantee,
    *,
    epsilon: float,
    delta: float,
    failure: float,
    attempts: int,
    fallback: Fallback,
) -> Guarantee:
    """Return the guarantee of one draw of :func:`bounded_loss`.

    The attempt and the estimate of its loss compose to (attempt.epsilon + epsilon, attempt.delta +
    delta)-DP, to which :func:`dpjax.accounting.failures.retry_until_success` is applied. The loop
    of the blog post, Theorem 2, only ends with a success: it is
    :func:`dpjax.accounting.failures.condition_on_success` of the same composition.

    Args:
        attempt: the guarantee of one attempt, without the estimate of its loss.
        epsilon: the epsilon of the estimate of the loss.
        delta: the delta of the estimate of the loss.
        failure: in [0, 1), a bound on the probability that the loss of an attempt exceeds the
            target, on every dataset.
        attempts: as in :func:`bounded_loss`.
        fallback: ``"public"`` or ``"private"``, whether the fallback depends on the data.

    >>> one = Guarantee(1.0, 1.0, "swap")
    >>> options = {"failure": 0.1, "attempts": 6, "fallback": "public"}
    >>> print(bounded_loss.guarantee(one, epsilon=1.0, delta=1e-6, **options))
    2.09174-DP except with probability 2.2e-06 under swap neighbors
    """
    both = Guarantee(
        attempt.epsilon + checks.concrete_epsilon(epsilon),
        inf,
        attempt.neighbors,
        attempt.delta + checks.concrete_delta(delta),
        unit=attempt.unit,
    )
    return retry_until_success(both, failure, attempts=attempts, fallback=fallback)


@with_guarantee(_guarantee_of_losses)
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
        attempts: m, static, at least 1, chosen without the data. All fail with probability at most
            failure^m.

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
    dtype = jnp.result_type(like.dtype, float)
    public = {"epsilon": epsilon, "delta": delta, "sensitivity": sensitivity}
    shapes = {name: np.shape(value) for name, value in public.items()}
    fits(like.shape, False, target=np.shape(target), **shapes)
    others = like.ndim - max(map(len, shapes.values()))  # axes along which all noise is alike
    noise = bounded_noise_laplace(jnp.zeros(like.shape[others:], dtype), **public)
    least, tau = checks.finite("target", target, dtype), noise.edges[..., 2]

    def attempt(key: jax.Array) -> tuple[Outcome, jax.Array]:
        key_outcome, key_noise = jax.random.split(key)
        outcome = draw(key_outcome)
        # Summed in this order, a loss within the target is accepted in spite of rounding
        drawn = noise.sample(key_noise, like.shape[:others])
        return outcome, drawn <= (least - loss(outcome)) + tau

    end = (fallback, jnp.zeros((), jnp.bool_))
    answer, _ = never_fail(
        key, attempt, succeeded=lambda pair: pair[1], fallback=end, attempts=attempts
    )
    none = jax.tree.map(
        lambda leaf: leaf * jnp.nan if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, answer
    )
    return _where(jnp.broadcast_to(jnp.isnan(least + tau), like.shape), none, answer)


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
    loss = _of_candidates("bounded_loss_distribution", "losses", losses, distribution)
    dtype = distribution.dtype
    noise = bounded_noise_laplace(
        jnp.zeros((), dtype), epsilon, sensitivity=sensitivity, delta=delta
    )
    # With an axis of candidates, which is the first one for the noise
    least, tau = checks.finite("target", target, dtype)[..., None], noise.edges[..., 2:]
    accepted = noise.cdf(jnp.moveaxis((least - loss) + tau, -1, 0))
    found = never_fail_distribution(
        distribution, jnp.moveaxis(accepted, 0, -1), fallback=fallback, attempts=attempts
    )
    return replace(found, cost=jnp.where(jnp.isnan(least + tau), jnp.nan, found.cost))


def loss_margin(*, epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return tau, the largest error of the estimated loss; the loss is at most target + 2 tau.

        tau = sensitivity/epsilon * log(1 + (e^epsilon - 1) / (2 delta))

    From Geng, Ding, Guo and Kumar (2020), Theorem 1. Footnote 4 of the post has its order of
    magnitude, (1 + log(1/(2 delta)))/epsilon.

    >>> round(loss_margin(epsilon=1.0, delta=1e-6), 3)
    13.664
    """
    rate, failure = checks.concrete_epsilon(epsilon), HALF.single("delta", delta)
    sensitivity = checks.concrete_positive("sensitivity", sensitivity)
    return sensitivity * (1 + log1p(-expm1(-rate) * (1 / (2 * failure) - 1)) / rate)


def negative_binomial(most: int, *, eta: float = 0.0, gamma: float = 0.0) -> np.ndarray:
    """Return probabilities of 1, ..., most attempts, ~ (1 - gamma)^k Gamma(k + eta) / k!.

    This is the truncated negative binomial distribution (Papernot and Steinke 2022, Definition 1),
    conditioned on at most ``most`` attempts. ``eta=0`` is logarithmic and ``eta=1`` geometric; a
    smaller eta, above -1, costs less, but puts more mass on few attempts. With ``gamma=0`` the mean
    is (most + 1)/2 for eta = 1, and most / (1 + 1/2 + ... + 1/most) for eta = 0.

    >>> negative_binomial(3, eta=1.0).round(3).tolist(), negative_binomial(3).round(3).tolist()
    ([0.333, 0.333, 0.333], [0.545, 0.273, 0.182])
    """
    size = checks.static_integer("most", most, 1)
    thinning = checks.concrete_fraction("gamma", gamma)
    shift = Interval("finite and above -1", -1, inf).single("eta", eta)
    k = np.arange(1, size)
    return _from_ratios((1 - thinning) * (k + shift) / (k + 1))


def poisson(most: int, *, mean: float) -> np.ndarray:
    """Return probabilities of 1, ..., most attempts, proportional to mean^k / k!.

    ``mean`` is that of the unconditioned Poisson distribution (Papernot and Steinke 2022, Theorem
    6). For a large mean, K is rarely small, and the cost for epsilon-DP attempts is up to about (1
    + mean/2) epsilon.

    >>> poisson(4, mean=2.0).round(3).tolist()
    [0.333, 0.333, 0.222, 0.111]
    """
    size = checks.static_integer("most", most, 1)
    return _from_ratios(checks.concrete_positive("mean", mean) / np.arange(2.0, size + 1))


def _from_ratios(ratios: np.ndarray) -> np.ndarray:
    logs = np.concatenate([[0.0], np.cumsum(np.log(ratios))])
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def _guarantee_of_best(attempt: Guarantee, *, attempts: ArrayLike) -> Guarantee:
    """Return the guarantee of :func:`best_of`, for this bounded number of attempts.

    Args:
        attempt: the guarantee of one attempt, including its score: pure, bounded-range, zCDP or
            Renyi.
        attempts: see :func:`best_of`.

    Returns:
        A :class:`Guarantee` with a curve of Renyi divergences, pure if ``attempt`` is, rounded up
        by about a thousandth. For :func:`negative_binomial` its epsilon is up to (2 + eta) times
        that of an attempt. For attempts of bounded range epsilon, such as those of
        :func:`dpjax.exponential`, it is up to (1 + eta) times: for eta up to 0, many attempts cost
        the same as one.

    Raises:
        TypeError: ``attempt`` is not a :class:`Guarantee`, or ``attempts`` is a JAX array.
        ValueError: ``attempt`` has a delta, or ``attempts`` are not probabilities.

    References:
        Papernot and Steinke (2022), Lemma 7, Theorem 2 and Corollary 3. The bound for bounded range
        is not taken from there.

    >>> one = Guarantee(0.1, 0.2, "swap")
    >>> round(best_of.guarantee(one, attempts=negative_binomial(200)).epsilon, 3)
    0.2
    """
    checks.instance("best_of.guarantee", attempt, Guarantee, "the cost of one attempt")
    if attempt.delta:
        raise ValueError(
            f"attempt must be a pure, zCDP or Renyi guarantee without delta, got {attempt}."
        )
    number = np.polynomial.Polynomial(np.append(0, _probabilities_of(attempts)))  # f
    pure = attempt.epsilon
    spread = min(attempt.bounded_range, 2 * pure)
    orders = 1 + np.geomspace(1e-3, 1e4, 128)
    each = attempt.rdp(orders)
    # Cells of q' by its log-odds, the outermost ones unbounded: f'(q') at the left end of the cell,
    # and f'(q) at the node above the largest q. Nodes are symmetric: 1 - q is q in reverse.
    odds = np.linspace(-32, 32, 2**17 + 1)
    q = np.concatenate([[0], 1 / (1 + np.exp(-odds)), [1]])
    slope, bend = number.deriv()(q), number.deriv(2)(q)
    highest = _largest_odds(odds, spread, np.append(orders, inf), np.append(each, pure))
    above = np.log(slope[1:])[np.searchsorted(odds, np.append(highest, inf) + 1e-9)]
    grown = above - np.log(slope[:-1])
    epsilon = inf
    if pure < inf:
        # By the steepest part of log f', for all t from R - epsilon to epsilon, or by the largest
        # ratio.
        least = (exp(-pure) - exp(-spread)) / -expm1(-spread) if spread else 0.0
        steepest = np.max((q[:0:-1] * bend[1:] / slope[:-1])[q[1:] >= least])
        ends = pure + (spread - pure) * steepest, spread - pure + pure * steepest
        epsilon = float(min(max(ends), pure + np.max(grown))) * (1 + 1e-9)
    extra = np.array([np.max(above / (order - 1) + grown) for order in orders])
    bound = np.minimum((each + extra) * (1 + 1e-9), epsilon)
    # Renyi divergences are nondecreasing in the order.
    bound = np.minimum.accumulate(bound[::-1])[::-1]
    points = tuple(zip(orders[bound < inf].tolist(), bound[bound < inf].tolist(), strict=True))
    return Guarantee(epsilon, 2 * epsilon, attempt.neighbors, renyi=points, unit=attempt.unit)


def _largest_odds(
    odds: np.ndarray, spread: float, orders: np.ndarray, divergences: np.ndarray
) -> np.ndarray:
    """Return the largest log-odds of q for those of q' that the guarantee of an attempt allows."""
    log_q, log_s = -np.log1p(np.exp(-odds)), -np.log1p(np.exp(odds))
    # Upper bounds on log q, lower bounds on log(1 - q).
    most, least = np.zeros_like(odds), np.full_like(odds, -inf)
    for order, divergence in zip(orders, divergences, strict=True):
        most = np.minimum(most, (1 - 1 / order) * (log_q + divergence))
        least = np.maximum(least, log_s / (1 - 1 / order) - divergence)
    with np.errstate(divide="ignore"):
        by_q, by_s = most - np.log(-np.expm1(most)), np.log(-np.expm1(least)) - least
    return np.min([by_q, by_s, odds + spread], axis=0)


@with_guarantee(_guarantee_of_best)
def best_of(
    key: jax.Array,
    draw: Callable[[jax.Array], Outcome],
    *,
    score: Callable[[Outcome], jax.Array],
    attempts: ArrayLike,
) -> Outcome:
    """Return the outcome with the best score of a random number of attempts.

    All ``m`` attempts are made, whatever K is, so the running time reveals nothing about K.

    Args:
        key: a scalar typed threefry key.
        draw: one attempt, a private function from a key to a float or integer array or a pytree of
            them.
        score: a function from the outcome of ``draw`` to float ``(...)``, higher is better, whose
            shape must be the leading axes of all arrays of the outcome. Each element is selected
            separately, with its own number of attempts. NaN is the worst score.
        attempts: static float ``(m,)``, public, the probabilities of 1, ..., m attempts, such as
            :func:`negative_binomial`.

    Returns:
        A pytree like the outcome. The first of equal scores is returned.

    Raises:
        TypeError: ``attempts`` is a JAX array, or ``key`` is not a typed key.
        ValueError: ``attempts`` are not probabilities, or the shape of the scores does not fit.

    Privacy:
        ``best_of.guarantee`` of the guarantee of one attempt, score included: ``score`` must depend
        on the data only through the outcome. The number of attempts is not revealed. Float draws
        are simulations.

    References:
        Liu and Talwar (2019), Theorem 3.2; Papernot and Steinke (2022), Algorithm 1.

    >>> import jax
    >>> tries = negative_binomial(50)
    >>> draw = lambda key: jax.random.gumbel(key, (1000,))
    >>> y = best_of(jax.random.key(0), draw, score=lambda y: -abs(y - 1), attempts=tries)
    >>> float(abs(y - 1).mean()) < 0.7
    True
    """
    number = _probabilities_of(attempts)
    key_number, key_draws = jax.random.split(check_key(key))
    keys = jax.random.split(key_draws, len(number))
    like = jax.eval_shape(draw, keys[0])
    goodness = jax.eval_shape(score, like)
    last = Finite(
        jnp.zeros(len(number)), -jnp.log(jnp.asarray(number, jnp.result_type(float))), jnp.ones(())
    )
    counted = last.sample_index(key_number, goodness.shape)  # K - 1
    dtype = jnp.result_type(goodness.dtype, float)

    def counted_score(outcome: Outcome, number: jax.Array) -> jax.Array:
        value = jnp.asarray(score(outcome), dtype)
        return jnp.where((number <= counted) & ~jnp.isnan(value), value, -jnp.inf)

    start = jax.tree.map(jnp.zeros_like, like), jnp.full_like(goodness, jnp.nan, dtype)
    return _highest(draw, counted_score, start, keys)


def best_of_distribution(distribution: Finite, scores: ArrayLike, *, attempts: ArrayLike) -> Finite:
    """Return the exact distribution of :func:`best_of` over candidates.

    Args:
        distribution: the distribution of one attempt, of batch shape ``(...)``.
        scores: float ``(k,)`` or ``(..., k)``, the score of each candidate, higher is better; the
            same for every dataset. A candidate that can have several scores is entered several
            times.
        attempts: see :func:`best_of`.

    Returns:
        A :class:`Finite` on the same values; its costs are minus log-probabilities, and its rate is
        1.

    References:
        Papernot and Steinke (2022), Lemma 7.

    >>> import jax.numpy as jnp
    >>> one = Finite(jnp.array([1.0, 2.0]), jnp.zeros(2), jnp.ones(()))
    >>> best_of_distribution(one, [0.0, 1.0], attempts=[0.5, 0.5]).probabilities().tolist()
    [0.375, 0.625]
    """
    score = _of_candidates("best_of_distribution", "scores", scores, distribution)
    number = jnp.asarray(_probabilities_of(attempts), distribution.dtype)
    cost = _cost_of_best(distribution, score, number)
    return Finite(distribution.values, cost, jnp.ones((), distribution.dtype))


@jax.jit
def _cost_of_best(one: Finite, scores: jax.Array, number: jax.Array) -> jax.Array:
    log_mass = one.log_probabilities()
    upto, before = jnp.vectorize(_distribution_function, signature="(k),(k)->(k),(k)")(
        jnp.where(jnp.isnan(scores), -jnp.inf, scores), jnp.exp(log_mass)
    )

    def add(state: tuple[jax.Array, jax.Array, jax.Array], p: jax.Array) -> tuple[Any, None]:
        total, terms, power = state  # terms is the sum of upto^i before^(k-1-i)
        return (total + p * terms, upto * terms + power * before, power * before), None

    ones = jnp.ones_like(upto)
    (mean_slope, _, _), _ = jax.lax.scan(add, (jnp.zeros_like(upto), ones, ones), number)
    return jnp.where(log_mass == -jnp.inf, jnp.inf, -log_mass - jnp.log(mean_slope))


def _distribution_function(scores: jax.Array, mass: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return P(score <= s) and P(score < s) for the score s of each candidate."""
    order = jnp.argsort(scores)
    ordered = scores[order]
    sums = jnp.minimum(jnp.concatenate([jnp.zeros(1, mass.dtype), jnp.cumsum(mass[order])]), 1.0)
    upto, before = (jnp.searchsorted(ordered, scores, side=side) for side in ("right", "left"))
    return sums[upto], sums[before]


def _probabilities_of(attempts: ArrayLike) -> np.ndarray:
    """Return the probabilities of 1, ..., m attempts as float64, or raise if they are invalid."""
    if isinstance(attempts, jax.Array):
        raise TypeError("attempts must be a static sequence of numbers, not a JAX array.")
    number = checks.host_floats("attempts", attempts).astype(np.float64)
    if (
        number.ndim != 1
        or not np.all(number >= 0)
        or abs(number.sum() - 1) > 1e-6
        or not number[0] > 0
    ):
        raise ValueError(
            "attempts must be the probabilities of 1, 2, ... attempts, with that of 1 positive, "
            f"got {attempts}."
        )
    return number / number.sum()


def _of_candidates(caller: str, name: str, value: ArrayLike, distribution: Finite) -> jax.Array:
    """Return an array with an element for each candidate of one attempt, of its dtype."""
    checks.instance(caller, distribution, Finite, "such as dpjax.exponential(...)")
    array = checks.float_array(name, value).astype(distribution.dtype)
    size = distribution.values.shape[-1]
    if array.shape[-1:] != (size,):
        raise ValueError(
            f"{name} must have one element for each of the {size} candidates on the last axis, "
            f"got shape {array.shape}."
        )
    return array
