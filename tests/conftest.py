"""The suite runs with implicit promotion of dtypes forbidden; tests that need float64 ask for the
fixture ``x64``.

Most of a run is compilation, of programs that run once on little data. Unless ``XLA_FLAGS`` is set,
XLA does not optimise them. Tests marked ``optimized`` compute a lot, or depend on what the compiler
makes of floats: they get XLA's optimisations, and ``XLA_FLAGS= python -m pytest -m optimized`` runs
them exactly as users do.
"""

import ctypes
import gc
import importlib.metadata
import os
import pathlib
import sys

if "XLA_FLAGS" not in os.environ:  # for pytest's workers and the processes that tests start, too
    # Later versions have one way to emit code
    older = tuple(map(int, importlib.metadata.version("jax").split(".")[:2])) < (0, 11)
    # The other processor has a worker of its own: no program is split for several threads, which is
    # work of its own.
    os.environ["XLA_FLAGS"] = (
        "--xla_cpu_parallel_codegen_split_count=1" + " --xla_cpu_use_fusion_emitters=false" * older
    )
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
# Its threads wait for each other where every processor has a worker
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Nobody reads which line an operation of a program comes from
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
UNOPTIMIZED = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS") == "1"

import jax  # noqa: E402
import pytest  # noqa: E402

gc.set_threshold(100_000, 20, 20)  # traces are many small objects that live long
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_disable_most_optimizations", UNOPTIMIZED)


@pytest.fixture(autouse=True)
def _optimized(request, monkeypatch):
    if not UNOPTIMIZED or request.node.get_closest_marker("optimized") is None:
        yield
        return
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def x64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(autouse=True)
def _free_compiled_programs():
    """Thousands of programs stay in memory otherwise."""
    yield
    if _resident_gigabytes() > 2:
        jax.clear_caches()
        _return_free_memory()


@pytest.fixture(scope="module", autouse=True)
def _free_memory_maps():
    """Linux allows a process 65,530; each program has a few."""
    yield
    if _memory_maps() > 20_000:
        jax.clear_caches()


def _resident_gigabytes() -> float:
    """Of this process; 0 where the system does not say."""
    statm = pathlib.Path("/proc/self/statm")
    return (
        int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e9
        if statm.exists()
        else 0.0
    )


def _return_free_memory() -> None:
    """To the system: glibc keeps what is freed, and the process would look as large as before."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _memory_maps() -> int:
    """Of this process; 0 where the system does not say."""
    maps = pathlib.Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 0


@pytest.fixture
def data_folder() -> pathlib.Path:
    folder = os.environ.get("DPJAX_DATA")
    if not folder:
        pytest.skip("the environment variable DPJAX_DATA does not name the folder of real tables")
    return pathlib.Path(folder)


# Doctests have no marks; these compile the most, and what they show is tested in the files above
# them.
SLOW_DOCTESTS = {
    "accounting.allocation.epsilon_for_error",
    "accounting.conversions.delta_of_rdp",
    "accounting.conversions.epsilon_of_rdp",
    "accounting.planning.steps_within",
    "auditing.black_box.log_ratio",
    "auditing.black_box.lower_bound",
    "auditing.one_run.audit_in_one_run",
    "auditing._privacy_loss.PrivacyLoss",
    "auditing._privacy_loss.privacy_loss",
    "auditing._trade_off_curve.trade_off",
    "auditing._worst_neighbor.worst_neighbor",
    "bounds.duff.level_measure",
    "distributions.intervals.sample_intervals",
    "distributions.piecewise.PiecewiseExponential",
    "distributions.transformed.Transformed",
    "mechanisms._best_of.best_of",
    "mechanisms._bounded_loss.bounded_loss",
    "mechanisms._bounded_loss.bounded_loss_distribution",
    "mechanisms._bounded_noise_laplace.bounded_noise_laplace",
    "mechanisms._confidence_interval.confidence_interval",
    "mechanisms._decomposable_exponential.decomposable_exponential",
    "mechanisms._duff.duff",
    "mechanisms._independent_quantiles.independent_quantiles",
    "mechanisms._joint_quantiles.joint_quantiles",
    "mechanisms._noisy_binary_search.noisy_binary_search",
    "mechanisms._optimal_beta.optimal_beta",
    "mechanisms._private_cdf.private_cdf",
    "mechanisms._private_quantiles.private_quantiles",
    "mechanisms._propose_test_release.propose_test_release",
    "mechanisms._recursive_quantiles.recursive_quantiles",
    "mechanisms._shifted_inverse.shifted_inverse",
    "metric_privacy._linear_selection.linear_selection",
    "metric_privacy._linear_queries.LaplaceAnswers",
    "metric_privacy._linear_queries.metric_laplace",
    "metric_privacy.means.fit_statistics",
    "metric_privacy._multiplicative_weights.mwem",
    "metric_privacy._multiplicative_weights.selection_distribution",
    "metric_privacy.preprocessing.fit_queries",
    "metric_privacy.scales.noise_scales",
    "metric_privacy.scales.optimal_scales",
    "numerics.host_call.without_host_calls",
    "random.keys.row_keys",
    "random.uniforms.exponential",
    "random.uniforms.gumbel",
    "simulation.sharded_rows.sharded_sample",
    "simulation.run.simulate",
    "statistics._variance.variance",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name.removeprefix("dpjax.") in SLOW_DOCTESTS:
            item.add_marker(pytest.mark.slow)
    # A test of minutes that comes last leaves one worker alone with it.
    items.sort(key=lambda item: item.path.name not in ("test_benchmarks.py", "test_experiments.py"))
