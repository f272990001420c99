"""The benchmarks run, check before they time, and say what they compare with what; how fast
anything is, no test can tell.
"""

import argparse
import json
import math
import pathlib
import re
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parent.parent / "benchmarks"
BENCHMARKS = (
    "single_draws",
    "repeated_draws",
    "from_raw",
    "one_jit",
    "memory",
    "devices",
    "accuracy",
    "scaling",
    "joint_quantiles",
    "releases",
    "tables_of_people",
    "engines",
    "metric_privacy",
    "import_time",
)


def run_report(folder, *arguments):
    command = [sys.executable, str(folder / "report.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder.parent)


def cells_of(table):
    """The cells of a Markdown table, without its head."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.strip().splitlines()[2:]
    ]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report's tables and the documents behind them, from one quick run; the experiments have
    tests of their own.
    """
    folder = tmp_path_factory.mktemp("benchmarks")
    done = run_report(FOLDER, "--quick", "--folder", str(folder), *BENCHMARKS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, {
        name: json.loads((folder / f"{name}.json").read_text()) for name in BENCHMARKS
    }


@pytest.fixture
def harness(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import contestants
    import harness

    return harness, contestants


def _rows(documents):
    return [line for document in documents.values() for line in document["rows"]]


@pytest.mark.slow
def test_every_row_says_what_it_is(report):
    rows = _rows(report[1])
    assert {line["question"] for line in rows} >= {
        "single draws",
        "repeated draws",
        "from raw records",
        "weak scaling",
    }
    for line in rows:
        assert line["relation"] in ("swap", "add_remove", "no privacy"), line
        assert all(line[name] for name in ("question", "contestant", "shape", "status")), line
        if line["status"] == "measured":
            assert math.isfinite(line["value"]), line
            assert line["value"] >= 0, line


@pytest.mark.slow
def test_ratios_are_finite_and_say_against_what(report):
    compared = [line for line in _rows(report[1]) if line.get("ratio") is not None]
    assert len(compared) > 50
    for line in compared:
        assert math.isfinite(line["ratio"]), line
        assert line["reference"], line
    names = {line["contestant"] for line in compared}
    assert {
        "naive jitted Gumbel-max",
        "jax.random.laplace",
        "np.sort alone",
        "NumPy sort, cumulative sums",
    } <= names
    assert sum("met" in line for line in compared) >= 10


@pytest.mark.slow
def test_distributions_are_checked_and_controls_rejected(report):
    checks = [check for document in report[1].values() for check in document["checks"]]
    controls = [check for check in checks if check.get("control")]
    assert len(controls) >= 6
    assert not any(check["passed"] for check in controls)
    assert [check for check in checks if not check.get("control") and not check["passed"]] == []
    rejected = [line for line in _rows(report[1]) if line["contestant"].startswith("control")]
    assert all(
        line["status"] == "rejected: wrong distribution" and "value" not in line
        for line in rejected
    )


@pytest.mark.slow
def test_noise_scales_are_checked_before_they_are_timed(report):
    document = report[1]["metric_privacy"]
    assert len(document["checks"]) == 9  # four strategies of two sizes, and one large universe
    assert all(check["passed"] for check in document["checks"])
    assert {line["contestant"] for line in document["rows"]} == {"dpjax", "NumPy"}


@pytest.mark.slow
def test_accuracy_never_compares_across_relations(report):
    rows = [line for line in report[1]["accuracy"]["rows"] if line["status"] == "measured"]
    errors = {
        (line["question"], line["relation"], line["contestant"]): line["value"] for line in rows
    }
    for line in rows:
        if "ratio" in line:
            reference = errors[line["question"], line["relation"], line["reference"]]
            assert line["ratio"] == pytest.approx(line["value"] / reference, rel=1e-12)


@pytest.mark.slow
def test_a_quick_run_compares_under_both_relations(report):
    for name in ("single_draws", "repeated_draws", "from_raw", "one_jit", "accuracy", "releases"):
        assert {line["relation"] for line in report[1][name]["rows"]} >= {"swap", "add_remove"}, (
            name
        )


@pytest.mark.slow
def test_the_tables_have_all_questions_and_no_paths(report):
    printed, documents = report
    for title in (
        "single draws",
        "repeated draws",
        "growth of a draw",
        "from raw",
        "memory",
        "weak scaling",
        "50 of N(0,1)",
        "import",
    ):
        assert f"| {title}" in printed
    text = printed + json.dumps(documents)
    assert str(FOLDER.parent) not in text
    assert str(pathlib.Path.home()) not in text


@pytest.mark.slow
def test_the_report_ends_with_a_row_for_each_script(report):
    lines = cells_of(report[0].split("## Summary")[1])
    assert [line[0] for line in lines] == list(BENCHMARKS)
    for name, mode, seconds, status in lines:
        assert mode == "quick", name
        assert float(seconds) >= 0
        assert status == "ran"


@pytest.fixture
def scripts(tmp_path):
    """A folder with the report and three scripts: one that runs, one that raises, and one that
    wants data that are not there.
    """
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    for name in ("report.py", "tables.py", "figures.py"):
        (folder / name).write_text((FOLDER / name).read_text())
    (folder / "works.py").write_text("print('| a table |')\n")
    (folder / "broken.py").write_text("print('| half a table |')\nopen(__file__ + '.none')\n")
    (folder / "waits.py").write_text(
        "import sys\nprint('There are no data | here.', file=sys.stderr)\nsys.exit(77)\n"
    )
    return folder


def test_a_script_that_fails_is_a_row_and_does_not_stop_the_report(scripts):
    done = run_report(scripts, "broken", "absent", "waits", "works")
    assert done.returncode == 1
    tables, summary = done.stdout.split("## Summary")
    assert "| half a table |" in tables
    assert "| a table |" in tables
    found = {name: (mode, status) for name, mode, _, status in cells_of(summary)}
    assert {name: mode for name, (mode, _) in found.items()} == dict.fromkeys(
        ("broken", "absent", "waits", "works"), "whole"
    )
    assert re.fullmatch(
        r"failed, exit status 1: FileNotFoundError: "
        r".*'broken.py.none'",
        found["broken"][1],
    )
    assert re.fullmatch(r"failed, exit status 2: .*'absent.py'.*", found["absent"][1])
    assert found["waits"][1] == "skipped: There are no data / here."
    assert found["works"][1] == "ran"
    assert str(scripts.parent) not in done.stdout


def test_the_report_ends_well_where_nothing_fails(scripts):
    """The control: the same without the scripts that fail; a skipped one is none."""
    done = run_report(scripts, "waits", "works")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_report_lists_every_script(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import report

    def programs(folder):
        return {path.stem for path in folder.glob("*.py") if "\nif __name__ ==" in path.read_text()}

    assert set(report.BENCHMARKS) == programs(FOLDER) - {"report", "tumult_core"} | {
        "accelerator",
        "counted",
    }
    assert set(report.EXPERIMENTS) == programs(FOLDER / "experiments")
    assert "harness" not in programs(FOLDER)  # the control: a file without a program is no script


@pytest.mark.slow
@pytest.mark.parametrize("name", ["purchases", "tied_data"])
def test_an_experiment_without_its_data_is_skipped(name, monkeypatch):
    monkeypatch.delenv("DPJAX_DATA", raising=False)
    done = run_report(FOLDER, name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped: This experiment needs the folder of real tables" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["swap", "add_remove"])
def test_a_wrong_contestant_is_never_timed(harness, relation):
    """Three fast contestants with wrong distributions: the median itself, one level off on one
    side, one uniform for all rows.
    """
    tools, contestants = harness
    case, timed = tools.Case(2048, 33, relation, seed=1), []

    def wrong(draws):
        def build(case):
            if case.points == 101:
                timed.append(draws)
            return tools.Built(lambda turn: draws(case, turn), case.rows)

        return build

    def median(case, turn):
        return np.median(case.data, axis=1)

    def one_side(case, turn):
        generator = np.random.default_rng(turn)
        widths = np.diff(
            np.pad(case.sorted_data, ((0, 0), (1, 1)), constant_values=(case.lower, case.upper)),
            axis=1,
        )
        decay = contestants._decay(case)
        decay[: (case.points + 1) // 2] = np.roll(decay, 1)[: (case.points + 1) // 2]
        sums = np.cumsum(widths * decay, axis=1)
        chosen = np.argmax(sums >= generator.random((case.rows, 1)) * sums[:, -1:], axis=1)
        edges = np.pad(case.sorted_data, ((0, 0), (1, 1)), constant_values=(case.lower, case.upper))
        return contestants._place(edges, chosen, generator.random(case.rows), case)

    def one_uniform(case, turn):
        uniform = np.random.default_rng(turn).random()
        return np.asarray(case.distribution(jnp.asarray(case.data)).quantile(jnp.float32(uniform)))

    field = [
        tools.Contestant(draws.__name__, relation, wrong(draws), tools.distribution_uniforms)
        for draws in (median, one_side, one_uniform)
    ]
    rows, checks = tools.contest("controls", field, tools.Case(8, 101, relation), case, 1, "median")
    assert [line["status"] for line in rows] == ["rejected: wrong distribution"] * 3
    assert not any(check["passed"] for check in checks)
    assert timed == []


def test_a_check_that_fails_ends_the_program_behind_its_table(harness, capsys, tmp_path):
    tools, _ = harness
    args = argparse.Namespace(quick=True, out=str(tmp_path / "out.json"))
    rows = [
        tools.row("question", "contestant", "swap", "1 x 1", status="rejected: wrong distribution")
    ]
    check = {"contestant": "contestant", "relation": "swap", "passed": False, "control": False}
    with pytest.raises(SystemExit, match="contestant"):
        tools.finish("benchmark", args, rows, [check])
    assert "| rejected: wrong distribution |" in capsys.readouterr().out
    assert json.loads((tmp_path / "out.json").read_text())["checks"] == [check]
    # What must be rejected is no failure
    tools.finish("benchmark", args, rows, [check | {"control": True}])


@pytest.mark.slow
def test_a_check_that_sees_nothing_ends_the_run(harness):
    tools, _ = harness
    control = tools.Contestant(
        "control",
        "swap",
        lambda case: tools.Built(lambda turn: np.zeros(case.rows), case.rows),
        lambda case, draws: np.linspace(0, 1, draws.size),  # uniform whatever was drawn
        must_be_rejected=True,
    )
    with pytest.raises(RuntimeError, match="does not reject"):
        tools.contest(
            "controls",
            [control],
            tools.Case(8, 101, "swap"),
            tools.Case(512, 33, "swap"),
            1,
            "median",
        )


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import figures

    return figures


def test_no_figure_of_the_readmes_is_edited_by_hand(figures):
    measured = json.loads(figures.MEASURED.read_text())
    for path, text in figures.texts(measured).items():
        assert path.read_text() == text, path
    assert figures.sentences(measured).count("* ") == len(figures.SENTENCES)
    row = next(row for row in measured["one_jit"]["rows"] if row["contestant"] == "dpjax, one jit")
    row["ratio"] *= 2
    assert all(path.read_text() != text for path, text in figures.texts(measured).items())


def test_a_quick_run_writes_no_figures(figures, tmp_path, monkeypatch):
    measured = json.loads(figures.MEASURED.read_text())
    for name in ("MEASURED", "README", "TABLES"):
        path = getattr(figures, name)
        (tmp_path / f"{name}.txt").write_text(path.read_text())
        monkeypatch.setattr(figures, name, tmp_path / f"{name}.txt")
    environment = {
        "device": "cpu",
        "processor": "a processor",
        "cores": 1,
        "versions": {"numpy": "1", "jax": None},
    }
    row = {
        "question": "sorts",
        "contestant": "ours",
        "relation": "swap",
        "shape": "3",
        "status": "measured",
        "value": 1.23456,
    }
    row |= {"unit": "s", "ratio": 2.0, "reference": "theirs", "bar": {"at_most": 3}, "met": True}
    document = {
        "environment": environment,
        "rows": [row, row | {"bar": None}, row | {"status": "failed"}],
    }
    figures.write({"memory": document | {"settings": {"quick": True}}}, BENCHMARKS)
    assert json.loads(figures.MEASURED.read_text()).get("memory") == measured.get("memory")
    figures.write({"memory": document | {"settings": {"quick": False}}}, BENCHMARKS)
    kept = json.loads(figures.MEASURED.read_text())["memory"]
    assert kept["machine"]["versions"] == {"numpy": "1"}
    assert [line["value"] for line in kept["rows"]] == [1.235]
    assert "| ours " in figures.TABLES.read_text()
