"""Local sensitivity of the median at every distance, and its smooth upper bound (Nissim, Raskhodnikova and Smith 2007).

With A_k the largest local sensitivity among the datasets within k changes, the beta-smooth sensitivity is max_k A_k e^{-beta k}.
With x[1..n] sorted, x[j] = lower for j <= 0 and x[j] = upper for j > n, a local sensitivity is the length of a gap (x[i], x[j])
that is emptied and moved to the middle, and A_k has these exact forms:

    relation     median        A_k
    add/remove   x[ceil(n/2)]  x[floor((n+k)/2) + 1] - x[ceil((n-1-k)/2)]
    add/remove   midpoint      half of the largest x[i+k+1] - x[i] over i = ceil((n-1-k)/2), and the next i where n + k is odd
    swap         x[m]          the largest x[j] - x[i] over i <= m <= j, j - i = k + 1
    swap         midpoint      n even, m = n/2: half of the largest x[j] - x[i] over i <= m < j, j - i = k + 2; n odd: as x[m]

Under add/remove each A_k is read at one or two places, so all of them cost O(n); under swap they cost O(n^2), whatever the number
of betas. The midpoint median moves by half a gap: its smooth sensitivity is half that of x[ceil(n/2)] on dense data.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.numerics.batching import take
from dpjax.sensitivity import LocalSensitivity, SmoothSensitivity
from dpjax.sensitivity.profile import extend
from dpjax.several_quantiles.ranks import Definition
from dpjax.statistics.quantiles import median, order_statistic
from dpjax.statistics.records import presence


def smooth_sensitivity(
    x: ArrayLike,
    beta: ArrayLike,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    definition: Definition = "linear",
    rank: int | None = None,
    count: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> SmoothSensitivity:
    """Return the beta-smooth sensitivity of the median, max_k A_k e^{-beta k}.

    The same as ``local_sensitivity(...).smooth(beta)``, which costs less for several betas.

    Args:
        x: as in :func:`local_sensitivity`, like all others.
        beta: positive, chosen **without the data**, broadcasts against ``(...)``; :func:`optimal_beta` gives a good one. The
            published baselines choose beta (and alpha) to minimise bound/alpha on the private dataset itself, which is not private.

    Returns:
        A :class:`SmoothSensitivity`.

    Privacy:
        None by itself: an input of :func:`smooth_cauchy`, :func:`smooth_laplace` and :func:`smooth_laplace_log_normal`. Public:
        beta, and see :mod:`dpjax.statistics`.

    References:
        Nissim, Raskhodnikova and Smith (2007), Definition 2.2 and Claim 3.3; Gillenwater and Munoz Medina, Definition 6.

    >>> import jax.numpy as jnp
    >>> smooth_sensitivity(jnp.arange(1.0, 10.0), jnp.log(2.0), lower=0, upper=10, neighbors="swap").bound.item()
    1.0
    """
    return local_sensitivity(
        x, lower=lower, upper=upper, neighbors=neighbors, definition=definition, rank=rank, count=count, mask=mask
    ).smooth(beta)


def local_sensitivity(
    x: ArrayLike,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    neighbors: Neighbors,
    definition: Definition = "linear",
    rank: int | None = None,
    count: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> LocalSensitivity:
    """Return the local sensitivity of the median at every distance, exactly: A_k = max of LS(z) over d(x, z) <= k.

    Args:
        x: float ``(..., n)``. The other arguments: :mod:`dpjax.statistics`.
        neighbors: ``"add_remove"`` (O(n) operations a row) or ``"swap"`` (O(n^2)).
        definition: ``"linear"``, the midpoint median, or ``"lower"``, x[ceil(n/2)], the median of the Duff paper.
        rank: static, under swap only: x[rank] instead of the median.

    Returns:
        A :class:`LocalSensitivity` of batch shape ``(...)``, with ``at_distance`` of shape ``(..., n + 1)``.

    Privacy:
        None by itself; A_k(x) <= A_{k+1}(x') for neighbours, which smooth bounds and propose-test-release rest on.

    References:
        Nissim, Raskhodnikova and Smith (2007), Claim 3.3 (swap, fixed rank). The forms for add/remove and for midpoints are this
        library's, compared with a search over all datasets on a grid in its tests.

    >>> import jax.numpy as jnp
    >>> local_sensitivity(jnp.array([20.0, 30.0, 50.0]), lower=0, upper=100, neighbors="add_remove").at_distance.tolist()
    [10.0, 15.0, 40.0, 50.0]
    """
    checks.one_of("definition", definition, ("linear", "lower"))
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    if rank is not None and neighbors != "swap":
        raise ValueError("rank is for swap neighbors only; local_sensitivity_bound of an order_statistic's profile is for both.")
    given: Any = {"lower": lower, "upper": upper, "neighbors": neighbors, "count": count, "mask": mask}
    profile = median(x, definition="lower", **given) if rank is None else order_statistic(x, rank, **given)
    low, high = checks.bounds(lower, upper, profile.dtype)
    midpoint, n = definition == "linear" and rank is None, np.shape(x)[-1]

    def found(midpoint: bool) -> tuple[jax.Array, jax.Array]:
        return _at_distance(profile.upper, profile.lower, neighbors, midpoint, n + 1)

    present = presence(checks.float_array("x", x), count, mask)
    if neighbors == "add_remove" or not midpoint:
        value, at_distance = found(midpoint)
    elif present is None:
        value, at_distance = found(n % 2 == 0)
    else:
        even = jnp.sum(present, axis=-1, dtype=jnp.int32) % 2 == 0
        (value, at_distance), (middle, between) = found(False), found(True)
        value, at_distance = jnp.where(even, middle, value), jnp.where(even[..., None], between, at_distance)
    return LocalSensitivity(value, at_distance, low, high, neighbors=neighbors)


@partial(jax.jit, static_argnames=("neighbors", "midpoint", "size"))
def _at_distance(up: jax.Array, down: jax.Array, neighbors: str, midpoint: bool, size: int) -> tuple[jax.Array, jax.Array]:
    """The statistic ``(...)`` and A_0..A_{size-1}, from x[m], x[m+1], ... and x[m], x[m-1], ... (or those at Duff's ranks).

    Under swap, the midpoint is that of an even number of records.
    """
    value = up[..., 0] + (up[..., 1] - up[..., 0]) / 2 if midpoint else up[..., 0]
    if neighbors == "swap":
        return value, _widest(up, down, size, 2) / 2 if midpoint else _widest(up, down, size, 1)
    high, low = extend(up, size + 2), extend(down, size + 1)
    whole = high[..., 1:-1] - low[..., 1:]
    return value, jnp.maximum(whole, high[..., 2:] - low[..., :-1]) / 2 if midpoint else whole


def _widest(up: jax.Array, down: jax.Array, size: int, extra: int) -> jax.Array:
    """Return for k = 0..size-1 the largest ``up[t] - down[s]`` over s + t = k + extra, s >= 0, t >= extra - 1.

    The search looks for the best s of every k without derivatives; the values are then read there, so that a gradient costs O(n).
    """
    many = down.shape[-1]  # beyond them, the ends repeat
    high = extend(up, size + extra)
    impossible = jnp.full((*high.shape[:-1], many + extra - 1), -jnp.inf, up.dtype)  # where t would be too small
    ahead = jnp.concatenate([impossible, high[..., extra - 1 :]], axis=-1)
    ahead, low = jax.lax.stop_gradient((ahead, down))

    def longer(s: jax.Array, best: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        value, where = best
        reach = jax.lax.dynamic_slice_in_dim(ahead, many + extra - s, size, axis=-1)
        width = reach - jax.lax.dynamic_slice_in_dim(low, s, 1, axis=-1)
        better = ~(width <= value)  # a NaN wins
        return jnp.where(better, width, value), jnp.where(better, s, where)

    batch = (*high.shape[:-1], size)
    start = jnp.full(batch, -jnp.inf, up.dtype), jnp.zeros(batch, jnp.int32)
    _, s = jax.lax.fori_loop(np.int32(0), np.int32(many), longer, start, unroll=8)
    k = np.arange(size, dtype=np.int32)
    return take(high, k + np.int32(extra) - s) - take(down, s)
