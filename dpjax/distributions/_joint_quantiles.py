"""The joint distribution of several private quantiles of each row, by sums over slots.

A slot j is the interval between the sorted records j and j + 1, the bounds being the first and the
last. Points y_1 <= ... <= y_m in the slots j_1 <= ... <= j_m have a density proportional to

    K(j_1 - t_1) K(j_2 - j_1 - s_2) ... K(j_m - j_(m-1) - s_m) K(n - N - j_m + t_m),
    t_k = 1 + floor(q_k (N - 1)),  s_k = t_k - t_(k-1),  K(d) = exp(-rate |d|) + exp(-600),

for a number of records N that is given or noisy. The constant in K keeps every step possible: far
from the targets, where K would underflow, all steps have the weight of 600 nats.

**Forward.** Let F_k(j) be the weight of the first k points where the k-th is the first one in slot
j, before its width counts, and L_k(j) that of all tuples with the k-th point in slot j. A run of c
points in a slot has the volume width^c / c!, so

    L_k(j) = sum over i <= k of F_i(j) width^(k-i+1) / (k-i+1)! K(s_(i+1)) ... K(s_k),
    F_(k+1)(j) = sum over i < j of L_k(i) K(j - i - s_(k+1)).

The second sum is read from three running sums of L_k: of L_k(i) rho^(j-i) below j, of L_k(i)
rho^(i-j) above it, and of L_k. A difference of two sums above loses at most its last digits times
the weight of tuples whose points k and k + 1 are out of order; exchanged for two points in one of
their slots, these have at least half that weight, so that the error of every probability is that of
rounding. Weights are relative to the largest of each level, which is exp(600).

**Back.** The slot of the last point is found by bisection of the same sums, the length of its run
among the terms of L_k(j), and so on. Points of a run are uniform in their slot, sorted.

**Ties.** With a resolution, a multiple is an interval of that length, the i-th of equal records is
at the i-th point of van der Corput's sequence in it, and draws are rounded: so one more record is
one more point, all points differ, and equal records have width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from fractions import Fraction
from math import exp, prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.distributions.base import Drawn
from dpjax.distributions.discrete_laplace import DiscreteLaplace
from dpjax.numerics.arrays import varying
from dpjax.numerics.multiples import from_multiples, to_multiples
from dpjax.numerics.search import count_leading
from dpjax.pytrees import pytree
from dpjax.random.variates import uniform, words

_FLOOR = 600.0  # nats: the weight of a step is at least exp(-_FLOOR), the largest one exp(_FLOOR)


@pytree
class JointQuantiles(Drawn):
    """The joint distribution of m private quantiles y_1 <= ... <= y_m of each row, as a pytree.

    Its density is in the module docstring; weights are local float64, whatever the dtype of draws.
    Leading axes are a batch. Draws ascend on their last axis and have no derivative. With a given N
    the sums of a row serve all of its draws; with a noisy N each draw has its own. Events of
    probability below 2^-53 do not happen.

    Attributes:
        values: float ``(..., n)``, ascending records; those beyond ``num_records`` equal ``upper``.
        num_records: int32 ``(...)``, n.
        lower: float ``(...)``.
        upper: float ``(...)``.
        rate: float ``(...)``.
        number: int32 ``(...)``, N; None if each draw has its own noisy one.
        count_rate: float ``(...)``, the rate of the noise of N; None if N is given.
        levels: static, the m quantile levels.
        resolution: static, the number of which draws are multiples, or None.

    >>> import jax.numpy as jnp
    >>> from dpjax import joint_quantiles, quantiles
    >>> asked = quantiles(jnp.arange(100.0), [0.25, 0.75], lower=0, upper=100, neighbors="swap")
    >>> joint_quantiles(asked, 1.0).event_shape
    (2,)
    """

    values: jax.Array
    num_records: jax.Array
    lower: jax.Array
    upper: jax.Array
    rate: jax.Array
    number: Any
    count_rate: Any
    levels: tuple[Fraction, ...] = field(kw_only=True, metadata={"static": True})
    resolution: Fraction | None = field(default=None, kw_only=True, metadata={"static": True})

    _event_axes = ("values",)
    _parameters = ("rate",)

    @property
    def event_shape(self) -> tuple[int]:
        """The shape of one draw, ``(m,)``."""
        return (len(self.levels),)

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The bounds of all quantiles, of shape ``batch_shape`` each."""
        shape = self.batch_shape
        return jnp.broadcast_to(self.lower, shape), jnp.broadcast_to(self.upper, shape)

    def _sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        joint, draws = jax.lax.stop_gradient(self), prod(shape)
        batch, m, dtype = joint.batch_shape, len(joint.levels), joint.dtype
        of_numbers, of_places = jax.random.split(key)
        drawn = words(of_places, (*batch, draws, m, 6))
        if joint.number is None:
            count = jnp.broadcast_to(joint.num_records, batch).astype(dtype)
            noisy = DiscreteLaplace(count, jnp.ones((), dtype), joint.count_rate)
            number = jnp.moveaxis(noisy.sample(of_numbers, draws), 0, -1)
            number = jnp.clip(number, 1, max(joint.values.shape[-1], 1)).astype(jnp.int32)
        else:
            number = jnp.broadcast_to(joint.number, batch)[..., None]  # all draws share their sums

        def compute(row: JointQuantiles, number: jax.Array, drawn: jax.Array) -> jax.Array:
            def draw(given: tuple[jax.Array, jax.Array]) -> jax.Array:
                number, drawn = given
                asked = _row(row, number)
                edges = asked.edges
                levels = _forward(asked, edges[0], edges[-1])

                def one(slot_at: jax.Array, run_at: jax.Array, place: jax.Array) -> jax.Array:
                    slot = _back(asked, levels, slot_at, run_at)
                    return jnp.sort(edges[slot] + (edges[slot + 1] - edges[slot]) * place)

                at = [uniform(drawn[..., i], drawn[..., i + 1], jnp.float64) for i in (0, 2, 4)]
                return jax.vmap(one)(*at)

            shared = drawn.reshape(number.size, -1, m, 6)
            found = jax.lax.map(draw, (number, shared)).reshape(draws, m)
            if row.resolution is not None:
                found = from_multiples(jnp.floor(found + 0.5), row.resolution)
            found = jnp.clip(found, row.lower, row.upper).astype(dtype)
            return jnp.where(jnp.isnan(row.rate), jnp.nan, found)

        with jax.enable_x64(True):
            found = _by_rows(compute, joint, batch, number, drawn)
        return jnp.moveaxis(found, -2, 0).reshape(*shape, *batch, m)

    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return the log-density, or log-probability with a resolution, of tuples ``(..., m)``.

        It is -inf where they do not ascend between the bounds. It has gradients (reverse mode) by
        the records, bounds and rate.

        Returns:
            Float of the shape that the leading axes of ``y`` and ``batch_shape`` broadcast to.

        Raises:
            ValueError: ``y`` does not have m quantiles; or N is noisy: the distribution is then a
                mixture over all N, and only draws from it are offered.
        """
        if self.number is None:
            raise ValueError(
                "log_prob needs a public number of records: swap neighbors, or public_n."
            )
        return _log_prob(self, self._points("y", y))

    def measured_error(self, key: jax.Array, center: ArrayLike, draws: int = 1000) -> jax.Array:
        """Return the mean of |y_k - center_k| over draws, of shape ``batch_shape + (m,)``.

        Under add/remove without a ``public_n`` a draw reads its row for each rank: 1000 of them
        take some hundred times as long as with it.

        Args:
            key: a scalar typed threefry key.
            center: float, broadcasts to ``batch_shape + (m,)``, such as the ``value`` of
                :class:`dpjax.SortedRecords`.
            draws: the number of draws. The standard error of the result is the standard deviation
                of one error over its root: for 1000 draws about 3 % of the result.
        """
        far = jnp.abs(self.sample(key, draws) - checks.float_array("center", center))
        return jnp.mean(far, axis=0)


class _Row(NamedTuple):
    """One row in float64: slots, the rate and the ranks of its targets.

    Attributes:
        edges: ``(J + 1,)``, the ends of the slots, in multiples with a resolution; slots beyond the
            row's number of records have no width, the last one among them.
        rate: a scalar.
        steps: int32 ``(m,)``, t_1 and s_2, ..., s_m.
        end: int32, n - N + t_m.
    """

    edges: jax.Array
    rate: jax.Array
    steps: jax.Array
    end: jax.Array


class _Levels(NamedTuple):
    """The forward sums of all m levels.

    Attributes:
        first: ``(m, J)``, F_k.
        sums: ``(m, 3, J)``, the running sums of L_k: below, of all up to a slot, and above.
        log_scale: ``(m,)``, the logarithms of the factors by which L_k was divided.
    """

    first: jax.Array
    sums: jax.Array
    log_scale: jax.Array


def _among_equal(x: jax.Array) -> jax.Array:
    """Return how many of the ascending entries up to each one are equal to it."""
    return jnp.arange(1, x.size + 1, dtype=jnp.int32) - jnp.searchsorted(x, x).astype(jnp.int32)


def _row(joint: JointQuantiles, number: jax.Array) -> _Row:
    """Return one row, whose targets are those of ``number`` records."""
    x, low, high = joint.values, joint.lower, joint.upper
    if joint.resolution is not None:
        x, low, high = (to_multiples(a, joint.resolution) for a in (x, low, high))
        low, high = low - 0.5, high + 0.5
        equal, bits = _among_equal(x), range(x.size.bit_length())
        inside = sum(jnp.where((equal >> bit) % 2 == 1, 0.5 ** (bit + 1), 0.0) for bit in bits)
        present = jnp.arange(x.size, dtype=jnp.int32) < joint.num_records
        x = jnp.sort(jnp.where(present, x - 0.5 + inside, high))
    edges = jnp.concatenate([low[None], x, high[None], high[None]])
    parts = np.array([(q.numerator, q.denominator) for q in joint.levels], np.int64)
    targets = 1 + parts[:, 0] * (number.astype(jnp.int64) - 1) // parts[:, 1]
    targets = targets.astype(jnp.int32)
    # Larger rates give the same draws, but infinity times 0 is NaN.
    rate = jnp.minimum(joint.rate, 2 * _FLOOR)
    steps = jnp.diff(targets, prepend=0)
    return _Row(edges, rate, steps, joint.num_records - number + targets[-1])


def _step(rate: jax.Array, distance: jax.Array) -> jax.Array:
    """Return K."""
    return jnp.exp(-rate * jnp.abs(distance).astype(rate.dtype)) + exp(-_FLOOR)


def _sums(weights: jax.Array, rate: jax.Array) -> jax.Array:
    """Return the running sums of weights ``(J,)``: below, of all up to a slot, and above."""

    def join(earlier: Any, later: Any) -> Any:
        return earlier[0] * later[0], later[0] * earlier[1] + later[1]

    decays = jnp.broadcast_to(jnp.exp(-rate), weights.shape)
    below, above = (
        jax.lax.associative_scan(join, (decays, weights), reverse=reverse)[1]
        for reverse in (False, True)
    )
    return jnp.stack([below, jnp.cumsum(weights), above])


def _before(sums: jax.Array, rate: jax.Array, point: jax.Array, stop: jax.Array) -> jax.Array:
    """Return the sum over slots i < stop of L(i) K(point - i), from the running sums of L."""
    below, up_to, above = sums
    last, following = jnp.minimum(point, stop - 1), jnp.maximum(point + 1, 0)

    def decayed(array: jax.Array, at: jax.Array) -> jax.Array:
        away = jnp.abs(point - at).astype(rate.dtype)
        return array[jnp.clip(at, 0, array.size - 1)] * jnp.exp(-rate * away)

    left = jnp.where(last >= 0, decayed(below, last), 0.0)
    between = jnp.maximum(decayed(above, following) - decayed(above, stop), 0.0)
    far = jnp.where(stop > 0, up_to[jnp.maximum(stop - 1, 0)], 0.0) * exp(-_FLOOR)
    return left + jnp.where(following < stop, between, 0.0) + far


def _forward(row: _Row, low: jax.Array, high: jax.Array) -> _Levels:
    """Return the sums of all levels, the k-th of which is between ``low[k]`` and ``high[k]``.

    These broadcast to ``(m,)``; intervals of different levels are the same or do not overlap, and
    the volume of a run is the product of those of its points in each interval.
    """
    m, size = row.steps.size, row.edges.size - 1
    slot, begun = (jnp.arange(count, dtype=jnp.int32) for count in (size, m))
    low, high = jnp.broadcast_to(low, m), jnp.broadcast_to(high, m)
    together = _among_equal(low)  # levels in the interval
    whole = row.edges[-1] - row.edges[0]
    stays = _step(row.rate, row.steps)

    def level(carry: Any, k: jax.Array) -> Any:
        runs, sums, scale = carry  # runs: by their first levels and slots
        inside = jnp.clip(row.edges, low[k], high[k])
        point = slot - row.steps[k]
        first = jnp.where(k == 0, _step(row.rate, point), _before(sums, row.rate, point, slot))
        count = jnp.clip(k - begun + 1, 1, together[k])
        longer = runs * (stays[k] / scale / count.astype(runs.dtype))[:, None]
        width = (inside[1:] - inside[:-1]) / whole
        runs = jnp.where((begun == k)[:, None], first, longer) * width
        last = runs.sum(0)
        scale = jax.lax.stop_gradient(last.max() * exp(-_FLOOR))  # it cancels in the end
        sums = _sums(last / scale, row.rate)
        return (runs, sums, scale), _Levels(first, sums, jnp.log(scale))

    start = varying((jnp.zeros((m, size)), jnp.zeros((3, size)), jnp.ones(())), whole > 0)
    return jax.lax.scan(level, start, jnp.arange(m, dtype=jnp.int32))[1]


def _log_total(row: _Row, low: jax.Array, high: jax.Array) -> jax.Array:
    """Return the logarithm of the sum of the weights of :func:`_forward`.

    It is relative to the width of the row.
    """
    levels = _forward(row, low, high)
    stop = jnp.int32(row.edges.size - 2)
    total = _before(levels.sums[-1], row.rate, row.end, stop)
    return jnp.log(total) + jnp.sum(levels.log_scale)


def _back(row: _Row, levels: _Levels, slot_at: jax.Array, run_at: jax.Array) -> jax.Array:
    """Return the slots of all levels, int32 ``(m,)``, for uniform variates ``(m,)``."""
    m, size = row.steps.size, row.edges.size - 1
    width = (row.edges[1:] - row.edges[:-1]) / (row.edges[-1] - row.edges[0])
    k = jnp.arange(m, dtype=jnp.int32)
    # The weight of a run is divided by this: the steps up to its level i, and earlier scales.
    stays = jnp.log(_step(row.rate, row.steps))
    before = jnp.cumsum(stays - levels.log_scale) + levels.log_scale
    factorials = jax.scipy.special.gammaln(jnp.arange(2.0, m + 2))

    def level(carry: Any, given: Any) -> Any:
        above, left, slot = carry
        k_now, sums, slot_at, run_at = given
        last = k_now == m - 1
        point = jnp.where(last, row.end, above - row.steps[jnp.minimum(k_now + 1, m - 1)])
        aim = slot_at * _before(sums, row.rate, point, above)

        def passed(slot: jax.Array) -> jax.Array:
            return _before(sums, row.rate, point, slot + 1) < aim

        found = jnp.minimum(count_leading(passed, size, ()), above - 1)
        slot = jnp.where(left == 0, found, slot)
        length = jnp.maximum(k_now - k, 0)
        points = (length + 1).astype(width.dtype)
        log_weight = jnp.log(levels.first[:, slot]) + points * jnp.log(width[slot])
        log_weight = jnp.where(k <= k_now, log_weight - before - factorials[length], -jnp.inf)
        weight = jnp.exp(log_weight - log_weight.max())
        sums_of_runs = jnp.cumsum(weight)
        begun = jnp.sum(sums_of_runs < run_at * sums_of_runs[-1], dtype=jnp.int32)
        left = jnp.where(left == 0, k_now - begun + 1, left) - 1
        return (jnp.where(left == 0, slot, above), left, slot), slot

    start = jnp.int32(size - 1), jnp.int32(0), jnp.int32(0)
    start = varying(start, width[0] >= 0)
    return jax.lax.scan(level, start, (k, levels.sums, slot_at, run_at), reverse=True)[1]


def _by_rows(
    compute: Callable[..., jax.Array], joint: JointQuantiles, batch: tuple[int, ...], *arrays: Any
) -> jax.Array:
    """Return ``compute`` of every row in float64, one after the other.

    Arrays have the batch axes first.
    """

    def rows(array: jax.Array, event: tuple[int, ...]) -> jax.Array:
        if jnp.issubdtype(array.dtype, jnp.floating):
            array = array.astype(jnp.float64)
        return jnp.broadcast_to(array, (*batch, *event)).reshape(prod(batch), *event)

    flat = jax.tree_util.tree_map_with_path(
        lambda path, leaf: rows(leaf, leaf.shape[-1:] if path[0].name == "values" else ()), joint
    )
    others = [rows(array, array.shape[len(batch) :]) for array in arrays]
    found = jax.lax.map(lambda given: compute(*given), (flat, *others))
    return found.reshape(*batch, *found.shape[1:])


@jax.custom_vjp
@jax.jit
def _log_prob(joint: JointQuantiles, y: jax.Array) -> jax.Array:
    with jax.enable_x64(True):
        return _log_prob_in_float64(joint, y)


def _derivatives(given: tuple[JointQuantiles, jax.Array], of_result: jax.Array) -> Any:
    # Here, since the derivatives of float64 operations are found where float64 is allowed.
    with jax.enable_x64(True):
        return jax.vjp(_log_prob_in_float64, *given)[1](of_result)


_log_prob.defvjp(lambda *given: (_log_prob(*given), given), _derivatives)


def _log_prob_in_float64(joint: JointQuantiles, y: jax.Array) -> jax.Array:
    shape = jnp.broadcast_shapes(joint.batch_shape, y.shape[:-1])
    dtype = joint.dtype

    def of_all(joint: JointQuantiles) -> jax.Array:
        row = _row(joint, joint.number)
        return _log_total(row, row.edges[0], row.edges[-1])

    def of_tuple(joint: JointQuantiles, y: jax.Array) -> jax.Array:
        row, resolution = _row(joint, joint.number), joint.resolution
        if resolution is None:
            slot = jnp.searchsorted(row.edges, y, side="right").astype(jnp.int32) - 1
            slot = jnp.clip(slot, 0, joint.num_records)
            away = jnp.diff(slot, prepend=0) - row.steps
            away = jnp.append(away, row.end - slot[-1])
            found = jnp.sum(jnp.log(_step(row.rate, away)))
            found = found - y.size * jnp.log(row.edges[-1] - row.edges[0])
            value = y
        else:  # all points that are rounded to the tuple
            number = to_multiples(y, resolution)
            value = from_multiples(number, resolution)
            found = _log_total(row, number - 0.5, number + 0.5)
        inside = (value.astype(dtype) == y.astype(dtype)) & (y >= joint.lower) & (y <= joint.upper)
        found = jnp.where(jnp.all(inside) & jnp.all(jnp.diff(y) >= 0), found, -jnp.inf)
        bad = y.sum() + joint.rate + joint.lower + joint.upper
        return jnp.where(jnp.isnan(bad), jnp.nan, found)

    total = _by_rows(of_all, joint, joint.batch_shape)
    weight = _by_rows(of_tuple, joint, shape, jnp.broadcast_to(y, (*shape, y.shape[-1])))
    return (weight - total).astype(dtype)
