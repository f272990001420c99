"""Selection among private candidates (Liu and Talwar 2019; Papernot and Steinke 2022).

It returns the best of a random number of attempts. Draw K from a public distribution p on 1, ...,
m, attempt K times, and return the outcome with the best score, where the score is part of the
outcome of an attempt: a hyperparameter with a noisy accuracy, for example. With f(x) = sum of p_k
x^k and F the distribution function of the scores, the best outcome is y with probability Q(y) times
the mean of f' over [F(<y), F(<=y)] (outcomes of equal scores share their total). K is bounded: p is
the distribution of the number of attempts that is used, not an infinite distribution with its tail
cut off.

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
from math import exp, expm1, inf
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.finite import Finite
from dpjax.mechanisms._never_fail import begins_with, where
from dpjax.numerics.arrays import broadcast_rows
from dpjax.random import check_key

Outcome = TypeVar("Outcome")
_CELLS = 2**17  # cells of log(q / (1 - q)) between -_END and _END
_END = 32.0


def negative_binomial(most: int, *, eta: float = 0.0, gamma: float = 0.0) -> np.ndarray:
    """Return probabilities of 1, ..., most attempts, ~ (1 - gamma)^k Gamma(k + eta) / k!.

    This is the truncated negative binomial distribution (Papernot and Steinke 2022, Definition 1),
    conditioned on at most ``most`` attempts. ``eta=0`` is logarithmic and ``eta=1`` geometric; a
    smaller eta, above -1, costs less, but puts more mass on few attempts. With ``gamma=0`` the mean
    is (most + 1)/2 for eta = 1, and most / (1 + 1/2 + ... + 1/most) for eta = 0.

    >>> negative_binomial(3, eta=1.0).round(3).tolist(), negative_binomial(3).round(3).tolist()
    ([0.333, 0.333, 0.333], [0.545, 0.273, 0.182])
    """
    size, thinning = (
        checks.static_integer("most", most, 1),
        checks.concrete_fraction("gamma", gamma),
    )
    if not -1 < eta < inf:
        raise ValueError(f"eta must be finite and above -1, got {eta}.")
    k = np.arange(1, size)
    return _from_ratios((1 - thinning) * (k + eta) / (k + 1))


def poisson(most: int, *, mean: float) -> np.ndarray:
    """Return probabilities of 1, ..., most attempts, proportional to mean^k / k!.

    ``mean`` is that of the unconditioned Poisson distribution (Papernot and Steinke 2022, Theorem
    6). For a large mean, K is rarely small, and the cost for epsilon-DP attempts is up to about (1
    + mean/2) epsilon.

    >>> poisson(4, mean=2.0).round(3).tolist()
    [0.333, 0.333, 0.222, 0.111]
    """
    size = checks.static_integer("most", most, 1)
    if not 0 < mean < inf:
        raise ValueError(f"mean must be finite and positive, got {mean}.")
    return _from_ratios(mean / np.arange(2.0, size + 1))


def _from_ratios(ratios: np.ndarray) -> np.ndarray:
    logs = np.concatenate([[0.0], np.cumsum(np.log(ratios))])
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def guarantee(attempt: Guarantee, *, attempts: ArrayLike) -> Guarantee:
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
    number = probabilities_of(attempts)
    pure = attempt.epsilon
    spread = min(attempt.bounded_range, 2 * pure)
    orders = 1 + np.geomspace(1e-3, 1e4, 128)
    each = attempt.rdp(orders)
    # Cells of q' by its log-odds, the outermost ones unbounded: f'(q') at the left end of the cell,
    # and f'(q) at the node above the largest q.
    odds = np.linspace(-_END, _END, _CELLS + 1)
    slope, bend = _slopes(number, odds)
    highest = np.append(_largest_odds(odds, pure, spread, orders, each), inf)
    index = np.ceil(np.minimum((highest + _END) * (_CELLS / (2 * _END)) + 1e-6, _CELLS + 1)).astype(
        np.int64
    )
    above, below = np.log(slope[1:])[index], np.log(slope[:-1])
    grown = above - below
    epsilon = inf
    if pure < inf:
        # By the steepest part of log f', for all t from R - epsilon to epsilon, or by the largest
        # ratio.
        least = (exp(-pure) - exp(-spread)) / -expm1(-spread) if spread else 0.0
        steepest = float(
            np.max(
                (np.append(1.0, _share(-odds)) * bend[1:] / slope[:-1])[
                    np.append(_share(odds), 1.0) >= least
                ]
            )
        )
        ends = pure + (spread - pure) * steepest, spread - pure + pure * steepest
        epsilon = min(max(ends), pure + float(grown.max())) * (1 + 1e-9)
    extra = np.array([np.max(above / (order - 1) + grown) for order in orders])
    bound = np.minimum((each + extra) * (1 + 1e-9), epsilon)
    # Renyi divergences are nondecreasing in the order.
    bound = np.minimum.accumulate(bound[::-1])[::-1]
    points = tuple(
        (order, value)
        for order, value in zip(orders.tolist(), bound.tolist(), strict=True)
        if value < inf
    )
    return Guarantee(epsilon, 2 * epsilon, attempt.neighbors, renyi=points, unit=attempt.unit)


@with_guarantee(guarantee)
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
    number = probabilities_of(attempts)
    key_number, key_draws = jax.random.split(check_key(key))
    keys = jax.random.split(key_draws, len(number))
    like = jax.eval_shape(draw, keys[0])
    goodness = jax.eval_shape(score, like)
    begins_with("score", goodness.shape, like)
    last = Finite(
        jnp.zeros(len(number)), -jnp.log(jnp.asarray(number, jnp.result_type(float))), jnp.ones(())
    )
    counted = last.sample_index(key_number, goodness.shape)  # K - 1

    def attempt(
        state: tuple[Outcome, jax.Array], at: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[Outcome, jax.Array], None]:
        held, best = state
        found = draw(at[1])
        value = jnp.asarray(score(found), best.dtype)
        value = jnp.where(jnp.isnan(value), -jnp.inf, value)
        better = (at[0] == 0) | ((at[0] <= counted) & (value > best))
        return where(better, (found, value), (held, best)), None

    dtype = (
        goodness.dtype if jnp.issubdtype(goodness.dtype, jnp.floating) else jnp.result_type(float)
    )
    start = (
        jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like),
        jnp.zeros(goodness.shape, dtype),
    )
    return jax.lax.scan(attempt, start, (jnp.arange(len(number), dtype=jnp.int32), keys))[0][0]


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
    checks.instance("best_of_distribution", distribution, Finite, "such as dpjax.exponential(...)")
    score = checks.float_array("scores", scores).astype(distribution.dtype)
    if score.shape[-1:] != distribution.values.shape[-1:]:
        raise ValueError(
            f"scores must have one element for each of the {distribution.values.shape[-1]} "
            f"candidates on the last axis, got shape {score.shape}."
        )
    number = jnp.asarray(probabilities_of(attempts), distribution.dtype)
    return Finite(
        distribution.values, _cost(distribution, score, number), jnp.ones((), distribution.dtype)
    )


@jax.jit
def _cost(one: Finite, scores: jax.Array, number: jax.Array) -> jax.Array:
    batch = jnp.broadcast_shapes(one.batch_shape, scores.shape[:-1])
    log_mass = broadcast_rows(one.log_probabilities(), batch)
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


def probabilities_of(attempts: ArrayLike) -> np.ndarray:
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


def _share(odds: np.ndarray) -> np.ndarray:
    """Return q from its log-odds log(q / (1 - q))."""
    return 1 / (1 + np.exp(-odds))


def _slopes(number: np.ndarray, odds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivatives f' and f'' at 0, at these log-odds, and at 1."""
    q, k = np.concatenate([[0.0], _share(odds), [1.0]]), np.arange(1, len(number) + 1)
    slope, bend, power = np.full_like(q, number[0]), np.zeros_like(q), np.ones_like(q)
    for once, twice in zip((k * number)[1:], (k * (k - 1) * number)[1:], strict=True):
        bend += twice * power
        power *= q
        slope += once * power
    return slope, bend


def _largest_odds(
    odds: np.ndarray, pure: float, spread: float, orders: np.ndarray, divergences: np.ndarray
) -> np.ndarray:
    """Return the largest log-odds of q for those of q' that the guarantee of an attempt allows."""
    log_q, log_s = -np.log1p(np.exp(-odds)), -np.log1p(np.exp(odds))
    # Upper bounds on log q, lower bounds on log(1 - q).
    most, least = log_q + pure, log_s - pure
    for order, divergence in zip(orders, divergences, strict=True):
        most = np.minimum(most, (1 - 1 / order) * (log_q + divergence))
        least = np.maximum(least, order / (order - 1) * log_s - divergence)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_q = np.where(most < 0, most - np.log(-np.expm1(most)), inf)
        by_s = np.where(least < 0, np.log(-np.expm1(least)) - least, -inf)
    return np.minimum(np.minimum(by_q, by_s), odds + spread)
