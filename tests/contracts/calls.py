"""One valid call of every public function, by its package and its name: what every contract about
functions asks is asked of these.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

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
PLAN = {"lower": 0, "upper": 500, "resolution": 1, "neighbors": "swap", "coverage": 0.5}
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
    import polars  # of the extra frames

    frame = polars.DataFrame({"x": [1, 2, 3, 4] * 5, "g": ["a", "b"] * 10})
    return frame, {"x": release.Median(**GRID)}


GROUPED = {"by": "g", "groups": ["a", "b"], "epsilon": 1.0, "neighbors": "add_remove"}

CALLS = {
    "accounting": {
        "absorb_failure": lambda: given(PURE, 0.1),
        "advanced_epsilon": lambda: given(0.1, count=10, delta=1e-6),
        "attempts_for": lambda: given(0.1, leftover=1e-3),
        "bounded_range_delta": lambda: given(0.1, count=5, epsilon=0.3, queries="adaptive"),
        "bounded_range_epsilon": lambda: given(0.1, count=5, delta=1e-6, queries="adaptive"),
        "bounded_range_of_zcdp": lambda: given(0.1),
        "condition_on_success": lambda: given(PURE, 0.1),
        "delta_of_gdp": lambda: given(1.0, epsilon=1.0),
        "delta_of_rdp": lambda: given(lambda order: 0.1 * order, epsilon=1.0),
        "delta_of_zcdp": lambda: given(0.1, epsilon=1.0),
        "epsilon_before_sampling": lambda: given(0.1, probability=0.5),
        "epsilon_for_error": lambda: given(median(), dpjax.piecewise_laplace, 0.5),
        "epsilon_of_gdp": lambda: given(1.0, delta=1e-6),
        "epsilon_of_rdp": lambda: given(lambda order: 0.1 * order, delta=1e-6),
        "epsilon_of_zcdp": lambda: given(0.1, delta=1e-6),
        "epsilon_per_query": lambda: given(count=3, epsilon=1.0, delta=1e-6),
        "fixed_size_subsample": lambda: given(PURE, taken=5, public_n=10, replacement="without"),
        "for_groups": lambda: given(PURE, size=2),
        "gdp_of": lambda: given(1.0, delta=1e-6),
        "least_noise": lambda: given(
            lambda noise: accounting.Guarantee(1 / noise, 1 / noise, "swap"),
            epsilon=1.0,
            delta=1e-6,
        ),
        "optimal_pure_delta": lambda: given(0.1, count=4, epsilon=1.0),
        "optimal_pure_epsilon": lambda: given(0.1, count=4, delta=1e-6),
        "parallel": lambda: given(
            *[accounting.Guarantee(0.5, 0.5, "add_remove")] * 2, membership="by_value"
        ),
        "poisson_subsample": lambda: given(
            accounting.Guarantee(0.5, 0.5, "add_remove"), probability=0.5
        ),
        "pure_of_zcdp": lambda: given(0.1),
        "rdp_of_bounded_range": lambda: given(0.1, order=2.0),
        "rdp_of_laplace": lambda: given(0.1, order=2.0),
        "rdp_of_pure": lambda: given(0.1, order=2.0),
        "retry_until_success": lambda: given(PURE, 0.1, attempts=3, fallback="public"),
        "sampling_efficiency": lambda: given(0.1, probability=0.5),
        "steps_within": lambda: given(PURE, epsilon=5.0, delta=1e-6),
        "subsampled_epsilon": lambda: given(0.1, probability=0.5),
        "trade_off_bound": lambda: given(PURE, 0.1),
        "zcdp_of": lambda: given(1.0, delta=1e-6),
        "zcdp_of_bounded_range": lambda: given(0.1),
        "zcdp_of_pure": lambda: given(0.1),
    },
    "auditing": {
        "audit_in_one_run": lambda: given(KEY, *coins(), guesses=20),
        "audit_scores": lambda: given(np.arange(50.0), np.arange(50) % 2 > 0, guesses=[(5, 5)]),
        "epsilon_lower_bound": lambda: given(18, 20),
        "log_ratio": lambda: given(laplace(0), laplace(1)),
        "lower_bound": lambda: given(np.arange(50.0), np.arange(50.0) + 9),
        "p_value": lambda: given(18, 20, epsilon=1.0),
        "privacy_loss": lambda: given(laplace(0), laplace(1)),
        "trade_off": lambda: given(auditing.privacy_loss(laplace(0), laplace(1)), 0.1),
        "worst_neighbor": lambda: given(X[0], median_of, **ADD_REMOVE, refine=1),
    },
    "bounds.duff": {
        "corollary_1": lambda: given(
            2.0, 1.0, smooth_sensitivity=1.0, support=6.0, growth=1.0, level_measure=1.0
        ),
        "corollary_1_beta": lambda: given(2.0, 1.0, support=6.0, growth=1.0),
        "level_measure": lambda: given(dpjax.median(X, **ADD_REMOVE, definition="lower"), 2),
        "proposition_4": lambda: given(1.0, 1.0, support=6.0, level_measure=1.0),
        "theorem_1": lambda: given(
            0.1, 1.0, smooth_sensitivity=1.0, support=6.0, level_measure=1.0
        ),
    },
    "bounds.local_modulus": {
        "bounded_range_lower_bound": lambda: given(median(), 1.0),
        "lower_bound": lambda: given(median(), 1.0),
    },
    "bounds.metric": {
        "exact_squared_error": lambda: given(np.ones(1), bias=QUERIES),
        "exponential_shortfall": lambda: given(9, scale=0.1, failure=0.1),
        "mean_noise": lambda: given(np.ones(1), norm="sum"),
        "mwem_error": lambda: given(100.0, **ROUNDS, rounds=3, failure=0.1),
        "mwem_rounds": lambda: given(100.0, **ROUNDS),
        "small_db_bound": lambda: given(100.0, **ROUNDS, failure=0.1),
        "small_db_error": lambda: given(100.0, **ROUNDS, size=3, failure=0.1),
        "sum_tail": lambda: given(np.ones(1), failure=0.1),
        "theorem_11": lambda: given(np.ones(1), bias=QUERIES, norm="sum"),
        "theorem_2_maximum": lambda: given(np.ones(1), bias=QUERIES, failure=0.1),
    },
    "bounds.selection": {
        "exponential_excess": lambda: given(9, 1.0),
        "local_sensitivity_error": lambda: given(median(), 1.0, num_candidates=9, failure=0.1),
        "loss_bound": lambda: given(1.0, num_candidates=9, failure=0.1),
        "noisy_tree_excess": lambda: given(9, epsilon=1.0),
        "shifted_interval": lambda: given(down(), tau=3),
    },
    "distributions": {
        "sample_intervals": lambda: given(KEY, np.abs(X), np.arange(9.0), epsilon=1.0),
        "to_numpyro": lambda: given(laplace(0)),
    },
    "frames": {
        "release": lambda: given(*table(), **GROUPED),
        "simulate": lambda: given(1, *table(), **GROUPED),
    },
    "mechanisms": {
        "above_threshold": lambda: given(np.zeros(3, np.float32), 1.0, threshold=1.0),
        "best_of": lambda: given(KEY, laplace(0).sample, score=jnp.abs, attempts=(0.5, 0.5)),
        "best_of_distribution": lambda: given(choice(), X[0], attempts=(0.5, 0.5)),
        "bounded_loss": lambda: given(
            KEY,
            laplace(0).sample,
            loss=jnp.abs,
            target=0.5,
            epsilon=1.0,
            delta=0.1,
            fallback=0.0,
            attempts=4,
        ),
        "bounded_loss_distribution": lambda: given(
            choice(), -X[0], target=0.5, epsilon=1.0, delta=0.1, fallback=0.0, attempts=4
        ),
        "bounded_noise_laplace": lambda: given(X[0], 1.0, sensitivity=1.0, delta=1e-3),
        "cauchy_tail_bound": lambda: given(smooth(), 1.0, failure=0.1),
        "decomposable_exponential": lambda: given(
            np.stack([X[0], X[1]]), epsilon=1.0, sensitivity=1.0
        ),
        "duff": lambda: given(median(), 1.0),
        "exponential": lambda: given(X, 1.0, sensitivity=1.0),
        "gaussian": lambda: given(X[0], 1.0),
        "inverse_sensitivity": lambda: given(median(), 1.0),
        "joint_quantiles": lambda: given(asked(), 1.0, public_n=4),
        "k_norm": lambda: given(X, 1.0, sensitivity=1.0, p=2),
        "laplace": lambda: given(X[0], 1.0, sensitivity=1.0),
        "loss_margin": lambda: given(epsilon=1.0, delta=0.1),
        "negative_binomial": lambda: given(5, eta=0.0, gamma=0.1),
        "never_fail": lambda: given(
            KEY, laplace(0).sample, succeeded=lambda y: y < 1, fallback=0.0, attempts=4
        ),
        "never_fail_distribution": lambda: given(
            choice(), np.ones(9) / 2, fallback=0.0, attempts=4
        ),
        "noisy_binary_search": lambda: given(down(), tau=3, candidates=[-2.0, 1.0], epsilon=1.0),
        "noisy_tree": lambda: given(X, epsilon=1.0, sensitivity=1.0),
        "optimal_beta": lambda: given(1.0, noise="laplace", delta=1e-3),
        "optimal_sigma": lambda: given(0.5, beta=0.1),
        "permute_and_flip": lambda: given(X, 1.0, sensitivity=1.0),
        "piecewise_laplace": lambda: given(median(), 1.0),
        "poisson": lambda: given(5, mean=2.0),
        "propose_test_release": lambda: given(local(), 1.0, delta=1e-2, proposal=0.5),
        "search_rounds": lambda: given(9),
        "search_shift_for": lambda: given(num_candidates=9, failure=0.1, epsilon=1.0),
        "shift_for": lambda: given(1.0, num_candidates=9, failure=0.1),
        "shifted_inverse": lambda: given(down(), 1.0, tau=3),
        "smooth_cauchy": lambda: given(smooth(), 1.0),
        "smooth_laplace": lambda: given(smooth(), 1.0, delta=1e-2),
        "smooth_laplace_log_normal": lambda: given(smooth(), 0.5, sigma=1.0),
        "spherical_gaussian": lambda: given(X, 1.0),
        "stand_out": lambda: given(X, 1.0, delta=0.1, fallback=-1.0, sensitivity=1.0),
        "subsampled_laplace": lambda: given(np.array([2, 3]), 1.0, probability=0.5, most=9),
        "tree_rounds": lambda: given(9),
    },
    "metric_privacy": {
        "blowfish": lambda: given(metric(), epsilon=1.0, threshold=1.0),
        "fit_lipschitz_queries": lambda: given(QUERIES, metric(), num_records=9.0, price=1.0),
        "fit_marginals": lambda: given(QUERIES[0], metric(), num_records=9.0),
        "fit_queries": lambda: given(QUERIES, metric(), num_records=9.0),
        "fit_statistics": lambda: given(QUERIES, metric(), num_records=9.0),
        "from_budgets": lambda: given([[0.0, 1.0], [1.0, 0.0]]),
        "from_dates": lambda: given(["2024-01-01", "2024-01-03"], epsilon=0.1),
        "from_graph": lambda: given([[0, 1]], size=2, budgets=1.0),
        "from_points": lambda: given(np.arange(3.0)[:, None], epsilon=1.0),
        "improvement_factor": lambda: given(QUERIES, np.ones(1), metric()),
        "linear_selection": lambda: given(COUNTS, metric(), weights=np.eye(2)),
        "lipschitz_queries": lambda: given(QUERIES, metric()),
        "load": lambda: given(QUERIES, np.ones(1), metric()),
        "marginal_queries": lambda: given([2, 2], ways=1),
        "metric_exponential": lambda: given(COUNTS, metric(), sensitivity=1 - np.eye(2)),
        "metric_laplace": lambda: given(COUNTS, QUERIES, metric()),
        "mwem": lambda: given(KEY, COUNTS, queries(), rounds=2),
        "nearest_point": lambda: given(X[:, :2], X[:, :2]),
        "noise_scales": lambda: given(QUERIES, metric(), strategy="common"),
        "optimal_scales": lambda: given(QUERIES, metric()),
        "planar_laplace": lambda: given(X[:, :2], 1.0),
        "product": lambda: given(metric(), metric()),
        "range_queries": lambda: given([4]),
        "single_query_scale": lambda: given(QUERIES[0], metric()),
        "small_databases": lambda: given(2, 3),
        "small_db": lambda: given(COUNTS, queries(), size=3),
        "small_db_size": lambda: given(3, alpha=0.5),
        "smooth_threshold": lambda: given(metric(), epsilon=1.0, threshold=1.0),
        "spanning_tree": lambda: given(metric()),
        "uniform": lambda: given(3, epsilon=1.0),
        "value_budgets": lambda: given([[0, 1], [1, 1]], budgets=[[0.0, 1.0]] * 2),
        "weighted_hamming": lambda: given([[0, 1], [1, 1]], budgets=[1.0, 2.0]),
    },
    "random": {
        "check_key": lambda: given(KEY),
        "uniform": lambda: given(*dpjax.random.words(KEY, (2,)), jnp.float32),
        "uniforms": lambda: given(KEY, (3,), jnp.float32),
        "words": lambda: given(KEY, (3,)),
    },
    "release": {
        "metric_laplace": lambda: given(
            [3, 1], QUERIES, metric(), resolution="0.01", strategy="common"
        ),
    },
    "sensitivity": {
        "from_distances": lambda: given(np.arange(3.0), candidates=[0.0, 1, 2], neighbors="swap"),
        "from_local_sensitivity": lambda: given(
            1.0, lambda k: 1.0, num_levels=3, neighbors="swap", lower=0.0, upper=9.0
        ),
        "from_radii": lambda: given(1.0, [0.5, 1.0], neighbors="swap", lower=0.0, upper=9.0),
        "from_removals": lambda: given(np.arange(4.0)[::-1], lower=0.0, upper=9.0),
        "from_vector_radii": lambda: given(X, [1.0], p=2, step=2.0, neighbors="swap"),
        "local_sensitivity_bound": lambda: given(median()),
    },
    "simulation": {
        "sharded_sample": lambda: given(KEY, laplace, X[:, 0]),
        "simulate": lambda: given(KEY, laplace, X[:, 0], draws=10),
    },
    "statistics": {
        "candidate_counts": lambda: given(X, **MODE),
        "count": lambda: given(X),
        "distinct_count": lambda: given(np.arange(9), upper=12),
        "histogram": lambda: given(X, edges=(-3, 0, 3)),
        "local_sensitivity": lambda: given(X, **ADD_REMOVE),
        "maximum": lambda: given(X, **BOUNDS),
        "mean": lambda: given(X, **ADD_REMOVE),
        "mean_local_sensitivity": lambda: given(X, **ADD_REMOVE),
        "median": lambda: given(X, **ADD_REMOVE),
        "mode": lambda: given(X, **MODE),
        "nonnegative_sum": lambda: given(X, upper=9.0),
        "on_scale": lambda: given(
            dpjax.median, X, transform=dpjax.Asinh(lower=-3, upper=3), neighbors="swap"
        ),
        "order_statistic": lambda: given(X, 3, **ADD_REMOVE),
        "quantile": lambda: given(X, 0.25, **ADD_REMOVE),
        "quantiles": lambda: given(X, QUARTILES, **ADD_REMOVE),
        "smooth_sensitivity": lambda: given(X, 0.1, **ADD_REMOVE),
        "sum": lambda: given(X, **BOUNDS, neighbors="swap"),
        "triangle_count": lambda: given(np.ones((4, 4)), num_levels=3, neighbors="edge"),
        "triangle_count_of_edges": lambda: given(
            EDGES, num_nodes=4, num_levels=3, neighbors="edge"
        ),
        "triangle_local_sensitivity": lambda: given(
            np.ones((4, 4)), num_levels=3, neighbors="edge"
        ),
        "triangle_local_sensitivity_of_edges": lambda: given(
            EDGES, num_nodes=4, num_levels=3, neighbors="edge"
        ),
        "user_sum": lambda: given(X[0], np.arange(9) % 3, upper=9.0),
        "variance": lambda: given(X, **BOUNDS, neighbors="swap"),
        "without_host_calls": lambda: given(),
    },
}

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
