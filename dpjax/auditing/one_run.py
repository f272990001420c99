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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.auditing.segments import Distribution
from dpjax.display import Shown
from dpjax.numerics.binomial import Array, upper_tail
from dpjax.random.keys import check_key

_ROUNDING, _ULP = 1e-10, 2.0**-52  # relative: of a tail, and of its probability, which is raised to as many powers as guesses
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
        float64 of the broadcast shape, at most 1, rounded up by at least 1e-10 of itself.

    Privacy:
        The coins must be fair and independent, the guesses a function of the output alone, and the guarantee must hold for each
        canary present or absent: add/remove, or swap with a fixed record in its place.

    References:
        Steinke, Nasr and Jagielski (2023), "Privacy auditing with one (1) training run", Theorem 5.2.

    >>> round(float(p_value(9, 10, epsilon=0.0)), 6)
    0.010742
    """
    at = np.asarray(epsilon, np.float64)
    if not np.all(at >= 0):
        raise ValueError(f"epsilon must not be negative, got {epsilon}.")
    v, r, at = np.broadcast_arrays(*_counts(correct, guesses, canaries, delta), at)
    return _p_value(v, r, at, canaries, delta)


def epsilon_lower_bound(
    correct: ArrayLike, guesses: ArrayLike, *, confidence: float = 0.95, canaries: int | None = None, delta: float = 0.0
) -> Array:
    """Return the largest epsilon that the guesses refute: where the p-value reaches ``1 - confidence``, or 0.

    Args:
        correct: as for :func:`p_value`, like the others.
        guesses: integers.
        confidence: strictly between 0 and 1.
        canaries: how many coins were tossed; needed with ``delta``.
        delta: in [0, 1).

    Returns:
        float64 of the broadcast shape: a number whose p-value passes, so rounded to the safe side.

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
    error = 1 - checks.concrete_probability("confidence", confidence)
    v, r = np.broadcast_arrays(*_counts(correct, guesses, canaries, delta))
    (v_of, r_of), back = np.unique(np.stack([v.ravel(), r.ravel()]), axis=1, return_inverse=True)
    low, high = np.zeros(v_of.shape), np.full(v_of.shape, _LARGEST)
    possible = _p_value(v_of, r_of, low, canaries, delta) <= error
    for _ in range(_ITERATIONS):
        middle = (low + high) / 2
        refuted = possible & (_p_value(v_of, r_of, middle, canaries, delta) <= error)
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
    return low[back.reshape(-1)].reshape(v.shape)


@dataclass(frozen=True, repr=False)
class OneRunAudit(Shown):
    """What one run showed.

    Attributes:
        epsilon: the lower bound.
        correct: how many guesses were correct.
        guesses: how many canaries were guessed.
        canaries: how many coins were tossed.
        confidence: of the bound.
        delta: the delta of the guarantee that is audited.
        tried: how many numbers of guesses were tried, of which these are the best.
    """

    epsilon: float
    correct: int
    guesses: int
    canaries: int
    confidence: float
    delta: float
    tried: int = 1

    def _facts(self) -> dict[str, Any]:
        return {name: f"{value:g}" for name, value in vars(self).items() if name != "delta" or value}

    def p_value(self, epsilon: ArrayLike) -> Array:
        """The p-value of the claim that the run is (epsilon, delta)-DP; see :func:`p_value`; times the number of tries."""
        alone = p_value(self.correct, self.guesses, epsilon=epsilon, canaries=self.canaries, delta=self.delta)
        return np.minimum(self.tried * alone, 1.0)


