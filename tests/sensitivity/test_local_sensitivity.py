"""Profiles from local sensitivities and from radii that differ above and below, exactly audited."""

import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax.mechanisms import inverse_sensitivity, piecewise_laplace
from dpjax.sensitivity import profile as profile_file
from dpjax.sensitivity.radii import from_local_sensitivity, from_radii
from tests.support import oracle
from tests.support.audit import audit, audit_pairs

GRID = (0.0, 1.0, 5.0, 6.0, 20.0)
LOW, HIGH = GRID[0], GRID[-1]
DATASETS = oracle.all_datasets([4], GRID)
RANK = 2
MECHANISMS = (piecewise_laplace, inverse_sensitivity)


def local_sensitivities(distances):
    """Of x[2] under swap, at each distance: the widest gap of distance + 1 places that ranks around
    2 leave (Nissim et al.).
    """
    x = np.array([[LOW] * 9 + list(data) + [HIGH] * 9 for data in DATASETS])  # x[j] is column 8 + j
    at = 8 + RANK
    return np.stack(
        [
            np.max([x[:, at + t] - x[:, at + t - k - 1] for t in range(k + 2)], axis=0)
            for k in range(distances)
        ],
        axis=-1,
    )


VALUES = np.array([data[RANK - 1] for data in DATASETS])


def distribution_of(array, mechanism=piecewise_laplace, epsilon=2.0, **options):
    options = options or {"lower": LOW, "upper": HIGH}
    return mechanism(from_local_sensitivity(VALUES, array, neighbors="swap", **options), epsilon)


def test_the_formula_is_the_largest_local_sensitivity_by_breadth_first_search():
    def local(data):
        return max(
            abs(data[RANK - 1] - other[RANK - 1])
            for other in oracle.neighbors_of(data, "swap", GRID)
        )

    found = local_sensitivities(4)
    for row, data in enumerate(DATASETS[::5]):
        np.testing.assert_array_equal(
            found[5 * row], oracle.reachable(data, 3, local, "swap", GRID)[0]
        )


@pytest.mark.parametrize("mechanism", [piecewise_laplace, inverse_sensitivity])
def test_the_index_l_minus_1_is_private_and_better_than_the_printed_one(mechanism, x64):
    tight, loose = local_sensitivities(6)[:, :5], local_sensitivities(6)[:, 1:]
    epsilon = np.array([0.5, 2.0])
    distributions = [
        distribution_of(array, mechanism, epsilon[:, None]) for array in (tight, loose)
    ]
    for distribution in distributions:
        result = audit(distribution, DATASETS, "swap", GRID)
        assert (result.loss <= epsilon * (1 + 1e-9)).all()
        assert (result.range <= epsilon * (1 + 1e-9)).all()
    errors = [
        np.asarray(distribution.mean_abs_error(VALUES)).mean(axis=-1)
        for distribution in distributions
    ]
    assert (errors[0] < 0.98 * errors[1]).all()


def test_with_steps_after_the_last_level(x64):
    for options in ({"step": HIGH - LOW}, {"step": HIGH - LOW, "lower": LOW, "upper": HIGH}):
        result = audit(distribution_of(local_sensitivities(3), **options), DATASETS, "swap", GRID)
        assert result.range == pytest.approx(2.0, rel=1e-9)


def test_control_the_local_sensitivity_of_the_dataset_alone(x64):
    constant = np.repeat(local_sensitivities(1), 5, axis=-1)
    assert audit(distribution_of(constant), DATASETS, "swap", GRID).range >= 1.2 * 2.0


def test_functions_arrays_and_a_running_maximum():
    options = {"neighbors": "swap", "lower": LOW, "upper": HIGH}
    array = local_sensitivities(3)
    called = from_local_sensitivity(VALUES, lambda k: array[:, k], num_levels=3, **options)
    given = from_local_sensitivity(VALUES, local_sensitivities(6), num_levels=3, **options)
    np.testing.assert_array_equal(called.upper, given.upper)
    np.testing.assert_array_equal(called.lower, given.lower)
    falling = from_local_sensitivity(5.0, [1.0, 0.5, 2.0], neighbors="swap", step=3.0)
    assert falling.upper.tolist() == [5, 6, 7, 9]
    scalar = from_local_sensitivity(
        jnp.zeros(2), lambda k: [1.0], neighbors="edge", num_levels=2, step=3.0
    )
    assert scalar.upper.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert scalar.neighbors == "edge"


@pytest.mark.parametrize(
    ("array", "num_levels", "message"),
    [
        (lambda k: 1.0, None, "num_levels must be given"),
        ([1.0, 2.0], 3, "at least 3 distances"),
        (1.0, None, "at least 1 distances"),
        ([1.0], 0, "positive integer"),
        ([1.0], True, "positive integer"),
    ],
)
def test_bad_arguments_are_named(array, num_levels, message):
    with pytest.raises(ValueError, match=message):
        from_local_sensitivity(0.0, array, num_levels=num_levels, neighbors="swap", step=1.0)


