"""Time and memory against datasets, points, draws and devices, beside a model that predicts them.

python benchmarks/scaling.py [--plot FILE.png] [--relation swap] [--quick] [--out FILE]

The model. Each call is read as a program (its jaxpr), never run, and tallied; loops count as often
as they turn, and of two branches the larger:

    seconds = call + words * a + transcendentals * b + gathers * c + others * d + sorting * e
              + bytes * f

words: random 32-bit words; transcendentals: logarithms, exponentials and the like; gathers:
elements read by index; others: elements of every other operation that computes; sorting: elements *
log2(length); bytes: arguments and results, each touched once. The seven prices are fitted on this
machine, none below 0, for the smallest sum of squared relative residuals. The largest point of
every sweep is left out of the fit and predicted. Memory that the compiler asks for beside arguments
and results:

    bytes = call + pieces * p + draws * q      (pieces and draws over all datasets)

Where a residual is large, the model fails, and the row says so: it knows neither caches nor threads
nor what XLA fuses. For devices the model is that the same work on the same cores takes the same
time.
"""

import argparse
import math
import statistics
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import nnls

import contestants
import devices
import harness
from harness import Case, row

TRANSCENDENTAL = {
    "log",
    "log1p",
    "exp",
    "exp2",
    "expm1",
    "pow",
    "tanh",
    "logistic",
    "erf",
    "erf_inv",
    "sin",
    "cos",
}
ROUNDS = {"shift_right_logical", "xor", "or"}  # almost all of them belong to the rounds of a word
FREE = {
    "broadcast_in_dim",
    "reshape",
    "squeeze",
    "iota",
    "convert_element_type",
    "slice",
    "concatenate",
    "pad",
    "rev",
    "transpose",
}
FEATURES = ("call", "words", "transcendentals", "gathers", "others", "sorting", "bytes")
FAILS = 0.5  # a relative residual above this is called a failure of the model


def tally(jaxpr: Any) -> dict[str, float]:
    """Words and operations of one call, by reading its program."""
    found = dict.fromkeys(FEATURES[1:-1], 0.0)

    def add(more: dict[str, float], times: float = 1.0) -> None:
        for name in found:
            found[name] += times * more[name]

    for equation in jaxpr.eqns:
        name = equation.primitive.name
        size = sum(math.prod(out.aval.shape) for out in equation.outvars)
        inner = [tally(part) for value in equation.params.values() for part in _programs(value)]
        if name == "scan":
            add(inner[0], equation.params["length"])
        elif name == "cond":
            add(max(inner, key=lambda part: sum(part.values())))
        elif inner:
            for part in inner:
                add(part)
        elif name in ("random_bits", "threefry2x32"):
            found["words"] += size
        elif (
            name == "shift_left"
        ):  # the library's own threefry: two words after twenty rounds with one such shift each
            found["words"] += size / 10
        elif name in ("random_split", "random_fold_in"):
            found["words"] += 2 * size  # a key is two words
        elif name in TRANSCENDENTAL:
            found["transcendentals"] += size
        elif name in ("gather", "dynamic_slice"):
            found["gathers"] += size
        elif name in ("sort", "pure_callback"):  # the callback is NumPy's sort
            found["sorting"] += size * math.log2(max(2, equation.outvars[0].aval.shape[-1]))
        elif name not in FREE | ROUNDS:
            found["others"] += size
    return found


def _programs(value: Any) -> list[Any]:
    values = value if isinstance(value, (tuple, list)) else [value]
    return [
        getattr(one, "jaxpr", one)
        for one in values
        if hasattr(one, "eqns") or hasattr(one, "jaxpr")
    ]


