"""From a profile and epsilon to a law: one mechanism a file, each file with the function and its ``guarantee``."""

from dpjax.mechanisms import inverse_sensitivity, laplace, piecewise_laplace

__all__ = ["inverse_sensitivity", "laplace", "piecewise_laplace"]
