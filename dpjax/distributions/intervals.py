"""The sampler of piecewise mechanisms for intervals from elsewhere (Durfee 2025, Algorithm 1)."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.distributions.base import Shape, draws_first, draws_shape
from dpjax.distributions.line import Line
from dpjax.distributions.sampler import sample_pieces
from dpjax.pytrees import pytree
from dpjax.random.keys import check_key


def sample_intervals(
    key: jax.Array,
    widths: ArrayLike,
    levels: ArrayLike,
    *,
    epsilon: ArrayLike,
    within: Literal["exponential", "uniform"] = "exponential",
    shape: Shape = (),
) -> tuple[jax.Array, jax.Array]:
    """Draw an interval with probability proportional to ``width * exp(-epsilon/2 * level)``.

    A point is then drawn inside the interval.

    With ``within="exponential"``, the point has a truncated exponential distribution that decays by
    ``epsilon/2`` over the interval (piecewise Laplace); with ``within="uniform"`` it is uniform
    (inverse sensitivity).

    Args:
        key: a scalar typed threefry key.
        widths: float ``(..., m)``, the lengths of the intervals. An interval of width 0 (padding,
            ties) is never chosen; a negative width counts as 0.
        levels: float ``(m,)`` or ``(..., m)``, the level of each interval: the number of
            individuals who must change to reach it. An interval of level ``inf`` is never chosen.
        epsilon: float that broadcasts against the batch shape ``(...)``.
        within: the distribution of the point inside its interval.
        shape: the shape of the draws from each row, an integer or a sequence of integers.

    Returns:
        The index of the interval, int32, and the offset of the point, a length in ``[0, width]``
        from the interval's low-cost end, both of shape ``shape + batch_shape``. The offset is NaN
        for a row with a NaN or without a positive width.

    Raises:
        TypeError: ``key`` is not a typed key, or an array is not numeric.
        ValueError: ``epsilon`` (as a Python or NumPy value) is not positive, ``within`` is unknown,
            or shapes do not fit.

    Privacy:
        The sampler alone gives no guarantee. It is epsilon-DP and epsilon-bounded-range if the
        intervals of neighboring datasets interleave as in Corollary 3.1 of the paper, as those of
        this library's statistics do. A draw in floating point is a simulation, not a release.

    References:
        Durfee (2025), Algorithm 1; Gillenwater and Munoz Medina, Algorithm 1.

    >>> import jax, jax.numpy as jnp
    >>> index, offset = sample_intervals(
    ...     jax.random.key(0), jnp.array([0.0, 2.0, 1.0]), jnp.arange(3.0), epsilon=1.0
    ... )
    >>> int(index) in (1, 2), 0 <= float(offset) <= 2
    (True, True)
    """
    checks.one_of("within", within, ("exponential", "uniform"))
    widths, levels = checks.float_array("widths", widths), checks.float_array("levels", levels)
    if widths.shape[-1:] in ((), (0,)) or levels.shape[-1:] != widths.shape[-1:]:
        raise ValueError(
            "widths and levels must have the same last axis, of size at least 1, got shapes "
            f"{widths.shape} and {levels.shape}."
        )
    rate = checks.positive("epsilon", epsilon, widths.dtype) / 2
    return _sample(
        check_key(key),
        widths,
        levels.astype(widths.dtype),
        rate,
        within == "exponential",
        draws_shape(shape),
    )


@partial(jax.jit, static_argnames=("sloped", "shape"))
def _sample(
    key: jax.Array,
    widths: jax.Array,
    levels: jax.Array,
    rate: jax.Array,
    sloped: bool,
    shape: tuple[int, ...],
) -> tuple[jax.Array, jax.Array]:
    batch = jnp.broadcast_shapes(widths.shape[:-1], levels.shape[:-1], rate.shape)
    if prod(shape) == 0 or prod(batch) == 0:
        return jnp.zeros(shape + batch, jnp.int32), jnp.zeros(shape + batch, widths.dtype)
    rate, size = rate[..., None], widths.shape[-1]
    lengths = jnp.where((levels == jnp.inf) | (widths < 0), 0.0, widths)
    origin = jnp.zeros((size + 1,), widths.dtype)
    line = _Intervals(origin, levels, levels + (1.0 if sloped else 0.0), rate, batch, lengths)
    index, place = sample_pieces(key, line, prod(shape))
    return draws_first(index, shape), draws_first(place, shape)


@pytree
class _Intervals(Line):
    """Pieces that all start at 0."""

    def ends(self, at: Any) -> tuple[jax.Array, jax.Array]:
        width = self.width(at)
        return jnp.zeros_like(width), width
