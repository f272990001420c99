"""A ledger is never torn, never overspent by threads or processes, and has every charge whose value
was seen.
"""

import datetime
import fcntl
import io
import itertools
import json
import os
import pathlib
import pickle
import random
import stat
import subprocess
import sys
import threading
import time
from fractions import Fraction

import numpy as np
import pytest

from dpjax.accounting import BudgetExceeded, Guarantee, Ledger, PrivacyFilter
from tests.support.races import admitted_of_two

EACH = Guarantee(1 / 64, 1 / 64, "add_remove")
HALF = Guarantee(0.5, 0.5, "add_remove")
PERSON = Guarantee(1 / 64, 1 / 64, "add_remove", unit="person")


@pytest.fixture
def path(tmp_path):
    yield tmp_path / "people.ledger"
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


def test_it_outlives_the_object(path):
    first = Ledger(path, epsilon=1.0)
    first.charge(HALF, {"columns": ["age"]})
    second = Ledger(path, epsilon=1)
    assert second.remaining == first.remaining == second.spent == 0.5
    second.charge(2 * Guarantee(0.125, 0.125, "add_remove", unit="person"))
    assert (first.remaining, first.unit, first.budget) == (0.25, "person", 1.0)
    assert not first.allows(HALF)
    for refused, message in (
        (HALF, "exceeds the remaining epsilon 0.25"),
        (Guarantee(0.1, 0.1, "add_remove", unit="row"), "do not compose"),
        (Guarantee(0.1, 0.1, "swap"), "neighbors"),
    ):
        with pytest.raises((BudgetExceeded, ValueError), match=message):
            first.charge(refused)
    entry, other = first.entries
    assert (entry["what"], entry["remaining"], other["remaining"]) == (
        {"columns": ["age"]},
        0.5,
        0.25,
    )
    assert datetime.datetime.fromisoformat(entry["time"]).utcoffset() == datetime.timedelta(0)
    assert Guarantee.from_dict(entry["guarantee"]) == HALF
    assert pickle.loads(pickle.dumps(first)).remaining == 0.25


def test_a_filter_admits_the_same(path):
    """All kinds of guarantees, by chance, with the ledger opened anew now and then."""
    kept = Ledger(path, epsilon=1.0, delta=1e-6)
    filtered = PrivacyFilter(1.0, 1e-6, "add_remove", 5e-7)
    kinds = [
        Guarantee(0.2, 0.2, "add_remove"),
        Guarantee(neighbors="add_remove", zcdp=1e-3),
        Guarantee(0.1, float("inf"), "add_remove", delta=2e-7),
        Guarantee(neighbors="add_remove", gdp=0.05),
        3 * Guarantee(0.05, 0.1, "add_remove"),
    ]
    chosen = random.Random(0)
    for step in range(40):
        kind = chosen.choice(kinds)
        assert kept.allows(kind) == filtered.allows(kind)
        if filtered.allows(kind):
            filtered.charge(kind)
            kept.charge(kind)
        else:
            with pytest.raises(BudgetExceeded):
                kept.charge(kind)
        assert (kept.remaining, kept.spent) == (filtered.remaining, filtered.spent)
        if step % 7 == 0:
            kept = Ledger(path)
    assert 0 < len(kept.entries) < 40


def test_totals_are_those_of_the_file(path):
    totals = {"epsilon": 1.0, "delta": 1e-6, "neighbors": "swap", "mechanism_delta": 1e-7}
    opened = Ledger(path, **totals)
    assert Ledger(path).totals == opened.totals == totals
    others = {"epsilon": 2.0, "delta": 2e-6, "neighbors": "add_remove", "mechanism_delta": None}
    for name, other in others.items():
        with pytest.raises(ValueError, match="other totals"):
            Ledger(path, **(totals | {name: other}))
    with pytest.raises(ValueError, match="need epsilon"):
        Ledger(path, delta=1e-6)
    with pytest.raises(FileNotFoundError, match="give epsilon to create one"):
        Ledger(path.with_name("another"))
    path.unlink()
    with pytest.raises(FileNotFoundError):
        opened.charge(Guarantee(0.1, 0.1, "swap"))
    Ledger(path, epsilon=9.0, neighbors="swap")
    with pytest.raises(ValueError, match="another ledger"):
        opened.charge(Guarantee(0.1, 0.1, "swap"))
    assert Ledger(path).spent == 0


