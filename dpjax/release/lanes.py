"""The random words of a release, lane by lane: a key of the operating system, and what each lane reads of it.

A lane is one draw of one row. Its first words are the blocks of its own counters under the nonce (0, 0, 0); further words of the
uniform ``role`` come from the nonce (1, role, i), at the counter that is the lane's number. No word is read twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.release.chacha20 import WORDS as BLOCK
from dpjax.release.chacha20 import chacha20, chacha20_on_host
from dpjax.release.exact import More

_LANES = 2**16  # of a chunk: 8 MB of words
_PIECES = 2**21  # of a chunk of rows


def draw_lanes(
    rows: int,
    draws: int,
    pieces: int,
    words: int,
    on_device: Callable[[slice, Any], Any],
    on_host: Callable[[int, list[int], More], int],
) -> np.ndarray:
    """Draw ``(draws, rows)`` in chunks, with a key of the operating system for all of them; doubtful lanes on the host."""
    blocks = -(-words // BLOCK)
    if draws * rows * blocks >= 2**32:
        raise ValueError(f"{draws} draws from {rows} rows pass the block counter of one key: release them in parts.")
    entropy = np.frombuffer(os.urandom(32), "<u4").astype(np.uint32)
    found = np.zeros((draws, rows), np.int64)
    many_rows = max(min(rows, _PIECES // pieces), 1)
    for first in range(0, rows, many_rows):
        some = slice(first, min(first + many_rows, rows))
        width = some.stop - some.start
        many_draws = max(min(draws, _LANES // width), 1)
        for start in range(0, draws, many_draws):
            number = min(many_draws, draws - start)
            lane = (np.arange(start, start + number)[:, None] * rows + np.arange(some.start, some.stop)).astype(np.uint32)
            drawn = on_device(some, words_of(entropy, lane, words))
            cells, certified = np.array(drawn.cell, np.int64), np.asarray(drawn.certified)
            for draw, row in zip(*np.nonzero(~certified), strict=True):
                own = lane[draw, row]
                cells[draw, row] = on_host(first + row, words_on_host(entropy, own, words), partial(_further, entropy, own))
            found[start : start + number, some] = cells
    return found


_NONCE = np.zeros(3, np.uint32)  # that of the first words; further ones have (1, role, i)


def words_of(entropy: np.ndarray, lane: np.ndarray, words: int) -> jax.Array:
    """The words of every lane, ``(words, *lane.shape)``."""
    blocks = -(-words // BLOCK)
    counter = lane[None] * np.uint32(blocks) + np.arange(blocks, dtype=np.uint32).reshape(-1, *(1,) * lane.ndim)
    found = chacha20(entropy, _NONCE, counter)  # (16, blocks, ...)
    return jnp.moveaxis(found, 1, 0).reshape(blocks * BLOCK, *lane.shape)[:words]


def words_on_host(entropy: np.ndarray, lane: np.uint32, words: int) -> list[int]:
    """The words of one lane."""
    blocks = -(-words // BLOCK)
    counter = np.uint32(lane) * np.uint32(blocks) + np.arange(blocks, dtype=np.uint32)
    return [int(word) for word in chacha20_on_host(entropy, _NONCE, counter).T.ravel()[:words]]


def _further(entropy: np.ndarray, lane: np.uint32, role: int, i: int) -> int:
    """The i-th further word of a uniform of one lane."""
    return int(chacha20_on_host(entropy, np.array([1, role, i], np.uint32), np.asarray(lane))[0])
