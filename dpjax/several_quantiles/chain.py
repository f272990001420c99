"""Chains of quantiles: the weight of all ways to place y_1 <= ... <= y_m among the records.

Costs are sums over adjacent quantiles. The records cut the line into slots of equal rank, numbered
0, 1, ...; the weight of y_1, ..., y_m in the slots j_1 <= ... <= j_m is

    start(j_1) * product over k of exp(-rate |j_k - j_{k-1} - step_k|) * end(j_m) * the volume of
    such tuples,

where c quantiles in one slot of width w have the volume w (w + u) ... (w + (c-1) u) / c!: w^c / c!
on the real line (u = 0), and on a grid of w points (u = 1) the number of multisets; w may be a part
of a point. Forward filtering sums over the slots, one quantile at a time:

    before[k](j) = weight of y_1, ..., y_k in slots below j, with the cost of the step to a y_{k+1}
    in slot j after[k](j)  = weight of y_1, ..., y_k with y_k in slot j and no later one there
                 = sum over c = 1, ..., k of before[k-c](j) * volume of c in the slot * the cost of
                 c - 1 steps
                   of length 0.

From after[k] to before[k] the kernel has its peak at a distance of step, so it is split there. With
b = floor(step), the slots more than b below j are a geometric sum, read b slots further down. Those
within b are a window of b slots, whose weights grow with the distance; it is the end of one block
of b slots and the beginning of the next (van Herk 1992). So nothing is subtracted, and the work is
linear in the number of slots, whatever the steps are.

Weights are stored as logarithms; the relative errors of weights are about 1e-4 in float32 and 1e-12
in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.distributions.fixed_point_choice import race
from dpjax.numerics.batching import by_platform, in_memory, take
from dpjax.numerics.sums import LANES, pad, pairwise_sum
from dpjax.numerics.two_words import Words
from dpjax.random.keys import always_true
from dpjax.random.threefry import threefry
from dpjax.random.uniforms import exponential_from_uniform, uniform_from_words

NOTHING = -1e30  # in place of log 0: finite, so that no difference of two is NaN


class Noise(NamedTuple):
    """The random numbers of D draws from each of B rows.

    Attributes:
        keys: the two-word key of each row, ``(B, 1)``.
        draws: the numbers of the draws, uint32 ``(D,)``.
        choices: static, how many choices there are; each has numbers of its own.
        dtype: of the exponential variates.
    """

    keys: Words
    draws: jax.Array
    choices: int
    dtype: Any

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of draws."""
        return self.keys.high.shape[0], self.draws.shape[0]

    def words(self, choice: jax.Array, first: int, size: int) -> Words:
        """Return random words for ``size`` places of a choice, ``(B, D, size)``.

        They depend on the row, the draw, the choice and the place.
        """
        place = np.uint32(first) + jnp.arange(size, dtype=jnp.uint32)
        stream = place * np.uint32(self.choices) + choice.astype(jnp.uint32)
        keys = Words(self.keys.high[..., None], self.keys.low[..., None])
        return threefry(keys, Words(stream, self.draws[:, None]))

    def exponentials(self, choice: jax.Array, first: int, size: int) -> jax.Array:
        """Return standard exponential noise for these places and further ones."""
        words = self.words(choice, first, -(-size // LANES) * LANES)
        return exponential_from_uniform(uniform_from_words(words, self.dtype))


class Chains(NamedTuple):
    """T chains for each of B rows, over J slots; the last axes of arrays are ``(B, T)``.

    Attributes:
        width: the widths of the slots, ``(J, B, 1)``.
        start: the logarithm of the weight of the first quantile in each slot, ``(J, B, T)``.
        end: the logarithm of the weight of the last quantile in each slot, ``(J, B, T)``.
        step: the integer part of the steps to the second, third, ... quantile, int32 ``(m - 1, B,
            T)``.
        part: the fractional part of the steps, in [0, 1).
        rate: the cost of a distance of one slot, ``(B, 1)``.
        unit: the u of the volumes, 0 or 1.
    """

    width: jax.Array
    start: jax.Array
    end: jax.Array
    step: jax.Array
    part: jax.Array
    rate: jax.Array
    unit: int

    def rows(self, number: int) -> Chains:
        """Return the chains of the first rows."""
        return self._replace(
            **{name: getattr(self, name)[..., :number, :] for name in self._fields[:-1]}
        )

    def volumes(self) -> jax.Array:
        """Return the log volumes of 1, ..., m quantiles in each slot, ``(m, J, B, 1)``."""
        size = jnp.arange(self.step.shape[0] + 1).astype(self.width.dtype)[:, None, None, None]
        return jnp.cumsum(log((self.width + size * self.unit) / (size + 1)), axis=0)

    def stays(self, count: ArrayLike) -> jax.Array:
        """Return the log weights of the steps of length 0 in runs that follow 0, 1, ... quantiles.

        The runs end at quantile ``count``; the result is ``(m, B, T)``.
        """
        each = -self.rate * jnp.abs(self.step.astype(self.part.dtype) + self.part)
        from_, to = (
            jnp.arange(each.shape[0] + 1, dtype=jnp.int32)[:, None],
            jnp.arange(each.shape[0], dtype=jnp.int32),
        )
        within = (from_ <= to) & (to < count - 1)
        return jnp.sum(jnp.where(within[..., None, None], each, 0.0), axis=1)


def log(x: jax.Array) -> jax.Array:
    """Return the logarithm, and ``NOTHING`` for 0."""
    return jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1.0)), NOTHING)


