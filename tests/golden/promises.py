"""Cases about promises: guarantees, accounting, audits, releases, metric privacy, and what the theorems say of errors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpjax
from tests.golden.distributions import ADD_REMOVE, BOUNDS, SWAP, Values, floats, records

EPSILONS = (0.1, 1.0, 8.0)


def promise(cost: Any, deltas: tuple[float, ...] = (1e-6,), epsilons: tuple[float, ...] = (0.5,)) -> dict[str, Any]:
    """All that a guarantee or a composition says."""
    return {
        "epsilon.number": cost.epsilon,
        "bounded_range.number": cost.bounded_range,
        "delta.number": cost.delta,
        "rho.number": cost.rho,
        "neighbors.exact": cost.neighbors,
        "rdp.number": cost.rdp(np.array([1.5, 2.0, 32.0])),
        "epsilon_at.solution": [cost.epsilon_at(delta) for delta in deltas],
        "delta_at.solution": [cost.delta_at(epsilon) for epsilon in epsilons],
    }


def guarantees(quick: bool) -> Values:
    """What one draw of every mechanism costs."""
    d, cost = records(), dpjax.mechanisms
    median = dpjax.median(d["x"], definition="lower", **ADD_REMOVE)
    swapped = dpjax.median(d["x"], **SWAP)
    smooth = dpjax.smooth_sensitivity(d["x"], floats(0.01), **ADD_REMOVE)
    local = dpjax.local_sensitivity(d["x"], **ADD_REMOVE)
    down = dpjax.maximum(d["x"], **BOUNDS)
    counted = dpjax.candidate_counts(d["x"], candidates=floats([30, 40, 41]), neighbors="add_remove")
    pure = dpjax.Guarantee(0.5, 1.0, "swap")
    found = {}
    for epsilon in (1.0,) if quick else EPSILONS:
        found |= {
            f"piecewise_laplace {epsilon}": cost.piecewise_laplace.guarantee(median, epsilon),
            f"piecewise_laplace swap {epsilon}": cost.piecewise_laplace.guarantee(swapped, epsilon),
            f"inverse_sensitivity {epsilon}": cost.inverse_sensitivity.guarantee(median, epsilon),
            f"duff {epsilon}": cost.duff.guarantee(median, epsilon),
            f"duff counts {epsilon}": cost.duff.guarantee(
                dpjax.mode(d["x"], candidates=floats([30, 40]), neighbors="add_remove"), epsilon
            ),
            f"laplace {epsilon}": cost.laplace.guarantee("swap", epsilon),
            f"laplace bounded {epsilon}": cost.laplace.guarantee("swap", epsilon, bounded=True),
            f"exponential {epsilon}": cost.exponential.guarantee(counted, epsilon),
            f"permute_and_flip {epsilon}": cost.permute_and_flip.guarantee(counted, epsilon),
            f"noisy_tree epsilon {epsilon}": cost.noisy_tree.guarantee(counted, epsilon=epsilon),
            f"noisy_tree zcdp {epsilon}": cost.noisy_tree.guarantee(counted, zcdp=epsilon),
            f"noisy_binary_search epsilon {epsilon}": cost.noisy_binary_search.guarantee(down, num_candidates=100, epsilon=epsilon),
            f"noisy_binary_search zcdp {epsilon}": cost.noisy_binary_search.guarantee(down, num_candidates=100, zcdp=epsilon),
            f"shifted_inverse {epsilon}": cost.shifted_inverse.guarantee(down, epsilon),
            f"smooth_cauchy {epsilon}": cost.smooth_cauchy.guarantee(smooth, epsilon),
            f"smooth_laplace {epsilon}": cost.smooth_laplace.guarantee(smooth, epsilon, delta=1e-3),
            f"smooth_laplace_log_normal {epsilon}": cost.smooth_laplace_log_normal.guarantee(smooth, epsilon),
            f"bounded_noise_laplace {epsilon}": cost.bounded_noise_laplace.guarantee("swap", epsilon, delta=1e-6),
            f"propose_test_release {epsilon}": cost.propose_test_release.guarantee(local, epsilon, delta=1e-6),
            f"never_fail {epsilon}": cost.never_fail.guarantee(
                dpjax.Guarantee(epsilon, epsilon, "swap"), failure=0.1, attempts=9, fallback="public"
            ),
            f"bounded_loss {epsilon}": cost.bounded_loss.guarantee(
                pure, epsilon=epsilon, delta=1e-6, failure=0.2, attempts=20, fallback="private"
            ),
        }
    # The solutions take a while, and depend on the promise only.
    out = {name: promise(one, (1e-6,) if quick or name.endswith(" 1.0") else (), ()) for name, one in found.items()}
    out["bounded_loss margin"] = {"margin.number": [cost.loss_margin(epsilon=e, delta=1e-6, sensitivity=2.0) for e in EPSILONS]}
    return out


def accounting(quick: bool) -> Values:
    """Composition, groups, subsampling, failures, filters and odometers, in Python's own floats."""
    of = dpjax.accounting
    each, noise = dpjax.Guarantee(0.1, 0.1, "add_remove"), dpjax.Guarantee(0.5, 1.0, "add_remove")
    loose, shrunk = dpjax.Guarantee(0.3, float("inf"), "add_remove", delta=1e-7), dpjax.Guarantee(2.0, 2.0, "add_remove")
    gaussian = dpjax.Guarantee(float("inf"), float("inf"), "add_remove", zcdp=0.02)
    curve = noise.with_curve(lambda order: of.rdp_of_laplace(0.5, order=order))
    swap = dpjax.Guarantee(0.5, 0.5, "swap")
    found = {
        "one": each,
        "loose": loose,
        "gaussian": gaussian,
        "curve": curve,
        "many": 100 * each,
        "some": 3 * each + noise,
        "mixed": 10 * each + 2 * noise + 5 * loose,
        "with zcdp": 20 * gaussian + noise,
        "curves": 20 * curve,
        "one of many": (100 * each).guarantee(),
        "group": of.for_groups(swap, size=3),
        "group with delta": of.for_groups(dpjax.Guarantee(0.3, 0.6, "swap", delta=1e-7), size=4),
        "parallel by value": of.parallel(each, noise, membership="by_value"),
        "parallel by position": of.parallel(swap, dpjax.Guarantee(0.2, 0.4, "swap"), membership="by_position"),
        "subsampled": of.poisson_subsample(shrunk, probability=0.1),
        "subsampled with delta": of.poisson_subsample(loose, probability=0.01),
        "absorbed": of.absorb_failure(swap, 1e-6),
        "absorbed public": of.absorb_failure(swap, 1e-6, test="public"),
        "conditioned": of.condition_on_success(swap, 0.1),
        "conditioned published": of.condition_on_success(loose, 0.5, bound="published"),
        "conditioned with delta": of.condition_on_success(loose, 0.3),
        "retried": of.retry_until_success(swap, 0.1, attempts=9, fallback="public"),
        "retried private": of.retry_until_success(loose, 0.5, attempts=30, fallback="private"),
        "retried published": of.retry_until_success(loose, 0.5, attempts=30, fallback="public", bound="published"),
    }
    if quick:
        some = (
            "many",
            "with zcdp",
            "group",
            "parallel by value",
            "subsampled with delta",
        )
        found = {name: found[name] for name in some}
    out = {name: promise(one) for name, one in found.items()}
    if not quick:
        out["spread"] = promise(100 * each, (1e-9, 1e-2), (0.05, 4.0))
    for name in ("many", "mixed", "with zcdp", "curves") if not quick else ("many", "with zcdp"):
        rules = found[name].rules_at(1e-6)
        out[name]["rules_at.solution"] = [rules[rule] for rule in sorted(rules)]
        out[name]["rules.exact"] = sorted(rules)
        out[name]["best_rule.exact"] = found[name].best_rule_at(1e-6)[0]
        out[name]["slack.number"], out[name]["count.exact"] = found[name].slack, found[name].count
    out["advanced"] = {"epsilon.number": [of.advanced_epsilon(e, count=50, delta=1e-6) for e in EPSILONS]}
    out["optimal pure"] = {
        "delta.number": [of.optimal_pure_delta([0.5, 0.1], [10, 4], epsilon=e) for e in (0.0, 1.0, 4.0)],
        "epsilon.solution": [of.optimal_pure_epsilon([0.1, 0.3], [40, 10], delta=delta) for delta in (1e-9, 1e-6, 1e-2)],
    }
    for queries in ("fixed", "adaptive"):
        out[f"bounded range {queries}"] = {
            "delta.solution": [of.bounded_range_delta(0.5, count=k, epsilon=0.7, queries=queries) for k in (1, 5, 20)],
            "epsilon.solution": [of.bounded_range_epsilon(0.1, count=k, delta=1e-6, queries=queries) for k in (1, 10, 100)],
        }
    if not quick:  # a search within a search
        out["per query"] = {
            promised: [of.epsilon_per_query(count=k, epsilon=1.0, delta=1e-6, promise=promised.split(".")[0]) for k in (1, 4, 50)]
            for promised in ("pure.solution", "bounded_range.solution")
        }
    out["attempts"] = {"attempts.exact": [of.attempts_for(f, leftover=1e-6) for f in (0.0, 0.1, 0.5, 0.99)]}
    budget = dpjax.accounting.PrivacyFilter(1.0, 1e-6, "add_remove")
    odometer = dpjax.accounting.PrivacyOdometer(1e-6, "add_remove")
    allowed, remaining, spent = [], [], []
    for cost in (each, noise, each, 3 * each, noise, gaussian):
        allowed.append(budget.allows(cost))
        if allowed[-1]:
            budget.charge(cost)
        odometer.charge(cost)
        remaining.append(budget.remaining)
        spent.append([odometer.epsilon, odometer.rho])
    out["filter"] = {"allowed.exact": allowed, "remaining.number": remaining, "spent.number": spent}
    return out


