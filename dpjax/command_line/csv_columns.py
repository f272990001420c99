"""Conversion of the cells of a column, one block at a time, to numbers or labels.

Cells are ranges of a block of bytes, and array operations read nearly all of them. Python code
parses one cell per distinct label, and numbers that are neither integers nor short decimals.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from dpjax.command_line.csv_text import Source

# The number of bytes compared at a time, and the longest label compared in this way
_WORD, _LONG = 8, 128
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
# Integers up to this and powers of ten up to 10^22 are exact: their quotient is rounded once, as by
# float()
_EXACT = 2**53
_DIGITS = 18  # the number of decimal digits that an int64 holds
_POWERS = 10.0 ** np.arange(_DIGITS + 1)
_TRIMMED = 32  # the maximal number of blanks removed from either end of a cell by array operations


class Cells(NamedTuple):
    """Cells of a block of bytes; cell i is ``data[starts[i]:stops[i]]``.

    Attributes:
        data: uint8, with eight more bytes at the end.
        starts: int64 ``(n,)``.
        stops: int64 ``(n,)``; a cell that does not exist is empty.
        literal: whether a quote is an ordinary character; otherwise two quotes stand for one, as in
            CSV.
    """

    data: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    literal: bool

    def texts(self, rows: np.ndarray | slice = slice(None)) -> list[str]:
        """Return the text of these cells, without surrounding blanks."""
        return [_text_of(cell, self.literal) for cell in self.raw(rows)]

    def raw(self, rows: np.ndarray | slice) -> list[bytes]:
        """Return the bytes of these cells."""
        data, starts, stops = self.data.data, self.starts[rows].tolist(), self.stops[rows].tolist()
        return [bytes(data[start:stop]) for start, stop in zip(starts, stops, strict=True)]


def _text_of(cell: bytes, literal: bool) -> str:
    text = cell.decode()
    return (text if literal else text.replace('""', '"')).strip()


class Labels(NamedTuple):
    """A column of text, with each distinct label stored once.

    Attributes:
        codes: int32 ``(n,)``, the index of each record's label in ``names``, or -1 if its cell is
            empty.
        names: the labels that occur, sorted.
    """

    codes: np.ndarray
    names: list[str]


class LabelColumn:
    """A builder of a column of labels."""

    def __init__(self) -> None:
        self._words, self._chains = _Numbering(), _Numbering()
        self._names: dict[str, int] = {"": -1}
        # The code of each number of a cell's bytes; -2 if unseen
        self._codes_of = np.full(1, -2, np.int32)
        self._codes = _Growing(np.int32)

    def add(self, cells: Cells) -> None:
        """Append the cells of a block."""
        numbers = self._numbers_of(cells)
        if (most := np.max(numbers, initial=-1)) >= len(self._codes_of):
            self._codes_of = np.concatenate([self._codes_of, np.full(most + 1, -2, np.int32)])
        codes = self._codes_of[numbers]
        codes[numbers < 0] = -2
        if np.any(unseen := codes == -2):
            fresh = np.flatnonzero(unseen & (numbers >= 0))
            seen, places = np.unique(numbers[fresh], return_index=True)
            self._codes_of[seen] = self._named(cells, fresh[places])
            codes = self._codes_of[numbers]
            codes[numbers < 0] = self._named(cells, np.flatnonzero(numbers < 0))
        self._codes.add(codes)

    def labels(self) -> Labels:
        """Return the labels of all blocks."""
        names = sorted(self._names.keys() - {""})
        ranks = np.full(len(names) + 1, -1, np.int32)  # the last entry is for the empty cell
        ranks[[self._names[name] for name in names]] = np.arange(len(names))
        codes = self._codes.taken()
        for start in range(0, len(codes), 2**16):  # in place
            codes[start : start + 2**16] = ranks[codes[start : start + 2**16]]
        return Labels(codes, names)

    def _named(self, cells: Cells, rows: np.ndarray) -> list[int]:
        return [self._names.setdefault(name, len(self._names) - 1) for name in cells.texts(rows)]

    def _numbers_of(self, cells: Cells) -> np.ndarray:
        """Assign numbers to cells, equal if and only if their bytes are equal; long cells get -1.

        The first eight bytes get an even number. The combination of a number and that of the next
        eight bytes gets an odd one.
        """
        # One window at every byte
        windows = np.ndarray((len(cells.data) - _WORD + 1,), "<u8", buffer=cells.data, strides=(1,))

        def words(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:  # cells contain no NUL
            return self._words.of(windows[starts] & _MASKS[np.minimum(lengths, _WORD)])

        lengths = cells.stops - cells.starts
        numbers = 2 * words(cells.starts, lengths)
        rows = np.flatnonzero((lengths > _WORD) & (lengths <= _LONG))
        done = _WORD
        while rows.size:
            pairs = numbers[rows] << 32 | words(cells.starts[rows] + done, lengths[rows] - done)
            numbers[rows] = 2 * self._chains.of(pairs.astype(np.uint64)) + 1
            done += _WORD
            rows = rows[lengths[rows] > done]
        numbers[lengths > _LONG] = -1
        return numbers


def missing_words(source: Source) -> set[str]:
    """Return the words for a missing value, in lower case."""
    return {"", "na", "nan", *(word.strip().lower() for word in source.missing)}


class NumberColumn:
    """A builder of a column of numbers, with NaN for cells that are missing or not numbers.

    A number is any ASCII text without underscores that :class:`float` accepts, including ``inf``
    and exponents.

    Attributes:
        wrong: the number of cells that are neither missing nor numbers.
    """

    def __init__(self, source: Source) -> None:
        self.wrong = 0
        self._values = _Growing(np.float64)
        self._decimal = source.decimal
        marks = (
            "[ \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}]"
            if source.thousands == " "
            else source.thousands
        )
        marks = marks if len(marks) > 1 else re.escape(marks)
        self._grouped = (
            re.compile(rf"[+-]?[0-9]{{1,3}}(?:{marks}[0-9]{{3}})+(?![0-9])") if marks else None
        )
        self._marks = re.compile(marks)
        self._words = missing_words(source)
        read = [self._number(word) for word in self._words]
        self._values_of_words = [
            value for value in read if value is not None and not math.isnan(value)
        ]
        # True if float() reads the format of numbers
        self._plain = source.decimal == "." and not self._values_of_words

    def add(self, cells: Cells) -> None:
        """Append the cells of a block."""
        cells = _trimmed(cells)
        lengths, values = cells.stops - cells.starts, np.full(len(cells.starts), math.nan)
        for length in range(1, _DIGITS + 3):  # with a sign and a decimal mark
            if (rows := np.flatnonzero(lengths == length)).size:
                _read(cells, rows, length, ord(self._decimal), values)
        rest = np.isnan(values)
        for value in self._values_of_words:
            rest |= values == value
        rows = np.flatnonzero(rest & (lengths > 0))
        if rows.size:
            raw = cells.raw(rows)
            read = {cell: self._read_one(cell, cells.literal) for cell in set(raw)}
            found = [read[cell] for cell in raw]
            values[rows] = np.array(found, np.float64)  # None becomes NaN
            self.wrong += found.count(None)
        self._values.add(values)

    def numbers(self) -> np.ndarray:
        """Return the numbers of all blocks, float64."""
        return self._values.taken()

    def _read_one(self, cell: bytes, literal: bool) -> float | None:
        """Return the number in a cell, NaN if it is missing, and None if it is neither."""
        if self._plain and b"_" not in cell:
            try:
                return float(cell)
            except ValueError:  # missing, grouped digits, or not a number
                pass
        text = _text_of(cell, literal)
        return math.nan if text.lower() in self._words else self._number(text)

    def _number(self, text: str) -> float | None:
        """Parse text as a number; None if it is not a number."""
        if self._grouped and (integer := self._grouped.match(text)):
            text = self._marks.sub("", integer[0]) + text[integer.end() :]
        if self._decimal == ",":
            text = text.translate({ord(","): ".", ord("."): "_"})
        try:
            return float(text) if text.isascii() and "_" not in text else None
        except ValueError:
            return None


def _trimmed(cells: Cells) -> Cells:
    """Remove blanks and tabs from both ends of cells, at most ``_TRIMMED`` at each end."""
    data, starts, stops = cells.data, cells.starts, cells.stops
    for ends, offset, step in ((starts, 0, 1), (stops, -1, -1)):
        rows, moved = np.arange(len(starts)), None
        for _ in range(_TRIMMED):
            mark = data[ends[rows] + offset]
            rows = rows[((mark == 32) | (mark == 9)) & (starts[rows] < stops[rows])]
            if not rows.size:
                break
            if moved is None:
                moved = ends = ends.copy()
                starts, stops = (moved, stops) if step == 1 else (starts, moved)
            moved[rows] += step
    return cells._replace(starts=starts, stops=stops)


def _read(cells: Cells, rows: np.ndarray, length: int, decimal: int, values: np.ndarray) -> None:
    """Set the values of cells of this length that are plain numbers.

    These are integers or decimals with exactly represented digits.
    """
    data, starts = cells.data, cells.starts[rows]
    total, other = np.zeros(len(rows), np.int64), np.zeros(len(rows), bool)
    for place in range(length):
        # Other characters wrap around to numbers above 9
        digit = data[starts + place] - np.uint8(48)
        other |= digit > 9
        total = total * 10 + digit
    good = ~other & (length <= _DIGITS)
    values[rows[good]] = total[good]  # rounded once
    rows, starts = rows[other], starts[other]
    if not rows.size:
        return
    sign, total = data[starts], np.zeros(len(rows), np.int64)
    good, point = np.ones(len(rows), bool), np.zeros(len(rows), bool)
    digits, after = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    for place in range(length):
        character = data[starts + place]
        digit = character - np.uint8(48)
        is_digit, is_point = digit <= 9, (character == decimal) & ~point
        # Plus and minus
        good &= is_digit | is_point | (((sign == 43) | (sign == 45)) if place == 0 else False)
        total = np.where(is_digit, total * 10 + digit, total)
        digits += is_digit
        after += is_digit & point
        point |= is_point
    good &= (digits > 0) & (digits <= _DIGITS) & (total <= _EXACT)
    found = total[good] / _POWERS[after[good]]
    values[rows[good]] = np.where(sign[good] == 45, -found, found)


class _Numbering:
    """A map from distinct uint64 keys to consecutive numbers from 0."""

    def __init__(self) -> None:
        self._keys, self._numbers = np.zeros(0, np.uint64), np.zeros(0, np.int64)

    def of(self, keys: np.ndarray) -> np.ndarray:
        """Return the numbers of keys, int64; new keys get the next numbers."""
        if not self._keys.size:
            known = np.zeros(len(keys), bool)
        else:
            places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            known = self._keys[places] == keys
        if not np.all(known):
            fresh = np.unique(keys[~known])
            at = np.searchsorted(self._keys, fresh)
            self._numbers = np.insert(self._numbers, at, len(self._keys) + np.arange(len(fresh)))
            self._keys = np.insert(self._keys, at, fresh)
            places = np.searchsorted(self._keys, keys)
        return self._numbers[places] if keys.size else np.zeros(0, np.int64)


class _Growing:
    """An array that grows in place, so that a column is never copied."""

    def __init__(self, dtype: type) -> None:
        self._array: np.ndarray = np.zeros(0, dtype)
        self._size = 0

    def add(self, part: np.ndarray) -> None:
        if (size := self._size + len(part)) > len(self._array):
            self._array.resize(size + size // 8, refcheck=False)
        self._array[self._size : size] = part
        self._size = size

    def taken(self) -> np.ndarray:
        self._array.resize(self._size, refcheck=False)
        return self._array