def audit_in_one_run(
    key: jax.Array,
    with_canary: Distribution,
    without_canary: Distribution,
    *,
    guesses: int,
    confidence: float = 0.95,
    delta: float = 0.0,
) -> OneRunAudit:
    """Audit a mechanism in one run over m disjoint datasets, each with its canary or without it by a fair coin.

    One draw a row, from the one or the other; the attacker scores it by the exact log-ratio of the two, guesses by its sign
    for the ``guesses`` rows with the largest absolute score, and abstains on the others.

    Args:
        key: a scalar typed threefry key.
        with_canary: batch shape ``(m,)``, the output distribution of each row with its canary.
        without_canary: of the same kind and shape, that of each row without it (or with another record in its place).
        guesses: static, from 1 to m, chosen without the draws. Fewer are surer, more are more: rows with a loss near epsilon are
            worth a guess.
        confidence: strictly between 0 and 1.
        delta: in [0, 1).

    Returns:
        :class:`OneRunAudit`.

    Privacy:
        Rows are disjoint parts of one dataset, so the whole run is epsilon-DP in each canary if every row's mechanism is (parallel
        composition), and the bound is above epsilon with probability at most ``1 - confidence``. It looks at both distributions:
        audit with data that may be shown. The relation is that of the two datasets of a row.

    References:
        Steinke, Nasr and Jagielski (2023), Algorithm 1.

    >>> import jax, jax.numpy as jnp
    >>> from dpjax import Finite
    >>> lie = jnp.broadcast_to(jnp.array([1.0, 0.0]), (20_000, 2))  # randomized response, one coin a row
    >>> present, absent = (Finite(jnp.arange(2.0), cost, jnp.ones(())) for cost in (lie, 1 - lie))
    >>> found = audit_in_one_run(jax.random.key(0), present, absent, guesses=20_000)
    >>> 0.9 < found.epsilon < 1
    True
    """
    confidence, delta = checks.concrete_probability("confidence", confidence), checks.concrete_fraction("delta", delta)
    shape, other = with_canary.batch_shape, without_canary.batch_shape
    if len(shape) != 1 or other != shape:
        raise ValueError(f"distributions need one batch shape (m,), got {shape} with the canary and {other} without it.")
    (canaries,) = shape
    guesses = checks.static_integer("guesses", guesses, 1, canaries, must=f"an integer from 1 to the {canaries} canaries")
    correct = int(correct_guesses(check_key(key), with_canary, without_canary, guesses))
    bound = epsilon_lower_bound(correct, guesses, confidence=confidence, canaries=canaries, delta=delta)
    return OneRunAudit(float(bound), correct, guesses, canaries, confidence, delta)


def correct_guesses(key: jax.Array, with_canary: Distribution, without_canary: Distribution, guesses: int) -> jax.Array:
    """Run the experiment of :func:`audit_in_one_run` and return the number of correct guesses, int32."""
    key_coins, key_in, key_out = jax.random.split(key, 3)
    present = (jax.random.bits(key_coins, with_canary.batch_shape, jnp.uint32) & 1) == 1
    # Not compiled as one: two distributions of the same shapes share their programs.
    draws = jnp.where(present, with_canary.sample(key_in), without_canary.sample(key_out))
    return _correct(with_canary.log_prob(draws) - without_canary.log_prob(draws), present, guesses)


@partial(jax.jit, static_argnames="guesses")
def _correct(score: jax.Array, present: jax.Array, guesses: int) -> jax.Array:
    sure = jnp.where(jnp.isnan(score), 0.0, jnp.abs(score))
    # Rounded, so that ties go by the index: the last bits of a score tell which grid of floats a draw lies on, not what it is.
    largest = jnp.maximum(jnp.max(jnp.where(jnp.isinf(sure), 0.0, sure)), jnp.finfo(sure.dtype).tiny)
    chosen = jnp.argsort(-jnp.round(sure / largest * _STEPS), stable=True)[:guesses]
    return jnp.sum((score[chosen] > 0) == present[chosen], dtype=jnp.int32)


def _counts(correct: ArrayLike, guesses: ArrayLike, canaries: int | None, delta: float) -> tuple[Array, Array]:
    checks.concrete_fraction("delta", delta)
    v, r = np.asarray(correct, np.float64), np.asarray(guesses, np.float64)
    if not np.all((v >= 0) & (v <= r) & (v == np.round(v)) & (r == np.round(r))):
        raise ValueError(f"correct must be integers from 0 to guesses, got {correct} of {guesses}.")
    if delta > 0 and canaries is None:
        raise ValueError("delta > 0 counts against every canary: give canaries, also those without a guess.")
    if canaries is not None and not np.all(r <= canaries):
        raise ValueError(f"there cannot be more guesses than canaries, got {guesses} for {canaries}.")
    return v, r


def _p_value(v: Array, r: Array, epsilon: Array, canaries: int | None, delta: float) -> Array:
    right, slack = 1 / (1 + np.exp(-epsilon)), _ROUNDING + r * _ULP
    tail = upper_tail(v, trials=r, probability=right)
    found = tail * (1 + slack)
    if delta > 0 and canaries is not None and v.max(initial=0) > 0:
        i = np.arange(1, int(v.max()) + 1, dtype=np.float64)
        fewer = upper_tail(v[..., None] - i, trials=r[..., None], probability=right[..., None]) * (1 + slack[..., None])
        found = found + 2 * canaries * delta * np.max((fewer - (tail * (1 - slack))[..., None]) / i, axis=-1)
    return np.minimum(found, 1.0)
