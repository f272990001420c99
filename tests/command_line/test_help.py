"""Every example in the help is a command that works."""

import gzip
import shlex

import pytest

import dpjax


@pytest.fixture
def help_of(run, capsys):
    def help_of(*words):
        with pytest.raises(SystemExit) as stop:
            run(*words)
        assert stop.value.code == 0
        return capsys.readouterr().out

    return help_of


def test_every_example_runs(tmp_path, monkeypatch, run, help_of):
    monkeypatch.chdir(tmp_path)
    people = "age,income,region\n" + "31,1000,north\n45,2000,south\n" * 9
    (tmp_path / "people.csv").write_text(people)
    (tmp_path / "people.csv.gz").write_bytes(gzip.compress(people.encode()))
    rides = "Ann,Bronx,7.5,2024-03-01\nAnn,Queens,9,2024-04-01\nBob,Queens,12,2024-05-01\n" * 9
    (tmp_path / "trips.csv").write_text("rider,borough,fare,day\n" + rides)
    text = "".join(help_of(command, "--help") for command in ("release", "simulate"))
    examples = [
        shlex.split(line)[1:]
        for line in text.replace("\\\n", " ").splitlines()
        if line.startswith("  dpjax ")
    ]
    assert len(examples) == 6
    for words in examples:
        done = run(*words)
        assert (done.code, done.err) == (0, ""), words
    assert "incomes in March" in run("ledger", "people.ledger").out


def test_version_and_commands(help_of):
    assert help_of("--version") == f"dpjax {dpjax.__version__}\n"
    assert "simulate" in help_of("--help")
