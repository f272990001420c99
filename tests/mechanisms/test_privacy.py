"""The exact privacy audit: every dataset on an uneven grid, every neighbor, both limits at every
breakpoint.

Each mechanism must stay within epsilon, in loss and in range; piecewise Laplace must attain the
range (the constant cannot be improved); and every deliberate mistake must be caught.
"""

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import cache, lru_cache

import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import (
    PiecewiseExponential,
    SensitivityProfile,
    distinct_count,
    from_radii,
    inverse_sensitivity,
    laplace,
    maximum,
    median,
    nonnegative_sum,
    order_statistic,
    piecewise_laplace,
    quantile,
)
from dpjax.mechanisms.from_profile import distribution_on_line
from tests.support import oracle
from tests.support.audit import Audit, audit, audit_pairs, neighboring_rows, padded
from tests.support.distributions import of_one_size

GRID = (0.0, 1.0, 5.0, 6.0, 20.0)
LOW, HIGH = GRID[0], GRID[-1]
RANGE = HIGH - LOW
ROUNDING = 1e-9
DATASETS = {
    "swap": oracle.all_datasets([4], GRID),
    "add_remove": oracle.all_datasets(range(5), GRID),
}
EPSILONS = [0.5, 2.0]
MECHANISMS = {"piecewise_laplace": piecewise_laplace, "inverse_sensitivity": inverse_sensitivity}

STATISTICS = {
    "median": lambda x, **kw: median(x, **kw),
    "lower median": lambda x, **kw: median(x, definition="lower", **kw),
    "quantile 1/4": lambda x, **kw: quantile(x, Fraction(1, 4), **kw),
    "lower quantile 1/4": lambda x, **kw: quantile(x, Fraction(1, 4), definition="lower", **kw),
    "quantile 2/3": lambda x, **kw: quantile(x, Fraction(2, 3), **kw),
    "lower quantile 2/3": lambda x, **kw: quantile(x, Fraction(2, 3), definition="lower", **kw),
    "quantile 9/10": lambda x, **kw: quantile(x, 0.9, **kw),
    "first": lambda x, **kw: order_statistic(x, 1, **kw),
    "second": lambda x, **kw: order_statistic(x, 2, **kw),
    "fourth": lambda x, **kw: order_statistic(x, 4, **kw),
    "truncated": lambda x, **kw: median(x, **kw).truncate(1),
    "truncated quantile": lambda x, **kw: quantile(x, Fraction(2, 3), **kw).truncate(2),
    "steps": lambda x, **kw: median(x, **kw).truncate(1, step=RANGE / 2, num_steps=1),
    "linear steps": lambda x, **kw: median(x, **kw).truncate(1, step=RANGE),
}
RADII = np.array([0.5, 7.0])[:, None, None, None]
SMOOTH = {"sharp": {}, "rho": {"rho": RADII}, "rho extended": {"rho": RADII, "support": "extended"}}


def profile_of(statistic, neighbors, datasets=None):
    x, count = padded(DATASETS[neighbors] if datasets is None else datasets, 4)
    return STATISTICS[statistic](
        jnp.asarray(x), lower=LOW, upper=HIGH, neighbors=neighbors, num_records=count
    )


def check(distribution, neighbors, epsilon):
    result = audit(distribution, DATASETS[neighbors], neighbors, GRID)
    assert (result.loss <= epsilon * (1 + ROUNDING)).all(), result
    assert (result.range <= epsilon * (1 + ROUNDING)).all(), result
    return result


@lru_cache
def all_profiles(neighbors):
    """The profiles of all statistics as one, padded to one length: for each mechanism and relation
    one compiled program.
    """
    profiles = [profile_of(name, neighbors) for name in STATISTICS if name != "linear steps"]

    def stacked(side):
        arrays = [np.asarray(getattr(profile, side)) for profile in profiles]
        longest = max(array.shape[-1] for array in arrays)
        arrays = [
            np.atleast_2d(
                np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, longest - a.shape[-1])], mode="edge")
            )
            for a in arrays
        ]
        return np.stack(arrays)

    return {side: stacked(side) for side in ("upper", "lower", "upper_levels", "lower_levels")}


QUICK = [(name, neighbors, "sharp") for name in MECHANISMS for neighbors in DATASETS]


