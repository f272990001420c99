"""Auditing in one run (Steinke, Nasr and Jagielski 2023): m canaries, each present by a fair coin, and guesses which.

If one run is epsilon-DP in each coin, the number of correct ones among r guesses is stochastically at most
Binomial(r, e^epsilon / (1 + e^epsilon)), however dependent the guesses are: randomized response is the best that an attacker can
meet. So many correct guesses refute a small epsilon. An attacker may abstain: only the canaries with a guess count. With delta > 0
(Theorem 5.2), for f(v) = P[Binomial(r, e^epsilon / (1 + e^epsilon)) >= v],

    P[at least v correct] <= f(v) + 2 m delta max over i in 1..v of (f(v - i) - f(v)) / i
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.binomial import Array, mass, upper_tail
from dpjax.auditing.black_box import check_confidence, check_delta
from dpjax.distributions.finite import Finite
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.random.keys import check_key

_ROUNDING = 1e-10  # relative, of the tails: p-values are rounded up by it
_LARGEST = 64.0  # no audit shows more: it would take e^64 guesses
_ITERATIONS = 60
_STEPS = 1024.0  # of the largest score


def p_value(
    correct: ArrayLike, guesses: ArrayLike, *, epsilon: ArrayLike, canaries: int | None = None, delta: float = 0.0
) -> Array:
    """Return an upper bound on the probability of as many correct guesses, if one run is (epsilon, delta)-DP.

    ``P[Binomial(guesses, e^epsilon / (1 + e^epsilon)) >= correct]``, and with ``delta`` the correction of Theorem 5.2.

    Args:
        correct: integers ``(...)``, v, from 0 to ``guesses``.
        guesses: integers that broadcast against them, r: how many canaries were guessed at all.
        epsilon: not negative floats that broadcast against them.
        canaries: m, at least ``guesses``; needed with ``delta``.
        delta: in [0, 1).

    Returns:
        float64 of the broadcast shape, at most 1, rounded up by 1e-10 of itself.

    Raises:
        ValueError: counts that are no whole numbers or out of order, a negative ``epsilon``, a bad ``delta``, or one without
            ``canaries``.

    Privacy:
        The coins must be fair and independent, the guesses a function of the output alone, and the guarantee must hold for each
        canary present or absent: add/remove, or swap with a fixed record in its place.

    References:
        Steinke, Nasr and Jagielski (2023), "Privacy auditing with one (1) training run", Theorem 5.2.

    >>> round(float(p_value(9, 10, epsilon=0.0)), 6)
    0.010742
    """
    v, r = _counts(correct, guesses, canaries, delta)
    at = np.asarray(epsilon, np.float64)
    if not np.all(at >= 0):
        raise ValueError(f"epsilon must not be negative, got {epsilon}.")
    v, r, at = np.broadcast_arrays(v, r, at)
    return _p_value(v, r, at, canaries, delta)


def epsilon_lower_bound(
    correct: ArrayLike, guesses: ArrayLike, *, confidence: float = 0.95, canaries: int | None = None, delta: float = 0.0
) -> Array:
    """Return the largest epsilon that the guesses refute: where the p-value reaches ``1 - confidence``, or 0.

    Args:
        correct: integers ``(...)``, from 0 to ``guesses``.
        guesses: integers that broadcast against them.
        confidence: strictly between 0 and 1.
        canaries: how many coins were tossed, at least ``guesses``; needed with ``delta``.
        delta: in [0, 1).

    Returns:
        float64 of the broadcast shape: a number whose p-value passes, so rounded to the safe side.

    Raises:
        ValueError: as :func:`p_value`, or a bad ``confidence``.

    Privacy:
        If the run is (epsilon, delta)-DP for each canary, the bound is above epsilon with probability at most ``1 - confidence``,
        over the coins and the run. Also with ``delta``, where the p-value need not grow with epsilon: among the counts that refute
        something above the true epsilon, the smallest v refutes an epsilon' at which the run is (epsilon', delta)-DP too, so as
        many correct guesses are as improbable as it says.

    References:
        Steinke, Nasr and Jagielski (2023), Theorem 5.2.

    >>> round(float(epsilon_lower_bound(90, 100)), 6)
    1.630823
    """
    check_confidence(confidence)
    v, r = np.broadcast_arrays(*_counts(correct, guesses, canaries, delta))
    questions, back = np.unique(np.stack([v.ravel(), r.ravel()]), axis=1, return_inverse=True)
    v_of, r_of = questions
    low, high = np.zeros(v_of.shape), np.full(v_of.shape, _LARGEST)
    possible = _p_value(v_of, r_of, low, canaries, delta) <= 1 - confidence
    for _ in range(_ITERATIONS):
        middle = (low + high) / 2
        refuted = possible & (_p_value(v_of, r_of, middle, canaries, delta) <= 1 - confidence)
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
    return low[back.reshape(-1)].reshape(v.shape)


@dataclass(frozen=True)
class OneRunAudit:
    """What one run showed.

    Attributes:
        epsilon: the lower bound.
        correct: how many guesses were correct.
        guesses: how many canaries were guessed.
        canaries: how many coins were tossed.
        confidence: of the bound.
        delta: the delta of the guarantee that is audited.
    """

    epsilon: float
    correct: int
    guesses: int
    canaries: int
    confidence: float
    delta: float

    def p_value(self, epsilon: ArrayLike) -> Array:
        """The p-value of the claim that the run is (epsilon, delta)-DP; see :func:`p_value`."""
        return p_value(self.correct, self.guesses, epsilon=epsilon, canaries=self.canaries, delta=self.delta)


def audit_in_one_run(
    key: jax.Array,
    law_in: PiecewiseExponential | Finite,
    law_out: PiecewiseExponential | Finite,
    *,
    guesses: int,
    confidence: float = 0.95,
    delta: float = 0.0,
) -> OneRunAudit:
    """Audit a mechanism in one run over m disjoint datasets, each with its canary or without it by a fair coin.

    One draw a row, from ``law_in`` or ``law_out``; the attacker scores it by the exact log-ratio of the two, guesses by its sign
    for the ``guesses`` rows with the largest absolute score, and abstains on the others.

    Args:
        key: a scalar typed threefry key.
        law_in: batch shape ``(m,)``, the law of each row with its canary.
        law_out: the same kind of law and shape, of each row without it (or with another record in its place).
        guesses: static, from 1 to m, chosen without the draws. Fewer are surer, more are more: rows with a loss near epsilon are
            worth a guess.
        confidence: strictly between 0 and 1.
        delta: in [0, 1).

    Returns:
        :class:`OneRunAudit`.

    Raises:
        TypeError: ``key`` is not a typed key.
        ValueError: laws that are not both of one shape ``(m,)``, ``guesses`` outside 1..m, another kind of key, a bad
            ``confidence`` or ``delta``.

    Privacy:
        Rows are disjoint parts of one dataset, so the whole run is epsilon-DP in each canary if every row's mechanism is (parallel
        composition), and the bound is above epsilon with probability at most ``1 - confidence``. It looks at the laws: audit with
        data that may be shown. The relation is that of the two laws of a row.

    References:
        Steinke, Nasr and Jagielski (2023), Algorithm 1.

    >>> import jax, jax.numpy as jnp
    >>> from dpjax import Finite
    >>> lie = jnp.broadcast_to(jnp.array([1.0, 0.0]), (20_000, 2))  # randomized response, one coin a row
    >>> law_in, law_out = (Finite(jnp.arange(2.0), cost, jnp.ones(())) for cost in (lie, 1 - lie))
    >>> found = audit_in_one_run(jax.random.key(0), law_in, law_out, guesses=20_000)
    >>> 0.9 < found.epsilon < 1
    True
    """
    check_confidence(confidence)
    check_delta(delta)
    shape = law_in.batch_shape
    if len(shape) != 1 or law_out.batch_shape != shape:
        raise ValueError(f"laws need one batch shape (m,), got {shape} with the canary and {law_out.batch_shape} without it.")
    (canaries,) = shape
    guesses = checks.static_integer("guesses", guesses, 1, canaries, must=f"a whole number from 1 to the {canaries} canaries")
    correct = int(correct_guesses(check_key(key), law_in, law_out, guesses))
    bound = epsilon_lower_bound(correct, guesses, confidence=confidence, canaries=canaries, delta=delta)
    return OneRunAudit(float(bound), correct, guesses, canaries, float(confidence), float(delta))


def correct_guesses(
    key: jax.Array, law_in: PiecewiseExponential | Finite, law_out: PiecewiseExponential | Finite, guesses: int
) -> jax.Array:
    """Run the experiment of :func:`audit_in_one_run` and return the number of correct guesses, int32."""
    key_coins, key_in, key_out = jax.random.split(key, 3)
    present = (jax.random.bits(key_coins, law_in.batch_shape, jnp.uint32) & 1) == 1
    # Not compiled as one: two laws of the same shapes share their programs.
    draws = jnp.where(present, law_in.sample(key_in), law_out.sample(key_out))
    return _correct(law_in.log_prob(draws) - law_out.log_prob(draws), present, guesses)


@partial(jax.jit, static_argnames="guesses")
def _correct(score: jax.Array, present: jax.Array, guesses: int) -> jax.Array:
    sure = jnp.where(jnp.isnan(score), 0.0, jnp.abs(score))
    # Rounded, so that ties go by the index: the last bits of a score tell which grid of floats a draw lies on, not what it is.
    largest = jnp.maximum(jnp.max(jnp.where(jnp.isinf(sure), 0.0, sure)), jnp.finfo(sure.dtype).tiny)
    chosen = jnp.argsort(-jnp.round(sure / largest * _STEPS), stable=True)[:guesses]
    return jnp.sum((score[chosen] > 0) == present[chosen], dtype=jnp.int32)


def _counts(correct: ArrayLike, guesses: ArrayLike, canaries: int | None, delta: float) -> tuple[Array, Array]:
    check_delta(delta)
    v, r = np.asarray(correct, np.float64), np.asarray(guesses, np.float64)
    if not np.all((v >= 0) & (v <= r) & (v == np.round(v)) & (r == np.round(r))):
        raise ValueError(f"correct must be whole numbers from 0 to guesses, got {correct} of {guesses}.")
    if delta > 0 and canaries is None:
        raise ValueError("delta > 0 counts against every canary: give canaries, also those without a guess.")
    if canaries is not None and not np.all(r <= canaries):
        raise ValueError(f"there cannot be more guesses than canaries, got {guesses} for {canaries}.")
    return v, r


def _p_value(v: Array, r: Array, epsilon: Array, canaries: int | None, delta: float) -> Array:
    right, wrong = 1 / (1 + np.exp(-epsilon)), np.exp(-epsilon) / (1 + np.exp(-epsilon))
    tail = upper_tail(v, trials=r, probability=right, complement=wrong)
    if delta > 0 and canaries is not None:
        tail = tail + 2 * canaries * delta * _steepest(v, r, right, wrong)
    return np.minimum(tail * (1 + _ROUNDING), 1.0)


def _steepest(v: Array, r: Array, right: Array, wrong: Array) -> Array:
    """The maximum over i in 1..v of P[v - i <= Binomial(r, right) < v] / i."""
    if v.size == 0 or v.max() < 1:
        return np.zeros(v.shape)
    i = np.arange(1, int(v.max()) + 1, dtype=np.float64)
    probabilities = mass(v[..., None] - i, trials=r[..., None], probability=right[..., None], complement=wrong[..., None])
    return np.max(np.cumsum(probabilities, axis=-1) / i, axis=-1)
