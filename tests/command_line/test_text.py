"""The text: which columns it has, what it says of ties, missing cells, groups and privacy; and that JSON says the same."""

import csv
import re
from fractions import Fraction

import numpy as np
import pytest

from dpjax.accounting import Guarantee
from dpjax.command_line.parser import LINE_MECHANISMS as MECHANISMS
from dpjax.command_line.text import promised, words_of

TEN = ("--lower", 0, "--upper", 10, "--neighbors", "add_remove")
GROUPED = ("--column", "age", "--by", "group", "--lower", 0, "--upper", 100, "--epsilon", 0.5, 2)
SAID_OF_GROUPS = "Groups share no record: all of them together cost the maximum over groups, not the sum (parallel composition)."


@pytest.mark.slow
def test_the_text_agrees_with_json(run, answer, ages):
    command = ("quantile", ages, "--quantile", "1/3", *GROUPED, "--neighbors", "swap", "--seed", 4, "--draws", 5)
    command += ("--mechanism", "piecewise_laplace", "laplace")
    found, outcome = answer(*command), run(*command)
    assert "\n\nQuantile 0.333333 (definition linear) of column age by group (3 groups), 14 records.\n" in outcome.out
    assert "\nNeighbors swap; bounds [0, 100].\nNo resolution; seed 4; 5 draws of each row.\n" in outcome.out
    statistics = {"a": 29.5, "b": 50 + 1 / 3 + 2 / 3, "c": 44}
    assert len(outcome.table) == len(found["rows"]) == 12
    for text, row in zip(outcome.table, found["rows"], strict=True):
        assert [text[name] for name in ("group", "mechanism")] == [row["group"], row["mechanism"]]
        assert (int(text["present"]), float(text["epsilon"])) == (row["present"], row["epsilon"])
        assert float(text["first draw"]) == pytest.approx(row["draws"][0], abs=1e-2)
        assert float(text["mean |error|"]) == pytest.approx(row["mean_abs_error"], abs=1e-2)
        assert text["95 % interval"] == pytest.approx(row["interval95"], abs=1e-2)
        measured = sum(abs(draw - statistics[row["group"]]) for draw in row["draws"]) / 5
        assert float(text["measured"]) == pytest.approx(measured, abs=1e-2)
        epsilon = row["epsilon"]
        promise = {"epsilon": epsilon, "bounded_range": epsilon, "neighbors": "swap", "total_epsilon": 5 * epsilon}
        assert row["guarantee"] == promise
    for epsilon in ("0.5", "2"):
        promise = f"epsilon {epsilon}: {epsilon}-DP and {epsilon}-bounded-range under swap neighbors (piecewise_laplace, laplace)"
        assert promise in outcome.words
    assert "measured: the distance from the statistic, averaged over the 5 draws." in outcome.words
    assert "5 draws from the same data cost 5 times that: 2.5-DP, 10-DP in total." in outcome.words
    assert "Every further column, mechanism or epsilon asked of the same records adds its own cost." in outcome.words
    assert "all groups together cost 2x one group, not the sum" in outcome.words
    assert "parallel composition" not in outcome.words


@pytest.mark.slow
def test_groups_under_add_remove_and_their_ties(run, ages):
    command = ("median", ages, *GROUPED, "--neighbors", "add_remove", "--mechanism", "inverse_sensitivity", "laplace")
    outcome = run(*command)
    assert SAID_OF_GROUPS in outcome.words
    assert "2x" not in outcome.words
    marked = {(row["group"], row["mechanism"]) for row in outcome.table if row["tied"]}
    assert marked == {("b", "inverse_sensitivity"), ("c", "inverse_sensitivity")}  # laplace does not look at the gaps
    assert "* 60 to 100 % of the records are tied" in outcome.words


