"""Duff (Gillenwater and Munoz Medina 2020): the exponential mechanism on the distance to a dataset.

The utility of an output is minus the number of records to add or remove before the statistic takes
this value; its sensitivity is 1. On the line (lower median, mean) this is inverse sensitivity, for
the mode it is the exponential mechanism over candidates: this module gives the paper's name to both
and keeps its neighbor relation, add/remove. A graph is the set of its edges, so edge neighbors are
add/remove neighbors whose records are edges. Utility bounds are in ``dpjax/bounds/duff.py``.

Errata of the paper: in the median's second case "k even" should read "n even" (as printed, a part
of [y_n, b] has no utility where n and n/2 are even). In Section 5 the density is proportional to
exp(+epsilon u_d/2), not exp(-epsilon u_d/2). That each A_k is a single interval holds for the
median under add/remove, not under swap, nor for the mean. The mode's n_x - n_max is the distance if
datasets may have several modes (see :func:`dpjax.statistics.mode`). The mean needs no dynamic
program (nor is it greedy); see its profile. The mode spends only epsilon/2 of its epsilon: n_max is
common to all candidates and cancels, and the counts alone have sensitivity 1/2 up to a common shift
(:func:`dpjax.statistics.candidate_counts`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, overload

from jax.typing import ArrayLike

from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions import Finite, PiecewiseExponential, Rounded
from dpjax.mechanisms._exponential import exponential
from dpjax.mechanisms._inverse_sensitivity import inverse_sensitivity
from dpjax.mechanisms.from_profile import is_given
from dpjax.mechanisms.relations import pure
from dpjax.sensitivity import CandidateScores, SensitivityProfile


def guarantee(statistic: SensitivityProfile | CandidateScores, epsilon: float) -> Guarantee:
    """Return the guarantee of one draw of :func:`duff`.

    >>> import jax.numpy as jnp
    >>> from dpjax import median
    >>> bounds = {"lower": 0, "upper": 9, "neighbors": "add_remove"}
    >>> print(duff.guarantee(median(jnp.arange(9.0), definition="lower", **bounds), 2))
    2-DP and 2-bounded-range under add_remove neighbors
    """
    _check(statistic)
    return pure(statistic, epsilon)


class _Duff(Protocol):
    """The overloaded signatures of :func:`duff`."""

    guarantee: Callable[..., Guarantee]

    @overload
    def __call__(
        self, statistic: SensitivityProfile, epsilon: ArrayLike, *, rho: ArrayLike = 0.0
    ) -> PiecewiseExponential | Rounded: ...

    @overload
    def __call__(
        self, statistic: CandidateScores, epsilon: ArrayLike, *, rho: ArrayLike = 0.0
    ) -> Finite: ...


@with_guarantee(guarantee, signatures=_Duff)
def duff(
    statistic: SensitivityProfile | CandidateScores, epsilon: ArrayLike, *, rho: ArrayLike = 0.0
) -> PiecewiseExponential | Rounded | Finite:
    """Return the distribution of Duff, with density or probability ~ exp(epsilon/2 * u_d).

    Args:
        statistic: under add/remove neighbors, ``median(..., definition="lower")`` for the paper's
            median or ``mean(..., values="hull")`` for its mean; or ``mode(...)``, whose score for a
            single mode is not the paper's, and for which ``candidate_counts(...)`` is more accurate
            at the same epsilon. Under edge neighbors, ``triangle_count(...).truncate(k)``, whose
            levels are at most the paper's distance, or ``from_distances(...)`` where the distance
            is known.
        epsilon: positive.
        rho: for a profile, as in :func:`dpjax.inverse_sensitivity`. The paper has no rho, and a
            profile of hulls accepts none.

    Returns:
        A :class:`PiecewiseExponential` for a profile, a :class:`Rounded` if it has a resolution
        (the value then costs 1 - depth, not 0), or a :class:`Finite` for candidates.

    Raises:
        TypeError: ``statistic`` is of another class.
        ValueError: the relation is neither ``"add_remove"`` nor ``"edge"``; the levels of a profile
            under add/remove are not distances (the default median and mean, truncated profiles); or
            ``rho`` is given with candidates.

    Privacy:
        epsilon-DP and epsilon-bounded-range under the relation of the statistic. Public: epsilon,
        rho, and what the statistic documents as public; the number of records (or edges) is
        private. Float draws on the line are simulations.

    References:
        Gillenwater and Munoz Medina (2020), Definition 8, Section 4.1 and Algorithm 1; McSherry and
        Talwar (2007). The classical median of Section 4, with the utility
        u_2 = -abs(records below y - records above y), that of OpenDP and diffprivlib, needs no
        profile: for n sorted records between the bounds it is ``PiecewiseExponential(edges, cost,
        cost, epsilon / 2)`` under add/remove, with ``edges = [lower, *x, upper]`` and ``cost =
        abs(2 * arange(n + 1.0) - n)``; under swap, of epsilon / 4.

    >>> import jax.numpy as jnp
    >>> from dpjax import median
    >>> bounds = {"lower": 0, "upper": 8, "neighbors": "add_remove"}
    >>> profile = median(jnp.array([1.0, 2.0, 4.0]), definition="lower", **bounds)
    >>> distribution = duff(profile, 2.0)
    >>> [
    ...     round(float(distribution.log_prob(y) - distribution.log_prob(1.5)), 4)
    ...     for y in (0.5, 1.5, 3.0, 6.0)
    ... ]
    [-2.0, 0.0, -1.0, -3.0]
    """
    _check(statistic)
    if isinstance(statistic, SensitivityProfile):
        return inverse_sensitivity(statistic, epsilon, rho=rho)
    if is_given(rho):
        raise ValueError(
            "rho must be left at 0 for CandidateScores: it smooths statistics on the real line."
        )
    return exponential(statistic, epsilon)


def _check(statistic: SensitivityProfile | CandidateScores) -> None:
    if not isinstance(statistic, (SensitivityProfile, CandidateScores)):
        raise TypeError(
            "statistic must be a SensitivityProfile (from dpjax.median, dpjax.mean, ...) or "
            f"CandidateScores (from dpjax.mode), got {type(statistic).__name__}."
        )
    if statistic.neighbors not in ("add_remove", "edge"):
        instead = "exponential" if isinstance(statistic, CandidateScores) else "inverse_sensitivity"
        raise ValueError(
            "duff supports add_remove and edge neighbors, got a statistic for "
            f"{statistic.neighbors}: use {instead}."
        )
    if (
        isinstance(statistic, SensitivityProfile)
        and statistic.neighbors == "add_remove"
        and statistic.reached != "intervals"
    ):
        raise ValueError(
            "the levels of this profile must be the paper's distances: use median(..., "
            "definition='lower') or mean(..., values='hull') without truncation, or "
            "inverse_sensitivity, which accepts any profile."
        )
