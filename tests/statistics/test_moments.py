"""Profiles of mean, sum and variance: brute force, golden numbers, the exact audit with its
controls, precision and padding.
"""

import itertools
import json
import pathlib
from dataclasses import replace
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import statistics
from dpjax.mechanisms import inverse_sensitivity, piecewise_laplace
from dpjax.sensitivity.profile import SensitivityProfile
from tests.support import oracle
from tests.support.audit import audit, padded
from tests.support.distributions import of_one_size

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "B2_mean.json").read_text())
GRID = (-4.0, -1.0, 0.0, 2.0, 7.0)
LOW, HIGH = GRID[0], GRID[-1]
BOUNDS = {"lower": LOW, "upper": HIGH}
SMALL = {
    "swap": oracle.all_datasets([1, 2, 3], GRID),
    "add_remove": oracle.all_datasets(range(4), GRID),
}
DATASETS = {
    "swap": oracle.all_datasets([4], GRID),
    "add_remove": oracle.all_datasets(range(5), GRID),
}
MECHANISMS = (piecewise_laplace, inverse_sensitivity)

PROFILES = {  # of rows x with counts, by relation
    ("mean", "swap"): lambda x, count: statistics.mean(
        x, neighbors="swap", num_records=count, **BOUNDS
    ),
    ("mean", "add_remove"): lambda x, count: statistics.mean(
        x, neighbors="add_remove", num_records=count, **BOUNDS
    ),
    ("hull", "add_remove"): lambda x, count: statistics.mean(
        x, neighbors="add_remove", values="hull", num_records=count, **BOUNDS
    ),
    ("sum", "swap"): lambda x, count: statistics.sum(
        x, neighbors="swap", num_records=count, **BOUNDS
    ),
    ("sum", "add_remove"): lambda x, count: statistics.sum(
        x, neighbors="add_remove", num_records=count, **BOUNDS
    ),
    ("sum of at most 4", "add_remove"): lambda x, count: statistics.sum(
        x, neighbors="add_remove", max_count=4, num_records=count, **BOUNDS
    ),
    ("variance", "swap"): lambda x, count: statistics.variance(
        x, neighbors="swap", num_records=count, **BOUNDS
    ),
    ("truncated variance", "swap"): lambda x, count: statistics.variance(
        x, neighbors="swap", num_records=count, truncate=1, **BOUNDS
    ),
}


def at_level(side, level):
    return float(side[min(level, side.shape[-1] - 1)])


def mean_of(data):
    return float(np.mean(data)) if len(data) else (LOW + HIGH) / 2


def assert_exact(profile, datasets, neighbors, statistic, levels, grid=GRID):
    """Against breadth-first search over all small datasets on the grid."""
    upper, lower = np.asarray(profile.upper), np.asarray(profile.lower)
    for row, data in enumerate(datasets):
        largest, smallest = oracle.reachable(data, levels, statistic, neighbors, grid)
        for level in range(levels + 1):
            assert at_level(upper[row], level) == pytest.approx(largest[level], abs=1e-12), (
                data,
                level,
            )
            assert at_level(lower[row], level) == pytest.approx(smallest[level], abs=1e-12), (
                data,
                level,
            )


@pytest.mark.parametrize("neighbors", SMALL)
def test_means_are_exact_by_breadth_first_search(neighbors, x64):
    x, count = padded(SMALL[neighbors], 3)
    assert_exact(PROFILES["mean", neighbors](x, count), SMALL[neighbors], neighbors, mean_of, 4)


@pytest.mark.parametrize("neighbors", [pytest.param("swap", marks=pytest.mark.slow), "add_remove"])
def test_sums_are_exact_by_breadth_first_search(neighbors, x64):
    x, count = padded(SMALL[neighbors], 3)
    profile = PROFILES["sum", neighbors](x, count)
    assert_exact(profile, SMALL[neighbors], neighbors, np.sum, 3)
    if neighbors == "add_remove":
        np.testing.assert_array_equal(profile.step, np.full(len(x), max(-LOW, HIGH)))
        assert profile.support is None
    else:
        np.testing.assert_allclose(profile.support[0], count * LOW)
        np.testing.assert_allclose(profile.support[1], count * HIGH)


