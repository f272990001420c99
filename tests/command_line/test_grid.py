"""With a resolution: the errors, intervals and draws of the release's own distributions, for all groups at once, without JAX."""

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from dpjax.command_line.parser import GRID_MECHANISMS
from dpjax.release import Counts, Median, Quantile, Quantiles, exact_distribution
from dpjax.release.grid import Multiples
from tests.command_line.conftest import AGES

BOUNDS = {"lower": 0, "upper": 100, "resolution": Fraction(1, 2)}
ASKED = ("--lower", 0, "--upper", 100, "--resolution", "0.5")
TEN = ("--lower", 0, "--upper", 10, "--neighbors", "add_remove", "--resolution", 1)


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
@pytest.mark.parametrize(("q", "definition"), [("1/2", "lower"), ("0.9", "lower"), ("1/3", "linear")])
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
        "--seed",
        7,
    )
    rows = answer("quantile", ages, "--column", "age", "--by", "group", *ASKED, *options, "--mechanism", *GRID_MECHANISMS)["rows"]
    statistic, found = Quantile(q, **BOUNDS, definition=definition), iter(rows)
    for group, members in AGES.items():
        for mechanism in GRID_MECHANISMS:
            for epsilon in (0.25, 2):
                law = exact_distribution(statistic, members, epsilon=epsilon, neighbors=neighbors, mechanism=mechanism)
                row = next(found)
                assert (row["group"], row["mechanism"], row["epsilon"], row["value"]) == (group, mechanism, epsilon, law.value)
                assert row["mean_abs_error"] == pytest.approx(law.mean_abs_error(law.value), rel=1e-14)
                assert row["interval95"] == np.array(law.interval(0.95)).tolist()
                assert np.all(law.pmf(np.array(row["draws"])) > 0)
                share = np.mean(np.array(members) == law.value)  # all are multiples
                assert row["tied_share"] == pytest.approx(share)
                ranges = 2 * epsilon if mechanism == "permute_and_flip" else epsilon
                assert row["guarantee"]["bounded_range"] == ranges
    assert next(found, None) is None
    # Control: of the same records other distributions have other errors.
    errors = {row["mean_abs_error"] for row in rows}
    assert len(errors) > len(rows) / 2


@pytest.mark.parametrize(("neighbors", "treatment"), [("add_remove", "absent"), ("swap", "counted as the lower bound")])
def test_missing_cells_are_absent_or_the_lower_bound(run, answer, ten, neighbors, treatment):
    cells = ["4", "NA", "6", "nan", "NaN", "9", "na", "4", "9", "-nan"]
    numbers = [4.0, 6.0, 9.0, 4.0, 9.0] + ([] if neighbors == "add_remove" else [0.0] * 5)
    command = ("median", ten(cells), *TEN[:5], neighbors, *TEN[6:])
    (row,), outcome = answer(*command)["rows"], run(*command)
    law = exact_distribution(Median(0, 10, 1), numbers, epsilon=1.0, neighbors=neighbors)
    assert (row["present"], row["missing"], row["value"]) == (5, 5, law.value)
    assert row["mean_abs_error"] == pytest.approx(law.mean_abs_error(law.value), rel=1e-14)
    assert row["tied_share"] == numbers.count(law.value) / len(numbers)
    assert f"10 records, 5 missing ({treatment})." in outcome.words
    (empty,) = answer("median", ten(["NA"] * 10), *command[2:])["rows"]
    assert (empty["present"], empty["missing"], empty["tied_share"]) == (0, 10, float(neighbors == "swap"))


@pytest.mark.parametrize("mechanism", [*GRID_MECHANISMS, "laplace"])
def test_draws_have_the_error_and_the_interval_that_are_printed(answer, ten, mechanism):
    (row,) = answer("median", ten(), *TEN, "--mechanism", mechanism, "--draws", 40_000, "--seed", 3)["rows"]
    draws, (low, high) = np.array(row["draws"]), row["interval95"]
    error = np.abs(draws - row["value"])
    deviation = error.std() / math.sqrt(draws.size)
    assert abs(error.mean() - row["mean_abs_error"]) < 5 * deviation
    (other,) = answer("median", ten(), *TEN, "--mechanism", mechanism, "--epsilon", 2)["rows"]
    assert abs(error.mean() - other["mean_abs_error"]) > 5 * deviation  # control
    slack = 5 * math.sqrt(0.025 * 0.975 / draws.size)
    assert max(np.mean(draws < low), np.mean(draws > high)) < 0.025 + slack
    assert min(np.mean(draws <= low), np.mean(draws >= high)) > 0.025 - slack


