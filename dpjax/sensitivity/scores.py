"""Scores of finitely many candidates: the counterpart of a sensitivity profile for selection."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.batch import Batch
from dpjax.checks import Relation
from dpjax.display import Picture
from dpjax.numerics.arrays import concatenate
from dpjax.pytrees import pytree


@pytree
class CandidateScores(Batch):
    """Scores of k candidates on a dataset, for mechanisms of selection; higher is better.

    The privacy of a mechanism requires one property: between neighbors, and up to a shift common to
    all candidates (which cancels in the mechanisms), each score changes by at most ``sensitivity``.
    The scores of statistics have it; for other scores the caller must ensure it. Leading axes are a
    batch; the fields broadcast against each other. It is a pytree.

    Attributes:
        scores: float ``(..., k)``. A candidate with score ``-inf`` is excluded; that must be
            public, the same for every dataset.
        candidates: float ``(k,)`` or ``(..., k)``, public, the possible outputs.
        sensitivity: float ``(...)``, public.
        neighbors: static, the relation that ``sensitivity`` holds for.

    References:
        McSherry and Talwar (2007); Gillenwater and Munoz Medina, Definition 7.

    >>> import jax.numpy as jnp
    >>> votes = CandidateScores(
    ...     jnp.array([3.0, 5.0]), jnp.array([0.0, 1.0]), neighbors="add_remove"
    ... )
    >>> votes.batch_shape, votes.sensitivity
    ((), 1.0)
    """

    scores: jax.Array
    candidates: jax.Array
    sensitivity: jax.Array | float = 1.0
    neighbors: Relation = field(kw_only=True, metadata={"static": True})

    _event_axes = ("scores", "candidates")
    _parameters = ("sensitivity",)
    _next_step = ": dpjax.exponential and dpjax.permute_and_flip take it"

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        """Return the scores of all candidates, which are not private."""
        few = self._first(rows)
        shape = (*few.batch_shape, self.scores.shape[-1])
        labels, scores = (
            np.broadcast_to(a, shape).reshape(-1, shape[-1]) for a in (few.candidates, few.scores)
        )
        best = np.argmax(scores, axis=-1)[:, None]
        table = {
            name: np.take_along_axis(a, best, axis=-1)
            for name, a in (("best candidate", labels), ("score", scores))
        }
        return table, Picture(labels, scores, "candidate", "score", kind="stems")

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields without the axis of candidates."""
        size = self.scores.shape[-1:]
        if size != self.candidates.shape[-1:] or size in ((), (0,)):
            raise ValueError(
                "scores and candidates must have the same last axis, of size k >= 1, got shapes "
                f"{self.scores.shape} and {self.candidates.shape}."
            )
        return super().batch_shape


def from_distances(
    distances: ArrayLike, *, candidates: ArrayLike, neighbors: Relation
) -> CandidateScores:
    """Return the scores of the inverse sensitivity mechanism on a finite range.

        score(y) = -distance(y);  for the value itself, at distance 0, the least distance of all
        others, minus 1

    Without the second part :func:`dpjax.exponential` is Equation 5 of the post. With it, a value
    that many changes do not move has a higher probability, at no cost (``SensitivityProfile.depth``
    is the counterpart for a statistic on the real line).

    Args:
        distances: float ``(..., k)``, the number of individuals who must change for the statistic
            to be each candidate; 0 for its value, ``inf`` for a candidate that no dataset has
            (publicly, so in every row).
        candidates: float ``(k,)`` or ``(..., k)``, public: all values that the statistic can take.
        neighbors: the relation: ``"add_remove"``, ``"swap"`` or ``"edge"``.

    Returns:
        :class:`CandidateScores` of sensitivity 1, for :func:`dpjax.exponential`,
        :func:`dpjax.permute_and_flip` and :func:`dpjax.noisy_tree`.

    Privacy:
        Sensitivity 1, if the distances are correct, or any others that change by at most 1 between
        neighbors and are 0 for at least one candidate of every dataset. If neighbors have the same
        value, both parts change by at most 1. If y is the value of one of them only, it is at
        distance d <= 1 from the other, which has another value at distance 0, at most 1 away from
        the first: the scores of y are 0 and -d. So a range without the value of some dataset is not
        private.

    References:
        Asi and Duchi (2020); Steinke, "Beyond global sensitivity via inverse sensitivity",
        differentialprivacy.org (2023), Equations 4 and 5. The score of the value itself is not
        taken from there.

    >>> import jax.numpy as jnp
    >>> from dpjax import exponential
    >>> rooms = from_distances([4.0, 0.0, 6.0], candidates=[1, 2, 3], neighbors="swap")
    >>> rooms.scores.tolist(), round(float(exponential(rooms, 1.0).prob(2.0)), 2)
    ([-4.0, 3.0, -6.0], 0.96)
    """
    checks.one_of("neighbors", neighbors, checks.RELATIONS)
    away = checks.float_array("distances", distances)
    labels = checks.float_array("candidates", candidates).astype(away.dtype)
    found = CandidateScores(_scores_of(away), labels, jnp.ones((), away.dtype), neighbors=neighbors)
    _ = found.batch_shape  # raises where shapes do not fit
    return found


@jax.jit
def _scores_of(distances: jax.Array) -> jax.Array:
    # The least distance of all others, where this one is the least: the second smallest; inf if no
    # other candidate can be reached.
    nowhere = jnp.full(1, jnp.inf, distances.dtype)
    second = -jax.lax.top_k(-concatenate(distances, nowhere), 2)[0][..., 1:]
    depth = jnp.where(second < jnp.inf, jnp.maximum(second - 1, 0.0), 0.0)
    scores = jnp.where(distances <= 0, depth, -distances)
    return jnp.where(jnp.any(jnp.isnan(distances), axis=-1, keepdims=True), jnp.nan, scores)
