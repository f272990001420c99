"""Budgets as functions of coordinates, in blocks of rows, for universes too large for a matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.numerics.arrays import take
from dpjax.numerics.float64 import Exact, in_float64
from dpjax.pytrees import pytree

Distance = Literal["euclidean", "manhattan", "chebyshev", "hamming", "great_circle"]
DISTANCES = get_args(Distance)
Form = Literal["linear", "blowfish", "smooth"]
_EARTH_RADIUS = 6371.0088  # mean radius in kilometers


class _Elements(NamedTuple):
    """Elements along the last axis: indices, coordinates ``(D, ..., n)`` and budgets of absence."""

    number: jax.Array
    places: Exact
    absence: jax.Array | None


@pytree
class Points:
    """Points whose distances are budgets, with the shape and dtype of their matrix.

    Attributes:
        places: float ``(..., N, D)``, the public coordinates, without rounding, since
            rounded ones may coincide.
        epsilon: float ``(...)``, the first parameter of :func:`policy`.
        weights: float ``(..., D)`` or None, the factors of the differences of coordinates.
        threshold: float ``(...)`` or None, a distance.
        absence: float ``(..., N)`` or None, the budget between each element and the null record,
            which is element N + 1.
        distance: static, the kind of distance.
        form: static; see :func:`policy`.
    """

    places: Exact
    epsilon: jax.Array
    weights: jax.Array | None = None
    threshold: jax.Array | None = None
    absence: jax.Array | None = None
    distance: Distance = field(default="euclidean", metadata={"static": True})
    form: Form = field(default="linear", metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix, ``(..., N, N)``, or with N + 1 if there is a null record."""
        batches = [self.places.value.shape[:-2], self.epsilon.shape]
        batches += [array.shape[:-1] for array in (self.weights, self.absence) if array is not None]
        batches += [] if self.threshold is None else [self.threshold.shape]
        size = self.places.value.shape[-2] + (self.absence is not None)
        return (*jnp.broadcast_shapes(*batches), size, size)

    @property
    def dtype(self) -> Any:
        """The dtype of the budgets."""
        return self.places.value.dtype

    @partial(jax.jit, static_argnames="count")
    def rows(self, start: ArrayLike, count: int) -> jax.Array:
        """Return rows of the matrix; see :meth:`dpjax.metric_privacy.metrics.Metric.rows`."""
        every = self._elements()
        some = jax.tree.map(
            lambda part: jax.lax.dynamic_slice_in_dim(part, start, count, axis=-1)[..., :, None],
            every,
        )
        return self._between(some, jax.tree.map(lambda part: part[..., None, :], every), axes=2)

    def pairs(self, first: jax.Array, second: jax.Array) -> jax.Array:
        """Return entries of the matrix; see :meth:`dpjax.metric_privacy.metrics.Metric.pairs`."""
        every = self._elements()

        def chosen(index: jax.Array) -> _Elements:
            places = jax.tree.map(jax.vmap(partial(take, index=index)), every.places)
            return _Elements(
                index, places, None if every.absence is None else take(every.absence, index)
            )

        return self._between(chosen(first), chosen(second), axes=1)

    def _elements(self) -> _Elements:
        """Return all elements; the null record is last, with the coordinates of the first one."""
        number = jnp.arange(self.shape[-1], dtype=jnp.int32)
        places = jax.tree.map(lambda part: jnp.moveaxis(part, -1, 0), self.places)
        if self.absence is None:
            return _Elements(number, places, None)
        places = jax.tree.map(lambda part: jnp.concatenate([part, part[..., :1]], axis=-1), places)
        return _Elements(
            number,
            places,
            jnp.concatenate([self.absence, jnp.zeros_like(self.absence[..., :1])], axis=-1),
        )

    def _between(self, one: _Elements, other: _Elements, axes: int) -> jax.Array:
        """Return budgets between elements that broadcast, with ``axes`` axes after the batch."""
        weights = None if self.weights is None else jnp.moveaxis(self.weights, -1, 0)
        weights, epsilon, threshold = jax.tree.map(
            lambda parameter: parameter.reshape(parameter.shape + (1,) * axes),
            (weights, self.epsilon, self.threshold),
        )
        apart = _distances(one.places, other.places, weights, self.distance)
        budgets = policy(apart, one.number == other.number, epsilon, threshold, self.form)
        if one.absence is None or other.absence is None:
            return budgets
        null = self.shape[-1] - 1
        return jnp.where(
            other.number == null, one.absence, jnp.where(one.number == null, other.absence, budgets)
        )


