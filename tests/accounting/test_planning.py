"""Plans meet their budgets, and one step more or less noise does not."""

from math import inf

import pytest

from dpjax.accounting import (
    Guarantee,
    epsilon_per_query,
    gdp_of,
    least_noise,
    poisson_subsample,
    steps_within,
)


@pytest.mark.parametrize(
    "each",
    [
        Guarantee(0.14, 0.14, "swap"),
        Guarantee(neighbors="swap", gdp=0.05),
        poisson_subsample(Guarantee(neighbors="add_remove", gdp=0.7), probability=0.01),
    ],
    ids=["bounded range", "gaussian", "subsampled"],
)
def test_as_many_steps_as_fit(each):
    steps = steps_within(each, epsilon=1.0, delta=1e-6)
    assert steps > 10
    assert (steps * each).epsilon_at(1e-6) <= 1.0 < ((steps + 1) * each).epsilon_at(1e-6)


def test_steps_of_pure_budgets():
    for each, steps in ((0.25, 4), (0.01, 100), (1.1, 0)):
        assert steps_within(Guarantee(each, inf, "swap"), epsilon=1.0, delta=0.0) == steps
    assert steps_within(Guarantee(0.1, inf, "swap", delta=1e-9), epsilon=1.0, delta=0.0) == 0
    with pytest.raises(ValueError, match="must have a cost"):
        steps_within(Guarantee(0.0, 0.0, "swap"), epsilon=1.0, delta=1e-6)


def test_the_least_noise():
    def training(sigma):
        return 64 * Guarantee(neighbors="swap", gdp=1 / sigma)

    for epsilon in (0.1, 100.0):
        found = least_noise(training, epsilon=epsilon, delta=1e-6)
        less = training(found * (1 - 3e-6))
        assert training(found).epsilon_at(1e-6) <= epsilon < less.epsilon_at(1e-6)
        assert found == pytest.approx(8 / gdp_of(epsilon, delta=1e-6), rel=2e-6)
    pure = least_noise(lambda scale: Guarantee(1 / scale, inf, "swap"), epsilon=4.0, delta=0.0)
    assert 0.25 <= pure == pytest.approx(0.25, rel=1e-5)
    for cost, message in ((1.0, "no noise"), (0.01, "any noise")):
        with pytest.raises(ValueError, match=message):
            least_noise(lambda _, cost=cost: Guarantee(cost, inf, "swap"), epsilon=0.5, delta=1e-6)


@pytest.mark.parametrize(
    ("count", "epsilon", "delta"), [(1, 1.0, 1e-6), (9, 0.7, 1e-5), (300, 2.0, 1e-8)]
)
def test_per_query(count, epsilon, delta):
    at = {"count": count, "epsilon": epsilon, "delta": delta}
    found = {
        promise: epsilon_per_query(**at, promise=promise) for promise in ("pure", "bounded_range")
    }
    for promise, each in found.items():

        def spent(scale, each=each, promise=promise):
            one = scale * each
            spread = one if promise == "bounded_range" else inf
            return (count * Guarantee(one, spread, "swap")).epsilon_at(delta)

        assert spent(1.0) <= epsilon < spent(1 + 1e-5)
        assert each >= epsilon / count
    assert found["bounded_range"] > found["pure"]
