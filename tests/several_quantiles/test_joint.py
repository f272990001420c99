"""Several quantiles in one draw: against a plain sum over all tuples, exact losses, and draws."""

import functools
import itertools
from fractions import Fraction
from math import exp

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax.mechanisms import records_near, without_far
from tests.support import joint_quantiles as oracle
from tests.support import statistics
from tests.support.joint_quantiles import parts, weights

CELLS = 4
GOLDEN = [  # BEYOND the papers: grid 0..3, data (0, 1, 1, 3), q = (1/4, 3/4), epsilon 1, R = 10
    *(
        0.058722139444198,
        0.128649184264820,
        0.127629255953019,
        0.099282081321143,
        0.099282081321143,
    ),
    *(
        0.142771581254444,
        0.128649184264820,
        0.076747849101649,
        0.079544503630566,
        0.058722139444198,
    ),
]
OTHERS = [("add_remove", 3), ("swap", 3)]
LEVELS = {1: ["0.3"], 2: ["0.25", "0.75"], 3: ["0.2", "0.5", "0.7"]}
TUPLES = {m: np.array(oracle.tuples(m, CELLS)) for m in LEVELS}


def middles(x, value):
    """Ranks as BEYOND has them: all records of a multiple at the middle one."""
    return [(sum(v < value for v in x) + sum(v == value for v in x) / 2 + 0.5, 1.0)]


def reference(
    x, qs, epsilon, reach, spacing=1, flat=True, number=None, aims="records", parts=parts
):
    """Logarithms of the weights of all tuples, in floats."""
    rate, middle = epsilon / 2, len(x) - 1
    around = range(middle - reach, middle + reach + 1)
    numbers = [n for n in around if n % spacing == 0] if number is None else [number]
    rest = 2 * np.exp(-rate * (reach + 1)) / -np.expm1(-rate) if flat and number is None else 0.0
    given = {"cells": CELLS, "rest": rest, "aims": aims, "parts": parts}
    levels = [Fraction(level) for level in qs]
    return np.log(weights(x, levels, numbers, lambda cost, v: v * exp(-rate * cost), **given))


def test_the_reference_has_the_golden_numbers():
    """They have all records of a multiple at their middle rank, and quantiles at 1 + q N."""
    logs = reference((0, 1, 1, 3), LEVELS[2], 1.0, 10, aims="ranks", parts=middles)
    np.testing.assert_allclose(
        np.exp(logs - np.log(np.exp(logs).sum())), GOLDEN, rtol=0, atol=1e-14
    )
    np.testing.assert_allclose(parts((1, 1, 1, 3), 1), [(1, 0.25), (2, 0.25), (3, 0.5)])


def test_the_distribution_of_the_same_slots_has_the_golden_numbers(x64):
    # Slots of ranks 1/2, 1, 3/2, ...
    left, width = jnp.array([0.0, 0, 1, 1, 1, 2, 2, 3, 4]), jnp.array([0.0, 1, 0, 0, 1, 0, 1, 1, 0])
    levels, numbers = (
        (Fraction(1, 4), Fraction(3, 4)),
        (jnp.int32(4), jnp.float64(0.5), jnp.int32(10), jnp.int32(3)),
    )
    joint = dpjax.JointQuantiles(
        left, width, *numbers, levels=levels, terms=21, aims="ranks", resolution=Fraction(1)
    )
    np.testing.assert_allclose(np.exp(joint.log_prob(TUPLES[2])), GOLDEN, rtol=0, atol=1e-14)


def test_heavy_ties_are_counted_in_full():
    """Where a quantile is among the first or the last of many equal records, too."""
    rows = [np.repeat([0.0, 5000.0], [900, 100]), np.repeat([40.0, 70.0], [430, 570])]
    many = {"lower": 0, "upper": 99999, "neighbors": "add_remove", "resolution": 1}
    asked = dpjax.quantiles(np.stack(rows), ["0.25", "0.5", "0.75"], **many)
    points = np.array([0.0, 39.0, 40.0, 69.0, 70.0])[:, None, None, None]

    def cdf(epsilon, reach=None):
        def compute(asked, epsilon):
            return dpjax.joint_quantiles(asked, epsilon, reach=reach).marginals().cdf(points)

        return np.asarray(jax.jit(compute)(asked, epsilon))

    zeros, two = np.moveaxis(cdf(np.array([[0.5], [8.0]])), -2, 0)
    assert (zeros[0] > 0.999).all()
    assert (two[1, 1] < 1e-3).all()
    assert two[2, 1, 0] > 0.999  # the first of 40 and 70
    assert (two[3, 1, 1:] < 1e-3).all()
    assert (two[4, 1] > 0.999).all()
    # Control: the flat term is all that is left
    assert (cdf(np.array([[8.0]]), reach=5)[0, 0, 0] < 0.1).all()


