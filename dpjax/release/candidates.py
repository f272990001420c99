"""The release of one of finitely many candidates: the exponential mechanism, drawn exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

import numpy as np

from dpjax import checks
from dpjax.release.arguments import check_draws, refuse_traces
from dpjax.release.choice import WORDS, certified_choice, exact_choice
from dpjax.release.exact import More
from dpjax.release.grid import as_array, as_reals, bare, is_integer
from dpjax.release.lanes import draw_lanes
from dpjax.release.result import Release, cost_of
from dpjax.release.tables import MOST_LEVELS, public_tables, rate_of


def release_choice(
    scores: Any,
    *,
    epsilon: float,
    sensitivity: int | Fraction,
    lower: int,
    upper: int,
    neighbors: Literal["add_remove", "swap", "edge"],
    draws: int = 1,
) -> Release:
    """Release one candidate of every row, drawn exactly with probability proportional to exp(epsilon score / (2 sensitivity)).

    The draw has that law exactly if the operating system's entropy is uniform and ChaCha20 is; see :func:`release`.

    Args:
        scores: integers ``(..., k)``, higher is better, candidates on the last axis, in memory (not traced). Each is clamped to
            the public range on its own.
        epsilon: for each draw; it and ``epsilon / sensitivity`` are from 2^-30 to 64.
        sensitivity: a positive integer or Fraction, the most by which any score changes between neighbours, up or down. Where
            all scores change in the same direction, as counts do under add/remove, half of that is enough.
        lower: the public lower end of the scores, chosen without the data.
        upper: the public upper end, at most 2^24 - 1 above the lower one.
        neighbors: the relation that the sensitivity holds for.
        draws: how many from each row; each costs epsilon.

    Returns:
        A :class:`Release` whose cells and values are numbers of candidates, 0, ..., k - 1; it has no grid and no law.

    Raises:
        TypeError: under a trace; ``scores`` of a dtype that is not of integers, ``lower`` or ``upper`` that is no integer, a
            ``sensitivity`` that is a float.
        ValueError: a bad public parameter, or no candidates. Integer scores never raise.

    Privacy:
        epsilon-DP and epsilon-bounded-range for each draw. Clamping keeps every score's change between 0 and what it was, so
        that the sensitivity stays what it is, of either kind. Public: all parameters, the shape and the dtype of ``scores``.
        Not covered: as :func:`release`.

    References:
        McSherry and Talwar (2007); Dong, Durfee and Rogers (2020), for the half where all change in the same direction.

    >>> found = release_choice([[3, 41, 7]], epsilon=2.0, sensitivity=1, lower=0, upper=100, neighbors="swap")
    >>> found.cells.tolist(), print(found.guarantee)
    2-DP and 2-bounded-range under swap neighbors
    ([[1]], None)
    """
    relation = checks.one_of("neighbors", neighbors, (*checks.NEIGHBORS, "edge"))
    number = check_draws(draws)
    for name, value in (("lower", lower), ("upper", upper)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{name} must be an integer, got {value!r}.")
    if not 0 <= int(upper) - int(lower) < MOST_LEVELS:
        raise ValueError(f"upper must be from lower to 2^24 - 1 above it, got {lower} and {upper}.")
    if isinstance(sensitivity, bool) or not isinstance(sensitivity, (int, np.integer, Fraction)):
        raise TypeError(f"sensitivity must be an integer or a Fraction, got {sensitivity!r}.")
    if sensitivity <= 0:
        raise ValueError(f"sensitivity must be positive, got {sensitivity}.")
    refuse_traces(scores, "release_choice")
    found = clamped_scores(scores, int(lower), int(upper))
    spent = float(epsilon)
    cells = draw_candidates(found, spent, Fraction(sensitivity), int(upper) - int(lower), number)
    return Release(cells, cells.astype(np.float64), cost_of(spent, number, relation), None, None, number)


def clamped_scores(scores: Any, lower: int, upper: int) -> np.ndarray:
    """Return scores as int64 ``(..., k)`` from 0 to upper - lower.

    Raises:
        TypeError: they have no integer dtype, or a list holds something else.
        ValueError: no axis of candidates, or none of them.
    """
    array = as_array(scores)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(f"scores need a last axis with at least one candidate, got shape {array.shape}.")
    if array.dtype.kind == "O":
        values = [bare(v) for v in array.flat]
        if not all(is_integer(v) and not isinstance(v, bool) for v in values):
            raise TypeError("scores must be integers: they are computed, not records, so anything else is a mistake.")
        return np.array([min(max(int(v), lower), upper) - lower for v in values], np.int64).reshape(array.shape)
    if array.dtype.kind not in "iu":
        raise TypeError(f"scores must be integers, got dtype {array.dtype}.")
    # Ends that the dtype does not hold clamp nothing.
    limits = np.iinfo(array.dtype)
    ends = [min(max(end, limits.min), limits.max) for end in (lower, upper)]
    inside = np.clip(array, *np.array(ends, array.dtype))
    wide = inside.astype(object if max(map(abs, (*ends, lower))) >= 2**62 else np.int64)
    return np.clip(wide - lower, 0, upper - lower).astype(np.int64)


def counts_of(x: Any, candidates: tuple[float, ...], mask: np.ndarray | None) -> np.ndarray:
    """How many records equal each candidate exactly, int64 ``(..., k)``."""
    records = as_reals(x)
    there = np.ones(records.shape, bool) if mask is None else mask
    return np.stack([np.sum(_equal(records, float(label)) & there, axis=-1) for label in candidates], axis=-1)


def _equal(records: np.ndarray, label: float) -> np.ndarray:
    """Which records equal the label, bool; integers as integers, since float64 would round them."""
    if records.dtype.kind in "iu":
        limits = np.iinfo(records.dtype)
        if not label.is_integer() or not limits.min <= int(label) <= limits.max:
            return np.zeros(records.shape, bool)
        return records == records.dtype.type(int(label))
    with np.errstate(invalid="ignore"):  # a signaling NaN
        return np.equal(records, label, dtype=object).astype(bool) if records.dtype.kind == "O" else records == np.float64(label)


def draw_candidates(scores: np.ndarray, epsilon: float, sensitivity: Fraction, most: int, draws: int) -> np.ndarray:
    """Numbers of candidates, int64 ``(draws, ...)``, for scores ``(..., k)`` that differ by at most ``most``."""
    rate_of(epsilon)
    sharp = Fraction(epsilon) / sensitivity
    try:
        rate_of(sharp)
    except ValueError as error:
        raise ValueError(f"epsilon / sensitivity is out of range: {error}") from error
    costs = (scores.max(axis=-1, keepdims=True) - scores).astype(np.int32)
    batch, rows = costs.shape[:-1], int(np.prod(costs.shape[:-1], dtype=np.int64))
    costs = costs.reshape(rows, costs.shape[-1])
    tables = public_tables(sharp, levels=most + 1)

    def on_host(row: int, words: list[int], more: More) -> int:
        return exact_choice(sharp, costs[row].tolist(), words, more=more)

    def on_device(some: slice, words: Any) -> Any:
        return certified_choice(tables, costs[some], words)

    return draw_lanes(rows, draws, 2 * costs.shape[-1], WORDS, on_device, on_host).reshape(draws, *batch)
