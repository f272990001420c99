"""The sensitivity profile of a statistic with several components: balls that it stays in when 1, 2, ... individuals change."""

from dataclasses import dataclass, field
from math import inf

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.batch import Batch
from dpjax.checks import Relation
from dpjax.numerics.batching import concatenate, fits


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class VectorProfile(Batch):
    """Around f(x) in R^d, the radii of balls in an L_p norm.

    The privacy of every mechanism rests on one property (Durfee 2025, before Lemma 5.1): for neighbouring x and x', the ball of
    radius number l around f(x) is in the ball of radius number l+1 around f(x'). It is a promise of whoever made the radii.

    Attributes:
        value: float ``(..., d)``, the statistic. It is not private.
        radii: float ``(..., k+1)``, nondecreasing from 0: R_1 + ... + R_l, for l = 0..k.
        step: float ``(...)``, the length of every further level, the global sensitivity in that norm.
        p: static, from 1 to ``inf``: which norm.
        neighbors: static, the relation that the radii are valid for.
    """

    value: jax.Array
    radii: jax.Array
    step: jax.Array
    p: float = field(metadata={"static": True})
    neighbors: Relation = field(metadata={"static": True})

    _event_axes = ("value", "radii")


def from_vector_radii(value: ArrayLike, radii: ArrayLike, *, p: float, step: ArrayLike, neighbors: Relation) -> VectorProfile:
    """Return the profile of a statistic with several components, from its radius bounding functions R_1, R_2, and so on.

    Args:
        value: float ``(..., d)``, the statistic f(x) of each dataset, its components on the last axis.
        radii: float ``(..., k)``, the increments R_1..R_k of Definition 5.1, not negative (a negative one counts as 0). R_l may be
            the largest local sensitivity within l-1 changes.
        p: static, from 1 to ``inf``: the radii and the step are L_p norms.
        step: positive ``(...)``, the global sensitivity in that norm, used for every level after the last radius. Radii are
            clamped to it.
        neighbors: ``"add_remove"``, ``"swap"`` or ``"edge"``, the relation under which the radii hold.

    Returns:
        A :class:`VectorProfile`, for :func:`dpjax.piecewise_laplace` and :func:`dpjax.inverse_sensitivity`.

    Privacy:
        Rests on the caller's promise, as :func:`dpjax.from_radii`: for neighbours x and x', R_l(x) <= R_{l+1}(x') and
        R_1(x) >= ||f(x) - f(x')||_p. A constant R_l = LS(x) breaks it and loses 1.5 epsilon.

    References:
        Durfee (2025), Definition 5.1 and Lemma 5.1. Section 5.2 without a finite global sensitivity, on a public ball as range, is
        private in R^d too, by min(number of the ball, k), but is not here: its density is no function of the distance alone.

    >>> profile = from_vector_radii([3.0, 4.0], [0.5, 1.0, 9.0], p=2, step=4.0, neighbors="swap")
    >>> profile.radii.tolist()
    [0.0, 0.5, 1.5, 5.5]
    """
    checks.one_of("neighbors", neighbors, checks.RELATIONS)
    center = vectors("value", value)
    increments = checks.float_array("radii", radii).astype(center.dtype)
    if increments.ndim == 0:
        raise ValueError("radii need an axis of levels (the last one); for one radius write [radius].")
    size = checks.positive("step", step, center.dtype)
    fits(center.shape[:-1], radii=increments.shape[:-1], step=size.shape)
    # R_K <= R_{K+1} = step; the minimum with a constant keeps Definition 5.1.
    return VectorProfile(center, _outwards(increments, size), size, p=checks.static_number("p", p, 1, inf), neighbors=neighbors)


@jax.jit
def _outwards(increments: jax.Array, size: jax.Array) -> jax.Array:
    distance = jnp.cumsum(jnp.minimum(jnp.maximum(increments, 0.0), size[..., None]), axis=-1)
    return concatenate(jnp.zeros((1,), increments.dtype), distance)


def vectors(name: str, value: ArrayLike) -> jax.Array:
    """Return float vectors, or raise where there is no axis of components."""
    array = checks.float_array(name, value)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(f"{name} must be vectors, with coordinates on the last axis, got shape {array.shape}.")
    return array