def all_datasets(most):
    return [
        rows
        for n in range(most + 1)
        for rows in itertools.combinations_with_replacement(range(CELLS), n)
    ]


def log_probabilities(rows, qs, epsilon, neighbors="add_remove", **options):
    """Of all tuples, a row for each dataset."""
    padded = np.array([[*row, *[0] * (4 - len(row))] for row in rows], float)
    count = jnp.array([len(row) for row in rows], jnp.int32)
    asked = dpjax.quantiles(
        padded, qs, lower=0, upper=CELLS - 1, neighbors=neighbors, resolution=1, num_records=count
    )
    return np.asarray(_log_prob(asked, np.float64(epsilon), tuple(options.items()))).T


@functools.partial(jax.jit, static_argnums=2)
def _log_prob(asked, epsilon, options):
    distribution = dpjax.joint_quantiles(asked, epsilon, **dict(options))
    return distribution.log_prob(TUPLES[len(asked.levels)][:, None, :])


def pairs(rows, neighbors):
    number = {row: i for i, row in enumerate(rows)}
    found = []
    for row, i in number.items():
        if neighbors == "add_remove":
            found += [
                (i, number[more])
                for v in range(CELLS)
                if (more := tuple(sorted((*row, v)))) in number
            ]
        else:
            swapped = {
                tuple(sorted((*row[:k], v, *row[k + 1 :])))
                for k in range(len(row))
                for v in range(CELLS)
            }
            found += [(i, number[other]) for other in swapped]
    return np.array(found)


def losses(logs, found):
    """The largest loss, and the largest range of one pair."""
    difference = logs[found[:, 0]] - logs[found[:, 1]]
    return np.abs(difference).max(), (difference.max(-1) - difference.min(-1)).max()


