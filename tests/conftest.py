"""The suite runs with implicit promotion of dtypes forbidden; tests that need float64 ask for the
fixture ``x64``.

Most of a run is compilation, of programs that run once on little data. Unless ``XLA_FLAGS`` is set,
XLA does not optimise them. Tests marked ``optimized`` compute a lot, or depend on what the compiler
makes of floats: they get XLA's optimisations, and ``XLA_FLAGS= python -m pytest -m optimized`` runs
them exactly as users do.
"""

import ctypes
import functools
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


@pytest.fixture(scope="module", autouse=True)
def _free_compiled_programs():
    """Thousands of programs stay in memory otherwise, with a few memory maps each, of which Linux
    allows a process 65,530. Tests of a file share programs.
    """
    yield
    if _resident_gigabytes() > 1.8:
        jax.clear_caches()
        _return_free_memory()


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


@pytest.fixture
def data_folder() -> pathlib.Path:
    folder = os.environ.get("DPJAX_DATA")
    if not folder:
        pytest.skip("the environment variable DPJAX_DATA does not name the folder of real tables")
    return pathlib.Path(folder)


@functools.cache
def _imports_jax(path: pathlib.Path) -> bool:
    return "import jax" in path.read_text()


# What other versions of JAX, NumPy and Python may change: contracts, words, a file of each room.
COMPAT = {
    "accelerator/test_words.py",
    "accounting/test_guarantees.py",
    "auditing/test_privacy_loss.py",
    "bounds/test_duff.py",
    "command_line/test_process.py",
    "contracts",
    "distributions/test_quadrature.py",
    "distributions/test_radial.py",
    "distributions/test_rounded.py",
    "frames/test_persons.py",
    "mechanisms/test_line.py",
    "metric_privacy/test_laplace.py",
    "numerics",
    "random",
    "release/test_draw.py",
    "sensitivity/test_profile.py",
    "simulation/test_simulate.py",
    "statistics/test_profiles.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Doctests that compile programs are slow: the tests ask for the same functions."""
    compat = {pathlib.Path(__file__).parent / name for name in COMPAT}
    assert all(path.exists() for path in compat)
    for item in items:
        if isinstance(item, pytest.DoctestItem) and _imports_jax(item.path):
            item.add_marker(pytest.mark.slow)
        if compat & {item.path, item.path.parent}:
            item.add_marker(pytest.mark.compat)
