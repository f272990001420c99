"""What a CPU user would write by hand at best: Numba, all cores, fastmath, 53-bit uniforms, float64
sums.

Piecewise Laplace of the median of an odd number of records, from sorted records with the bounds at
their ends. It is nothing that this library promises: a probability below 2^-53 is never reached,
draws change with the order of sums, and it runs on a CPU only.
"""

import math
from collections.abc import Callable

import numba
import numpy as np

from contestants import prepared
from harness import Built, Case

BLOCK = 64
BUCKETS = 4096  # of the guide table


@numba.njit(inline="always")
def _uniform(seed, number):
    """Splitmix64 of a counter, as a float in (0, 1)."""
    z = np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + np.uint64(number) * np.uint64(
        0x9E3779B97F4A7C15
    )
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (float(z >> np.uint64(11)) + 0.5) * 2.0**-53


@numba.njit(inline="always")
def _place(edges, piece, center, uniform, slope, share):
    part = -math.log1p(-uniform * share) / slope * (edges[piece + 1] - edges[piece])
    return edges[piece] + part if piece >= center else edges[piece + 1] - part


@numba.njit(parallel=True, fastmath=True)
def _single(edges, decay, center, slope, seed):
    """Sums of blocks of pieces in one pass, then a block, then a piece of it."""
    rows, pieces = edges.shape[0], edges.shape[1] - 1
    share = -math.expm1(-slope)
    out = np.empty(rows, np.float32)
    for row in numba.prange(rows):
        own = edges[row]
        sums = np.empty((pieces + BLOCK - 1) // BLOCK, np.float32)
        total = 0.0
        for block in range(sums.size):
            mass = np.float32(0)
            for i in range(BLOCK * block, min(BLOCK * (block + 1), pieces)):
                mass += (own[i + 1] - own[i]) * decay[i]
            sums[block] = mass
            total += mass
        target = _uniform(seed, 2 * row) * total
        block = 0
        while block < sums.size - 1 and target >= sums[block]:
            target -= sums[block]
            block += 1
        i = BLOCK * block
        while i < pieces - 1 and target >= (own[i + 1] - own[i]) * decay[i]:
            target -= (own[i + 1] - own[i]) * decay[i]
            i += 1
        out[row] = _place(own, i, center, _uniform(seed, 2 * row + 1), slope, share)
    return out


@numba.njit(parallel=True, fastmath=True)
def _repeated(edges, decay, center, slope, draws, seed):
    """A table of sums and a guide to it (Chen and Asau 1974)."""
    rows, pieces = edges.shape[0], edges.shape[1] - 1
    share = -math.expm1(-slope)
    out = np.empty((rows, draws), np.float32)
    for row in numba.prange(rows):
        own = edges[row]
        sums = np.zeros(pieces + 1, np.float64)
        for i in range(pieces):
            sums[i + 1] = sums[i] + (own[i + 1] - own[i]) * decay[i]
        guide = np.empty(BUCKETS, np.int32)
        i = 0
        for bucket in range(BUCKETS):
            while i < pieces - 1 and sums[i + 1] <= bucket * sums[pieces] / BUCKETS:
                i += 1
            guide[bucket] = i
        for draw in range(draws):
            number = 2 * (row * draws + draw)
            uniform = _uniform(seed, number)
            target = uniform * sums[pieces]
            i = guide[int(uniform * BUCKETS)]
            while i < pieces - 1 and sums[i + 1] <= target:
                i += 1
            out[row, draw] = _place(own, i, center, _uniform(seed, number + 1), slope, share)
    return out


def single(from_raw: bool = False) -> Callable[[Case], Built]:
    """One draw from each row, from sorted records or from raw ones."""

    def build(case: Case) -> Built:
        edges, decay, center, slope = prepared(case)

        def run(turn: int) -> np.ndarray:
            if from_raw:
                edges[:, 1:-1] = np.clip(np.sort(case.data, axis=1), case.lower, case.upper)
            return _single(edges, decay, center, slope, turn + 1)

        return Built(run, case.rows)

    return build


def repeated(case: Case) -> Built:
    """Many draws from each row."""
    edges, decay, center, slope = prepared(case)

    def run(turn: int) -> np.ndarray:
        return _repeated(edges, decay, center, slope, case.draws, turn + 1).T

    return Built(run, case.rows * case.draws)
