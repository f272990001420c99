"""A search for the neighbor of a dataset with the largest privacy loss, in batches of exact losses.

It tries all removals, and as values of a new or changed record the bounds, the records, the
breakpoints of the distribution and the midpoints between them. Then it tries finer and finer values
around the best ones, since the supremum is often a limit, in which a record approaches another one.
The result is a lower bound of a mechanism's epsilon.
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
# The refinement: the number of values refined, and of points tried around each.
_STARTS, _POINTS = 16, 31


class WorstNeighbor(NamedTuple):
    """The neighbor that :func:`worst_neighbor` found.

    Attributes:
        score: the objective, scalar; by default the epsilon of ``loss``.
        loss: the :class:`PrivacyLoss` of the dataset's distribution against the neighbor's.
        place: int32 scalar, the index of the record that differs; under add/remove, n for a new
            one.
        value: float scalar, the value of this record in the neighbor; NaN if it was removed.
        x: float, the neighbor's records: ``(n,)`` under swap, ``(n + 1,)`` under add/remove.
        mask: bool, of the shape of ``x``: which of the records are present.

    >>> import jax.numpy as jnp
    >>> from dpjax import median, piecewise_laplace
    >>> def distribution_of(x, mask):
    ...     profile = median(x, lower=0, upper=10, neighbors="add_remove", mask=mask)
    ...     return piecewise_laplace(profile, 1.0)
    >>> x = jnp.array([1.0, 5.0, 6.0])
    >>> worst_neighbor(x, distribution_of, lower=0, upper=10, neighbors="add_remove").mask.shape
    (4,)
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
    """Return the pure-DP loss of a pair, the default objective of :func:`worst_neighbor`."""
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
    """Search the neighbors of one dataset for the largest privacy loss.

    For n records and m pieces it computes about 2 (n + m) distributions under add/remove, and n
    times as many under swap. It runs on the host, not under ``jit``. Each pair of functions
    ``distribution_of`` and ``objective`` is compiled once per shape; a new lambda is compiled
    again.

    Args:
        x: float ``(n,)``, one dataset. Records are clamped to the bounds. A NaN record is absent
            under ``"add_remove"`` and counts as ``lower`` under ``"swap"``.
        distribution_of: a pure JAX function of records ``(batch, n)`` and their mask, bool
            ``(batch, n)``, that returns a :class:`PiecewiseExponential`, :class:`Rounded` or
            :class:`Finite` of batch shape ``(batch,)``. Under add/remove the arrays are
            ``(batch, n + 1)``.
        lower: public lower bound of a record, scalar.
        upper: public upper bound of a record, scalar.
        neighbors: ``"add_remove"`` or ``"swap"``: the relation to search, which may differ from
            that of the mechanism.
        num_records: int scalar, the number of leading records that are present.
        mask: bool ``(n,)``, which records are present.
        values: float ``(k,)``, the values to try for a record, instead of those of the search; with
            ``refine=0`` the search is exhaustive for discrete data.
        objective: a function of a :class:`PrivacyLoss` of batch shape ``(batch,)`` that returns the
            quantity to maximize, such as ``lambda loss: loss.bounded_range`` or
            ``lambda loss: loss.delta(0.5)``.
        refine: the number of refinements around the best values, each 15 times finer.
        chunk_size: the number of neighbors in a batch, at least 1; memory grows with it.
        resolution: as in :func:`dpjax.auditing.privacy_loss`.

    Returns:
        A :class:`WorstNeighbor`. Its score is NaN if that of any neighbor is, and -inf if there is
        no neighbor.

    Raises:
        TypeError: ``distribution_of`` does not take two arguments, or returns another object.
        ValueError: ``distribution_of`` depends on records whose mask is False, or an argument has
            the wrong shape.

    Privacy:
        Not private: the result is a function of the records. Use it for tests and for simulated or
        public data.

    References:
        Durfee (2025), Definition 2.1 and Corollary 3.1, whose violation the search would find.

    >>> import jax.numpy as jnp
    >>> from dpjax import median, piecewise_laplace
    >>> def distribution_of(x, mask):
    ...     profile = median(x, lower=0, upper=10, neighbors="add_remove", mask=mask)
    ...     return piecewise_laplace(profile, 1.0)
    >>> x = jnp.array([1.0, 5.0, 6.0])
    >>> worst = worst_neighbor(x, distribution_of, lower=0, upper=10, neighbors="add_remove")
    >>> bool(worst.score <= 1.0 + 1e-5), worst.x.shape
    (True, (4,))
    """
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    checks.takes("distribution_of", distribution_of, "x", "mask")
    records, mask_array = present_records(x, num_records=num_records, mask=mask)
    refine, chunk_size = (
        checks.static_integer("refine", refine, 0),
        checks.static_integer("chunk_size", chunk_size, 1),
    )
    if records.ndim != 1 or (mask_array is not None and mask_array.ndim != 1):
        raise ValueError(
            f"x must be one dataset of shape (n,), got {records.shape}: call worst_neighbor once "
            "per dataset."
        )
    low, high = (np.asarray(bound) for bound in checks.bounds(lower, upper, records.dtype))
    if low.ndim or high.ndim:
        raise ValueError(
            f"lower and upper must be scalars, got shapes {low.shape} and {high.shape}."
        )
    data, present = _dataset(
        np.asarray(records), None if mask_array is None else np.asarray(mask_array), low, neighbors
    )
    data = np.clip(data, low, high)
    base = _distribution_of(present[None], data[None], distribution_of)
    if not isinstance(base, (PiecewiseExponential, Rounded, Finite)):
        raise TypeError(
            "distribution_of must return a PiecewiseExponential, a Rounded or a Finite "
            f"distribution, got {type(base).__name__}; dpjax.auditing.lower_bound audits draws of "
            "any distribution."
        )
    if base.batch_shape != (1,):
        raise ValueError(
            "distribution_of must return one distribution per row, got batch shape "
            f"{base.batch_shape} for 1 row."
        )
    ends = None
    if isinstance(base, Rounded):  # neighbors have the same multiples, as the bounds are public
        ends = multiples_of(base)
        base = on_multiples(base, ends)
    _check_mask(data, present, base, distribution_of, resolution, ends, (low, high))
    evaluate = partial(
        _evaluate,
        data,
        present,
        base,
        distribution_of=distribution_of,
        objective=objective,
        resolution=resolution,
        ends=ends,
    )
    indices = np.flatnonzero(present)
    grid = _grid(data[indices], base, values, low, high)

    # A change is an index and the new value of its record, NaN for a removal.
    gone = indices if neighbors == "add_remove" else indices[:0]
    changed = indices if neighbors == "swap" else np.array([data.size - 1])
    places = np.concatenate([gone, np.repeat(changed, grid.size)]).astype(np.int32)
    entries = np.concatenate([np.full(gone.size, np.nan), np.tile(grid, changed.size)]).astype(
        data.dtype
    )
    scores = _scores(evaluate, places, entries, chunk_size)
    found = [(places, entries, scores)]
    if changed.size and grid.size and refine:
        table = scores[gone.size :].reshape(changed.size, grid.size)
        found.append(
            _refined(
                partial(_scores, evaluate, chunk_size=chunk_size), changed, grid, table, refine
            )
        )
    found.append(
        (np.zeros(1, np.int32), np.full(1, np.nan, data.dtype), np.full(1, -np.inf, data.dtype))
    )  # if there is no record to swap
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


