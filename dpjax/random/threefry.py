"""Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw 2011).

It gives two random words per key and counter. It is the function behind JAX's keys (a test compares
all words). ``jax.random.bits`` discards one of the two words, and on the CPU JAX's loop writes to
memory, which makes it four times slower.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dpjax.numerics.two_words import Words

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


@jax.jit
def threefry(key: Words, counter: Words) -> Words:
    """Return two random words for each counter under each key; shapes broadcast.

    For the counter ``(0, i)`` they equal ``jax.random.key_data(jax.random.fold_in(key, i))``.
    """
    schedule = (key.high, key.low, key.high ^ key.low ^ jnp.uint32(_PARITY))
    x, y = counter.high + schedule[0], counter.low + schedule[1]
    for block in range(5):
        for distance in _ROTATIONS[block % 2]:
            x = x + y
            y = ((y << jnp.uint32(distance)) | (y >> jnp.uint32(32 - distance))) ^ x
        x = x + schedule[(block + 1) % 3]
        y = y + schedule[(block + 2) % 3] + jnp.uint32(block + 1)
    return Words(x, y)
