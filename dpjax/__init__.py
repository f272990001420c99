"""Instance-optimal differentially private draws for thousands of datasets at once, in JAX.

data --statistic--> sensitivity profile --mechanism(epsilon)--> distribution --key--> draws
"""

from dpjax import accounting, distributions, mechanisms, profiles, random, simulation
from dpjax.accounting import Guarantee
from dpjax.distributions import PiecewiseExponential, Tails, sample_intervals
from dpjax.mechanisms.inverse_sensitivity import inverse_sensitivity
from dpjax.mechanisms.laplace import laplace
from dpjax.mechanisms.piecewise_laplace import piecewise_laplace
from dpjax.profiles import SensitivityProfile, from_radii, median, order_statistic, quantile
from dpjax.simulation import sharded_sample, simulate
from dpjax.version import __version__

__all__ = [
    "Guarantee",
    "PiecewiseExponential",
    "SensitivityProfile",
    "Tails",
    "__version__",
    "accounting",
    "distributions",
    "from_radii",
    "inverse_sensitivity",
    "laplace",
    "mechanisms",
    "median",
    "order_statistic",
    "piecewise_laplace",
    "profiles",
    "quantile",
    "random",
    "sample_intervals",
    "sharded_sample",
    "simulate",
    "simulation",
]
