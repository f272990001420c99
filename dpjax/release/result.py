"""What a release returns: values, the multiples that they are, and what all draws cost together."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dpjax.accounting.guarantee import Guarantee
from dpjax.display import Picture, Shown, index_names
from dpjax.release.grid import Candidates, Floats, Multiples

if TYPE_CHECKING:
    from dpjax.metric_privacy.guarantees import MetricGuarantee


@dataclass(frozen=True, repr=False)
class Release(Shown):
    """What was released; no error bar, since that would be a function of the data. A single number is ``float(found)``.

    Attributes:
        values: float64, in the units of the data: the draws on the first axis, then the batch of the records.
        multiples: int64 of the same shape: the values are these multiples of ``resolution``, exactly; of candidates and of
            floats, their numbers.
        resolution: what all values are multiples of; None for candidates and floats.
        guarantee: what all draws of one row cost together; with metric privacy, for every pair of elements.
    """

    values: np.ndarray
    multiples: np.ndarray
    resolution: Fraction | None
    guarantee: Guarantee | MetricGuarantee

    @property
    def draws(self) -> int:
        """How many from each row."""
        return self.values.shape[0]

    def __float__(self) -> float:
        """Return the value of a single draw from a single dataset."""
        if self.values.size != 1:
            raise TypeError(f"a release of the shape {self.values.shape} is not one number: read its .values.")
        return float(self.values.reshape(()))

    def __repr__(self) -> str:
        """Return the values first, then what they are multiples of and what they cost."""
        grid = "" if self.resolution is None else f", resolution={self.resolution}"
        shown = np.array2string(self.values, separator=", ", threshold=20, max_line_width=100, formatter={"float_kind": _shown})  # type: ignore[arg-type]
        return f"{type(self).__name__}(values={shown}, shape={self.values.shape}{grid}, guarantee={self.guarantee})"

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        table = self._table()[:, : rows + 1]
        names = [
            f"draw {draw}" + (f" [{k}]" if self.values.ndim > 2 else "")
            for draw in range(self.draws)
            for k in range(table.shape[-1])
        ]
        columns: dict[str, Any] = dict(zip(names, np.moveaxis(table, -1, 1).reshape(len(names), -1)[: 2 * rows], strict=False))
        return columns | ({"...": [""] * table.shape[1]} if len(names) > 2 * rows else {}), None

    def _row_names(self, rows: int) -> list[str]:
        return index_names(self.values.shape[1:-1] if self.values.ndim > 2 else self.values.shape[1:], rows)

    def _table(self) -> np.ndarray:
        """Return the values as ``(draws, rows, k)``: of several batch axes the last one stands side by side."""
        k = self.values.shape[-1] if self.values.ndim > 2 else 1
        return self.values.reshape(self.draws, math.prod(self.values.shape[1:]) // max(k, 1), k)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as lists, numbers and text, which :mod:`json` takes.

        >>> candidates = Release(np.array([[3.0]]), np.array([[1]]), None, Guarantee(1.0, 1.0, "swap"))
        >>> candidates.to_dict()["values"], candidates.to_dict()["guarantee"]["epsilon"]
        ([[3.0]], 1.0)
        """
        step = None if self.resolution is None else str(self.resolution)
        known = self.guarantee
        plain = known if isinstance(known, Guarantee) else known.guarantee(neighbors=known.neighbors)
        cost = plain.to_dict() | {"promise": str(known)}
        return {"values": self.values.tolist(), "multiples": self.multiples.tolist(), "resolution": step, "guarantee": cost}

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the release of :meth:`to_json`; with metric privacy, with the guarantee for neighbors that follows."""
        given = json.loads(text)
        arrays = np.array(given.pop("values"), np.float64), np.array(given.pop("multiples"), np.int64)
        resolution, cost = given.pop("resolution"), given.pop("guarantee")
        del cost["promise"]
        return cls(*arrays, None if resolution is None else Fraction(resolution), Guarantee.from_dict(cost), **given)

    def __str__(self) -> str:
        """Return a table: a line for each row of the batch, a column for each draw; of long ones the first twenty lines.

        Of several batch axes the last one, such as that of quantiles, stands side by side, and a bar between draws.
        """
        rows, mark = np.swapaxes(self._table(), 0, 1), " | " if self.values.ndim > 2 else "  "
        lines = [mark.join("  ".join(f"{value:.15g}" for value in draw) for draw in row) for row in rows[:20]]
        if len(rows) > 20:
            lines.append(f"... and {len(rows) - 20} rows more")
        return "\n".join([*lines, str(self.guarantee)])


def _shown(value: float) -> str:
    return f"{value:.15g}"


def release_of(numbers: np.ndarray, grid: Multiples | Floats | Candidates, guarantee: Guarantee | MetricGuarantee) -> Release:
    """Return the values of numbers of a grid, counted from its smallest, as released."""
    return Release(grid.values_of(numbers), numbers + grid.start, grid.resolution, guarantee)


def cost_of(epsilon: float | Fraction, draws: int, neighbors: str, ranges: int = 1) -> Guarantee:
    """Return what so many draws cost together: the product, rounded up, and so many times that as the bounded range."""
    exact = Fraction(epsilon) * draws
    cost = float(exact) if Fraction(float(exact)) >= exact else math.nextafter(float(exact), math.inf)
    return Guarantee(cost, ranges * cost, neighbors)
