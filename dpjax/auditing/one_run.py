"""Auditing in one run (Steinke, Nasr and Jagielski 2023).

An auditor guesses which of m canaries were included. Each canary is included by a fair coin. If the
run is epsilon-DP in each coin, the number of correct guesses among r is stochastically at most
Binomial(r, e^epsilon / (1 + e^epsilon)), however dependent the guesses are; randomized response
attains this. So many correct guesses refute a small epsilon. An attacker may abstain: only the
canaries with a guess count. With delta > 0 (Theorem 5.2), for f(v) = P[Binomial(r, e^epsilon / (1 +
e^epsilon)) >= v],

    P[at least v correct] <= f(v) + 2 m delta max over i in 1..v of (f(v - i) - f(v)) / i
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.auditing._privacy_loss import Distribution, bisected
from dpjax.numerics.solve import Array, upper_tail
from dpjax.random import check_key


def p_value(
    correct: ArrayLike,
    guesses: ArrayLike,
    *,
    epsilon: ArrayLike,
    canaries: int | None = None,
    delta: float = 0.0,
) -> Array:
    """Return an upper bound on the probability of this many correct guesses.

    The run is assumed to be (epsilon, delta)-DP. It is
    ``P[Binomial(guesses, e^epsilon / (1 + e^epsilon)) >= correct]``, with the correction of Theorem
    5.2 if ``delta`` is positive.

    Args:
        correct: v, the number of correct guesses, integers ``(...)`` from 0 to ``guesses``.
        guesses: r, the number of canaries with a guess, integers that broadcast against
            ``correct``.
        epsilon: floats of at least 0 that broadcast against them.
        canaries: m, the number of coins, at least ``guesses``; needed if ``delta`` is positive.
        delta: in [0, 1).

    Returns:
        Float64 of the broadcast shape, at most 1, rounded up by at least 1e-10 of itself.

    Raises:
        ValueError: a number is out of range, or ``canaries`` is needed and not given.

    Privacy:
        The coins must be fair and independent, the guesses a function of the output alone, and the
        guarantee must hold for including or excluding each canary: under add/remove, or under swap
        with a fixed record in its place.

    References:
        Steinke, Nasr and Jagielski (2023), "Privacy auditing with one (1) training run", Theorem
        5.2.

    >>> round(float(p_value(9, 10, epsilon=0.0)), 6)
    0.010742
    """
    checks.concrete_fraction("delta", delta)
    given = (correct, guesses, checks.host_floats("epsilon", epsilon))
    v, r, at = np.broadcast_arrays(*(np.asarray(numbers, np.float64) for numbers in given))
    if not np.all(at >= 0):
        raise ValueError(f"epsilon must not be negative or NaN, got {epsilon}.")
    if not np.all((v >= 0) & (v <= r) & (v == np.round(v)) & (r == np.round(r))):
        raise ValueError(f"correct must be integers from 0 to guesses, got {correct} of {guesses}.")
    if delta > 0 and canaries is None:
        raise ValueError(
            "canaries must be given if delta > 0: the number of all canaries, also those without a "
            "guess."
        )
    if canaries is not None and not np.all(r <= canaries):
        raise ValueError(
            f"guesses must be at most canaries, got guesses={guesses} and canaries={canaries}."
        )
    # Relative errors: of a tail, and of the probability of a guess, once per guess
    right, slack = 1 / (1 + np.exp(-at)), 1e-10 + r * 2.0**-52
    tail = upper_tail(v, trials=r, probability=right)
    found = tail * (1 + slack)
    if delta and canaries and v.max(initial=0) > 0:
        i = np.arange(1, int(v.max()) + 1, dtype=np.float64)
        fewer = upper_tail(v[..., None] - i, trials=r[..., None], probability=right[..., None])
        gains = fewer * (1 + slack[..., None]) - (tail * (1 - slack))[..., None]
        found = found + 2 * canaries * delta * np.max(gains / i, axis=-1)
    return np.minimum(found, 1.0)


def epsilon_lower_bound(
    correct: ArrayLike,
    guesses: ArrayLike,
    *,
    confidence: float = 0.95,
    canaries: int | None = None,
    delta: float = 0.0,
) -> Array:
    """Return the largest epsilon that the guesses refute, whose p-value is ``1 - confidence``.

    At least 0.

    Args:
        correct: the number of correct guesses, integers ``(...)`` from 0 to ``guesses``.
        guesses: the number of canaries with a guess, integers that broadcast against ``correct``.
        confidence: in (0, 1).
        canaries: the number of coins, at least ``guesses``; needed if ``delta`` is positive.
        delta: in [0, 1).

    Returns:
        Float64 of the broadcast shape, rounded down: its p-value is at most ``1 - confidence``, or
        it is 0.

    Raises:
        ValueError: a number is out of range, or ``canaries`` is needed and not given.

    Privacy:
        If the run is (epsilon, delta)-DP for each canary, the bound is above epsilon with
        probability at most ``1 - confidence``, over the coins and the run. This holds also if
        ``delta`` is positive, where the p-value need not increase with epsilon: among the counts
        that refute a value above the true epsilon, the smallest, v, refutes an epsilon' at which
        the run is (epsilon', delta)-DP too, so that at least v correct guesses are as improbable as
        the p-value states.

    References:
        Steinke, Nasr and Jagielski (2023), Theorem 5.2.

    >>> round(float(epsilon_lower_bound(90, 100)), 6)
    1.630823
    """
    error = 1 - checks.concrete_probability("confidence", confidence)
    claim = partial(p_value, correct, guesses, canaries=canaries, delta=delta)
    none = np.zeros(np.broadcast_shapes(np.shape(correct), np.shape(guesses)))
    possible = claim(epsilon=none) <= error
    # At most 64, as more would take e^64 guesses
    return bisected(lambda at: possible & (claim(epsilon=at) <= error), none, none + 64)[0]


@dataclass(frozen=True)
class OneRunAudit:
    """The result of an audit in one run.

    Attributes:
        epsilon: the lower bound.
        correct: the number of correct guesses.
        guesses: the number of canaries with a guess.
        canaries: the number of canaries.
        confidence: of the bound.
        delta: of the guarantee that is audited.
        tried: the number of numbers of guesses that were tried; the result is the best of them.

    >>> found = OneRunAudit(1.6, 90, 100, 100, 0.95, 0.0)
    >>> bool(found.p_value(1.6) < 0.05)
    True
    """

    epsilon: float
    correct: int
    guesses: int
    canaries: int
    confidence: float
    delta: float
    tried: int = 1

    def p_value(self, epsilon: ArrayLike) -> Array:
        """Return the p-value of the claim that the run is (epsilon, delta)-DP, times ``tried``.

        See :func:`p_value`.
        """
        alone = p_value(
            self.correct, self.guesses, epsilon=epsilon, canaries=self.canaries, delta=self.delta
        )
        return np.minimum(self.tried * alone, 1.0)


def audit_scores(
    scores: ArrayLike,
    present: ArrayLike,
    *,
    guesses: Sequence[tuple[int, int]] | None = None,
    confidence: float = 0.95,
    delta: float = 0.0,
) -> OneRunAudit:
    """Return a lower bound on the epsilon of one training run from the scores of its canaries.

    The highest scores are guessed to be included and the lowest excluded, with the theorem of
    :func:`p_value`. As the best number of guesses is not known in advance, k numbers are tested,
    each with an error of (1 - confidence)/k, so that all k bounds hold together and the largest is
    reported.

    Args:
        scores: real numbers ``(m,)``, one for each canary, higher for canaries that seem to be
            included, such as minus the loss of the record, or the inner product of its gradient
            with the update: a function of the output of the training (and of the canaries),
            computed without the coins. Among equal scores, wrong guesses are counted first.
        present: bool ``(m,)``, whether each canary was included: independent fair coins, tossed
            before the training.
        guesses: pairs of the number of highest scores guessed to be included and the number of
            lowest scores guessed to be excluded, chosen without the coins. By default (m/2, m/2),
            (m/4, m/4) and so on, down to four. A single good pair gives a sharper bound than many.
        confidence: in (0, 1).
        delta: in [0, 1). The bound is low unless 2 m delta is far below ``1 - confidence`` over the
            number of pairs.

    Returns:
        A :class:`OneRunAudit` with the numbers of the best pair; ``tried`` is the number of pairs.

    Raises:
        ValueError: a score is NaN, ``present`` is not bools of the same shape, or ``guesses`` are
            no pairs whose sum is from 1 to m.

    Privacy:
        If the training is (epsilon, delta)-DP for adding or removing each canary, the bound is
        above epsilon with probability at most ``1 - confidence``, over the coins and the training.
        A low bound is no evidence of privacy. The canaries are not protected.

    References:
        Steinke, Nasr and Jagielski (2023), "Privacy auditing with one (1) training run", Algorithm
        1 and Theorem 5.2. The correction for several numbers of guesses is not from this paper.

    >>> rng = np.random.default_rng(0)
    >>> present = rng.random(1000) < 0.5
    >>> # Sums of one-hot canaries, with noise of standard deviation 1:
    >>> update = np.where(present, 1.0, 0.0) + rng.normal(size=1000)
    >>> found = audit_scores(update, present, delta=1e-5)
    >>> found.guesses, found.canaries, found.tried, 1 < found.epsilon < 4.4  # 4.38 at delta = 1e-5
    (124, 1000, 7, True)
    """
    score, coin = checks.host_floats("scores", scores).astype(np.float64), np.asarray(present)
    if score.ndim != 1 or score.shape != coin.shape or coin.dtype != bool or np.isnan(score).any():
        raise ValueError(
            f"scores must be real numbers (m,) and present booleans (m,), got shapes {score.shape} "
            f"and {coin.shape}, dtype {coin.dtype}, and {np.isnan(score).sum()} NaN scores."
        )
    confidence = checks.concrete_probability("confidence", confidence)
    canaries = coin.size
    if guesses is None:
        # Fewer guesses than four show little even if all are correct
        sizes = [canaries >> i for i in range(1, max(2, canaries.bit_length() - 2))]
        guesses = list(zip(sizes, sizes, strict=True))
    pairs = np.array(guesses, int).reshape(-1, 2)
    made = pairs.sum(axis=1)
    if not made.size or pairs.min() < 0 or made.min() < 1 or made.max() > canaries:
        raise ValueError(
            f"guesses must be pairs whose sum is from 1 to the number of canaries, {canaries}; "
            f"got {guesses}."
        )
    ascending = coin[np.lexsort((~coin, score))]  # ties: included first, so that guesses are wrong
    excluded = np.append(0, np.cumsum(~ascending))  # among the lowest 0, 1, ... scores
    most, least = pairs.T
    correct = excluded[least] + most - (excluded[-1] - excluded[canaries - most])
    each = 1 - (1 - confidence) / made.size
    bounds = epsilon_lower_bound(correct, made, confidence=each, canaries=canaries, delta=delta)
    best = bounds.argmax()
    return OneRunAudit(
        float(bounds[best]),
        int(correct[best]),
        int(made[best]),
        canaries,
        confidence,
        delta,
        made.size,
    )


def audit_in_one_run(
    key: jax.Array,
    with_canary: Distribution,
    without_canary: Distribution,
    *,
    guesses: int,
    confidence: float = 0.95,
    delta: float = 0.0,
) -> OneRunAudit:
    """Audit a mechanism in one run over m disjoint datasets.

    Each dataset has its canary or not, by a fair coin. Each row is drawn from one of its two
    distributions. The attacker scores the draw by their exact log-ratio, guesses by its sign in the
    ``guesses`` rows with the largest absolute score, and abstains in the others.

    Args:
        key: a scalar typed threefry key.
        with_canary: the output distribution of each row with its canary, of batch shape ``(m,)``.
        without_canary: the output distribution of each row without its canary (or with another
            record in its place), of the same class and shape.
        guesses: static, from 1 to m, chosen without the draws. With fewer guesses a larger share is
            correct; rows with a loss close to epsilon are worth a guess.
        confidence: in (0, 1).
        delta: in [0, 1).

    Returns:
        A :class:`OneRunAudit`.

    Raises:
        ValueError: the batch shapes are not both ``(m,)``, or ``guesses`` is not from 1 to m.

    Privacy:
        Rows are disjoint parts of one dataset, so the run is epsilon-DP in each canary if every
        row's mechanism is (parallel composition), and the bound is above epsilon with probability
        at most ``1 - confidence``. It reads both distributions: audit with data that may be
        published. The relation is that of the two datasets of a row.

    References:
        Steinke, Nasr and Jagielski (2023), Algorithm 1.

    >>> import jax, jax.numpy as jnp
    >>> from dpjax import Finite
    >>> coin = jnp.array([1.0, 0.0])  # randomized response
    >>> lie = jnp.broadcast_to(coin, (20_000, 2))  # one coin a row
    >>> present, absent = (Finite(jnp.arange(2.0), cost, jnp.ones(())) for cost in (lie, 1 - lie))
    >>> found = audit_in_one_run(jax.random.key(0), present, absent, guesses=20_000)
    >>> 0.9 < found.epsilon < 1
    True
    """
    shape = with_canary.batch_shape
    if len(shape) != 1 or without_canary.batch_shape != shape:
        raise ValueError("with_canary and without_canary must have one batch shape (m,).")
    guesses = checks.static_integer("guesses", guesses, 1, shape[0])
    key_coins, key_in, key_out = jax.random.split(check_key(key), 3)
    present = np.asarray(jax.random.bits(key_coins, shape, "uint32")) % 2 == 1
    draws = np.where(present, with_canary.sample(key_in), without_canary.sample(key_out))
    score = np.subtract(with_canary.log_prob(draws), without_canary.log_prob(draws))
    score = np.where(np.isnan(score), 0.0, score)
    # Rounded, so that ties are broken by the index: the last bits of a score depend on the grid of
    # floats of the draw.
    largest = np.max(np.abs(score), initial=1e-30, where=np.isfinite(score))
    score = np.round(score / largest * 1024)
    surest = np.argsort(-np.abs(score), kind="stable")[:guesses]
    most = int(np.count_nonzero(score[surest] > 0))
    ranks = np.argsort(np.argsort(score, kind="stable"))
    return audit_scores(
        ranks, present, guesses=[(most, guesses - most)], confidence=confidence, delta=delta
    )
