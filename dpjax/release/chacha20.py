"""ChaCha20 (RFC 8439): the random words of a release, on any device and on the host."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WORDS = 16  # of a block
_CHUNK = 4096  # blocks at a time: they stay in the cache
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


def _rotate(x: Any, distance: int) -> Any:
    return (x << np.uint32(distance)) | (x >> np.uint32(32 - distance))


def _double_round(state: tuple[Any, ...]) -> tuple[Any, ...]:
    words = list(state)
    for a, b, c, d in (*_COLUMNS, *_DIAGONALS):
        words[a] = words[a] + words[b]
        words[d] = _rotate(words[d] ^ words[a], 16)
        words[c] = words[c] + words[d]
        words[b] = _rotate(words[b] ^ words[c], 12)
        words[a] = words[a] + words[b]
        words[d] = _rotate(words[d] ^ words[a], 8)
        words[c] = words[c] + words[d]
        words[b] = _rotate(words[b] ^ words[c], 7)
    return tuple(words)


def _start(key: Any, nonce: Any, counter: Any, xp: Any) -> list[Any]:
    shape = counter.shape
    parts = [*(xp.asarray(c, xp.uint32) for c in _CONSTANTS), *(key[i] for i in range(8)), counter, *(nonce[i] for i in range(3))]
    return [xp.broadcast_to(part, shape) for part in parts]


@jax.jit
def chacha20(key: jax.Array, nonce: jax.Array, counter: jax.Array) -> jax.Array:
    """Return the blocks of a key and a nonce at many counters.

    Args:
        key: uint32 ``(8,)``.
        nonce: uint32 ``(3,)``.
        counter: uint32 ``(...)``, of the blocks.

    Returns:
        uint32 ``(16, ...)``, the words of each block in the order of the RFC.

    References:
        RFC 8439, Section 2.3 (with its test vectors in the tests).
    """
    numbers = counter.reshape(-1)
    if numbers.size <= _CHUNK:
        found = _blocks(key, nonce, numbers)
    else:
        chunks = jnp.pad(numbers, (0, -numbers.size % _CHUNK)).reshape(-1, _CHUNK)
        parts = jax.lax.map(partial(_blocks, key, nonce), chunks)
        found = jnp.moveaxis(parts, 1, 0).reshape(WORDS, -1)[:, : numbers.size]
    return jax.lax.optimization_barrier(found.reshape(WORDS, *counter.shape))


def _blocks(key: jax.Array, nonce: jax.Array, counter: jax.Array) -> jax.Array:
    start = _start(key, nonce, counter, jnp)
    # A loop: XLA would otherwise compute the whole cipher again for each of the words that somebody reads.
    end = jax.lax.fori_loop(0, 10, lambda _, state: _double_round(state), tuple(start))
    return jnp.stack([a + b for a, b in zip(end, start, strict=True)])


def chacha20_on_host(key: np.ndarray, nonce: np.ndarray, counter: np.ndarray) -> np.ndarray:
    """Return the same words by NumPy."""
    start = _start(key.astype(np.uint32), nonce.astype(np.uint32), np.asarray(counter, np.uint32), np)
    state: tuple[Any, ...] = tuple(start)
    with np.errstate(over="ignore"):
        for _ in range(10):
            state = _double_round(state)
        return np.stack([a + b for a, b in zip(state, start, strict=True)])
