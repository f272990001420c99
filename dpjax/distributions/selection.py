"""Selection of one slot with probability proportional to its weight: by Gumbel-max, and down a tree of sums.

Slots come in two sides, each going outwards from the centre, in one array: ``[lower side..., upper side...]``. The randomness
of a slot is indexed by its side and its place on that side, so slots of weight 0 may be added at the far end of either side, and
rows to the batch, without changing a single draw. Noise goes in as an argument: the functions that choose are deterministic.

* ``gumbel_max`` (the reference): argmax of log-weight + Gumbel; two words for each slot and draw.
* ``SumTree`` (for many draws from one row): pairwise sums built once, then one fresh uniform for each of the O(log m) levels. A
  cumulative table in float32 cannot reach a slot of mass below 2^-24 that stands behind a large one; here each level compares
  two sums of the right size, so every slot is reached down to the 2^-65 of the words.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.random.keys import row_keys
from dpjax.random.noise import UniformPair, gumbel_from_uniform, uniform_from_words

Method = Literal["gumbel", "table"]


def gumbel_max(log_weights: jax.Array, gumbels: jax.Array) -> jax.Array:
    """Return the index of the largest ``log_weights + gumbels``, int32 of shape ``(...)``, for slots on the last axis."""
    return jnp.argmax(log_weights + gumbels, axis=-1).astype(jnp.int32)


class SumTree(NamedTuple):
    """Sums of ``2 * size`` weights over pairs, over pairs of pairs and so on; ``size`` (a power of two) slots a side.

    Attributes:
        levels: ``levels[0]`` holds the weights, ``(rows, 2 * size)``; each further level has half as many; the last has two, the
            totals of the lower and of the upper side.
    """

    levels: tuple[jax.Array, ...]

    @staticmethod
    def build(weights: jax.Array) -> "SumTree":
        """Build the tree by explicit adds of neighbours, whose order does not depend on the size or the batch."""
        levels = [weights]
        while levels[-1].shape[-1] > 2:
            pairs = levels[-1].reshape(*levels[-1].shape[:-1], -1, 2)
            levels.append(pairs[..., 0] + pairs[..., 1])
        return SumTree(tuple(levels))

    def descend(self, side: UniformPair, steps: list[UniformPair]) -> jax.Array:
        """Walk from the root to a slot, with a fresh uniform at each level.

        Args:
            side: the uniform that chooses the side, ``(rows, draws)``.
            steps: one uniform for each level below, ``steps[0]`` for the choice between two neighbouring slots.

        Returns:
            The chosen slots, int32 of shape ``(rows, draws)``.
        """
        node = jnp.zeros(side.value.shape, jnp.int32)
        for level, pair in zip(reversed(self.levels), [side, *reversed(steps)], strict=True):
            near = jnp.take_along_axis(level, 2 * node, axis=-1)
            far = jnp.take_along_axis(level, 2 * node + 1, axis=-1)
            node = 2 * node + _take_far(near, far, pair).astype(jnp.int32)
        return node


def _take_far(near: jax.Array, far: jax.Array, pair: UniformPair) -> jax.Array:
    """Decide far with probability far / (near + far): the smaller weight is compared with the uniform's precise end."""
    total = near + far
    return jnp.where(far <= near, pair.value * total < far, ~(pair.complement * total < near))


def choose(
    key: jax.Array, log_weights: jax.Array, sides: tuple[int, int], batch: tuple[int, ...], draws: int, method: Method
) -> jax.Array:
    """Draw slots, ``draws`` from each row.

    Args:
        key: a scalar typed key.
        log_weights: ``(rows, slots)``, -inf for a slot that must not be chosen.
        sides: how many slots the lower and the upper side have, each a multiple of 32; they add up to ``slots``.
        batch: the batch shape that the rows were flattened from; each axis folds its index into the key.
        draws: how many.
        method: ``"gumbel"`` or ``"table"``.

    Returns:
        Indices into the slots, int32 of shape ``(rows, draws)``.
    """
    rows, dtype = log_weights.shape[0], log_weights.dtype
    if method == "gumbel":
        keys = (row_keys(side_key, (*batch, draws)).reshape(rows, draws) for side_key in jax.random.split(key))
        pairs = [_stream(side_keys, size, dtype) for side_keys, size in zip(keys, sides, strict=True)]
        joined = UniformPair(*(jnp.concatenate(part, axis=-1) for part in zip(*pairs, strict=True)))
        return gumbel_max(log_weights[:, None, :], gumbel_from_uniform(joined))
    lower, upper = log_weights[:, : sides[0]], log_weights[:, sides[0] :]
    size = 1 << (max(sides) - 1).bit_length()
    largest = jnp.max(log_weights, axis=-1, keepdims=True)
    padded = [jnp.pad(side, ((0, 0), (0, size - side.shape[1])), constant_values=-jnp.inf) for side in (lower, upper)]
    tree = SumTree.build(jnp.exp(jnp.concatenate(padded, axis=-1) - largest))
    # Words are keyed by the height above the slots: a taller tree (more padding) draws the same slots.
    key_side, key_steps = jax.random.split(key)
    heights = row_keys(key_steps, (len(tree.levels) - 1, *batch)).reshape(-1, rows)
    slot = tree.descend(
        _stream(row_keys(key_side, batch).reshape(rows), draws, dtype),
        [_stream(keys, draws, dtype) for keys in heights],
    )
    return jnp.where(slot < size, slot, slot - size + sides[0])


def _stream(keys: jax.Array, size: int, dtype: Any) -> UniformPair:
    """One 1-D stream of ``size`` uniforms for each key; its beginning is the same whatever ``size`` is."""
    bits = jax.vmap(lambda key: jax.random.bits(key, (size, 2), jnp.uint32))(keys.reshape(-1))
    return uniform_from_words(bits.reshape(*keys.shape, size, 2), dtype)