@pytest.mark.parametrize(
    ("name", "neighbors", "smooth"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
        for case in itertools.product(MECHANISMS, DATASETS, SMOOTH)
    ],
)
def test_loss_and_range_stay_within_epsilon(name, neighbors, smooth, x64):
    """All statistics, epsilons and radii along leading axes; piecewise Laplace also with steps that
    go on, where it is refused.
    """
    profile = SensitivityProfile(
        **{k: jnp.asarray(v) for k, v in all_profiles(neighbors).items()}, neighbors=neighbors
    )
    epsilon = np.array(EPSILONS)[:, None]
    check(MECHANISMS[name](profile, epsilon[..., None], **SMOOTH[smooth]), neighbors, epsilon)
    if name == "piecewise_laplace":
        options = {k: v[:, 0] if k == "rho" else v for k, v in SMOOTH[smooth].items()}
        check(
            piecewise_laplace(profile_of("linear steps", neighbors), epsilon, **options),
            neighbors,
            epsilon[:, 0],
        )


@pytest.mark.parametrize("neighbors", DATASETS)
def test_piecewise_laplace_attains_the_bounded_range(neighbors, x64):
    for epsilon in EPSILONS:
        result = check(
            piecewise_laplace(profile_of("median", neighbors), epsilon), neighbors, epsilon
        )
        assert result.range >= epsilon * (1 - ROUNDING)
        assert result.loss >= 0.9 * epsilon  # and nearly the pure loss


def values(neighbors):
    return jnp.array(
        [oracle.quantile(data, Fraction(1, 2), "linear", LOW, HIGH) for data in DATASETS[neighbors]]
    )


def steep_statistic(neighbors):
    """A statistic whose sensitivity is well below its range, which is where Laplace on an interval
    goes wrong: the mean of four records under swap, their number under add/remove. Returns its
    values, its sensitivity and its range.
    """
    if neighbors == "swap":
        return jnp.array([np.mean(data) for data in DATASETS["swap"]]), RANGE / 4, (LOW, HIGH)
    return jnp.array([float(len(data)) for data in DATASETS["add_remove"]]), 1.0, (0.0, 4.0)


@pytest.mark.parametrize("neighbors", DATASETS)
def test_bounded_laplace(neighbors, x64):
    value, sensitivity, (low, high) = steep_statistic(neighbors)
    for epsilon in EPSILONS:
        check(
            laplace(value, epsilon, sensitivity=sensitivity, lower=low, upper=high),
            neighbors,
            epsilon,
        )
        check(
            laplace(values(neighbors), epsilon, sensitivity=RANGE, lower=LOW, upper=HIGH),
            neighbors,
            epsilon,
        )


@pytest.mark.parametrize("neighbors", ["add_remove", pytest.param("swap", marks=pytest.mark.slow)])
def test_unbounded_laplace_has_the_loss_epsilon_and_twice_the_range(neighbors, x64):
    value, sensitivity, _ = steep_statistic(neighbors)
    for epsilon in EPSILONS:
        result = audit(
            laplace(value, epsilon, sensitivity=sensitivity), DATASETS[neighbors], neighbors, GRID
        )
        assert result.loss == pytest.approx(epsilon, rel=ROUNDING)
        assert result.range == pytest.approx(2 * epsilon, rel=ROUNDING)


@cache
def midpoint_median(data):
    return oracle.quantile(data, Fraction(1, 2), "linear", LOW, HIGH)


@cache
def local_sensitivity(data):
    return max(
        abs(midpoint_median(data) - midpoint_median(other))
        for other in oracle.neighbors_of(data, "swap", GRID)
    )


def local_sensitivities(data, levels):
    """The largest local sensitivity of the midpoint median within 0, 1, ... swaps, by breadth-first
    search.
    """
    return oracle.reachable(data, levels, local_sensitivity, "swap", GRID)[0]


def radii_distribution(radii, epsilon, mechanism, **options):
    return mechanism(from_radii(values("swap"), radii, neighbors="swap", **options), epsilon)


