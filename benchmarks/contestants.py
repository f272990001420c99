"""The contestants that draw from the distribution of piecewise Laplace: this library, what a JAX
user writes today, and NumPy.

All of them get the same case and are checked against the same exact cdf. For an odd number of
points, both relations read the sorted records: under swap, an interval between two records is one
piece with a cost of 1; under add/remove with the midpoint median it is two pieces of equal width
and slope, together one with a cost of 2. The NumPy contestants use that (n + 1 intervals under both
relations); ``naive_gumbel`` takes the pieces of the profile as they are (2 (n + 1) under
add/remove).
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import harness
from harness import Built, Case, Contestant

# --- this library ---


def library_draws(draws: tuple[int, ...] = ()):
    """``distribution.sample`` with the distribution as an argument."""

    def build(case: Case) -> Built:
        distribution = case.distribution(jnp.asarray(case.sorted_data))
        return harness.build_jax(
            lambda key, distribution: distribution.sample(key, draws),
            distribution,
            units=case.rows * int(np.prod(draws)),
        )

    return build


def library_from_raw(case: Case) -> Built:
    """From unsorted records to a draw, in one jitted call."""
    return harness.build_jax(
        lambda key, x: case.distribution(x).sample(key), case.data, units=case.rows
    )


# --- what a JAX user writes today ---


def naive_gumbel(
    key: jax.Array, edges: jax.Array, levels: jax.Array, center: int, epsilon: float | jax.Array
) -> jax.Array:
    """One draw from each row: Gumbel-max over all pieces, then a truncated exponential inside the
    chosen one.
    """
    key_piece, key_place = jax.random.split(key)
    widths = jnp.diff(edges, axis=-1)
    scores = jnp.log(widths) - epsilon / 2 * levels
    piece = jnp.argmax(scores + jax.random.gumbel(key_piece, scores.shape), axis=-1)[..., None]
    left, right = (
        jnp.take_along_axis(edges, piece, axis=-1),
        jnp.take_along_axis(edges, piece + 1, axis=-1),
    )
    s = epsilon / 2  # the cost rises by 1 over every piece
    offset = (
        -jnp.log1p(jax.random.uniform(key_place, piece.shape) * jnp.expm1(-s)) / s * (right - left)
    )
    return jnp.where(piece < center, right - offset, left + offset)[..., 0]


def naive_draws(draws: int | None = None, epsilon_factor: float = 1.0):
    """``naive_gumbel`` on the profile's values; ``epsilon_factor`` other than 1 makes it wrong on
    purpose.
    """

    def build(case: Case) -> Built:
        edges, levels, center = pieces(case)
        epsilon = np.float32(case.epsilon * epsilon_factor)
        return harness.build_jax(
            _naive(center, draws), edges, levels, epsilon, units=case.rows * (draws or 1)
        )

    return build


def pieces(case: Case) -> tuple[np.ndarray, np.ndarray, int]:
    """The edges and the levels of the profile's pieces, and where its center is among the edges."""
    profile = jax.tree.map(np.asarray, case.profile(jnp.asarray(case.sorted_data)))
    edges = np.concatenate([np.flip(profile.lower, -1), profile.upper[..., 1:]], axis=-1)
    levels = np.concatenate([np.flip(profile.lower_levels[:-1]), profile.upper_levels[:-1]])
    return edges, levels, profile.lower.shape[-1] - 1


@functools.cache
def _naive(center: int, draws: int | None) -> Callable:
    """One function for every epsilon: the control is the program that is timed."""

    def one(key: jax.Array, edges: jax.Array, levels: jax.Array, epsilon: jax.Array) -> jax.Array:
        return naive_gumbel(key, edges, levels, center, epsilon)

    def many(key: jax.Array, edges: jax.Array, levels: jax.Array, epsilon: jax.Array) -> jax.Array:
        return jax.lax.map(
            lambda key: one(key, edges, levels, epsilon), jax.random.split(key, draws)
        )

    return one if draws is None else many


