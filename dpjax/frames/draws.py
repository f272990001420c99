"""What a release would draw, for the groups of one batch: simulated draws and their error bars.

Statistics and mechanisms of the library are one compiled program for all groups. What only a release has (permute and flip, grids
of floats, maxima, sums of nonnegative records) is drawn from its exact distribution, on the host, one group after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import checks, mechanisms
from dpjax import release as exact
from dpjax.accounting import Guarantee
from dpjax.checks import Neighbors
from dpjax.frames.statistics import ON_A_GRID, SHIFTED, SIMULATED, SWAP_ONLY, released_as
from dpjax.mechanisms import laplace
from dpjax.mechanisms.joint_quantiles import records_near
from dpjax.release.joint_quantiles import reach_for
from dpjax.release.result import cost_of, ranges_of
from dpjax.sensitivity import CandidateScores, SensitivityProfile, SortedRecords

_DYNAMIC = ("lower", "upper")  # a program serves all of them
_MEASURED = 1000  # draws, where a mechanism has no error bar in closed form
_ON_THE_LINE = ("piecewise_laplace", "inverse_sensitivity", "laplace")
_OF_CANDIDATES = ("exponential", "permute_and_flip")


class Drawn(NamedTuple):
    """Of every group of a batch.

    Attributes:
        value: the statistic itself, ``(groups,)`` or ``(groups, quantiles)``; float64 as all arrays here.
        draws: ``(draws, epsilons, groups)``, or with a last axis of quantiles.
        bars: the mean absolute error and both ends of the interval that holds 95 % of the draws, ``(epsilons, groups)`` each, or
            with a last axis of quantiles.
        levels: the quantiles, if they are several.
        costs: of one draw, for each epsilon.
    """

    value: np.ndarray
    draws: np.ndarray
    bars: tuple[np.ndarray, ...]
    levels: list[float]
    costs: list[Guarantee]


def draw(
    key: jax.Array,
    records: np.ndarray,
    count: np.ndarray,
    epsilons: Sequence[float],
    *,
    statistic: Callable[..., Any],
    neighbors: Neighbors,
    draws: int,
    own: Mapping[str, Any],
) -> Drawn:
    """Draw a statistic of padded records, float64 ``(groups, n)``, of which the leading ``count`` are there, int32 ``(groups,)``.

    ``statistic`` is of :mod:`dpjax.statistics` or :mod:`dpjax.release`, or has the arguments of the former; ``own`` are its options
    and the mechanism.
    """
    released, mechanism = released_as(statistic), own.get("mechanism")
    bounded = all(own.get(name) is not None for name in ("lower", "upper", "resolution"))
    exactly = released in SHIFTED or own.get("grid") is not None
    if released in ON_A_GRID:
        if mechanism == "permute_and_flip":
            if not (exactly or bounded):
                raise TypeError("permute_and_flip needs lower, upper and a resolution.")
            exactly = True
        for epsilon in epsilons if exactly or statistic is released else ():  # what the release would refuse
            exact.exact_distribution(released, [np.nan], **dict(own, neighbors=neighbors, epsilon=epsilon))
        if exactly:
            return _on_a_grid(key, records, count, epsilons, released, neighbors, draws, own)
    if statistic is exact.mode and not np.all(np.diff(own.get("candidates", ())) > 0):
        raise ValueError(f"candidates of a release must increase, got {own['candidates']}.")
    if exactly:
        raise ValueError("this statistic cannot be simulated on a grid of floats: give lower, upper and a resolution.")
    function = SIMULATED.get(released, statistic)
    public = {name: own[name] for name in _DYNAMIC if name in own}
    static = {name: _hashable(value) for name, value in own.items() if name not in (*_DYNAMIC, "mechanism")}
    terms: dict[str, Any] = {}  # of joint quantiles
    if released is exact.joint_quantiles:
        terms = {name: static.pop(name) for name in ("terms", "reach", "n_max") if name in static}
    if released is not exact.count:
        static["neighbors"] = neighbors
    sizes = {"count": count} if neighbors == "add_remove" else {}
    shape = jax.ShapeDtypeStruct(records.shape, jnp.result_type(float))
    if function is not statistic:
        try:
            signature(function).bind(records, **sizes, **static, **public)
        except TypeError as error:  # by the name that was given
            raise TypeError(f"{statistic.__name__}: {error}.") from error
    # Public numbers are checked, nothing is computed.
    profile = jax.eval_shape(lambda records: function(records, **sizes, **static, **public), shape)
    word = _mechanism_of(profile, released, own.get("mechanism"))
    # One record can move a quantile from one bound to the other, as on the command line.
    within = word == "laplace" and released in (exact.median, exact.quantile)
    costs = [guarantee_of(word, profile, epsilon, within=within) for epsilon in epsilons]
    ends = {name: shape.dtype.type(bound) for name, bound in public.items()}
    sweeps = [(epsilons, terms)]
    if terms.pop("n_max", None) is not None:  # how far the terms go depends on epsilon
        sweeps = [([epsilon], {"reach": reach_for(**dict(own, epsilon=epsilon)), **terms}) for epsilon in epsilons]
    parts = []
    for number, (some, options) in enumerate(sweeps):
        near = None
        if word == "joint_quantiles":
            bounds = own["lower"], own["upper"]
            near = records_near(profile.levels, profile.resolution, min(some), bounds, records, count, **options)
        found = _program(
            *(jax.random.fold_in(key, number), records, sizes, ends, np.asarray(some)[:, None]),
            statistic=function,
            static=_sorted(static),
            word=word,
            within=within,
            options=_sorted(options),
            near=near,
            draws=draws,
        )
        parts.append([np.asarray(part, np.float64) for part in found])
    bars = tuple(np.concatenate(same) for same in zip(*(part[2:] for part in parts), strict=True))
    levels = [float(level) for level in profile.levels] if isinstance(profile, SortedRecords) else []
    return Drawn(parts[0][0], np.concatenate([part[1] for part in parts], axis=1), bars, levels, costs)


def _mechanism_of(profile: Any, released: Callable[..., Any] | None, word: str | None) -> str:
    """The name of the mechanism for what a statistic returned, by default the first one."""
    if isinstance(profile, SortedRecords) or released is exact.count:
        if word is not None:
            raise ValueError(
                "a count has discrete Laplace noise: give no mechanism."
                if released is exact.count
                else "several quantiles are drawn together, by joint quantiles, or by statistic=dpjax.release.recursive_quantiles: "
                "give no mechanism."
            )
        if released is exact.count:
            return "laplace"
        return "recursive_quantiles" if released is exact.recursive_quantiles else "joint_quantiles"
    if not isinstance(profile, SensitivityProfile | CandidateScores):
        raise TypeError(
            "statistic must return a SensitivityProfile, such as dpjax.median, the SortedRecords of dpjax.quantiles or "
            f"CandidateScores; it returned {type(profile).__name__}."
        )
    known = _OF_CANDIDATES if isinstance(profile, CandidateScores) else _ON_THE_LINE
    if released in SWAP_ONLY and word != "laplace":  # that says what it needs
        known = known[:2]
    if released in ON_A_GRID and not (released in SWAP_ONLY and profile.neighbors != "swap"):
        known = (*known, "permute_and_flip")  # drawn as a release draws it, and not here
    return checks.one_of("mechanism", known[0] if word is None else word, known)


@partial(jax.jit, static_argnames=("statistic", "static", "word", "within", "options", "near", "draws"))
def _program(
    key: jax.Array,
    records: jax.Array,
    sizes: dict[str, jax.Array],
    ends: dict[str, jax.Array],
    epsilon: jax.Array,
    *,
    statistic: Callable[..., Any],
    static: tuple[tuple[str, Any], ...],
    word: str,
    within: bool,
    options: tuple[tuple[str, Any], ...],
    near: tuple[int, int] | None,
    draws: int,
) -> tuple[jax.Array, ...]:
    """The statistic of each row, draws, and for each epsilon the error of a draw and where 95 % of the draws are."""
    profile = statistic(records, **sizes, **dict(static), **ends)
    return drawn_of(key, word, profile, epsilon, draws, (ends["lower"], ends["upper"]) if within else None, near, dict(options))


def drawn_of(
    key: jax.Array,
    word: str,
    profile: Any,
    epsilon: jax.Array,
    draws: int,
    within: tuple[Any, Any] | None,
    near: tuple[int, int] | None,
    options: Mapping[str, Any],
) -> tuple[jax.Array, ...]:
    """Return the statistic of a profile, draws of a mechanism by its name, their mean absolute error and the ends of 95 % of them.

    ``within`` is as for :func:`distribution_of`; ``near`` are the records that joint quantiles weigh, by default all.
    """
    scored = isinstance(profile, CandidateScores)
    value = profile.candidates[jnp.argmax(profile.scores, axis=-1)] if scored else profile.value
    distribution = distribution_of(word, profile, epsilon, within, **options)
    if near is not None:
        distribution = mechanisms.joint_quantiles.without_far(distribution, *near)
    drawn = distribution.sample(key, (draws,))
    if word == "recursive_quantiles":
        many = distribution.sample(jax.random.fold_in(key, 1), (_MEASURED,))
        low, high = jnp.quantile(many, np.array([0.025, 0.975]), axis=0)
        return value, drawn, jnp.mean(jnp.abs(many - value), axis=0), low, high
    bars = distribution.marginals() if word == "joint_quantiles" else distribution
    return value, drawn, bars.mean_abs_error(value), *bars.interval(0.95)


def distribution_of(word: str, profile: Any, epsilon: Any, within: tuple[Any, Any] | None = None, **options: Any) -> Any:
    """Return the output distribution of a mechanism by its name.

    One record can move a quantile from one bound to the other: with these bounds as ``within``, Laplace noise takes their distance
    as the sensitivity and stays between them.
    """
    if within is not None:
        lower, upper = within
        return laplace.laplace(profile.value, epsilon, sensitivity=upper - lower, lower=lower, upper=upper)
    return getattr(getattr(mechanisms, word), word)(profile, epsilon, **options)


def guarantee_of(word: str, profile: Any, epsilon: float, *, within: bool) -> Guarantee:
    """Return what one draw of :func:`distribution_of` costs, as the mechanism's own file states it."""
    found: Guarantee = getattr(mechanisms, word).guarantee(profile, epsilon, **{"bounded": True} if within else {})
    return found


