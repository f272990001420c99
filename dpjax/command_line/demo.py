"""``dpjax demo``: thousands of private medians in one call, with exact and measured errors."""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp

import dpjax
from dpjax.display import joined, padded

_DATASETS, _POINTS, _EPSILON = 10_000, 101, 1.0
_LIMITS: Any = {"lower": -10.0, "upper": 10.0}


def answer(_: argparse.Namespace) -> str:
    """Return a text with a row for each mechanism."""
    data = jax.random.normal(jax.random.key(0), (_DATASETS, _POINTS))
    profile = dpjax.median(data, neighbors="swap", **_LIMITS)
    median = profile.value
    distributions: Any = {
        "piecewise_laplace": dpjax.piecewise_laplace(profile, _EPSILON),
        "inverse_sensitivity": dpjax.inverse_sensitivity(profile, _EPSILON),
        # One record can move a median from one bound to the other
        "laplace": dpjax.laplace(median, _EPSILON, sensitivity=20.0, **_LIMITS),
    }
    rows = []
    for name, distribution in distributions.items():
        errors = jnp.abs(distribution.sample(jax.random.key(1)) - median)
        measured = f"{errors.mean():.4f} +- {errors.std() / _DATASETS**0.5:.4f}"
        rows.append((name, f"{distribution.mean_abs_error(median).mean():.4f}", measured))
    columns = zip(("mechanism", "expected error", "measured error"), *rows, strict=True)
    table = joined(padded(name, cells, False) for name, *cells in columns)
    return (
        f"A private median of each of {_DATASETS} datasets of {_POINTS} normal points, clamped to "
        f"[-10, 10]; epsilon {_EPSILON:g}, swap neighbors.\nErrors are mean distances from the "
        "median: expected, in closed form, and of the draws, with a standard error.\n\n"
        f"{table}\n\nThis is a simulation, and no private release."
    )
