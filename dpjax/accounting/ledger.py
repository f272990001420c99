"""A privacy budget in a file, which outlives a process and can be shared by several.

The file has one line of JSON for the totals, which are public, and one for each charge: its time,
its purpose, its guarantee, and the remaining budget. The file is never modified in place. A charge
takes an exclusive lock on the file, reads it, writes its lines and a new one to a temporary file in
the same folder, flushes that to the disk and renames it over the ledger. So the path refers to a
complete file at all times, even if a process is killed, and a charge that has returned is on the
disk. A release draws only after that: every released value is recorded in the file.

A process that waited for the lock may obtain it on a file that has been replaced meanwhile. It then
opens and locks the newer file instead. Only the process that holds the lock on the current file
replaces it.

Whether a charge fits is decided by a :class:`dpjax.accounting.PrivacyFilter` that all lines are
charged to. A file with an unreadable or incomplete line is refused and left unchanged, since the
budget spent is unknown.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Set
from datetime import UTC, date, datetime, time
from typing import Any, NamedTuple, NoReturn

import numpy as np

from dpjax import checks
from dpjax.accounting.composition import Composition
from dpjax.accounting.filters import PrivacyFilter, columns_of, remaining_text
from dpjax.accounting.guarantee import Guarantee

_FORMAT, _VERSION = "dpjax ledger", 1
_TOTALS = ("epsilon", "delta", "neighbors", "mechanism_delta")
_ENTRY = {"time", "what", "guarantee", "remaining"}


class Ledger:
    """A :class:`PrivacyFilter` in a file, which threads and processes on one machine can share.

    Keep the file as long as the data. It contains no data, only a record of the releases. A copy of
    the file, or another hard link to it, would be a separate budget: keep only one. Locking uses
    ``flock``, which most network file systems do not support.

    Args:
        path: the path of the file; symbolic links are followed.
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
        FileNotFoundError: the file does not exist, and ``epsilon`` is not given.
        ValueError: a total is out of range or differs from that in the file, or the file is not a
            ledger or is damaged. The file is left unchanged.

    Privacy:
        All releases that were charged are together (epsilon, delta)-DP, even if each was chosen
        after seeing the previous ones: the guarantee of :class:`PrivacyFilter`. A charge is on the
        disk before it returns, and so before a value is drawn; if the process is killed in between,
        the ledger has spent more than was released. Guarantees for persons must all name one
        column (``what["unit"]``, as :func:`dpjax.frames.release` does), since a promise for riders
        and one for drivers are together a promise for neither. An object refuses a file without
        the charges that it has seen.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "people.ledger")
    >>> Ledger(path, epsilon=1.0).charge(Guarantee(0.75, 0.75, "add_remove"), {"columns": ["age"]})
    >>> ledger = Ledger(path)
    >>> each = Guarantee(0.5, 0.5, "add_remove")
    >>> ledger.remaining, ledger.allows(each), ledger.entries[0]["what"]
    (0.25, False, {'columns': ['age']})
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
        self._path = os.path.realpath(os.fsdecode(path))
        self._state: _State | None = None
        if epsilon is None:
            if (delta, neighbors, mechanism_delta) != (0.0, "add_remove", None):
                raise ValueError(
                    "delta, neighbors and mechanism_delta need epsilon: give it too, or the path "
                    "alone to open an existing ledger."
                )
            self._read()
            return
        total_epsilon, failure = (
            checks.concrete_epsilon(epsilon),
            checks.concrete_fraction("delta", delta),
        )
        reserved = (
            failure / 2
            if mechanism_delta is None
            else checks.concrete_fraction("mechanism_delta", mechanism_delta)
        )
        totals = _totals_of(PrivacyFilter(total_epsilon, failure, neighbors, reserved))
        if not os.path.exists(self._path):
            _create(self._path, _line({"format": _FORMAT, "version": _VERSION} | totals))
        file_totals = _totals_of(self._read().filter)
        if file_totals != totals:
            shown = ", ".join(f"{name}={value!r}" for name, value in file_totals.items())
            raise ValueError(
                f"{self._path} is a ledger with other totals, {shown}: give these, or the path "
                "alone."
            )

    @property
    def path(self) -> str:
        """The path of the file, with symbolic links resolved."""
        return self._path

    @property
    def totals(self) -> dict[str, Any]:
        """The public totals by name: epsilon, delta, neighbors, mechanism_delta."""
        return _totals_of(self._read().filter)

    @property
    def unit(self) -> str:
        """The unit of the guarantees so far, or ``""`` if none states one."""
        return self._read().filter.unit

    @property
    def budget(self) -> float:
        """The total budget, as :attr:`PrivacyFilter.budget`.

        It is epsilon, or the rho that implies the totals.
        """
        return self._read().filter.budget

    @property
    def spent(self) -> float:
        """The sum of all charges so far, by all processes, as :attr:`PrivacyFilter.spent`."""
        return self._read().filter.spent

    @property
    def remaining(self) -> float:
        """The remaining budget, as :attr:`PrivacyFilter.remaining`.

        Another process may spend it at any time.
        """
        return self._read().filter.remaining

    @property
    def entries(self) -> list[dict[str, Any]]:
        """All charges in order.

        They are dictionaries with ``time``, ``what``, ``guarantee`` and ``remaining``.
        """
        return [json.loads(line) for line in self._read().content.split(b"\n")[1:-1]]

    def allows(
        self, guarantee: Guarantee | Composition, what: Mapping[str, Any] | None = None
    ) -> bool:
        """Return whether a guarantee fits into the remaining budget; see :meth:`charge`.

        The answer depends on costs, not on data.
        """
        return self._read().filter.allows(guarantee, None if what is None else _plain(what))

    def charge(
        self, guarantee: Guarantee | Composition, what: Mapping[str, Any] | None = None
    ) -> None:
        """Charge a mechanism, before it runs. The charge is on the disk when this returns.

        Args:
            guarantee: the cost of the mechanism.
            what: a public description, recorded as JSON; values that JSON does not have are
                converted to text.

        Raises:
            BudgetExceeded: the cost exceeds the remaining budget; nothing was charged.
            ValueError: the relation or unit differs, the persons are those of another column, the
                guarantee lacks a promise of the kind that is charged, or the file is damaged or was
                replaced.
            OSError: the file could not be written: do not draw. It was charged at most if the last
                step, syncing the folder, failed.
        """
        described = _plain({} if what is None else what)
        known = self._state
        with _locked(self._path) as (content, mode):
            state = self._after(content, known)
            after = copy.deepcopy(state.filter)
            after.charge(guarantee, described)
            cost = json.loads(guarantee.to_json())
            now = datetime.now(UTC).isoformat(timespec="seconds")
            line = _line(
                {"time": now, "what": described, "guarantee": cost, "remaining": after.remaining}
            )
            _entry_of(line[:-1])  # an unreadable line would make the ledger unusable
            _replace(self._path, content + line, mode)
            self._remember(_State(content + line, after))

    def __repr__(self) -> str:
        try:
            state = self._read()
        except (OSError, ValueError) as error:
            return f"Ledger(unreadable: {error})"
        totals = ", ".join(f"{name}={value!r}" for name, value in _totals_of(state.filter).items())
        return f"Ledger({left_text(state.filter)}, {totals}, path={self._path!r})"

    def _read(self) -> _State:
        """Return the current state.

        This needs no lock, as the path always refers to a complete file.
        """
        known = self._state  # before the file is read, as another thread may charge meanwhile
        with _opened(self._path, "rb") as file:
            state = self._after(file.read(), known)
        self._remember(state)
        return state

    def _remember(self, state: _State) -> None:
        """Keep the longest state, which every later content of the file must begin with."""
        known = self._state
        if known is None or len(known.content) < len(state.content):
            self._state = state

    def _after(self, content: bytes, known: _State | None) -> _State:
        """Return the content and the filter that its lines are charged to.

        Lines that were known before the content was read are not parsed again, and must be there.
        """
        if known is not None and content == known.content:
            return known
        replaced = known is not None and not content.startswith(known.content)
        if known is not None and not replaced:
            seen, spent = known.content, copy.deepcopy(known.filter)
        else:
            end = content.find(b"\n") + 1
            seen = content[:end]
            try:
                spent = _filter_of(seen[:-1])
            except _UNREADABLE as error:
                self._refuse(1, error)
            if known is not None and _totals_of(spent) != _totals_of(known.filter):
                raise ValueError(
                    f"{self._path} has other totals than when it was opened: it was replaced by "
                    "another ledger."
                )
        *lines, rest = content[len(seen) :].split(b"\n")
        line_number = seen.count(b"\n")
        for line in lines:
            line_number += 1
            try:
                entry = _entry_of(line)
                guarantee = guarantee_of(entry)
                # Not refused, as it was admitted when it was written
                costs, columns = spent._sums.costs(guarantee), columns_of(guarantee, entry["what"])
                spent._sums.add(costs, guarantee.unit, columns, charged=False)
            except _UNREADABLE as error:
                self._refuse(line_number, error)
        if rest:
            self._refuse(line_number + 1, ValueError("the line is incomplete"))
        if replaced:
            raise ValueError(
                f"{self._path} lacks charges that this object has seen: it was replaced, by an "
                "older copy or by another ledger. Nothing was charged, and the file was left "
                "unchanged; open it anew if that is intended."
            )
        return _State(content, spent)

    def _refuse(self, line: int, error: Exception) -> NoReturn:
        raise ValueError(
            f"{self._path} is not a dpjax ledger, or is damaged, at line {line} ({error}): nothing "
            "was charged, and the file was left unchanged."
        ) from error


