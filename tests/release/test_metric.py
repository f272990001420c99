"""Exact releases with metric privacy: the rates of the noise, audited over all histograms at every
distance.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dpjax import metric_privacy, release
from dpjax.accounting import PrivacyFilter
from dpjax.release.noise import DiscreteLaplace
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

METRIC = metric_privacy.from_budgets([[0, 1, 2.5], [1, 0, 1.75], [2.5, 1.75, 0]])
PRIVATE = METRIC.with_absence([0.5, 0.75, 1.0])
QUERIES = [[0.0, 1.0, 0.25], [1.0, 0.5, 0.5]]
HISTOGRAMS = np.array([x for x in itertools.product(range(4), repeat=3) if sum(x) <= 3])


def pairs(metric):
    """All ordered pairs of histograms with their distance: the cheapest matching of the records,
    null records among them.
    """
    closed = np.asarray(metric.closure().budgets, np.float64)
    records = [tuple(np.repeat(range(3), x)) for x in HISTOGRAMS]
    for (a, one), (b, other) in itertools.permutations(enumerate(records), 2):
        if metric.neighbors == "add_remove":
            size = len(one) + len(other)
            one, other = (found + (3,) * (size - len(found)) for found in (one, other))
        if len(one) == len(other):
            matchings = set(itertools.permutations(other))
            costs = (zip(one, matching, strict=True) for matching in matchings)
            yield a, b, min(sum(Fraction(closed[i, j]) for i, j in cost) for cost in costs)


@pytest.fixture
def rates(monkeypatch):
    """Those of the noise that is added, of which there is none."""
    seen = []

    def silent(distribution, draws):
        seen.append(distribution.rate)
        return np.broadcast_to(distribution.number, (draws, *distribution.number.shape))

    monkeypatch.setattr(DiscreteLaplace, "positions", silent)
    return seen


def answers_of(metric, **options):
    """What noise is added to, in multiples of the resolution."""
    found = release.metric_laplace(HISTOGRAMS, QUERIES, metric, resolution=0.25, **options)
    return (found.values[0] * 4).astype(int)


def worst_excess(rates, answers, metric):
    """The largest log P(y | x) - log P(y | x') - d(x, x') over all pairs and outputs, a Fraction.

    P(y | x) is a product of tanh(lam/2) e^(-lam |y - a|), and a ratio is largest at y = a.
    """
    return max(
        sum(
            rate * abs(int(move)) for rate, move in zip(rates, answers[a] - answers[b], strict=True)
        )
        - distance
        for a, b, distance in pairs(metric)
    )


@pytest.mark.parametrize("metric", [METRIC, PRIVATE], ids=["swap", "add_remove"])
@pytest.mark.parametrize("strategy", ["common", "optimal"])
def test_noisy_answers_keep_to_the_metric_exactly(metric, strategy, rates):
    answers = answers_of(metric, strategy=strategy)
    np.testing.assert_array_equal(answers, np.rint(HISTOGRAMS @ np.array(QUERIES).T * 4))
    assert worst_excess(rates, answers, metric) == 0  # used up, and not one part in 2^60 more
    assert worst_excess([rate * Fraction(2**60 + 1, 2**60) for rate in rates], answers, metric) > 0


def test_draws_follow_the_noise_and_only_what_is_protected_is_noisy():
    pair = metric_privacy.from_budgets([[0.0, 0.25], [0.25, 0.0]])
    options = {"resolution": 1, "draws": 20_000}
    found = release.metric_laplace([40, 3], [[1, 0], [1, 1]], pair, **options)
    assert found.values.shape == (20_000, 2)
    assert (found.values[:, 1] == 43).all()
    noise = np.arange(-60, 61)
    counts = np.bincount(found.values[:, 0].astype(int) - 40 + 60, minlength=121)
    for scale, follow in ((4.0, assert_counts_follow), (3.2, assert_counts_rejected)):
        follow(counts, np.tanh(0.5 / scale) * np.exp(-np.abs(noise) / scale))
    assert found.guarantee.between(0, 1) == pytest.approx(5000)
    assert str(found.guarantee).startswith("d-privacy on 2 elements")


def test_counts_of_any_size_are_exact(rates):
    big = [2**53 + 1, -7, 2**60]
    options = {"resolution": 1, "strategy": "common"}
    for x in (big, np.array(big)):
        found = release.metric_laplace(x, [[1, 0, 0], [1, 1, 1]], METRIC, **options)
        assert found.values[0].tolist() == [2.0**53, float(2**53 + 1 + 2**60)]
    far = [[10**9, 10**9 + 1, 10**9]]  # of which only the differences matter
    release.metric_laplace(big, far, METRIC, **options)
    assert rates[-1] == 1
    huge = release.metric_laplace([10**400, 0, 0], [[1, 0, 0]], METRIC, **options)
    assert huge.values.item() == 2.0**62
    missing = release.metric_laplace([None, 2, 1.5], [[1, 1, 1]], METRIC, resolution=1)
    assert missing.values.item() == 2.0


SAME = metric_privacy.from_budgets([[0, 0, 1], [0, 0, 1], [1, 1, 0]])


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        ({"x": np.ones(3)}, TypeError, "integers"),
        ({"metric": SAME}, ValueError, "budget"),
        ({"resolution": 5e-324}, ValueError, "resolution"),
        ({"resolution": 1e-15}, ValueError, "times the resolution"),
        ({"draws": 10**400}, ValueError, "draws"),
    ],
)
def test_what_is_refused_is_refused_before_a_charge(change, error, word):
    budget = PrivacyFilter(epsilon=9.0, delta=0.0, neighbors="swap")
    known = {"x": [1, 2, 3], "queries": QUERIES, "metric": METRIC, "resolution": 0.25}
    with pytest.raises(error, match=word):
        release.metric_laplace(**known | change, budget=budget)
    assert budget.remaining == 9.0
    release.metric_laplace(**known, budget=budget)
    assert budget.remaining == 6.5
