"""Noise scales under a metric: cost against elements N, queries K and matrices, by strategy, beside
straightforward NumPy.

python benchmarks/metric_privacy.py [--matrices 1000] [--quick] [--out FILE]

All in float64, on uniform points of the plane and uniform query values. NumPy handles one matrix at
a time, all pairs at once: what one would write from the formulas (a robust loop for strategy 3, a
barrier method for the optimum). Before anything is timed, both must agree on the objective to 1e-6
and stay within the budgets. The ratio is NumPy / dpjax.
"""

import statistics

import jax
import numpy as np

import harness
from dpjax.metric_privacy import from_points, load, noise_scales

NAMES = {
    "equal_shares": "strategy 1",
    "common": "strategy 2",
    "parameter_selection": "strategy 3",
    "optimal": "optimum",
}


def numpy_scales(values: np.ndarray, budgets: np.ndarray, strategy: str) -> np.ndarray:
    """One matrix (K, N), with distinct points and no ties to mind."""
    first, second = np.triu_indices(values.shape[1], 1)
    apart, d = np.abs(values[:, first] - values[:, second]), budgets[first, second]
    if strategy == "equal_shares":
        return len(values) * (apart / d).max(1)
    if strategy == "common":
        return np.full(len(values), (apart.sum(0) / d).max())
    if strategy == "parameter_selection":
        return numpy_selection(apart, d)
    return numpy_optimum(apart / d)


def numpy_selection(apart: np.ndarray, d: np.ndarray) -> np.ndarray:
    given, active, left = np.zeros(len(apart)), np.ones(len(apart), bool), d.copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        while active.any():
            share = np.where(active, np.where(apart > 0, left / apart, np.inf).min(1), 0)
            crowd = np.where(left > 0, share @ apart / left, 0)
            given += np.where(active, share / np.where(apart > 0, crowd, 0).max(1), 0)
            left = np.maximum(d - given @ apart, 0)
            active &= ~((apart > 0) & (left <= 1e-12 * d)).any(1)
    return np.maximum((given @ apart / d).max(), 1) / given


def numpy_optimum(a: np.ndarray) -> np.ndarray:
    """A barrier method: Newton steps with line search on t sum u^-2 - sum log(1 - a u)."""
    unit = 1 / a.max(1)
    a = a * unit[:, None]
    v = np.full(len(a), 0.5 / a.sum(0).max())
    weight = unit**-2 / (unit**-2).max()

    def value(v: np.ndarray, t: float) -> float:
        slack = 1 - v @ a
        return (
            np.inf
            if slack.min() <= 0 or v.min() <= 0
            else t * (weight @ v**-2) - np.log(slack).sum()
        )

    t = 1.0
    while a.shape[1] / t > 1e-9 * (weight @ v**-2):
        for _ in range(50):
            slack = 1 - v @ a
            gradient = -2 * t * weight * v**-3 + a @ (1 / slack)
            hessian = np.diag(6 * t * weight * v**-4) + (a / slack**2) @ a.T
            step = -np.linalg.solve(hessian, gradient)
            if -gradient @ step < 1e-10:
                break
            size, now = 1.0, value(v, t)
            while (
                value(v + size * step, t) > now + 0.25 * size * (gradient @ step) and size > 1e-12
            ):
                size /= 2
            v = v + size * step
        t *= 20
    return 1 / (v * unit / (v @ a).max())


def contest(
    matrices: int, queries: int, elements: int, strategy: str, repeats: int, numpy_matrices: int
) -> tuple[list, dict]:
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 100, (elements, 2))
    metric, values = (
        from_points(points, epsilon=1.0),
        rng.uniform(size=(matrices, queries, elements)),
    )
    some = values[:numpy_matrices]
    shape = f"{matrices} x {queries} x {elements}"

    ours = harness.Built(
        lambda turn: [noise_scales(one, metric, strategy=strategy) for one in values], matrices
    )
    found = np.array(ours.run(0))
    mine, theirs = (
        found[: len(some)],
        np.stack([numpy_scales(one, metric.budgets, strategy) for one in some]),
    )
    distance = float(np.max(np.abs((mine**2).sum(-1) / (theirs**2).sum(-1) - 1)))
    every = [*zip(values, found, strict=True), *zip(some, theirs, strict=True)]
    spent = max(load(asked, scales, metric) for asked, scales in every)
    check = {
        "contestant": NAMES[strategy],
        "case": shape,
        "relation": "swap",
        "distance": distance,
        "largest_load": spent,
        "passed": bool(distance < 1e-6 and spent <= 1 + 1e-9),
    }
    if not check["passed"]:
        raise RuntimeError(f"dpjax and NumPy do not agree, or overspend: {check}")

    built = {
        "dpjax": ours,
        "NumPy": harness.Built(
            lambda turn: [numpy_scales(one, metric.budgets, strategy) for one in some], len(some)
        ),
    }
    times = harness.interleave(built, repeats)
    ratios = [theirs / mine for theirs, mine in zip(times["NumPy"], times["dpjax"], strict=True)]
    rows = [
        harness.row(
            f"noise scales, {NAMES[strategy]}",
            name,
            "swap",
            shape if name == "dpjax" else f"{len(some)} x {queries} x {elements}",
            value=statistics.median(times[name]),
            unit="s a matrix",
            seconds=harness.spread(times[name]),
            repeats=repeats,
            compile_seconds=built[name].compile_seconds,
            temporary_bytes=built[name].temporary_bytes,
            **(
                {"ratio": statistics.median(ratios), "reference": "dpjax"}
                if name == "NumPy"
                else {}
            ),
        )
        for name in built
    ]
    return rows, check


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--matrices", type=int, default=1000)
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    repeats = args.repeats or (1 if args.quick else 5)
    matrices = 5 if args.quick else args.matrices
    sizes = [(matrices, k, 50) for k in ((1, 5) if args.quick else (1, 2, 5, 10))]
    sizes += (
        []
        if args.quick
        else [(max(1, matrices // 10), 5, 100), (max(1, matrices // 100), 5, 400), (1, 5, 1000)]
    )
    rows, checks = [], []
    for count, queries, elements in sizes:
        for strategy in NAMES:
            few = min(
                count,
                5
                if args.quick
                else max(1, (12_500 if strategy == "optimal" else 100_000) // elements**2),
            )
            found, check = contest(count, queries, elements, strategy, repeats, few)
            rows += found
            checks.append(check)
    harness.finish("metric_privacy", args, rows, checks)


if __name__ == "__main__":
    main()
