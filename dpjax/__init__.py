"""Instance-optimal differentially private draws for thousands of datasets at once, in JAX.

data --statistic--> sensitivity profile --mechanism(epsilon)--> distribution --key--> draws

>>> import jax, jax.numpy as jnp, dpjax
>>> ages = jnp.array([[31.0, 40, 28, 35, 52], [47, 33, 29, 38, 61]])  # two datasets of five people
>>> profile = dpjax.median(ages, lower=0, upper=120, resolution=1, neighbors="add_remove")
>>> distribution = dpjax.piecewise_laplace(profile, epsilon=1.0)
>>> distribution
Rounded(batch_shape=(2,), dtype=float32, rate=0.5, resolution=1)
>>> distribution.sample(jax.random.key(0), 100).shape  # a simulation, not for publication
(100, 2)
>>> print(dpjax.piecewise_laplace.guarantee(profile, 1.0))
1-DP under add_remove neighbors

==================== =========================== ========================== =======================
object               returned by                 meaning                    may it be published?
==================== =========================== ========================== =======================
sensitivity profile  a statistic: ``median(x)``  how far the statistic can  no: it is computed from
                                                 move when 1, 2, ...        the data
                                                 individuals change
distribution         a mechanism:                the distribution of the    no: it depends on the
                     ``piecewise_laplace(...)``  output, with exact errors  data
                                                 and intervals
draw                 ``distribution.sample``,    a floating-point           no: its low-order bits
                     ``simulate``                simulation from a seed,    depend on the data
                                                 for analysis
released number      ``dpjax.release``,          an exact draw, with        yes, at the privacy
                     ``dpjax.frames.release``    randomness from the        cost that its guarantee
                                                 operating system           states
==================== =========================== ========================== =======================

Statistics
    of records: median, quantile, order_statistic, quantiles; mean, variance, sum, count, histogram;
        maximum, nonnegative_sum, user_sum, distinct_count; mode, candidate_counts; on_scale
    of graphs: triangle_count, triangle_count_of_edges
    local and smooth sensitivities: local_sensitivity, mean_local_sensitivity,
        triangle_local_sensitivity, triangle_local_sensitivity_of_edges, smooth_sensitivity
    custom: from_radii, from_vector_radii, from_local_sensitivity, from_distances
    return types: SensitivityProfile, VectorProfile, CandidateScores, SortedRecords,
        DownSensitivity, LocalSensitivity, SmoothSensitivity
Mechanisms (each has an attribute ``guarantee``, which returns the cost of a draw as a Guarantee)
    for a profile: piecewise_laplace, inverse_sensitivity, duff
    for numbers: laplace, gaussian, spherical_gaussian, subsampled_laplace
    for vectors: k_norm, piecewise_laplace, inverse_sensitivity
    among candidates: exponential, permute_and_flip, noisy_tree, stand_out, best_of,
        above_threshold, decomposable_exponential
    several quantiles: joint_quantiles
    without bounds: shifted_inverse, noisy_binary_search (shift_for, search_shift_for)
    with a failure probability: never_fail, propose_test_release
    additive noise: bounded_noise_laplace, smooth_cauchy, smooth_laplace, smooth_laplace_log_normal
        (optimal_beta, optimal_sigma)
Distributions (sample, log_prob, cdf, quantile, interval, mean, stddev, mean_abs_error, plot)
    on the real line: PiecewiseExponential with Tails, Cauchy, Gaussian, LaplaceLogNormal,
        SubsampledLaplace, Clamped; Transformed by Asinh, Log, LogCauchy or a Prior
    on multiples and candidates: Rounded, DiscreteLaplace, Finite
    of vectors and several quantiles: Radial, SphericalGaussian, JointQuantiles
    of a mechanism that also decides or refuses: AboveThreshold, ProposeTestRelease
Many draws
    simulate, sharded_sample, sample_intervals; statistics.without_host_calls, for jax.export
Packages
    release (draws for publication), frames (statistics of tables), accounting, auditing,
    metric_privacy, bounds, simulation, distributions, statistics, sensitivity, mechanisms, random

``from dpjax import *`` omits the names that would shadow Python's: ``dpjax.sum``, ``dpjax.random``
and ``dpjax.statistics``.
"""

