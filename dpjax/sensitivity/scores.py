"""Scores of finitely many candidates: what a sensitivity profile is for a statistic that takes values on the line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from dpjax.checks import Neighbors


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CandidateScores:
    """How well each of k candidates fits a dataset, for the exponential mechanism and permute-and-flip; higher is better.

    The privacy of a mechanism rests on one property: between neighbouring datasets, and up to a shift that is common to all
    candidates (which the mechanisms do not see), the score of each changes by at most ``sensitivity``. Statistics return scores
    that have it; for scores of your own it is your promise. Leading axes are a batch; the fields broadcast against each other. It
    is a pytree.

    Attributes:
        scores: float ``(..., k)``. A candidate with the score ``-inf`` is excluded: publicly, so for every dataset alike.
        candidates: float ``(k,)`` or ``(..., k)``, what comes out; public.
        sensitivity: float ``(...)``, public.
        neighbors: static, the relation that ``sensitivity`` holds for.

    References:
        McSherry and Talwar (2007); Gillenwater and Munoz Medina, Definition 7.

    >>> import jax.numpy as jnp
    >>> votes = CandidateScores(jnp.array([3.0, 5.0]), jnp.array([0.0, 1.0]), neighbors="add_remove")
    >>> votes.batch_shape, votes.sensitivity
    ((), 1.0)
    """

    scores: jax.Array
    candidates: jax.Array
    sensitivity: jax.Array | float = 1.0
    neighbors: Neighbors = field(kw_only=True, metadata={"static": True})

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields, without the axis of candidates."""
        if self.scores.shape[-1:] != self.candidates.shape[-1:] or self.scores.shape[-1:] in ((), (0,)):
            raise ValueError(f"k >= 1 candidates need k scores, got shapes {self.candidates.shape} and {self.scores.shape}.")
        return jnp.broadcast_shapes(self.scores.shape[:-1], self.candidates.shape[:-1], jnp.shape(self.sensitivity))

    @property
    def dtype(self) -> Any:
        """The dtype of the scores."""
        return self.scores.dtype
