"""One object of every public class that has objects of its own, by its package and its name."""

from functools import cache, partial

import jax.numpy as jnp
from jax.scipy.stats import cauchy

import dpjax
from dpjax import accounting, frames, metric_privacy, release, simulation
from tests.contracts import calls
from tests.contracts.public import function

# Classes whose objects are those of the classes that are made from them
ABSTRACT = {
    ("distributions", "Distribution"),
    ("distributions", "Transform"),
    ("release", "Statistic"),
}


def returned(package, name):
    """What a function returns from the call of the registry."""
    arguments, options = calls.calls_of(package)[name]
    return function(package, name)(*arguments, **options)


def by(package, name):
    return partial(returned, package, name)


def statistic(name):
    arguments, options = calls.STATISTICS[name]
    return function("release", name)(*arguments, **options)


def on_scale():
    scale = dpjax.Asinh(1.0)
    profile = dpjax.on_scale(dpjax.median, calls.X, transform=scale, neighbors="swap")
    return dpjax.Transformed(dpjax.piecewise_laplace(profile, 1.0), scale)


def clamped():
    noise = dpjax.laplace(jnp.zeros(2), 1.0, sensitivity=1.0)
    return dpjax.Clamped.of(noise, **calls.BOUNDS)


def rounded():
    return dpjax.piecewise_laplace(dpjax.median(calls.X, **calls.ADD_REMOVE, resolution=1), 1.0)


def budget(kind=accounting.PrivacyFilter, **options):
    return kind(epsilon=1.0, delta=1e-6, neighbors="swap", **options)


def refused():
    try:
        budget().charge(4 * calls.PURE)
    except accounting.BudgetExceeded as error:
        return error


OBJECTS = {
    "accounting": {
        "BudgetExceeded": refused,
        "Composition": lambda: 3 * calls.PURE,
        "Guarantee": lambda: calls.PURE,
        "Ledger": None,  # a file: in tests/accounting
        "PrivacyFilter": budget,
        "PrivacyOdometer": lambda: accounting.PrivacyOdometer(delta=1e-6, neighbors="swap"),
    },
    "auditing": {
        "BlackBoxBound": by("auditing", "lower_bound"),
        "OneRunAudit": by("auditing", "audit_in_one_run"),
        "PrivacyLoss": by("auditing", "privacy_loss"),
        "WorstNeighbor": by("auditing", "worst_neighbor"),
    },
    "distributions": {
        "Asinh": lambda: dpjax.Asinh(2.0),
        "Cauchy": by("mechanisms", "smooth_cauchy"),
        "Clamped": clamped,
        "DiscreteLaplace": lambda: dpjax.laplace(dpjax.count(calls.X), 1.0),
        "Finite": by("mechanisms", "exponential"),
        "Gaussian": by("mechanisms", "gaussian"),
        "JointQuantiles": by("mechanisms", "joint_quantiles"),
        "LaplaceLogNormal": by("mechanisms", "smooth_laplace_log_normal"),
        "Log": lambda: dpjax.Log(lower=1.0, upper=5.0),
        "LogCauchy": lambda: dpjax.LogCauchy(scale=2.0),
        "PermuteAndFlip": lambda: dpjax.permute_and_flip(
            dpjax.median(calls.X, lower=0.0, upper=9.0, neighbors="swap", resolution=1), 1.0
        ),
        "PiecewiseExponential": by("mechanisms", "piecewise_laplace"),
        "Prior": lambda: dpjax.Prior(cauchy.cdf, cauchy.ppf, cauchy.logpdf),
        "Radial": by("mechanisms", "k_norm"),
        "Rounded": rounded,
        "SphericalGaussian": by("mechanisms", "spherical_gaussian"),
        "SubsampledLaplace": by("mechanisms", "subsampled_laplace"),
        "Tails": lambda: dpjax.laplace(jnp.zeros(2), 1.0, sensitivity=1.0).tails,
        "Transformed": on_scale,
    },
    "frames": {
        "FrameResult": by("frames", "release"),
        "PrivateGroups": lambda: frames.PrivateGroups(1.0, 1e-6),
    },
    "mechanisms": {
        "AboveThreshold": by("mechanisms", "above_threshold"),
        "ProposeTestRelease": by("mechanisms", "propose_test_release"),
    },
    "metric_privacy": {
        "FittedQueries": by("metric_privacy", "fit_queries"),
        "LipschitzQueries": calls.queries,
        "Metric": calls.metric,
        "MetricGuarantee": lambda: metric_privacy.metric_laplace.guarantee(calls.metric()),
        "OptimalScales": by("metric_privacy", "optimal_scales"),
    },
    "release": {
        **{name: partial(statistic, name) for name in calls.STATISTICS},
        "Counts": lambda: release.Counts.of_rows([0, 0], [3, 5], [2, 1], groups=1),
        "Floats": lambda: release.Floats(digits=2, smallest=-3, largest=4),
        "Release": lambda: statistic("Median").release(calls.AGES, **calls.PUBLISHED),
    },
    "sensitivity": {
        "CandidateScores": by("statistics", "mode"),
        "DownSensitivity": calls.down,
        "LocalSensitivity": calls.local,
        "SensitivityProfile": calls.median,
        "SmoothSensitivity": calls.smooth,
        "SortedRecords": calls.asked,
        "VectorProfile": by("sensitivity", "from_vector_radii"),
    },
    "simulation": {
        "Estimate": lambda: dpjax.simulate(
            calls.KEY, calls.laplace, calls.X[:, 0], draws=10, bins=[0.0]
        ),
        "Progress": lambda: simulation.Progress(1, 2, 3.0),
    },
}
NAMES = [
    (package, name) for package, made in OBJECTS.items() for name, make in made.items() if make
]


@cache
def made(package, name):
    """One object of a class, made once."""
    return OBJECTS[package][name]()
