"""Quantiles without an upper bound: the exact law, its losses over all small datasets, deliberate
mistakes, hostile data.
"""

import re
from itertools import pairwise
from math import fsum, log

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import Finite, Guarantee, unbounded_quantile
from dpjax.mechanisms import _unbounded_quantile as module
from tests.support import oracle
from tests.support.audit import padded
from tests.support.removals import neighboring
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

ROUNDING = 1e-9
# Values of records: below lower, on points of the grids below, between them, beyond them.
GRID = (-1.0, 0.0, 1.0, 2.5, 3.0, 40.0)
DATASETS = {
    "add_remove": oracle.all_datasets(range(5), GRID),
    "swap": oracle.all_datasets([4], GRID),
}
PAIRS = {
    neighbors: neighboring(datasets, neighbors, GRID) for neighbors, datasets in DATASETS.items()
}
LADDERS = {"short": {"base": 2.0, "steps": 6}, "long": {"base": 1.05, "steps": 70}}
EPSILONS = np.array([0.5, 2.0])
# Every search ends in the upper tail of the threshold, in both, in the lower tail
OVERSHOOTS = np.array([1e-4, 0.1, 30.0])
PAID = {  # what epsilon is in units of r, and the power l, from the proof
    "add_remove": lambda q: (
        max(1 + 5 * q, 5 * (1 - q)),
        max(1 + 5 * q, 5 * (1 - q)) / max(q, 1 - q),
    ),
    "swap": lambda q: (6.0, 6.0),
}


def small(neighbors):
    """All small datasets."""
    x, count = padded(DATASETS[neighbors], 4)
    return {"x": jnp.asarray(x), "lower": 0.0, "neighbors": neighbors, "num_records": count}


def logs_of(neighbors, q, ladder, epsilons=EPSILONS):
    """Log-probabilities of all small datasets, ``(epsilon, overshoot, dataset, point)``."""
    budgets = {"epsilon": epsilons[:, None, None], "overshoot": OVERSHOOTS[:, None]}
    return np.asarray(
        unbounded_quantile(
            q=q, **budgets, **LADDERS[ladder], **small(neighbors)
        ).log_probabilities()
    )


def losses(logs, neighbors):
    """The largest log-ratio and the largest range over all neighbors and overshoots, for each
    epsilon.
    """
    ratio = logs[:, :, PAIRS[neighbors][0]] - logs[:, :, PAIRS[neighbors][1]]
    return np.abs(ratio).max(axis=(1, 2, 3)), np.ptp(ratio, axis=-1).max(axis=(1, 2))


def with_powers(neighbors, q, ladder, paid, below, above=5.0):
    """The same with powers, or an r, of one's own."""
    x, share = small(neighbors), module.Fraction(q)
    present = np.arange(4) < x["num_records"][:, None]
    base, steps = LADDERS[ladder].values()
    gaps = module._gaps(
        module._grid(0.0, base, steps, np.float64), x["x"], jnp.asarray(present), share, neighbors
    )
    rate, scale = EPSILONS[:, None, None] / paid, log(base) / OVERSHOOTS[:, None]
    return -np.asarray(module._cost(gaps, jnp.asarray(rate), jnp.asarray(scale), below, above))


@pytest.mark.parametrize("neighbors", [pytest.param("add_remove", marks=pytest.mark.slow), "swap"])
@pytest.mark.parametrize(
    "q", ["0.9", *(pytest.param(q, marks=pytest.mark.slow) for q in ("0.5", "0.05", "0.3", "0.99"))]
)
def test_the_loss_stays_within_epsilon_and_attains_it(q, neighbors, x64):
    for ladder in LADDERS:
        loss, spread = losses(logs_of(neighbors, q, ladder), neighbors)
        assert (loss <= EPSILONS * (1 + ROUNDING)).all()
        assert (loss >= EPSILONS * (1 - ROUNDING)).all()
        assert (spread <= 2 * EPSILONS * (1 + ROUNDING)).all()
        assert unbounded_quantile.guarantee(neighbors, 2.0) == Guarantee(2.0, 4.0, neighbors)
    # On the long grid: no bounded range of epsilon may be promised
    assert (spread >= 1.9 * EPSILONS).all()


