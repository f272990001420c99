"""The sensitivity profile of a vector: balls that contain it after 1, 2, ... changes."""

from __future__ import annotations

from dataclasses import field
from math import inf

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.batch import Batch
from dpjax.checks import Relation
from dpjax.numerics.arrays import fits
from dpjax.pytrees import pytree
from dpjax.sensitivity.radii import add_up


@pytree
class VectorProfile(Batch):
    """Radii of balls in an L_p norm around f(x) in R^d, for 1, 2, ... changes.

    The privacy of every mechanism requires one property (Durfee 2025, before Lemma 5.1): for
    neighbors x and x', the ball of radius number l around f(x) is contained in the ball of radius
    number l+1 around f(x'). The caller who supplies the radii must ensure it.

    Attributes:
        value: float ``(..., d)``, the statistic; not private.
        radii: float ``(..., k+1)``, nondecreasing from 0: R_1 + ... + R_l, for l = 0..k.
        step: float ``(...)``, the length of every further level, the global sensitivity in that
            norm.
        p: static, from 1 to ``inf``, the order of the norm.
        neighbors: static, the relation that the radii are valid for.

    >>> from_vector_radii([3.0, 4.0], [0.5], p=2, step=4.0, neighbors="swap").radii.tolist()
    [0.0, 0.5]
    """

    value: jax.Array
    radii: jax.Array
    step: jax.Array
    p: float = field(metadata={"static": True})
    neighbors: Relation = field(metadata={"static": True})

    _event_axes = ("value", "radii")


def from_vector_radii(
    value: ArrayLike, radii: ArrayLike, *, p: float, step: ArrayLike, neighbors: Relation
) -> VectorProfile:
    """Return the profile of a statistic with several components, from radius bounding functions.

    Args:
        value: float ``(..., d)``, the statistic f(x) of each dataset, with components on the last
            axis.
        radii: float ``(..., k)``, the increments R_1..R_k of Definition 5.1, nonnegative (negative
            ones count as 0). R_l may be the largest local sensitivity within l-1 changes.
        p: static, from 1 to ``inf``: the radii and the step are L_p norms.
        step: positive ``(...)``, the global sensitivity in that norm, used for every level after
            the last radius. Radii are clamped to it.
        neighbors: ``"add_remove"``, ``"swap"`` or ``"edge"``, the relation under which the radii
            hold.

    Returns:
        A :class:`VectorProfile`, for :func:`dpjax.piecewise_laplace` and
        :func:`dpjax.inverse_sensitivity`.

    Privacy:
        It depends on the caller's guarantee, as in :func:`dpjax.from_radii`: for neighbors x and
        x', R_l(x) <= R_{l+1}(x') and R_1(x) >= ||f(x) - f(x')||_p. A constant R_l = LS(x) violates
        it and loses 1.5 epsilon.

    References:
        Durfee (2025), Definition 5.1 and Lemma 5.1. Section 5.2 without a finite global
        sensitivity, on a public ball as range, is private in R^d too, by min(number of the ball,
        k), but is not implemented: its density is not a function of the distance alone.

    >>> profile = from_vector_radii([3.0, 4.0], [0.5, 1.0, 9.0], p=2, step=4.0, neighbors="swap")
    >>> profile.radii.tolist()
    [0.0, 0.5, 1.5, 5.5]
    """
    checks.one_of("neighbors", neighbors, checks.RELATIONS)
    center = vectors("value", value)
    increments = checks.float_array("radii", radii).astype(center.dtype)
    if increments.ndim == 0:
        raise ValueError("radii must have a last axis of levels; for one radius pass [radius].")
    size = checks.positive("step", step, center.dtype)
    fits(center.shape[:-1], radii=increments.shape[:-1], step=size.shape)
    # R_K <= R_{K+1} = step; the minimum with a constant preserves Definition 5.1.
    return VectorProfile(
        center,
        add_up(jnp.zeros((), size.dtype), jnp.minimum(increments, size[..., None]), 1),
        size,
        p=checks.static_number("p", p, 1, inf),
        neighbors=neighbors,
    )


def vectors(name: str, value: ArrayLike) -> jax.Array:
    """Return float vectors, or raise if there is no axis of components."""
    array = checks.float_array(name, value)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(
            f"{name} must be vectors with components on the last axis, got shape {array.shape}."
        )
    return array
