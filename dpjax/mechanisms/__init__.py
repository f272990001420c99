"""From a profile and epsilon to a law: one mechanism a file, each file with the function and its ``guarantee``."""

from dpjax.mechanisms import inverse_sensitivity, laplace, noisy_binary_search, piecewise_laplace, shifted_inverse

__all__ = ["inverse_sensitivity", "laplace", "noisy_binary_search", "piecewise_laplace", "shifted_inverse"]