@pytest.mark.parametrize("bounds", [(LOW, HIGH), (2.0, 7.0), (-4.0, -1.0), (0.0, 7.0)])
def test_sums_of_at_most_so_many_records(bounds, x64):
    """The unlimited extreme values, cut at the range that max_count records can reach."""
    grid = tuple(value for value in GRID if bounds[0] <= value <= bounds[1])
    datasets = oracle.all_datasets(range(4), grid)
    x, count = padded(datasets, 3, fill=bounds[0])
    options = {
        "lower": bounds[0],
        "upper": bounds[1],
        "neighbors": "add_remove",
        "num_records": count,
    }
    profile = statistics.sum(x, max_count=5, **options)
    lowest, highest = 5 * min(bounds[0], 0), 5 * max(bounds[1], 0)
    np.testing.assert_array_equal(profile.support[0], np.full(len(x), lowest))
    np.testing.assert_array_equal(profile.support[1], np.full(len(x), highest))
    for row, data in enumerate(datasets):
        largest, smallest = oracle.reachable(data, 4, np.sum, "add_remove", grid)
        np.testing.assert_allclose(profile.upper[row, :5], np.minimum(largest, highest), atol=1e-12)
        np.testing.assert_allclose(profile.lower[row, :5], np.maximum(smallest, lowest), atol=1e-12)
    assert (np.diff(profile.upper) >= 0).all()


def kept_and_added(data, level, least_added):
    """All ways to keep some records and add others within ``level`` changes: the kept ones and how
    many come.
    """
    for added in range(least_added, level + 1):
        for removed in range(min(level - added, len(data)) + 1):
            for kept in itertools.combinations(data, len(data) - removed):
                yield kept, added


def test_the_hull_is_what_additions_and_removals_cover(x64):
    """At least one addition; the ends by brute force over all subsets, the inside because additions
    move continuously.
    """
    x, count = padded(SMALL["add_remove"], 3)
    profile = PROFILES["hull", "add_remove"](x, count)
    lower, upper = np.asarray(profile.lower), np.asarray(profile.upper)
    assert not profile.interpolable
    for row, data in enumerate(SMALL["add_remove"]):
        for level in range(1, 5):
            ends = [
                [
                    (np.sum(kept) + added * bound) / (len(kept) + added)
                    for kept, added in kept_and_added(data, level, 1)
                ]
                for bound in (LOW, HIGH)
            ]
            assert float(lower[row, level]) == pytest.approx(min(ends[0]), abs=1e-12)
            assert float(upper[row, level]) == pytest.approx(max(ends[1]), abs=1e-12)