def conversions(quick: bool) -> Values:
    """The formulas that JAX differentiates."""
    of, e, order = dpjax.accounting, floats(EPSILONS)[:, None], floats([1.5, 2.0, 32.0])[None]
    e1, delta = floats(EPSILONS), floats(1e-6)
    p = floats([0.001, 0.1, 1.0])[None]
    return {
        "conversions": {
            "rdp_of_pure.number": of.rdp_of_pure(e, order=order),
            "rdp_of_bounded_range.number": of.rdp_of_bounded_range(e, order=order),
            "rdp_of_laplace.number": of.rdp_of_laplace(e, order=order),
            "zcdp_of_pure.number": of.zcdp_of_pure(e1),
            "zcdp_of_bounded_range.number": of.zcdp_of_bounded_range(e1),
            "bounded_range_of_zcdp.number": of.bounded_range_of_zcdp(e1),
            "pure_of_zcdp.solution": of.pure_of_zcdp(e1),
            "epsilon_of_zcdp.solution": of.epsilon_of_zcdp(e1, delta=delta),
            "delta_of_zcdp.solution": of.delta_of_zcdp(e1, epsilon=floats(2.0)),
            "zcdp_of.solution": of.zcdp_of(e1, delta=delta),
            "zcdp_of_classical.solution": of.zcdp_of(e1, delta=delta, conversion="classical"),
            "epsilon_of_rdp.solution": of.epsilon_of_rdp(lambda a: 10 * of.rdp_of_bounded_range(0.5, order=a), delta=delta),
            "delta_of_rdp.solution": of.delta_of_rdp(lambda a: 2 * of.rdp_of_pure(0.5, order=a), epsilon=floats(0.9)),
            "subsampled_epsilon.number": of.subsampled_epsilon(e, probability=p),
            "epsilon_before_sampling.number": of.epsilon_before_sampling(e, probability=p),
            "sampling_efficiency.number": of.sampling_efficiency(e, probability=p),
        }
    }


