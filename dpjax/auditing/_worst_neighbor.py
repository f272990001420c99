"""A search for the neighbor of a dataset with the largest privacy loss, in batches of exact losses.

It tries all removals, and as values of a new or changed record the bounds, the records, the
breakpoints of the distribution and the midpoints between them. Then it tries finer and finer values
around the best ones, since the supremum is often a limit, in which a record approaches another one.
The result is a lower bound of a mechanism's epsilon.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.auditing._privacy_loss import Array, PrivacyLoss, privacy_loss
from dpjax.checks import Neighbors
from dpjax.distributions.rounded import Rounded
from dpjax.statistics.padded_records import present_records

DistributionOf = Callable[[Any, Any], Any]
_ROWS = 256  # the number of neighbors in a batch
_STARTS, _FINER = 16, 15  # the number of values refined, and how much finer each time


class WorstNeighbor(NamedTuple):
    """The neighbor that :func:`worst_neighbor` found.

    Attributes:
        score: the objective, a float; by default the epsilon of ``loss``.
        loss: the :class:`PrivacyLoss` of the dataset's distribution against the neighbor's.
        place: the index of the record that differs; under add/remove, n for a new
            one.
        value: the value of this record in the neighbor; NaN if it was removed.
        x: float64, the neighbor's records: ``(n,)`` under swap, ``(n + 1,)`` under add/remove.
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

    score: float
    loss: PrivacyLoss
    place: int
    value: float
    x: Array
    mask: Array

    def __repr__(self) -> str:
        value = "removed" if np.isnan(self.value) else f"value={self.value:g}"
        return f"WorstNeighbor(score={self.score:g}, place={self.place}, {value}, loss={self.loss})"


