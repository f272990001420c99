"""Counts of candidates, and the distance of a dataset from having each of them as a mode.

With n_y records equal to candidate y and n_max the largest count, candidate x becomes *a* mode
after exactly

    add/remove   n_max - n_x changes: add as many records x
    swap         the least d with sum over y of max(0, n_y - n_x - d) <= d: every swap adds one x,
                 and removes one record of a candidate that is still ahead; = max over j of
                 ceil((S_j - j n_x) / (1 + j)), S_j the sum of the j largest counts

and, if it is the only mode with a lead of g over the next one, it remains a mode through g changes
(add/remove) or floor(g/2) swaps. The distance to a set of datasets, and minus the depth of a
dataset inside it, change by at most 1 between neighbors, so these are (negated) scores of
sensitivity 1. A gap closes by two a swap, but ceil((n_max - n_x)/2) is the distance only if one
candidate is ahead: for the counts (0, 3, 3, 3) it is 2, whereas the first candidate needs 3.

For the mode, distance is not the best score. Mechanisms over candidates ignore a shift that is
common to all scores, and up to such a shift the counts themselves have sensitivity 1/2 under
add/remove (n_y - n/2 changes by 1/2) and 1 under swap.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors, Resolution
from dpjax.numerics.arrays import integers
from dpjax.numerics.multiples import from_multiples, most_multiples, to_multiples
from dpjax.sensitivity.scores import CandidateScores
from dpjax.statistics.padded_records import nan_where_absent


def mode(
    x: ArrayLike,
    *,
    candidates: ArrayLike,
    neighbors: Neighbors,
    resolution: Resolution | None = None,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> CandidateScores:
    """Return scores of candidates for the mode: minus the number of changes to make it a mode.

    Under add/remove the score is ``n_x - n_max``; for swap see the docstring of
    ``dpjax/statistics/_mode.py``. A dataset may have several modes, with score 0. The score of a
    single mode is the number of individuals who may change without it ceasing to be one: the number
    of changes that do, minus 1. (Without that it would be 0, as in the Duff paper, however far the
    others are behind.)

    Args:
        x: float ``(..., n)``. A record that equals no candidate, or is NaN, is not counted. See
            :mod:`dpjax.statistics` for the arguments not listed here.
        candidates: float ``(k,)`` or ``(..., k)``, public, finite and distinct in the dtype of
            ``x``: integers above 2^24 are not all distinct in float32. With a resolution, they must
            be multiples of it; those of a JAX array are rounded to it.

    Returns:
        :class:`CandidateScores` of sensitivity 1 and of the broadcast batch shape. At the same
        epsilon, :func:`candidate_counts` is never less accurate.

    Privacy:
        Sensitivity 1 under the relation. Public: the candidates, which must not be taken from the
        data, and what :mod:`dpjax.statistics` lists.

    References:
        Gillenwater and Munoz Medina, Section 4.1, for add/remove. The score of a single mode is not
        in the paper.

    >>> import jax.numpy as jnp
    >>> mode(
    ...     jnp.array([2.0, 2.0, 3.0, 9.0]), candidates=[1, 2, 3], neighbors="add_remove"
    ... ).scores.tolist()
    [-2.0, 1.0, -1.0]
    """
    counts, labels = _read(x, candidates, neighbors, resolution, num_records, mask)
    return _as_scores(_changes(counts, neighbors), counts, labels, 1.0, neighbors)


def candidate_counts(
    x: ArrayLike,
    *,
    candidates: ArrayLike,
    neighbors: Neighbors,
    resolution: Resolution | None = None,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> CandidateScores:
    """Return the number of records that equal each candidate minus the largest count, as scores.

    They are the most accurate scores for the mode.

    Args:
        x: as in :func:`mode`, like all other arguments.

    Returns:
        :class:`CandidateScores` of sensitivity 1/2 under add/remove and 1 under swap. The
        difference is computed in integers: the relevant scores are exact in float32, whatever the
        counts.

    Privacy:
        Up to a shift common to all candidates, which mechanisms over candidates ignore, the counts
        have that sensitivity: one more record y changes n_y - n/2 by 1/2 and the others by -1/2; a
        swap changes two counts by 1. Public: as in :func:`mode`.

    References:
        Gillenwater and Munoz Medina, Section 4.1: their score of the mode is this one up to a
        common shift, with twice its sensitivity.

    >>> import jax.numpy as jnp
    >>> votes = candidate_counts(
    ...     jnp.array([2.0, 2.0, 3.0, 9.0]), candidates=[1, 2, 3], neighbors="add_remove"
    ... )
    >>> votes.scores.tolist(), float(votes.sensitivity)
    ([-2.0, 0.0, -1.0], 0.5)
    """
    counts, labels = _read(x, candidates, neighbors, resolution, num_records, mask)
    below = counts - jnp.max(counts, axis=-1, keepdims=True)
    sensitivity = 0.5 if neighbors == "add_remove" else 1.0
    return _as_scores(below, counts, labels, sensitivity, neighbors)


def _read(
    x: ArrayLike,
    candidates: ArrayLike,
    neighbors: Neighbors,
    resolution: Resolution | None,
    num_records: ArrayLike | None,
    mask: ArrayLike | None,
) -> tuple[jax.Array, jax.Array]:
    """Return the counts, int32 ``(..., k)``, and the candidates."""
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    records = nan_where_absent(x, num_records, mask)
    labels = candidate_labels(candidates, records.dtype)
    if resolution is None:
        return count_labels(records, labels), labels
    step = checks.resolution(resolution, (candidates,), most_multiples(records.dtype))
    numbers = to_multiples(labels, step)
    return count_labels(to_multiples(records, step), numbers), from_multiples(numbers, step)


def candidate_labels(candidates: ArrayLike, dtype: Any) -> jax.Array:
    """Return public candidates ``(..., k)``; host values must be finite and distinct."""
    labels = checks.float_array("candidates", candidates).astype(dtype)
    if labels.ndim == 0 or labels.shape[-1] == 0:
        raise ValueError(
            "candidates must have a last axis with at least one candidate, got shape "
            f"{labels.shape}."
        )
    if not isinstance(candidates, jax.Array):
        ordered = np.sort(np.asarray(candidates, np.float64).astype(dtype), axis=-1)
        if not np.all(np.isfinite(ordered)) or np.any(ordered[..., 1:] == ordered[..., :-1]):
            raise ValueError(
                f"candidates must be finite and distinct (in {np.dtype(dtype).name}), got "
                f"{candidates}."
            )
    return labels


@jax.jit
@partial(jnp.vectorize, signature="(n),(k)->(k)")
def count_labels(records: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the number of records that equal each label, int32.

    It is -1 for labels that are not finite and distinct. The cost is a search and an addition for
    each record, for any k.
    """
    order = jnp.argsort(labels)
    ordered = labels[order]
    label = order[jnp.minimum(jnp.searchsorted(ordered, records), labels.size - 1)]
    found = (labels[label] == records).astype(np.int32)
    counts = jnp.zeros(labels.size, np.int32).at[label].add(found)
    sound = jnp.all(jnp.isfinite(labels)) & jnp.all(ordered[1:] > ordered[:-1])
    return jnp.where(sound, counts, -1)


