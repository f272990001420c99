"""The sampler for those who bring their own intervals: choose one, then place a point inside it (Durfee 2025, Algorithm 1)."""

from functools import partial
from math import prod
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.distributions.base import Shape, draws_shape
from dpjax.distributions.line import Lengths, Line
from dpjax.distributions.sampling import draw
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
    """Choose an interval with probability proportional to ``width * exp(-epsilon/2 * level)``, and a point inside it.

    ``within="exponential"`` places the point by a truncated exponential that decays by ``epsilon/2`` over the interval (piecewise
    Laplace), ``within="uniform"`` uniformly (inverse sensitivity).

    Args:
        key: a scalar typed threefry key.
        widths: float ``(..., m)``, the lengths; an interval of width 0 (padding, ties) is never chosen; a negative one counts as 0.
        levels: float ``(m,)`` or ``(..., m)``, the level of each interval: how many individuals must change to reach it; one of
            level ``inf`` is never chosen.
        epsilon: float that broadcasts against the batch shape ``(...)``.
        within: how the point is placed.
        shape: the shape of the draws from each row, an integer or several.

    Returns:
        The chosen index, int32, and the offset inside it, a length in ``[0, width]`` counted from the interval's low-cost end;
        both of shape ``shape + batch_shape``. A row without any width, or with a NaN, gives a NaN offset.

    Raises:
        TypeError: a key or an array of the wrong kind.
        ValueError: an epsilon that is not positive (as a Python or NumPy value), an unknown ``within``, shapes that do not fit.

    Privacy:
        None by itself: it is epsilon-DP and epsilon-bounded-range if the intervals of neighbouring datasets interleave as in
        Corollary 3.1 of the paper, as those of this library's statistics do. A float draw is a simulation, not a release.

    References:
        Durfee (2025), Algorithm 1; Gillenwater and Munoz Medina, Algorithm 1.

    >>> import jax, jax.numpy as jnp
    >>> index, offset = sample_intervals(jax.random.key(0), jnp.array([0.0, 2.0, 1.0]), jnp.arange(3.0), epsilon=1.0)
    >>> int(index) in (1, 2), 0 <= float(offset) <= 2
    (True, True)
    """
    checks.one_of("within", within, ("exponential", "uniform"))
    widths, levels = checks.float_array("widths", widths), checks.float_array("levels", levels)
    if widths.ndim == 0 or levels.ndim == 0 or widths.shape[-1] == 0 or levels.shape[-1] != widths.shape[-1]:
        raise ValueError(f"widths and levels need the same last axis, got shapes {widths.shape} and {levels.shape}.")
    rate = checks.positive("epsilon", epsilon, widths.dtype) / 2
    return _sample(check_key(key), widths, levels.astype(widths.dtype), rate, within == "exponential", draws_shape(shape))


@partial(jax.jit, static_argnames=("sloped", "shape"))
def _sample(
    key: jax.Array, widths: jax.Array, levels: jax.Array, rate: jax.Array, sloped: bool, shape: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    batch = jnp.broadcast_shapes(widths.shape[:-1], levels.shape[:-1], rate.shape)
    if prod(shape) == 0 or prod(batch) == 0:
        return jnp.zeros(shape + batch, jnp.int32), jnp.zeros(shape + batch, widths.dtype)
    never = levels == jnp.inf
    lengths = jnp.where(never | (widths < 0), 0.0, widths)
    line = line_of_intervals(lengths, jnp.where(never, 0.0, levels), rate[..., None], sloped)
    index, offset = draw(key, line, prod(shape), "auto")
    index = jnp.minimum(index, np.int32(widths.shape[-1] - 1))  # of a row without width it is anything
    return index.reshape(shape + batch), offset.reshape(shape + batch)


def line_of_intervals(widths: jax.Array, levels: jax.Array, rate: jax.Array, sloped: bool) -> Line:
    """Intervals ``(..., m)`` that all start at 0, with a rate ``(..., 1)``: a point is then the offset in its interval."""
    batch = jnp.broadcast_shapes(widths.shape[:-1], levels.shape[:-1], rate.shape[:-1])
    pieces = Lengths(widths, levels, levels + (1.0 if sloped else 0.0))
    none = Lengths(*(field[..., :0] for field in pieces))
    return Line.of((none, pieces), rate, None, batch)