@pytest.mark.parametrize("neighbors", [pytest.param("add_remove", marks=pytest.mark.slow), "swap"])
def test_controls_wrong_noise(neighbors, x64):
    """Half the scale; a threshold with nearly no noise; each power of the threshold one larger."""
    paid, below = PAID[neighbors](0.9)
    right = losses(with_powers(neighbors, "0.9", "long", paid, below), neighbors)[0]
    np.testing.assert_allclose(
        right, losses(logs_of(neighbors, "0.9", "long"), neighbors)[0], rtol=ROUNDING
    )
    for least, wrong in (
        (1.9, (paid / 2, below)),
        (7.0, (paid, 50.0, 50.0)),
        (1.1, (paid, below + 1)),
        (1.1, (paid, below, 6.0)),
    ):
        assert (
            losses(with_powers(neighbors, "0.9", "long", *wrong), neighbors)[0] >= least * EPSILONS
        ).all()


@pytest.mark.parametrize("q", [0.5, pytest.param(0.9, marks=pytest.mark.slow)])
def test_control_the_sensitivity_of_the_other_relation(q, x64):
    loss, _ = losses(with_powers("swap", str(q), "long", *PAID["add_remove"](q)), "swap")
    assert (loss >= (1.9 if q == 0.5 else 1.1) * EPSILONS).all()


@pytest.mark.slow
def test_control_a_grid_that_depends_on_the_data(x64):
    """The steps are public: a grid that ends at the largest record is not."""
    x, count = padded([(0.0, 1.0), (0.0, 3.0)], 2)
    options = {
        "lower": 0.0,
        "neighbors": "swap",
        "base": 2.0,
        "overshoot": 30.0,
        "num_records": count,
    }
    short, long = (
        np.asarray(unbounded_quantile(x, "0.9", 2.0, steps=k, **options).log_probabilities())
        for k in (2, 3)
    )
    assert np.abs(short[0, :2] - long[1, :2]).max() > 2.2


def mass(start, stop, low, high):
    """The integral of psi between two points, over the logarithm of z: Gauss-Legendre panels that
    do not cross 0.
    """
    if start < 0 < stop:
        return mass(start, 0.0, low, high) + mass(0.0, stop, low, high)
    power, middle = (low, -1.0) if stop <= 0 else (-high, 1.0)
    start, stop = (
        (max(start, stop - 60 / low), stop) if middle < 0 else (start, min(stop, start + 60 / high))
    )
    nodes, weights = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(start, stop, max(2, int((stop - start) * abs(power)) + 2))
    half, center = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    return fsum(
        (
            half[:, None] * weights * np.exp(power * (center[:, None] + half[:, None] * nodes))
        ).ravel()
    )


def brute_force(data, q, epsilon, neighbors, overshoot, base, steps, lower=0.0):
    """The law from its definition, with the weights added up exactly and psi integrated
    numerically.
    """
    paid, below = PAID[neighbors](float(q))
    points = [lower + base**i - 1 for i in range(steps)]
    gaps = [sum(value <= point for value in data) - float(q) * len(data) for point in points]
    weights = [log(base) * np.exp(epsilon / paid * gap) for gap in gaps]
    at = [-np.inf] + [log(fsum(weights[:i]) / overshoot) for i in range(1, steps)] + [np.inf]
    whole = mass(-np.inf, np.inf, below, 5.0)
    return np.array([mass(*ends, below, 5.0) / whole for ends in pairwise(at)])


