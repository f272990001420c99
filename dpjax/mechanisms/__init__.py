"""From a profile and epsilon to a law: one mechanism a file, each file with the function and its ``guarantee``."""

from dpjax.mechanisms import (
    duff,
    exponential,
    inverse_sensitivity,
    laplace,
    noisy_binary_search,
    permute_and_flip,
    piecewise_laplace,
    shifted_inverse,
)

__all__ = [
    "duff",
    "exponential",
    "inverse_sensitivity",
    "laplace",
    "noisy_binary_search",
    "permute_and_flip",
    "piecewise_laplace",
    "shifted_inverse",
]
