"""Distributions as JAX pytrees, with exact densities, quantiles and error bars, and with sampling.

``print`` describes an object in one line, notebooks show it as a table, and ``plot()`` draws it by
matplotlib. A batch is indexed as a NumPy array is; a single row draws the same as row 0. Fields
that all rows share have an axis of size 1 there: ``vmap``, ``scan`` and ``shard_map`` take the data
or the parameters of a batch and make its distributions inside. Keys are typed (``jax.random.key``)
and carry at most 64 bits, an integer seed 32 bits: this suffices for reproducible simulations, but
not for a release.

>>> import jax, jax.numpy as jnp, dpjax
>>> groups = 40_000 + 9_000 * jax.random.normal(jax.random.key(12), (3, 501))
>>> distribution = dpjax.piecewise_laplace(
...     dpjax.median(groups, lower=0, upper=100_000, neighbors="add_remove"), epsilon=1.0
... )
>>> print(distribution, distribution[1:].batch_shape)
PiecewiseExponential(batch_shape=(3,), dtype=float32, rate=0.5) (2,)
"""

from __future__ import annotations

from dpjax.distributions._joint_quantiles import JointQuantiles
from dpjax.distributions._normal import Gaussian, SphericalGaussian
from dpjax.distributions._subsample_count import SubsampledLaplace
from dpjax.distributions.base import Distribution
from dpjax.distributions.cauchy import Cauchy
from dpjax.distributions.clamped import Clamped
from dpjax.distributions.discrete_laplace import DiscreteLaplace
from dpjax.distributions.finite import Finite
from dpjax.distributions.flips import PermuteAndFlip
from dpjax.distributions.intervals import sample_intervals
from dpjax.distributions.laplace_log_normal import LaplaceLogNormal
from dpjax.distributions.numpyro_adapter import to_numpyro
from dpjax.distributions.piecewise import PiecewiseExponential, Tails
from dpjax.distributions.radial import Radial
from dpjax.distributions.rounded import Rounded
from dpjax.distributions.transformed import Transformed
from dpjax.distributions.transforms import Asinh, Log, LogCauchy, Prior, Transform

__all__ = [
    "Asinh",
    "Cauchy",
    "Clamped",
    "DiscreteLaplace",
    "Distribution",
    "Finite",
    "Gaussian",
    "JointQuantiles",
    "LaplaceLogNormal",
    "Log",
    "LogCauchy",
    "PermuteAndFlip",
    "PiecewiseExponential",
    "Prior",
    "Radial",
    "Rounded",
    "SphericalGaussian",
    "SubsampledLaplace",
    "Tails",
    "Transform",
    "Transformed",
    "sample_intervals",
    "to_numpyro",
]


def __dir__() -> list[str]:
    return __all__
