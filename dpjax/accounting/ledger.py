"""A budget in a file, which outlives the process and is shared by all that run at once.

The file has a line of JSON for the totals, which are public, and one more for each charge: when, for what, its guarantee, and what
was left. It is never written in place. A charge holds an exclusive lock on the file, reads it, writes all of it and one line more
beside it, flushes that to the disk and renames it. So at every moment the name leads to a complete file, however a process ends,
and a charge that has returned is on the disk. A release draws only after that: every value that anybody has seen is in the file.

Whoever waits for the lock may get it on a file that has been renamed over. It then no longer is what the name leads to, and the
newer one is opened and locked instead. A lock on the file that the name leads to excludes all others: only its holder renames.

Whether there is room is decided by a :class:`dpjax.accounting.PrivacyFilter` that all lines were charged to. A file that has a line
that cannot be read, or no end, is refused and left as it is: nobody knows what was spent.
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
from dpjax.accounting.filters import PrivacyFilter
from dpjax.accounting.guarantee import Guarantee

_FORMAT, _VERSION = "dpjax ledger", 1
_TOTALS = ("epsilon", "delta", "neighbors", "mechanism_delta")
_ENTRY = {"time", "what", "guarantee", "remaining"}


class Ledger:
    """A budget in a file, charged like a :class:`PrivacyFilter`, by any number of threads and processes on one machine.

    It is kept for as long as the data are: the file holds no data, only what was asked of them. A copy of the file, or another
    hard link to it, is another budget: keep one. Locks are those of ``flock``, which most network file systems do not share.

    Args:
        path: of the file; a symbolic link is followed.
        epsilon: of the whole, positive, to make the file if there is none. A file that is there must have the same totals. Without
            it the file must be there, and has its own totals.
        delta: of the whole, in [0, 1).
        neighbors: the relation.
        mechanism_delta: the part of ``delta`` for the mechanisms' own deltas, such as that of private groups. By default it is half
            of it: what will be asked over the years is not known when the file is made, a ledger without such a part refuses all of
            these mechanisms, and the half that is left costs the others little, about log(2) / log(1/delta) of their zCDP.

    Raises:
        FileNotFoundError: there is no file, and no ``epsilon`` to make one.
        ValueError: a bad total; other totals than those of the file; a file that is no ledger, or a damaged one, which is left as
            it is.

    Privacy:
        All releases that were charged are (epsilon, delta)-DP together, however each was chosen by those before: the guarantee of
        :class:`PrivacyFilter`. A charge is on the disk before it returns, and so before a value is drawn; a process that is killed
        in between has spent more than it released.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "people.ledger")
    >>> Ledger(path, epsilon=1.0).charge(Guarantee(0.75, 0.75, "add_remove"), {"columns": ["age"]})
    >>> ledger = Ledger(path)
    >>> ledger.remaining, ledger.allows(Guarantee(0.5, 0.5, "add_remove")), ledger.entries[0]["what"]
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
                raise ValueError("a ledger that is there has its own totals: give epsilon with the others, or the path alone.")
            self._read()
            return
        whole, failure = checks.concrete_epsilon(epsilon), checks.concrete_fraction("delta", delta)
        reserved = failure / 2 if mechanism_delta is None else checks.concrete_fraction("mechanism_delta", mechanism_delta)
        totals = _totals_of(PrivacyFilter(whole, failure, neighbors, reserved))
        if not os.path.exists(self._path):
            _create(self._path, _line({"format": _FORMAT, "version": _VERSION} | totals))
        own = _totals_of(self._read().filter)
        if own != totals:
            given = ", ".join(f"{name}={value!r}" for name, value in own.items())
            raise ValueError(f"{self._path} is a ledger with other totals, {given}: give these, or the path alone.")

    @property
    def path(self) -> str:
        """The file, after symbolic links."""
        return self._path

    @property
    def totals(self) -> dict[str, Any]:
        """The public totals, by their names: epsilon, delta, neighbors, mechanism_delta."""
        return _totals_of(self._read().filter)

    @property
    def unit(self) -> str:
        """The unit of the guarantees so far, or ``""`` where none states one."""
        return self._read().filter.unit

    @property
    def budget(self) -> float:
        """The sum that charges may come to, as :attr:`PrivacyFilter.budget`: epsilon, or the rho that implies the totals."""
        return self._read().filter.budget

    @property
    def spent(self) -> float:
        """The sum of all charges so far, by all processes, as :attr:`PrivacyFilter.spent`."""
        return self._read().filter.spent

    @property
    def remaining(self) -> float:
        """The part that is left now, as :attr:`PrivacyFilter.remaining`: another process may spend it."""
        return self._read().filter.remaining

    @property
    def entries(self) -> list[dict[str, Any]]:
        """All charges in their order: ``time``, ``what``, ``guarantee`` as :func:`guarantee_of` reads it, and ``remaining``."""
        return [json.loads(line) for line in self._read().content.split(b"\n")[1:-1]]

    def allows(self, guarantee: Guarantee | Composition) -> bool:
        """Return whether there is room for it now. The answer depends on costs, not on data."""
        return self._read().filter.allows(guarantee)

    def charge(self, guarantee: Guarantee | Composition, what: Mapping[str, Any] | None = None) -> None:
        """Charge a mechanism, before it runs. The charge is on the disk when this returns.

        Args:
            guarantee: what it costs.
            what: what it is for, written down as JSON: numbers, text and lists as they are, and anything else as its text.

        Raises:
            BudgetExceeded: there is no room for it; nothing was charged.
            ValueError: another relation or unit, a promise that this budget cannot charge, or a file that cannot be read.
            OSError: the file could not be written. Draw nothing; only if the disk failed at the very end it may be charged.
        """
        described = _plain({} if what is None else what)
        with _locked(self._path) as (content, mode):
            state = self._after(content)
            after = copy.deepcopy(state.filter)
            after.charge(guarantee)
            cost = json.loads(guarantee.to_json())
            now = datetime.now(UTC).isoformat(timespec="seconds")
            line = _line({"time": now, "what": described, "guarantee": cost, "remaining": after.remaining})
            _entry_of(line[:-1])  # a line that could not be read again would close the ledger for good
            _replace(self._path, content + line, mode)
            self._state = _State(content + line, after)

    def __repr__(self) -> str:
        try:
            state = self._read()
        except (OSError, ValueError) as error:
            return f"Ledger(unreadable: {error})"
        totals = ", ".join(f"{name}={value!r}" for name, value in _totals_of(state.filter).items())
        return f"Ledger({left_text(state.filter)}, {totals}, path={self._path!r})"

    def _read(self) -> _State:
        """Return what the file says now. It needs no lock: the name always leads to a complete file."""
        with _opened(self._path, "rb") as file:
            self._state = state = self._after(file.read())
        return state

    def _after(self, content: bytes) -> _State:
        """Return the filter that all lines were charged to; of lines that are known already nothing is computed again."""
        known = self._state
        if known is not None and content == known.content:
            return known
        if known is not None and content.startswith(known.content):
            seen, spent = known.content, copy.deepcopy(known.filter)
        else:
            end = content.find(b"\n") + 1
            seen = content[:end]
            try:
                spent = _filter_of(seen[:-1])
            except _UNREADABLE as error:
                self._refuse(1, error)
            if known is not None and _totals_of(spent) != _totals_of(known.filter):
                raise ValueError(f"{self._path} has other totals than when it was opened: it is another ledger.")
        *lines, rest = content[len(seen) :].split(b"\n")
        number = seen.count(b"\n")
        for line in lines:
            number += 1
            try:
                guarantee = guarantee_of(_entry_of(line))
                spent._sums.add(spent._sums.costs(guarantee), guarantee.unit)  # it was admitted when it was written
            except _UNREADABLE as error:
                self._refuse(number, error)
        if rest:
            self._refuse(number + 1, ValueError("it has no end"))
        return _State(content, spent)

    def _refuse(self, line: int, error: Exception) -> NoReturn:
        raise ValueError(
            f"{self._path} is no ledger of dpjax, or a damaged one, in line {line} ({error}): nothing is charged, and the file is "
            "left as it is."
        ) from error


