"""What a guarantee promises against the exact curves of what has it: conversions and compositions
are never below them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import inverse_sensitivity, laplace, median, piecewise_laplace
from dpjax.accounting import Guarantee, composition_theorems, rdp_of_bounded_range, rdp_of_pure
from dpjax.auditing import privacy_loss

ORDERS = np.array([1.05, 1.5, 2.0, 5.0, 30.0])


def pairs(size, count, seed):
    """Datasets and neighbors by swap: a record goes to an end, to another record, or anywhere."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.uniform(size=(count, size)), 2)
    y = x.copy()
    y[:, 0] = np.where(
        rng.uniform(size=count) < 0.5,
        rng.integers(0, 2, count),
        np.where(rng.uniform(size=count) < 0.5, x[:, 1], 0.37),
    )
    return x, y


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.2, 3.0])
@pytest.mark.parametrize("mechanism", [piecewise_laplace, inverse_sensitivity])
def test_bounded_range_distributions_stay_below_their_conversions(mechanism, epsilon, x64):
    x, y = pairs(5, 400, 0)
    first, second = (
        mechanism(median(rows, lower=0, upper=1, neighbors="swap"), epsilon) for rows in (x, y)
    )
    loss = privacy_loss(first, second)
    promise = Guarantee(epsilon, epsilon, "swap")
    assert float(loss.bounded_range.max()) <= epsilon * (1 + 1e-9)
    exact = np.asarray(loss.renyi(ORDERS[:, None])).max(axis=1)
    tight = np.asarray(rdp_of_bounded_range(epsilon, order=ORDERS))
    assert (exact <= tight * (1 + 1e-9)).all()
    assert (exact <= promise.rdp(ORDERS) * (1 + 1e-9)).all()
    # Control: a smaller promise is passed
    assert (exact > rdp_of_bounded_range(0.3 * epsilon, order=ORDERS)).all()
    for at in (0.25 * epsilon, 0.6 * epsilon):
        one = composition_theorems.bounded_range_delta(
            epsilon, count=1, epsilon=at, queries="adaptive"
        )
        assert float(loss.delta(at).max()) <= one * (1 + 1e-9)
        assert one < composition_theorems.optimal_pure_delta([epsilon], [1], epsilon=at)


@pytest.mark.slow
def test_laplace_noise_needs_the_pure_conversion(x64):
    """Its range is 2 epsilon: the conversion of bounded range at epsilon is passed, that of pure DP
    is not.
    """
    epsilon = 1.0
    loss = privacy_loss(
        laplace(jnp.zeros(()), epsilon, sensitivity=1.0),
        laplace(jnp.ones(()), epsilon, sensitivity=1.0),
    )
    exact = np.asarray(loss.renyi(ORDERS))
    assert (exact <= np.asarray(rdp_of_pure(epsilon, order=ORDERS))).all()
    assert (exact > np.asarray(rdp_of_bounded_range(epsilon, order=ORDERS))).all()
    assert float(loss.delta(0.5)) > composition_theorems.bounded_range_delta(
        epsilon, count=1, epsilon=0.5, queries="fixed"
    )


@pytest.mark.slow
def test_two_draws_of_the_worst_pair_stay_below_their_composition(x64):
    """The exact delta of two independent draws, on a grid of losses, against all rules for two
    mechanisms.
    """
    x, y = pairs(5, 200, 1)
    epsilon = 1.0
    first, second = (
        piecewise_laplace(median(rows, lower=0, upper=1, neighbors="swap"), epsilon)
        for rows in (x, y)
    )
    worst = int(jnp.argmax(privacy_loss(first, second).delta(0.5)))
    one, other = (
        piecewise_laplace(median(rows[worst], lower=0, upper=1, neighbors="swap"), epsilon)
        for rows in (x, y)
    )
    edges = np.unique(
        np.concatenate([np.asarray(one.edges), np.asarray(other.edges), np.linspace(0, 1, 2001)])
    )
    p, q = (
        np.diff(np.asarray(distribution.cdf(jnp.asarray(edges)))) for distribution in (one, other)
    )  # a post-processing of each draw
    spent = 2 * piecewise_laplace.guarantee(median(x, lower=0, upper=1, neighbors="swap"), epsilon)

    def exact(at):
        both = ((p, q), (q, p))
        return max(
            np.maximum(np.multiply.outer(a, a) - np.exp(at) * np.multiply.outer(b, b), 0).sum()
            for a, b in both
        )

    for at in (0.3, 0.8, 1.5):
        # Two draws tell more than one
        assert float(privacy_loss(one, other).delta(at)) - 1e-3 < exact(at) <= spent.delta_at(at)
    assert exact(0.3) > (2 * Guarantee(0.4, 0.4, "swap")).delta_at(0.3)  # control


@pytest.mark.slow
def test_everything_is_monotone_in_epsilon(x64):
    x, y = pairs(5, 100, 2)

    def curves(epsilon):
        first, second = (
            piecewise_laplace(median(rows, lower=0, upper=1, neighbors="swap"), epsilon)
            for rows in (x, y)
        )
        loss = privacy_loss(first, second)
        return loss.epsilon.max(), loss.delta(0.1).max(), loss.renyi(2.0).max()

    found = np.array(jax.lax.map(curves, jnp.array([0.1, 0.5, 1.0, 2.0, 4.0]))).T
    assert (np.diff(found, axis=0) > 0).all()
