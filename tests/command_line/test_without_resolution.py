"""Without a resolution: what is printed is what the library says, what an oracle says, and what one
can compute by hand.
"""

from fractions import Fraction

import jax
import numpy as np
import pytest

import dpjax
from tests.command_line.conftest import AGES
from tests.support import oracle

pytestmark = pytest.mark.slow  # every new shape of a table is compiled
MECHANISMS = ("piecewise_laplace", "inverse_sensitivity", "laplace")
TEN = ("--lower", 0, "--upper", 10, "--neighbors", "add_remove")
BARS = ("mean_abs_error", "lower95", "upper95")


def library_distribution(mechanism, profile, epsilon, lower, upper):
    if mechanism == "laplace":
        return dpjax.laplace(
            profile.value, epsilon, sensitivity=upper - lower, lower=lower, upper=upper
        )
    return getattr(dpjax, mechanism)(profile, epsilon)


def closed_forms(expected):
    """Numbers of another program, which may round otherwise in the last places of float32; draws
    are equal bit for bit.
    """
    return pytest.approx(np.float64(expected), rel=1e-6, abs=0)


def oracle_distribution(mechanism, records, q, neighbors, epsilon, lower, upper):
    """The distribution of one group alone, in float64, from extreme values found by editing the
    records.
    """
    statistic = lambda data: oracle.quantile(data, q, "linear", lower, upper)  # noqa: E731
    value = statistic(records)
    if mechanism == "laplace":  # density exp(-epsilon/2 |y - value| / (upper - lower))
        costs = [(value - lower) / (upper - lower), (upper - value) / (upper - lower)]
        return value, oracle.Distribution(
            [(lower, value, costs[0], 0.0), (value, upper, 0.0, costs[1])], epsilon / 2
        )
    largest, smallest = oracle.extremes(
        records, 2 * len(records) + 3, statistic, neighbors, lower, upper
    )
    return value, oracle.mechanism(largest, smallest, epsilon, mechanism)


@pytest.mark.parametrize(
    ("q", "neighbors"), [(Fraction(1, 2), "add_remove"), (Fraction(1, 3), "swap")]
)
def test_every_row_is_the_distribution_of_its_group(answer, ages, q, neighbors):
    draws, by, groups = 5, ("--by", "group"), AGES
    if neighbors == "swap":
        by, groups = (), {None: [age for members in AGES.values() for age in members]}
    command = ("--column", "age", "--lower", 0, "--upper", 100, "--neighbors", neighbors, *by)
    options = ("--epsilon", 0.5, 2, "--mechanism", *MECHANISMS, "--draws", draws, "--seed", 7)
    rows = iter(answer("quantile", ages, "--quantile", q, *command, *options)["rows"])
    count = np.array([len(members) for members in groups.values()], np.int32)
    records = np.zeros((len(groups), count.max()))
    for i, members in enumerate(groups.values()):
        records[i, : len(members)] = members[::-1]
    counts = {"num_records": count} if neighbors == "add_remove" else {}
    profile = dpjax.quantile(records, q, lower=0, upper=100, neighbors=neighbors, **counts)
    epsilon = np.array([0.5, 2.0])[:, None]
    for number, mechanism in enumerate(MECHANISMS):
        distribution = library_distribution(mechanism, profile, epsilon, 0.0, 100.0)
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(7 * 5 + number), 0), 0)
        sample = np.asarray(distribution.sample(key, (draws,))).reshape(draws, 2, len(groups))
        bars = [
            np.asarray(bar)
            for bar in (distribution.mean_abs_error(profile.value), *distribution.interval(0.95))
        ]
        for g, (group, members) in enumerate(groups.items()):
            for i in range(2):
                some = [next(rows) for _ in range(draws)]
                row = some[0]
                said = (
                    row.get("group"),
                    row["mechanism"],
                    row["epsilon"],
                    row["records"],
                    row["missing"],
                )
                assert said == (group, mechanism, (0.5, 2)[i], len(members), 0)
                assert [row[name] for name in BARS] == closed_forms([bar[i, g] for bar in bars])
                np.testing.assert_array_equal(
                    np.float32([row["simulated"] for row in some]), sample[:, i, g]
                )
                # The group alone, and the library left out.
                value, law = oracle_distribution(
                    mechanism, members, q, neighbors, row["epsilon"], 0.0, 100.0
                )
                exact = law.expectation(lambda y, value=value: np.abs(y - value), breaks=[value])
                assert row["mean_abs_error"] == pytest.approx(exact, rel=1e-4)
                assert [law.cdf(row[end]) for end in BARS[1:]] == pytest.approx(
                    [0.025, 0.975], abs=1e-4
                )
                assert row["tied_share"] == pytest.approx(members.count(value) / len(members))


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_a_missing_cell_is_absent_or_the_lower_bound(answer, ten, neighbors):
    cells, command = (
        ["4", "NA", "6", "nan", "NaN", "9", "na", "4", "9", "-nan"],
        (*TEN[:5], neighbors),
    )
    (row,) = answer("median", ten(cells), *command)["rows"]
    numbers = [4.0, 6.0, 9.0, 4.0, 9.0] + ([] if neighbors == "add_remove" else [0.0] * 5)
    value, distribution = oracle_distribution(
        "piecewise_laplace", numbers, Fraction(1, 2), neighbors, 1.0, 0.0, 10.0
    )
    assert (row["records"], row["missing"]) == (10, 5)
    assert row["mean_abs_error"] == pytest.approx(
        distribution.expectation(lambda y: np.abs(y - value), breaks=[value]), rel=1e-4
    )
    assert row["tied_share"] == pytest.approx(numbers.count(value) / len(numbers))
    (row,) = answer("median", ten(["NA"] * 10), *command)["rows"]
    assert (row["records"], row["missing"], row["tied_share"]) == (
        10,
        10,
        float(neighbors == "swap"),
    )
    assert 1 < row["mean_abs_error"] < 10