def _check_mask(
    data: np.ndarray,
    present: np.ndarray,
    base: Distribution,
    distribution_of: DistributionOf,
    resolution: float | None,
    ends: tuple[int, int] | None,
    bounds: tuple[np.ndarray, np.ndarray],
) -> None:
    """Raise if the distribution depends on the values of absent records.

    Otherwise a function that ignores its mask would seem to lose nothing when a record is removed.
    """
    for bound in bounds:
        other = _distribution_of(
            present[None], np.where(present, data, bound)[None], distribution_of
        )
        if isinstance(other, Rounded) and ends is not None:
            other = on_multiples(other, ends)
        if float(privacy_loss(base, other, resolution=resolution).epsilon[0]) > 1e-3:
            raise ValueError(
                "distribution_of(x, mask) depends on records whose mask is False: pass the mask "
                "on, for example median(x, mask=mask, ...)."
            )


def _dataset(
    records: np.ndarray, there: np.ndarray | None, low: np.ndarray, neighbors: Neighbors
) -> tuple[np.ndarray, np.ndarray]:
    """Return the records without NaN, and which are present.

    Under add/remove with room for one more.
    """
    missing = np.isnan(records)
    x = np.where(missing, low, records)
    if neighbors == "swap":
        return x, np.ones(x.shape, bool) if there is None else there
    present = ~missing if there is None else there & ~missing
    return np.append(x, low), np.append(present, False)


