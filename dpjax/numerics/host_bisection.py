"""Where a monotone function of one number changes, on the host, in Python floats."""

from collections.abc import Callable
from math import exp, inf, log


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


def crossing(function: Callable[[float], float], low: float, high: float, tolerance: float, near: float = 0.0) -> float:
    """Return about where a continuous function of positive numbers is 0, by false position in their logarithms (Illinois).

    Args:
        function: of one sign at ``low`` and of the other at ``high``; infinite values count as 50.
        low: one end of an interval, positive.
        high: the other end.
        tolerance: relative; the last step was not longer.
        near: a value so close to 0 ends the search, too, with one more step.

    >>> round(crossing(lambda x: x * x - 2, 1.0, 4.0, 1e-9), 8)
    1.41421356
    """
    ends = [(log(end), min(max(function(end), -50.0), 50.0)) for end in (low, high)]
    found, kept = ends[0][0], None  # the last point, and which end has stayed
    at = inf
    for _ in range(200):
        (a, at_a), (b, at_b) = ends
        before, found = found, (a * at_b - b * at_a) / (at_b - at_a) if at_a != at_b else (a + b) / 2
        if abs(found - before) <= tolerance or abs(at) <= near:
            break
        at = min(max(function(exp(found)), -50.0), 50.0)
        stays = 1 if (at > 0) == (at_a > 0) else 0
        if stays == kept:
            ends[stays] = ends[stays][0], ends[stays][1] / 2
        ends[1 - stays], kept = (found, at), stays
    return exp(found)
