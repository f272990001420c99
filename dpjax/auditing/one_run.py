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
from dpjax.numerics.solve import Array, upper_tail
from dpjax.random import check_key

# Relative errors: of a tail, and of the probability of a guess, once per guess
_ROUNDING, _ULP = 1e-10, 2.0**-52
_LARGEST = 64.0  # the largest epsilon of an audit, as more would take e^64 guesses
_ITERATIONS = 60
_STEPS = 1024.0  # the number of steps of the largest score to which scores are rounded


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
    at = checks.host_floats("epsilon", epsilon)
    if not np.all(at >= 0):
        raise ValueError(f"epsilon must not be negative or NaN, got {epsilon}.")
    v, r, at = np.broadcast_arrays(*_counts(correct, guesses, canaries, delta), at)
    return _p_value(v, r, at, canaries, delta)


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

    def _facts(self) -> dict[str, Any]:
        return {
            name: f"{value:g}" for name, value in vars(self).items() if name != "delta" or value
        }

    def p_value(self, epsilon: ArrayLike) -> Array:
        """Return the p-value of the claim that the run is (epsilon, delta)-DP, times ``tried``.

        See :func:`p_value`.
        """
        alone = p_value(
            self.correct, self.guesses, epsilon=epsilon, canaries=self.canaries, delta=self.delta
        )
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
    confidence, delta = (
        checks.concrete_probability("confidence", confidence),
        checks.concrete_fraction("delta", delta),
    )
    shape, other = with_canary.batch_shape, without_canary.batch_shape
    if len(shape) != 1 or other != shape:
        raise ValueError(
            f"with_canary and without_canary must have one batch shape (m,), got {shape} and "
            f"{other}."
        )
    (canaries,) = shape
    guesses = checks.static_integer(
        "guesses", guesses, 1, canaries, must=f"an integer from 1 to the {canaries} canaries"
    )
    correct = int(correct_guesses(check_key(key), with_canary, without_canary, guesses))
    bound = epsilon_lower_bound(
        correct, guesses, confidence=confidence, canaries=canaries, delta=delta
    )
    return OneRunAudit(float(bound), correct, guesses, canaries, confidence, delta)


def correct_guesses(
    key: jax.Array, with_canary: Distribution, without_canary: Distribution, guesses: int
) -> jax.Array:
    """Return the number of correct guesses, int32, in a run of :func:`audit_in_one_run`."""
    key_coins, key_in, key_out = jax.random.split(key, 3)
    present = (jax.random.bits(key_coins, with_canary.batch_shape, jnp.uint32) & 1) == 1
    # Not jitted as a whole, so that distributions of the same shapes share compiled programs.
    draws = jnp.where(present, with_canary.sample(key_in), without_canary.sample(key_out))
    return _correct(with_canary.log_prob(draws) - without_canary.log_prob(draws), present, guesses)


@partial(jax.jit, static_argnames="guesses")
def _correct(score: jax.Array, present: jax.Array, guesses: int) -> jax.Array:
    sure = jnp.where(jnp.isnan(score), 0.0, jnp.abs(score))
    # Rounded, so that ties are broken by the index: the last bits of a score depend on the grid of
    # floats of the draw.
    largest = jnp.maximum(
        jnp.max(jnp.where(jnp.isinf(sure), 0.0, sure)), jnp.finfo(sure.dtype).tiny
    )
    chosen = jnp.argsort(-jnp.round(sure / largest * _STEPS), stable=True)[:guesses]
    return jnp.sum((score[chosen] > 0) == present[chosen], dtype=jnp.int32)


def _counts(
    correct: ArrayLike, guesses: ArrayLike, canaries: int | None, delta: float
) -> tuple[Array, Array]:
    checks.concrete_fraction("delta", delta)
    v, r = np.asarray(correct, np.float64), np.asarray(guesses, np.float64)
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
    return v, r


def _p_value(v: Array, r: Array, epsilon: Array, canaries: int | None, delta: float) -> Array:
    right, slack = 1 / (1 + np.exp(-epsilon)), _ROUNDING + r * _ULP
    tail = upper_tail(v, trials=r, probability=right)
    found = tail * (1 + slack)
    if delta > 0 and canaries is not None and v.max(initial=0) > 0:
        i = np.arange(1, int(v.max()) + 1, dtype=np.float64)
        fewer = upper_tail(v[..., None] - i, trials=r[..., None], probability=right[..., None]) * (
            1 + slack[..., None]
        )
        found = found + 2 * canaries * delta * np.max(
            (fewer - (tail * (1 - slack))[..., None]) / i, axis=-1
        )
    return np.minimum(found, 1.0)
