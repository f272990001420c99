"""Mechanisms on the line: piecewise Laplace, inverse sensitivity, Duff, shifted inverse.

**Piecewise Laplace** (Durfee 2025) is Laplace noise scaled by the local sensitivity, piece by
piece: its density is proportional to exp(-epsilon/2 * cost(y)), where the cost of the value at
level l is l + 1 and is linear in between: piece l is chosen with probability proportional to its
length times exp(-epsilon l / 2), and the point in it by a truncated exponential distribution.
Privacy: the cost changes by at most 1 between neighbors (Theorem 1, from Corollary 3.1), so this is
the exponential mechanism. The flat piece of the rho-smooth variant has cost 2 - depth, 1 without
ties (``SensitivityProfile.depth``): with 0 instead of 1, its loss is 1.44 epsilon and its range 2
epsilon. On the multiples of a resolution, probabilities themselves are proportional to
exp(-epsilon/2 * cost): the value costs 1 - depth, and another multiple its level, linear in between
(``from_profile.py``).

**Inverse sensitivity** (Asi and Duchi 2020; McSherry and Talwar 2007) is the exponential mechanism
on the number of changes: density proportional to exp(-epsilon/2 * len(y)), where len(y) is the
number of individuals who must change for the statistic to become y. Piece l is chosen as in
piecewise Laplace, and the point in it uniformly. For the median under add/remove neighbors it is
the mechanism of the Duff paper. Privacy: len(y) changes by at most 1 between neighbors. The flat
piece of the rho-smooth variant has cost 1 - depth, which is 0 without ties; so has the value itself
on the multiples of a resolution, where another multiple costs len(y) (``from_profile.py``).

**Duff** (Gillenwater and Munoz Medina 2020) is the exponential mechanism on the distance to a
dataset. The utility of an output is minus the number of records to add or remove before the
statistic takes this value; its sensitivity is 1. On the line (lower median, mean) this is inverse
sensitivity, for the mode it is the exponential mechanism over candidates: this module gives the
paper's name to both and keeps its neighbor relation, add/remove. A graph is the set of its edges,
so edge neighbors are add/remove neighbors whose records are edges. Utility bounds are in
``dpjax/bounds/duff.py``.

Errata of the paper: in the median's second case "k even" should read "n even" (as printed, a part
of [y_n, b] has no utility where n and n/2 are even). In Section 5 the density is proportional to
exp(+epsilon u_d/2), not exp(-epsilon u_d/2). That each A_k is a single interval holds for the
median under add/remove, not under swap, nor for the mean. The mode's n_x - n_max is the distance if
datasets may have several modes (see :func:`dpjax.statistics.mode`). The mean needs no dynamic
program (nor is it greedy); see its profile. The mode spends only epsilon/2 of its epsilon: n_max is
common to all candidates and cancels, and the counts alone have sensitivity 1/2 up to a common shift
(:func:`dpjax.statistics.candidate_counts`).

**Shifted inverse sensitivity** (Fang, Dong and Yi 2022) is for monotone functions. An additional
person can raise such a function without bound, whereas removals have a bounded effect. So the
mechanism aims below f(x), at h(tau) = min{f(z): z a subset of x with at most tau people removed}.
On finitely many values it is the exponential mechanism with the cost of the post's footnote 4,
max(l - tau, tau - lbar). On the real line it is piecewise Laplace between the values h(tau - s)
above and h(tau + s) below; that interpolation is not in the papers.

Privacy: l and lbar change by at most 1 between neighbors (Proposition 3), and so do tau - lbar, l -
tau and their maximum. On the real line the values at level s lie within the neighbor's at level s+1
(:meth:`dpjax.sensitivity.down.DownSensitivity.shift`): by Corollary 3.1 the cost changes by at most
1. tau must be chosen without the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log, prod
from typing import Annotated, Protocol, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.distributions import Finite, PiecewiseExponential, Radial, Rounded
from dpjax.mechanisms.from_profile import Profile, Support, distribution_of, is_given
from dpjax.mechanisms.mechanism import Amount, Positive, mechanism, overloaded
from dpjax.mechanisms.selection import exponential
from dpjax.sensitivity import CandidateScores, DownSensitivity, SensitivityProfile, VectorProfile

Candidates = jax.Array | np.ndarray | Sequence[float]
Statistic = Annotated[
    SensitivityProfile | CandidateScores,
    "from dpjax.median, dpjax.mean or dpjax.mode of data, under add_remove neighbors",
]
Down = Annotated[
    DownSensitivity, "from a monotone statistic of data, such as dpjax.maximum(x, ...)"
]


class _PiecewiseLaplace(Protocol):
    """The overloaded signatures of :func:`piecewise_laplace`."""

    guarantee: Callable[..., Guarantee]

    @overload
    def __call__(
        self,
        profile: SensitivityProfile,
        epsilon: ArrayLike,
        *,
        rho: ArrayLike = 0.0,
        support: Support = "restricted",
    ) -> PiecewiseExponential | Rounded: ...

    @overload
    def __call__(self, profile: VectorProfile, epsilon: ArrayLike) -> Radial: ...


@overloaded(_PiecewiseLaplace)
@mechanism()
def piecewise_laplace(
    profile: Profile,
    epsilon: Positive,
    *,
    rho: ArrayLike = 0.0,
    support: Support = "restricted",
) -> PiecewiseExponential | Rounded | Radial:
    """Return the distribution of the piecewise Laplace mechanism.

    Args:
        profile: the sensitivity profile of a statistic, batch shape ``(...)``; or that of a vector
            (:func:`dpjax.from_vector_radii`).
        epsilon: positive.
        rho: nonnegative, chosen without the data. It puts mass within rho of the value even where
            records are tied; the mass increases with the number of individuals who must change to
            move the value (``profile.depth``). For data with a resolution, pass ``resolution`` to
            the statistic instead.
        support: with ``rho``, whether the output stays in the profile's range (``"restricted"``) or
            may exceed it by rho (``"extended"``).

    Returns:
        A :class:`PiecewiseExponential` of the broadcast batch shape; for a profile with a
        resolution a :class:`Rounded` on its multiples; for that of a vector a :class:`Radial`.

    Raises:
        ValueError: ``profile`` is not interpolable; or ``rho`` or ``support`` is given for a
            profile that has a resolution, or for that of a vector.

    Privacy:
        epsilon-DP and epsilon-bounded-range under the profile's neighbor relation (Theorem 1 and
        Proposition 2). Public: epsilon, rho, and what the profile documents as public.
        ``from_profile.py`` has the proof for a resolution. The bounded range is attained: epsilon
        cannot be halved as for plain Laplace. Float draws are simulations.

    References:
        Durfee (2025), Definition 3.1, Algorithm 1, Theorem 1, Lemma 5.2 (vectors), Section 4.2
        (rho-smooth, whose density extends rho beyond the range, as with ``"extended"``; the default
        is conditioned on the range). Propositions 1 and 2 print epsilon/Delta_q where epsilon times
        Delta_q is meant; here Delta_q is 1. Theorem 2 (never a larger error than inverse
        sensitivity) does not extend to rho > 0. The paper calls smoothing generally unnecessary,
        which holds without ties. For 100 equal records in [0, 100] and epsilon 0.1 under
        add/remove, the error is 28.5 without it, 0.384 with rho = 1/2, and 0.137 with
        ``resolution=1`` in the statistic.

    >>> import jax, jax.numpy as jnp
    >>> from dpjax import median
    >>> distribution = piecewise_laplace(
    ...     median(jnp.arange(1.0, 100.0), lower=0, upper=100, neighbors="add_remove"), 1.0
    ... )
    >>> round(float(distribution.mean_abs_error(50.0)), 2)
    1.0
    """
    if isinstance(profile, SensitivityProfile) and not profile.interpolable:
        raise ValueError(
            "profile must be interpolable, as linear interpolation is not private otherwise: use "
            "inverse_sensitivity."
        )
    return distribution_of(profile, epsilon, _sloped, flat_cost=1.0, rho=rho, support=support)


@mechanism()
def inverse_sensitivity(
    profile: Profile,
    epsilon: Positive,
    *,
    rho: ArrayLike = 0.0,
    support: Support = "restricted",
) -> PiecewiseExponential | Rounded | Radial:
    """Return the distribution of the inverse sensitivity mechanism.

    For a finite range, such as categories, see :func:`dpjax.from_distances`.

    Args:
        profile: the sensitivity profile of a statistic, batch shape ``(...)``, with integer levels;
            or of a vector (:func:`dpjax.from_vector_radii`), whose steps beyond the last radius
            have a slope, as in piecewise Laplace.
        epsilon: positive.
        rho: as for :func:`dpjax.piecewise_laplace`, like ``support``.

    Returns:
        See :func:`dpjax.piecewise_laplace`.

    Raises:
        ValueError: ``profile`` has fractional levels or an unbounded number of steps; or ``rho``
            (also a JAX array of zeros) is given for a profile that is not interpolable, or for a
            vector.

    Privacy:
        epsilon-DP and epsilon-bounded-range under the profile's neighbor relation. Public: epsilon,
        rho, and what the profile documents as public. Float draws are simulations.

    References:
        Durfee (2025), Definition 4.1 and mechanism M.2; Asi and Duchi (2020), whose rho-smooth
        variant is ``"extended"``; Gillenwater and Munoz Medina, Section 4.

    >>> import jax, jax.numpy as jnp
    >>> from dpjax import median
    >>> distribution = inverse_sensitivity(
    ...     median(jnp.array([1.0, 2.0, 5.0]), lower=0, upper=10, neighbors="swap"), 1.0
    ... )
    >>> bool(jnp.isclose(distribution.prob(1.5) / distribution.prob(0.5), jnp.exp(0.5)))
    True
    """
    _check_levels(profile, rho)
    return distribution_of(profile, epsilon, _flat, flat_cost=0.0, rho=rho, support=support)


def _guarantee_of_duff(
    statistic: SensitivityProfile | CandidateScores, epsilon: Amount
) -> Guarantee:
    """Return the guarantee of one draw of :func:`duff`, for a statistic that it takes."""
    _check_distances(statistic)
    return Guarantee(epsilon, epsilon, statistic.neighbors)


@mechanism(_guarantee_of_duff)
def duff(
    statistic: Statistic, epsilon: Positive, *, rho: ArrayLike = 0.0
) -> PiecewiseExponential | Rounded | Radial | Finite:
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
    _check_distances(statistic)
    if isinstance(statistic, SensitivityProfile):
        _check_levels(statistic, rho)
        return distribution_of(statistic, epsilon, _flat, flat_cost=0.0, rho=rho)
    if is_given(rho):
        raise ValueError(
            "rho must be left at 0 for CandidateScores: it smooths statistics on the real line."
        )
    return exponential(statistic, epsilon)


@mechanism()
def shifted_inverse(
    down: Down,
    epsilon: Positive,
    *,
    tau: int,
    candidates: Candidates | None = None,
    rho: ArrayLike = 0.0,
    support: Support = "restricted",
) -> PiecewiseExponential | Rounded | Radial | Finite:
    """Return the distribution of shifted inverse sensitivity, on the real line or on candidates.

    On the real line, it is piecewise Laplace on ``down.shift(tau)``: the cost is s+1 at h(tau - s)
    above h(tau) and at h(tau + s) below it, linear in between. On candidates, l(y) and lbar(y) are
    the numbers of people to remove until f <= y and until f < y (infinite if not even f(empty) is).

    Args:
        down: the down sensitivity of a monotone statistic, batch shape ``(...)``.
        epsilon: positive.
        tau: static, at least 1, chosen without the data, for example by :func:`dpjax.shift_for`. On
            the real line, use ``upper`` over a public resolution as the number of candidates; for a
            small mean error use ``failure = resolution / upper``, since outputs above f(x) may
            extend up to the bound.
        candidates: None for the real line; or the public finite range, increasing, ``(k,)``. The
            utility theorem needs every value of the statistic among them: records or amounts in
            multiples of the range's step. Otherwise only the utility is unproven.
        rho: on the real line only, as in :func:`dpjax.piecewise_laplace`, like ``support``.
            Candidates need no smoothing for ties.

    Returns:
        A :class:`PiecewiseExponential` on the real line, or a :class:`Rounded` if the statistic has
        a resolution; a :class:`Finite` on candidates; of the broadcast batch shape.

    Privacy:
        epsilon-DP and epsilon-bounded-range for one person more or less, and for one person
        replaced. Public: epsilon, tau, rho, the candidates, and what the statistic documents as
        public. Float draws on the real line are simulations.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity", Theorem 4 and footnote 4
        (the last term of the last display in the proof of Lemma 2 should be l(x', y) + dist(x,
        x')); Fang, Dong and Yi (2022); Durfee (2025), Theorem 1. Theorem 6 (a shift of 2^O(log*)
        for approximate DP) is not implemented.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics.monotone import maximum
    >>> down = maximum(jnp.arange(100.0), lower=0, upper=1000)
    >>> distribution = shifted_inverse(down, 2.0, tau=10)
    >>> 80 < float(distribution.quantile(0.5)) < 95
    True
    >>> found = shifted_inverse(down, 1.0, tau=10, candidates=jnp.arange(1000.0))
    >>> found.cost[jnp.array([80, 89, 99, 999])].tolist()
    [9.0, 0.0, 9.0, 10.0]
    """
    if candidates is None:
        profile = down.shift(tau)
        return distribution_of(profile, epsilon, _sloped, flat_cost=1.0, rho=rho, support=support)
    if is_given(rho):
        raise ValueError(
            "rho must be left at 0 with candidates: it smooths distributions on the real line."
        )
    checks.shift(tau)
    values = finite_range(candidates, down.dtype)
    to_at_most, to_below = removals(down, values)
    return Finite(values, jnp.maximum(to_at_most - tau, tau - to_below), jnp.divide(epsilon, 2))


def shift_for(epsilon: float, *, num_candidates: int, failure: float) -> int:
    """Return the least shift for which Theorem 4 holds.

    It is ceil(2/epsilon * log(num_candidates/failure)).

    With it, the distribution on candidates is within ``[h(2 tau), f(x)]`` with probability at least
    ``1 - failure``. For the real line, see :func:`shifted_inverse`.

    Args:
        epsilon: positive.
        num_candidates: the size of the finite range, at least 1.
        failure: beta, strictly between 0 and 1.

    Returns:
        A Python integer, at least 1.

    Privacy:
        No privacy is spent, because only public numbers are read.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity", Theorem 4.

    >>> shift_for(1.0, num_candidates=1000, failure=0.05)
    20
    """
    return max(
        1,
        ceil(
            2 / checks.concrete_epsilon(epsilon) * log(num_candidates_over(failure, num_candidates))
        ),
    )


def _sloped(levels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the costs of piecewise Laplace."""
    return levels[..., :-1] + 1, levels[..., 1:] + 1


def _flat(levels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the costs of inverse sensitivity."""
    outer = jnp.maximum(levels[..., :-1], levels[..., 1:])
    return outer, outer


def _check_levels(profile: SensitivityProfile | VectorProfile, rho: ArrayLike) -> None:
    """Raise ``ValueError`` for a profile on the line whose levels are no numbers of changes."""
    if isinstance(profile, VectorProfile):
        return
    if not profile.integer_levels or profile.step is not None:
        raise ValueError(
            "profile must have integer levels and one piece for each: use piecewise_laplace, or "
            "for an unbounded number of steps profile.truncate(k), or truncate with num_steps."
        )
    if not profile.interpolable and is_given(rho):
        raise ValueError(
            "rho must not be given for a profile that is not interpolable, whose values hold "
            "almost everywhere only: with it the loss reaches 1.2 epsilon."
        )


def _check_distances(statistic: SensitivityProfile | CandidateScores) -> None:
    """Raise ``ValueError`` for a statistic whose levels are not the distances of Duff."""
    relation = getattr(statistic, "neighbors", None)
    if relation not in ("add_remove", "edge"):
        raise ValueError(
            "statistic must be one under add_remove or edge neighbors, got one under "
            f"{relation}: use inverse_sensitivity or exponential."
        )
    if relation == "add_remove" and getattr(statistic, "reached", "intervals") != "intervals":
        raise ValueError(
            "the levels of this profile must be the paper's distances: use median(..., "
            "definition='lower') or mean(..., values='hull') without truncation, or "
            "inverse_sensitivity, which accepts any profile."
        )


def finite_range(candidates: Candidates, dtype: jnp.dtype) -> jax.Array:
    """Return public candidates as a float array ``(k,)``, checked as in :mod:`dpjax.checks`."""
    values = checks.float_array("candidates", candidates).astype(dtype)
    if values.ndim != 1 or values.shape[0] == 0:
        raise ValueError(
            f"candidates must be one-dimensional with at least one value, got shape {values.shape}."
        )
    if not isinstance(candidates, jax.Array):
        on_host = checks.host_floats("candidates", candidates)
        with np.errstate(over="ignore"):
            representable = np.all(np.isfinite(on_host.astype(dtype)))
        if not (representable and np.all(on_host[1:] > on_host[:-1])):
            raise ValueError(
                f"candidates must be finite and increasing (in {jnp.dtype(dtype).name})."
            )
    # Unsorted candidates would still be private, but without the documented properties.
    good = jnp.all(jnp.isfinite(values)) & jnp.all(values[1:] >= values[:-1])
    return jnp.where(good, values, jnp.nan)


@jax.jit
def removals(down: DownSensitivity, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return how many people must leave until f <= y, and until f < y, for values y, ``(k,)``.

    These are l and lbar of the post: two float arrays ``(..., k)``, infinite where no removal
    suffices, and NaN in a row whose statistic is NaN.
    """
    batch, size = down.values.shape[:-1], down.values.shape[-1]
    rows = jnp.flip(down.values, -1).reshape(prod(batch), size)  # ascending

    def larger(side: str) -> jax.Array:
        found = jax.vmap(lambda row: jnp.searchsorted(row, values, side=side))(rows).reshape(
            *batch, values.shape[-1]
        )
        count = (size - found).astype(values.dtype)
        return jnp.where(
            jnp.isnan(down.value)[..., None], jnp.nan, jnp.where(found == 0, jnp.inf, count)
        )

    return larger("right"), larger("left")


def num_candidates_over(failure: float, num_candidates: int) -> float:
    """Return the number of candidates divided by the failure probability, both checked."""
    number = checks.static_integer("num_candidates", num_candidates, 1)
    return number / checks.concrete_probability("failure", failure)