def add(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the logarithm of the sum of two numbers given by their logarithms."""
    # Not abs(a - b), whose derivative at a tie is 1; the maximum shares it.
    most = jnp.maximum(a, b)
    # Its error is below that of the larger term.
    return most + jnp.log(1 + jnp.exp(jnp.minimum(a, b) - most))


def log_sum(terms: Sequence[jax.Array]) -> jax.Array:
    """Return the logarithm of the sum of a few arrays.

    A reduction over a short axis is not vectorized on the CPU, and 25 times slower.
    """
    most = reduce(jnp.maximum, terms)
    return most + jnp.log(reduce(jnp.add, [jnp.exp(term - most) for term in terms]))


def forward(chains: Chains, volumes: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """Return the logs of ``before[0], ..., before[m-1]`` and of ``after[1], ..., after[m]``.

    Each is ``(m, J, B, T)``.

    ``volumes`` are the logarithms of the volumes of the runs of all quantiles from the first to the
    last, ``(m, m, J, B, 1)`` by last and first; by default those determined by the number of
    quantiles in a run.
    """
    slots, *lanes = chains.start.shape
    m, rate, dtype = chains.step.shape[0] + 1, chains.rate, chains.start.dtype
    number = jnp.arange(slots, dtype=jnp.int32)[:, None, None]
    lane = jnp.arange(prod(lanes), dtype=jnp.int32).reshape(lanes)
    start = jnp.full((m, slots, *lanes), NOTHING, dtype).at[0].set(chains.start)

    sizes = jnp.flip(chains.volumes(), axis=0)
    sizes = jnp.concatenate([sizes, jnp.full_like(sizes, NOTHING)])

    def place(before: jax.Array, count: jax.Array) -> jax.Array:
        """Return after[count]."""
        runs = (
            jax.lax.dynamic_slice_in_dim(sizes, m - count, m)
            if volumes is None
            else volumes[count - 1]
        )
        stays = chains.stays(count)
        return jnp.maximum(log_sum([before[k] + (runs[k] + stays[k]) for k in range(m)]), NOTHING)

    def advance(
        before: jax.Array, inputs: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        count, step, part = inputs
        found = place(before, count)
        window = jnp.maximum(step, 0)
        below = -rate * ((window - step + 1).astype(dtype) - part)
        inside = jnp.where(window > 0, -rate * part, NOTHING)
        enters = -rate * (window - 1).astype(dtype)
        sums, first, last = by_platform(
            found,
            window,
            cpu=partial(block_sums, rate),
            default=partial(block_sums_by_doubling, rate),
        )
        first = jnp.maximum(first + enters, NOTHING)
        # A flat gather is faster.
        source = jnp.maximum(number - window, 0) * np.int32(prod(lanes)) + lane

        def moved(sums: jax.Array) -> jax.Array:
            there = sums.reshape(-1).at[source].get(mode="promise_in_bounds")
            return jnp.where(number >= window, there, NOTHING)

        following = log_sum([moved(last) + inside, moved(sums) + below, first + inside])
        following = jnp.maximum(following, NOTHING)
        return before.at[count].set(following, mode="drop"), found

    # One more step than there are, for after[m]; its contribution to before[m] is dropped.
    step, part = (
        jnp.concatenate([a, jnp.zeros_like(chains.start[:1], a.dtype)])
        for a in (chains.step, chains.part)
    )
    return jax.lax.scan(advance, start, (jnp.arange(1, m + 1, dtype=jnp.int32), step, part))


def block_sums(
    rate: jax.Array, found: jax.Array, window: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sum over slots i for each slot j, ``(J, B, T)``, in blocks of ``window`` slots.

    Returns:
        The logarithms of the sums of found[i] times exp(-rate (j - 1 - i)) over all i < j; of
        exp(rate (j - 1 - i)) over those in the block of j; and of exp(-rate (i - j)) over all i >=
        j in the block of j.
    """
    nothing, slots = jnp.full_like(found[0], NOTHING), found.shape[0]

    def up(
        state: tuple[jax.Array, jax.Array, jax.Array], found: jax.Array
    ) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        # Sums over all slots below and over the block; slots left in the block.
        sums, first, left = state
        ends = left <= 1
        following = jnp.where(ends, NOTHING, add(first + rate, found))
        return (add(sums - rate, found), following, jnp.where(ends, window, left - 1)), (
            sums,
            first,
        )

    _, (sums, first) = jax.lax.scan(up, (nothing, nothing, window), found)

    def down(state: tuple[jax.Array, jax.Array], found: jax.Array) -> tuple[Any, jax.Array]:
        last, left = state  # sum over the block from here on, and slots left in the block
        last = add(found, jnp.where(left == 0, NOTHING, last - rate))
        return (last, jnp.where(left == 0, window, left) - 1), last

    return (
        sums,
        first,
        jax.lax.scan(down, (nothing, slots % jnp.maximum(window, 1)), found, reverse=True)[1],
    )


def block_sums_by_doubling(
    rate: jax.Array, found: jax.Array, window: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the same in log2(J) steps for all slots at once (Hillis and Steele 1986).

    On accelerators, a step for each slot would be a kernel launch each.
    """
    slots, block = found.shape[0], jnp.maximum(window, 1)
    number = jnp.arange(slots, dtype=jnp.int32)[:, None, None]
    inside = jax.lax.rem(*jnp.broadcast_arrays(number, block))
    ahead = jnp.minimum(block - 1 - inside, np.int32(slots - 1) - number)

    # A negative distance reads later slots.
    def before(sums: jax.Array, distance: Any) -> jax.Array:
        padded = jnp.pad(sums, ((slots, slots), (0, 0), (0, 0)))
        return jax.lax.dynamic_slice_in_dim(padded, slots - distance, slots)

    def double(count: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        distance = jnp.int32(1) << count
        far = rate * distance.astype(rate.dtype)
        ways = (number, distance, -far), (inside, distance, far), (ahead, -distance, -far)
        return tuple(
            jnp.where(there >= distance, add(own, before(own, shift) + height), own)
            for own, (there, shift, height) in zip(sums, ways, strict=True)
        )

    rounds = np.int32(max(slots - 1, 0).bit_length())
    sums, first, last = jax.lax.fori_loop(np.int32(0), rounds, double, (found, found, found))
    return (
        jnp.where(number > 0, before(sums, 1), NOTHING),
        jnp.where(inside > 0, before(first, 1), NOTHING),
        last,
    )


def total(chains: Chains, after: jax.Array) -> jax.Array:
    """Return the logarithm of the weight of each chain, ``(B, T)``."""

    def in_turns(terms: jax.Array) -> jax.Array:
        return jax.lax.scan(
            lambda sums, slot: (add(sums, slot), None), jnp.full_like(terms[0], NOTHING), terms
        )[0]

    def in_pairs(terms: jax.Array) -> jax.Array:  # slots without weight at the end change nothing
        while terms.shape[0] > 1:
            terms = jnp.pad(
                terms, ((0, terms.shape[0] % 2), (0, 0), (0, 0)), constant_values=NOTHING
            )
            terms = add(terms[0::2], terms[1::2])
        return terms[0]

    return by_platform(after[-1] + chains.end, cpu=in_turns, default=in_pairs)


def reflect(chains: Chains) -> Chains:
    """Return the chains in reverse order, with y_m first."""
    up = partial(jnp.flip, axis=0)
    return Chains(
        up(chains.width),
        up(chains.end),
        up(chains.start),
        up(chains.step),
        up(chains.part),
        chains.rate,
        chains.unit,
    )


def run_masses(chains: Chains, before: jax.Array, log_weight: jax.Array) -> jax.Array:
    """Return the probability that exactly the quantiles l <= k < l + c are in a slot.

    The result is ``(m (m + 1) / 2, J, B)``, with pairs (l, c) in the order of
    :func:`dpjax.several_quantiles.marginals.runs`; ``log_weight``, ``(B,)``, is the total log
    weight.
    """
    m = before.shape[0]
    beyond = jnp.flip(forward(reflect(chains))[0], axis=1)
    volumes, stays = chains.volumes(), jax.vmap(chains.stays)(jnp.arange(m, dtype=jnp.int32) + 1)
    first, last = np.triu_indices(m + 1, 1)
    ends = jnp.asarray(first, jnp.int32), jnp.asarray(last, jnp.int32)

    def mass(ends: tuple[jax.Array, jax.Array]) -> jax.Array:
        first, last = ends
        chain = before[first] + beyond[m - last] + stays[last - 1, first]
        return jnp.sum(jnp.exp(chain + volumes[last - first - 1] - log_weight[:, None]), axis=-1)

    return jax.lax.map(mass, ends)


def draw_runs(
    chains: Chains, before: jax.Array, after: jax.Array, weights: jax.Array, noise: Noise
) -> tuple[jax.Array, ...]:
    """Draw a term by its weight, and the slots of all quantiles from its chain.

    Args:
        chains: the chains of some rows.
        before: from :func:`forward`.
        after: from :func:`forward`.
        weights: the log weights of all terms; those from T on are not chains, and their slots are
            arbitrary.
        noise: of choices 0 to m.

    Returns:
        The terms ``(B, D)``, the slot of each quantile ``(m, B, D)``, and the index (from 0) of the
        first quantile in the same slot, all int32.
    """
    m, slots, rows, terms = after.shape
    row, shape = jnp.arange(rows, dtype=jnp.int32)[:, None], noise.shape
    number, levels = jnp.arange(slots, dtype=jnp.int32), jnp.arange(m, dtype=jnp.int32)
    term = (
        jnp.zeros(shape, jnp.int32)
        if terms == 1
        else race(
            _from_largest(weights)[:, None], noise.exponentials(jnp.int32(m), 0, weights.shape[-1])
        )
    )
    lane = row * np.int32(terms) + jnp.minimum(term, np.int32(terms - 1))

    def by_lane(array: jax.Array) -> jax.Array:  # (..., B, T) -> (..., B T)
        return array.reshape(*array.shape[:-2], rows * terms)

    # Placed: slots last.
    below, placed, stays = (
        by_lane(before),
        jnp.moveaxis(by_lane(after), 1, 2),
        by_lane(chains.stays(m)),
    )
    volumes, ending, rate = (
        chains.volumes()[..., 0],
        jnp.moveaxis(by_lane(chains.end), 0, 1),
        chains.rate[..., None],
    )
    # An additional step, so that there is at least one; it is not used.
    step, part = (
        by_lane(jnp.concatenate([a, jnp.zeros_like(chains.start[:1], a.dtype)]))
        for a in (chains.step, chains.part)
    )
    blocks, of_runs = -(-slots // LANES), -(-m // LANES) * LANES

    def run(state: tuple[jax.Array, ...], choice: jax.Array) -> tuple[tuple[jax.Array, ...], None]:
        # The run ends before quantile ``last``, which is in slot ``above``.
        last, above, slots, firsts = state
        # Otherwise XLA would compute it again for each of the three choices.
        own = in_memory(
            always_true(noise.keys),
            lambda: noise.exponentials(choice, 0, LANES + of_runs + blocks),
        )
        index = jnp.maximum(last - 1, 0)
        distance = (above[..., None] - number - step[index, lane][..., None]).astype(
            rate.dtype
        ) - part[index, lane][..., None]
        near = jnp.where(number < above[..., None], -rate * jnp.abs(distance), NOTHING)
        heights = placed[index, lane] + jnp.where(last[..., None] == m, ending[lane], near)
        # A block of slots, then a slot of it.
        inside = _from_largest(heights).reshape(*shape, blocks, LANES)
        block = race(pairwise_sum(inside)[..., 0], own[..., LANES + of_runs :][..., :blocks])
        within = race(take(inside.reshape(*shape, -1), _block(block)), own[..., :LANES])
        slot = jnp.minimum(block * np.int32(LANES) + within, np.int32(number.size - 1))
        size = last[..., None] - 1 - levels
        volume = jnp.where(
            size >= 0, volumes[jnp.maximum(size, 0), slot[..., None], row[..., None]], NOTHING
        )
        # The steps of length 0 above the run are included too: they are the same for all
        # candidates.
        runs = (
            below[levels, slot[..., None], lane[..., None]]
            + stays[levels, lane[..., None]]
            + volume
        )
        first = race(_from_largest(runs), own[..., LANES : LANES + of_runs])
        first = jnp.minimum(first, last)
        joined = (first <= quantiles) & (quantiles < last)
        return (first, slot, jnp.where(joined, slot, slots), jnp.where(joined, first, firsts)), None

    quantiles = levels[:, None, None]
    start = (
        jnp.full(shape, m, jnp.int32),
        jnp.zeros(shape, jnp.int32),
        *jnp.zeros((2, m, *shape), jnp.int32),
    )
    (_, _, slot, first), _ = jax.lax.scan(run, start, levels)
    return term, slot, first


def _from_largest(log_weights: jax.Array) -> jax.Array:
    """Return the weights relative to the largest one, padded to a multiple of ``LANES``."""
    largest = jnp.max(log_weights, axis=-1, keepdims=True)
    return jnp.exp(pad(log_weights - largest, value=NOTHING))


def _block(block: jax.Array) -> jax.Array:
    """Return the slots of a block, on a new last axis."""
    return block[..., None] * np.int32(LANES) + jnp.arange(LANES, dtype=jnp.int32)
