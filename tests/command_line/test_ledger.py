"""``dpjax ledger``, and releases that share a ledger."""

import pytest

from dpjax.accounting import Guarantee, Ledger

PUBLIC = {"column": "x", "lower": 0, "upper": 9, "resolution": 1, "neighbors": "add_remove"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


@pytest.fixture
def data(write):
    return write("who,g,x\n" + "".join(f"w{k % 5},{'ab'[k % 2]},{k}\n" for k in range(10)))


def test_releases_are_told_apart_by_their_notes(run, data, path):
    first = run("release", data, **PUBLIC, epsilon=0.5, ledger=path, total_epsilon=2, note="May")
    assert "remaining epsilon 1.5 of 2 (3 more like the last charge)\n" in first.out
    assert run("release", data, **PUBLIC, epsilon="1.0", ledger=path, note="June").code == 0
    what = [entry["what"] for entry in Ledger(path).entries]
    assert [entry["note"] for entry in what] == ["May", "June"]
    assert [entry["file"] for entry in what] == [data, data]
    before = path.read_bytes()
    header, may, june, _, left = run("ledger", path).out.splitlines()
    assert header.endswith("  epsilon  left (epsilon)")
    for line, words in ((may, ["May,", "0.5", "1.5"]), (june, ["June,", "1", "0.5"])):
        assert [word for word in line.split() if word in words] == words
    assert left == "remaining epsilon 0.5 of 2 (0 more like the last charge)"
    mistake = run("release", data, **PUBLIC, epsilon=1, ledger=path).mistake
    assert "exceeds the remaining epsilon 0.5" in mistake
    assert path.read_bytes() == before


def test_a_charge_is_one_short_line(run, path):
    ledger = Ledger(path, epsilon=3.0, delta=1e-5).part("north").noted("a long note, " * 9)
    for _ in range(12):
        ledger.charge(Guarantee(0.123456, neighbors="add_remove", delta=1.23456e-8), {"by": None})
    *lines, _, _ = run("ledger", path).out.splitlines()
    assert len(lines) == 13
    assert max(map(len, lines)) <= 100
    assert lines[1].endswith("  0.1235   0.007612  1.235e-08  0.203266")


@pytest.mark.parametrize(
    ("options", "cost"),
    [
        ({}, 1),
        ({"draws": 3}, 3),
        ({"statistic": ["Median", "Count"]}, 2),
        ({"unit": "who", "by": "g", "groups": ["a", "b", "c"], "max_groups": 2, "draws": 2}, 4),
        ({"unit": "who", "by": "g", "groups": ["a"], "max_groups": 9}, 1),  # of one group
        ({"by": "g", "group_epsilon": 1, "group_delta": 1e-9}, 2),
    ],
)
def test_what_a_release_costs_is_what_its_plan_says(run, data, path, options, cost):
    options = PUBLIC | {"epsilon": 1, "ledger": path, "total_epsilon": 10} | options
    if "group_delta" in options:
        options["total_delta"] = 1e-6
    planned = run("release", data, "--dry-run", **options)
    assert planned.code == 0
    assert planned.out.splitlines()[0] == "dry run: no record was read, and nothing was spent"
    assert planned.out.endswith("; this fits\n")
    assert not path.exists()
    promise = run("release", data, **options, format="json").json["promise"]
    assert f"cost: {promise}\n" in planned.out
    assert promise.startswith(f"{cost}-DP")
    before = path.read_bytes()
    options |= {"total_epsilon": None, "total_delta": None, "epsilon": 20}
    assert run("release", data, "--dry-run", **options).out.endswith("; this does not fit\n")
    assert path.read_bytes() == before


def test_a_ledger_has_persons_of_one_column(run, write, path):
    data = write("rider,driver,x\na,b,1\n")
    shared = PUBLIC | {"epsilon": 1, "ledger": path}
    assert run("release", data, **shared, total_epsilon=9, unit="rider").code == 0
    before = path.read_bytes()
    for words in ([], ["--dry-run"]):
        assert "rider" in run("release", data, *words, **shared, unit="driver").mistake
    assert path.read_bytes() == before


def test_mistakes(run, data, path):
    words = ("release", data)
    assert "there is no ledger" in run("ledger", path).mistake
    for option in ({"total_epsilon": 1}, {"note": "May"}):
        assert "need --ledger" in run(*words, **PUBLIC, epsilon=1, **option).mistake
    found = {"by": "g", "group_epsilon": 1, "group_delta": 1e-9}
    for wrong, word in (
        ({"epsilon": -1}, "epsilon"),
        ({"column": "y"}, "'y'"),
        ({"epsilon": 2}, "exceeds"),
        (found | {"total_delta": 1e-9}, "delta of mechanisms 5e-10 of 5e-10"),
        (found, "--total-delta of at least"),
    ):
        options = PUBLIC | {"epsilon": 1, "ledger": path, "total_epsilon": 1} | wrong
        assert word in run(*words, **options).mistake
        assert not path.exists()  # so that its totals can still be chosen
    Ledger(path, epsilon=1.0)
    assert word in run(*words, "--dry-run", **options).mistake
    path.write_text("name,age\n")
    assert "is not a dpjax ledger, or is damaged" in run("ledger", path).mistake
