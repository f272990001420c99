"""Conversion of results to dates, times and durations from microseconds."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

_DAY = 86_400_000_000


def in_kind(values: np.ndarray, kind: str, bound: Any) -> np.ndarray:
    """Return values as dates, times or durations.

    Args:
        values: microseconds, float64, since 1970 or since midnight.
        kind: ``"Date"``, ``"Datetime"``, ``"Duration"`` or ``"Time"``, the kind of the column. A
            value between two dates becomes the earlier one.
        bound: a bound, whose time zone the results have.
    """
    rounded = np.rint(np.asarray(values)).astype(np.int64)
    if kind == "Date":
        return (rounded // _DAY).astype("datetime64[D]")
    if kind == "Duration":
        return rounded.astype("timedelta64[us]")
    zone = getattr(bound, "tzinfo", None)
    if kind == "Datetime" and zone is None:
        return rounded.astype("datetime64[us]")
    start = datetime.datetime(1970, 1, 1, tzinfo=None if zone is None else datetime.UTC)
    found = np.empty(rounded.size, object)
    moments = [start + datetime.timedelta(microseconds=each) for each in rounded.ravel().tolist()]
    found[:] = [moment.time() if kind == "Time" else moment.astimezone(zone) for moment in moments]
    return found.reshape(rounded.shape)


def durations(values: np.ndarray) -> np.ndarray:
    """Return distances in microseconds as ``timedelta64[us]``."""
    return np.rint(np.asarray(values)).astype(np.int64).astype("timedelta64[us]")