def uneven_pairs(rng, count, step):
    """Random neighbors whose values keep Corollary 3.1 on each side with nothing to spare, steps
    after the last level too.
    """
    sides = []
    values = rng.uniform(LOW - 3, HIGH + 3, (count, 2))  # outside of the bounds too
    for sign in (1, -1):
        ends = [sign * values]
        for _ in range(3):  # at level l + 1 at least the neighbor's and the own value at level l
            ends.append(
                ends[-1].max(axis=-1, keepdims=True)
                + rng.exponential(3, (count, 2)) * rng.integers(0, 2, (count, 2))
            )
        sides.append(np.diff(np.stack(ends, axis=-1), axis=-1))
        assert np.abs(ends[-1][:, 0] - ends[-1][:, 1]).max() <= step
    return values, *sides


UNEVEN = [
    pytest.param({"lower": LOW, "upper": HIGH}, 300, marks=pytest.mark.slow),
    pytest.param({"step": 40.0}, 300, marks=pytest.mark.slow),
    pytest.param({"lower": LOW, "upper": HIGH, "step": 40.0}, 300, marks=pytest.mark.slow),
    ({"lower": LOW, "upper": HIGH, "step": 40.0}, 60),
]


@pytest.mark.parametrize(("options", "count"), UNEVEN)
def test_radii_that_differ_above_and_below(options, count, x64):
    values, above, below = uneven_pairs(np.random.default_rng(0), count, 40.0)
    arguments = values.ravel(), above.reshape(-1, 3)
    profile = from_radii(*arguments, radii_below=below.reshape(-1, 3), neighbors="swap", **options)
    for mechanism in MECHANISMS if "step" not in options else [piecewise_laplace]:
        result = audit_pairs(mechanism(profile, 2.0))
        assert result.loss <= 2.0 * (1 + 1e-9)
        assert result.range <= 2.0 * (1 + 1e-9)
        assert result.range >= 1.9
    # The controls: the radii of one side on both, and steps shorter than what a change can do.
    assert (
        audit_pairs(
            piecewise_laplace(from_radii(*arguments, neighbors="swap", **options), 2.0)
        ).range
        >= 1.2 * 2.0
    )
    if "step" in options:
        short = from_radii(
            *arguments,
            radii_below=below.reshape(-1, 3),
            neighbors="swap",
            **{**options, "step": 1.0},
        )
        assert audit_pairs(piecewise_laplace(short, 2.0)).range >= 1.2 * 2.0


def loose_pairs(rng, count):
    """Values of neighbors up to 1 apart, with valid radii (Definition 5.1) that may be far more
    than that.
    """
    values = rng.uniform(0, 1, (count, 1)) + np.concatenate(
        [np.zeros((count, 1)), rng.uniform(-1, 1, (count, 1))], axis=1
    )
    ends = [np.abs(np.diff(values, axis=1))]
    for _ in range(4):
        jump = rng.exponential(2, (count, 2)) * (rng.uniform(size=(count, 2)) < 0.6)
        ends.append(ends[-1].max(axis=-1, keepdims=True) + jump)
    return values.ravel(), np.stack(ends[1:], axis=-1).reshape(2 * count, 4)


@pytest.mark.slow
@pytest.mark.parametrize("num_steps", [None, 3])
def test_steps_after_radii_that_are_longer_than_a_step(num_steps, x64, monkeypatch):
    """The steps are those of the global sensitivity, 1, and a value never lies further out than
    they allow.
    """
    values, radii = loose_pairs(np.random.default_rng(0), 60)
    profile = from_radii(values, radii, neighbors="swap", lower=-30, upper=30)
    mechanism = piecewise_laplace if num_steps is None else inverse_sensitivity

    def audited(k):
        return audit_pairs(mechanism(profile.truncate(k, step=1.0, num_steps=num_steps), 1.0))

    for k in (1, 3):
        assert audited(k).range <= 1 + 1e-9
    assert audited(2).range > 0.9  # and it is tight
    monkeypatch.setattr(profile_file, "_no_faster_than", lambda values, levels, step: values)
    assert max(audited(k).range for k in (1, 2, 3)) > 1.5


def test_a_range_ends_at_its_bounds_for_every_dataset():
    """Not at a rounded sum that comes close."""
    x = np.random.default_rng(1).uniform(0.1, 1000, (50, 5))
    distribution = piecewise_laplace(
        dpjax.median(x, lower=0.1, upper=1000, neighbors="swap").truncate(1, step=999.9), 1.0
    )
    ends = np.asarray(distribution.edges)[:, [0, -1]]
    assert (ends == np.array([0.1, 1000], np.float32)).all()
