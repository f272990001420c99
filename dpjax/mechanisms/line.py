"""From a profile and a cost for each piece to a law on the line: what the exponential mechanisms of this folder share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.distributions.piecewise import PiecewiseExponential, Tails
from dpjax.numerics.batching import align, broadcast_rows, concatenate, fits
from dpjax.sensitivity.profile import SensitivityProfile

Support = Literal["restricted", "extended"]
PROFILES = "from a statistic such as dpjax.median; of a DownSensitivity, .shift(tau)"


def law_on_line(
    profile: SensitivityProfile,
    epsilon: ArrayLike,
    *,
    piece_costs: Callable[[jax.Array], tuple[jax.Array, jax.Array]],
    flat_cost: float,
    rho: ArrayLike,
    support: Support,
) -> PiecewiseExponential:
    """Lay the two sides of a profile on the line, with density proportional to exp(-epsilon/2 * cost).

    Args:
        profile: the profile, of any batch shape. Its steps, if any, become tails that go on with a cost of 1 for each.
        epsilon: positive, broadcasts against the profile's batch shape.
        piece_costs: from the levels of one side, ``(..., k+1)`` going outwards, to the costs at the near and at the far end of its
            k pieces, ``(..., k)`` each.
        flat_cost: the cost within ``rho`` of the value.
        rho: not negative; shifts both sides outwards, which leaves a flat piece of length 2 rho around the value.
        support: ``"restricted"`` conditions on the profile's range, for every dataset alike; ``"extended"`` keeps rho more on
            either side.

    Privacy:
        None by itself: epsilon-DP and epsilon-bounded-range hold if the cost changes by at most 1 between neighbours, which the
        mechanism that gives the costs must show.
    """
    checks.one_of("support", support, ("restricted", "extended"))
    rate = checks.positive("epsilon", epsilon, profile.dtype) / 2
    smooth = isinstance(rho, jax.Array) or bool(np.any(np.asarray(rho) != 0))
    radius = checks.nonnegative("rho", rho, profile.dtype) if smooth else None
    fits(profile.batch_shape, epsilon=rate.shape, rho=() if radius is None else radius.shape)
    return _law(profile, rate, radius, piece_costs, flat_cost, support)


@partial(jax.jit, static_argnames=("piece_costs", "flat_cost", "support"))
def _law(
    profile: SensitivityProfile,
    rate: jax.Array,
    radius: jax.Array | None,
    piece_costs: Callable[[jax.Array], tuple[jax.Array, jax.Array]],
    flat_cost: float,
    support: Support,
) -> PiecewiseExponential:
    lower, upper, limits = profile.lower, profile.upper, profile.support
    (lower_near, lower_far), (upper_near, upper_far) = piece_costs(profile.lower_levels), piece_costs(profile.upper_levels)
    if radius is not None:
        batch = jnp.broadcast_shapes(radius.shape, profile.batch_shape)
        shift = align(radius, len(batch))
        lower = broadcast_rows(lower, batch) - shift[..., None]
        upper = broadcast_rows(upper, batch) + shift[..., None]
        # The flat piece between the two values opens the upper side.
        flat = jnp.full((1,), flat_cost, profile.dtype)
        upper, upper_near, upper_far = (
            concatenate(lower[..., :1], upper),
            concatenate(flat, upper_near),
            concatenate(flat, upper_far),
        )
        if support == "extended" and limits is not None:
            limits = align(limits[0], len(batch)) - shift, align(limits[1], len(batch)) + shift
    tails = None
    if profile.step is not None:
        tails = Tails(profile.lower_levels[..., -1] + 1, profile.step, profile.upper_levels[..., -1] + 1, profile.step)
    law = PiecewiseExponential(
        edges=concatenate(jnp.flip(lower, -1), upper[..., 1:]),
        cost_left=concatenate(jnp.flip(lower_far, -1), upper_near),
        cost_right=concatenate(jnp.flip(lower_near, -1), upper_far),
        rate=rate,
        tails=tails,
        center=lower.shape[-1] - 1,
    )
    beyond = profile.bounds is not None or (radius is not None and support == "restricted")
    return law.restrict(*limits) if beyond and limits is not None else law
