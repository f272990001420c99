"""Public parameters and arrays at the door of the library, in the three tiers that every function keeps.

1. Static facts (dtype, rank, an unknown option) raise when the function is called or traced.
2. A public parameter given as a Python or NumPy value is checked at once and raises ``ValueError``; the same parameter
   given as a JAX array cannot be looked at under a trace, so a bad value becomes NaN for its own batch element.
3. Data never raises: an error that depends on a record discloses it.
"""

import functools
import operator
import warnings
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from typing import Any, Literal, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

P = ParamSpec("P")
T = TypeVar("T")
Neighbors = Literal["add_remove", "swap", "edge"]
Resolution = float | Fraction | str
NEIGHBORS = ("add_remove", "swap")  # of a table of records
RELATIONS = (*NEIGHBORS, "edge")  # and of a graph
_NUMBERS = (int, float, np.integer, np.floating)


def float_array(name: str, value: Any) -> jax.Array:
    """Return ``value`` as a JAX array of float32 or float64, upcasting integers and half precision.

    Integers become the default float (float32, or float64 with x64 enabled) before JAX sees them, so that a large
    Python or NumPy integer is rounded and never wrapped around.
    """
    if not isinstance(value, jax.Array):
        value = host_floats(name, value)
        if value.dtype.itemsize > jnp.result_type(float).itemsize:
            # 1e300 becomes inf in float32, a signaling NaN a quiet one, without a warning that depends on the data.
            with np.errstate(over="ignore", invalid="ignore"):
                value = value.astype(jnp.result_type(float))
    array = jnp.asarray(value)
    if jnp.issubdtype(array.dtype, jnp.integer) or array.dtype == jnp.bool_:
        return array.astype(jnp.result_type(float))
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}.")
    return array.astype(jnp.float32) if array.dtype.itemsize < 4 else array


def float_dtype(*values: Any) -> Any:
    """Return the dtype to compute in: the widest float among JAX arrays, at least float32; the default where there is none."""
    found = [value.dtype for value in values if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.floating)]
    widest = max(found, key=lambda dtype: dtype.itemsize, default=jnp.result_type(float))
    return widest if widest.itemsize >= 4 else jnp.dtype("float32")


def host_floats(name: str, value: Any) -> np.ndarray:
    """Return Python or NumPy numbers as a NumPy array of floats: their own, or float64 for integers."""
    refuse_frame(name, value)
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, whose mask would be lost: give {name}.filled(np.nan), or a mask where one is taken."
        )
    try:
        value = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} has rows of different lengths: pad them with NaN, or give count=.") from error
    if value.dtype.kind in "biu":
        value = value.astype(np.float64)
    elif value.dtype == object and all(isinstance(v, _NUMBERS) for v in value.flat):  # integers beyond 64 bits
        value = np.array([_nearest_float(v) for v in value.flat], np.float64).reshape(value.shape)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{name} must hold real numbers, got dtype {value.dtype}.")
    return value


def refuse_frame(name: str, value: Any) -> None:
    """Raise for a data frame or a table, whose rows would count as datasets.

    Raises:
        TypeError: if it is one.
    """
    if hasattr(value, "columns"):
        raise TypeError(
            f"{name} is a {type(value).__name__}, whose rows would be taken for datasets: give one of its columns, as an array, or "
            "the whole to dpjax.frames.simulate or dpjax.frames.release, which take columns by name, and groups."
        )


def _nearest_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def codes(given: jax.Array | np.ndarray) -> jax.Array:
    """Return integers as int32, and -1 for those that are negative or do not fit: they must not wrap around into the range."""
    xp: Any = jnp if isinstance(given, jax.Array) else np
    held = (given >= 0) & (given <= min(np.iinfo(np.int32).max, np.iinfo(given.dtype).max))
    return jnp.asarray(xp.where(held, given.astype(np.int32), np.int32(-1)))


def positive(name: str, value: ArrayLike, dtype: Any) -> jax.Array:
    """Return a public parameter that must be finite and above zero (see the tiers above)."""
    least = float(np.finfo(dtype).tiny)  # XLA takes a smaller one for zero
    return _checked(name, value, dtype, "finite and positive", lambda v, xp: xp.isfinite(v) & (v >= least))


def nonnegative(name: str, value: ArrayLike, dtype: Any) -> jax.Array:
    """Return a public parameter that must be finite and not below zero (see the tiers above)."""
    return _checked(name, value, dtype, "finite and not negative", lambda v, xp: xp.isfinite(v) & (v >= 0))


def finite(name: str, value: ArrayLike, dtype: Any) -> jax.Array:
    """Return a public parameter that must be finite (see the tiers above)."""
    return _checked(name, value, dtype, "finite", lambda v, xp: xp.isfinite(v))


