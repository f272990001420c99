"""``dpjax median`` and ``quantile`` with a resolution are the laws of a release; and what is
printed around the numbers.
"""

import csv
import io
import json
import math
import re
from fractions import Fraction

import numpy as np
import pytest

from dpjax.accounting import Guarantee
from dpjax.command_line.text import in_options, promised, words_of
from dpjax.release import Median, Quantile, exact_distribution
from tests.command_line.conftest import AGES

GRID_MECHANISMS = ("piecewise_laplace", "inverse_sensitivity", "permute_and_flip")
BOUNDS = {"lower": 0, "upper": 100, "resolution": Fraction(1, 2)}
ASKED = ("--lower", 0, "--upper", 100, "--resolution", "0.5")
TEN = ("--lower", 0, "--upper", 10, "--neighbors", "add_remove", "--resolution", 1)


def simulated(rows):
    return np.array([row["simulated"] for row in rows])


def interval(row):
    return [row["lower95"], row["upper95"]]


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
@pytest.mark.parametrize(
    ("q", "definition"), [("1/2", "lower"), ("0.9", "lower"), ("1/3", "linear")]
)
def test_every_row_is_the_distribution_of_a_release(answer, ages, q, definition, neighbors):
    options = (
        "--quantile",
        q,
        "--definition",
        definition,
        "--neighbors",
        neighbors,
        "--epsilon",
        0.25,
        2,
        "--draws",
        3,
    )
    groups = (
        AGES
        if neighbors == "add_remove"
        else {None: [age for members in AGES.values() for age in members]}
    )
    by = ("--by", "group") if neighbors == "add_remove" else ()
    found = answer(
        "quantile",
        ages,
        "--column",
        "age",
        *by,
        *ASKED,
        *options,
        "--mechanism",
        *GRID_MECHANISMS,
        "--seed",
        7,
    )
    statistic, rows = Quantile(q, **BOUNDS, definition=definition), iter(found["rows"])
    for mechanism in GRID_MECHANISMS:
        for group, members in groups.items():
            for epsilon in (0.25, 2):
                law = exact_distribution(
                    statistic, members, epsilon=epsilon, neighbors=neighbors, mechanism=mechanism
                )
                share = np.mean(np.array(members) == law.value)  # all are multiples
                for draw in (1, 2, 3):
                    row = next(rows)
                    said = (
                        row.get("group"),
                        row["mechanism"],
                        row["epsilon"],
                        row["draw"],
                        row["value"],
                        row["records"],
                    )
                    assert said == (group, mechanism, epsilon, draw, law.value, len(members))
                    assert row["mean_abs_error"] == pytest.approx(
                        law.mean_abs_error(law.value), rel=1e-14
                    )
                    assert interval(row) == np.array(law.interval(0.95)).tolist()
                    assert law.pmf(np.array([row["simulated"]])) > 0
                    assert row["tied_share"] == pytest.approx(share)
        assert found["guarantees"][mechanism]["epsilon"] == 3 * (0.25 + 2)
    assert next(rows, None) is None
    errors = {row["mean_abs_error"] for row in found["rows"]}
    # Control: of the same records other distributions have other errors
    assert len(errors) > len(found["rows"]) / 6


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_missing_cells_are_absent_or_the_lower_bound(answer, ten, neighbors):
    cells = ["4", "NA", "6", "nan", "NaN", "9", "na", "4", "9", "-nan"]
    numbers = [4.0, 6.0, 9.0, 4.0, 9.0] + ([] if neighbors == "add_remove" else [0.0] * 5)
    command = ("median", ten(cells), *TEN[:5], neighbors, *TEN[6:])
    (row,) = answer(*command)["rows"]
    law = exact_distribution(Median(0, 10, 1), numbers, epsilon=1.0, neighbors=neighbors)
    assert (row["records"], row["missing"], row["value"]) == (10, 5, law.value)
    assert row["mean_abs_error"] == pytest.approx(law.mean_abs_error(law.value), rel=1e-14)
    assert row["tied_share"] == numbers.count(law.value) / len(numbers)
    (empty,) = answer("median", ten(["NA"] * 10), *command[2:])["rows"]
    assert (empty["records"], empty["missing"], empty["tied_share"]) == (
        10,
        10,
        float(neighbors == "swap"),
    )