def sweeps(quick: bool) -> dict[str, list[tuple[str, int, int, int]]]:
    """Kind of call, datasets, points and draws (0 for a single one), growing along one of them."""
    if quick:
        return {
            "datasets": [("sample", rows, 101, 0) for rows in (64, 4096)],
            "points": [("sample", 64, points, 0) for points in (101, 5001)],
            "draws": [("sample", 1, 101, draws) for draws in (1000, 100_000)],
            "points, repeated draws": [("sample", 1, points, 1000) for points in (101, 5001)],
            "datasets, from raw": [("raw", rows, 101, 0) for rows in (16, 8192)],
        }
    return {
        "datasets": [("sample", rows, 1001, 0) for rows in (16, 64, 256, 1024, 4096)],
        "points": [("sample", 64, points, 0) for points in (101, 1001, 10_001, 100_001)],
        "draws": [("sample", 16, 1001, draws) for draws in (100, 1000, 10_000, 100_000)],
        "points, repeated draws": [
            ("sample", 1, points, 100_000) for points in (101, 1001, 10_001, 100_001, 1_000_001)
        ],
        "datasets, from raw": [("raw", rows, 1001, 0) for rows in (16, 64, 256, 1024, 4096)],
    }


def measure(all_sweeps: dict, relation: str, repeats: int) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    programs: dict[tuple[str, int, int, int], harness.Built] = {}
    for sweep, settings in all_sweeps.items():
        for i, setting in enumerate(settings):
            kind, rows, size, draws = setting
            case = Case(rows, size, relation)
            shape = (draws,) if draws else ()
            build = (
                contestants.library_from_raw if kind == "raw" else contestants.library_draws(shape)
            )
            built = programs[setting] if setting in programs else build(case)
            if sum(setting in others for others in all_sweeps.values()) > 1:
                programs[setting] = built  # another sweep has the same point
            seconds = harness.interleave(
                {"dpjax": types.SimpleNamespace(run=built.run, units=1, own_clock=None)}, repeats
            )["dpjax"]
            if kind == "raw":
                program = jax.make_jaxpr(
                    lambda key, x, case=case: case.distribution(x).sample(key)
                )(jax.random.key(0), case.data)
            else:
                distribution = jax.eval_shape(case.distribution, jnp.asarray(case.data))
                program = jax.make_jaxpr(
                    lambda key, distribution, shape=shape: distribution.sample(key, shape)
                )(jax.random.key(0), distribution)
            counts = {"call": 1.0, **tally(program.jaxpr), "bytes": float(built.bytes_touched or 0)}
            points.append(
                {
                    "sweep": sweep,
                    "datasets": rows,
                    "points": size,
                    "draws": max(1, draws),
                    "held_out": i == len(settings) - 1,
                    "seconds": statistics.median(seconds),
                    "spread": harness.spread(seconds),
                    "compile_seconds": built.compile_seconds,
                    "temporary_bytes": built.temporary_bytes,
                    "counts": counts,
                    "memory_counts": {
                        "call": 1.0,
                        "pieces": float(rows * (size + 1)),
                        "draws": float(rows * max(1, draws)),
                    },
                }
            )
    return points


def fit(points: list[dict[str, Any]], counts: str, measured: str) -> dict[str, float]:
    """Prices, none negative, with the smallest sum of squared relative residuals; the held-out
    points have no say.
    """
    used = [point for point in points if not point["held_out"] and point[measured]]
    names = list(used[0][counts])
    matrix = np.array([[point[counts][name] / point[measured] for name in names] for point in used])
    scale = np.maximum(matrix.max(axis=0), 1e-300)
    prices, _ = nnls(matrix / scale, np.ones(len(used)))
    return dict(zip(names, (prices / scale).tolist(), strict=True))


def predict(point: dict[str, Any], counts: str, prices: dict[str, float]) -> float:
    return sum(point[counts][name] * price for name, price in prices.items())


def model_rows(points: list[dict[str, Any]], relation: str) -> tuple[list[dict], dict[str, Any]]:
    """Measured, predicted and relative residual of each point; adds predictions to the points."""
    rows, models = [], {}
    for counts, measured, unit in (
        ("counts", "seconds", "s a call"),
        ("memory_counts", "temporary_bytes", "bytes"),
    ):
        if not any(point[measured] for point in points):
            continue
        prices = models[measured] = fit(points, counts, measured)
        for point in points:
            if not point[measured]:
                continue
            predicted = point[f"predicted_{measured}"] = predict(point, counts, prices)
            residual = predicted / point[measured] - 1
            rows.append(
                row(
                    f"scaling of {'time' if measured == 'seconds' else 'temporary memory'} with "
                    f"{point['sweep']}",
                    "dpjax",
                    relation,
                    f"{point['datasets']} x {point['points']}, {point['draws']} draws",
                    value=point[measured],
                    unit=unit,
                    compile_seconds=point["compile_seconds"] if measured == "seconds" else None,
                    predicted=predicted,
                    ratio=point[measured] / predicted if predicted else None,
                    reference="model" + (", held out" if point["held_out"] else ""),
                    relative_residual=residual,
                    held_out=point["held_out"],
                    model_fails=abs(residual) > FAILS,
                    note="the model fails here" if abs(residual) > FAILS else "",
                )
            )
    return rows, models


