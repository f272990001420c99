"""Public increasing maps between data and the scale on which a mechanism draws.

A map chosen without the data preserves every guarantee in both directions: records are mapped one
by one, and a draw is mapped back. On a logarithmic scale 60 decades have length 138, and on the
scale of a prior's distribution function the whole line has length 1. So bounds on the data need not
be known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import log, pi
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import checks


@dataclass(frozen=True, kw_only=True)
class Transform:
    """A public increasing map T from data to a scale, static and hashable.

    It is a frozen dataclass of Python numbers and functions. A subclass provides the three methods,
    elementwise, for ``lower <= x <= upper``, and is only called there. Equal transforms share
    compiled programs.

    Attributes:
        lower: static, public, chosen without the data: smaller records count as equal to it, and
            draws are at least ``lower``. By default -1e15, and at least -1e30.
        upper: likewise, the upper bound of records and draws. By default 1e15, and at most 1e30.

    >>> import jax.numpy as jnp
    >>> @dataclass(frozen=True)
    ... class Cubic(Transform):
    ...     def forward(self, x):
    ...         return jnp.cbrt(x)
    ...
    ...     def inverse(self, z):
    ...         return z**3
    ...
    ...     def log_derivative(self, x):
    ...         return -jnp.log(3 * jnp.cbrt(x) ** 2)
    >>> round(float(Cubic(upper=1e6).inverse(Cubic().forward(5.0))), 4)
    5.0
    """

    lower: float = -1e15
    upper: float = 1e15
    _least = -1e30

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            object.__setattr__(
                self, name, checks.static_number(name, getattr(self, name), self._least, 1e30)
            )
        if not self.lower < self.upper:
            raise ValueError(f"lower must be below upper, got {self.lower:g} and {self.upper:g}.")

    if TYPE_CHECKING:

        def forward(self, x: jax.Array) -> jax.Array:
            """Return T(x), increasing."""

        def inverse(self, z: jax.Array) -> jax.Array:
            """Return the x with T(x) = z."""

        def log_derivative(self, x: jax.Array) -> jax.Array:
            """Return the logarithm of the derivative of T at x."""


@dataclass(frozen=True)
class Log(Transform):
    """The logarithm, for positive data; records up to 0 count as ``lower``.

    In float32, T(x) has steps of 1e-6 at 1e5 and of 4e-6 at 1e15: records with a smaller relative
    difference can become equal.

    Attributes:
        lower: as for :class:`Transform`; 1e-15 by default, and at least 1e-30.
        upper: as for :class:`Transform`.

    >>> import jax.numpy as jnp
    >>> round(float(Log().forward(jnp.asarray(10.0))), 4)
    2.3026
    """

    lower: float = field(default=1e-15, kw_only=True)
    _least = 1e-30

    def forward(self, x: jax.Array) -> jax.Array:
        """Return log x."""
        return jnp.log(x)

    def inverse(self, z: jax.Array) -> jax.Array:
        """Return exp z."""
        return jnp.exp(z)

    def log_derivative(self, x: jax.Array) -> jax.Array:
        """Return -log x."""
        return -jnp.log(x)


@dataclass(frozen=True)
class Asinh(Transform):
    """The map asinh(x / scale): linear near 0, logarithmic further out, for data of both signs.

    In float32, T(x) has steps of 1e-6 at 1e5 ``scale`` and of 4e-6 at 1e15 ``scale``: records with
    a smaller relative difference can become equal.

    Attributes:
        scale: static, from 1e-8 to 1e30, chosen without the data: the typical magnitude of records.
            If they have both signs, a scale 100 times too small costs the median of 1000 records up
            to 3 % of its error, 1000 times up to 20 %. A scale 1000 times too large costs nothing,
            or up to 40 % where draws sometimes reach the bounds (swap, epsilon = 0.2).
        lower: as for :class:`Transform`.
        upper: as for :class:`Transform`.

    >>> import jax.numpy as jnp
    >>> [round(z, 3) for z in Asinh(scale=2.0).forward(jnp.array([-2.0, 0.0, 2e9])).tolist()]
    [-0.881, 0.0, 21.416]
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", checks.static_number("scale", self.scale, 1e-8, 1e30))

    def forward(self, x: jax.Array) -> jax.Array:
        """Return asinh(x / scale)."""
        return jnp.arcsinh(x / self.scale)

    def inverse(self, z: jax.Array) -> jax.Array:
        """Return scale * sinh(z)."""
        return self.scale * jnp.sinh(z)

    def log_derivative(self, x: jax.Array) -> jax.Array:
        """Return -log sqrt(x^2 + scale^2)."""
        z = jnp.abs(jnp.arcsinh(x / self.scale))
        # The square of x could overflow.
        return log(2) - log(self.scale) - z - jnp.log1p(jnp.exp(-2 * z))


