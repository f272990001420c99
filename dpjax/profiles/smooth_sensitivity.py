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

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import parameters
from dpjax.profiles.order_statistics import Definition, median, order_statistic
from dpjax.profiles.profile import NEIGHBORS, Neighbors, SensitivityProfile
from dpjax.profiles.records import presence
from dpjax.profiles.sorting import Sort
from dpjax.shapes import align, broadcast_batch, broadcast_rows, take

_UNROLLED = 8  # lengths of one side that are tried in one pass over the row


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LocalSensitivity:
    """The local sensitivity of a statistic at every distance, A_0, A_1, ...; data, not private.

    Privacy of what is built on it rests on two properties: A_0(x) is at least the local sensitivity of x, and
    A_k(x) <= A_{k+1}(x') for neighbours x and x'. :func:`local_sensitivity` gives the exact values, which have both.

    Attributes:
        value: float ``(...)``, the statistic.
        at_distance: float ``(..., K)``, nondecreasing; the last one is the largest of all.
        lower: float ``(...)``, the public lower bound of the statistic.
        upper: float ``(...)``, the public upper bound.
        neighbors: static, the relation.

    >>> import jax.numpy as jnp
    >>> ages = jnp.array([20.0, 30.0, 50.0])
    >>> local_sensitivity(ages, lower=0, upper=100, neighbors="add_remove", definition="lower").at_distance.tolist()
    [10.0, 30.0, 50.0, 100.0]
    """

    value: jax.Array
    at_distance: jax.Array
    lower: jax.Array
    upper: jax.Array
    neighbors: Neighbors = field(default="add_remove", metadata={"static": True})

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes of the values."""
        return jnp.broadcast_shapes(self.value.shape, self.at_distance.shape[:-1], self.lower.shape, self.upper.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.value.dtype

    def smooth(self, beta: ArrayLike) -> SmoothSensitivity:
        """Return the smooth upper bound max_k A_k e^{-beta k}.

        Args:
            beta: positive, chosen without the data; broadcasts against ``batch_shape``, so ``beta[:, None]`` is a sweep.

        Returns:
            A :class:`SmoothSensitivity` of the broadcast batch shape.

        Raises:
            ValueError: a ``beta`` that is not positive.
        """
        rate = parameters.positive("beta", beta, self.dtype)
        bound = _smooth(self.at_distance, rate)
        given = rate if isinstance(beta, jax.Array) else np.asarray(beta, self.dtype)
        return SmoothSensitivity(self.value, bound, given, self.lower, self.upper, neighbors=self.neighbors)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SmoothSensitivity:
    """A statistic and a beta-smooth upper bound of its local sensitivity; data, not private.

    Privacy rests on: ``bound`` is at least the local sensitivity, and changes by a factor of at most e^beta between neighbours.

    Attributes:
        value: float ``(...)``, the statistic.
        bound: float ``(...)``, the smooth sensitivity, positive.
        beta: ``(...)``, public. It stays a NumPy array where it was given as a Python or NumPy value: mechanisms can then still
            raise if it leaves nothing of epsilon.
        lower: float ``(...)``, the public lower bound of the statistic.
        upper: float ``(...)``, the public upper bound.
        neighbors: static, the relation.

    References:
        Nissim, Raskhodnikova and Smith (2007), Definitions 2.1 and 2.2; Gillenwater and Munoz Medina, Definition 6.
    """

    value: jax.Array
    bound: jax.Array
    beta: jax.Array | np.ndarray
    lower: jax.Array
    upper: jax.Array
    neighbors: Neighbors = field(default="add_remove", metadata={"static": True})

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields."""
        return jnp.broadcast_shapes(*(np.shape(leaf) for leaf in jax.tree.leaves(self)))

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.value.dtype


