"""Public numbers at the door: what counts as a whole number, wherever one is asked for, and
integers beyond 64 bits.
"""

from decimal import Decimal
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import accounting, checks
from dpjax.accounting import Guarantee
from tests.contracts.test_refusals import WHOLE

PROFILE = dpjax.median(np.arange(9.0), lower=0, upper=9, neighbors="swap")
FRACTIONAL = dpjax.median(
    np.arange(9.0), lower=0, upper=9, neighbors="swap", definition="continuous"
)
DOWN = dpjax.maximum(np.arange(9.0), lower=0, upper=9)

# What is no argument of a function takes a whole number of at least 0 or 1, too; 3 is good for all.
TAKERS = {
    "a number of mechanisms": (lambda n: Guarantee(0.5, 0.5, "swap") * n, 1),
    "count": (lambda n: accounting.optimal_pure_epsilon(0.1, count=n, delta=0.1), 1),
    "truncate k": (lambda n: jax.jit(lambda: PROFILE.truncate(n))(), 0),
    "of fractional levels: truncate k": (lambda n: jax.jit(lambda: FRACTIONAL.truncate(n))(), 0),
    "truncate num_steps": (
        lambda n: jax.jit(lambda: PROFILE.truncate(1, step=1.0, num_steps=n))(),
        1,
    ),
    "tau": (lambda n: jax.jit(lambda: DOWN.shift(n))(), 1),
    "level": (lambda n: jax.jit(lambda: DOWN.at(n))(), 0),
}


@pytest.mark.parametrize("name", TAKERS)
def test_whole_numbers(name):
    take, least = TAKERS[name]
    for bad in (least - 1, *WHOLE):
        with pytest.raises(ValueError, match=name.split()[-1]):
            take(bad)
    expected = jax.tree.leaves(take(3))
    for good in (np.int64(3), np.uint8(3)):
        for found, wanted in zip(jax.tree.leaves(take(good)), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_whole():
    assert type(checks.static_integer("k", np.int8(100), 1)) is int
    assert checks.static_integer("k", jnp.asarray(10), 0, 10) == 10
    with pytest.raises(ValueError, match=r"k must be an integer from 0 to 2, got 3\."):
        checks.static_integer("k", 3, 0, 2)
    with pytest.raises(ValueError, match=r"k must be an integer from 1 on, got None\."):
        checks.static_integer("k", None, 1)
    with pytest.raises(ValueError, match="k must be"):
        jax.jit(partial(checks.static_integer, "k"), static_argnums=1)(2, 1)


# Which of these numbers each check takes
NUMBERS = np.array([-np.inf, -1, 0, 1e-20, 0.5, 0.75, 1, 2, 1e30, np.inf, np.nan], np.float32)
TAKEN = {
    "finite": range(1, 9),
    "positive": range(3, 9),
    "nonnegative": range(2, 9),
    "proportion": range(3, 7),
    "probability": range(3, 6),
    "fraction": range(2, 6),
}


@pytest.mark.parametrize("name", TAKEN)
def test_one_number_and_arrays_are_in_the_same_interval(name):
    single = getattr(checks, f"concrete_{name}", None)
    array = getattr(checks, name, None)
    if array:
        found = jax.jit(partial(array, "c", dtype=jnp.float32))(NUMBERS)
        assert np.flatnonzero(~np.isnan(found)).tolist() == list(TAKEN[name])
    for i, number in enumerate(NUMBERS):
        for check in filter(None, (single, array and partial(array, dtype=np.float32))):
            if i in TAKEN[name]:
                assert check("c", number) == number
                continue
            with pytest.raises(ValueError, match=r"^c must be [a-z 01]+( \(in float32\))?, got "):
                check("c", number)


def test_numbers_that_are_none_are_refused_in_words():
    for wrong in (True, "1", b"1", [1.0], None, np.ones(2), Decimal("sNaN"), 1j):
        with pytest.raises(TypeError, match="epsilon must be one concrete number"):
            checks.concrete_epsilon(wrong)
    with pytest.raises(TypeError, match="epsilon must be one concrete number"):
        jax.jit(checks.concrete_epsilon)(1.0)
    with pytest.raises(ValueError, match=r"p must be a number from 1 to inf, got 0.5\."):
        checks.static_number("p", 0.5, 1, np.inf)
    with pytest.raises(ValueError, match="epsilon must be finite and positive, got inf"):
        checks.concrete_epsilon(10**400)


def test_integers_beyond_64_bits_are_floats():
    profile = dpjax.median(np.arange(3.0), lower=-(10**20), upper=10**20, neighbors="swap")
    assert float(profile.upper[-1]) == float(np.float32(10**20))
    assert float(checks.positive("epsilon", [1, 2**70], jnp.float32)[1]) == 2.0**70
    for large in (10**40, 10**400, -(10**400)):
        with pytest.raises(ValueError, match="scale must be finite"):
            checks.finite("scale", large, jnp.float32)
    for wrong in ("1", None, [1, None], 1j, b"1", [10**20, "1"], True, jnp.complex64(1)):
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
