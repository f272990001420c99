"""Concrete public numbers: a guarantee is a fact about numbers, not about arrays.

Each function returns a Python, NumPy or JAX number as a Python float. It raises ``TypeError`` for a bool, text, several numbers or
a traced one, and ``ValueError`` for a number that is not what it must be.
"""

from collections.abc import Callable


def concrete_epsilon(epsilon: float) -> float:
    """Return an epsilon that is positive and finite."""
    return concrete_positive("epsilon", epsilon)


def concrete_positive(name: str, value: float) -> float:
    """Return a number that is positive and finite."""
    return _number(name, value, "finite and positive", lambda number: 0 < number < float("inf"))


def concrete_nonnegative(name: str, value: float) -> float:
    """Return a number that is finite and may be 0, such as the epsilon of a whole pipeline."""
    return _number(name, value, "finite and not negative", lambda number: 0 <= number < float("inf"))


def concrete_delta(delta: float) -> float:
    """Return a delta strictly between 0 and 1."""
    return concrete_probability("delta", delta)


def concrete_probability(name: str, value: float) -> float:
    """Return a number strictly between 0 and 1."""
    return _number(name, value, "strictly between 0 and 1", lambda number: 0 < number < 1)


def concrete_fraction(name: str, value: float) -> float:
    """Return a number from 0 to below 1, such as a delta that may be 0."""
    return _number(name, value, "at least 0 and below 1", lambda number: 0 <= number < 1)


def concrete_proportion(name: str, value: float) -> float:
    """Return a number above 0 and at most 1, such as the probability of being taken."""
    return _number(name, value, "above 0 and at most 1", lambda number: 0 < number <= 1)


def _number(name: str, value: float, must: str, holds: Callable[[float], bool]) -> float:
    if isinstance(value, (bool, str, list, tuple)):
        raise TypeError(f"{name} must be one number, got {value!r}.")
    try:
        number = float(value)
    except TypeError:  # JAX's error for a traced value is one too
        raise TypeError(f"a guarantee is about one concrete {name}, not about an array or a traced value; got {value!r}.") from None
    if not holds(number):
        raise ValueError(f"{name} must be {must}, got {value}.")
    return number
