"""A privacy budget in a file, which outlives a process and can be shared by several.

The file is an SQLite database. A charge is one transaction, which holds the lock for writing while
it reads what was charged and adds its own: whatever is killed, the file has all of a charge or
nothing of it, and a charge that has returned is on the disk (``synchronous = extra``). A release
draws only after that: every released value is recorded in the file.

A file that cannot be read completely is refused and left unchanged, since the budget spent is
unknown.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Callable
from datetime import UTC, datetime
from errno import ENOENT
from typing import TYPE_CHECKING, Any, TypeVar

from dpjax import checks
from dpjax.accounting.filters import Described, PrivacyFilter, Spent, column_of
from dpjax.accounting.guarantee import Composition, Cost, Guarantee

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
_TABLES = (  # as SQLite keeps them
    "CREATE TABLE totals (epsilon, delta, neighbors, mechanism_delta)",
    "CREATE TABLE charges (time, part, persons, what, guarantee, remaining)",
)
_UNREADABLE = (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)


class Ledger(PrivacyFilter):
    """A :class:`PrivacyFilter` in a file, which threads and processes on one machine can share.

    Keep the file as long as the data. It contains no data, only a record of the releases, which
    ``sqlite3`` shows, too. A copy of the file would be a separate budget, and another hard link to
    it is not safe: keep only one. After a process was killed, there may be a journal of SQLite
    beside it, which belongs to it until the ledger is used again. Most network file systems do not
    lock files reliably. Fork processes before the first draw or charge, or spawn them: a process
    that was forked from one with running threads, those of Polars among them, may wait for ever.

    Args:
        path: the path of the file; ``~`` is the home, and symbolic links are followed.
        epsilon: of all mechanisms together, positive: the file is created if there is none, and an
            existing file must have the same totals. Without ``epsilon`` the file must exist, and
            its totals are used.
        delta: of all mechanisms together, in [0, 1).
        neighbors: the neighbor relation of all guarantees.
        mechanism_delta: the part of ``delta`` that is reserved for the mechanisms' own deltas, such
            as that of private groups; by default half of it. Without such a part a ledger would
            refuse all of these mechanisms, which may be needed later, and halving delta costs the
            others little, about log(2) / log(1/delta) of their zCDP.

    Raises:
        FileNotFoundError: there is no such folder, or no file and ``epsilon`` is not given.
        OSError: the file cannot be opened, or another process kept it locked for a minute.
        ValueError: a total is out of range or differs from that in the file, or the file is not a
            ledger, or is damaged. The file is left unchanged.

    Privacy:
        All releases that were charged are together (epsilon, delta)-DP, even if each was chosen
        after seeing the previous ones: the guarantee of :class:`PrivacyFilter`. A charge is on the
        disk before it returns, and so before a value is drawn; if the process is killed in between,
        the ledger has spent more than was released. Guarantees for persons must all name one
        column (``what["unit"]``, as :func:`dpjax.frames.release` does), since a promise for riders
        and one for drivers are together a promise for neither.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "people.ledger")
    >>> Ledger(path, epsilon=1.0).charge(Guarantee(0.75, 0.75, "add_remove"), {"columns": ["age"]})
    >>> ledger = Ledger(path)
    >>> ledger.noted("March").charge(Guarantee(0.125, 0.125, "add_remove"))
    >>> ledger.left, [entry["what"] for entry in ledger.entries]
    ({'epsilon': 0.125}, [{'columns': ['age']}, {'note': 'March'}])
    >>> print(ledger)
    remaining epsilon 0.125 of 1 (1 more like the last charge)
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        epsilon: float | None = None,
        delta: float = 0.0,
        neighbors: str = "add_remove",
        mechanism_delta: float | None = None,
    ) -> None:
        self.path = os.path.realpath(os.path.expanduser(os.fsdecode(path)))
        self._said: dict[str, Any] = {}
        if not os.path.isdir(folder := os.path.dirname(self.path)):
            raise FileNotFoundError(ENOENT, "there is no such folder", folder)
        if epsilon is not None:
            failure = checks.concrete_fraction("delta", delta)
            reserved = failure / 2 if mechanism_delta is None else mechanism_delta
            super().__init__(epsilon, failure, neighbors, reserved)
            if not os.path.exists(self.path):
                self._create()
            self._now()
        elif (delta, neighbors, mechanism_delta) == (0.0, "add_remove", None):
            super().__init__(**self._transaction(self._read).totals)
        else:
            raise ValueError(
                "delta, neighbors and mechanism_delta need epsilon: give it too, or the path "
                "alone to open an existing ledger."
            )

    def __str__(self) -> str:
        text, entries = super().__str__(), self.entries
        if not entries:
            return text
        last = self._with("_part", entries[-1]["part"])
        return f"{text} ({last.times(entries[-1]['guarantee'])} more like the last charge)"

    @property
    def entries(self) -> list[dict[str, Any]]:
        """All charges in order, also those of parts.

        They are dictionaries with ``time``, ``part`` (``""`` for everyone), ``what``,
        ``guarantee`` and ``remaining``.
        """
        query = "select time, part, what, guarantee, remaining from charges order by rowid"
        rows = self._transaction(lambda file: file.execute(query).fetchall())
        return [
            {
                "time": time,
                "part": part,
                "what": json.loads(what),
                "guarantee": _guarantee(text),
                "remaining": remaining,
            }
            for time, part, what, text, remaining in rows
        ]

    def noted(self, note: str | None = None, **facts: Any) -> Ledger:
        """Return the same ledger, which adds a note to what it says of each of its charges.

        Args:
            note: public, such as the month of a release.
            facts: other public facts by name, such as the name of a file.
        """
        noted = {} if note is None else {"note": note}
        return self._with("_said", self._said | facts | noted)

    def charge(self, guarantee: Cost, what: Described = None) -> None:
        """Charge a mechanism, before it runs. The charge is on the disk when this returns.

        Args:
            guarantee: the cost of the mechanism.
            what: a public description, recorded as JSON; values that JSON does not have are
                converted to text.

        Raises:
            BudgetExceeded: the cost exceeds the remaining budget; nothing was charged.
            ValueError: the relation or unit differs, the persons are those of another column, the
                guarantee lacks a promise of the kind that is charged, or the file is damaged or was
                replaced by a ledger with other totals.
            OSError: the file could not be written: do not draw. It was charged at most if the last
                step, syncing the folder, failed.
        """
        described = json.dumps({**(what or {}), **self._said}, default=str)

        def add(file: sqlite3.Connection) -> None:
            spent = self._spent_in(file)
            self._admit(spent, guarantee, what)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            column, left = column_of(guarantee, what), self._left(spent)[self._kind]
            row = (now, self._part, column, described, guarantee.to_json(), left)
            file.execute("insert into charges values (?, ?, ?, ?, ?, ?)", row)

        self._transaction(add, "immediate")

    def _now(self) -> Spent:
        return self._transaction(self._spent_in)

    def _transaction(self, work: Callable[[sqlite3.Connection], T], lock: str = "deferred") -> T:
        """Return what ``work`` returns; if it raises, the file stays as it is."""
        import sqlite3  # which some builds of Python lack

        creates = lock == "exclusive"
        if not (creates or os.path.isfile(self.path)):
            raise FileNotFoundError(
                ENOENT, "there is no ledger; a total epsilon makes it", self.path
            )
        place = f"{pathlib.Path(self.path).as_uri()}?mode={'rwc' if creates else 'rw'}"
        try:
            opened = sqlite3.connect(place, timeout=60, isolation_level=None, uri=True)
            # The connection itself commits or rolls back, which no interrupt can come between
            with contextlib.closing(opened) as file, file:
                file.execute("pragma synchronous = extra")
                file.execute(f"begin {lock}")
                return work(file)
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 11)  # none for a text
            if code in (1, 11, 26):  # the last one is that of no database
                raise self._damaged(error) from error
            raise OSError(f"{self.path} cannot be used ({error}): nothing may be drawn.") from error

    def _create(self) -> None:
        """Make a file, unless another process just did; it has its tables once it has its name."""
        made = pathlib.Path(f"{self.path}.{os.urandom(8).hex()}")

        def make(file: sqlite3.Connection) -> None:
            for table in _TABLES:
                file.execute(table)
            file.execute("insert into totals values (?, ?, ?, ?)", [*self.totals.values()])

        self._with("path", made)._transaction(make, "exclusive")
        with contextlib.suppress(FileExistsError):
            try:
                os.link(made, self.path)
            except OSError:  # it exists, or this file system has no links
                with open(self.path, "xb") as file:
                    file.write(made.read_bytes())
        made.unlink()

    def _spent_in(self, file: sqlite3.Connection) -> Spent:
        """Return the sums of all charges to the totals of this ledger."""
        found = self._read(file)
        if found.totals != self.totals:
            raise ValueError(
                f"{self.path} is a ledger with other totals, those of {found!r}: give these, or "
                "the path alone."
            )
        return found._now()

    def _read(self, file: sqlite3.Connection) -> PrivacyFilter:
        """Return a filter of all charges; raise ``ValueError`` unless all of them can be read."""
        try:
            tables = file.execute("select sql from sqlite_master").fetchall()
            if tables != [(table,) for table in _TABLES]:  # a trigger or a key could undo charges
                raise ValueError("its tables are others")
            found = PrivacyFilter(*file.execute("select * from totals").fetchone())
            for part, column, text, count in file.execute(
                "select part, persons, guarantee, count(*) from charges "
                "group by part, persons, guarantee"
            ):
                if not (isinstance(part, str) and isinstance(column, str)):
                    raise ValueError("a name is no text")
                guarantee = count * _guarantee(text)
                found._now().add(part, found._costs(guarantee), guarantee.unit, column)
        except _UNREADABLE as error:
            raise self._damaged(error) from error
        return found

    def _damaged(self, error: Exception) -> ValueError:
        return ValueError(
            f"{self.path} is not a dpjax ledger, or is damaged ({error}): nothing was charged, and "
            "the file was left unchanged."
        )


def _guarantee(text: str) -> Cost:
    return (Composition if text.startswith("[") else Guarantee).from_json(text)
