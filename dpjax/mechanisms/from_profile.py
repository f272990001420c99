"""Distributions from a profile and a cost for each piece, for all mechanisms on profiles.

On the multiples of a resolution, the cost is evaluated at the multiples, and not integrated over
cells. Let f be the value and c its depth, V(s) the linear interpolation of the values that f
reaches after s changes on one side, and L(y) the least real s with V(s) at or beyond y. The value
costs 1 - c; another multiple y on that side costs L(y) in piecewise Laplace and ceil(L(y)) in
inverse sensitivity.

Privacy. Between neighbors these costs change by at most 1, so the exponential mechanism of
epsilon/2 is epsilon-DP and epsilon-bounded-range. Let x' be a neighbor of x, with f', c', V' and
L'.

* V(s) is never further out than V'(s + 1): at integers by Corollary 3.1, and so on the lines
  between them. Hence L'(y) <= L(y) + 1 for every y on the same side of f and f'; and then
  ceil(L'(y)) <= ceil(L(y)) + 1.
* If f = f', only the cost of f remains, and |c - c'| <= 1 (``SensitivityProfile.depth``).
* If f and f' differ, one change moves either of them: c = c' = 1, and each costs 0 for its own
  dataset. For the other dataset it costs more than 0 and at most 1, and so does every y between
  them for both datasets.

With 2 - 2 c instead of 1 - c the range is 1.5 epsilon, with -c it is 2 epsilon, and the loss
exceeds epsilon with either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.distributions import PiecewiseExponential, Radial, Rounded, Tails
from dpjax.numerics.arrays import concatenate, fits
from dpjax.numerics.multiples import to_multiples
from dpjax.sensitivity import SensitivityProfile, VectorProfile

Profile = Annotated[
    SensitivityProfile | VectorProfile, "from a statistic of data, such as dpjax.median(x, ...)"
]
Support = Literal["restricted", "extended"]
Costs = Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def is_given(rho: ArrayLike) -> bool:
    """Return True unless rho is 0; a JAX array always counts as given, whatever its elements."""
    return isinstance(rho, jax.Array) or bool(np.any(np.asarray(rho) != 0))


def distribution_of(
    profile: SensitivityProfile | VectorProfile,
    epsilon: ArrayLike,
    costs: Costs,
    *,
    flat_cost: float,
    rho: ArrayLike = 0.0,
    support: Support = "restricted",
) -> PiecewiseExponential | Rounded | Radial:
    """Return the distribution of a profile with density proportional to exp(-epsilon/2 * cost).

    Steps of the profile become tails whose cost rises by 1 a step. A profile with a resolution has
    a distribution on its multiples, as described in the module docstring; that of a vector one in
    shells, with the costs at the ends of the shells.

    Args:
        profile: a profile of any batch shape.
        epsilon: positive, an array of the dtype of the profile.
        costs: a function from levels, ``(..., m+1)``, to the costs at the left and at the right end
            of the m pieces between them, ``(..., m)`` each.
        flat_cost: the cost within ``rho`` of the value if one change can move it; each further
            change that is needed lowers it by 1. With a resolution, the cost of the value itself.
        rho: nonnegative; shifts both sides outwards, which leaves a flat piece of length 2 rho
            around the value. Only for a profile on the real line, like ``support``.
        support: ``"restricted"`` conditions on the profile's range, the same for every dataset;
            ``"extended"`` adds rho on either side.

    Privacy:
        No guarantee by itself: epsilon-DP and epsilon-bounded-range hold if the cost changes by at
        most 1 between neighbors, which the mechanism that defines the costs must show for a flat
        piece of ``flat_cost``. For lower costs at a greater depth see ``SensitivityProfile.depth``.
        In shells, let u(y) be the index of the ball whose surface contains y, interpolated linearly
        in the norm between two balls. Lemma 5.2 of Durfee (2025) shows that u changes by at most 1
        between neighbors. So does a cost g(u) if g is nondecreasing with g(u + 1) <= g(u) + 1:
        piecewise Laplace has g(u) = u, and inverse sensitivity g(u) = ceil(u) in the k shells and
        g(u) = u beyond them.
    """
    checks.one_of("support", support, ("restricted", "extended"))
    radius = checks.nonnegative("rho", rho, profile.dtype) if is_given(rho) else None
    fits(profile.batch_shape, epsilon=jnp.shape(epsilon), rho=jnp.shape(rho))
    on_line = isinstance(profile, SensitivityProfile) and profile.resolution is None
    if not on_line and not (radius is None and support == "restricted"):
        raise ValueError(
            "rho and support must not be given for the profile of a vector or one with a "
            "resolution, whose draws are its multiples."
        )
    if isinstance(profile, VectorProfile):
        near, far = costs(jnp.arange(profile.radii.shape[-1], dtype=profile.dtype))
        rate = jnp.divide(epsilon, 2)
        return Radial(profile.value, profile.radii, near, far, rate, profile.step, p=profile.p)
    if not on_line and profile.support is None:
        raise ValueError(
            "profile must have a bounded support; for a count, which has equal unbounded steps, "
            "use dpjax.laplace."
        )
    return _on_line(profile, epsilon, radius, costs, flat_cost, support)


@partial(jax.jit, static_argnames=("costs", "flat_cost", "support"))
def _on_line(
    profile: SensitivityProfile,
    epsilon: jax.Array,
    radius: jax.Array | None,
    costs: Costs,
    flat_cost: float,
    support: Support,
) -> PiecewiseExponential | Rounded:
    """Return the distribution on the line, or on the multiples of the profile's resolution.

    On multiples, the pieces are those of the rho-smooth distribution in units of the resolution,
    with rho = 1/2: every edge lies between two integers, and the cost at the outer end of a cell is
    that of the multiple in it. In piecewise Laplace all costs are 1 higher than in the module
    docstring, which changes no probability.
    """
    resolution = profile.resolution
    if resolution is not None:
        values, step, bounds = jax.tree.map(
            lambda value: to_multiples(value, resolution),
            (profile.values, profile.step, profile.bounds),
        )
        profile = replace(profile, values=values, step=step, bounds=bounds, resolution=None)
        radius, support = jnp.asarray(0.5, profile.dtype), "extended"
    limits, center = profile.support, profile.center
    left, right = costs(profile.levels)
    edges, tails = profile.values, None
    if radius is not None:
        batch = jnp.broadcast_shapes(radius.shape, profile.batch_shape)
        shift = jnp.broadcast_to(radius, batch)[..., None]
        # A flat piece between the two values.
        edges = concatenate(edges[..., : center + 1] - shift, edges[..., center:] + shift)
        flat = flat_cost + 1 - profile.depth[..., None]
        left, right = (
            concatenate(costs[..., :center], flat, costs[..., center:]) for costs in (left, right)
        )
        if support == "extended" and limits is not None:
            limits = limits[0] - radius, limits[1] + radius
    if profile.step is not None:
        near, far = profile.levels[..., 0] + 1, profile.levels[..., -1] + 1
        tails = Tails(near, profile.step, far, profile.step)
    found = PiecewiseExponential(edges, left, right, epsilon / 2, tails)
    beyond = profile.bounds is not None or (radius is not None and support == "restricted")
    if beyond and limits is not None:
        found = found.restrict(*limits)
    if resolution is None:
        return found
    return Rounded(found.edges, found.cost_left, found.cost_right, found.rate, resolution)