@partial(jax.jit, static_argnums=1)
@partial(jnp.vectorize, excluded=(1,), signature="(k)->(k)")
def _changes(counts: jax.Array, neighbors: Neighbors) -> jax.Array:
    """Return how many changes a single mode survives, or minus those until a candidate is one.

    Under swap, candidate x reaches t records by t - n_x swaps, which remove sum_y max(0, n_y - t)
    records of others: t - sum_y max(0, n_y - t) >= n_x. The left side increases with t; the t where
    it reaches n_x is found among its values at the counts themselves.
    """
    largest = -jnp.sort(-counts)
    lead, needed = largest[0] - largest[:2][-1], largest[0] - counts
    if neighbors == "swap":
        lead = lead // 2
        above = jnp.cumsum(largest, dtype=np.int32)
        number = integers(1, counts.size + 1)
        at_counts = (1 + number) * largest - above  # nonincreasing, at most 2n
        # Number of candidates with more than t records.
        ahead = jnp.searchsorted(-at_counts, -counts).astype(np.int32)
        sums = jnp.where(ahead == 0, 0, above[ahead - 1])
        needed = -(-(sums + counts) // (1 + ahead)) - counts
    return jnp.where(counts == largest[0], lead, -needed)


def _as_scores(
    scores: jax.Array,
    counts: jax.Array,
    labels: jax.Array,
    sensitivity: float,
    neighbors: Neighbors,
) -> CandidateScores:
    """Return integers as scores; NaN where the candidates are not valid."""
    floats = jnp.where(counts < 0, jnp.nan, scores.astype(labels.dtype))
    return CandidateScores(
        floats, labels, jnp.asarray(sensitivity, labels.dtype), neighbors=neighbors
    )