def changed(content):
    """Files that are no whole ledgers, made of one that is."""
    first, line = content.splitlines(keepends=True)
    header, entry = json.loads(first), json.loads(line)
    yield from (b"", b"\n", line, first + first, first + b"\n" + line, b"name,age\nAnn,31\n")
    yield first + b"[" * 100_000 + b"\n"
    for old, new in (
        (b'"what"', b'"what'),
        (b"0.5", b"-0.5"),
        (b'"epsilon": 0.5', b'"epsilon": NaN'),
        (b'"add_remove"', b'"swap"'),
        (b"age", "\N{GREEK SMALL LETTER ALPHA}".encode()),
        (b"dpjax ledger", b"other ledger"),
        (b'"version": 1', b'"version": 2'),
    ):
        yield content.replace(old, new, 1)
    for spoiled in (
        {"more": 1},
        {"time": "yesterday"},
        {"what": []},
        {"remaining": None},
        {"guarantee": 0.5},
        {"guarantee": entry["guarantee"] | {"epsilon": 10**400}},
    ):
        yield first + json.dumps(entry | spoiled).encode() + b"\n"
    for spoiled in ({"epsilon": "1"}, {"epsilon": None}, {"delta": 2.0}, {"neighbors": ["swap"]}):
        yield json.dumps(header | spoiled).encode() + b"\n" + line
    for end in (*range(1, len(content) - 1, 5), len(content) - 1):
        if content[end - 1 : end] != b"\n":
            yield content[:end]


def test_what_is_no_whole_ledger_is_refused_and_left_as_it_is(path):
    opened = Ledger(path, epsilon=1.0)
    opened.charge(HALF, {"columns": ["age"]})
    content = path.read_bytes()
    for spoiled in changed(content):
        assert spoiled != content
        path.write_bytes(spoiled)
        for use in (
            lambda: Ledger(path),
            lambda: opened.charge(HALF),
            lambda: opened.remaining,
            lambda: opened.entries,
        ):
            with pytest.raises(ValueError, match=r"is damaged, at line|another ledger"):
                use()
        assert path.read_bytes() == spoiled
    path.write_bytes(content)
    assert opened.remaining == 0.5  # nothing else was wrong


def test_a_file_without_the_charges_that_were_seen_is_refused(path):
    opened, idle = Ledger(path, epsilon=1.0), Ledger(path)
    empty = path.read_bytes()
    opened.charge(HALF, {"columns": ["age"]})
    older = path.read_bytes()
    opened.charge(EACH)
    newest = path.read_bytes()
    first, one, two = newest.splitlines(keepends=True)
    for content in (empty, older, first + two, first + two + one):
        path.write_bytes(content)
        for use in (
            lambda: opened.charge(EACH),
            lambda: opened.remaining,
            lambda: opened.allows(EACH),
            lambda: opened.entries,
        ):
            with pytest.raises(ValueError, match="lacks charges"):
                use()
        assert path.read_bytes() == content
        assert Ledger(path).spent == 0.5 * content.count(one) + EACH.epsilon * content.count(two)
    path.write_bytes(empty)
    assert idle.remaining == 1.0  # it has seen nothing that is not there
    path.write_bytes(newest + one)
    assert opened.spent == idle.spent == 1 + 1 / 64
    path.write_bytes(newest)
    with pytest.raises(ValueError, match="lacks charges"):
        assert idle.remaining
    assert Ledger(path).remaining == 0.5 - 1 / 64