def budgets(quick: bool) -> Values:
    """The epsilon that meets an error, and the best split of a budget."""
    d, of = records(), dpjax.accounting
    profile = dpjax.median(d["long"], **ADD_REMOVE)
    weights = floats([1.0, 4.0, 9.0])
    return {
        "epsilon_for_error": {
            name: of.epsilon_for_error(profile, getattr(dpjax, name.split(".")[0]), floats([0.5, 3.0])[:, None])
            for name in ("piecewise_laplace.solution",)
        },
        "allocate": {
            f"{kind}.optimum": of.allocate(lambda epsilon: weights / epsilon, floats(6.0), queries=3, budget=kind)
            for kind in ("epsilon", "zcdp")
        },
    }


def auditing(quick: bool) -> Values:
    """The exact loss of pairs of neighbours, and bounds from counts."""
    d, of = records(), dpjax.auditing
    x = d["x"][0]
    without = jnp.asarray(np.arange(13) != 4)
    found = {}

    def pair(mechanism: str) -> tuple[Any, Any]:
        both = dpjax.median(jnp.stack([x, x]), definition="lower", mask=jnp.stack([jnp.ones(13, bool), without]), **ADD_REMOVE)
        made = getattr(dpjax, mechanism)(both, d["sweep"])
        rows = jax.tree.map(jnp.asarray, made)
        return _row(rows, 0), _row(rows, 1)

    kinds = {"piecewise_laplace": pair("piecewise_laplace")}
    if not quick:
        kinds["inverse_sensitivity"] = pair("inverse_sensitivity")
        each = d["each"]
        kinds["laplace"] = tuple(dpjax.laplace(floats(at), each, sensitivity=1.0) for at in (0.0, 1.0))
        scores = d["scores"]
        kinds["exponential"] = tuple(dpjax.exponential(s, each, sensitivity=1.0) for s in (scores, scores + np.sign(scores)))
    for name, (p, q) in kinds.items():
        loss = of.privacy_loss(p, q)
        found[name] = {
            "epsilon.loss": loss.epsilon,
            "bounded_range.loss": loss.bounded_range,
            "forward.loss": loss.forward,
            "backward.loss": loss.backward,
            "delta.probability": loss.delta(floats(0.3)),
            "epsilon_at.loss_at": loss.epsilon_at(floats(1e-3)),
            "kl.divergence": loss.kl(),
            "renyi.divergence": loss.renyi(floats(3.0)),
        }
    correct = np.array([0, 5, 9, 10])
    draws = floats(np.random.default_rng(5).normal(size=2000))
    shown = of.lower_bound(draws, draws + 1.5)
    found["from counts"] = {
        "p_value.probability": of.p_value(correct, 10, epsilon=0.5),
        "p_value_delta.probability": of.p_value(correct, 10, epsilon=0.5, canaries=100, delta=1e-3),
        "epsilon_lower_bound.solution": of.epsilon_lower_bound(correct * 10, 100),
        "lower_bound.solution": shown.epsilon,
    }
    return found


