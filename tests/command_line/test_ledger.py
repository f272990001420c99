"""``dpjax ledger`` shows every charge and what is left, and changes nothing."""

import json

import numpy as np
import pytest

from dpjax import frames, release
from dpjax.accounting import Guarantee, Ledger

PUBLIC = {"lower": 0, "upper": 9, "resolution": 1, "neighbors": "add_remove"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


@pytest.fixture
def shown(run):
    return lambda *arguments: run("ledger", *arguments)


def test_a_line_for_each_charge(path, shown):
    ledger = Ledger(path, epsilon=2.0)
    release.quantile([1, 2, 3], 0.9, **PUBLIC, epsilon=0.5, draws=2, budget=ledger)
    statistics = {
        "age": {"statistic": "Median"},
        "pay": {"statistic": "Quantiles", "qs": [0.1, 0.9]},
    }
    what = {
        "columns": ["age", "pay"],
        "by": ["region"],
        "groups": ["north", "south"],
        "statistic": statistics,
    }
    ledger.charge(Guarantee(0.75, 0.75, "add_remove", unit="person"), what)
    before = path.read_bytes()
    code, out, err = shown(path)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0].split() == [
        "time",
        "columns",
        "statistic",
        "by",
        "groups",
        "draws",
        "epsilon",
        "delta",
        "left",
    ]
    assert lines[1].split()[1:] == ["Quantile", "0.9,", "0..9", "by", "1", "2", "1", "0", "1"]
    assert lines[2].split(maxsplit=1)[1].split("  ")[0] == "age, pay"
    assert "age: Median; pay: Quantiles 0.1, 0.9" in lines[2]
    assert lines[2].split()[-5:] == ["region", "2", "0.75", "0", "0.25"]
    words = " ".join(out.split())
    assert (
        "people.ledger: 2 charges; remaining epsilon 0.25 of 2. All that is charged to it "
        "is 2-DP under add_remove" in words
    )
    assert words.endswith("neighbors, for a person together.")
    assert path.read_bytes() == before


def test_releases_of_a_table_are_named_by_their_statistics(path, shown):
    pay = release.Quantiles((0.1, 0.9), 0, 1e6, 100, max_records=99)
    people = {
        "age": [31, 45] * 9,
        "pay": [1000, 2000] * 9,
        "g": ["a", "b"] * 9,
        "who": ["Ann", "Bob", "Cid"] * 6,
    }
    table = {name: np.array(column) for name, column in people.items()}
    ledger = Ledger(path, epsilon=64.0, delta=1e-6)
    both = {"age": release.Median(0, 120, 1), "pay": pay}
    shared = {"by": "g", "epsilon": 1.0, "neighbors": "add_remove", "budget": ledger, "unit": "who"}
    frames.release(table, both, **shared, groups=["a", "b", "c"], max_groups=2)
    frames.release(
        table,
        "age",
        **shared | PUBLIC | {"upper": 12.5, "resolution": "1/2", "draws": 3, "groups": ["a"]},
    )
    frames.release(
        table,
        both | {"age": release.OrderStatistic(3, 0, 9, 1)},
        **shared,
        groups=frames.PrivateGroups(1.0, 1e-9),
    )
    lines = [line.split("  ") for line in shown(path)[1].splitlines()]
    cells = [[cell.strip() for cell in line if cell] for line in lines[:4]]
    grid = "pay: Quantiles 0.1, 0.9, 0..1e+06 by 100"
    assert cells[0] == [
        "time",
        "columns",
        "statistic",
        "by",
        "groups",
        "unit",
        "draws",
        "epsilon",
        "delta",
        "left",
    ]
    assert [line[1:8] for line in cells[1:]] == [
        ["age, pay", f"age: Median, 0..120 by 1; {grid}", "g", "3", "who, in 2 groups", "1", "4"],
        ["age", "Median, 0..12.5 by 1/2", "g", "1", "who", "3", "3"],
        ["age, pay", f"age: OrderStatistic 3, 0..9 by 1; {grid}", "g", "found", "who", "1", "3"],
    ]


