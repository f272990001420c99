"""A ledger is never torn, never overspent by threads or processes, and has every charge whose value
was seen.
"""

import datetime
import errno
import os
import pickle
import random
import resource
import signal
import sqlite3
import subprocess
import sys
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from dpjax.accounting import BudgetExceeded, Guarantee, Ledger, PrivacyFilter
from tests.support.races import admitted_of_two

EACH = Guarantee(1 / 64, 1 / 64, "add_remove")
HALF = Guarantee(0.5, 0.5, "add_remove")


@pytest.fixture
def path(tmp_path):
    yield tmp_path / "people.ledger"
    assert not list(tmp_path.glob("*-journal"))


def test_a_file_system_without_links_has_ledgers(path, monkeypatch):
    def link(*_):
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", link)
    Ledger(path, epsilon=1.0).charge(HALF)
    assert Ledger(path, epsilon=1.0).spent == 0.5
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def test_it_outlives_the_object(path):
    first = Ledger(path, epsilon=1.0)
    assert str(first) == "remaining epsilon 1 of 1"
    first.charge(HALF, {"columns": ["age"]})
    second = pickle.loads(pickle.dumps(Ledger(path, epsilon=1)))
    second.charge(2 * Guarantee(0.125, 0.125, "add_remove", unit="person"))
    assert (first.left, first.spent) == ({"epsilon": 0.25}, 0.75)
    assert str(first) == "remaining epsilon 0.25 of 1 (1 more like the last charge)"
    one, two = first.entries
    assert (one["what"], one["guarantee"], one["part"]) == ({"columns": ["age"]}, HALF, "")
    assert (one["remaining"], two["remaining"], two["guarantee"].count) == (0.5, 0.25, 2)
    assert datetime.datetime.fromisoformat(one["time"]).utcoffset() == datetime.timedelta(0)


def test_it_admits_and_says_what_a_filter_does(path):
    """All kinds of guarantees, of everyone and of parts, for rows and persons, by chance."""
    kept = Ledger(path, epsilon=1.0, delta=1e-6)
    filtered = PrivacyFilter(1.0, 1e-6, "add_remove", 5e-7)
    kinds = [
        Guarantee(0.2, 0.2, "add_remove"),
        Guarantee(neighbors="add_remove", zcdp=1e-3),
        Guarantee(0.1, float("inf"), "add_remove", delta=2e-7),
        3 * Guarantee(0.05, 0.1, "add_remove"),
        Guarantee(0.1, 0.1, "add_remove", unit="row"),
        2 * Guarantee(0.1, 0.1, "add_remove", unit="person"),
        Guarantee(0.1, 0.1, "swap"),
    ]

    def outcome(budget, *given):
        before = path.read_bytes()
        try:
            budget.charge(*given)
        except (BudgetExceeded, ValueError) as error:
            assert path.read_bytes() == before
            return str(error)

    chosen, found = random.Random(1), set()
    for _ in range(80):
        kind, part = chosen.choice(kinds), chosen.choice(["", "north", "south"])
        what = {"unit": chosen.choice(["rider", "driver", None])}
        one, other = (each.part(part) if part else each for each in (kept, filtered))
        said = outcome(other, kind, what)
        assert outcome(one, kind, what) == said
        assert (one.left, kept.left, one.spent) == (other.left, filtered.left, other.spent)
        found |= {word for word in ("exceeds", "compose", "column", "swap") if word in str(said)}
    assert found == {"exceeds", "compose", "column", "swap"}
    assert {entry["part"] for entry in kept.entries} == {"", "north", "south"}


def test_notes_add_up_and_share_the_budget(path):
    ledger = Ledger(path, epsilon=1.0)
    march = ledger.noted("2026-03", file="trips.csv")
    march.part("north").charge(EACH, {"statistic": "Count()"})
    march.noted("again").charge(EACH)
    ledger.charge(EACH)
    assert [entry["what"] for entry in ledger.entries] == [
        {"statistic": "Count()", "note": "2026-03", "file": "trips.csv"},
        {"note": "again", "file": "trips.csv"},
        {},
    ]
    assert march.spent == ledger.spent == 3 / 64


