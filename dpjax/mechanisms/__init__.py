"""From a profile and epsilon to a law: one mechanism a file, each file with the function and its ``guarantee``."""

from dpjax.mechanisms import (
    bounded_loss,
    bounded_noise_laplace,
    duff,
    exponential,
    inverse_sensitivity,
    laplace,
    never_fail,
    noisy_binary_search,
    noisy_tree,
    permute_and_flip,
    piecewise_laplace,
    propose_test_release,
    shifted_inverse,
    smooth_cauchy,
    smooth_laplace,
    smooth_laplace_log_normal,
)

__all__ = [
    "bounded_loss",
    "bounded_noise_laplace",
    "duff",
    "exponential",
    "inverse_sensitivity",
    "laplace",
    "never_fail",
    "noisy_binary_search",
    "noisy_tree",
    "permute_and_flip",
    "piecewise_laplace",
    "propose_test_release",
    "shifted_inverse",
    "smooth_cauchy",
    "smooth_laplace",
    "smooth_laplace_log_normal",
]