@pytest.mark.parametrize("records", [[4] * 10, [0] * 10, [10] * 10])
@pytest.mark.parametrize("epsilon", [1e-6, 0.5, 40])
def test_laplace_is_a_density_within_the_bounds(answer, ten, records, epsilon):
    """By quadrature: exp(-epsilon/2 |y - value| / 10) on [0, 10]."""
    (row,) = answer("median", ten(records), *TEN, "--mechanism", "laplace", "--epsilon", epsilon, "--draws", 100)["rows"]
    nodes, weights = np.polynomial.legendre.leggauss(60)
    value, parts = float(records[0]), []
    for low, high in ((0.0, value), (value, 10.0)):
        y = (low + high + (high - low) * nodes) / 2
        parts.append((y, (high - low) / 2 * weights * np.exp(-epsilon / 20 * np.abs(y - value))))
    y, mass = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    assert row["mean_abs_error"] == pytest.approx(np.sum(mass * np.abs(y - value)) / np.sum(mass), rel=1e-9)
    for end, share in zip(row["interval95"], (0.025, 0.975), strict=True):
        inside = (end * (1 + nodes) / 2, end / 2 * weights) if end <= value else (value * (1 + nodes) / 2, value / 2 * weights)
        below = np.sum(inside[1] * np.exp(-epsilon / 20 * np.abs(inside[0] - value)))
        if end > value:
            y = (value + end + (end - value) * nodes) / 2
            below += (end - value) / 2 * np.sum(weights * np.exp(-epsilon / 20 * np.abs(y - value)))
        assert below / np.sum(mass) == pytest.approx(share, abs=1e-7)
    assert all(0 <= draw <= 10 for draw in row["draws"])


def test_a_grid_as_wide_as_a_release_takes_it(answer, ten, run):
    """Which float32 cannot count."""
    wide = ("--lower", 0, "--neighbors", "add_remove", "--upper")
    (row,) = answer("median", ten([10**6 + i for i in range(10)]), *wide, 5_000_000, "--resolution", 1)["rows"]
    assert row["value"] == 10**6 + 4
    records = [2**50 + i for i in range(10)]
    near = ("--lower", 2**50 - 2**30, "--upper", 2**50 + 2**30 - 4)
    (row,) = answer("median", ten(records), *near, "--neighbors", "swap", "--resolution", 1, "--epsilon", 10)["rows"]
    assert row["value"] == records[4]
    beyond = run("median", ten(), *wide, 2**31, "--resolution", 1)
    assert (beyond.code, beyond.out) == (2, "")
    assert "more than 2^31 - 2: take a coarser resolution" in beyond.err


def test_each_column_has_a_resolution_of_its_own(answer, run, write):
    file = write("u,v\n" + "".join(f"{i},{10 * i + 3}\n" for i in range(10)))
    options = ("--column", "v", "u", "--lower", 0, "--upper", 100, 10, "--neighbors", "add_remove", "--resolution", 20, "0.5")
    found = answer("median", file, *options, "--seed", 5)
    assert found["resolution"] == "20, 1/2"
    v, u = found["rows"]
    assert (v["value"], u["value"]) == (40, 4)
    assert (v["draws"][0] % 20, u["draws"][0] % 0.5) == (0, 0)
    assert "resolution has 3 values for 2 columns" in run("median", file, *options, 1).err


def test_randomness_is_that_of_the_seed_the_column_and_the_mechanism(answer, ten, write):
    alone = answer("median", ten(), *TEN, "--seed", 5, "--draws", 40, "--mechanism", "permute_and_flip")["rows"][0]["draws"]
    rows = answer("median", ten(), *TEN, "--seed", 5, "--draws", 40, "--mechanism", *GRID_MECHANISMS)["rows"]
    assert [row["draws"] == alone for row in rows] == [False, False, True]
    file = write("u,v\n" + "".join(f"{i},{i}\n" for i in range(10)))
    rows = answer("median", file, "--column", "u", "v", *TEN, "--seed", 5, "--draws", 40)["rows"]
    assert rows[0]["draws"] != rows[1]["draws"]
    assert answer("median", file, "--column", "u", "v", *TEN, "--seed", 6, "--draws", 40)["rows"][0]["draws"] != rows[0]["draws"]


