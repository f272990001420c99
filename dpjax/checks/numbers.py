"""Public numbers: one table of the intervals they must be in, for one number and for arrays."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpjax.checks.host import host_floats, is_jax_array, nearest_float

if TYPE_CHECKING:
    import jax
    from jax.typing import ArrayLike

inf = float("inf")


class Interval(NamedTuple):
    """The numbers from ``low`` to ``high``; ``ends`` is "()", "[)", "(]" or "[]".

    Attributes:
        must: how a message calls a number of the interval.
    """

    must: str
    low: float
    high: float
    ends: str = "()"

    def holds(self, value: Any) -> Any:
        """Return whether a number, or each entry of an array, is in the interval."""
        above = value >= self.low if self.ends[0] == "[" else value > self.low
        return above & (value <= self.high if self.ends[1] == "]" else value < self.high)

    def single(self, name: str, value: Any) -> float:
        """Return one Python, NumPy or JAX number, which is never traced, as a Python float.

        Raises:
            TypeError: a bool, text, several numbers or a traced number.
            ValueError: a number outside of the interval.

        >>> concrete_delta(1e-6)
        1e-06
        >>> concrete_positive("sigma", 10**400)
        Traceback (most recent call last):
            ...
        ValueError: sigma must be finite and positive, got inf.
        """
        try:
            number = nearest_float(None if isinstance(value, (bool, str, bytes)) else value)
        except (TypeError, ValueError):  # also JAX's error for a traced value
            raise TypeError(
                f"{name} must be one concrete number, not text, an array or a traced value; got "
                f"{value!r}."
            ) from None
        if not self.holds(number):
            raise ValueError(f"{name} must be {self.must}, got {number}.")
        return number

    def array(self, name: str, value: ArrayLike, dtype: Any) -> jax.Array:
        """Return a public parameter as a JAX array.

        Entries of JAX arrays outside of the interval become NaN.

        Raises:
            TypeError: the value does not hold real numbers.
            ValueError: a Python or NumPy number outside of the interval.
        """
        from dpjax.checks.arrays import on_device, or_nan

        kind = f"{name} must be a real number or an array of them, got {value!r}."
        if is_jax_array(value):
            if value.dtype.kind == "c":
                raise TypeError(kind)
            return or_nan(value, np.dtype(dtype), self.holds)
        try:
            numbers = host_floats(name, None if isinstance(value, bool) else value)
        except TypeError:
            raise TypeError(kind) from None
        with np.errstate(over="ignore", under="ignore"):
            concrete = numbers.astype(np.float64).astype(dtype)
        # As XLA does with numbers below the smallest normal one
        concrete = np.where(np.abs(concrete) < np.finfo(dtype).tiny, 0, concrete)
        if not np.all(self.holds(concrete)):
            raise ValueError(
                f"{name} must be {self.must} (in {np.dtype(dtype).name}), got {value}."
            )
        return on_device(concrete)


FINITE = Interval("finite", -inf, inf)
POSITIVE = Interval("finite and positive", 0, inf)
NONNEGATIVE = Interval("finite and not negative", 0, inf, "[)")
ABOVE_ONE = Interval("finite and above 1", 1, inf)
PROBABILITY = Interval("strictly between 0 and 1", 0, 1)
FRACTION = Interval("at least 0 and below 1", 0, 1, "[)")
PROPORTION = Interval("above 0 and at most 1", 0, 1, "(]")

finite = FINITE.array
positive = POSITIVE.array
nonnegative = NONNEGATIVE.array

concrete_positive = POSITIVE.single
concrete_nonnegative = NONNEGATIVE.single
concrete_probability = PROBABILITY.single
concrete_fraction = FRACTION.single
concrete_proportion = PROPORTION.single
concrete_epsilon = partial(concrete_positive, "epsilon")
concrete_delta = partial(concrete_probability, "delta")


def static_number(name: str, value: Any, least: float, most: float) -> float:
    """Return a static number from ``least`` to ``most`` as a Python float.

    >>> static_number("epsilon", 1, 0.0, 64.0)
    1.0
    """
    must = f"a number from {least:g} to {most:g}"
    return Interval(must, least, most, "[]").single(name, value)


def bounds(lower: ArrayLike, upper: ArrayLike, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Return the public bounds of the data, finite and with ``lower < upper`` (rule 2).

    Their difference must be from 2^-104 to 2^104 in float32, and from 2^-1000 to 2^1000 in float64.
    Quantities computed from the data then stay within the range of the dtype: otherwise pieces that
    all underflow, or one that overflows, could leave a row without a distribution for some data
    only.
    """
    from dpjax.checks.arrays import apart

    low, high = finite("lower", lower, dtype), finite("upper", upper, dtype)
    most = 2.0**104 if low.dtype == np.float32 else 2.0**1000
    if is_jax_array(lower) or is_jax_array(upper):
        return apart(low, high, most)
    with np.errstate(over="ignore"):
        gap = np.asarray(upper, low.dtype) - np.asarray(lower, low.dtype)
    if not np.all((gap >= 1 / most) & (gap <= most)):
        raise ValueError(
            f"lower must be below upper, by {1 / most:.3g} to {most:.3g} in {low.dtype}: got "
            f"lower={lower}, upper={upper}."
        )
    return low, high
