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

X = np.array([0.5, 1.0, 1.5, 3.0, 4.0, 6.5, 7.0])


def profile(neighbors="swap"):
    return median(X, lower=0.0, upper=10.0, neighbors=neighbors)


def radii(value=5.0, above=(1.0, 2.0), below=None, **options):
    return from_radii(value, np.array(above), radii_below=below, neighbors="swap", **options)


TEN = {"lower": 0, "upper": 10}
# A profile, and its values above and below
CASES = {
    "a jump to the bound": (lambda: profile().truncate(2), [3, 4, 6.5, 10], [3, 1.5, 1, 0]),
    "nothing but jumps": (lambda: profile().truncate(0), [3, 10], [3, 0]),
    "far beyond the end": (lambda: profile().truncate(99), [3, 4, 6.5, 7, 10], [3, 1.5, 1, 0.5, 0]),
    "too few steps end in a jump": (
        lambda: profile().truncate(1, step=2.0, num_steps=1),
        [3, 4, 6, 10],
        [3, 1.5, 0, 0],  # past the bound: clamped
    ),
    "one after the other": (
        lambda: profile("add_remove").truncate(3).truncate(1),
        [3, 3.5, 10],
        [3, 2.25, 0],
    ),
    "a jump after steps": (
        lambda: profile().truncate(2, step=5.0).truncate(1),
        [3, 4, 10],
        [3, 1.5, 0],
    ),
    "radii": (lambda: radii(**TEN), [5, 6, 8, 10], [5, 4, 2, 0]),
    "radii above and below": (lambda: radii(below=[0.5], **TEN), [5, 6, 8, 10], [5, 4.5, 0]),
    "radii that fall": (lambda: radii(above=(2.0, -1.0), **TEN), [5, 7, 7, 10], [5, 3, 3, 0]),
    "radii beyond the bounds": (
        lambda: radii(9.0, (2.0, 2.0), **TEN),
        [9, 10, 10, 10],
        [9, 7, 5, 0],
    ),
    "radii longer than a step": (
        lambda: radii(0.0, (1.0, 5.0), step=2.0),
        [0, 1, 3],
        [0, -1, -3],
    ),
    "radii of each row": (
        lambda: radii(np.array([1.0, 2.0]), [[1.0], [3.0]], step=4.0),
        [[1, 2], [2, 5]],
        [[1, 0], [2, -1]],
    ),
    "radii shared by rows": (
        lambda: radii(np.array([1.0, 2.0]), [[1.0]], step=4.0),
        [[1, 2], [2, 3]],
        [[1, 0], [2, 1]],
    ),
}


def test_truncations_and_radii():
    made = jax.jit(lambda: {name: make() for name, (make, *_) in CASES.items()})()
    for name, (_, above, below) in CASES.items():
        found = made[name]
        assert (found.upper.tolist(), found.lower.tolist()) == (above, below), name
        levels = list(range(found.upper.shape[-1])), list(range(found.lower.shape[-1]))
        assert (
            found.upper_levels.ravel().tolist(),
            found.lower_levels.ravel().tolist(),
        ) == levels, name
        assert (found.neighbors == "add_remove") == (name == "one after the other")


def test_a_step_is_one_linear_piece_or_separate_ones(x64):
    """Steps of 2 from 4 (level 1) to the bound at 10: the cost rises by 1 for every 2."""

    @jax.jit
    def asked(y):
        steps = profile().truncate(1, step=2.0, num_steps=3)  # three of them end at 10 exactly
        return (
            piecewise_laplace(profile().truncate(1, step=2.0), 1.0).log_prob(y),
            piecewise_laplace(steps, 1.0).log_prob(y),
            inverse_sensitivity(steps, 1.0).log_prob(y),
        )

    linear, pieces, stepwise = map(np.asarray, asked(np.array([7.0, 9.0, 5.0, 6.5, 9.9, 0.1])))
    assert np.ptp((linear - pieces)[:5]) <= 1e-12  # below the value only one is cut at the bound
    np.testing.assert_allclose(linear[0] - linear[1], 0.5, atol=1e-12)
    np.testing.assert_allclose(stepwise[2] - stepwise[3], 0.5, atol=1e-12)
    assert np.isfinite(linear).all()


def test_constant_radii_are_the_laplace_distribution(x64):
    """Durfee 4.1, exactly: on the line, and truncated where there are bounds, wherever the radii
    meet them.
    """
    y, ends = np.linspace(-9.0, 12.0, 43), {"lower": -3.0, "upper": 10.0}
    inside = (y > -3) & (y < 10)

    @jax.jit
    def logs(y):
        def of_radii(count, **options):
            given = radii(2.0, np.full(count, 1.5), step=1.5, **options)
            return piecewise_laplace(given, 0.8).log_prob(y)

        leaking = laplace(2.0, 0.8, sensitivity=1.5)
        return (
            laplace(2.0, 0.4, sensitivity=1.5).log_prob(y),  # scale 2 * 1.5 / 0.8
            of_radii(2),
            laplace(2.0, 0.8, sensitivity=1.5, **ends).log_prob(y),
            *(of_radii(count, **ends) for count in (1, 7)),
            leaking.restrict(-3.0, 10.0).log_prob(y),
        )

    doubled, line, truncated, *bounded, leaking = map(np.asarray, logs(y))
    np.testing.assert_allclose(line, doubled, rtol=0, atol=1e-12)
    for found in bounded:
        np.testing.assert_allclose(found[inside], truncated[inside], rtol=0, atol=1e-12)
        assert np.isneginf(found[~inside & (y != -3) & (y != 10)]).all()
    # The control: the scale that leaks is another distribution.
    assert np.abs(leaking[inside] - truncated[inside]).max() > 0.1


def test_a_bad_jax_step_makes_its_own_row_nan():
    @jax.jit
    def both(step):
        row = np.array([1.0, 2, 3, 4, 5], np.float32)
        cut = median(row, lower=0, upper=20, neighbors="swap").truncate(1, step=step)
        made = cut, radii(step=step, below=[1.0], **TEN)
        return [piecewise_laplace(one, 1.0).log_prob(4.0) for one in made]

    for found in both(jnp.array([-1.0, 0.0, jnp.nan, jnp.inf, 20.0])):
        assert np.isnan(found).tolist() == [True] * 4 + [False]


VECTOR = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("word", "call"),
    [
        ("num_steps", lambda: profile().truncate(1, num_steps=2)),
        ("num_steps", lambda: inverse_sensitivity(profile().truncate(1, step=2.0), 1.0)),
        ("no bounds", lambda: radii(step=1.0).truncate(0)),
        ("together", lambda: radii(lower=0.0)),
        ("step", radii),
        # Three rows of one dataset would cost three epsilon; a batch says that it is one by the
        # axes of its radii.
        ("from_vector_radii", lambda: radii(VECTOR, step=4.0)),
        ("from_vector_radii", lambda: radii(VECTOR, np.ones((3, 2)), [1.0, 2.0], step=4.0)),
        (
            "from_vector_radii",
            lambda: from_local_sensitivity(
                VECTOR, lambda k: 1.0, num_levels=2, neighbors="swap", step=4.0
            ),
        ),
    ],
)
def test_what_is_no_profile(word, call):
    with pytest.raises(ValueError, match=word):
        call()
