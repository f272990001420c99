"""The random words of a release: ChaCha20 (RFC 8439) under a key of the operating system, on any device and on the host.

A lane is one draw of one row. Its first words are the blocks of its own counters under the nonce (0, 0, 0); further words of the
uniform ``role`` come from the nonce (1, role, i), at the counter that is the lane's number. No word is read twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.release.exact import More
from dpjax.release.sampler import Draw

T = TypeVar("T")
_BLOCK = 16  # words of a block
_CHUNK = 4096  # blocks at a time: they stay in the cache
_FEW = 4096  # blocks that the host computes
_WORDS = 2**21  # of a chunk of draws: 8 MB
_PIECES = 2**21  # of a chunk of rows
_NONCE = np.zeros(3, np.uint32)  # of the first words
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)


def _rotate(x: Any, distance: int) -> Any:
    return (x << np.uint32(distance)) | (x >> np.uint32(32 - distance))


def _quarter_rounds(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any, Any, Any]:
    a = a + b
    d = _rotate(d ^ a, 16)
    c = c + d
    b = _rotate(b ^ c, 12)
    a = a + b
    d = _rotate(d ^ a, 8)
    c = c + d
    return a, _rotate(b ^ c, 7), c, d


def _double_round(rows: tuple[Any, ...], xp: Any) -> tuple[Any, ...]:
    """Four quarter rounds at a time: those of the columns, and with the rows turned those of the diagonals; then turned back."""
    for turns in ((1, 2, 3), (3, 2, 1)):
        a, *rest = _quarter_rounds(*rows)
        rows = a, *(xp.concatenate([row[by:], row[:by]]) for row, by in zip(rest, turns, strict=True))
    return rows


def _start(key: Any, nonce: Any, counter: Any, xp: Any) -> Any:
    """The first state, ``(4, 4, ...)``."""
    parts = [*(xp.asarray(c, xp.uint32) for c in _CONSTANTS), *(key[i] for i in range(8)), counter, *(nonce[i] for i in range(3))]
    return xp.stack([xp.broadcast_to(part, counter.shape) for part in parts]).reshape(4, 4, *counter.shape)


@jax.jit
def chacha20(key: jax.Array, nonce: jax.Array, counter: jax.Array) -> jax.Array:
    """Return the blocks of a key ``(8,)`` and a nonce ``(3,)`` at counters ``(...)``, all uint32 (RFC 8439, Section 2.3).

    The result is ``(16, ...)``, the words of each block in the order of the RFC.
    """
    numbers = counter.reshape(-1)
    if numbers.size <= _CHUNK:
        found = _blocks(key, nonce, numbers)
    else:
        chunks = jnp.pad(numbers, (0, -numbers.size % _CHUNK)).reshape(-1, _CHUNK)
        parts = jax.lax.map(partial(_blocks, key, nonce), chunks)
        found = jnp.moveaxis(parts, 1, 0).reshape(_BLOCK, -1)[:, : numbers.size]
    return jax.lax.optimization_barrier(found.reshape(_BLOCK, *counter.shape))


def _blocks(key: jax.Array, nonce: jax.Array, counter: jax.Array) -> jax.Array:
    start = _start(key, nonce, counter, jnp)
    # A loop: XLA would otherwise compute the whole cipher again for each of the words that are read.
    end = jax.lax.fori_loop(0, 10, lambda _, rows: _double_round(rows, jnp), tuple(start))
    return (jnp.stack(end) + start).reshape(_BLOCK, *counter.shape)


def chacha20_on_host(key: np.ndarray, nonce: np.ndarray, counter: np.ndarray) -> np.ndarray:
    """Return the same words by NumPy."""
    start = _start(key.astype(np.uint32), nonce.astype(np.uint32), np.asarray(counter, np.uint32), np)
    end = tuple(start)
    for _ in range(10):
        end = _double_round(end, np)
    return (np.stack(end) + start).reshape(_BLOCK, *np.shape(counter))


def words_of(entropy: np.ndarray, lane: np.ndarray, words: int) -> Any:
    """The first words of every lane, ``(words, *lane.shape)``: a few by NumPy, which compiles nothing."""
    blocks = -(-words // _BLOCK)
    cipher: Callable[..., Any] = chacha20_on_host if blocks * lane.size <= _FEW else chacha20
    counter = lane[None] * np.uint32(blocks) + np.arange(blocks, dtype=np.uint32).reshape(-1, *(1,) * lane.ndim)
    found = cipher(entropy, _NONCE, counter)  # (16, blocks, ...)
    return found.swapaxes(0, 1).reshape(blocks * _BLOCK, *lane.shape)[:words]


def further_word(entropy: np.ndarray, lane: np.uint32, role: int, i: int) -> int:
    """The i-th further word of a uniform of one lane."""
    return int(chacha20_on_host(entropy, np.array([1, role, i], np.uint32), np.asarray(lane))[0])


def draw_lanes(
    rows: int,
    draws: int,
    pieces: int,
    words: int,
    read: Callable[[int, int], T],
    on_device: Callable[[T, Any], Draw],
    on_host: Callable[[T, int, list[int], More], Any],
    event: tuple[int, ...] = (),
) -> np.ndarray:
    """Draw cells ``(draws, rows, *event)``, int64, with one key of the system; lanes in doubt are drawn on the host.

    ``read(start, stop)`` is what both draw from: of some rows, which the host numbers from 0 on.
    """
    if draws * rows * -(-words // _BLOCK) >= 2**32:
        raise ValueError(f"{draws} draws from {rows} rows pass the block counter of one key: release them in parts.")
    entropy = np.frombuffer(os.urandom(32), "<u4").astype(np.uint32)
    found = np.zeros((draws, rows, *event), np.int64)
    chunk = _PIECES // pieces
    many_rows = min(rows, 1 << max(chunk.bit_length() - 1, 0))  # a power of two: one program does for as many rows
    for first in range(0, rows, many_rows):
        last = min(first + many_rows, rows)
        here, many_draws = read(first, last), max(min(draws, _WORDS // max(words, 32) // (last - first)), 1)
        for start in range(0, draws, many_draws):
            lane = np.arange(start, min(start + many_draws, draws))[:, None] * rows + np.arange(first, last)
            lane = lane.astype(np.uint32)
            drawn = on_device(here, words_of(entropy, lane, words))
            cells = np.array(drawn.cell, np.int64)
            for draw, row in zip(*np.nonzero(~np.asarray(drawn.certified)), strict=True):
                own = lane[draw, row]
                cells[draw, row] = on_host(
                    here, int(row), words_of(entropy, own, words).tolist(), partial(further_word, entropy, own)
                )
            found[start : start + many_draws, first:last] = cells
    return found


def places(width: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The place floor(width U) for a U of two words, widths being below 2^32, and whether further words cannot change it."""
    high, low, factor = words[0].astype(np.uint64), words[1].astype(np.uint64), width.astype(np.uint64)
    carried = high * factor + (low * factor >> np.uint64(32))  # of width U 2^32, rounded down
    beyond = high * factor + ((low + np.uint64(1)) * factor >> np.uint64(32))
    place = carried >> np.uint64(32)
    return place.astype(np.int64), place == beyond >> np.uint64(32)
