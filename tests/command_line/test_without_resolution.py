"""Without a resolution: what is printed is what the library says, what an oracle says, and what one
can compute by hand.
"""

import math
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


def test_a_constant_column_by_hand_and_how_a_resolution_mends_it(answer, run, ten):
    # Ten records of 5 on [0, 10]. The profile stays at 5 until the last level but one, which
    # reaches 7.5 by interpolation; the last reaches 10. So the cost of piecewise Laplace rises by 2
    # over a length of 5, on both sides alike.
    common = ("median", ten([5] * 10), *TEN, "--mechanism", *MECHANISMS)
    bare, smooth = answer(*common)["rows"], answer(*common, "--resolution", 1)["rows"]

    # E|Y - 5| under a density proportional to exp(-|y - 5| / scale) on [0, 10]
    def truncated(scale):
        return scale - 5 * math.exp(-5 / scale) / -math.expm1(-5 / scale)

    ratio = math.exp(-1 / 2)
    by_hand = [truncated(5.0), (1.25 + 3.75 * ratio) / (1 + ratio), truncated(20.0)]
    assert [row["mean_abs_error"] for row in bare] == pytest.approx(by_hand, rel=1e-4)
    assert all(error > 1.8 for error in by_hand)  # uniform on [0, 10] would be 2.5
    # The record of rank ceil(n/2), at depth 10: ten records that go (or come below) move it to 0,
    # eleven that come above to 10. The costs of piecewise Laplace rise by 1/5 from one multiple to
    # the next, from 9 on below and from 10 on above.
    own = math.exp(4.5)
    sloped = [math.exp(-0.5 * (9 + piece + k / 5)) for piece in (0, 1) for k in range(1, 6)]
    flat = [math.exp(-0.5 * (10 + piece)) for piece in (0, 1) for _ in range(5)]
    by_hand = [
        sum(w * (k % 5 + 1) for k, w in enumerate(weights)) / (own + sum(weights))
        for weights in (sloped, flat)
    ]
    assert [row["mean_abs_error"] for row in smooth] == pytest.approx(
        [*by_hand, truncated(20.0)], rel=1e-4
    )
    assert max(by_hand) < 0.01
    assert [row["tied_share"] for row in bare + smooth] == [1.0] * 6
    said = run(*common).words
    assert (
        "100 % of the records are tied: they equal the statistic. A continuous "
        "distribution has no mass on a single" in said
    )
    assert said.count("the resolution of the data as --resolution (1 for integers)") == 1
    assert "are tied" not in run(*common, "--resolution", 1).words


def test_ties_are_those_of_several_records_and_of_mechanisms_that_look_at_gaps(run, ten):
    lower = (*TEN, "--definition", "lower")
    # The statistic is one of ten records
    assert "are tied" not in run("median", ten(), *lower).words
    tied = ten([0, 1, 2, 3, 4, 4, 6, 7, 8, 9])
    assert "20 % of the records are tied" in run("median", tied, *lower).words
    assert "are tied" not in run("median", tied, *lower, "--mechanism", "laplace").words


def test_groups_of_all_sizes_in_any_batches(answer, write, monkeypatch):
    """Padded to shapes of their own, with missing and infinite cells, each is the distribution of
    its records.
    """
    rng, sizes = np.random.default_rng(2), {"a": 400, "b": 3, "c": 90, "d": 200}
    cells = {
        g: np.where(rng.random(n) < 0.1, "", rng.lognormal(1, 1, n).astype(str))
        for g, n in sizes.items()
    }
    cells["c"][:5] = ["inf", "-inf", "1e300", "-1", "11"]
    lines = rng.permutation([f"{g},{cell}\n" for g, some in cells.items() for cell in some])
    command = (
        "quantile",
        write("g,x\n" + "".join(lines)),
        "--quantile",
        0.75,
        "--column",
        "x",
        "--by",
        "g",
        *TEN,
    )
    for cells_of_a_batch in (2**22, 1000, 1):
        monkeypatch.setattr("dpjax.frames.draws._CELLS", cells_of_a_batch)
        for row, (group, texts) in zip(answer(*command)["rows"], cells.items(), strict=True):
            records = np.clip([float(text or "nan") for text in texts], 0, 10)[None]
            profile = dpjax.quantile(records, 0.75, lower=0, upper=10, neighbors="add_remove")
            law = dpjax.piecewise_laplace(profile, 1.0)
            assert (row["g"], row["missing"]) == (group, np.sum(np.isnan(records)))
            found = row["value"], *(row[name] for name in BARS)
            expected = profile.value, law.mean_abs_error(profile.value), *law.interval(0.95)
            np.testing.assert_allclose(found, [float(number[0]) for number in expected], rtol=1e-4)
            there = records[~np.isnan(records)]
            assert row["tied_share"] == pytest.approx(
                np.mean(there.astype(np.float32) == np.float32(row["value"]))
            )


def test_a_mechanism_draws_the_same_alone(answer, ten):
    common = ("median", ten(), *TEN, "--seed", 1)
    (together,) = (
        row
        for row in answer(*common, "--mechanism", *MECHANISMS)["rows"]
        if row.pop("mechanism") == "laplace"
    )
    assert answer(*common, "--mechanism", "laplace")["rows"] == [together]
    assert answer(*common[:-1], 2**32 - 1)["rows"] != answer(*common[:-1], 0)["rows"]


