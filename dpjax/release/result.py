"""The result of a release: the values and the cost of all draws."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpjax.accounting.guarantee import Guarantee
from dpjax.display import Picture, Shown, cell_of, index_names

if TYPE_CHECKING:
    from dpjax.metric_privacy.guarantees import MetricGuarantee


@dataclass(frozen=True, repr=False)
class Release(Shown):
    """The released values and their privacy guarantee.

    There is no error bar, since it would be a function of the data. ``float(found)`` is a single
    value.

    Attributes:
        values: float64, in the units of the data: the draws on the first axis, then the batch axes
            of the records, then one for several values of a row.
        guarantee: the cost of all draws from one row together; with metric privacy, for every pair
            of elements.

    >>> found = Release(np.array([[3.0]]), Guarantee(1.0, 1.0, "swap"))
    >>> float(found), found.draws
    (3.0, 1)
    """

    values: np.ndarray
    guarantee: Guarantee | MetricGuarantee

    @property
    def draws(self) -> int:
        """The number of draws from each row."""
        return self.values.shape[0]

    def __float__(self) -> float:
        """Return the only value, if there is exactly one."""
        if self.values.size != 1:
            raise TypeError(
                f"a release of the shape {self.values.shape} is not one number: use its .values."
            )
        return float(self.values.reshape(()))

    def __repr__(self) -> str:
        """Return the values, their shape and the guarantee."""
        how: Any = {
            "separator": ", ",
            "threshold": 20,
            "max_line_width": 100,
            "formatter": {"float_kind": cell_of},
        }
        shown = np.array2string(self.values, **how)
        return f"Release(values={shown}, shape={self.values.shape}, guarantee={self.guarantee})"

    def __str__(self) -> str:
        """Return a table of at most twenty lines.

        It has a line for each row of the batch and a column for each draw. If there are several
        batch axes, the last one, such as that of quantiles, is laid out in columns, and a bar
        separates draws.
        """
        rows, mark = np.swapaxes(self._table(), 0, 1), " | " if self.values.ndim > 2 else "  "
        lines = [
            mark.join("  ".join(cell_of(value) for value in draw) for draw in row)
            for row in rows[:20]
        ]
        if len(rows) > 20:
            lines.append(f"... and {len(rows) - 20} more rows")
        return "\n".join([*lines, str(self.guarantee)])

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        table = np.vectorize(cell_of, otypes=[str])(self._table()[:, : rows + 1])
        names = [
            f"draw {draw}" + (f" [{k}]" if self.values.ndim > 2 else "")
            for draw in range(self.draws)
            for k in range(table.shape[-1])
        ]
        columns: dict[str, Any] = dict(
            zip(names, np.moveaxis(table, -1, 1).reshape(len(names), -1)[: 2 * rows], strict=False)
        )
        return columns | ({"...": [""] * table.shape[1]} if len(names) > 2 * rows else {}), None

    def _row_names(self, rows: int) -> list[str]:
        return index_names(self.values.shape[1 : -1 if self.values.ndim > 2 else None], rows)

    def _table(self) -> np.ndarray:
        """Return the values as ``(draws, rows, k)``.

        k is the size of the last of several batch axes, else 1.
        """
        k = self.values.shape[-1] if self.values.ndim > 2 else 1
        return self.values.reshape(self.draws, math.prod(self.values.shape[1:]) // max(k, 1), k)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary of lists, numbers and text, which :mod:`json` can write.

        >>> Release(np.array([[3.0]]), Guarantee(1.0, 1.0, "swap")).to_dict()["values"]
        [[3.0]]
        """
        known = self.guarantee
        plain = (
            known if isinstance(known, Guarantee) else known.guarantee(neighbors=known.neighbors)
        )
        cost = plain.to_dict() | {"promise": str(known)}
        return {"values": self.values.tolist(), "guarantee": cost}

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict())


def cost_of(epsilon: Fraction, draws: int, neighbors: str, ranges: int = 1) -> Guarantee:
    """Return the guarantee of all draws together: epsilon times draws, rounded up.

    Its bounded range is ``ranges`` times that.
    """
    exact = epsilon * draws
    cost = float(exact)
    cost = cost if Fraction(cost) >= exact else math.nextafter(cost, math.inf)
    return Guarantee(cost, ranges * cost, neighbors)