def test_totals_are_those_of_the_file(path):
    totals = {"epsilon": 1.0, "delta": 1e-6, "neighbors": "swap", "mechanism_delta": 1e-7}
    opened = Ledger(path, **totals)
    assert Ledger(path).totals == opened.totals == totals
    others = {"epsilon": 2.0, "delta": 2e-6, "neighbors": "add_remove", "mechanism_delta": None}
    for name, other in others.items():
        with pytest.raises(ValueError, match=r"other totals, those of .*epsilon=1\.0"):
            Ledger(path, **(totals | {name: other}))
    with pytest.raises(ValueError, match="need epsilon"):
        Ledger(path, delta=1e-6)
    with pytest.raises(AttributeError, match="read-only"):
        opened.epsilon = 5.0
    path.unlink()
    with pytest.raises(FileNotFoundError):
        opened.charge(Guarantee(0.1, 0.1, "swap"))
    Ledger(path, epsilon=9.0, neighbors="swap")
    with pytest.raises(ValueError, match="other totals"):
        opened.charge(Guarantee(0.1, 0.1, "swap"))
    assert Ledger(path).spent == 0


DAMAGES = [
    "drop table totals",
    "delete from totals",
    "update totals set epsilon = 'one'",
    "update totals set delta = 2.0",
    "update charges set guarantee = '[' || guarantee",
    "update charges set guarantee = replace(guarantee, 'epsilon', 'epsilom')",
    "update charges set guarantee = replace(guarantee, '0.5', '-0.5')",
    "update charges set guarantee = replace(guarantee, 'add_remove', 'swap')",
    "update charges set guarantee = null",
    "update charges set guarantee = cast(x'ff7b' as text)",
    "update charges set part = null",
    "update charges set part = 0",
    "update charges set persons = 3",
    "create trigger undo after insert on charges begin delete from charges; end",
    # Equal charges would be one
    "drop table charges; create table charges (time, part, persons, what, guarantee primary key "
    "on conflict replace, remaining) without rowid",
]


def test_what_is_no_whole_ledger_is_refused_and_left_as_it_is(path):
    opened = Ledger(path, epsilon=1.0)
    opened.charge(HALF, {"columns": ["age"]})
    content = path.read_bytes()
    spoiled = [b"name,age\nAnn,31\n", content[:100], content[:5000], b"x" + content[1:]]
    for damage in DAMAGES:
        with sqlite3.connect(path) as file:
            file.executescript(damage)
        file.close()
        spoiled.append(path.read_bytes())
        path.write_bytes(content)
    other = path.with_name("other")
    with sqlite3.connect(other) as file:
        file.execute("create table trips (fare)")
    file.close()
    for wrong in (*spoiled, other.read_bytes(), b'{"format": "dpjax ledger"}\n', b""):
        path.write_bytes(wrong)
        for use in (
            lambda: Ledger(path),
            lambda: Ledger(path, epsilon=1.0),
            lambda: opened.charge(HALF),
            lambda: opened.remaining,
        ):
            with pytest.raises(ValueError, match="is not a dpjax ledger, or is"):
                use()
        assert path.read_bytes() == wrong
    path.write_bytes(content)
    assert opened.remaining == 0.5  # nothing else was wrong


def test_of_two_processes_that_make_a_ledger_the_first_one_does(path, monkeypatch):
    Ledger(path, epsilon=1.0).charge(HALF)
    monkeypatch.setattr(os.path, "exists", lambda _: False)  # as the other one saw it before
    assert Ledger(path, epsilon=1.0).remaining == 0.5
    assert os.listdir(path.parent) == [path.name]


def test_paths(path, monkeypatch):
    monkeypatch.setenv("HOME", str(path.parent))
    link = path.with_name("link")
    link.symlink_to(path)
    made = Ledger(link, epsilon=1.0)  # the link leads to nothing so far
    made.charge(EACH)
    assert (made.path, link.is_symlink()) == (os.path.realpath(path), True)
    assert Ledger("~/people.ledger").spent == EACH.epsilon
    with pytest.raises(FileNotFoundError, match=r"no such folder.*nodir"):
        Ledger(path.parent / "nodir" / "x.ledger", epsilon=1.0)
    os.mkfifo(path.with_name("pipe"))
    for place in (path.with_name("pipe"), path.parent, os.devnull):
        for totals in ({}, {"epsilon": 1.0}):
            with pytest.raises(FileNotFoundError, match="there is no ledger"):
                Ledger(place, **totals)


def test_what_a_charge_is_for_is_json(path):
    made = Ledger(path, epsilon=1.0)
    values = [Fraction(1, 3), np.int64(3), datetime.date(2026, 1, 2), 10**400, "\n\ud800"]
    made.charge(EACH, {"all": values, 3: {None: 0.5}})
    texts = ["1/3", "3", "2026-01-02", 10**400, "\n\ud800"]
    assert made.entries[0]["what"] == {"all": texts, "3": {"null": 0.5}}
    with pytest.raises(ValueError, match="digits"):
        made.charge(EACH, {"huge": 10**5000})
    assert made.spent == EACH.epsilon  # before anything was written


