"""Local sensitivity of quantiles, ranks and means at every distance, against a search
over all small datasets; its smooth bound, between all neighbors.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial

import jax
import numpy as np
import pytest

import dpjax
from dpjax.mechanisms import optimal_beta
from dpjax.sensitivity import local_sensitivity_bound
from tests.statistics.small_datasets import (
    GRID,
    KNOWN,
    LEVELS,
    RELATIONS,
    UNIVERSE,
    disorder,
    local_sensitivities,
    rows,
    values_of,
)
from tests.support import oracle
from tests.support.golden import golden

LOW, HIGH = GRID[0], GRID[-1]
BETAS = np.array([0.05, 0.3, 1.0, 3.0])
GOLDEN = golden("C1_smooth_sensitivity")["golden"]


@dataclass(frozen=True)
class Statistic:
    """The local sensitivities of a statistic, and its definition for an ascending tuple."""

    of: Callable
    defined: Callable
    relations: tuple = RELATIONS
    given_by: str | None = "mask"
    least: int = 1  # record, where their number is public
    exact: bool = True


def quantile(q, definition):
    return Statistic(
        partial(dpjax.local_sensitivity, q=q, definition=definition),
        lambda data: oracle.quantile(data, q, definition, LOW, HIGH),
    )


def mean(data):
    return np.mean(data) if data else (LOW + HIGH) / 2


def bound_of(statistic, **options):
    return lambda **given: local_sensitivity_bound(statistic(**given, **options))


LINEAR = quantile("9/10", "linear")
RANK = Statistic(
    partial(dpjax.local_sensitivity, rank=2),
    lambda data: data[1] if len(data) > 1 else HIGH,
    least=2,
)
STATISTICS = {
    "linear median": quantile("1/2", "linear"),
    "lower median": quantile("1/2", "lower"),
    "linear 9/10": LINEAR,
    "linear 9/10 of full rows": replace(LINEAR, relations=("swap",), given_by=None),
    "lower 1/4": quantile("1/4", "lower"),
    "second smallest": RANK,
    "mean": Statistic(dpjax.mean_local_sensitivity, mean),
    "bound of a profile of 9/10": replace(
        LINEAR, of=bound_of(dpjax.quantile, q="9/10"), exact=False
    ),
    "bound of a truncated profile": replace(
        RANK,
        of=lambda **given: local_sensitivity_bound(
            dpjax.order_statistic(**given, rank=2).truncate(1)
        ),
        exact=False,
    ),
}
CASES = [(name, relation) for name, made in STATISTICS.items() for relation in made.relations]


@cache
def asked(name, neighbors):
    """The rows of a case; local sensitivities and smooth bounds of them, in NumPy."""
    made = STATISTICS[name]
    some = rows(neighbors, made.given_by, made.least if neighbors == "swap" else 0)

    @jax.jit
    def both(x, given):
        found = made.of(x=x, lower=LOW, upper=HIGH, neighbors=neighbors, **given)
        return found, found.smooth(BETAS[:, None]).bound

    return some, *jax.tree.map(np.asarray, both(some.x, some.given))


@cache
def searched(name, neighbors):
    values = values_of(STATISTICS[name].defined)
    return values, local_sensitivities(values, neighbors)


def smoothness(bound, pairs):
    """The largest log-ratio between neighbors."""
    return np.max(np.abs(np.log(bound[..., pairs[0]] / bound[..., pairs[1]])), axis=-1)


@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_local_sensitivities_are_exact_and_the_bound_is_smooth(name, neighbors, x64):
    made, (some, local, bound) = STATISTICS[name], asked(name, neighbors)
    values, wanted = searched(name, neighbors)
    np.testing.assert_allclose(local.value, values[some.which], rtol=0, atol=1e-12)
    at = local.at_distance
    level = np.minimum(np.arange(LEVELS), at.shape[-1] - 1)
    found, wanted, known = at[:, level].T, wanted[:, some.which], KNOWN[:, some.which]
    assert np.where(known, found - wanted, 0).min() >= -1e-12
    if made.exact:
        np.testing.assert_allclose(np.where(known, found, wanted), wanted, rtol=0, atol=1e-12)
        short = UNIVERSE.n[some.which] < UNIVERSE.most  # where all that there is was reached
        assert np.ptp(at[short, level[-1] :], axis=-1).max(initial=0) <= 1e-12
    pairs = some.pairs(neighbors)
    assert disorder(at.T, pairs) <= 1e-12
    defined = np.max(at * np.exp(-BETAS[:, None, None] * np.arange(at.shape[-1])), axis=-1)
    np.testing.assert_allclose(bound, np.maximum(defined, 1e-290), rtol=1e-12)
    assert (smoothness(bound, pairs) <= BETAS * (1 + 1e-9)).all()
    if made.exact:
        assert (smoothness(bound, pairs) / BETAS).max() >= 0.9
    assert local.neighbors == neighbors
    assert (np.array([local.lower, local.upper]).T == (LOW, HIGH)).all()


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_controls_of_the_bound(neighbors, x64):
    """One that counts a distance too many, and the local sensitivity alone."""
    some, local, _ = asked("lower median", neighbors)
    at, pairs, beta = local.at_distance, some.pairs(neighbors), BETAS[1]
    alone = searched("lower median", neighbors)[1][0, some.which]
    assert smoothness(np.maximum(alone, 1e-300), pairs) > 10
    late = at * np.exp(-beta * np.arange(1, at.shape[-1] + 1))
    assert (late.max(axis=-1) < alone * 0.9).any()
    assert disorder(np.repeat(alone[None], 2, axis=0), pairs) > 1


def test_control_add_remove_values_under_swap(x64):
    """Neither smooth, since one swap is two changes, nor above the local sensitivity."""
    some, _, bound = asked("lower median", "add_remove")
    alone = searched("lower median", "swap")[1][0, some.which]
    assert smoothness(bound[1], some.pairs("swap")) > 1.2 * BETAS[1]
    assert (bound[1] < alone * 0.9).any()


def test_a_hull_is_no_bound_of_local_sensitivities():
    """It leaves out that a record goes: 0.5 becomes 1.0, and it says 1/6."""

    def bound(values="extreme", **steps):
        ones, given = np.array([0.0, 1.0]), {"lower": 0, "upper": 1, "neighbors": "add_remove"}
        return local_sensitivity_bound(
            dpjax.mean(ones, values=values, **given).truncate(9, **steps)
        )

    assert float(jax.jit(bound)().at_distance[0]) == 0.5
    for wrong, word in (({"values": "hull"}, "interpolable"), ({"step": 1.0}, "levels")):
        with pytest.raises(ValueError, match=word):
            jax.eval_shape(partial(bound, **wrong))


SERIES = np.random.default_rng(7).normal(size=1000)


@pytest.mark.parametrize(
    ("neighbors", "key", "x", "ends", "betas"),
    [
        ("add_remove", "ar", np.array(GOLDEN["x"]), (0, 1), (0.05, 0.2, 1.0)),
        ("add_remove", "normal1000_ar", SERIES, (-10, 10), (0.001, 0.01, 0.1, 0.5)),
        ("swap", "swap_m6", np.array(GOLDEN["x"]), (0, 1), (0.05, 0.2, 1.0)),
        ("swap", "normal1000_swap_m500", SERIES, (-10, 10), (0.001, 0.01, 0.1, 0.5)),
    ],
)
def test_golden_numbers(neighbors, key, x, ends, betas, x64):
    np.testing.assert_allclose(np.sort(SERIES)[:3], GOLDEN["normal_seed7_n1000_first3"], rtol=1e-12)
    given = {"lower": ends[0], "upper": ends[1], "neighbors": neighbors, "definition": "lower"}
    bound = jax.jit(lambda x: dpjax.local_sensitivity(x, **given).smooth(np.array(betas)).bound)(x)
    np.testing.assert_allclose(bound, [GOLDEN[f"{key}_{beta}"] for beta in betas], rtol=1e-9)


@pytest.mark.parametrize("n", [40, 41])
def test_swap_agrees_with_all_pairs_on_long_rows(n, x64):
    x = np.sort(np.round(np.random.default_rng(0).normal(size=(6, n)), 1), axis=-1)
    low, high = np.full((6, 1), -3.0), np.full((6, 1), 3.0)
    ends = np.concatenate([low, np.clip(x, -3, 3), high], axis=-1)
    middle = (n + 1) // 2
    two = int(n % 2 == 0)  # records make a linear median
    for definition, first, extra in (("lower", middle, 1), ("linear", middle + two, 1 + two)):
        wanted = [
            max(
                (row[j] - row[i]) / extra * np.exp(-0.1 * (j - i - extra))
                for i in range(middle + 1)
                for j in range(first, n + 2)
                if j - i >= extra
            )
            for row in ends
        ]
        given = {"lower": -3.0, "upper": 3.0, "neighbors": "swap", "definition": definition}
        smooth = jax.jit(partial(dpjax.smooth_sensitivity, **given))
        np.testing.assert_allclose(smooth(x, 0.1).bound, wanted, rtol=1e-12)


def test_mechanisms_take_a_local_sensitivity_at_a_public_beta(x64):
    epsilon = np.array([0.5, 2.0])

    @jax.jit
    def both(x):
        local = dpjax.local_sensitivity(x, q=0.9, lower=0, upper=100, neighbors="swap")
        cauchy, laplace = (
            local.smooth(optimal_beta(epsilon, noise=noise, **options))
            for noise, options in (("cauchy", {}), ("laplace", {"delta": 1e-3}))
        )
        pairs = (
            (dpjax.smooth_cauchy(local, epsilon), dpjax.smooth_cauchy(cauchy, epsilon)),
            (
                dpjax.smooth_cauchy(local, epsilon, calibration="published"),
                dpjax.smooth_cauchy(local.smooth(epsilon / 6), epsilon, calibration="published"),
            ),
            (
                dpjax.smooth_laplace(local, epsilon, delta=1e-3),
                dpjax.smooth_laplace(laplace, epsilon, delta=1e-3),
            ),
        )
        return [[made.quantile(0.9) for made in pair] for pair in pairs]

    np.testing.assert_allclose(*zip(*both(np.arange(101.0)), strict=True), rtol=1e-12)


@pytest.mark.parametrize(
    ("word", "given"),
    [
        ("q and rank", {"q": 0.25, "rank": 2}),
        ("denominator", {"q": Fraction(1, 2**27)}),
        ("definition", {"definition": "continuous"}),
    ],
)
def test_what_cannot_be_asked_together(word, given):
    with pytest.raises(ValueError, match=word):
        dpjax.local_sensitivity(np.ones(3), lower=0, upper=1, neighbors="add_remove", **given)


def test_long_ties_have_a_positive_bound():
    x = np.full(301, 0.5, np.float32)
    smooth = dpjax.smooth_sensitivity(x, 1.0, lower=0, upper=1, neighbors="add_remove")
    assert float(smooth.bound) > 0