def after(*commands):
    """Whether a new process has imported JAX after these commands."""
    program = f"import sys; from dpjax.command_line.main import main; [main(c) for c in {commands}]; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.split()[-1] == "True", done.stderr


def test_no_jax_is_imported(ten):
    words = [ten(), "--column", "x", *map(str, TEN)]
    several = ["quantile", *words, "--quantile", "0.25", "0.75", "--n-max", "20"]
    laplace = ["median", *words, "--mechanism", "laplace"]
    assert after(["release", *words], ["median", *words], ["quantile", *words, "--quantile", "0.9"], several, laplace) == (
        False,
        "",
    )


@pytest.mark.slow
def test_jax_is_imported_without_a_resolution(ten):
    """The control: to check an epsilon that float32 does not hold."""
    imported, said = after(["median", ten(), "--column", "x", *map(str, TEN[:-2]), "--epsilon", "1e-60"])
    assert imported
    assert "in float32" in said


def test_many_records_at_a_bound_are_noted(run, ten):
    outcome = run("median", ten([1, 2, 3, 40, 50, 60, 70, 80, 90, "inf"]), *TEN)
    assert "70 % of the records are at or beyond a bound" in outcome.words
    assert "at or beyond" not in run("median", ten([1, 2, 3, 4, 5, 6, 7, 8, "na", 12]), *TEN).words
    assert outcome.out.startswith("present ")  # the values come first


def test_what_differs_in_a_release_is_said(run, ages, write):
    column = ("--column", "age", "--neighbors", "add_remove")
    said = run("median", ages, *column, *ASKED, "--by", "group", "--mechanism", "permute_and_flip", "laplace").words
    assert "with these differences: no --seed; one --mechanism; no laplace; --groups (or --group-epsilon and --group-delta)" in said
    found = run("release", ages, *column, *ASKED, "--by", "group", "--groups", "a", "--mechanism", "permute_and_flip")
    assert found.code == 0
    assert "This is 1-DP and 2-bounded-range for one record" in found.words
    assert found.out.startswith("column  group  released\n")
    refused = run("median", ages, *column, "--lower", 0, "--upper", 100, "--mechanism", "permute_and_flip")
    assert (refused.code, refused.err) == (
        2,
        "dpjax: error: permute_and_flip draws on the multiples of a resolution: give a --resolution.\n",
    )


def test_a_group_that_is_named_and_has_no_record(answer, ages):
    """It is drawn as if its column were empty; the others as ever."""
    column = ("--column", "age", "--neighbors", "add_remove", "--epsilon", 60, *ASKED)
    rows = answer("release", ages, *column, "--by", "group", "--groups", "nowhere", "b", "a")["rows"]
    assert [row["group"] for row in rows] == ["nowhere", "b", "a"]
    assert [row["released"] for row in rows[1:]] == [[51], [35]]
    assert Multiples.between(0, 100, 0.5).numbers_of(rows[0]["released"])[1].all()


def test_a_release_draws_from_the_median_object(answer, write):
    """Chances of a thousand draws, with the distribution of twice the records as the control."""
    values = [3, 3, 4, 5, 5, 5, 8, 9]
    file = write("x\n" + "".join(f"{value}\n" for value in values))
    drawn = np.array(answer("release", file, "--column", "x", *TEN, "--draws", 4000)["rows"][0]["released"])
    grid = np.arange(11)
    counts = np.array([np.sum(drawn == value) for value in grid])

    def distance(records):
        law = exact_distribution(Median(0, 10, 1), records, epsilon=1.0, neighbors="add_remove")
        expected = drawn.size * law.pmf(grid)
        return np.sum((counts - expected) ** 2 / expected)

    assert distance(values) < 59.4  # chi-square with 10 degrees of freedom, at 5e-9
    assert distance(values * 2) > 59.4


