"""Noise fitted to a metric, after Figures 2 to 5 of Kamalaruban et al. (2020): how much less of it
than under plain privacy?

python benchmarks/experiments/metric_budgets.py [--out FILE] [--png FILE]

The improvement factor of K linear queries is the geometric mean, over them, of the noise scale that
epsilon-DP asks for, at epsilon the smallest budget of the universe, over the scale that the metric
asks for. No data set is needed: scales depend on the queries and on the metric only. Closed forms
and the certified optimum, no draws.

    2b        1000 single queries on each of 20 universes of 50 random points in a square of side
              100, budgets Euclidean distances
    2c, 2d    real and binary matrices of K = 1 to 10 queries on the same universes, by strategy
    3         single queries on US cities with more than 50,000 inhabitants, and the average
              elevation of an inhabitant's home
    4, 5      Blowfish and smooth thresholds T: root mean squared error at epsilon = 1, and
              improvement factors

The paper has one universe. The factor is dominated by its closest pair, which sets epsilon: 2c and
2d show the mean over universes and, in brackets, the lowest and the highest mean of one.
"optimal/..." is the ratio of sums of squared scales, which strategies should minimize. Factors of
thresholds are those of the queries that need noise; "closed" is the number of pairs that a policy
protects by way of others, "violations" that of its broken triangles, "repaired" what the closure
leaves of them, and "changed" the largest relative change of a scale by the closure: none.

The paper's list of 741 cities is not public. Of two public lists, one has the same places twice, a
few metres apart, and its factors say nothing but that: "one within 0.01" keeps the largest of such
places. It alone has elevations; cities of the other get that of the nearest place in it. Figure 3
is left out where DPJAX_DATA names no folder of tables.
"""

import csv
import os
from typing import Any, Literal

import numpy as np

import output
from dpjax.metric_privacy import (
    Metric,
    blowfish,
    from_points,
    noise_scales,
    single_query_scale,
    smooth_threshold,
    uniform,
)
from dpjax.metric_privacy.scales import STRATEGIES

Kind = Literal["real", "binary"]
SEED, POINTS, SIDE, LEAST_POPULATION = 2020, 50, 100.0, 50_000
# Single queries, and matrices for each K, of each universe
UNIVERSES, QUERIES, MATRICES = 20, 1000, 25
QUICK_QUERIES, QUICK_MATRICES = 100, 3
COUNTS = tuple(range(1, 11))
THRESHOLDS = (2.0, 4.0, 8.0, 16.0)
LEVELS = np.linspace(0, 1, 21)


def rows(queries: int = QUERIES, matrices: int = MATRICES) -> list[dict[str, Any]]:
    """Figures 2, 4 and 5, and Figure 3 where there are tables."""
    rng = np.random.default_rng(SEED)
    metrics = [from_points(points, epsilon=1.0) for points in random_points(UNIVERSES, rng)]
    single = random_queries("real", (queries, UNIVERSES, POINTS), rng)
    found = single_rows(metrics, single)
    for figure, kind in (("2c", "real"), ("2d", "binary")):
        for count in COUNTS:
            values = random_queries(kind, (matrices, UNIVERSES, count, POINTS), rng)
            found.append(
                {"figure": figure, "queries": kind, "K": count, **matrix_cells(metrics, values)}
            )
    found += threshold_rows(metrics, single)
    if os.environ.get("DPJAX_DATA"):
        return found + city_rows(output.data_folder(), queries)
    print("Figure 3 is left out: DPJAX_DATA does not name the folder of real tables.")
    return found


def random_points(universes: int, rng: np.random.Generator) -> np.ndarray:
    return SIDE * rng.random((universes, POINTS, 2))