def device_rows(args: argparse.Namespace, repeats: int) -> list[dict]:
    """The weak scaling of devices.py, with the model that only the total work counts."""
    one, eight = devices.worker(1), devices.worker(devices.DEVICES[-1])
    settings = argparse.Namespace(
        rows=16 if args.quick else 64,
        points=101 if args.quick else 1001,
        draws=1000 if args.quick else 10_000,
        quick=args.quick,
    )
    rows = devices.weak_scaling(one, eight, settings, args.relation, repeats)
    one.close()
    eight.close()
    for line in rows:
        line["question"] = "scaling of time with devices"
        line["bar"] = None
        line.pop("met", None)
        if line.get("ratio"):
            line["relative_residual"] = 1 / line["ratio"] - 1
    return rows


def plot(points: list[dict[str, Any]], on_devices: list[dict], path: str) -> str:
    """Measured and predicted, one panel a sweep."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        return "matplotlib is not installed: no plot"
    matplotlib.use("agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(point["sweep"] for point in points))
    figure, axes = pyplot.subplots(
        2, len(names) + 1, figsize=(3.2 * (len(names) + 1), 6), constrained_layout=True
    )
    for column, name in enumerate(names):
        here = [point for point in points if point["sweep"] == name]
        x = [point[name.split(",")[0]] for point in here]
        for axis, measured, label in (
            (axes[0, column], "seconds", "seconds"),
            (axes[1, column], "temporary_bytes", "temporary bytes"),
        ):
            axis.loglog(x, [point[measured] for point in here], "o", label="measured")
            axis.loglog(
                x,
                [point.get(f"predicted_{measured}", math.nan) for point in here],
                "-",
                label="model",
            )
            axis.set(xlabel=name, ylabel=label)
    sharded = [line for line in on_devices if line.get("ratio")]
    numbers = (
        devices.QUICK_DEVICES if len(sharded) == len(devices.QUICK_DEVICES) else devices.DEVICES
    )
    axes[0, -1].semilogx(
        list(numbers), [line["ratio"] for line in sharded], "o", base=2, label="measured"
    )
    axes[0, -1].axhline(1.0, label="model")
    axes[0, -1].set(xlabel="virtual devices", ylabel="time / same work unsharded", ylim=(0, None))
    axes[1, -1].axis("off")
    axes[0, 0].legend()
    figure.savefig(path, dpi=120)
    return "written"


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--relation", default="swap")
    parser.add_argument("--plot", help="write a PNG to this file")
    args = parser.parse_args()
    repeats = args.repeats or (1 if args.quick else 7)
    points = measure(sweeps(args.quick), args.relation, repeats)
    rows, models = model_rows(points, args.relation)
    on_devices = device_rows(args, repeats)
    written = plot(points, on_devices, args.plot) if args.plot else "not asked for"
    residuals = [abs(line["relative_residual"]) for line in rows]
    summary = {
        "median_relative_residual": statistics.median(residuals),
        "largest_relative_residual": max(residuals),
        "failures": [
            line["question"] + ": " + line["shape"] for line in rows if line["model_fails"]
        ],
    }
    notes = [
        f"The model: median relative residual {summary['median_relative_residual']:.0%}, largest "
        f"{summary['largest_relative_residual']:.0%}; it fails at: "
        f"{'; '.join(summary['failures']) or 'no point'}."
    ]
    harness.finish(
        "scaling",
        args,
        rows + on_devices,
        [],
        notes,
        prices=models,
        summary=summary,
        points=points,
        plot=written,
    )


if __name__ == "__main__":
    main()