def test_a_read_that_a_charge_of_the_same_object_overtakes(path, monkeypatch):
    """What was read before the charge is not taken for an older copy of the file."""
    shared, real = Ledger(path, epsilon=1.0), open

    class Overtaken(io.BytesIO):
        def read(self):
            shared.charge(EACH)
            return super().read()

    def slow(name, mode):
        monkeypatch.undo()
        with real(name, mode) as file:
            return Overtaken(file.read())

    monkeypatch.setattr("builtins.open", slow)
    assert shared.remaining == 1.0
    assert shared.spent == EACH.epsilon


def test_a_ledger_is_for_the_persons_of_one_column(path):
    riders, drivers = {"unit": "rider"}, {"unit": "driver"}
    made = Ledger(path, epsilon=1.0)
    made.charge(PERSON)  # states no column
    made.charge(PERSON, riders)
    for opened in (made, Ledger(path), pickle.loads(pickle.dumps(made))):
        for column in ("driver", np.int64(0)):
            with pytest.raises(ValueError, match='column "rider"'):
                opened.charge(PERSON + EACH, {"unit": column})
        assert opened.spent == 2 / 64
    for cost, what in ((PERSON, riders), (EACH, drivers), (PERSON, {"unit": None})):
        Ledger(path).charge(cost, what)
    assert (made.unit, made.spent) == ("person", 5 / 64)
    # Of an earlier version, with persons of two columns: it can be read
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[2].replace(b"rider", b"driver")]))
    for column in ("rider", "driver", "other"):
        with pytest.raises(ValueError, match="a ledger of its own"):
            Ledger(path).charge(PERSON, {"unit": column})
    Ledger(path).charge(EACH)
    assert Ledger(path).spent == 7 / 64


def test_what_is_no_file_is_refused(path):
    os.mkfifo(path)
    for place in (path, path.parent, pathlib.Path(os.devnull)):
        with pytest.raises(ValueError, match="not a regular file"):
            Ledger(place)


def test_links_and_modes(path):
    link = path.with_name("link")
    link.symlink_to(path)
    made = Ledger(link, epsilon=1.0)  # the link leads to nothing so far
    assert made.path == os.path.realpath(path)
    path.chmod(0o640)
    made.charge(EACH)
    Ledger(path).charge(EACH)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert not path.is_symlink()
    assert Ledger(link).spent == 2 / 64


def test_what_a_charge_is_for_is_plain_json(path):
    made = Ledger(path, epsilon=1.0)
    values = {
        Fraction(1, 3): "1/3",
        (np.int64(3), np.float32(0.5), np.bool_(True)): [3, 0.5, True],
        (np.inf, datetime.date(2026, 1, 2)): ["inf", "2026-01-02"],
        frozenset({"b", "a"}): ["a", "b"],
        "\N{GREEK SMALL LETTER ALPHA}\n\ud800": "\N{GREEK SMALL LETTER ALPHA}\n\ud800",
        10**400: 10**400,
    }
    made.charge(EACH, {"all": list(values), "array": np.array([1.5, np.nan]), 3: {None: object}})
    assert made.entries[0]["what"] == {
        "all": list(values.values()),
        "array": [1.5, "nan"],
        "3": {"None": "<class 'object'>"},
    }
    loop: dict = {}
    loop["again"] = loop
    for bad in (loop, {"huge": 10**5000}):
        with pytest.raises((ValueError, RecursionError)):
            made.charge(EACH, bad)
    assert made.spent == Ledger(path).spent == EACH.epsilon  # before anything was written


def test_a_charge_that_cannot_be_written_is_none(path, monkeypatch):
    made = Ledger(path, epsilon=1.0)

    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace", "fchmod"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, fails)
            with pytest.raises(OSError, match="No space"):
                made.charge(EACH)
        assert made.spent == Ledger(path).spent == 0
    made.charge(EACH)  # the lock is free
    path.with_name(f".{path.name}.next.tmp").write_text("left by a process that was killed")
    made.charge(EACH)
    assert made.spent == 2 / 64


