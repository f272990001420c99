"""How far mechanisms are from what no mechanism can beat, dataset by dataset, and what Duff's
bounds promise.

python benchmarks/experiments/optimality.py [--out FILE] [--png FILE] [--quick]

Needs no tables. 1000 datasets of each kind at once: the exact expected error of each mechanism,
divided by the lower bound of the dataset (``dpjax.bounds.local_modulus``), mean over the datasets.
The bound is that of all mechanisms with bounded range epsilon under the same relation; for the
columns in brackets, that of all (epsilon, delta)-DP mechanisms, which is up to two times smaller.
It says that a mechanism has at least that error on the dataset or on its hardest neighbor some
changes away.

    PLM swap, INV swap      piecewise Laplace and inverse sensitivity, median under swap
    PLM, Duff               on the lower median under add/remove; PLM midpoint: on the midpoint
                            median
    tight, printed radii    PLM loosened to the local sensitivity at distance l-1, and at l as in
                            Corollary 5.1 of Durfee (2025)
    truncated               PLM that knows 10 pieces a side and then jumps to the bounds
    (Laplace)               noise of the global sensitivity, clamped to the bounds
    (Cauchy)                on the smooth sensitivity at beta = epsilon/6, as published, clamped to
                            the bounds
    (PTR)                   propose-test-release, delta = 1e-3, by the best of 40 proposals in
                            hindsight among those that answer with probability 0.95 at least; the
                            error of an answer

"triangles" is a random graph of 60 nodes under edge neighbors: the bound from the counts that
greedy changes reach, ``duff`` and PLM on the radii of the profile. Rows with a "failure": the error
that Duff passes with that probability (mean over the datasets), its bound by Equation 3 at the best
constant C, and Equation 4, the error that the Cauchy noise as published passes.

The last table has the approximations of Durfee (2025), Section 5, on 1001 quantiles of N(0, 1):

    levels          the smallest k for which profile.truncate(k) has an error at most 1 % larger
    k eps / log     that k in units of log(range / gap) / epsilon, where the gap is the one next to
                    the median
    at 1/eps        the error at k = 1/epsilon, rounded up, over that of the whole profile, and at
                    ten times that
    R = A           of radii R_l = A_{l-1}, the largest local sensitivity within l-1 changes
                    (``from_local_sensitivity``); as printed: R_l = A_l, Corollary 5.1

Beyond level k there is one piece, from there to the bound: its weight is about range * exp(-epsilon
k / 2), and a draw from it is off by about the range. That is nothing beside a gap only from k = 4
log(range/gap) / epsilon on. The paper's k = O(1/epsilon) hides the logarithm.
"""

import math
import statistics
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpjax
import output
from dpjax.bounds import duff as promises
from dpjax.bounds import local_modulus
from dpjax.numerics.search import bisect
from dpjax.sensitivity.profile import from_sides

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
FAILURES = (0.1, 0.01, 1e-4, 1e-6)
RECORDS, DATASETS, DELTA, SEED = 301, 1000, 1e-3, 2024
QUICK_DATASETS = 200
NODES, LEVELS = 60, 400


def families(datasets: int = DATASETS) -> dict[str, tuple[jax.Array, float, float]]:
    """Datasets ``(datasets, records)`` with their public bounds; evenly spaced records are the same
    in every one.
    """
    rng, shape = np.random.default_rng(SEED), (datasets, RECORDS)
    found = {
        # Of one shape: one program.
        "even spacing": (np.broadcast_to(np.arange(1.0, RECORDS + 1), shape), 0.0, RECORDS + 1.0),
        "normal": (rng.normal(size=shape).clip(-10, 10), -10.0, 10.0),
        "beta(0.5, 0.5)": (rng.beta(0.5, 0.5, shape), 0.0, 1.0),
        "log-normal": (rng.lognormal(size=shape).clip(0, 100), 0.0, 100.0),
    }
    return {name: (jnp.asarray(x), lower, upper) for name, (x, lower, upper) in found.items()}


