"""A ledger is never torn, never overspent by threads or processes, and has every charge whose value
was seen.
"""

import contextlib
import datetime
import fcntl
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

from dpjax.accounting import BudgetExceeded, Composition, Guarantee, Ledger, PrivacyFilter, ledger
from dpjax.accounting.ledger import charge, guarantee_of

EACH = Guarantee(1 / 64, 1 / 64, "add_remove")
HALF = Guarantee(0.5, 0.5, "add_remove")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


def test_it_outlives_the_object(path):
    first = Ledger(path, epsilon=1.0)
    first.charge(HALF, {"columns": ["age"]})
    second = Ledger(path, epsilon=1)
    assert second.remaining == first.remaining == second.spent == 0.5
    assert second.totals == {
        "epsilon": 1.0,
        "delta": 0.0,
        "neighbors": "add_remove",
        "mechanism_delta": 0.0,
    }
    second.charge(2 * Guarantee(0.125, 0.125, "add_remove", unit="person"))
    assert (first.remaining, first.unit, first.budget) == (0.25, "person", 1.0)
    assert repr(first).startswith("Ledger(remaining epsilon 0.25 of 1, epsilon=1.0")
    assert not first.allows(HALF)
    with pytest.raises(
        BudgetExceeded,
        match=r"a cost of epsilon 0.5 exceeds the remaining "
        r"epsilon 0.25 of 1\.",
    ):
        first.charge(HALF)
    with pytest.raises(ValueError, match="do not compose"):
        first.charge(Guarantee(0.1, 0.1, "add_remove", unit="row"))
    with pytest.raises(ValueError, match="neighbors"):
        first.charge(Guarantee(0.1, 0.1, "swap"))
    with pytest.raises(TypeError, match="Guarantee or a Composition"):
        first.charge(0.1)
    assert [entry["what"] for entry in first.entries] == [{"columns": ["age"]}, {}]
    assert [entry["remaining"] for entry in first.entries] == [0.5, 0.25]
    assert datetime.datetime.fromisoformat(
        first.entries[0]["time"]
    ).utcoffset() == datetime.timedelta(0)
    one, two = map(guarantee_of, first.entries)
    assert one == HALF
    assert two == Composition(((Guarantee(0.125, 0.125, "add_remove", unit="person"), 2),))
    assert pickle.loads(pickle.dumps(first)).remaining == 0.25
    assert os.listdir(path.parent) == [path.name]


def test_a_filter_admits_the_same(path):
    """All kinds of guarantees, by chance, with the ledger opened anew now and then."""
    kept, filtered = (
        Ledger(path, epsilon=1.0, delta=1e-6),
        PrivacyFilter(1.0, 1e-6, "add_remove", 5e-7),
    )
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
    assert "by their sum, or rho" in repr(kept)


