"""The contestants that answer from the distribution of piecewise Laplace: this library, what a JAX
user writes today, and NumPy.

All of them get the same case and are checked against the same exact cdf. For an odd number of
points, both relations read the sorted records: under swap, an interval between two records is one
piece with a cost of 1; under add/remove with the midpoint median it is two pieces of equal width
and slope, together one with a cost of 2. The NumPy contestants use that (n + 1 intervals under both
relations); ``naive_gumbel`` takes the pieces of the profile as they are (2 (n + 1) under
add/remove).
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpjax
import harness
from harness import Built, Case, Contestant

WRONG = 1.25  # times epsilon, for controls
SCORES = 2**22  # in one call of naive Gumbel-max for many draws, as many as keep a device busy


def control(
    build: Callable[..., Callable], judge: harness.Judge, check_draws: int = 100_000
) -> Contestant:
    """A contestant with the wrong distribution, which is never timed: it has to be rejected."""
    name = f"control with epsilon {WRONG} times too large"
    return Contestant(name, build(WRONG), judge, check_draws=check_draws, must_be_rejected=True)


# --- this library ---


def sorted_profile(case: Case) -> dpjax.SensitivityProfile:
    return case.profile(jnp.asarray(case.sorted_data))


def library(case: Case) -> Built:
    """From the profile of sorted records to draws, under one jit."""

    def draw(key: jax.Array, profile: dpjax.SensitivityProfile) -> jax.Array:
        return dpjax.piecewise_laplace(profile, case.epsilon).sample(key, case.drawn)

    return harness.build_jax(draw, sorted_profile(case), units=case.rows * case.draws)


def library_from_raw(case: Case) -> Built:
    """From unsorted records to a draw, under one jit."""
    return harness.build_jax(
        lambda key, x: case.distribution(x).sample(key), case.data, units=case.rows
    )


def simulated(factor: float = 1.0):
    """``dpjax.simulate`` of the mean distance from the median; another ``factor`` of epsilon than 1
    is wrong on purpose.
    """

    def build(case: Case) -> Built:
        wrong = replace(case, epsilon=case.epsilon * factor)
        medians, data = jnp.asarray(case.medians), jnp.asarray(case.data)

        def distance(draws: jax.Array, x: jax.Array) -> jax.Array:
            return jnp.abs(draws - medians)

        def run(turn: int) -> jax.Array:
            key, draws = jax.random.key(turn), case.draws
            found = dpjax.simulate(key, wrong.distribution, data, draws=draws, statistic=distance)
            return jax.block_until_ready(found.mean)

        return Built(run, case.rows * case.draws)

    return build


def mean_is_exact(case: Case, means: np.ndarray) -> tuple[float, float]:
    """How many standard errors means of the distance from the median are off, at most over rows."""
    medians = jnp.asarray(case.medians)
    forms = case.exact.mean_abs_error(medians), case.exact.mean() - medians, case.exact.stddev()
    error, bias, deviation = (np.asarray(form, np.float64) for form in forms)
    standard_error = np.sqrt((deviation**2 + bias**2 - error**2) / case.draws)
    off = float(np.max(np.abs(means - error) / standard_error))
    rate = harness.FALSE_POSITIVE_RATE / (2 * means.size)
    return off, statistics.NormalDist().inv_cdf(1 - rate)


# --- error bars ---


def mean_abs_error(factor: float = 1.0):
    def build(case: Case) -> Built:
        def error(profile: dpjax.SensitivityProfile, center: jax.Array) -> jax.Array:
            return dpjax.piecewise_laplace(profile, case.epsilon * factor).mean_abs_error(center)

        given = sorted_profile(case), case.medians
        return harness.build_jax(error, *given, units=case.rows, keyed=False)

    return build


def interval(factor: float = 1.0):
    def build(case: Case) -> Built:
        def ends(profile: dpjax.SensitivityProfile) -> jax.Array:
            distribution = dpjax.piecewise_laplace(profile, case.epsilon * factor)
            return jnp.stack(distribution.interval(0.95))

        return harness.build_jax(ends, sorted_profile(case), units=case.rows, keyed=False)

    return build


def error_by_pieces(case: Case, found: np.ndarray) -> tuple[float, float]:
    """How far errors are from those by the weights and mean distances of intervals, in float64."""
    slope, center = _slope(case), (case.points + 1) // 2
    inside = 1 / slope - 1 / math.expm1(slope)  # the mean place in a piece, from its inner end
    edges = _edges(case).astype(np.float64)
    steps = np.abs(np.arange(case.points + 2) - center)
    width = np.diff(edges)
    near = np.minimum(
        np.abs(edges - edges[:, [center]])[:, :-1], np.abs(edges - edges[:, [center]])[:, 1:]
    )
    weight = width * np.exp(-slope * np.minimum(steps[:-1], steps[1:]))
    exact = np.sum(weight * (near + width * inside), axis=1) / np.sum(weight, axis=1)
    return float(np.max(np.abs(found / exact - 1))), 1e-4


def holds_95(case: Case, ends: np.ndarray) -> tuple[float, float]:
    """How far the probabilities below both ends are from what they should be."""
    below = np.asarray(harness.cdf(case.exact, jnp.asarray(ends)))
    return float(np.max(np.abs(below - np.array([[0.025], [0.975]])))), 1e-4


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
    left, right = (jnp.take_along_axis(edges, piece + end, axis=-1) for end in (0, 1))
    s = epsilon / 2  # the cost rises by 1 over every piece
    place = -jnp.log1p(jax.random.uniform(key_place, piece.shape) * jnp.expm1(-s)) / s
    offset = place * (right - left)
    return jnp.where(piece < center, right - offset, left + offset)[..., 0]


def naive(factor: float = 1.0):
    """``naive_gumbel`` on the profile's values, so many draws in a call as keep a device busy."""

    def build(case: Case) -> Built:
        profile = sorted_profile(case)
        edges = jnp.concatenate([jnp.flip(profile.lower, -1), profile.upper[..., 1:]], axis=-1)
        levels = np.concatenate(
            [np.flip(profile.lower_levels[0, :-1]), profile.upper_levels[0, :-1]]
        )
        center = profile.lower.shape[-1] - 1
        draws = max(1, min(case.draws, SCORES // edges.size))

        def draw(key: jax.Array, edges: jax.Array, levels: jax.Array, epsilon: Any) -> jax.Array:
            if draws == 1:
                return naive_gumbel(key, edges, levels, center, epsilon)
            one = lambda key: naive_gumbel(key, edges, levels, center, epsilon)  # noqa: E731
            return jax.vmap(one)(jax.random.split(key, draws))

        epsilon = np.float32(case.epsilon * factor)
        return harness.build_jax(draw, edges, levels, epsilon, units=case.rows * draws)

    return build


def naive_from_raw(case: Case) -> Built:
    """Sort and Gumbel-max under one jit, for the relation swap, whose edges are the bounds and the
    records.
    """
    rank, center = np.arange(case.points + 2), (case.points + 1) // 2
    levels = np.minimum(np.abs(rank - center)[:-1], np.abs(rank - center)[1:])
    bounds = ((0, 0), (case.lower, case.upper))

    def draw(key: jax.Array, x: jax.Array, levels: jax.Array) -> jax.Array:
        ordered = jnp.sort(jnp.clip(x, case.lower, case.upper), axis=-1)
        edges = jnp.pad(ordered, [(0, 0), (1, 1)], constant_values=bounds)
        return naive_gumbel(key, edges, levels, center, case.epsilon)

    return harness.build_jax(draw, case.data, levels, units=case.rows)


# --- plain noise, plain reading and sorting ---


def plain_laplace(case: Case) -> Built:
    """``jax.random.laplace`` around given medians."""
    shape = (*case.drawn, case.rows)

    def noisy(key: jax.Array, medians: jax.Array) -> jax.Array:
        return medians + jax.random.laplace(key, shape) / case.epsilon

    return harness.build_jax(noisy, case.medians, units=math.prod(shape))


@harness.uniform
def by_laplace(case: Case, draws: np.ndarray) -> np.ndarray:
    noise = (draws.astype(np.float64) - case.medians) * case.epsilon
    return np.where(noise < 0, 0.5 * np.exp(-np.abs(noise)), 1 - 0.5 * np.exp(-np.abs(noise)))


def read(case: Case) -> Built:
    """One jitted sum over the edges."""
    edges = jnp.asarray(case.exact.edges)
    return harness.build_jax(jnp.sum, edges, units=case.rows, keyed=False)


def numpy_sort(case: Case) -> Built:
    data = case.data
    return Built(lambda turn: np.sort(data, axis=1), case.rows, bytes_touched=2 * data.nbytes)


def jax_sort(case: Case) -> Built:
    return harness.build_jax(
        lambda x: jnp.sort(x, axis=-1), case.data, units=case.rows, keyed=False
    )


# --- NumPy ---


def _slope(case: Case) -> float:
    """By how much the log-density falls over the interval between two records."""
    return case.epsilon / 2 * (2 if case.relation == "add_remove" else 1)


def _edges(case: Case) -> np.ndarray:
    """Sorted records between the bounds."""
    return np.pad(
        case.sorted_data, ((0, 0), (1, 1)), constant_values=((0, 0), (case.lower, case.upper))
    )


def prepared(case: Case) -> tuple[np.ndarray, np.ndarray, int, float]:
    """Sorted records between the bounds, exp(-cost) of each of the n + 1 intervals at its inner
    end, the center, and the decay over an interval.
    """
    center = (case.points + 1) // 2
    steps = np.abs(np.arange(case.points + 2) - center)
    decay = np.exp(-_slope(case) * np.minimum(steps[:-1], steps[1:]))
    return _edges(case), decay.astype(np.float32), center, _slope(case)


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
    local = np.where(index < count, decay[inside], np.float32(0))
    sums = np.cumsum(np.take_along_axis(weights, inside, axis=1) * local, axis=1)
    chosen = block * _BLOCK + np.argmax(sums >= uniforms[1, :, None] * sums[:, -1:], axis=1)
    return _place(edges, chosen, uniforms[2], case)


NUMPY_SINGLE = {"cumulative sums": _by_cumsum, "two levels": _by_two_levels}
_CHUNK = 256  # rows that NumPy takes at a time


def numpy_single(select: str, from_raw: bool):
    """One draw from each row; from sorted records, or from raw ones with clip and sort."""

    def build(case: Case) -> Built:
        buffer, decay, _, _ = prepared(case)
        data, generator = case.data, np.random.default_rng(1)

        def run(turn: int) -> np.ndarray:
            out = np.empty(case.rows, np.float32)
            for start in range(0, case.rows, _CHUNK):
                edges = buffer[start : start + _CHUNK]
                if from_raw:
                    records = edges[:, 1:-1]
                    np.clip(data[start : start + _CHUNK], case.lower, case.upper, out=records)
                    records.sort(axis=1)
                out[start : start + _CHUNK] = NUMPY_SINGLE[select](edges, decay, case, generator)
            return out

        return Built(run, case.rows, bytes_touched=buffer.nbytes + 4 * case.rows)

    return build


def numpy_repeated(case: Case) -> Built:
    """Row by row: a cumulative table, np.interp for the interval and the rest of the uniform,
    inverse truncated exponential.

    One uniform a draw: what is left of it inside the chosen interval is uniform again.
    ``np.interp`` finds the interval and that rest in one pass, faster here than ``np.searchsorted``
    with a second uniform.
    """
    edges_of_all, decay, center, slope = prepared(case)
    slope, generator = np.float32(slope), np.random.default_rng(2)

    def run(turn: int) -> np.ndarray:
        out = np.empty((case.draws, case.rows), np.float32)
        for i, edges in enumerate(edges_of_all):
            widths = np.diff(edges)
            table = np.concatenate([np.zeros(1, np.float32), np.cumsum(widths * decay)])
            start = np.concatenate([edges[1 : center + 1], edges[center:-1]])
            signed = np.concatenate([widths[:center], -widths[center:]]) / slope
            uniforms = generator.random(case.draws, dtype=np.float32)
            uniforms *= table[-1]
            position = np.interp(uniforms, table, np.arange(len(table), dtype=np.float32))
            chosen = np.minimum(position.astype(np.intp), len(widths) - 1)
            position -= chosen
            position *= np.expm1(-slope)
            np.log1p(position, out=position)
            position *= signed[chosen]
            position += start[chosen]
            out[:, i] = position
        return out

    return Built(run, case.draws * case.rows, bytes_touched=4 * case.draws * case.rows)