@pytest.mark.parametrize("m", [1, *(pytest.param(m, marks=pytest.mark.slow) for m in (2, 3))])
def test_no_neighbor_loses_more_than_epsilon(m, x64):
    rows = all_datasets(4)
    found, same_size = pairs(rows, "add_remove"), [row for row in rows if len(row) == 4]
    # Also all sizes, far beyond those of the rows
    for reach, terms in [(1, 3), (3, 2), (30, 7), (12, 25)]:
        for epsilon in (0.5, 2.0):
            logs = log_probabilities(rows, LEVELS[m], epsilon, reach=reach, terms=terms)
            np.testing.assert_allclose(np.exp(logs).sum(-1), 1, rtol=1e-12)
            loss, width = losses(logs, found)
            assert max(loss, width) <= epsilon * (1 + 1e-9)
            if m == 1:
                assert width >= epsilon * (1 - 1e-9)  # attained
            else:
                spacing = -(-(2 * reach + 1) // terms)
                expected = reference(rows[40], LEVELS[m], epsilon, reach, spacing)
                np.testing.assert_allclose(
                    logs[40] - logs[40][0], expected - expected[0], atol=1e-12
                )
    for n in (2, 4, 9):  # right or not; more than the columns count as these
        logs = log_probabilities(rows, LEVELS[m], 2.0, public_n=n)
        loss, width = losses(logs, found)
        assert 1.5 <= max(loss, width) <= 2.0 * (1 + 1e-9)
        expected = reference(rows[40], LEVELS[m], 2.0, 0, number=min(n, 4) - 1)
        np.testing.assert_allclose(logs[40] - logs[40][0], expected - expected[0], atol=1e-12)
    assert 2 * len(same_size) == len(rows)  # twice: in the shape of the others
    twice = log_probabilities(same_size * 2, LEVELS[m], 2.0, "swap")
    np.testing.assert_array_equal(*np.split(twice, 2))
    assert 1.5 <= max(losses(twice[: len(same_size)], pairs(same_size, "swap"))) <= 2.0 * (1 + 1e-9)


def test_what_must_fail():
    rows = all_datasets(4)
    found = pairs(rows, "add_remove")

    def largest(epsilon=1.0, **options):
        logs = np.array([reference(row, LEVELS[2], epsilon, 1, **options) for row in rows])
        logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
        return max(losses(logs, found))

    assert largest() <= 1 + 1e-9
    assert largest(flat=False) > 1.1
    # A "public" n that follows the data: every dataset aims at quantiles of its own number of
    # records.
    own = np.array([reference(row, LEVELS[2], 1.0, 1, number=len(row) - 1) for row in rows])
    assert max(losses(own - np.log(np.exp(own).sum(-1, keepdims=True)), found)) > 1.1

    # Parts as large as their multiple: its weight follows the number of its records.
    def large(x, value):
        return [(rank, 1.0) for rank, _ in parts(x, value)]

    assert largest(epsilon=0.2) <= 0.2 + 1e-9
    assert largest(epsilon=0.2, parts=large) > 0.25
    # Without tuples that share a slot of the line, the support is that of the data: records that
    # are equal leave no room.
    some = dpjax.quantiles(
        np.array([[0.0, 1, 1, 1], [0, 1, 1, 2]]),
        ["0.25", "0.75"],
        lower=0,
        upper=3,
        neighbors="add_remove",
    )
    widths = np.asarray(dpjax.joint_quantiles(some, 1.0).width)
    assert (widths > 0).sum(-1).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("neighbors", "m"),
    [pytest.param(*case, marks=pytest.mark.slow) for case in (("add_remove", 2), *OTHERS)],
)
def test_marginals_are_sums_over_all_tuples(neighbors, m, x64):
    """And draws follow it."""
    rows = [(0, 1, 1, 3), (2, 2, 2, 2), (0, 0, 0, 3)]
    asked = dpjax.quantiles(
        np.array(rows, float),
        LEVELS[m],
        lower=0,
        upper=CELLS - 1,
        neighbors=neighbors,
        resolution=1,
    )
    y, shares = TUPLES[m], np.array([0.05, 0.5, 0.83])[:, None, None]
    points = np.array([-1.0, 0.0, 1.0, 1.5, 2.0, 3.0, 4.0])[:, None, None]

    @jax.jit
    def computed(epsilon):
        distribution = dpjax.joint_quantiles(asked, epsilon, reach=10)
        one = distribution.marginals()
        assert one.batch_shape == (3, m)
        return (
            distribution.log_prob(y[:, None, :]),
            (one.cdf(points), one.mean_abs_error(points)),
            (one.mean(), one.variance()),
            one.quantile(shares),
            distribution.sample(jax.random.key(1), (7_000,)),
        )

    logs, at_points, moments, quantiles, draws = computed(np.array([1.0, 0.3, 4.0]))
    mass = np.exp(np.asarray(logs))[..., None]  # (tuples, rows, 1)
    for point, cdf, error in zip(points, *at_points, strict=True):
        np.testing.assert_allclose(cdf, (mass * (y <= point)[:, None]).sum(0), atol=1e-13)
        np.testing.assert_allclose(error, (mass * abs(y - point)[:, None]).sum(0), atol=1e-13)
    mean = (mass * y[:, None]).sum(0)
    variance = (mass * (y[:, None] - mean) ** 2).sum(0)
    np.testing.assert_allclose(moments[0], mean, atol=1e-13)
    np.testing.assert_allclose(moments[1], variance, atol=1e-13)
    cdf = np.array([(mass * (y <= v)[:, None]).sum(0) for v in range(CELLS)])
    for p, found in zip(shares, quantiles, strict=True):
        np.testing.assert_array_equal(found, (cdf < p).sum(0))
    number = {tuple(each): i for i, each in enumerate(y.tolist())}
    for row in range(3):
        counts = np.bincount(
            [number[tuple(each)] for each in np.asarray(draws)[:, row].astype(int).tolist()],
            minlength=len(number),
        )
        statistics.assert_counts_follow(counts, mass[:, row, 0])
        statistics.assert_counts_rejected(counts, mass[:, row - 1, 0])  # those of another row


@pytest.mark.slow
def test_grids_of_more_than_32_bits(x64):
    size = 2**40
    asked = dpjax.quantiles(
        np.round([size / 3, 2 * size / 3]),
        LEVELS[2],
        lower=0,
        upper=size - 1,
        neighbors="swap",
        resolution=1,
    )
    distribution = jax.jit(dpjax.joint_quantiles)(asked, 0.01)
    draws = jax.jit(lambda joint: joint.sample(jax.random.key(0), 2000))(distribution)
    at = jax.jit(lambda joint, y: joint.marginals().cdf(y[:, None]))

    def cdf_of(k):
        return lambda y: np.asarray(at(distribution, y))[:, k]

    for k in (0, 1):
        statistics.assert_follows(draws[:, k], cdf_of(k))
    statistics.assert_rejected(draws[:, 0], cdf_of(1))


