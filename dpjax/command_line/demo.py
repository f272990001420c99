"""``dpjax demo``: thousands of private medians in one call, with exact and measured errors."""

from __future__ import annotations

import argparse
from typing import Any

import jax

import dpjax


def answer(_: argparse.Namespace) -> str:
    """Return a text with a line for each mechanism."""
    data = jax.random.normal(jax.random.key(0), (10_000, 101))
    profile = dpjax.median(data, lower=-10.0, upper=10.0, neighbors="swap")
    median = profile.value
    distributions: Any = {
        "piecewise_laplace": dpjax.piecewise_laplace(profile, 1.0),
        "inverse_sensitivity": dpjax.inverse_sensitivity(profile, 1.0),
        # One record can move a median from one bound to the other
        "laplace": dpjax.laplace(median, 1.0, sensitivity=20.0, lower=-10.0, upper=10.0),
    }
    text = (
        "A private median of each of 10,000 datasets of 101 normal points, clamped to [-10, 10]; "
        "epsilon 1, swap neighbors.\nErrors are mean distances from the median: expected, in closed"
        " form, and of the draws, with a standard error.\n\n"
        "mechanism            expected  measured\n"
    )
    for name, distribution in distributions.items():
        expected = distribution.mean_abs_error(median).mean()
        errors = abs(distribution.sample(jax.random.key(1)) - median)
        # 100 is the root of 10,000
        text += f"{name:20}{expected:9.4f}{errors.mean():10.4f} +- {errors.std() / 100:.4f}\n"
    return text + "\nThis is a simulation, and no private release."