def _row(stacked: Any, row: int) -> Any:
    """One of two rows of distributions of batch shape (3, 2), with public costs shared by both."""
    return dpjax.PiecewiseExponential(
        stacked.edges[row],
        *(cost if cost.ndim == 1 else cost[row] for cost in (stacked.cost_left, stacked.cost_right)),
        jnp.broadcast_to(stacked.rate, stacked.batch_shape)[:, row],
    )


def worst_neighbor(quick: bool) -> Values:
    """The search for the worst neighbour of five records."""
    found = {}
    few = floats([21.0, 24.0, 30.0, 31.0, 63.0])
    for neighbors in ("add_remove", "swap"):

        def of_rows(x: Any, mask: Any, neighbors: str = neighbors) -> Any:
            options = BOUNDS | {"neighbors": neighbors} | ({} if mask is None else {"mask": mask})
            return dpjax.piecewise_laplace(dpjax.median(x, **options), 1.0)

        worst = dpjax.auditing.worst_neighbor(few, of_rows, neighbors=neighbors, refine=0, **BOUNDS)
        found[neighbors] = {"score.loss": worst.score}
    return found


# Metric privacy -----------------------------------------------------------------------------------------------------------------


def _universe() -> dict[str, Any]:
    some = np.random.default_rng(99)
    points = floats(some.uniform(0, 10, (6, 2)).round(2))
    return {
        "points": points,
        "histogram": floats(some.poisson(8.0, (4, 6))),
        "queries": floats(some.uniform(0, 1, (3, 6)).round(3)),
        "weights": floats(some.normal(0, 1, (5, 6)).round(3)),
        "failing": floats([[0, 1, 5], [1, 0, 2], [5, 2, 0]]),
    }


