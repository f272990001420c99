"""Several quantiles in one draw: against plain sums over all tuples of slots, exact losses of all
neighbors, draws, and what must fail.
"""

from collections import Counter
from fractions import Fraction
from functools import partial
from itertools import combinations_with_replacement, pairwise
from math import exp, factorial, floor, prod, tanh

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from tests.support import statistics
from tests.support.removals import losses_of, neighboring

HIGH, MOST = 3, 4  # records are 0, ..., HIGH, at most MOST of them
QS = ["0.2", "0.5", "0.7"]
DATASETS = [
    rows for n in range(MOST + 1) for rows in combinations_with_replacement(range(HIGH + 1), n)
]
TUPLES = np.array(list(combinations_with_replacement(range(HIGH + 1), len(QS))), float)
LINE = np.array([0.1, 0.4, 0.45, 0.9, 0.95, 1.3])
KEY = jax.random.key(3)


def in_slots(points, cells, number, rate, qs=QS):
    """The probabilities of all tuples of cells, (least, greatest, name), by the definition."""
    n, m = len(points), len(qs)
    targets = [1 + floor(Fraction(q) * (number - 1)) for q in qs]
    cuts = sorted({end for cell in cells for end in cell[:2]} | set(points))
    pieces = [
        (b - a, sum(x <= a for x in points), next(name for x, y, name in cells if x <= a < y))
        for a, b in pairwise(cuts)
    ]
    weights = Counter()
    for chosen in combinations_with_replacement(range(len(pieces)), m):
        j = [pieces[i][1] for i in chosen]
        steps = [j[k] - j[k - 1] - (targets[k] - targets[k - 1]) for k in range(1, m)]
        cost = sum(map(abs, [j[0] - targets[0], *steps, n - number - j[-1] + targets[-1]]))
        volume = prod(pieces[i][0] ** c / factorial(c) for i, c in Counter(chosen).items())
        weights[tuple(pieces[i][2] for i in chosen)] += volume * exp(-rate * cost)
    return {name: weight / weights.total() for name, weight in weights.items()}


def on_grid(records, number, rate):
    """The i-th of equal records is at the i-th point of van der Corput's sequence: bits of i."""
    seen, points = Counter(), []
    for value in records:
        seen[value] += 1
        digits = f"{seen[value]:b}"[::-1]
        points.append(value - 0.5 + int(digits, 2) / 2 ** len(digits))
    cells = [(value - 0.5, value + 0.5, value) for value in range(HIGH + 1)]
    found = in_slots(sorted(points), cells, number, rate)
    return [found[tuple(y)] for y in TUPLES.astype(int).tolist()]


def asked(neighbors, records=DATASETS):
    padded = np.array([[*row, *[0] * (MOST - len(row))] for row in records], float)
    return dpjax.quantiles(
        padded,
        QS,
        lower=0,
        upper=HIGH,
        neighbors=neighbors,
        resolution=1,
        num_records=np.array(list(map(len, records))),
    )


@jax.jit
def of_tuples(found):
    return found.log_prob(TUPLES[:, None])


def log_probabilities(neighbors, epsilon, number=None):
    """Of all tuples, ``(tuples, datasets)``."""
    found = dpjax.joint_quantiles(asked(neighbors), epsilon, public_n=number)
    return np.asarray(of_tuples(found))


def on_line(**options):
    return dpjax.quantiles(LINE, QS, lower=0, upper=2, **options)


def slots_of(draws):
    return Counter(map(tuple, np.searchsorted(LINE, np.asarray(draws), side="right").tolist()))


def of_slots(number, rate):
    edges = [0, *LINE, 2]
    cells = [(edges[j], edges[j + 1], j) for j in range(len(LINE) + 1)]
    return in_slots(LINE.tolist(), cells, number, rate)


def counted(draws, law):
    seen = slots_of(draws)
    return [seen[slots] for slots in law], list(law.values())


