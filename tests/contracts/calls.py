"""One valid call of every public function, by its package and its name: what every contract about
functions asks is asked of these.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import accounting, auditing, metric_privacy, release

KEY = jax.random.key(2)
X = np.random.default_rng(0).normal(size=(2, 9)).astype(np.float32)
EDGES = [[0, 1], [1, 2], [0, 2]]
COUNTS = np.array([3.0, 1.0], np.float32)
QUERIES = np.array([[0.0, 1.0]], np.float32)
BOUNDS = {"lower": -3.0, "upper": 3.0}
ADD_REMOVE = {**BOUNDS, "neighbors": "add_remove"}
AGES = [3, 4, 4, 9, 1, 5, 2, 7]
GRID = {"lower": 0, "upper": 9, "resolution": 1}
PUBLISHED = {"epsilon": 1.0, "neighbors": "add_remove"}
PURE = accounting.Guarantee(0.5, 0.5, "swap")
QUARTILES = (0.25, 0.5, 0.75)
MODE = {"candidates": [0.0, 1.0], "neighbors": "swap"}
ROUNDS = {"num_elements": 4, "num_queries": 3, "scale": 0.1}


def given(*arguments, **options):
    """What a function is called with."""
    return arguments, options


@cache
def median():
    return dpjax.median(X, **ADD_REMOVE, definition="lower")


@cache
def asked():
    return dpjax.quantiles(X, QUARTILES, **ADD_REMOVE)


@cache
def down():
    return dpjax.maximum(X, **BOUNDS)


@cache
def local():
    return dpjax.local_sensitivity(X, **ADD_REMOVE, definition="lower")


@cache
def smooth():
    return dpjax.smooth_sensitivity(X, 0.1, **ADD_REMOVE)


@cache
def choice():
    return dpjax.exponential(X[0], 1.0, sensitivity=1.0)


@cache
def metric():
    return metric_privacy.from_budgets([[0.0, 1.0], [1.0, 0.0]])


@cache
def queries():
    return metric_privacy.lipschitz_queries(QUERIES, metric())


def coins():
    """Randomized response of 20 rows, with the canary and without."""
    lies = np.tile([np.float32(1), np.float32(0)], (20, 1))
    return [dpjax.Finite(jnp.arange(2.0), jnp.asarray(c), jnp.ones(())) for c in (lies, 1 - lies)]


def laplace(at):
    return dpjax.laplace(jnp.float32(at), 1.0, sensitivity=1.0)


def median_of(x, mask):
    return dpjax.piecewise_laplace(dpjax.median(x, **ADD_REMOVE, mask=mask), 1.0)


def table():
    """A frame, and a statistic of its columns."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"x": [1, 2, 3, 4] * 5, "g": ["a", "b"] * 10})
    return frame, {"x": release.Median(**GRID)}


GROUPED = {"by": "g", "groups": ["a", "b"], "epsilon": 1.0, "neighbors": "add_remove"}

