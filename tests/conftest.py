"""The suite runs with implicit promotion of ranks and dtypes forbidden; tests that need float64 ask for the fixture ``x64``."""

import os
import pathlib

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def x64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def data_folder() -> pathlib.Path:
    folder = os.environ.get("DPJAX_DATA")
    if not folder:
        pytest.skip("the environment variable DPJAX_DATA does not name the folder of real tables")
    return pathlib.Path(folder)