def test_golden_means(x64):
    for values, name in (("extreme", "plm_bounds"), ("hull", "hull")):
        profile = statistics.mean(
            np.array(GOLDEN["x"]), lower=0, upper=1, neighbors="add_remove", values=values
        )
        np.testing.assert_allclose(
            profile.lower[1:], np.array(GOLDEN[name])[:, 0], rtol=0, atol=1e-9
        )
        np.testing.assert_allclose(
            profile.upper[1:], np.array(GOLDEN[name])[:, 1], rtol=0, atol=1e-9
        )
    profile = statistics.mean(np.array(GOLDEN["x"]), lower=0, upper=1, neighbors="swap")
    np.testing.assert_allclose(profile.upper[1:], GOLDEN["swap_bounds_up"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(profile.lower[1:], GOLDEN["swap_bounds_down"], rtol=0, atol=1e-9)


def greedy(data, changes, low, high):
    """The best single change each time: what the mean's profile must not be."""
    data = list(data)
    for _ in range(changes):
        options = [[*data, high]] + [
            data[:i] + data[i + 1 :] for i in range(len(data)) if len(data) > 1
        ]
        data = max(options, key=np.mean)
    return np.mean(data)


def test_the_best_changes_are_not_the_best_one_by_one(x64):
    profile = statistics.mean(np.array([0.0, 0.0, 0.8]), lower=0, upper=1, neighbors="add_remove")
    assert greedy([0.0, 0.0, 0.8], 2, 0, 1) == pytest.approx(0.6)
    assert float(profile.upper[2]) == pytest.approx(0.8)
    rng = np.random.default_rng(0)
    x = rng.choice(np.linspace(0, 1, 6), (400, 5))
    upper = np.asarray(statistics.mean(x, lower=0, upper=1, neighbors="add_remove").upper)
    above = upper[:, 2] - np.array([greedy(row, 2, 0, 1) for row in x])
    assert above.min() > -1e-12
    assert (above > 1e-9).mean() > 0.05


@pytest.mark.slow
def test_larger_means_under_add_remove_against_every_number_of_removals(x64):
    rng = np.random.default_rng(3)
    rows = np.concatenate(
        [
            rng.normal(size=(6, 40)) * 2,
            rng.choice([LOW, 0.0, HIGH], (6, 40)),
            rng.pareto(0.5, (6, 40)),
        ]
    )
    count = np.array([40, 39, 17, 2, 1, 0] * 3)
    for values, least in (("extreme", 0), ("hull", 1)):
        profile = statistics.mean(
            rows, neighbors="add_remove", values=values, num_records=count, **BOUNDS
        )
        upper, lower = np.asarray(profile.upper), np.asarray(profile.lower)
        for row, n in enumerate(count):
            data = np.sort(np.clip(rows[row, :n], LOW, HIGH))
            for sign, side, bound in ((1, upper, HIGH), (-1, lower, LOW)):
                # Sums of what removals leave
                rest = np.cumsum((data if sign > 0 else data[::-1])[::-1])[::-1]
                for level in range(1, 42):
                    wanted = [
                        (np.append(rest, 0.0)[gone] + (level - gone) * bound)
                        / (n + level - 2 * gone)
                        for gone in range(min(level - least, n) + 1)
                        if n + level - 2 * gone > 0
                    ]
                    assert float(side[row, level]) == pytest.approx(
                        sign * max(sign * w for w in wanted), abs=1e-12
                    )


def test_variances_are_exact_by_brute_force(x64):
    """Above, on the grid; below, with the replaced records at the mean of the kept ones, and no
    random replacement goes lower.
    """
    datasets = [*SMALL["swap"], *DATASETS["swap"][::4]]
    x, count = padded(datasets, 4)
    profile, rng = PROFILES["variance", "swap"](x, count), np.random.default_rng(0)
    lower, upper = np.asarray(profile.lower), np.asarray(profile.upper)
    random = {level: rng.uniform(LOW, HIGH, (200, level)) for level in range(1, 5)}
    for row, data in enumerate(datasets):
        n = len(data)
        for level in range(5):
            changed = min(level, n)
            subsets = list(itertools.combinations(data, n - changed))
            largest = max(
                np.var([*kept, *came])
                for kept in subsets
                for came in itertools.combinations_with_replacement(GRID, changed)
            )
            smallest = min(
                np.var([*kept, *[np.mean(kept)] * changed]) if kept else 0.0 for kept in subsets
            )
            assert at_level(upper[row], level) == pytest.approx(largest, abs=1e-12), (data, level)
            assert at_level(lower[row], level) == pytest.approx(smallest, abs=1e-12), (data, level)
            if changed and row % 9 == 0:
                tried = [
                    np.var(np.concatenate([np.tile(kept, (200, 1)), random[changed]], -1), axis=-1)
                    for kept in subsets
                ]
                assert np.min(tried) >= smallest - 1e-12
                assert np.max(tried) <= largest + 1e-12


def largest_variances(data, low, high, levels):
    """Over every block and every number at the upper bound."""
    n = len(data)
    return [
        max(
            np.var(
                np.concatenate(
                    [data[:s], data[s + level :], np.full(j, high), np.full(level - j, low)]
                )
            )
            for s in range(n - level + 1)
            for j in range(level + 1)
        )
        for level in range(levels + 1)
    ]


@pytest.mark.slow
def test_larger_variances_and_truncation(x64):
    rng = np.random.default_rng(4)
    rows = np.sort(
        np.concatenate([rng.normal(size=(3, 20)), rng.choice([LOW, 0.0, 1.0], (3, 20))]).clip(
            LOW, HIGH
        )
    )
    whole = jax.tree.map(np.asarray, statistics.variance(rows, neighbors="swap", **BOUNDS))
    for row in range(6):
        np.testing.assert_allclose(
            whole.upper[row, :9], largest_variances(rows[row], LOW, HIGH, 8), rtol=0, atol=1e-11
        )
        smallest = [
            min(np.var(rows[row, s : s + 20 - level]) for s in range(level + 1)) * (20 - level) / 20
            for level in range(20)
        ]
        np.testing.assert_allclose(whole.lower[row, :20], smallest, rtol=0, atol=1e-11)
    for k in (0, 3, 18, 19, 20, 99):
        cut, direct = (
            whole.truncate(k),
            statistics.variance(rows, neighbors="swap", truncate=k, **BOUNDS),
        )
        for side in ("upper", "lower", "upper_levels", "lower_levels"):
            np.testing.assert_allclose(
                getattr(cut, side), getattr(direct, side), rtol=0, atol=1e-12
            )


QUICK = (("mean", "add_remove", piecewise_laplace),)


def audits():
    for (name, neighbors), mechanism in itertools.product(PROFILES, MECHANISMS):
        if (name, mechanism) == ("hull", piecewise_laplace) or ((name, neighbors), mechanism) == (
            ("sum", "add_remove"),
            inverse_sensitivity,
        ):
            continue  # refused
        yield pytest.param(
            name,
            neighbors,
            mechanism,
            marks=() if (name, neighbors, mechanism) in QUICK else pytest.mark.slow,
        )


def profile_of(name, neighbors, datasets=None):
    return PROFILES[name, neighbors](
        *padded(DATASETS[neighbors] if datasets is None else datasets, 4)
    )


@pytest.mark.parametrize(("name", "neighbors", "mechanism"), list(audits()))
def test_loss_and_range_stay_within_epsilon(name, neighbors, mechanism, x64):
    profile = profile_of(name, neighbors)
    for epsilon in (0.5, 2.0):
        result = audit(mechanism(profile, epsilon), DATASETS[neighbors], neighbors, GRID)
        assert result.loss <= epsilon * (1 + 1e-9)
        assert result.range == pytest.approx(epsilon, rel=1e-9)


def test_steps_after_the_first_levels_of_a_sum(x64):
    """Inverse sensitivity needs a static number of them."""
    profile = profile_of("sum of at most 4", "add_remove").truncate(
        2, step=max(-LOW, HIGH), num_steps=2
    )
    result = audit(inverse_sensitivity(profile, 2.0), DATASETS["add_remove"], "add_remove", GRID)
    assert result.range <= 2.0 * (1 + 1e-9)


# Negative controls.


def assert_caught(profile, neighbors, mechanism=piecewise_laplace, at_least=1.2):
    result = audit(mechanism(profile, 2.0), DATASETS[neighbors], neighbors, GRID)
    assert max(result.loss, result.range) >= at_least * 2.0
    return result


def test_control_duff_s_hulls_interpolated(x64):
    """Refused; and made interpolable, they have a range of 1.5 epsilon and a loss above epsilon."""
    hull = profile_of("hull", "add_remove")
    with pytest.raises(ValueError, match="must be interpolable"):
        piecewise_laplace(hull, 2.0)
    result = audit(
        piecewise_laplace(replace(hull, interpolable=True), 0.5),
        DATASETS["add_remove"],
        "add_remove",
        GRID,
    )
    assert result.range == pytest.approx(0.75, rel=1e-9)
    assert result.loss >= 1.05 * 0.5


def test_control_greedy_means(x64):
    """The profile of the best single changes, mended at the bounds so that only the middle is
    wrong.
    """
    profile = profile_of("mean", "add_remove")
    upper = np.array(profile.upper)
    for row, data in enumerate(DATASETS["add_remove"]):
        for level in range(1, len(data) + 1):
            upper[row, level] = greedy(data, level, LOW, HIGH) if data else HIGH
    upper = np.maximum.accumulate(upper, axis=-1)
    assert_caught(replace(profile, upper=jnp.asarray(upper)), "add_remove", at_least=1.01)


@pytest.mark.parametrize("name", ["mean", "sum"])
def test_control_add_remove_values_used_under_swap(name, x64):
    profile = profile_of(
        "mean" if name == "mean" else "sum of at most 4", "add_remove", DATASETS["swap"]
    )
    assert_caught(profile, "swap", at_least=1.1)


def test_control_the_global_sensitivity_of_a_sum_without_the_lower_bound(x64):
    """Steps of |lower| where |upper| is larger."""
    profile = profile_of("sum", "add_remove")
    assert_caught(replace(profile, step=jnp.full_like(profile.step, -LOW)), "add_remove")


def test_control_variance_with_records_taken_from_one_end(x64):
    """The smallest variance as if only the largest records could be replaced."""
    profile = profile_of("variance", "swap")
    lower = [
        [np.var(data[: 4 - level]) * (4 - level) / 4 for level in range(4)] + [0.0]
        for data in DATASETS["swap"]
    ]
    assert_caught(replace(profile, lower=jnp.asarray(lower)), "swap")


@pytest.mark.parametrize(
    ("name", "neighbors"),
    [("mean", "swap"), ("sum", "swap"), ("variance", "swap"), ("hull", "add_remove")],
)
def test_control_levels_counted_twice(name, neighbors, x64):
    profile = profile_of(name, neighbors)
    double = replace(
        profile, upper_levels=2 * profile.upper_levels, lower_levels=2 * profile.lower_levels
    )
    assert_caught(double, neighbors, inverse_sensitivity)


# Numbers.


def exact(values):
    return [Fraction(float(value)) for value in values]


@pytest.mark.slow
def test_float32_far_from_zero():
    """Records near 10^6, exact in fractions: every value within two units in the last place, the
    variance to 2e-6.
    """
    n = 100_000
    x = (1e6 + np.random.default_rng(0).normal(size=n)).clip(999_990, 1_000_010).astype(np.float32)
    bounds = {"lower": 999_990.0, "upper": 1_000_010.0}
    ordered = exact(np.sort(x))
    total, b = sum(ordered), Fraction(bounds["upper"])
    for neighbors in SMALL:
        profile = statistics.mean(x, neighbors=neighbors, **bounds)
        whole = statistics.sum(x, neighbors=neighbors, **bounds)
        mean_upper, sum_upper = np.asarray(profile.upper), np.asarray(whole.upper)
        for level in (0, 1, 7, n // 3):
            gone = sum(ordered[:level])
            if neighbors == "swap":
                wanted_mean, wanted_sum = (total - gone + level * b) / n, total - gone + level * b
            else:
                wanted_mean = None
                if level <= 7:
                    wanted_mean = max(
                        (total - sum(ordered[:r]) + (level - r) * b) / (n - 2 * r + level)
                        for r in range(level + 1)
                    )
                wanted_sum = total + level * b
            if wanted_mean is not None:
                assert abs(float(mean_upper[level]) - float(wanted_mean)) <= 2 * np.spacing(
                    np.float32(1e6)
                )
            assert abs(float(sum_upper[level]) - float(wanted_sum)) <= 2 * np.spacing(
                np.float32(wanted_sum)
            )
    profile = jax.tree.map(
        np.asarray, statistics.variance(x, neighbors="swap", truncate=3, **bounds)
    )
    data = np.sort(x).astype(np.float64)
    for level in range(4):
        smallest = min(np.var(data[s : s + n - level]) * (n - level) / n for s in range(level + 1))
        assert float(profile.lower[level]) == pytest.approx(smallest, rel=2e-6)
        ends = [
            np.concatenate([data[:s], data[s + level :], np.full(level, e)])
            for s in (0, n // 2, n - level)
            for e in bounds.values()
        ]
        assert float(profile.upper[level]) >= max(np.var(end) for end in ends) * (1 - 2e-6)
    # The control: a plain float32 sum of squares has no digit left.
    plain = np.mean(x**2) - np.mean(x) ** 2
    assert not 0.5 < float(plain) < 2


def test_a_window_beside_far_records_keeps_its_digits():
    """Half of the records at 10^4: the smallest variance is that of the others, 10^-12 of the
    whole.
    """
    near = np.linspace(-0.01, 0.01, 32).astype(np.float32)
    x = np.concatenate([near, np.full(20, 1e4, np.float32)])
    profile = statistics.variance(x, lower=-1e4, upper=1e4, neighbors="swap", truncate=20)
    wanted = np.var(near.astype(np.float64)) * 32 / 52
    assert float(np.asarray(profile.lower)[20]) == pytest.approx(wanted, rel=1e-5)


SHAPES = {
    "mean swap": lambda x, **kw: statistics.mean(x, neighbors="swap", **kw),
    "mean add_remove": lambda x, **kw: statistics.mean(x, neighbors="add_remove", **kw),
    "sum swap": lambda x, **kw: statistics.sum(x, neighbors="swap", **kw),
    "sum add_remove": lambda x, **kw: statistics.sum(x, neighbors="add_remove", **kw),
    "variance": lambda x, **kw: statistics.variance(x, neighbors="swap", truncate=4, **kw),
}


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_padding_and_further_rows_change_no_bit(name):
    """Profiles and draws under jit, in float32, between 37 and 70 columns, and 5 and 64 rows.

    The sum under add/remove has the same range for both; without ``max_count``, further columns are
    further exact levels.
    """
    public = {"max_count": 70} if name == "sum add_remove" else {}
    x = 100 * jax.random.normal(jax.random.key(0), (64, 70)) + 3.3
    count = np.concatenate([[37, 5, 20, 37, 2], 2 + np.arange(59)])

    @jax.jit
    def run(x, count, key):
        profile = SHAPES[name](x, lower=-250.0, upper=300.7, num_records=count, **public)
        return profile, piecewise_laplace(profile, 0.3).sample(key)

    key = jax.random.key(1)
    (short, draws), (tall, again) = run(x[:5, :37], count[:5], key), run(x, count, key)
    np.testing.assert_array_equal(draws, again[:5])
    for side in ("upper", "lower"):
        a, b = (np.asarray(getattr(profile, side)) for profile in (short, tall))
        np.testing.assert_array_equal(a, b[:5, : a.shape[-1]])


@pytest.mark.slow
def test_records_are_clamped_counted_and_read_alike():
    x = np.array([[3.0, np.nan, -9.0, 99.0], [1.0, 2.0, 0.5, 0.25]], np.float32)
    # Bounds of one shape
    low, mean_of = np.full(2, LOW, np.float32), jax.jit(lambda distribution: distribution.mean())
    for name, function in SHAPES.items():
        clean = np.where(
            np.isnan(x), LOW if name.split()[-1] != "add_remove" else np.nan, x.clip(LOW, HIGH)
        )
        if name.endswith("add_remove"):
            masked = function(np.nan_to_num(clean), lower=low, upper=HIGH, mask=~np.isnan(x))
        else:
            masked = function(clean, lower=low, upper=HIGH)
        profile = function(x, lower=low, upper=HIGH)
        np.testing.assert_array_equal(profile.upper, masked.upper)
        np.testing.assert_array_equal(profile.lower, masked.lower)
        assert np.isfinite(profile.upper).all()
        bad = function(x, lower=jnp.array([LOW, 9.0]), upper=HIGH)
        distribution = piecewise_laplace(bad, 1.0)
        if distribution.tails is None:
            distribution = of_one_size(distribution)
        assert np.isnan(mean_of(distribution)).tolist() == [False, True]


@pytest.mark.slow
def test_empty_rows_have_the_middle_as_their_mean():
    for columns in (0, 2):
        profile = statistics.mean(
            jnp.zeros((1, columns)), neighbors="add_remove", num_records=np.array([0]), **BOUNDS
        )
        assert profile.upper[0, :2].tolist() == [1.5, 7.0]
        assert profile.lower[0, :2].tolist() == [1.5, -4.0]
        assert (
            statistics.sum(
                jnp.zeros((1, columns)), neighbors="add_remove", num_records=np.array([0]), **BOUNDS
            ).upper[0, 0]
            == 0
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_gradients_are_finite_with_ties_and_right_without(name, x64):
    def total(x):
        profile = SHAPES[name](x, lower=-4.0, upper=7.0)
        return jnp.sum(profile.upper[..., :3]) - 2 * jnp.sum(profile.lower[..., :3])

    tied = jnp.array([1.0, 1.0, 1.0, 2.0, 7.0, 7.0])
    assert np.isfinite(jax.grad(total)(tied)).all()
    x, h = jnp.array([-1.0, 0.3, 1.1, 2.4, 3.2, 6.0]), 1e-6
    numeric = [(total(x.at[i].add(h)) - total(x.at[i].add(-h))) / (2 * h) for i in range(6)]
    np.testing.assert_allclose(jax.grad(total)(x), numeric, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: statistics.variance(jnp.ones(3), neighbors="add_remove", **BOUNDS),
            'neighbors must be "swap"',
        ),
        (
            lambda: statistics.variance(jnp.ones(1), neighbors="swap", **BOUNDS),
            "at least 2 individuals",
        ),
        (
            lambda: statistics.variance(jnp.ones(3), neighbors="swap", truncate=-1, **BOUNDS),
            "truncate must be",
        ),
        (
            lambda: statistics.mean(jnp.ones(3), neighbors="swap", values="hull", **BOUNDS),
            "for add_remove neighbors",
        ),
        (
            lambda: statistics.mean(jnp.ones(3), neighbors="edge", **BOUNDS),
            "neighbors must be one of",
        ),
        (
            lambda: statistics.sum(jnp.ones(2 * 10**7), neighbors="swap", lower=0.0, upper=5e30),
            "must be smaller to sum 20000000 records in float32",
        ),
        (
            lambda: statistics.variance(
                jnp.ones(2000), neighbors="swap", lower=0.0, upper=2e17, truncate=3
            ),
            "must be smaller to sum 2000",
        ),
        (
            lambda: statistics.variance(
                jnp.ones(2000), neighbors="swap", lower=0.0, upper=1e-15, truncate=3
            ),
            "must be further apart for 2000",
        ),
        (
            lambda: statistics.variance(jnp.ones(3), neighbors="swap", lower=0.0, upper=1e19),
            "must be smaller to sum 3 records",
        ),
        (
            lambda: statistics.sum(jnp.ones(3), neighbors="add_remove", max_count=2, **BOUNDS),
            "max_count must be a static integer",
        ),
        (
            lambda: statistics.sum(jnp.ones(3), neighbors="swap", max_count=3, **BOUNDS),
            "for add_remove neighbors",
        ),
        (lambda: statistics.sum(jnp.ones(0), neighbors="swap", **BOUNDS), "at least 1 individuals"),
        (
            lambda: inverse_sensitivity(
                statistics.sum(jnp.ones(3), neighbors="add_remove", **BOUNDS), 1.0
            ),
            "num_steps",
        ),
        (
            lambda: statistics.mean(
                jnp.ones(3), neighbors="swap", num_records=1, mask=jnp.ones(3, bool), **BOUNDS
            ),
            "num_records and mask",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_profiles_carry_their_relation():
    profile = statistics.mean(jnp.ones(3), neighbors="swap", **BOUNDS)
    assert isinstance(profile, SensitivityProfile)
    assert (profile.neighbors, profile.interpolable, profile.integer_levels) == ("swap", True, True)


def test_no_rho_on_hulls(x64):
    """A value need not lie within the neighbor's first hull: mass around it costs two levels
    there.
    """
    x, count = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([2, 1])
    hull = statistics.mean(
        x, lower=0, upper=1, neighbors="add_remove", values="hull", num_records=count
    )
    for rho in (0.3, jnp.float64(0.3)):
        with pytest.raises(ValueError, match="rho"):
            inverse_sensitivity(hull, 0.5, rho=rho)
    unchecked = inverse_sensitivity(replace(hull, interpolable=True), 0.5, rho=0.3)
    y = np.linspace(0.01, 0.99, 99)[:, None]
    assert np.diff(np.asarray(unchecked.log_prob(y)), axis=1).max() > 1.2 * 0.5


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [(1e6, 1e6 + 1), (2000.0, 2024.0)])
def test_means_between_bounds_that_are_close_and_far_from_0_are_rounded_correctly(bounds):
    """float32 has 17 numbers between 1e6 and 1e6 + 1: values of neighbors interleave because each
    is the nearest of them.
    """
    low, high = bounds
    rng = np.random.default_rng(0)
    x = rng.choice(np.float32([low, high, (low + high) / 2]), (4, 201))
    exact = [[Fraction(float(v)) for v in sorted(row)] for row in x]

    def mean_after(row, gone, added):
        kept = exact[row][gone:]
        return np.float32(
            float((sum(kept, Fraction(0)) + added * Fraction(high)) / (len(kept) + added))
        )

    swap, either = (
        np.asarray(statistics.mean(x, lower=low, upper=high, neighbors=neighbors).upper)
        for neighbors in ("swap", "add_remove")
    )
    for row in range(4):
        for level in (0, 1, 5, 50):
            assert swap[row, level] == mean_after(row, level, level), level
            best = max(mean_after(row, gone, level - gone) for gone in range(level + 1))
            assert either[row, level] == best, level
    # A control: float32 sums, rounded before the division, are off by more than one number
    for level in (0, 3, 100):
        naive = (
            np.sort(x, axis=-1)[:, level:].sum(-1, dtype=np.float32) + np.float32(level * high)
        ) / np.float32(201)
        if low == 1e6:
            assert (naive != swap[:, level]).any()


@pytest.mark.slow
def test_bounds_as_jax_arrays_that_could_overflow_or_vanish_are_bad_for_every_dataset():
    """Otherwise 500 records at the upper bound would have a distribution, and 501 would not."""
    for upper, good in ((2e17, False), (1e-15, False), (1.0, True)):
        ones = np.array([0, 500, 501, 2000])[:, None]
        x = np.where(np.arange(2000) < ones, upper, 0.0).astype(np.float32)
        found = statistics.variance(
            x, lower=jnp.float32(0.0), upper=jnp.float32(upper), neighbors="swap", truncate=1
        )
        assert (np.isfinite(found.upper).all(axis=-1) == good).all()
        assert (np.isnan(found.upper).all(axis=-1) != good).all()