@pytest.mark.slow
def test_radius_bounded_variants(x64):
    """Corollary 5.1 with the tight index l-1, on the line with steps and on the interval with a
    jump or steps.
    """
    radii = np.array([local_sensitivities(data, 3) for data in DATASETS["swap"]])
    for epsilon in EPSILONS:
        for mechanism in MECHANISMS.values():
            check(
                radii_distribution(radii, epsilon, mechanism, lower=LOW, upper=HIGH),
                "swap",
                epsilon,
            )
        check(
            radii_distribution(
                radii, epsilon, piecewise_laplace, lower=LOW, upper=HIGH, step=RANGE
            ),
            "swap",
            epsilon,
        )
        check(radii_distribution(radii, epsilon, piecewise_laplace, step=RANGE), "swap", epsilon)


def pairs_of_radii(rng, count):
    """Random neighbors (f, R) and (f', R') that keep Definition 5.1 and nothing more; the last
    radius is the global one.
    """
    values, radii = rng.uniform(LOW, HIGH, (count, 2)), np.zeros((count, 2, 3))
    radii[..., 0] = np.abs(values[:, :1] - values[:, 1:]) + rng.exponential(
        2, (count, 2)
    ) * rng.integers(0, 2, (count, 2))
    for level in (1, 2):
        floor = radii[..., level - 1].max(axis=-1, keepdims=True)
        radii[..., level] = floor + rng.exponential(3, (count, 2)) * rng.integers(0, 2, (count, 2))
    return values, radii


@pytest.mark.parametrize(
    ("options", "count"),
    [
        pytest.param({"lower": LOW, "upper": HIGH}, 300, marks=pytest.mark.slow),
        pytest.param({"step": 60.0}, 300, marks=pytest.mark.slow),
        pytest.param({"lower": LOW, "upper": HIGH, "step": 60.0}, 300, marks=pytest.mark.slow),
        ({"lower": LOW, "upper": HIGH, "step": 60.0}, 60),
    ],
)
def test_radii_that_keep_definition_5_1_and_meet_the_bounds_anywhere(options, count, x64):
    """Random pairs, audited pair by pair; radii pass a bound in one dataset and stop before it in
    the other.
    """
    values, radii = pairs_of_radii(np.random.default_rng(0), count)
    for epsilon in EPSILONS:
        for mechanism in MECHANISMS.values() if "step" not in options else [piecewise_laplace]:
            distribution = mechanism(
                from_radii(values.ravel(), radii.reshape(-1, 3), neighbors="swap", **options),
                epsilon,
            )
            result = audit_pairs(distribution)
            assert result.loss <= epsilon * (1 + ROUNDING), result
            assert result.range <= epsilon * (1 + ROUNDING), result


def test_asymmetric_radii_around_values_beyond_the_bounds(x64):
    """Values are clamped after the radii are added: clamping f(x) first leaked 2 epsilon on these
    two datasets.
    """
    values = np.array([9.98, -2.03])
    above, below = (
        np.array([[0.0, 0, 0], [12.01, 0, 0]]),
        np.array([[12.97, 11.47, 0.02], [0.0, 0.96, 11.47]]),
    )
    for epsilon in EPSILONS:
        for mechanism in MECHANISMS.values():
            distribution = mechanism(
                from_radii(
                    values, above, radii_below=below, neighbors="swap", lower=0.0, upper=10.0
                ),
                epsilon,
            )
            assert audit_pairs(distribution).range <= epsilon * (1 + ROUNDING)


