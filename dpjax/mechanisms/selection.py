"""Selection among candidates with scores: exponential, by parts, permute and flip, stand out.

**Exponential** (McSherry and Talwar 2007). P(candidate) is proportional to exp(epsilon * score / (2
* sensitivity)). Privacy: between neighbors every score changes by at most the sensitivity (up to a
shift common to all candidates, which cancels), so the exponents differ by at most epsilon/2, and so
do the logarithms of the normalizers; the ratio of two candidates changes by at most exp(epsilon).

Draws have the distribution of the Gumbel-max trick, the argmax of exponent + Gumbel noise.
Algorithm 1 of the Duff paper, the argmin of log log(1/U) - exponent, is the same, because -log
log(1/U) is a Gumbel variable.

**By parts** (Steinke 2025, Equation 4): the exponential mechanism on a score that is a sum over
parts.

    score(y_1, ..., y_d) = score_1(y_1) + ... + score_d(y_d)
    P(y) proportional to exp(rate * score(y))

So a draw from k^d candidates is d independent draws, and the privacy analysis decomposes, too. Part
j, of sensitivity s_j, has range 2 rate s_j. Independent losses add up, so the total range is 2 rate
(s_1 + ... + s_d), as for a single exponential mechanism, but the zCDP is rate^2/2 (s_1^2 + ... +
s_d^2): for equal parts d times less than the total range implies.

**Permute and flip** (McKenna and Sheldon 2020). Consider the candidates in random order, accept
each with probability exp(epsilon * (score - best) / (2 * sensitivity)), and stop at the first that
is accepted. It equals report-noisy-max with exponential noise (Ding et al. 2021). Probabilities are
integrals (``dpjax.distributions.PermuteAndFlip``).

On the multiples of a resolution, the score of a multiple y is minus its cost, which is that of
piecewise Laplace (``from_profile.py``) rounded up to a multiple of 1/r: the value costs 1 - c, and
another multiple ceil(r L(y)) / r. Privacy: ceil(r (L + 1)) = ceil(r L) + r, so that what is shown
there for L holds for these costs. Between two values that follow each other, the multiples are r
runs of equal cost: 2 up to epsilon 1, 4 up to 2, and 8 beyond, as in ``dpjax.release``.

**Stand out**: the best candidate if it leads by enough, independently of the number of candidates.
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

Rounding. A probability p(n) has a relative error of some units in the last place, times the size of
its logarithm. It is multiplied by e^epsilon from step to step, so p for a slightly smaller epsilon
and delta, rounded, satisfies the conditions for those that were given. Where epsilon is not larger
than these errors, p(n) = delta for all n above 0, which satisfies them for epsilon = 0. An epsilon
above 40 counts as 40, so that no step is below the smallest probability that draws reach.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.conversions import rdp_of_bounded_range
from dpjax.accounting.guarantee import Guarantee
from dpjax.distributions.finite import Finite
from dpjax.distributions.flips import PermuteAndFlip, cost_of_winning
from dpjax.mechanisms.mechanism import (
    Amount,
    Positive,
    Probability,
    mechanism,
    one_budget,
    relation_of,
)
from dpjax.numerics.arrays import concatenate, fits
from dpjax.numerics.float64 import in_float64
from dpjax.numerics.multiples import to_multiples
from dpjax.sensitivity import CandidateScores, SensitivityProfile

Scores = Annotated[CandidateScores | ArrayLike, "or an array of scores"]
ScoresOrProfile = Annotated[
    CandidateScores | SensitivityProfile | ArrayLike, "or an array of scores"
]


@mechanism()
def exponential(
    scores: Scores,
    epsilon: Positive,
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
    choice = candidate_scores(scores, candidates, sensitivity)
    return Finite(choice.candidates, -choice.scores, _rate(epsilon, choice.sensitivity))


@jax.jit
def _rate(epsilon: jax.Array, sensitivity: jax.Array) -> jax.Array:
    """Return epsilon / (2 sensitivity), capped so that its product with 0 is not NaN."""
    return jnp.minimum(epsilon / (2 * sensitivity), float(jnp.finfo(epsilon.dtype).max))


def candidate_scores(
    scores: CandidateScores | ArrayLike,
    candidates: ArrayLike | None,
    sensitivity: ArrayLike | None,
) -> CandidateScores:
    """Return scores of either form as :class:`CandidateScores`, with a checked sensitivity."""
    if isinstance(scores, CandidateScores):
        if candidates is not None or sensitivity is not None:
            raise ValueError(
                "candidates and sensitivity must not be given with CandidateScores, which carry "
                "their own."
            )
        scale = checks.positive("sensitivity", scores.sensitivity, scores.dtype)
        found = replace(scores, sensitivity=scale)
    else:
        if sensitivity is None:
            raise ValueError(
                "sensitivity must be given with an array of scores; or pass CandidateScores."
            )
        array = checks.score_array(scores)
        if array.ndim == 0 or array.shape[-1] == 0:
            raise ValueError(
                "scores must have a last axis with at least one candidate, got shape "
                f"{array.shape}."
            )
        names = np.arange(array.shape[-1]) if candidates is None else candidates
        labels = checks.float_array("candidates", names).astype(array.dtype)
        scale = checks.positive("sensitivity", sensitivity, array.dtype)
        # The relation is not used by the distribution; guarantee() takes it as an argument.
        found = CandidateScores(array, labels, scale, neighbors="add_remove")
    _ = found.batch_shape  # raises where shapes do not fit
    return found


def _guarantee_of_parts(
    scores: CandidateScores | ArrayLike,
    *,
    epsilon: Amount | None = None,
    zcdp: Amount | None = None,
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
    10-DP
    under swap neighbors
    >>> round(cost.epsilon_at(1e-6), 2)
    2.4
    """
    relation = relation_of(scores, neighbors)
    parts = _parts(candidate_scores(scores, None, sensitivity), epsilon, zcdp)
    each = np.asarray(parts, np.float64).reshape(-1, parts.shape[-1])
    total, square = each.sum(axis=1), np.square(each).sum(axis=1)
    rate = _rate_of_parts(np, each, epsilon, zcdp)
    most, ranges = float(np.max(2 * rate * total)), 2 * rate[:, None] * each

    def curve(order: np.ndarray) -> np.ndarray:
        parts = rdp_of_bounded_range(ranges[..., None], order=order)
        return np.minimum(np.maximum.accumulate(parts.sum(axis=1).max(axis=0)), most)

    rho = float(np.max(rate * rate * square)) / 2
    return Guarantee(most, most, relation, zcdp=rho).with_curve(curve)


