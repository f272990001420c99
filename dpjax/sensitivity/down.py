"""Down sensitivity: the values of a monotone statistic after the worst l removals.

Adding one person can raise a maximum or a sum by any amount, but how far removals can lower it is a
property of the dataset. With

    h(l) = min{f(z): z a subset of x with at most l people removed},   h(0) = f(x),
    h(l) = f(empty) for l >= n,

and x' = x minus one person, h_x(l+1) <= h_x'(l) <= h_x(l) (the post's Lemmas 1 and 2, read in the
other direction). Such statistics are in :mod:`dpjax.statistics.monotone`.

Replacing a person is one removal and one addition, which move h in opposite directions: with y = x
without the old person, h_x(l+1) <= h_y(l) <= h_x'(l). So every guarantee here for one person more
or less also holds for one person replaced, at the same epsilon. (This is not true of profiles in
general.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.batch import Batch
from dpjax.checks import Relation, Resolution
from dpjax.numerics.arrays import concatenate
from dpjax.numerics.multiples import from_multiples, most_multiples, to_multiples
from dpjax.pytrees import pytree
from dpjax.sensitivity.profile import SensitivityProfile, from_sides


@pytree
class DownSensitivity(Batch):
    """Lower bounds on a monotone statistic after 0, 1, 2, ... people leave.

    ``values[..., l]`` is h(l). It is returned by the statistics of
    :mod:`dpjax.statistics.monotone`, and by :func:`from_removals` for any monotone function. It is
    a pytree and differentiable in the data; leading axes are a batch.

    Attributes:
        values: float ``(..., L+1)``, nonincreasing from f(x) to f(empty), which is public; h is
            constant beyond level L.
        upper: float ``(...)``, the public upper bound of the statistic's range.
        resolution: static, a public number of which all values are multiples; see
            :class:`SensitivityProfile`.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity", Equations 1 and 4; Fang,
        Dong and Yi (2022).

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics.monotone import maximum
    >>> down = maximum(jnp.array([3.0, 9.0, 4.0]), lower=0, upper=100)
    >>> down.values.tolist(), float(down.value), float(down.down_sensitivity(1))
    ([9.0, 4.0, 3.0, 0.0], 9.0, 5.0)
    """

    values: jax.Array
    upper: jax.Array
    resolution: Fraction | None = field(default=None, metadata={"static": True})

    _event_axes = ("values",)
    _next_step = ": dpjax.shifted_inverse takes it, .shift(tau) makes a profile of it"

    @property
    def value(self) -> jax.Array:
        """The statistic itself, f(x), of shape ``batch_shape``; not private."""
        return self.values[..., 0]

    @property
    def lower(self) -> jax.Array:
        """The value of the empty dataset, public, of the leading shape of ``values``."""
        return self.values[..., -1]

    @property
    def neighbors(self) -> Relation:
        """The neighbor relation, one person more or less.

        Guarantees also hold for a person replaced.
        """
        return "add_remove"

    def at(self, level: int) -> jax.Array:
        """Return h(level) for a static level >= 0; not private."""
        return self.values[
            ..., min(checks.static_integer("level", level, 0), self.values.shape[-1] - 1)
        ]

    def down_sensitivity(self, level: int) -> jax.Array:
        """Return DS^level (the post's Equation 1), the largest decrease if ``level`` people leave.

        It is not private.
        """
        return self.value - self.at(level)

    def shift(self, tau: int) -> SensitivityProfile:
        """Return the sensitivity profile around h(tau), for shifted inverse sensitivity.

        With H the linear interpolation of h: upwards it has H(tau - s) at level s = 1..tau and then
        the bound, downwards H(tau + s). ``inverse_sensitivity`` of it is the step version,
        ``piecewise_laplace`` the interpolated one (:func:`dpjax.shifted_inverse`). For the maximum
        it is the profile of the (tau+1)-th largest record.

        Args:
            tau: static, at least 1, chosen without the data, for example by
                :func:`dpjax.shift_for`.

        Returns:
            An interpolable profile of the same batch shape, with integer levels.

        Privacy:
            For x' = x minus one person, h_x(l+1) <= h_x'(l) <= h_x(l) at integer levels, so
            H_x(s+1) <= H_x'(s) <= H_x(s) at all real s >= 0 (both have the same fractional part).
            Hence upwards H_x'(tau - s) <= H_x(tau - s) <= H_x'(tau - (s+1)), and the bound is the
            largest value of all; downwards H_x'(tau + s) >= H_x(tau + s + 1) and H_x(tau + s) >=
            H_x'(tau + s). So the values at level s never lie beyond those of the neighbor at level
            s+1, on either side and in both directions: this is Corollary 3.1, also between integer
            levels.

        >>> import jax.numpy as jnp
        >>> from dpjax.statistics.monotone import maximum
        >>> profile = maximum(jnp.array([1.0, 5.0, 7.0, 8.0]), lower=0, upper=100).shift(2)
        >>> profile.upper.tolist(), profile.lower.tolist()
        ([5.0, 7.0, 8.0, 100.0], [5.0, 1.0, 0.0])
        """
        tau = checks.shift(tau)
        last = self.values.shape[-1] - 1
        above = self.values[..., np.minimum(np.arange(tau, -1, -1), last)]
        profile = from_sides(
            concatenate(above, self.upper[..., None]),
            self.values[..., min(tau, last) :],
            neighbors=self.neighbors,
        )
        return replace(profile, resolution=self.resolution)


def from_removals(
    values: ArrayLike, *, lower: ArrayLike, upper: ArrayLike, resolution: Resolution | None = None
) -> DownSensitivity:
    """Return the down sensitivity of a monotone statistic, from its minima after removals.

    For any function g of datasets, f(x) = max{g(z): z a subset of x} is monotone: if g may rise
    when people leave, pass the minima of f. L may be less than the number of people: when more than
    L leave, the value is ``lower``.

    Args:
        values: float ``(..., L+1)``, h(l) = min{f(z): z is x without at most l people}, from h(0) =
            f(x).
        lower: float ``(...)``, public: f of the empty dataset, and the smallest possible value.
        upper: float ``(...)``, public: the largest possible value.
        resolution: a public number of which all values are multiples; as in
            :mod:`dpjax.statistics`.

    Returns:
        A :class:`DownSensitivity` with L+2 values, within the bounds and nonincreasing, the last of
        which is ``lower``.

    Raises:
        ValueError: ``values`` have no axis of people who leave, or the bounds are invalid.

    Privacy:
        It depends on the caller's guarantee that the values are these minima, or at least that
        h_x(l+1) <= h_x'(l) <= h_x(l) for x' = x minus one person: the values of one greedy order of
        removals may violate it. Taking running minima, applying the bounds, and a number L chosen
        without the data preserve it.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity", Equations 1 and 4 and
        "Monotonicity Assumption".

    >>> from_removals([9.0, 4.0, 3.0], lower=0, upper=100).values.tolist()
    [9.0, 4.0, 3.0, 0.0]
    """
    array = checks.float_array("values", values)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(
            "values must have a last axis of the number of people who leave, with at least f(x), "
            f"got shape {array.shape}."
        )
    low, high = checks.bounds(lower, upper, array.dtype)
    return in_multiples(_falling, resolution, (lower, upper), array, low, high)


def in_multiples(
    values: Callable[..., jax.Array],
    resolution: Resolution | None,
    public: tuple[Any, ...],
    *arrays: jax.Array,
) -> DownSensitivity:
    """Return the down sensitivity with ``values(*arrays)``, the last of which is the upper bound.

    With a resolution, of which the ``public`` numbers must be multiples, the arrays are counted in
    its multiples.
    """
    if resolution is None:
        return DownSensitivity(values(*arrays), arrays[-1])
    most = most_multiples(arrays[-1].dtype)
    step = checks.resolution(resolution, public, most)
    counted = [to_multiples(array, step) for array in arrays]
    numbers, high = values(*counted), counted[-1]
    # The largest multiple that a float can count to.
    fits = jnp.maximum(abs(high[..., None]), abs(numbers[..., -1:])) <= most
    return DownSensitivity(
        jnp.where(fits, from_multiples(numbers, step), jnp.nan), from_multiples(high, step), step
    )


@jax.jit
def _falling(values: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Return running minima within the bounds, followed by the lower bound.

    They are NaN where a bound is NaN; NaN values count as the lower bound.
    """
    inside = jnp.clip(
        jnp.where(jnp.isnan(values), low[..., None], values), low[..., None], high[..., None]
    )
    return concatenate(jax.lax.cummin(inside, axis=inside.ndim - 1), low[..., None])
