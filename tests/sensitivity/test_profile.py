"""The algebra of profiles: truncation and radii."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import (
    from_local_sensitivity,
    from_radii,
    inverse_sensitivity,
    laplace,
    median,
    piecewise_laplace,
)
from tests.support.distributions import of_one_size

X = jnp.array([0.5, 1.0, 1.5, 3.0, 4.0, 6.5, 7.0])


def profile(neighbors="swap"):
    return median(X, lower=0.0, upper=10.0, neighbors=neighbors)


def test_truncation_jumps_to_the_bound():
    cut = profile().truncate(2)
    assert cut.upper.tolist() == [3.0, 4.0, 6.5, 10.0]
    assert cut.lower.tolist() == [3.0, 1.5, 1.0, 0.0]
    assert cut.upper_levels.tolist() == [0, 1, 2, 3]
    for k in (3, 4, 99):  # nothing is left to truncate
        for a, b in zip(
            jax.tree.leaves(profile().truncate(k)), jax.tree.leaves(profile()), strict=True
        ):
            np.testing.assert_array_equal(a, b)
    assert profile().truncate(0).upper.tolist() == [3.0, 10.0]


@pytest.mark.slow
def test_truncation_to_steps_is_one_linear_piece_or_separate_ones():
    """Steps of 2 from 4 (level 1) to the bound at 10: the cost rises by 1 for every 2."""
    linear = of_one_size(piecewise_laplace(profile().truncate(1, step=2.0), 1.0))
    pieces = of_one_size(piecewise_laplace(profile().truncate(1, step=2.0, num_steps=3), 1.0))
    y = np.array([3.0, 3.5, 4.5, 7.3, 9.9, 0.0, 10.0])
    cdf, survival = (
        [np.asarray(getattr(one, name)(y)) for one in (linear, pieces)]
        for name in ("cdf", "survival")
    )
    # Three steps end at 10 exactly
    above = [(below - below[0])[1:5] / rest[0] for below, rest in zip(cdf, survival, strict=True)]
    np.testing.assert_allclose(above[0], above[1], atol=1e-6)
    at = np.array([7.0, 9.0, 5.0, 6.5])
    stepwise = of_one_size(inverse_sensitivity(profile().truncate(1, step=2.0, num_steps=3), 1.0))
    fall, stepwise_fall = (-np.diff(np.asarray(one.log_prob(at))) for one in (linear, stepwise))
    np.testing.assert_allclose(fall[0], 0.5, atol=1e-5)
    np.testing.assert_allclose(stepwise_fall[2], 0.5, atol=1e-5)
    assert cdf[0][5:].tolist() == [0, 1]


def test_too_few_static_steps_end_in_a_jump():
    cut = profile().truncate(1, step=2.0, num_steps=1)
    assert cut.upper.tolist() == [3.0, 4.0, 6.0, 10.0]
    assert cut.lower.tolist() == [3.0, 1.5, 0.0, 0.0]  # past the bound: clamped
    assert float(inverse_sensitivity(cut, 1.0).cdf(0.0)) == 0


def test_truncation_composes_and_keeps_the_relation():
    cut = profile("add_remove").truncate(3).truncate(1)
    assert cut.neighbors == "add_remove"
    assert cut.upper.tolist() == [3.0, 3.5, 10.0]
    again = profile().truncate(2, step=5.0).truncate(1)
    assert again.upper.tolist() == [3.0, 4.0, 10.0]
    assert float(piecewise_laplace(again, 1.0).cdf(10.0)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": -1}, "k >= 0"),
        ({"k": 1, "num_steps": 2}, "num_steps"),
        ({"k": 1, "step": 1.0, "num_steps": 0}, "num_steps >= 1"),
        ({"k": 1, "step": 0.0}, "step must be finite and positive"),
    ],
)
def test_bad_truncations_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        profile().truncate(**arguments)


def test_inverse_sensitivity_refuses_steps_without_a_static_number():
    with pytest.raises(ValueError, match="num_steps"):
        inverse_sensitivity(profile().truncate(1, step=2.0), 1.0)


def test_radii_above_and_below():
    both = from_radii(5.0, [1.0, 2.0], neighbors="swap", lower=0, upper=10)
    assert both.upper.tolist() == [5, 6, 8, 10]
    assert both.lower.tolist() == [5, 4, 2, 0]
    uneven = from_radii(5.0, [1.0, 2.0], radii_below=[0.5], neighbors="swap", lower=0, upper=10)
    assert uneven.upper.tolist() == [5, 6, 8, 10]
    assert uneven.lower.tolist() == [5, 4.5, 0]
    rows = from_radii(jnp.array([1.0, 2.0]), jnp.array([[1.0], [3.0]]), neighbors="swap", step=4.0)
    assert rows.upper.tolist() == [[1, 2], [2, 5]]
    assert rows.support is None


@pytest.mark.slow
def test_constant_radii_are_the_laplace_distribution(x64):
    """Durfee 4.1, exactly: on the line, and truncated where there are bounds, wherever the radii
    meet them.
    """
    y = np.linspace(-9.0, 12.0, 43)
    for count in (1, 7):
        radii = np.full(count, 1.5)
        line = of_one_size(
            piecewise_laplace(from_radii(2.0, radii, neighbors="swap", step=1.5), 0.8)
        )
        doubled = of_one_size(laplace(2.0, 0.4, sensitivity=1.5))  # scale 2 * 1.5 / 0.8
        np.testing.assert_allclose(line.log_prob(y), doubled.log_prob(y), rtol=0, atol=1e-12)
        np.testing.assert_allclose(line.cdf(y), doubled.cdf(y), rtol=0, atol=1e-12)
        bounded = of_one_size(laplace(2.0, 0.8, sensitivity=1.5, lower=-3.0, upper=10.0))
        profile = from_radii(2.0, radii, neighbors="swap", lower=-3.0, upper=10.0, step=1.5)
        distribution = of_one_size(piecewise_laplace(profile, 0.8))
        np.testing.assert_allclose(distribution.cdf(y), bounded.cdf(y), rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            distribution.mean_abs_error(2.0), bounded.mean_abs_error(2.0), rtol=1e-12
        )
        inside = (y > -3) & (y < 10)
        found, wanted = (np.asarray(one.log_prob(y)) for one in (distribution, bounded))
        np.testing.assert_allclose(found[inside], wanted[inside], rtol=0, atol=1e-12)
    # The control: the scale that leaks is another distribution.
    leaking = of_one_size(laplace(2.0, 0.8, sensitivity=1.5).restrict(-3.0, 10.0))
    assert np.abs(np.asarray(leaking.cdf(y)) - np.asarray(bounded.cdf(y)))[y == 0] > 0.01


def test_radii_beyond_the_bounds_are_clamped_and_long_ones_to_the_step():
    profile = from_radii(9.0, [2.0, 2.0], neighbors="swap", lower=0, upper=10)
    assert profile.upper.tolist() == [9, 10, 10, 10]
    distribution = inverse_sensitivity(profile, 1.0)
    assert float(distribution.cdf(10.0)) == 1
    np.testing.assert_allclose(
        distribution.log_prob(9.5) - distribution.log_prob(6.0), 0.5, atol=1e-5
    )
    assert from_radii(0.0, [1.0, 5.0], neighbors="swap", step=2.0).upper.tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lower": 0.0}, "lower and upper must be given together"),
        ({}, "levels after the last radius"),
        ({"step": -1.0}, "step must be finite and positive"),
        ({"lower": 3.0, "upper": 1.0}, "lower must be below upper"),
    ],
)
def test_bad_radii_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        from_radii(1.0, [1.0], neighbors="swap", **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("step", [-1.0, 0.0, float("nan"), float("inf")])
def test_a_bad_jax_step_makes_its_own_row_nan(step):
    rows = jnp.array([[1.0, 2, 3, 4, 5], [1, 8, 8, 9, 9]])
    cut = median(rows, lower=0, upper=20, neighbors="swap").truncate(
        1, step=jnp.array([step, 20.0])
    )
    radii = from_radii(
        5.0,
        [1.0],
        radii_below=[1.0],
        neighbors="swap",
        lower=0,
        upper=10,
        step=jnp.array([step, 10.0]),
    )
    for distribution in (
        of_one_size(piecewise_laplace(made, 1.0), batch=(2,)) for made in (cut, radii)
    ):
        for result in (
            distribution.mean(),
            distribution.cdf(4.0),
            distribution.sample(jax.random.key(0)),
        ):
            assert np.isnan(result).tolist() == [True, False]


def test_radii_need_an_axis_and_a_relation():
    with pytest.raises(ValueError, match="axis of levels"):
        from_radii(1.0, 1.0, neighbors="swap", step=1.0)
    with pytest.raises(ValueError, match="neighbors must be one of"):
        from_radii(1.0, [1.0], neighbors="both", step=1.0)
    with pytest.raises(ValueError, match="profile has no bounds"):
        from_radii(1.0, [1.0], neighbors="swap", step=1.0).truncate(0)


def test_a_value_with_several_components_is_no_batch():
    """Three rows of one dataset would cost three epsilon; a batch says that it is one by the axes
    of its radii.
    """
    vector = jnp.array([1.0, 2.0, 3.0])
    for radii in ({"radii": [1.0, 2.0]}, {"radii": np.ones((3, 2)), "radii_below": [1.0, 2.0]}):
        with pytest.raises(ValueError, match="several components use from_vector_radii"):
            from_radii(vector, neighbors="swap", step=4.0, **radii)
    with pytest.raises(ValueError, match="several components use from_vector_radii"):
        from_local_sensitivity(vector, lambda k: 1.0, num_levels=2, neighbors="swap", step=4.0)
    shared, own = (
        from_radii(vector, np.ones((rows, 2)), neighbors="swap", step=4.0) for rows in (1, 3)
    )
    np.testing.assert_array_equal(shared.upper, own.upper)
    mapped = jax.vmap(
        lambda value: from_radii(value, [1.0, 1.0], neighbors="swap", step=4.0).upper
    )(vector)
    np.testing.assert_array_equal(mapped, own.upper)
