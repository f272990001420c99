"""What every mechanism gets from its annotations: checked arguments and a guarantee."""

import inspect
import pickle

import numpy as np
import pytest
from jax.typing import ArrayLike

from dpjax import Guarantee, mechanisms
from dpjax.distributions import Gaussian
from dpjax.mechanisms.mechanism import Half, Positive, mechanism

COSTLY = [name for name in mechanisms.__all__ if hasattr(getattr(mechanisms, name), "guarantee")]


@pytest.mark.parametrize("name", COSTLY)
def test_a_mechanism_and_its_guarantee_pickle(name):
    found = getattr(mechanisms, name)
    assert pickle.loads(pickle.dumps(found)) is found
    assert pickle.loads(pickle.dumps(found.guarantee)) is found.guarantee
    assert list(inspect.signature(found.guarantee).parameters)


@mechanism(ranges=2)
def noisy(value: ArrayLike, epsilon: Positive, *, scale: Positive | None = None) -> Gaussian:
    return value, epsilon, scale


@mechanism()
def failing(value: ArrayLike, epsilon: Positive, *, delta: Half):
    return delta


def test_data_become_floats_and_public_numbers_their_dtype():
    value, epsilon, scale = noisy(np.array([-1, 2]), 1.0, scale=np.float64(0.5))
    assert [part.dtype for part in (value, epsilon, scale)] == [np.float32] * 3
    assert value.tolist() == [-1, 2]
    assert noisy(1, np.array([1.0, 2.0]))[1:][1] is None
    assert noisy.guarantee("swap", 0.5) == Guarantee(0.5, 1.0, "swap")
    expected = Guarantee(0.5, neighbors="edge", delta=0.25)
    assert failing.guarantee("edge", 0.5, delta=0.25) == expected


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: noisy(1.0, 1.0, scale=-1.0), "scale must be"),
        (lambda: noisy.guarantee("swap", 1.0, delta=0.1), "call noisy.guarantee"),
        (lambda: failing(1.0, 1.0, delta=0.5), "delta must be positive and below 0.5"),
    ],
)
def test_a_wrong_argument_is_named(call, said):
    with pytest.raises((ValueError, TypeError), match=said):
        call()
