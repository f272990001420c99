"""The result of a release: the values, their multiples, and the cost of all draws."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dpjax.accounting.guarantee import Guarantee
from dpjax.display import Picture, Shown, cell_of, index_names
from dpjax.release.grid import Candidates, Floats, Multiples

if TYPE_CHECKING:
    from dpjax.metric_privacy.guarantees import MetricGuarantee


@dataclass(frozen=True, repr=False)
class Release(Shown):
    """The released values, their grid and their privacy guarantee.

    There is no error bar, since it would be a function of the data. ``float(found)`` is a single
    value.

    Attributes:
        values: float64, in the units of the data: the draws on the first axis, then the batch axes
            of the records.
        multiples: int64 of the same shape: the values are exactly these multiples of
            ``resolution``; for candidates and floats, the indices of the values.
        resolution: the common divisor of all values; None for candidates and floats.
        guarantee: the cost of all draws from one row together; with metric privacy, for every pair
            of elements.

    >>> found = Release(
    ...     np.array([[3.0]]), np.array([[3]]), Fraction(1), Guarantee(1.0, 1.0, "swap")
    ... )
    >>> float(found), found.draws
    (3.0, 1)
    """

    values: np.ndarray
    multiples: np.ndarray
    resolution: Fraction | None
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
        """Return the values, then the resolution and the guarantee."""
        grid = "" if self.resolution is None else f", resolution={self.resolution}"
        how: Any = {
            "separator": ", ",
            "threshold": 20,
            "max_line_width": 100,
            "formatter": {"float_kind": cell_of},
        }
        shown = np.array2string(self.values, **how)
        facts = f"shape={self.values.shape}{grid}, guarantee={self.guarantee}"
        return f"{type(self).__name__}(values={shown}, {facts})"

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

        >>> candidates = Release(
        ...     np.array([[3.0]]), np.array([[1]]), None, Guarantee(1.0, 1.0, "swap")
        ... )
        >>> candidates.to_dict()["values"], candidates.to_dict()["guarantee"]["epsilon"]
        ([[3.0]], 1.0)
        """
        step = None if self.resolution is None else str(self.resolution)
        known = self.guarantee
        plain = (
            known if isinstance(known, Guarantee) else known.guarantee(neighbors=known.neighbors)
        )
        cost = plain.to_dict() | {"promise": str(known)}
        return {
            "values": self.values.tolist(),
            "multiples": self.multiples.tolist(),
            "resolution": step,
            "guarantee": cost,
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the release that :meth:`to_json` wrote.

        With metric privacy, its guarantee is the one for neighbors that follows from it.
        """
        fields = json.loads(text)
        arrays = (
            np.array(fields.pop("values"), np.float64),
            np.array(fields.pop("multiples"), np.int64),
        )
        resolution, cost = fields.pop("resolution"), fields.pop("guarantee")
        del cost["promise"]
        return cls(
            *arrays,
            None if resolution is None else Fraction(resolution),
            Guarantee.from_dict(cost),
            **fields,
        )

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


def release_of(
    numbers: np.ndarray,
    grid: Multiples | Floats | Candidates,
    guarantee: Guarantee | MetricGuarantee,
) -> Release:
    """Return a release of grid positions, counted from the smallest value of the grid."""
    return Release(grid.values_of(numbers), numbers + grid.start, grid.resolution, guarantee)


def cost_of(epsilon: float | Fraction, draws: int, neighbors: str, ranges: int = 1) -> Guarantee:
    """Return the guarantee of all draws together: epsilon times draws, rounded up.

    Its bounded range is ``ranges`` times that.
    """
    exact = Fraction(epsilon) * draws
    cost = (
        float(exact) if Fraction(float(exact)) >= exact else math.nextafter(float(exact), math.inf)
    )
    return Guarantee(cost, ranges * cost, neighbors)