def test_the_file_is_on_the_disk_before_a_charge_returns(path, monkeypatch):
    steps = []
    made = Ledger(path, epsilon=1.0)
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *given, real=real, name=name: (steps.append(name), real(*given))[1]
        )
    made.charge(EACH)
    assert steps == ["fsync", "replace", "fsync"]


@pytest.mark.parametrize("without", ["", "lock", "second look"])
def test_threads_never_pass_the_total(path, monkeypatch, without):
    """One begins to charge 3/4 while another one does; controls without the lock, and without the
    look at whether the locked file is still that of the path, overspend.
    """
    Ledger(path, epsilon=1.0)
    real, waits = fcntl.flock, threading.Event()

    def flock(file, how):
        if threading.current_thread() is not threading.main_thread():
            waits.set()
        return None if without == "lock" else real(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    if without == "second look":
        monkeypatch.setattr(os.path, "samestat", lambda *_: True)

    def pause(other):
        waits.wait(5)
        if without == "lock":
            other.join()

    class Slow(Guarantee):
        """Its text is asked for after the look at what is left, and before the file is written."""

        def to_json(self):
            between()
            return super().to_json()

    admitted, between = admitted_of_two(
        lambda first: Ledger(path).charge((Slow if first else Guarantee)(0.75, 0.75, "add_remove")),
        pause,
    )
    assert admitted() == (2 if without else 1)
    assert Ledger(path).spent == 0.75


SPENDER = """
import sys
from dpjax.accounting import BudgetExceeded, Guarantee, Ledger
path, name, share = sys.argv[1], sys.argv[2], float(sys.argv[3])
ledger, each = Ledger(path), Guarantee(share, share, "add_remove")
try:
    for k in range(10**6):
        ledger.charge(each, {"id": f"{name}-{k}"})
        print(f"{name}-{k}", flush=True)
except BudgetExceeded:
    print("refused", flush=True)
"""


class Spender:
    """A process that charges and then prints, and what it printed so far."""

    def __init__(self, path, name, share):
        command = [sys.executable, "-c", SPENDER, str(path), str(name), str(share)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.printed = []
        self.reader = threading.Thread(
            target=lambda: self.printed.extend(line.strip() for line in self.process.stdout)
        )
        self.reader.start()

    def kill(self, after, delay):
        """Kill it a while after so many lines, or let it end."""
        while len(self.printed) < after and self.process.poll() is None:
            time.sleep(1e-3)
        time.sleep(delay)
        self.process.kill()
        return self.finish()

    def finish(self):
        self.process.wait(timeout=120)
        self.reader.join()
        self.process.stdout.close()
        return self.printed


@pytest.mark.parametrize(
    ("kills", "total"), [(2, 128), pytest.param(20, 512, marks=pytest.mark.slow)]
)
def test_killed_at_any_moment_nothing_is_lost_and_nothing_overspent(path, kills, total):
    """Two processes at a time; one of them is killed, and another one takes its place. The last two
    go on until they are refused.
    """
    chosen = random.Random(kills)
    Ledger(path, epsilon=1.0)
    names = itertools.count()
    running = [Spender(path, next(names), 1 / total) for _ in range(2)]
    printed = []
    for _ in range(kills):
        victim = running.pop(0)
        printed += victim.kill(chosen.randrange(total // 8), chosen.random() * 5e-3)
        Ledger(path)  # every line can be read
        running.append(Spender(path, next(names), 1 / total))
    for spender in running:
        printed += spender.finish()
    assert printed.count("refused") >= 2
    seen = [name for name in printed if name != "refused"]
    ids = [entry["what"]["id"] for entry in Ledger(path).entries]
    assert len(seen) == len(set(seen)) > kills
    assert len(ids) == len(set(ids)) == total
    assert set(seen) <= set(ids)
    # At most the charge that was just being made is without a value
    assert len(ids) - len(seen) <= kills
    assert Ledger(path).spent == 1
