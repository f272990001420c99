"""Sensitivity profiles from radii and local sensitivities (Durfee 2025, Section 5)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Relation
from dpjax.numerics.arrays import concatenate
from dpjax.sensitivity.local import LocalSensitivity
from dpjax.sensitivity.profile import SensitivityProfile, from_sides, jump


def from_radii(
    value: ArrayLike,
    radii: ArrayLike,
    *,
    neighbors: Relation,
    radii_below: ArrayLike | None = None,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    step: ArrayLike | None = None,
) -> SensitivityProfile:
    """Return the profile of radius bounding functions: f(x) plus and minus R_1, R_1 + R_2, ...

    Each element of ``value`` is the statistic of a separate dataset. For a statistic with several
    components see :func:`from_vector_radii`: here each of d components would spend its own epsilon.

    Args:
        value: float ``(...)``, the statistic f(x) of each dataset.
        radii: float ``(..., k)``, the increments R_1..R_k of Definition 5.1, with an axis for each
            axis of ``value``; a negative one counts as 0. They hold above and below f(x), or only
            above it if ``radii_below`` is given. For radii shared by all datasets of a batch, pass
            ``radii[None]``.
        neighbors: ``"add_remove"``, ``"swap"`` or ``"edge"`` (a graph with one edge more or less),
            the relation under which the radii hold.
        radii_below: the increments below f(x), for the asymmetric relaxation of Section 5.2.
        lower: float ``(...)``, public lower bound; give both bounds or neither. Values beyond the
            bounds are clamped to them after the radii are added.
        upper: float ``(...)``, public upper bound.
        step: positive ``(...)``, the global sensitivity, used for every level after the last
            radius; with bounds, the steps are cut there. Equal radii above and below are clamped to
            it. Without it, the level after the last radius extends to the bound, so bounds are
            required.

    Returns:
        A profile of the batch shape of ``value`` and the radii.

    Raises:
        ValueError: ``radii`` have no axis for each axis of ``value``; there are neither bounds nor
            ``step``; or a public parameter is invalid.

    Privacy:
        It depends on the caller's guarantee. With one set of radii: for neighbors x and x', R_1(x)
        >= abs(f(x) - f(x')) and R_l(x) <= R_{l+1}(x'), and the radii must not decrease. A constant
        R_l = LS(x) violates it (a cost sensitivity of 3). With separate radii on each side, which
        may decrease, Corollary 3.1: f(x) + R_1(x) + ... + R_l(x) is at most the same sum for x'
        with l + 1 radii, and likewise below, also for the levels that ``step`` and the bounds add.
        In floating point f(x) + R is rounded: the radii must be well above the spacing of floats at
        f(x) (0.06 at 10^6 in float32), or whole levels move; subtract a public origin first.

    References:
        Durfee (2025), Definition 5.1, Corollaries 5.1 and 5.2.

    >>> profile = from_radii(5.0, [1.0, 2.0], neighbors="swap", lower=0, upper=10)
    >>> profile.upper.tolist(), profile.lower.tolist()
    ([5.0, 6.0, 8.0, 10.0], [5.0, 4.0, 2.0, 0.0])
    """
    checks.one_of("neighbors", neighbors, checks.RELATIONS)
    if (lower is None) != (upper is None):
        raise ValueError("lower and upper must be given together, or neither of them.")
    if lower is None and step is None:
        raise ValueError(
            "lower and upper, or step, or all three must be given: they determine the levels after "
            "the last radius."
        )
    center = checks.float_array("value", value)
    above = checks.float_array("radii", radii).astype(center.dtype)
    below = (
        above
        if radii_below is None
        else checks.float_array("radii_below", radii_below).astype(center.dtype)
    )
    if above.ndim == 0 or below.ndim == 0:
        raise ValueError("radii must have a last axis of levels; for one radius pass [radius].")
    if min(above.ndim, below.ndim) <= center.ndim:
        raise ValueError(
            "radii must be (..., k) with an axis for each axis of value (radii[None] are shared "
            f"by all datasets), got shapes {above.shape} and {center.shape}; for a statistic with "
            "several components use from_vector_radii."
        )
    bounds = None if lower is None or upper is None else checks.bounds(lower, upper, center.dtype)
    size = None if step is None else checks.positive("step", step, center.dtype)
    shapes = [leaf.shape for leaf in jax.tree.leaves((center, size, bounds))]
    batch = jnp.broadcast_shapes(*shapes, above.shape[:-1], below.shape[:-1])
    center, bounds = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, batch), (center, bounds))
    # R_K <= R_{K+1} = step; min with a constant preserves Definition 5.1.
    if size is not None and radii_below is None:
        above = below = jnp.minimum(above, size[..., None])

    def side(increments: jax.Array, sign: int) -> jax.Array:
        values = add_up(center, increments, sign)
        # The jump clamps f(x) itself too, and only after the radii are added.
        return jump(values, bounds, sign) if size is None and bounds is not None else values

    found = from_sides(side(above, 1), side(below, -1), neighbors=neighbors, step=size)
    return found if size is None else replace(found, bounds=bounds)


@partial(jax.jit, inline=True)
def add_up(center: jax.Array, increments: jax.Array, sign: int) -> jax.Array:
    """Return the center and the ends after each increment; negative ones count as 0."""
    distance = jnp.cumsum(jnp.maximum(increments, 0.0), axis=-1)
    return concatenate(center[..., None], center[..., None] + sign * distance)


def from_local_sensitivity(
    value: ArrayLike | LocalSensitivity,
    local_sensitivity_at: Any = None,
    *,
    num_levels: int | None = None,
    step: ArrayLike | None = None,
    **given: Any,
) -> SensitivityProfile:
    """Return the profile whose l-th increment is the largest local sensitivity within l-1 changes.

    In particular, R_1 = LS(x).

    Args:
        value: a :class:`LocalSensitivity`, with which only ``num_levels`` and ``step`` may be
            given; or float ``(...)``, the statistic f(x) of each dataset.
        local_sensitivity_at: the local sensitivity at distance 0, 1, 2, ...: the largest change
            that one individual can make to f at any dataset within that many changes of x, or an
            upper bound A_k of it with A_k(x) <= A_{k+1}(x') for neighbors. Either a function from
            the distance, a Python integer, to an array ``(...)``, or an array ``(..., k)``, with an
            axis for each axis of ``value``. A running maximum makes it nondecreasing.
        num_levels: static, the number of distances that are used; by default all of an array,
            required for a function.
        step: as in :func:`from_radii`.
        **given: ``neighbors``, ``lower`` and ``upper``, as in :func:`from_radii`.

    Returns:
        A profile of the batch shape of ``value`` and the local sensitivities.

    Raises:
        ValueError: ``num_levels`` is missing or exceeds the array; and as :func:`from_radii`.

    Privacy:
        Definition 5.1 holds if the local sensitivities are correct: a dataset within l-1 changes of
        x is within l of any neighbor x', so R_l(x) <= R_{l+1}(x'), and R_1(x) = LS(x) >= abs(f(x) -
        f(x')). Corollary 5.1 as printed uses the distance l in place of l-1: private too, but with
        more noise. LS(x) at every distance is not private: its cost sensitivity is 3.

    References:
        Durfee (2025), Corollary 5.1; Nissim, Raskhodnikova and Smith (2007), for the local
        sensitivity at distance k. It is easier to compute, but less accurate: on the median of 1001
        normal records the error is that of the exact profile times 12, 6 and 3 at epsilon 0.5, 1
        and 2 under swap, times 24, 12 and 5 under add/remove
        (``benchmarks/experiments/optimality.py``).

    >>> profile = from_local_sensitivity(
    ...     5.0, lambda k: 1.0 + k, neighbors="swap", num_levels=2, lower=0, upper=10
    ... )
    >>> profile.upper.tolist()
    [5.0, 6.0, 8.0, 10.0]
    """
    if num_levels is not None:
        num_levels = checks.static_integer("num_levels", num_levels, 1, must="a positive integer")
    if isinstance(value, LocalSensitivity):
        if local_sensitivity_at is not None or given:
            raise TypeError(
                "only num_levels and step can be given with a LocalSensitivity, which has its own "
                "bounds and relation."
            )
        local_sensitivity_at = value.at_distance
        given = {"neighbors": value.neighbors, "lower": value.lower, "upper": value.upper}
        value = value.value
    center = checks.float_array("value", value)
    if callable(local_sensitivity_at):
        if num_levels is None:
            raise ValueError(
                "num_levels must be given if local_sensitivity_at is a function: the number of "
                "distances to use."
            )
        each = [
            checks.float_array("local_sensitivity_at", local_sensitivity_at(k))
            for k in range(num_levels)
        ]
        at = concatenate(*(one.astype(center.dtype)[..., None] for one in each))
    else:
        at = checks.float_array("local_sensitivity_at", local_sensitivity_at).astype(center.dtype)
        if at.ndim == 0 or at.shape[-1] < (num_levels or 1):
            raise ValueError(
                f"local_sensitivity_at must have at least {num_levels or 1} distances on its last "
                f"axis, got shape {at.shape}."
            )
        at = at[..., :num_levels]
    radii = jax.lax.cummax(at, axis=at.ndim - 1)
    return from_radii(center, radii, step=step, **given)
