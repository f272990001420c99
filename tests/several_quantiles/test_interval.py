"""Confidence intervals: coverage in simulation, the bound against the exact law of the worst data,
and what must fail.
"""

from dataclasses import replace
from fractions import Fraction
from math import sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import ConfidenceInterval, confidence_interval, interval_coverage, interval_levels
from dpjax.several_quantiles import interval as module

ROWS, N = 2000, 300
GRID = {"lower": 0, "upper": 10_000, "resolution": 1}


def populations(rng):
    """Records on the grid, with the two ends of the medians of their population: any number between
    them is one.
    """
    size = ROWS, N
    half = rng.random(size)
    return {
        "lognormal": (np.exp(7 + 0.8 * rng.normal(size=size)), 1097, 1097),
        "normal": (5000 + 1000 * rng.normal(size=size), 5000, 5000),
        "heavy tails": (5000 + 500 * rng.standard_cauchy(size=size), 5000, 5000),
        "two modes": (np.where(half < 0.5, 4000 * half, 6000 + 4000 * half), 2000, 8000),
        "integers with ties": (100 * np.round(50 + 15 * rng.normal(size=size)), 5000, 5000),
    }


def held(draws, low, high):
    """How often the intervals hold the median that is missed most often."""
    return min(
        float(np.mean((draws[..., 0] <= median) & (draws[..., 1] >= median)))
        for median in (low, high)
    )


def beyond(share, size=ROWS):
    """The share, and four of its standard errors."""
    return share + 4 * sqrt(share * (1 - share) / size)


@pytest.fixture(scope="module")
def tables():
    return populations(np.random.default_rng(0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "options"),
    [
        (
            ["lognormal", "normal", "heavy tails", "two modes"],
            {"epsilon": 20.0, "neighbors": "swap", "ties": 3},
        ),
        (
            ["two modes", "integers with ties"],
            {"epsilon": 4.0, "neighbors": "add_remove", "ties": 20, "terms": 4},
        ),
    ],
)
def test_coverage(names, options, tables):
    rows = ROWS if options["neighbors"] == "swap" else ROWS // 4
    x = np.stack([tables[name][0][:rows] for name in names])
    interval = confidence_interval(x, 0.5, coverage=0.9, public_n=N, **options, **GRID)
    assert interval.batch_shape == (len(names), rows)
    assert 0.9 <= interval.coverage < 0.91
    draws = np.asarray(interval.sample(jax.random.key(0)))
    assert (draws[..., 0] <= draws[..., 1]).all()
    np.testing.assert_array_equal(draws, np.round(draws))
    for name, mine in zip(names, draws, strict=True):
        share = held(mine, *tables[name][1:])
        assert beyond(share, rows) >= 0.9
        if options["epsilon"] == 20.0:
            assert share < 0.99  # there is not much to spare


def simple(levels, epsilon, x):
    """Two joint quantiles at any levels."""
    asked = dpjax.quantiles(x, levels, neighbors="swap", **GRID)
    return np.asarray(dpjax.joint_quantiles(asked, epsilon).sample(jax.random.key(1)))


@pytest.mark.slow
def test_parts_of_the_slack_are_not_enough(tables):
    x, *medians = tables["two modes"]
    binomial_only = simple(["0.44", "0.56"], np.array([[0.3], [50.0]], np.float32), x)
    assert beyond(held(binomial_only[0], *medians)) < 0.9  # at a small epsilon
    assert held(binomial_only[1], *medians) > 0.9  # they suffice at a large one
    # The slack for privacy there, and no binomial one
    assert beyond(held(simple(["0.49", "0.51"], 50.0, x), *medians)) < 0.9


@pytest.mark.slow
def test_half_of_all_records_at_one_value_are_covered():
    rng = np.random.default_rng(3)
    x = np.where(rng.random((ROWS, N)) < 0.5, 300.0, rng.integers(301, 1001, (ROWS, N)))
    options = {"lower": 0, "upper": 1000, "neighbors": "swap", "coverage": 0.9, "resolution": 1}
    found = confidence_interval(x, 0.5, 3.0, **options)
    assert beyond(held(np.asarray(found.sample(jax.random.key(0))), 300, 300)) >= 0.9
    assert beyond(held(simple(["0.49", "0.51"], 3.0, x), 300, 300)) < 0.9  # control


