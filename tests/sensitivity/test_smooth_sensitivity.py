"""Local sensitivity at every distance against a search over all datasets, its smooth bound against
all neighbors.
"""

import json
import pathlib
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import mean, median, order_statistic, quantile
from dpjax.sensitivity.local import local_sensitivity_bound
from dpjax.statistics import local_sensitivity, smooth_sensitivity
from tests.support import oracle
from tests.support.audit import padded

GRID = (0.0, 1.0, 5.0, 6.0, 20.0)
LOW, HIGH = GRID[0], GRID[-1]
SIZES = {"add_remove": range(4), "swap": [1, 2, 3, 4]}
BETAS = np.array([0.05, 0.3, 1.0, 3.0])
GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "C1_smooth_sensitivity.json").read_text()
)["golden"]


def distances(start, neighbors, more=0):
    """Every multiset on the grid with its distance from ``start``, up to the number of records + 1,
    or ``more``.
    """
    layers, seen = [{start}], {start}
    for _ in range(len(start) + more + 1):
        layers.append(
            {other for data in layers[-1] for other in oracle.neighbors_of(data, neighbors, GRID)}
            - seen
        )
        seen |= layers[-1]
    return layers


def at_distance_by_search(statistic, neighbors, datasets, more=0):
    """A_0, ..., A_n, or ``more``, for every dataset, from the definition."""
    values, local = {}, {}

    def value(data):
        if data not in values:
            values[data] = statistic(data)
        return values[data]

    def local_of(data):
        if data not in local:
            local[data] = max(
                (abs(value(data) - value(z)) for z in oracle.neighbors_of(data, neighbors, GRID)),
                default=0.0,
            )
        return local[data]

    return [
        np.maximum.accumulate(
            [
                max(map(local_of, layer), default=0.0)
                for layer in distances(data, neighbors, more)[:-1]
            ]
        )
        for data in datasets
    ]


def statistic_of(definition):
    return lambda data: oracle.quantile(data, 0.5, definition, LOW, HIGH)


@pytest.fixture(scope="module")
def searched():
    """The searches, once for all tests: relation and definition -> datasets and their A_k."""
    found = {}
    for neighbors, sizes in SIZES.items():
        datasets = oracle.all_datasets(sizes, GRID)
        for definition in ("lower", "linear"):
            found[neighbors, definition] = (
                datasets,
                at_distance_by_search(statistic_of(definition), neighbors, datasets),
            )
    return found


@pytest.mark.parametrize("definition", ["lower", pytest.param("linear", marks=pytest.mark.slow)])
@pytest.mark.parametrize("neighbors", SIZES)
def test_local_sensitivity_at_every_distance_is_exact(neighbors, definition, searched, x64):
    datasets, exact = searched[neighbors, definition]
    x, count = padded(datasets, 4)
    found = local_sensitivity(
        x, lower=LOW, upper=HIGH, neighbors=neighbors, definition=definition, num_records=count
    )
    assert found.at_distance.shape == (len(datasets), 5)
    for row, (data, wanted) in enumerate(zip(datasets, exact, strict=True)):
        # With every record changed, one more change is free: the formulas reach the whole range at
        # k = n or before.
        np.testing.assert_allclose(
            found.at_distance[row, : len(wanted)], wanted, atol=1e-12, err_msg=str(data)
        )
        np.testing.assert_allclose(found.value[row], statistic_of(definition)(data), atol=1e-12)


def test_swap_without_a_count_and_at_fixed_ranks(x64):
    datasets = oracle.all_datasets([4], GRID)
    x, _ = padded(datasets, 4)
    for rank in (1, 2, 4):
        exact = at_distance_by_search(lambda data, rank=rank: data[rank - 1], "swap", datasets)
        found = local_sensitivity(x, lower=LOW, upper=HIGH, neighbors="swap", rank=rank)
        np.testing.assert_allclose(found.at_distance, exact, atol=1e-12)
    static = local_sensitivity(x, lower=LOW, upper=HIGH, neighbors="swap")
    dynamic = local_sensitivity(
        x, lower=LOW, upper=HIGH, neighbors="swap", mask=np.ones_like(x, bool)
    )
    np.testing.assert_array_equal(static.at_distance, dynamic.at_distance)
    np.testing.assert_array_equal(static.value, dynamic.value)


def neighboring_rows(datasets, neighbors):
    index = {data: row for row, data in enumerate(datasets)}
    return np.array(
        [
            (index[d], index[z])
            for d in datasets
            for z in oracle.neighbors_of(d, neighbors, GRID)
            if z in index
        ]
    ).T


def smoothness(bound, datasets, neighbors):
    """The largest log-ratio of the bound between neighbors."""
    first, second = neighboring_rows(datasets, neighbors)
    return float(np.max(np.log(np.asarray(bound)[first] / np.asarray(bound)[second])))