def _grid(
    records: np.ndarray,
    own: PiecewiseExponential | Finite,
    values: ArrayLike | None,
    low: np.ndarray,
    high: np.ndarray,
) -> np.ndarray:
    """Return the values to try, ascending.

    These are ``values``, or else the bounds, the records, the breakpoints and the midpoints between
    them.
    """
    if values is not None:
        candidates = np.asarray(checks.float_array("values", values), records.dtype)
        if candidates.ndim != 1 or np.isnan(candidates).any():
            raise ValueError("values must be real numbers of shape (k,), without NaN.")
        return np.unique(np.clip(candidates, low, high))
    breaks = np.asarray(own.edges if isinstance(own, PiecewiseExponential) else own.values).ravel()
    ends = np.unique(
        np.clip(np.concatenate([[low, high], records, breaks[~np.isnan(breaks)]]), low, high)
    )
    return np.unique(np.concatenate([ends, ends[:-1] + np.diff(ends) / 2])).astype(records.dtype)


def _scores(
    evaluate: Evaluate, places: np.ndarray, entries: np.ndarray, chunk_size: int
) -> np.ndarray:
    """Return the objective of each change; the last batch is padded so that all have one shape."""
    found = [np.zeros(0, entries.dtype)]
    for first in range(0, places.size, chunk_size):
        index = np.arange(first, first + chunk_size)
        index = np.where(index < places.size, index, first)
        scores, _ = evaluate(places[index], entries[index])
        found.append(np.asarray(scores))
    return np.concatenate(found)[: places.size]


def _refined(
    score: Callable[[np.ndarray, np.ndarray], np.ndarray],
    changed: np.ndarray,
    grid: np.ndarray,
    table: np.ndarray,
    rounds: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Refine the best values, each at its best index, within the gaps to the adjacent grid values.

    Returns:
        Indices, values and scores of the best changes found.
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
    """Return scores with NaN as infinity.

    An undefined distribution must not pass for a private one.
    """
    return np.where(np.isnan(score), np.inf, score)


@partial(jax.jit, static_argnames=("distribution_of",))
def _distribution_of(
    mask: jax.Array, x: jax.Array, distribution_of: DistributionOf
) -> Distribution:
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
    """Return the scores of a batch of changes, and the loss of the worst one."""
    here = jnp.arange(x.size, dtype=jnp.int32)[None] == places[:, None]
    stays = ~jnp.isnan(entries)[:, None]
    rows = jnp.where(here & stays, entries[:, None], x[None])
    other = distribution_of(rows, jnp.where(here, stays, mask[None]))
    if isinstance(other, Rounded) and ends is not None:
        other = on_multiples(other, ends)
    loss = privacy_loss(own, other, resolution=resolution)
    scores = objective(loss)
    return scores, jax.tree.map(lambda field: field[jnp.argmax(scores)], loss)
