"""``dpjax demo``: thousands of private medians in one call, without a file.

It shows measured and exact errors.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.command_line.arguments import bounds_of
from dpjax.command_line.errors import UserError
from dpjax.command_line.parser import LARGEST, LINE_MECHANISMS
from dpjax.command_line.text import (
    SIMULATION,
    aligned,
    as_json,
    promised,
    versions,
    versions_line,
    words_of,
    wrapped,
)
from dpjax.frames.draws import distribution_of
from dpjax.release.result import cost_of
from dpjax.sensitivity import SensitivityProfile
from dpjax.statistics import median

RUNS = 3


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Generate the data, measure every mechanism, and return the report and the exit code."""
    bounds_of([asked.lower], [asked.upper], ["the data"])
    if asked.datasets * asked.points > LARGEST:
        raise UserError(
            f"{asked.datasets} datasets of {asked.points} points are too many: at most {LARGEST} "
            "points in all."
        )
    key_data, key_draws = jax.random.split(jax.random.key(asked.seed))
    data = jax.random.normal(key_data, (asked.datasets, asked.points))
    try:
        measurements = [
            _measure(name, jax.random.fold_in(key_draws, i), data, asked)
            for i, name in enumerate(LINE_MECHANISMS)
        ]
    except ValueError as error:
        raise UserError(str(error)) from error
    return (_json(asked, measurements) if asked.json else _text(asked, measurements)), 0


def _measure(
    mechanism: str, key: jax.Array, data: jax.Array, asked: argparse.Namespace
) -> dict[str, Any]:
    """Return the exact and measured errors of one mechanism over all datasets, and its speed.

    The compile time is included in the result.
    """
    bounds = asked.lower, asked.upper

    def distributions(data: jax.Array) -> tuple[SensitivityProfile, Any]:
        profile = median(data, neighbors=asked.neighbors, lower=asked.lower, upper=asked.upper)
        return profile, distribution_of(
            mechanism, profile, asked.epsilon, bounds if mechanism == "laplace" else None
        )

    start = time.perf_counter()
    private_medians = (
        jax.jit(lambda key, data: distributions(data)[1].sample(key)).lower(key, data).compile()
    )
    compile_seconds = time.perf_counter() - start
    draws = private_medians(key, data).block_until_ready()  # and warm up
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        private_medians(key, data).block_until_ready()
        seconds.append(time.perf_counter() - start)
    profile, distribution = distributions(data)
    distance = np.asarray(jnp.abs(draws - profile.value), np.float64)
    return {
        "mechanism": mechanism,
        "mean_abs_error": float(
            np.mean(np.asarray(distribution.mean_abs_error(profile.value)), dtype=np.float64)
        ),
        "measured_abs_error": float(distance.mean()),
        "standard_error": float(distance.std(ddof=1) / np.sqrt(distance.size)),
        "medians_per_second": asked.datasets / statistics.median(seconds),
        "compile_seconds": compile_seconds,
        "guarantee": cost_of(asked.epsilon, 1, asked.neighbors),
    }


def _text(asked: argparse.Namespace, measurements: list[dict[str, Any]]) -> str:
    table = aligned(
        {
            "mechanism": [m["mechanism"] for m in measurements],
            "exact mean |error|": [f"{m['mean_abs_error']:.5f}" for m in measurements],
            "measured": [
                f"{m['measured_abs_error']:.5f} +- {m['standard_error']:.5f}" for m in measurements
            ],
            "medians per second": [f"{m['medians_per_second']:,.0f}" for m in measurements],
            "compile seconds": [f"{m['compile_seconds']:.2f}" for m in measurements],
        },
        left=("mechanism",),
    )
    lines = [
        f"One private median of each of {asked.datasets} datasets of {asked.points} points, one "
        "call for each mechanism.",
        f"Data: standard normal, clamped to the bounds [{asked.lower:g}, {asked.upper:g}]. "
        f"epsilon {promised(asked.epsilon)}; neighbors {asked.neighbors}; seed {asked.seed}.",
        "",
        table,
        "",
        "exact: the expected distance of a draw from the median, in closed form, averaged over "
        "the datasets.",
        "measured: the mean distance of the draws, +- one standard error.",
        f"medians per second: from data to draws, the median of {RUNS} runs after compilation.",
        versions_line(),
        "",
        "Guarantee of one draw:",
        *(f"  {m['mechanism']}: {words_of(m['guarantee'])}" for m in measurements),
        "",
        wrapped(SIMULATION),
    ]
    return "\n".join(lines)


def _json(asked: argparse.Namespace, measurements: list[dict[str, Any]]) -> str:
    names = ("datasets", "points", "epsilon", "neighbors", "lower", "upper", "seed")
    what = {
        "simulation": True,
        "statistic": "median",
        "data": "standard normal, clamped to the bounds",
    }
    return as_json(
        what
        | {name: getattr(asked, name) for name in names}
        | versions(jax=True)
        | {"rows": measurements}
    )
