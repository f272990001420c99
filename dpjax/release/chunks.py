"""Work that is done a part at a time, so that memory is bounded, by as many threads as there are cores.

NumPy works on several parts at once: it holds no lock while it computes. Threads wait for one another between its calls, so that
parts of fewer than some hundred thousand numbers take longer by two threads than by one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def ranges(size: int, step: int) -> list[tuple[int, int]]:
    """Split the numbers below ``size`` into ranges of so many.

    >>> ranges(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(first, min(first + step, size)) for first in range(0, size, step)]


def in_threads(work: Callable[[int, int], None], parts: Sequence[tuple[int, int]]) -> None:
    """Call ``work(first, last)`` for each range; several at a time, where there are several."""
    threads = min(len(parts), os.cpu_count() or 1)
    if threads < 2:
        for part in parts:
            work(*part)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, *part) for part in parts]:
            done.result()
