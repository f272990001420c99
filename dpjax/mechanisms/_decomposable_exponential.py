"""The exponential mechanism on a score that is a sum over parts (Steinke 2025, Equation 4).

    score(y_1, ..., y_d) = score_1(y_1) + ... + score_d(y_d)
    P(y) proportional to exp(rate * score(y))

So a draw from k^d candidates is d independent draws, and the privacy analysis decomposes, too. Part
j, of sensitivity s_j, has range 2 rate s_j. Independent losses add up, so the total range is 2 rate
(s_1 + ... + s_d), as for a single exponential mechanism, but the zCDP is rate^2/2 (s_1^2 + ... +
s_d^2): for equal parts d times less than the total range implies.
"""

from __future__ import annotations

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
    """Return the guarantee of one draw; its zCDP and Renyi curve are sums over the parts.

    ``sensitivity`` and ``neighbors`` are required for an array of scores; :class:`CandidateScores`
    carry their own.

    >>> import jax.numpy as jnp
    >>> votes = jnp.zeros((100, 3))
    >>> options = {"sensitivity": 1.0, "neighbors": "swap"}
    >>> cost = decomposable_exponential.guarantee(votes, epsilon=10.0, **options)
    >>> print(cost)  # doctest: +NORMALIZE_WHITESPACE
    10-DP and 10-bounded-range and 0.125-zCDP and Renyi DP at orders 1.001 to 10001
    under swap neighbors
    >>> round(cost.epsilon_at(1e-6), 2)
    2.4
    """
    name, budget = _budget(epsilon, zcdp)
    relation = relation_of(scores, neighbors)
    candidates = candidate_scores(
        scores, candidates=None, sensitivity=sensitivity, caller="decomposable_exponential"
    )
    shape = _shape_of_parts(candidates)
    each = np.broadcast_to(np.asarray(candidates.sensitivity, np.float64), shape).reshape(
        -1, shape[-1]
    )
    total, square = each.sum(axis=1), np.square(each).sum(axis=1)
    cost = checks.concrete_epsilon(budget)
    rate = np.sqrt(2 * cost / square) if name == "zcdp" else cost / (2 * total)
    total_range, ranges = float(np.max(2 * rate * total)), 2 * rate[:, None] * each
    rho = float(np.max(rate * rate * square)) / 2

    def curve(order: np.ndarray) -> np.ndarray:
        each_range, orders = np.broadcast_arrays(ranges[..., None], order)
        parts = formulas.rdp_of_bounded_range(each_range, orders, np)
        return np.minimum(np.maximum.accumulate(parts.sum(axis=1).max(axis=0)), total_range)

    return Guarantee(total_range, total_range, relation, zcdp=rho).with_curve(curve)


@with_guarantee(guarantee)
def decomposable_exponential(
    scores: CandidateScores | ArrayLike,
    *,
    epsilon: ArrayLike | None = None,
    zcdp: ArrayLike | None = None,
    candidates: ArrayLike | None = None,
    sensitivity: ArrayLike | None = None,
) -> Finite:
    """Return the distribution of the independent parts of a draw, on the last batch axis.

        rate = epsilon / (2 (s_1 + ... + s_d)),  or  sqrt(2 zcdp / (s_1^2 + ... + s_d^2))

    At the same zCDP, the rate for d equal parts is sqrt(d) times that of :func:`dpjax.exponential`
    on all k^d candidates.

    Args:
        scores: :class:`CandidateScores` or float ``(..., d, k)``, the score of each candidate for
            each part, higher is better. A part with fewer candidates has scores of ``-inf``,
            publicly.
        epsilon: positive ``(...)``, the budget of all parts together. Give exactly one of this and
            zcdp.
        zcdp: positive ``(...)``, the zCDP budget of all parts together.
        candidates: ``(k,)`` or ``(..., d, k)``, the values of the candidates.
        sensitivity: positive ``()`` or ``(..., d)``, of each part, required with an array of
            scores.

    Returns:
        A :class:`Finite` of batch shape ``(..., d)``. A draw of all parts is ``sample(key)``,
        ``(..., d)``; its log-probability and its expected score are the sums of those of its parts.

    Privacy:
        epsilon-DP and epsilon-bounded-range, or zcdp-zCDP, for all parts together, if between
        neighbors the scores of each part change by at most its sensitivity, up to a shift common to
        its candidates. Public: as for :func:`dpjax.exponential`, and d.

    References:
        Steinke, "Open problem: selection via low-sensitivity queries", differentialprivacy.org
        (2025), Equation 4; Dong, Durfee and Rogers (2020), for the range of a non-adaptive
        composition.

    >>> import jax, jax.numpy as jnp
    >>> votes = [[5.0, 2.0, 0.0], [1.0, 1.0, 4.0]]  # of two questions, each with three answers
    >>> both = decomposable_exponential(votes, epsilon=2.0, sensitivity=1.0)
    >>> both.batch_shape, both.sample(jax.random.key(0)).shape
    ((2,), (2,))
    >>> round(float(jnp.exp(both.log_prob(jnp.array([0.0, 2.0])).sum())), 3)
    0.53
    """
    name, budget = _budget(epsilon, zcdp)
    parts = candidate_scores(
        scores, candidates=candidates, sensitivity=sensitivity, caller="decomposable_exponential"
    )
    each = jnp.broadcast_to(
        checks.positive("sensitivity", parts.sensitivity, parts.dtype), _shape_of_parts(parts)
    )
    cost = checks.positive(name, budget, parts.dtype)[..., None]
    if name == "zcdp":
        rate = jnp.sqrt(2 * cost) / jnp.linalg.norm(each, axis=-1, keepdims=True)
    else:
        rate = cost / (2 * jnp.sum(each, axis=-1, keepdims=True))
    return Finite(
        parts.candidates, -parts.scores, jnp.minimum(rate, float(jnp.finfo(parts.dtype).max))
    )


def _budget(epsilon: Any, zcdp: Any) -> tuple[str, Any]:
    """Return the name and the value of the budget."""
    if (epsilon is None) == (zcdp is None):
        raise ValueError("exactly one of epsilon and zcdp must be given.")
    return ("epsilon", epsilon) if zcdp is None else ("zcdp", zcdp)


def _shape_of_parts(scores: CandidateScores) -> tuple[int, ...]:
    """Return the shape of the sensitivities, with the axis of parts."""
    if scores.scores.ndim < 2:
        raise ValueError(
            "scores must have an axis of parts before that of candidates, got shape "
            f"{scores.scores.shape}."
        )
    return jnp.broadcast_shapes(jnp.shape(scores.sensitivity), scores.scores.shape[-2:-1])
