"""The result of a release: the values and the cost of all draws."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dpjax.accounting.guarantee import Guarantee
from dpjax.display import cell_of

if TYPE_CHECKING:
    from dpjax.metric_privacy.guarantees import MetricGuarantee


@dataclass(frozen=True, repr=False)
class Release:
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
        """Return at most twenty rows, with all digits, and the guarantee.

        Columns are draws; or, of one draw from several rows, its values of a row.
        """
        shown = self.values[0] if self.draws == 1 and self.values.ndim > 2 else self.values.T
        shown = shown.reshape(-1, shown.shape[-1])
        lines = ["  ".join(map(cell_of, row[:20])) for row in shown[:20].tolist()]
        if max(shown.shape) > 20:
            lines.append(f"... of the shape {self.values.shape}")
        return "\n".join([*lines, str(self.guarantee)])

    def to_json(self) -> str:
        """Return the values and the guarantee as JSON.

        >>> Release(np.array([[3.0]]), Guarantee(1.0, 1.0, "swap")).to_json()[:18]
        '{"values": [[3.0]]'
        """
        known = self.guarantee
        plain = (
            known if isinstance(known, Guarantee) else known.guarantee(neighbors=known.neighbors)
        )
        cost = plain.to_dict() | {"promise": str(known)}
        return json.dumps({"values": self.values.tolist(), "guarantee": cost})


def cost_of(epsilon: Fraction, draws: int, neighbors: str, ranges: int = 1) -> Guarantee:
    """Return the guarantee of all draws together: epsilon times draws, rounded up.

    Its bounded range is ``ranges`` times that.
    """
    exact = epsilon * draws
    cost = float(exact)
    cost = cost if Fraction(cost) >= exact else math.nextafter(cost, math.inf)
    return Guarantee(cost, ranges * cost, neighbors)