def probability(name: str, value: ArrayLike, dtype: Any, *, below: float) -> jax.Array:
    """Return a public probability strictly between 0 and ``below`` (see the tiers of ``dpjax.checks``)."""
    if isinstance(value, jax.Array):
        array = positive(name, value, dtype)
        return jnp.where(array < below, array, jnp.nan)
    if not np.all(np.asarray(value) < below):
        raise ValueError(f"{name} must be positive and below {below:g}, got {value}.")
    return positive(name, value, dtype)


def proportion(name: str, value: ArrayLike, dtype: Any) -> jax.Array:
    """Return a public probability above 0 and at most 1."""
    least = float(np.finfo(dtype).tiny)  # XLA takes a smaller one for zero
    return _checked(name, value, dtype, "above 0 and at most 1", lambda v, xp: (v >= least) & (v <= 1))


def above_one(name: str, value: ArrayLike, dtype: Any) -> jax.Array:
    """Return a public parameter that must be finite and above 1, such as the order of a Renyi divergence."""
    return _checked(name, value, dtype, "finite and above 1", lambda v, xp: xp.isfinite(v) & (v > 1))


def bounds(lower: ArrayLike, upper: ArrayLike, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Return the public bounds of the data: finite, ``lower < upper``, and apart by 2^-104 to 2^104 in float32.

    In float64 the powers are 1000. What is made of the data stays inside the range of the dtype then: pieces that all underflow,
    or one that overflows, would be a row without a distribution for some data and not for others.
    """
    low, high = finite("lower", lower, dtype), finite("upper", upper, dtype)
    most = 2.0**104 if low.dtype == jnp.float32 else 2.0**1000
    if not isinstance(lower, jax.Array) and not isinstance(upper, jax.Array):
        a, b = np.asarray(lower, dtype=low.dtype), np.asarray(upper, dtype=low.dtype)
        with np.errstate(over="ignore"):
            if np.any(a >= b):
                raise ValueError(f"lower must be below upper, got lower={lower}, upper={upper} (in {low.dtype}).")
            if not np.all((b - a >= 1 / most) & (b - a <= most)):
                raise ValueError(
                    f"lower must be below upper, by {1 / most:.3g} to {most:.3g} in {low.dtype}: got lower={lower}, upper={upper}."
                )
    ok = (high - low >= 1 / most) & (high - low <= most)
    return jnp.where(ok, low, jnp.nan), jnp.where(ok, high, jnp.nan)


def one_of(name: str, value: Any, options: Collection[str]) -> str:
    """Return a static option, or raise with the list of what is known."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}.")
    return str(value)


def remaining(message: str, rest: Callable[..., Any], *public: ArrayLike, dtype: Any) -> jax.Array:
    """Return ``rest(xp, *public)``, which must be positive and finite, for ``xp`` NumPy or JAX.

    If all public values are Python or NumPy numbers, it raises where nothing is left; otherwise those rows are NaN, and those of
    public values that are not finite: of an infinite budget nothing would be left of the noise.

    Args:
        message: what to say then, with a ``{}`` for each public value and for the rest.
        rest: the computation.
        public: numbers that broadcast against each other.
        dtype: of the result.
    """
    if any(isinstance(value, jax.Array) for value in public):
        arrays = [jnp.asarray(value).astype(dtype) for value in public]
        value = rest(jnp, *arrays)
        good = (value > 0) & (value < jnp.inf)
        for array in arrays:
            good = good & jnp.isfinite(array)
        return jnp.where(good, value, jnp.nan)
    with np.errstate(all="ignore"):
        concrete = rest(np, *(np.asarray(value, np.float64) for value in public))
    if not np.all((concrete > 0) & np.isfinite(concrete)):
        raise ValueError(message.format(*public, concrete))
    return jnp.asarray(concrete, dtype)