def representable(smooth: SmoothSensitivity, rate: jax.Array) -> jax.Array:
    """Return ``rate``, or NaN where ``bound/rate`` could overflow: for every dataset alike, since that would tell them apart."""
    rank = max(rate.ndim, smooth.lower.ndim, smooth.upper.ndim)
    width = align(smooth.upper, rank) - align(smooth.lower, rank)
    rate = align(rate, rank)
    return jnp.where(width < rate * (float(jnp.finfo(rate.dtype).max) * 2.0**-20), rate, jnp.nan)


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
    sort: Sort = "auto",
) -> SmoothSensitivity:
    """Return the beta-smooth sensitivity of the median, max_k A_k e^{-beta k}.

    The same as ``local_sensitivity(...).smooth(beta)``, which costs less for several betas.

    Args:
        x: float ``(..., n)``, individuals on the last axis; NaN as in :func:`dpjax.quantile`.
        beta: positive, chosen **without the data**, broadcasts against ``(...)``. The published baselines choose beta (and alpha)
            to minimise bound/alpha on the private dataset itself, which is not private; with a fixed beta their error is at most
            10% larger in their experiments. :func:`optimal_beta` gives a good one.
        lower: public lower bound of the data, ``(...)``.
        upper: public upper bound of the data, ``(...)``.
        neighbors: ``"add_remove"`` or ``"swap"``.
        definition: ``"linear"``, the midpoint median, or ``"lower"``, x[ceil(n/2)], the median of the Duff paper.
        rank: static, under swap only: x[rank] instead of the median.
        count: int ``(...)``, how many leading records of each row are present (clamped to 0..n).
        mask: bool ``(..., n)``, which records are present.
        sort: as in :func:`dpjax.quantile`.

    Returns:
        A :class:`SmoothSensitivity`.

    Raises:
        TypeError: ``x`` is not numeric.
        ValueError: a ``beta`` that is not positive, ``lower >= upper``, an unknown option, a rank outside 1..n or under add/remove.

    Privacy:
        None by itself: an input of :func:`smooth_cauchy`, :func:`smooth_laplace` and :func:`smooth_laplace_log_normal`. Public:
        beta, the bounds and the shape of ``x``; under swap also the number of records.

    References:
        Nissim, Raskhodnikova and Smith (2007), Definition 2.2 and Claim 3.3; Gillenwater and Munoz Medina, Definition 6.

    >>> import jax.numpy as jnp
    >>> smooth_sensitivity(jnp.arange(1.0, 10.0), jnp.log(2.0), lower=0, upper=10, neighbors="swap").bound.item()
    1.0
    """
    return local_sensitivity(
        x, lower=lower, upper=upper, neighbors=neighbors, definition=definition, rank=rank, count=count, mask=mask, sort=sort
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
    sort: Sort = "auto",
) -> LocalSensitivity:
    """Return the local sensitivity of the median at every distance, exactly: A_k = max of LS(z) over d(x, z) <= k.

    Args:
        x: as in :func:`smooth_sensitivity`, like all others.
        lower: public lower bound of the data, ``(...)``.
        upper: public upper bound of the data, ``(...)``.
        neighbors: ``"add_remove"`` (O(n) operations a row) or ``"swap"`` (O(n^2)).
        definition: ``"linear"`` or ``"lower"``.
        rank: static, under swap only: x[rank] instead of the median.
        count: int ``(...)``, how many leading records of each row are present (clamped to 0..n).
        mask: bool ``(..., n)``, which records are present.
        sort: as in :func:`dpjax.quantile`.

    Returns:
        A :class:`LocalSensitivity` of batch shape ``(...)``, with ``at_distance`` of shape ``(..., n + 1)``.

    Raises:
        TypeError: ``x`` is not numeric.
        ValueError: ``lower >= upper``, an unknown option, a rank outside 1..n or under add/remove.

    Privacy:
        None by itself; A_k(x) <= A_{k+1}(x') for neighbours, which smooth bounds and propose-test-release rest on.

    References:
        Nissim, Raskhodnikova and Smith (2007), Claim 3.3 (swap, fixed rank). The forms for add/remove and for midpoints are this
        library's, compared with a search over all datasets on a grid in its tests.

    >>> import jax.numpy as jnp
    >>> local_sensitivity(jnp.array([20.0, 30.0, 50.0]), lower=0, upper=100, neighbors="add_remove").at_distance.tolist()
    [10.0, 15.0, 40.0, 50.0]
    """
    parameters.one_of("definition", definition, ("linear", "lower"))
    parameters.one_of("neighbors", neighbors, NEIGHBORS)
    if rank is not None and neighbors != "swap":
        raise ValueError("rank is for swap neighbors only; local_sensitivity_bound of an order_statistic's profile is for both.")
    given: Any = {"lower": lower, "upper": upper, "neighbors": neighbors, "count": count, "mask": mask, "sort": sort}
    profile = median(x, definition="lower", **given) if rank is None else order_statistic(x, rank, **given)
    midpoint = definition == "linear" and rank is None
    even: Any = False
    if midpoint and neighbors == "swap":
        even = _even_count(parameters.float_array("x", x), count, mask)
    low, high = parameters.bounds(lower, upper, profile.dtype)
    value, at_distance = _at_distance(profile.upper, profile.lower, neighbors, midpoint, np.shape(x)[-1] + 1, even)
    return LocalSensitivity(value, at_distance, low, high, neighbors=neighbors)


