"""Laws: mechanisms whose two distributions are known, composed by enumeration, against every rule.

A pair has the probabilities of the same outcomes with and without one record.
"""

import itertools
from functools import reduce
from math import exp, expm1, inf

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from dpjax.accounting import Guarantee, poisson_subsample

ORDERS = np.array([1.01, 1.5, 2.0, 5.0, 30.0])
LEVELS = (0.0, 0.4, 1.7)
DELTAS = (1e-4, 0.1)


def promise(*given, **named):
    return Guarantee(*given, neighbors="add_remove", **named)


def responses(epsilon, delta=0.0):
    """Randomized response, except with probability delta: the worst (epsilon, delta)-DP pair."""
    kept = (1 - delta) / (1 + exp(epsilon))
    p = np.array([delta, exp(epsilon) * kept, kept, 0.0])
    return p, p[::-1]


def two_losses(spread, top):
    first = expm1(top - spread) / expm1(-spread) * exp(-top)
    q = np.array([first, 1 - first])
    return q * np.exp([top, top - spread]), q


def binned(law, shift):
    """Noise that is rounded to cells."""
    edges = np.array([-inf, *np.linspace(-4, 4 + shift, 14), inf])
    return tuple(np.diff(law.cdf(edges - at)) for at in (shift, 0.0))


def product(first, second):
    return tuple(np.outer(p, q).ravel() for p, q in zip(first, second, strict=True))


def on_sample(pair, share):
    p, q = pair
    return share * p + (1 - share) * q, q


PURE, NOISE = promise(0.7), promise(gdp=0.6)
BOTH = product(responses(0.7), binned(stats.norm, 0.6))
MECHANISMS = {
    "pure": (PURE, responses(0.7)),
    "approximate": (promise(0.5, delta=0.002), responses(0.5, 0.002)),
    "gaussian": (NOISE, binned(stats.norm, 0.6)),
    "laplace": (promise(0.5, 1.0, laplace=0.5), binned(stats.laplace(scale=2.0), 1.0)),
    "low range": (promise(inf, 0.8), two_losses(0.8, 0.2)),
    "range": (promise(inf, 0.8), two_losses(0.8, 0.4)),
    "range within epsilon": (promise(0.6, 0.9), two_losses(0.9, 0.6)),
    "sample": (poisson_subsample(PURE, probability=0.3), on_sample(responses(0.7), 0.3)),
    "approximate sample": (
        poisson_subsample(promise(0.5, delta=0.02), probability=0.3),
        on_sample(responses(0.5, 0.02), 0.3),
    ),
    "on one sample": (poisson_subsample(PURE + NOISE, probability=0.3), on_sample(BOTH, 0.3)),
}
CASES = [(name,) for name in MECHANISMS]
CASES += [(name,) * 4 for name in MECHANISMS if "one" not in name and name != "laplace"]
CASES += [each for each in itertools.combinations(MECHANISMS, 2) if "low range" not in each]


def divergence(p, q, epsilon):
    """The delta of a pair at an epsilon, in both directions."""
    return max(np.maximum(a - exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))


def renyi(p, q):
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = ORDERS[:, None] * np.log(p) + (1 - ORDERS[:, None]) * np.log(q)
    return logsumexp(np.where((p > 0) & (q > 0), terms, -inf), axis=-1) / (ORDERS - 1)


@pytest.mark.parametrize("names", CASES, ids=" and ".join)
def test_every_rule_covers_what_is_composed(names):
    """The controls: a mechanism more than is charged, and an epsilon that is smaller by a tenth."""
    spent = sum(MECHANISMS[name][0] for name in names)
    p, q = reduce(product, (MECHANISMS[name][1] for name in names))
    more, passed = product((p, q), MECHANISMS[names[0]][1]), len(names) > 1
    for delta in DELTAS:
        rules = spent.rules_at(delta)
        for rule, epsilon in rules.items():
            assert divergence(p, q, epsilon) <= delta * (1 + 1e-9) + 1e-12, rule
        if {*names} in ({"pure"}, {"approximate"}) and rules:
            assert divergence(p, q, 0.9 * min(rules.values())) > delta
        passed = passed or divergence(*more, min(rules.values(), default=700.0)) > delta
    assert passed
    one = spent.guarantee()
    for level in LEVELS:
        exact = divergence(p, q, level) - 1e-12
        assert exact <= min(spent.delta_at(level), one.delta_at(level))
    if not spent.delta:
        divergences = np.maximum(renyi(p, q), renyi(q, p)) * (1 - 1e-6)
        for promised in (spent, one):
            assert (divergences <= promised.rdp(ORDERS)).all()
            assert (divergences <= ORDERS * promised.zcdp).all()
            seen = (p > 0) & (q > 0)
            assert np.ptp(np.log(p[seen] / q[seen])) <= promised.bounded_range * (1 + 1e-9)