def metrics(quick: bool) -> Values:
    """Budgets of every maker of metrics, and what is derived from them."""
    of, u = dpjax.metric_privacy, _universe()
    points = u["points"]
    line = of.from_points(points, epsilon=1.0)
    degrees = floats([[48.1, 11.6], [52.5, 13.4], [53.6, 10.0]])
    made = {
        f"points {distance}": of.from_points(points, epsilon=0.5, distance=distance)
        for distance in ("euclidean", "manhattan", "chebyshev", "hamming")
    } | {
        "points great_circle": of.from_points(degrees, epsilon=0.01, distance="great_circle"),
        "points weighted": of.from_points(points, epsilon=0.5, weights=floats([1.0, 0.25])),
        "absence": line.with_absence(2.0),
        "budgets": of.from_budgets(u["failing"]),
        "closure": of.from_budgets(u["failing"]).closure(),
        "uniform": of.uniform(4, epsilon=0.7),
        "dates": of.from_dates(np.array(["2024-02-28", "2024-03-01", "2025-01-01"], "datetime64[D]"), epsilon=0.5),
        "graph": of.from_graph(np.array([[0, 1], [1, 2], [2, 3], [3, 0], [1, 3]]), size=5, budgets=floats([1, 2, 0.5, 4, 1.5])),
        "hamming": of.weighted_hamming([["m", "a"], ["m", "b"], ["f", "b"]], budgets=[2.0, 0.5]),
        "values sum": of.value_budgets(np.array([[0, 1], [1, 0], [2, 1]]), budgets=[[1.0, 2.0, 4.0], [0.5, 0.25]], rule="sum"),
        "values min": of.value_budgets(np.array([[0, 1], [1, 0], [1, 1]]), budgets=[[1.0, 2.0], [0.5, 0.25]], rule="min"),
        "product": of.product(of.from_points(floats([[0.0], [3.0]]), epsilon=0.5), of.uniform(3, epsilon=1.0)),
        "blowfish": of.blowfish(line, epsilon=0.5, threshold=4.0),
        "smooth": of.smooth_threshold(line, epsilon=0.5, threshold=4.0),
    }
    found = {
        name: {
            "budgets.number": one.budgets,
            "smallest.number": one.smallest,
            "largest.number": one.largest,
            "size.exact": one.size,
        }
        for name, one in made.items()
    }
    lazy = of.smooth_threshold(of.point_metric(points, epsilon=1.0), epsilon=0.5, threshold=4.0)
    found["points of a function"] = {
        "rows.number": lazy.rows(1, 2),
        "largest.number": lazy.largest,
        "smallest.number": lazy.smallest,
    }
    report = of.validate(of.from_budgets(u["failing"]))
    found["report"] = {
        "triple.exact": np.asarray(report.triple).tolist(),
        "direct.number": report.direct,
        "detour.number": report.detour,
        "excess.number": report.excess,
        "is_metric.exact": report.is_metric,
        "violations.exact": int(report.violations),
    }
    absence = made["absence"]
    allowed = of.lipschitz_queries(u["queries"], line)
    promises = {
        "laplace": of.metric_laplace.guarantee(line),
        "laplace absence": of.metric_laplace.guarantee(absence),
        "exponential": of.metric_exponential.guarantee(absence),
        "small_database": of.small_db.guarantee(allowed, line),
        "multiplicative_weights": of.mwem.guarantee(allowed, line),
        "composed": (2 * of.metric_laplace.guarantee(absence) + of.metric_exponential.guarantee(absence)),
    }
    for name, one in promises.items():
        swap = one.guarantee(neighbors="swap")
        found[f"promise {name}"] = {
            "epsilon.number": swap.epsilon,
            "bounded_range.number": swap.bounded_range,
            "between.number": one.between(0, 3),
            "neighbors.exact": one.neighbors,
        }
        if one.neighbors == "add_remove":
            found[f"promise {name}"]["add_remove.number"] = one.guarantee(neighbors="add_remove").epsilon
    promise = of.metric_laplace.guarantee(line)
    found["promise laplace"]["group.number"] = promise.group_epsilon([3, 0, 4, 1, 0, 0], [1, 2, 4, 0, 1, 0])
    return found


