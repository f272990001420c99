"""The release of one of finitely many candidates: the exponential mechanism, drawn exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np

from dpjax import checks
from dpjax.checks import Neighbors, Relation, Resolution
from dpjax.release.distribution import Pieces
from dpjax.release.exact import More, exact_choice
from dpjax.release.grid import Multiples, as_integers, as_reals, clip_integers
from dpjax.release.permute_and_flip import draw_by_permute_and_flip
from dpjax.release.records import Records, refuse_traces
from dpjax.release.result import EVALUATE, Release, cost_of, ranges_of
from dpjax.release.sampler import CHOICE_WORDS, Draw, certified_choice
from dpjax.release.tables import MOST_LEVELS, exact_epsilon, level_weights, rate_of
from dpjax.release.words import draw_lanes

ChoiceMechanism = Literal["exponential", "permute_and_flip"]


def mode(
    x: Any,
    *,
    candidates: Sequence[float],
    epsilon: float,
    neighbors: Neighbors,
    resolution: Resolution | None = None,
    mask: Any = None,
    mechanism: ChoiceMechanism = "exponential",
    draws: int = 1,
) -> Release:
    """Release the most frequent of finitely many public candidates: :func:`release_choice` by how often each occurs.

    ``candidates`` are finite numbers, distinct and increasing, which float64 holds, chosen without the data. Integers are compared
    with them exactly, however large they are, and a record that equals none counts for none. With a ``resolution`` the candidates
    are multiples of it, and records are rounded to its multiples. Under add/remove, epsilon is at most 32. The rest is as for
    :func:`dpjax.release.median`.

    >>> mode([3, 3, 5, 9, 3, 5, 7, 3, 3, 3], candidates=(3, 5, 9), epsilon=30.0, neighbors="add_remove").values.tolist()
    [3.0]
    """
    labels = increasing("candidates", candidates, 1)
    for given, label in zip(candidates, labels.tolist(), strict=True):
        if isinstance(given, (int, np.integer)) and int(given) != label:
            raise ValueError(f"candidates must be numbers that float64 holds, got {given}.")
    grid, numbers = None, labels.tolist()
    if resolution is not None:
        step = checks.resolution(resolution, (labels,), 2**51)
        exact = [Fraction(str(label)) for label in candidates]
        grid = Multiples.between(exact[0] - step, exact[-1] + step, step)  # what is clamped equals no candidate
        numbers = [float(label / step - grid.start) for label in exact]
    records = Records(x, grid, neighbors, mask, read=reals if grid is None else None)
    counts = counts_of(*records.read(slice(None)), numbers)
    found = release_choice(
        counts.reshape(*records.batch, labels.size),
        epsilon=epsilon,
        sensitivity=Fraction(1, 2) if neighbors == "add_remove" else 1,  # half where all counts change in the same direction
        lower=0,
        upper=records.size,
        neighbors=neighbors,
        mechanism=mechanism,
        draws=draws,
    )
    return replace(found, values=labels[found.multiples])


def release_choice(
    scores: Any,
    *,
    epsilon: float,
    sensitivity: int | Fraction,
    lower: int,
    upper: int,
    neighbors: Relation,
    mechanism: ChoiceMechanism = "exponential",
    draws: int = 1,
) -> Release:
    """Release one candidate of every row: drawn exactly, by the exponential mechanism or by permute and flip.

    Their distributions are those of :func:`dpjax.exponential` and :func:`dpjax.permute_and_flip`.

    Args:
        scores: integers ``(..., k)``, higher is better, candidates on the last axis, in memory (not traced). Each is clamped to
            the public range on its own.
        epsilon: for each draw; it and ``epsilon / sensitivity`` are from 2^-30 to 64.
        sensitivity: a positive integer or Fraction, the most by which any score changes between neighbours, up or down. Where
            all scores change in the same direction, as counts do under add/remove, half of that is enough.
        lower: the public lower end of the scores, chosen without the data.
        upper: the public upper end, at most 2^24 - 1 above the lower one.
        neighbors: the relation that the sensitivity holds for.
        mechanism: ``"exponential"``, or ``"permute_and_flip"`` for a single release, with an error up to twice smaller.
        draws: how many from each row.

    Returns:
        A :class:`Release` whose values are numbers of candidates, 0, ..., k - 1; it has no resolution.

    Raises:
        TypeError: ``scores`` that are not integers, a ``sensitivity`` that is a float. Integer scores never raise.

    Privacy:
        epsilon-DP for each draw, and epsilon-bounded-range; permute and flip 2 epsilon-bounded-range. Clamping keeps every
        score's change between 0 and what it was, so that the sensitivity stays what it is, of either kind. Public: all
        parameters, the shape and the dtype of ``scores``. Not covered: as :func:`median`.

    References:
        McSherry and Talwar (2007); McKenna and Sheldon (2020); Dong, Durfee and Rogers (2020), for the half where all change in
        the same direction.

    >>> found = release_choice([[3, 41, 7]], epsilon=2.0, sensitivity=1, lower=0, upper=100, neighbors="swap")
    >>> found.multiples.tolist(), print(found.guarantee)
    2-DP and 2-bounded-range under swap neighbors
    ([[1]], None)
    """
    relation = checks.one_of("neighbors", neighbors, checks.RELATIONS)
    if draws is EVALUATE:
        raise ValueError("exact_distribution is for values on a grid; dpjax.exponential has the distribution on candidates.")
    checks.one_of("mechanism", mechanism, get_args(ChoiceMechanism))
    number = checks.static_integer("draws", draws, 1)
    least = checks.static_integer("lower", lower, -(2**999), must="an integer")
    most = checks.static_integer("upper", upper, least, least + MOST_LEVELS - 1, must="from lower to 2^24 - 1 above it") - least
    if isinstance(sensitivity, bool) or not isinstance(sensitivity, (int, np.integer, Fraction)):
        raise TypeError(f"sensitivity must be an integer or a Fraction, got {sensitivity!r}.")
    if sensitivity <= 0:
        raise ValueError(f"sensitivity must be positive, got {sensitivity}.")
    refuse_traces(scores)
    cost = exact_epsilon(epsilon)
    sharp = cost / Fraction(sensitivity)
    try:
        rate_of(sharp)
    except ValueError as error:
        raise ValueError(f"epsilon / sensitivity is out of range: {error}") from error
    inside = clamped_scores(scores, least, least + most)
    costs = (inside.max(axis=-1, keepdims=True) - inside).astype(np.int32)
    batch, rows, k = costs.shape[:-1], math.prod(costs.shape[:-1]), costs.shape[-1]
    costs, weights = costs.reshape(rows, k), level_weights(sharp, most + 1)

    if mechanism == "permute_and_flip":

        def groups(start: int, stop: int) -> Pieces:
            some = costs[start:stop].astype(np.int64)
            return Pieces(np.ones_like(some), some, np.broadcast_to(np.arange(k), some.shape), np.ones_like(some))

        chosen = draw_by_permute_and_flip(sharp, weights, groups, rows, number)
    else:

        def on_device(here: np.ndarray, words: Any) -> Draw:
            return certified_choice(weights, here, words)

        def on_host(here: np.ndarray, row: int, words: list[int], more: More) -> int:
            return exact_choice(sharp, here[row].tolist(), words, more=more)

        chosen = draw_lanes(rows, number, 2 * k, CHOICE_WORDS, lambda start, stop: costs[start:stop], on_device, on_host)
    chosen = chosen.reshape(number, *batch)
    return Release(chosen.astype(np.float64), chosen, None, cost_of(cost, number, relation, ranges_of(mechanism)))


def clamped_scores(scores: Any, lower: int, upper: int) -> np.ndarray:
    """Return scores as int64 ``(..., k)`` from 0 to upper - lower."""
    array = as_integers("scores", scores)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(f"scores need a last axis with at least one candidate, got shape {array.shape}.")
    # As Python's integers where the difference of two could pass 64 bits.
    wide = clip_integers(array, lower, upper).astype(object if max(abs(lower), abs(upper)) >= 2**62 else np.int64)
    return np.clip(wide - lower, 0, upper - lower).astype(np.int64)


def increasing(name: str, given: Any, least: int) -> np.ndarray:
    """Return public numbers as float64, or raise for such that are not finite and increasing."""
    numbers = np.asarray(given, np.float64)
    if numbers.ndim != 1 or numbers.size < least or not np.isfinite(numbers).all() or not np.all(np.diff(numbers) > 0):
        raise ValueError(f"{name} must be {least} or more finite, increasing numbers, got {given}.")
    return numbers


def counts_of(values: np.ndarray, present: np.ndarray, labels: Sequence[float]) -> np.ndarray:
    """How many of the values that are present equal each label exactly, int64 ``(..., k)``."""
    return np.stack([np.sum(_equal(values, label) & present, axis=-1) for label in labels], axis=-1)


def _equal(records: np.ndarray, label: float) -> np.ndarray:
    """Which records equal the label, bool; integers as integers, since float64 would round them."""
    if records.dtype.kind in "iu":
        return records == int(label) if label.is_integer() else np.zeros(records.shape, bool)
    with np.errstate(invalid="ignore"):  # a signaling NaN
        return (records == (label if records.dtype.kind == "O" else np.float64(label))).astype(bool)


def reals(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Records as they are, all of them present."""
    records = as_reals(x)
    return records, np.ones(records.shape, bool)
