"""Selection of one slot with probability proportional to its weight: by Gumbel-max, and down a tree of sums.

Slots come in two sides, each going outwards from the centre, in one array: ``[lower side..., upper side...]``. The randomness
of a slot is indexed by its side and its place on that side, so slots of weight 0 may be added at the far end of either side, and
rows to the batch, without changing a single draw. Noise goes in as an argument: the functions that choose are deterministic.

* ``gumbel_max`` (the reference): argmax of log-weight + Gumbel; two words for each slot and draw.
* ``SumTree`` (for many draws from one row): pairwise sums built once, then one fresh uniform for each of the O(log m) levels. A
  cumulative table in float32 cannot reach a slot of mass below 2^-24 that stands behind a large one; here each level compares
  two sums of the right size, so every slot is reached down to the 2^-65 of the words.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.random.noise import UniformPair, gumbel_from_uniform, uniform_from_words


def gumbel_max(log_weights: jax.Array, gumbels: jax.Array) -> jax.Array:
    """Return the index of the largest ``log_weights + gumbels``, int32 of shape ``(...)``, for slots on the last axis."""
    return jnp.argmax(log_weights + gumbels, axis=-1).astype(jnp.int32)


class SumTree(NamedTuple):
    """Sums of weights over pairs, over pairs of pairs and so on, for two sides of ``2**(depth-1)`` slots each.

    Attributes:
        heap: ``(rows, 2**(depth+1))``: the sum at node i is that of nodes 2i and 2i+1; node 1 is the root, 2 and 3 are the lower
            and the upper side, the last half are the slots.
    """

    heap: jax.Array

    @property
    def depth(self) -> int:
        """How many choices lead from the root to a slot."""
        return (self.heap.shape[-1] // 2).bit_length() - 1

    @staticmethod
    def build(weights: jax.Array) -> "SumTree":
        """Build the tree by explicit adds of neighbours, whose order does not depend on the size or the batch."""
        levels = [weights]
        while levels[0].shape[-1] > 1:
            pairs = levels[0].reshape(levels[0].shape[0], -1, 2)
            levels.insert(0, pairs[..., 0] + pairs[..., 1])
        return SumTree(jnp.concatenate([jnp.zeros_like(levels[0]), *levels], axis=-1))

    def descend(self, uniform_at: Callable[[jax.Array], UniformPair]) -> jax.Array:
        """Walk from the root to a slot, with a fresh uniform for each choice.

        Args:
            uniform_at: the uniforms, ``(rows, draws)``, of the choice at a height above the slots: 0 for the choice between two
                neighbouring slots, ``depth - 1`` for the choice of the side.

        Returns:
            The chosen slots, int32 of shape ``(rows, draws)``.
        """

        def step(i: jax.Array, node: jax.Array) -> jax.Array:
            pair = uniform_at(self.depth - 1 - i)
            near, far = (jnp.take_along_axis(self.heap, 2 * node + side, axis=-1) for side in (0, 1))
            return 2 * node + _take_far(near, far, pair).astype(jnp.int32)

        shape = jax.eval_shape(uniform_at, jnp.int32(0)).value.shape
        return jax.lax.fori_loop(0, self.depth, step, jnp.ones(shape, jnp.int32)) - self.heap.shape[-1] // 2


def _take_far(near: jax.Array, far: jax.Array, pair: UniformPair) -> jax.Array:
    """Decide far with probability far / (near + far): the smaller weight is compared with the uniform's precise end."""
    total = near + far
    return jnp.where(far <= near, pair.value * total < far, ~(pair.complement * total < near))


def choose_by_gumbel_max(keys: jax.Array, log_weights: jax.Array, sides: tuple[int, int], draws: int) -> jax.Array:
    """Draw slots by Gumbel-max, ``draws`` from each row.

    Args:
        keys: one key for each row.
        log_weights: ``(rows, slots)``, -inf for a slot that must not be chosen.
        sides: how many slots the lower and the upper side have, each a multiple of 32; they add up to ``slots``.
        draws: how many; a few hundred at a time, so that memory stays bounded.

    Returns:
        Indices into the slots, int32 of shape ``(rows, draws)``.
    """
    side_keys = jax.vmap(jax.random.split)(keys)

    def one(draw: jax.Array) -> jax.Array:
        fresh = jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, draw)))(side_keys)
        pairs = [stream(fresh[:, side], sides[side], log_weights.dtype) for side in (0, 1)]
        joined = UniformPair(*(jnp.concatenate(part, axis=-1) for part in zip(*pairs, strict=True)))
        return gumbel_max(log_weights, gumbel_from_uniform(joined))

    if draws == 1:
        return one(jnp.uint32(0))[:, None]
    return jax.lax.map(one, jnp.arange(draws, dtype=jnp.uint32), batch_size=min(draws, 256)).T


def choose_from_table(keys: jax.Array, log_weights: jax.Array, sides: tuple[int, int], draws: int) -> jax.Array:
    """Draw slots down a tree of sums, ``draws`` from each row; arguments and result as :func:`choose_by_gumbel_max`."""
    lower, upper = log_weights[:, : sides[0]], log_weights[:, sides[0] :]
    size = 1 << (max(sides) - 1).bit_length()
    largest = jnp.max(log_weights, axis=-1, keepdims=True)
    padded = [jnp.pad(side, ((0, 0), (0, size - side.shape[1])), constant_values=-jnp.inf) for side in (lower, upper)]
    tree = SumTree.build(jnp.exp(jnp.concatenate(padded, axis=-1) - largest))

    # Words are keyed by the height above the slots, and apart from that for the side: a taller tree (more padding) draws the same.
    def uniform_at(height: jax.Array) -> UniformPair:
        tag = jnp.where(height == tree.depth - 1, jnp.uint32(2**32 - 1), height.astype(jnp.uint32))
        return stream(jax.vmap(lambda key: jax.random.fold_in(key, tag))(keys), draws, log_weights.dtype)

    slot = tree.descend(uniform_at)
    return jnp.where(slot < size, slot, slot - size + sides[0])


def stream(keys: jax.Array, size: int, dtype: Any) -> UniformPair:
    """One 1-D stream of ``size`` uniforms for each row's key; its beginning is the same whatever ``size`` is."""
    return uniform_from_words(jax.vmap(lambda key: jax.random.bits(key, (size, 2), jnp.uint32))(keys), dtype)