def metric_mechanisms(quick: bool) -> Values:
    """Scales of noise, error bars of answers, and probabilities of selections, under a metric."""
    of, u = dpjax.metric_privacy, _universe()
    line = of.from_points(u["points"], epsilon=1.0)
    private, queries, weights = line.with_absence(2.0), u["queries"], u["weights"]
    found: Values = {}
    for name, metric in (("swap", line), ("add_remove", private)):
        scales = {
            kind: of.noise_scales(queries, metric, strategy=kind) for kind in ("equal_shares", "common", "parameter_selection")
        }
        best = {kind: of.optimal_scales(queries, metric, objective=kind) for kind in ("squared", "absolute", "geometric_mean")}
        found[f"scales {name}"] = {f"{kind}.number": value for kind, value in scales.items()} | {
            f"{kind}.optimum": (one.scales**2).sum() if kind == "squared" else one.scales.sum()
            for kind, one in best.items()
            if kind != "geometric_mean"
        }
        found[f"scales {name}"] |= {
            "geometric_mean.optimum": of.improvement_factor(queries, best["geometric_mean"].scales, metric),
            "squared_each.optimal_point": best["squared"].scales,
            "single.number": of.single_query_scale(queries[0], metric),
            "load.number": of.load(queries, scales["common"], metric),
            "improvement.number": of.improvement_factor(queries, scales["common"], metric),
            "selection.number": of.selection_scale(weights, metric),
            "lipschitz.number": of.lipschitz_queries(queries, metric).scale,
        }
        answers = of.metric_laplace(u["histogram"], queries, metric, scales=scales["common"])
        y = answers.mean()[None] + floats([-1.7, 0.3, 2.2])[:, None, None]
        p = jnp.broadcast_to(floats([0.02, 0.5, 0.93])[:, None, None], (3, *answers.batch_shape))
        found[f"laplace {name}"] = {
            "mean": answers.mean(),
            "variance.number": answers.variance(),
            "stddev.number": answers.stddev(),
            "mean_abs_error": answers.mean_abs_error(answers.mean()),
            "log_prob": answers.log_prob(y),
            "cdf": answers.cdf(y),
            "survival": answers.survival(y),
            "quantile": answers.quantile(p),
            "interval.quantile": jnp.stack(answers.interval(0.95)),
        }
        chosen = of.linear_selection(u["histogram"], metric, weights=weights)
        found[f"linear_selection {name}"] = {"candidates.log_prob": chosen.log_probabilities(), "mean": chosen.mean()}
    sensitivity = floats(np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0))))
    chosen = of.metric_exponential(u["weights"][:, :4], line, sensitivity=sensitivity)
    found["metric_exponential"] = {"candidates.log_prob": chosen.log_probabilities(), "mean": chosen.mean()}
    allowed = of.lipschitz_queries(queries, line)
    small = of.small_db(u["histogram"], allowed, size=3)
    found["small_db"] = {
        "candidates.log_prob": small.log_probabilities()[..., ::7],
        "databases.exact": of.small_databases(6, 3).sum(axis=0).tolist(),
        "size.exact": [of.small_db_size(10, alpha=0.5), of.small_db_size(1, alpha=0.25, spread=2.0)],
    }
    envelope = of.lipschitz_envelope(queries, line, scale=0.05)
    found["lipschitz_envelope"] = {
        "values.number": envelope.values,
        "scale.number": envelope.scale,
        "mismatch.number": of.mismatch(queries, envelope),
        "answers": envelope.answers(u["histogram"]),
    }
    return found


def metric_fits(quick: bool) -> Values:
    """Queries fitted to a metric: local optima, of which the objective is recorded."""
    of, u = dpjax.metric_privacy, _universe()
    line, queries = of.from_points(u["points"], epsilon=1.0), u["queries"]
    found: Values = {}
    for loss in ("squared", "maximum"):
        fit = of.fit_queries(queries, line, num_records=10.0, loss=loss)
        found[f"fit_queries {loss}"] = {"objective.optimum": fit.objective, "closed_form.optimum": fit.closed_form}
        fit = of.fit_statistics(queries, line, num_records=10.0, loss=loss)
        found[f"fit_statistics {loss}"] = {"objective.optimum": fit.objective, "closed_form.optimum": fit.closed_form}
    means = of.fit_marginals(queries, line, num_records=10.0)
    found["fit_marginals"] = {"objective.optimum": means.objective, "scales.optimal_point": means.scales}
    fitted = of.fit_lipschitz_queries(queries, line, num_records=1000.0, price="small_db")
    found["fit_lipschitz_queries"] = {"scale.optimal_point": fitted.scale, "mismatch.optimal_point": of.mismatch(queries, fitted)}
    return found