def test_cells_that_are_no_numbers_are_counted(run, answer, ten):
    command = ("median", ten([*range(8), "eight", ""]), *TEN)
    assert answer(*command)["not_numbers"] == {"x": 1}
    assert "1 cells of x are not numbers, and count as missing." in run(*command).words


@pytest.mark.parametrize("mechanism", [*GRID_MECHANISMS, "laplace"])
def test_draws_have_the_error_and_the_interval_that_are_printed(answer, ten, mechanism):
    rows = answer("median", ten(), *TEN, "--mechanism", mechanism, "--draws", 10_000, "--seed", 3)[
        "rows"
    ]
    draws, (low, high), row = simulated(rows), interval(rows[0]), rows[0]
    error = np.abs(draws - row["value"])
    deviation = error.std() / math.sqrt(draws.size)
    assert abs(error.mean() - row["mean_abs_error"]) < 5 * deviation
    (other,) = answer("median", ten(), *TEN, "--mechanism", mechanism, "--epsilon", 4)["rows"]
    assert abs(error.mean() - other["mean_abs_error"]) > 5 * deviation  # control
    slack = 5 * math.sqrt(0.025 * 0.975 / draws.size)
    assert max(np.mean(draws < low), np.mean(draws > high)) < 0.025 + slack
    assert min(np.mean(draws <= low), np.mean(draws >= high)) > 0.025 - slack


@pytest.mark.parametrize("records", [[4] * 10, [0] * 10, [10] * 10])
@pytest.mark.parametrize("epsilon", [1e-6, 0.5, 40])
def test_laplace_is_a_density_within_the_bounds(answer, ten, records, epsilon):
    """By quadrature: exp(-epsilon/2 |y - value| / 10) on [0, 10]."""
    rows = answer(
        "median", ten(records), *TEN, "--mechanism", "laplace", "--epsilon", epsilon, "--draws", 100
    )["rows"]
    row, value = rows[0], float(records[0])
    nodes, weights = np.polynomial.legendre.leggauss(60)

    def integral(low, high, of=lambda distance: 1.0):
        distance = np.abs((low + high + (high - low) * nodes) / 2 - value)
        return (high - low) / 2 * np.sum(weights * np.exp(-epsilon / 20 * distance) * of(distance))

    mass = integral(0, value) + integral(value, 10)
    error = integral(0, value, lambda distance: distance) + integral(
        value, 10, lambda distance: distance
    )
    assert row["mean_abs_error"] == pytest.approx(error / mass, rel=1e-9)
    for end, share in zip(interval(row), (0.025, 0.975), strict=True):
        below = integral(0, min(end, value)) + integral(value, max(end, value))
        assert below / mass == pytest.approx(share, abs=1e-7)
    assert np.all((simulated(rows) >= 0) & (simulated(rows) <= 10))


def test_a_grid_as_wide_as_a_release_takes_it(answer, ten, run):
    """Which float32 cannot count."""
    wide = ("--lower", 0, "--neighbors", "add_remove", "--upper")
    (row,) = answer(
        "median", ten([10**6 + i for i in range(10)]), *wide, 5_000_000, "--resolution", 1
    )["rows"]
    assert row["value"] == 10**6 + 4
    records = [2**50 + i for i in range(10)]
    near = ("--lower", 2**50 - 2**30, "--upper", 2**50 + 2**30 - 4)
    (row,) = answer(
        "median", ten(records), *near, "--neighbors", "swap", "--resolution", 1, "--epsilon", 10
    )["rows"]
    assert row["value"] == records[4]
    assert (
        "more than 2^31 - 2: use a coarser resolution"
        in run("median", ten(), *wide, 2**31, "--resolution", 1).mistake
    )