def test_totals_are_those_of_the_file(path):
    Ledger(path, epsilon=1.0, delta=1e-6, neighbors="swap", mechanism_delta=1e-7)
    for other in (
        {"epsilon": 2.0},
        {"epsilon": 1.0, "delta": 1e-6, "neighbors": "swap"},
        {"epsilon": 1.0, "delta": 1e-6, "mechanism_delta": 1e-7},
        {"epsilon": 1.0, "delta": 2e-6, "neighbors": "swap", "mechanism_delta": 1e-7},
    ):
        with pytest.raises(
            ValueError,
            match=r"other totals, epsilon=1.0, delta=1e-06, "
            r"neighbors='swap', mechanism_delta=1e-07",
        ):
            Ledger(path, **other)
    with pytest.raises(ValueError, match="need epsilon"):
        Ledger(path, delta=1e-6)
    assert Ledger(path).totals["mechanism_delta"] == 1e-7
    with pytest.raises(FileNotFoundError, match="give epsilon to create one"):
        Ledger(path.with_name("another"))
    for bad in (
        {"epsilon": 0.0},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": 1.0, "mechanism_delta": 0.1},
    ):
        with pytest.raises(ValueError, match="must"):
            Ledger(path.with_name("another"), **bad)
    with pytest.raises(TypeError, match="epsilon"):
        Ledger(path.with_name("another"), epsilon=True)
    opened = Ledger(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        opened.charge(Guarantee(0.1, 0.1, "swap"))
    Ledger(path, epsilon=9.0, neighbors="swap")
    with pytest.raises(ValueError, match="another ledger"):
        opened.charge(Guarantee(0.1, 0.1, "swap"))
    assert repr(opened).startswith("Ledger(unreadable: ")
    assert Ledger(path).spent == 0
    assert os.listdir(path.parent) == [path.name]


def changed(content):
    """Files that are no whole ledgers, made of one that is."""
    lines = content.splitlines(keepends=True)
    entry, header = json.loads(lines[1]), json.loads(lines[0])
    yield b""
    yield b"\n"
    yield content[:-1]  # without the end
    yield content + b"\n"
    yield content + b'{"time": "2026'
    yield content.replace(b'"what"', b'"what', 1)
    yield content.replace(b"0.5", b"-0.5")
    yield content.replace(b'"epsilon": 0.5', b'"epsilon": NaN')
    yield content.replace(b'"add_remove"', b'"swap"', 1)
    yield content.replace(b"age", "\N{GREEK SMALL LETTER ALPHA}".encode())
    yield content.replace(b"dpjax ledger", b"other ledger")
    yield content.replace(b'"version": 1', b'"version": 2')
    yield b"".join(lines[1:])
    yield lines[0] + lines[0]
    yield lines[0] + b"\n" + lines[1]
    yield lines[0] + b"[" * 100_000 + b"\n"
    yield b"name,age\nAnn,31\n"
    yield os.urandom(200) + b"\n"
    for spoiled in (
        {"more": 1},
        {"time": "yesterday"},
        {"time": 3},
        {"what": []},
        {"remaining": None},
        {"guarantee": 0.5},
        {"guarantee": entry["guarantee"] | {"epsilon": 10**400}},
    ):
        yield lines[0] + json.dumps(entry | spoiled).encode() + b"\n"
    for spoiled in (
        {"epsilon": "1"},
        {"epsilon": 10**400},
        {"epsilon": None},
        {"delta": 2.0},
        {"neighbors": ["swap"]},
    ):
        yield json.dumps(header | spoiled).encode() + b"\n" + lines[1]
    for end in range(1, len(content) - 1, 5):
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
            lambda: Ledger(path, epsilon=1.0),
            lambda: opened.charge(HALF),
            lambda: opened.remaining,
            lambda: opened.entries,
        ):
            with pytest.raises(
                ValueError,
                match=r"not a dpjax ledger, or is damaged, at "
                r"line|another ledger",
            ):
                use()
        assert path.read_bytes() == spoiled
    path.write_bytes(content)
    assert opened.remaining == 0.5  # nothing else was wrong
    assert os.listdir(path.parent) == [path.name]


def test_a_file_without_the_charges_that_were_seen_is_refused(path):
    opened, idle = Ledger(path, epsilon=1.0), Ledger(path)
    empty = path.read_bytes()
    opened.charge(HALF, {"columns": ["age"]})
    older = path.read_bytes()
    opened.charge(EACH)
    newest = path.read_bytes()
    lines = newest.splitlines(keepends=True)
    others = (empty, older, lines[0] + lines[2], lines[0] + lines[2] + lines[1], newest + lines[1])
    for content in others[:-1]:
        path.write_bytes(content)
        for use in (
            lambda: opened.charge(EACH),
            lambda: opened.remaining,
            lambda: opened.allows(EACH),
            lambda: opened.entries,
            lambda: opened.unit,
        ):
            with pytest.raises(ValueError, match=r"lacks charges .* replaced, .* open it anew"):
                use()
        assert repr(opened).startswith("Ledger(unreadable: ")
        assert path.read_bytes() == content
        assert Ledger(path).spent == sum(
            guarantee_of(json.loads(line)).epsilon for line in content.splitlines()[1:]
        )
    path.unlink()
    Ledger(path, epsilon=1.0)  # made anew
    with pytest.raises(ValueError, match="open it anew"):
        opened.charge(EACH)
    assert idle.remaining == 1.0  # it has seen nothing that is not there
    path.write_bytes(others[-1])
    assert opened.spent == idle.spent == 1 + 1 / 64
    path.write_bytes(newest)
    with pytest.raises(ValueError, match="open it anew"):
        assert idle.remaining
    assert Ledger(path).remaining == 0.5 - 1 / 64


def test_threads_with_one_object_see_no_older_file(path):
    """A thread that read the file before another one charged does not take it for an older copy."""
    shared, wrong = Ledger(path, epsilon=1.0), []

    def look():
        try:
            while len(shared.entries) < 64:
                assert shared.remaining >= 0
        except Exception as error:
            wrong.append(error)

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()

    def spend():
        try:
            for _ in range(32):
                shared.charge(EACH)
        except Exception as error:
            wrong.append(error)

    spenders = [threading.Thread(target=spend) for _ in range(2)]
    for thread in spenders:
        thread.start()
    for thread in spenders:
        thread.join()
    if wrong:  # the readers would wait for ever
        for _ in range(64 - len(Ledger(path).entries)):
            Ledger(path).charge(EACH)
    for reader in readers:
        reader.join()
    assert not wrong
    assert shared.remaining == 0


