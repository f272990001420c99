"""The bounds on d-private selections: their constants, their repairs, and that exact distributions
keep them.
"""

import numpy as np
import pytest

from dpjax.bounds import metric_selection as theorems
from dpjax.metric_privacy import small_db_size


def test_theorem_4_holds_with_the_other_sign():
    """Exactly, for random scores u and u'; and the counterexample to the printed sign."""
    random = np.random.default_rng(0)
    count, size, failure, c = 200, 6, 0.07, 0.3
    used = random.normal(size=(count, size)) * np.geomspace(0.01, 30, count)[:, None]
    used[::3] = np.round(used[::3])  # several are best
    meant = used + random.uniform(-1, 1, (count, size))
    apart, best = np.abs(used - meant).max(-1), used.max(-1)
    mass = np.exp((used - best[:, None]) / (2 * c))
    mass /= mass.sum(-1, keepdims=True)
    shortfalls = [
        theorems.exponential_shortfall(size, scale=c, failure=failure, num_best=int(k), mismatch=m)
        for m, k in zip(apart, (used == best[:, None]).sum(-1), strict=True)
    ]

    def missed(limits):
        return (mass * (meant <= limits[:, None])).sum(-1)

    assert (missed(best - shortfalls) <= failure).all()
    assert (missed(best - shortfalls + 2 * apart) > failure).any()  # the printed sign
    # u = (0, 0), u' = (1, 0), c near 0: the printed bound says u(Z) > 2 - o(1).
    shortfall = theorems.exponential_shortfall(2, scale=1e-9, failure=0.01, mismatch=1.0)
    assert -1e-6 < 1 - shortfall <= 0
    with pytest.raises(ValueError, match="num_best must be at most"):
        theorems.exponential_shortfall(2, scale=0.1, failure=0.01, num_best=3)


@pytest.mark.parametrize("n", [10**3, 10**6])
@pytest.mark.parametrize("k", [1, 2, 50])
def test_theorem_6(n, k):
    facts = {"num_elements": 9, "num_queries": k, "scale": 0.02, "failure": 0.1}
    alpha, bound = theorems.small_db_alpha(n, **facts), theorems.small_db_bound(n, **facts)
    if alpha < 1:
        size = small_db_size(k, alpha=alpha / 2)
        assert theorems.small_db_error(n, size=size, **facts) <= bound
    printed = (0.02 * n**2 * (16 * np.log(9) * np.log(k) + 4 * np.log(10))) ** (1 / 3)
    assert printed <= bound == pytest.approx(n * alpha)
    assert theorems.small_db_bound(n, mismatch=0.25, **facts) == pytest.approx(bound + n / 4)


def test_theorem_8():
    facts, error = {"num_elements": 9, "num_queries": 50, "scale": 0.02}, theorems.mwem_error
    printed = 2e4 * np.sqrt(np.log(9) / 7) + 70 * 0.02 * np.log(50)
    for failure in (None, 14 / 50):
        found = error(10**4, rounds=7, failure=failure, **facts)
        assert found == pytest.approx(printed, rel=1e-12)
    best = theorems.mwem_rounds(10**4, **facts)
    assert best == min(range(1, 2000), key=lambda t: error(10**4, rounds=t, **facts))
    assert theorems.mwem_rounds(1, **facts | {"scale": 100.0}) == 1
