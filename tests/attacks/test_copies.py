"""Public dataclasses outside accounting come back from ``replace``, copies, pickles, pytrees and
JSON as they were, and draw alike.

A promise that a copy loses or a field that it computes anew is an attack by ordinary means.
Statistic objects of releases have tests of their own in ``release/test_statistics.py``, and what
accounting makes has in ``accounting``.
"""

import copy
import dataclasses
import importlib
import inspect
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import cauchy

import dpjax
from dpjax import auditing, frames, metric_privacy, release, simulation

KEY = jax.random.key(2)
X = np.random.default_rng(0).normal(size=(2, 9)).astype(np.float32)
BOUNDS = {"lower": -3.0, "upper": 3.0}
ADD_REMOVE = {**BOUNDS, "neighbors": "add_remove"}
GRID = {"lower": 0, "upper": 9, "resolution": 1}
AGES = np.array([[3, 4, 4, 9, 1]])
MANY, PLAN = (
    np.arange(500)[None],
    {"lower": 0, "upper": 500, "resolution": 1, "neighbors": "swap", "coverage": 0.5},
)


def asked():
    return dpjax.quantiles(X, (0.25, 0.5), **ADD_REMOVE)


def coins():
    """Randomized response of 20 rows, with the canary and without."""
    lies = jnp.broadcast_to(jnp.array([1.0, 0.0]), (20, 2))
    return [dpjax.Finite(jnp.arange(2.0), cost, jnp.ones(())) for cost in (lies, 1 - lies)]


def metric():
    return metric_privacy.from_budgets([[0.0, 1.0], [1.0, 0.0]])


def frame():
    return {"x": np.array([1, 2, 3, 4] * 5), "g": np.array(["a", "b"] * 10)}


def released_frame():
    pytest.importorskip("narwhals")
    return frames.release(
        frame(), "x", **GRID, epsilon=8.0, neighbors="add_remove", groups=["a", "b"], by="g"
    )


MADE = {
    "AboveThreshold": lambda: dpjax.above_threshold(
        jnp.zeros(3), 1.0, threshold=1.0, sensitivity=1.0
    ),
    "Asinh": lambda: dpjax.Asinh(2.0),
    "CandidateScores": lambda: dpjax.mode(X, candidates=[0.0, 1.0], neighbors="swap"),
    "Cauchy": lambda: dpjax.smooth_cauchy(dpjax.smooth_sensitivity(X, 0.1, **ADD_REMOVE), 1.0),
    "Clamped": lambda: dpjax.Clamped.of(
        dpjax.laplace(jnp.zeros(2), 1.0, sensitivity=1.0), **BOUNDS
    ),
    "ConfidenceInterval": lambda: dpjax.confidence_interval(MANY, 0.5, 8.0, **PLAN),
    "DiscreteLaplace": lambda: dpjax.laplace(dpjax.count(X), 1.0),
    "DownSensitivity": lambda: dpjax.maximum(X, **BOUNDS),
    "Finite": lambda: dpjax.exponential(X, 1.0, sensitivity=1.0),
    "Gaussian": lambda: dpjax.gaussian(jnp.zeros(2), 1.0),
    "IndependentQuantiles": lambda: dpjax.independent_quantiles(asked(), 1.0),
    "JointQuantiles": lambda: dpjax.joint_quantiles(asked(), 1.0),
    "LaplaceLogNormal": lambda: dpjax.smooth_laplace_log_normal(
        dpjax.smooth_sensitivity(X, 0.1, **ADD_REMOVE), 0.5, sigma=1.0
    ),
    "LocalSensitivity": lambda: dpjax.local_sensitivity(X, **ADD_REMOVE),
    "Log": lambda: dpjax.Log(lower=1.0, upper=5.0),
    "LogCauchy": lambda: dpjax.LogCauchy(scale=2.0),
    "PiecewiseExponential": lambda: dpjax.piecewise_laplace(dpjax.median(X, **ADD_REMOVE), 1.0),
    "Prior": lambda: dpjax.Prior(cauchy.cdf, cauchy.ppf, cauchy.logpdf),
    "ProposeTestRelease": lambda: dpjax.propose_test_release(
        dpjax.local_sensitivity(X, **ADD_REMOVE), 1.0, delta=1e-2, proposal=0.5
    ),
    "QuantileCdf": lambda: dpjax.private_cdf(KEY, asked(), 1.0),
    "QuantileMarginals": lambda: dpjax.joint_quantiles(asked(), 1.0).marginals(),
    "Radial": lambda: dpjax.k_norm(X, 1.0, sensitivity=1.0, p=2),
    "NestedQuantiles": lambda: dpjax.nested_quantiles(
        dpjax.quantiles(X, (0.25, 0.5, 0.75), **ADD_REMOVE), 1.0, public_n=4
    ),
    "RecursiveQuantiles": lambda: dpjax.recursive_quantiles(asked(), 1.0),
    "Rounded": lambda: dpjax.piecewise_laplace(dpjax.median(X, **ADD_REMOVE, resolution=1), 1.0),
    "SensitivityProfile": lambda: dpjax.median(X, **ADD_REMOVE, definition="lower"),
    "SmoothSensitivity": lambda: dpjax.smooth_sensitivity(X, 0.1, **ADD_REMOVE),
    "SortedRecords": asked,
    "SphericalGaussian": lambda: dpjax.spherical_gaussian(X, 1.0),
    "SubsampledLaplace": lambda: dpjax.subsampled_laplace(
        jnp.array([2, 3]), 1.0, probability=0.5, most=9
    ),
    "Tails": lambda: dpjax.laplace(jnp.zeros(2), 1.0, sensitivity=1.0).tails,
    "Transformed": lambda: dpjax.Transformed(
        dpjax.piecewise_laplace(
            dpjax.on_scale(dpjax.median, X, transform=dpjax.Asinh(1.0), neighbors="swap"), 1.0
        ),
        dpjax.Asinh(1.0),
    ),
    "VectorProfile": lambda: dpjax.from_vector_radii(X, [1.0], p=2, step=2.0, neighbors="swap"),
    "BlackBoxBound": lambda: auditing.lower_bound(
        np.arange(50.0), np.arange(50.0) + 9, confidence=0.9
    ),
    "OneRunAudit": lambda: auditing.audit_in_one_run(KEY, *coins(), guesses=20),
    "PrivacyLoss": lambda: auditing.privacy_loss(
        *(dpjax.laplace(jnp.float32(at), 1.0, sensitivity=1.0) for at in (0.0, 1.0))
    ),
    "FrameResult": released_frame,
    "PrivateGroups": lambda: frames.PrivateGroups(1.0, 1e-6),
    "LaplaceAnswers": lambda: metric_privacy.metric_laplace(
        [3.0, 1.0], [[0.0, 1.0]], metric(), strategy="common"
    ),
    "LipschitzQueries": lambda: metric_privacy.lipschitz_queries([[0.0, 1.0]], metric()),
    "Metric": metric,
    "MetricGuarantee": lambda: metric_privacy.metric_laplace.guarantee(metric()),
    "Report": lambda: metric_privacy.validate(metric()),
    "Counts": lambda: release.Counts.of_rows([0, 0], [3, 5], [2, 1], groups=1),
    "Floats": lambda: release.Floats(digits=2, smallest=-3, largest=4),
    "GridDistribution": lambda: release.exact_distribution(
        release.Median(**GRID), AGES, epsilon=1.0, neighbors="swap"
    ),
    "Release": lambda: release.median(AGES, **GRID, epsilon=1.0, neighbors="swap", draws=2),
    "ReleasedInterval": lambda: release.confidence_interval(MANY, 0.5, epsilon=8.0, **PLAN),
    "Estimate": lambda: dpjax.simulate(
        KEY, lambda x: dpjax.laplace(x, 1.0, sensitivity=1.0), X[:, 0], draws=10, bins=[0.0]
    ),
    "Progress": lambda: simulation.Progress(1, 2, 3.0),
}