def local_sensitivity_bound(profile: SensitivityProfile) -> LocalSensitivity:
    """Return an upper bound of the local sensitivity at every distance, from any profile with integer levels.

    A_k = max(U[k+1] - L[k], U[k] - L[k+1]) with U, L the largest and smallest values within k changes.

    Args:
        profile: a profile of batch shape ``(...)`` with levels 0, 1, 2, ... and an end (no steps beyond its last level), and
            interpolable: its values interleave between neighbours from level 0 on.

    Returns:
        A :class:`LocalSensitivity`; A_0 is exact, the others may be about twice too large.

    Raises:
        ValueError: a profile with fractional levels, with steps, or that is not interpolable (the hull of a mean leaves out values
            that neighbours have).

    Privacy:
        Within k changes the statistic is in [L[k], U[k]], its neighbours' in [L[k+1], U[k+1]]: A_k is a bound. By Corollary 3.1,
        U[k](x) <= U[k+1](x') and L[k](x) >= L[k+1](x'), hence A_k(x) <= A_{k+1}(x').

    References:
        Durfee (2025), Corollary 3.1, for the property that is used.

    >>> import jax.numpy as jnp
    >>> from dpjax import order_statistic
    >>> profile = order_statistic(jnp.arange(1.0, 10.0), 8, lower=0, upper=10, neighbors="add_remove")
    >>> local_sensitivity_bound(profile).at_distance.tolist()[:3]
    [1.0, 3.0, 5.0]
    """
    if not profile.integer_levels or profile.step is not None:
        raise ValueError("local_sensitivity_bound needs integer levels that end at a bound: truncate the profile without a step.")
    if not profile.interpolable:
        raise ValueError(
            "the values of this profile are not all that neighbours have, and bound no sensitivity: it is not interpolable."
        )
    size = max(profile.upper.shape[-1], profile.lower.shape[-1]) + 1
    up, down = _extend(profile.upper, size), _extend(profile.lower, size)
    at_distance = jnp.maximum(up[..., 1:] - down[..., :-1], up[..., :-1] - down[..., 1:])
    support = profile.support
    low, high = (profile.lower[..., -1], profile.upper[..., -1]) if support is None else support
    return LocalSensitivity(profile.value, at_distance, low, high, neighbors=profile.neighbors)


def _even_count(records: jax.Array, count: ArrayLike | None, mask: ArrayLike | None) -> Any:
    """Whether the number of records is even: a Python bool if all are present, otherwise ``(..., 1)``."""
    there = presence(records, count, mask)
    if there is None:
        return records.shape[-1] % 2 == 0
    there = jnp.broadcast_to(there, jnp.broadcast_shapes(there.shape, (records.shape[-1],)))
    return jnp.sum(there, axis=-1, keepdims=True, dtype=jnp.int32) % 2 == 0


@partial(jax.jit, static_argnames=("neighbors", "midpoint", "size", "even"), inline=True)
def _static(up: jax.Array, down: jax.Array, neighbors: str, midpoint: bool, size: int, even: bool) -> tuple[jax.Array, jax.Array]:
    """The statistic ``(...)`` and A_0..A_{size-1}, from x[m], x[m+1], ... and x[m], x[m-1], ... (or those at Duff's ranks)."""
    middle = up[..., 0] + (up[..., 1] - up[..., 0]) / 2
    if neighbors == "add_remove":
        high, low = _extend(up, size + 2), _extend(down, size + 1)
        whole = high[..., 1:-1] - low[..., 1:]
        if not midpoint:
            return up[..., 0], whole
        return middle, jnp.maximum(whole, high[..., 2:] - low[..., :-1]) / 2
    if midpoint and even:
        return middle, _widest(up, down, size, 2) / 2
    return up[..., 0], _widest(up, down, size, 1)


