"""Root finding for monotone functions of a Python float, on the host."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, log


def bisect_numbers(
    is_below: Callable[[float], bool], low: float, high: float, tolerance: float
) -> tuple[float, float]:
    """Bisect ``[low, high]`` to the point where ``is_below`` changes from true to false.

    Args:
        is_below: true up to some point of the interval and false beyond it.
        low: the lower end, where ``is_below`` is assumed to be true.
        high: the upper end, where it is assumed to be false.
        tolerance: the width of the result relative to its upper end; it may be narrower than floats
            allow.

    Returns:
        The lower and upper ends of the remaining interval.

    >>> bisect_numbers(lambda x: x * x < 2, 0.0, 2.0, 1e-3)
    (1.4140625, 1.4150390625)
    """
    while high - low > tolerance * high:
        middle = low + (high - low) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low, high


def crossing(
    function: Callable[[float], float], low: float, high: float, tolerance: float, near: float = 0.0
) -> float:
    """Return an approximate root of a continuous function of positive numbers.

    By false position with the Illinois modification, on the logarithm of the argument.

    Args:
        function: of opposite signs at ``low`` and ``high``; values are clipped to [-50, 50].
        low: one end of the interval, positive.
        high: the other end, positive.
        tolerance: the relative length of the last step.
        near: the search also ends, after one more step, at a value so close to 0.

    >>> round(crossing(lambda x: x * x - 2, 1.0, 4.0, 1e-9), 8)
    1.41421356
    """
    ends = [(log(end), min(max(function(end), -50.0), 50.0)) for end in (low, high)]
    found, kept = ends[0][0], None  # the last point, and the index of the end that was kept
    at = inf
    for _ in range(200):
        (a, at_a), (b, at_b) = ends
        before, found = (
            found,
            (a * at_b - b * at_a) / (at_b - at_a) if at_a != at_b else (a + b) / 2,
        )
        if abs(found - before) <= tolerance or abs(at) <= near:
            break
        at = min(max(function(exp(found)), -50.0), 50.0)
        stays = 1 if (at > 0) == (at_a > 0) else 0
        if stays == kept:
            ends[stays] = ends[stays][0], ends[stays][1] / 2
        ends[1 - stays], kept = (found, at), stays
    return exp(found)
