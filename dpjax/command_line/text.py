"""What every command prints: aligned tables, wrapped paragraphs, JSON, promises rounded up, and the mistakes of the user."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any

import jax
import numpy as np

from dpjax.accounting import Guarantee
from dpjax.version import __version__

SIMULATION = (
    "Simulation: float draws reveal low-order bits of the records, and error bars, sizes, ties and group names are read from the "
    "data. None of this is a private release."
)


class UserError(Exception):
    """A mistake in the arguments or in the file: one line on standard error and the exit code 2, never a traceback."""


def as_json(answer: dict[str, Any]) -> str:
    r"""Return an object as JSON, with its guarantees and NumPy numbers; a number that is not finite is null.

    A float32 becomes the shortest decimal that reads back as the same float32.

    >>> print(as_json({"x": np.float32(0.1), "y": (1, float("nan"))}).replace("\n", ""))
    {  "x": 0.1,  "y": [    1,    null  ]}
    """
    return json.dumps(_plain(answer), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, Guarantee):
        found = {"epsilon": value.epsilon, "bounded_range": value.bounded_range, "neighbors": value.neighbors}
        return _plain(found | ({"delta": value.delta} if value.delta else {}))
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(str(value)) if math.isfinite(value) else None
    return value


def versions() -> dict[str, str]:
    """Return what computed a report: the versions of dpjax and JAX, and the device."""
    device = jax.devices()[0]
    name = device.platform if device.device_kind == device.platform else f"{device.platform} ({device.device_kind})"
    return {"dpjax_version": __version__, "jax_version": jax.__version__, "device": name}


def versions_line() -> str:
    """Return :func:`versions` as a sentence."""
    return "Device {device}; dpjax {dpjax_version}; JAX {jax_version}.".format(**versions())


def total_epsilon(epsilon: float, times: int) -> float:
    """Return what so many draws cost together: the product, rounded up.

    >>> total_epsilon(0.1, 3) >= 3 * Fraction(0.1)
    True
    """
    total = epsilon * times
    return total if Fraction(total) >= Fraction(epsilon) * times else math.nextafter(total, math.inf)


def promised(epsilon: float, times: int = 1) -> str:
    """Return a privacy parameter as text of at most six digits, so many times, rounded up: no promise is printed too small.

    The parameter is read as the shortest decimal that stands for it, so that 0.1 stays 0.1, and three times 0.1 is 0.3.

    >>> promised(0.5), promised(0.1, 3), promised(0.12345649), promised(0.33333349, 3), promised(1e-7), promised(float("inf"))
    ('0.5', '0.3', '0.123457', '1.00001', '1e-07', 'inf')
    """
    if not math.isfinite(epsilon):
        return f"{epsilon:g}"
    exact = Context(prec=60).multiply(Decimal(repr(float(epsilon))), times)
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).plus(exact)):g}"


def words_of(guarantee: Guarantee) -> str:
    """Return the words of a guarantee, with its numbers as of :func:`promised`.

    >>> words_of(Guarantee(0.12345649, 0.25, "swap"))
    '0.123457-DP and 0.25-bounded-range under swap neighbors'
    """
    given = guarantee.epsilon, guarantee.bounded_range, guarantee.zcdp, guarantee.delta
    epsilon, bounded_range, zcdp, delta = (float(promised(value)) for value in given)
    return str(replace(guarantee, epsilon=epsilon, bounded_range=bounded_range, zcdp=zcdp, delta=delta))


def aligned(fields: dict[str, Sequence[str] | None], *, left: Sequence[str] = ()) -> str:
    r"""Return a table: a header, then one line for each entry; numbers to the right.

    Args:
        fields: the columns by name, of equal length; None for one that is left out.
        left: names of the columns of text, which stay to the left.

    >>> print(aligned({"name": ["a", "bcdef"], "n": ["1", "20"], "missing": None}, left=("name",)))
    name    n
    a       1
    bcdef  20
    """
    columns = []
    for name, entries in fields.items():
        if entries is not None:
            cells = [name, *(cell if cell.isprintable() else ascii(cell) for cell in entries)]
            width = max(map(len, cells))
            columns.append([cell.ljust(width) if name in left else cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def wrapped(*paragraphs: str) -> str:
    """Return paragraphs in lines of at most 118 characters, the further lines of each indented by two."""
    fill = textwrap.TextWrapper(118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False).fill
    return "\n".join(map(fill, paragraphs))