def control(build, relation: str) -> Contestant:
    """A fast contestant with the wrong distribution, which must never be timed: the check of the
    harness has to reject it.
    """
    return Contestant(
        "control with epsilon 1.25 times too large",
        relation,
        build,
        harness.distribution_uniforms,
        must_be_rejected=True,
    )


# --- plain noise and plain reading ---


def plain_laplace(draws: tuple[int, ...] = ()):
    """``jax.random.laplace`` around given medians."""

    def build(case: Case) -> Built:
        medians = jnp.asarray(np.median(case.data, axis=1))
        shape = (*draws, case.rows)

        def noisy(key: jax.Array, medians: jax.Array) -> jax.Array:
            return medians + jax.random.laplace(key, shape) / case.epsilon

        return harness.build_jax(noisy, medians, units=int(np.prod(shape)))

    return build


def plain_laplace_uniforms(case: Case, draws: np.ndarray) -> np.ndarray:
    noise = (draws.astype(np.float64) - np.median(case.data, axis=1)) * case.epsilon
    return np.where(noise < 0, 0.5 * np.exp(-np.abs(noise)), 1 - 0.5 * np.exp(-np.abs(noise)))


def read_with_jax(reduction):
    """One jitted reduction over the edges."""

    def build(case: Case) -> Built:
        return harness.build_jax(
            reduction,
            case.distribution(jnp.asarray(case.sorted_data)).edges,
            units=case.rows,
            keyed=False,
        )

    return build


def read_with_numpy(case: Case) -> Built:
    edges = np.array(case.distribution(jnp.asarray(case.sorted_data)).edges)
    return Built(lambda turn: edges.max(), case.rows, bytes_touched=edges.nbytes)


# --- NumPy ---


def _slope(case: Case) -> float:
    """By how much the log-density falls over the interval between two records."""
    return case.epsilon / 2 * (2 if case.relation == "add_remove" else 1)


