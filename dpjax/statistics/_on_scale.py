"""Statistics on a transformed scale, where a transform replaces bounds on the data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.distributions.transforms import Transform, ends_on_scale

Found = TypeVar("Found")


def on_scale(
    statistic: Callable[..., Found], x: ArrayLike, *args: Any, transform: Transform, **options: Any
) -> Found:
    """Return a statistic of records that are mapped to another scale; bounds need not be known.

    The distribution that a mechanism returns for it is mapped back by :class:`dpjax.Transformed`,
    with the same transform. Its target is ``transform.inverse(profile.value)``: the statistic of
    the data for order statistics and quantiles with ``definition="lower"``, a value between the
    same two records for interpolated ones such as the midpoint median, and the geometric mean for a
    mean on a logarithmic scale.

    Inner quantiles lose no accuracy. Extreme ones, with n q epsilon or n (1 - q) epsilon below
    about 10, are sometimes drawn from beyond the data, as far as the transform's bounds: set these
    bounds to what is known about the data.

    Args:
        statistic: a function of records, ``lower`` and ``upper``, such as :func:`dpjax.median`.
        x: float ``(..., n)``, in the units of the data. Records beyond the transform's bounds are
            clamped to them, infinite ones too; NaN records are treated as by the statistic.
        *args: further arguments of the statistic, such as the q of a quantile.
        transform: :class:`dpjax.Log`, :class:`dpjax.Asinh`, :class:`dpjax.LogCauchy`,
            :class:`dpjax.Prior` or any other :class:`dpjax.distributions.Transform`, chosen without
            the data.
        **options: options of the statistic, such as ``neighbors``; not its bounds or a resolution.

    Returns:
        The result of the statistic on the scale, usually a profile.

    Raises:
        TypeError: ``transform`` is not a transform, or ``lower`` or ``upper`` are given.
        ValueError: the transform's bounds are the same float on the scale; or there is a
            ``resolution``.

    Privacy:
        As the statistic: neighboring datasets are neighbors on the scale, since records are mapped
        one by one by a public map.

    References:
        Durfee (2025), Section 3.1, for the statistics; the map back is post-processing (Dwork and
        Roth 2014, Proposition 2.1).

    >>> import jax.numpy as jnp
    >>> from dpjax import Asinh, median
    >>> profile = on_scale(
    ...     median, jnp.array([-3.0, 1.0, 40.0]), transform=Asinh(1.0), neighbors="swap"
    ... )
    >>> Asinh(1.0).inverse(profile.upper).round(2).tolist()[:2]
    [1.0, 40.0]
    """
    if not isinstance(transform, Transform):
        raise TypeError(f"transform must be a Transform (such as Asinh(1.0)), got {transform!r}.")
    if not options.keys().isdisjoint(("lower", "upper")):
        raise TypeError(
            "on_scale takes no lower and upper: pass them to the transform, such as "
            f"{type(transform).__name__}(upper=1e9)."
        )
    if options.get("resolution") is not None:
        raise ValueError(
            "on_scale takes no resolution, as multiples do not stay multiples on another scale: "
            "see release.Floats."
        )
    records = checks.float_array("x", x)
    lower, upper = ends_on_scale(transform, records.dtype)
    return statistic(_forward(records, transform), *args, lower=lower, upper=upper, **options)


@partial(jax.jit, static_argnames="transform")
def _forward(records: jax.Array, transform: Transform) -> jax.Array:
    """Map the records to the scale; NaN is kept."""
    return transform.forward(jnp.clip(records, transform.lower, transform.upper))
