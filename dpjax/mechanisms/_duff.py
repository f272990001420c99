"""Duff (Gillenwater and Munoz Medina 2020): the exponential mechanism on the distance between datasets, under add/remove.

The utility of an output is minus the number of records to add or remove before the statistic takes it; its sensitivity is 1. On the
line (lower median, mean) that is inverse sensitivity, for the mode the exponential mechanism over candidates: this file gives the
paper's name to both and keeps its neighbor relation. A graph is the set of its edges, so edge neighbors are add/remove neighbors,
whose records are edges. Its utility bounds are in ``dpjax/bounds/duff.py``.

Slips of the paper: in the median's second case "k even" should read "n even" (as printed, a part of [y_n, b] has no utility where n
and n/2 are even). In Section 5 the density is proportional to exp(+epsilon u_d/2), not exp(-epsilon u_d/2). That each A_k is a
single interval holds for the median under add/remove, not under swap, nor for the mean. The mode's n_x - n_max is the distance if
datasets may have several modes (see :func:`dpjax.statistics.mode`). The mean needs no dynamic program (nor is it greedy);
see its profile. The mode spends only epsilon/2 of its epsilon: n_max is common to all candidates and cancels, and the counts alone
have sensitivity 1/2 up to a common shift (:func:`dpjax.statistics.candidate_counts`).
"""

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
    """Return what one draw of :func:`duff` costs.

    >>> import jax.numpy as jnp
    >>> from dpjax import median
    >>> print(duff.guarantee(median(jnp.arange(9.0), lower=0, upper=9, neighbors="add_remove", definition="lower"), 2))
    2-DP and 2-bounded-range under add_remove neighbors
    """
    _check(statistic)
    return pure(statistic, epsilon)


class _Duff(Protocol):
    """The signatures of :func:`duff`."""

    guarantee: Callable[..., Guarantee]

    @overload
    def __call__(
        self, statistic: SensitivityProfile, epsilon: ArrayLike, *, rho: ArrayLike = 0.0
    ) -> PiecewiseExponential | Rounded: ...

    @overload
    def __call__(self, statistic: CandidateScores, epsilon: ArrayLike, *, rho: ArrayLike = 0.0) -> Finite: ...


@with_guarantee(guarantee, signatures=_Duff)
def duff(
    statistic: SensitivityProfile | CandidateScores, epsilon: ArrayLike, *, rho: ArrayLike = 0.0
) -> PiecewiseExponential | Rounded | Finite:
    """Return the distribution of Duff: density (or probability) proportional to exp(epsilon/2 * u_d).

    Args:
        statistic: under add/remove neighbors: ``median(..., definition="lower")`` for the paper's median,
            ``mean(..., values="hull")`` for its mean; or ``mode(...)``, whose score for a single mode is not the paper's, and for
            which ``candidate_counts(...)`` is sharper at the same epsilon. Under edge neighbors:
            ``triangle_count(...).truncate(k)``, whose levels are at most the paper's distance, or ``from_distances(...)`` where it
            is known.
        epsilon: positive.
        rho: for a profile, as in :func:`dpjax.inverse_sensitivity`; the paper has none, and a mean's hulls take none.

    Returns:
        A :class:`PiecewiseExponential` for a profile, a :class:`Rounded` if it has a resolution (the value then costs 1 - depth,
        not 0), a :class:`Finite` for candidates.

    Raises:
        ValueError: another relation than ``"add_remove"`` and ``"edge"``; under add/remove a profile whose levels are no distances
            (the default median and mean, truncated ones); or a ``rho`` beside candidates.

    Privacy:
        epsilon-DP and epsilon-bounded-range under the relation of the statistic. Public: epsilon, rho, and what the statistic says
        is public; the number of records (or edges) is not. Float draws on the line are simulations.

    References:
        Gillenwater and Munoz Medina (2020), Definition 8, Section 4.1 and Algorithm 1; McSherry and Talwar (2007). The classical
        median of Section 4, with the utility u_2 = -abs(records below y - records above y), that of OpenDP and diffprivlib, needs
        no profile: for n sorted records between the bounds it is ``PiecewiseExponential(edges, cost, cost, epsilon / 2)`` under
        add/remove, with ``edges = [lower, *x, upper]`` and ``cost = abs(2 * arange(n + 1.0) - n)``; under swap, of epsilon / 4.

    >>> import jax.numpy as jnp
    >>> from dpjax import median
    >>> distribution = duff(median(jnp.array([1.0, 2.0, 4.0]), lower=0, upper=8, neighbors="add_remove", definition="lower"), 2.0)
    >>> [round(float(distribution.log_prob(y) - distribution.log_prob(1.5)), 4) for y in (0.5, 1.5, 3.0, 6.0)]
    [-2.0, 0.0, -1.0, -3.0]
    """
    _check(statistic)
    if isinstance(statistic, SensitivityProfile):
        return inverse_sensitivity(statistic, epsilon, rho=rho)
    if is_given(rho):
        raise ValueError("rho smooths a statistic on the line: give none beside candidates.")
    return exponential(statistic, epsilon)


def _check(statistic: SensitivityProfile | CandidateScores) -> None:
    if not isinstance(statistic, (SensitivityProfile, CandidateScores)):
        raise TypeError(
            "duff takes a SensitivityProfile (from dpjax.median, dpjax.mean, ...) or CandidateScores (from dpjax.mode), got "
            f"{type(statistic).__name__}."
        )
    if statistic.neighbors not in ("add_remove", "edge"):
        instead = "exponential" if isinstance(statistic, CandidateScores) else "inverse_sensitivity"
        raise ValueError(f"duff is for add_remove and edge neighbors, this statistic for {statistic.neighbors}: use {instead}.")
    if isinstance(statistic, SensitivityProfile) and statistic.neighbors == "add_remove" and statistic.reached != "intervals":
        raise ValueError(
            "the levels of this profile are not the paper's distances: give duff median(..., definition='lower') or "
            "mean(..., values='hull'), whole, or take inverse_sensitivity, which draws from any profile."
        )