def ratios(x: jax.Array, lower: float, upper: float, epsilon: float) -> dict[str, float]:
    """The mean ratio of every mechanism."""
    known: Any = {"lower": lower, "upper": upper}
    swap = dpjax.median(x, **known, neighbors="swap")
    exact = dpjax.median(x, **known, neighbors="add_remove", definition="lower")
    midpoint = dpjax.median(x, **known, neighbors="add_remove")
    local = dpjax.local_sensitivity(x, **known, neighbors="add_remove", definition="lower")

    def radii(first: int) -> dpjax.SensitivityProfile:
        return dpjax.from_local_sensitivity(
            exact.value, local.at_distance[..., first:], neighbors="add_remove", **known
        )

    def ratio(
        mechanism: Callable[..., Any],
        profile: dpjax.SensitivityProfile,
        of: dpjax.SensitivityProfile,
    ) -> float:
        error = mechanism(profile, epsilon).mean_abs_error(of.value)
        return float(jnp.mean(error / local_modulus.bounded_range_lower_bound(of, epsilon)))

    found = {
        "bound": float(jnp.mean(local_modulus.bounded_range_lower_bound(exact, epsilon))),
        "PLM swap": ratio(dpjax.piecewise_laplace, swap, swap),
        "INV swap": ratio(dpjax.inverse_sensitivity, swap, swap),
        "PLM": ratio(dpjax.piecewise_laplace, exact, exact),
        "Duff": ratio(dpjax.duff, exact, exact),
        "PLM midpoint": ratio(dpjax.piecewise_laplace, midpoint, midpoint),
        "tight radii": ratio(dpjax.piecewise_laplace, radii(0), exact),
        "printed radii": ratio(dpjax.piecewise_laplace, radii(1), exact),
        "truncated": ratio(dpjax.piecewise_laplace, exact.truncate(10), exact),
    }
    pure = local_modulus.lower_bound(exact, epsilon)
    noise = dpjax.Clamped(
        dpjax.laplace(exact.value, epsilon, sensitivity=upper - lower), lower, upper
    )
    found["(Laplace)"] = float(jnp.mean(noise.mean_abs_error(exact.value) / pure))
    cauchy = dpjax.smooth_cauchy(local.smooth(epsilon / 6), epsilon, calibration="published")
    found["(Cauchy)"] = float(
        jnp.mean(cauchy.clamped_mean_abs_error(exact.value, lower, upper) / pure)
    )
    proposals = np.geomspace(1e-3, 1, 40)[:, None] * (upper - lower)
    tested = dpjax.propose_test_release(local, epsilon, delta=DELTA, proposal=proposals)
    usable = tested.answer_probability() >= 0.95
    error = jnp.min(jnp.where(usable, tested.mean_abs_error(exact.value), jnp.inf), axis=0)
    relative = jnp.mean(error / local_modulus.lower_bound(exact, epsilon, delta=DELTA))
    return found | ({"(PTR)": float(relative)} if relative < jnp.inf else {})