def misses(law, records, levels, plan):
    """Exact probabilities that an end is beyond each multiple, and their bounds: (2, multiples,
    rows).
    """
    n, points = records.shape[-1], np.arange(plan.multiples - 1)
    low, high = map(float, levels)
    pairs = module.log_pairs(plan, low, high, n)
    exact, bounds = [], []
    marginals = law.marginals()
    for point in points:
        upto = np.asarray(marginals.cdf(point))
        fewer = np.sum(records <= point, axis=-1)
        exact.append([1 - upto[..., 0], upto[..., 1]])
        errors = fewer - 0.5 - low * (n - 1), (n - fewer) - 0.5 - (1 - high) * (n - 1)
        bounds.append(
            [
                module.tail_of(plan, e, p, pairs)
                for e, p in zip(errors, (low, 1 - high), strict=True)
            ]
        )
    return np.array(exact), np.array(bounds)


def datasets(rng, rows, multiples, n, ties):
    """Records on a grid, of all shapes, with no more than ``ties`` at one multiple."""
    found = []
    while len(found) < rows:
        shares = rng.dirichlet(np.full(multiples, rng.choice([0.3, 1.0, 10.0])))
        counts = np.zeros(multiples, int)
        while (left := n - counts.sum()) > 0:
            shares = np.where(counts < ties, shares + 1e-12, 0.0)
            counts = np.minimum(counts + rng.multinomial(left, shares / shares.sum()), ties)
        found.append(np.repeat(np.arange(multiples), counts))
    return np.array(found, float)


@pytest.mark.parametrize(
    ("neighbors", "epsilon"),
    [
        ("swap", 1.0),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("swap", 5.0), ("add_remove", 1.5), ("add_remove", 3.0))
        ),
    ],
)
def test_rank_errors_are_within_the_bound(neighbors, epsilon, x64):
    levels, ties, multiples = ("0.25", "0.75"), 3, 30
    records = datasets(np.random.default_rng(1), 200, multiples, 40, ties)
    plan = module.plan_of(epsilon, 0, multiples - 1, 1, neighbors, ties, 4)
    asked = dpjax.quantiles(
        records, levels, lower=0, upper=multiples - 1, neighbors=neighbors, resolution=1
    )
    law = replace(
        dpjax.joint_quantiles(asked, epsilon, reach=plan.reach or None, terms=max(plan.terms, 2)),
        aims="ranks",
    )
    exact, bounds = misses(law, records, levels, plan)
    assert (exact <= bounds * (1 + 1e-9) + 1e-12).all()
    assert (bounds < 0.1).mean() > 0.1


def test_pairs_count_twice(x64):
    # Two gaps: y_1 is as far above its rank in the first as y_2 in the second one.
    x = np.concatenate([np.arange(60.0), 5000 + np.arange(97.0), 10000 + np.arange(43.0)])
    plan = module.plan_of(4.5, 0, 10042, 1, "swap", 1, 32)
    asked = dpjax.quantiles(
        x, ["0.25", "0.75"], lower=0, upper=10042, neighbors="swap", resolution=1
    )
    miss = 1 - float(
        replace(dpjax.joint_quantiles(asked, 4.5), aims="ranks").marginals().cdf(59.0)[0]
    )
    pairs = module.log_pairs(plan, 0.25, 0.75, 200)
    bound = float(module.tail_of(plan, np.array([60.5 - 1 - 0.25 * 199]), 0.25, pairs)[0])
    assert bound / 15 < miss < bound < 0.1
    # A bound that counts multiples and not pairs would be wrong
    assert miss > 100 * bound / plan.multiples