@pytest.mark.parametrize(("number", "epsilon"), [(1, 0.5), (4, 3.0)])
def test_probabilities_are_those_of_all_tuples(number, epsilon, x64):
    """With ties, and for numbers of records that are wrong."""
    found = np.exp(log_probabilities("add_remove", epsilon, number)).T
    wanted = np.array([on_grid(row, number, epsilon / 2) for row in DATASETS])
    np.testing.assert_allclose(found, wanted, rtol=1e-11)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-12)


def largest_loss(found, neighbors):
    """Over all tuples and all pairs of neighbors."""
    return losses_of(found.T, neighboring(DATASETS, neighbors, range(HIGH + 1)))[0]


@pytest.mark.parametrize("epsilon", [0.25, 4.0])
def test_no_neighbor_loses_more_than_epsilon(epsilon, x64):
    sizes = np.array(list(map(len, DATASETS)))
    for number in (1, MOST):
        found = log_probabilities("add_remove", epsilon, number)
        assert 0.5 * epsilon < largest_loss(found, "add_remove") <= epsilon * (1 + 1e-9)
    assert largest_loss(log_probabilities("swap", epsilon), "swap") <= epsilon * (1 + 1e-9)
    # Controls: targets that follow the private number, and the rate of add/remove under swap
    follows = log_probabilities("add_remove", epsilon, sizes)
    assert largest_loss(follows, "add_remove") > 1.02 * epsilon
    assert largest_loss(follows, "swap") > 1.02 * epsilon


def test_draws_have_the_probabilities_of_their_slots():
    many = on_line(neighbors="swap"), on_line(neighbors="add_remove")
    draws = jax.jit(lambda asked: dpjax.joint_quantiles(asked, 3.0).sample(KEY, 20_000))(many[0])
    statistics.assert_counts_follow(*counted(draws, of_slots(6, 0.75)))
    statistics.assert_counts_rejected(*counted(draws, of_slots(6, 0.85)))
    # Each with its own noisy number, from 1 to the number of columns
    draws = jax.jit(lambda asked: dpjax.joint_quantiles(asked, 3.0).sample(KEY, 8000))(many[1])
    noise = {k: tanh(0.3) * exp(-0.6 * abs(k)) for k in range(-60, 61)}
    law = Counter()
    for k, share in noise.items():
        for slots, p in of_slots(min(max(6 + k, 1), 6), 1.2).items():
            law[slots] += share * p
    statistics.assert_counts_follow(*counted(draws, law))
    statistics.assert_counts_rejected(*counted(draws, of_slots(6, 1.2)))


def test_places_in_a_slot_are_uniform():
    """All levels are in the one slot that has a width."""
    found = dpjax.quantiles(np.zeros(9), QS, lower=0, upper=1, neighbors="swap")
    draws = np.asarray(
        jax.jit(lambda asked: dpjax.joint_quantiles(asked, 1.0).sample(KEY, 4000))(found)
    )
    for k, cdf in enumerate((lambda y: 1 - (1 - y) ** 3, None, lambda y: y**3)):
        if cdf:
            statistics.assert_follows(draws[:, k], cdf)
            statistics.assert_rejected(draws[:, 1], cdf)


def test_log_prob_is_a_density_with_gradients(x64):
    @jax.jit
    def at(x, epsilon, y):
        found = dpjax.quantiles(x, QS, lower=0, upper=2, neighbors="swap")
        return dpjax.joint_quantiles(found, epsilon).log_prob(y)

    inside = np.array([0.2, 0.42, 1.0])
    law = of_slots(6, 0.75)
    slots = tuple(np.searchsorted(LINE, inside, side="right").tolist())
    volume = prod(np.diff([0, *LINE, 2])[list(slots)])  # they are in different slots
    assert float(at(LINE, 3.0, inside)) == pytest.approx(np.log(law[slots] / volume), rel=1e-11)
    wrong = np.array([[0.42, 0.2, 1.0], [-0.1, 0.2, 0.3], [0.1, np.nan, 0.3]])
    np.testing.assert_array_equal(at(LINE, 3.0, wrong), [-np.inf, -np.inf, np.nan])
    for_x, for_epsilon = jax.jit(jax.grad(at, (0, 1)))(LINE, 3.0, inside)
    record, h = 1.0 * (np.arange(6) == 2), 1e-6
    for found, x, epsilon in ((for_epsilon, 0, h), (for_x[2], h * record, 0)):
        slope = at(LINE + x, 3.0 + epsilon, inside) - at(LINE - x, 3.0 - epsilon, inside)
        assert float(found) == pytest.approx(float(slope) / (2 * h), rel=1e-6)