@mechanism(_guarantee_of_parts)
def decomposable_exponential(
    scores: Scores,
    *,
    epsilon: Positive | None = None,
    zcdp: Positive | None = None,
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
    choice = candidate_scores(scores, candidates, sensitivity)
    rate = _rate_of_parts(jnp, _parts(choice, epsilon, zcdp), epsilon, zcdp)
    most = float(jnp.finfo(choice.dtype).max)
    return Finite(choice.candidates, -choice.scores, jnp.minimum(rate, most)[..., None])


def _rate_of_parts(xp: Any, each: Any, epsilon: Any, zcdp: Any) -> Any:
    """Return the rate of all parts, whose sensitivities are on the last axis."""
    if epsilon is None:
        return xp.sqrt(2 * zcdp) / xp.linalg.norm(each, axis=-1)
    return epsilon / (2 * each.sum(axis=-1))


def _parts(choice: CandidateScores, epsilon: Any, zcdp: Any) -> jax.Array:
    """Return the sensitivity of each part; raise unless there are parts and one budget."""
    one_budget(epsilon, zcdp)
    if choice.scores.ndim < 2:
        raise ValueError(
            "scores must have an axis of parts before that of candidates, got shape "
            f"{choice.scores.shape}."
        )
    shape = jnp.broadcast_shapes(jnp.shape(choice.sensitivity), choice.scores.shape[-2:-1])
    return jnp.broadcast_to(choice.sensitivity, shape)


@mechanism(ranges=2)
def permute_and_flip(
    scores: ScoresOrProfile,
    epsilon: Positive,
    *,
    candidates: ArrayLike | None = None,
    sensitivity: ArrayLike | None = None,
) -> Finite | PermuteAndFlip:
    """Return the distribution of permute and flip, with exact probabilities.

    Its expected score is never below that of :func:`exponential` at the same epsilon, and its
    expected error is as little as half of it: on a profile, where values are tied or the resolution
    is about the error itself.

    Args:
        scores: see :mod:`dpjax.mechanisms`, also for ``candidates`` and ``sensitivity``. Or the
            profile of a statistic with a resolution and bounds, such as ``dpjax.median(x, ...,
            resolution=1)``: draws are then multiples of the resolution, as in
            :mod:`dpjax.release`, which draws from this distribution by default.
        epsilon: positive.

    Returns:
        A :class:`Finite` of the broadcast batch shape, with cost ``-log p`` and rate 1; for a
        profile, a :class:`dpjax.distributions.PermuteAndFlip`.

    Raises:
        ValueError: a profile has no resolution, fractional levels or an unbounded number of steps,
            or is not interpolable.

    Privacy:
        epsilon-DP under the relation that the sensitivity holds for, or that of the profile. The
        bounded range is not epsilon: two candidates whose scores change in opposite directions
        attain 2 log(2 exp(epsilon/2) - 1), near 2 epsilon for a small epsilon, and only 2 epsilon
        is guaranteed. Under composition of many draws, :func:`exponential` or
        :func:`piecewise_laplace` can therefore be the better choice.

    References:
        McKenna and Sheldon (2020), Algorithm 1 and Theorem 2; Ding, Kifer et al. (2021) for the
        noisy maximum.

    >>> import jax.numpy as jnp
    >>> distribution = permute_and_flip(jnp.array([0.0, 2.0 * jnp.log(2.0)]), 1.0, sensitivity=1.0)
    >>> [round(float(p), 6) for p in distribution.probabilities()]
    [0.25, 0.75]
    """
    if isinstance(scores, SensitivityProfile):
        if candidates is not None or sensitivity is not None:
            raise ValueError(
                "candidates and sensitivity must not be given with a profile, which carries its "
                "own."
            )
        return _of_profile(scores, epsilon)
    choice = candidate_scores(scores, candidates, sensitivity)
    cost = _cost_of_flips(choice.scores, _rate(epsilon, choice.sensitivity))
    return Finite(choice.candidates, cost, jnp.ones((), choice.dtype))


@jax.jit
def _cost_of_flips(scores: jax.Array, rate: jax.Array) -> jax.Array:
    """Return -log p, ``(..., k)``."""
    best = jnp.max(scores, axis=-1, keepdims=True)
    absent = (scores == -jnp.inf) & (best > -jnp.inf)
    fall = jnp.where(absent, 0.0, best - jnp.where(absent, 0.0, scores)) * rate[..., None]
    return jnp.where(absent, jnp.inf, cost_of_winning(fall, jnp.where(absent, 0.0, 1.0)))


def _of_profile(profile: SensitivityProfile, epsilon: Any) -> PermuteAndFlip:
    if profile.step is not None:
        raise ValueError("profile must have bounds: without, use piecewise_laplace.")
    if not (profile.resolution and profile.interpolable and profile.integer_levels):
        raise ValueError(
            "profile must have a resolution and integer levels and be interpolable: for others, "
            "use piecewise_laplace or inverse_sensitivity."
        )
    fits(profile.batch_shape, epsilon=epsilon.shape)
    runs = 8
    if not checks.is_traced(epsilon):
        runs = int(np.max(_runs_of_a_change(np, np.asarray(epsilon)), initial=1))
    return _on_multiples(profile, epsilon, runs)


def _runs_of_a_change(numpy: Any, epsilon: Any) -> Any:
    return numpy.where(epsilon <= 1, 2.0, numpy.where(epsilon <= 2, 4.0, 8.0))


@partial(jax.jit, static_argnames="runs")
def _on_multiples(profile: SensitivityProfile, epsilon: jax.Array, runs: int) -> PermuteAndFlip:
    """Cut every change into ``runs`` runs, of which rows with fewer have some of equal cost."""
    resolution = profile.resolution
    assert resolution is not None
    part = jnp.arange(1, runs + 1, dtype=profile.dtype)
    own = _runs_of_a_change(jnp, epsilon)[..., None].astype(profile.dtype)
    share = jnp.ceil(part * own / runs) / own

    def outwards(values: jax.Array, levels: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the distances of the ends of runs from the value, and their costs."""
        number = to_multiples(values, resolution)
        near, height = number[..., :-1, None], jnp.abs(jnp.diff(number))[..., None]
        # The floor of height * part / runs, by numbers that are not too large for a float
        whole = jnp.floor(height / runs)
        through = whole * part + jnp.floor((height - whole * runs) * part / runs)
        away = jnp.abs(near - number[..., :1, None]) + through + 0.5
        cost = levels[..., :-1, None] + share[..., None, :]
        return away.reshape(*away.shape[:-2], -1), cost.reshape(*cost.shape[:-2], -1)

    below, low = outwards(profile.lower, profile.lower_levels)
    above, high = outwards(profile.upper, profile.upper_levels)
    value = to_multiples(profile.value, resolution)[..., None]
    edges = concatenate(value - jnp.flip(below, -1), value - 0.5, value + 0.5, value + above)
    cost = concatenate(jnp.flip(low, -1), 1 - profile.depth[..., None], high)
    return PermuteAndFlip(edges, cost, cost, epsilon / 2, resolution)


@mechanism()
def stand_out(
    scores: Scores,
    epsilon: Positive,
    *,
    delta: Probability,
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
        any lead of 2 s n, up to what is paid for the rounding of floats, and for an epsilon of at
        most 40. In float32 ``log_prob`` is rounded by up to 2e-7, which may be more than a delta.
        The lead is compared with multiples of 2 s exactly, up to 2^24 of them; a sensitivity of
        more than 24 significant bits is rounded up.

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
    choice = candidate_scores(scores, candidates, sensitivity)
    last = checks.float_array("fallback", fallback).astype(choice.dtype)
    cost = _cost_of_leads(choice.scores, choice.sensitivity, epsilon, delta)
    last = jnp.broadcast_to(last, jnp.broadcast_shapes(last.shape, cost.shape[:-1]))[..., None]
    return Finite(concatenate(choice.candidates, last), cost, jnp.ones((), choice.dtype))


@jax.jit
def _cost_of_leads(
    scores: jax.Array, sensitivity: jax.Array, epsilon: jax.Array, delta: jax.Array
) -> jax.Array:
    """Return minus the log-probability of every candidate, and of the fallback."""
    best = jnp.max(scores, axis=-1)
    is_best = jnp.argmax(scores, axis=-1)[..., None] == jnp.arange(scores.shape[-1])
    # Inf if there is no other candidate.
    second = jnp.max(jnp.where(is_best, -jnp.inf, scores), axis=-1)
    steps = in_float64(_steps, best, second, sensitivity)
    answer, rest = _answers(steps, jnp.minimum(epsilon, 40.0), delta)
    # The minimum is not asked, as it may pass over a NaN
    ok = jnp.isfinite(best) & ~jnp.isnan(answer + rest + sensitivity + epsilon)
    cost = jnp.where(is_best, -answer[..., None], jnp.inf)
    return jnp.where(ok[..., None], concatenate(cost, -rest[..., None]), jnp.nan)


def _steps(best: jax.Array, second: jax.Array, sensitivity: jax.Array) -> jax.Array:
    """Return the largest whole n up to 2^24 for which the lead is at least 2 s n, in float64.

    It is exact, since the n of neighbors differ by at most 1 then, and by 2 after rounding.
    """
    nearest = jax.lax.reduce_precision(2 * sensitivity, 11, 23)
    above = jax.lax.reduce_precision(nearest * (1 + 2.0**-23), 11, 23)
    width = jnp.where(nearest < 2 * sensitivity, above, nearest)
    lead = best - second
    back = lead - best
    rest = (best - (lead - back)) - (second + back)  # what the rounded lead lacks

    def reaches(number: jax.Array) -> jax.Array:
        product = number * width  # of 25 and 24 bits
        return (lead > product) | ((lead == product) & ~(rest < 0))

    number = jnp.clip(jnp.floor(lead / width), 1.0, 2.0**24)
    number += jnp.where(reaches(number + 1), 1.0, jnp.where(reaches(number), 0.0, -1.0))
    return jnp.minimum(number, 2.0**24)


def _answers(steps: jax.Array, epsilon: jax.Array, delta: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return log p(n) and log(1 - p(n)) after n steps."""
    error = 8 * float(jnp.finfo(epsilon.dtype).eps) * (2 + epsilon - jnp.log(delta))
    nothing = epsilon <= 2 * error
    steps = jnp.where(nothing, jnp.minimum(steps, 1.0), steps)
    rate = jnp.where(nothing, 1.0, epsilon - error)
    log_delta = jnp.log(delta) + jnp.log1p(-error)
    share, small = -jnp.expm1(-rate), jnp.exp(log_delta)

    def rising(n: jax.Array) -> jax.Array:
        """Return log p(n) by the first branch of the minimum."""
        found = log_delta + (jnp.maximum(n, 1.0) - 1) * rate
        return found + log_decayed(n * rate) - jnp.log(share)

    # The first branch holds up to p = (1 - delta) / (1 + e^epsilon), and one step beyond.
    turn = 1 + jnp.floor(jnp.log1p((1 - small) * jnp.tanh(rate / 2) / small) / rate)
    first = jnp.minimum(steps, turn)
    answer = jnp.minimum(rising(first), 0.0)
    before = jnp.exp(rising(first - 1)) + small
    # At least what the second branch says, in spite of rounding
    rest = jnp.maximum(log_decayed(-answer), jnp.log1p(-jnp.minimum(before, 1.0)) - rate)
    # From there 1 - p falls as p rises, backwards: after the last step above 0 it is at most delta.
    last = 1 + jnp.floor(jnp.log1p(share * jnp.expm1(rest - log_delta)) / rate)
    least = jnp.minimum(rest - last * rate + log_decayed(rest - rising(last)), log_delta)
    left = last - (steps - turn)
    falling = jnp.where(left >= 0, jnp.logaddexp(least + left * rate, rising(left)), -jnp.inf)
    rest = jnp.where(steps <= turn, rest, falling)
    rises = (answer < -1) & (steps <= turn)
    return jnp.where(rises, answer, log_decayed(-rest)), rest


def log_decayed(t: jax.Array) -> jax.Array:
    """Return log(1 - exp(-t)), ``-inf`` at 0."""
    return jnp.where(t > 0, jnp.log(-jnp.expm1(-jnp.where(t > 0, t, 1.0))), -jnp.inf)