def bounds(quick: bool) -> Values:
    """What the theorems promise about errors."""
    of, d, u = dpjax.bounds, records(), _universe()
    lower = dpjax.median(d["x"], definition="lower", **ADD_REMOVE)
    e, failure = floats(EPSILONS), 0.05
    tail = of.duff.theorem_1(floats([0.02, 0.1, 0.5]), e, smooth_sensitivity=2.0, support=100.0, level_measure=25.0)
    corollary = of.duff.corollary_1(floats(0.01), e, smooth_sensitivity=2.0, support=100.0, growth=0.9, level_measure=60.0)
    queries, scales, answered = u["queries"], floats([1.0, 2.0, 0.5]), u["queries"] * floats(0.9)
    laplace = of.metric_laplace
    worst = laplace.theorem_2_maximum(queries, scales, answered=answered, num_records=40.0, failure=failure)
    eleven = laplace.theorem_11_maximum(queries, scales, answered=answered, failure=failure)
    size = {"num_elements": 6, "num_queries": 3, "scale": 0.1}
    found = {
        "duff": {
            "level_measure.number": of.duff.level_measure(lower, floats(3.0)),
            "proposition_4.number": of.duff.proposition_4(20.0, e, support=100.0, level_measure=10.0),
            "theorem_1_threshold.number": tail.threshold,
            "theorem_1_probability.probability": tail.probability,
            "corollary_1_beta.number": of.duff.corollary_1_beta(0.01, e, support=100.0, growth=1.0),
            "corollary_1_threshold.number": corollary.threshold,
            "corollary_1_probability.probability": corollary.probability,
        },
        "metric_laplace": {
            "exact.number": laplace.exact_squared_error(queries, scales, answered=answered, num_records=40.0),
            "theorem_2_squared.number": laplace.theorem_2_squared(queries, scales, answered=answered, num_records=40.0),
            "theorem_2_absolute.number": laplace.theorem_2_absolute(queries, scales, answered=answered, num_records=40.0),
            "theorem_2_maximum.number": worst.threshold,
            "theorem_2_failure.probability": worst.probability,
            "theorem_11_squared.number": laplace.theorem_11(queries, scales, answered=answered),
            "theorem_11_absolute.number": laplace.theorem_11(queries, scales, answered=answered, norm="sum"),
            "theorem_11_maximum.number": eleven.threshold,
        },
        "finite_ranges": {
            "loss_bound.number": [of.finite_ranges.loss_bound(one, num_candidates=100, failure=failure) for one in EPSILONS],
            "local_sensitivity_error": of.finite_ranges.local_sensitivity_error(lower, 8.0, num_candidates=100, failure=failure),
            "shifted_interval.side": jnp.stack(of.finite_ranges.shifted_interval(dpjax.maximum(d["x"], **BOUNDS), tau=2.5)),
        },
        "selection": {
            "exponential_excess.number": [of.selection.exponential_excess(1024, one, sensitivity=0.5) for one in EPSILONS],
            "noisy_tree_epsilon.number": [of.selection.noisy_tree_excess(1000, epsilon=one) for one in EPSILONS],
            "noisy_tree_zcdp.number": [of.selection.noisy_tree_excess(1000, zcdp=one) for one in EPSILONS],
        },
        "metric_selection": {
            "exponential_shortfall.number": of.metric_selection.exponential_shortfall(
                8, scale=0.5, failure=failure, num_best=2, mismatch=0.1
            ),
            "mwem_error.solution": of.metric_selection.mwem_error(1000, rounds=10, **size),
            "mwem_error_failure.solution": of.metric_selection.mwem_error(1000, rounds=10, failure=failure, **size),
            "mwem_rounds.exact": of.metric_selection.mwem_rounds(10_000, **size),
            "small_db_alpha.solution": of.metric_selection.small_db_alpha(100, failure=failure, **size),
            "small_db_bound.solution": of.metric_selection.small_db_bound(100, failure=failure, **size),
            "small_db_error.number": of.metric_selection.small_db_error(100, size=8, failure=failure, **size),
        },
    }
    return found