def graph() -> np.ndarray:
    """Sparse, with a denser part."""
    rng = np.random.default_rng(SEED)
    chance = np.where(np.add.outer(np.arange(NODES), np.arange(NODES)) < NODES // 2, 0.6, 0.1)
    upper = np.triu(rng.random((NODES, NODES)) < chance, 1)
    return upper | upper.T


def greedy(adjacency: np.ndarray, adding: bool) -> np.ndarray:
    """The counts of triangles that one edge after another reaches, the one that changes the count
    the most: values of graphs.
    """
    linked, counts = (
        adjacency.astype(np.int64),
        [np.trace(np.linalg.matrix_power(adjacency.astype(np.int64), 3)) // 6],
    )
    for _ in range(LEVELS):
        change = np.where(np.triu(linked != adding, 1), linked @ linked, -1)
        i, j = np.unravel_index(change.argmax(), change.shape)
        if change[i, j] <= 0:
            break
        linked[i, j] = linked[j, i] = adding
        counts.append(counts[-1] + (change[i, j] if adding else -change[i, j]))
    return np.array(counts, float)


def triangles(adjacency: np.ndarray, epsilon: float) -> dict[str, float]:
    """Ratios on the graph, to the bound from reached counts."""
    profile = dpjax.triangle_count(adjacency, num_levels=LEVELS, neighbors="edge")
    reached = from_sides(
        *(jnp.asarray(greedy(adjacency, adding)) for adding in (True, False)),
        neighbors="edge",
        reached="extremes",
    )
    bound = local_modulus.bounded_range_lower_bound(reached, epsilon)
    drawn = {
        "PLM": dpjax.piecewise_laplace(profile, epsilon),
        "Duff": dpjax.duff(profile.truncate(LEVELS), epsilon),
    }
    found = {
        name: float(distribution.mean_abs_error(profile.value) / bound)
        for name, distribution in drawn.items()
    }
    noise = dpjax.laplace(profile.value, epsilon, sensitivity=NODES - 2.0)
    found["(Laplace)"] = float(
        noise.mean_abs_error(profile.value) / local_modulus.lower_bound(reached, epsilon)
    )
    return {"bound": float(bound), **found}


@jax.jit
def _quantile_of_error(
    distribution: Any, value: jax.Array, span: jax.Array, failure: float
) -> jax.Array:
    """The distance from the value that a draw passes with probability ``failure``."""

    def too_near(reach: jax.Array) -> jax.Array:
        return distribution.cdf(value - reach) + distribution.survival(value + reach) > failure

    return bisect(too_near, jnp.zeros_like(value), span)[1]


def tails(
    x: jax.Array, lower: float, upper: float, epsilon: float, failure: float
) -> dict[str, float]:
    """The error that Duff passes with probability ``failure``, Equation 3 and Equation 4."""
    profile = dpjax.median(x, lower=lower, upper=upper, neighbors="add_remove", definition="lower")
    local = dpjax.local_sensitivity(
        x, lower=lower, upper=upper, neighbors="add_remove", definition="lower"
    )
    exact = _quantile_of_error(
        dpjax.duff(profile, epsilon),
        profile.value,
        jnp.full_like(profile.value, upper - lower),
        failure,
    )
    growth = jnp.geomspace(1e-6, 1, 200)[:, None] * (upper - lower)
    beta = promises.corollary_1_beta(failure, epsilon, support=upper - lower, growth=growth)
    smooth = local.smooth(beta).bound
    level = promises.level_measure(profile, 1 / (2 * beta))
    options: Any = {
        "smooth_sensitivity": smooth,
        "support": upper - lower,
        "growth": growth,
        "level_measure": level,
    }
    third = jnp.min(promises.corollary_1(failure, epsilon, **options), axis=0)
    cauchy = dpjax.smooth_cauchy(local.smooth(epsilon / 6), epsilon, calibration="published")
    fourth = cauchy.interval(1 - failure)[1] - local.value
    means = {"exact": exact, "Equation 3": third, "Equation 4": fourth}
    return {name: float(jnp.mean(column)) for name, column in means.items()}


def approximations() -> list[dict[str, Any]]:
    """One row for each relation, bound and epsilon."""
    normal = statistics.NormalDist()
    records = np.array([normal.inv_cdf((i + 0.5) / 1001) for i in range(1001)])
    gap = records[501] - records[500]
    rates: tuple[float, ...] = (0.5, 1.0, 2.0)
    found = []
    for neighbors in ("swap", "add_remove"):
        for bound in (10.0, 1e6):
            known: Any = {"lower": -bound, "upper": bound, "neighbors": neighbors}
            profile = dpjax.median(records, definition="lower", **known)
            near = dpjax.local_sensitivity(records, definition="lower", **known).at_distance
            radii = [
                dpjax.from_local_sensitivity(profile.value, each, **known)
                for each in (near, near[1:])
            ]
            for epsilon in rates:
                exact = error(profile, epsilon)
                cut = error(of_levels(profile, bound), epsilon) / exact
                levels = int(np.argmax(cut <= 1.01))
                where = {"neighbors": neighbors, "bounds": bound, "epsilon": epsilon}
                found.append(
                    where
                    | {
                        "levels": levels,
                        "k eps / log": levels * epsilon / math.log(2 * bound / gap),
                        "at 1/eps": float(cut[math.ceil(1 / epsilon)]),
                        "at 10/eps": float(cut[math.ceil(10 / epsilon)]),
                        "R = A": float(error(radii[0], epsilon) / exact),
                        "as printed": float(error(radii[1], epsilon) / exact),
                    }
                )
    return found


def error(profile: dpjax.SensitivityProfile, epsilon: float) -> np.ndarray:
    return np.asarray(dpjax.piecewise_laplace(profile, epsilon).mean_abs_error(profile.value))


def of_levels(profile: dpjax.SensitivityProfile, bound: float) -> dpjax.SensitivityProfile:
    """The profile cut at k = 0, 1, 2, ... levels, a batch: what lies further out is at the bound,
    as ``truncate`` puts it.
    """
    kept = jnp.arange(profile.upper.size)[:, None] >= jnp.arange(profile.upper.size)
    below = kept[: profile.lower.size, : profile.lower.size]
    size = min(len(kept), len(below))
    return from_sides(
        jnp.where(kept, profile.upper, bound)[:size],
        jnp.where(below, profile.lower, -bound)[:size],
        neighbors=profile.neighbors,
    )


def rows(datasets: int = DATASETS, epsilons: tuple[float, ...] = EPSILONS) -> list[dict[str, Any]]:
    """The rows of all tables."""
    data, adjacency = families(datasets), graph()
    found = [
        {"data": name, "epsilon": e, **ratios(*family, e)}
        for name, family in data.items()
        for e in epsilons
    ]
    found += [{"data": "triangles", "epsilon": e, **triangles(adjacency, e)} for e in epsilons]
    family = data["normal"]
    found += [
        {"data": "normal", "epsilon": 1.0, "failure": eta, **tails(*family, 1.0, eta)}
        for eta in FAILURES
    ]
    return found + approximations()


def tables(found: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Errors over lower bounds, those passed with a probability, and approximations."""
    kinds = ["levels" if "levels" in row else "failure" in row for row in found]
    return [
        [row for row, kind in zip(found, kinds, strict=True) if kind == wanted]
        for wanted in (False, True, "levels")
    ]


def plot(figure: Any, found: list[dict[str, Any]]) -> None:
    names = [name for name in found[0] if name not in ("data", "epsilon", "bound")]
    draw = output.panels(("data",), "epsilon", names, "expected error / lower bound")
    draw(figure, tables(found)[0])


if __name__ == "__main__":
    output.run(rows, plot, quick={"datasets": QUICK_DATASETS}, shown=tables)