@pytest.mark.parametrize("neighbors", [pytest.param("add_remove", marks=pytest.mark.slow), "swap"])
@pytest.mark.parametrize(
    "q",
    [
        "0.9",
        pytest.param("0.25", marks=pytest.mark.slow),
        pytest.param("0.99", marks=pytest.mark.slow),
    ],
)
def test_probabilities_are_those_of_brute_force(q, neighbors, x64):
    """To 1e-12 of each, in float64; in float32 to 1e-5 of those above 1e-12."""
    data = np.exp(np.random.default_rng(0).normal(2, 1, (3, 25)))
    data[2, :15] = 3.0
    given = {"neighbors": neighbors, "base": 1.2, "steps": 60}
    epsilon, overshoot = np.array([0.05, 1.0, 20.0]), np.array([0.1, 0.02, 3.0])
    exact = np.array(
        [brute_force(data[i], q, epsilon[i], overshoot=overshoot[i], **given) for i in range(3)]
    )
    double, single = (
        np.exp(
            -np.asarray(
                unbounded_quantile(
                    jnp.asarray(data, t), q, epsilon, lower=0, overshoot=overshoot, **given
                ).cost
            )
        )
        for t in (jnp.float64, jnp.float32)
    )
    np.testing.assert_allclose(double, exact, rtol=1e-12)
    np.testing.assert_allclose(double.sum(axis=-1), 1, rtol=1e-13)
    np.testing.assert_allclose(np.where(exact > 1e-12, single / exact, 1), 1, atol=1e-5)


def test_the_grid(x64):
    values = np.asarray(unbounded_quantile([1.0], "0.9", 1.0, lower=-5, neighbors="swap").values)
    assert values[0] == -5
    assert (np.diff(values) > 0).all()
    assert values[-2] < 1e12 - 5 <= values[-1]
    np.testing.assert_allclose(values[:3], [-5, -4.99, -4.9799], rtol=1e-14)
    each = unbounded_quantile(
        jnp.ones((2, 3)),
        "0.9",
        1.0,
        lower=jnp.array([0.0, 7.0]),
        neighbors="swap",
        base=2.0,
        steps=4,
    )
    np.testing.assert_array_equal(each.values, [[0, 1, 3, 7], [7, 8, 10, 14]])


def test_the_base_is_only_a_resolution(x64):
    x = np.exp(np.random.default_rng(0).normal(10, 1, 300))
    coarse, fine = (
        unbounded_quantile(x, "0.95", 1.0, lower=0, neighbors="swap", base=base)
        for base in (1.01, 1.002)
    )
    at = np.array([0.01, 0.5, 0.99])
    np.testing.assert_allclose(coarse.quantile(at), fine.quantile(at), rtol=0.01)


TABLE = re.findall(
    r"^ +(0\.\d+) +([\d.]+) +\d+ +([\d.]+) +([\d.]+) "
    r"+([\d.]+)$",
    unbounded_quantile.__doc__,
    flags=re.MULTILINE,
)


def spread_incomes():
    return np.exp(10.5 + 0.8 * np.asarray(jax.scipy.special.ndtri((np.arange(1000) + 0.5) / 1000)))


@pytest.mark.slow
def test_the_table_says_which_mechanism_is_better(x64):
    x = spread_incomes()
    assert len(TABLE) == 7
    for q, epsilon, *stated in TABLE:
        value, cost = np.quantile(x, float(q)), float(epsilon)
        profiles = [
            dpjax.quantile(x, q, lower=0, upper=high, neighbors="add_remove") for high in (1e6, 1e9)
        ]
        here = unbounded_quantile(x, q, cost, lower=0, neighbors="add_remove")
        found = [
            float(d.mean_abs_error(value)) / value
            for d in (here, *(dpjax.piecewise_laplace(p, cost) for p in profiles))
        ]
        np.testing.assert_allclose(found, np.array(stated, float), rtol=0.025)
        assert (found[0] < min(found[1:])) == (
            1000 * (1 - float(q)) * cost < 19 or (q, cost) == ("0.9", 0.2)
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "base", "share", "stated"),
    [(0.2, 1.2, 5, 0.309), (1.0, 1.05, 3, 0.079), (2.0, 1.05, 2, 0.042)],
)
def test_above_threshold_with_noise_on_the_queries(epsilon, base, share, stated, x64):
    """Exponential noise of rate r on queries and share * r on the threshold: epsilon = r (1 + share
    q) by monotony.
    """
    x, q, rate = spread_incomes(), 0.99, epsilon / (1 + share * 0.99)
    points = base ** np.arange(np.ceil(np.log(1e12) / np.log(base)) + 1) - 1
    gaps = np.searchsorted(x, points, side="right") - q * 1000
    nodes, weights = np.polynomial.legendre.leggauss(32)
    edges = np.linspace(0, 40, 400) / (share * rate)
    half = np.diff(edges)[:, None] / 2
    threshold = (edges[:-1, None] + half * (1 + nodes)).ravel()
    density = (half * weights).ravel() * share * rate * np.exp(-share * rate * threshold)
    stay = np.maximum(-np.expm1(-rate * np.maximum(threshold - gaps[:, None], 0)), 0)
    alive = np.concatenate([np.ones_like(threshold)[None], np.cumprod(stay, axis=0)[:-1]]) @ density
    probability = -np.diff(np.append(alive, 0.0))
    value = np.quantile(x, q)
    noisy = probability @ np.abs(points - value) / value
    here = (
        unbounded_quantile(x, "0.99", epsilon, lower=0, neighbors="add_remove").mean_abs_error(
            value
        )
        / value
    )
    assert noisy == pytest.approx(stated, rel=0.02)
    assert here < noisy


