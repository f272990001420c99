"""The exponential mechanism over finitely many candidates (McSherry and Talwar 2007).

P(candidate) is proportional to exp(epsilon * score / (2 * sensitivity)). Privacy: between neighbors
every score changes by at most the sensitivity (up to a shift common to all candidates, which
cancels), so the exponents differ by at most epsilon/2, and so do the logarithms of the normalizers;
the ratio of two candidates changes by at most exp(epsilon).

Draws have the distribution of the Gumbel-max trick, the argmax of exponent + Gumbel noise.
Algorithm 1 of the Duff paper, the argmin of log log(1/U) - exponent, is the same, because -log
log(1/U) is a Gumbel variable.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.finite import Finite
from dpjax.mechanisms.relations import pure
from dpjax.sensitivity import CandidateScores, SensitivityProfile


def guarantee(scores: CandidateScores | str, epsilon: float) -> Guarantee:
    """Return the guarantee of one draw of :func:`exponential`.

    For an array of scores, pass the name of the neighbor relation.

    >>> print(exponential.guarantee("swap", 1.0))
    1-DP and 1-bounded-range under swap neighbors
    """
    return pure(scores, epsilon)


@with_guarantee(guarantee)
def exponential(
    scores: CandidateScores | ArrayLike,
    epsilon: ArrayLike,
    *,
    candidates: ArrayLike | None = None,
    sensitivity: ArrayLike | None = None,
) -> Finite:
    """Return the distribution of the exponential mechanism.

    P(candidate) is proportional to exp(epsilon * score / (2 * sensitivity)).

    Args:
        scores: see :mod:`dpjax.mechanisms`, also for ``candidates`` and ``sensitivity``.
        epsilon: positive.

    Returns:
        A :class:`Finite` of the broadcast batch shape.

    Privacy:
        epsilon-DP and epsilon-bounded-range under the relation that the sensitivity holds for.
        Public: epsilon, the sensitivity and the candidates. Unlike a float on the real line, a
        drawn candidate has no low-order bits that depend on the data, but its probability is
        rounded, by a few units in the last place of the dtype.

    References:
        McSherry and Talwar (2007); Gillenwater and Munoz Medina, Definition 7 and Algorithm 1.
        Durfee (2025), Definition 2.3, has exp(epsilon * score / 2), which is (epsilon times the
        sensitivity)-DP, not epsilon divided by it as printed in Proposition 1.

    >>> import jax.numpy as jnp
    >>> distribution = exponential(jnp.array([0.0, 2.0]), 1.0, sensitivity=1.0)
    >>> bool(jnp.isclose(distribution.prob(1.0) / distribution.prob(0.0), jnp.exp(1.0)))
    True
    """
    candidate_set = candidate_scores(
        scores, candidates=candidates, sensitivity=sensitivity, caller="exponential"
    )
    return Finite(
        candidate_set.candidates, -candidate_set.scores, rate_of_scores(candidate_set, epsilon)
    )


def rate_of_scores(scores: CandidateScores, epsilon: ArrayLike) -> jax.Array:
    """Return the rate epsilon / (2 sensitivity), capped so that its product with 0 is not NaN."""
    sensitivity = checks.positive("sensitivity", scores.sensitivity, scores.dtype)
    return _rate(checks.positive("epsilon", epsilon, scores.dtype), sensitivity)


@jax.jit
def _rate(epsilon: jax.Array, sensitivity: jax.Array) -> jax.Array:
    return jnp.minimum(epsilon / (2 * sensitivity), float(jnp.finfo(epsilon.dtype).max))


def candidate_scores(
    scores: CandidateScores | ArrayLike,
    *,
    candidates: ArrayLike | None,
    sensitivity: ArrayLike | None,
    caller: str,
) -> CandidateScores:
    """Return scores of either form as :class:`CandidateScores`; errors name the ``caller``."""
    if isinstance(scores, SensitivityProfile):
        raise TypeError(
            f"{caller} takes scores of candidates, got a SensitivityProfile: use "
            "inverse_sensitivity."
        )
    if isinstance(scores, CandidateScores):
        if candidates is not None or sensitivity is not None:
            raise ValueError(
                f"{caller} takes no candidates and no sensitivity with CandidateScores, which "
                "carry their own."
            )
        found = scores
    elif sensitivity is None:
        raise ValueError(
            f"{caller} needs sensitivity=... with an array of scores; or pass CandidateScores."
        )
    else:
        array = checks.float_array("scores", scores)
        if array.ndim == 0 or array.shape[-1] == 0:
            raise ValueError(
                "scores must have a last axis with at least one candidate, got shape "
                f"{array.shape}."
            )
        labels = checks.float_array(
            "candidates", np.arange(array.shape[-1]) if candidates is None else candidates
        )
        scale = checks.positive("sensitivity", sensitivity, array.dtype)
        # The relation is not used by the distribution; guarantee() takes it as an argument.
        found = CandidateScores(array, labels.astype(array.dtype), scale, neighbors="add_remove")
    _ = found.batch_shape  # raises where shapes do not fit
    return found