def test_each_column_has_bounds_and_a_resolution_of_its_own(answer, run, write):
    file = write("u,v\n" + "".join(f"{i},{10 * i + 3}\n" for i in range(10)))
    options = (
        "--column",
        "v",
        "u",
        "--lower",
        0,
        "--upper",
        "1e2",
        10,
        "--neighbors",
        "add_remove",
        "--resolution",
        20,
        "0.5",
    )
    found = answer("median", file, *options, "--seed", 5)
    assert found["resolution"] == "20, 1/2"
    v, u = found["rows"]
    assert (v["column"], v["value"], u["column"], u["value"]) == ("v", 40, "u", 4)
    assert (v["simulated"] % 20, u["simulated"] % 0.5) == (0, 0)
    assert "--resolution has 3 values for 2 columns" in run("median", file, *options, 1).mistake
    assert (
        "Median (definition lower) of v, u; neighbors "
        "add_remove. Resolution 20, 1/2; seed" in run("median", file, *options).words
    )


def test_randomness_is_that_of_the_seed_the_column_and_the_mechanism(run, answer, write):
    file = write("u,v\n" + "".join(f"{i},{i}\n" for i in range(10)))

    def draws(seed, *options):
        return [
            row["simulated"]
            for row in answer("median", file, *TEN, "--draws", 40, "--seed", seed, *options)["rows"]
        ]

    every = draws(5, "--column", "u", "v", "--mechanism", *GRID_MECHANISMS)
    parts = [every[k : k + 40] for k in range(0, 240, 40)]  # by mechanism and column
    # The same alone
    assert draws(5, "--column", "u", "--mechanism", "permute_and_flip") == parts[4]
    assert (
        draws(5, "--column", "u", "--mechanism", "permute_and_flip", "permute_and_flip") == parts[4]
    )
    parts += [draws(seed, "--column", "u") for seed in (6, 0, 2**32 - 1)]
    assert all(one != other for k, one in enumerate(parts) for other in parts[:k])
    fresh = run("median", file, *TEN, "--column", "u", "--draws", 9)
    seed = re.search(r"seed (\d+);", fresh.out).group(1)
    assert run("median", file, *TEN, "--column", "u", "--draws", 9, "--seed", seed).out == fresh.out
    assert run("median", file, *TEN, "--column", "u", "--draws", 9).out != fresh.out


SEVERAL = ("--quantile", 0.75, "1/4", "--resolution", 1)


def test_several_quantiles_take_the_grid_a_seed_and_the_guess_of_a_release(run, answer, write):
    records = [10**6 + 3 * i for i in range(400)]
    file = write("x\n" + "".join(f"{value}\n" for value in records))
    command = (
        "quantile",
        file,
        "--lower",
        0,
        "--upper",
        5_000_000,
        "--neighbors",
        "add_remove",
        *SEVERAL,
    )
    guess = ("--max-records", 1000, "--epsilon", 30, "--seed")
    found = answer(*command, *guess, 7)
    rows = found["rows"]
    # Float32 cannot count these, nor keep them to a third.
    assert [row["value"] for row in rows] == [records[99], records[299]]
    assert all(
        row["simulated"] % 1 == 0 and abs(row["simulated"] - row["value"]) < 100 for row in rows
    )
    assert found["guarantees"] == {
        "joint_quantiles": {
            "epsilon": 30,
            "bounded_range": 30,
            "neighbors": "add_remove",
            "unit": "row",
        }
    }
    some = [
        answer(*command, *guess[:2], "--draws", 9, "--seed", seed)["rows"] for seed in (7, 7, 8)
    ]
    assert some[0] == some[1] != some[2]
    for refused in (
        run(*command),
        run(*command[:-5], "--quantile", "0.5", "--resolution", 1, *guess, 7),
    ):
        assert (
            "--max-records, a public guess of the size of the largest group, "
            "must be given for several quantiles" in refused.mistake
        )