def test_rows_missing_records_and_precision():
    """Weights are float64 within programs of float32: warnings are errors in this suite."""
    x = np.random.default_rng(0).normal(size=(4, 30)).astype(np.float32)

    @partial(jax.jit, static_argnames="neighbors")
    def draw(x, epsilon, count, neighbors="swap"):
        known = {"lower": -4, "upper": 4, "neighbors": neighbors, "num_records": count}
        found = dpjax.quantiles(x, QS, resolution=0.5, **known)
        return dpjax.joint_quantiles(found, epsilon).sample(KEY, (2,))

    draws = draw(x, 1.0, 20)
    assert (draws.shape, draws.dtype) == ((2, 4, 3), jnp.float32)
    assert (np.diff(draws) >= 0).all()
    np.testing.assert_array_equal(2 * draws, np.round(2 * draws))
    hidden = np.where(np.arange(30) < 20, x, np.nan)
    np.testing.assert_array_equal(draw(hidden, 1.0, 20), draws)
    rates = np.array([1.0, -1.0, np.nan, 200.0], np.float32)
    wrong = np.isnan(draw(x, rates, 20, neighbors="add_remove")).all(axis=(0, 2))
    np.testing.assert_array_equal(wrong, [False, True, True, False])


def test_no_record_makes_weights_overflow_or_vanish():
    """Constant columns, clusters far apart, many levels: also at a large epsilon."""
    rows = np.stack([np.full(900, 1.0), np.repeat([-1e6, 1e6], 450), np.linspace(0, 1e-6, 900)])
    levels = [Fraction(k, 40) for k in range(1, 40)]
    known = {"lower": -1e6, "upper": 1e6, "neighbors": "add_remove"}

    @jax.jit
    def drawn(rows, epsilon):
        found = dpjax.quantiles(rows, levels, **known)
        return dpjax.joint_quantiles(found, epsilon, public_n=900).sample(KEY, 3)

    for epsilon in (0.01, 100.0):
        draws = np.asarray(drawn(rows, epsilon))
        assert np.isfinite(draws).all()
        assert (np.abs(draws) <= 1e6).all()
    assert (np.abs(draws[:, 2]) < 1).all()


def test_errors_by_draws_are_those_of_the_probabilities(x64):
    found = dpjax.joint_quantiles(asked("swap", [(0, 1, 1, 3)]), 1.0)
    errors = np.abs(TUPLES - [1.0, 1.0, 1.0])
    p = np.exp(of_tuples(found))
    exact, square = (p * errors).sum(0), (p * errors**2).sum(0)
    measured = jax.jit(lambda d: d.measured_error(KEY, 1.0, draws=4000))(found)[0]
    assert (np.abs(measured - exact) < 5 * np.sqrt((square - exact**2) / 4000)).all()


def test_what_is_refused():
    private = on_line(neighbors="add_remove")
    with pytest.raises(ValueError, match="public_n is only for add_remove"):
        dpjax.joint_quantiles(on_line(neighbors="swap"), 1.0, public_n=6)
    with pytest.raises(ValueError, match="integers"):
        dpjax.joint_quantiles(private, 1.0, public_n=6.5)
    with pytest.raises(ValueError, match="public number of records"):
        dpjax.joint_quantiles(private, 1.0).log_prob([0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="last axis of size 3"):
        dpjax.joint_quantiles(private, 1.0, public_n=6).log_prob([0.1])
    with pytest.raises(ValueError, match="smaller denominator"):
        dpjax.quantiles(LINE, ["0.1234567891"], lower=0, upper=2, neighbors="swap")