@pytest.mark.slow
def test_on_the_line_draws_have_the_marginals(x64):
    x = np.array([1.0, 1, 2.5, 2.7, 6, 9])
    asked = dpjax.quantiles(x, ["0.3", "0.5", "0.6"], lower=0, upper=10, neighbors="add_remove")
    distribution = dpjax.joint_quantiles(asked, 1.0, reach=4)
    draws = np.asarray(distribution.sample(jax.random.key(0), (20_000,)))
    assert (np.diff(draws, axis=1) >= 0).all()
    assert draws.min() >= 0
    assert draws.max() <= 10
    marginals = distribution.marginals()
    for k in range(3):
        statistics.assert_follows(
            draws[:, k], lambda y, k=k: np.asarray(marginals.cdf(np.asarray(y)[..., None]))[..., k]
        )
    statistics.assert_rejected(
        draws[:, 0], lambda y: np.asarray(marginals.cdf(np.asarray(y)[..., None]))[..., 1]
    )
    np.testing.assert_allclose(marginals.cdf(marginals.quantile(0.3)), 0.3, atol=1e-12)
    density = np.exp(
        np.asarray(
            distribution.log_prob(np.array([[0.5, 3.0, 7.0], [3.0, 0.5, 7.0], [0.5, 3.0, 11.0]]))
        )
    )
    assert density[0] > 0
    assert density[1] == 0
    assert density[2] == 0


FURTHER = {"epsilon": 1e9, "public_n": 0}, {"epsilon": 1e-6}


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 1.0, "public_n": 10**8},
        {"epsilon": 1e9},
        *(pytest.param(more, marks=pytest.mark.slow) for more in FURTHER),
    ],
)
def test_in_float32_no_size_or_epsilon_is_rounded_away(options):
    rows = np.array([[1, 2, 3, 4, 5, np.nan], [1, 2, 3, 4, 5, 6]], np.float32)
    asked = dpjax.quantiles(
        rows, ["0.25", "0.75"], lower=0, upper=10, neighbors="add_remove", resolution=1
    )
    points = np.array(list(itertools.combinations_with_replacement(range(11), 2)), np.float32)
    logs = np.asarray(dpjax.joint_quantiles(asked, **options).log_prob(points[:, None]))
    np.testing.assert_allclose(np.exp(logs).sum(0), 1, rtol=2e-3)
    assert np.abs(logs[:, 0] - logs[:, 1]).max() <= options["epsilon"] * 1.001 + 1e-4


def test_a_public_number_is_for_private_sizes():
    asked = dpjax.quantiles(np.zeros(5), ["0.5"], lower=0, upper=1, neighbors="swap")
    with pytest.raises(ValueError, match="public"):
        dpjax.joint_quantiles(asked, 1.0, public_n=5)


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_without_records_far_from_all_quantiles_the_distribution_is_the_same(neighbors):
    levels, epsilon = (Fraction(1, 4), Fraction(1, 2)), np.array([[16.0], [24.0]], np.float32)
    count = {"num_records": np.array([1500, 1203], np.int32)} if neighbors == "add_remove" else {}
    n = np.array([1500, 1203])

    def near_of(x, resolution, epsilon):
        return records_near(levels, resolution, epsilon, (0.0, 3000.0), x, n, terms=4)

    distinct = np.random.default_rng(2).uniform(0, 3000, (2, 1500))
    near = near_of(distinct, Fraction(1), 16.0)
    assert near is not None
    assert near_of(distinct, Fraction(1), 0.5) is None
    assert near_of(distinct, None, 32.0) is not None
    # Records next to the median are equal
    assert near_of(np.rint(distinct / 1000) * 1000, None, 32.0) is None

    @jax.jit
    def compute(x, upper):
        asked = dpjax.quantiles(
            x, levels, lower=0.0, upper=upper, neighbors=neighbors, resolution=1, **count
        )
        full = dpjax.joint_quantiles(asked, epsilon, terms=4)
        # A control: no record on either side
        less, few = without_far(full, *near), without_far(full, 0, near[1])
        at = jnp.linspace(0.0, upper, 41).reshape(-1, 1, 1, 1)
        found = [
            (each.mean_abs_error(asked.value), each.cdf(at))
            for each in (joint.marginals() for joint in (full, less))
        ]
        return (
            [joint.width for joint in (full, less)],
            found,
            few.marginals().mean_abs_error(asked.value),
        )

    for cells in (13, 3001):
        x = np.random.default_rng(3).integers(0, cells, (2, 1500)).astype(np.float32)
        widths, (full, less), control = compute(x, np.float32(cells - 1))
        assert widths[1].shape[-1] < 0.8 * widths[0].shape[-1]
        for found, expected in zip(less, full, strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-6)
        assert np.any(np.abs(control / full[0] - 1) > 1e-3)