Budget = PrivacyFilter | Ledger


def charge(budget: Budget | None, guarantee: Guarantee | Composition, what: Mapping[str, Any]) -> None:
    """Charge a budget, if there is one, for what is drawn next: call it after all checks and before any draw.

    Raises:
        BudgetExceeded: there is no room for it; nothing was charged.
        TypeError: ``budget`` is something else.
    """
    if budget is None:
        return
    if not isinstance(budget, Budget):
        hint = ": give Ledger(path, ...)" if isinstance(budget, str | os.PathLike) else ""
        raise TypeError(f"budget must be a PrivacyFilter or a Ledger of dpjax.accounting, got {type(budget).__name__}{hint}.")
    budget.charge(guarantee, what)


def guarantee_of(entry: Mapping[str, Any]) -> Guarantee | Composition:
    """Return the guarantee of one of :attr:`Ledger.entries`."""
    given = entry["guarantee"]
    if isinstance(given, dict):
        return Guarantee.from_dict(given)
    return Composition(tuple((Guarantee.from_dict(part), count) for part, count in given))


def left_text(budget: Budget) -> str:
    """Return the words for what is left.

    >>> left_text(PrivacyFilter(1.0, 0.0, "swap"))
    'remaining epsilon 1 of 1'
    """
    spent = budget._read().filter if isinstance(budget, Ledger) else budget
    if not spent._budgets:
        return f"remaining epsilon {spent.remaining:g} of {spent.budget:g}"
    left = max(spent.epsilon - spent._sums.totals()[0], 0.0)
    rho = f"{'rho' if not spent.orders else 'divergence'} {spent.remaining:g} of {spent.budget:g}"
    return f"remaining epsilon {left:g} of {spent.epsilon:g} by their sum, or {rho}"