def test_definition_lower_and_records_beyond_the_bounds(answer, ten):
    records = ["-1e300", -3, 1, 2, 4, 6, 7, 8, "1e300", "inf"]
    (row,) = answer("median", ten(records), *TEN, "--definition", "lower")["rows"]
    clamped = np.clip(np.array(records, float), 0, 10)[None]
    profile = dpjax.median(
        clamped,
        lower=0,
        upper=10,
        neighbors="add_remove",
        definition="lower",
        num_records=np.array([10], np.int32),
    )
    distribution = dpjax.piecewise_laplace(profile, np.array([[1.0]]))
    assert row["mean_abs_error"] == closed_forms(distribution.mean_abs_error(4.0)[0, 0])


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


def test_several_quantiles_are_joint_ones(run, answer, write):
    values = np.random.default_rng(4).uniform(0, 20, 60).round(3)
    file = write(
        "g,h,x\n" + "".join(f"{'ab'[i % 2]},u,{value}\n" for i, value in enumerate(values))
    )
    bounds = ("--lower", 0, "--upper", 20, "--neighbors", "add_remove", "--epsilon", 1, 4)
    command = (
        "quantile",
        file,
        "--column",
        "x",
        "--by",
        "h",
        "g",
        "--quantile",
        0.75,
        0.25,
        *bounds,
        "--seed",
        3,
    )
    found = answer(*command)
    rows = found["rows"]
    assert [(row["h"], row["g"], row["epsilon"], row["quantile"]) for row in rows] == [
        ("u", group, epsilon, q) for group in "ab" for epsilon in (1, 4) for q in (0.25, 0.75)
    ]
    records = np.full((2, 64), np.nan)
    records[:, :30] = values.reshape(30, 2).T
    asked = dpjax.quantiles(records, [0.25, 0.75], lower=0, upper=20, neighbors="add_remove")
    marginals = dpjax.joint_quantiles(asked, np.array([[1.0], [4.0]])).marginals()
    expected = np.asarray(marginals.mean_abs_error(asked.value)).swapaxes(0, 1).ravel()
    np.testing.assert_allclose([row["mean_abs_error"] for row in rows], expected, rtol=1e-4)
    assert [row["value"] for row in rows] == pytest.approx(
        np.asarray(asked.value).repeat(2, axis=0).ravel()
    )
    assert (found["resolution"], "jax_version" in found, "device" in found) == (None, True, True)
    assert (
        "Quantiles 0.25, 0.75 (definition linear) of x by h, g; neighbors "
        "add_remove. No resolution;" in run(*command).words
    )
    assert (
        "--mechanism and --definition cannot be given with several quantiles"
        in run(*command, "--mechanism", "laplace").mistake
    )


def test_ages_by_education(answer, data_folder):
    file = data_folder / "pums_california_1000" / "pums_1000.csv"
    command = (
        "median",
        file,
        "--column",
        "age",
        "--by",
        "educ",
        "--lower",
        0,
        "--upper",
        100,
        "--neighbors",
        "add_remove",
    )
    rows = answer(*command, "--seed", 1)["rows"]
    table = np.loadtxt(file, delimiter=",", skiprows=1)
    ages, education = table[:, 0], table[:, 2]
    assert [int(row["educ"]) for row in rows] == np.unique(education).tolist()
    for row in rows:
        group = ages[education == int(row["educ"])]
        assert (row["records"], row["tied_share"]) == (
            group.size,
            pytest.approx(np.mean(group == np.median(group))),
        )
        profile = dpjax.median(group[None], lower=0, upper=100, neighbors="add_remove")
        law = dpjax.piecewise_laplace(profile, 1.0)
        expected = law.mean_abs_error(profile.value), *law.interval(0.95)
        np.testing.assert_allclose(
            [row[name] for name in BARS], [float(number[0]) for number in expected], rtol=1e-4
        )


def test_capital_gain_is_tied(answer, run, data_folder):
    file = data_folder / "uci_adult" / "adult_train_trimmed.csv"
    command = (
        "median",
        file,
        "--column",
        "capital_gain",
        "--lower",
        0,
        "--upper",
        100_000,
        "--neighbors",
        "add_remove",
    )
    assert " 92 % of the records are tied" in run(*command).words
    (row,) = answer(*command, "--resolution", 1)["rows"]
    assert row["tied_share"] > 0.9
    assert row["mean_abs_error"] < 1e-6


def test_six_measurements(answer, data_folder):
    file, measurements = (
        data_folder / "vertebral_column" / "column_2C.dat",
        ("1", "2", "3", "4", "5", "6"),
    )
    command = (
        "quantile",
        file,
        "--quantile",
        0.9,
        "--no-header",
        "--delimiter",
        "space",
        "--column",
        *measurements,
    )
    rows = answer(*command, "--lower", -50, "--upper", 500, "--neighbors", "swap")["rows"]
    table = np.genfromtxt(file, dtype=str)
    for column, row in zip(measurements, rows, strict=True):
        records = table[:, int(column) - 1].astype(float)[None]
        profile = dpjax.quantile(records, 0.9, lower=-50, upper=500, neighbors="swap")
        law = dpjax.piecewise_laplace(profile, 1.0)
        expected = law.mean_abs_error(profile.value), *law.interval(0.95)
        assert (row["column"], row["records"], row["missing"]) == (column, records.size, 0)
        np.testing.assert_allclose(
            [row[name] for name in BARS], [float(number[0]) for number in expected], rtol=1e-4
        )
