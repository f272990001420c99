"""The exponential mechanism on a score that is a sum over parts (Steinke 2025, Equation 4).

    score(y_1, ..., y_d) = score_1(y_1) + ... + score_d(y_d),    P(y) proportional to exp(rate * score(y))

So the k^d candidates are drawn as d independent ones, and the analysis decomposes, too. Part j, of sensitivity s_j, has range
2 rate s_j; independent losses add up, so the whole has the range 2 rate (s_1 + ... + s_d), as one exponential mechanism would say,
but it is zCDP with rate^2/2 (s_1^2 + ... + s_d^2): for equal parts d times less than what the range of the whole implies.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting import formulas
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.finite import Finite
from dpjax.mechanisms._exponential import candidate_scores
from dpjax.mechanisms.relations import relation_of
from dpjax.sensitivity.scores import CandidateScores


def guarantee(
    scores: CandidateScores | ArrayLike,
    *,
    epsilon: float | None = None,
    zcdp: float | None = None,
    sensitivity: ArrayLike | None = None,
    neighbors: str | None = None,
) -> Guarantee:
    """Return what one draw of all parts costs, with its zCDP and its Renyi curve: the sums of those of the parts.

    ``sensitivity`` and ``neighbors`` are those of an array of scores; :class:`CandidateScores` carry theirs.

    >>> import jax.numpy as jnp
    >>> votes = jnp.zeros((100, 3))
    >>> cost = decomposable_exponential.guarantee(votes, epsilon=10.0, sensitivity=1.0, neighbors="swap")
    >>> print(cost)
    10-DP and 10-bounded-range and 0.125-zCDP and Renyi DP at orders 1.001 to 10001 under swap neighbors
    >>> round(cost.epsilon_at(1e-6), 2)
    2.4
    """
    name, budget = _budget(epsilon, zcdp)
    relation = relation_of(scores, neighbors)
    given = candidate_scores(scores, candidates=None, sensitivity=sensitivity, caller="decomposable_exponential")
    shape = _shape_of_parts(given)
    each = np.broadcast_to(np.asarray(given.sensitivity, np.float64), shape).reshape(-1, shape[-1])
    total, square = each.sum(axis=1), np.square(each).sum(axis=1)
    cost = checks.concrete_epsilon(budget)
    rate = np.sqrt(2 * cost / square) if name == "zcdp" else cost / (2 * total)
    whole, ranges = float(np.max(2 * rate * total)), 2 * rate[:, None] * each
    rho = float(np.max(rate * rate * square)) / 2

    def curve(order: np.ndarray) -> np.ndarray:
        each_range, orders = np.broadcast_arrays(ranges[..., None], order)
        parts = formulas.rdp_of_bounded_range(each_range, orders, np)
        return np.minimum(np.maximum.accumulate(parts.sum(axis=1).max(axis=0)), whole)

    return Guarantee(whole, whole, relation, zcdp=rho).with_curve(curve)


@with_guarantee(guarantee)
def decomposable_exponential(
    scores: CandidateScores | ArrayLike,
    *,
    epsilon: ArrayLike | None = None,
    zcdp: ArrayLike | None = None,
    candidates: ArrayLike | None = None,
    sensitivity: ArrayLike | None = None,
) -> Finite:
    """Return the distribution of the parts of a draw: independent, the last batch axis.

        rate = epsilon / (2 (s_1 + ... + s_d)),  or  sqrt(2 zcdp / (s_1^2 + ... + s_d^2))

    At the same zCDP, the rate for d equal parts is sqrt(d) times that of :func:`dpjax.exponential` on all k^d candidates.

    Args:
        scores: :class:`CandidateScores` or float ``(..., d, k)``: how good each candidate is for each part, higher is better. A
            part with fewer candidates has scores of ``-inf``, publicly.
        epsilon: positive ``(...)``, of the whole draw; or
        zcdp: of the whole draw. Exactly one of the two.
        candidates: ``(k,)`` or ``(..., d, k)``.
        sensitivity: positive ``()`` or ``(..., d)``, of each part, required with an array of scores.

    Returns:
        A :class:`Finite` of batch shape ``(..., d)``. A draw of the whole is ``sample(key)``, ``(..., d)``; its log-probability is
        the sum of those of its parts over the last axis, and so is its expected score.

    Privacy:
        epsilon-DP and epsilon-bounded-range, or zcdp-zCDP, for the whole draw, if between neighbours the scores of each part change
        by at most its sensitivity, up to a shift common to its candidates. Public: as for :func:`dpjax.exponential`, and d.

    References:
        Steinke, "Open problem: selection via low-sensitivity queries", differentialprivacy.org (2025), Equation 4; Dong, Durfee and
        Rogers (2020), for the range of a composition that is not adaptive.

    >>> import jax, jax.numpy as jnp
    >>> votes = jnp.array([[5.0, 2.0, 0.0], [1.0, 1.0, 4.0]])  # of two questions, each with three answers
    >>> both = decomposable_exponential(votes, epsilon=2.0, sensitivity=1.0)
    >>> both.batch_shape, both.sample(jax.random.key(0)).shape
    ((2,), (2,))
    >>> round(float(jnp.exp(both.log_prob(jnp.array([0.0, 2.0])).sum())), 3)
    0.53
    """
    name, budget = _budget(epsilon, zcdp)
    given = candidate_scores(scores, candidates=candidates, sensitivity=sensitivity, caller="decomposable_exponential")
    each = jnp.broadcast_to(checks.positive("sensitivity", given.sensitivity, given.dtype), _shape_of_parts(given))
    cost = checks.positive(name, budget, given.dtype)[..., None]
    if name == "zcdp":
        rate = jnp.sqrt(2 * cost) / jnp.linalg.norm(each, axis=-1, keepdims=True)
    else:
        rate = cost / (2 * jnp.sum(each, axis=-1, keepdims=True))
    return Finite(given.candidates, -given.scores, jnp.minimum(rate, float(jnp.finfo(given.dtype).max)))


def _budget(epsilon: Any, zcdp: Any) -> tuple[str, Any]:
    """The budget that is given, and its name."""
    if (epsilon is None) == (zcdp is None):
        raise ValueError("give epsilon or zcdp: exactly one of them.")
    return ("epsilon", epsilon) if zcdp is None else ("zcdp", zcdp)


def _shape_of_parts(scores: CandidateScores) -> tuple[int, ...]:
    """Of the sensitivities, with the axis of parts."""
    if scores.scores.ndim < 2:
        raise ValueError(f"scores need an axis of parts before that of candidates, got shape {scores.scores.shape}.")
    return jnp.broadcast_shapes(jnp.shape(scores.sensitivity), scores.scores.shape[-2:-1])