def _decay(case: Case) -> np.ndarray:
    """exp(-epsilon/2 * level) of the inner end of n + 1 intervals between bounds and records."""
    rank = np.arange(case.points + 2)
    steps = np.abs(rank - (case.points + 1) // 2)
    return np.exp(-_slope(case) * np.minimum(steps[:-1], steps[1:])).astype(np.float32)


def _place(edges: np.ndarray, chosen: np.ndarray, uniforms: np.ndarray, case: Case) -> np.ndarray:
    """The point in the chosen interval of each row, by inverse cdf from its inner end."""
    rows = np.arange(len(edges))
    left, right = edges[rows, chosen], edges[rows, chosen + 1]
    slope = np.float32(_slope(case))
    offset = np.log1p(uniforms * np.expm1(-slope)) / -slope * (right - left)
    return np.where(chosen < (case.points + 1) // 2, right - offset, left + offset)


def _by_cumsum(
    edges: np.ndarray, decay: np.ndarray, case: Case, generator: np.random.Generator
) -> np.ndarray:
    weights = np.diff(edges, axis=1)
    weights *= decay
    sums = np.cumsum(weights, axis=1)
    uniforms = 1 - generator.random((2, len(edges)), dtype=np.float32)  # in (0, 1]
    chosen = np.argmax(sums >= uniforms[0, :, None] * sums[:, -1:], axis=1)
    return _place(edges, chosen, uniforms[1], case)


def _by_race(
    edges: np.ndarray, decay: np.ndarray, case: Case, generator: np.random.Generator
) -> np.ndarray:
    """Gumbel-max, written as the smallest of exponentials divided by weights: no logarithm is
    needed.
    """
    weights = np.diff(edges, axis=1)
    weights *= decay
    clocks = generator.standard_exponential(weights.shape, dtype=np.float32)
    # Weights that underflow never win
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        clocks /= weights
    return _place(
        edges, np.nanargmin(clocks, axis=1), generator.random(len(edges), dtype=np.float32), case
    )


_BLOCK = 32


def _by_two_levels(
    edges: np.ndarray, decay: np.ndarray, case: Case, generator: np.random.Generator
) -> np.ndarray:
    """Sums over blocks of 32 intervals by a matrix product, a block, then an interval in it."""
    weights = np.diff(edges, axis=1)
    count = weights.shape[1]
    blocks = -(-count // _BLOCK)
    member = np.zeros((count, blocks), np.float32)
    member[np.arange(count), np.arange(count) // _BLOCK] = decay
    sums = np.cumsum(weights @ member, axis=1)
    uniforms = 1 - generator.random((3, len(edges)), dtype=np.float32)
    block = np.argmax(sums >= uniforms[0, :, None] * sums[:, -1:], axis=1)
    index = block[:, None] * _BLOCK + np.arange(_BLOCK)
    inside = np.minimum(index, count - 1)
    local = np.take_along_axis(weights, inside, axis=1) * np.where(
        index < count, decay[inside], np.float32(0)
    )
    sums = np.cumsum(local, axis=1)
    chosen = block * _BLOCK + np.argmax(sums >= uniforms[1, :, None] * sums[:, -1:], axis=1)
    return _place(edges, chosen, uniforms[2], case)


NUMPY_SINGLE = {"cumulative sums": _by_cumsum, "Gumbel-max": _by_race, "two levels": _by_two_levels}


def numpy_single(select: str, chunk: int, from_raw: bool):
    """One draw from each row, ``chunk`` rows at a time; from sorted records, or from raw ones with
    clip and sort.
    """

    def build(case: Case) -> Built:
        decay, generator = _decay(case), np.random.default_rng(1)
        buffer = np.empty((case.rows, case.points + 2), np.float32)
        buffer[:, 0], buffer[:, -1], buffer[:, 1:-1] = case.lower, case.upper, case.sorted_data
        data = case.data

        def run(turn: int) -> np.ndarray:
            out = np.empty(case.rows, np.float32)
            for start in range(0, case.rows, chunk):
                edges = buffer[start : start + chunk]
                if from_raw:
                    records = edges[:, 1:-1]
                    np.clip(data[start : start + chunk], case.lower, case.upper, out=records)
                    records.sort(axis=1)
                out[start : start + chunk] = NUMPY_SINGLE[select](edges, decay, case, generator)
            return out

        return Built(run, case.rows, bytes_touched=buffer.nbytes + 4 * case.rows)

    return build


def numpy_sort(case: Case) -> Built:
    data = case.data
    return Built(lambda turn: np.sort(data, axis=1), case.rows, bytes_touched=2 * data.nbytes)


def numpy_repeated(draws: int, dtype: type):
    """Row by row: a cumulative table, np.interp for the interval and the rest of the uniform,
    inverse truncated exponential.

    One uniform a draw: what is left of it inside the chosen interval is uniform again.
    ``np.interp`` finds the interval and that rest in one pass, faster here than ``np.searchsorted``
    with a second uniform.
    """

    def build(case: Case) -> Built:
        decay, slope, generator = (
            _decay(case).astype(dtype),
            dtype(_slope(case)),
            np.random.default_rng(2),
        )
        records, center = case.sorted_data.astype(dtype), (case.points + 1) // 2

        def run(turn: int) -> np.ndarray:
            out = np.empty((draws, case.rows), dtype)
            for i in range(case.rows):
                edges = np.concatenate([[case.lower], records[i], [case.upper]]).astype(dtype)
                widths = np.diff(edges)
                table = np.concatenate([np.zeros(1, dtype), np.cumsum(widths * decay)])
                start = np.concatenate([edges[1 : center + 1], edges[center:-1]])
                signed = np.concatenate([widths[:center], -widths[center:]]) / slope
                uniforms = generator.random(draws, dtype=dtype)
                uniforms *= table[-1]
                position = np.interp(uniforms, table, np.arange(len(table), dtype=dtype))
                chosen = np.minimum(position.astype(np.intp), len(widths) - 1)
                position -= chosen
                position *= np.expm1(-slope)
                np.log1p(position, out=position)
                position *= signed[chosen]
                position += start[chosen]
                out[:, i] = position
            return out

        return Built(
            run, draws * case.rows, bytes_touched=draws * case.rows * np.dtype(dtype).itemsize
        )

    return build
