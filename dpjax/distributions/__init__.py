"""Distributions as JAX pytrees: exact densities, quantiles and error bars, and draws."""

from dpjax.distributions.base import Distribution
from dpjax.distributions.cauchy import Cauchy
from dpjax.distributions.clamped import Clamped
from dpjax.distributions.discrete_laplace import DiscreteLaplace
from dpjax.distributions.finite import Finite
from dpjax.distributions.gaussian import Gaussian, SphericalGaussian
from dpjax.distributions.interop import to_numpyro
from dpjax.distributions.intervals import sample_intervals
from dpjax.distributions.joint_quantiles import JointQuantiles
from dpjax.distributions.laplace_log_normal import LaplaceLogNormal
from dpjax.distributions.piecewise import PiecewiseExponential, Tails
from dpjax.distributions.quantile_cdf import QuantileCdf
from dpjax.distributions.quantile_marginals import QuantileMarginals
from dpjax.distributions.radial import Radial
from dpjax.distributions.rounded import Rounded
from dpjax.distributions.subsampled_laplace import SubsampledLaplace
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
    "PiecewiseExponential",
    "Prior",
    "QuantileCdf",
    "QuantileMarginals",
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
