"""Quantiles without an upper bound: the exact law, its losses over all small datasets, deliberate
mistakes.
"""

from functools import cache
from math import log

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpjax import unbounded_quantile
from tests.mechanisms.test_above_threshold import log_masses
from tests.support import oracle
from tests.support.audit import padded
from tests.support.removals import losses_of, neighboring

ROUNDING = 1e-9
# Values of records: below lower, on points of the grids below, between them, beyond them.
GRID = (-1.0, 0.0, 1.0, 2.5, 3.0, 40.0)
DATASETS = {
    "add_remove": oracle.all_datasets(range(5), GRID),
    "swap": oracle.all_datasets([4], GRID),
}
LADDERS = {"short": (2.0, 6), "long": (1.05, 70)}
EPSILONS = np.array([0.5, 2.0])[:, None, None]
# Every search ends in the upper tail of the threshold, in both, in the lower tail
OVERSHOOTS = np.array([1e-4, 0.1, 30.0])[:, None]
PAID = {  # what epsilon is in units of r, and the power l, from the proof
    "add_remove": lambda q: (
        max(1 + 5 * q, 5 * (1 - q)),
        max(1 + 5 * q, 5 * (1 - q)) / max(q, 1 - q),
    ),
    "swap": lambda q: (6.0, 6.0),
}


def law(data, q, paid, below, above=5.0, *, epsilon, overshoot, ladder):
    """Log-probabilities by the definition, of a power of the threshold, or an r, of one's own."""
    base, steps = ladder
    points = base ** np.arange(steps) - 1
    upto = np.array([np.searchsorted(np.sort(own), points, side="right") for own in data])
    gaps = upto - q * np.array([[len(own)] for own in data])
    weights = log(base) / overshoot[..., None] * np.exp(epsilon[..., None] / paid * gaps)
    ends = np.pad(np.cumsum(weights, axis=-1)[..., :-1], [(0, 0)] * (weights.ndim - 1) + [(1, 1)])
    ends[..., -1] = np.inf
    return log_masses(ends, below, above)


def small(neighbors, q, ladder, *powers):
    """The same of all small datasets, ``(epsilon, overshoot, dataset, point)``."""
    given = {"epsilon": EPSILONS, "overshoot": OVERSHOOTS, "ladder": LADDERS[ladder]}
    return law(DATASETS[neighbors], q, *powers, **given)


@cache
def found_of(neighbors, q, ladder):
    """What the library says of them."""
    x, count = padded(DATASETS[neighbors], 4)
    base, steps = LADDERS[ladder]

    @jax.jit
    def log_probabilities(x, count, epsilon, overshoot):
        return unbounded_quantile(
            x,
            q,
            epsilon,
            lower=0.0,
            neighbors=neighbors,
            num_records=count,
            base=base,
            steps=steps,
            overshoot=overshoot,
        ).log_probabilities()

    return np.asarray(log_probabilities(x, count, EPSILONS, OVERSHOOTS))


def losses(logs, neighbors):
    """The largest log-ratio and the largest range over all neighbors and overshoots, for each
    epsilon.
    """
    pairs = neighboring(DATASETS[neighbors], neighbors, GRID)
    return [part.max(axis=1) / EPSILONS[:, 0, 0] for part in losses_of(logs, pairs)]


@pytest.mark.parametrize(
    ("q", "neighbors", "ladders"),
    [
        (0.9, "add_remove", LADDERS),
        (0.9, "swap", LADDERS),
        (0.05, "add_remove", ("long",)),
    ],
)
def test_the_law_and_its_loss_which_is_epsilon(q, neighbors, ladders, x64):
    for ladder in ladders:
        found = found_of(neighbors, q, ladder)
        expected = small(neighbors, q, ladder, *PAID[neighbors](q))
        assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
        loss, spread = losses(found, neighbors)
        assert_allclose(loss, 1.0, rtol=ROUNDING)
        assert (spread <= 2 * (1 + ROUNDING)).all()
    # On the long grid: no bounded range of epsilon may be promised
    assert (spread >= 1.8).all()


@pytest.mark.parametrize("neighbors", DATASETS)
@pytest.mark.parametrize(
    ("least", "wrong"),
    [
        (1.9, lambda paid, below: (paid / 2, below)),  # half the scale
        (7.0, lambda paid, below: (paid, 50.0, 50.0)),  # a threshold with nearly no noise
        (1.1, lambda paid, below: (paid, below + 1)),  # each power of the threshold one larger
        (1.1, lambda paid, below: (paid, below, 6.0)),
    ],
)
def test_controls_wrong_noise(least, wrong, neighbors):
    logs = small(neighbors, 0.9, "long", *wrong(*PAID[neighbors](0.9)))
    assert (losses(logs, neighbors)[0] >= least).all()


@pytest.mark.parametrize(("q", "least"), [(0.5, 1.9), (0.9, 1.1)])
def test_control_the_sensitivity_of_the_other_relation(q, least):
    logs = small("swap", q, "long", *PAID["add_remove"](q))
    assert (losses(logs, "swap")[0] >= least).all()


def test_control_a_grid_that_depends_on_the_data():
    """The steps are public: a grid that ends at the largest record is not."""
    given = {"epsilon": np.array(2.0), "overshoot": np.array(30.0)}
    short = law([(0.0, 1.0)], 0.9, 6.0, 6.0, ladder=(2.0, 2), **given)
    long = law([(0.0, 3.0)], 0.9, 6.0, 6.0, ladder=(2.0, 3), **given)
    assert np.abs(short[0, :2] - long[0, :2]).max() > 2.2


@pytest.mark.parametrize("neighbors", DATASETS)
def test_more_records_a_lower_end_and_both_dtypes(neighbors, x64):
    """A record that is NaN is absent, or below the grid where the number of records is public."""
    data = np.exp(np.random.default_rng(0).normal(2, 1, (3, 25)))
    data[2, :15] = 3.0
    kept = [data[0], data[1], data[2, :-1] if neighbors == "add_remove" else [-1.0, *data[2, :-1]]]
    data[2, -1] = np.nan
    epsilon, overshoot = np.array([0.05, 1.0, 20.0])[:, None], np.array([0.1, 0.02, 3.0])[:, None]
    exact = np.exp(
        law(
            kept,
            0.25,
            *PAID[neighbors](0.25),
            epsilon=epsilon[:, 0],
            overshoot=overshoot[:, 0],
            ladder=(1.2, 60),
        )
    )
    for dtype, rtol, atol in ((np.float64, 1e-9, 0.0), (np.float32, 1e-5, 1e-12)):
        found = unbounded_quantile(
            (data - 5).astype(dtype),
            "0.25",
            epsilon[:, 0],
            lower=-5.0,
            neighbors=neighbors,
            base=1.2,
            steps=60,
            overshoot=overshoot[:, 0],
        )
        assert_allclose(np.exp(-np.asarray(found.cost)), exact, rtol=rtol, atol=atol)
        assert_allclose(found.values, 1.2 ** np.arange(60) - 6, rtol=1e-6)


def test_the_grid_reaches_a_million_millions(x64):
    values = np.asarray(unbounded_quantile([1.0], "0.9", 1.0, lower=-5, neighbors="swap").values)
    assert (np.diff(values) > 0).all()
    assert values[-2] < 1e12 - 5 <= values[-1]
    assert_allclose(values[:3], [-5, -4.99, -4.9799], rtol=1e-14)