def test_the_answer_is_near_an_extreme_quantile():
    x = np.random.default_rng(0).lognormal(10.5, 0.8, (4, 1000)).astype(np.float32)
    for neighbors in DATASETS:
        distribution = unbounded_quantile(x, 0.99, 2.0, lower=0, neighbors=neighbors)
        assert isinstance(distribution, Finite)
        value = np.quantile(x, 0.99, axis=-1)
        assert (distribution.mean_abs_error(value) < 0.15 * value).all()


@pytest.mark.slow
def test_data_never_raise():
    """Warnings are errors in this suite."""
    nan, inf = np.nan, np.inf
    x = np.array(
        [
            [nan, 1, 2, 5],
            [-inf, 1, 2, 5],
            [inf, 1, 2, 5],
            [nan] * 4,
            [inf] * 4,
            [-0.0, 0, 1e30, -1e30],
        ],
        np.float32,
    )
    options = {"lower": 0, "base": 1.5, "steps": 12}
    found = {
        n: np.asarray(unbounded_quantile(x, "0.6", 1.0, neighbors=n, **options).probabilities())
        for n in DATASETS
    }
    for probability in found.values():
        np.testing.assert_allclose(probability.sum(axis=-1), 1, rtol=1e-6)

    def law(records, neighbors):
        records = np.array(records, np.float32)
        return unbounded_quantile(
            records, "0.6", 1.0, neighbors=neighbors, **options
        ).probabilities()

    for row, (absent, replaced) in {
        0: ([1, 2, 5], [0, 1, 2, 5]),
        1: ([0, 1, 2, 5], [0, 1, 2, 5]),
        2: ([1, 2, 5, 1e9], [1, 2, 5, 1e9]),
        3: ([], [0, 0, 0, 0]),
        5: ([0, 0, 0, 1e9], [0, 0, 0, 1e9]),
    }.items():
        np.testing.assert_allclose(found["add_remove"][row], law(absent, "add_remove"), rtol=1e-5)
        np.testing.assert_allclose(found["swap"][row], law(replaced, "swap"), rtol=1e-5)
    assert np.abs(np.log(found["add_remove"][0] / found["swap"][0])).max() > 0.5
    assert unbounded_quantile(
        np.zeros((2, 0)), 0.5, 1.0, lower=0, neighbors="swap"
    ).mean().shape == (2,)
    assert np.isfinite(law([1, 2], "swap")).all()


def test_counts_masks_and_integers():
    x, options = (
        np.array([[3, 9, 27, 81], [5, 5, 6, 7]]),
        {"lower": 0, "neighbors": "add_remove", "base": 1.5, "steps": 12},
    )
    counted = unbounded_quantile(x, 0.75, 0.3, num_records=np.array([3, 2], np.uint8), **options)
    masked = unbounded_quantile(
        x.astype(float),
        0.75,
        0.3,
        mask=np.array([[True] * 3 + [False], [True, True, False, False]]),
        **options,
    )
    alone = unbounded_quantile(x[0, :3], 0.75, 0.3, **options)
    np.testing.assert_array_equal(counted.cost, masked.cost)
    np.testing.assert_array_equal(counted.cost[0], alone.cost)
    assert np.abs(counted.cost - unbounded_quantile(x, 0.75, 0.3, **options).cost).max() > 0.01


