"""Labels of groups, and their order.

The public dtype of a column determines the labels that it can hold.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

DIGITS = 38  # the maximal number of digits of decimals in all engines
_CLASSES: dict[str, tuple[type, ...]] = {  # the classes of labels, by the name of a dtype
    "number": (Real, Decimal),
    "String": (str,),
    "Boolean": (bool,),
    "Binary": (bytes,),
    "Date": (datetime.date,),
    "Datetime": (datetime.datetime,),
    "Duration": (datetime.timedelta,),
    "Time": (datetime.time,),
}


def public_labels(
    groups: Iterable[Any], by: Sequence[str], kinds: Sequence[str]
) -> tuple[list[Any], list[list[Any]]]:
    """Return the caller's labels in the columns' dtypes, and for each column as they are shown.

    Args:
        groups: labels, tuples for several columns.
        by: the names of the columns.
        kinds: the kinds of the columns, by dtype.

    Raises:
        TypeError: ``groups`` is a text instead of a list of labels.
        ValueError: the dtype of a column cannot hold a label, or a label occurs twice.
    """
    if isinstance(groups, str | bytes):
        raise TypeError(
            f"groups must be a list of labels, such as [{groups!r}]; got {groups!r}, whose letters "
            "would be the groups."
        )
    labels, several = list(groups), len(by) > 1
    for label in labels if several else ():
        if isinstance(label, str) or not hasattr(label, "__len__") or len(label) != len(by):
            raise ValueError(
                f"groups by {', '.join(map(str, by))} must be tuples of {len(by)} labels, got "
                f"{label!r}."
            )
    parts = (
        [[label[place] for label in labels] for place in range(len(by))] if several else [labels]
    )
    if any(is_missing(part) for column in parts for part in column):
        raise ValueError("groups must not contain None or NaN, as missing labels are in no group.")
    pairs = [
        _as_in(part, kind, column) for part, kind, column in zip(parts, kinds, by, strict=True)
    ]
    names = joined([matched for matched, _ in pairs])
    if len(set(names)) < len(names):
        raise ValueError(
            "groups contains "
            f"{next(name for index, name in enumerate(names) if name in names[:index])!r} twice."
        )
    return names, [shown for _, shown in pairs]


def joined(parts: Sequence[list[Any]]) -> list[Any]:
    """Return one label per entry of several columns, a tuple if there are several.

    None if one is missing.
    """
    if len(parts) == 1:
        return parts[0]
    return [None if None in label else label for label in zip(*parts, strict=True)]


def _as_in(labels: list[Any], kind: str, column: str) -> tuple[list[Any], list[Any]]:
    """Return labels in the dtype of a column of this kind, and as they are shown."""
    if any(issubclass(each, np.generic) for each in set(map(type, labels))):
        labels = [_plain(label) if isinstance(label, np.generic) else label for label in labels]
    if kind == "text":
        labels = [str(label) for label in labels]
        return labels, labels
    sort = "number" if kind.startswith("Float") else kind
    wrong = {
        each
        for each in set(map(type, labels))
        if not issubclass(each, _CLASSES.get(sort, (object,)))
    }
    wrong |= {
        each
        for each in set(map(type, labels))
        if kind == "Date" and issubclass(each, datetime.datetime)
    }
    if wrong:
        holds = {"number": "numbers", "String": "text"}.get(sort, f"the dtype {kind}")
        raise ValueError(
            f"column {column!r} holds {holds}, so no group is "
            f"{next(x for x in labels if type(x) in wrong)!r}."
        )
    shown = labels
    if sort == "number" and (
        len(set(map(type, labels))) > 1
        or any(isinstance(x, int) and not -(2**63) <= x < 2**63 for x in labels)
    ):
        try:
            shown = list(map(float, labels))  # a column has one dtype
        except OverflowError:
            raise ValueError(f"groups has numbers that column {column!r} cannot hold.") from None
    if kind in ("Float32", "Float16"):  # labels are rounded to the column's dtype
        with np.errstate(over="ignore"):
            return np.array(list(map(float, labels)), kind.lower()).astype(
                np.float64
            ).tolist(), shown
    return labels, shown


def check_zones(labels: Iterable[Any], zoned: bool, column: Any) -> None:
    """Raise ``ValueError`` if only one of a column's times and a label has a time zone.

    They are never equal.
    """
    for label in labels:
        if isinstance(label, datetime.datetime) and (label.utcoffset() is not None) != zoned:
            holds = "times with a time zone" if zoned else "times without a time zone"
            raise ValueError(f"column {column!r} holds {holds}, so no group is {label!r}.")


def number_in(label: Any, dtype: Any) -> Any:
    """Return a number in a narwhals dtype, or None if the dtype cannot represent it."""
    try:
        if dtype.is_decimal():
            found: Any = as_decimal(label)
            return found if found.is_finite() and len(found.as_tuple().digits) <= DIGITS else None
        found = int(label) if dtype.is_integer() else float(label)
        if found != label:
            return None
    except (
        ArithmeticError,
        ValueError,
    ):  # infinity is not an integer, and large integers are not floats
        return None
    name = str(dtype)
    bits = int(name.rpartition("nt")[2]) - name.startswith("I") if dtype.is_integer() else 0
    return (
        found
        if not bits or (0 if name.startswith("U") else -(2**bits)) <= found < 2**bits
        else None
    )


def as_decimal(label: Any) -> Any:
    """Return a Python number as the decimal it is written as.

    Other objects are returned unchanged.
    """
    if isinstance(label, float | int):
        return Decimal(str(label)) if isinstance(label, float) else Decimal(label)
    return label


def _plain(label: Any) -> Any:
    """Return a NumPy scalar as a Python object; times with microsecond precision, as in Python."""
    fine = label.dtype.kind in "mM" and np.datetime_data(label.dtype)[0] in ("ns", "ps", "fs", "as")
    return (label.astype(f"{label.dtype.kind}8[us]") if fine else label).item()


def is_missing(label: Any) -> bool:
    """Return whether a label is None, or the NaN of any type of real numbers.

    It never raises. NaN is not equal to itself, but a signaling NaN raises where it is compared.

    >>> [
    ...     is_missing(x)
    ...     for x in (None, np.float32("nan"), np.datetime64("NaT", "s"), Decimal("sNaN"))
    ... ]
    [True, True, True, True]
    >>> [is_missing(x) for x in (0, "nan", math.inf, Decimal(1))]
    [False, False, False, False]
    """
    if label is None:
        return True
    own = type(label)  # a label may lie about its class
    if issubclass(own, np.datetime64 | np.timedelta64):
        return bool(np.isnat(label))
    if issubclass(own, float):
        return float.__ne__(label, label)
    if issubclass(own, Decimal):
        return Decimal.is_nan(label)
    try:
        if own.__name__ in ("NAType", "NaTType"):  # those of pandas, which need not be installed
            return own.__module__.startswith("pandas.")
        return issubclass(own, Real) and bool(label != label)
    except Exception:
        return False


def text_of(label: Any) -> str | None:
    """Return the text of any object; None if ``str`` raises, since a record must not raise."""
    try:
        return str.__str__(str(label))  # of a subclass of str, whose methods may raise, too
    except Exception:
        return None


def in_order(numbers: Iterable[int], labels: Sequence[Any], several: bool) -> list[int]:
    """Sort the indices of labels, of one column or several, in natural order."""
    if set(map(type, labels)) <= {int, float}:
        return sorted(numbers, key=labels.__getitem__)
    key: Any = (
        (lambda k: list(map(natural_order, labels[k])))
        if several
        else (lambda k: natural_order(labels[k]))
    )
    return sorted(numbers, key=key)


def natural_order(label: Any) -> tuple[bool, float, str]:
    """Return a sort key of any label, by its text: numbers first, by value.

    >>> sorted(["10", "b", 9, "a", ""], key=natural_order)
    [9, '10', '', 'a', 'b']
    """
    text = "" if label is None else str(label)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    known = value == value
    return not known, value if known else 0.0, text