def policy(
    apart: jax.Array, same: jax.Array, epsilon: Any, threshold: Any, form: Form
) -> jax.Array:
    """Return the budgets of pairs at distances ``apart``; all arguments broadcast, and NaN is kept.

    ``"linear"`` is epsilon * distance. The others are 0 for the ``same`` element; ``"blowfish"`` is
    epsilon up to the threshold and ``inf`` beyond it, ``"smooth"`` is epsilon * max(1, distance /
    threshold).
    """
    if form == "linear":
        return epsilon * apart
    if form == "blowfish":
        # Distances that exceed the threshold by rounding only are within it: 0.4 - 0.3 is more than
        # 0.1.
        nearly = 1 + 64 * float(jnp.finfo(apart.dtype).eps)
        budgets = jnp.where(apart <= threshold * nearly, epsilon, jnp.inf)
    else:
        budgets = epsilon * jnp.maximum(1.0, apart / threshold)
    wrong = jnp.isnan(apart) | jnp.isnan(threshold) | jnp.isnan(epsilon)
    return jnp.where(wrong, jnp.nan, jnp.where(same, 0.0, budgets))


def _distances(
    one: Exact, other: Exact, weights: jax.Array | None, distance: Distance
) -> jax.Array:
    """Return the distances of places ``(D, ...)`` that broadcast."""
    if distance == "great_circle":
        return _great_circle(one, other)
    size = one.value.shape[0]
    shape = jnp.broadcast_shapes(
        *(part.shape[1:] for part in jax.tree.leaves((one.value, other.value, weights)))
    )

    def over(combine: Callable[[jax.Array, jax.Array], jax.Array]) -> jax.Array:
        def step(
            total: jax.Array, at: tuple[Exact, Exact, jax.Array | None]
        ) -> tuple[jax.Array, None]:
            difference = jnp.abs(at[0].minus(at[1]))
            if distance == "hamming":
                difference = jnp.where(
                    jnp.isnan(difference), jnp.nan, (difference != 0).astype(total.dtype)
                )
            return combine(total, difference if at[2] is None else difference * at[2]), None

        # One coordinate at a time: an innermost axis of two or three coordinates is several times
        # slower.
        return jax.lax.scan(
            step, jnp.zeros(shape, one.value.dtype), (one, other, weights), unroll=min(size, 8)
        )[0]

    if distance in ("manhattan", "hamming"):
        return over(jnp.add)
    widest = over(jnp.maximum)
    if distance == "chebyshev" or size == 1:
        return widest
    # Squares of differences relative to the widest one neither overflow nor underflow.
    unit = jax.lax.stop_gradient(jnp.where(widest == 0, 1.0, widest))
    squares = over(lambda total, difference: total + jnp.square(difference / unit))
    same = squares == 0
    return jnp.where(same, 0.0, unit * jnp.sqrt(jnp.where(same, 1.0, squares)))


def _great_circle(one: Exact, other: Exact) -> jax.Array:
    """Return the distance by the haversine formula, rounded down."""
    latitudes, longitudes = (
        [Exact(*(part[k] for part in places)) for places in (one, other)] for k in (0, 1)
    )

    def turned(*longitudes: jax.Array) -> jax.Array:
        around = Exact(*longitudes[:2]).minus(Exact(*longitudes[2:]))
        return around - 360 * jnp.round(around / 360)  # one meridian can have two longitudes

    rise, turn = (
        latitudes[0].minus(latitudes[1]),
        in_float64(turned, *longitudes[0], *longitudes[1]),
    )
    # The cosines of the latitudes, accurate near the poles.
    narrow, narrow_2 = (
        jnp.sin(jnp.deg2rad((90 - jnp.abs(p.value)) - jnp.sign(p.value) * p.rest))
        for p in latitudes
    )
    h = jnp.square(jnp.sin(jnp.deg2rad(rise) / 2)) + narrow * narrow_2 * jnp.square(
        jnp.sin(jnp.deg2rad(turn) / 2)
    )
    h = jnp.clip(h * (1 - 16 * float(jnp.finfo(h.dtype).eps)), 0.0, 1.0)
    same = h == 0
    return jnp.where(same, 0.0, 2 * _EARTH_RADIUS * jnp.arcsin(jnp.sqrt(jnp.where(same, 1.0, h))))