def test_a_ledger_is_for_the_persons_of_one_column(path):
    person, row = (Guarantee(1 / 64, 1 / 64, "add_remove", unit=unit) for unit in ("person", "row"))
    riders, drivers = {"unit": "rider"}, {"unit": "driver"}
    made = Ledger(path, epsilon=1.0)
    made.charge(EACH, drivers)  # states no unit
    made.charge(person)  # states no column
    made.charge(person, riders)
    spent = made.spent
    for opened in (made, Ledger(path), pickle.loads(pickle.dumps(made))):
        for cost in (person, 2 * person, person + EACH):
            with pytest.raises(
                ValueError,
                match=r'persons of column "rider", and this one is for those of column "driver"'
                r": .* Use a budget or a ledger of its own for each kind of person",
            ):
                opened.charge(cost, drivers)
        with pytest.raises(ValueError, match="do not compose"):
            opened.charge(row, riders)
        with pytest.raises(ValueError, match="column 0"):
            opened.charge(person, {"unit": np.int64(0)})
        assert opened.spent == spent
    for cost, what in ((person, riders), (person, {}), (EACH, {}), (person, {"unit": None})):
        made.charge(cost, what)
        Ledger(path).charge(cost, what)
    assert made.unit == "person"
    assert made.spent == 11 / 64


def test_an_earlier_ledger_with_persons_of_two_columns_can_be_read(path):
    person = Guarantee(1 / 64, 1 / 64, "add_remove", unit="person")
    Ledger(path, epsilon=1.0).charge(person, {"unit": "rider"})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[1].replace(b"rider", b"driver")]))
    opened = Ledger(path)
    assert (opened.unit, opened.spent, len(opened.entries)) == ("person", 2 / 64, 2)
    for column in ("rider", "driver", "other"):
        with pytest.raises(ValueError, match="Use a budget or a ledger of its own"):
            opened.charge(person, {"unit": column})
    opened.charge(EACH)
    assert Ledger(path).spent == 3 / 64


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
    usual = path.with_name("usual")
    usual.touch()
    assert path.stat().st_mode == usual.stat().st_mode
    usual.unlink()
    path.chmod(0o640)
    made.charge(EACH)
    Ledger(path).charge(EACH)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert not path.is_symlink()
    assert Ledger(link).spent == 2 / 64
    assert sorted(os.listdir(path.parent)) == ["link", path.name]


def test_what_a_charge_is_for_is_plain_json(path):
    made = Ledger(path, epsilon=1.0)
    loop: dict = {}
    what = {
        "fraction": Fraction(1, 3),
        "numbers": np.array([1.5, np.nan, np.inf]),
        "scalars": (np.int64(3), np.float32(0.5), np.bool_(True), np.str_("a"), np.array(7)),
        "times": [
            datetime.date(2026, 1, 2),
            np.datetime64("2026-01-02"),
            datetime.timedelta(days=1),
            np.timedelta64(3, "s"),
        ],
        "labels": {"b", "a"},
        "text": "\N{GREEK SMALL LETTER ALPHA}\n\ud800",
        3: {None: float("-inf")},
        "other": object,
        "range": range(2),
        "large": 10**400,
        "none": None,
    }
    made.charge(EACH, what)
    assert made.entries[0]["what"] == {
        "fraction": "1/3",
        "numbers": [1.5, "nan", "inf"],
        "scalars": [3, 0.5, True, "a", 7],
        "times": ["2026-01-02", "2026-01-02", "1 day, 0:00:00", "3 seconds"],
        "labels": ["a", "b"],
        "text": "\N{GREEK SMALL LETTER ALPHA}\n\ud800",
        "3": {"None": "-inf"},
        "other": "<class 'object'>",
        "range": [0, 1],
        "large": 10**400,
        "none": None,
    }
    loop["again"] = loop
    nested: list = []
    for _ in range(5000):
        nested = [nested]
    for bad in (loop, {"nested": nested}, {"huge": 10**5000}):
        with pytest.raises((ValueError, RecursionError)):
            made.charge(EACH, bad)
    assert made.spent == EACH.epsilon  # before anything was written
    assert Ledger(path).spent == EACH.epsilon


def test_a_charge_that_cannot_be_written_is_none(path, monkeypatch):
    made = Ledger(path, epsilon=1.0)

    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace", "fchmod"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, fails)
            with pytest.raises(OSError, match="No space"):
                made.charge(EACH)
        assert os.listdir(path.parent) == [path.name]
        assert made.spent == Ledger(path).spent == 0
    made.charge(EACH)  # the lock is free
    path.with_name(f".{path.name}.next.tmp").write_text("left by a process that was killed")
    made.charge(EACH)
    assert os.listdir(path.parent) == [path.name]


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


