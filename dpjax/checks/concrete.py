"""Validation of the public parameters of guarantees, which are single numbers and never traced.

Each function returns a Python, NumPy or JAX number as a Python float. It raises ``TypeError`` for a
bool, text, several numbers or a traced number, and ``ValueError`` for a number out of range.
"""

from __future__ import annotations

from collections.abc import Callable

from dpjax.checks.host import nearest_float


def concrete_epsilon(epsilon: float) -> float:
    """Return an epsilon, which must be positive and finite.

    >>> concrete_epsilon(1)
    1.0
    """
    return concrete_positive("epsilon", epsilon)


def concrete_positive(name: str, value: float) -> float:
    """Return a number, which must be positive and finite.

    >>> concrete_positive("sigma", 2)
    2.0
    """
    return _number(name, value, "finite and positive", lambda number: 0 < number < float("inf"))


def concrete_nonnegative(name: str, value: float) -> float:
    """Return a finite number of at least 0, such as the epsilon of a composition.

    >>> concrete_nonnegative("epsilon", 0)
    0.0
    """
    return _number(
        name, value, "finite and not negative", lambda number: 0 <= number < float("inf")
    )


def concrete_delta(delta: float) -> float:
    """Return a delta, which must be strictly between 0 and 1.

    >>> concrete_delta(1e-6)
    1e-06
    """
    return concrete_probability("delta", delta)


def concrete_probability(name: str, value: float) -> float:
    """Return a probability, which must be strictly between 0 and 1.

    >>> concrete_probability("confidence", 0.95)
    0.95
    """
    return _number(name, value, "strictly between 0 and 1", lambda number: 0 < number < 1)


def concrete_fraction(name: str, value: float) -> float:
    """Return a number, which must be at least 0 and below 1, such as a delta that may be 0.

    >>> concrete_fraction("delta", 0)
    0.0
    """
    return _number(name, value, "at least 0 and below 1", lambda number: 0 <= number < 1)


def concrete_proportion(name: str, value: float) -> float:
    """Return a number, which must be above 0 and at most 1, such as a sampling probability.

    >>> concrete_proportion("probability", 1)
    1.0
    """
    return _number(name, value, "above 0 and at most 1", lambda number: 0 < number <= 1)


def _number(name: str, value: float, must: str, holds: Callable[[float], bool]) -> float:
    if isinstance(value, (bool, str, list, tuple)):
        raise TypeError(f"{name} must be one number, got {value!r}.")
    try:
        number = float(nearest_float(value) if isinstance(value, int) else value)
    except TypeError:  # also JAX's error for a traced value
        raise TypeError(
            f"{name} must be one concrete number, not an array or a traced value; got {value!r}."
        ) from None
    if not holds(number):
        raise ValueError(f"{name} must be {must}, got {number}.")
    return number
