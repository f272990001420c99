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
    "nothing left to cut": (lambda: profile().truncate(3), [3, 4, 6.5, 7, 10], [3, 1.5, 1, 0.5, 0]),
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
        assert (found.upper_levels.tolist(), found.lower_levels.tolist()) == levels, name
        assert (found.neighbors == "add_remove") == (name == "one after the other")


def test_a_step_is_one_linear_piece_or_separate_ones(x64):
    """Steps of 2 from 4 (level 1) to the bound at 10: the cost rises by 1 for every 2."""

    @jax.jit
    def asked():
        steps = profile().truncate(1, step=2.0, num_steps=3)
        linear = piecewise_laplace(profile().truncate(1, step=2.0), 1.0)
        pieces, stepwise = piecewise_laplace(steps, 1.0), inverse_sensitivity(steps, 1.0)
        at = np.array([7.0, 9.0, 5.0, 6.5])
        ends = np.array([4.0, 4.5, 7.3, 9.9, 10.0])
        falls = [-jnp.diff(one.log_prob(at)) for one in (linear, pieces, stepwise)]
        return falls, [(one.cdf(ends), one.cdf(0.0)) for one in (linear, pieces, stepwise)]

    (linear, pieces, stepwise), sums = asked()
    np.testing.assert_allclose(linear, pieces, atol=1e-12)
    np.testing.assert_allclose([linear[0], stepwise[2]], 0.5, atol=1e-12)
    # Three steps end at 10 exactly
    above = [(cdf - cdf[0]) / (1 - cdf[0]) for cdf, _ in sums[:2]]
    np.testing.assert_allclose(above[0], above[1], atol=1e-12)
    for cdf, at_low in sums:
        assert (float(at_low), float(cdf[-1])) == (0, pytest.approx(1, abs=1e-12))


def test_constant_radii_are_the_laplace_distribution(x64):
    """Durfee 4.1, exactly: on the line, and truncated where there are bounds, wherever the radii
    meet them.
    """
    y, ends = np.linspace(-9.0, 12.0, 43), {"lower": -3.0, "upper": 10.0}
    inside = (y > -3) & (y < 10)

    def asked(distribution):
        error = distribution.mean_abs_error(2.0)
        return distribution.cdf(y), distribution.log_prob(y[inside]), error

    def of_radii(count, **options):
        profile = radii(2.0, np.full(count, 1.5), step=1.5, **options)
        return asked(piecewise_laplace(profile, 0.8))

    @jax.jit
    def both():
        doubled = laplace(2.0, 0.4, sensitivity=1.5)  # scale 2 * 1.5 / 0.8
        truncated = laplace(2.0, 0.8, sensitivity=1.5, **ends)
        leaking = laplace(2.0, 0.8, sensitivity=1.5).restrict(-3.0, 10.0)
        bounded = [of_radii(count, **ends) for count in (1, 7)]
        return asked(doubled), of_radii(2), asked(truncated), bounded, leaking.cdf(y)

    doubled, line, truncated, bounded, leaking = both()
    for found, wanted in ((line, doubled), *((one, truncated) for one in bounded)):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    # The control: the scale that leaks is another distribution.
    assert np.abs(leaking - truncated[0])[y == 0] > 0.01


def test_a_bad_jax_step_makes_its_own_row_nan():
    @jax.jit
    def both(step):
        row = np.array([1.0, 2, 3, 4, 5], np.float32)
        cut = median(row, lower=0, upper=20, neighbors="swap").truncate(1, step=step)
        made = cut, radii(step=step, below=[1.0], **TEN)
        return [piecewise_laplace(one, 1.0).cdf(4.0) for one in made]

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
        ("axis of levels", lambda: radii(above=1.0, step=1.0)),
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
