"""A demonstration without a file: thousands of private medians in one call, their measured error beside the exact one."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.accounting import Guarantee
from dpjax.checks import Neighbors
from dpjax.command_line.choice import MECHANISMS, guarantee_of, law_of
from dpjax.command_line.errors import UserError
from dpjax.command_line.report import SIMULATION, aligned, guarantee_fields, number, promised, said_of, versions, wrapped
from dpjax.command_line.tables import LARGEST
from dpjax.distributions import PiecewiseExponential
from dpjax.sensitivity.profile import SensitivityProfile
from dpjax.statistics import median

RUNS = 3


@dataclass(frozen=True)
class Setting:
    """What the demo makes and asks: ``datasets`` samples of ``points`` normal records each, and one median of each sample."""

    datasets: int
    points: int
    epsilon: float
    neighbors: Neighbors
    lower: float
    upper: float
    seed: int


@dataclass(frozen=True)
class Measurement:
    """One mechanism over all datasets.

    Attributes:
        mechanism: its name.
        exact: the exact mean absolute error, averaged over the datasets.
        measured: the mean of abs(draw - median) over the datasets.
        standard_error: of ``measured``.
        medians_per_second: from data to draws, compiled.
        compile_seconds: to trace and compile that function.
        guarantee: of one draw from one dataset.
    """

    mechanism: str
    exact: float
    measured: float
    standard_error: float
    medians_per_second: float
    compile_seconds: float
    guarantee: Guarantee


def measure(setting: Setting) -> list[Measurement]:
    """Make the data and measure every mechanism on them.

    Raises:
        UserError: the data would not fit into memory, or a public parameter that the library refuses.
    """
    if setting.datasets * setting.points > LARGEST:
        raise UserError(f"{setting.datasets} datasets of {setting.points} points are too many: at most {LARGEST} points in all.")
    key_data, key_draws = jax.random.split(jax.random.key(setting.seed))
    data = jax.random.normal(key_data, (setting.datasets, setting.points))
    try:
        profile = _profile(data, setting)
        return [_measure(name, jax.random.fold_in(key_draws, i), data, profile, setting) for i, name in enumerate(MECHANISMS)]
    except ValueError as error:
        raise UserError(str(error)) from error


def _profile(data: jax.Array, setting: Setting) -> SensitivityProfile:
    return median(data, lower=setting.lower, upper=setting.upper, neighbors=setting.neighbors)


def _measure(mechanism: str, key: jax.Array, data: jax.Array, profile: SensitivityProfile, setting: Setting) -> Measurement:
    def law(profile: SensitivityProfile) -> PiecewiseExponential:
        return law_of(mechanism, profile, setting.epsilon, lower=setting.lower, upper=setting.upper)

    def private_medians(key: jax.Array, data: jax.Array) -> jax.Array:
        return law(_profile(data, setting)).sample(key)

    start = time.perf_counter()
    compiled = jax.jit(private_medians).lower(key, data).compile()
    compile_seconds = time.perf_counter() - start
    draw = partial(compiled, key, data)
    draws = draw().block_until_ready()  # also the warm-up
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        draw().block_until_ready()
        seconds.append(time.perf_counter() - start)
    exact = law(profile).mean_abs_error(profile.value)
    distance = np.asarray(jnp.abs(draws - profile.value), np.float64)
    return Measurement(
        mechanism=mechanism,
        exact=float(np.mean(np.asarray(exact), dtype=np.float64)),
        measured=float(distance.mean()),
        standard_error=float(distance.std(ddof=1) / np.sqrt(distance.size)),
        medians_per_second=setting.datasets / statistics.median(seconds),
        compile_seconds=compile_seconds,
        guarantee=guarantee_of(mechanism, profile, setting.epsilon),
    )


def as_text(setting: Setting, measurements: list[Measurement]) -> str:
    """Return the measurements as a table with what they mean."""
    table = aligned(
        {
            "mechanism": [m.mechanism for m in measurements],
            "exact mean |error|": [f"{m.exact:.5f}" for m in measurements],
            "measured": [f"{m.measured:.5f} +- {m.standard_error:.5f}" for m in measurements],
            "medians per second": [f"{m.medians_per_second:,.0f}" for m in measurements],
            "compile seconds": [f"{m.compile_seconds:.2f}" for m in measurements],
        },
        left=("mechanism",),
    )
    where = versions()
    lines = [
        f"One private median of each of {setting.datasets} datasets of {setting.points} points, one call for each mechanism.",
        f"Data: standard normal, clamped to the bounds [{setting.lower:g}, {setting.upper:g}]. "
        f"epsilon {promised(setting.epsilon)}; neighbors {setting.neighbors}; seed {setting.seed}.",
        "",
        *table,
        "",
        "exact: the expected distance of a draw from the median, in closed form, averaged over the datasets.",
        "measured: the same of the draws, +- one standard error.",
        f"medians per second: from data to draws, the median of {RUNS} runs after compilation.",
        f"Device {where['device']}; dpjax {where['dpjax_version']}; JAX {where['jax_version']}.",
        "",
        "Guarantee of one draw:",
        *(f"  {m.mechanism}: {said_of(m.guarantee)}" for m in measurements),
        "",
        wrapped(SIMULATION),
    ]
    return "\n".join(lines)


def as_json(setting: Setting, measurements: list[Measurement]) -> str:
    """Return the measurements as one JSON object."""
    answer = {
        "simulation": True,
        "statistic": "median",
        "data": "standard normal, clamped to the bounds",
        "datasets": setting.datasets,
        "points": setting.points,
        "epsilon": setting.epsilon,
        "neighbors": setting.neighbors,
        "lower": setting.lower,
        "upper": setting.upper,
        "seed": setting.seed,
        **versions(),
        "rows": [
            {
                "mechanism": m.mechanism,
                "mean_abs_error": number(m.exact),
                "measured_abs_error": number(m.measured),
                "standard_error": number(m.standard_error),
                "medians_per_second": number(m.medians_per_second),
                "compile_seconds": number(m.compile_seconds),
                "guarantee": guarantee_fields(m.guarantee),
            }
            for m in measurements
        ],
    }
    return json.dumps(answer, indent=2, allow_nan=False)