def static_integer(name: str, value: Any, least: int, most: int | None = None, *, must: str | None = None) -> int:
    """Return a static integer of Python, NumPy or JAX as a Python integer, or raise ``ValueError``; a bool is no number.

    Args:
        name: of the argument.
        value: what was given for it.
        least: the smallest that is allowed.
        most: the largest, if there is one.
        must: what it must be, in words, where "an integer from 1 on" or "an integer from 0 to 9" does not say it well.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:  # traced values too
        number = None
    if number is None or number < least or (most is not None and number > most):
        must = must or f"an integer from {least} {'on' if most is None else f'to {most}'}"
        raise ValueError(f"{name} must be {must}, got {value!r}.")
    return number


def static_number(name: str, value: Any, least: float, most: float) -> float:
    """Return a static number from ``least`` to ``most`` as a Python float, or raise ``ValueError``; a bool or a string is none."""
    try:
        number = None if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError):  # traced values too
        number = None
    if number is None or not least <= number <= most:
        raise ValueError(f"{name} must be a static number from {least:g} to {most:g}, got {value!r}.")
    return number


def instance(caller: str, value: Any, kind: type, hint: str) -> None:
    """Raise where an argument is of another type, and say where that type comes from."""
    if not isinstance(value, kind):
        raise TypeError(f"{caller} takes a {kind.__name__} ({hint}), got {type(value).__name__}.")


def resolution(value: Resolution, bounds: Sequence[ArrayLike], most: int) -> Fraction:
    """Return a public resolution as the decimal that it is written as: 0.1 is 1/10.

    Raises:
        TypeError: a JAX array: the shape of a grid is static.
        ValueError: a resolution that is not positive; bounds, given as Python or NumPy values, that are not multiples of it, or
            more than ``most`` of them.
    """
    if isinstance(value, jax.Array):
        raise TypeError("resolution must be a static number or Fraction, not a JAX array: grids are exact.")
    step = exact(value)
    if step is None or step <= 0:
        raise ValueError(f"resolution must be a positive number or a Fraction, got {value!r}.")
    for bound in bounds:
        for number in () if isinstance(bound, jax.Array) else np.ravel(bound):
            place = exact(number)
            if place is not None and (place / step).denominator != 1:
                raise ValueError(f"bounds and candidates must be multiples of the resolution {value}, got {number}.")
            if place is not None and abs(place / step) > most:
                raise ValueError(f"{number} is more than {most} times the resolution {value}: a float cannot count so far.")
    return step


def exact(value: Any) -> Fraction | None:
    """Return a number as the decimal that it is written as, or None for what is no finite number."""
    try:
        return value if isinstance(value, Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        return None


def _checked(name: str, value: ArrayLike, dtype: Any, must: str, test: Any) -> jax.Array:
    kind = f"{name} must be a real number or an array of them, got {value!r}."
    if isinstance(value, jax.Array):
        if jnp.issubdtype(value.dtype, jnp.complexfloating):
            raise TypeError(kind)
        array = value.astype(dtype)
        return jnp.where(test(array, jnp), array, jnp.nan)
    given = np.asarray(value)
    try:
        given = host_floats(name, given)
    except TypeError:
        raise TypeError(kind) from None
    with np.errstate(over="ignore", under="ignore"):
        concrete = given.astype(np.float64).astype(dtype)
    if not np.all(test(concrete, np)):
        raise ValueError(f"{name} must be {must} (in {np.dtype(dtype).name}), got {value}.")
    return jnp.asarray(concrete)


def concrete_epsilon(epsilon: float) -> float:
    """Return a positive finite epsilon as a Python float: a guarantee is a fact about public numbers, not about arrays.

    Raises:
        TypeError: it is an array of several, or traced.
        ValueError: it is not finite and positive.
    """
    return concrete_positive("epsilon", epsilon)


def concrete_positive(name: str, value: float) -> float:
    """Return a public number that must be finite and positive as a Python float; raise as :func:`concrete_epsilon`."""
    number = _concrete(name, value)
    if not 0 < number < float("inf"):
        raise ValueError(f"{name} must be finite and positive, got {value}.")
    return number


def concrete_nonnegative(name: str, value: float) -> float:
    """Return a public number that is finite and may be 0, such as the epsilon of a whole pipeline, as a Python float.

    Raises:
        TypeError: it is an array of several, or traced.
        ValueError: it is negative or not finite.
    """
    number = _concrete(name, value)
    if not 0 <= number < float("inf"):
        raise ValueError(f"{name} must be finite and not negative, got {value}.")
    return number


def concrete_delta(delta: float) -> float:
    """Return a delta strictly between 0 and 1 as a Python float.

    Raises:
        TypeError: it is an array of several, or traced.
        ValueError: it is not between them.
    """
    value = _concrete("delta", delta)
    if not 0 < value < 1:
        raise ValueError(f"delta must be between 0 and 1, got {delta}.")
    return value


def concrete_fraction(name: str, value: float) -> float:
    """Return a public number from 0 to below 1, such as a delta that may be 0, as a Python float.

    Raises:
        TypeError: it is an array of several, or traced.
        ValueError: it is not among them.
    """
    number = _concrete(name, value)
    if not 0 <= number < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value}.")
    return number


def renamed_arguments(**names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function take arguments by their old names too, until version 0.3: ``old="new"``, with a DeprecationWarning."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            for old in names.keys() & kwargs.keys():
                warnings.warn(f"{old} is now {names[old]}, and goes in 0.3.", DeprecationWarning, stacklevel=2)
                kwargs[names[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate


def _concrete(name: str, value: float) -> float:
    if isinstance(value, (bool, str)):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    try:
        return float(value)
    except TypeError:  # JAX's error for a traced value is one too
        raise TypeError(f"a guarantee is about one concrete {name}, not about an array or a traced value; got {value!r}.") from None
