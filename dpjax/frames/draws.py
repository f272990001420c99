"""Simulations by JAX.

These are statistics without a resolution, Laplace noise for comparison, and users' functions.
Groups are padded to a few shapes, powers of two, with one compiled program for all groups of a
shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import checks, mechanisms, statistics
from dpjax.accounting import Composition, Guarantee
from dpjax.frames.column_options import Asked
from dpjax.frames.drawn import MEASURED, Drawn
from dpjax.mechanisms import laplace, records_near
from dpjax.sensitivity import CandidateScores, SensitivityProfile, SortedRecords
from dpjax.several_quantiles.ranks import levels_needed

_BOUNDS = ("lower", "upper")  # passed as arrays, so that one program serves all bounds
_OF_THE_MECHANISM = ("terms", "reach")
_OF_ONE_RANK = ("median", "quantile", "order_statistic")
_MEASURED = ("nested_quantiles", "recursive_quantiles")  # without error bars in closed form
_SEVERAL = ("joint_quantiles", *_MEASURED)
_LEAST = 64  # the least padded size of a group
# The number of cells up to which all groups have one shape, as compiling takes longer than padding
_TOGETHER = 2**21
_CELLS = 2**22  # the maximal number of cells of a batch


def check(own: Asked) -> None:
    """Raise ``ValueError`` for public numbers out of range in the dtype of JAX's floats."""
    dtype, (low, high) = jnp.result_type(float), own.bounds
    # Under eval_shape they are checked without computing anything.
    jax.eval_shape(lambda: checks.positive("epsilon", np.array(own.epsilons, np.float64), dtype))
    if low is not None and high is not None:
        jax.eval_shape(lambda: checks.bounds(low, high, dtype))


def drawn_by_jax(
    key: Any,
    place: int,
    records: np.ndarray,
    codes: np.ndarray,
    groups: int,
    own: Asked,
    neighbors: str,
) -> Drawn:
    """Draw the statistic of the ``place``-th column for every group.

    The result is float64 ``(n,)``, computed in JAX's float dtype.
    """
    check(own)
    key = jax.random.fold_in(key if checks.is_jax_array(key) else jax.random.key(key), place)
    epsilons = np.array(own.epsilons, np.float64).tolist()
    by_group, starts = (
        np.argsort(codes, kind="stable"),
        np.searchsorted(np.sort(codes), np.arange(groups)),
    )
    group_sizes = np.bincount(codes + 1, minlength=groups + 1)[1:]
    # In float64, before they could overflow in float32
    ordered = np.clip(records, *own.bounds)[by_group]
    empty = np.zeros(0, np.int64), np.zeros(1, np.int64), _LEAST
    unpadded = np.arange(1), group_sizes, len(records)  # under swap the number of records is public
    batches = (
        [unpadded]
        if neighbors == "swap" and groups == 1
        else list(shapes_of(group_sizes)) or [empty]
    )
    parts: list[Any] = []
    for number, (some, sizes, width) in enumerate(batches):
        padded, there = np.full((len(sizes), width), np.nan), np.arange(width) < sizes[:, None]
        padded[there] = ordered[
            (np.pad(starts[some], (0, len(sizes) - len(some)))[:, None] + np.arange(width))[there]
        ]
        if neighbors == "swap" and own.bounds[0] is not None:
            # A missing record counts as the lower bound
            padded[there & np.isnan(padded)] = own.bounds[0]
        found, costs, levels = _batch(
            jax.random.fold_in(key, number), padded, sizes, epsilons, own, neighbors
        )
        parts.append([part[: len(some)] for part in (*found, _tied(padded, found[0]))])
    order = np.argsort(np.concatenate([some for some, *_ in batches]))
    value, draws, error, low, high, tied = (
        np.concatenate(same)[order] for same in zip(*parts, strict=True)
    )
    each: list[Guarantee | Composition] = [
        cost if own.draws == 1 else own.draws * cost for cost in costs
    ]
    return Drawn(
        value,
        draws,
        np.stack([error, low, high]),
        tied if own.name in _OF_ONE_RANK + _SEVERAL else None,
        each,
        levels,
    )