class _State(NamedTuple):
    """The content of a file, and the filter that all its lines were charged to."""

    content: bytes
    filter: PrivacyFilter


_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


def _totals_of(budget: PrivacyFilter) -> dict[str, Any]:
    return {name: getattr(budget, name) for name in _TOTALS}


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, allow_nan=False).encode("ascii") + b"\n"


def _parsed(line: bytes, names: set[str]) -> dict[str, Any]:
    """Return the object of a line, which has these names and no others."""
    found = json.loads(line.decode("ascii"), parse_constant=_no_constant)
    if not isinstance(found, dict) or set(found) != names:
        raise ValueError("it does not have the names that a ledger has")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _filter_of(line: bytes) -> PrivacyFilter:
    """Return the filter of the totals in the first line, to which nothing was charged."""
    found = _parsed(line, {"format", "version", *_TOTALS})
    if found["format"] != _FORMAT:
        raise ValueError("it has another format")
    if found["version"] != _VERSION:
        raise ValueError(f"it has the version {found['version']!r} of another version of dpjax")
    return PrivacyFilter(*(found[name] for name in _TOTALS))


def _entry_of(line: bytes) -> dict[str, Any]:
    """Return the charge in a line."""
    found = _parsed(line, _ENTRY)
    datetime.fromisoformat(found["time"])
    if not isinstance(found["what"], dict) or not isinstance(found["remaining"], float):
        raise ValueError("it is no charge")
    return found


@contextlib.contextmanager
def _locked(path: str) -> Iterator[tuple[bytes, int]]:
    """Hold the exclusive lock on the file that the path leads to, and give its content and its mode."""
    import fcntl  # which Windows does not have

    while True:
        with _opened(path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                status = os.fstat(file.fileno())
                if os.path.samestat(status, os.stat(path)):  # else another process has renamed a newer one over it
                    yield file.read(), stat.S_IMODE(status.st_mode)
                    return
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # a forked child may hold the same open file for longer


def _opened(path: str, mode: str) -> Any:
    """Open a file that is there, and no device or pipe."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError(f"{path} is no ledger of dpjax: it is not a file.")
        return open(path, mode)
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, "there is no ledger here; to make one, give epsilon", path) from error


def _create(path: str, content: bytes) -> None:
    """Make the file with this content, unless it is there by then."""
    temporary = _beside(path, secrets.token_hex(8))
    try:
        _write(temporary, content, None)
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        _remove(temporary)
    _sync_folder(path)


def _replace(path: str, content: bytes, mode: int) -> None:
    """Rename a file with this content and mode over it, after both are on the disk; for the holder of the lock."""
    temporary = _beside(path, "next")
    _remove(temporary)  # of a process that was killed
    try:
        _write(temporary, content, mode)
        os.replace(temporary, path)
    except BaseException:
        _remove(temporary)
        raise
    _sync_folder(path)


def _beside(path: str, name: str) -> str:
    folder, own = os.path.split(path)
    return os.path.join(folder, f".{own}.{name}.tmp")


def _write(path: str, content: bytes, mode: int | None) -> None:
    """Write a new file to the disk, with the mode that new files have by default."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600), "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sync_folder(path: str) -> None:
    """Write the names in a folder to the disk."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _plain(value: Any) -> Any:
    """Return anything as what JSON knows: numbers, text, lists and objects as they are, and the rest as its text."""
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
