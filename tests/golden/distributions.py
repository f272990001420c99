"""Cases about data: profiles, sensitivities, and what the mechanisms make of them.

Most of the time goes into compiling, so all distributions on the line, whatever they came from, are padded to one number of
pieces and described by one program, and so are those on finitely many candidates. :func:`line_one_by_one` describes each in its
own shape; it has to give what is recorded for the padded ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpjax
from dpjax.mechanisms._smooth_cauchy import alpha_of as alpha_cauchy
from dpjax.mechanisms._smooth_laplace import alpha_of as alpha_laplace

Values = dict[str, dict[str, Any]]

FRACTIONS = np.array([-0.013, 0.217, 0.4321, 0.9137])  # of the range: where densities and distribution functions are recorded
LEVELS = np.array([0.02, 0.5, 0.93])  # of quantiles
LEVELS_OF_CANDIDATES = np.array([0.02, 0.47, 0.93])  # not 1/2: where the cdf of a symmetric one is 1/2, rounding decides
COVERAGE = 0.95
LOW, HIGH = 0.0, 100.0
BOUNDS = {"lower": LOW, "upper": HIGH}
ADD_REMOVE, SWAP = BOUNDS | {"neighbors": "add_remove"}, BOUNDS | {"neighbors": "swap"}


def floats(values: Any) -> np.ndarray:
    """In the precision of the moment."""
    return np.asarray(values, np.float64 if jax.config.jax_enable_x64 else np.float32)


def records() -> dict[str, np.ndarray]:
    """Four rows: without ties, all equal, at and beyond the bounds, and ties with NaN; and what goes with them."""
    some = np.random.default_rng(20240601)
    nan = np.nan
    rows = np.stack(
        [
            some.uniform(0, 100, 13).round(1),
            np.full(13, 30.0),
            np.array([0, 0, 0, 100, 100, -5, 120, 0, 50, 100, 0, 100, 0.0]),
            np.array([40, 41, nan, 41, 41, 43, nan, 44, 45, 45, nan, 90, 12.0]),
        ]
    )
    return {
        "x": floats(rows),
        "long": floats(np.stack([some.normal(50, 12, 60), np.repeat(some.uniform(0, 100, 12).round(), 5)])),
        "count": np.array([13, 8, 1, 0], np.int32),
        "mask": some.uniform(size=(4, 13)) < 0.6,
        "each": floats([0.1, 1.0, 8.0, 1.0]),  # one epsilon a row
        "sweep": floats([0.1, 1.0, 8.0])[:, None],  # all epsilons with all rows
        "radii": floats(np.sort(some.uniform(0, 9, (4, 6)), axis=-1)),
        "amounts": floats(some.gamma(1.0, 8.0, (4, 13)).round(2)),
        "ids": some.integers(0, 5, (4, 13)).astype(np.int32),
        "scores": floats(some.normal(0, 4, (4, 7)).round(3)),
        "adjacency": _graphs(some),
    }


def _graphs(some: np.random.Generator) -> np.ndarray:
    upper = np.triu(some.uniform(size=(4, 7, 7)) < np.array([0.2, 0.5, 0.9, 1.1])[:, None, None], 1)
    return (upper | np.swapaxes(upper, -1, -2)).astype(np.int32)


# Distributions on the line ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LineCase:
    """From data to a profile (or None) and to distributions of one batch shape, by name, in one program."""

    build: Callable[[Any], tuple[Any, dict[str, Any]]]
    low: float = LOW
    high: float = HIGH
    slow: bool = False


def _mechanisms(profile: Any, epsilon: Any, names: str) -> dict[str, Any]:
    every = {
        "plm": lambda: dpjax.piecewise_laplace(profile, epsilon),
        "inv": lambda: dpjax.inverse_sensitivity(profile, epsilon),
        "duff": lambda: dpjax.duff(profile, epsilon),
        "plm_rho": lambda: dpjax.piecewise_laplace(profile, epsilon, rho=0.5),
        "inv_rho": lambda: dpjax.inverse_sensitivity(profile, epsilon, rho=0.5),
        "duff_rho": lambda: dpjax.duff(profile, epsilon, rho=0.5),
        "plm_extended": lambda: dpjax.piecewise_laplace(profile, epsilon, rho=2.0, support="extended"),
        "inv_extended": lambda: dpjax.inverse_sensitivity(profile, epsilon, rho=2.0, support="extended"),
    }
    return {name: every[name]() for name in names.split()}


def _of(statistic: Callable[[Any], Any], names: str, epsilon: str = "each", high: float = HIGH, slow: bool = False) -> LineCase:
    def build(d: Any) -> tuple[Any, dict[str, Any]]:
        profile = statistic(d)
        return profile, _mechanisms(profile, d[epsilon], names)

    return LineCase(build, LOW, high, slow)


def _noise_on_the_line(d: Any) -> tuple[None, dict[str, Any]]:
    at, each, delta = d["x"][:, 0], d["each"], floats([1e-6, 1e-3, 0.01, 0.2])
    return None, {
        "laplace": dpjax.laplace(at, each, sensitivity=2.5),
        "laplace_bounded": dpjax.laplace(at, each, sensitivity=2.5, lower=LOW, upper=HIGH),
        "bounded_noise_laplace": dpjax.bounded_noise_laplace(at, each, sensitivity=2.5, delta=delta),
        "laplace_restricted": dpjax.laplace(at, each, sensitivity=2.5).restrict(10.0, 60.0),
        "laplace_reflected": dpjax.laplace(at, each, sensitivity=2.5).reflect(),
    }


def _smooth_laplace(d: Any) -> tuple[None, dict[str, Any]]:
    beta = dpjax.optimal_beta(1.0, noise="laplace", delta=1e-3)
    smooth = dpjax.smooth_sensitivity(d["x"], beta, **ADD_REMOVE)
    return None, {"smooth_laplace": dpjax.smooth_laplace(smooth, 1.0, delta=1e-3)}


def _truncated(d: Any) -> tuple[Any, dict[str, Any]]:
    profile = dpjax.median(d["x"], definition="lower", **ADD_REMOVE)
    steps = profile.truncate(3, step=HIGH, num_steps=2)
    near = dpjax.median(d["x"], definition="lower", truncate=4, **ADD_REMOVE)
    return near, {
        **{f"{name}_steps": one for name, one in _mechanisms(steps, d["each"], "plm inv").items()},
        **{f"{name}_near": one for name, one in _mechanisms(near, d["each"], "plm inv").items()},
    }


def _radii(d: Any, **options: Any) -> Any:
    return dpjax.from_radii(d["x"][:, 0], d["radii"], **options)


def _edges() -> np.ndarray:
    return np.argwhere(np.triu(records()["adjacency"][2]))


LINE: dict[str, LineCase] = {
    "median_add_remove": _of(lambda d: dpjax.median(d["x"], **ADD_REMOVE), "plm plm_rho", "sweep"),
    "median_swap": _of(lambda d: dpjax.median(d["x"], **SWAP), "plm plm_extended", "sweep", slow=True),
    "lower_median_add_remove": _of(
        lambda d: dpjax.median(d["x"], definition="lower", **ADD_REMOVE),
        "plm inv duff inv_rho inv_extended duff_rho",
        "each",
        slow=True,
    ),
    "lower_median_swap": _of(lambda d: dpjax.median(d["x"], definition="lower", **SWAP), "plm inv", "sweep"),
    "median_count": _of(lambda d: dpjax.median(d["x"], num_records=d["count"], **ADD_REMOVE), "plm plm_rho", slow=True),
    "median_mask": _of(lambda d: dpjax.median(d["x"], definition="lower", mask=d["mask"], **ADD_REMOVE), "plm inv", slow=True),
    "median_swap_count": _of(
        lambda d: dpjax.median(d["x"], num_records=np.array([13, 8, 1, 2], np.int32), **SWAP), "plm", slow=True
    ),
    "quantile_10_add_remove": _of(lambda d: dpjax.quantile(d["x"], 0.1, **ADD_REMOVE), "plm", slow=True),
    "quantile_25_continuous_add_remove": _of(
        lambda d: dpjax.quantile(d["x"], 0.25, definition="continuous", **ADD_REMOVE),
        "plm",
        slow=True,
    ),
    "quantile_90_lower_add_remove": _of(
        lambda d: dpjax.quantile(d["x"], 0.9, definition="lower", **ADD_REMOVE), "plm inv", slow=True
    ),
    "quantile_10_lower_swap": _of(lambda d: dpjax.quantile(d["x"], 0.1, definition="lower", **SWAP), "plm inv", slow=True),
    "quantile_25_swap": _of(lambda d: dpjax.quantile(d["x"], 0.25, **SWAP), "plm", slow=True),
    "quantile_90_continuous_swap": _of(lambda d: dpjax.quantile(d["x"], 0.9, definition="continuous", **SWAP), "plm", slow=True),
    "rank_5_add_remove": _of(lambda d: dpjax.order_statistic(d["x"], 5, **ADD_REMOVE), "plm inv", slow=True),
    "rank_5_swap": _of(lambda d: dpjax.order_statistic(d["x"], 5, **SWAP), "plm inv", slow=True),
    "median_60_add_remove": LineCase(
        lambda d: (profile := dpjax.median(d["long"], **ADD_REMOVE), _mechanisms(profile, d["sweep"], "plm plm_rho")),
        slow=True,
    ),
    "mean_add_remove": _of(lambda d: dpjax.mean(d["x"], **ADD_REMOVE), "inv", slow=True),
    "mean_hull": _of(lambda d: dpjax.mean(d["x"], values="hull", **ADD_REMOVE), "inv duff", slow=True),
    "mean_swap": _of(lambda d: dpjax.mean(d["x"], **SWAP), "plm inv", slow=True),
    "mean_count": _of(lambda d: dpjax.mean(d["x"], num_records=d["count"], **ADD_REMOVE), "inv", slow=True),
    "sum_swap": _of(lambda d: dpjax.statistics.sum(d["x"], **SWAP), "plm inv", high=1300.0, slow=True),
    "sum_add_remove": _of(lambda d: dpjax.statistics.sum(d["x"], **ADD_REMOVE), "plm", high=1300.0, slow=True),
    "sum_add_remove_max_count": _of(
        lambda d: dpjax.statistics.sum(d["x"], max_count=15, **ADD_REMOVE), "plm inv", high=1500.0, slow=True
    ),
    "median_truncated": LineCase(_truncated, slow=True),
    "radii_bounds": _of(lambda d: _radii(d, neighbors="swap", **BOUNDS), "plm inv", slow=True),
    "radii_step": _of(lambda d: _radii(d, neighbors="add_remove", radii_below=d["radii"] / 2, step=12.0), "plm"),
    "radii_step_bounds": _of(lambda d: _radii(d, neighbors="swap", step=12.0, **BOUNDS), "plm", slow=True),
    "local_sensitivities": _of(
        lambda d: dpjax.from_local_sensitivity(d["x"][:, 0], d["radii"], neighbors="swap", **BOUNDS),
        "plm inv",
        slow=True,
    ),
    "triangles": _of(lambda d: dpjax.triangle_count(d["adjacency"], num_levels=4, neighbors="edge"), "plm", high=35.0, slow=True),
    "triangles_of_edges": _of(
        lambda d: dpjax.triangle_count_of_edges(_edges(), num_nodes=7, num_levels=4, neighbors="edge"),
        "plm",
        high=35.0,
        slow=True,
    ),
    "maximum_shifted": LineCase(
        lambda d: (
            (down := dpjax.maximum(d["x"], **BOUNDS)).shift(2),
            {
                "shifted_inverse": dpjax.shifted_inverse(down, d["each"], tau=2),
                "shifted_inverse_rho": dpjax.shifted_inverse(down, d["each"], tau=2, rho=0.5),
            },
        ),
        slow=True,
    ),
    "total_shifted": LineCase(
        lambda d: (
            (down := dpjax.nonnegative_sum(d["amounts"], upper=1000.0, num_records=d["count"])).shift(3),
            {"shifted_inverse": dpjax.shifted_inverse(down, d["each"], tau=3)},
        ),
        high=1000.0,
        slow=True,
    ),
    "user_total_shifted": LineCase(
        lambda d: (
            (down := dpjax.user_sum(d["amounts"], d["ids"], upper=1000.0, mask=d["mask"])).shift(1),
            {"shifted_inverse": dpjax.shifted_inverse(down, d["each"], tau=1)},
        ),
        high=1000.0,
        slow=True,
    ),
    "noise": LineCase(_noise_on_the_line),
    "smooth_laplace": LineCase(_smooth_laplace, slow=True),
}
LINE_FLOAT64: dict[str, LineCase] = {
    "variance_swap": _of(lambda d: dpjax.variance(d["x"], **SWAP), "plm inv", high=2500.0, slow=True),
    "variance_truncated": _of(lambda d: dpjax.variance(d["x"], truncate=4, **SWAP), "plm", high=2500.0, slow=True),
}


def _line_cases(quick: bool) -> dict[str, LineCase]:
    every = LINE | (LINE_FLOAT64 if jax.config.jax_enable_x64 else {})
    return {name: case for name, case in every.items() if not (quick and case.slow)}


def _built(quick: bool) -> dict[str, tuple[Any, dict[str, Any]]]:
    """The profile and the distributions of every case."""
    data = records()
    return {
        # A list of edges is read on the host: that case is not jitted.
        name: (case.build if name == "triangles_of_edges" else jax.jit(case.build))(data)
        for name, case in _line_cases(quick).items()
    }


def line(quick: bool) -> Values:
    """Profiles, and all distributions on the line, padded to one shape and described by one program."""
    built, cases = _built(quick), _line_cases(quick)
    return _profiles(built) | _stacked(built, cases)


def line_one_by_one(quick: bool) -> Values:
    """Distributions of each structure, in their own shapes: shared costs, rates of a sweep, no pieces, one tail, two, none."""
    data, found = records(), {}
    for name in ("median_add_remove", "lower_median_swap", "radii_step", "noise"):
        case = LINE[name]
        for mechanism, one in jax.jit(case.build)(data)[1].items():
            ends = (np.broadcast_to(floats(end), one.batch_shape) for end in (case.low, case.high))
            found[f"{name} {mechanism}"] = _described(one, *ends)
    return found


def _profiles(built: dict[str, tuple[Any, Any]]) -> Values:
    """The arrays that every mechanism works on. They may be padded differently: see ``compare.py``."""
    return {f"{name} profile": profile_arrays(profile) for name, (profile, _) in built.items() if profile is not None}


def profile_arrays(profile: Any) -> dict[str, Any]:
    found = {
        "value": profile.value,
        "upper.side": profile.upper,
        "lower.side": profile.lower,
        "upper.levels": profile.upper_levels,
        "lower.levels": profile.lower_levels,
        "interpolable.exact": profile.interpolable,
        "integer_levels.exact": profile.integer_levels,
        "neighbors.exact": profile.neighbors,
    }
    if profile.step is not None:
        found["step"] = profile.step
    if profile.bounds is not None:
        found |= {"lower_bound": profile.bounds[0], "upper_bound": profile.bounds[1]}
    return found


def _stacked(built: dict[str, tuple[Any, Any]], cases: dict[str, LineCase]) -> Values:
    flat = {(name, mechanism): one for name, (_, each) in built.items() for mechanism, one in each.items()}
    pieces = max(one.edges.shape[-1] for one in flat.values()) - 1
    rows = [_rows(one, pieces) for one in flat.values()]
    stacked = dpjax.PiecewiseExponential(
        *(np.concatenate([row[key] for row in rows]) for key in ("edges", "cost_left", "cost_right", "rate")),
        tails=dpjax.Tails(*(np.concatenate([row["tails"][i] for row in rows]) for i in range(4))),
    )
    sizes = [row["rate"].size for row in rows]
    low, high = (np.repeat(floats([getattr(cases[name], end) for name, _ in flat]), sizes) for end in ("low", "high"))
    parts = {key: np.split(np.asarray(v), np.cumsum(sizes)[:-1], axis=-1) for key, v in _described(stacked, low, high).items()}
    return {
        f"{name} {mechanism}": {key: part[i].reshape(*part[i].shape[:-1], *one.batch_shape) for key, part in parts.items()}
        for i, ((name, mechanism), one) in enumerate(flat.items())
    }


def _rows(distribution: Any, pieces: int) -> dict[str, Any]:
    """Rows of one distribution, with pieces without width appended and tails of scale 0 where there are none."""
    batch = distribution.batch_shape

    def wide(values: Any, length: int) -> np.ndarray:
        values = np.asarray(values)
        padding = [(0, 0)] * (values.ndim - 1) + [(0, length - values.shape[-1])]
        values = np.pad(values, padding, mode="edge") if values.shape[-1] else np.zeros((*values.shape[:-1], length), values.dtype)
        return np.broadcast_to(values, (*batch, length)).reshape(-1, length)

    tails = distribution.tails or dpjax.Tails(*(floats(0.0) for _ in range(4)))
    return {
        "edges": wide(distribution.edges, pieces + 1),
        "cost_left": wide(distribution.cost_left, pieces),
        "cost_right": wide(distribution.cost_right, pieces),
        "rate": np.broadcast_to(np.asarray(distribution.rate), batch).reshape(-1),
        "tails": [
            np.broadcast_to(np.asarray(part), batch).reshape(-1)
            for part in (tails.lower_cost, tails.lower_scale, tails.upper_cost, tails.upper_scale)
        ],
    }


def _described(distribution: Any, low: Any, high: Any, levels: np.ndarray = LEVELS) -> dict[str, Any]:
    return _describe(distribution, low, high, floats(FRACTIONS), floats(levels), floats(COVERAGE))


@jax.jit
def _describe(distribution: Any, low: Any, high: Any, fractions: Any, levels: Any, coverage: Any) -> dict[str, Any]:
    """Whatever the distribution has a method for."""
    spread = (...,) + (None,) * len(distribution.batch_shape)
    y = low[None] + fractions[spread] * (high - low)[None]
    p = jnp.broadcast_to(levels[spread], levels.shape + distribution.batch_shape)
    center = low + jnp.asarray(0.4, low.dtype) * (high - low)
    found = {
        "quantile": distribution.quantile(p),
        "mean": distribution.mean(),
        "mean_abs_error": distribution.mean_abs_error(center),
    }
    found["interval.quantile"] = jnp.stack(distribution.interval(coverage))
    for name in ("log_prob", "cdf", "survival"):
        if hasattr(distribution, name):
            found[name] = getattr(distribution, name)(y)
    for name in ("variance", "entropy", "log_normalizer"):
        if hasattr(distribution, name):
            found[name] = getattr(distribution, name)()
    if "variance" in found:
        found["mean_squared_error"] = distribution.mean_squared_error(center)
    return found


# Distributions on finitely many candidates --------------------------------------------------------------------------------------


def _finite(quick: bool) -> dict[str, Any]:
    d = records()
    each, scores, labels = d["each"], d["scores"], floats([12, 30, 40, 41, 45, 50, 100])
    to = {"candidates": floats(np.linspace(0, 100, 9)), "tau": 2}
    one = dpjax.exponential(scores, each, candidates=labels, sensitivity=1.5)
    modes = dpjax.mode(d["x"], candidates=labels, neighbors="add_remove", mask=d["mask"])
    found = {
        "exponential": one,
        "permute_and_flip": dpjax.permute_and_flip(scores, each, sensitivity=1.5),
        "duff mode": dpjax.duff(modes, each),
    }
    if quick:
        return found
    downs = _downs(d, quick)
    found |= {
        "exponential sweep": dpjax.exponential(scores, d["sweep"], sensitivity=1.5),
        "noisy_tree zcdp": dpjax.noisy_tree(scores, zcdp=each, candidates=labels, sensitivity=1.5),
        "shifted_inverse maximum": dpjax.shifted_inverse(downs["maximum"], each, **to),
        "noisy_binary_search epsilon maximum": dpjax.noisy_binary_search(downs["maximum"], epsilon=each, **to),
    }
    for name, down in downs.items():
        found[f"shifted_inverse {name}"] = dpjax.shifted_inverse(down, each, **to)
        found[f"noisy_binary_search epsilon {name}"] = dpjax.noisy_binary_search(down, epsilon=each, **to)
        found[f"noisy_binary_search zcdp {name}"] = dpjax.noisy_binary_search(down, zcdp=each, **to | {"tau": 2.5})
    for neighbors in ("add_remove", "swap"):
        for statistic in ("mode", "candidate_counts"):
            counted = getattr(dpjax, statistic)(d["x"], candidates=labels, neighbors=neighbors)
            found[f"exponential {statistic} {neighbors}"] = dpjax.exponential(counted, each)
            found[f"permute_and_flip {statistic} {neighbors}"] = dpjax.permute_and_flip(counted, each)
    found["noisy_tree epsilon"] = dpjax.noisy_tree(scores, epsilon=each, candidates=labels, sensitivity=1.5)
    found["noisy_tree mode epsilon"] = dpjax.noisy_tree(modes, epsilon=each)
    acceptance = floats([0, 0.1, 0.5, 1, 1, 0.9, 0])
    found["never_fail"] = dpjax.mechanisms.never_fail_distribution(one, acceptance, fallback=7.0, attempts=5)
    found["bounded_loss"] = dpjax.mechanisms.bounded_loss_distribution(
        one, -scores, target=0.5, epsilon=each, delta=1e-3, fallback=7.0, attempts=5
    )
    return found


def _downs(d: dict[str, Any], quick: bool) -> dict[str, Any]:
    largest = {"maximum": dpjax.maximum(d["x"], **BOUNDS)}
    return (
        largest
        if quick
        else largest
        | {
            "nonnegative_sum": dpjax.nonnegative_sum(d["amounts"], upper=100.0),
            "user_sum": dpjax.user_sum(d["amounts"], d["ids"], upper=100.0),
            "distinct_count": dpjax.distinct_count(d["ids"], upper=100.0, num_records=d["count"]),
        }
    )


def finite(quick: bool) -> Values:
    """All distributions on candidates, padded by candidates that cannot be drawn and described by one program."""
    made = _finite(quick)
    width = max(one.values.shape[-1] for one in made.values())
    rows = [_finite_rows(one, width) for one in made.values()]
    values, cost, rate = (np.concatenate(part) for part in zip(*rows, strict=True))
    stacked = dpjax.Finite(values, cost, rate)
    # Of each row's own range, which the candidates are: they are public.
    low, high = values.min(axis=-1), values.max(axis=-1)
    found = _described(stacked, low, high, LEVELS_OF_CANDIDATES) | _at_candidates(stacked)
    ends = np.cumsum([len(part) for _, _, part in rows])[:-1]
    parts = {key: np.split(np.asarray(value), ends, axis=0 if "candidates" in key else -1) for key, value in found.items()}
    out: Values = {}
    for i, (name, one) in enumerate(made.items()):
        k, batch = one.values.shape[-1], one.batch_shape
        out[name] = {
            key: part[i][:, :k].reshape(*batch, k) if "candidates" in key else part[i].reshape(*part[i].shape[:-1], *batch)
            for key, part in parts.items()
        }
        for between in ("log_prob", "log_normalizer"):
            out[name].pop(between, None)  # a density is at the candidates
    return out


@jax.jit
def _at_candidates(distribution: Any) -> dict[str, Any]:
    return {"candidates.log_prob": distribution.log_probabilities()}


def _finite_rows(distribution: Any, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    batch, k = distribution.batch_shape, distribution.values.shape[-1]
    values = np.broadcast_to(np.asarray(distribution.values), (*batch, k)).reshape(-1, k)
    cost = np.broadcast_to(np.asarray(distribution.cost), (*batch, k)).reshape(-1, k)
    padding = [(0, 0), (0, width - k)]
    return (
        np.pad(values, padding, mode="edge"),
        np.pad(cost, padding, constant_values=np.inf),
        np.broadcast_to(np.asarray(distribution.rate), batch).reshape(-1),
    )


# Smooth and local sensitivity, and their noise ----------------------------------------------------------------------------------

_RANKS = {
    "linear": {"definition": "linear"},
    "lower": {"definition": "lower"},
    "rank_5": {"rank": 5},
}


def sensitivities(quick: bool) -> Values:
    """Local sensitivity at every distance, smooth sensitivity, down sensitivity, and the public numbers of the baselines."""
    d, found = records(), {}
    beta = floats([0.05, 0.3, 1.0])[:, None]
    for neighbors in ("add_remove", "swap"):
        for name, rank in _RANKS.items():
            if (name, neighbors) == ("rank_5", "add_remove") or (quick and name == "linear"):
                continue
            local, smooth = _local_and_smooth(d["x"], beta, BOUNDS | {"neighbors": neighbors} | rank)
            found[f"median {name} {neighbors}"] = {
                "value": local.value,
                "at_distance.side": local.at_distance,
                "bound.scale": smooth.bound,
                "by_distance.scale": local.smooth(0.3).bound,
            }
    local, smooth = _local_and_smooth(d["x"], beta, ADD_REMOVE, d["count"])
    found["median count"] = {"value": local.value, "at_distance.side": local.at_distance, "bound.scale": smooth.bound}
    for name, down in _downs(d, quick).items():
        found[f"down {name}"] = {
            "value": down.value,
            "values.side": down.values,
            "at_3.value": down.at(3),
            "down_sensitivity_2.value": down.down_sensitivity(2),
        }
    budgets, delta = floats([0.1, 1.0, 8.0]), floats(1e-6)
    found["public numbers"] = {
        "beta_cauchy.solution": dpjax.optimal_beta(budgets, noise="cauchy"),
        "beta_cauchy_4.solution": dpjax.optimal_beta(budgets, noise="cauchy", gamma=4.0),
        "beta_laplace.solution": dpjax.optimal_beta(budgets, noise="laplace", delta=delta),
        "beta_log_normal.solution": dpjax.optimal_beta(budgets, noise="laplace_log_normal", delta=delta),
        "sigma.solution": dpjax.optimal_sigma(budgets, beta=0.1),
        "alpha_cauchy.number": alpha_cauchy(budgets, beta=0.01),
        "alpha_cauchy_published.number": alpha_cauchy(budgets, beta=0.01, calibration="published"),
        "alpha_laplace.number": alpha_laplace(budgets, beta=0.001, delta=delta),
        "shift_for.exact": [dpjax.shift_for(e, num_candidates=1000, failure=1e-4) for e in (0.1, 1.0, 8.0)],
        "search_shift_for.number": [dpjax.search_shift_for(num_candidates=1000, failure=1e-4, epsilon=e) for e in (0.1, 1.0, 8.0)],
        "search_shift_for_zcdp.number": [
            dpjax.search_shift_for(num_candidates=1000, failure=1e-4, zcdp=r) for r in (0.1, 1.0, 8.0)
        ],
    }
    return found


def _local_and_smooth(x: Any, beta: Any, options: dict[str, Any], count: Any = None) -> tuple[Any, Any]:
    def both(x: Any, beta: Any) -> tuple[Any, Any]:
        more = options if count is None else options | {"num_records": count}
        return dpjax.local_sensitivity(x, **more), dpjax.smooth_sensitivity(x, beta, **more)

    return jax.jit(both)(x, beta)


def noise(quick: bool) -> Values:
    """Cauchy and Laplace log-normal noise, as the baselines make it, and clamped to the bounds."""
    d, found, ends = records(), {}, (floats(np.full(4, LOW)), floats(np.full(4, HIGH)))
    smooth = dpjax.smooth_sensitivity(d["x"], floats(0.01), **ADD_REMOVE)
    smoother = dpjax.smooth_sensitivity(d["x"], floats(0.05), **ADD_REMOVE)
    cauchy = {
        "cauchy": dpjax.smooth_cauchy(smooth, d["each"]),
        "cauchy gamma 4": dpjax.smooth_cauchy(smooth, d["each"], gamma=4.0),
        "cauchy published": dpjax.smooth_cauchy(smooth, d["each"], calibration="published"),
    }
    for name, one in cauchy.items():
        if not quick or name == "cauchy":
            found[name] = _described(one, *ends)
    wide = dpjax.smooth_laplace_log_normal(smoother, d["each"], sigma=floats([0.6, 0.3, 1.2, 0.6]))
    found["laplace_log_normal"] = _described(wide, *ends)
    plain = dpjax.laplace(d["x"][:, 0], d["each"], sensitivity=20.0)
    for name, one in {"laplace": plain, "cauchy": cauchy["cauchy"], "laplace_log_normal": wide}.items():
        if not quick:
            found[f"clamped {name}"] = _described(dpjax.Clamped.of(one, **BOUNDS), *ends)
    found["cauchy"]["tail_bound.number"] = dpjax.mechanisms.cauchy_tail_bound(smooth, d["each"], failure=0.01)
    local = dpjax.local_sensitivity(d["long"], **ADD_REMOVE)
    tested = dpjax.propose_test_release(local, floats([0.5, 2.0, 8.0])[:, None], delta=1e-4, proposal=15.0, test_share=0.4)
    found["propose_test_release"] = {
        "answer.probability": tested.answer_probability(),
        "no_answer.probability": tested.no_answer_probability(),
        "mean_abs_error": tested.mean_abs_error(local.value),
    }
    return found
