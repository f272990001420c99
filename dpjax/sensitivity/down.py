"""Down sensitivity: the values of a monotone statistic after the worst l removals, and the profile around a shifted level.

Adding one person can raise a maximum or a sum by any amount, but removing people can lower it no further than the data at hand
allow. With

    h(l) = min{f(z): z a subset of x with at most l people removed},   h(0) = f(x),   h(l) = f(empty) for l >= n,

and x' = x minus one person, h_x(l+1) <= h_x'(l) <= h_x(l) (the post's Lemmas 1 and 2, read backwards).
:mod:`dpjax.statistics.monotone` has such statistics.

A person replaced is one removed and one added, which move h in opposite directions: through y = x without the old one,
h_x(l+1) <= h_y(l) <= h_x'(l). So everything here that is private for one person more or less is so for one replaced, at the same
epsilon. (That does not hold for profiles in general.)
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.batch import Batch
from dpjax.checks import Relation, Resolution
from dpjax.numerics.batching import concatenate
from dpjax.numerics.multiples import from_multiples, most_multiples, to_multiples
from dpjax.sensitivity.profile import SensitivityProfile, extend, from_sides


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class DownSensitivity(Batch):
    """The values that a monotone statistic keeps at least, after 0, 1, 2, ... people leave.

    ``values[..., l]`` is h(l). The statistics of :mod:`dpjax.statistics.monotone` make it, and :func:`from_removals` that of a
    monotone function of your own. It is a pytree and differentiable in the data; leading axes are a batch.

    Attributes:
        values: float ``(..., L+1)``, nonincreasing from f(x) to f(empty), which is public; h stays there beyond level L.
        upper: float ``(...)``, public upper bound of the statistic's range.
        resolution: static, a public number that all values are multiples of; see :class:`SensitivityProfile`.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity", Equations 1 and 4; Fang, Dong and Yi (2022).

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
        """The statistic itself, f(x), of shape ``batch_shape``. It is not private."""
        return self.values[..., 0]

    @property
    def lower(self) -> jax.Array:
        """The value of the empty dataset, public, of the values' leading shape."""
        return self.values[..., -1]

    @property
    def neighbors(self) -> Relation:
        """The relation of the guarantees, one person more or less; they also hold for one person replaced."""
        return "add_remove"

    def at(self, level: int) -> jax.Array:
        """h(level) for a static level from 0 on. It is not private."""
        return self.values[..., min(checks.static_integer("level", level, 0), self.values.shape[-1] - 1)]

    def down_sensitivity(self, level: int) -> jax.Array:
        """DS^level of the post's Equation 1: how far removing that many people can lower the statistic. It is not private."""
        return self.value - self.at(level)

    def shift(self, tau: int) -> SensitivityProfile:
        """Return the sensitivity profile around h(tau), which makes any mechanism on the line a shifted inverse sensitivity.

        With H the linear interpolation of h: upwards H(tau - s) at level s = 1..tau and then the bound, downwards H(tau + s).
        ``inverse_sensitivity`` on it is the step version, ``piecewise_laplace`` the interpolated one
        (:func:`dpjax.shifted_inverse`). For the maximum it is the profile of the (tau+1)-th largest
        record, counted from the top.

        Args:
            tau: static, at least 1, and chosen without the data: ``shift_for`` of the mechanism's module.

        Returns:
            A profile of the same batch shape, with integer levels, that may be interpolated.

        Privacy:
            For x' = x minus one person, h_x(l+1) <= h_x'(l) <= h_x(l) at integer levels, so H_x(s+1) <= H_x'(s) <= H_x(s) at all
            real s >= 0 (the two share their fractional part). Hence upwards H_x'(tau - s) <= H_x(tau - s) <= H_x'(tau - (s+1)),
            and the bound is the largest value of all; downwards H_x'(tau + s) >= H_x(tau + s + 1) and
            H_x(tau + s) >= H_x'(tau + s). So the values at level s never lie beyond those of the neighbour at level s+1, on
            either side and in both directions: Corollary 3.1, also between integer levels.

        >>> import jax.numpy as jnp
        >>> from dpjax.statistics.monotone import maximum
        >>> profile = maximum(jnp.array([1.0, 5.0, 7.0, 8.0]), lower=0, upper=100).shift(2)
        >>> profile.upper.tolist(), profile.lower.tolist()
        ([5.0, 7.0, 8.0, 100.0], [5.0, 1.0, 0.0])
        """
        tau = checks.shift(tau)
        values = extend(self.values, max(tau + 1, self.values.shape[-1]))
        upper = concatenate(jnp.flip(values[..., : tau + 1], -1), self.upper[..., None])
        return replace(from_sides(upper, values[..., tau:], neighbors=self.neighbors), resolution=self.resolution)


def from_removals(
    values: ArrayLike, *, lower: ArrayLike, upper: ArrayLike, resolution: Resolution | None = None
) -> DownSensitivity:
    """Return the down sensitivity of a monotone statistic of your own, from the least that is left when 0, 1, ..., L people leave.

    Of any function g of datasets, f(x) = max{g(z): z a subset of x} is monotone: where g may rise when people leave, take the least
    values of that. L may be less than the number of people: when more than L leave, ``lower`` is left.

    Args:
        values: float ``(..., L+1)``, h(l) = min{f(z): z is x without at most l people}, from h(0) = f(x).
        lower: float ``(...)``, public: f of nobody, and the least value that there is.
        upper: float ``(...)``, public: the largest.
        resolution: a public number that all values are multiples of; as in :mod:`dpjax.statistics`.

    Returns:
        A :class:`DownSensitivity` with L+2 values, within the bounds and falling, the last of them ``lower``.

    Raises:
        ValueError: values without an axis of people who leave, or bad bounds.

    Privacy:
        Rests on the caller's promise that the values are these minima, or at least that h_x(l+1) <= h_x'(l) <= h_x(l) for x' = x
        minus one person: values of one greedy order of removals may break it. Running minima, the bounds and a number L that is
        chosen without the data keep it.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity", Equations 1 and 4 and "Monotonicity Assumption".

    >>> from_removals([9.0, 4.0, 3.0], lower=0, upper=100).values.tolist()
    [9.0, 4.0, 3.0, 0.0]
    """
    given = checks.float_array("values", values)
    if given.ndim == 0 or given.shape[-1] == 0:
        raise ValueError(f"values need an axis of people who leave (the last one), with at least f(x), got shape {given.shape}.")
    low, high = checks.bounds(lower, upper, given.dtype)
    if resolution is None:
        return DownSensitivity(_falling(given, low, high), high)
    step = checks.resolution(resolution, (lower, upper), most_multiples(given.dtype))
    given, low, high = (to_multiples(array, step) for array in (given, low, high))
    return DownSensitivity(from_multiples(_falling(given, low, high), step), from_multiples(high, step), step)


@jax.jit
def _falling(values: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Running minima within the bounds, and the lower one at the end; NaN where a bound is, and NaN values count as the bound."""
    inside = jnp.clip(jnp.where(jnp.isnan(values), low[..., None], values), low[..., None], high[..., None])
    return concatenate(jax.lax.cummin(inside, axis=inside.ndim - 1), low[..., None])