def test_a_charge_that_cannot_be_written_is_none(path):
    made = Ledger(path, epsilon=1.0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="nothing may be drawn"):
            made.charge(EACH)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert made.spent == 0
    made.charge(EACH)
    assert made.spent == Ledger(path).spent == EACH.epsilon


def connected(monkeypatch, kind):
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=kind))


def test_the_file_is_on_the_disk_before_a_charge_returns(path, monkeypatch):
    found = []

    class Watched(sqlite3.Connection):
        def __exit__(self, *given):
            found.append((*self.execute("pragma synchronous").fetchone(), self.in_transaction))
            return super().__exit__(*given)

    made = Ledger(path, epsilon=1.0)
    connected(monkeypatch, Watched)
    made.charge(EACH)
    assert found == [(3, True)]  # "extra": the file, and the folder without the journal


class Loose(sqlite3.Connection):
    """The control: each statement is a transaction of its own."""

    def execute(self, text, *given):
        return super().execute("select 1" if text.startswith("begin") else text, *given)


@pytest.mark.parametrize("locked", [True, False])
def test_threads_never_pass_the_total(path, monkeypatch, locked):
    """One begins to charge 3/4 while another one does."""
    Ledger(path, epsilon=1.0)
    if not locked:
        connected(monkeypatch, Loose)

    class Slow(Guarantee):
        """Its text is asked for after the look at what is left, and before the file is written."""

        def to_json(self):
            between()
            return super().to_json()

    admitted, between = admitted_of_two(
        lambda first: Ledger(path).charge((Slow if first else Guarantee)(0.75, 0.75, "add_remove")),
        lambda other: other.join(0.1 if locked else None),
    )
    assert admitted() == (1 if locked else 2)
    assert Ledger(path).spent == (0.75 if locked else 1.5)


def test_an_interrupt_leaves_no_lock_held(path):
    made, kept = Ledger(path, epsilon=1.0), []

    def interrupt(*_):
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGALRM, interrupt)
    try:
        for moment in range(60):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4 + 5e-5 * moment)
                while True:
                    made.charge(Guarantee(0.0, 0.0, "add_remove"))
            except KeyboardInterrupt as error:
                kept.append(error)  # with all its frames, as a notebook does
            assert made.remaining == 1.0
            file = sqlite3.connect(path, timeout=0, isolation_level=None)
            file.execute("begin immediate")
            file.close()
    finally:
        signal.signal(signal.SIGALRM, former)
    assert len(kept) == 60


KILLED = """
import itertools, os, random, signal, sys, time
from dpjax.accounting import BudgetExceeded, Guarantee, Ledger

path, seen, honest = sys.argv[1:]
ledger, each = Ledger(path, epsilon=200 / 256), Guarantee(1 / 256, 1 / 256, "add_remove")
names, chosen = itertools.count(), random.Random(0)

def spend(name):
    printed = os.open(seen, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for charge in itertools.count():
        pay = lambda: ledger.charge(each, {"id": f"{name}-{charge}"})
        say = lambda: os.write(printed, f"{name}-{charge}\\n".encode())
        for step in (pay, say) if honest == "True" else (say, pay):
            step()

def start():
    name, process = next(names), os.fork()
    if process == 0:
        try:
            spend(name)
        except BudgetExceeded:
            os._exit(0)
        finally:
            os._exit(1)
    return process

def end(process):
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

running, ended = [start() for _ in range(4)], []
for _ in range(50):
    time.sleep(chosen.random() * 5e-3)
    os.kill(running[0], signal.SIGKILL)
    ended.append(end(running.pop(0)))
    running.append(start())
print(ended.count(-signal.SIGKILL), *(end(process) for process in running))
"""


@pytest.mark.parametrize("honest", [True, False])
def test_killed_at_any_moment_nothing_is_lost_and_nothing_overspent(path, honest):
    """Four processes at a time make 200 charges; 50 times one of them is killed, and another one
    takes its place. The last four go on until they are refused. The control draws before it pays.
    """
    seen = path.with_name("seen")
    command = [sys.executable, "-c", KILLED, str(path), str(seen), str(honest)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    killed, *others = map(int, done.stdout.split())
    assert killed > 20
    assert others == [0, 0, 0, 0]
    printed, ledger = set(seen.read_text().split()), Ledger(path)
    ids = [entry["what"]["id"] for entry in ledger.entries]
    assert len(ids) == len(set(ids)) == 200
    assert ledger.spent == 200 / 256
    # At most the charge that was just being made is without a value
    assert len(set(ids) - printed) <= killed
    unpaid = printed - set(ids)
    assert not unpaid if honest else len(unpaid) > 4  # of four that are refused at the end