@dataclass(frozen=True)
class LogCauchy(Asinh):
    """The distribution function of a public prior with heavy tails.

    asinh(X / scale) is standard Cauchy. The distribution of log |X| is then nearly Cauchy. T(x) = 2
    P(X <= x) - 1 is symmetric, from -1 to 1, with 0 at x = 0, where floats are most precise. Half
    of the prior's mass lies between -1.18 and 1.18 ``scale``. Far out, T grows slowly: in float32,
    records with a relative difference below 4e-5 at 1e6 ``scale``, and 2e-4 at 1e15 ``scale``, can
    become equal; in float64 it is 1e-12.

    Attributes:
        scale: as that of :class:`Asinh`. If records have both signs, a scale 100 times too small
            costs up to 30 % of the error; a scale 1000 times too large costs nothing.
        lower: as for :class:`Transform`.
        upper: as for :class:`Transform`.

    >>> import jax.numpy as jnp
    >>> [
    ...     round(z, 3)
    ...     for z in LogCauchy(scale=10.0).forward(jnp.array([-1e15, 0.0, 11.752, 1e6])).tolist()
    ... ]
    [-0.981, 0.0, 0.5, 0.948]
    """

    def forward(self, x: jax.Array) -> jax.Array:
        """Return (2 / pi) arctan(asinh(x / scale))."""
        return (2 / pi) * jnp.arctan(super().forward(x))

    def inverse(self, z: jax.Array) -> jax.Array:
        """Return scale * sinh(tan(pi z / 2))."""
        return super().inverse(jnp.tan(pi / 2 * z))

    def log_derivative(self, x: jax.Array) -> jax.Array:
        """Return the log-density of the prior plus log 2."""
        inner = super().log_derivative(x) - jnp.log1p(jnp.square(super().forward(x)))
        return log(2 / pi) + inner


@dataclass(frozen=True)
class Prior(Transform):
    """The distribution function of any public prior with a continuous density, from JAX functions.

    The scale is [0, 1]. Where the distribution function rounds to 1, records cannot be
    distinguished: in float32, a standard normal prior ends at 5.4, and has steps of 6e-8 in
    probability before. Use a prior with heavy tails, or float64.

    Attributes:
        cdf: static function of x; functions are compared by identity, so define them once.
        quantile: static, the inverse of ``cdf``; not NaN on [0, 1].
        log_density: static, the logarithm of the derivative of ``cdf``; less than infinity.
        lower: as for :class:`Transform`.
        upper: as for :class:`Transform`.

    >>> import jax.numpy as jnp
    >>> from jax.scipy.stats import cauchy
    >>> prior = Prior(cauchy.cdf, cauchy.ppf, cauchy.logpdf)
    >>> prior.forward(jnp.array([-1.0, 0.0, 1.0])).tolist()
    [0.25, 0.5, 0.75]
    """

    cdf: Callable[[jax.Array], jax.Array]
    quantile: Callable[[jax.Array], jax.Array]
    log_density: Callable[[jax.Array], jax.Array]

    def forward(self, x: jax.Array) -> jax.Array:
        """Return P(X <= x)."""
        return self.cdf(x)

    def inverse(self, z: jax.Array) -> jax.Array:
        """Return the quantile at z."""
        return self.quantile(z)

    def log_derivative(self, x: jax.Array) -> jax.Array:
        """Return the log-density of the prior."""
        return self.log_density(x)


def ends_on_scale(transform: Transform, dtype: Any) -> np.ndarray:
    """Return T at the transform's bounds, as a constant also while tracing."""
    with jax.ensure_compile_time_eval():
        return np.asarray(transform.forward(jnp.asarray([transform.lower, transform.upper], dtype)))
