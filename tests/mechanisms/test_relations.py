"""Every guarantee is asked for in the same way: first what says the relation, then the budget."""

import inspect
import re

import jax.numpy as jnp
import pytest

import dpjax
from dpjax import mechanisms

BY_NAME = {  # with what else each needs
    **{
        name: {}
        for name in (
            "above_threshold",
            "confidence_interval",
            "exponential",
            "inverse_sensitivity",
            "laplace",
        )
    },
    **{
        name: {}
        for name in ("permute_and_flip", "piecewise_laplace", "smooth_cauchy", "unbounded_quantile")
    },
    **{
        name: {"delta": 1e-6}
        for name in ("bounded_noise_laplace", "propose_test_release", "smooth_laplace", "stand_out")
    },
    "gaussian": {"sensitivity": 1.0},
    "smooth_laplace_log_normal": {},
}


def test_the_first_argument_says_the_relation():
    names = [name for name in mechanisms.__all__ if hasattr(getattr(mechanisms, name), "guarantee")]
    assert {*BY_NAME} < {*names}
    for name in names:
        parameters = list(
            inspect.signature(getattr(mechanisms, name).guarantee).parameters.values()
        )
        assert parameters[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD, name
        assert parameters[0].default is inspect.Parameter.empty, name
        assert not (
            name in BY_NAME
            and "neighbors" in inspect.signature(getattr(mechanisms, name).guarantee).parameters
        ), name


@pytest.mark.parametrize("name", BY_NAME)
def test_a_relation_by_its_name_is_enough(name):
    guarantee = getattr(mechanisms, name).guarantee
    assert {
        guarantee(relation, 0.5, **BY_NAME[name]).neighbors for relation in ("swap", "add_remove")
    } == {"swap", "add_remove"}
    with pytest.raises(ValueError, match="the neighbor relation must be one of"):
        guarantee("replace", 0.5, **BY_NAME[name])
    with pytest.raises(TypeError, match="must be that of the mechanism"):
        guarantee(0.5, 0.5, **BY_NAME[name])


def test_a_search_takes_a_relation_by_its_name():
    guarantee, budget = (
        mechanisms.noisy_binary_search.guarantee,
        {"num_candidates": 100, "epsilon": 1.0},
    )
    down = dpjax.maximum(jnp.arange(9.0), lower=0, upper=99)
    assert guarantee("add_remove", **budget) == guarantee(down, **budget)
    with pytest.raises(TypeError, match="must be that of the mechanism"):
        guarantee(1.0, **budget)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("independent_quantiles", "SortedRecords (from dpjax.quantiles: the guarantee depends"),
        ("recursive_quantiles", "SortedRecords (from dpjax.quantiles: the guarantee depends"),
        ("private_quantiles", "SortedRecords (from dpjax.quantiles: the guarantee depends"),
        ("private_cdf", "SortedRecords (from dpjax.quantiles: the guarantee depends"),
        ("duff", "SensitivityProfile (from dpjax.median"),
    ],
)
def test_where_a_name_is_not_enough_the_message_says_what_is(name, instead):
    with pytest.raises(TypeError, match=f"(takes|must be) a {re.escape(instead)}.*got str"):
        getattr(mechanisms, name).guarantee("add_remove", 1.0)
