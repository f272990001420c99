"""The lower bounds against linear programmes over all mechanisms: they are attained, so that any
larger constant is refuted.
"""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from dpjax import (
    from_radii,
    maximum,
    median,
    order_statistic,
    piecewise_laplace,
)
from dpjax.bounds import duff, finite_ranges, local_modulus
from tests.support import oracle
from tests.support.audit import padded

GRID = (0.0, 1.0, 5.0)


def family(neighbors):
    """Small datasets, their order statistic, its exact profile and all ordered neighbors."""
    datasets = oracle.all_datasets([4] if neighbors == "swap" else range(4), GRID)
    x, count = padded(datasets, 4)
    if neighbors == "swap":
        profile = order_statistic(x, 2, lower=0.0, upper=5.0, neighbors="swap")
    else:
        profile = median(
            x, lower=0.0, upper=5.0, neighbors=neighbors, definition="lower", num_records=count
        )
    index = {data: i for i, data in enumerate(datasets)}
    pairs = [
        (i, index[y])
        for x, i in index.items()
        for y in oracle.neighbors_of(x, neighbors, GRID)
        if y in index
    ]
    return profile, np.asarray(profile.value), pairs


def least_error(values, pairs, one, other, ratios, delta=0.0):
    """The least larger error on two datasets of any mechanism with M(x) <= ratio M(x') + delta on
    every event.

    Between f(x) and f(x') both errors are linear in the output: outputs may be rounded at random to
    the two values, and a mechanism is its probability of the second one.
    """
    size, gap = len(values), abs(values[other] - values[one])
    rows, limits = [], []
    for (i, j), ratio in zip(pairs, np.broadcast_to(ratios, (len(pairs),)), strict=True):
        # The constraint of the second value, and of the first.
        for sign, limit in ((1, delta), (-1, delta + ratio - 1)):
            row = np.zeros(size + 1)
            row[i], row[j] = sign, -sign * ratio
            rows.append(row)
            limits.append(limit)
    # Errors gap * p and gap * (1 - p), below the objective
    for i, sign, limit in ((one, 1, 0.0), (other, -1, -gap)):
        row = np.zeros(size + 1)
        row[i], row[-1] = sign * gap, -1
        rows.append(row)
        limits.append(limit)
    found = linprog(
        np.eye(size + 1)[-1], np.array(rows), limits, bounds=[(0, 1)] * size + [(0, None)]
    )
    assert found.status == 0
    return found.fun


@pytest.mark.parametrize(
    ("neighbors", "epsilon", "delta"),
    [("swap", 0.3, 0.0), ("add_remove", 0.8, 0.0), ("swap", 0.5, 0.03)],
)
def test_the_bound_is_the_best_that_any_mechanism_reaches(x64, neighbors, epsilon, delta):
    profile, values, pairs = family(neighbors)

    @jax.jit
    def bounds(profile):
        jump = replace(profile.truncate(0), reached="extremes")
        of_both = [local_modulus.lower_bound(p, epsilon, delta=delta) for p in (profile, jump)]
        return *of_both, local_modulus.bounded_range_lower_bound(profile, epsilon)

    rows = range(len(values) - 5, len(values))
    bound, jump, ranged = (np.asarray(each)[list(rows)] for each in bounds(profile))
    best = [
        max(
            least_error(values, pairs, i, j, np.exp(epsilon), delta)
            for j in range(len(values))
            if values[j] != values[i]
        )
        for i in rows
    ]
    np.testing.assert_allclose(bound, best, rtol=1e-7)
    # Controls: a constant that is 1 % larger, that of a bounded range, which epsilon-DP does not
    # promise, and a profile with values that no dataset has.
    assert (1.01 * bound > best).all()
    assert (ranged > best).any()
    assert (jump > 1.01 * np.array(best)).any()


