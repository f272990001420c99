"""Exact releases with metric privacy: what is handed to the samplers, audited over all histograms
at every distance.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dpjax import metric_privacy, release
from dpjax.release import metric as room
from tests.support.exact_draws import captured
from tests.support.statistics import assert_counts_follow

BUDGETS = np.array([[0, 1, 2.5], [1, 0, 1.75], [2.5, 1.75, 0]])
METRIC = metric_privacy.from_budgets(BUDGETS)
PRIVATE = METRIC.with_absence([0.75, 1.25, 2.0])
QUERIES = [[0.0, 1.0, 0.25], [1.0, 0.5, 0.5]]
WEIGHTS = [[3, 0, 1], [0, 2, 1], [1, 1, 0]]


def histograms(most, size=3):
    return np.array([x for x in itertools.product(range(most + 1), repeat=size) if sum(x) <= most])


def pairs(metric, most=3):
    """All ordered pairs of histograms with their distance: the cheapest matching of the records,
    null records among them.
    """
    private = metric.neighbors == "add_remove"
    closed = np.asarray(metric.closure().budgets, np.float64)
    records = [tuple(np.repeat(range(3), x)) for x in histograms(most)]
    for (a, one), (b, other) in itertools.permutations(enumerate(records), 2):
        if private:
            size = len(one) + len(other)
            one, other = (found + (3,) * (size - len(found)) for found in (one, other))
        if len(one) == len(other):
            yield (
                a,
                b,
                min(
                    sum(Fraction(closed[i, j]) for i, j in zip(one, p, strict=True))
                    for p in set(itertools.permutations(other))
                ),
            )


@pytest.fixture
def rates(monkeypatch):
    """Those of the noise that is added, of which there is none."""
    seen = []

    def silent(rates, rows, draws):
        seen.extend(rates)
        return np.zeros((draws, rows, len(rates)), int)

    monkeypatch.setattr(room, "draw_discrete_laplace", silent)
    return seen


def answers_of(metric, **options):
    """What noise is added to."""
    found = release.metric_laplace(histograms(3), QUERIES, metric, resolution=0.25, **options)
    return found.multiples[0]


def worst_excess(rates, answers, metric):
    """The largest log P(y | x) - log P(y | x') - d(x, x') over all pairs and outputs, a Fraction.

    P(y | x) is a product of tanh(lam/2) e^(-lam |y - a|): a ratio is largest at an answer, and all
    of them are tried.
    """
    outputs = [sorted({int(v) for v in answers[:, k]}) for k in range(len(rates))]

    def loss(k, a, b):
        return max(
            rates[k] * (abs(y - int(answers[b, k])) - abs(y - int(answers[a, k])))
            for y in outputs[k]
        )

    return max(sum(loss(k, a, b) for k in range(len(rates))) - d for a, b, d in pairs(metric))


@pytest.mark.parametrize("metric", [METRIC, PRIVATE], ids=["swap", "add_remove"])
def test_noisy_answers_keep_to_the_metric_exactly(metric, rates):
    answers = answers_of(metric, strategy="common")
    assert worst_excess(rates, answers, metric) == 0  # used up, and not one part in 2^60 more
    assert worst_excess([rate * Fraction(2**60 + 1, 2**60) for rate in rates], answers, metric) > 0
    np.testing.assert_array_equal(answers, np.rint(histograms(3) @ np.array(QUERIES).T * 4))


def test_given_scales_are_used_and_those_that_overspend_refused(rates):
    answers_of(METRIC, scales=[4.0, 2.0])
    assert rates == [Fraction(1, 16), Fraction(1, 8)]
    for scales in ([0.1, 0.1], [4.0, 0.0]):
        with pytest.raises(ValueError, match="scale"):
            answers_of(METRIC, scales=scales)


CHOICES = {
    "linear": lambda metric, total: (
        lambda x: release.metric_choice(x, metric, weights=WEIGHTS, resolution=1, public_n=total)
    ),
    "small_db": lambda metric, total: (
        lambda x: release.small_db(x, QUERIES, metric, size=2, resolution=0.25, public_n=total)
    ),
}


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("total", [None, 2, pytest.param(5, marks=pytest.mark.slow)])
def test_choices_keep_to_the_metric(name, total, monkeypatch):
    """With the null record also for totals that a histogram exceeds."""
    metric = METRIC if total is None else PRIVATE
    drawn, choose = captured(monkeypatch), CHOICES[name](metric, total)
    for x in histograms(3):
        choose(x)
    law = np.array([found.log_pmf(np.arange(found.size)).ravel() for found in drawn])
    excess = [np.max(law[a] - law[b]) - float(d) for a, b, d in pairs(metric)]
    assert max(excess) <= 1e-12
    assert max(excess) > -1.3  # of no use if it were far from the budgets
    half = [np.max(law[a] - law[b]) - float(d) / 4 for a, b, d in pairs(metric)]
    assert max(half) > 0  # the audit sees a quarter of the budget overspent


def test_the_rate_of_a_choice_is_tight():
    """Where a candidate has almost all the mass and another gains most: the loss comes to the
    budget.
    """
    metric = metric_privacy.from_budgets([[0.0, 0.5], [0.5, 0.0]])
    whole = np.array([[1, 0], [0, 1]], object)
    rate = room.least_ratio(
        lambda i, j: int(np.ptp(whole[:, j] - whole[:, i])), np.asarray(metric.budgets, np.float64)
    )
    assert rate == Fraction(1, 4)
    scores = np.array([[100, 0], [99, 1]]) * float(rate)
    logs = scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)
    assert 0.5 - 1e-9 < np.max(np.abs(logs[0] - logs[1])) <= 0.5


def test_draws_of_a_choice_are_those_that_are_simulated():
    x = [2, 1, 3]
    found = release.metric_choice(x, METRIC, weights=WEIGHTS, resolution=1, draws=2000)
    simulated = metric_privacy.linear_selection(
        x, METRIC, weights=np.array(WEIGHTS, float)
    ).probabilities()
    assert_counts_follow(np.bincount(found.multiples, minlength=3), np.asarray(simulated))
    assert found.to_dict()["guarantee"]["promise"].startswith("d-privacy on 3 elements")
    assert found.guarantee.between(0, 2) == pytest.approx(2000 * 2.5)


def test_counts_of_any_size_are_exact(rates):
    big = [2**53 + 1, -7, 2**60]
    found = release.metric_laplace(
        big, [[1, 0, 0], [1, 1, 1]], METRIC, resolution=1, strategy="common"
    )
    assert found.multiples[0].tolist() == [2**53 + 1, 2**53 + 1 + 2**60]


SAME = metric_privacy.from_budgets([[0, 0, 1], [0, 0, 1], [1, 1, 0]])
CHOICE = {"weights": WEIGHTS, "resolution": 1}


@pytest.mark.parametrize(
    ("choose", "word"),
    [
        (lambda: release.metric_laplace([1, 2], QUERIES, METRIC, resolution=1), "elements"),
        (lambda: release.metric_choice([1, 2, 3], PRIVATE, **CHOICE), "public"),
        (lambda: release.metric_choice([10**16, 0, 0], METRIC, **CHOICE), "coarser"),
        (lambda: release.metric_choice([1, 2, 3], SAME, **CHOICE), "budget"),
        (lambda: release.metric_laplace([1, 2, 3], QUERIES, SAME, resolution=0.25), "budget"),
    ],
)
def test_what_a_metric_does_not_protect_is_refused(choose, word):
    with pytest.raises(ValueError, match=word):
        choose()
