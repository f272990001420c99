"""Permute and flip (McKenna and Sheldon 2020).

Consider the candidates in random order, accept each with probability exp(epsilon * (score - best) /
(2 * sensitivity)), and stop at the first that is accepted. It equals report-noisy-max with
exponential noise (Ding et al. 2021). Probabilities are integrals
(``dpjax.distributions.PermuteAndFlip``).

On the multiples of a resolution, the score of a multiple y is minus its cost, which is that of
piecewise Laplace (``from_profile.py``) rounded up to a multiple of 1/r: the value costs 1 - c, and
another multiple ceil(r L(y)) / r. Privacy: ceil(r (L + 1)) = ceil(r L) + r, so that what is shown
there for L holds for these costs. Between two values that follow each other, the multiples are r
runs of equal cost: 2 up to epsilon 1, 4 up to 2, and 8 beyond, as in ``dpjax.release``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions._permute_and_flip import PermuteAndFlip, cost_of_winning
from dpjax.distributions.finite import Finite
from dpjax.mechanisms._exponential import candidate_scores, rate_of_scores
from dpjax.mechanisms.relations import pure
from dpjax.numerics.arrays import concatenate, fits
from dpjax.numerics.multiples import to_multiples
from dpjax.sensitivity import SensitivityProfile
from dpjax.sensitivity.scores import CandidateScores

_MOST_RUNS = 8  # of a change


def guarantee(scores: CandidateScores | SensitivityProfile | str, epsilon: float) -> Guarantee:
    """Return the guarantee of one draw; see :func:`dpjax.exponential.guarantee`.

    >>> print(permute_and_flip.guarantee("swap", 1.0))
    1-DP and 2-bounded-range under swap neighbors
    """
    return pure(scores, epsilon, ranges=2)


class _PermuteAndFlip(Protocol):
    """The overloaded signatures of :func:`permute_and_flip`."""

    guarantee: Callable[..., Guarantee]

    @overload
    def __call__(self, scores: SensitivityProfile, epsilon: ArrayLike) -> PermuteAndFlip: ...

    @overload
    def __call__(
        self,
        scores: CandidateScores | ArrayLike,
        epsilon: ArrayLike,
        *,
        candidates: ArrayLike | None = None,
        sensitivity: ArrayLike | None = None,
    ) -> Finite: ...


@with_guarantee(guarantee, signatures=_PermuteAndFlip)
def permute_and_flip(
    scores: CandidateScores | SensitivityProfile | ArrayLike,
    epsilon: ArrayLike,
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
                "permute_and_flip takes no candidates and no sensitivity with a profile, which "
                "carries its own."
            )
        return _of_profile(scores, epsilon)
    candidate_set = candidate_scores(
        scores, candidates=candidates, sensitivity=sensitivity, caller="permute_and_flip"
    )
    return Finite(
        candidate_set.candidates,
        _cost(candidate_set.scores, rate_of_scores(candidate_set, epsilon)),
        jnp.ones((), candidate_set.dtype),
    )


@jax.jit
def _cost(scores: jax.Array, rate: jax.Array) -> jax.Array:
    """Return -log p, ``(..., k)``."""
    best = jnp.max(scores, axis=-1, keepdims=True)
    absent = (scores == -jnp.inf) & (best > -jnp.inf)
    fall = jnp.where(absent, 0.0, best - jnp.where(absent, 0.0, scores)) * rate[..., None]
    return jnp.where(absent, jnp.inf, cost_of_winning(fall, jnp.where(absent, 0.0, 1.0)))


def _of_profile(profile: SensitivityProfile, epsilon: ArrayLike) -> PermuteAndFlip:
    if profile.resolution is None or profile.step is not None:
        raise ValueError(
            "permute_and_flip needs a profile with a resolution and bounds, whose draws are "
            "finitely many multiples: without, use piecewise_laplace."
        )
    if not (profile.integer_levels and profile.interpolable):
        raise ValueError(
            "permute_and_flip needs a profile with integer levels that is interpolable: for "
            "others, use piecewise_laplace or inverse_sensitivity."
        )
    budget = checks.positive("epsilon", epsilon, profile.dtype)
    fits(profile.batch_shape, epsilon=budget.shape)
    runs = _MOST_RUNS
    if not checks.is_traced(epsilon):
        runs = int(np.max(_runs_of_a_change(np, np.asarray(epsilon)), initial=1))
    return _on_multiples(profile, budget, runs)


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