def charged_by_threads(path, threads=6):
    """The names of all charges of 1/64 by threads that go on until they are refused, each with an
    object of its own.
    """
    admitted, start = [], threading.Barrier(threads)

    def spend(thread):
        own = Ledger(path, epsilon=1.0)
        start.wait()
        with contextlib.suppress(BudgetExceeded):
            for number in itertools.count():
                own.charge(EACH, {"id": f"{thread}-{number}"})
                admitted.append(f"{thread}-{number}")

    workers = [threading.Thread(target=spend, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sorted(admitted)


def test_threads_never_pass_the_total(path):
    admitted = charged_by_threads(path)
    assert len(admitted) == 64
    assert sorted(entry["what"]["id"] for entry in Ledger(path).entries) == admitted
    assert Ledger(path).remaining == 0


@pytest.mark.parametrize("without", ["lock", "second look"])
def test_control_without_the_lock_or_the_second_look_threads_overspend(path, monkeypatch, without):
    module, name = (fcntl, "flock") if without == "lock" else (os.path, "samestat")
    monkeypatch.setattr(module, name, lambda *_: True)
    names, beside = itertools.count(), ledger._beside
    # Each writes a file of its own
    monkeypatch.setattr(ledger, "_beside", lambda path, name: beside(path, f"{name}{next(names)}"))
    # Each would notice that its own charges were lost
    after = Ledger._after
    monkeypatch.setattr(Ledger, "_after", lambda own, content, _: after(own, content, None))
    assert len(charged_by_threads(path)) > 64


SPENDER = """
import sys
from dpjax.accounting import BudgetExceeded, Guarantee, Ledger
path, name, number, share = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
ledger, each = Ledger(path), Guarantee(share, share, "add_remove")
try:
    for k in range(number):
        ledger.charge(each, {"id": f"{name}-{k}"})
        print(f"{name}-{k}", flush=True)
except BudgetExceeded:
    print("refused", flush=True)
"""


class Spender:
    """A process that charges and then prints, and what it printed so far."""

    def __init__(self, path, name, number, share):
        command = [sys.executable, "-c", SPENDER, str(path), name, str(number), str(share)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.printed = []
        self._reader = threading.Thread(
            target=lambda: self.printed.extend(line.strip() for line in self._process.stdout)
        )
        self._reader.start()

    def kill(self, after, delay):
        """Kill it a while after so many lines, or let it end."""
        while len(self.printed) < after and self._process.poll() is None:
            time.sleep(1e-3)
        time.sleep(delay)
        self._process.kill()
        return self.finish()

    def finish(self):
        self._process.wait(timeout=120)
        self._reader.join()
        self._process.stdout.close()
        return self.printed


@pytest.mark.parametrize(
    ("kills", "number", "total"),
    [(3, 30, 64), pytest.param(50, 60, 1024, marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def test_killed_at_any_moment_nothing_is_lost_and_nothing_overspent(path, kills, number, total):
    """Two processes at a time; one of them is killed, and another one takes its place."""
    chosen = random.Random(kills)
    Ledger(path, epsilon=1.0)
    names = itertools.count()
    running = [Spender(path, str(next(names)), number, 1 / total) for _ in range(2)]
    printed = []
    for _ in range(kills):
        victim = running.pop(0)
        printed += victim.kill(chosen.randrange(number // 2), chosen.random() * 5e-3)
        Ledger(path)  # every line can be read
        running.append(Spender(path, str(next(names)), number, 1 / total))
    for spender in running:
        printed += spender.finish()
    seen = [name for name in printed if name != "refused"]
    kept = Ledger(path)
    ids = [entry["what"]["id"] for entry in kept.entries]
    assert len(seen) == len(set(seen)) > kills
    assert len(ids) == len(set(ids)) <= total
    assert set(seen) <= set(ids)
    # At most the charge that was just being made is without a value
    assert len(ids) - len(seen) <= kills
    assert kept.spent == len(ids) / total <= 1
    if len(ids) < total:
        kept.charge(Guarantee(1 / total, 1 / total, "add_remove"))
        assert os.listdir(path.parent) == [path.name]


def test_processes_never_pass_the_total(path):
    Ledger(path, epsilon=1.0)
    spenders = [Spender(path, str(name), 1000, 1 / 64) for name in range(3)]
    printed = [name for spender in spenders for name in spender.finish()]
    assert printed.count("refused") == 3
    assert len(printed) == 64 + 3
    assert sorted(entry["what"]["id"] for entry in Ledger(path).entries) == sorted(
        set(printed) - {"refused"}
    )


def test_whoever_draws_charges_a_budget_if_there_is_one(path):
    charge(None, HALF, {})
    budgets = PrivacyFilter(1.0, 0.0, "add_remove"), Ledger(path, epsilon=1.0)
    for budget in budgets:
        charge(budget, HALF, {"draws": 1})
        assert budget.spent == 0.5
    assert budgets[1].entries[0]["what"] == {"draws": 1}
    with pytest.raises(TypeError, match="a PrivacyFilter or a Ledger"):
        charge(1.0, HALF, {})
