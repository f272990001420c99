"""Processing in parts of bounded memory, by as many threads as there are cores.

NumPy releases the interpreter lock while it computes, so that several parts run in parallel.
Between its calls threads wait for each other, so that parts of less than some hundred thousand
numbers are slower with two threads than with one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def ranges(size: int, step: int) -> list[tuple[int, int]]:
    """Split the integers below ``size`` into ranges of length ``step``.

    >>> ranges(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(first, min(first + step, size)) for first in range(0, size, step)]


def in_threads(work: Callable[[int, int], None], parts: Sequence[tuple[int, int]]) -> None:
    """Call ``work(first, last)`` for each range, in parallel; this thread takes part."""
    left = deque(parts)

    def run() -> None:
        while left:
            try:
                part = left.popleft()
            except IndexError:  # another thread took the last one
                return
            work(*part)

    others = min(len(parts), os.cpu_count() or 1) - 1
    if others < 1:
        run()
        return
    with ThreadPoolExecutor(others) as pool:
        running = [pool.submit(run) for _ in range(others)]
        run()
        for done in running:
            done.result()