@pytest.mark.parametrize("count", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_control_lines_cut_at_the_bound_instead_of_values_clamped_there(count, x64):
    values, radii = pairs_of_radii(np.random.default_rng(0), count)
    free = from_radii(values.ravel(), radii.reshape(-1, 3), neighbors="swap", step=60.0)
    upper = jnp.concatenate([free.upper, jnp.maximum(free.upper[:, -1:], HIGH)], axis=-1)
    lower = jnp.concatenate([free.lower, jnp.minimum(free.lower[:, -1:], LOW)], axis=-1)
    distribution = piecewise_laplace(
        SensitivityProfile(upper, lower, jnp.arange(5.0), jnp.arange(5.0), neighbors="swap"), 2.0
    )
    assert audit_pairs(distribution.restrict(LOW, HIGH)).range >= 1.2 * 2.0


# Negative controls. Each is a mistake that somebody could make, and the audit must see it.


def assert_caught(distribution, neighbors, epsilon, at_least=1.2):
    result = audit(distribution, DATASETS[neighbors], neighbors, GRID)
    assert max(result.loss, result.range) >= at_least * epsilon, result
    return result


@pytest.mark.parametrize("name", MECHANISMS)
def test_control_add_remove_values_used_under_swap(name, x64):
    profile = profile_of("median", "add_remove", DATASETS["swap"])
    for epsilon in EPSILONS:
        assert (
            assert_caught(MECHANISMS[name](profile, epsilon), "swap", epsilon).loss >= 1.2 * epsilon
        )


@pytest.mark.parametrize("neighbors", DATASETS)
def test_control_flat_cost_zero_in_the_smooth_piecewise_laplace(neighbors, x64):
    for epsilon in EPSILONS:
        distribution = distribution_on_line(
            profile_of("median", neighbors),
            epsilon,
            piece_costs=lambda levels: (levels[..., :-1] + 1, levels[..., 1:] + 1),
            flat_cost=0.0,
            rho=0.5,
            support="restricted",
        )
        assert assert_caught(distribution, neighbors, epsilon).loss >= 1.2 * epsilon


@pytest.mark.parametrize("neighbors", DATASETS)
def test_control_a_level_off_by_one_on_one_side(neighbors, x64):
    """Piecewise Laplace only: a constant shift of one side of inverse sensitivity happens to stay
    private.
    """
    profile = profile_of("median", neighbors)
    for epsilon in EPSILONS:
        shifted = replace(profile, upper_levels=profile.upper_levels - 1)
        assert (
            assert_caught(piecewise_laplace(shifted, epsilon), neighbors, epsilon).loss
            >= 1.2 * epsilon
        )


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("neighbors", DATASETS)
def test_control_levels_counted_twice(name, neighbors, x64):
    profile = profile_of("median", neighbors)
    double = replace(
        profile, upper_levels=2 * profile.upper_levels, lower_levels=2 * profile.lower_levels
    )
    for epsilon in EPSILONS:
        assert (
            assert_caught(MECHANISMS[name](double, epsilon), neighbors, epsilon).loss
            >= 1.2 * epsilon
        )


@pytest.mark.parametrize("neighbors", DATASETS)
def test_control_laplace_renormalized_at_the_unbounded_scale(neighbors, x64):
    value, sensitivity, (low, high) = steep_statistic(neighbors)
    for epsilon in EPSILONS:
        distribution = laplace(value, epsilon, sensitivity=sensitivity).restrict(low, high)
        assert assert_caught(distribution, neighbors, epsilon).loss >= 1.2 * epsilon


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("neighbors", DATASETS)
def test_control_the_last_interval_to_the_bound_is_missing(name, neighbors, x64):
    profile = profile_of("median", neighbors)
    short = replace(profile, upper=profile.upper[..., :-1], upper_levels=profile.upper_levels[:-1])
    assert np.isinf(assert_caught(MECHANISMS[name](short, 1.0), neighbors, 1.0).loss)


def test_control_steps_shorter_than_the_global_sensitivity(x64):
    x, count = padded(DATASETS["swap"], 4)
    profile = median(jnp.asarray(x), lower=LOW, upper=HIGH, neighbors="swap", num_records=count)
    for epsilon in EPSILONS:
        assert_caught(piecewise_laplace(profile.truncate(1, step=3.0), epsilon), "swap", epsilon)


def test_control_a_constant_radius_of_the_local_sensitivity(x64):
    radii = np.array([np.full(6, local_sensitivities(data, 0)[0]) for data in DATASETS["swap"]])
    for epsilon in EPSILONS:
        assert_caught(
            radii_distribution(radii, epsilon, piecewise_laplace, lower=LOW, upper=HIGH),
            "swap",
            epsilon,
        )


def test_control_floor_instead_of_ceil_in_the_rank(x64):
    """The lower median read at floor((n + l)/2) on the upper side."""
    x, count = padded(DATASETS["add_remove"], 4, fill=HIGH)
    profile = median(
        jnp.asarray(x),
        lower=LOW,
        upper=HIGH,
        neighbors="add_remove",
        definition="lower",
        num_records=count,
    )
    ordered = np.concatenate(
        [np.full((len(x), 1), LOW), np.sort(x, axis=-1), np.full((len(x), 1), HIGH)], axis=-1
    )
    level = np.arange(profile.upper.shape[-1])
    floors = np.take_along_axis(
        ordered, np.minimum((count[:, None] + level[None]) // 2, 5), axis=-1
    )
    floors[:, -1] = HIGH
    wrong = replace(profile, upper=jnp.maximum(profile.upper[:, :1], floors))
    for epsilon in EPSILONS:
        assert_caught(piecewise_laplace(wrong, epsilon), "add_remove", epsilon)


def test_control_epsilon_off_by_a_tenth(x64):
    """The audit measures: it sees a rate that is ten percent too high."""
    distribution = piecewise_laplace(profile_of("median", "swap"), 1.0)
    faster = PiecewiseExponential(
        distribution.edges,
        distribution.cost_left,
        distribution.cost_right,
        distribution.rate * 1.1,
        center=distribution.center,
    )
    assert audit(faster, DATASETS["swap"], "swap", GRID).range == pytest.approx(1.1, rel=1e-9)


def test_control_truncating_beside_a_knot_that_data_move(x64):
    """Why truncate keeps whole pieces: cutting each side at its own place is caught."""
    profile = profile_of("median", "swap")
    rows = jnp.arange(profile.upper.shape[0])[:, None] % 2 == 0
    mixed = replace(
        profile,
        upper=jnp.where(
            rows, profile.upper, jnp.minimum(profile.upper, profile.upper[:, :1] + 1.0)
        ),
    )
    mixed = replace(mixed, upper=mixed.upper.at[:, -1].set(HIGH))
    for epsilon in EPSILONS:
        assert_caught(piecewise_laplace(mixed, epsilon), "swap", epsilon)


# --- profiles with a resolution ---

CELLS = (0.0, 1.0, 2.0, 3.0, 4.0)
ON_CELLS = {
    "median": lambda x, **kw: median(x, **kw),
    "linear median": lambda x, **kw: median(x, definition="linear", **kw),
    "continuous median": lambda x, **kw: median(x, definition="continuous", **kw),
    "lower quantile 9/10": lambda x, **kw: quantile(x, 0.9, definition="lower", **kw),
    "second": lambda x, **kw: order_statistic(x, 2, **kw),
    "truncated": lambda x, **kw: median(x, **kw).truncate(2),
    "maximum": lambda x, neighbors, **kw: maximum(x, **kw).shift(1),
    "nonnegative sum": lambda x, neighbors, upper, lower, **kw: nonnegative_sum(
        x, upper=6, **kw
    ).shift(2),
    "distinct": lambda x, neighbors, lower, **kw: distinct_count(x.astype(int), **kw).shift(1),
    "sum": lambda x, neighbors, **kw: dpjax.statistics.sum(
        x, neighbors=neighbors, max_count=x.shape[-1] if neighbors == "add_remove" else None, **kw
    ),
}


def loss_on_cells(distribution, datasets, neighbors):
    """The largest log-ratio of the probability of a value over all neighbors, and the largest
    range.
    """
    distribution, points = of_one_size(distribution), np.arange(49) / 2
    logs = np.asarray(
        distribution.log_prob(points.reshape(-1, *(1,) * len(distribution.batch_shape))), np.float64
    )
    logs = np.moveaxis(logs, 0, -1)
    first, second = neighboring_rows(tuple(datasets), neighbors, CELLS)
    one, other = logs[..., first, :], logs[..., second, :]
    np.testing.assert_array_equal(np.isneginf(one), np.isneginf(other))
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isneginf(one), 0.0, one - other)
    forward, backward = np.maximum(ratio.max(axis=-1), 0.0), np.maximum((-ratio).max(axis=-1), 0.0)
    return Audit(np.maximum(forward, backward).max(axis=-1), (forward + backward).max(axis=-1))


def on_cells(name, neighbors, most):
    datasets = oracle.all_datasets([most] if neighbors == "swap" else range(most + 1), CELLS)
    x, count = padded(datasets, most)
    options = {
        "lower": 0,
        "upper": 4,
        "neighbors": neighbors,
        "resolution": 1,
        "num_records": count,
    }
    return datasets, ON_CELLS[name](jnp.asarray(x), **options)


@pytest.mark.parametrize("neighbors", ["swap", "add_remove"])
@pytest.mark.parametrize(
    "name",
    [name if name == "median" else pytest.param(name, marks=pytest.mark.slow) for name in ON_CELLS],
)
def test_values_keep_their_mass_and_the_promise_on_a_grid(name, neighbors, x64):
    """All datasets of up to six records of five values: most of them have ties."""
    datasets, profile = on_cells(name, neighbors, 6)
    epsilon = np.array([0.3, 1.0, 3.0])[:, None]
    for mechanism in (piecewise_laplace, inverse_sensitivity):
        if mechanism is inverse_sensitivity and not profile.integer_levels:
            continue
        distribution = mechanism(profile, epsilon)
        result = loss_on_cells(distribution, datasets, neighbors)
        assert (result.loss <= epsilon[:, 0] * (1 + ROUNDING)).all(), result
        assert (result.range <= epsilon[:, 0] * (1 + ROUNDING)).all(), result
        # Some neighbors need all of it, and so the depth is not wasted
        if name in ("median", "lower quantile 9/10"):
            np.testing.assert_allclose(result.range, epsilon[:, 0], rtol=ROUNDING)
        assert (result.range >= 0.9 * epsilon[:, 0]).all(), result
    # Every change can move a sum
    assert np.asarray(profile.depth).max() >= {"sum": 1, "distinct": 2}.get(name, 3)


@pytest.mark.parametrize("neighbors", ["swap", "add_remove"])
@pytest.mark.parametrize(
    ("change", "factor"),
    [(lambda depth: 1 - depth, 1.5), (lambda depth: -jnp.ones_like(depth), 2.0)],
    ids=["2 - 2 c", "-c"],
)
def test_control_a_value_of_a_lower_cost_is_not_private(change, factor, neighbors, x64):
    """The range that the definition gives it, over all datasets
    (``test_the_definition_on_a_grid``).
    """
    datasets, profile = on_cells("median", neighbors, 5)
    for mechanism, epsilon in itertools.product((piecewise_laplace, inverse_sensitivity), EPSILONS):
        right = mechanism(profile, epsilon)
        near, far = (
            cost.at[..., 0].add(change(profile.depth))
            for cost in (right.upper.cost_near, right.upper.cost_far)
        )
        wrong = replace(right, upper=replace(right.upper, cost_near=near, cost_far=far))
        result = loss_on_cells(wrong, datasets, neighbors)
        np.testing.assert_allclose(result.range, factor * epsilon, rtol=ROUNDING)
        assert result.loss > 1.01 * epsilon


@pytest.mark.parametrize("kind", ["piecewise_laplace", "inverse_sensitivity"])
@pytest.mark.parametrize("neighbors", ["swap", "add_remove"])
def test_the_definition_on_a_grid(neighbors, kind):
    """The range over all datasets, computed apart from the library: epsilon exactly, and 1.5 and 2
    times that for the controls.
    """
    datasets = oracle.all_datasets([5] if neighbors == "swap" else range(6), CELLS)
    values, costs = {}, {}
    for data in datasets:
        sides = oracle.extremes(
            list(data), 12, lambda d: oracle.quantile(d, "1/2", "lower", 0, 4), neighbors, 0, 4
        )
        values[data] = int(sides[0][0])
        _, costs[data] = oracle.costs_on_grid(
            *[[(i, int(v)) for i, v in enumerate(side)] for side in sides], kind
        )
    for change, factor in (
        (lambda cost: cost, 1.0),
        (lambda cost: 2 * cost, 1.5),
        (lambda cost: cost - 1, 2.0),
    ):
        for epsilon in EPSILONS:
            logs = {}
            for data, own in costs.items():
                changed = [
                    change(cost) if y == values[data] else cost for y, cost in enumerate(own)
                ]
                logs[data] = np.log(oracle.probabilities(changed, epsilon))
            ratios = [
                logs[a] - logs[b]
                for a in datasets
                for b in oracle.neighbors_of(a, neighbors, CELLS)
                if b in logs
            ]
            assert max(np.ptp(ratio) for ratio in ratios) == pytest.approx(
                factor * epsilon, rel=1e-12
            )
            assert (max(np.abs(ratio).max() for ratio in ratios) > 1.01 * epsilon) == (factor > 1)