from __future__ import annotations

import builtins
import importlib
import sys
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
    from dpjax.accounting import Guarantee
    from dpjax.distributions import *
    from dpjax.mechanisms import *
    from dpjax.sensitivity import *
    from dpjax.simulation import sharded_sample, simulate
    from dpjax.statistics import *

# The public packages, and which of their names ``dpjax`` exports too. They are imported on first
# use, so that the command line can print its help without importing JAX.
_NAMES: dict[str, tuple[str, ...]] = {
    "accounting": ("Guarantee",),
    "auditing": (),
    "bounds": (),
    "distributions": (
        "Asinh",
        "Cauchy",
        "Clamped",
        "DiscreteLaplace",
        "Finite",
        "Gaussian",
        "JointQuantiles",
        "LaplaceLogNormal",
        "Log",
        "LogCauchy",
        "PiecewiseExponential",
        "Prior",
        "Radial",
        "Rounded",
        "SphericalGaussian",
        "SubsampledLaplace",
        "Tails",
        "Transformed",
        "sample_intervals",
    ),
    "frames": (),
    "mechanisms": (
        "AboveThreshold",
        "ProposeTestRelease",
        "above_threshold",
        "best_of",
        "bounded_noise_laplace",
        "decomposable_exponential",
        "duff",
        "exponential",
        "gaussian",
        "inverse_sensitivity",
        "joint_quantiles",
        "k_norm",
        "laplace",
        "never_fail",
        "noisy_binary_search",
        "noisy_tree",
        "optimal_beta",
        "optimal_sigma",
        "permute_and_flip",
        "piecewise_laplace",
        "propose_test_release",
        "search_shift_for",
        "shift_for",
        "shifted_inverse",
        "smooth_cauchy",
        "smooth_laplace",
        "smooth_laplace_log_normal",
        "spherical_gaussian",
        "stand_out",
        "subsampled_laplace",
    ),
    "metric_privacy": (),
    "random": (),
    "release": (),
    "sensitivity": (
        "CandidateScores",
        "DownSensitivity",
        "LocalSensitivity",
        "SensitivityProfile",
        "SmoothSensitivity",
        "SortedRecords",
        "VectorProfile",
        "from_distances",
        "from_local_sensitivity",
        "from_radii",
        "from_vector_radii",
    ),
    "simulation": (
        "sharded_sample",
        "simulate",
    ),
    "statistics": (
        "candidate_counts",
        "count",
        "distinct_count",
        "histogram",
        "local_sensitivity",
        "maximum",
        "mean",
        "mean_local_sensitivity",
        "median",
        "mode",
        "nonnegative_sum",
        "on_scale",
        "order_statistic",
        "quantile",
        "quantiles",
        "smooth_sensitivity",
        "sum",
        "triangle_count",
        "triangle_count_of_edges",
        "triangle_local_sensitivity",
        "triangle_local_sensitivity_of_edges",
        "user_sum",
        "variance",
    ),
}
_PACKAGE_OF = {name: package for package, names in _NAMES.items() for name in names}
_PUBLIC = sorted({"__version__", *_NAMES, *_PACKAGE_OF})

__all__ = [
    name for name in _PUBLIC if name not in sys.stdlib_module_names and not hasattr(builtins, name)
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _NAMES:
        return importlib.import_module(f"dpjax.{name}")
    if name not in _PACKAGE_OF:
        raise AttributeError(f"module 'dpjax' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"dpjax.{_PACKAGE_OF[name]}"), name)
    return found


def __dir__() -> list[str]:
    return _PUBLIC