def random_queries(kind: Kind, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return rng.random(shape) if kind == "real" else rng.integers(0, 2, shape).astype(float)


def single_scales(metrics: list[Metric], queries: np.ndarray) -> np.ndarray:
    """The scale of each single query ``(Q, U, N)`` on its universe, ``(Q, U)``."""
    return np.array(
        [
            [float(single_query_scale(query, metric)) for query in of]
            for metric, of in zip(metrics, queries.swapaxes(0, 1), strict=True)
        ]
    ).T


def single_rows(metrics: list[Metric], queries: np.ndarray) -> list[dict[str, Any]]:
    """Figure 2b: a row for each universe, the closest pair first."""
    closest = np.array([metric.smallest for metric in metrics])
    factors = np.ptp(queries, axis=-1) / closest / single_scales(metrics, queries)
    order = np.argsort(closest)
    return [
        {
            "figure": "2b",
            "universe": int(u),
            "closest": float(closest[u]),
            **distribution(factors[:, u]),
        }
        for u in order
    ]


def matrix_cells(metrics: list[Metric], queries: np.ndarray) -> dict[str, Any]:
    """Improvement factors of matrices ``(M, U, K, N)`` by strategy, and how the optimum's sum of
    squared scales compares.
    """

    def of(metrics: list[Metric], strategy: str) -> np.ndarray:
        return np.array(
            [
                [
                    noise_scales(one, metric, strategy=strategy)
                    for one, metric in zip(of_universes, metrics, strict=True)
                ]
                for of_universes in queries
            ]
        )

    # Under epsilon-DP all queries get the L1 sensitivity over epsilon: the common scale of the
    # uniform metric.
    plain = of([uniform(POINTS, epsilon=metric.smallest) for metric in metrics], "common")
    scales = {name: of(metrics, name) for name in STRATEGIES}
    cells: dict[str, Any] = {}
    for name, c in scales.items():
        factors = np.exp(np.mean(np.log(plain / c), axis=-1))
        noise = factors[:, 0].std(ddof=1) / len(factors) ** 0.5
        cells[name] = spread(factors.mean(axis=0)) | {
            "first": float(factors[:, 0].mean()),
            "first_se": float(noise),
        }
    squares = {name: np.sum(c**2, axis=-1) for name, c in scales.items()}
    for name in STRATEGIES[:-1]:
        cells[f"optimal/{name}"] = float(np.mean(squares["optimal"] / squares[name]))
    return cells


def threshold_rows(distances: list[Metric], queries: np.ndarray) -> list[dict[str, Any]]:
    """Figures 4 and 5, at epsilon 1; at others, errors are divided by it, factors the same."""
    found = []
    for policy, make in (("Blowfish", blowfish), ("smooth", smooth_threshold)):
        for threshold in THRESHOLDS:
            metrics = [make(each, epsilon=1.0, threshold=threshold) for each in distances]
            closed = [metric.closure() for metric in metrics]
            c, again = (single_scales(each, queries) for each in (metrics, closed))
            noisy = c > 0
            error = np.sqrt(2) * c.mean(axis=0)
            found.append(
                {
                    "figure": "4, 5",
                    "policy": policy,
                    "T": threshold,
                    "pairs": protected(metrics),
                    "closed": protected(closed),
                    "violations": float(np.mean([violations(metric) for metric in metrics])),
                    "repaired": sum(violations(metric) for metric in closed),
                    "changed": float(np.max(np.abs(again - c) / np.where(noisy, c, 1.0))),
                    "RMSE": spread(error),
                    "no noise": float(1 - noisy.mean()),
                    **distribution((np.ptp(queries, axis=-1) / np.where(noisy, c, 1.0))[noisy]),
                }
            )
    return found


def protected(metrics: list[Metric]) -> float:
    """The mean number of pairs with a budget."""
    return float(
        np.mean(
            [np.isfinite(metric.budgets[np.triu_indices(POINTS, 1)]).sum() for metric in metrics]
        )
    )


def violations(metric: Metric) -> int:
    """The number of broken triangles of pairs i < j."""
    d = metric.budgets
    return sum(
        int(np.triu(d > (d[:, k, None] + d[None, k]) * (1 + 1e-12), 1).sum())
        for k in range(metric.size)
    )


def city_rows(folder: Any, queries: int = QUERIES) -> list[dict[str, Any]]:
    """Figure 3: for each list of cities, and distances in degrees (as in the paper) and on the
    sphere.
    """
    found = []
    for name, (points, elevation) in cities(folder).items():
        for unit, distance, coordinates in (
            ("degrees", "euclidean", points),
            ("km", "great_circle", points[:, ::-1]),
        ):
            metric = from_points(coordinates, epsilon=1.0, distance=distance)
            values = random_queries("real", (queries, len(points)), np.random.default_rng(SEED))
            asked = np.concatenate([values, elevation[None]])
            closest = metric.smallest
            factors = np.ptp(asked, axis=-1) / closest
            factors = factors / single_scales([metric], asked[:, None])[:, 0]
            where = {
                "figure": "3",
                "list": name,
                "cities": len(points),
                "unit": unit,
                "closest": closest,
            }
            found.append({**where, "elevation": float(factors[-1]), **distribution(factors[:-1])})
    return found


def cities(folder: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Longitudes and latitudes ``(N, 2)``, elevations ``(N,)`` in metres, largest city first."""
    table = read(folder / "us_cities_geonames_2012" / "geonames_us_cities15000.csv")
    where = np.array([[row["longitude"], row["latitude"]] for row in table], float)
    height = np.array([row["elevation_m"] or row["dem_m"] for row in table], float)
    large = np.array([int(row["population"]) > LEAST_POPULATION for row in table])
    rest = one_within(where[large], 0.01)
    other = sorted(
        read(folder / "us_cities_plotly_top1k" / "us-cities-top-1k.csv"),
        key=lambda row: -int(row["Population"]),
    )
    there = np.array(
        [[row["lon"], row["lat"]] for row in other if int(row["Population"]) > LEAST_POPULATION],
        float,
    )
    nearest = np.argmin(np.linalg.norm(there[:, None] - where, axis=-1), axis=1)
    return {
        "top 1000": (there, height[nearest]),
        "GeoNames": (where[large], height[large]),
        "GeoNames, one within 0.01": (where[large][rest], height[large][rest]),
    }


def one_within(points: np.ndarray, distance: float) -> np.ndarray:
    """The indices that are left when each point removes those after it that are nearer than the
    distance.
    """
    left: list[int] = []
    for i, point in enumerate(points):
        if not left or np.min(np.linalg.norm(points[left] - point, axis=-1)) >= distance:
            left.append(i)
    return np.array(left)


def read(path: Any) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def spread(of_universes: np.ndarray) -> dict[str, float]:
    return {
        "mean": float(of_universes.mean()),
        "lowest": float(of_universes.min()),
        "highest": float(of_universes.max()),
    }


def distribution(factors: np.ndarray) -> dict[str, Any]:
    """Of improvement factors; the quantiles are for the plot."""
    if factors.size == 0:
        return {
            "mean": None,
            "median": None,
            "5 %": None,
            "95 %": None,
            "most": None,
            "quantiles": [],
        }
    quantiles = np.quantile(factors, LEVELS)
    cells = dict(
        zip(("median", "5 %", "95 %", "most"), quantiles[[10, 1, 19, 20]].tolist(), strict=True)
    )
    return {"mean": float(factors.mean()), **cells, "quantiles": quantiles.tolist()}


def shown(cell: Any) -> Any:
    return (
        f"{cell['mean']:.2f} ({cell['lowest']:.2f} to {cell['highest']:.2f})"
        if isinstance(cell, dict)
        else cell
    )


def tables(found: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """A table for each figure."""
    groups = ("2b",), ("2c", "2d"), ("3",), ("4, 5",)
    here = [[row for row in found if row["figure"] in figures] for figures in groups]
    return [
        [{name: shown(cell) for name, cell in row.items()} for row in rows] for rows in here if rows
    ]


def plot(figure: Any, found: list[dict[str, Any]]) -> None:
    """Factors by strategy, errors by threshold, and distributions of the factors of one query."""
    figure.set_size_inches(15, 9)
    means = [
        {**row, row.get("policy", ""): row.get("RMSE")} for row in output.of_cells(found, "mean")
    ]
    for place, (name, x, names) in enumerate(
        (
            ("2b", "closest", ("median", "5 %", "95 %")),
            ("2c", "K", STRATEGIES),
            ("2d", "K", STRATEGIES),
            ("4, 5", "T", ("Blowfish", "smooth")),
        ),
        1,
    ):
        here = [row for row in means if row["figure"] == name]
        output.lines(figure.add_subplot(2, 3, place), here, x, names, title=name, xscale="linear")
    for place, name, labels in ((5, "3", ("list", "unit")), (6, "4, 5", ("policy", "T"))):
        axis = figure.add_subplot(2, 3, place)
        axis.set(title=f"{name}: one query", xlabel="improvement factor", ylabel="share of queries")
        for row in (row for row in found if row["figure"] == name and row["quantiles"]):
            label = ", ".join(str(row[part]) for part in labels)
            axis.semilogx(row["quantiles"], LEVELS, label=label)
        axis.legend(fontsize=7)


if __name__ == "__main__":
    output.run(rows, plot, {"queries": QUICK_QUERIES, "matrices": QUICK_MATRICES}, tables)