Budget = PrivacyFilter | Ledger


def charge(
    budget: Budget | None, guarantee: Guarantee | Composition, what: Mapping[str, Any]
) -> None:
    """Charge a budget, if it is not None. Call this after all checks and before any draw.

    Raises:
        BudgetExceeded: the cost exceeds the remaining budget; nothing was charged.
        TypeError: ``budget`` is neither a filter nor a ledger.
    """
    if budget is None:
        return
    if not isinstance(budget, Budget):
        hint = ": pass Ledger(path, ...)" if isinstance(budget, str | os.PathLike) else ""
        raise TypeError(
            "budget must be a PrivacyFilter or a Ledger of dpjax.accounting, got "
            f"{type(budget).__name__}{hint}."
        )
    budget.charge(guarantee, what)


def guarantee_of(entry: Mapping[str, Any]) -> Guarantee | Composition:
    """Return the guarantee of one of :attr:`Ledger.entries`."""
    recorded = entry["guarantee"]
    if isinstance(recorded, dict):
        return Guarantee.from_dict(recorded)
    return Composition(tuple((Guarantee.from_dict(part), count) for part, count in recorded))


def left_text(budget: Budget) -> str:
    """Return a text of the remaining budget.

    >>> left_text(PrivacyFilter(1.0, 0.0, "swap"))
    'remaining epsilon 1 of 1'
    """
    return remaining_text(budget._read().filter if isinstance(budget, Ledger) else budget)