def test_binomial_part_is_that_of_order_statistics():
    # With a huge epsilon the lower end has a rank of at most 468: P(Binomial(1000, 1/2) <= 468) <
    # 0.025 < P(... <= 469).
    low, high = interval_levels(0.5, 1e4, public_n=1000, ties=1, neighbors="swap", **GRID)
    assert 468 <= 1 + float(low) * 999 <= 469
    assert low + high == 1
    assert (
        interval_levels(0.5, 1e4, public_n=1000, ties=1, neighbors="add_remove", **GRID)[0] == low
    )
    third = interval_levels(Fraction(1, 3), 20.0, public_n=1000, ties=1, neighbors="swap", **GRID)
    assert sum(third) == Fraction(2, 3)


@pytest.mark.parametrize("neighbors", ["swap", pytest.param("add_remove", marks=pytest.mark.slow)])
def test_what_makes_intervals_wider(neighbors):
    def width(**changes):
        options = (
            {"epsilon": 1.0, "public_n": 1000, "ties": 5, "neighbors": neighbors} | GRID | changes
        )
        low, high = interval_levels(0.5, **options)
        assert 0.95 <= interval_coverage((low, high), 0.5, **options) < 0.952
        nearer = (low + Fraction(1, 500), high - Fraction(1, 500))
        assert interval_coverage(nearer, 0.5, **options) < 0.95
        return high - low

    usual = width()
    assert width(epsilon=0.5) > usual > width(epsilon=2.0)
    assert width(upper=100_000) > usual > width(upper=1000)
    assert width(ties=20) > usual > width(ties=1)
    assert width(public_n=500) > usual > width(public_n=2000)
    if neighbors == "add_remove":
        assert 1.2 * usual > width(terms=8) > usual


def test_another_number_of_records():
    options = {"q": 0.5, "epsilon": 1.0, "neighbors": "add_remove", "ties": 5} | GRID
    levels = interval_levels(public_n=1000, **options)
    found = np.array(
        [
            interval_coverage(levels, public_n=n, **options)
            for n in (800, 950, 1000, 1001, 1007, 1100, 2000)
        ]
    )
    assert (np.diff(found[[0, 1, 2, 5, 6]]) > 0).all()
    assert (found[2:] > 0.949).all()
    assert found[0] >= 0


@pytest.mark.slow
def test_draws_are_those_of_joint_quantiles():
    x = np.random.default_rng(0).normal(5000, 1000, (4, 200)).astype(np.float32)
    key, count = jax.random.key(5), jnp.array([200, 190, 100, 0], jnp.int32)
    public = {"neighbors": "swap", "ties": 4} | GRID

    def given(data):
        return confidence_interval(data[0], 0.5, 5.0, public_n=190, num_records=data[1], **public)

    interval, draws = jax.jit(lambda data: (given(data), given(data).sample(key, 3)))((x, count))
    assert isinstance(interval, ConfidenceInterval)
    assert interval.event_shape == (2,)
    assert interval.levels == interval_levels(0.5, 5.0, public_n=190, **public)
    assert interval.coverage == interval_coverage(interval.levels, 0.5, 5.0, public_n=190, **public)
    asked = dpjax.quantiles(x, interval.levels, neighbors="swap", num_records=count, **GRID)
    np.testing.assert_array_equal(
        draws,
        jax.jit(lambda a: replace(dpjax.joint_quantiles(a, 5.0), aims="ranks").sample(key, 3))(
            asked
        ),
    )
    np.testing.assert_array_equal(draws, dpjax.sharded_sample(key, given, (x, count), shape=(3,)))
    assert dpjax.confidence_interval.guarantee("swap", 5.0) == dpjax.Guarantee(5.0, 5.0, "swap")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"neighbors": "add_remove"}, "public_n"),  # whose number of records is private
        ({"num_records": 100}, "public_n"),
        ({"public_n": 301}, "public_n"),  # more than there are
        ({"epsilon": 0.01}, "coverage"),  # that no levels have
        ({"resolution": 3}, "resolution"),
    ],
)
def test_what_has_no_interval(changes, word):
    good = {"q": 0.5, "epsilon": 5.0, "neighbors": "swap", "ties": 2} | GRID
    with pytest.raises(ValueError, match=word):
        confidence_interval(np.zeros(300), **(good | changes))