def epsilon(loss: PrivacyLoss) -> Array:
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
    objective: Callable[[PrivacyLoss], Any] = epsilon,
    refine: int = 4,
) -> WorstNeighbor:
    """Search the neighbors of one dataset for the largest privacy loss.

    For n records and m pieces it computes about 2 (n + m) distributions under add/remove, and n
    times as many under swap, 256 at a time. ``distribution_of`` is compiled once per shape, a new
    lambda again; losses are computed in NumPy.

    Args:
        x: float ``(n,)``, one dataset. Records are clamped to the bounds. A NaN record is absent
            under ``"add_remove"`` and counts as ``lower`` under ``"swap"``.
        distribution_of: a function of records ``(batch, n)`` and their mask, bool ``(batch, n)``,
            that returns what :func:`privacy_loss` takes, of batch shape ``(batch,)``: a
            distribution, or an array ``(batch, k)`` of log-probabilities of public outcomes. A
            function in JAX is compiled. One in NumPy gets arrays of NumPy, so that any black box
            with finitely many outcomes can be searched. Under add/remove the arrays are
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

    Returns:
        A :class:`WorstNeighbor`. Its score is infinite if that of any neighbor is NaN, and -inf if
        there is no neighbor.

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
    refine = checks.static_integer("refine", refine, 0)
    records, there = present_records(x, num_records=num_records, mask=mask)
    checks.bounds(lower, upper, records.dtype)
    data, low, high = (np.array(given, np.float64) for given in (x, lower, upper))
    present = np.full(data.shape, True) if there is None else np.array(there)
    if present.shape != data.shape or data.ndim != 1 or low.ndim or high.ndim:
        raise ValueError(
            "x must be one dataset of shape (n,), and lower and upper scalars, got shapes "
            f"{data.shape}, {low.shape} and {high.shape}."
        )
    if neighbors == "add_remove":  # with room for one more
        data, present = np.append(data, np.nan), np.append(present, False)
        present &= ~np.isnan(data)
    data = np.clip(np.where(np.isnan(data), low, data), low, high)

    def rows_of(changes: Array) -> tuple[Array, Array]:
        """Return the datasets and masks of changes ``(batch, 2)``.

        A change is the index of a record and its new value, NaN for a removal.
        """
        place, entry = changes.T[..., None]
        here, stays = np.arange(data.size) == place, ~np.isnan(entry)
        return np.where(here & stays, entry, data), np.where(here, stays, present)

    nobody = np.array([[-1.0, np.nan]])
    rows, masks = rows_of(np.repeat(nobody, _ROWS, axis=0))
    compute: DistributionOf = jax.jit(distribution_of)
    try:
        jax.eval_shape(compute, rows, masks)
    except (TypeError, ValueError, IndexError):  # it needs NumPy, or raises the same once more
        compute = distribution_of
    own = compute(rows, masks)
    for bound in (low, high):
        loss = privacy_loss(own, compute(np.where(masks, rows, bound), masks))
        if loss.batch_shape != (_ROWS,):
            raise ValueError(
                "distribution_of must return one distribution per row, got batch shape "
                f"{loss.batch_shape} for {_ROWS} rows."
            )
        # A function that ignores its mask would seem to lose nothing when a record is removed
        if loss.epsilon[0] > 1e-3:
            raise ValueError(
                "distribution_of(x, mask) depends on records whose mask is False: pass the mask "
                "on, for example median(x, mask=mask, ...)."
            )

    def loss_of(changes: Array) -> PrivacyLoss:
        return privacy_loss(own, compute(*rows_of(changes)))

    def score(changes: Array) -> Array:
        """Return the objective of changes, in batches of one shape.

        An undefined one is infinite, as it must not pass for a private one.
        """
        scores = [np.zeros(0)]
        for first in range(0, len(changes), _ROWS):
            some = np.minimum(np.arange(first, first + _ROWS), len(changes) - 1)
            scores.append(objective(loss_of(changes[some])))
        together = np.concatenate(scores)[: len(changes)]
        return np.where(np.isnan(together), np.inf, together)

    indices = np.flatnonzero(present)
    grid = _grid(data[indices], own, values, low, high)
    gone = [(place, np.nan) for place in indices] if neighbors == "add_remove" else []
    changed = indices if neighbors == "swap" else np.array([data.size - 1])
    tried = [np.array([*gone, *product(changed, grid)]).reshape(-1, 2), nobody]
    scores = [score(tried[0]), np.array([-np.inf])]  # of nobody, if all are absent
    if changed.size and grid.size:
        table = scores[0][len(gone) :].reshape(changed.size, grid.size)
        start = np.argsort(-table.max(axis=0))[:_STARTS]
        place, entry = changed[table.argmax(axis=0)[start]], grid[start]
        gaps = np.diff(grid, prepend=grid[0], append=grid[-1])
        step = np.maximum(gaps[:-1], gaps[1:])[start]
        for _ in range(refine):
            near = entry[:, None] + step[:, None] * np.linspace(-1, 1, 2 * _FINER + 1)
            near = np.clip(near, low, high)
            tried.append(np.stack([np.repeat(place, near.shape[1]), near.ravel()], axis=1))
            scores.append(score(tried[-1]))
            entry = near[np.arange(start.size), scores[-1].reshape(near.shape).argmax(axis=1)]
            step = step / _FINER
    every = np.concatenate(scores)
    best = np.repeat(np.concatenate(tried)[[every.argmax()]], _ROWS, axis=0)
    loss = PrivacyLoss(*(field[0] for field in vars(loss_of(best)).values()))
    rows, masks = rows_of(best)
    return WorstNeighbor(
        float(every.max()), loss, int(best[0, 0]), float(best[0, 1]), rows[0], masks[0]
    )


def _grid(records: Array, own: Any, values: ArrayLike | None, low: Array, high: Array) -> Array:
    """Return the values to try, ascending.

    These are ``values``, or else the bounds, the records, the breakpoints and the midpoints between
    them.
    """
    if values is not None:
        candidates = checks.host_floats("values", values)
        if candidates.ndim != 1 or np.isnan(candidates).any():
            raise ValueError("values must be real numbers of shape (k,), without NaN.")
        return np.unique(np.clip(candidates, low, high))
    breaks = np.ravel(getattr(own, "edges", getattr(own, "values", [])))
    if isinstance(own, Rounded):  # the multiples next to an edge between them
        breaks = np.append(breaks - 0.5, breaks + 0.5) * float(own.resolution)
    ends = np.concatenate([[low, high], records, breaks[~np.isnan(breaks)]])
    ends = np.unique(np.clip(ends, low, high))
    return np.unique(np.concatenate([ends, ends[:-1] + np.diff(ends) / 2]))