def test_a_person_with_several_records_is_one(run, answer, write):
    """400 persons have a 20, and one has 500 times 90: the median of the records is not that of the
    persons.
    """
    file = write(
        "p,x\n" + "".join(f"{p},20\n" for p in range(400)) + "rich,90\n" * 500 + ",90\n" * 500
    )
    command = (
        "median",
        file,
        "--column",
        "x",
        "--lower",
        0,
        "--upper",
        100,
        "--resolution",
        1,
        "--neighbors",
        "add_remove",
    )
    (row,) = answer(*command, "--unit", "p")["rows"]
    assert (row["records"], row["value"]) == (401, 20)
    (row,) = answer(*command)["rows"]
    assert (row["records"], row["value"]) == (1400, 90)  # control
    said = run(*command, "--unit", "p").words
    assert (
        "for one person with all records, more or less. A person is all records with one "
        "label in the column p, combined" in said
    )
    counted = (
        "quantile",
        *command[1:],
        "--unit",
        "p",
        "--per-unit",
        "count",
        "--quantile",
        "0.999",
    )
    (row,) = answer(*counted)["rows"]
    assert row["value"] == 100  # 500 records, within the bounds


# What is printed around the numbers.


def test_the_text_has_the_rows_and_says_that_it_is_a_simulation(run, answer, ages):
    command = (
        "median",
        ages,
        "--column",
        "age",
        *ASKED,
        "--by",
        "group",
        "--neighbors",
        "add_remove",
        "--seed",
        4,
    )
    outcome, rows = run(*command), answer(*command)["rows"]
    assert (outcome.code, outcome.err) == (0, "")
    head, *lines = [line.split() for line in outcome.out.split("\n\n")[0].splitlines()]
    assert head == [
        "group",
        "records",
        "value",
        "simulated",
        "mean_abs_error",
        "lower95",
        "upper95",
        "tied_share",
    ]
    for line, row in zip(lines, rows, strict=False):
        assert [line[0], *map(float, line[1:])] == [
            row["group"],
            *(float(f"{row[name]:.6g}") for name in head[1:]),
        ]
    assert lines[3] == ["column", "age,", "missing", "0,", "epsilon", "1"]
    for part in (
        "All draws together are 1-DP and 1-bounded-range under add_remove neighbors, for one "
        "record of the file, more or less. A person with several records has a weaker guarantee: "
        "give --unit, the column that identifies the person. A record is in one group, so that "
        "this is the cost of all groups together.",
        "Median (definition lower) of age by group; neighbors add_remove. Resolution 1/2; seed 4; "
        "1 draw of each row.",
        "with these differences: no --seed; --groups, or --group-epsilon and --group-delta.",
        "Simulation: floating-point draws reveal low-order bits",
        "None of this is a private release.",
    ):
        assert part in outcome.words
    assert "=" not in outcome.out  # options are named as they are given here


def test_what_differs_in_a_release_is_said(run, ages):
    column = ("--column", "age", "--neighbors", "add_remove")
    said = run(
        "median",
        ages,
        *column,
        *ASKED,
        "--mechanism",
        "permute_and_flip",
        "laplace",
        "--epsilon",
        1,
        2,
    ).words
    assert "with these differences: no --seed; one --mechanism; no laplace; one --epsilon." in said
    assert run("median", ages, *column, *ASKED[:4], "--mechanism", "permute_and_flip").mistake == (
        "--mechanism permute_and_flip needs a --resolution."
    )


def test_many_records_at_a_bound_are_noted(run, ten):
    outcome = run("median", ten([1, 2, 3, 40, 50, 60, 70, 80, 90, "inf"]), *TEN)
    assert "70 % of the records are at or beyond a bound" in outcome.words
    assert "at or beyond" not in run("median", ten([1, 2, 3, 4, 5, 6, 7, 8, "na", 12]), *TEN).words
    assert outcome.out.startswith("column  records ")  # the values come first