# The kernel's entropy, and no draws
WITHOUT_KEYS = (release.GridDistribution, dpjax.QuantileMarginals)


def public_dataclasses():
    """Their names, without those whose tests are elsewhere, and the abstract transform."""
    rooms = [
        dpjax,
        *(
            importlib.import_module(f"dpjax.{name}")
            for name in dir(dpjax)
            if inspect.ismodule(getattr(dpjax, name))
        ),
    ]
    found = {
        value
        for room in rooms
        for name in room.__all__
        if inspect.isclass(value := getattr(room, name))
    }
    own = {
        kind
        for kind in found
        if dataclasses.is_dataclass(kind) and not kind.__module__.startswith("dpjax.accounting")
    }
    return {kind.__name__ for kind in own if not issubclass(kind, release.Statistic)} - {
        "Transform"
    }


def same(one, other):
    """Equal in every field, down to the type, the dtype, NaN and the sign of zero."""
    if type(one) is not type(other):
        return False
    if isinstance(one, jax.Array | np.ndarray):
        a, b = np.asarray(one), np.asarray(other)
        return (
            a.dtype == b.dtype
            and a.shape == b.shape
            and (a.tobytes() == b.tobytes() if a.dtype != object else (a == b).all())
        )
    if dataclasses.is_dataclass(one):
        return all(
            same(getattr(one, field.name), getattr(other, field.name))
            for field in dataclasses.fields(one)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    return one == other


def draws(made):
    """What it draws with a key, if it does."""
    return (
        made.sample(KEY) if hasattr(made, "sample") and not isinstance(made, WITHOUT_KEYS) else None
    )


def test_every_public_dataclass_is_here():
    assert public_dataclasses() == set(MADE)


@pytest.mark.parametrize("name", MADE)
def test_it_comes_back_as_it_was(name):
    made = MADE[name]()
    assert type(made).__name__ == name
    ways = {
        "replace": dataclasses.replace,
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
        "pickle": lambda one: pickle.loads(pickle.dumps(one)),
    }
    leaves, structure = jax.tree.flatten(made)
    if leaves and leaves[0] is not made:
        ways["pytree"] = lambda one: jax.tree.unflatten(structure, leaves)
        assert jax.tree.structure(copy.deepcopy(made)) == structure
    if hasattr(made, "from_json"):
        ways["json"] = lambda one: type(one).from_json(json.dumps(json.loads(one.to_json())))
    drawn = draws(made)
    for way, back in ways.items():
        assert same(back(made), made), way
        assert same(draws(back(made)), drawn), way


def test_controls_a_field_that_changes_is_seen():
    profile = MADE["SensitivityProfile"]()
    for field in dataclasses.fields(profile):
        value = getattr(profile, field.name)
        if value is not None:
            other = dataclasses.replace(
                profile, **{field.name: -value if isinstance(value, jax.Array) else "another"}
            )
            assert not same(other, profile), field.name
    assert not same(np.array([0.0]), np.array([-0.0]))
    assert not same(np.float32([1]), np.float64([1]))
    rate = MADE["PiecewiseExponential"]()
    assert not same(draws(dataclasses.replace(rate, rate=2 * rate.rate)), draws(rate))