def _on_a_grid(
    key: jax.Array,
    records: np.ndarray,
    count: np.ndarray,
    epsilons: Sequence[float],
    released: Callable[..., exact.Release],
    neighbors: Neighbors,
    draws: int,
    own: Mapping[str, Any],
) -> Drawn:
    """From the exact distribution of a release, of each row by itself."""
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    rows, mechanism = len(count), own.get("mechanism", "piecewise_laplace")
    value, drawn = np.zeros(rows), np.zeros((draws, len(epsilons), rows))
    bars = tuple(np.zeros((len(epsilons), rows)) for _ in range(3))
    for row in range(rows):
        for number, epsilon in enumerate(epsilons):
            options = dict(own, neighbors=neighbors, epsilon=epsilon)
            distribution = exact.exact_distribution(released, records[row, : count[row]], **options)
            values = distribution.values
            below = np.cumsum(distribution.pmf(values))
            below /= below[-1]
            value[row] = _value(released, records[row, : count[row]], distribution)
            drawn[:, number, row] = values[np.searchsorted(below, generator.random(draws), side="right")]
            bars[0][number, row] = distribution.mean_abs_error(value[row])
            for end, share in zip(bars[1:], (0.025, 0.975), strict=True):
                end[number, row] = values[np.searchsorted(below, share)]
    return Drawn(value, drawn, bars, [], [cost_of(epsilon, 1, neighbors, ranges_of(mechanism)) for epsilon in epsilons])


def _value(released: Callable[..., exact.Release], records: np.ndarray, distribution: exact.GridDistribution) -> float:
    """The statistic itself: what the distribution is around, but for a maximum and a sum, which it stays below."""
    values = distribution.values
    if released not in SHIFTED:
        return float(values[distribution.profile.upper[0]])
    there, step = records[~np.isnan(records)], distribution.resolution
    if distribution.grid is None:
        there = np.rint(there * step.denominator / step.numerator) * step.numerator / step.denominator
    found = np.sum(np.maximum(there, 0)) if released is exact.nonnegative_sum else np.max(there, initial=-np.inf)
    return float(np.clip(found, values[0], values[-1]))


def _hashable(value: Any) -> Any:
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return tuple(value) if isinstance(value, list | range) else value


def _sorted(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(options.items()))
