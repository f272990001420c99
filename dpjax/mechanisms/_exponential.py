"""The exponential mechanism over finitely many candidates (McSherry and Talwar 2007).

P(candidate) proportional to exp(epsilon * score / (2 * sensitivity)). Privacy: between neighbors every score changes by at most the
sensitivity (up to a shift common to all candidates, which cancels), so the exponents differ by at most epsilon/2, and so do the
logarithms of the normalisers; the ratio of two candidates changes by at most exp(epsilon).

A draw is defined by Gumbel-max: the argmax of exponent + Gumbel noise. Algorithm 1 of the Duff paper, the argmin of
log log(1/U) - exponent, is the same draw from the same uniforms, because -log log(1/U) is a Gumbel variable.
"""

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
    """Return what one draw of :func:`exponential` costs; for an array of scores, under the relation given in its place.

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
    """Return the distribution of the exponential mechanism: P(candidate) proportional to exp(epsilon * score / (2 * sensitivity)).

    Args:
        scores: see :mod:`dpjax.mechanisms`, also for ``candidates`` and ``sensitivity``.
        epsilon: positive.

    Returns:
        A :class:`Finite` of the broadcast batch shape.

    Privacy:
        epsilon-DP and epsilon-bounded-range under the relation that the sensitivity holds for. Public: epsilon, the sensitivity and
        the candidates. Unlike a float on the line, a candidate that is drawn has no low-order bits that depend on the data, but its
        probability is still rounded: by a few units in the last place of the dtype.

    References:
        McSherry and Talwar (2007); Gillenwater and Munoz Medina, Definition 7 and Algorithm 1. Durfee (2025), Definition 2.3, has
        exp(epsilon * score / 2), which is (epsilon times the sensitivity)-DP, not epsilon over it as Proposition 1 prints.

    >>> import jax.numpy as jnp
    >>> distribution = exponential(jnp.array([0.0, 2.0]), 1.0, sensitivity=1.0)
    >>> bool(jnp.isclose(distribution.prob(1.0) / distribution.prob(0.0), jnp.exp(1.0)))
    True
    """
    given = candidate_scores(scores, candidates=candidates, sensitivity=sensitivity, caller="exponential")
    return Finite(given.candidates, -given.scores, rate_of_scores(given, epsilon))


def rate_of_scores(scores: CandidateScores, epsilon: ArrayLike) -> jax.Array:
    """The rate epsilon / (2 sensitivity), finite: the best candidate's 0 times infinity would be NaN."""
    sensitivity = checks.positive("sensitivity", scores.sensitivity, scores.dtype)
    return _rate(checks.positive("epsilon", epsilon, scores.dtype), sensitivity)


@jax.jit
def _rate(epsilon: jax.Array, sensitivity: jax.Array) -> jax.Array:
    return jnp.minimum(epsilon / (2 * sensitivity), float(jnp.finfo(epsilon.dtype).max))


def candidate_scores(
    scores: CandidateScores | ArrayLike, *, candidates: ArrayLike | None, sensitivity: ArrayLike | None, caller: str
) -> CandidateScores:
    """Return scores of either form as :class:`CandidateScores`, for every mechanism on candidates; errors name the ``caller``."""
    if isinstance(scores, SensitivityProfile):
        raise TypeError(f"{caller} takes scores of candidates; for a SensitivityProfile see inverse_sensitivity.")
    if isinstance(scores, CandidateScores):
        if candidates is not None or sensitivity is not None:
            raise ValueError(f"these scores carry their candidates and sensitivity: give {caller} neither.")
        found = scores
    elif sensitivity is None:
        raise ValueError(f"{caller} needs the sensitivity of an array of scores: sensitivity=..., or CandidateScores.")
    else:
        array = checks.float_array("scores", scores)
        if array.ndim == 0 or array.shape[-1] == 0:
            raise ValueError(f"scores need a last axis with at least one candidate, got shape {array.shape}.")
        labels = checks.float_array("candidates", np.arange(array.shape[-1]) if candidates is None else candidates)
        scale = checks.positive("sensitivity", sensitivity, array.dtype)
        # No distribution reads the relation; guarantee() asks for it.
        found = CandidateScores(array, labels.astype(array.dtype), scale, neighbors="add_remove")
    _ = found.batch_shape  # raises where shapes do not fit
    return found
