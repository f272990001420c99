"""What every distribution shares: the methods that follow from a few others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
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


class Distribution(Batch):
    """A batch of one-dimensional distributions, as a pytree.

    The arguments of all methods (a point ``y``, a probability ``p``, a ``level``, a ``center``) are floats that broadcast against
    ``batch_shape``, and results have the broadcast shape and ``dtype``. A ``p`` or a ``level`` that is one number raises
    ``ValueError`` outside [0, 1]; in an array it gives NaN.

    A subclass provides the members declared here and replaces those that it can compute better. (Without a density, ``log_prob`` is
    not there, and :meth:`prob` raises an AttributeError that says so.)
    """

    if TYPE_CHECKING:  # declared, not defined: a property, a method or an attribute of the subclass

        def log_prob(self, y: ArrayLike) -> jax.Array:
            """Log-density, or log-probability where the distribution is discrete."""

        def cdf(self, y: ArrayLike) -> jax.Array:
            """P(Y <= y)."""

        def quantile(self, p: ArrayLike) -> jax.Array:
            """The smallest y with P(Y <= y) >= p."""

        def mean(self) -> jax.Array:
            """E[Y], of shape ``batch_shape``."""

        def variance(self) -> jax.Array:
            """E[(Y - E[Y])^2], of shape ``batch_shape``."""

        def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
            """Draw; ``first`` is the index, which may be traced, of the first row on the first batch axis.

            A device that holds a part of the rows draws the same as one that holds all of them.
            """

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one draw: ``()``, a number."""
        return ()

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """Two ends between which all draws lie, of shape ``batch_shape`` each: infinite where there is none."""
        return real_line(self)

    def log_cdf(self, y: ArrayLike) -> jax.Array:
        """Log P(Y <= y) at the relative precision of the nearer tail; ``-inf`` where the probability is 0 or underflows."""
        y = self._points("y", y)
        below = self.cdf(y)
        small = below < 0.5
        above = jnp.where(small, 0.5, self.survival(y))
        return jnp.where(small, jnp.log(jnp.where(small, below, 0.5)), jnp.log1p(-above))

    def survival(self, y: ArrayLike) -> jax.Array:
        """P(Y > y)."""
        return 1 - self.cdf(y)

    def sample(self, key: jax.Array, shape: Shape = ()) -> jax.Array:
        """Draw; what is drawn from a row does not change, under jit, when rows are added to the batch.

        Args:
            key: a scalar typed threefry key.
            shape: the shape of the draws from each row, an integer or several.

        Returns:
            Float of shape ``shape + batch_shape``; NaN for a row whose parameters define no distribution.

        Raises:
            TypeError: ``key`` is not a typed key.
            ValueError: another kind of key.
        """
        return self._sample(check_key(key), draws_shape(shape))

    def prob(self, y: ArrayLike) -> jax.Array:
        """Density, or probability where the distribution is discrete, at ``y``; see ``log_prob``."""
        return jnp.exp(self.log_prob(y))

    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """The lower and upper end of the central interval of probability ``level``: each side leaves out ``(1 - level) / 2``."""
        outside = (1 - self._points("level", level)) / 2
        return self.quantile(outside), self.quantile(1 - outside)

    def stddev(self) -> jax.Array:
        """The standard deviation, of shape ``batch_shape``."""
        return jnp.sqrt(self.variance())

    def mean_squared_error(self, center: ArrayLike) -> jax.Array:
        """E[(Y - center)^2]."""
        return self.variance() + jnp.square(self.mean() - self._points("center", center))

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        """Some quantiles, and the cdf through many."""
        few, p = self._first(rows), np.arange(1, 200) / 200
        found = np.asarray(few.quantile(p.reshape(-1, *[1] * len(few.batch_shape)))).reshape(p.size, -1).T[:rows]
        table = {"5 %": found[:, 9], "median": found[:, 99], "95 %": found[:, 189]}
        return table, Picture(found, np.broadcast_to(p, found.shape), "y", "P(Y <= y)")

    def _points(self, name: str, value: ArrayLike) -> jax.Array:
        """A float argument in the distribution's dtype; a probability that is one number, and none of JAX's, is checked."""
        if name in _PROBABILITIES and isinstance(value, int | float | np.number) and (value < 0 or value > 1):
            raise ValueError(f"{name} must be between 0 and 1, got {value}: 95 % is 0.95.")
        return checks.float_array(name, value).astype(self.dtype)


def real_line(distribution: Batch) -> tuple[jax.Array, jax.Array]:
    """Return minus infinity and infinity for each row of a distribution."""
    end = jnp.full(distribution.batch_shape, jnp.inf, distribution.dtype)
    return -end, end


def compiled(method: Method) -> Method:
    """Compile a method of a distribution. Its arguments become floats of the distribution's dtype before JAX sees them."""
    program, parameters = jax.jit(method), signature(method)

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        distribution, *given = parameters.bind(*args, **kwargs).arguments.items()
        return program(distribution[1], **{name: distribution[1]._points(name, value) for name, value in given})

    return call  # type: ignore[return-value]


def draws_shape(shape: Shape) -> tuple[int, ...]:
    """Return the shape of draws, given as an integer or several, as a tuple.

    >>> draws_shape(3), draws_shape([2, 3]), draws_shape(())
    ((3,), (2, 3), ())
    """
    sizes = shape if isinstance(shape, Iterable) else (shape,)
    return tuple(checks.static_integer("shape", size, 0, must="an integer from 0 on, or several") for size in sizes)


def draws_first(draws: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Bring draws ``(*batch, prod(shape))`` into the shape ``shape + batch``."""
    return jnp.moveaxis(draws, -1, 0).reshape(shape + draws.shape[:-1])
