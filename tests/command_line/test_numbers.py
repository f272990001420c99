"""What is printed is what the library says, what an oracle says of each group alone, and what one can compute by hand."""

import csv
import json
import math
import os
import re
from fractions import Fraction

import jax
import numpy as np
import pytest

import dpjax
from dpjax.command_line.main import main
from tests.command_line.conftest import AGES
from tests.support import oracle

MECHANISMS = ("piecewise_laplace", "inverse_sensitivity", "laplace")
TEN = ("--lower", 0, "--upper", 10, "--neighbors", "add_remove")
WHOLE = (*TEN, "--resolution", 1)


def library_distribution(mechanism, profile, epsilon, lower, upper):
    if mechanism == "laplace":
        return dpjax.laplace(profile.value, epsilon, sensitivity=upper - lower, lower=lower, upper=upper)
    return getattr(dpjax, mechanism)(profile, epsilon)


def closed_forms(expected):
    """Numbers of another program, which may round otherwise in the last places of float32; draws are equal bit for bit."""
    return pytest.approx(np.float64(expected), rel=1e-6, abs=0)


def key_of(seed, mechanism):
    """That of the first column and the first batch of groups."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), MECHANISMS.index(mechanism)), 0)


def oracle_distribution(mechanism, records, q, neighbors, epsilon, lower, upper):
    """The distribution of one group alone, in float64, from extreme values found by editing the records."""
    statistic = lambda data: oracle.quantile(data, q, "linear", lower, upper)  # noqa: E731
    value = statistic(records)
    if mechanism == "laplace":  # density exp(-epsilon/2 |y - value| / (upper - lower))
        costs = [(value - lower) / (upper - lower), (upper - value) / (upper - lower)]
        return value, oracle.Distribution([(lower, value, costs[0], 0.0), (value, upper, 0.0, costs[1])], epsilon / 2)
    largest, smallest = oracle.extremes(records, 2 * len(records) + 3, statistic, neighbors, lower, upper)
    return value, oracle.mechanism(largest, smallest, epsilon, mechanism)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "neighbors", "draws"),
    [(Fraction(1, 2), "add_remove", 1), pytest.param(Fraction(1, 3), "swap", 5, marks=pytest.mark.slow)],
)
def test_every_row_is_the_distribution_of_its_group(answer, ages, q, neighbors, draws):
    question = ("median", ages) if draws == 1 else ("quantile", ages, "--quantile", q)
    bounds = ("--lower", 0, "--upper", 100, "--neighbors", neighbors)
    options = ("--epsilon", 0.5, 2, "--mechanism", *MECHANISMS, "--draws", draws, "--seed", 7)
    rows = answer(*question, "--column", "age", "--by", "group", *bounds, *options)["rows"]
    order = [(group, mechanism, i) for group in AGES for mechanism in MECHANISMS for i in range(2)]
    assert [(row["group"], row["mechanism"], row["epsilon"]) for row in rows] == [(g, m, (0.5, 2)[i]) for g, m, i in order]

    records, count = np.zeros((3, 7)), np.array([len(members) for members in AGES.values()], np.int32)
    for i, members in enumerate(AGES.values()):
        records[i, : len(members)] = members[::-1]
    profile = dpjax.quantile(records, q, lower=0, upper=100, neighbors=neighbors, count=count)
    epsilon, expected = np.array([0.5, 2.0])[:, None], {}
    for mechanism in MECHANISMS:
        distribution = library_distribution(mechanism, profile, epsilon, 0.0, 100.0)
        sample = distribution.sample(key_of(7, mechanism), (draws,) if draws > 1 else ())
        results = (distribution.mean_abs_error(profile.value), *distribution.interval(0.95), sample.reshape(draws, 2, 3))
        expected[mechanism] = [np.asarray(result) for result in results]

    for (group, mechanism, i), row in zip(order, rows, strict=True):
        g = list(AGES).index(group)
        error, low, high, sample = expected[mechanism]
        assert (row["present"], row["missing"], row["infinite"]) == (len(AGES[group]), 0, 0)
        assert (row["mean_abs_error"], *row["interval95"]) == closed_forms((error[i, g], low[i, g], high[i, g]))
        np.testing.assert_array_equal(np.float32(row["draws"]), sample[:, i, g])
        # The group alone, and the library left out.
        value, distribution = oracle_distribution(mechanism, AGES[group], q, neighbors, row["epsilon"], 0.0, 100.0)
        exact = distribution.expectation(lambda y, value=value: np.abs(y - value), breaks=[value])
        assert row["mean_abs_error"] == pytest.approx(exact, rel=1e-4)
        assert [distribution.cdf(end) for end in row["interval95"]] == pytest.approx([0.025, 0.975], abs=1e-4)
        assert row["tied_share"] == pytest.approx(AGES[group].count(value) / len(AGES[group]))


@pytest.mark.slow
def test_a_constant_column_by_hand_and_how_a_resolution_mends_it(answer, ten):
    # Ten records of 5 on [0, 10]. The profile stays at 5 until the last level but one, which reaches 7.5 by interpolation; the last
    # reaches 10. So the cost of piecewise Laplace rises by 2 over a length of 5, on both sides alike.
    common = ("median", ten([5] * 10), *TEN, "--mechanism", *MECHANISMS)
    bare, smooth = answer(*common)["rows"], answer(*common, "--resolution", 1)["rows"]

    def truncated(scale):  # E|Y - 5| under a density proportional to exp(-|y - 5| / scale) on [0, 10]
        return scale - 5 * math.exp(-5 / scale) / -math.expm1(-5 / scale)

    ratio = math.exp(-1 / 2)
    by_hand = [truncated(5.0), (1.25 + 3.75 * ratio) / (1 + ratio), truncated(20.0)]
    assert [row["mean_abs_error"] for row in bare] == pytest.approx(by_hand, rel=1e-4)
    assert all(error > 1.8 for error in by_hand)  # uniform on [0, 10] would be 2.5
    # The record of rank ceil(n/2), at depth 10: ten records that go (or come below) move it to 0, eleven that come above to 10.
    # The costs of piecewise Laplace rise by 1/5 from one multiple to the next, from 9 on below and from 10 on above.
    own = math.exp(4.5)
    sloped = [math.exp(-0.5 * (9 + piece + k / 5)) for piece in (0, 1) for k in range(1, 6)]
    flat = [math.exp(-0.5 * (10 + piece)) for piece in (0, 1) for _ in range(5)]
    by_hand = [sum(w * (k % 5 + 1) for k, w in enumerate(weights)) / (own + sum(weights)) for weights in (sloped, flat)]
    assert [row["mean_abs_error"] for row in smooth] == pytest.approx([*by_hand, truncated(20.0)], rel=1e-4)
    assert max(by_hand) < 0.01
    assert [row["tied_share"] for row in bare + smooth] == [1.0] * 6


@pytest.mark.slow
def test_the_interval_and_the_error_are_those_of_the_draws(answer, ten):
    (row,) = answer("median", ten(), *TEN, "--draws", 20_000, "--seed", 3)["rows"]
    draws, (low, high) = np.array(row["draws"]), row["interval95"]
    deviation = math.sqrt(0.025 * 0.975 / draws.size)
    assert abs(np.mean(draws < low) - 0.025) < 5 * deviation
    assert abs(np.mean(draws > high) - 0.025) < 5 * deviation
    error = np.abs(draws - 4.5)
    assert abs(error.mean() - row["mean_abs_error"]) < 5 * error.std() / math.sqrt(draws.size)


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_groups_of_all_sizes_in_any_batches(answer, write, monkeypatch, neighbors):
    """Padded to shapes of their own, with missing and infinite cells, each is the distribution of its records."""
    rng, sizes = np.random.default_rng(2), {"a": 400, "b": 3, "c": 90, "d": 200}
    cells = {g: np.where(rng.random(n) < 0.1, "", rng.lognormal(1, 1, n).astype(str)) for g, n in sizes.items()}
    cells["c"][:5] = ["inf", "-inf", "1e300", "-1", "11"]
    lines = rng.permutation([f"{g},{cell}\n" for g, some in cells.items() for cell in some])
    path, bounds = write("g,x\n" + "".join(lines)), ("--lower", 0, "--upper", 10, "--neighbors", neighbors)
    command = ("quantile", path, "--quantile", 0.75, "--column", "x", "--by", "g", *bounds)
    for cells_of_a_batch in (2**22, 1000, 1):
        monkeypatch.setattr("dpjax.frames.draws._CELLS", cells_of_a_batch)
        rows = answer(*command)["rows"]
        for row, (group, texts) in zip(rows, cells.items(), strict=True):
            records = np.clip([float(text or "nan") for text in texts], 0, 10)[None]
            profile = dpjax.quantile(records, 0.75, lower=0, upper=10, neighbors=neighbors)
            law = dpjax.piecewise_laplace(profile, 1.0)
            assert (row["group"], row["missing"]) == (group, np.sum(np.isnan(records)))
            found = row["value"], row["mean_abs_error"], *row["interval95"]
            expected = profile.value, law.mean_abs_error(profile.value), *law.interval(0.95)
            np.testing.assert_allclose(found, [float(number[0]) for number in expected], rtol=1e-4)
            there = records[~np.isnan(records)] if neighbors == "add_remove" else np.nan_to_num(records)
            assert row["tied_share"] == pytest.approx(np.mean(there.astype(np.float32) == np.float32(row["value"])))


@pytest.mark.slow
def test_columns_have_bounds_and_randomness_of_their_own(answer, write):
    file = write("u,v\n" + "".join(f"{i},{10 * i}\n" for i in range(10)))
    bounds = ("--lower", -50, -5, "--upper", "1e2", 10, "--neighbors", "add_remove")
    rows = answer("median", file, "--column", "v", "u", *bounds, "--seed", 5)["rows"]
    assert [(row["column"], row["lower"], row["upper"]) for row in rows] == [("v", -50, 100), ("u", -5, 10)]
    errors = [row["mean_abs_error"] for row in rows]
    assert errors[0] == pytest.approx(10 * errors[1], rel=1e-5)
    assert abs(rows[0]["draws"][0] / 10 - rows[1]["draws"][0]) > 1e-3


@pytest.mark.slow
def test_a_mechanism_draws_the_same_alone(answer, ten):
    common = ("median", ten(), *TEN, "--seed", 1)
    together = answer(*common, "--mechanism", *MECHANISMS)["rows"]
    assert answer(*common, "--mechanism", "laplace")["rows"] == [together[2]]
    assert answer(*common, "--mechanism", "laplace", "laplace")["rows"] == [together[2]]


@pytest.mark.slow
def test_definition_lower_and_records_beyond_the_bounds(answer, ten):
    records = ["-1e300", -3, 1, 2, 4, 6, 7, 8, "1e300", "inf"]
    (row,) = answer("median", ten(records), *TEN, "--definition", "lower")["rows"]
    clamped = np.clip(np.array(records, float), 0, 10)[None]
    profile = dpjax.median(clamped, lower=0, upper=10, neighbors="add_remove", definition="lower", count=np.array([10], np.int32))
    distribution = dpjax.piecewise_laplace(profile, np.array([[1.0]]))
    assert row["mean_abs_error"] == closed_forms(distribution.mean_abs_error(4.0)[0, 0])


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_a_missing_cell_is_absent_or_the_lower_bound(answer, ten, neighbors):
    cells = ["4", "NA", "6", "nan", "NaN", "9", "na", "4", "9", "-nan"]
    (row,) = answer("median", ten(cells), "--lower", 0, "--upper", 10, "--neighbors", neighbors)["rows"]
    numbers = [4.0, 6.0, 9.0, 4.0, 9.0] + ([] if neighbors == "add_remove" else [0.0] * 5)
    value, distribution = oracle_distribution("piecewise_laplace", numbers, Fraction(1, 2), neighbors, 1.0, 0.0, 10.0)
    assert (row["present"], row["missing"]) == (5, 5)
    assert row["mean_abs_error"] == pytest.approx(distribution.expectation(lambda y: np.abs(y - value), breaks=[value]), rel=1e-4)
    assert row["tied_share"] == pytest.approx(numbers.count(value) / len(numbers))


@pytest.mark.slow
@pytest.mark.parametrize(("neighbors", "share"), [("add_remove", 0.0), ("swap", 1.0)])
def test_a_column_without_any_value(answer, ten, neighbors, share):
    (row,) = answer("median", ten(["NA"] * 10), "--lower", 0, "--upper", 10, "--neighbors", neighbors)["rows"]
    assert (row["present"], row["missing"], row["tied_share"]) == (0, 10, share)
    assert 1 < row["mean_abs_error"] < 10


@pytest.mark.slow
def test_the_largest_seed(answer, ten):
    common = ("median", ten(), *TEN, "--seed")
    assert answer(*common, 2**32 - 1)["rows"][0]["draws"] != answer(*common, 0)["rows"][0]["draws"]


# What is printed around the numbers: with a resolution, which needs no program.


def test_several_columns_are_named(run, write):
    file = write("u,v\n" + "".join(f"{i},{10 * i}\n" for i in range(10)))
    outcome = run(
        "median", file, "--column", "u", "v", "--lower", 0, "--upper", 10, 1234567, "--neighbors", "add_remove", "--resolution", 1
    )
    assert "\n\nMedian (definition lower) of columns u, v, 10 records.\n" in outcome.out
    assert "bounds u [0, 10], v [0, 1234567].\n" in outcome.out
    assert [row["column"] for row in outcome.table] == ["u", "v"]


def test_it_is_called_a_simulation_and_says_the_statistic_beside_the_draw(run, answer, ten):
    command = ("median", ten([1, 1.5, 2, 3, 4.25, 4.3125, 7, 8, "inf", "-inf"]), *TEN, "--resolution", "1/4", "--seed", 1)
    outcome, found = run(*command), answer(*command)
    assert "Simulation: float draws reveal low-order bits" in outcome.words
    assert "None of this is a private release." in outcome.words
    (text,), (row,) = outcome.table, found["rows"]
    assert (text["present"], text["infinite"], float(text["value"])) == ("10", "2", 3.0)
    assert (row["present"], row["infinite"], row["value"]) == (10, 2, 3.0)


def test_the_seed_makes_it_repeatable(run, ten):
    command = ("median", ten(), *WHOLE)
    first = run(*command, "--seed", 12)
    assert run(*command, "--seed", 12).out == first.out
    assert run(*command, "--seed", 13).out != first.out
    fresh = run(*command)
    seed = re.search(r"seed (\d+);", fresh.out).group(1)
    assert run(*command, "--seed", seed).out == fresh.out
    assert run(*command).out != fresh.out


def test_a_reader_that_goes_away(ten, monkeypatch, capfd):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        assert main(["median", ten(), *map(str, WHOLE)]) == 1
    assert capfd.readouterr().err == ""


def test_rows_go_to_a_file(run, answer, ten, tmp_path):
    command = ("median", ten(), *WHOLE, "--seed", 1)
    found = answer(*command)
    assert run(*command, "--output", tmp_path / "found.csv").out == f"Wrote {tmp_path / 'found.csv'}.\n"
    (line,) = csv.DictReader((tmp_path / "found.csv").read_text().splitlines())
    (row,) = found["rows"]
    for name in ("value", "mean_abs_error", "epsilon", "present", "lower", "quantile"):
        assert float(line[name]) == row[name]
    assert [float(line["lower95"]), float(line["upper95"])] == row["interval95"]
    assert [float(line["drawn"])] == row["draws"]
    run(*command, "--output", tmp_path / "found.json")
    assert json.loads((tmp_path / "found.json").read_text()) == found
    outcome = run(*command, "--output", tmp_path / "nowhere" / "found.csv")
    assert (outcome.code, outcome.out) == (2, "")
    assert "cannot write" in outcome.err


@pytest.mark.slow
def test_several_quantiles_without_a_resolution_are_joint_ones(run, answer, write):
    rng = np.random.default_rng(4)
    values = rng.uniform(0, 20, 60).round(3)
    file = write("g,h,x\n" + "".join(f"{'ab'[i % 2]},u,{value}\n" for i, value in enumerate(values)))
    bounds = ("--lower", 0, "--upper", 20, "--neighbors", "add_remove", "--epsilon", 1, 4)
    command = ("quantile", file, "--column", "x", "--by", "h", "g", "--quantile", 0.75, 0.25, *bounds, "--seed", 3)
    rows, outcome = answer(*command)["rows"], run(*command)
    assert [(row["group"], row["epsilon"], row["quantile"]) for row in rows] == [
        ({"h": "u", "g": group}, epsilon, q) for group in "ab" for epsilon in (1, 4) for q in (0.25, 0.75)
    ]
    records = np.full((2, 64), np.nan)
    records[:, :30] = values.reshape(30, 2).T
    asked = dpjax.quantiles(records, [0.25, 0.75], lower=0, upper=20, neighbors="add_remove")
    marginals = dpjax.joint_quantiles(asked, np.array([[1.0], [4.0]])).marginals()
    expected = np.asarray(marginals.mean_abs_error(asked.value)).swapaxes(0, 1).ravel()
    np.testing.assert_allclose([row["mean_abs_error"] for row in rows], expected, rtol=1e-4)
    assert [row["value"] for row in rows] == pytest.approx(np.asarray(asked.value).repeat(2, axis=0).ravel())
    assert ("\n\nQuantiles 0.25, 0.75 (definition linear) of column x by h, g (2 groups), 60 records.\n") in outcome.out
    assert "mean |error|: exact expected distance" in outcome.words
    assert "All quantiles of one draw cost that together." in outcome.words
    wrong = run(*command, "--mechanism", "laplace")
    assert "several quantiles are drawn together, by joint quantiles" in wrong.err
