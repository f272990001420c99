"""Base class of the distributions: the methods that follow from a few others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from inspect import signature
from math import prod
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.batch import Batch
from dpjax.display import Picture
from dpjax.random.keys import check_key

Shape = SupportsIndex | Iterable[SupportsIndex]
Method = TypeVar("Method", bound=Callable[..., Any])
_PROBABILITIES = ("p", "level")


class Drawn(Batch):
    """The base class of distributions of numbers, vectors and tuples.

    A subclass provides the members declared here. Where it has no density, ``log_prob`` is missing
    and :meth:`prob` raises an ``AttributeError``.
    """

    if TYPE_CHECKING:  # declared, not defined: a property, a method or an attribute of the subclass

        def log_prob(self, y: ArrayLike) -> jax.Array:
            """Return the log-density, or the log-probability of a discrete distribution."""

        def _sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            """Draw ``shape + batch_shape + event_shape``, not empty; :meth:`sample` compiles it."""

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one draw: ``()`` for a number."""
        return ()

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The bounds of the support, each of shape ``batch_shape``; infinite where unbounded."""
        end = jnp.full(self.batch_shape, jnp.inf, self.dtype)
        return -end, end

    def sample(self, key: jax.Array, shape: Shape = ()) -> jax.Array:
        """Draw samples.

        The same key, program, shapes and backend give the same draws. Rows that are appended on the
        first axis leave the random words of the others alone.

        On the line, draws are differentiated given the piece that they fall into, which is not the
        derivative of an expectation: for it use closed forms, or ``quantile`` of uniform numbers.

        Args:
            key: a scalar typed threefry key.
            shape: the shape of the draws from each row, an integer or a sequence of integers.

        Returns:
            Float of shape ``shape + batch_shape + event_shape``; NaN for a row whose parameters
            define no distribution.

        Raises:
            TypeError: ``key`` is not a typed key.
            ValueError: ``key`` is a typed key, but not a scalar threefry key.
        """
        return _draw(check_key(key), self, draws_shape(shape))

    def prob(self, y: ArrayLike) -> jax.Array:
        """Return the density, or the probability of a discrete distribution, at ``y``."""
        return jnp.exp(self.log_prob(y))

    def _points(self, name: str, value: ArrayLike) -> jax.Array:
        """Cast an argument to the distribution's dtype.

        A scalar ``p`` or ``level`` is checked, and the last axis of a vector ``y``.
        """
        if (
            name in _PROBABILITIES
            and isinstance(value, int | float | np.number)
            and (value < 0 or value > 1)
        ):
            raise ValueError(f"{name} must be between 0 and 1 (0.95 for 95 %), got {value}.")
        points = checks.float_array(name, value).astype(self.dtype)
        if name == "y" and self.event_shape not in ((), points.shape[-1:]):
            raise ValueError(
                f"y must have a last axis of size {self.event_shape[0]}, got shape {points.shape}."
            )
        return points


class Distribution(Drawn):
    """A batch of one-dimensional distributions, as a pytree.

    The arguments of all methods (a point ``y``, a probability ``p``, a ``level``, a ``center``) are
    floats that broadcast against ``batch_shape``; results have the broadcast shape and ``dtype``.
    A scalar ``p`` or ``level`` outside [0, 1] raises ``ValueError``; inside an array it gives NaN.

    A subclass provides the members declared here and overrides those that it can compute better.

    >>> import jax.numpy as jnp
    >>> from dpjax.distributions import DiscreteLaplace
    >>> noise = DiscreteLaplace(jnp.asarray(7.0), jnp.asarray(1.0), jnp.asarray(1.0))
    >>> isinstance(noise, Distribution), noise.batch_shape, float(noise.mean())
    (True, (), 7.0)
    """

    if TYPE_CHECKING:

        def cdf(self, y: ArrayLike) -> jax.Array:
            """Return P(Y <= y)."""

        def quantile(self, p: ArrayLike) -> jax.Array:
            """Return the smallest y with P(Y <= y) >= p."""

        def mean(self) -> jax.Array:
            """Return the mean, E[Y], of shape ``batch_shape``."""

        def variance(self) -> jax.Array:
            """Return the variance, E[(Y - E[Y])^2], of shape ``batch_shape``."""

    def log_cdf(self, y: ArrayLike) -> jax.Array:
        """Return log P(Y <= y), accurate relative to the smaller tail.

        It is ``-inf`` where the probability is 0 or underflows.
        """
        y = self._points("y", y)
        below = self.cdf(y)
        small = below < 0.5
        above = jnp.where(small, 0.5, self.survival(y))
        return jnp.where(small, jnp.log(jnp.where(small, below, 0.5)), jnp.log1p(-above))

    def survival(self, y: ArrayLike) -> jax.Array:
        """Return P(Y > y)."""
        return 1 - self.cdf(y)

    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the central interval of probability ``level``.

        Each side leaves out ``(1 - level) / 2``.
        """
        outside = (1 - self._points("level", level)) / 2
        return self.quantile(outside), self.quantile(1 - outside)

    def stddev(self) -> jax.Array:
        """Return the standard deviation, of shape ``batch_shape``."""
        return jnp.sqrt(self.variance())

    def mean_squared_error(self, center: ArrayLike) -> jax.Array:
        """Return E[(Y - center)^2]."""
        return self.variance() + jnp.square(self.mean() - self._points("center", center))

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        """Return a table of some quantiles, and a picture of the cdf."""
        p = np.arange(1, 200) / 200
        found = np.asarray(self._first(rows).quantile(p[:, None])).T
        table = {"5 %": found[:, 9], "median": found[:, 99], "95 %": found[:, 189]}
        kind: Any = "steps" if np.any(found[:, 1:] == found[:, :-1]) else "curve"  # on a grid
        return table, Picture(found, np.broadcast_to(p, found.shape), "y", "P(Y <= y)", kind=kind)


@partial(jax.jit, static_argnames="shape")
def _draw(key: jax.Array, distribution: Drawn, shape: tuple[int, ...]) -> jax.Array:
    whole = shape + distribution.batch_shape + distribution.event_shape
    if prod(whole) == 0:
        return jnp.zeros(whole, distribution.dtype)
    return distribution._sample(key, shape)


def compiled(method: Method) -> Method:
    """Compile a method of a distribution; arguments are first cast to its dtype."""
    program, parameters = jax.jit(method), signature(method)

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        distribution, *arguments = parameters.bind(*args, **kwargs).arguments.items()
        return program(
            distribution[1],
            **{name: distribution[1]._points(name, value) for name, value in arguments},
        )

    return call  # type: ignore[return-value]


def draws_shape(shape: Shape) -> tuple[int, ...]:
    """Return the shape of draws, an integer or a sequence of integers, as a tuple.

    >>> draws_shape(3), draws_shape([2, 3]), draws_shape(())
    ((3,), (2, 3), ())
    """
    sizes = shape if isinstance(shape, Iterable) else (shape,)
    return tuple(
        checks.static_integer("shape", size, 0, must="an integer from 0 on, or several")
        for size in sizes
    )


def draws_first(draws: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Reshape draws ``(*batch, prod(shape))`` to ``shape + batch``."""
    return jnp.moveaxis(draws, -1, 0).reshape(shape + draws.shape[:-1])
