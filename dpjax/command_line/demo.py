"""``dpjax demo``: thousands of private medians in one call, with exact and measured errors."""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp

import dpjax
from dpjax.display import joined, padded

_DATASETS, _POINTS, _EPSILON = 10_000, 101, 1.0
_LOWER, _UPPER = -10.0, 10.0


def answer(_: argparse.Namespace) -> str:
    """Return a text with a row for each mechanism."""
    data = jax.random.normal(jax.random.key(0), (_DATASETS, _POINTS))
    mechanisms = (dpjax.piecewise_laplace, dpjax.inverse_sensitivity, _laplace)
    rows = [_measured(mechanism, data) for mechanism in mechanisms]
    table = joined(padded(name, [row[name] for row in rows], False) for name in rows[0])
    return (
        f"A private median of each of {_DATASETS} datasets of {_POINTS} normal points, clamped to "
        f"[{_LOWER:g}, {_UPPER:g}]; epsilon {_EPSILON:g}, swap neighbors.\nErrors are mean "
        "distances from the median: expected, in closed form, and of the draws, with a standard "
        f"error.\n\n{table}\n\nThis is a simulation, and no private release. "
        f"JAX {jax.__version__} on {jax.devices()[0].device_kind}."
    )


def _measured(mechanism: Any, data: jax.Array) -> dict[str, Any]:
    """Return the errors of a draw of each median."""

    def of(data: jax.Array) -> tuple[jax.Array, Any]:
        profile = dpjax.median(data, lower=_LOWER, upper=_UPPER, neighbors="swap")
        return profile.value, mechanism(profile, _EPSILON)

    draw = jax.jit(lambda key, data: of(data)[1].sample(key))
    median, distribution = of(data)
    distances = jnp.abs(draw(jax.random.key(1), data) - median)
    return {
        "mechanism": mechanism.__name__.strip("_"),
        "expected error": f"{distribution.mean_abs_error(median).mean():.4f}",
        "measured error": f"{distances.mean():.4f} +- {distances.std() / _DATASETS**0.5:.4f}",
    }


def _laplace(profile: Any, epsilon: float) -> Any:
    """Return Laplace noise between the bounds, whose distance is the global sensitivity."""
    limits = {"lower": _LOWER, "upper": _UPPER}
    return dpjax.laplace(profile.value, epsilon, sensitivity=_UPPER - _LOWER, **limits)
