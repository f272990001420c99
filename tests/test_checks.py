"""Public numbers at the door: what counts as a whole number, wherever one is asked for, and
integers beyond 64 bits.
"""

from functools import partial
from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import accounting, checks
from dpjax.accounting import Guarantee
from dpjax.auditing import audit_in_one_run, worst_neighbor
from dpjax.bounds.metric_selection import mwem_error
from dpjax.distributions.finite import Finite
from dpjax.mechanisms import shift_for
from dpjax.metric_privacy import small_db_size
from dpjax.metric_privacy.graphs import from_graph
from dpjax.metric_privacy.metrics import uniform
from dpjax.statistics.monotone import maximum
from dpjax.statistics.triangles import triangle_count, triangle_count_of_edges

SWAP = Guarantee(0.5, 0.5, "swap")
PROFILE = dpjax.median(np.arange(9.0), lower=0, upper=9, neighbors="swap")
DOWN = maximum(np.arange(9.0), lower=0, upper=9)
FRACTIONAL = dpjax.median(
    np.arange(9.0), lower=0, upper=9, neighbors="swap", definition="continuous"
)
COIN = Finite(jnp.arange(2.0), jnp.zeros((4, 2)), jnp.ones(()))

# Each takes a whole number of at least 0, 1 or 3; 3 is good for all.
TAKERS = {
    "for_groups size": (lambda n: accounting.for_groups(SWAP, size=n), 1),
    "epsilon_per_query count": (
        lambda n: accounting.epsilon_per_query(count=n, epsilon=1.0, delta=0.0),
        1,
    ),
    "allocate queries": (
        lambda n: accounting.allocate(lambda e: 1 / e, 1.0, queries=n, steps=1),
        1,
    ),
    "a number of mechanisms": (lambda n: SWAP * n, 1),
    "counts": (lambda n: accounting.optimal_pure_epsilon([0.1], [n], delta=0.1), 1),
    "attempts": (
        lambda n: accounting.retry_until_success(SWAP, 0.1, attempts=n, fallback="public"),
        1,
    ),
    "from_local_sensitivity num_levels": (
        lambda n: dpjax.from_local_sensitivity(
            1.0, lambda k: 1.0, neighbors="swap", num_levels=n, lower=0, upper=9
        ),
        1,
    ),
    "truncate k": (PROFILE.truncate, 0),
    "of fractional levels: truncate k": (FRACTIONAL.truncate, 0),
    "truncate num_steps": (lambda n: PROFILE.truncate(1, step=1.0, num_steps=n), 1),
    "truncate": (
        lambda n: dpjax.median(np.arange(9.0), lower=0, upper=9, neighbors="swap", truncate=n),
        0,
    ),
    "rank": (
        lambda n: dpjax.order_statistic(np.arange(9.0), n, lower=0, upper=9, neighbors="swap"),
        1,
    ),
    "tau": (DOWN.shift, 1),
    "level": (DOWN.at, 0),
    "num_candidates": (lambda n: shift_for(1.0, num_candidates=n, failure=0.1), 1),
    "triangle_count num_levels": (
        lambda n: triangle_count(np.ones((4, 4)), num_levels=n, neighbors="edge"),
        1,
    ),
    "num_nodes": (
        lambda n: triangle_count_of_edges([[0, 1]], num_nodes=n, num_levels=2, neighbors="edge"),
        3,
    ),
    "from_graph size": (lambda n: from_graph([[0, 0]], size=n, budgets=1.0), 1),
    "uniform size": (lambda n: uniform(n, epsilon=1.0), 1),
    "num_queries": (lambda n: small_db_size(n, alpha=0.5), 1),
    "rounds": (lambda n: mwem_error(100, num_elements=3, num_queries=3, scale=0.1, rounds=n), 1),
    "guesses": (lambda n: audit_in_one_run(jax.random.key(0), COIN, COIN, guesses=n), 1),
    "refine": (
        lambda n: worst_neighbor(
            np.arange(3.0),
            lambda x, mask: dpjax.piecewise_laplace(
                dpjax.median(x, lower=0, upper=2, neighbors="add_remove", mask=mask), 1.0
            ),
            lower=0,
            upper=2,
            neighbors="add_remove",
            refine=n,
        ),
        0,
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in ("guesses", "refine") else name
        for name in TAKERS
    ],
)
def test_whole_numbers(name):
    take, least = TAKERS[name]
    words = name.split()[-1]
    for bad in (
        least - 1,
        True,
        np.bool_(True),
        3.0,
        np.float64(3.0),
        2.5,
        inf,
        "3",
        np.array([3]),
        (3,),
    ):
        with pytest.raises(ValueError, match=words):
            take(bad)
    expected = jax.tree.leaves(take(3))
    for good in (np.int64(3), np.uint8(3)):
        for found, wanted in zip(jax.tree.leaves(take(good)), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_whole():
    assert type(checks.static_integer("k", np.int8(100), 1)) is int
    assert checks.static_integer("k", 10**30, 1) == 10**30
    assert checks.static_integer("k", jnp.asarray(2), 0, 2) == 2
    with pytest.raises(ValueError, match=r"k must be an integer from 0 to 2, got 3\."):
        checks.static_integer("k", 3, 0, 2)
    with pytest.raises(ValueError, match=r"k must be an integer from 1 on, got None\."):
        checks.static_integer("k", None, 1)
    with pytest.raises(ValueError, match="k must be"):
        jax.jit(partial(checks.static_integer, "k"), static_argnums=1)(2, 1)


def test_integers_beyond_64_bits_are_floats():
    profile = dpjax.median(np.arange(3.0), lower=-(10**20), upper=10**20, neighbors="swap")
    assert float(profile.upper[-1]) == float(np.float32(10**20))
    assert float(checks.positive("epsilon", [1, 2**70], jnp.float32)[1]) == 2.0**70
    for large in (10**40, 10**400, -(10**400)):
        with pytest.raises(ValueError, match="scale must be finite"):
            checks.finite("scale", large, jnp.float32)
    for wrong in ("1", None, [1, None], 1j, b"1", [10**20, "1"]):
        with pytest.raises(TypeError, match="scale must be a real number or an array of them"):
            checks.finite("scale", wrong, jnp.float32)


def test_a_masked_array_would_lose_its_mask():
    masked = np.ma.array([1.0, 2.0, 90.0], mask=[False, False, True])
    with pytest.raises(TypeError, match="masked array"):
        dpjax.median(masked, lower=0, upper=99, neighbors="add_remove")
    filled = dpjax.median(masked.filled(np.nan), lower=0, upper=99, neighbors="add_remove")
    assert float(filled.value) == float(
        dpjax.median([1.0, 2.0], lower=0, upper=99, neighbors="add_remove").value
    )


@pytest.mark.parametrize(
    "take", [checks.float_array, lambda name, value: checks.finite(name, value, np.float32)]
)
def test_what_is_written_to_an_array_later_changes_nothing(take):
    memory = np.ones(2000, np.float32)
    start = -memory.ctypes.data // 4 % 16  # JAX shares memory that starts at a multiple of 64 bytes
    x = memory[start : start + 1001]
    taken = take("x", x)
    x[:] = 5
    assert (np.asarray(taken) == 1).all()


def test_what_is_an_array_of_jax_and_what_is_traced():
    seen = []
    jax.jit(lambda x: seen.append((checks.is_jax_array(x), checks.is_traced(x))) or x)(1.0)
    assert seen == [(True, True)]
    assert checks.is_jax_array(jnp.ones(2))
    assert not checks.is_traced(jnp.ones(2))
    for value in (1.0, np.ones(2), np.float64(1), None, "jax"):
        assert not checks.is_jax_array(value)
        assert not checks.is_traced(value)


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8_e4m3fn", "float16", "longdouble", "int8", "uint64", "bool"]
)
def test_real_numbers_of_every_dtype_are_read(dtype):
    found = checks.host_floats("x", np.array([0, 1], jnp.dtype(dtype)))
    assert jnp.issubdtype(found.dtype, jnp.floating)
    assert found.tolist() == [0, 1]


@pytest.mark.parametrize(
    "dtype", ["complex64", "datetime64[s]", "timedelta64[s]", "U3", "S3", "V4", [("float", "f4")]]
)
def test_what_is_no_real_number_is_refused(dtype):
    with pytest.raises(TypeError, match="x must hold real numbers"):
        checks.host_floats("x", np.zeros(2, dtype))