SEVERAL = ("--quantile", 0.75, "1/4", "--resolution", 1)


def positions(values, most=10):
    return [np.bincount(np.asarray(part, np.int64), minlength=most + 1) for part in np.transpose(values)]


def unlike(one, other):
    """Chi-square of two samples of the same size with the counts of each of eleven values, of which ten are free."""
    both = np.maximum(one + other, 1)
    return np.sum((one - other) ** 2 / both)


@pytest.mark.parametrize(("neighbors", "guess"), [("add_remove", ("--n-max", 20)), ("swap", ())])
def test_several_quantiles_are_drawn_as_a_release_draws_them(answer, write, neighbors, guess):
    """The same counts of each value among 4000 draws of both; twice the epsilon is the control."""
    values = [2, 3, 3, 4, 5, 5, 5, 8, 9, 9]
    file = write("g,x\n" + "".join(f"{group},{value}\n" for group in "ab" for value in values))
    common = ("--column", "x", "--lower", 0, "--upper", 10, "--neighbors", neighbors, *SEVERAL, *guess)
    rows = answer("quantile", file, *common, "--by", "g", "--draws", 4000, "--seed", 1)["rows"]
    assert [(row["group"], row["quantile"], row["value"]) for row in rows] == [
        (g, q, v) for g in "ab" for q, v in ((0.25, 3), (0.75, 8))
    ]
    statistic = Quantiles(("1/4", 0.75), 0, 10, 1, n_max=20 if guess else None)
    counts = Counts.of_rows([0] * 10, values, [1] * 10, groups=1)
    law, control = (statistic.release(counts, e, neighbors, draws=4000).values[:, 0] for e in (1.0, 2.0))
    for k, (same, other) in enumerate(zip(positions(law), positions(control), strict=True)):
        for row in (rows[k], rows[2 + k]):
            (found,) = positions(np.array(row["draws"])[:, None])
            assert unlike(found, same) < 59.4  # at 5e-9
            assert unlike(found, other) > 59.4
            errors = np.abs(law[:, k] - row["value"])
            deviation = np.std(errors) * math.sqrt(1 / 4000 + 1 / 1000)  # the bar is measured on 1000 draws
            assert abs(row["mean_abs_error"] - np.mean(errors)) < 5 * deviation
            assert abs(row["mean_abs_error"] - np.mean(np.abs(control[:, k] - row["value"]))) > 5 * deviation
            low, high = row["interval95"]
            assert np.mean((law[:, k] >= low) & (law[:, k] <= high)) > 0.95 - 5 * math.sqrt(0.05 * 0.95 * (1 / 4000 + 1 / 1000))
            assert row["tied_share"] == values.count(row["value"]) / 10
            assert row["guarantee"]["epsilon"] == row["guarantee"]["bounded_range"] == 1.0


def test_several_quantiles_take_the_grid_a_seed_and_the_guess_of_a_release(run, answer, write):
    records = [10**6 + 3 * i for i in range(400)]
    file = write("x\n" + "".join(f"{value}\n" for value in records))
    command = ("quantile", file, "--lower", 0, "--upper", 5_000_000, "--neighbors", "add_remove", *SEVERAL)
    guess = ("--n-max", 1000)
    rows = answer(*command, *guess, "--seed", 7, "--epsilon", 30)["rows"]
    assert [row["value"] for row in rows] == [records[99], records[299]]  # which float32 cannot count, nor keep to a third
    assert all(draw % 1 == 0 and abs(draw - row["value"]) < 100 for row in rows for draw in row["draws"])
    assert answer(*command, *guess, "--seed", 7, "--epsilon", 30)["rows"] == rows
    assert answer(*command, *guess, "--seed", 8, "--epsilon", 30)["rows"] != rows
    said = run(*command, *guess).words
    assert "mean |error| and 95 % interval of several quantiles are measured on 1000 draws by the seed." in said
    assert "exact expected distance" not in said
    assert "All quantiles of one draw cost that together." in said
    for refused in (run(*command), run(*command[:-5], "--quantile", "0.5", "--resolution", 1, *guess)):
        assert (refused.code, refused.out) == (2, "")
        assert "--n-max, a public guess of the most records of a group, goes with several quantiles under add_remove" in refused.err