def test_labels_that_are_odd(run, answer, write):
    """A line break does not break the table; a cell without a label is in no group."""
    file = write('part,region,x\na,u,1\n"two\nlines",u,1\n,u,2\n' + "a,u,3\n" * 6 + "a,,3\n")
    command = ("median", file, "--column", "x", "--by", "region", "part", *TEN, "--draws", 2)
    rows = answer(*command)["rows"]
    assert [(row["region"], row["part"], row["draw"]) for row in rows] == [
        ("u", part, k) for part in ("a", "two\nlines") for k in (1, 2)
    ]
    assert [row["records"] for row in rows] == [7, 7, 1, 1]
    assert "'two\\nlines'" in run(*command).out


def test_promises_are_never_printed_too_small():
    for epsilon in (0.1, 0.5, 0.3, 1.0, 2.0**-30, 64.0, 1e-5, 0.012345, 123456.0):
        assert promised(epsilon) == f"{epsilon:g}" or float(promised(epsilon)) > epsilon
    assert [promised(e) for e in (0.1, 0.123456, 100.0, 1e6)] == ["0.1", "0.123456", "100", "1e+06"]
    # 3 * 0.1 is above 0.3 in floats
    assert [promised(0.1, times=times) for times in (3, 7, 10)] == ["0.3", "0.7", "1"]
    for epsilon in np.random.default_rng(0).uniform(0, 3, 300).tolist():
        for times in (1, 3, 1000):
            printed, exact = promised(epsilon, times=times), Fraction(repr(epsilon)) * times
            assert exact <= Fraction(printed) <= exact * (1 + Fraction(1, 10**5))
            assert len(printed.lstrip("0.").replace(".", "")) <= 6
    assert words_of(Guarantee(1 / 3, float("inf"), "swap")) == "0.333334-DP under swap neighbors"
    assert (
        in_options("needs max_records= and per_unit='sum', where x=1")
        == "needs --max-records and --per-unit sum, where x=1"
    )


def test_an_error_that_is_not_zero_is_not_printed_as_zero(run, answer, ten):
    command = ("median", ten([5] * 10), *TEN, "--epsilon", 5, "--seed", 1)
    (line,), (row,) = re.findall(r" \S*e-\S+ ", run(*command).out), answer(*command)["rows"]
    assert 0 < row["mean_abs_error"] < 1e-9
    assert float(line) == pytest.approx(row["mean_abs_error"], rel=1e-5)


def test_rows_go_to_a_file(run, answer, ten, tmp_path):
    command = ("median", ten(), *TEN, "--seed", 1, "--mechanism", "piecewise_laplace", "laplace")
    found = answer(*command)
    assert (
        run(*command, "--output", tmp_path / "found.csv").out
        == f"Wrote {tmp_path / 'found.csv'}.\n"
    )
    lines = list(csv.DictReader(io.StringIO((tmp_path / "found.csv").read_text())))
    for line, row in zip(lines, found["rows"], strict=True):
        assert list(line) == list(row)
        assert line == {name: str(value) for name, value in row.items()}
    run(*command, "--output", tmp_path / "found.json")
    assert json.loads((tmp_path / "found.json").read_text()) == found
    assert list(found["rows"][0]) == [
        *(
            "column",
            "records",
            "missing",
            "value",
            "simulated",
            "mean_abs_error",
            "lower95",
            "upper95",
            "tied_share",
            "epsilon",
        ),
        "mechanism",
    ]
    assert set(found) == {
        *(
            "simulation",
            "statistic",
            "quantiles",
            "neighbors",
            "definition",
            "seed",
            "unit",
            "resolution",
            "not_numbers",
        ),
        *("guarantees", "notes", "dpjax_version", "numpy_version", "rows"),
    }
