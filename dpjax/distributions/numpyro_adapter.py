"""Conversion to NumPyro distributions, which gives models the exact likelihood of draws.

Needs the extra ``numpyro``.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import Any

import jax
import jax.numpy as jnp

from dpjax.distributions.discrete_laplace import DiscreteLaplace
from dpjax.distributions.finite import Finite


def to_numpyro(distribution: Any) -> Any:
    """Return a ``numpyro.distributions.Distribution`` with the same draws and density.

    It is mainly for conditioning on a released value, ``numpyro.sample("released", to_numpyro(...),
    obs=...)``: the posterior then accounts for the noise exactly. Parameters, and the records
    themselves, may be latent; the log-density is differentiable in all of them.

    Args:
        distribution: a distribution with ``sample`` and ``log_prob``. One on a grid is discrete in
            NumPyro: it can be observed, but not sampled by Hamiltonian Monte Carlo.

    Returns:
        The same distribution, with the same batch and event shape. Its ``sample`` takes NumPyro's
        keys. Moments and quantiles are those of ``distribution`` itself.

    Raises:
        ImportError: NumPyro is not installed.
        TypeError: ``distribution`` has no ``sample`` or no ``log_prob``.

    References:
        Phan, Pradhan and Jankowiak (2019), for NumPyro; Bernstein and Sheldon (2018), for inference
        from private draws.

    >>> import pytest
    >>> _ = pytest.importorskip("numpyro")
    >>> import dpjax
    >>> noisy = to_numpyro(dpjax.laplace(2.0, 1.0, sensitivity=1.0))
    >>> noisy.batch_shape, round(float(noisy.log_prob(2.0)), 4)
    ((), -0.6931)
    """
    if not (hasattr(distribution, "sample") and hasattr(distribution, "log_prob")):
        raise TypeError(
            "distribution must have the methods sample and log_prob, got "
            f"{type(distribution).__name__}."
        )
    return _adapter()(distribution)


@lru_cache(maxsize=1)
def _adapter() -> Any:
    """Create the class, once, as NumPyro registers it as a pytree."""
    try:
        import numpyro.distributions as of_numpyro
        from numpyro.distributions import constraints
    except ImportError as error:
        raise ImportError('NumPyro is not installed: pip install "dpjax[numpyro]".') from error

    class PrivateDraw(of_numpyro.Distribution):
        pytree_data_fields = ("distribution",)

        def __init__(self, distribution: Any) -> None:
            self.distribution = distribution
            super().__init__(distribution.batch_shape, distribution.event_shape)

        @constraints.dependent_property
        def support(self) -> Any:
            on_grid = getattr(self.distribution, "resolution", None) is not None
            if on_grid or isinstance(self.distribution, Finite | DiscreteLaplace):
                return constraints.independent(
                    constraints.integer_interval(-inf, inf), len(self.event_shape)
                )
            # All others count as densities on the real line.
            return constraints.independent(constraints.real, len(self.event_shape))

        def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
            typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
            return self.distribution.sample(
                key if typed else jax.random.wrap_key_data(key), sample_shape
            )

        def log_prob(self, value: Any) -> jax.Array:
            return self.distribution.log_prob(value)

    return PrivateDraw
