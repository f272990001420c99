"""``benchmarks/accelerator.py`` runs on the CPU, answers every question or says why not, and what
fails is a row and a status.
"""

import json
import math
import os
import pathlib
import subprocess
import sys

import pytest

from dpjax.distributions import sampling

ROOT = pathlib.Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"
QUESTIONS = {
    "device copy",
    "one draw",
    "many draws",
    "raw records to a draw",
    "error bars",
    "simulate",
    "sums of many draws",
    "methods, one draw",
    "methods, many draws",
}
METHODS = {"tree", "table", "gumbel"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What a quick run printed, and its document."""
    out = tmp_path_factory.mktemp("accelerator") / "out.json"
    command = [
        sys.executable,
        str(FOLDER / "accelerator.py"),
        "--quick",
        "--seconds",
        "3000",
        "--out",
        str(out),
    ]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(out.read_text())


@pytest.fixture
def accelerator(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import accelerator

    return accelerator


def _session(accelerator, seconds=3000.0):
    parser = accelerator.harness.parser("A test.")
    parser.add_argument("--seconds", type=float)
    return accelerator.Session(parser.parse_args(["--quick", "--seconds", str(seconds)]))


@pytest.mark.slow
def test_every_question_has_rows_and_the_table_shows_them(whole):
    table, document = whole
    rows = document["rows"]
    assert {line["question"] for line in rows} == QUESTIONS
    for line in rows:
        assert line["status"] == "measured", line
        assert math.isfinite(line["value"]), line
        assert line["value"] > 0, line
        assert line["question"] in table, line
        assert line["contestant"] in table, line
    compiled = {line["question"] for line in rows if line.get("compile_seconds")}
    assert compiled == QUESTIONS


@pytest.mark.slow
def test_ratios_are_finite_and_say_against_what(whole):
    rows = whole[1]["rows"]
    compared = [line for line in rows if line.get("ratio") is not None]
    assert len(compared) > 20
    for line in compared:
        assert math.isfinite(line["ratio"]), line
        assert line["ratio"] > 0, line
        assert line["reference"], line
    for question in (
        "one draw",
        "many draws",
        "raw records to a draw",
        "error bars",
        "simulate",
        "sums of many draws",
    ):
        names = {line["contestant"] for line in rows if line["question"] == question}
        assert "jax.random.laplace" in names, question
        assert any("naive" in name for name in names), question
    shares = {line["question"] for line in compared if line["reference"] == "device copy"}
    assert shares == {"one draw", "many draws", "raw records to a draw", "error bars"}


@pytest.mark.slow
def test_bars_are_shown_and_on_a_cpu_not_judged(whole):
    rows = whole[1]["rows"]
    bars = {line["contestant"]: line["bar"] for line in rows if line.get("bar")}
    assert bars == {
        "dpjax, share of the copy bandwidth": {"at_least": 0.5},
        "naive jitted Gumbel-max": {"at_least": 10},
    }
    assert not any("met" in line for line in rows)


@pytest.mark.slow
def test_what_is_timed_was_checked_and_controls_were_rejected(whole):
    checks = whole[1]["checks"]
    controls = [check for check in checks if check["control"]]
    assert len(controls) >= 5  # draws, mean_abs_error, interval, simulate, sums
    assert not any(check["passed"] for check in controls)
    others = {check["contestant"] for check in checks if check["passed"]}
    assert len(others) == len({check["contestant"] for check in checks if not check["control"]})
    assert {
        "dpjax",
        "dpjax, tree",
        "dpjax, table",
        "dpjax, gumbel",
        "naive jitted Gumbel-max",
        "dpjax.simulate",
    } <= others


@pytest.mark.slow
def test_the_sweeps_name_what_was_chosen_and_what_was_fastest(whole):
    rows = whole[1]["rows"]
    verdicts = [line for line in rows if "chosen" in line]
    assert {line["question"] for line in verdicts} == {"methods, one draw", "methods, many draws"}
    assert len(verdicts) == 4
    for line in verdicts:
        values = {
            other["contestant"].removeprefix("dpjax, "): other["value"]
            for other in rows
            if other["question"] == line["question"]
            and other["shape"] == line["shape"]
            and "chosen" not in other
        }
        assert set(values) == METHODS
        assert line["fastest"] == min(values, key=values.get)
        assert line["value"] == values[line["chosen"]]
        assert line["contestant"] == f"auto chose {line['chosen']}, fastest was {line['fastest']}"
        # Other methods draw otherwise, so the draws tell which was chosen
        assert min(line["equal_draws"].values()) < 0.9
    chosen = {
        line["shape"]: line["chosen"]
        for line in verdicts
        if line["question"] == "methods, many draws"
    }
    few, many = sampling.FEW, 2 * sampling.FEW
    assert {f"{few} draws" in shape: method for shape, method in chosen.items()} == {
        True: "tree",
        False: "table",
    }
    assert any(f"{many} draws" in shape for shape in chosen)


@pytest.mark.slow
def test_no_paths_in_what_is_printed_and_written(whole):
    text = whole[0] + json.dumps(whole[1])
    for folder in (ROOT, pathlib.Path.home(), pathlib.Path(sys.prefix)):
        assert f"{folder}/" not in text


@pytest.mark.parametrize("fails", [True, False])
def test_a_case_that_raises_is_a_row_and_the_next_one_runs(
    accelerator, monkeypatch, tmp_path, capsys, fails
):
    def plan(session):
        def first():
            if fails:
                raise ValueError(f"{tmp_path}/file.py says | no\nand more")

        def second():
            session.leave_out("second", "dpjax", "swap", "1 x 1", "ran")

        tasks = [
            accelerator.Task("first", "swap", "1 x 1", first),
            accelerator.Task("second", "swap", "1 x 1", second),
        ]
        return [
            *tasks,
            accelerator.Task("third", "swap", "1 x 1", second, bytes=math.inf if fails else 0),
        ]

    monkeypatch.setattr(accelerator, "plan", plan)
    monkeypatch.setattr(accelerator, "free_memory", lambda: 1e9)
    assert accelerator.main(["--quick", "--out", str(tmp_path / "out.json")]) == int(fails)
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    statuses = [line["status"] for line in rows]
    if fails:
        assert statuses == [
            "failed: ValueError: file.py says / no",
            "ran",
            "left out: memory, about inf of 1 GB",
        ]
    else:
        assert statuses == ["ran", "ran"]
    assert all(status in capsys.readouterr().out for status in statuses[:1])


def test_without_time_every_case_is_a_row_that_says_so(accelerator, tmp_path):
    assert accelerator.main(["--quick", "--seconds", "0", "--out", str(tmp_path / "out.json")]) == 0
    document = json.loads((tmp_path / "out.json").read_text())
    assert {line["question"] for line in document["rows"]} == QUESTIONS | {"check"}
    assert {line["status"] for line in document["rows"]} == {"left out: time"}
    assert document["checks"] == []


def test_what_is_predicted_to_take_too_long_is_not_built(accelerator):
    session = _session(accelerator, seconds=100.0)
    session.passed |= {("dpjax", "swap"), ("naive jitted Gumbel-max", "swap")}
    session.pace["one draw", "naive jitted Gumbel-max"] = 1.0
    built = []

    def make(name):
        built.append(name)
        return accelerator.build(lambda x: x + 1, accelerator.jnp.zeros(3), units=3, keyed=False)

    entries = {
        name: (1000, lambda name=name: make(name)) for name in ("dpjax", "naive jitted Gumbel-max")
    }
    accelerator.compare(session, "one draw", "swap", "3 x 1", entries)
    assert built == ["dpjax"]
    assert [line["status"] for line in session.rows] == ["left out: time", "measured"]


@pytest.mark.slow
def test_a_wrong_contestant_is_never_timed(accelerator, monkeypatch):
    """This library with an epsilon that is wrong on purpose does not pass, and is not timed; its
    rival is.
    """

    def wrong(case, profile, draws=(), method="auto"):
        return accelerator.naive(case, profile, *draws, factor=1.25)

    monkeypatch.setattr(accelerator, "sampled", wrong)
    monkeypatch.setitem(accelerator.SINGLE, "dpjax", wrong)
    session = _session(accelerator)
    accelerator.check_contestants(session, "swap")
    assert {name for name, _ in session.passed} == {
        "dpjax, raw records",
        "naive jitted Gumbel-max",
        "sort and naive Gumbel-max",
        "jax.random.laplace",
    }
    accelerator.one_draw(session, accelerator.OnDevice(512, 33, "swap"), bars=False)
    statuses = {line["contestant"]: line["status"] for line in session.rows}
    assert statuses["dpjax"] == accelerator.UNCHECKED
    assert statuses["naive jitted Gumbel-max"] == "measured"


def test_a_check_that_sees_nothing_ends_the_run(accelerator):
    session = _session(accelerator)
    check = accelerator.check(
        "control", accelerator.OnDevice(3, 3, "swap"), 9, distance=0.0, critical=1.0, control=True
    )
    with (
        pytest.raises(accelerator.Unseen, match="does not reject"),
        session.guard("check", "control", "swap", "3 x 3"),
    ):
        session.judge(check)
    assert session.rows == []
