"""From a sensitivity profile and epsilon to an output distribution: one mechanism per file, each with its ``guarantee``.

Draws in floating point are simulations: their low-order bits depend on the data (Mironov 2012). ``dpjax.release`` is exact.
Public parameters broadcast against the batch shape of the data, so ``epsilon[:, None]`` is a sweep over a batch of rows. A bad one
raises ``ValueError``; as an element of a JAX array it makes its own row NaN instead.
"""

from dpjax.mechanisms import (
    above_threshold,
    best_of,
    bounded_loss,
    bounded_noise_laplace,
    confidence_interval,
    decomposable_exponential,
    duff,
    exponential,
    gaussian,
    independent_quantiles,
    inverse_sensitivity,
    joint_quantiles,
    k_norm,
    laplace,
    never_fail,
    noisy_binary_search,
    noisy_tree,
    permute_and_flip,
    piecewise_laplace,
    private_cdf,
    private_quantiles,
    propose_test_release,
    recursive_quantiles,
    shifted_inverse,
    smooth_cauchy,
    smooth_laplace,
    smooth_laplace_log_normal,
    stand_out,
    subsampled_laplace,
    unbounded_quantile,
)

__all__ = [
    "above_threshold",
    "best_of",
    "bounded_loss",
    "bounded_noise_laplace",
    "confidence_interval",
    "decomposable_exponential",
    "duff",
    "exponential",
    "gaussian",
    "independent_quantiles",
    "inverse_sensitivity",
    "joint_quantiles",
    "k_norm",
    "laplace",
    "never_fail",
    "noisy_binary_search",
    "noisy_tree",
    "permute_and_flip",
    "piecewise_laplace",
    "private_cdf",
    "private_quantiles",
    "propose_test_release",
    "recursive_quantiles",
    "shifted_inverse",
    "smooth_cauchy",
    "smooth_laplace",
    "smooth_laplace_log_normal",
    "stand_out",
    "subsampled_laplace",
    "unbounded_quantile",
]


def __dir__() -> list[str]:
    return __all__
