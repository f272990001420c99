"""Instance-optimal differentially private draws for thousands of datasets at once, in JAX.

data --statistic--> sensitivity profile --mechanism(epsilon)--> distribution --key--> draws

>>> import jax, jax.numpy as jnp, dpjax
>>> ages = jnp.array([[31.0, 40, 28, 35, 52], [47, 33, 29, 38, 61]])  # two datasets of five people
>>> profile = dpjax.median(ages, lower=0, upper=120, resolution=1, neighbors="add_remove")
>>> distribution = dpjax.piecewise_laplace(profile, epsilon=1.0)
>>> distribution
Rounded(batch_shape=(2,), dtype=float32, rate=0.5, resolution=1)
>>> distribution.sample(jax.random.key(0), 100).shape  # simulated; dpjax.release.median draws for publication
(100, 2)
>>> print(dpjax.piecewise_laplace.guarantee(profile, 1.0))
1-DP and 1-bounded-range under add_remove neighbors

Statistics
    median, quantile, order_statistic, quantiles; mean, variance, sum, count, histogram; maximum, nonnegative_sum, user_sum,
    distinct_count; mode, candidate_counts; triangle_count, triangle_count_of_edges; on_scale; local_sensitivity,
    mean_local_sensitivity, triangle_local_sensitivity, triangle_local_sensitivity_of_edges, smooth_sensitivity; and of your
    own from_radii, from_vector_radii, from_local_sensitivity, from_distances
Mechanisms (what a draw costs: piecewise_laplace.guarantee, and so for each)
    of a profile: piecewise_laplace, inverse_sensitivity, duff; of numbers: laplace, gaussian, spherical_gaussian,
    subsampled_laplace; of vectors: k_norm, piecewise_laplace, inverse_sensitivity
    among candidates: exponential, permute_and_flip, noisy_tree, stand_out, best_of, above_threshold, decomposable_exponential
    several quantiles: private_quantiles, joint_quantiles, recursive_quantiles, independent_quantiles, private_cdf
    confidence_interval, unbounded_quantile, shifted_inverse, noisy_binary_search, never_fail, propose_test_release,
    bounded_noise_laplace, smooth_cauchy, smooth_laplace, smooth_laplace_log_normal
Distributions
    sample, log_prob, cdf, quantile, interval, mean, stddev, mean_abs_error, plot; rows by index, as distribution[0]
Many draws
    simulate, sharded_sample
Packages
    release (draws for publication), frames (columns of data frames), accounting, auditing, metric_privacy, bounds, simulation,
    distributions, statistics, sensitivity, mechanisms, random
"""

import importlib
from typing import TYPE_CHECKING, Any

from dpjax.version import __version__

if TYPE_CHECKING:
    from dpjax import (
        accounting,
        auditing,
        bounds,
        distributions,
        frames,
        mechanisms,
        metric_privacy,
        random,
        release,
        sensitivity,
        simulation,
        statistics,
    )
    from dpjax.names import *
    from dpjax.simulation import sharded_sample, simulate

__all__ = [
    "AboveThreshold",
    "Asinh",
    "CandidateScores",
    "Cauchy",
    "Clamped",
    "ConfidenceInterval",
    "DiscreteLaplace",
    "DownSensitivity",
    "Finite",
    "Gaussian",
    "Guarantee",
    "IndependentQuantiles",
    "JointQuantiles",
    "LaplaceLogNormal",
    "LocalSensitivity",
    "Log",
    "LogCauchy",
    "PiecewiseExponential",
    "Prior",
    "ProposeTestRelease",
    "QuantileCdf",
    "QuantileMarginals",
    "Radial",
    "RecursiveQuantiles",
    "Rounded",
    "SensitivityProfile",
    "SmoothSensitivity",
    "SortedRecords",
    "SphericalGaussian",
    "SubsampledLaplace",
    "Tails",
    "Transformed",
    "VectorProfile",
    "__version__",
    "above_threshold",
    "accounting",
    "auditing",
    "best_of",
    "bounded_noise_laplace",
    "bounds",
    "candidate_counts",
    "confidence_interval",
    "count",
    "decomposable_exponential",
    "distinct_count",
    "distributions",
    "duff",
    "exponential",
    "frames",
    "from_distances",
    "from_local_sensitivity",
    "from_radii",
    "from_vector_radii",
    "gaussian",
    "histogram",
    "independent_quantiles",
    "interval_coverage",
    "interval_levels",
    "inverse_sensitivity",
    "joint_quantiles",
    "k_norm",
    "laplace",
    "local_sensitivity",
    "maximum",
    "mean",
    "mean_local_sensitivity",
    "mechanisms",
    "median",
    "metric_privacy",
    "mode",
    "never_fail",
    "noisy_binary_search",
    "noisy_tree",
    "nonnegative_sum",
    "on_scale",
    "optimal_beta",
    "optimal_sigma",
    "order_statistic",
    "permute_and_flip",
    "piecewise_laplace",
    "private_cdf",
    "private_quantiles",
    "propose_test_release",
    "quantile",
    "quantiles",
    "random",
    "recursive_quantiles",
    "release",
    "sample_intervals",
    "search_shift_for",
    "sensitivity",
    "sharded_sample",
    "shift_for",
    "shifted_inverse",
    "simulate",
    "simulation",
    "smooth_cauchy",
    "smooth_laplace",
    "smooth_laplace_log_normal",
    "smooth_sensitivity",
    "spherical_gaussian",
    "stand_out",
    "statistics",
    "subsampled_laplace",
    "sum",
    "triangle_count",
    "triangle_count_of_edges",
    "triangle_local_sensitivity",
    "triangle_local_sensitivity_of_edges",
    "unbounded_quantile",
    "user_sum",
    "variance",
]


# Nothing is imported before it is asked for: the command line's help needs none of it, and not JAX.
_PACKAGES = (
    "accounting",
    "auditing",
    "bounds",
    "distributions",
    "frames",
    "mechanisms",
    "metric_privacy",
    "random",
    "release",
    "sensitivity",
    "simulation",
    "statistics",
)


def __getattr__(name: str) -> Any:
    """Import what is asked for."""
    if name in _PACKAGES:
        return importlib.import_module(f"dpjax.{name}")
    if name in ("sharded_sample", "simulate"):
        return getattr(importlib.import_module("dpjax.simulation"), name)
    if name in __all__:
        return getattr(importlib.import_module("dpjax.names"), name)
    raise AttributeError(f"module 'dpjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
