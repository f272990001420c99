"""The benchmarks run, check before they time, and say what they compare with what; how fast anything is, no test can tell."""

import json
import math
import pathlib
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parent.parent / "benchmarks"
QUICK = (
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
    "import_time",
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report's table and the documents behind it, from one quick run."""
    folder = tmp_path_factory.mktemp("benchmarks")
    command = [sys.executable, str(FOLDER / "report.py"), "--quick", "--folder", str(folder), *QUICK]
    run = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER.parent)
    assert run.returncode == 0, run.stderr
    return run.stdout, {name: json.loads((folder / f"{name}.json").read_text()) for name in QUICK}


@pytest.fixture
def harness(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import contestants
    import harness

    return harness, contestants


def _rows(documents):
    return [line for name, document in documents.items() if name != "import_time" for line in document["rows"]]


@pytest.mark.slow
def test_every_row_says_what_it_is(report):
    rows = _rows(report[1])
    assert {line["question"] for line in rows} >= {"single draws", "repeated draws", "from raw records", "weak scaling"}
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
    assert {"naive jitted Gumbel-max", "jax.random.laplace", "np.sort alone", "NumPy sort, cumulative sums"} <= names
    assert sum("met" in line for line in compared) >= 10


@pytest.mark.slow
def test_distributions_are_checked_and_controls_rejected(report):
    checks = [check for document in report[1].values() for check in document.get("checks", [])]
    controls = [check for check in checks if check.get("control")]
    assert len(controls) >= 6
    assert not any(check["passed"] for check in controls)
    assert [check for check in checks if not check.get("control") and not check["passed"]] == []
    rejected = [line for line in _rows(report[1]) if line["contestant"].startswith("control")]
    assert all(line["status"] == "rejected: wrong distribution" and "value" not in line for line in rejected)


@pytest.mark.slow
def test_accuracy_never_compares_across_relations(report):
    rows = [line for line in report[1]["accuracy"]["rows"] if line["status"] == "measured"]
    errors = {(line["question"], line["relation"], line["contestant"]): line["value"] for line in rows}
    for line in rows:
        if "ratio" in line:
            reference = errors[line["question"], line["relation"], line["reference"]]
            assert line["ratio"] == pytest.approx(line["value"] / reference, rel=1e-12)


@pytest.mark.slow
def test_the_table_has_all_questions_and_no_paths(report):
    table, documents = report
    for title in ("single draws", "repeated draws", "growth of a draw", "from raw", "memory", "weak scaling", "error,", "import"):
        assert f"| {title}" in table
    assert "relation" in table.splitlines()[0]
    text = table + json.dumps(documents)
    assert str(FOLDER.parent) not in text
    assert str(pathlib.Path.home()) not in text


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["swap", "add_remove"])
def test_a_wrong_contestant_is_never_timed(harness, relation):
    """Three fast contestants with wrong distributions: the median itself, one level off on one side, one uniform for all rows."""
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
        widths = np.diff(np.pad(case.sorted_data, ((0, 0), (1, 1)), constant_values=(case.lower, case.upper)), axis=1)
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
        tools.contest("controls", [control], tools.Case(8, 101, "swap"), tools.Case(512, 33, "swap"), 1, "median")