class _State(NamedTuple):
    """The content of a ledger file, and the filter that all its lines are charged to.

    Attributes:
        content: the whole file.
        filter: all lines are charged to it.
    """

    content: bytes
    filter: PrivacyFilter


_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


def _totals_of(budget: PrivacyFilter) -> dict[str, Any]:
    return {name: getattr(budget, name) for name in _TOTALS}


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, allow_nan=False).encode("ascii") + b"\n"


def _parsed(line: bytes, names: set[str]) -> dict[str, Any]:
    """Return the JSON object of a line.

    Raise ``ValueError`` if its names are not exactly ``names``.
    """
    found = json.loads(line.decode("ascii"), parse_constant=_no_constant)
    if not isinstance(found, dict) or set(found) != names:
        raise ValueError("the names in the line are not those of a ledger")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _filter_of(line: bytes) -> PrivacyFilter:
    """Return a new filter with the totals in the first line."""
    found = _parsed(line, {"format", "version", *_TOTALS})
    if found["format"] != _FORMAT:
        raise ValueError("the format is not that of a ledger")
    if found["version"] != _VERSION:
        raise ValueError(
            f"the format version {found['version']!r} is that of another version of dpjax"
        )
    return PrivacyFilter(*(found[name] for name in _TOTALS))


def _entry_of(line: bytes) -> dict[str, Any]:
    """Parse and validate a line with a charge."""
    found = _parsed(line, _ENTRY)
    datetime.fromisoformat(found["time"])
    if not isinstance(found["what"], dict) or not isinstance(found["remaining"], float):
        raise ValueError("the line is not a charge")
    return found


@contextlib.contextmanager
def _locked(path: str) -> Iterator[tuple[bytes, int]]:
    """Hold an exclusive lock on the current file, and yield its content and its permission bits."""
    import fcntl  # not available on Windows

    while True:
        with _opened(path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                status = os.fstat(file.fileno())
                # Otherwise another process has replaced it
                if os.path.samestat(status, os.stat(path)):
                    yield file.read(), stat.S_IMODE(status.st_mode)
                    return
            finally:
                # Unlocked explicitly, as a forked child may keep the file open.
                fcntl.flock(file, fcntl.LOCK_UN)


def _opened(path: str, mode: str) -> Any:
    """Open an existing regular file; raise ``ValueError`` for a device or pipe."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError(f"{path} is not a dpjax ledger: it is not a regular file.")
        return open(path, mode)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            error.errno, "there is no ledger at this path; give epsilon to create one", path
        ) from error


def _create(path: str, content: bytes) -> None:
    """Create the file with this content, unless it exists by then."""
    temporary = _beside(path, secrets.token_hex(8))
    try:
        _write(temporary, content, None)
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        _remove(temporary)
    _sync_folder(path)


def _replace(path: str, content: bytes, mode: int) -> None:
    """Replace the file atomically by one with this content and mode. The caller holds the lock."""
    temporary = _beside(path, "next")
    _remove(temporary)  # left by a process that was killed
    try:
        _write(temporary, content, mode)
        os.replace(temporary, path)
    except BaseException:
        _remove(temporary)
        raise
    _sync_folder(path)


def _beside(path: str, name: str) -> str:
    folder, file_name = os.path.split(path)
    return os.path.join(folder, f".{file_name}.{name}.tmp")


def _write(path: str, content: bytes, mode: int | None) -> None:
    """Write a new file and flush it to the disk; if ``mode`` is None, with default permissions."""
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600), "wb"
    ) as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sync_folder(path: str) -> None:
    """Flush the directory entries of a folder to the disk."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _plain(value: Any) -> Any:
    """Convert a value to types that JSON has: numbers, text, lists and objects.

    Anything else to text.
    """
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)
    if isinstance(value, np.ndarray):
        value = list(value) if value.ndim else value[()]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, Set):
        return sorted((_plain(part) for part in value), key=str)
    if isinstance(value, (list, tuple, range)):
        return [_plain(part) for part in value]
    if isinstance(value, (date, time)):
        return value.isoformat()
    return str(value)
