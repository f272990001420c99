"""The neighbour of a dataset whose output distribution is furthest from its own, by a search in batches of exact losses.

All removals, and all values that a new or a changed record may take, from the bounds, the records, the breakpoints of the
distribution and the middles of the gaps between them; then finer and finer values around the best, since the supremum is often a
limit: a record that comes close to another one and does not meet it. What it finds is a lower bound of a mechanism's epsilon.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.auditing._privacy_loss import PrivacyLoss, privacy_loss
from dpjax.auditing.segments import Distribution, multiples_of, on_multiples
from dpjax.batch import span
from dpjax.checks import Neighbors
from dpjax.distributions.finite import Finite
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.distributions.rounded import Rounded
from dpjax.statistics.padded_records import present_records

DistributionOf = Callable[[jax.Array, jax.Array], Distribution]
Objective = Callable[[PrivacyLoss], jax.Array]
Evaluate = Callable[[np.ndarray, np.ndarray], tuple[jax.Array, PrivacyLoss]]
_STARTS, _POINTS = 16, 31  # of the refinement


class WorstNeighbor(NamedTuple):
    """The neighbour that :func:`worst_neighbor` found.

    Attributes:
        score: its objective, scalar; by default the epsilon of ``loss``.
        loss: the :class:`PrivacyLoss` of the dataset's distribution against the neighbour's.
        place: int32 scalar, the index of the record that differs; under add/remove, n for a new one.
        value: float scalar, its value in the neighbour; NaN if it was removed.
        x: float, the neighbour's records: ``(n,)`` under swap, ``(n + 1,)`` under add/remove.
        mask: bool like ``x``, which of them are present.
    """

    score: jax.Array
    loss: PrivacyLoss
    place: jax.Array
    value: jax.Array
    x: jax.Array
    mask: jax.Array

    def __repr__(self) -> str:
        score, place = map(span, (self.score, self.place))
        value = "removed" if np.isnan(self.value) else f"value={span(self.value)}"
        return f"WorstNeighbor(score={score}, place={place}, {value}, loss={self.loss!r})"


def epsilon(loss: PrivacyLoss) -> jax.Array:
    """The objective of :func:`worst_neighbor` by default: the pure-DP loss of a pair."""
    return loss.epsilon


def worst_neighbor(
    x: ArrayLike,
    distribution_of: DistributionOf,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    values: ArrayLike | None = None,
    objective: Objective = epsilon,
    refine: int = 4,
    chunk_size: int = 512,
    resolution: float | None = None,
) -> WorstNeighbor:
    """Search the neighbours of one dataset for the largest privacy loss, a batch of neighbours at a time.

    Of n records and m pieces it takes about 2 (n + m) distributions under add/remove and n times as many under swap. It runs on the
    host, not under ``jit``; each pair of functions ``distribution_of`` and ``objective`` is compiled once for a shape (a new lambda
    anew).

    Args:
        x: float ``(n,)``, one dataset. Records are clamped to the bounds; a NaN record is absent under ``"add_remove"`` and
            counts as ``lower`` under ``"swap"``.
        distribution_of: from records ``(batch, n)`` and their mask, bool ``(batch, n)``, to a :class:`PiecewiseExponential`,
            :class:`Rounded` or :class:`Finite` of batch shape ``(batch,)``. Under add/remove there is one place more than in ``x``.
            A pure JAX function.
        lower: public lower bound of a record, scalar.
        upper: public upper bound of a record, scalar.
        neighbors: ``"add_remove"`` or ``"swap"``: the relation to search, not that which the mechanism was told.
        num_records: int scalar, how many leading records are present.
        mask: bool ``(n,)``, which records are present.
        values: float ``(k,)``, the values that a record may take, instead of all those above; with ``refine=0``, exhaustive for
            discrete data.
        objective: from a :class:`PrivacyLoss` of batch shape ``(batch,)`` to what is largest for the worst neighbour; also, for
            example, ``lambda loss: loss.bounded_range`` or ``lambda loss: loss.delta(0.5)``.
        refine: how many times to look between the values around the best ones, each time 15 times finer.
        chunk_size: how many neighbours there are to a batch, at least 1; memory grows with it.
        resolution: as in :func:`dpjax.auditing.privacy_loss`.

    Returns:
        A :class:`WorstNeighbor`. Its score is NaN if that of any neighbour is, and -inf if there is no neighbour.

    Privacy:
        None: the result is a function of the private records, exactly. For tests, for simulated and for public data.

    References:
        Durfee (2025), Definition 2.1 and Corollary 3.1 (what the search would find violated).

    >>> import jax.numpy as jnp
    >>> from dpjax import median, piecewise_laplace
    >>> def distribution_of(x, mask):
    ...     profile = median(x, lower=0, upper=10, neighbors="add_remove", mask=mask)
    ...     return piecewise_laplace(profile, 1.0)
    >>> worst = worst_neighbor(jnp.array([1.0, 5.0, 6.0]), distribution_of, lower=0, upper=10, neighbors="add_remove")
    >>> bool(worst.score <= 1.0 + 1e-5), worst.x.shape
    (True, (4,))
    """
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    records, there = present_records(x, num_records=num_records, mask=mask)
    refine, chunk_size = checks.static_integer("refine", refine, 0), checks.static_integer("chunk_size", chunk_size, 1)
    if records.ndim != 1 or (there is not None and there.ndim != 1):
        raise ValueError(f"worst_neighbor takes one dataset of shape (n,), got {records.shape}: the search is itself a batch.")
    low, high = (np.asarray(bound) for bound in checks.bounds(lower, upper, records.dtype))
    if low.ndim or high.ndim:
        raise ValueError("lower and upper of worst_neighbor are scalars: it takes one dataset.")
    data, present = _dataset(np.asarray(records), None if there is None else np.asarray(there), low, neighbors)
    data = np.clip(data, low, high)
    own = _distribution_of(present[None], data[None], distribution_of)
    if not isinstance(own, (PiecewiseExponential, Rounded, Finite)):
        raise TypeError(
            f"distribution_of must return a PiecewiseExponential, a Rounded or a Finite distribution, got {type(own).__name__}; "
            "dpjax.auditing.lower_bound takes draws of anything."
        )
    if own.batch_shape != (1,):
        raise ValueError(f"distribution_of must return one distribution for each row of x: of 1 row it made {own.batch_shape}.")
    ends = None
    if isinstance(own, Rounded):  # the bounds are public, so the neighbours have the same multiples
        ends = multiples_of(own)
        own = on_multiples(own, ends)
    evaluate = partial(
        _evaluate, data, present, own, distribution_of=distribution_of, objective=objective, resolution=resolution, ends=ends
    )
    here = np.flatnonzero(present)
    grid = _grid(data[here], own, values, low, high)

    # A change is a place and the value that it takes, NaN where the record goes.
    gone = here if neighbors == "add_remove" else here[:0]
    changed = here if neighbors == "swap" else np.array([data.size - 1])
    places = np.concatenate([gone, np.repeat(changed, grid.size)]).astype(np.int32)
    entries = np.concatenate([np.full(gone.size, np.nan), np.tile(grid, changed.size)]).astype(data.dtype)
    scores = _scores(evaluate, places, entries, chunk_size)
    found = [(places, entries, scores)]
    if changed.size and grid.size and refine:
        table = scores[gone.size :].reshape(changed.size, grid.size)
        found.append(_refined(partial(_scores, evaluate, chunk_size=chunk_size), changed, grid, table, refine))
    found.append((np.zeros(1, np.int32), np.full(1, np.nan, data.dtype), np.full(1, -np.inf, data.dtype)))  # for no record to swap
    places, entries, scores = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    best = _rank(scores).argmax()
    place, entry = places[best], entries[best]
    _, loss = evaluate(np.full(chunk_size, place), np.full(chunk_size, entry))
    at, stays = np.arange(data.size) == place, not np.isnan(entry)
    return WorstNeighbor(
        score=jnp.asarray(scores[best]),
        loss=loss,
        place=jnp.asarray(place),
        value=jnp.asarray(entry),
        x=jnp.asarray(np.where(at & stays, entry, data)),
        mask=jnp.asarray(np.where(at, stays, present)),
    )


def _dataset(records: np.ndarray, there: np.ndarray | None, low: np.ndarray, neighbors: Neighbors) -> tuple[np.ndarray, np.ndarray]:
    """The records without NaN, and which are present; under add/remove with an empty place for one more."""
    missing = np.isnan(records)
    x = np.where(missing, low, records)
    if neighbors == "swap":
        return x, np.ones(x.shape, bool) if there is None else there
    present = ~missing if there is None else there & ~missing
    return np.append(x, low), np.append(present, False)


def _grid(
    records: np.ndarray, own: PiecewiseExponential | Finite, values: ArrayLike | None, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """The values to try, ascending: those given, or the bounds, the records and the breakpoints, and the middles between."""
    if values is not None:
        given = np.asarray(checks.float_array("values", values), records.dtype)
        if given.ndim != 1 or np.isnan(given).any():
            raise ValueError("values must be real numbers of shape (k,).")
        return np.unique(np.clip(given, low, high))
    breaks = np.asarray(own.edges if isinstance(own, PiecewiseExponential) else own.values).ravel()
    ends = np.unique(np.clip(np.concatenate([[low, high], records, breaks[~np.isnan(breaks)]]), low, high))
    return np.unique(np.concatenate([ends, ends[:-1] + np.diff(ends) / 2])).astype(records.dtype)


def _scores(evaluate: Evaluate, places: np.ndarray, entries: np.ndarray, chunk_size: int) -> np.ndarray:
    """The objective of each change; the last batch is filled up with its first change, so that all have one shape."""
    found = [np.zeros(0, entries.dtype)]
    for first in range(0, places.size, chunk_size):
        own = np.arange(first, first + chunk_size)
        own = np.where(own < places.size, own, first)
        scores, _ = evaluate(places[own], entries[own])
        found.append(np.asarray(scores))
    return np.concatenate(found)[: places.size]


def _refined(
    score: Callable[[np.ndarray, np.ndarray], np.ndarray], changed: np.ndarray, grid: np.ndarray, table: np.ndarray, rounds: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Look around the best values, each at the best of its places, in the gaps to its neighbours on the grid.

    Returns:
        Places, values and scores of the best changes found.
    """
    ranks = _rank(table)
    order = np.argsort(-ranks.max(axis=0), kind="stable")[:_STARTS]
    row = ranks.argmax(axis=0)[order]
    place, entry, found = changed[row].astype(np.int32), grid[order], table[row, order]
    low, high = grid[np.maximum(order - 1, 0)], grid[np.minimum(order + 1, grid.size - 1)]
    fractions = np.linspace(0, 1, _POINTS).astype(grid.dtype)
    for _ in range(rounds):
        tried = low[:, None] + (high - low)[:, None] * fractions
        scores = score(np.repeat(place, fractions.size), tried.ravel()).reshape(tried.shape)
        top = np.arange(order.size), _rank(scores).argmax(axis=1)
        better = _rank(scores[top]) > _rank(found)
        entry, found = np.where(better, tried[top], entry), np.where(better, scores[top], found)
        step = (high - low) / (_POINTS - 1)
        low, high = np.maximum(entry - step, low), np.minimum(entry + step, high)
    return place, entry, found