def test_a_ledger_with_a_delta(path, shown):
    ledger = Ledger(path, epsilon=1.0, delta=1e-6)
    assert "nothing was charged so far; remaining epsilon 1 of 1 by their sum, or rho" in " ".join(
        shown(path)[1].split()
    )
    ledger.charge(Guarantee(neighbors="add_remove", zcdp=0.001))
    ledger.charge(2 * Guarantee(0.01, float("inf"), "add_remove", delta=1e-8))
    code, out, _ = shown(path)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["time", "epsilon", "delta", "rho", "left"]
    assert lines[1].split()[1:4] == ["inf", "0", "0.001"]
    assert lines[2].split()[1:3] == ["0.02", "2e-08"]
    assert "A delta of 5e-07 is reserved for mechanisms with a delta." in " ".join(out.split())


def test_json(path, shown):
    Ledger(path, epsilon=1.0).charge(
        Guarantee(0.25, 0.25, "add_remove", unit="row"), {"columns": ["age"]}
    )
    code, out, _ = shown(path, "--json")
    found = json.loads(out)
    assert code == 0
    assert {
        name: found[name]
        for name in (
            "epsilon",
            "delta",
            "neighbors",
            "mechanism_delta",
            "unit",
            "spent",
            "remaining",
        )
    } == {
        "epsilon": 1.0,
        "delta": 0.0,
        "neighbors": "add_remove",
        "mechanism_delta": 0.0,
        "unit": "row",
        "spent": 0.25,
        "remaining": 0.75,
    }
    assert found["entries"][0]["guarantee"] == {
        "epsilon": 0.25,
        "bounded_range": 0.25,
        "neighbors": "add_remove",
        "unit": "row",
    }


def test_what_is_no_ledger(path, shown):
    code, out, err = shown(path)
    assert (code, out) == (2, "")
    assert err.startswith(f"dpjax: error: cannot read {path}: there is no such file.")
    path.write_text("name,age\nAnn,31\n")
    code, out, err = shown(path)
    assert (code, out) == (2, "")
    assert "is not a dpjax ledger, or is damaged, at line 1" in err
    assert err.count("\n") == 1
    assert path.read_text() == "name,age\nAnn,31\n"
    assert shown(path.parent)[0] == 2


def test_a_ledger_keeps_to_one_kind_of_person(path, run, write):
    """A rider and a driver of the same table."""
    message = 'persons of column "rider", and this one is for those of column "driver"'
    trips = {
        "rider": np.arange(40) // 2,
        "driver": np.arange(40) // 10,
        "fare": np.full(40, 5.0),
    }
    ledger = Ledger(path, epsilon=4.0)
    options = PUBLIC | {"epsilon": 0.5, "budget": ledger}
    frames.release(trips, "fare", unit="rider", **options)
    for more in ({}, {"by": "driver", "groups": [0, 1]}):
        with pytest.raises(ValueError, match=message):
            frames.release(trips, "fare", unit="driver", **options, **more)
    with pytest.raises(ValueError, match="for a row and for a person do not compose"):
        frames.release(trips, "fare", **options)
    lines = ["rider,driver,fare", *(f"{k // 2},{k // 10},5" for k in range(40))]
    asked = ("release", write("\n".join(lines)), "--column", "fare", "--ledger", path)
    asked += ("--lower", 0, "--upper", 9, "--resolution", 1, "--neighbors", "add_remove")
    for more in ((), ("--dry-run",)):
        assert message in run(*asked, "--unit", "driver", *more).mistake
    assert ledger.spent == 0.5
    assert run(*asked, "--unit", "rider").code == 0
    frames.release(trips, "fare", unit="rider", by="driver", groups=[0, 1], **options)
    assert ledger.spent == Ledger(path).spent == 2.0
    assert [entry["what"]["unit"] for entry in ledger.entries] == ["rider"] * 3
