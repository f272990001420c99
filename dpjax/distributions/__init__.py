"""Laws as JAX pytrees: exact densities, quantiles and error bars, and draws."""

from dpjax.distributions.intervals import sample_intervals
from dpjax.distributions.piecewise import PiecewiseExponential, Tails

__all__ = ["PiecewiseExponential", "Tails", "sample_intervals"]
