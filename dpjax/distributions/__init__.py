"""Laws as JAX pytrees: exact densities, quantiles and error bars, and draws."""

from dpjax.distributions.finite import Finite
from dpjax.distributions.intervals import sample_intervals
from dpjax.distributions.piecewise import PiecewiseExponential, Tails

__all__ = ["Finite", "PiecewiseExponential", "Tails", "sample_intervals"]
