"""The bounds on d-private selections: their constants, their repairs, and that exact distributions
keep them.
"""

import numpy as np
import pytest

from dpjax.bounds import metric_selection
from dpjax.metric_privacy import small_db_size


def test_theorem_4_holds_with_the_other_sign():
    """Exactly, for random scores u and u'; and the counterexample to the printed sign."""
    random = np.random.default_rng(0)
    count, size, failure, c = 500, 6, 0.07, 0.3
    used = random.normal(size=(count, size)) * np.geomspace(0.01, 30, count)[:, None]
    used[::3] = np.round(used[::3])  # several are best
    meant = used + random.uniform(-1, 1, (count, size))
    apart = np.abs(used - meant).max(-1)
    best = used.max(-1)
    mass = np.exp((used - best[:, None]) / (2 * c))
    mass /= mass.sum(-1, keepdims=True)
    at_best = (used == best[:, None]).sum(-1)
    assert (at_best > 1).any()

    def missed(sign):
        shortfalls = [
            metric_selection.exponential_shortfall(
                size, scale=c, failure=failure, num_best=int(k), mismatch=m
            )
            for m, k in zip(apart, at_best, strict=True)
        ]
        limits = best - shortfalls + (0 if sign > 0 else 2 * apart)
        return (mass * (meant <= limits[:, None])).sum(-1)

    assert (missed(1) <= failure).all()
    assert (missed(-1) > failure).any()  # the printed bound adds the mismatch
    # u = (0, 0), u' = (1, 0), c near 0: the bound says u(Z) > 0 - o(1), the printed one u(Z) > 2 -
    # o(1).
    shortfall = metric_selection.exponential_shortfall(2, scale=1e-9, failure=0.01, mismatch=1.0)
    assert -1e-6 < 1 - shortfall <= 0


def test_theorem_6():
    theorem = metric_selection
    for n in (10**3, 10**6):
        for k in (1, 2, 50):
            facts = {"num_elements": 9, "num_queries": k, "scale": 0.02, "failure": 0.1}
            alpha, bound = theorem.small_db_alpha(n, **facts), theorem.small_db_bound(n, **facts)
            assert bound == pytest.approx(alpha * n, rel=1e-12)
            if alpha < 1:
                size = small_db_size(k, alpha=alpha / 2)
                assert theorem.small_db_error(n, size=size, **facts) <= bound
            gamma = 16 * np.log(9) * np.log(k) + 4 * np.log(10)
            assert bound >= (0.02 * n**2 * gamma) ** (1 / 3)  # the printed one
            assert theorem.small_db_bound(n, mismatch=0.25, **facts) == pytest.approx(bound + n / 4)


def test_theorem_8():
    facts = {"num_elements": 9, "num_queries": 50, "scale": 0.02}
    error = metric_selection.mwem_error
    printed = 2e4 * np.sqrt(np.log(9) / 7) + 70 * 0.02 * np.log(50)
    for failure in (None, 14 / 50):
        found = error(10**4, rounds=7, failure=failure, **facts)
        assert found == pytest.approx(printed, rel=1e-12)
    best = metric_selection.mwem_rounds(10**4, **facts)
    assert best == min(range(1, 2000), key=lambda t: error(10**4, rounds=t, **facts))
    assert metric_selection.mwem_rounds(1, **facts | {"scale": 100.0}) == 1