CALLS = {
    "accounting": lambda: {
        "absorb_failure": given(PURE, 0.1),
        "bounded_range_delta": given(0.1, count=5, epsilon=0.3),
        "bounded_range_epsilon": given(0.1, count=5, delta=1e-6),
        "condition_on_success": given(PURE, 0.1),
        "delta_of_gdp": given(1.0, epsilon=1.0),
        "delta_of_rdp": given(lambda order: 0.1 * order, epsilon=1.0),
        "epsilon_before_sampling": given(0.1, probability=0.5),
        "epsilon_of_gdp": given(1.0, delta=1e-6),
        "epsilon_of_rdp": given(lambda order: 0.1 * order, delta=1e-6),
        "epsilon_per_query": given(count=3, epsilon=1.0, delta=1e-6),
        "fixed_size_subsample": given(PURE, taken=5, public_n=10, replacement="without"),
        "for_groups": given(PURE, size=2),
        "gdp_of": given(1.0, delta=1e-6),
        "least_noise": given(
            lambda noise: accounting.Guarantee(1 / noise, 1 / noise, "swap"),
            epsilon=1.0,
            delta=1e-6,
        ),
        "optimal_pure_delta": given(0.1, count=4, epsilon=1.0),
        "optimal_pure_epsilon": given(0.1, count=4, delta=1e-6),
        "parallel": given(
            *[accounting.Guarantee(0.5, 0.5, "add_remove")] * 2, membership="by_value"
        ),
        "poisson_subsample": given(accounting.Guarantee(0.5, 0.5, "add_remove"), probability=0.5),
        "rdp_of_bounded_range": given(0.1, order=2.0),
        "rdp_of_laplace": given(0.1, order=2.0),
        "rdp_of_pure": given(0.1, order=2.0),
        "retry_until_success": given(PURE, 0.1, attempts=3, fallback="public"),
        "sampling_efficiency": given(0.1, probability=0.5),
        "steps_within": given(PURE, epsilon=5.0, delta=1e-6),
        "trade_off_bound": given(PURE, 0.1),
        "zcdp_of": given(1.0, delta=1e-6),
    },
    "auditing": lambda: {
        "audit_in_one_run": given(KEY, *coins(), guesses=20),
        "audit_scores": given(np.arange(50.0), np.arange(50) % 2 > 0, guesses=[(5, 5)]),
        "epsilon_lower_bound": given(18, 20),
        "log_ratio": given(laplace(0), laplace(1)),
        "lower_bound": given(np.arange(50.0), np.arange(50.0) + 9),
        "p_value": given(18, 20, epsilon=1.0),
        "privacy_loss": given(laplace(0), laplace(1)),
        "trade_off": given(auditing.privacy_loss(laplace(0), laplace(1)), 0.1),
        "worst_neighbor": given(X[0], median_of, **ADD_REMOVE, refine=1),
    },
    "bounds.duff": lambda: {
        "corollary_1": given(
            2.0, 1.0, smooth_sensitivity=1.0, support=6.0, growth=1.0, level_measure=1.0
        ),
        "corollary_1_beta": given(2.0, 1.0, support=6.0, growth=1.0),
        "level_measure": given(dpjax.median(X, **ADD_REMOVE, definition="lower"), 2),
        "proposition_4": given(1.0, 1.0, support=6.0, level_measure=1.0),
        "theorem_1": given(0.1, 1.0, smooth_sensitivity=1.0, support=6.0, level_measure=1.0),
    },
    "bounds.local_modulus": lambda: {
        "bounded_range_lower_bound": given(median(), 1.0),
        "lower_bound": given(median(), 1.0),
    },
    "bounds.metric": lambda: {
        "exact_squared_error": given(np.ones(1), bias=QUERIES),
        "exponential_shortfall": given(9, scale=0.1, failure=0.1),
        "mean_noise": given(np.ones(1), norm="sum"),
        "mwem_error": given(100.0, **ROUNDS, rounds=3, failure=0.1),
        "mwem_rounds": given(100.0, **ROUNDS),
        "small_db_bound": given(100.0, **ROUNDS, failure=0.1),
        "small_db_error": given(100.0, **ROUNDS, size=3, failure=0.1),
        "sum_tail": given(np.ones(1), failure=0.1),
        "theorem_11": given(np.ones(1), bias=QUERIES, norm="sum"),
        "theorem_2_maximum": given(np.ones(1), bias=QUERIES, failure=0.1),
    },
    "bounds.selection": lambda: {
        "exponential_excess": given(9, 1.0),
        "local_sensitivity_error": given(median(), 1.0, num_candidates=9, failure=0.1),
        "loss_bound": given(1.0, num_candidates=9, failure=0.1),
        "noisy_tree_excess": given(9, epsilon=1.0),
        "shifted_interval": given(down(), tau=3),
    },
    "distributions": lambda: {
        "sample_intervals": given(KEY, np.abs(X), np.arange(9.0), epsilon=1.0),
        "to_numpyro": given(laplace(0)),
    },
    "frames": lambda: {
        "release": given(*table(), **GROUPED),
        "simulate": given(1, *table(), **GROUPED),
    },
    "mechanisms": lambda: {
        "above_threshold": given(np.zeros(3, np.float32), 1.0, threshold=1.0),
        "best_of": given(KEY, laplace(0).sample, score=jnp.abs, attempts=(0.5, 0.5)),
        "best_of_distribution": given(choice(), X[0], attempts=(0.5, 0.5)),
        "bounded_loss": given(
            KEY,
            laplace(0).sample,
            loss=jnp.abs,
            target=0.5,
            epsilon=1.0,
            delta=0.1,
            fallback=0.0,
            attempts=4,
        ),
        "bounded_loss_distribution": given(
            choice(), -X[0], target=0.5, epsilon=1.0, delta=0.1, fallback=0.0, attempts=4
        ),
        "bounded_noise_laplace": given(X[0], 1.0, sensitivity=1.0, delta=1e-3),
        "decomposable_exponential": given(np.stack([X[0], X[1]]), epsilon=1.0, sensitivity=1.0),
        "duff": given(median(), 1.0),
        "exponential": given(X, 1.0, sensitivity=1.0),
        "gaussian": given(X[0], 1.0),
        "inverse_sensitivity": given(median(), 1.0),
        "joint_quantiles": given(asked(), 1.0, public_n=4),
        "k_norm": given(X, 1.0, sensitivity=1.0, p=2),
        "laplace": given(X[0], 1.0, sensitivity=1.0),
        "loss_margin": given(epsilon=1.0, delta=0.1),
        "negative_binomial": given(5, eta=0.0, gamma=0.1),
        "never_fail": given(
            KEY, laplace(0).sample, succeeded=lambda y: y < 1, fallback=0.0, attempts=4
        ),
        "never_fail_distribution": given(choice(), np.ones(9) / 2, fallback=0.0, attempts=4),
        "noisy_binary_search": given(down(), tau=3, candidates=[-2.0, 1.0], epsilon=1.0),
        "noisy_tree": given(X, epsilon=1.0, sensitivity=1.0),
        "optimal_beta": given(1.0, noise="laplace", delta=1e-3),
        "optimal_sigma": given(0.5, beta=0.1),
        "permute_and_flip": given(X, 1.0, sensitivity=1.0),
        "piecewise_laplace": given(median(), 1.0),
        "poisson": given(5, mean=2.0),
        "propose_test_release": given(local(), 1.0, delta=1e-2, proposal=0.5),
        "search_rounds": given(9),
        "search_shift_for": given(num_candidates=9, failure=0.1, epsilon=1.0),
        "shift_for": given(1.0, num_candidates=9, failure=0.1),
        "shifted_inverse": given(down(), 1.0, tau=3),
        "smooth_cauchy": given(smooth(), 1.0),
        "smooth_laplace": given(smooth(), 1.0, delta=1e-2),
        "smooth_laplace_log_normal": given(smooth(), 0.5, sigma=1.0),
        "spherical_gaussian": given(X, 1.0),
        "stand_out": given(X, 1.0, delta=0.1, fallback=-1.0, sensitivity=1.0),
        "subsampled_laplace": given(np.array([2, 3]), 1.0, probability=0.5, most=9),
        "tree_rounds": given(9),
    },
    "metric_privacy": lambda: {
        "blowfish": given(metric(), epsilon=1.0, threshold=1.0),
        "fit_lipschitz_queries": given(QUERIES, metric(), num_records=9.0, price=1.0),
        "fit_marginals": given(QUERIES[0], metric(), num_records=9.0),
        "fit_queries": given(QUERIES, metric(), num_records=9.0),
        "fit_statistics": given(QUERIES, metric(), num_records=9.0),
        "from_budgets": given([[0.0, 1.0], [1.0, 0.0]]),
        "from_dates": given(["2024-01-01", "2024-01-03"], epsilon=0.1),
        "from_graph": given([[0, 1]], size=2, budgets=1.0),
        "from_points": given(np.arange(3.0)[:, None], epsilon=1.0),
        "improvement_factor": given(QUERIES, np.ones(1), metric()),
        "linear_selection": given(COUNTS, metric(), weights=np.eye(2)),
        "lipschitz_queries": given(QUERIES, metric()),
        "load": given(QUERIES, np.ones(1), metric()),
        "marginal_queries": given([2, 2], ways=1),
        "metric_exponential": given(COUNTS, metric(), sensitivity=1 - np.eye(2)),
        "metric_laplace": given(COUNTS, QUERIES, metric()),
        "mwem": given(KEY, COUNTS, queries(), rounds=2),
        "nearest_point": given(X[:, :2], X[:, :2]),
        "noise_scales": given(QUERIES, metric(), strategy="common"),
        "optimal_scales": given(QUERIES, metric()),
        "planar_laplace": given(X[:, :2], 1.0),
        "product": given(metric(), metric()),
        "range_queries": given([4]),
        "single_query_scale": given(QUERIES[0], metric()),
        "small_databases": given(2, 3),
        "small_db": given(COUNTS, queries(), size=3),
        "small_db_size": given(3, alpha=0.5),
        "smooth_threshold": given(metric(), epsilon=1.0, threshold=1.0),
        "spanning_tree": given(metric()),
        "uniform": given(3, epsilon=1.0),
        "value_budgets": given([[0, 1], [1, 1]], budgets=[[0.0, 1.0]] * 2),
        "weighted_hamming": given([[0, 1], [1, 1]], budgets=[1.0, 2.0]),
    },
    "random": lambda: {
        "check_key": given(KEY),
        "uniform": given(*dpjax.random.words(KEY, (2,)), jnp.float32),
        "uniforms": given(KEY, (3,), jnp.float32),
        "words": given(KEY, (3,)),
    },
    "release": lambda: {
        "metric_laplace": given([3, 1], QUERIES, metric(), resolution="0.01", strategy="common"),
    },
    "sensitivity": lambda: {
        "from_distances": given(np.arange(3.0), candidates=[0.0, 1, 2], neighbors="swap"),
        "from_local_sensitivity": given(
            1.0, lambda k: 1.0, num_levels=3, neighbors="swap", lower=0.0, upper=9.0
        ),
        "from_radii": given(1.0, [0.5, 1.0], neighbors="swap", lower=0.0, upper=9.0),
        "from_removals": given(np.arange(4.0)[::-1], lower=0.0, upper=9.0),
        "from_vector_radii": given(X, [1.0], p=2, step=2.0, neighbors="swap"),
        "local_sensitivity_bound": given(median()),
    },
    "simulation": lambda: {
        "sharded_sample": given(KEY, laplace, X[:, 0]),
        "simulate": given(KEY, laplace, X[:, 0], draws=10),
    },
    "statistics": lambda: {
        "candidate_counts": given(X, **MODE),
        "count": given(X),
        "distinct_count": given(np.arange(9), upper=12),
        "histogram": given(X, edges=(-3, 0, 3)),
        "local_sensitivity": given(X, **ADD_REMOVE),
        "maximum": given(X, **BOUNDS),
        "mean": given(X, **ADD_REMOVE),
        "mean_local_sensitivity": given(X, **ADD_REMOVE),
        "median": given(X, **ADD_REMOVE),
        "mode": given(X, **MODE),
        "nonnegative_sum": given(X, upper=9.0),
        "on_scale": given(
            dpjax.median, X, transform=dpjax.Asinh(lower=-3, upper=3), neighbors="swap"
        ),
        "order_statistic": given(X, 3, **ADD_REMOVE),
        "quantile": given(X, 0.25, **ADD_REMOVE),
        "quantiles": given(X, QUARTILES, **ADD_REMOVE),
        "smooth_sensitivity": given(X, 0.1, **ADD_REMOVE),
        "sum": given(X, **BOUNDS, neighbors="swap"),
        "triangle_count": given(np.ones((4, 4)), num_levels=3, neighbors="edge"),
        "triangle_count_of_edges": given(EDGES, num_nodes=4, num_levels=3, neighbors="edge"),
        "triangle_local_sensitivity": given(np.ones((4, 4)), num_levels=3, neighbors="edge"),
        "triangle_local_sensitivity_of_edges": given(
            EDGES, num_nodes=4, num_levels=3, neighbors="edge"
        ),
        "user_sum": given(X[0], np.arange(9) % 3, upper=9.0),
        "variance": given(X, **BOUNDS, neighbors="swap"),
        "without_host_calls": given(),
    },
}


@cache
def calls_of(package):
    """The calls of one package by the names of its functions."""
    return CALLS[package]()


# What makes an object of each statistic of a release
STATISTICS = {
    "ConfidenceInterval": given(0.5, **GRID, public_n=500),
    "Count": given(),
    "DistinctCount": given(tau=2, upper=9),
    "Histogram": given(edges=(0, 5, 10)),
    "Maximum": given(tau=2, **GRID),
    "Mean": given(**GRID),
    "Median": given(**GRID),
    "Mode": given(candidates=(3, 4)),
    "NonnegativeSum": given(tau=2, upper=20, resolution=1),
    "Quantile": given(0.5, **GRID),
    "Quantiles": given(QUARTILES, **GRID),
    "Sum": given(**GRID),
}