def shapes_of(sizes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield indices of groups, their sizes padded with zeros, and the padded width.

    There are few shapes, with powers of two on both axes.
    """
    bits = np.ceil(np.log2(np.maximum(sizes, _LEAST))).astype(np.int64)
    most = int(bits.max(initial=0))
    bits = np.full_like(bits, most) if len(sizes) << most <= _TOGETHER else bits + bits % 2
    for bit in np.unique(bits).tolist():
        alike = np.flatnonzero(bits == bit)
        rows = min(1 << (len(alike) - 1).bit_length(), max(_CELLS >> bit, 1))
        for start in range(0, len(alike), rows):
            groups = alike[start : start + rows]
            yield groups, np.pad(sizes[groups], (0, rows - len(groups))), 1 << bit


def _tied(padded: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return the share of records that equal each statistic of a dataset, ``(rows, quantiles)``."""
    number = np.sum(~np.isnan(padded), axis=-1)
    equal = [np.sum(padded.astype(value.dtype) == one[:, None], axis=-1) for one in value.T]
    return np.stack(equal, axis=-1) / np.maximum(number, 1)[:, None]


def _batch(
    key: jax.Array,
    padded: np.ndarray,
    sizes: np.ndarray,
    epsilons: list[float],
    own: Asked,
    neighbors: str,
) -> tuple[tuple[np.ndarray, ...], list[Guarantee], list[float]]:
    """Draw from padded datasets.

    Return arrays as in :class:`Drawn`, the cost of a draw per epsilon, and levels.
    """
    ours = own.function is None or own.function.__module__.startswith("dpjax.mechanisms.")
    name = "quantiles" if own.name in _SEVERAL else own.name
    function: Callable[..., Any] = getattr(statistics, name) if ours else own.function  # type: ignore[assignment]
    public = {name: own.options[name] for name in _BOUNDS if name in own.options}
    terms = {name: own.options[name] for name in _OF_THE_MECHANISM if name in own.options}
    static = {
        name: _hashable(value)
        for name, value in own.options.items()
        if name not in (*public, *terms)
    }
    if ours and own.name in _OF_ONE_RANK:
        static["truncate"] = levels_needed(min(epsilons))
    count = (
        {"num_records": sizes.astype(np.int32)}
        if neighbors == "add_remove" or np.any(sizes < padded.shape[-1])
        else {}
    )
    try:
        signature(function).bind(padded, **count, **static, **public, neighbors=neighbors)
    except TypeError as error:
        raise TypeError(f"{own.name}: {error}.") from error
    static |= {"neighbors": neighbors}
    shape = jax.ShapeDtypeStruct(padded.shape, jnp.result_type(float))
    # This checks public numbers without computing anything.
    profile = jax.eval_shape(lambda records: function(records, **count, **static, **public), shape)
    word = _mechanism_of(profile, own)
    within = word == "laplace" and own.name in ("median", "quantile")
    bounded = {"bounded": True} if within else {}
    costs = [
        getattr(mechanisms, word).guarantee(profile, epsilon, **bounded) for epsilon in epsilons
    ]
    ends, near = {name: shape.dtype.type(bound) for name, bound in public.items()}, None
    if word == "joint_quantiles":
        bounds = own.options["lower"], own.options["upper"]
        near = records_near(
            profile.levels, profile.resolution, min(epsilons), bounds, padded, sizes, **terms
        )
    found = _program(
        *(key, padded, count, ends, np.array(epsilons)[:, None]),
        **{"statistic": function, "static": _sorted(static), "word": word, "within": within},
        **{"options": _sorted(terms), "near": near, "draws": own.draws},
    )
    value, drawn, *bars = (
        np.asarray(part)[..., None] if np.ndim(found[0]) == 1 else np.asarray(part)
        for part in found
    )
    levels = (
        [float(level) for level in profile.levels] if isinstance(profile, SortedRecords) else []
    )
    return (
        (value, drawn.transpose(2, 1, 0, 3), *(bar.swapaxes(0, 1) for bar in bars)),
        costs,
        levels,
    )


def _mechanism_of(profile: Any, own: Asked) -> str:
    """Return the name of the mechanism for the result of a statistic; by default the first one."""
    if isinstance(profile, SortedRecords):
        if own.mechanism is not None:
            raise ValueError(
                "mechanism must not be given for several quantiles, which are drawn together."
            )
        return own.name if own.name in _MEASURED else "joint_quantiles"
    if not isinstance(profile, SensitivityProfile | CandidateScores):
        raise TypeError(
            "statistic must return a SensitivityProfile, such as dpjax.median, the SortedRecords "
            f"of dpjax.quantiles or CandidateScores; it returned {type(profile).__name__}."
        )
    of_candidates = isinstance(profile, CandidateScores)
    known = (
        ("exponential", "permute_and_flip")
        if of_candidates
        else ("piecewise_laplace", "inverse_sensitivity", "laplace")
    )
    return checks.one_of("mechanism", known[0] if own.mechanism is None else own.mechanism, known)


@partial(
    jax.jit, static_argnames=("statistic", "static", "word", "within", "options", "near", "draws")
)
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
    """Return the statistic of each row, draws, and the errors and intervals of a draw.

    There is an error and a 95 % interval for each epsilon.
    """
    profile = statistic(records, **sizes, **dict(static), **ends)
    scored = isinstance(profile, CandidateScores)
    value = profile.candidates[jnp.argmax(profile.scores, axis=-1)] if scored else profile.value
    distribution = distribution_of(
        word, profile, epsilon, (ends["lower"], ends["upper"]) if within else None, **dict(options)
    )
    if near is not None:
        distribution = mechanisms.without_far(distribution, *near)
    drawn = distribution.sample(key, (draws,))
    if word in _MEASURED:
        many = distribution.sample(jax.random.fold_in(key, 1), (MEASURED,))
        low, high = jnp.quantile(many, np.array([0.025, 0.975]), axis=0)
        return value, drawn, jnp.mean(jnp.abs(many - value), axis=0), low, high
    bars = distribution.marginals() if word == "joint_quantiles" else distribution
    return value, drawn, bars.mean_abs_error(value), *bars.interval(0.95)


def distribution_of(
    word: str, profile: Any, epsilon: Any, within: tuple[Any, Any] | None = None, **options: Any
) -> Any:
    """Return the output distribution of the mechanism with this name.

    With bounds as ``within`` it is Laplace noise between these bounds, whose sensitivity is their
    distance, since one record can move a quantile from one bound to the other.
    """
    if within is not None:
        lower, upper = within
        return laplace(profile.value, epsilon, sensitivity=upper - lower, lower=lower, upper=upper)
    return getattr(mechanisms, word)(profile, epsilon, **options)


def _hashable(value: Any) -> Any:
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return tuple(value) if isinstance(value, list | range) else value


def _sorted(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(options.items()))