@pytest.mark.slow
def test_a_sweep_over_epsilon_and_bad_arrays_of_public_parameters():
    x = jnp.array([[1.0, 2.0, 30.0], [4.0, 5.0, 6.0]])
    fine = {"lower": 0.0, "neighbors": "swap", "base": 1.5, "steps": 12}
    good = unbounded_quantile(x, 0.9, jnp.array([[0.5], [2.0]]), **fine)
    assert good.batch_shape == (2, 2)
    np.testing.assert_allclose(
        good.cost[1, 0], unbounded_quantile(x[0], 0.9, 2.0, **fine).cost, rtol=1e-6
    )
    bad = jnp.array([1.0, -1.0])
    for change in (
        {"epsilon": bad},
        {"overshoot": bad},
        {"lower": jnp.array([0.0, jnp.nan])},
        {"lower": jnp.array([0.0, 1e30])},
    ):
        mean = unbounded_quantile(x, 0.9, **({"epsilon": 1.0} | fine | change)).mean()
        np.testing.assert_array_equal(np.isnan(mean), [False, True])
    extreme = unbounded_quantile(x, 0.9, jnp.array([[1e-30], [1e38]]), **fine)
    np.testing.assert_allclose(extreme.probabilities().sum(axis=-1), 1, rtol=1e-6)
    assert (extreme.quantile(0.5)[1] >= np.array([30.0, 6.0])).all()


def test_bad_public_parameters_raise():
    fine = {"q": 0.9, "epsilon": 1.0, "lower": 0.0, "neighbors": "swap"}
    for name, values in {
        "q": (0, 1, -0.1, float("nan"), 0.123456789123),
        "epsilon": (0.0, -1.0, float("nan"), float("inf")),
        "lower": (float("nan"), float("inf"), 1e38),
        "neighbors": ("edge", None),
        "base": (1.0, 0.5, float("nan"), float("inf"), 1 + 1e-9),
        "overshoot": (0.0, -1.0, float("nan")),
        "steps": (1, 2.5, 2**24 + 1, 10_000),
        "num_records": (1.5,),
    }.items():
        for value in values:
            with pytest.raises(ValueError, match=r"must|hold|denominator"):
                unbounded_quantile(np.ones(3, np.float32), **(fine | {name: value}))
    for name in ("q", "base"):
        with pytest.raises(TypeError, match="static"):
            unbounded_quantile(np.ones(3), **(fine | {name: jnp.asarray(1.5)}))
    with pytest.raises(ValueError, match=r"epsilon\[:, None\]"):
        unbounded_quantile(np.ones((2, 3)), **(fine | {"epsilon": np.ones(5)}))
    for epsilon in (0.0, -1.0, float("inf")):
        with pytest.raises(ValueError, match="epsilon"):
            unbounded_quantile.guarantee("swap", epsilon)


@pytest.mark.slow
def test_draws_follow_the_distribution_and_do_not_change_with_further_rows_and_padding():
    x = np.random.default_rng(1).lognormal(2, 1, (3, 21)).astype(np.float32)
    fine = {"lower": 0, "neighbors": "add_remove", "base": 1.3, "steps": 21}
    distribution, other = (unbounded_quantile(x, 0.8, epsilon, **fine) for epsilon in (2.0, 2.4))
    index = np.asarray(distribution.sample_index(jax.random.key(0), (100_000,)))
    for row in range(3):
        counts = np.bincount(index[:, row], minlength=21)
        assert_counts_follow(counts, distribution.probabilities()[row])
        assert_counts_rejected(counts, other.probabilities()[row])

    @jax.jit
    def draw(x):
        return unbounded_quantile(x, 0.8, 1.0, **fine).sample(jax.random.key(0), (500,))

    np.testing.assert_array_equal(draw(np.concatenate([x, x + 1]))[:, :3], draw(x))
    np.testing.assert_array_equal(
        draw(np.pad(x, [(0, 0), (0, 13)], constant_values=np.nan)), draw(x)
    )
