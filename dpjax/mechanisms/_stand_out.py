"""The best candidate if it leads by enough, independently of the number of candidates.

Let g be the score of the best candidate minus that of the second best, s the sensitivity, and n =
floor(g / (2 s)). The answer is the best candidate with probability p(n), and otherwise the
fallback, where p is the largest solution (Desfontaines et al. 2022) of

    p(0) = 0,    p(n+1) = min(e^epsilon p(n) + delta,  1 - e^-epsilon (1 - p(n) - delta),  1)

Privacy. The difference of two scores changes by at most 2 s between neighbors. If both datasets
have the same best candidate, n changes by at most 1, and the recurrence is the condition of
(epsilon, delta)-DP for two outcomes. If they have different ones, y and y', the difference of their
scores goes from g or more to -g' or less, so g + g' <= 2 s: one of the two n is 0, the other at
most 1, and outcomes other than the fallback have probability at most delta. Ties have g = 0: it
does not matter which candidate is the best.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.finite import Finite
from dpjax.mechanisms._exponential import candidate_scores
from dpjax.mechanisms.relations import approximate
from dpjax.numerics.arrays import concatenate
from dpjax.sensitivity.scores import CandidateScores


def guarantee(scores: CandidateScores | str, epsilon: float, *, delta: float) -> Guarantee:
    """Return the guarantee of one draw; see :func:`dpjax.exponential.guarantee`.

    >>> print(stand_out.guarantee("swap", 1.0, delta=1e-6))
    (1, 1e-06)-DP under swap neighbors
    """
    return approximate(scores, epsilon, delta)


@with_guarantee(guarantee)
def stand_out(
    scores: CandidateScores | ArrayLike,
    epsilon: ArrayLike,
    *,
    delta: ArrayLike,
    fallback: ArrayLike,
    candidates: ArrayLike | None = None,
    sensitivity: ArrayLike | None = None,
) -> Finite:
    """Return the distribution of the best candidate, if it leads by enough, or the fallback.

    The required lead, about ``2 sensitivity log(1/delta) / epsilon``, does not depend on the number
    k of candidates. :func:`dpjax.exponential` needs ``2 sensitivity log(k) / epsilon`` and no
    delta: up to about k = 1/delta it is better.

    Args:
        scores: see :mod:`dpjax.mechanisms`, also for ``candidates`` and ``sensitivity``.
        epsilon: positive.
        delta: in (0, 1).
        fallback: public, ``(...)``, the answer if no candidate stands out. Continuing with another
            mechanism in that case is composition.

    Returns:
        A :class:`Finite` of k+1 values, the last being the fallback; its costs are minus
        log-probabilities, and its rate is 1.

    Privacy:
        (epsilon, delta)-DP under the relation that the sensitivity holds for. Among the mechanisms
        that return the best candidate or nothing, no other has a larger probability of an answer at
        any lead of 2 s n. The lead is compared with multiples of 2 s: integer scores and
        half-integer sensitivities are exact, others are rounded.

    References:
        Chaudhuri, Hsu and Song (2014); Bun, Dwork, Rothblum and Steinke (2018); Bun, Kamath,
        Steinke and Wu (2019), for the problem; Desfontaines, Voss, Gipson and Mandayam (2022),
        "Differentially private partition selection", Theorem 1, for p.

    >>> import jax.numpy as jnp
    >>> votes = jnp.zeros(100_000).at[3].set(40.0)
    >>> found = stand_out(votes, 1.0, delta=1e-6, fallback=-1.0, sensitivity=1.0)
    >>> round(float(found.prob(3.0)), 4)
    0.9993
    """
    candidate_set = candidate_scores(
        scores, candidates=candidates, sensitivity=sensitivity, caller="stand_out"
    )
    budget = checks.positive("epsilon", epsilon, candidate_set.dtype)
    failure = checks.probability("delta", delta, candidate_set.dtype, below=1.0)
    unit = 2 * checks.positive("sensitivity", candidate_set.sensitivity, candidate_set.dtype)
    last = checks.float_array("fallback", fallback).astype(candidate_set.dtype)
    cost = _cost(candidate_set.scores, unit, jnp.minimum(budget, 2.0**60), failure)
    batch = jnp.broadcast_shapes(last.shape, cost.shape[:-1])
    return Finite(
        concatenate(candidate_set.candidates, jnp.broadcast_to(last, batch)[..., None]),
        cost,
        jnp.ones((), candidate_set.dtype),
    )


@jax.jit
def _cost(scores: jax.Array, unit: jax.Array, epsilon: jax.Array, delta: jax.Array) -> jax.Array:
    """Return minus the log-probability of every candidate, and of the fallback."""
    best = jnp.max(scores, axis=-1)
    is_best = jnp.argmax(scores, axis=-1)[..., None] == jnp.arange(scores.shape[-1])
    # Inf if there is no other candidate.
    lead = best - jnp.max(jnp.where(is_best, -jnp.inf, scores), axis=-1)
    steps = jnp.minimum(jnp.floor(lead / unit), 2.0**100)
    # The first branch of the minimum holds up to p = (1 - delta) / (1 + e^epsilon), and one step
    # beyond.
    turn = 1 + jnp.floor(jnp.log1p((1 - delta) * jnp.tanh(epsilon / 2) / delta) / epsilon)
    first = jnp.minimum(steps, turn)
    share = -jnp.expm1(-epsilon)
    rising = (
        delta
        * jnp.exp(jnp.maximum(first - 1, 0.0) * epsilon)
        * -jnp.expm1(-first * epsilon)
        / share
    )
    decay = -(jnp.maximum(steps, turn) - turn) * epsilon
    # p = 1 - q, and q + delta / (e^epsilon - 1) decreases by a factor of e^epsilon a step from
    # there.
    rest = (1 - rising) * jnp.exp(decay) + delta * jnp.exp(-epsilon) / share * jnp.expm1(decay)
    rest = jnp.where(steps > turn, jnp.maximum(rest, 0.0), 1 - rising)
    answer = jnp.where(steps > turn, 1 - rest, rising)
    ok = jnp.isfinite(best) & jnp.isfinite(answer)
    first, last = (
        jnp.where(p > 0, -jnp.log(jnp.where(p > 0, p, 1.0)), jnp.inf)[..., None]
        for p in (answer, rest)
    )
    return jnp.where(
        ok[..., None], jnp.concatenate([jnp.where(is_best, first, jnp.inf), last], axis=-1), jnp.nan
    )
