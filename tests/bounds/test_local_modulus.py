"""The lower bounds against linear programmes over all mechanisms: they are attained, so that any
larger constant is refuted.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from dpjax import from_radii, maximum, median, order_statistic
from dpjax.bounds import duff, local_modulus


def least_error(values, pairs, one, other, ratios, delta=0.0):
    """The least larger error on two datasets of any mechanism with M(x) <= ratio M(x') + delta on
    every event.

    Between f(x) and f(x') both errors are linear in the output: outputs may be rounded at random to
    the two values, and a mechanism is its probability of the second one.
    """
    size, gap = len(values), abs(values[other] - values[one])
    unit = np.eye(size + 1)  # the last unknown is the error
    rows, limits = [gap * unit[one] - unit[-1], -gap * unit[other] - unit[-1]], [0.0, -gap]
    for (i, j), ratio in zip(pairs, np.broadcast_to(ratios, len(pairs)), strict=True):
        # The constraint of the second value, and of the first.
        rows += [unit[i] - ratio * unit[j], ratio * unit[j] - unit[i]]
        limits += [delta, delta + ratio - 1]
    found = linprog(unit[-1], np.array(rows), limits, bounds=[(0, 1)] * size + [(0, None)])
    assert found.status == 0
    return found.fun


def chain(k):
    """Neighbors among k + 1 datasets, each a change from the next."""
    return [pair for i in range(k) for pair in ((i, i + 1), (i + 1, i))]


@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_the_constant_of_every_number_of_changes(x64, delta):
    """Records of which k must change before their median moves, and the datasets in between."""
    epsilon, gap, size = np.array([0.4, 1.5]), 3.0, 9
    for k in range(1, 6):
        # Sorted: rank 5 moves up to the record at rank 5 + k
        records = np.where(np.arange(size) < k + size // 2, 0.0, gap)
        profile = order_statistic(records, size // 2 + 1, lower=0.0, upper=gap, neighbors="swap")
        values = np.array([0.0] * k + [gap])
        best = [least_error(values, chain(k), 0, k, np.exp(rate), delta) for rate in epsilon]
        found = local_modulus.lower_bound(profile, epsilon, delta=delta)
        np.testing.assert_allclose(found, best, rtol=1e-7)
        plain = gap / (1 + np.exp(k * epsilon))  # the bound of groups, smaller beyond one change
        assert delta > 0 or k == 1 or (plain < found * (1 - 1e-3)).all()
        # Control: the constant of a bounded range, which epsilon-DP does not promise
        ranged = local_modulus.bounded_range_lower_bound(profile, epsilon)
        assert k == 1 or (ranged > 1.01 * np.array(best)).all()


def test_a_bounded_range(x64):
    """Each change has log-ratios in [t - epsilon, t], with a t of its own: over a grid of them
    nothing is below the bound.
    """
    epsilon, gap = 0.9, 3.0
    records = np.array([0.0, 0.0, 0.0, gap])
    profile = order_statistic(records, 2, lower=0.0, upper=gap, neighbors="swap")
    bound = local_modulus.bounded_range_lower_bound(profile, epsilon)
    assert bound == pytest.approx(gap / (1 + np.exp(epsilon)), rel=1e-12)  # two changes
    values = np.array([0.0, 0.0, gap])
    # Shares of odds that every change multiplies by exp(epsilon).
    shares = np.log(2 / (1 + np.exp(epsilon * np.array([1, -1])))) * [-1, 1]
    found = [
        least_error(values, chain(2), 0, 2, np.exp([end for t in ts for end in (t, epsilon - t)]))
        for ts in itertools.product([*np.linspace(0, epsilon, 6), *shares], repeat=2)
    ]
    assert min(found) == pytest.approx(bound, rel=1e-7)
    assert least_error(values, chain(2), 0, 2, np.exp(epsilon)) < 0.8 * bound  # epsilon-DP alone


def test_a_down_sensitivity(x64):
    """What people take away who leave, against the datasets on the way."""
    epsilon = 0.7
    down = maximum(jnp.array([2.0, 9.0, 3.0, 8.5]), lower=0.0, upper=100.0)
    values = np.asarray(down.values)
    best = max(least_error(values, chain(k), 0, k, np.exp(epsilon)) for k in range(1, 5))
    assert local_modulus.lower_bound(down, epsilon) == pytest.approx(best, rel=1e-7)
    assert local_modulus.bounded_range_lower_bound(down, epsilon) > 1.01 * best  # control


X = np.arange(5.0)
WHOLE = {"lower": 0.0, "upper": 9.0, "neighbors": "swap"}
LOOSE = {  # profiles that are reached by parts of a change, or only bound what is reached
    "fractions": lambda: median(X, **WHOLE, definition="continuous"),
    "steps": lambda: median(X, **WHOLE).truncate(1, step=1.0),
    "radii": lambda: from_radii(2.0, [1.0, 1.0], **WHOLE),
    "cut": lambda: median(X, **WHOLE).truncate(1),
    "shifted": lambda: maximum(X, lower=0.0, upper=9.0).shift(1),
}


@pytest.mark.parametrize("loose", LOOSE)
def test_profiles_that_prove_nothing_are_refused(loose):
    profile = jax.jit(LOOSE[loose])()
    with pytest.raises(ValueError, match="profile"):
        local_modulus.lower_bound(profile, 1.0)
    if loose in ("fractions", "steps"):
        with pytest.raises(ValueError, match="profile"):
            duff.level_measure(profile, 1.0)


def test_the_ends_of_the_bound():
    """A whole profile may be cut; large k epsilon neither overflows nor is NaN; a delta that gives
    everything away bounds nothing.
    """
    profile, cut = jax.jit(lambda: (whole := median(X, **WHOLE), whole.truncate(100)))()
    bound = local_modulus.lower_bound
    assert bound(cut, 1.0) == bound(profile, 1.0)
    assert 0 <= bound(profile, 1e5, delta=1e-6) < 1e-6
    assert bound(profile, 1.0, delta=1.0) == 0.0