@partial(jax.jit, static_argnames=("neighbors", "midpoint", "size"))
def _dynamic(up: jax.Array, down: jax.Array, neighbors: str, midpoint: bool, size: int, even: jax.Array) -> tuple[jax.Array, ...]:
    when_even, when_odd = (_static(up, down, neighbors, midpoint, size, parity) for parity in (True, False))
    batch = jnp.broadcast_shapes(even.shape[:-1], when_even[0].shape)
    even = broadcast_rows(even, batch)
    value = jnp.where(even[..., 0], broadcast_batch(when_even[0], batch), broadcast_batch(when_odd[0], batch))
    return value, jnp.where(even, broadcast_rows(when_even[1], batch), broadcast_rows(when_odd[1], batch))


def _at_distance(up: jax.Array, down: jax.Array, neighbors: str, midpoint: bool, size: int, even: Any) -> Any:
    compute = _static if isinstance(even, bool) else _dynamic
    return compute(up, down, neighbors, midpoint, size, even)


def _extend(side: jax.Array, size: int) -> jax.Array:
    """Repeat the last value up to ``size`` entries."""
    end = jnp.broadcast_to(side[..., -1:], (*side.shape[:-1], max(size - side.shape[-1], 0)))
    return jnp.concatenate([side, end], axis=-1)[..., :size]


def _widest(up: jax.Array, down: jax.Array, size: int, extra: int) -> jax.Array:
    """Return for k = 0..size-1 the largest ``up[t] - down[s]`` over s + t = k + extra, s >= 0, t >= extra - 1.

    The search looks for the best s of every k without derivatives; the values are then read there, so that a gradient costs O(n).
    """
    most = down.shape[-1] - 1  # beyond it, the ends repeat
    rounds = -(-(most + 1) // _UNROLLED)
    before = rounds * _UNROLLED  # entries of -inf in front: where t would be too small
    high = _extend(up, size + extra)
    low = _extend(down, before)
    batch = high.shape[:-1]
    impossible = jnp.full((*batch, before + extra - 1), -jnp.inf, up.dtype)
    ahead = jnp.concatenate([impossible, high[..., extra - 1 :]], axis=-1)

    def longer(number: jax.Array, best: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        value, where = best
        for step in range(_UNROLLED):
            s = number * _UNROLLED + step
            reach = jax.lax.dynamic_slice_in_dim(ahead, before + extra - s, size, axis=-1)
            width = reach - jax.lax.dynamic_slice_in_dim(low, s, 1, axis=-1)
            better = ~(width <= value)  # a NaN wins
            value, where = jnp.where(better, width, value), jnp.where(better, s, where)
        return value, where

    start = jnp.full((*batch, size), -jnp.inf, up.dtype), jnp.zeros((*batch, size), jnp.int32)
    ahead, low = jax.lax.stop_gradient((ahead, low))
    _, s = jax.lax.fori_loop(0, rounds, longer, start)
    k = jnp.arange(size, dtype=jnp.int32).reshape((1,) * len(batch) + (-1,))
    return take(high, k + np.int32(extra) - s) - take(_extend(down, before), s)


@jax.jit
def _smooth(at_distance: jax.Array, beta: jax.Array) -> jax.Array:
    batch = jnp.broadcast_shapes(at_distance.shape[:-1], beta.shape)
    rate = align(beta, len(batch))[..., None]
    # A multiple of 32 exponentials: XLA rounds those of a remainder loop differently, and padded data must give the same draws.
    lengths = align(_extend(at_distance, -(-at_distance.shape[-1] // 32) * 32), len(batch) + 1)
    k = jnp.arange(lengths.shape[-1], dtype=lengths.dtype).reshape((1,) * len(batch) + (-1,))
    # In halves: e^(-beta k) itself can underflow where its product with a long gap does not.
    half = jnp.exp(-rate / 2 * k)
    bound = jnp.max(lengths * half * half, axis=-1)
    # Long ties make it underflow. The maximum with a constant keeps both properties of a smooth bound, and a positive scale.
    return jnp.maximum(bound, float(jnp.finfo(bound.dtype).tiny) * 2.0**20)
