"""The bounds on d-private selections: their constants, their repairs, and that exact distributions
keep them.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.bounds.metric_selection import (
    exponential_shortfall,
    mwem_error,
    mwem_rounds,
    small_db_alpha,
    small_db_bound,
    small_db_error,
)
from dpjax.distributions.finite import Finite
from dpjax.metric_privacy import small_db_size


def test_theorem_4_holds_with_the_other_sign(x64):
    """Exactly, for random scores u and u'; and the counterexample to the printed sign."""
    random = np.random.default_rng(0)
    count, size, failure, c = 500, 6, 0.07, 0.3
    used = random.normal(size=(count, size)) * np.geomspace(0.01, 30, count)[:, None]
    used[::3] = np.round(used[::3])  # several are best
    meant = used + random.uniform(-1, 1, (count, size))
    apart = np.abs(used - meant).max(-1)
    distribution = Finite(
        jnp.arange(size, dtype=float), jnp.asarray(-used), jnp.asarray(1 / (2 * c))
    )
    mass = np.asarray(distribution.probabilities())
    best = used.max(-1)
    at_best = (used == best[:, None]).sum(-1)
    assert (at_best > 1).any()

    def missed(sign):
        limits = np.array(
            [
                b
                - sign * (m if sign < 0 else 0)
                - exponential_shortfall(
                    size, scale=c, failure=failure, num_best=int(k), mismatch=(m if sign > 0 else 0)
                )
                for b, m, k in zip(best, apart, at_best, strict=True)
            ]
        )
        return (mass * (meant <= limits[:, None])).sum(-1)

    assert (missed(1) <= failure).all()
    assert (missed(-1) > failure).any()  # the printed bound adds the mismatch
    # u = (0, 0), u' = (1, 0), c near 0: the bound says u(Z) > 0 - o(1), the printed one u(Z) > 2 -
    # o(1).
    limit = 1 - exponential_shortfall(2, scale=1e-9, failure=0.01, mismatch=1.0)
    assert -1e-6 < limit <= 0


def test_theorems_6_and_8():
    for n in (10**3, 10**6):
        for k in (1, 2, 50):
            facts = {"num_elements": 9, "num_queries": k, "scale": 0.02, "failure": 0.1}
            alpha, bound = small_db_alpha(n, **facts), small_db_bound(n, **facts)
            assert bound == pytest.approx(alpha * n, rel=1e-12)
            if alpha < 1:
                assert small_db_error(n, size=small_db_size(k, alpha=alpha / 2), **facts) <= bound
            gamma = 16 * np.log(9) * np.log(k) + 4 * np.log(10)
            assert bound >= (0.02 * n**2 * gamma) ** (1 / 3)  # the printed one
            assert small_db_bound(n, mismatch=0.25, **facts) == pytest.approx(bound + n / 4)
    facts = {"num_elements": 9, "num_queries": 50, "scale": 0.02}
    printed = 2e4 * np.sqrt(np.log(9) / 7) + 70 * 0.02 * np.log(50)
    assert mwem_error(10**4, rounds=7, **facts) == pytest.approx(printed, rel=1e-12)
    assert mwem_error(10**4, rounds=7, failure=14 / 50, **facts) == pytest.approx(
        printed, rel=1e-12
    )
    best = mwem_rounds(10**4, **facts)
    assert best == min(range(1, 2000), key=lambda t: mwem_error(10**4, rounds=t, **facts))
    assert mwem_rounds(1, **facts | {"scale": 100.0}) == 1


def test_errors():
    for call, match in (
        (lambda: exponential_shortfall(3, scale=0.0, failure=0.1), "scale"),
        (lambda: exponential_shortfall(3, scale=1.0, failure=1.0), "failure"),
        (lambda: exponential_shortfall(3, scale=1.0, failure=0.1, num_best=4), "num_best"),
        (lambda: exponential_shortfall(3, scale=1.0, failure=0.1, mismatch=-1.0), "mismatch"),
        (lambda: mwem_error(10, num_elements=3, num_queries=3, scale=1.0, rounds=0), "rounds"),
        (lambda: mwem_rounds(10, num_elements=3, num_queries=1, scale=1.0), "num_queries"),
    ):
        with pytest.raises(ValueError, match=match):
            call()