@pytest.mark.parametrize("definition", ["lower", "linear"])
@pytest.mark.parametrize("neighbors", SIZES)
def test_the_bound_is_smooth_and_above_the_local_sensitivity(neighbors, definition, searched, x64):
    datasets, exact = searched[neighbors, definition]
    x, count = padded(datasets, 4)
    found = local_sensitivity(
        x, lower=LOW, upper=HIGH, neighbors=neighbors, definition=definition, num_records=count
    )
    bound = found.smooth(BETAS[:, None]).bound
    assert (np.asarray(bound) >= np.array([a[0] for a in exact]) - 1e-12).all()
    attained = [smoothness(bound[i], datasets, neighbors) / beta for i, beta in enumerate(BETAS)]
    assert max(attained) <= 1 + 1e-12
    assert max(attained) >= 1 - 1e-9  # and it is attained: no smaller constant would do


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", SIZES)
def test_bounds_from_profiles_are_smooth_too(neighbors, searched, x64):
    datasets, _ = searched[neighbors, "lower"]
    x, count = padded(datasets, 4)
    given = {"lower": LOW, "upper": HIGH, "neighbors": neighbors, "num_records": count}
    for profile, statistic in (
        (
            quantile(x, 0.75, definition="lower", **given),
            lambda d: oracle.quantile(d, 0.75, "lower", LOW, HIGH),
        ),
        (order_statistic(x, 2, **given).truncate(1), lambda d: d[1] if len(d) > 1 else HIGH),
    ):
        found = local_sensitivity_bound(profile)
        exact, at_distance = (
            at_distance_by_search(statistic, neighbors, datasets),
            np.asarray(found.at_distance),
        )
        for row, wanted in enumerate(exact):
            reach = at_distance[row][np.minimum(np.arange(len(wanted)), at_distance.shape[-1] - 1)]
            assert (reach >= wanted - 1e-12).all()
        bound = np.asarray(found.smooth(BETAS[:, None]).bound)
        assert (
            max(smoothness(bound[i], datasets, neighbors) / beta for i, beta in enumerate(BETAS))
            <= 1 + 1e-12
        )
    with pytest.raises(ValueError, match="integer levels"):
        local_sensitivity_bound(
            median(jnp.ones(3), lower=0, upper=2, neighbors="swap").truncate(1, step=1.0)
        )
    # The hull leaves out that a record goes: 0.5 becomes 1.0, and it says 1/6.
    ones = jnp.array([0.0, 1.0])
    given = {"lower": 0, "upper": 1, "neighbors": "add_remove"}
    assert float(mean(ones, **given).value - mean(ones[1:], **given).value) == -0.5
    assert float(local_sensitivity_bound(mean(ones, **given)).at_distance[0]) == 0.5
    with pytest.raises(ValueError, match="not interpolable"):
        local_sensitivity_bound(mean(ones, values="hull", **given))


def test_control_add_remove_values_under_swap(searched, x64):
    """Neither smooth, since one swap is two changes, nor above the local sensitivity."""
    datasets, exact = searched["swap", "lower"]
    x, count = padded(datasets, 4)
    given = {"lower": LOW, "upper": HIGH, "definition": "lower", "num_records": count}
    bound = local_sensitivity(x, neighbors="add_remove", **given).smooth(0.3).bound
    assert smoothness(bound, datasets, "swap") > 1.2 * 0.3
    assert (np.asarray(bound) < np.array([a[0] for a in exact]) * 0.9).any()


@pytest.mark.parametrize("neighbors", SIZES)
def test_control_distances_off_by_one_or_the_local_sensitivity_alone(neighbors, searched, x64):
    datasets, exact = searched[neighbors, "lower"]
    x, count = padded(datasets, 4)
    found = local_sensitivity(
        x, lower=LOW, upper=HIGH, neighbors=neighbors, definition="lower", num_records=count
    )
    # A_{k+1} at k: still smooth, but too large
    skipped = np.asarray(found.at_distance)[:, 1:] * np.exp(-0.3 * np.arange(4))
    assert (skipped.max(-1) > np.asarray(found.smooth(0.3).bound) * 1.2).any()
    late = np.concatenate(
        [np.zeros((len(datasets), 1)), np.asarray(found.at_distance)], axis=-1
    ) * np.exp(-0.3 * np.arange(6))
    # A_{k-1} at k: below the local sensitivity
    assert (late.max(-1) < np.array([a[0] for a in exact]) * 0.9).any()
    alone = np.maximum([a[0] for a in exact], 1e-300)
    assert smoothness(alone, datasets, neighbors) > 10


@pytest.mark.parametrize(
    ("neighbors", "key"),
    [("add_remove", "ar"), pytest.param("swap", "swap_m", marks=pytest.mark.slow)],
)
def test_golden_numbers(neighbors, key, x64):
    ranks = {"ar": ("", ""), "swap_m": ("6", "500")}[key]
    given = {"neighbors": neighbors, "definition": "lower"}
    for x, (a, b), name, betas in (
        (np.array(GOLDEN["x"]), (0, 1), key + ranks[0], (0.05, 0.2, 1.0)),
        (
            np.random.default_rng(7).normal(size=1000),
            (-10, 10),
            f"normal1000_{key}{ranks[1]}",
            (0.001, 0.01, 0.1, 0.5),
        ),
    ):
        if len(x) == 1000:
            np.testing.assert_allclose(
                np.sort(x)[:3], GOLDEN["normal_seed7_n1000_first3"], rtol=1e-12
            )
        bound = local_sensitivity(x, lower=a, upper=b, **given).smooth(np.array(betas)).bound
        np.testing.assert_allclose(bound, [GOLDEN[f"{name}_{beta}"] for beta in betas], rtol=1e-9)