def _rank(score: np.ndarray) -> np.ndarray:
    """NaN first: a distribution that is not there must not pass for one that is private."""
    return np.where(np.isnan(score), np.inf, score)


@partial(jax.jit, static_argnames=("distribution_of",))
def _distribution_of(mask: jax.Array, x: jax.Array, distribution_of: DistributionOf) -> Distribution:
    return distribution_of(x, mask)


@partial(jax.jit, static_argnames=("distribution_of", "objective", "resolution", "ends"))
def _evaluate(
    x: jax.Array,
    mask: jax.Array,
    own: Distribution,
    places: jax.Array,
    entries: jax.Array,
    distribution_of: DistributionOf,
    objective: Objective,
    resolution: float | None,
    ends: tuple[int, int] | None,
) -> tuple[jax.Array, PrivacyLoss]:
    """Score a batch of changes; also return the loss of the first one that is worst."""
    here = jnp.arange(x.size, dtype=jnp.int32)[None] == places[:, None]
    stays = ~jnp.isnan(entries)[:, None]
    rows = jnp.where(here & stays, entries[:, None], x[None])
    other = distribution_of(rows, jnp.where(here, stays, mask[None]))
    if isinstance(other, Rounded) and ends is not None:
        other = on_multiples(other, ends)
    loss = privacy_loss(own, other, resolution=resolution)
    scores = objective(loss)
    return scores, jax.tree.map(lambda field: field[jnp.argmax(scores)], loss)
