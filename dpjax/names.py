"""The public functions and classes, under the names that ``dpjax`` has them by; it loads this file when the first is asked for."""

from dpjax.accounting import Guarantee
from dpjax.distributions import (
    Asinh,
    Cauchy,
    Clamped,
    DiscreteLaplace,
    Finite,
    Gaussian,
    LaplaceLogNormal,
    Log,
    LogCauchy,
    PiecewiseExponential,
    Prior,
    Radial,
    Rounded,
    SphericalGaussian,
    SubsampledLaplace,
    Tails,
    Transformed,
    sample_intervals,
)
from dpjax.mechanisms.above_threshold import AboveThreshold, above_threshold
from dpjax.mechanisms.best_of import best_of
from dpjax.mechanisms.bounded_noise_laplace import bounded_noise_laplace
from dpjax.mechanisms.confidence_interval import ConfidenceInterval, confidence_interval, interval_coverage, interval_levels
from dpjax.mechanisms.decomposable_exponential import decomposable_exponential
from dpjax.mechanisms.duff import duff
from dpjax.mechanisms.exponential import exponential
from dpjax.mechanisms.gaussian import gaussian, spherical_gaussian
from dpjax.mechanisms.independent_quantiles import IndependentQuantiles, independent_quantiles
from dpjax.mechanisms.inverse_sensitivity import inverse_sensitivity
from dpjax.mechanisms.joint_quantiles import joint_quantiles
from dpjax.mechanisms.k_norm import k_norm
from dpjax.mechanisms.laplace import laplace
from dpjax.mechanisms.nested_quantiles import NestedQuantiles, nested_quantiles
from dpjax.mechanisms.never_fail import never_fail
from dpjax.mechanisms.noisy_binary_search import noisy_binary_search, search_shift_for
from dpjax.mechanisms.noisy_tree import noisy_tree
from dpjax.mechanisms.optimal_beta import optimal_beta
from dpjax.mechanisms.permute_and_flip import permute_and_flip
from dpjax.mechanisms.piecewise_laplace import piecewise_laplace
from dpjax.mechanisms.private_cdf import private_cdf
from dpjax.mechanisms.private_quantiles import private_quantiles
from dpjax.mechanisms.propose_test_release import ProposeTestRelease, propose_test_release
from dpjax.mechanisms.recursive_quantiles import RecursiveQuantiles, recursive_quantiles
from dpjax.mechanisms.shifted_inverse import shift_for, shifted_inverse
from dpjax.mechanisms.smooth_cauchy import smooth_cauchy
from dpjax.mechanisms.smooth_laplace import smooth_laplace
from dpjax.mechanisms.smooth_laplace_log_normal import optimal_sigma, smooth_laplace_log_normal
from dpjax.mechanisms.stand_out import stand_out
from dpjax.mechanisms.subsampled_laplace import subsampled_laplace
from dpjax.mechanisms.unbounded_quantile import unbounded_quantile
from dpjax.sensitivity import (
    CandidateScores,
    DownSensitivity,
    LocalSensitivity,
    SensitivityProfile,
    SmoothSensitivity,
    SortedRecords,
    VectorProfile,
    from_distances,
    from_local_sensitivity,
    from_radii,
    from_vector_radii,
)
from dpjax.several_quantiles.cdf import QuantileCdf
from dpjax.several_quantiles.joint import JointQuantiles
from dpjax.several_quantiles.marginals import QuantileMarginals
from dpjax.statistics import (
    candidate_counts,
    count,
    distinct_count,
    histogram,
    local_sensitivity,
    maximum,
    mean,
    mean_local_sensitivity,
    median,
    mode,
    nonnegative_sum,
    on_scale,
    order_statistic,
    quantile,
    quantiles,
    smooth_sensitivity,
    sum,
    triangle_count,
    triangle_count_of_edges,
    triangle_local_sensitivity,
    triangle_local_sensitivity_of_edges,
    user_sum,
    variance,
)
