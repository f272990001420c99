"""Bisection of one number on the host, in Python floats."""

from collections.abc import Callable


def bisect_numbers(is_below: Callable[[float], bool], low: float, high: float, tolerance: float) -> tuple[float, float]:
    """Halve ``[low, high]`` until ``high - low`` is at most ``tolerance`` times ``high`` or no float is between them.

    Args:
        is_below: true up to some point of the interval and false beyond it.
        low: taken to hold.
        high: taken not to hold.
        tolerance: of the result.

    Returns:
        The ends of what is left.

    >>> bisect_numbers(lambda x: x * x < 2, 0.0, 2.0, 1e-3)
    (1.4140625, 1.4150390625)
    """
    while high - low > tolerance * high:
        middle = low + (high - low) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low, high