@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_the_constant_of_every_number_of_changes(x64, delta):
    """Records of which k must change before their median moves, and the linear programme on the
    datasets in between.
    """
    epsilon, gap, size = 0.4, 3.0, 9
    for k in range(1, 6):
        # Sorted: rank 5 moves up to the record at rank 5 + k
        records = np.where(np.arange(size) < k + size // 2, 0.0, gap)
        profile = order_statistic(records, size // 2 + 1, lower=0.0, upper=gap, neighbors="swap")
        assert profile.upper.tolist() == [0.0] * k + [gap] * (6 - k)
        values = np.array([0.0] * k + [gap])
        chain = [pair for i in range(k) for pair in ((i, i + 1), (i + 1, i))]
        best = least_error(values, chain, 0, k, np.exp(epsilon), delta)
        assert float(local_modulus.lower_bound(profile, epsilon, delta=delta)) == pytest.approx(
            best, rel=1e-7
        )
        plain = gap / (1 + np.exp(k * epsilon))  # the bound of groups, smaller beyond one change
        assert delta > 0 or (
            plain < best * (1 - 1e-3) if k > 1 else plain == pytest.approx(best, rel=1e-7)
        )


def test_a_bounded_range(x64):
    """Each change has log-ratios in [t - epsilon, t], with a t of its own: over a grid of them
    nothing is below the bound.
    """
    epsilon, gap = 0.9, 3.0
    # One change: no move
    profile = order_statistic(
        np.array([0.0, 0.0, 0.0, gap]), 2, lower=0.0, upper=gap, neighbors="swap"
    )
    assert profile.upper.tolist() == [0.0, 0.0, gap, gap]
    bound = float(local_modulus.bounded_range_lower_bound(profile, epsilon))
    assert bound == pytest.approx(gap / (1 + np.exp(epsilon)), rel=1e-12)  # two changes
    chain, found = [(0, 1), (1, 0), (1, 2), (2, 1)], {}
    # Shares of odds that every change multiplies by exp(epsilon).
    shares = np.log(2 / (1 + np.exp(epsilon * np.array([1, -1])))) * [-1, 1]
    for t in itertools.product([*np.linspace(0, epsilon, 6), *shares], repeat=2):
        ratios = np.exp([side for first in t for side in (first, epsilon - first)])
        found[t] = least_error(np.array([0.0, 0.0, gap]), chain, 0, 2, ratios)
    assert min(found.values()) == pytest.approx(bound, rel=1e-7)
    free = least_error(np.array([0.0, 0.0, gap]), chain, 0, 2, np.exp(epsilon))
    # What epsilon-DP alone allows
    assert free == pytest.approx(gap * np.exp(-epsilon) / 2, rel=1e-7)
    assert free < 0.8 * bound


def test_even_spacing_in_closed_form(x64):
    """Omega(k) is k gaps: the bound is that of the best k, and piecewise Laplace about 3.6 times
    above it.
    """
    epsilon = np.array([[0.1], [0.5], [2.0]])
    gaps = np.array([1.0, 3.0])
    profile = median(
        gaps[:, None] * np.arange(1.0, 200.0), lower=0.0, upper=200 * gaps, neighbors="swap"
    )
    k = np.arange(1.0, 100.0)
    pure = np.where(
        k % 2 == 0,
        np.exp(-k * epsilon / 2) / 2,
        np.exp(-(k - 1) * epsilon / 2) / (1 + np.exp(epsilon)),
    )
    best = np.max(k * pure, axis=-1)[:, None] * gaps

    @jax.jit
    def bounds(profile, epsilon):
        of_both = local_modulus.lower_bound, local_modulus.bounded_range_lower_bound
        error = piecewise_laplace(profile, epsilon).mean_abs_error(profile.value)
        return [bound(profile, epsilon) for bound in of_both], error

    (found, ranged), error = bounds(profile, epsilon)
    np.testing.assert_allclose(found, best, rtol=1e-12)
    np.testing.assert_allclose(
        ranged[:, 0], np.max(k / (1 + np.exp(k * epsilon / 2)), axis=-1), rtol=1e-12
    )
    assert ((found < ranged) & (ranged < 2 * found)).all()
    assert ((error / ranged > 3.4) & (error / ranged < 3.8)).all()


def test_a_down_sensitivity(x64):
    """What people take away who leave, against the linear programme on the datasets on the way."""
    epsilon = 0.7
    down = maximum(jnp.array([2.0, 9.0, 3.0, 8.5]), lower=0.0, upper=100.0)
    values = np.asarray(down.values)
    chain = [pair for i in range(4) for pair in ((i, i + 1), (i + 1, i))]
    best = max(least_error(values, chain[: 2 * k], 0, k, np.exp(epsilon)) for k in range(1, 5))
    assert float(local_modulus.lower_bound(down, epsilon)) == pytest.approx(best, rel=1e-7)
    assert local_modulus.bounded_range_lower_bound(down, epsilon) > 1.01 * best  # control


X = np.arange(5.0)
WHOLE = {"lower": 0.0, "upper": 9.0, "neighbors": "swap"}
LOOSE = {  # profiles that are reached by parts of a change, or only bound what is reached
    "fractions": lambda: median(X, **WHOLE, definition="continuous"),
    "steps": lambda: median(X, **WHOLE).truncate(1, step=1.0),
    "radii": lambda: from_radii(2.0, [1.0, 1.0], **WHOLE),
    "cut": lambda: median(X, **WHOLE).truncate(1),
    "cut before": lambda: median(X, **WHOLE, truncate=1),
    "shifted": lambda: maximum(X, lower=0.0, upper=9.0).shift(1),
}
BOUNDS = {
    "lower_bound": lambda profile: local_modulus.lower_bound(profile, 1.0),
    "level_measure": lambda profile: duff.level_measure(profile, 1.0),
    "local_sensitivity_error": lambda profile: finite_ranges.local_sensitivity_error(
        profile, 1.0, num_candidates=5, failure=0.1
    ),
}


@pytest.mark.parametrize(
    ("bound", "loose"),
    [("lower_bound", loose) for loose in LOOSE]
    + list(itertools.product(list(BOUNDS)[1:], ("fractions", "steps"))),
)
def test_profiles_that_prove_nothing_are_refused(bound, loose):
    with pytest.raises(ValueError, match=r"reached|levels"):
        BOUNDS[bound](jax.jit(LOOSE[loose])())


def test_the_ends_of_the_bound():
    """A whole profile may be cut; large k epsilon neither overflows nor is NaN; a delta that gives
    everything away bounds nothing.
    """
    make = jax.jit(lambda x: median(x, **WHOLE))
    profile, wide = make(X), make(np.zeros(400))
    bound = jax.jit(local_modulus.lower_bound)
    cut = jax.jit(lambda profile: profile.truncate(100))(profile)
    assert float(bound(cut, 1.0)) == float(bound(profile, 1.0))
    assert 0 <= float(local_modulus.lower_bound(wide, 100.0, delta=1e-6)) < 1e-6
    assert float(local_modulus.lower_bound(profile, 1.0, delta=1.0)) == 0.0
