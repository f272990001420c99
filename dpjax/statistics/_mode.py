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
from dpjax.numerics.batching import concatenate
from dpjax.numerics.multiples import from_multiples, most_multiples, to_multiples
from dpjax.sensitivity.scores import CandidateScores
from dpjax.statistics.padded_records import present_records


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
            be multiples of it.

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
    return CandidateScores(
        _mode_scores(counts, labels, neighbors),
        labels,
        jnp.ones((), labels.dtype),
        neighbors=neighbors,
    )


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
    sensitivity = jnp.asarray(0.5 if neighbors == "add_remove" else 1.0, labels.dtype)
    return CandidateScores(_below_most(counts, labels), labels, sensitivity, neighbors=neighbors)


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
    records, present = present_records(x, num_records=num_records, mask=mask)
    labels = candidate_labels(candidates, records.dtype)
    if resolution is None:
        return count_labels(records, present, labels), labels
    step = checks.resolution(resolution, (candidates,), most_multiples(records.dtype))
    numbers = to_multiples(labels, step)
    near = jnp.abs(from_multiples(numbers, step) - labels) <= 8 * float(
        jnp.finfo(labels.dtype).eps
    ) * jnp.abs(labels)
    return count_labels(to_multiples(records, step), present, numbers), jnp.where(
        near, labels, jnp.nan
    )


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
def count_labels(records: jax.Array, present: jax.Array | None, labels: jax.Array) -> jax.Array:
    """Return the number of records that equal each label, int32 ``(..., k)``."""
    there = records if present is None else jnp.where(present, records, jnp.nan)
    return jnp.vectorize(_counts, signature="(n),(k)->(k)")(there, labels)


@partial(jax.jit, static_argnames=("neighbors",))
def _mode_scores(counts: jax.Array, labels: jax.Array, neighbors: Neighbors) -> jax.Array:
    if counts.shape[-1] == 1:
        return _sound(jnp.zeros_like(counts), labels)
    first = jax.lax.top_k(counts, 2)[0]
    largest, lead = first[..., :1], first[..., :1] - first[..., 1:]
    if neighbors == "add_remove":
        return _sound(counts - largest + jnp.where(counts == largest, lead, 0), labels)
    swaps = jnp.vectorize(_swaps, signature="(k)->(k)")(counts)
    return _sound(jnp.where(counts == largest, lead // 2, -swaps), labels)


@jax.jit
def _below_most(counts: jax.Array, labels: jax.Array) -> jax.Array:
    return _sound(counts - jnp.max(counts, axis=-1, keepdims=True), labels)


def _sound(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the scores as floats; NaN where the candidates are not finite and distinct."""
    ordered = jnp.sort(labels, axis=-1)
    sound = jnp.all(jnp.isfinite(labels), axis=-1) & jnp.all(
        ordered[..., 1:] != ordered[..., :-1], axis=-1
    )
    return jnp.where(sound[..., None], scores.astype(labels.dtype), jnp.nan)


def _counts(records: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the number of records that equal each label, int32 ``(k,)``.

    The cost is a search and an addition for each record, for any k.
    """
    ordered = jnp.sort(labels)
    column = jnp.minimum(jnp.searchsorted(ordered, records), labels.shape[0] - 1)
    found = (ordered[column] == records).astype(jnp.int32)
    counts = jnp.zeros(labels.shape, jnp.int32).at[column].add(found)
    return counts[jnp.minimum(jnp.searchsorted(ordered, labels), labels.shape[0] - 1)]


def _swaps(counts: jax.Array) -> jax.Array:
    """Return the number of swaps that make each candidate a mode, int32 ``(k,)``.

    Candidate x reaches t records by t - n_x swaps, which remove sum_y max(0, n_y - t) records of
    others: t - sum_y max(0, n_y - t) >= n_x. The left side increases with t; the t where it reaches
    n_x is found among its values at the counts themselves.
    """
    largest = -jnp.sort(-counts)
    above = jnp.cumsum(largest)
    number = jnp.arange(1, counts.shape[0] + 1, dtype=jnp.int32)
    at_counts = (1 + number) * largest - above  # nonincreasing, at most 2n
    # Number of candidates with more than t records.
    ahead = jnp.searchsorted(-at_counts, -counts).astype(jnp.int32)
    sums = concatenate(jnp.zeros((1,), jnp.int32), above)[ahead]
    return -(-(sums + counts) // (1 + ahead)) - counts