@pytest.mark.slow
def test_json_says_everything_it_was_asked(answer, ten):
    found = answer("median", ten(), *TEN, "--seed", 9, "--definition", "lower")
    rows = found.pop("rows")
    assert found.pop("device")
    assert re.fullmatch(r"\d+\.\d+\..*", found.pop("jax_version"))
    assert re.fullmatch(r"\d+\.\d+\..*", found.pop("dpjax_version"))
    assert found == {
        "simulation": True,
        "statistic": "median",
        "quantiles": [0.5],
        "neighbors": "add_remove",
        "definition": "lower",
        "resolution": None,
        "beyond_bounds": {"x": 0.1},
        "seed": 9,
    }
    assert set(rows[0]) == {
        *(
            "column",
            "group",
            "quantile",
            "present",
            "missing",
            "infinite",
            "mechanism",
            "epsilon",
            "lower",
            "upper",
            "value",
            "draws",
        ),
        *("mean_abs_error", "interval95", "tied_share", "guarantee"),
    }
    assert (rows[0]["column"], rows[0]["group"]) == ("x", None)


@pytest.mark.slow
def test_one_column_without_groups_has_a_short_table(run, answer, ten):
    outcome, found = run("median", ten(), *TEN, "--seed", 1), answer("median", ten(), *TEN, "--seed", 1)
    (text,), (row,) = outcome.table, found["rows"]
    assert list(text) == ["present", "mechanism", "epsilon", "value", "draw", "mean |error|", "95 % interval", "tied"]
    assert float(text["draw"]) == pytest.approx(row["draws"][0], abs=1e-2)
    assert float(text["mean |error|"]) == pytest.approx(row["mean_abs_error"], abs=1e-2)
    for absent in ("missing", "tied", "groups", "measured", "in total", "adds its own cost"):
        assert absent not in outcome.words


@pytest.mark.slow
def test_a_tied_column_is_marked_until_its_resolution_is_given(run, answer, ten):
    command = ("median", ten([0] * 9 + [7]), *TEN, "--mechanism", "piecewise_laplace", "inverse_sensitivity", "laplace")
    bare, smooth = run(*command), run(*command, "--resolution", 1)
    assert [row["tied"] for row in bare.table] == [True, True, False]
    assert (
        "* 90 % of the records are tied: they equal the statistic. A continuous distribution has no mass on a single value"
        in bare.words
    )
    assert bare.words.count("the resolution of the data as --resolution (1 for integers)") == 1
    assert [row["tied"] for row in smooth.table] == [False, False, False]
    assert "are tied" not in smooth.words
    assert "laplace draws real numbers around the statistic of the rounded records." in smooth.words
    assert [row["tied_share"] for row in answer(*command, "--resolution", 1)["rows"]] == [0.9, 0.9, 0.9]


@pytest.mark.slow
def test_one_record_is_no_tie(run, ten):
    lower = (*TEN, "--definition", "lower")
    assert not run("median", ten(), *lower).table[0]["tied"]  # the statistic is one of ten records
    assert run("median", ten([0, 1, 2, 3, 4, 4, 6, 7, 8, 9]), *lower).table[0]["tied"]


@pytest.mark.slow
@pytest.mark.parametrize(("neighbors", "treatment"), [("add_remove", "absent"), ("swap", "counted as the lower bound")])
def test_missing_cells_are_counted(run, ten, neighbors, treatment):
    outcome = run("median", ten(["NA", "nan", *range(8)]), "--lower", 0, "--upper", 9, "--neighbors", neighbors)
    assert f"10 records, 2 missing ({treatment})." in outcome.words
    assert [(row["present"], row["missing"]) for row in outcome.table] == [("8", "2")]


def test_labels_cannot_break_the_table(run, write):
    lines = ["a,1", '"two\nlines",1', ",2"] + ["a,3"] * 6
    outcome = run("median", write("\n".join(["group,age", *lines])), *GROUPED, "--neighbors", "add_remove", "--resolution", 1)
    assert [row["group"] for row in outcome.table] == ["(empty)", "(empty)", "a", "a", "'two\\nlines'", "'two\\nlines'"]