def test_swap_agrees_with_all_pairs_on_long_rows(x64):
    rng = np.random.default_rng(0)
    for n in (40, 41):
        x = np.sort(np.round(rng.normal(size=(6, n)), 1), axis=-1)
        ends = np.concatenate(
            [np.full((6, 1), -3.0), np.clip(x, -3, 3), np.full((6, 1), 3.0)], axis=-1
        )
        m = (n + 1) // 2
        for definition, (q, extra) in {
            "lower": (m, 1),
            "linear": (m, 1) if n % 2 else (m + 1, 2),
        }.items():
            wanted = [
                max(
                    (ends[row, j] - ends[row, i]) / extra * np.exp(-0.1 * (j - i - extra))
                    for i in range(m + 1)
                    for j in range(q, n + 2)
                    if j - i >= extra
                )
                for row in range(6)
            ]
            found = smooth_sensitivity(
                x, 0.1, lower=-3.0, upper=3.0, neighbors="swap", definition=definition
            )
            np.testing.assert_allclose(found.bound, wanted, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("definition", ["lower", "linear"])
@pytest.mark.parametrize("neighbors", SIZES)
def test_gradients_are_those_of_the_two_records_that_decide(neighbors, definition, x64):
    def bound(x):
        return smooth_sensitivity(
            x, 0.3, lower=0.0, upper=1.0, neighbors=neighbors, definition=definition
        ).bound

    x, step = jnp.array([0.1, 0.2, 0.5, 0.55, 0.9]), 1e-6 * np.eye(5)
    np.testing.assert_allclose(
        jax.grad(bound)(x), (bound(x[None] + step) - bound(x[None] - step)) / 2e-6, atol=1e-8
    )


@pytest.mark.slow
@pytest.mark.parametrize("definition", ["lower", "linear"])
@pytest.mark.parametrize("neighbors", SIZES)
def test_few_records_and_hostile_ones(neighbors, definition):
    """No exception, warning or NaN, whatever the data."""
    for n in (0, 1, 2):
        given = {"lower": -1.0, "upper": 3.0, "neighbors": neighbors, "definition": definition}
        for fill in (0.5, -np.inf, np.inf, np.nan, 1e38):
            smooth = smooth_sensitivity(np.full((2, n), fill, np.float32), 0.1, **given)
            assert (
                (smooth.bound > 0)
                & (smooth.bound <= 4)
                & (smooth.value >= -1)
                & (smooth.value <= 3)
            ).all()


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize("definition", ["lower", "linear"])
@pytest.mark.parametrize("neighbors", SIZES)
def test_padding_changes_no_bit(neighbors, definition):
    x = np.random.default_rng(0).normal(size=(50, 45)).astype(np.float32)

    @partial(jax.jit, static_argnames="width")
    def bound(x, beta, width):
        padded = jnp.pad(x, ((0, 0), (0, width)), constant_values=9.0)
        given = {
            "neighbors": neighbors,
            "definition": definition,
            "num_records": jnp.full(x.shape[:1], x.shape[1]),
        }
        smooth = smooth_sensitivity(padded, beta, lower=-3.0, upper=3.0, **given)
        return smooth.value, smooth.bound

    for whole, wide in zip(bound(x, 0.07, 0), bound(x, 0.07, 30), strict=True):
        np.testing.assert_array_equal(whole, wide)
    for whole, few in zip(bound(x, 0.07, 0), bound(x[:7], 0.07, 0), strict=True):
        np.testing.assert_array_equal(whole[:7], few)


def test_long_ties_leave_a_positive_bound():
    bound = smooth_sensitivity(
        np.full(301, 0.5, np.float32), 1.0, lower=0, upper=1, neighbors="add_remove"
    ).bound
    assert float(bound) > 0
    assert not np.isfinite(
        smooth_sensitivity(
            np.full(3, 0.5), jnp.float32(-1.0), lower=0, upper=1, neighbors="swap"
        ).bound
    )


def test_errors():
    given = {"lower": 0, "upper": 1, "neighbors": "add_remove"}
    with pytest.raises(ValueError, match="beta must be finite and positive"):
        smooth_sensitivity(np.ones(3), 0.0, **given)
    with pytest.raises(ValueError, match="q and rank"):
        local_sensitivity(np.ones(3), q=0.25, rank=2, **given)
    with pytest.raises(ValueError, match="smaller denominator for exact ranks"):
        local_sensitivity(np.ones(3), q=Fraction(1, 2**27), **given)
    with pytest.raises(ValueError, match="definition must be one of"):
        local_sensitivity(np.ones(3), definition="upper", **given)