def test_promises_are_never_printed_too_small():
    for epsilon in (0.1, 0.5, 0.3, 1.0, 2.0**-30, 64.0, 1e-5, 0.012345, 123456.0):
        assert promised(epsilon) == f"{epsilon:g}" or float(promised(epsilon)) > epsilon
    assert [promised(e) for e in (0.1, 0.123456, 100.0, 1e6)] == ["0.1", "0.123456", "100", "1e+06"]
    assert [promised(0.1, times=times) for times in (3, 7, 10)] == ["0.3", "0.7", "1"]  # 3 * 0.1 is above 0.3 in floats
    for epsilon in np.random.default_rng(0).uniform(0, 3, 300).tolist():
        for times in (1, 3, 1000):
            printed, exact = promised(epsilon, times=times), Fraction(repr(epsilon)) * times
            assert exact <= Fraction(printed) <= exact * (1 + Fraction(1, 10**5))
            assert len(printed.lstrip("0.").replace(".", "")) <= 6
    assert words_of(Guarantee(1 / 3, float("inf"), "swap")) == "0.333334-DP under swap neighbors"


def test_guarantees_and_totals_are_rounded_up(run, answer, ten):
    command = ("median", ten(), *TEN, "--resolution", 1, "--epsilon", 0.33333349, "--draws", 3, "--seed", 1)
    said = run(*command).words
    assert "epsilon 0.333334: 0.333334-DP and 0.333334-bounded-range under add_remove neighbors (piecewise_laplace)" in said
    assert "3 draws from the same data cost 3 times that: 1.00001-DP in total." in said
    (row,) = answer(*command)["rows"]
    assert Fraction(row["guarantee"]["total_epsilon"]) >= 3 * Fraction(0.33333349)
    (row,) = answer(*(*command, "--epsilon", 0.1, "--draws", 5))["rows"]
    assert 5 * 0.1 < 5 * Fraction(0.1) <= Fraction(row["guarantee"]["total_epsilon"])


def test_draws_on_a_resolution_have_its_decimals(run, ten):
    command = ("median", ten([0.25] * 8 + [0.5] * 2), *TEN, "--seed", 3, "--mechanism", *MECHANISMS)
    lines = run(*command, "--resolution", "0.25").out.splitlines()
    (head,) = (line for line in lines if line.startswith("present "))
    assert head.split()[-1] == "tied"
    rows = {line.split()[1]: line for line in lines if line.split()[:1] == ["10"]}
    for mechanism in MECHANISMS:
        assert rows[mechanism].endswith("80 %")
        draw = rows[mechanism].split()[4]
        assert (len(draw.partition(".")[2]) == 2) == (mechanism != "laplace")
    assert "tied: the share of the records that equal the statistic." in lines


def test_an_error_that_is_not_zero_is_not_printed_as_zero(run, answer, ten):
    command = ("median", ten([5] * 10), *TEN, "--resolution", 1, "--epsilon", 5, "--seed", 1)
    (line,), (row,) = re.findall(r" \S*e-\S+ ", run(*command).out), answer(*command)["rows"]
    assert 0 < row["mean_abs_error"] < 1e-9
    assert float(line) == pytest.approx(row["mean_abs_error"], rel=0.1)


def test_a_group_by_several_columns_takes_one_for_each(run, answer, write, tmp_path):
    file = write("draw,region,x\n" + "".join(f"{'ab'[i % 2]},u,{i}\n" for i in range(10)))
    command = ("median", file, "--column", "x", "--by", "region", "draw", *TEN, "--resolution", 1, "--seed", 3)
    run(*command, "--output", tmp_path / "found.csv")
    lines = list(csv.DictReader((tmp_path / "found.csv").read_text().splitlines()))
    assert list(lines[0])[:4] == ["column", "region", "group_draw", "quantile"]  # draw is the number of a draw
    assert [(line["region"], line["group_draw"], line["draw"]) for line in lines] == [("u", "a", "1"), ("u", "b", "1")]
    assert [row["group"] for row in answer(*command)["rows"]] == [{"region": "u", "draw": part} for part in "ab"]
    assert [row["group"] for row in run(*command).table] == ["u, a", "u, b"]
